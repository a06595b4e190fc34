"""What a format takes beside the images, where that is much: LMDB, of small images."""

from __future__ import annotations

from packer._storage.limits import in_units

__all__ = ["BESIDE_A_SAMPLE", "note_on_overhead"]

_MUCH = 0.10  # of the bytes of the images
_WORTH_A_WORD = 1_000_000  # bytes
BESIDE_A_SAMPLE = 60
"""Bytes of a sample beside its image in a pack without gaps: its row in the table, and its name."""


def note_on_overhead(format: str, count: int, data: float, taken: float) -> str | None:
    """Return what to say of a pack that takes many bytes beside its images; None where there is nothing to say.

    An LMDB value of more than 2 kB fills whole pages of 4 KiB, and smaller values fill a page as far as they fit. The
    formats that pack samples without gaps take a row of the table a sample.

    Parameters
    ----------
    format : str
        A key of `FORMATS`.
    count : int
        How many samples there are.
    data : float
        Bytes of the images and of the values of their fields.
    taken : float
        Bytes of the pack.
    """
    beside, least = taken - data, count * BESIDE_A_SAMPLE
    if format != "lmdb" or data <= 0 or beside < _MUCH * data or beside - least < _WORTH_A_WORD:
        return None
    return (
        f"small images: .lmdb takes {in_units(beside)} ({beside / data:.0%}) beside them, and .h5 would take "
        f"{in_units(least)} ({least / data:.0%})"
    )
