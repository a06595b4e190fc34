"""Images with labels in YOLO's layout: a ``data.yaml``, and a file in ``labels`` for each file in ``images``.

Each line of a label file is an object in one of three forms. A box is ``class x y width height``, where x and y are its
centre. Keypoints may follow the box. A polygon is ``class x y x y x y ...``. Positions are fractions of the image's
width and height.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._account import BadSamples
from packer._fields import MARGIN, Field, Stored
from packer._fields.encoding import is_text, short
from packer._images.probe import inspect
from packer._sources.base import BlobColumn, ComputedFields, ReadBuffer, Source, some
from packer._sources.file_matching import account_for_split
from packer._sources.imagefolder import ImageRule, Walk, images_without_labels
from packer._sources.tables import file_text, text_of
from packer._storage.safe_open import open_regular
from packer.errors import ImageError, MissingDependencyError, SourceError, option, pip_install, printable

Points = npt.NDArray[np.float64]
"""(..., 2) float64 array: x and y as fractions of the image's width and height."""

_TURNS = {
    1: ((1, 0), (0, 1), (0, 0)),
    2: ((-1, 0), (0, 1), (1, 0)),
    3: ((-1, 0), (0, -1), (1, 1)),
    4: ((1, 0), (0, -1), (0, 1)),
    5: ((0, 1), (1, 0), (0, 0)),
    6: ((0, 1), (-1, 0), (0, 1)),
    7: ((0, -1), (-1, 0), (1, 1)),
    8: ((0, -1), (1, 0), (1, 0)),
}
"""For each EXIF orientation, the rows of a matrix and an offset that map points of the upright image to the file's."""


@dataclass(frozen=True, slots=True)
class Label:
    """The objects in a file of labels.

    Attributes
    ----------
    lines : list of int
        The line of each object.
    classes : list of int
    boxes : (K, 2, 2) array of points
        The top left and bottom right corners of each box. For a polygon, this is the bounding box.
    polygons : list of (P, 2) arrays of points, or of None
        The polygon of each object; None if the object has only a box.
    keypoints : (K, P, 2) array of points
    visible : (K, P) float64 array
        The visibility of each keypoint. If the file gives no visibility, the value is 0 for keypoints with a negative
        coordinate, and 2 for all others.
    """

    lines: list[int]
    classes: list[int]
    boxes: Points
    polygons: list[Points | None]
    keypoints: Points
    visible: npt.NDArray[np.float64]


def read_label(text: str, keypoints: tuple[int, int] | None = None) -> Label:
    """Read the text of a label file.

    Parameters
    ----------
    text : str
    keypoints : (int, int), optional
        The number of keypoints of each object, and the number of values of each keypoint: 2 (x y), or 3 (x y and the
        visibility).

    Raises
    ------
    ValueError
        If a line is not an object in one of these forms; the message begins with the number of the line.
    """
    lines: list[int] = []
    classes: list[int] = []
    boxes: list[Points] = []
    polygons: list[Points | None] = []
    rest: list[list[float]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            numbers = _numbers(words)
            box, polygon = _shape(numbers, keypoints)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        lines.append(number)
        classes.append(int(numbers[0]))
        boxes.append(box)
        polygons.append(polygon)
        rest.append(numbers[5:] if keypoints else [])
    points, each = keypoints or (0, 2)
    table = np.array(rest, np.float64).reshape(len(rest), points, each)
    positions = table[:, :, :2]
    visible = table[:, :, 2] if each == 3 else np.where((positions < 0).any(2), 0.0, 2.0)
    return Label(lines, classes, np.array(boxes, np.float64).reshape(-1, 2, 2), polygons, positions, visible)


def require_inside(label: Label, height: int, width: int) -> None:
    """Raise ValueError if a box is not inside of its image; `height` and `width` are those of the upright image."""
    beside = MARGIN / np.array([width, height])
    outside = ((label.boxes < -beside) | (label.boxes > 1 + beside)).any((1, 2))
    for row in np.flatnonzero(outside)[:1].tolist():
        raise ValueError(
            f"line {label.lines[row]}: it lies outside its image of {width} x {height} pixels: positions are "
            "fractions of width and height, 0 to 1"
        )


def turned(points: Points, orientation: int) -> Points:
    """Convert points of an upright image to points of the image as it is in the file, before EXIF rotation."""
    across, down, offset = _TURNS[orientation]
    moved: Points = points @ np.array((across, down), np.float64).T + offset
    return moved


def _numbers(words: list[str]) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise ValueError("a word is not a number") from None
    if not all(map(math.isfinite, numbers)) or numbers[0] < 0 or numbers[0] % 1:
        raise ValueError("numbers must be finite, and the first must be a class id")
    return numbers


def _shape(numbers: list[float], keypoints: tuple[int, int] | None) -> tuple[Points, Points | None]:
    """Return the box of an object, and its polygon or None, from the numbers in its line."""
    expected = 5 + (keypoints[0] * keypoints[1] if keypoints else 0)
    polygon = None
    if len(numbers) == expected:
        centre, half = np.array(numbers[1:3]), np.array(numbers[3:5]) / 2
        box = np.array([centre - half, centre + half])
        if (half < 0).any():
            raise ValueError("a box has a negative side: boxes are x y width height")
    elif keypoints is None and len(numbers) >= 7 and len(numbers) % 2:
        polygon = np.array(numbers[1:]).reshape(-1, 2)
        box = np.array([polygon.min(0), polygon.max(0)])
    else:
        shapes = f"a box with keypoints has {expected}" if keypoints else "a box has 5, a polygon 7, 9, 11, ..."
        raise ValueError(f"it has {len(numbers)} numbers, but {shapes}")
    return box, polygon


_TEXT = "yolo"  # the field that contains the text of the label file
_MOST_TEXT = 1 << 22  # most characters of a data.yaml
_MOST_POINTS = 10_000
_MOST_CLASSES = 100_000
_DECIMALS = 3  # the coordinates of polygons, in pixels, are rounded to this number of decimals


def yolo_source(
    root: Path,
    data: Path,
    *,
    split: str | None = None,
    on_missing: str = "error",
    rule: ImageRule | None = None,
    bad: BadSamples | None = None,
    unlabeled: bool = False,
) -> Source:
    """List images with annotations in YOLO's layout. All images get the label -1.

    The label file of ``a/images/b/c.jpg`` is ``a/labels/b/c.txt``; for a path without ``images`` it is next to the
    image. Positions in a label file refer to the image after rotation by EXIF. Positions in fields are in pixels of the
    image before rotation.

    Parameters
    ----------
    root : Path
        A directory of images.
    data : Path
        The YAML file with ``names``, ``kpt_shape`` and the paths of the splits.
    split : str, optional
        The split to list, such as ``train``, which is a key of `data`. Its value is one or more paths of directories
        with images, or of files that list images. By default all images below `root` are listed.
    on_missing : {"error", "skip"}
        What happens to images that do not exist although a list file names them.
    rule : ImageRule, optional
        The rule that decides which files are images.
    bad : BadSamples, optional
        Collects the images with unusable labels; by default the first of them is an error.
    unlabeled : bool
        Whether the user has allowed images without label files.

    Raises
    ------
    SourceError
        If a file or directory is missing, or a file does not follow YOLO's layout.
    MissingDependencyError
        If PyYAML is not installed.
    """
    rule = rule or ImageRule()
    described = _Description(data, split)
    walk = Walk(root, rule)
    names = walk.all_images()
    notes = walk.notes()
    expected = {_label_path(os.path.join(root, name)) for name in names}
    if split is not None:
        below = set(names)
        names, missing = described.chosen(root, names)
        account_for_split(walk.account, split, below.difference(names), missing, on_missing, printable(data))
    stray = _stray_labels(root, expected)
    walk.account.left_out("file", "it has labels of an image that does not exist", stray)
    if not names:
        raise SourceError(f"{printable(root)}: no images ({rule}) in it{' that the split lists' if split else ''}")
    names.sort()
    bad = bad or BadSamples()
    keys = dict(zip(names, names, strict=True))
    usable = bad.usable(keys, lambda name: _text(os.path.join(root, name), described), printable(root))
    names, texts = list(usable), list(usable.values())
    if not any(text is not None for text in texts):
        raise SourceError(
            f"{printable(root)}: none of the {len(names):,} images has a label file. The label file of "
            f"{printable(names[0])} would be {printable(_label_path(os.path.join(root, names[0])))}"
        )
    without = [name for name, text in usable.items() if text is None]
    walk.account.unlabeled("they have no label file, so their fields are null", without, chosen=unlabeled)
    polygons = any(any(one is not None for one in described.read(text).polygons) for text in texts if text is not None)
    fields = described.fields(polygons=polygons)
    column = BlobColumn.of(Field(_TEXT, "text"), (None if text is None else text.encode("utf-8") for text in texts))
    computed = ComputedFields(fields, _ValuesInPixels(fields, described.keypoints))
    notes = [*described.notes, *notes, *_shared_labels(root, usable)]
    return images_without_labels(
        "yolo", root, names, walk, notes, columns=[column], computed=computed, doubts=tuple(bad.found)
    )


def _shared_labels(root: Path, texts: Mapping[str, str | None]) -> list[str]:
    """Return a note on images with the same label file: Ultralytics, too, reads it for each of them."""
    images_of: dict[str, list[str]] = {}
    for name in (name for name, text in texts.items() if text is not None):
        images_of.setdefault(_label_path(os.path.join(root, name)), []).append(name)
    shared = [" and ".join(map(printable, names)) for names in images_of.values() if len(names) > 1]
    return [f"images have the same label file: {some(shared)}"] if shared else []


@dataclass(frozen=True)
class _ValuesInPixels:
    """Computes the values of an image's fields from its label file and its size.

    Attributes
    ----------
    fields : tuple of Field
    keypoints : (int, int), optional
        See `read_label`.
    """

    fields: tuple[Field, ...]
    keypoints: tuple[int, int] | None

    def __call__(
        self, source: Source, index: int, stored: Mapping[str, Stored], buffer: ReadBuffer
    ) -> Sequence[Stored]:
        text = stored[_TEXT]
        if text is None:
            return (None,) * len(self.fields)
        assert isinstance(text, bytes)
        label = read_label(text.decode("utf-8"), self.keypoints)
        try:
            info = inspect(source.read(index, buffer)[0])
        except ImageError as error:
            error.name = error.name or source.names[index]
            raise
        values = _in_pixels(label, info.width, info.height, info.orientation)
        return tuple(field.encode(values[field.name]) for field in self.fields)


def _stray_labels(root: Path, expected: Collection[str]) -> list[str]:
    """Return the label files that belong to no image; `expected` has the label file of each image."""
    stray = []
    for folder in set(map(os.path.dirname, expected)):
        if f"{os.sep}labels" in folder and os.path.isdir(folder):  # other texts may lie next to images
            files = (file for file in os.listdir(folder) if file.endswith(".txt") and file != "classes.txt")
            there = {os.path.join(folder, file) for file in files}.difference(expected)
            stray += [os.path.relpath(path, root).replace(os.sep, "/") for path in there]
    return sorted(stray)


class _Description:
    """The contents of a ``data.yaml``.

    Attributes
    ----------
    keypoints : (int, int), optional
    notes : list of str
    """

    def __init__(self, path: Path, split: str | None) -> None:
        self.notes: list[str] = []
        self._path = path
        self._members = _members(path)
        self._split = split
        self._classes = self._names()
        shape = self._members.get("kpt_shape")
        self.keypoints: tuple[int, int] | None = None
        if shape is not None:
            sound = isinstance(shape, list) and len(shape) == 2 and all(type(number) is int for number in shape)
            if not sound or not 1 <= shape[0] <= _MOST_POINTS or shape[1] not in (2, 3):
                raise self._refused(f"kpt_shape must be [POINTS, 2] or [POINTS, 3], not {short(shape)}")
            self.keypoints = (shape[0], shape[1])

    def read(self, text: str) -> Label:
        """Parse the text of a label file; ValueError if it is invalid, or has a class that `names` lacks."""
        label = read_label(text, self.keypoints)
        for number in label.classes:
            if number not in self._classes:
                raise ValueError(
                    f"class {number} is not one of the {len(self._classes)} names in {printable(self._path)}"
                )
        return label

    def fields(self, *, polygons: bool) -> tuple[Field, ...]:
        """Return the fields that store the labels in pixels."""
        fields = [
            Field("boxes", "boxes"),
            Field("category", "labels", classes=tuple(self._classes.values()), ids=tuple(self._classes)),
        ]
        if polygons:
            fields.append(Field("segmentation", "segmentation"))
        if self.keypoints is not None:
            fields.append(Field("keypoints", "keypoints"))
        return tuple(fields)

    def chosen(self, root: Path, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the images below `root` that belong to the split, and the images of the split that are missing."""
        entry: Any = self._members.get(self._split or "")
        paths: list[Any] = entry if isinstance(entry, list) else [entry]
        if not paths or not all(isinstance(path, str) and path for path in paths):
            splits = [name for name in ("train", "val", "test") if self._members.get(name)]
            raise self._refused(f"no split {self._split}: it has {', '.join(splits) or 'none'}")
        found_names: list[str] = []
        missing: list[str] = []
        top = os.path.realpath(root)
        known = {os.path.join(top, *name.split("/")): name for name in names}
        for one in paths:
            full = self._existing(one)
            if os.path.isdir(full):
                below = os.path.join(os.path.realpath(full), "")
                found_names += [name for path, name in known.items() if path.startswith(below)]
                continue
            for line in self._listed(full):
                found = (known.get(path) for path in self._paths_of(line.replace("\\", "/"), full))
                name = next((one for one in found if one is not None), None)
                (missing if name is None else found_names).append(line if name is None else name)
        if not found_names and not missing:
            raise self._refused(f"{self._split}: no images of {', '.join(paths)} are below {root}")
        return list(dict.fromkeys(found_names)), missing

    def _bases(self) -> list[Path]:
        """Return the directories to which paths may be relative, as in ultralytics; the YAML's ``path`` comes first."""
        own, dataset = self._path.parent, str(self._members.get("path") or "").replace("\\", "/")
        # The directory of the YAML file comes last, in case its `path` is a directory of another machine.
        return [own / dataset, Path(dataset).expanduser(), own] if dataset else [own]

    def _existing(self, path: str) -> Path:
        """Return the path of the directory, or of the list file, that a split refers to.

        As in ultralytics, the path is also tried without a leading ``../``.
        """
        path = path.replace("\\", "/")
        spellings = [path, *([path[3:]] if path.startswith("../") else [])]
        tried = [base / spelling for base in self._bases() for spelling in spellings]
        for full in tried:
            if os.path.isdir(full) or (os.path.isfile(full) and full.suffix == ".txt"):
                if full != tried[0]:
                    self.notes.append(
                        f"{self._split}: {tried[0]} does not exist, so packer uses {full}, as ultralytics does"
                    )
                return full
        shown = ", ".join(dict.fromkeys(os.path.normpath(full) for full in tried))
        raise self._refused(
            f"{self._split}: there is no directory or list of images {shown}. Correct path or {self._split}."
        )

    def _paths_of(self, line: str, listed: Path) -> Iterator[str]:
        """Yield the paths that a line can mean: relative to the list, to the data set or to the working directory."""
        for base in dict.fromkeys([listed.parent, *self._bases(), Path()]):
            yield os.path.join(os.path.realpath((base / line).parent), os.path.basename(line))

    def _listed(self, path: Path) -> list[str]:
        """Return the lines of a list file; each line is the path of an image."""
        try:
            lines = [line.strip() for line in file_text(path).splitlines()]
        except (OSError, ValueError) as error:
            raise SourceError(f"{printable(path)}: cannot be read: {printable(error)}") from error
        if any("\0" in line for line in lines):
            raise SourceError(f"{printable(path)}: it contains a NUL, so it is not a list of images")
        return [line for line in lines if line]

    def _names(self) -> dict[int, str]:
        names, count = self._members.get("names"), self._members.get("nc")
        if names is None and type(count) is int and 0 < count <= _MOST_CLASSES:
            names = [f"class_{number}" for number in range(count)]  # as ultralytics calls them
            self.notes.append(f"{printable(self._path.name)} has no names: classes are called class_0 to {names[-1]}")
        classes = dict(enumerate(names)) if isinstance(names, list) else names
        if not isinstance(classes, dict) or not classes:
            raise self._refused("it has no class names")
        if type(count) is int and count != len(classes):
            self.notes.append(
                f"{printable(self._path.name)} has nc: {count}, but {len(classes)} names; ultralytics refuses that. "
                "packer uses the names"
            )
        classes = {int(id) if isinstance(id, str) and id.isdecimal() else id: name for id, name in classes.items()}
        if not all(type(id) is int and id >= 0 and isinstance(name, str) for id, name in classes.items()):
            raise self._refused("names must be text, in a list or by id. Put names such as 1 or yes in quotes.")
        if not all(map(is_text, classes.values())):
            raise self._refused("a name cannot be encoded as UTF-8")
        return dict(sorted(classes.items()))

    def _refused(self, problem: str) -> SourceError:
        return SourceError(f"{printable(self._path)}: {printable(problem)}")


def _members(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(f"{option('yolo')} needs PyYAML: {pip_install('yolo')}") from error
    try:
        with open(open_regular(path), "rb") as file:
            text = text_of(file.read(4 * _MOST_TEXT + 4))
        if len(text) > _MOST_TEXT:
            raise SourceError(f"{printable(path)}: it has more than {_MOST_TEXT:,} characters")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise SourceError(
                f"{printable(path)}: it has an alias (*name), which packer does not read. Write out its value."
            )
        members = yaml.safe_load(text)
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
        raise SourceError(f"{printable(path)}: it is not YAML: {printable(' '.join(str(error).split()))}") from error
    if not isinstance(members, dict):
        raise SourceError(f"{printable(path)}: it has no class names")
    return members


def _label_path(image: str) -> str:
    """Return the path of an image's label file, from the absolute path of the image."""
    path = os.path.abspath(image)
    above, images, below = path.rpartition(f"{os.sep}images{os.sep}")
    return os.path.splitext(f"{above}{os.sep}labels{os.sep}{below}" if images else path)[0] + ".txt"


def _text(image: str, described: _Description) -> str | None:
    """Return the text of an image's label file after checking it; None if there is no file."""
    path = _label_path(image)
    try:
        text = file_text(Path(path))
        label = described.read(text)
        if label.boxes.size and (label.boxes.min() < 0 or label.boxes.max() > 1):
            _require_inside(label, image)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise SourceError(f"{printable(path)}: {printable(error)}. Correct the file.") from error
    return text


def _require_inside(label: Label, image: str) -> None:
    """Raise ValueError if a box is not inside of its image. Skip unreadable images: the conversion reports them."""
    with contextlib.suppress(ImageError, OSError), open(open_regular(image), "rb") as file:
        require_inside(label, *inspect(file.read()).size_shown("apply"))


def _in_pixels(label: Label, width: int, height: int, orientation: int) -> dict[str, Any]:
    """Return the values of the fields, in pixels of the image as it is in the file, before EXIF rotation."""
    size = np.array([width, height], np.float64)
    corners = turned(label.boxes, orientation) * size
    shapes = [None if one is None else turned(one, orientation) * size for one in label.polygons]
    points = turned(label.keypoints, orientation) * size
    return {
        "boxes": np.concatenate((corners.min(1), corners.max(1)), 1),
        "category": label.classes,
        "segmentation": [None if one is None else [one.ravel().round(_DECIMALS).tolist()] for one in shapes],
        "keypoints": np.concatenate((points, label.visible[:, :, None]), 2),
    }
