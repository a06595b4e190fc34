"""What a directory is to those who ask whether it is a container: images that lie in it come first.

A directory of images may have a file of another tool beside them, as an archive of it, or numbers about it. It stays a
directory of images, as ImageFolder takes it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from packer._containers.contract import Container
from packer._containers.splits import common_pattern, splits_of
from packer._sample import IMAGE_SUFFIXES
from packer.errors import SourceError, printable

__all__ = ["Found", "containers_near", "names_to_recognise", "one_of"]

_LOOKED_AT = 100
"""In so many directories files of containers are looked for."""

Found = tuple[type[Container], list[Path]]


def names_to_recognise(path: Path) -> list[str]:
    """Return the sorted names in a directory that say whether it is a container.

    Where images lie in it, or in directories in it, these are the names of the directories.
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
    """Return the container that a directory is, of those that recognise it.

    Raises
    ------
    SourceError
        If it has files of several kinds, of which one would be left out.
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


def containers_near(path: Path, kinds: Sequence[type[Container]]) -> list[str]:
    """Return patterns of the files of containers in a directory and in those in it, which a person could name."""
    found: dict[str, None] = {}
    for directory in (path, *(path / name for name in _directories(path)[:_LOOKED_AT])):
        names = [name for name in _files(directory) if not name.lower().endswith(IMAGE_SUFFIXES)]
        for kind in kinds if names else ():
            try:
                files = kind.recognise_directory(directory, names)
            except SourceError:  # such as several splits
                files = None
            if files and directory in files[0].parents:
                of_splits = [printable(directory / pattern) for pattern in splits_of(files)]
                found.update(dict.fromkeys(of_splits or [pattern_of(files)]))
    return [*found]


def pattern_of(files: Sequence[Path]) -> str:
    """Return a text that `named_paths` takes, and that names files of one directory."""
    return printable(files[0].with_name(common_pattern([file.name for file in files])))


def _has_images(directory: Path) -> bool:
    return any(name.lower().endswith(IMAGE_SUFFIXES) for name in _files(directory))


def _files(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not os.path.isdir(entry.path))
    except OSError:  # whoever lists the images says so
        return []


def _directories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry.path))
