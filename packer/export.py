"""The way back: a pack as an ImageFolder tree of files."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from packer.errors import CorruptPackError, DestinationError, printable
from packer.formats import Reader, open_pack
from packer.formats.files import writing_to
from packer.images.encode import encode
from packer.names import name_problem, windows_problem
from packer.sample import Buffer

__all__ = ["export"]

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
        names = [_file_name(reader, index) for index in range(len(reader))]
        _refuse_bad_names(reader, names)
        with writing_to(root):
            root.mkdir(parents=True, exist_ok=True)
            if any(os.scandir(root)):
                raise DestinationError(f"{printable(root)}: not empty. Export goes into an empty or a new directory.")
        made: set[str] = set()
        if _labels_follow(reader):
            for name in reader.manifest.classes:
                _make_directory(root, name, made)
        else:
            _write_labels(reader, names, root / "labels.csv")
        for index, name in enumerate(names):
            folder = name.rpartition("/")[0]
            _make_directory(root, folder, made)
            _write_file(root / name, _content(reader, index))
            if progress is not None and (index % 100 == 99 or index + 1 == len(names)):
                progress(index + 1, len(names))
    return len(names)


def _file_name(reader: Reader, index: int) -> str:
    name, codec = reader.table.sample_names()[index], reader.manifest.codec
    if codec == "keep":
        return name
    if codec == "raw":
        return name if name.lower().endswith(".png") else f"{name}.png"
    return name if name.lower().endswith(_SUFFIXES[codec]) else f"{name}{_SUFFIXES[codec][0]}"


def _refuse_bad_names(reader: Reader, names: list[str]) -> None:
    """Raise before the first file is written; classes become directories, so they are names too."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        problem = name_problem(name) or (windows_problem(name) if os.name == "nt" else None)
        if problem is None and name in seen:
            problem = "another sample has the same name"
        if problem is not None:
            raise CorruptPackError(f"cannot be exported ({printable(name)}): {problem}", reader.path, index)
        seen.add(name)
    for name in reader.manifest.classes:
        if _labels_follow(reader) and (name_problem(name) or "/" in name):
            raise CorruptPackError(f"the class {printable(name)} cannot be a directory", reader.path)


def _labels_follow(reader: Reader) -> bool:
    """Tell whether every sample's first directory is the name of its class."""
    names, labels, classes = reader.table.sample_names(), reader.table.label, reader.manifest.classes
    return len(set(classes)) == len(classes) and all(
        0 <= label < len(classes) and names[index].partition("/")[0] == classes[label] and "/" in names[index]
        for index, label in enumerate(labels.tolist())
    )


def _write_labels(reader: Reader, names: list[str], path: Path) -> None:
    with writing_to(path), open(path, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        for name, label in zip(names, reader.table.label.tolist(), strict=True):
            rows.writerow([name, reader.manifest.classes[label]])


def _content(reader: Reader, index: int) -> Buffer:
    data = reader.read(index)
    if reader.manifest.codec != "raw":
        return data
    height, width = int(reader.table.height[index]), int(reader.table.width[index])
    if height * width * 3 != len(data):
        raise CorruptPackError(f"{len(data)} bytes are not {width} x {height} pixels", reader.path, index)
    return encode(np.frombuffer(data, np.uint8).reshape(height, width, 3), "png", 0)


def _make_directory(root: Path, folder: str, made: set[str]) -> None:
    if folder not in made:
        with writing_to(root / folder):
            (root / folder).mkdir(parents=True, exist_ok=True)
        made.add(folder)


def _write_file(path: Path, data: Buffer) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with writing_to(path), open(os.open(path, flags, 0o666), "wb") as file:
        file.write(data)
