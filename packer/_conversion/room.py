"""Room on the disk for a pack: refused at the beginning where it is too little, and said where the disk is full."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer._conversion.ledger import Ledger
from packer._conversion.recipe import Recipe
from packer._sources import Source
from packer._storage.files import disk_size
from packer.errors import DestinationError, printable

__all__ = ["require_room", "saying_how_much_is_needed"]


def require_room(source: Source, recipe: Recipe, destination: Path, done: int = 0) -> None:
    """Refuse a disk on which the images that keep their bytes do not fit.

    Sizes are known of files that were listed. What is encoded, and what a pack's samples take, is not estimated. Nor
    are quotas, which a file system may or may not count into what is free.

    Parameters
    ----------
    source : Source
    recipe : Recipe
    destination : Path
        Where the pack will be.
    done : int
        How many images of the source are written already.

    Raises
    ------
    DestinationError
        If the disk has less room than the images take.
    """
    if recipe.codec != "keep" or source.stamps is None:
        return
    needed = int(np.maximum(source.stamps[done:, 0], 0).sum())
    free = _free(destination.parent)
    if free is not None and needed > free:
        raise DestinationError(
            f"{printable(destination)}: its images take {needed / 1e6:,.1f} MB, and the disk has {free / 1e6:,.1f} MB "
            "left. Free some space, choose another disk, make the images smaller with --resize, or, where the disk "
            "compresses or says too little, --ignore-free-space."
        )


@contextlib.contextmanager
def saying_how_much_is_needed(pack: Path, ledger: Ledger, source: Source) -> Iterator[None]:
    """Add to the error of a full disk how much the images that are left will take, as the others did."""
    try:
        yield
    except DestinationError as error:
        if getattr(error.__cause__, "errno", None) not in (errno.ENOSPC, errno.EDQUOT) or not 0 < ledger.count < len(
            source
        ):
            raise
        needed = disk_size(pack) * (len(source) - ledger.count) / ledger.count
        raise DestinationError(f"{error} About {needed / 1e6:,.1f} MB more are needed.") from error.__cause__


def _free(directory: Path) -> int | None:
    """Return the bytes that are free on a disk, with those that root alone may use; None where nothing tells."""
    try:
        if hasattr(os, "statvfs"):
            disk = os.statvfs(directory)
            return disk.f_bfree * disk.f_frsize if disk.f_blocks else None
        return shutil.disk_usage(directory).free
    except OSError:
        return None
