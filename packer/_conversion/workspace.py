"""The workspace of a conversion: a directory, next to the destination, for the unfinished pack, lock and journal.

The directory ``out.lmdb.partial`` next to the destination ``out.lmdb`` holds

``pack``            the unfinished pack, a file or a directory
``source.list``     the source as it was when the conversion began: a list of its files, with their sizes and times
``journal.jsonl``   the entries of samples that are on the disk, in a conversion without parts; see `Journal`
``reserve``         space for the journal's last line, released when the disk is full
``parts.json``      the settings of a conversion in parts; see `packer._conversion.destination`
``replaced``        the old pack, until ``pack`` has its name
``lock``            held by the process that writes, or that begins or finishes a conversion in parts

and unnamed files for data that grow with the pack; the system removes these when the process ends.

When ``pack`` is complete and synced, it is renamed to the destination.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import google_crc32c

from packer._conversion.resume import compare_source, setting_differences, started_differently
from packer._formats import Writer, shows_mark
from packer._formats.files import files_of_others
from packer._manifest import TILED
from packer._sources.base import Source, some
from packer._sources.scan_list import let_mend, write_listing
from packer._storage.files import (
    SECONDS_BETWEEN_TRIES,
    Spool,
    TableBuilder,
    is_at,
    remove,
    rename_new,
    require_directory,
    require_output,
    sync_directory,
    synced_directory,
    try_lock,
    writing_to,
)
from packer._storage.remote import urls
from packer._storage.safe_open import KINDS, NO_LINK, open_regular
from packer._storage.stamps import Stamp
from packer._table import COLUMNS, encode_name
from packer.errors import (
    CorruptPackError,
    DestinationError,
    DestinationOptionError,
    ImageError,
    MissingDependencyError,
    PackerError,
    PackError,
    PackLockedError,
    ResumeError,
    message_of,
    option,
    printable,
)


class WorkspacePaths:
    """The paths of the files of an unfinished pack, which the module's docstring describes.

    Parameters
    ----------
    destination : Path
        The path of the new pack.

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
        """Refuse a directory that is a link or contains one, because files would be written to where the link points.

        The old pack at `replaced` was moved unchanged, and may be a link.

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
                f"{printable(min(links))}: is a symbolic link, which packer did not make. Check where it leads, and "
                "remove it."
            )

    def _require_directory(self) -> None:
        if not stat.S_ISDIR(os.lstat(self.directory).st_mode):
            raise DestinationError(
                f"{printable(self.directory)}: is not a directory, but packer needs this path for the unfinished "
                "pack. Check what it is, and remove it."
            )


class Workspace(WorkspacePaths):
    """The directory of an unfinished pack, locked for this process.

    Parameters
    ----------
    destination : Path
        The path of the new pack.
    wait : float
        Seconds to wait for another process that holds the lock.

    Raises
    ------
    PackLockedError
        If another process is writing this pack.
    """

    def __init__(self, destination: Path, *, wait: float = 0) -> None:
        super().__init__(destination)
        with contextlib.ExitStack() as held:  # an error below closes everything that was opened above it
            lock = held.enter_context(self._take_lock(time.monotonic() + wait))
            held.callback(self._remove_if_empty, lock)  # once, and before the lock is released
            self.require_no_links()
            self._put_back()
            self._held = held.pop_all()

    def require_kind(self, *, in_parts: bool) -> None:
        """Raise ResumeError if the unfinished conversion is not of the expected kind: in parts, or in one piece."""
        if os.path.exists(self.journal if in_parts else self.job):
            parts = option("parts")
            kind, advice = ("without parts", f"Leave out {parts}") if in_parts else ("in parts", f"Pass {parts}")
            raise ResumeError(
                f"{printable(self.directory)} contains an unfinished conversion {kind}. {advice} as before, or pass "
                f"{option('fresh', True)} to start over."
            )

    def commit(self, *, overwrite: bool) -> None:
        """Rename the complete and synced pack to its final name, replacing another pack if `overwrite` is true."""
        # As soon as a part has its name, another process may finish the pack and rename the part's directory.
        with writing_to(self.destination), synced_directory(self.destination.parent):
            while not self._is_committed(overwrite=overwrite):
                pass  # another program has written to the destination since it was checked
        self.drop()

    def _is_committed(self, *, overwrite: bool) -> bool:
        """Try to commit; return False if the destination has changed since it was checked."""
        rename: Callable[[Path, Path], None] = rename_new
        if os.path.lexists(self.destination):
            before = _state(self.destination)
            check_destination(self.destination, overwrite=overwrite)
            if os.path.isdir(self.pack) or os.path.isdir(self.destination):  # a directory cannot replace another
                os.rename(self.destination, self.replaced)
                if _state(self.replaced) != before:
                    self._put_back()
                    return False
            else:
                rename = os.replace
        try:
            rename(self.pack, self.destination)
        except FileExistsError:
            return False
        except OSError:
            self._put_back()
            raise
        return True

    def drop(self) -> None:
        """Remove the directory with its contents, and release the lock."""
        shutil.rmtree(self.directory, ignore_errors=True)  # still locked: nobody may begin in it meanwhile
        self.close()
        if os.name == "nt":  # open files cannot be removed there
            shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        """Release the lock. Unfinished work remains for the next run; an empty directory is removed."""
        self._held.close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _remove_if_empty(self, lock: IO[str]) -> None:
        """Remove the directory if it has no work to continue, and no other process owns it by now."""
        with contextlib.suppress(OSError):
            if os.listdir(self.directory) == [self.lock.name] and is_at(lock, self.lock):
                shutil.rmtree(self.directory, ignore_errors=True)  # still locked, as in `drop`

    def _put_back(self) -> None:
        """Restore the old pack if a process died after moving it away and before renaming the new pack."""
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
                try:
                    self._require_directory()
                    lock = self._opened_lock()
                except FileNotFoundError:  # the lock's holder has just finished, and removed the directory
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
            lock.close()  # between our opening and our locking, the lock's holder finished and removed it
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        return lock


_RESERVE = 512 << 10  # bytes; a checkpoint of 2,000 samples takes about 200 kB


class ConversionRecord:
    """The record of a conversion's progress: an entry for each finished image, in the order of the source.

    An entry is counted, and added to the table, when its sample is written. It is added to the journal when the bytes
    of the sample are on the disk. An interrupted conversion continues after the last entry in the journal. Data that
    grow with the number of images are in unnamed files.

    Parameters
    ----------
    workspace : Workspace
    settings : mapping
        All settings that determine the bytes of the pack, as JSON values.
    source : Source
        The images.
    fresh : bool
        Whether to drop the work of an earlier run.
    reporting : bool
        Whether a report will be written.
    types : mapping, optional
        The columns of the table and their dtypes.

    Attributes
    ----------
    source : Source
        The images, with the sizes and times of their files at the beginning of the conversion; files that have changed
        since then are not read.
    rows : TableBuilder
        The rows of the images that became samples.
    count : int
        Number of images that have an entry.
    bytes_in : int
        Size in bytes of the files that became samples.
    kept : int
        Number of samples with the unchanged bytes of their files.
    skipped : list of dict
        ``{"name", "reason"}`` of every image that was left out.
    findings : Counter
        Counts of the audit's findings.

    Raises
    ------
    ResumeError
        If an earlier run had other settings or another source.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: Mapping[str, Any],
        source: Source,
        *,
        fresh: bool = False,
        reporting: bool = False,
        types: Mapping[str, str] = COLUMNS,
    ) -> None:
        self._workspace = workspace
        self._names_are_durable = False
        self.count = self.bytes_in = self.kept = 0
        self.skipped: list[dict[str, str]] = []
        self.findings: Counter[str] = Counter()
        if fresh:
            remove(workspace.job)
        else:
            workspace.require_kind(in_parts=False)
        with contextlib.ExitStack() as opened:
            self._journal = opened.enter_context(contextlib.closing(Journal(workspace.journal)))
            if self._journal.checkpoints and os.path.exists(workspace.pack) and not fresh:
                self.source = self._require_same(settings, source)
                self._journal.resume()
            else:  # without a checkpoint, starting over loses no work
                self.source = self._begin(settings, source)
            with contextlib.suppress(OSError):
                workspace.reserve.write_bytes(os.urandom(_RESERVE))  # random, so that no file system compresses it
            self.rows = opened.enter_context(contextlib.closing(TableBuilder(workspace.directory, types)))
            self._report = opened.enter_context(contextlib.closing(Spool(workspace.directory))) if reporting else None
            for entry in self.entries():
                self.add(entry)
            self._opened = opened.pop_all()

    def entries(self) -> Iterator[RecordEntry]:
        """Yield the entries in the journal, of this run and of earlier ones, in the order of the source."""
        return self._journal.entries()

    def add(self, entry: RecordEntry) -> None:
        """Add the entry of the next image to the counts, to the report, and either to the table or to `skipped`."""
        self.count += 1
        if entry.reason:
            self.skipped.append({"name": entry.name, "reason": entry.reason})
            self._note({"name": entry.name, "skipped": entry.reason})
            return
        entry.add_to(self.rows)
        self.bytes_in += entry.stamp[0]
        self.kept += entry.kept
        if entry.findings:
            self.findings.update(entry.findings)
            noted = [finding for finding in entry.findings if finding != TILED]
            if noted:
                self._note({"name": entry.name, "findings": noted})

    def save(self, entries: Sequence[RecordEntry]) -> None:
        """Write the next entries to the journal; the bytes of their samples must already be on the disk."""
        if not self._names_are_durable:
            sync_directory(self._workspace.directory)
            self._names_are_durable = True
        self._journal.append(entries)

    def release_reserve(self) -> None:
        """Remove the reserve, so that the journal has space for the last entries of a failed conversion."""
        with contextlib.suppress(OSError):
            self._workspace.reserve.unlink()

    def write_report(self, path: Path, more: Iterable[Mapping[str, Any]] = ()) -> None:
        """Write a JSON line for every image that has a finding or was left out, and then the lines of `more`."""
        assert self._report is not None
        for line in more:
            self._note(line)
        with writing_to(path), open(path, "wb") as file:
            file.write(self._report.array("u1").data)

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    def __enter__(self) -> ConversionRecord:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        """Close the files. If an image stopped the conversion, allow that its file is replaced before the next run."""
        self.close()
        if isinstance(error, ImageError) and error.index is not None:
            with contextlib.suppress(PackerError):  # without the mark, a replacement is refused as a changed file
                let_mend(self._workspace.listing, self.source, error.index)

    def _begin(self, settings: Mapping[str, Any], source: Source) -> Source:
        """Start over; return the source with the sizes and times of its files."""
        remove(self._workspace.pack)
        stamped = source.stamped()
        write_listing(stamped, self._workspace.listing)  # before the journal, whose entries refer to it
        described = {"source": source.describe(), "packs": source.identities()}
        self._journal.begin({"settings": dict(settings), **described})
        sync_directory(self._workspace.directory.parent)  # the directory's own name
        return stamped

    def _require_same(self, settings: Mapping[str, Any], source: Source) -> Source:
        """Return the source with its files' stamps from the first run; raise ResumeError if anything has changed."""
        before = self._journal.header
        differences = setting_differences(before["settings"], settings)
        if not source.is_listed and not differences:
            return source
        done = (entry.stamp for entry in self.entries())
        source, changes = compare_source(self._workspace.listing, before, source, done=done, files=not differences)
        if differences or changes:
            raise started_differently(self._workspace.directory, [*differences, *changes])
        return source

    def _note(self, line: Mapping[str, Any]) -> None:
        if self._report is not None:
            self._report.append(json.dumps(line).encode("ascii") + b"\n")


@dataclass(slots=True)
class RecordEntry:
    """The record of one image: its row of the table, or the reason why the image was left out.

    Attributes
    ----------
    name, label, height, width, offset, size, crc32c
        The row; see `packer._table.Table`.
    stamp : Stamp
        Size and time of the file when it was read, or left out.
    findings : tuple of str
        The audit's findings.
    kept : bool
        Whether the sample has the unchanged bytes of the file.
    more : tuple of int and float
        The values of the fields' columns in the row.
    reason : str
        The reason why the image was left out; empty if the image became a sample.
    """

    name: str
    label: int | float = 0
    height: int = 0
    width: int = 0
    offset: int = 0
    size: int = 0
    crc32c: int = 0
    stamp: Stamp = (0, 0)
    findings: tuple[str, ...] = ()
    kept: bool = False
    reason: str = ""
    more: tuple[int | float, ...] = ()

    def to_json(self) -> list[Any]:
        """Return the entry as JSON values for a line of the journal."""
        if self.reason:
            return [self.name, self.reason, list(self.stamp)]
        numbers = [self.label, self.height, self.width, self.offset, self.size, self.crc32c]
        return [self.name, *numbers, list(self.stamp), list(self.findings), self.kept, *self.more]

    @classmethod
    def from_json(cls, values: list[Any]) -> RecordEntry:
        """Return the entry from the result of `to_json`."""
        if len(values) == 3:
            return cls(values[0], reason=values[1], stamp=(values[2][0], values[2][1]))
        name, label, height, width, offset, size, crc32c, stamp, findings, kept, *more = values
        row = cls(name, label, height, width, offset, size, crc32c, (stamp[0], stamp[1]), tuple(findings), kept)
        row.more = tuple(more)
        return row

    def add_to(self, rows: TableBuilder) -> None:
        """Add the row to a table."""
        rows.append(
            label=self.label,
            height=self.height,
            width=self.width,
            offset=self.offset,
            size=self.size,
            crc32c=self.crc32c,
            name=encode_name(self.name),
            more=self.more,
        )


class Journal:
    """The journal of a conversion, a file of checksummed lines. Call `resume` or `begin` before `append`.

    Attributes
    ----------
    header : dict
        The first line that an earlier run wrote; empty if there was no such run.
    checkpoints : int
        The number of checkpoints that the earlier run recorded.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.header: dict[str, Any] = {}
        self.checkpoints = 0
        self._valid = 0  # bytes
        for text, end in self._lines():
            if self._valid:
                self.checkpoints += 1
            else:
                self.header = json.loads(text)
            self._valid = end

    def entries(self) -> Iterator[RecordEntry]:
        """Yield the entries, in the order of the source."""
        for text, _ in itertools.islice(self._lines(), 1, None):
            yield from map(RecordEntry.from_json, json.loads(text)["entries"])

    def begin(self, header: Mapping[str, Any]) -> None:
        """Start the journal over, with `header` as its first line."""
        self._open(0)
        self._write(header)

    def resume(self) -> None:
        """Continue after the last whole line."""
        self._open(self._valid)

    def append(self, entries: Sequence[RecordEntry]) -> None:
        """Write the next entries as one line, and return once the line is on the disk."""
        self._write({"entries": [entry.to_json() for entry in entries]})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield the JSON of each whole line, and the offset of the line's end in the file."""
        end = 0
        try:
            with open(self._path, "rb") as file:
                for line in file:
                    text = line[9:-1]
                    if not line.endswith(b"\n") or line[:9] != b"%08x " % google_crc32c.value(text):
                        break
                    end += len(line)
                    yield text, end
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DestinationError(f"{printable(self._path)}: cannot be read: {error.strerror}") from error

    def _open(self, keep: int) -> None:
        with writing_to(self._path):
            self._file = open(self._path, "ab")  # noqa: SIM115 - held until `close`
            self._file.truncate(keep)
            self._file.seek(0, os.SEEK_END)

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._file is not None
        text = json.dumps(value, separators=(",", ":")).encode("ascii")
        with writing_to(self._path):
            self._file.write(b"%08x %s\n" % (google_crc32c.value(text), text))
            self._file.flush()
            os.fsync(self._file.fileno())


_CHECKPOINT_SAMPLES = 1000
_CHECKPOINT_SECONDS = 10.0


class Checkpoints:
    """The checkpoints of a conversion: a thread syncs samples and then saves their entries, while writing continues.

    Parameters
    ----------
    writer : Writer
    record : ConversionRecord
        The record of the pack that `writer` writes.
    """

    def __init__(self, writer: Writer, record: ConversionRecord) -> None:
        self._writer = writer
        self._record = record
        self._pending: list[RecordEntry] = []
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="packer-sync")
        self._running: Future[None] | None = None

    def add(self, entries: list[RecordEntry]) -> None:
        """Take the entries of images that were written or left out, and begin a checkpoint if one is due."""
        self._pending += entries
        waited = time.monotonic() - self._last
        due = len(self._pending) >= _CHECKPOINT_SAMPLES or waited > _CHECKPOINT_SECONDS
        late = len(self._pending) >= 2 * _CHECKPOINT_SAMPLES and waited > 3 * _CHECKPOINT_SECONDS
        if due and (late or self._running is None or self._running.done()):
            self._begin()

    def _begin(self) -> None:
        if self._running is not None:
            self._running.result()
        entries, self._pending = self._pending, []
        self._last = time.monotonic()
        self._running = self._thread.submit(self._checkpoint, entries)

    def _checkpoint(self, entries: list[RecordEntry]) -> None:
        self._writer.sync()
        self._record.save(entries)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Wait for the running checkpoint. After an error, save all entries so far in a last checkpoint."""
        with self._thread:
            if kind is None:
                if self._running is not None:
                    self._running.result()
            elif self._pending and (self._running is None or self._running.exception() is None):
                self._record.release_reserve()
                self._begin()


def check_destination(destination: Path, *, overwrite: bool) -> None:
    """Raise DestinationError if a pack cannot be written, or something exists that must not be replaced.

    A pack may be replaced, even a damaged one, as long as it shows that packer wrote it. An empty file or directory may
    be replaced too. A pack whose directory also holds other files is not replaced, because these files would be lost.
    """
    check_free(destination, overwrite=overwrite)
    if os.path.lexists(destination) and not _is_empty(destination):
        require_pack(destination, _files_below(destination) if os.path.isdir(destination) else ())


def check_free(destination: Path, *, overwrite: bool) -> None:
    """Raise DestinationError if nothing can be written, or something exists and `overwrite` is false."""
    check_place(destination)
    if os.path.lexists(destination):
        _require_file_or_directory(destination)
        if not overwrite:
            raise DestinationError(
                f"{printable(destination)}: exists already. Choose another name, or pass {option('overwrite', True)}."
            )


def _state(path: Path) -> int | list[str]:
    """Return the size of a file, or the names below a directory: unlike inodes and times, no rename changes these."""
    status = os.lstat(path)
    return sorted(_files_below(path)) if stat.S_ISDIR(status.st_mode) else status.st_size


def _is_empty(destination: Path) -> bool:
    return not (os.listdir(destination) if os.path.isdir(destination) else os.path.getsize(destination))


def _files_below(directory: Path) -> Iterator[str]:
    """Yield the paths of all files and links below a directory, relative to it, with the separator ``/``."""

    def fail(error: OSError) -> None:
        raise error

    with writing_to(directory):
        for folder, folders, names in os.walk(directory, onerror=fail):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (Path(folder, name).relative_to(directory).as_posix() for name in (*names, *links))


def require_pack(destination: str | os.PathLike[str], files: Iterable[str]) -> None:
    """Raise DestinationError if a path or URL has something other than a pack, or files that do not belong to the pack.

    In doubt, files are not replaced, because another tool may have written them, and they may be the only copy.

    Parameters
    ----------
    destination : path or URL
    files : iterable of str
        The paths of all files below `destination`, relative to it; empty if `destination` is a file.
    """
    _require_mark(destination)
    found = list(files)
    try:
        others = files_of_others(destination, found) if found else []
    except PackError as error:
        raise DestinationError(
            f"{urls.redacted(destination)}: is damaged, and packer cannot tell its files from other files in its "
            f"directory ({message_of(error)}), so {option('overwrite', True)} does not replace it. Choose another "
            "name, or delete it yourself first."
        ) from error
    if others:
        raise DestinationError(
            f"{urls.redacted(destination)}: contains files that do not belong to the pack, and "
            f"{option('overwrite', True)} would delete them: {some(others)}. Move them away, or choose another name."
        )


def _require_mark(destination: str | os.PathLike[str]) -> None:
    """Raise DestinationError if the files at a path or a URL do not show that packer wrote them."""
    cause: PackerError | None = None
    try:
        if shows_mark(destination):
            return
        problem = "is not a pack"
    except CorruptPackError as error:
        problem, cause = f"is too damaged to be recognised as a pack ({error.reason})", error
    except (PackError, MissingDependencyError) as error:
        problem, cause = f"cannot be recognised as a pack ({message_of(error)})", error
    raise DestinationError(
        f"{urls.redacted(destination)}: exists, and {problem}, so {option('overwrite', True)} does not replace it. "
        "Choose another name, or delete it yourself first."
    ) from cause


def _require_file_or_directory(destination: Path) -> None:
    """Raise DestinationError for a link, a device, a FIFO or a socket; these are never replaced.

    A pack that replaced a link would be on the link's own disk, and not on the disk to which the link points.
    """
    shown, mode = printable(destination), os.lstat(destination).st_mode
    if stat.S_ISLNK(mode):
        target = printable(os.path.realpath(destination))
        raise DestinationError(
            f"{shown}: is a symbolic link to {target}, and packer does not replace links. Write to {target}, or "
            "remove the link."
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = KINDS.get(stat.S_IFMT(mode), "something special")
        raise DestinationError(f"{shown}: is {kind}, which packer does not replace. Choose another name.")


def check_place(destination: Path) -> None:
    """Raise DestinationError if no pack can be created at a path."""
    if urls.is_url(destination):
        raise DestinationOptionError(
            f"{urls.redacted(destination)}: only `packer convert` writes to a URL, without {option('split')}, --part "
            "and --cluster. Make the pack on a disk, and then convert that pack to the URL."
        )
    shown, parent = printable(destination), destination.parent
    require_directory(parent, destination)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(f"{shown}: the directory {printable(parent)} is not writable")


def check_outside(destination: Path, source: Path | None) -> None:
    """Raise DestinationError if a pack would be inside the directory `source`."""
    if source is not None and Path(os.path.realpath(destination.parent)).is_relative_to(os.path.realpath(source)):
        raise DestinationError(
            f"{printable(destination)}: is inside {printable(source)}, so it would become a part of the source. "
            "Choose another place."
        )


def check_inputs(destination: Path, inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Raise DestinationError if one of the input files or directories is `destination` or lies inside it.

    Replacing the destination would delete such an input. Paths on a disk are compared after resolving links.
    """
    if urls.is_url(destination):
        own = str(urls.parse(destination))
        for path in filter(urls.is_url, inputs):
            if f"{urls.parse(path)}/".startswith(f"{own}/"):
                raise _replaces(destination, path)
        return
    try:
        replaced = os.stat(destination)
    except OSError:  # there is nothing that could be replaced
        return
    compared = set[Path]()
    for path in inputs:
        if urls.is_url(path):
            continue
        file = Path(os.path.realpath(path))
        for part in (file, *file.parents) if stat.S_ISDIR(replaced.st_mode) else (file,):
            if part in compared:
                break
            compared.add(part)
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(part), replaced):
                    raise _replaces(destination, path)


def _replaces(destination: Path, path: str | os.PathLike[str]) -> DestinationError:
    replaced, read = (
        urls.redacted(one) if urls.is_url(one) else printable(os.fspath(one)) for one in (destination, path)
    )
    problem = f"would replace {read}, which this command reads"
    if os.path.abspath(destination) == os.path.abspath(path):
        problem = "cannot be both read and replaced"
    return DestinationError(f"{replaced}: {problem}. Choose another name for the result.")


def check_report(report: str | os.PathLike[str], keep: Iterable[Path] = ()) -> None:
    """Raise DestinationError if a report cannot be written, or would replace an existing file that is not a report.

    The report must not replace a path in `keep` either, or a file below such a path.
    """
    require_output(report, "report", (b"{",), _is_report)
    path, shown = Path(os.path.abspath(report)), printable(os.fspath(report))
    for other in keep:
        same = path == Path(os.path.abspath(other))
        if same or (os.path.exists(path) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(other))):
            what = printable(other) if same else f"a file of {printable(other)}"
            raise DestinationError(f"{shown}: the report would replace {what}. Choose another name.")


_LONGEST_LINE = 1 << 20  # bytes; a name has up to 64 kB, and each byte takes up to six in JSON
_STARTS = (b'{"name": "', b'{"count": ', b'{"not_looked_at": ')
_MEMBERS: list[set[str]] = [
    {"name", "skipped"},
    {"name", "findings"},
    {"name", "account", "what", "why"},
    {"count", "account", "what", "why"},
    {"name", "not_looked_at"},
    {"not_looked_at"},
]
"""The sets of keys that the JSON objects in a report can have."""


def _is_report(file: IO[bytes]) -> bool:
    """Tell whether packer wrote a file as a report; the end may be missing because the disk was full."""
    return all(map(_is_line_of_report, iter(partial(file.readline, _LONGEST_LINE), b"")))


def _is_line_of_report(line: bytes) -> bool:
    try:
        value = json.loads(line)
    except ValueError:
        was_begun = line.startswith(_STARTS) or any(start.startswith(line) for start in _STARTS)
        return was_begun and not line.endswith(b"\n")
    return isinstance(value, dict) and value.keys() in _MEMBERS
