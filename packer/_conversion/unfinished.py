"""An unfinished pack that is written in one piece: what is written of it, and how much of that is durable.

What becomes of the images is recorded in the journal, a line a checkpoint, after their samples' bytes were synced. A
reserve is given up where the disk is full, so that there is room for the journal's last line.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._conversion.changes import compare_source, setting_differences, started_differently
from packer._conversion.journal import Entry, Journal
from packer._conversion.workspace import Workspace
from packer._sources import Source, let_mend, write_listing
from packer._storage.files import remove, sync_directory
from packer.errors import PackerError

__all__ = ["UnfinishedPack"]

_RESERVE = 512 << 10  # bytes; a checkpoint of 2,000 samples takes some 200 kB


class UnfinishedPack(Workspace):
    """The unfinished pack of a destination: what is written of it, and its journal.

    Parameters
    ----------
    destination : Path
        Where the pack will be.
    settings : mapping
        Everything that decides the bytes of the pack, as JSON values.
    source : Source
        The images.
    fresh : bool
        Whether to drop what an earlier run left behind.

    Attributes
    ----------
    source : Source
        The images, which are read only where they are as they were when the conversion began.

    Raises
    ------
    PackLockedError
        If another process is writing this pack.
    ResumeError
        If an earlier run had other settings or another source.
    """

    def __init__(self, destination: Path, settings: Mapping[str, Any], source: Source, *, fresh: bool = False) -> None:
        super().__init__(destination)
        self._names_are_durable = False
        with self._held:
            self.require_kind(in_parts=False, fresh=fresh)
            self._journal = Journal(self.journal)
            self._held.callback(self._journal.close)
            if self._journal.checkpoints and os.path.exists(self.pack) and not fresh:
                self.source = self._require_same(self._journal.header, settings, source)
                self._journal.resume()
            else:  # nothing is lost by starting over
                remove(self.pack)
                self.source = source.stamped()
                write_listing(self.source, self.listing)  # before the journal: there are no entries without it
                described = {"source": source.describe(), "packs": source.identities()}
                self._journal.begin({"settings": dict(settings), **described})
                sync_directory(destination.parent)  # the directory's own name
            with contextlib.suppress(OSError):
                self.reserve.write_bytes(os.urandom(_RESERVE))  # which no file system makes less of
            self._held = self._held.pop_all()

    def __enter__(self) -> UnfinishedPack:
        return self

    def entries(self) -> Iterator[Entry]:
        """Yield what was made durable so far, by this run or an earlier one, in the order of the source."""
        return self._journal.entries()

    def record(self, entries: Sequence[Entry]) -> None:
        """Write down what became of the next images of the source; their bytes are durable already."""
        if not self._names_are_durable:
            sync_directory(self.directory)
            self._names_are_durable = True
        self._journal.record(entries)

    def make_room(self) -> None:
        """Give up what was reserved for recording, before the last entries of a conversion that fails."""
        with contextlib.suppress(OSError):
            self.reserve.unlink()

    def let_mend(self, index: int) -> None:
        """Accept any replacement of image `index`, which stopped the conversion, when the conversion continues."""
        with contextlib.suppress(PackerError):  # then a replacement is refused, as of any other image that changed
            let_mend(self.listing, self.source, index)

    def _release_files(self) -> None:
        self._journal.close()

    def _require_same(self, before: Mapping[str, Any], settings: Mapping[str, Any], source: Source) -> Source:
        """Return the source with its files' first stamps; ResumeError where anything is not as it was then."""
        differences = setting_differences(before["settings"], settings)
        if not source.is_listed and not differences:
            return source
        done = (entry.stamp for entry in self.entries())
        source, changes = compare_source(self.listing, before, source, done=done, files=not differences)
        if differences or changes:
            raise started_differently(self.directory, [*differences, *changes])
        return source
