"""Recognition of directories as containers of one kind and one split; images take precedence.

A directory of images may also contain a file of another tool, such as an archive of the images or an array about them.
It still counts as a directory of images, as in ImageFolder. Files of several splits, such as ``train-*.tar`` and
``val-*.tar``, are refused, because a user hardly ever wants them as one set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from packer._codecs import IMAGE_SUFFIXES
from packer._containers.contract import Container
from packer._containers.registry import containers_of_directory
from packer.errors import SourceError, printable

_TRAINED_ON = {"train", "training", "trainval"}
_EVALUATION_SPLITS = {"val", "valid", "validation", "minival", "test", "testing", "testdev", "dev", "eval", "holdout"}
_SPLITS = frozenset(_TRAINED_ON | _EVALUATION_SPLITS)


def one_set(paths: Sequence[Path]) -> None:
    """Refuse the files of a directory if their names indicate several splits.

    A user who names a directory may not know its files; a user who gives a pattern does.

    Raises
    ------
    SourceError
        If there are several splits; the message gives a pattern for each of them.
    """
    patterns = splits_of(paths)
    if patterns:
        shown = ", ".join(patterns[:4]) + (", …" if len(patterns) > 4 else "")
        directory = Path(os.path.commonpath([path.parent for path in paths]))
        example = printable(directory / patterns[0])
        raise SourceError(
            f"{printable(directory)}: has files of several splits: {shown}. Name one, such as '{example}'"
        )


def notes_on_splits(paths: Sequence[Path]) -> list[str]:
    """Return the note on chosen files of several splits."""
    patterns = splits_of(paths)
    return [f"files of several splits: {', '.join(patterns)}"] if patterns else []


def splits_of(paths: Sequence[Path]) -> list[str]:
    """Return a pattern for the files of each split, relative to their common directory; none for a single split.

    Words such as ``train`` and ``val`` in the files' names identify the splits.
    """
    if not paths:
        return []
    directory = os.path.commonpath([path.parent for path in paths])
    names: dict[frozenset[str], list[str]] = {}
    for path in paths:
        name = path.relative_to(directory).as_posix()
        names.setdefault(_SPLITS.intersection(re.findall("[a-z]+", name.lower())), []).append(name)
    return [printable(common_pattern(of_split)) for of_split in names.values()] if len(names) > 1 else []


def common_pattern(names: Sequence[str]) -> str:
    """Return a pattern that matches names: numbers that differ become ``*``."""
    parts = [re.split("([0-9]+)", name) for name in names]
    if len({tuple(of_name[::2]) for of_name in parts}) > 1:
        first, last = min(names), max(names)
        common = next(count for count in range(len(last)) if first[count : count + 1] != last[count])
        return f"{first[:common]}*"
    return "".join(at[0] if len(set(at)) == 1 else "*" for at in zip(*parts, strict=True))


_LOOKED_AT = 100
"""In so many directories files of containers are looked for."""

Found = tuple[type[Container], list[Path]]


def names_to_recognise(path: Path) -> list[str]:
    """Return the sorted names in a directory by which a container is recognised.

    If the directory or one of its subdirectories contains images, only the names of subdirectories are returned.
    """
    with os.scandir(path) as entries:
        found = {entry.name: os.path.isdir(entry.path) for entry in entries}  # also of links in a circle
    names = sorted(found)
    directories = [name for name in names if found[name]]
    if len(directories) == len(names):
        return names
    images = any(name.lower().endswith(IMAGE_SUFFIXES) for name in names if not found[name])
    return (
        directories
        if images or any(map(_has_images, (path / name for name in directories if name[0] != ".")))
        else names
    )


def one_of(path: Path, found: Sequence[Found]) -> Found | None:
    """Return the container of a directory, among those that recognise it.

    Raises
    ------
    SourceError
        If it has files of several kinds, because one would be left out.
    """
    for kind, files in found[1:]:
        if not set(files) & set(found[0][1]):
            kinds = " and ".join(
                f"{of.kind} ({printable(named[0].name)}, …)" for of, named in (found[0], (kind, files))
            )
            raise SourceError(
                f"{printable(path)}: has files of several kinds: {kinds}. Name those that are meant, "
                f"such as '{pattern_of(files)}'"
            )
    return found[0] if found else None


def containers_near(path: Path) -> list[str]:
    """Return patterns of the files of containers in a directory and in its subdirectories, for a message."""
    found: dict[str, None] = {}
    for directory in (path, *(path / name for name in _directories(path)[:_LOOKED_AT])):
        names = [name for name in _files(directory) if not name.lower().endswith(IMAGE_SUFFIXES)]
        for _, files in containers_of_directory(directory, names, strict=False) if names else ():
            if directory in files[0].parents:
                of_splits = [printable(directory / pattern) for pattern in splits_of(files)]
                found.update(dict.fromkeys(of_splits or [pattern_of(files)]))
    return [*found]


def pattern_of(files: Sequence[Path]) -> str:
    """Return a pattern for `named_paths` that matches files of one directory."""
    return printable(files[0].with_name(common_pattern([file.name for file in files])))


def _has_images(directory: Path) -> bool:
    return any(name.lower().endswith(IMAGE_SUFFIXES) for name in _files(directory))


def _files(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not os.path.isdir(entry.path))
    except OSError:  # listing the images raises it
        return []


def _directories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry.path))


SPLITS = ("train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing")
"""The names of directories of splits, in lower case."""


def above_classes(directories: Collection[list[str]]) -> str:
    """Return the common beginning of the paths of all image directories, if each continues after it.

    Parameters
    ----------
    directories : collection of list of str
        The parts of each directory's path.

    Returns
    -------
    str
        With a slash at its end; empty if there is none.
    """
    first, last = min(directories, default=[]), max(directories, default=[])
    common = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return "".join(f"{part}/" for part in first[: min(common, max(0, min(map(len, directories), default=0) - 1))])


def splits_among(directories: Collection[str]) -> list[str]:
    """Return the directories that are splits and contain directories, if there are several; otherwise none."""
    tops = {directory.partition("/")[0] for directory in directories}
    splits = sorted(name for name in tops if name.lower() in SPLITS)
    return splits if len(splits) > 1 and any("/" in directory for directory in directories) else []


def numbered_classes(classes: Sequence[str]) -> list[str]:
    """Report classes whose names are numbers and whose ids differ from them, because names are sorted as text."""
    if not all(name.isascii() and name.isdecimal() for name in classes):
        return []
    other = next((id for id, name in enumerate(classes) if name.lstrip("0") != str(id).lstrip("0")), None)
    if other is None:
        return []
    why = "classes are called by numbers, and have their ids by the order of these as text, as ImageFolder has it"
    return [f"{why}: class {printable(classes[other])} has the id {other}"]
