"""An unfinished pack: where it lies, who holds it, how much of it is durable, and how it becomes the pack.

Beside the destination ``out.lmdb`` stands the directory ``out.lmdb.partial`` with

``pack``            what the format's writer writes, a file or a directory
``source.scan``     the source as it was when the conversion began: its list, the size and the time of every file
``journal.jsonl``   what is known of the samples in it: a line a checkpoint, written after their bytes were synced
``reserve``         room for the last line of the journal, given up where the disk is full
``lock``            held by the process that writes

and files without names, in which that process keeps what grows with the pack and which go with it.

The destination itself appears by renaming ``pack``, complete and synced.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from packer.errors import DestinationError, NotAPackError, PackerError, PackLockedError, ResumeError, printable
from packer.formats import recognise
from packer.formats.files import sync_directory, writing_to
from packer.journal import Entry, Journal
from packer.listing import compare_source
from packer.locking import try_lock
from packer.sources import Source, let_mend, write_scan

__all__ = ["JOB_FILE", "Partial", "Unfinished", "check_destination", "setting_differences", "unfinished_directory"]

JOB_FILE = "parts.json"
"""Stands in the directory of an unfinished conversion in parts; see `packer.parts`."""

_LOCK = "lock"
_SECONDS_BETWEEN_TRIES = 0.2
_RESERVE = 512 << 10  # bytes; a checkpoint of 2,000 samples takes some 200 kB


def unfinished_directory(destination: Path) -> Path:
    """Return where the pack of a destination is made."""
    return destination.with_name(destination.name + ".partial")


def check_destination(destination: Path, *, overwrite: bool, source: Path | None = None) -> None:
    """Raise DestinationError where a pack cannot be written, or would lie in the `source` directory."""
    shown = printable(destination)
    parent = destination.parent
    if source is not None and Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(source)):
        raise DestinationError(
            f"{shown}: lies inside of {printable(source)}, and would become a part of it. Choose another place."
        )
    if not parent.is_dir():
        raise DestinationError(f"{shown}: the directory {printable(parent)} does not exist. Make it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(f"{shown}: the directory {printable(parent)} is not writable")
    if os.path.lexists(destination):
        if not overwrite:
            raise DestinationError(f"{shown}: exists already. Choose another name, or say --overwrite.")
        if destination.is_dir() and os.listdir(destination):
            try:
                recognise(destination)
            except NotAPackError:
                raise DestinationError(f"{shown}: a directory that is not a pack will not be replaced by one") from None


class Unfinished:
    """The directory beside a destination in which its pack is made, locked for this process.

    Parameters
    ----------
    destination : Path
        Where the pack will be.
    wait : float
        How many seconds to wait for another process that holds the lock.

    Attributes
    ----------
    destination, directory : Path
    pack : Path
        What becomes the pack.

    Raises
    ------
    PackLockedError
        If another process is writing this pack.
    """

    def __init__(self, destination: Path, *, wait: float = 0) -> None:
        self.destination = destination
        self.directory = unfinished_directory(destination)
        self.pack = self.directory / "pack"
        self._replaced = self.directory / "replaced"
        with contextlib.ExitStack() as held:  # what fails below lets go of what was opened above it
            lock = held.enter_context(self._take_lock(time.monotonic() + wait))
            held.callback(self._remove_if_empty, lock)  # once, and before the lock goes
            self._put_back()
            self._held = held.pop_all()

    def commit(self, *, overwrite: bool) -> None:
        """Give the complete and synced pack its name, replacing what stands there if `overwrite` says so."""
        with writing_to(self.destination):
            if os.path.lexists(self.destination):
                check_destination(self.destination, overwrite=overwrite)
                if self.pack.is_dir() or self.destination.is_dir():  # these cannot be replaced in one step
                    os.rename(self.destination, self._replaced)
            try:
                os.replace(self.pack, self.destination)
            except OSError:
                self._put_back()
                raise
        sync_directory(self.destination.parent)
        self._release_files()
        shutil.rmtree(self.directory, ignore_errors=True)  # still locked: nobody may begin in it meanwhile
        self.close()
        if os.name == "nt":  # what is open cannot be removed there
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Let go of the lock; what was recorded stays for the next run. A directory without anything goes as well."""
        self._held.close()

    def __enter__(self) -> Unfinished:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _remove_if_empty(self, lock: IO[str]) -> None:
        """Remove the directory where nothing was done in it, unless it is already another process's."""
        with contextlib.suppress(OSError):
            if os.listdir(self.directory) == [_LOCK] and _same_file(lock, self.directory / _LOCK):
                shutil.rmtree(self.directory, ignore_errors=True)  # still locked, as in `commit`

    def _release_files(self) -> None:
        """Close what else is open in the directory."""

    def _put_back(self) -> None:
        """Undo what a process left that died between taking the old pack away and putting the new one there."""
        if os.path.lexists(self._replaced):
            if os.path.lexists(self.destination):
                _remove(self._replaced)
            else:
                with writing_to(self.destination):
                    os.rename(self._replaced, self.destination)

    def _take_lock(self, deadline: float) -> IO[str]:
        path = self.directory / _LOCK
        while True:
            with writing_to(self.directory):
                self.directory.mkdir(exist_ok=True)
                try:
                    lock = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held until `close`
                except FileNotFoundError:  # its holder finished, and removed the directory, in this moment
                    continue
            if not try_lock(lock):
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                lock.close()
                if time.monotonic() >= deadline:
                    raise PackLockedError(f"{printable(self.destination)}: {holder} is writing it")
                time.sleep(_SECONDS_BETWEEN_TRIES)
                continue
            if _same_file(lock, path):
                break
            lock.close()  # its holder finished, and removed it, between our opening and our locking
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        return lock


class Partial(Unfinished):
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
        self._scan = self.directory / "source.scan"
        self._reserve = self.directory / "reserve"
        self._names_are_durable = False
        with self._held:
            self._refuse_parts(fresh)
            self._journal = Journal(self.directory / "journal.jsonl")
            self._held.callback(self._journal.close)
            if self._journal.checkpoints and self.pack.exists() and not fresh:
                self.source = self._require_same(self._journal.header, settings, source)
                self._journal.resume()
            else:  # nothing is lost by starting over
                _remove(self.pack)
                self.source = source.stamped()
                write_scan(self.source, self._scan)  # before the journal: there are no entries without it
                described = {"source": source.describe(), "packs": source.identities()}
                self._journal.begin({"settings": dict(settings), **described})
                sync_directory(destination.parent)  # the partial's own name
            with contextlib.suppress(OSError):
                self._reserve.write_bytes(os.urandom(_RESERVE))  # which no file system makes less of
            self._held = self._held.pop_all()

    def __enter__(self) -> Partial:
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
            self._reserve.unlink()

    def _release_files(self) -> None:
        self._journal.close()

    def _refuse_parts(self, fresh: bool) -> None:
        job = self.directory / JOB_FILE
        if job.exists():
            if not fresh:
                raise ResumeError(
                    f"{printable(self.directory)} holds an unfinished conversion in parts. "
                    "Say --parts as before, or --fresh to start over."
                )
            job.unlink()

    def let_mend(self, index: int) -> None:
        """Let image `index` of the source, which stopped the conversion, be another file when it continues."""
        with contextlib.suppress(PackerError):  # else it is refused by then, as any other that changed
            let_mend(self._scan, self.source, index)

    def _require_same(self, before: Mapping[str, Any], settings: Mapping[str, Any], source: Source) -> Source:
        """Return the source with its files' first stamps; ResumeError where anything is not as it was then."""
        differences = setting_differences(before["settings"], settings)
        done = (entry.stamp for entry in self.entries())
        source, changes = compare_source(self._scan, before, source, done=done, files=not differences)
        if differences or changes:
            raise ResumeError(
                f"{printable(self.directory)} holds an unfinished conversion that was started differently:\n  "
                + "\n  ".join([*differences, *changes])
                + "\nGo back to what was, or say --fresh to start over."
            )
        return source


def setting_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each setting that is not what it was; both are JSON objects, or become ones."""
    return [
        f"{name} was {json.dumps(then)} and is {json.dumps(present)}"
        for name, then, present in _differences(before, json.loads(json.dumps(now)))
    ]


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    for name in sorted({*before, *now}):
        then, present = before.get(name), now.get(name)
        if isinstance(then, dict) and isinstance(present, dict):
            yield from ((f"{name} {inner}", *values) for inner, *values in _differences(then, present))
        elif then != present:
            yield name, then, present


def _remove(path: Path) -> None:
    with writing_to(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _same_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
