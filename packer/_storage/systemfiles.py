"""Files that macOS and Windows leave beside other files: no images, whatever their names end in."""

from __future__ import annotations

from collections.abc import Callable

from packer._table import Buffer

__all__ = ["LEFT_BY_SYSTEM", "MACOSX", "is_system_file", "may_be_system_file"]

MACOSX = "__MACOSX"
"""The directory in which macOS puts such files when it makes a zip archive."""

LEFT_BY_SYSTEM = "macOS or Windows leave it beside other files"
"""What an account says of them."""

_APPLE_DOUBLE = b"\0\x05\x16\x07"  # begins what macOS writes as ._NAME where the file system has no attributes
_DOUBLE = "._"
_NAMES = frozenset({".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini"})


def may_be_system_file(name: str) -> bool:
    """Tell by its name, without directories, whether a file may be one of these: then `is_system_file` knows."""
    return name.startswith(_DOUBLE) or name.lower() in _NAMES


def is_system_file(name: str, head: Callable[[], Buffer]) -> bool:
    """Tell whether a system left a file.

    Parameters
    ----------
    name : str
        Its name, without directories.
    head : callable
        Returns its first bytes, four or more where it has so many. Called where the name alone does not tell.
    """
    if name.startswith(_DOUBLE):
        return bytes(head()[: len(_APPLE_DOUBLE)]) == _APPLE_DOUBLE
    return name.lower() in _NAMES
