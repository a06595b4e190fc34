"""The making of one part of a pack: in its place, or on a node's own disk, from which it is copied."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packer._conversion.convert import Summary
from packer._formats import check_readable, open_pack
from packer._formats.copying import PackFiles, copy_pack
from packer._storage.files import remove, synced_directory, writing_to
from packer.errors import DestinationError, NotAPackError, PackLockedError, PackNotFoundError

__all__ = ["Made", "Making"]


class Made(NamedTuple):
    """What became of the images of a part.

    Attributes
    ----------
    bytes_in : int
        Size in bytes of the files that were read now; 0 where the part was there already.
    skipped : int
        How many images were left out.
    kept : int
        How many samples are the very bytes of files that were read now.
    """

    bytes_in: int = 0
    skipped: int = 0
    kept: int = 0

    @classmethod
    def of(cls, summary: Summary) -> Made:
        """Return what a conversion tells."""
        return cls(summary.bytes_in, len(summary.manifest.skipped), summary.kept)

    @classmethod
    def before(cls, path: Path) -> Made:
        """Return what a part tells that was there; zeros where the whole pack was finished meanwhile."""
        try:
            with open_pack(path) as reader:
                return cls(skipped=len(reader.manifest.skipped))
        except (NotAPackError, PackNotFoundError):
            return cls()


@dataclass
class Making:
    """The making of one part.

    Attributes
    ----------
    path : Path
        Where the part will be.
    convert : callable
        Makes the part at another path.
    room : Path, optional
        A directory of the part's own on another disk, where it is made first. A part that does not fit there is made
        in its place.
    note : str
        What a person should know about the part.
    """

    path: Path
    convert: Callable[[Path], Summary]
    room: Path | None = None
    note: str = ""

    def run(self) -> Made:
        """Make the part; errors as of `packer._conversion.convert.convert`."""
        if self.room is not None:
            try:
                return self._in_room(self.room)
            except DestinationError as error:
                if isinstance(error, PackLockedError) or os.path.exists(self.path):
                    raise
                self.note = f"not made on scratch: {error}"
        return Made.of(self.convert(self.path))

    def _in_room(self, room: Path) -> Made:
        with writing_to(room):
            room.mkdir(parents=True, exist_ok=True)
        there = room / self.path.name
        try:
            made = Made.before(there) if os.path.exists(there) else Made.of(self.convert(there))
            if not os.path.exists(self.path):
                self._copy(there)
        except DestinationError as error:
            if not isinstance(error, PackLockedError):
                shutil.rmtree(room, ignore_errors=True)
            raise
        shutil.rmtree(room, ignore_errors=True)
        return made

    def _copy(self, there: Path) -> None:
        # A name of its own, for another node may copy this part too.
        copy = self.path.with_name(f"{self.path.name}.{socket.gethostname()}-{os.getpid()}")
        try:
            copy_pack(PackFiles.of(there), copy)
            with open_pack(there) as reader:
                check_readable(copy, reader.manifest)
            # The directory may be renamed, with the whole pack in it, as soon as the part has its name.
            with writing_to(self.path), synced_directory(self.path.parent):
                os.rename(copy, self.path)
        except DestinationError:
            remove(copy)
            raise
