"""A directory with one subdirectory a class, listed as torchvision's ImageFolder lists it.

The rules are those of `torchvision.datasets.folder` (`find_classes`, `make_dataset`): classes are the sorted names
of the root's subdirectories; within a class, directories are visited in the order of their paths, symbolic links
to directories are followed, and files count if their suffix is one of `IMAGE_SUFFIXES`, in any case.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from packer._sources.base import IMAGE_SUFFIXES, Source, class_ids
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["class_directories", "imagefolder_source", "refuse_splits", "split_directories"]

_SPLITS = ("train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing")


def imagefolder_source(root: Path, classes: Sequence[str] | None = None) -> Source:
    """List the images below `root`.

    Parameters
    ----------
    root : Path
    classes : sequence of str, optional
        Class names in the order of their ids; the default is the sorted names of the subdirectories.

    Raises
    ------
    SourceError
        If `root` is no directory, a directory in it cannot be listed, it has no images, or has a class that is not in
        `classes`, or `classes` name one twice.
    """
    folders = class_directories(root)
    if not folders:
        raise SourceError(
            f"{printable(root)}: no subdirectories in it. Images are expected as {printable(root)}/CLASS/IMAGE; "
            "for labels in a file, say --labels FILE.csv."
        )
    if classes is not None:
        unknown = [folder for folder in folders if folder not in set(classes)]
        if unknown:
            raise SourceError(
                f"{printable(root)}: {len(unknown)} of its classes are unknown to the given class list: "
                + ", ".join(map(printable, unknown[:5]))
                + (", …" if len(unknown) > 5 else "")
            )
    notes: list[str] = []
    found = [Names.of(_images_below(str(root), folder, notes)) for folder in folders]
    if not any(map(len, found)):
        raise SourceError(
            f"{printable(root)}: no images ({', '.join(IMAGE_SUFFIXES)}) in its {len(folders)} directories"
        )
    if empty := [folder for folder, names in zip(folders, found, strict=True) if not len(names)]:
        notes.append(f"classes without images, which keep their ids: {_some(empty)}")
    outside = [name for name in os.listdir(root) if _is_image(name) and not os.path.isdir(root / name)]
    if outside:
        notes.append(f"images outside of any class, which are left out as ImageFolder does: {_some(sorted(outside))}")
    ids = class_ids(folders if classes is None else classes)
    labels = np.repeat(np.array([ids[folder] for folder in folders], np.int64), [len(names) for names in found])
    return Source("imagefolder", root, Names.joined(found), labels, list(ids), notes)


def class_directories(root: Path) -> list[str]:
    """Return the sorted names of the subdirectories of `root`; SourceError where it is not a directory."""
    try:
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if _is_directory(entry))
    except FileNotFoundError as error:
        raise SourceError(f"{printable(root)}: no such directory") from error
    except NotADirectoryError as error:
        raise SourceError(f"{printable(root)}: a file, not a directory with one subdirectory a class") from error
    except OSError as error:
        raise SourceError(f"{printable(root)}: cannot be listed: {error.strerror}") from error


def split_directories(root: Path) -> list[str]:
    """Return the names of the splits (train, val, …) below `root`: directories with class directories in them."""
    folders = [folder for folder in class_directories(root) if folder.lower() in _SPLITS]
    splits = [folder for folder in folders if class_directories(root / folder)]
    return sorted(splits, key=lambda folder: (_SPLITS.index(folder.lower()), folder))


def refuse_splits(root: Path, destination: Path) -> None:
    """Raise SourceError, with the command to use instead, where `root` holds splits and not classes.

    That is so where two directories are splits, or all are; a single class may well be called ``train``.
    """
    splits = split_directories(root)
    all_named_so = all(folder.lower() in _SPLITS for folder in class_directories(root))
    if len(splits) > 1 or (splits and all_named_so):
        each = destination.with_stem(f"{destination.stem}-{splits[0]}")
        src, split, dst, split_dst = (shlex.quote(printable(p)) for p in (root, root / splits[0], destination, each))
        raise SourceError(
            f"{printable(root)} holds splits ({', '.join(splits)}), not classes.\n"
            f"Convert all of them, with one class map:\n"
            f"  packer convert {src} {dst} --split all\n"
            f"or one:\n"
            f"  packer convert {split} {split_dst}"
        )


def _images_below(root: str, folder: str, notes: list[str]) -> list[str]:
    """Return the images below a class directory, relative to `root`, in ImageFolder's order."""
    listed: list[tuple[str, list[str]]] = []
    pending = [(os.path.join(root, folder), folder, frozenset[tuple[int, int]]())]
    while pending:
        path, relative, above = pending.pop()
        try:
            status = os.stat(path)
            identity = (status.st_dev, status.st_ino)
            if identity in above and status.st_ino:
                notes.append(f"a symbolic link to a directory above it is not followed: {printable(relative)}")
                continue
            files = []
            with os.scandir(path) as entries:
                for entry in entries:
                    if _is_directory(entry):
                        pending.append((entry.path, f"{relative}/{entry.name}", above | {identity}))
                    elif _is_image(entry.name):
                        files.append(entry.name)
        except OSError as error:
            # ImageFolder passes over it in silence; images would be lost.
            raise SourceError(f"{printable(path)}: cannot be listed: {error.strerror}") from error
        listed.append((relative, sorted(files)))
    listed.sort()  # by path: "a", "a-b", "a/c", as sorted(os.walk()) does
    return [f"{relative}/{file}" for relative, files in listed for file in files]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which is listed as a file, and reported when it is read
        return False


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _some(names: list[str]) -> str:
    return ", ".join(map(printable, names[:5])) + (f", … ({len(names)})" if len(names) > 5 else "")
