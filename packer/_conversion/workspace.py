"""The directory beside a destination in which its pack is made: its files, its lock, and how the pack gets its name.

Beside the destination ``out.lmdb`` stands the directory ``out.lmdb.partial`` with

``pack``            what becomes the pack, a file or a directory
``source.list``     the source as it was when the conversion began: its list, the size and the time of every file
``journal.jsonl``   what is done of a conversion in one piece; see `packer._conversion.unfinished`
``reserve``         room for the last line of the journal
``parts.json``      what a conversion in parts is; see `packer._conversion.job`
``replaced``        what stood at the destination, for the moment between taking that away and renaming ``pack``
``lock``            held by the process that writes, or that begins or finishes a conversion in parts

and unnamed files for data that grow with the pack. They vanish when the process ends.

The destination itself appears by renaming ``pack``, complete and synced.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import time
from pathlib import Path
from typing import IO

from packer._formats import recognise
from packer._storage.files import remove, require_directory, synced_directory, writing_to
from packer._storage.locks import SECONDS_BETWEEN_TRIES, is_at, try_lock
from packer._storage.opening import NO_LINK, open_regular
from packer._storage.remote import urls
from packer.errors import DestinationError, NotAPackError, PackLockedError, ResumeError, printable

__all__ = ["Workspace", "WorkspacePaths", "check_destination", "check_place"]


def check_destination(destination: Path, *, overwrite: bool, source: Path | None = None) -> None:
    """Raise DestinationError where a pack cannot be written, would lie in the `source` directory, or exists."""
    check_place(destination, source)
    if os.path.lexists(destination):
        shown = printable(destination)
        if not overwrite:
            raise DestinationError(f"{shown}: exists already. Choose another name, or say --overwrite.")
        if os.path.isdir(destination) and os.listdir(destination):
            try:
                recognise(destination)
            except NotAPackError:
                raise DestinationError(f"{shown}: a directory that is not a pack will not be replaced by one") from None


def check_place(destination: Path, source: Path | None = None) -> None:
    """Raise DestinationError where no pack can be written beside a path, or would lie in the `source` directory."""
    if urls.is_url(destination):
        raise DestinationError(
            f"{urls.shown(destination)}: is written by `packer convert` alone, without --split, --part and --cluster. "
            "Make the pack on a disk, and then convert that to the URL."
        )
    shown = printable(destination)
    parent = destination.parent
    if source is not None and Path(os.path.realpath(parent)).is_relative_to(os.path.realpath(source)):
        raise DestinationError(
            f"{shown}: lies inside of {printable(source)}, and would become a part of it. Choose another place."
        )
    require_directory(parent, destination)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(f"{shown}: the directory {printable(parent)} is not writable")


class WorkspacePaths:
    """Where the files of an unfinished pack lie; the module's docstring says what they are.

    Parameters
    ----------
    destination : Path
        Where the pack will be.

    Attributes
    ----------
    destination, directory, pack, listing, journal, reserve, job, replaced, lock : Path
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self.directory = destination.with_name(destination.name + ".partial")
        self.pack = self.directory / "pack"
        self.listing = self.directory / "source.list"
        self.journal = self.directory / "journal.jsonl"
        self.reserve = self.directory / "reserve"
        self.job = self.directory / "parts.json"
        self.replaced = self.directory / "replaced"
        self.lock = self.directory / "lock"

    def require_no_links(self) -> None:
        """Refuse a directory that is a link, or has links in it, for they would lead elsewhere what is written there.

        The pack that `replaced` names was taken away as it stood there, and may be a link.

        Raises
        ------
        DestinationError
            If there is a link.
        """
        self._require_directory()
        with writing_to(self.directory), os.scandir(self.directory) as entries:
            links = [entry.path for entry in entries if entry.is_symlink() and entry.name != self.replaced.name]
        if links:
            raise DestinationError(
                f"{printable(min(links))}: is a symbolic link, and packer makes none there. "
                "Look where it leads, and remove it."
            )

    def _require_directory(self) -> None:
        if not stat.S_ISDIR(os.lstat(self.directory).st_mode):
            raise DestinationError(
                f"{printable(self.directory)}: is where packer makes the pack, and no directory. "
                "Look what it is, and remove it."
            )


class Workspace(WorkspacePaths):
    """The directory of an unfinished pack, locked for this process.

    Parameters
    ----------
    destination : Path
        Where the pack will be.
    wait : float
        How many seconds to wait for another process that holds the lock.

    Raises
    ------
    PackLockedError
        If another process is writing this pack.
    """

    def __init__(self, destination: Path, *, wait: float = 0) -> None:
        super().__init__(destination)
        with contextlib.ExitStack() as held:  # what fails below lets go of what was opened above it
            lock = held.enter_context(self._take_lock(time.monotonic() + wait))
            held.callback(self._remove_if_empty, lock)  # once, and before the lock goes
            self.require_no_links()
            self._put_back()
            self._held = held.pop_all()

    def require_kind(self, *, in_parts: bool, fresh: bool) -> None:
        """Refuse the directory of a conversion of the other kind; with `fresh`, forget that conversion.

        Raises
        ------
        ResumeError
            If the directory holds a conversion in parts and one in one piece is asked for, or the other way round.
        """
        other = self.journal if in_parts else self.job
        if not os.path.exists(other):
            return
        if not fresh:
            kind, advice = ("without parts", "Leave --parts out") if in_parts else ("in parts", "Say --parts")
            raise ResumeError(
                f"{printable(self.directory)} holds an unfinished conversion {kind}. "
                f"{advice} as before, or say --fresh to start over."
            )
        remove(other)

    def commit(self, *, overwrite: bool) -> None:
        """Give the complete and synced pack its name, replacing what stands there if `overwrite` says so."""
        # A part of a pack may be renamed away, with the directory that it lies in, as soon as it has its name.
        with writing_to(self.destination), synced_directory(self.destination.parent):
            if os.path.lexists(self.destination):
                check_destination(self.destination, overwrite=overwrite)
                if os.path.isdir(self.pack) or os.path.isdir(self.destination):  # these cannot be replaced in one step
                    os.rename(self.destination, self.replaced)
            try:
                os.replace(self.pack, self.destination)
            except OSError:
                self._put_back()
                raise
        self.drop()

    def drop(self) -> None:
        """Remove the directory with all that is in it, and let go of the lock."""
        self._release_files()
        shutil.rmtree(self.directory, ignore_errors=True)  # still locked: nobody may begin in it meanwhile
        self.close()
        if os.name == "nt":  # what is open cannot be removed there
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Let go of the lock; what was recorded stays for the next run. A directory without anything goes as well."""
        self._held.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _remove_if_empty(self, lock: IO[str]) -> None:
        """Remove the directory where nothing was done in it, unless it is already another process's."""
        with contextlib.suppress(OSError):
            if os.listdir(self.directory) == [self.lock.name] and is_at(lock, self.lock):
                shutil.rmtree(self.directory, ignore_errors=True)  # still locked, as in `drop`

    def _release_files(self) -> None:
        """Close what else is open in the directory."""

    def _put_back(self) -> None:
        """Undo what a process left that died between taking the old pack away and putting the new one there."""
        if os.path.lexists(self.replaced):
            if os.path.lexists(self.destination):
                remove(self.replaced)
            else:
                with writing_to(self.destination):
                    os.rename(self.replaced, self.destination)

    def _opened_lock(self) -> IO[str]:
        fd = open_regular(self.lock, flags=os.O_RDWR | os.O_APPEND | os.O_CREAT | NO_LINK)
        return open(fd, "a+", encoding="utf-8")

    def _take_lock(self, deadline: float) -> IO[str]:
        while True:
            with writing_to(self.directory):
                with contextlib.suppress(FileExistsError):
                    self.directory.mkdir()
                self._require_directory()
                try:
                    lock = self._opened_lock()
                except FileNotFoundError:  # its holder finished, and removed the directory, in this moment
                    continue
            if not try_lock(lock):
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                lock.close()
                if time.monotonic() >= deadline:
                    raise PackLockedError(f"{printable(self.destination)}: {holder} is writing it")
                time.sleep(SECONDS_BETWEEN_TRIES)
                continue
            if is_at(lock, self.lock):
                break
            lock.close()  # its holder finished, and removed it, between our opening and our locking
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        return lock
