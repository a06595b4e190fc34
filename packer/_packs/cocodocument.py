"""The way back to annotations in COCO's format: what a pack's fields say, as the document that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from packer._fields.coco import annotations_of, captions_of, image_of
from packer._formats import Reader
from packer.errors import CorruptPackError, OptionError, printable

__all__ = ["coco_document"]

_OF_IMAGES = ("image_id", "image_info")
_OF_OBJECTS = (
    *("annotation_id", "category", "iscrowd", "iscrowd_given", "boxes", "bbox", "area", "segmentation"),
    *("keypoints", "keypoint_count", "members"),
)
_OF_CAPTIONS = ("captions", "caption_id", "caption_members")


def coco_document(reader: Reader, *, captions: bool = False, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the annotations of a pack that was made of files in COCO's format, equal to those of the files.

    Images and annotations come in the order of the pack, that of the images' ids. What was moved by a resizing is where
    it is in the pack's images, and images have the pack's heights and widths; ``area`` stays the file's number.

    Parameters
    ----------
    reader : Reader
        A pack, open.
    captions : bool
        Whether the annotations are the captions, which have ids of their own; else those of objects.
    names : sequence of str, optional
        A file name for each sample; by default the sample's name, or ``file_name`` as the file spelled it.

    Returns
    -------
    dict
        ``images``, those of which the files spoke; ``annotations``, where the pack has such; ``categories`` and all
        other members of the files, such as ``info`` and ``licenses``. Where there are several files, the
        first one's count.

    Raises
    ------
    OptionError
        If the pack was not made of such files.
    CorruptPackError, PackError
        If the pack is damaged, or its fields contradict each other.
    """
    if not set(_OF_IMAGES) <= reader.fields.keys():
        raise OptionError(f"{printable(reader.path)}: it was not made of annotations in COCO's format (--coco)")
    wanted, id = (_OF_CAPTIONS, "caption_id") if captions else (_OF_OBJECTS, "annotation_id")
    fields = [name for name in (*_OF_IMAGES, *wanted) if name in reader.fields]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for index in range(len(reader)):
        try:
            values = {name: reader.fields[name].decode(reader.value(index, name)) for name in fields}
            if id in fields and values[id] is None:
                continue
            images.append(_image(reader, index, values, names))
            annotations += (captions_of if captions else annotations_of)(values)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
            reason = f"its fields are no annotations in COCO's format: {error}"
            raise CorruptPackError(reason, reader.path, index, reader._name_in_error(index)) from error
    document: dict[str, Any] = {**_members(reader, captions), "images": images}
    return {**document, "annotations": annotations} if id in fields else document


def _image(reader: Reader, index: int, values: dict[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    image = image_of(values, reader.names[index])
    sides = {"height": int(reader.table.height[index]), "width": int(reader.table.width[index])}
    image |= {name: side for name, side in sides.items() if image.get(name) is not None}
    return image if names is None else {**image, "file_name": names[index]}


def _members(reader: Reader, captions: bool) -> dict[str, Any]:
    """Return what files said of no image: those with categories of objects, those without of captions."""
    said = [entry["members"] for entry in reader.manifest.about]
    about = [members for members in said if bool(members.get("categories")) != captions] or said
    found: dict[str, Any] = {}
    for members in about:
        found = {**members, **found}
    if not captions and "category" in reader.fields:
        found["categories"] = _categories(reader, about)
    return found


def _categories(reader: Reader, about: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the categories with the members that files gave them; at least their ids and names."""
    field = reader.fields["category"]
    known: dict[int, dict[str, Any]] = {
        id: {"id": id, "name": name} for id, name in zip(field.ids, field.classes, strict=True)
    }
    numbers: dict[str, int] = {}  # of ids that are texts, in the order of the files
    for category in (one for members in about for one in members.get("categories") or ()):
        id = category.get("id") if isinstance(category, dict) else None
        number = numbers.setdefault(id, len(numbers) + 1) if isinstance(id, str) else id
        if number in known:
            own = known[number]
            own["id"] = id
            own.update({name: value for name, value in category.items() if name not in own})
    return list(known.values())
