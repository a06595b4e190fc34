"""Detection of files that are not images despite their suffix: Git LFS pointers, leftovers of macOS and Windows.

A pointer is a small text that stands for a large file of a repository until it is fetched:
https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing these would slow down the start of the process that fetches objects
    from collections.abc import Callable

    from packer._table import Buffer

LARGEST_POINTER = 1023
"""The maximum size of a pointer in bytes."""

IS_POINTER = "is a Git LFS pointer, not the file itself: fetch the files with `git lfs pull`"
"""The message of an error about a pointer, after its path."""

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"


def is_pointer(head: Buffer) -> bool:
    """Tell whether bytes begin like a Git LFS pointer."""
    return bytes(head[: len(_BEGINNING)]) == _BEGINNING


MACOSX = "__MACOSX"
"""The directory in which macOS puts its own files when it makes a zip archive."""

LEFT_BY_SYSTEM = "macOS or Windows created it next to other files"
"""The reason for leaving out files of macOS and Windows, as reported for a source."""

_APPLE_DOUBLE = b"\0\x05\x16\x07"  # begins macOS's files ._NAME, on disks without extended attributes
_DOUBLE = "._"
_NAMES = frozenset({".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini"})


def may_be_system_file(name: str) -> bool:
    """Tell whether a file name (without directories) may be that of a system file; `is_system_file` decides."""
    return name.startswith(_DOUBLE) or name.lower() in _NAMES


def is_system_file(name: str, head: Callable[[], Buffer]) -> bool:
    """Tell whether a file is a leftover of macOS or Windows.

    Parameters
    ----------
    name : str
        The file's name, without directories.
    head : callable
        Returns the first bytes of the file, at least four if it has them. Called if the name alone does not decide.
    """
    if name.startswith(_DOUBLE):
        return bytes(head()[: len(_APPLE_DOUBLE)]) == _APPLE_DOUBLE
    return name.lower() in _NAMES
