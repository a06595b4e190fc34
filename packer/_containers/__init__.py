"""Containers: files of other tools with images in them, read in place. A module for each kind.

Each module has a subclass of `Container`, which recognises files and directories, and lists the location of each sample
in them. `registry` has a row for each.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packer._containers.contract import (
    Container,
    Entry,
    Packed,
    Piece,
    PixelLayout,
    Ranges,
    Seals,
    natural,
    parse_keys,
)
from packer._containers.discovery import (
    containers_near,
    names_to_recognise,
    notes_on_splits,
    numbered_classes,
    one_of,
    one_set,
)
from packer._containers.listing import ForeignFiles, Listing, list_samples
from packer._containers.registry import container_of_file, containers_of_directory
from packer.errors import SourceError, printable
from packer.plugins._registries import CONTAINERS

__all__ = [
    "CONTAINERS",
    "Container",
    "Entry",
    "ForeignFiles",
    "Listing",
    "Packed",
    "Piece",
    "PixelLayout",
    "Ranges",
    "Seals",
    "files_to_name",
    "find_container",
    "list_samples",
    "named_paths",
    "numbered_classes",
    "open_container",
    "parse_keys",
]

_BRACES = re.compile(r"\{([^{}]*)\}")


def find_container(paths: Sequence[Path]) -> tuple[type[Container], list[Path]] | None:
    """Return the container of files or of a directory, and the paths for its `open`; None if no container fits.

    Raises
    ------
    SourceError
        If there are several paths and one is not a file, they are not of one kind, or the files of a directory are of
        several kinds or splits.
    """
    of_each = {path: _kind_of(path) for path in paths}
    first = of_each[paths[0]][0]
    for path, (kind, _) in of_each.items() if len(paths) > 1 else ():
        if kind is None:
            raise SourceError(
                f"{printable(path)}: no file of another tool, and only such files are read several at a time. "
                f"Pass the directory that holds them all: {printable(_directory_of(paths))}"
            )
        if first is not None and kind is not first:
            raise SourceError(
                f"{printable(path)}: is {kind.kind}, and {printable(paths[0])} is {first.kind}. Pass files of one kind."
            )
    return None if first is None else (first, [file for path in paths for file in of_each[path][1]])


def _directory_of(paths: Sequence[Path]) -> str:
    """Return the directory that holds all of some paths."""
    return os.path.commonpath([path.parent for path in paths])


def open_container(paths: Sequence[Path], keys: Mapping[str, str] | None = None) -> Container | None:
    """Open files or a directory as a container; None if no container fits.

    If a pattern names files of several splits, the container gets a note about it. Raises the same errors as
    `find_container` and `Container.open`.
    """
    found = find_container(paths)
    if found is None:
        return None
    container = found[0].open(found[1], dict(keys or {}))
    if container.units_are_files:
        container.notes += notes_on_splits([container.root / name for name in container.files[: container.units]])
    return container


def files_to_name(directory: Path) -> str:
    """Return a note on container files in a directory that is read as something else; empty if there are none."""
    patterns = containers_near(directory)
    shown = ", ".join(f"'{pattern}'" for pattern in patterns[:4]) + (", …" if len(patterns) > 4 else "")
    return f". Files of other tools are read by their names: {shown}" if patterns else ""


def named_paths(src: str | os.PathLike[str]) -> list[Path]:
    """Return the paths that a string names: the existing file or directory of that name, or a pattern's matches.

    A pattern contains ``*``, ``?`` or ``[...]``, or braces such as ``{000..127}`` and ``{a,b}``; every path that braces
    expand to must exist. The paths are absolute, and numbers in them sort as numbers. Empty if nothing matches.
    """
    text = os.path.abspath(os.path.expanduser(os.fspath(src)))
    if os.path.lexists(text):
        return [Path(text)]
    found: list[Path] = []
    for name in _without_braces(text):
        matches = sorted(map(Path, glob.glob(name)), key=natural) if glob.has_magic(name) else [Path(name)]
        if not matches or not os.path.lexists(matches[0]):
            if name != text:
                raise SourceError(f"{printable(name)}: there is no such file, which {printable(text)} names")
            return []
        found += matches
    return found


def _without_braces(text: str) -> list[str]:
    """Expand the braces in a string, as a shell does, and return the resulting strings."""
    match = _BRACES.search(text)
    if match is None:
        return [text]
    numbers = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", match[1])
    if numbers:
        first, last = int(numbers[1]), int(numbers[2])
        if last - first > 10**6:
            raise SourceError(f"{printable(text)}: names more than a million files")
        choices = [f"{number:0{len(numbers[1])}d}" for number in range(first, last + 1)]
    else:
        choices = match[1].split(",")
    return [
        rest for choice in choices for rest in _without_braces(text[: match.start()] + choice + text[match.end() :])
    ]


def _kind_of(path: Path) -> tuple[type[Container] | None, list[Path]]:
    """Return the container of a file or a directory, and its files."""
    if os.path.isdir(path):
        of, files = one_of(path, [*containers_of_directory(path, names_to_recognise(path))]) or (None, list[Path]())
        if len({file.parent for file in files}) == 1:  # otherwise directories are classes
            one_set(files)
        return of, files
    return container_of_file(path) if os.path.isfile(path) else None, [path]
