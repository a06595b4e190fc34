"""Images with labels in YOLO's layout: a ``data.yaml``, and in ``labels`` a file for each file in ``images``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from packer._fields import Field, Stored
from packer._fields.values import is_text, short
from packer._images.probe import inspect
from packer._sample import UNLABELED
from packer._sources.derived import DerivedSource
from packer._sources.fieldvalues import Blobs
from packer._sources.walking import ImageRule, Walk
from packer._sources.yolofile import Label, read_label, require_inside, turned
from packer._storage.opening import open_regular
from packer._table import Names
from packer.errors import ImageError, MissingDependencyError, SourceError, pip_install, printable

if TYPE_CHECKING:
    from packer._sources.readbuffer import ReadBuffer

__all__ = ["YoloSource", "yolo_source"]

_TEXT = "yolo"  # the field of the files' own text
_MOST_TEXT = 1 << 22  # characters of a data.yaml
_MOST_POINTS = 10_000
_DECIMALS = 3  # of the pixels of polygons


@dataclass(frozen=True, eq=False, kw_only=True)
class YoloSource(DerivedSource):
    """Images with labels in YOLO's layout, whose positions become pixels when the image is read.

    Attributes
    ----------
    keypoints : (int, int), optional
        How many keypoints an object has, and how many numbers a keypoint.
    """

    keypoints: tuple[int, int] | None

    def derive(self, index: int, stored: Mapping[str, Stored], buffer: ReadBuffer) -> Sequence[Stored]:
        text = stored[_TEXT]
        if text is None:
            return (None,) * len(self.derived)
        assert isinstance(text, bytes)
        label = read_label(text.decode("utf-8"), self.keypoints)
        try:
            info = inspect(self.read(index, buffer)[0])
        except ImageError as error:
            error.name = error.name or self.names[index]
            raise
        values = _in_pixels(label, info.width, info.height, info.orientation)
        return tuple(field.encode(values[field.name]) for field in self.derived)


def yolo_source(
    root: Path,
    data: Path,
    *,
    split: str | None = None,
    on_missing: str = "error",
    rule: ImageRule | None = None,
) -> YoloSource:
    """List images with labels in YOLO's layout. The images have no labels of their own: -1.

    The labels of ``a/images/b/c.jpg`` are in ``a/labels/b/c.txt``; those of a path without ``images`` lie beside it.
    Their positions are of the image as EXIF turns it. The fields have pixels of the image as it lies in its file.

    Parameters
    ----------
    root : Path
        A directory of images.
    data : Path
        The file with ``names``, ``kpt_shape`` and the paths of splits.
    split : str, optional
        Which images: ``train`` are those below the path or the paths of that name in `data`, or that a list there
        names. By default all below `root`.
    on_missing : {"error", "skip"}
        What becomes of images that a list names and that are not there.
    rule : ImageRule, optional
        Which files count as images.

    Raises
    ------
    SourceError
        If a file or directory is missing, or a file is not what YOLO's layout says.
    MissingDependencyError
        If PyYAML is not installed.
    """
    rule = rule or ImageRule()
    described = _Description(data, split)
    walk = Walk(root, rule)
    names = walk.all_images()
    notes = walk.said()
    if split is not None:
        names, missing = described.chosen(root, names)
        if missing:
            said = f"{len(missing):,} images of split {printable(split)} are not there, such as {printable(missing[0])}"
            if on_missing != "skip":
                raise SourceError(f"{printable(data)}: {said}. --on-missing skip leaves them out.")
            notes.append(f"left out: {said}")
    if not names:
        raise SourceError(f"{printable(root)}: no images ({rule}) in it{' that the split names' if split else ''}")
    names.sort()
    texts = [_text(os.path.join(root, name), described) for name in names]
    if not any(text is not None for text in texts):
        raise SourceError(
            f"{printable(root)}: none of the {len(names):,} images has a file of labels. That of {printable(names[0])} "
            f"would be {printable(_label_path(os.path.join(root, names[0])))}"
        )
    if without := texts.count(None):
        notes.append(f"{without:,} of {len(texts):,} images have no file of labels: their fields are null")
    polygons = any(any(one is not None for one in described.read(text).polygons) for text in texts if text is not None)
    derived = described.fields(polygons=polygons)
    column = Blobs.of(Field(_TEXT, "text"), (None if text is None else text.encode("utf-8") for text in texts))
    return YoloSource(
        "yolo",
        root,
        Names.of(names),
        np.full(len(names), UNLABELED, np.int64),
        [],
        notes,
        others=walk.others,
        account=walk.account,
        fields=(*derived, column.field),
        columns=(column,),
        derived=derived,
        keypoints=described.keypoints,
    )


class _Description:
    """What a ``data.yaml`` says.

    Attributes
    ----------
    keypoints : (int, int), optional
    """

    def __init__(self, path: Path, split: str | None) -> None:
        self._path = path
        self._members = _members(path)
        self._split = split
        self._classes = self._names()
        shape = self._members.get("kpt_shape")
        self.keypoints: tuple[int, int] | None = None
        if shape is not None:
            sound = isinstance(shape, list) and len(shape) == 2 and all(type(number) is int for number in shape)
            if not sound or not 1 <= shape[0] <= _MOST_POINTS or shape[1] not in (2, 3):
                raise self._refused(f"kpt_shape is [POINTS, 2] or [POINTS, 3], not {short(shape)}")
            self.keypoints = (shape[0], shape[1])

    def read(self, text: str) -> Label:
        """Read the text of a file of labels; ValueError where it is none, or has a class that `names` has not."""
        label = read_label(text, self.keypoints)
        for number in label.classes:
            if number not in self._classes:
                raise ValueError(f"class {number} is none of the {len(self._classes)} names of {printable(self._path)}")
        return label

    def fields(self, *, polygons: bool) -> tuple[Field, ...]:
        """Return the fields that labels become."""
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
        """Return which of the images below `root` belong to the split, and which it names that are not there."""
        said: Any = self._members.get(self._split or "")
        places: list[Any] = said if isinstance(said, list) else [said]
        if not places or not all(isinstance(place, str) and place for place in places):
            splits = [name for name in ("train", "val", "test") if self._members.get(name)]
            raise self._refused(f"no split {self._split}: it has {', '.join(splits) or 'none'}")
        base = self._path.parent / str(self._members.get("path") or "")
        wanted: list[str] = []
        missing: list[str] = []
        top = os.path.realpath(root)
        known = {os.path.join(top, *name.split("/")): name for name in names}
        for place in places:
            full = base / place
            if os.path.isdir(full):
                below = os.path.join(os.path.realpath(full), "")
                wanted += [name for path, name in known.items() if path.startswith(below)]
            elif os.path.isfile(full) and full.suffix == ".txt":
                for line in self._listed(full):
                    path = os.path.join(os.path.realpath((full.parent / line).parent), os.path.basename(line))
                    (wanted if path in known else missing).append(known.get(path, line))
            else:
                raise self._refused(
                    f"{self._split}: no directory or list of images {full}. Mend path or {self._split}."
                )
        if not wanted and not missing:
            raise self._refused(f"{self._split}: no images of {', '.join(places)} are below {root}")
        return list(dict.fromkeys(wanted)), missing

    def _listed(self, path: Path) -> list[str]:
        """Return the images that a list names, a line an image."""
        try:
            lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
        except (OSError, ValueError) as error:
            raise SourceError(f"{printable(path)}: cannot be read: {printable(error)}") from error
        if any("\0" in line for line in lines):
            raise SourceError(f"{printable(path)}: it has a NUL, so it is no list of images")
        return [line for line in lines if line]

    def _names(self) -> dict[int, str]:
        names = self._members.get("names")
        classes = dict(enumerate(names)) if isinstance(names, list) else names
        if not isinstance(classes, dict) or not classes:
            raise self._refused("it has no names of classes")
        if not all(type(id) is int and id >= 0 and isinstance(name, str) for id, name in classes.items()):
            raise self._refused("names are texts, in a list or by their ids. Put names such as 1 or yes into quotes.")
        if not all(map(is_text, classes.values())):
            raise self._refused("a name is no text that UTF-8 can hold")
        return dict(sorted(classes.items()))

    def _refused(self, problem: str) -> SourceError:
        return SourceError(f"{printable(self._path)}: {printable(problem)}")


def _members(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise MissingDependencyError(f"--yolo needs PyYAML: {pip_install('yolo')}") from error
    try:
        with open(open_regular(path), encoding="utf-8-sig") as file:
            text = file.read(_MOST_TEXT + 1)
        if len(text) > _MOST_TEXT:
            raise SourceError(f"{printable(path)}: it has more than {_MOST_TEXT:,} characters")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise SourceError(
                f"{printable(path)}: it has an alias (*name), which is not read. Write out what it means."
            )
        members = yaml.safe_load(text)
    except OSError as error:
        raise SourceError(f"{printable(path)}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
        raise SourceError(f"{printable(path)}: it is no YAML: {printable(' '.join(str(error).split()))}") from error
    if not isinstance(members, dict):
        raise SourceError(f"{printable(path)}: it has no names of classes")
    return members


def _label_path(image: str) -> str:
    """Return where the labels of an image lie, by its absolute path."""
    path = os.path.abspath(image)
    above, images, below = path.rpartition(f"{os.sep}images{os.sep}")
    return os.path.splitext(f"{above}{os.sep}labels{os.sep}{below}" if images else path)[0] + ".txt"


def _text(image: str, described: _Description) -> str | None:
    """Return the text of the labels of an image, which is sound; None where there is no file."""
    path = _label_path(image)
    try:
        with open(open_regular(path), encoding="utf-8", newline="") as file:
            text = file.read()
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
    """Raise ValueError where a box lies outside of the image in a file; of no image, who converts it is told."""
    with contextlib.suppress(ImageError, OSError), open(open_regular(image), "rb") as file:
        require_inside(label, *inspect(file.read()).size_shown("apply"))


def _in_pixels(label: Label, width: int, height: int, orientation: int) -> dict[str, Any]:
    """Return the values of fields, in pixels of an image as it lies in its file."""
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
