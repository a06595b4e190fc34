"""Images with annotations in COCO's format: boxes, categories, segmentations, keypoints and captions as fields."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._fields import Field, Stored
from packer._fields.coco import drawn
from packer._sample import UNLABELED
from packer._sources.base import some
from packer._sources.cococolumns import columns_of
from packer._sources.cocofile import CocoImage, Id, Joined, read_joined
from packer._sources.derived import DerivedSource
from packer._sources.tablenames import called_otherwise
from packer._sources.walking import ImageRule, Walk
from packer._storage.paths import name_problem
from packer._storage.stamps import NO_STAMP, stamp_at
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
    bad: BadSamples | None = None,
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
    bad : BadSamples, optional
        Takes the images with an annotation that cannot be used; by default the first of them is an error.

    Raises
    ------
    SourceError
        If a file cannot be read, or contradicts itself, another, or what lies below `root`.
    """
    shown = ", ".join(map(printable, files))
    bad = bad or BadSamples()
    joined = read_joined(files, bad)
    names = _names(joined, shown, bad)
    walk = Walk(root, rule or ImageRule())
    there = _present(root, walk, names, shown, on_missing)
    notes = walk.said()
    ids = [id for id in sorted(joined.images) if id in there and id not in joined.unusable]
    ids = _with_all_boxes(ids, joined, names, shown, bad)
    if not ids:
        first = f" that can be used: {bad.found[0]['reason']}" if bad.found else " in it"
        raise SourceError(f"{shown}: no images{first}")
    images = [joined.images[id] for id in ids]
    objects = sum(len(image.objects or ()) for image in images)
    empty = sum(image.objects is not None and not image.objects for image in images)
    notes.insert(0, f"{objects:,} annotations of objects, and {empty:,} of {len(ids):,} images have none")
    notes += _flat_boxes(images)
    used = {entry["category_id"] for image in images for entry in (image.objects or {}).values()}
    if used and (idle := [one["name"] for id, one in joined.categories.items() if id not in used]):
        notes.append(f"categories without annotations, which keep their ids: {some(idle)}")
    notes += _text_ids(joined)
    unusable: dict[int, SourceError] = {}
    columns = columns_of(ids, joined, shown, unusable)
    for row, error in sorted(unusable.items()):
        bad.add(names[ids[row]], error)
    derived = _masks(joined, images, shown) if masks else ()
    source = CocoSource(
        "coco",
        root,
        Names.of(names[id] for id in ids),
        np.full(len(ids), UNLABELED, np.int64),
        [],
        notes,
        others=walk.others,
        account=walk.account,
        fields=(*derived, *(column.field for column in columns)),
        columns=tuple(columns),
        derived=derived,
        about=tuple(joined.about),
        doubts=tuple(bad.found),
    )
    if not unusable:
        return source
    usable = source.taken(np.array([row for row in range(len(ids)) if row not in unusable], np.int64))
    assert isinstance(usable, CocoSource)
    return usable


def _with_all_boxes(
    ids: Sequence[Id], joined: Joined, names: Mapping[Id, str], shown: str, bad: BadSamples
) -> list[Id]:
    """Return the images all of whose annotations have a box, where some of all have one."""
    lacking: dict[Id, list[Id]] = {}
    boxes = False
    for id in ids:
        for number, entry in (joined.images[id].objects or {}).items():
            if entry.get("bbox") is None:
                lacking.setdefault(id, []).append(number)
            else:
                boxes = True
    if not boxes or not lacking:
        return list(ids)
    count = sum(map(len, lacking.values()))
    for id, without in lacking.items():
        error = SourceError(
            f"{shown}: {count:,} annotations have no bbox, and others have one. The first of {printable(names[id])} is "
            f"{without[0]}. Give it a box x y width height, or take it out of the file."
        )
        bad.add(names[id], error)
    return [id for id in ids if id not in lacking]


def _text_ids(joined: Joined) -> Iterator[str]:
    """Yield a note on the numbers that categories get whose ids are texts."""
    shown = [f"{id}: {number}" for id, number in joined.category_numbers.items() if isinstance(id, str)]
    if shown:
        yield f"ids of categories are texts, and get numbers in the order of the file: {some(shown)}"


def _flat_boxes(images: Sequence[CocoImage]) -> Iterator[str]:
    """Yield a note on boxes without an area, which are kept: who trains has to leave them out."""
    boxes = (entry.get("bbox") for image in images for entry in (image.objects or {}).values())
    if flat := sum(box is not None and min(box[2:]) <= 0 for box in boxes):
        yield (
            f"{flat:,} boxes have no width or no height; they are kept, and torchvision's detectors refuse them in "
            "training"
        )


def _names(joined: Joined, shown: str, bad: BadSamples) -> dict[Id, str]:
    """Return the samples' names of the images by their ids, without those whose name is none, or of an image before."""
    names: dict[Id, str] = {}
    first: dict[str, Id] = {}
    for id, image in joined.images.items():
        given = image.members.pop("file_name")
        name = str(PurePosixPath(given.replace(os.sep, "/")))
        if problem := name_problem(name):
            bad.add(f"image {id}", SourceError(f"{shown}: image {id}: file_name {printable(given)}: {problem}"))
            continue
        if first.setdefault(name, id) != id:
            one = f"{shown}: the images {first[name]} and {id} have one file_name, {printable(given)}"
            bad.add(f"image {id}", SourceError(one))
            continue
        names[id] = name
        if name != given:
            image.members["file_name"] = given
    return names


def _present(root: Path, walk: Walk, names: Mapping[Id, str], shown: str, on_missing: str) -> set[Id]:
    """Return which images are below `root`; the account of the walk has those that are not, and that have no entry."""
    found = set(walk.all_images())
    there = {id for id, name in names.items() if name in found or stamp_at(os.path.join(root, name)) != NO_STAMP}
    if missing := [name for id, name in names.items() if id not in there]:
        if on_missing != "skip":
            otherwise = called_otherwise(found.difference(names.values()), missing)
            raise SourceError(
                f"{shown}: {len(missing):,} of {len(names):,} images are not below {printable(root)}: {some(missing)}."
                f"{otherwise} SRC is the directory that file_name counts from; --on-missing skip leaves out images "
                "that are not there."
            )
        walk.account.left_out("image", "it is not there; --on-missing skip", missing, chosen=True)
    unnamed = sorted(found.difference(names.values()))
    walk.account.left_out("image", "it has no entry in the annotations", unnamed)
    return there


def _masks(joined: Joined, images: Sequence[CocoImage], shown: str) -> tuple[Field]:
    """Return the field that masks are drawn into; SourceError where they cannot be drawn."""
    if not any(entry.get("segmentation") for image in images for entry in (image.objects or {}).values()):
        raise SourceError(f"{shown}: --masks draws segmentations, and no annotation has one")
    if not joined.categories:
        raise SourceError(f"{shown}: --masks draws the ids of categories, and the files have no categories")
    numbers = joined.category_numbers
    for id, category in joined.categories.items():
        if not 0 < numbers[id] <= _MOST_MASKED:
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
