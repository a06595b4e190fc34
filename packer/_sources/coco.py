"""Images with annotations in COCO's format: boxes, categories, segmentations, keypoints and captions as fields."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._fields import Field, Stored
from packer._fields.coco import drawn
from packer._sample import UNLABELED
from packer._sources.cococolumns import columns_of
from packer._sources.cocofile import CocoImage, Joined, read_joined
from packer._sources.derived import DerivedSource
from packer._sources.walking import ImageRule, Walk
from packer._storage.paths import name_problem
from packer._table import Names
from packer.errors import ImageError, SourceError, printable

if TYPE_CHECKING:
    from packer._sources.readbuffer import ReadBuffer

__all__ = ["CocoSource", "coco_source"]

_MOST_MASKED = 65535  # a category of a PNG of 16 bits


@dataclass(frozen=True, eq=False, kw_only=True)
class CocoSource(DerivedSource):
    """Images with annotations in COCO's format."""

    def derive(self, index: int, stored: Mapping[str, Stored], buffer: ReadBuffer) -> Sequence[Stored]:
        fields = {column.field.name: column.field for column in self.columns}
        image, segmentations, categories, crowds = (
            fields[name].decode(stored[name]) for name in ("image_info", "segmentation", "category", "iscrowd")
        )
        if segmentations is None:
            return (None,)
        try:
            pixels = drawn(segmentations, categories, crowds, image["height"], image["width"])
        except ValueError as error:
            raise ImageError(f"field 'mask': {error}", self.names[index]) from error
        return (_png(pixels.astype(self._depth)),)

    @property
    def _depth(self) -> type[np.unsignedinteger[Any]]:
        (ids,) = (field.ids for field in self.fields if field.name == "category")
        return np.uint8 if max(ids) < 256 else np.uint16


def coco_source(
    root: Path,
    files: Sequence[Path],
    *,
    masks: bool = False,
    on_missing: str = "error",
    rule: ImageRule | None = None,
) -> CocoSource:
    """List the images that files of annotations in COCO's format name, in the order of their ids.

    Torchvision's ``CocoDetection`` has that order too. The images have no labels: -1.

    Parameters
    ----------
    root : Path
        The directory that ``file_name`` counts from.
    files : sequence of Path
        Files of the same images, such as instances, captions and person_keypoints. Annotations of one id are one.
    masks : bool
        Whether the annotations of each image are drawn into the field ``mask``: a PNG of categories, 8 bits where all
        are below 256, else 16. 0 is where no annotation is. Crowds lie below other annotations, and larger masks below
        smaller ones.
    on_missing : {"error", "skip"}
        What becomes of images whose files are not there.
    rule : ImageRule, optional
        Which files below `root` count as images: those without an entry are counted.

    Raises
    ------
    SourceError
        If a file cannot be read, or contradicts itself, another, or what lies below `root`.
    """
    shown = ", ".join(map(printable, files))
    joined = read_joined(files)
    names = _names(joined, shown)
    there, others, notes = _present(root, rule or ImageRule(), names, shown, on_missing)
    ids = [id for id in sorted(joined.images) if there[id]]
    if not ids:
        raise SourceError(f"{shown}: no images in it")
    images = [joined.images[id] for id in ids]
    objects = sum(len(image.objects or ()) for image in images)
    empty = sum(image.objects is not None and not image.objects for image in images)
    notes.insert(0, f"{objects:,} annotations of objects, and {empty:,} of {len(ids):,} images have none")
    notes += _flat_boxes(images)
    columns = columns_of(ids, images, joined.categories, shown)
    derived = _masks(joined, images, shown) if masks else ()
    return CocoSource(
        "coco",
        root,
        Names.of(names[id] for id in ids),
        np.full(len(ids), UNLABELED, np.int64),
        [],
        notes,
        others=others,
        fields=(*derived, *(column.field for column in columns)),
        columns=tuple(columns),
        derived=derived,
        about=tuple(joined.about),
    )


def _flat_boxes(images: Sequence[CocoImage]) -> Iterator[str]:
    """Yield a note on boxes without an area, which are kept: who trains has to leave them out."""
    boxes = (entry.get("bbox") for image in images for entry in (image.objects or {}).values())
    if flat := sum(box is not None and min(box[2:]) <= 0 for box in boxes):
        yield (
            f"{flat:,} boxes have no width or no height; they are kept, and torchvision's detectors refuse them in "
            "training"
        )


def _names(joined: Joined, shown: str) -> dict[int, str]:
    """Return the samples' names of the images by their ids; SourceError where one is no name, or of two images."""
    names: dict[int, str] = {}
    first: dict[str, int] = {}
    for id, image in joined.images.items():
        given = image.members.pop("file_name")
        name = str(PurePosixPath(given.replace(os.sep, "/")))
        if problem := name_problem(name):
            raise SourceError(f"{shown}: image {id}: file_name {printable(given)}: {problem}")
        if first.setdefault(name, id) != id:
            raise SourceError(f"{shown}: the images {first[name]} and {id} have one file_name, {printable(given)}")
        names[id] = name
        if name != given:
            image.members["file_name"] = given
    return names


def _present(
    root: Path, rule: ImageRule, names: Mapping[int, str], shown: str, on_missing: str
) -> tuple[dict[int, bool], Any, list[str]]:
    """Return which images are below `root`, the files that are no images, and what a person should know."""
    walk = Walk(root, rule)
    found = set(walk.all_images())
    there = {id: name in found or os.path.isfile(os.path.join(root, name)) for id, name in names.items()}
    notes = walk.said()
    missing = [names[id] for id, is_there in there.items() if not is_there]
    if missing:
        some = ", ".join(map(printable, missing[:5])) + (", …" if len(missing) > 5 else "")
        are = f"{len(missing):,} of {len(names):,} images are not below {printable(root)}: {some}"
        if on_missing != "skip":
            raise SourceError(
                f"{shown}: {are}. SRC is the directory that file_name counts from; "
                "--on-missing skip leaves out images that are not there."
            )
        notes.append(f"left out: {are}")
    if unnamed := len(found.difference(names.values())):
        notes.append(f"{unnamed:,} images below SRC have no entry in the annotations, and are left out")
    return there, walk.others, notes


def _masks(joined: Joined, images: Sequence[CocoImage], shown: str) -> tuple[Field]:
    """Return the field that masks are drawn into; SourceError where they cannot be drawn."""
    if not any(entry.get("segmentation") for image in images for entry in (image.objects or {}).values()):
        raise SourceError(f"{shown}: --masks draws segmentations, and no annotation has one")
    if not joined.categories:
        raise SourceError(f"{shown}: --masks draws the ids of categories, and the files have no categories")
    for id, category in joined.categories.items():
        if not 0 < id <= _MOST_MASKED:
            raise SourceError(
                f"{shown}: category {id} ({printable(category['name'])}) cannot be drawn by --masks: 0 is where no "
                f"annotation is, and {_MOST_MASKED} the most that a PNG holds. Give the category another id."
            )
    if unknown := [image for image in images if image.size is None]:
        raise SourceError(f"{shown}: {len(unknown):,} images have no height and width, and --masks draws by them")
    return (Field("mask", "mask"),)


def _png(pixels: npt.NDArray[Any]) -> bytes:
    from PIL import Image

    from packer._images.encode import encode_png

    return encode_png(Image.fromarray(pixels))
