"""The way back: a pack as an ImageFolder tree of files."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np

from packer.errors import CorruptPackError, DestinationError, printable
from packer.formats import Reader, open_pack
from packer.formats.files import writing_to
from packer.images.encode import encode
from packer.names import name_problem, windows_problem
from packer.sample import Buffer, encode_name
from packer.tree import Tree

__all__ = ["export"]

_LONGEST_NAME = 255  # bytes, of what Linux and macOS take
_SUFFIXES = {"jpeg": (".jpg", ".jpeg"), "png": (".png",), "webp": (".webp",), "raw": (".png",)}


def export(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write every sample of a pack to a file of its name below `directory`.

    Kept bytes are written as they are. A sample that was re-encoded, and whose name says another type, gets
    the suffix of its type added; raw pixels become PNG. Classes without samples become empty directories.
    Where the labels do not follow from the names, ``labels.csv`` says them, as `packer convert --labels` reads it.

    Parameters
    ----------
    path : path
        The pack.
    directory : path
        Made where it is missing; must be empty.
    progress : callable, optional
        Called with the number of files written and their total.

    Returns
    -------
    int
        The number of files.

    Raises
    ------
    CorruptPackError
        If a sample is damaged, or its name would lead out of `directory`.
    DestinationError
        If `directory` is not empty, or a file cannot be written.
    """
    root = Path(os.path.abspath(directory))
    with open_pack(path) as reader:
        reader.require_column("label")
        labels_follow = _labels_follow(reader)
        names = _file_names(reader)
        _refuse_bad_names(reader, names)
        _refuse_bad_rows(reader)
        with writing_to(root):
            root.mkdir(parents=True, exist_ok=True)
            if os.listdir(root):
                raise DestinationError(f"{printable(root)}: not empty. Export goes into an empty or a new directory.")
        with contextlib.closing(Tree(root)) as tree:
            if tree.folds_names():
                _refuse_names_that_meet(reader, names)
            if labels_follow:
                for name in reader.manifest.classes:
                    tree.make(name)
            else:
                tree.write(_free_name("labels", ".csv", set(names)), _labels_as_csv(reader, names))
            for index, name in enumerate(names):
                tree.write(name, _content(reader, index))
                if progress is not None and (index % 100 == 99 or index + 1 == len(names)):
                    progress(index + 1, len(names))
    return len(names)


def _file_names(reader: Reader) -> list[str]:
    """Return the name of every sample's file: its own, with the suffix of its type added where it has another."""
    names, codec = list(reader.table.sample_names()), reader.manifest.codec
    if codec == "keep":
        return names
    suffixes = _SUFFIXES[codec]
    taken = set(names)
    for index, name in enumerate(names):
        if not name.lower().endswith(suffixes):
            names[index] = _free_name(name, suffixes[0], taken)
            taken.add(names[index])
    return names


def _free_name(stem: str, suffix: str, taken: set[str]) -> str:
    """Return a name that is not taken: `stem`, cut where it would be too long for a file, and `suffix`."""
    folder, slash, last = stem.rpartition("/")

    def candidate(suffix: str) -> str:
        cut = encode_name(last)[: _LONGEST_NAME - len(suffix)]
        return folder + slash + (last if cut == encode_name(last) else cut.decode("utf-8", "ignore")) + suffix

    candidates = map(candidate, itertools.chain([suffix], (f"-{number}{suffix}" for number in itertools.count(1))))
    return next(name for name in candidates if name not in taken)


def _refuse_bad_names(reader: Reader, names: list[str]) -> None:
    """Raise before the first file is written."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        problem = name_problem(name) or (windows_problem(name) if os.name == "nt" else None)
        if problem is None and name in seen:
            problem = "another sample has the same name"
        if problem is not None:
            raise CorruptPackError(f"cannot be exported ({printable(name)}): {problem}", reader.path, index)
        seen.add(name)


def _refuse_bad_rows(reader: Reader) -> None:
    """Raise where rows lead outside of the data, or several to the same data, of which a bomb could be made."""
    table, extent = reader.table, sum(size for _, _, size in reader.data_files())
    inside = (table.size >= 0) & (table.offset >= 0) & (table.size <= extent) & (table.offset <= extent - table.size)
    for index in np.flatnonzero(~inside)[:1].tolist():
        raise CorruptPackError("damaged: its row points outside the data", reader.path, index)
    for index in table.overlapping()[:1].tolist():
        raise CorruptPackError("its bytes overlap another sample's", reader.path, index)


def _refuse_names_that_meet(reader: Reader, names: list[str]) -> None:
    """Raise where two names are one on a file system that ignores case, or how accents are encoded."""
    seen: dict[str, str] = {}
    for index, name in enumerate(names):
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        if folded in seen:
            raise CorruptPackError(
                f"cannot be exported ({printable(name)}): to this file system its name is that of "
                f"{printable(seen[folded])}",
                reader.path,
                index,
            )
        seen[folded] = name


def _labels_follow(reader: Reader) -> bool:
    """Tell whether every sample's first directory is the name of its class; CorruptPackError where it has no class."""
    names, classes = reader.table.sample_names(), reader.manifest.classes
    follow = len(set(classes)) == len(classes) and not any(name_problem(name) or "/" in name for name in classes)
    for index, label in enumerate(reader.table.label.tolist()):
        if not 0 <= label < len(classes):
            raise CorruptPackError(f"label {label} is not one of the {len(classes)} classes", reader.path, index)
        follow = follow and names[index].startswith(classes[label] + "/")
    return follow


def _labels_as_csv(reader: Reader, names: list[str]) -> bytes:
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["path", "label"])
    for name, label in zip(names, reader.table.label.tolist(), strict=True):
        rows.writerow([name, reader.manifest.classes[label]])
    return encode_name(text.getvalue())


def _content(reader: Reader, index: int) -> Buffer:
    data = reader.read(index)
    if reader.manifest.codec != "raw":
        return data
    height, width = int(reader.table.height[index]), int(reader.table.width[index])
    if height * width * 3 != len(data):
        raise CorruptPackError(f"{len(data)} bytes are not {width} x {height} pixels", reader.path, index)
    return encode(np.frombuffer(data, np.uint8).reshape(height, width, 3), "png", 0)
