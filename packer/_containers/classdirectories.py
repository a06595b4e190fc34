"""Class directories within an archive, as ImageFolder would list them where the archive is unpacked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from packer.errors import printable

__all__ = ["SPLITS", "above_classes", "numbered_classes", "splits_among"]

SPLITS = ("train", "training", "val", "valid", "validation", "dev", "eval", "test", "testing")
"""What directories of splits are called, in any case."""


def above_classes(directories: Collection[list[str]]) -> str:
    """Return the path that all directories of images begin with, where each has a further part after it.

    Parameters
    ----------
    directories : collection of list of str
        The parts of each.

    Returns
    -------
    str
        With a slash at its end; empty where there is none.
    """
    first, last = min(directories, default=[]), max(directories, default=[])
    common = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return "".join(f"{part}/" for part in first[: min(common, max(0, min(map(len, directories), default=0) - 1))])


def splits_among(directories: Collection[str]) -> list[str]:
    """Return the directories that are splits and hold directories themselves, where there are several; else none."""
    tops = {directory.partition("/")[0] for directory in directories}
    splits = sorted(name for name in tops if name.lower() in SPLITS)
    return splits if len(splits) > 1 and any("/" in directory for directory in directories) else []


def numbered_classes(classes: Sequence[str]) -> list[str]:
    """Say that classes which are called by numbers have other ids, where some have: names are sorted as text."""
    if not all(name.isascii() and name.isdecimal() for name in classes):
        return []
    other = next((id for id, name in enumerate(classes) if name.lstrip("0") != str(id).lstrip("0")), None)
    if other is None:
        return []
    why = "classes are called by numbers, and have their ids by the order of these as text, as ImageFolder has it"
    return [f"{why}: class {printable(classes[other])} has the id {other}"]
