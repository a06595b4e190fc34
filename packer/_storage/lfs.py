"""Pointers of Git LFS: small texts that stand where a repository's large files belong, until these are fetched.

https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
"""

from __future__ import annotations

from packer._table import Buffer

__all__ = ["IS_POINTER", "LARGEST_POINTER", "is_pointer"]

LARGEST_POINTER = 1023
"""Bytes that a pointer has at most."""

IS_POINTER = "is a pointer of Git LFS, and not the file itself: fetch the files with `git lfs pull`"
"""What an error says of a pointer, after its path."""

_BEGINNING = b"version https://git-lfs.github.com/spec/v1"


def is_pointer(head: Buffer) -> bool:
    """Tell whether bytes begin as a pointer does."""
    return bytes(head[: len(_BEGINNING)]) == _BEGINNING
