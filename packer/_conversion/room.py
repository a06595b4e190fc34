"""Room for a pack on the disk: refused at the beginning where it is too little, and said where it is used up.

And room in the system's cache of files.
"""

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
from packer._storage.limits import available_memory
from packer.errors import DestinationError, printable

__all__ = ["fits_cache", "require_room", "saying_how_much_is_needed"]

_SHARE = 8  # of the memory, in which a cached pack has room


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


def fits_cache(source: Source, recipe: Recipe) -> bool:
    """Tell whether the system's cache shall hold a pack while it is written.

    A pack of images that keep their bytes may be too large for that. The cache would take memory page by page, which
    takes most of the time of such a conversion, and push out what other programs have in it. Where images are encoded,
    writing takes next to no time.
    """
    sizes, memory = source.sizes() if recipe.codec == "keep" else None, available_memory()
    return sizes is None or memory is None or int(sizes.sum()) <= memory // _SHARE


def _free(directory: Path) -> int | None:
    """Return the bytes that are free on a disk, with those that root alone may use; None where nothing tells."""
    try:
        if hasattr(os, "statvfs"):
            disk = os.statvfs(directory)
            return disk.f_bfree * disk.f_frsize if disk.f_blocks else None
        return shutil.disk_usage(directory).free
    except OSError:
        return None
