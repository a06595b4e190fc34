"""Files of several splits, such as ``train-*.tar`` and ``val-*.tar``, which nobody wants as one set by accident."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from packer.errors import SourceError, printable

__all__ = ["common_pattern", "notes_on_splits", "one_set", "splits_of"]

_TRAINED_ON = {"train", "training", "trainval"}
_LOOKED_AT = {"val", "valid", "validation", "minival", "test", "testing", "testdev", "dev", "eval", "holdout"}
_SPLITS = frozenset(_TRAINED_ON | _LOOKED_AT)


def one_set(paths: Sequence[Path]) -> None:
    """Refuse the files of a directory whose names say that they are of several splits.

    Who names a directory did not look at its files. Who names a pattern did.

    Raises
    ------
    SourceError
        If they are; it says the patterns that name one split each.
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
    """Return what to say of files that a person named, and that are of several splits."""
    patterns = splits_of(paths)
    return [f"files of several splits: {', '.join(patterns)}"] if patterns else []


def splits_of(paths: Sequence[Path]) -> list[str]:
    """Return a pattern for the files of each split, relative to the directory that all lie in; none of a single one.

    Words such as ``train`` and ``val`` in the files' names tell the splits.
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
    """Return a pattern that names match: that of their numbers which differ is ``*``."""
    parts = [re.split("([0-9]+)", name) for name in names]
    if len({tuple(of_name[::2]) for of_name in parts}) > 1:
        first, last = min(names), max(names)
        common = next(count for count in range(len(last)) if first[count : count + 1] != last[count])
        return f"{first[:common]}*"
    return "".join(at[0] if len(set(at)) == 1 else "*" for at in zip(*parts, strict=True))
