"""Names and reasons of a stranger's pack, as a page shows them."""

from __future__ import annotations

from packer.errors import printable

__all__ = ["legible"]

_LONGEST = 1000  # characters of what a pack calls something


def legible(text: str) -> str:
    """Return a name as a page shows it: as `printable` does, and of a very long one its beginning and its end.

    A stranger's pack may have one of 64 kB for each of the pictures on a screen, and classes of any length.
    """
    cut = text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return printable(cut)
