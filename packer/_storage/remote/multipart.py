"""One file that becomes one object of S3: in parts, several at a time, and under its name when all have arrived.

An upload that was killed goes on: what the store lists of its parts is compared with the file, by size and checksum,
and only what lacks is sent. Each part goes with its MD5, which the store compares. Uploads that others left of the same
object are aborted, unless one of them may be alive.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from packer._storage.opening import open_regular
from packer._storage.packfile import pread
from packer._storage.remote.s3 import Bucket, Found, Unfinished, md5_of
from packer._storage.remote.uploadlog import UploadLog
from packer.errors import DestinationError, PackLockedError, RemoteError, printable

__all__ = ["PART", "PartsBucket", "exists_already", "part_size", "same_object"]

PART = 8 << 20
"""Bytes of a part; also, of an object that is sent in one piece, at most."""

_MOST_PARTS = 9_000  # S3 has 10,000 at most
_MIB = 1 << 20
_AT_ONCE = 8
_MEMORY = 512 << 20  # bytes of all parts in flight
_SECONDS_OF_LIFE = 600  # after its last part, until an upload that is not known here counts as abandoned
_OF_PARTS = re.compile("[0-9a-f]{32}-[0-9]+")
"""The ETag of an object that was made of parts, as S3 has it: the MD5 of their MD5s, and how many they are."""


def part_size(size: int) -> int:
    """Return how many bytes the parts of an object have, but for the last one: a function of its size alone."""
    return max(PART, -(-size // (_MOST_PARTS * _MIB)) * _MIB)


def same_object(found: Found | None, size: int, etag: str) -> bool:
    """Tell whether an object is the one that was uploaded. Without an ETag to compare, the size must do."""
    return found is not None and found.size == size and (not etag or found.etag == etag)


def exists_already(shown: str) -> DestinationError:
    """Return the error for an object that is there and is not to be replaced."""
    return DestinationError(f"{shown}: exists already. Choose another name, or say --overwrite.")


class PartsBucket(Bucket):
    """A bucket in which files become objects, part by part."""

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None:
        """Make an object of a file, and compare it with the file.

        Parameters
        ----------
        path : Path
            A file that does not change meanwhile.
        key : str
        log : UploadLog
        replace : bool
            Whether an object that is there is replaced.
        progress : callable
            Called, on any thread, with the number of bytes that have arrived since the last call.

        Raises
        ------
        DestinationError
            If an object is there that is not to be replaced, or the file cannot be read.
        RemoteError
            If the store cannot be reached or refuses; the same call goes on.
        """
        with _Sending(self, path, key, log, progress) as sending:
            found = self.find(key)
            if key in log.done and same_object(found, sending.size, log.done[key]):
                progress(sending.size)
                return
            try:
                if found is not None and not replace and not log.knows(key) and not sending.is_small:
                    raise FileExistsError(key)
                etag = sending.at_once(replace=replace) if sending.is_small else sending.in_parts(replace=replace)
            except FileExistsError:
                raise exists_already(self.shown(key)) from None
            if not same_object(self.find(key), sending.size, etag):
                raise RemoteError(f"{self.shown(key)}: is not what was uploaded. Does somebody else write there?")
            log.finished(key, etag)

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]:
        """Abort the uploads of an object, and of those below it, that are not known here; return what to say of each.

        Parameters
        ----------
        key : str
        log : UploadLog
            What is known here.
        even_alive : bool
            Whether those are aborted too of which something arrived lately.

        Raises
        ------
        PackLockedError
            If one may be another process's.
        """
        said = []
        for upload in self.uploads(key):
            own = log.ids.get(upload.key) == upload.id or upload.id not in log.before.get(upload.key, {upload.id})
            if own or not f"{upload.key}/".startswith(f"{key}/"):
                continue
            parts = self.parts(upload.key, upload.id)
            if parts is None:
                continue
            silent = _now() - max([upload.begun, *(part.arrived for part in parts)])
            if silent < timedelta(seconds=_SECONDS_OF_LIFE) and not even_alive:
                seconds = max(0, round(silent.total_seconds()))
                raise PackLockedError(
                    f"{self.shown(upload.key)}: another process may be uploading it: of an upload that began at "
                    f"{upload.begun:%Y-%m-%d %H:%M:%S} UTC something came {seconds} s ago. "
                    f"Wait until {_SECONDS_OF_LIFE // 60} minutes without a part have passed, or abort it with --fresh."
                )
            self.abort(upload.key, upload.id)
            size = sum(part.size for part in parts)
            said.append(
                f"an abandoned upload of {self.shown(upload.key)} was aborted: begun at "
                f"{upload.begun:%Y-%m-%d %H:%M:%S} UTC, {len(parts)} parts, {size / 1e6:,.1f} MB"
            )
        return said


class _Sent(NamedTuple):
    """A part that is there: its MD5, and what the store calls it."""

    md5: bytes
    etag: str


class _Sending:
    """The sending of one file."""

    def __init__(self, bucket: Bucket, path: Path, key: str, log: UploadLog, progress: Callable[[int], None]) -> None:
        self._bucket, self._path, self._key, self._log, self._progress = bucket, path, key, log, progress
        try:
            self._fd = open_regular(path)
        except OSError as error:
            raise DestinationError(f"{printable(path)}: cannot be read: {error.strerror}") from error
        self.size = os.fstat(self._fd).st_size
        self._part = part_size(self.size)

    def __enter__(self) -> _Sending:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    @property
    def is_small(self) -> bool:
        """Whether the file is sent in one piece."""
        return self.size <= PART

    def at_once(self, *, replace: bool) -> str:
        """Send a small file; return the object's ETag."""
        data = self._read(0, self.size)
        md5 = md5_of(data).hex()
        if not replace and same_object(self._bucket.find(self._key), self.size, md5):
            etag = md5  # sent just before an earlier run was killed
        else:
            etag = self._bucket.put(self._key, data, replace=replace)
        self._progress(self.size)
        return etag

    def in_parts(self, *, replace: bool) -> str:
        """Send a file in parts; return the object's ETag."""
        upload = self._own_upload()
        there = None if upload is None else self._bucket.parts(self._key, upload)
        if upload is not None and there is None:  # completed just before an earlier run was killed, or aborted since
            expected = self._expected({number: self._known(number) for number in self._numbers()})
            if same_object(self._bucket.find(self._key), self.size, expected):
                self._progress(self.size)
                return expected
        if upload is None or there is None:
            upload, there = self._begin(), []
        arrived = self._send_parts(upload, {part.number: (part.size, part.etag) for part in there})
        expected = self._expected(arrived)
        try:
            etags = {number: part.etag for number, part in arrived.items()}
            etag = self._bucket.complete(self._key, upload, etags, replace=replace)
        except FileNotFoundError:  # what was asked for twice, as the first answer was lost, was done the first time
            if not same_object(self._bucket.find(self._key), self.size, expected):
                raise RemoteError(
                    f"{self._bucket.shown(self._key)}: its upload was aborted by somebody else. "
                    "The same command uploads it again."
                ) from None
            return expected
        except FileExistsError:
            self._bucket.abort(self._key, upload)
            raise
        # Stores that are not S3 may take the ETag of an object from elsewhere.
        return expected if _OF_PARTS.fullmatch(etag) else etag

    def _own_upload(self) -> str | None:
        """Return the upload that an earlier run began; of several, of which it lost the ids, the others are aborted."""
        if self._key not in self._log.before:
            return self._log.ids.get(self._key)
        before = self._log.before[self._key]
        lost = [upload.id for upload in self._of_this_object() if upload.id not in before]
        for id in lost[1:]:
            self._bucket.abort(self._key, id)
        if lost:
            self._log.begun(self._key, lost[0])
        return lost[0] if lost else None

    def _begin(self) -> str:
        self._log.expect(self._key, {upload.id for upload in self._of_this_object()})
        upload = self._bucket.begin(self._key)
        self._log.begun(self._key, upload)
        return upload

    def _of_this_object(self) -> list[Unfinished]:
        return [upload for upload in self._bucket.uploads(self._key) if upload.key == self._key]

    def _send_parts(self, upload: str, listed: Mapping[int, tuple[int, str]]) -> dict[int, _Sent]:
        """Send the parts that are not there as they are in the file; return all by their numbers."""
        at_once, numbers = max(2, min(_AT_ONCE, _MEMORY // self._part)), self._numbers()
        with ThreadPoolExecutor(at_once, thread_name_prefix="packer-upload") as pool:
            futures = [pool.submit(self._send_part, upload, number, listed.get(number)) for number in numbers]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        for future in futures:
            if not future.cancelled():
                future.result()
        return {number: future.result() for number, future in zip(numbers, futures, strict=True)}

    def _send_part(self, upload: str, number: int, there: tuple[int, str] | None) -> _Sent:
        data = self._read((number - 1) * self._part, self._part)
        digest = md5_of(data)
        etag = self._log.etag_of(self._key, number, digest.hex())
        if there != (len(data), etag):
            etag = self._bucket.put_part(self._key, upload, number, data, digest)
            if etag != digest.hex():
                self._log.arrived(self._key, number, digest.hex(), etag)
        self._progress(len(data))
        return _Sent(digest, etag)

    def _known(self, number: int) -> _Sent:
        """Return what is known of a part without asking the store."""
        digest = md5_of(self._read((number - 1) * self._part, self._part))
        return _Sent(digest, self._log.etag_of(self._key, number, digest.hex()))

    def _numbers(self) -> range:
        return range(1, -(-self.size // self._part) + 1)

    def _expected(self, parts: Mapping[int, _Sent]) -> str:
        """Return the ETag of the object that these parts become; nothing where the store's ETags are no MD5s."""
        if any(part.etag != part.md5.hex() for part in parts.values()):
            return ""
        return f"{md5_of(b''.join(parts[number].md5 for number in self._numbers())).hex()}-{len(parts)}"

    def _read(self, start: int, most: int) -> bytes:
        try:
            data = pread(self._fd, min(most, self.size - start), start)
        except OSError as error:
            raise DestinationError(f"{printable(self._path)}: cannot be read: {error.strerror}") from error
        if len(data) != min(most, self.size - start):
            raise DestinationError(f"{printable(self._path)}: became shorter while it was uploaded")
        return bytes(data)


def _now() -> datetime:
    return datetime.now(timezone.utc)
