"""Images with annotations in COCO's format: boxes, categories, segmentations, keypoints and captions as fields.

Several files about the same images are joined, and checked for consistency. In a field of objects, the value of an
image has one row for each annotation, in the order of the files. If a file with objects lists the image but has no
annotation for it, the value is empty; if no such file lists the image, the value is null. If the ids of categories or
annotations are texts, they are replaced by numbers, from 1 on in the order of the files; the field ``members`` keeps
the texts. The ids of images do not change.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._fields import MARGIN, Field, Stored
from packer._fields.coco import boxes_of, drawn, keypoints_of, segmentation_problem
from packer._fields.encoding import is_text, parsed_json
from packer._sources.base import SIZE_FIELDS, BlobColumn, Column, ComputedFields, NumberColumn, ReadBuffer, Source, some
from packer._sources.file_matching import called_otherwise
from packer._sources.imagefolder import FilesOf, ImageRule, Walk, images_without_labels
from packer._sources.tables import file_text
from packer._storage.safe_open import name_problem
from packer._storage.stamps import NO_STAMP, stamp_at
from packer.errors import ImageError, SourceError, option, printable

Id = int | str
"""The id of an image, a category or an annotation: a number in COCO, a text in files of some other tools."""

_FARTHEST = 1e30  # the largest number, because numbers become float32; a comparison with NaN is false, too
_LARGEST = (1 << 63) - 1  # the largest id
_KINDS_OF_IDS = {int: "numbers", str: "strings"}
_REMEDY = "Correct the annotation, or remove it from the file."


@dataclass(slots=True)
class Segmentation:
    """A segmentation as JSON text, which takes a tenth of the memory of lists.

    Attributes
    ----------
    text : bytes
    size : (int, int), optional
        The height and width, if they are known.
    problem : str, optional
        The reason why the segmentation is invalid.
    """

    text: bytes
    size: tuple[int, int] | None
    problem: str | None


@dataclass(slots=True)
class CocoImage:
    """The entry and the annotations of one image.

    Attributes
    ----------
    members : dict
        The image's entry in the list of images, without its id.
    objects : dict of Id to dict, optional
        The image's objects by id, in the order of the files; None if no file with objects lists the image.
    captions : dict of Id to dict, optional
        The image's captions by id, in the order of the files; None if no file with captions lists the image.
    """

    members: dict[str, Any]
    objects: dict[Id, dict[str, Any]] | None = None
    captions: dict[Id, dict[str, Any]] | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the image, if the entry has them."""
        height, width = self.members.get("height"), self.members.get("width")
        return None if height is None or width is None else (height, width)

    def equals(self, other: CocoImage) -> bool:
        """Tell whether another image has the same annotations, except for their ids."""
        mine, others = ([list((own or {}).values()) for own in (one.objects, one.captions)] for one in (self, other))
        return mine == others

    def annotations(self, *, captions: bool) -> dict[Id, dict[str, Any]]:
        """Return the image's captions, or its objects if `captions` is False; None first becomes an empty dict."""
        if captions:
            self.captions = self.captions or {}
            return self.captions
        self.objects = self.objects or {}
        return self.objects


@dataclass
class Joined:
    """The contents of several files about the same images.

    Attributes
    ----------
    images : dict of Id to CocoImage
    categories : dict of Id to dict
        The categories, in the order of the files.
    about : list of dict
        For each file, a dict with the file's name (``file``), and with everything in the file except images and
        annotations, such as licenses (``members``).
    unusable : dict of Id to SourceError
        The error for each image that is unusable, or has an unusable annotation, by the image's id.
    kinds : dict of str to type
        For each list in the files, such as ``images``, whether its ids are numbers or texts.
    left : dict of (str, str) to (dict, str)
        For each unusable image: its record, and the name of its entry in the file. The keys are the image's name and
        the text of the error.
    refused : dict of Id to set of str
        The sample names of the unusable images that are not in `images`, by id.
    incomplete : set of str
        Those of these names whose image has an annotation, so that an entry with the same name lacks it.
    """

    images: dict[Id, CocoImage] = field(default_factory=dict)
    categories: dict[Id, dict[str, Any]] = field(default_factory=dict)
    about: list[dict[str, Any]] = field(default_factory=list)
    unusable: dict[Id, SourceError] = field(default_factory=dict)
    kinds: dict[str, type[Id]] = field(default_factory=dict)
    left: dict[tuple[str, str], tuple[dict[str, str], str]] = field(default_factory=dict)
    refused: dict[Id, set[str]] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)

    @property
    def category_numbers(self) -> dict[Id, int]:
        """The number of each category: its id; or a number from 1 on if the ids are texts, as 0 is the background."""
        return {id: position if isinstance(id, str) else id for position, id in enumerate(self.categories, 1)}

    def record(self, bad: BadSamples, file_name: str, where: str, error: SourceError) -> None:
        """Record an unusable image in `bad` and in `left`; `where` is the name of its entry."""
        name = _sample_name(file_name)
        if (key := (name, str(error))) not in self.left:
            self.left[key] = bad.add(name, error), where

    def name_entries(self, listed: Iterable[str]) -> None:
        """Give a record the name of its entry if an earlier record or a `listed` image has the same name.

        Two entries can have the same name if they are about the same image.
        """
        named = set(listed)
        for record, where in self.left.values():
            if record["name"] in named:
                record["name"] = where
            named.add(record["name"])


def read_joined(files: Sequence[Path], bad: BadSamples | None = None) -> Joined:
    """Read annotation files, and join images and annotations with the same id.

    Parameters
    ----------
    files : sequence of Path
    bad : BadSamples, optional
        Collects unusable images, images with an unusable annotation, and annotations of unknown images. By default
        the first of them is an error.

    Raises
    ------
    SourceError
        If a file cannot be read, or contradicts itself or another file; or if an annotation violates COCO's format.
    """
    joined = Joined()
    for path in files:
        _File(path, joined, bad or BadSamples()).read()
    return joined


class _File:
    """The reader of one annotation file."""

    def __init__(self, path: Path, joined: Joined, bad: BadSamples) -> None:
        self._path = path
        self._joined = joined
        self._bad = bad

    def read(self) -> None:
        document = self._parsed()
        self._require_annotations(document)
        self._join_categories(self._entries(document, "categories", self._refuse_category))
        images = self._entries(document, "images", self._refuse_image)
        self._join_images(images)
        annotations = self._entries(document, "annotations", self._refuse_annotation)
        captions = sum(_is_caption(one) for one in annotations)
        of_objects = "annotations" in document and (captions < len(annotations) or not annotations)
        usable = (entry["id"] for entry in images if entry["id"] in self._joined.images)
        for image in map(self._joined.images.__getitem__, usable):
            if captions:
                image.annotations(captions=True)
            if of_objects:
                image.annotations(captions=False)
        self._join_annotations(annotations)
        members = {
            name: self._plain(name, value) for name, value in document.items() if name not in ("images", "annotations")
        }
        if members:
            self._joined.about.append({"file": self._path.name, "members": members})

    def _plain(self, name: str, value: Any) -> Any:
        """Return a member of the document as JSON values; a `Segmentation` in it becomes JSON again."""
        try:
            return parsed_json(json.dumps(value, default=_original))
        except (ValueError, RecursionError) as error:
            raise self._refused(f"its member {name!r}: {error}. Correct it, or remove it from the file") from error

    def _require_annotations(self, document: Any) -> None:
        """Raise SourceError if a document is not a file of annotations; the message names its actual type."""
        if isinstance(document, list) and document and isinstance(document[0], dict) and "image_id" in document[0]:
            raise self._refused(
                "it is a list of results (image_id, category_id, score), which has no images: pass the file of "
                "annotations, such as instances_val2017.json"
            )
        if not isinstance(document, dict) or "images" not in document:
            raise self._refused('it has no list "images", so it is not an annotation file in COCO\'s format')
        first = document.get("annotations")
        if isinstance(first, list) and first and isinstance(first[0], dict) and "segments_info" in first[0]:
            raise self._refused(
                f"it has panoptic annotations (segments_info), whose segments are in PNG files: {option('coco')} "
                "reads instances, keypoints and captions, such as instances_val2017.json. Store the PNG files "
                f"unchanged with {option('fields')}, such as 'panoptic:image=../panoptic_val2017/{{stem}}.png'"
            )

    def _parsed(self) -> Any:
        try:
            return json.loads(file_text(self._path), object_hook=_shortened)
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise self._refused(f"it is not JSON: {error}") from error

    def _entries(
        self, document: dict[str, Any], name: str, refuse: Callable[[str, Any, SourceError], None]
    ) -> list[dict[str, Any]]:
        """Return those entries of the document's list `name` that have a valid and unique id.

        For every other entry, `refuse` is called with the entry's position in words, the entry, and the error.
        """
        entries = document.get(name, [])
        if not isinstance(entries, list):
            raise self._refused(f'"{name}" is not a list of objects')
        ids = [_id(entry.get("id")) if isinstance(entry, dict) else None for entry in entries]
        counts = Counter(ids)
        types = Counter(type(id) for id in ids if id is not None)
        usual = types.most_common(1)[0][0] if types else None
        kind = self._joined.kinds.setdefault(name, usual) if usual is not None else None
        if usual is not None and kind is not None and kind is not usual:
            raise self._refused(
                f"most ids of {name} are {_KINDS_OF_IDS[usual]}, but those of an earlier file are "
                f"{_KINDS_OF_IDS[kind]}: the files are not of the same images. Write all ids in the same way"
            )
        usable = []
        for position, (entry, id) in enumerate(zip(entries, ids, strict=True)):
            where = f"entry {position} of {name}"
            if id is None:
                problem = f"{where}, counted from 0, has no id, which must be a whole number or a string"
            elif isinstance(id, int) and abs(id) > _LARGEST:
                problem = f"{where}, counted from 0, has an id beyond 64 bits"
            elif type(id) is not kind:
                problem = (
                    f"some ids of {name} are numbers and others are strings; entry {position}, counted from 0, has "
                    f"the id {id!r}. Write all of them as numbers, or all as strings."
                )
            elif counts[id] > 1:
                problem = f"the id {id} occurs twice in {name}. Each id must be unique."
            else:
                entry["id"] = id
                usable.append(entry)
                continue
            refuse(where, entry, self._refused(problem))
        return usable

    def _refuse_category(self, where: str, entry: Any, error: SourceError) -> None:
        raise error  # the fields of all images share the categories

    def _refuse_image(self, where: str, entry: Any, error: SourceError) -> None:
        id, name = (_id(entry.get("id")), entry.get("file_name")) if isinstance(entry, dict) else (None, None)
        if id is not None and id in self._joined.images:
            self._leave_out(id, where, error)
            return
        name = name if isinstance(name, str) else where
        self._joined.record(self._bad, name, where, error)
        if id is not None:
            self._joined.unusable[id] = error
            self._joined.refused.setdefault(id, set()).add(_sample_name(name))

    def _refuse_annotation(self, where: str, entry: Any, error: SourceError) -> None:
        of = _id(entry.get("image_id")) if isinstance(entry, dict) else None
        if of is not None and of in self._joined.images:
            self._leave_out(of, self._joined.images[of].members["file_name"], error)
        else:
            self._refuse_of_no_image(of, where, error)

    def _refuse_of_no_image(self, of: Id | None, where: str, error: SourceError) -> None:
        """Record an annotation whose image is unknown, or is refused; then its file lacks this annotation."""
        if of is not None and of in self._joined.unusable:
            self._joined.incomplete |= self._joined.refused.get(of, set())
        else:
            self._bad.add(where, error)

    def _join_categories(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            if not isinstance(entry.get("name"), str):
                raise self._refused(f"category {entry['id']} has no name")
            if (isinstance(entry["id"], int) and entry["id"] < 0) or not is_text(entry["name"]):
                raise self._refused(
                    f"category {entry['id']} ({entry['name']}): ids must be 0 or more, and names must be text"
                )
            known = self._joined.categories.setdefault(entry["id"], {})
            if error := self._join(known, entry, f"category {entry['id']}"):
                raise error

    def _join_images(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            what = f"image {entry['id']}"
            if not isinstance(entry.get("file_name"), str):
                self._leave_out(entry["id"], what, self._refused(f"{what} has no file_name"))
                continue
            sides = entry.get("height"), entry.get("width")
            if any(side is not None and (type(side) is not int or side < 1) for side in sides):
                error = self._refused(f"{what} has the height {sides[0]!r} and the width {sides[1]!r}")
                self._leave_out(entry["id"], entry["file_name"], error)
                continue
            members = {name: value for name, value in entry.items() if name != "id"}
            image = self._joined.images.setdefault(entry["id"], CocoImage({}))
            if contradiction := self._join(image.members, members, what):
                self._leave_out(entry["id"], entry["file_name"], contradiction)

    def _join_annotations(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            id, of = entry.pop("id"), _id(entry.pop("image_id", None))
            what = f"annotation {id}"
            image = None if of is None else self._joined.images.get(of)
            if of is None or image is None:
                unknown = f"{what} belongs to the image {of!r}, which is not in the list of images. {_REMEDY}"
                self._refuse_of_no_image(of, what, self._refused(unknown))
                continue
            name, problem = image.members["file_name"], self._problem(entry, image)
            if problem is not None:
                self._leave_out(of, name, self._refused(f"{what} of {name}: {problem}"))
            elif error := self._join(image.annotations(captions=_is_caption(entry)).setdefault(id, {}), entry, what):
                self._leave_out(of, name, error)

    def _problem(self, entry: dict[str, Any], image: CocoImage) -> str | None:
        """Return the reason why an annotation is unusable; None if it is usable."""
        segmentation = entry.get("segmentation")
        if segmentation is not None and segmentation.problem is not None:
            return f"{segmentation.problem}. {_REMEDY}"
        if _is_caption(entry):
            return None if isinstance(entry["caption"], str) else "its caption is not text"
        problem = self._problem_of_object(entry, image)
        return None if problem is None else f"{problem}. {_REMEDY}"

    def _problem_of_object(self, entry: dict[str, Any], image: CocoImage) -> str | None:
        category = entry["category_id"] = _id(entry.get("category_id"))
        if category is None:
            return "it has no category_id, which must be a whole number or a string"
        known = self._joined.categories
        if category == -1 or ((known or isinstance(category, str)) and category not in known):
            return f"its category {category} is not in the list of categories"
        if entry.get("iscrowd") not in (None, 0, 1):
            return f"iscrowd must be 0 or 1, not {entry['iscrowd']!r}"
        if "area" in entry and not (entry["area"] is None or _are_numbers([entry["area"]])):
            return f"its area {entry['area']!r} is not a number"
        keypoints = entry.get("keypoints")
        if keypoints is not None and not (_are_numbers(keypoints) and len(keypoints) % 3 == 0):
            return "its keypoints are not a list of numbers x y visibility x y visibility ..."
        return _position_problem(entry, image.size)

    def _leave_out(self, id: Id, name: str, error: SourceError) -> None:
        """Record an unusable image, or raise the error.

        The record contains the image's file name from an earlier entry, or `name` if there is no such entry.
        """
        if id not in self._joined.unusable:
            image = self._joined.images.get(id)
            name = name if image is None else image.members["file_name"]
            self._joined.record(self._bad, name, f"image {id}", error)
            self._joined.unusable[id] = error
            if image is None:
                self._joined.refused[id] = {_sample_name(name)}

    def _join(self, known: dict[str, Any], more: dict[str, Any], what: str) -> SourceError | None:
        """Add members to the known ones; return an error if one of them contradicts an earlier file."""
        for name, value in more.items():
            before = known.setdefault(name, value)
            if before is not value and before != value:  # NaN differs from itself
                problem = (
                    f"{what}: its {name} differs from that in an earlier file. Convert with only one of the files."
                )
                return self._refused(problem)
        return None

    def _refused(self, problem: str) -> SourceError:
        return SourceError(f"{printable(self._path)}: {printable(problem)}")


def _shortened(members: dict[str, Any]) -> dict[str, Any]:
    """Replace the segmentation in a parsed annotation by a `Segmentation`. Other JSON objects do not change."""
    value = members.get("segmentation")
    if value is not None and "image_id" in members:
        problem = segmentation_problem(value)
        size = tuple(value["size"]) if isinstance(value, dict) and not problem else None
        text = json.dumps(value, separators=(",", ":"), default=_original)
        members["segmentation"] = Segmentation(text.encode(), size, problem)
    return members


def _original(segmentation: Segmentation) -> Any:
    return json.loads(segmentation.text)


def _sample_name(file_name: str) -> str:
    return str(PurePosixPath(file_name.replace(os.sep, "/")))


def _id(value: Any) -> Id | None:
    """Return an id as text or int; None for other values. Some tools write whole numbers as 1.0."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int or (isinstance(value, str) and is_text(value)) else None


def _is_caption(annotation: dict[str, Any]) -> bool:
    return "caption" in annotation and "category_id" not in annotation


def _are_numbers(values: Any) -> bool:
    # An int of any size compares with a float; math.isfinite would raise.
    return isinstance(values, list) and all(type(one) in (int, float) and abs(one) <= _FARTHEST for one in values)


def _position_problem(entry: dict[str, Any], size: tuple[int, int] | None) -> str | None:
    """Return the reason why a segmentation or box is not inside an image of this size."""
    of_mask = None if entry.get("segmentation") is None else entry["segmentation"].size
    if None not in (of_mask, size) and of_mask != size:
        return f"its run lengths have the size {of_mask}, but its image has {size} (height, width)"
    return None if entry.get("bbox") is None else _box_problem(entry["bbox"], size)


def _box_problem(box: Any, size: tuple[int, int] | None) -> str | None:
    if not _are_numbers(box) or len(box) != 4:
        return "its bbox is not a list of four numbers x y width height"
    left, top, width, height = box
    if width < 0 or height < 0:
        return f"its box {box} has a negative side: boxes are x y width height"
    if size is None:
        return None
    right, bottom = size[1] + MARGIN, size[0] + MARGIN
    if min(left, top) >= -MARGIN and left + width <= right and top + height <= bottom:
        return None
    return f"its box {box}, x y width height, lies outside the image of {size[1]} x {size[0]} pixels"


_OF_OBJECTS = ("id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints")
_OF_CAPTIONS = ("id", "caption")
_IDS = ("id", "category_id")

Annotations = list[dict[str, Any]]
Value = Callable[[Annotations], Any]
"""Returns a field's value from an image's annotations: the bytes that a pack stores, or a value to be encoded."""


def columns_of(
    ids: Sequence[Id],
    joined: Joined,
    shown: str,
    unusable: dict[int, SourceError],
) -> list[Column]:
    """Return the columns of the fields that annotation files give to images.

    Parameters
    ----------
    ids : sequence of Id
        The ids of the images.
    joined : Joined
        The contents of the files.
    shown : str
        The name of the files in messages.
    unusable : dict of int to SourceError
        Receives the row of each image with a value that does not fit its field, and the error. Such a value becomes
        null.
    """
    images = [joined.images[id] for id in ids]
    objects = [_with_ids(image.objects) for image in images]
    captions = [_with_ids(image.captions) for image in images]
    members = ([image.members] for image in images)
    info = _column(Field("image_info", "json"), members, lambda one: one[0], shown, unusable)
    columns: list[Column] = [_of_ids(ids), info]
    if any(one is not None for one in objects):
        fields = _of_objects([entry for one in objects for entry in one or ()], joined)
        columns += [_column(field, objects, value, shown, unusable) for field, value in fields]
    if any(one is not None for one in captions):
        fields = _of_captions([entry for one in captions for entry in one or ()])
        columns += [_column(field, captions, value, shown, unusable) for field, value in fields]
    return columns


def _of_ids(ids: Sequence[Id]) -> Column:
    """Return the column of image ids."""
    if any(isinstance(id, str) for id in ids):
        field = Field("image_id", "text")
        return BlobColumn.of(field, (str(id).encode() for id in ids))
    return NumberColumn(Field("image_id", "scalar", "int64"), np.array(ids, np.int64), np.zeros(len(ids), bool))


def _of_objects(entries: Annotations, joined: Joined) -> list[tuple[Field, Value]]:
    """Return the fields of objects."""
    names = tuple(category["name"] for category in joined.categories.values())
    categories, numbers = joined.category_numbers, _numbers(entries)
    fields: list[tuple[Field, Value]] = []
    if _any_has(entries, "bbox"):
        fields.append((Field("boxes", "boxes"), lambda own: boxes_of([entry["bbox"] for entry in own])))
        fields.append((Field("bbox", "array", "float64", 2), lambda own: _floats(own, "bbox").reshape(-1, 4)))
    fields += [
        (
            Field("category", "labels", classes=names, ids=tuple(categories.values())),
            lambda own: [categories.get(entry["category_id"], entry["category_id"]) for entry in own],
        ),
        (Field("annotation_id", "array", "int64", 1), lambda own: _numbered(own, numbers)),
        (Field("iscrowd", "array", "uint8", 1), lambda own: np.array(_all(own, "iscrowd", 0), np.uint8)),
    ]
    if not all("iscrowd" in entry for entry in entries):
        field = Field("iscrowd_given", "array", "uint8", 1)
        fields.append((field, lambda own: np.array(["iscrowd" in entry for entry in own], np.uint8)))
    if _any_has(entries, "area"):
        fields.append((Field("area", "array", "float64", 1), lambda own: _floats(own, "area")))
    if _any_has(entries, "segmentation"):
        fields.append((Field("segmentation", "segmentation"), _segmentations))
    if _any_has(entries, "keypoints"):
        fields += _of_keypoints(entries)
    if any(_members(entry, _OF_OBJECTS) for entry in entries):
        fields.append((Field("members", "json"), lambda own: [_members(entry, _OF_OBJECTS) for entry in own]))
    return fields


def _of_keypoints(entries: Annotations) -> list[tuple[Field, Value]]:
    counts = {_points(entry) for entry in entries}
    most = max(counts)
    fields: list[tuple[Field, Value]] = [
        (Field("keypoints", "keypoints"), lambda own: keypoints_of([entry.get("keypoints") for entry in own], most))
    ]
    if len(counts) > 1:
        count = Field("keypoint_count", "array", "int64", 1)
        fields.append((count, lambda own: np.array(list(map(_points, own)), np.int64)))
    return fields


def _of_captions(entries: Annotations) -> list[tuple[Field, Value]]:
    numbers = _numbers(entries)
    fields: list[tuple[Field, Value]] = [
        (Field("captions", "json"), lambda own: _all(own, "caption")),
        (Field("caption_id", "array", "int64", 1), lambda own: _numbered(own, numbers)),
    ]
    if any(_members(entry, _OF_CAPTIONS) for entry in entries):
        members = Field("caption_members", "json")
        fields.append((members, lambda own: [_members(entry, _OF_CAPTIONS) for entry in own]))
    return fields


def _column(
    field: Field,
    rows: Iterable[Annotations | None],
    value: Value,
    shown: str,
    unusable: dict[int, SourceError],
) -> Column:
    def stored(row: int, own: Annotations | None) -> Any:
        try:
            one = None if own is None else value(own)
            return one if isinstance(one, bytes) else field.encode(one)
        except (ValueError, OverflowError) as error:
            of = f" of annotation {own[0]['id']}, or of another of its image" if own and "id" in own[0] else ""
            unusable.setdefault(row, SourceError(f"{shown}: field {field.name!r}{of}: {printable(error)}"))
            return None

    return BlobColumn.of(field, (stored(row, own) for row, own in enumerate(rows)))


def _numbers(entries: Annotations) -> dict[Id, int]:
    """Return a number for each annotation id that is a text."""
    return {id: number for number, entry in enumerate(entries, 1) if isinstance(id := entry["id"], str)}


def _numbered(own: Annotations, numbers: Mapping[Id, int]) -> Any:
    return np.array([numbers.get(entry["id"], entry["id"]) for entry in own], np.int64)


def _with_ids(annotations: dict[Id, dict[str, Any]] | None) -> Annotations | None:
    if annotations is None:
        return None
    for id, entry in annotations.items():
        entry["id"] = id
    return list(annotations.values())


def _members(entry: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any] | None:
    """Return the members of an annotation that are not in any field.

    These are unknown members, nulls, text ids, and keypoints that float32 would round.
    """
    more = {name: value for name, value in entry.items() if name not in known or value is None}
    if isinstance(own := more.get("segmentation"), Segmentation):  # of a caption; objects have a field for it
        more["segmentation"] = _original(own)
    more |= {name: id for name in _IDS if name in known and isinstance(id := entry[name], str)}
    keypoints = entry.get("keypoints")
    if keypoints is not None and (not keypoints or np.array(keypoints, np.float32).tolist() != keypoints):
        more["keypoints"] = keypoints
    return more or None


def _segmentations(own: Annotations) -> bytes:
    texts = (b"null" if entry.get("segmentation") is None else entry["segmentation"].text for entry in own)
    return b"[" + b",".join(texts) + b"]"


def _points(entry: Mapping[str, Any]) -> int:
    return len(entry.get("keypoints") or ()) // 3


def _any_has(entries: Annotations, name: str) -> bool:
    return any(entry.get(name) is not None for entry in entries)


def _all(own: Annotations, name: str, default: Any = None) -> list[Any]:
    return [default if entry.get(name) is None else entry[name] for entry in own]


def _floats(own: Annotations, name: str) -> Any:
    return np.array(_all(own, name, np.nan), np.float64)


_MOST_MASKED = 65535  # the largest value in a PNG of 16 bits


def coco_source(
    root: Path,
    files: Sequence[Path],
    *,
    masks: bool = False,
    on_missing: str = "error",
    rule: ImageRule | None = None,
    files_of: FilesOf | None = None,
    bad: BadSamples | None = None,
) -> Source:
    """List the images in COCO annotation files, in the order of their ids.

    Torchvision's ``CocoDetection`` uses the same order. All images get the label -1.

    Parameters
    ----------
    root : Path
        The directory to which ``file_name`` is relative.
    files : sequence of Path
        Files about the same images, such as instances, captions and person_keypoints. Annotations with the same id
        become one annotation.
    masks : bool
        Whether the annotations of each image are drawn into the field ``mask``: a PNG whose pixels are ids of
        categories, with 8 bits if all ids are below 256, otherwise with 16 bits. Pixels without annotation are 0.
        Crowds are drawn below other annotations, and larger masks below smaller ones.
    on_missing : {"error", "skip"}
        What happens to images without a file: ``"error"`` raises an error, ``"skip"`` leaves them out.
    rule : ImageRule, optional
        The rule that decides which files below `root` are images. Images without an entry in the files are recorded in
        the account of the source.
    files_of : callable, optional
        The same as for `imagefolder_source`.
    bad : BadSamples, optional
        Collects the images with an unusable annotation; by default the first of them is an error.

    Raises
    ------
    SourceError
        If a file cannot be read, or contradicts itself, another file, or the contents of `root`.
    """
    shown = ", ".join(map(printable, files))
    bad = bad or BadSamples()
    joined = read_joined(files, bad)
    names = _names(joined, shown, bad)
    walk = Walk(root, rule or ImageRule())
    own = {one["name"] for one in bad.found}.union(() if files_of is None else files_of(names.values()))
    there = _present(root, walk, names, shown, on_missing, own)
    notes = walk.notes()
    ids = [id for id in sorted(joined.images) if id in there and id not in joined.unusable]
    ids = _with_all_boxes(ids, joined, names, shown, bad)
    if masks:
        ids = _with_sizes(ids, joined, names, shown, bad)
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
    source = images_without_labels(
        "coco",
        root,
        (names[id] for id in ids),
        walk,
        notes,
        columns=columns,
        computed=ComputedFields(derived, _drawn_mask) if derived else None,
        size_field=SIZE_FIELDS["coco"],
        about=tuple(joined.about),
    )
    source = source.without_bad(sorted(unusable), bad)
    joined.name_entries(source.names)
    return replace(source, doubts=tuple(bad.found))


def _with_all_boxes(
    ids: Sequence[Id], joined: Joined, names: Mapping[Id, str], shown: str, bad: BadSamples
) -> list[Id]:
    """Return the usable images. If any annotation has a box, images with an annotation without a box are unusable."""
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
            f"{shown}: {count:,} annotations have no bbox, but others have one. The first one of "
            f"{printable(names[id])} is annotation {without[0]}. Add its bbox x y width height, or remove the "
            "annotation from the file."
        )
        bad.add(names[id], error)
    return [id for id in ids if id not in lacking]


def _with_sizes(ids: Sequence[Id], joined: Joined, names: Mapping[Id, str], shown: str, bad: BadSamples) -> list[Id]:
    """Return the images whose entries have height and width, because masks are drawn in this size."""
    without = {id: None for id in ids if joined.images[id].size is None}
    for id in without:
        drawn_by = f"{len(without):,} images have no height and width, which {option('masks', True)} needs"
        bad.add(names[id], SourceError(f"{shown}: {drawn_by}"))
    return [id for id in ids if id not in without]


def _text_ids(joined: Joined) -> Iterator[str]:
    """Yield a note on the numbers assigned to categories with text ids."""
    shown = [f"{id}: {number}" for id, number in joined.category_numbers.items() if isinstance(id, str)]
    if shown:
        yield f"ids of categories are strings; they are numbered in the order of the file: {some(shown)}"


def _flat_boxes(images: Sequence[CocoImage]) -> Iterator[str]:
    """Yield a note on boxes with width or height 0. They are kept, so training code has to skip them."""
    boxes = (entry.get("bbox") for image in images for entry in (image.objects or {}).values())
    if flat := sum(box is not None and min(box[2:]) <= 0 for box in boxes):
        yield (
            f"{flat:,} boxes have no width or no height; they are stored, but torchvision's detectors refuse them in "
            "training"
        )


def _names(joined: Joined, shown: str, bad: BadSamples) -> dict[Id, str]:
    """Return the sample name of each image by id; images with invalid or repeated names are left out as bad samples.

    If two images have the same name and the same annotations, the first one is not left out.
    """
    names: dict[Id, str] = {}
    first: dict[str, Id] = {}
    for id, image in joined.images.items():
        file_name = image.members.pop("file_name")
        name = _sample_name(file_name)
        if problem := name_problem(name):
            bad.add(f"image {id}", SourceError(f"{shown}: image {id}: file_name {printable(file_name)}: {problem}"))
            continue
        if first.setdefault(name, id) != id:
            one = f"{shown}: the images {first[name]} and {id} have the same file_name, {printable(file_name)}"
            joined.record(bad, name, f"image {id}", SourceError(one))
            if id in joined.unusable or not image.equals(joined.images[first[name]]):
                names.pop(first[name], None)
            continue
        names[id] = name
        if name != file_name:
            image.members["file_name"] = file_name
    for name in joined.incomplete.intersection(first):
        names.pop(first[name], None)
    return names


def _present(  # noqa: PLR0917
    root: Path, walk: Walk, names: Mapping[Id, str], shown: str, on_missing: str, own: Collection[str]
) -> set[Id]:
    """Return the ids of the images that exist below `root`.

    Missing images, and files without an entry in the annotations, are added to the account. `own` has the names of bad
    images, which need not be in `names`, and the files of fields.
    """
    found = set(walk.all_images())
    there = {id for id, name in names.items() if name in found or stamp_at(os.path.join(root, name)) != NO_STAMP}
    if missing := [name for id, name in names.items() if id not in there]:
        if on_missing != "skip":
            otherwise = called_otherwise(found.difference(names.values()), missing)
            are = "is" if len(missing) == 1 else "are"
            raise SourceError(
                f"{shown}: {len(missing):,} of {len(names):,} images {are} not in {printable(root)}: {some(missing)}."
                f"{otherwise} SRC is the directory to which file_name is relative; {option('on_missing', 'skip')} "
                "leaves out missing images."
            )
        walk.account.left_out("image", "it does not exist; --on-missing skip", missing, chosen=True)
    unnamed = sorted(found.difference(names.values(), own))
    walk.account.left_out("image", "it has no entry in the annotations", unnamed)
    return there


def _masks(joined: Joined, images: Sequence[CocoImage], shown: str) -> tuple[Field]:
    """Return the field into which masks are drawn; SourceError if masks cannot be drawn."""
    if not any(entry.get("segmentation") for image in images for entry in (image.objects or {}).values()):
        raise SourceError(f"{shown}: {option('masks', True)} draws segmentations, but no annotation has one")
    if not joined.categories:
        raise SourceError(
            f"{shown}: {option('masks', True)} draws the ids of categories, but the files have no categories"
        )
    numbers = joined.category_numbers
    for id, category in joined.categories.items():
        if not 0 < numbers[id] <= _MOST_MASKED:
            raise SourceError(
                f"{shown}: category {id} ({printable(category['name'])}) cannot be drawn by {option('masks', True)}: "
                f"0 means no annotation, and a PNG can store at most {_MOST_MASKED}. Give the category another id."
            )
    return (Field("mask", "mask"),)


def _drawn_mask(source: Source, index: int, stored: Mapping[str, Stored], buffer: ReadBuffer) -> Sequence[Stored]:
    """Draw the annotations of an image, and return the mask as PNG; see `coco_source`."""
    fields = {column.field.name: column.field for column in source.columns}
    image, segmentations, categories, crowds = (
        fields[name].decode(stored[name]) for name in ("image_info", "segmentation", "category", "iscrowd")
    )
    if segmentations is None:
        return (None,)
    try:
        pixels = drawn(segmentations, categories, crowds, image["height"], image["width"])
    except ValueError as error:
        raise ImageError(f"field 'mask': {error}", source.names[index]) from error
    return (_png(pixels.astype(np.uint8 if max(fields["category"].ids) < 256 else np.uint16)),)


def _png(pixels: npt.NDArray[Any]) -> bytes:
    from PIL import Image

    from packer._images.encode import encode_png

    return encode_png(Image.fromarray(pixels))
