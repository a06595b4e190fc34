"""Files of annotations in COCO's format: read, compared with themselves, and several of the same images joined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer._account import BadSamples
from packer._fields import MARGIN
from packer._fields.rle import segmentation_problem
from packer._fields.values import is_text
from packer._sources.textfiles import file_text
from packer.errors import SourceError, printable

__all__ = ["CocoImage", "Id", "Joined", "Segmentation", "read_joined"]

Id = int | str
"""Tells images, categories and annotations apart. COCO has numbers, and other tools write texts."""

_FARTHEST = 1e30  # of numbers, which become float32; NaN is not below it
_LARGEST = (1 << 63) - 1  # of ids
_REMEDY = "Correct the annotation, or take it out of the file."


class Segmentation(NamedTuple):
    """A segmentation as JSON, which takes a tenth of the memory of Python's lists; and its size, if it says one."""

    text: bytes
    size: tuple[int, int] | None


@dataclass(slots=True)
class CocoImage:
    """What files say of one image.

    Attributes
    ----------
    members : dict
        Its entry in the list of images, without its id.
    objects, captions : dict of Id to dict, optional
        Annotations by their ids, in the order of the files; None where no file has annotations of that sort.
    """

    members: dict[str, Any]
    objects: dict[Id, dict[str, Any]] | None = None
    captions: dict[Id, dict[str, Any]] | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width, where the entry says them."""
        height, width = self.members.get("height"), self.members.get("width")
        return None if height is None or width is None else (height, width)


@dataclass
class Joined:
    """What several files say of the same images.

    Attributes
    ----------
    images : dict of Id to CocoImage
    categories : dict of Id to dict
        In the order of the files.
    about : list of dict
        For each file ``file``, its name, and its ``members`` other than images and annotations, such as licenses.
    unusable : dict of Id to SourceError
        By their ids, the images that cannot be used, or that have an annotation which cannot, and why.
    kinds : dict of str to type
        By the name of a list of the files, whether its ids are numbers or texts.
    """

    images: dict[Id, CocoImage] = field(default_factory=dict)
    categories: dict[Id, dict[str, Any]] = field(default_factory=dict)
    about: list[dict[str, Any]] = field(default_factory=list)
    unusable: dict[Id, SourceError] = field(default_factory=dict)
    kinds: dict[str, type[Id]] = field(default_factory=dict)

    @property
    def category_numbers(self) -> dict[Id, int]:
        """The number of each category: its id; from 1 on where ids are texts, as 0 is the background."""
        return {id: place if isinstance(id, str) else id for place, id in enumerate(self.categories, 1)}


class _Unsound(str):
    """Why a segmentation is none, in its place."""

    __slots__ = ()


def read_joined(files: Sequence[Path], bad: BadSamples | None = None) -> Joined:
    """Read files of annotations, and join images and annotations that have one id.

    Parameters
    ----------
    files : sequence of Path
    bad : BadSamples, optional
        Takes the images and annotations that cannot be used, but for images with bad annotations, which `Joined` has;
        by default the first of all is an error.

    Raises
    ------
    SourceError
        If a file cannot be read, contradicts itself or another, or an annotation is not what COCO's format says.
    """
    joined = Joined()
    for path in files:
        _File(path, joined, bad or BadSamples()).read()
    return joined


class _File:
    """One file that is read."""

    def __init__(self, path: Path, joined: Joined, bad: BadSamples) -> None:
        self._path = path
        self._joined = joined
        self._bad = bad

    def read(self) -> None:
        document = self._parsed()
        self._require_annotations(document)
        self._join_categories(self._entries(document, "categories"))
        images = self._entries(document, "images")
        self._join_images(images)
        annotations = self._entries(document, "annotations")
        captions = sum(_is_caption(one) for one in annotations)
        of_objects = "annotations" in document and (captions < len(annotations) or not annotations)
        usable = (entry["id"] for entry in images if entry["id"] in self._joined.images)
        for image in map(self._joined.images.__getitem__, usable):
            if captions and image.captions is None:
                image.captions = {}
            if of_objects and image.objects is None:
                image.objects = {}
        self._join_annotations(annotations)
        members = {name: value for name, value in document.items() if name not in ("images", "annotations")}
        if members:
            self._joined.about.append({"file": self._path.name, "members": members})

    def _require_annotations(self, document: Any) -> None:
        """Raise SourceError where a file is something else, and say what."""
        if isinstance(document, list) and document and isinstance(document[0], dict) and "image_id" in document[0]:
            raise self._refused(
                "it is a list of results (image_id, category_id, score), which have no images: name the file of "
                "annotations, such as instances_val2017.json"
            )
        if not isinstance(document, dict) or "images" not in document:
            raise self._refused('it has no list "images", so it is no file of annotations in COCO\'s format')
        first = document.get("annotations")
        if isinstance(first, list) and first and isinstance(first[0], dict) and "segments_info" in first[0]:
            raise self._refused(
                "it has panoptic annotations (segments_info), whose segments lie in PNG files: --coco reads instances, "
                "keypoints and captions, such as instances_val2017.json. Take the PNG files as they are by --field, "
                "such as 'panoptic:image=../panoptic_val2017/{stem}.png'"
            )

    def _parsed(self) -> Any:
        def no_number(text: str) -> Any:
            raise self._refused(f"it has the number {text}, which JSON does not have")

        try:
            text = file_text(self._path)
            return json.loads(text, object_hook=_shortened, parse_constant=no_number)
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise self._refused(f"it is no JSON: {error}") from error

    def _entries(self, document: dict[str, Any], name: str) -> list[dict[str, Any]]:
        """Return a list of the document, all of whose entries have ids of their own."""
        entries = document.get(name, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._refused(f'"{name}" is no list of objects')
        seen = set()
        for place, entry in enumerate(entries):
            id = entry["id"] = _id(entry.get("id"))
            if id is None:
                raise self._refused(f"entry {place} of {name}, counted from 0, has no id: a whole number or a text")
            if isinstance(id, int) and abs(id) > _LARGEST:
                raise self._refused(f"entry {place} of {name}, counted from 0, has an id beyond 64 bits")
            if self._joined.kinds.setdefault(name, type(id)) is not type(id):
                raise self._refused(
                    f"the ids of {name} are numbers and texts, and entry {place}, counted from 0, has the id {id!r}. "
                    "Write all of them as numbers, or all as texts."
                )
            if id in seen:
                raise self._refused(f"the id {id} stands twice in {name}. Ids tell one from the other.")
            seen.add(id)
        return entries

    def _join_categories(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            if not isinstance(entry.get("name"), str):
                raise self._refused(f"category {entry['id']} has no name")
            if (isinstance(entry["id"], int) and entry["id"] < 0) or not is_text(entry["name"]):
                raise self._refused(f"category {entry['id']} ({entry['name']}): ids are 0 or more, and names are text")
            self._join(self._joined.categories.setdefault(entry["id"], {}), entry, f"category {entry['id']}")

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
            self._join(self._joined.images.setdefault(entry["id"], CocoImage({})).members, members, what)

    def _join_annotations(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            id, of = entry.pop("id"), _id(entry.pop("image_id", None))
            what = f"annotation {id}"
            image = None if of is None else self._joined.images.get(of)
            if of is None or image is None:
                if of not in self._joined.unusable:
                    self._bad.add(
                        what, self._refused(f"{what} is of the image {of!r}, which is none of the images. {_REMEDY}")
                    )
                continue
            problem = self._problem(entry, image)
            if problem is not None:
                self._leave_out(
                    of, image.members["file_name"], self._refused(f"{what} of {image.members['file_name']}: {problem}")
                )
                continue
            if _is_caption(entry):
                image.captions = {} if image.captions is None else image.captions
                self._join(image.captions.setdefault(id, {}), entry, what)
                continue
            image.objects = {} if image.objects is None else image.objects
            self._join(image.objects.setdefault(id, {}), entry, what)

    def _problem(self, entry: dict[str, Any], image: CocoImage) -> str | None:
        """Say what is wrong with an annotation."""
        if isinstance(entry.get("segmentation"), _Unsound):
            return f"{entry['segmentation']}. {_REMEDY}"
        if _is_caption(entry):
            return None if isinstance(entry["caption"], str) else "its caption is no text"
        problem = self._problem_of_object(entry, image)
        return None if problem is None else f"{problem}. {_REMEDY}"

    def _problem_of_object(self, entry: dict[str, Any], image: CocoImage) -> str | None:
        category = entry["category_id"] = _id(entry.get("category_id"))
        if category is None:
            return "it has no category_id: a whole number or a text"
        known = self._joined.categories
        if category == -1 or ((known or isinstance(category, str)) and category not in known):
            return f"its category {category} is none of the categories"
        if entry.get("iscrowd") not in (None, 0, 1):
            return f"iscrowd is 0 or 1, not {entry['iscrowd']!r}"
        if "area" in entry and not (entry["area"] is None or _are_numbers([entry["area"]])):
            return f"its area {entry['area']!r} is no number"
        keypoints = entry.get("keypoints")
        if keypoints is not None and not (_are_numbers(keypoints) and len(keypoints) % 3 == 0):
            return "its keypoints are no list of numbers x y visibility x y visibility ..."
        return _place_problem(entry, image.size)

    def _leave_out(self, id: Id, name: str, error: SourceError) -> None:
        """Take down that an image cannot be used; or raise the error."""
        if id not in self._joined.unusable:
            self._bad.add(name, error)
            self._joined.unusable[id] = error

    def _join(self, known: dict[str, Any], more: dict[str, Any], what: str) -> None:
        for name, value in more.items():
            if known.setdefault(name, value) != value:
                raise self._refused(
                    f"{what}: its {name} is another here than in a file before. Convert with one of the files."
                )

    def _refused(self, problem: str) -> SourceError:
        return SourceError(f"{printable(self._path)}: {printable(problem)}")


def _shortened(members: dict[str, Any]) -> dict[str, Any]:
    """Put the text of a segmentation in its place, while a file is parsed; or what is wrong with it."""
    given = members.get("segmentation")
    if given is not None:
        if problem := segmentation_problem(given):
            members["segmentation"] = _Unsound(problem)
        else:
            size = tuple(given["size"]) if isinstance(given, dict) else None
            members["segmentation"] = Segmentation(json.dumps(given, separators=(",", ":")).encode(), size)
    return members


def _id(value: Any) -> Id | None:
    """Return an id; None where it is neither a whole number, which tools write as 1.0 too, nor a text."""
    if type(value) is float and value.is_integer():
        return int(value)
    return value if type(value) is int or (isinstance(value, str) and is_text(value)) else None


def _is_caption(annotation: dict[str, Any]) -> bool:
    return "caption" in annotation and "category_id" not in annotation


def _are_numbers(values: Any) -> bool:
    # An int of any size compares with a float; math.isfinite would raise.
    return isinstance(values, list) and all(type(one) in (int, float) and abs(one) <= _FARTHEST for one in values)


def _place_problem(entry: dict[str, Any], size: tuple[int, int] | None) -> str | None:
    """Say why segmentation or box are not in an image of a size."""
    of_mask = None if entry.get("segmentation") is None else entry["segmentation"].size
    if None not in (of_mask, size) and of_mask != size:
        return f"its run lengths are of the size {of_mask}, and its image of {size}: height and width"
    return None if entry.get("bbox") is None else _box_problem(entry["bbox"], size)


def _box_problem(box: Any, size: tuple[int, int] | None) -> str | None:
    if not _are_numbers(box) or len(box) != 4:
        return "its bbox is no list of four numbers x y width height"
    left, top, width, height = box
    if width < 0 or height < 0:
        return f"its box {box} has a side below 0: boxes are x y width height"
    if size is None:
        return None
    right, bottom = size[1] + MARGIN, size[0] + MARGIN
    if min(left, top) >= -MARGIN and left + width <= right and top + height <= bottom:
        return None
    return f"its box {box}, x y width height, lies outside of the image of {size[1]} x {size[0]} pixels"
