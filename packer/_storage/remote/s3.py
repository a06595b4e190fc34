"""Writing to buckets of S3 and compatible stores, through boto3, which is pure Python.

boto3 finds credentials, the endpoint and the region where other tools find them: in variables such as ``AWS_PROFILE``
and ``AWS_ENDPOINT_URL``, in files, or from the machine. Every call has time limits for connecting and for waiting for
data, and a limit on the number of attempts.

A large file is uploaded in parts, several at a time; the object appears when all parts have arrived. A killed upload
can be continued: the store's list of parts is compared with the file, by size and checksum, and only missing parts are
sent. Each part is sent with its MD5, which the store compares with the bytes that arrived. Unfinished uploads of the
same object by other processes are aborted, unless one of them may still be running.

The log of a pack's uploads is a file on this machine, with these lines of JSON:

``{"key": K, "replaced": [KEY, …]}``   the pack K is about to be replaced; its objects have these keys
``{"key": K, "before": [ID, …]}``   an upload of the object K in parts is about to begin; K already has these uploads
``{"key": K, "id": ID}``            the upload has begun, with this id
``{"key": K, "part": N, "md5": M, "etag": E}``   the part N has arrived; written only if the store's ETags are not MD5s
``{"key": K, "done": E}``           the object is complete, with this ETag

Each line is on disk before the step that it announces begins. The last line may be truncated, and is then ignored. No
line is secret: an upload's id is of no use without credentials.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

from packer._storage.files import AppendFile, writing_to
from packer._storage.packfile import pread
from packer._storage.remote.urls import RemoteSettings
from packer._storage.safe_open import open_regular
from packer._table import Buffer
from packer.errors import (
    DestinationError,
    MissingDependencyError,
    PackLockedError,
    RemoteError,
    option,
    pip_install,
    printable,
)

PART = 8 << 20
"""The size of a part, and the maximum size of an object that is sent in one piece, in bytes."""

_ATTEMPTS = 8
_MOST_CONNECTIONS = 16
_SECONDS_TO_CONNECT = 20.0
_MOST_PARTS = 9_000  # S3 has 10,000 at most
_MIB = 1 << 20
_AT_ONCE = 8
_MEMORY = 512 << 20  # bytes of all parts in flight
_SECONDS_OF_LIFE = 600  # after its last part, until an unknown upload counts as abandoned
_OF_PARTS = re.compile("[0-9a-f]{32}-[0-9]+")
"""The ETag of an object that was uploaded in parts to S3: the MD5 of the parts' MD5s, and the number of parts."""
_NO_UPLOAD = ("NoSuchUpload", "NoSuchKey", "404")
_REMEDIES = {
    "NoSuchBucket": "no such bucket. Make it first, or check AWS_ENDPOINT_URL.",
    "AccessDenied": "access is denied. You need permission to get, put, list and delete objects, and to abort uploads.",
    "InvalidAccessKeyId": "unknown access key. Check AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.",
    "SignatureDoesNotMatch": "the signature does not match. Check AWS_PROFILE and AWS_SECRET_ACCESS_KEY.",
    "ExpiredToken": "the credentials have expired. Renew them, and run the same command to continue.",
    "BadDigest": "the store repeatedly received other bytes than were sent. Check the network and the memory.",
    "PermanentRedirect": "the bucket is in another region. Set AWS_REGION.",
    "RequestTimeTooSkewed": "the clock of this machine is wrong.",
}
_SAME = {
    "403": "AccessDenied",
    "Forbidden": "AccessDenied",
    "AllAccessDisabled": "AccessDenied",
    "TokenRefreshRequired": "ExpiredToken",
    "InvalidToken": "ExpiredToken",
    "RequestExpired": "ExpiredToken",
    "ExpiredTokenException": "ExpiredToken",
    "301": "PermanentRedirect",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "InvalidDigest": "BadDigest",
}


@dataclass(frozen=True)
class StoredObject:
    """An existing object.

    Attributes
    ----------
    size : int
        Bytes.
    etag : str
        Without quotes.
    """

    size: int
    etag: str


@dataclass(frozen=True)
class UploadedPart:
    """A part of an upload that has arrived; numbers count from 1."""

    number: int
    size: int
    etag: str
    arrived: datetime


@dataclass(frozen=True)
class PartialUpload:
    """An upload in parts that is neither completed nor aborted."""

    key: str
    id: str
    begun: datetime


class S3Bucket:
    """A bucket to which files are uploaded in parts. Many threads can use it at once.

    Parameters
    ----------
    name : str
    settings : RemoteSettings
        Time limits.

    Raises
    ------
    MissingDependencyError
        If boto3 is not installed.
    RemoteError
        If the configuration of the bucket cannot be used. All methods raise RemoteError if the store cannot be reached
        or refuses access.
    """

    def __init__(self, name: str, settings: RemoteSettings) -> None:
        try:
            import boto3
            import botocore.config
        except ImportError as error:
            raise MissingDependencyError(f"writing to s3:// needs boto3: {pip_install('remote')}") from error
        self.name = name
        self._timeout = settings.timeout
        # Not every store supports the checksums that boto3 adds by default. All support Content-MD5, which is sent
        # here.
        how = botocore.config.Config(
            connect_timeout=min(_SECONDS_TO_CONNECT, settings.timeout),
            read_timeout=settings.timeout,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            max_pool_connections=_MOST_CONNECTIONS,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._calling("", "used"):
            self._client: Any = boto3.session.Session().client("s3", config=how)

    def display_name(self, key: str) -> str:
        """Return the name of an object in messages."""
        return printable(f"s3://{self.name}/{key}")

    def find(self, key: str) -> StoredObject | None:
        """Return size and ETag of an object; None if it does not exist."""
        with self._calling(key, "accessed"), self._without("NoSuchKey", "NotFound", "404"):
            head = self._client.head_object(Bucket=self.name, Key=key)
            return StoredObject(int(head["ContentLength"]), _plain(head["ETag"]))
        return None

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]:
        """Return the keys that begin with `prefix`, in the store's order; at most `most` keys."""
        return [key for key, *_ in itertools.islice(self.objects_below(prefix), most)]

    def objects_below(self, prefix: str) -> Iterator[tuple[str, int, str, int]]:
        """Yield key, size, ETag with its quotes, and time in ns of the objects with keys that begin with `prefix`."""
        with self._calling(prefix, "listed"):
            for page in self._pages("list_objects_v2", Prefix=prefix):
                for entry in page.get("Contents", ()):
                    written = round(entry["LastModified"].timestamp() * 1e6) * 1000
                    yield entry["Key"], entry["Size"], entry["ETag"], written

    def folders_in(self, prefix: str) -> tuple[list[str], bool]:
        """Return the folders directly below `prefix`, and whether there are objects too."""
        found: list[str] = []
        has_objects = False
        with self._calling(prefix, "listed"):
            for page in self._pages("list_objects_v2", Prefix=prefix, Delimiter="/"):
                found += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
                has_objects = has_objects or any(entry["Key"] != prefix for entry in page.get("Contents", ()))
        return found, has_objects

    def put(self, key: str, data: Buffer, *, replace: bool) -> str:
        """Write a small object, and return its ETag; FileExistsError if the object exists and must not be replaced."""
        with self._calling(key, "written"), self._refusing(key):
            body = {"Body": bytes(data), "ContentMD5": _base64(md5_of(data)), **_unless(replace)}
            response = self._client.put_object(Bucket=self.name, Key=key, **body)
        return _plain(response["ETag"])

    def delete(self, keys: list[str]) -> None:
        """Delete objects; it is no error if an object does not exist."""
        for key in keys:  # one by one: the request for many needs checksums of its own
            with self._calling(key, "deleted"):
                self._client.delete_object(Bucket=self.name, Key=key)

    def uploads(self, prefix: str) -> Iterator[PartialUpload]:
        """Yield the unfinished uploads of keys that begin with `prefix`; none if the store does not list them."""
        with self._calling(prefix, "searched for unfinished uploads"), self._without("NotImplemented", "501"):
            more: Mapping[str, Any] | None = {}
            while more is not None:
                page = self._client.list_multipart_uploads(Bucket=self.name, Prefix=prefix, **more)
                for entry in page.get("Uploads", ()):
                    if entry["Key"].startswith(prefix):  # not all stores honour the prefix
                        yield PartialUpload(entry["Key"], entry["UploadId"], entry["Initiated"])
                markers = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
                truncated = page.get("IsTruncated")
                more = {name: page.get(after, "") for name, after in markers.items()} if truncated else None

    def begin(self, key: str) -> str:
        """Begin an upload in parts; return its id."""
        with self._calling(key, "written"):
            begun = self._client.create_multipart_upload(Bucket=self.name, Key=key)
        return str(begun["UploadId"])

    def parts(self, key: str, upload: str) -> list[UploadedPart] | None:
        """Return the parts of an upload that have arrived, in their order; None if there is no such upload."""
        with self._calling(key, "accessed"), self._without(*_NO_UPLOAD):
            return [
                UploadedPart(int(part["PartNumber"]), int(part["Size"]), _plain(part["ETag"]), part["LastModified"])
                for page in self._pages("list_parts", Key=key, UploadId=upload)
                for part in page.get("Parts", ())
            ]
        return None

    def put_part(self, key: str, upload: str, number: int, data: Buffer, md5: bytes) -> str:
        """Write a part, which the store compares with `md5`; return the part's ETag."""
        with self._calling(key, f"written (part {number})"):
            body = {"PartNumber": number, "Body": bytes(data), "ContentMD5": _base64(md5)}
            response = self._client.upload_part(Bucket=self.name, Key=key, UploadId=upload, **body)
        return _plain(response["ETag"])

    def complete(self, key: str, upload: str, etags: Mapping[int, str], *, replace: bool) -> str:
        """Make an object from the parts; return its ETag.

        Raises
        ------
        FileExistsError
            If the object exists and must not be replaced.
        FileNotFoundError
            If there is no such upload.
        """
        parts = [{"PartNumber": number, "ETag": f'"{etags[number]}"'} for number in sorted(etags)]
        with self._calling(key, "completed"), self._refusing(key):
            body = {"MultipartUpload": {"Parts": parts}, **_unless(replace)}
            response = self._client.complete_multipart_upload(Bucket=self.name, Key=key, UploadId=upload, **body)
        return _plain(response["ETag"])

    def abort(self, key: str, upload: str) -> None:
        """Drop an upload with its parts; it is no error if the upload does not exist."""
        with self._calling(key, "cleared of an unfinished upload"), self._without(*_NO_UPLOAD):
            self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None:
        """Upload a file as an object, and compare the object with the file.

        Parameters
        ----------
        path : Path
            A file that does not change during the call.
        key : str
        log : UploadLog
        replace : bool
            Whether an existing object is replaced.
        progress : callable
            Called, on any thread, with the number of bytes that have arrived since the last call.

        Raises
        ------
        DestinationError
            If the object exists and must not be replaced, or the file cannot be read.
        RemoteError
            If the store cannot be reached or refuses access. Calling `send` again continues the upload.
        """
        with _ObjectUpload(self, path, key, log, progress) as upload:
            found = self.find(key)
            if log.has_sent(key, found, upload.size):
                progress(upload.size)
                return
            try:
                if found is not None and not replace and not log.knows(key) and not upload.is_small:
                    raise FileExistsError(key)
                etag = upload.at_once(replace=replace) if upload.is_small else upload.in_parts(replace=replace)
            except FileExistsError:
                raise exists_already(self.display_name(key)) from None
            require_uploaded(self.find(key), upload.size, etag, self.display_name(key))
            log.finished(key, etag)

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]:
        """Abort uploads of an object, and of objects below it, unless they are in the log; return a note for each.

        Parameters
        ----------
        key : str
        log : UploadLog
            The log of this machine's uploads.
        even_alive : bool
            Whether uploads with recently arrived parts are aborted too.

        Raises
        ------
        PackLockedError
            If `even_alive` is False and an upload received data recently, because another process may be sending it.
        """
        notes = []
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
                    f"{self.display_name(upload.key)}: another process may be uploading it: an upload that began "
                    f"at {upload.begun:%Y-%m-%d %H:%M:%S} UTC received data {seconds} s ago. Wait until "
                    f"{_SECONDS_OF_LIFE // 60} minutes have passed without new data, or abort it with "
                    f"{option('fresh', True)}."
                )
            self.abort(upload.key, upload.id)
            size = sum(part.size for part in parts)
            notes.append(
                f"an abandoned upload of {self.display_name(upload.key)} was aborted: begun at "
                f"{upload.begun:%Y-%m-%d %H:%M:%S} UTC, {len(parts)} parts, {size / 1e6:,.1f} MB"
            )
        return notes

    def _pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a paginated response."""
        yield from self._client.get_paginator(operation).paginate(Bucket=self.name, **arguments)

    @contextlib.contextmanager
    def _without(self, *codes: str) -> Iterator[None]:
        """Suppress the error if the store responds with one of these codes."""
        try:
            yield
        except self._client.exceptions.ClientError as error:
            if _code(error) not in codes:
                raise

    @contextlib.contextmanager
    def _refusing(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._client.exceptions.ClientError as error:
            if _code(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409"):
                raise FileExistsError(self.display_name(key)) from error
            if _code(error) == "NoSuchUpload":
                raise FileNotFoundError(self.display_name(key)) from error
            raise

    @contextlib.contextmanager
    def _calling(self, key: str, verb: str) -> Iterator[None]:
        """Turn the errors of boto3 into a RemoteError, which names the step, the object and the cause."""
        import boto3.exceptions
        import botocore.exceptions as errors

        try:
            yield
        except errors.ClientError as error:
            code = _SAME.get(_code(error), _code(error))
            why = _REMEDIES.get(code) or f"the store returned {printable(code)}. Run the same command to try again."
        except (errors.NoCredentialsError, errors.PartialCredentialsError, errors.CredentialRetrievalError):
            why = "there are no credentials. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        except errors.ProfileNotFound:
            why = "no credentials file has the profile that AWS_PROFILE names."
        except (errors.ConnectTimeoutError, errors.ReadTimeoutError):
            why = (
                f"no data arrived for {self._timeout:g} s, {_ATTEMPTS} times. Run the same command to continue; "
                "PACKER_TIMEOUT sets the number of seconds to wait."
            )
        except (errors.HTTPClientError, errors.ConnectionError):
            why = "the connection failed. Check the network and AWS_ENDPOINT_URL, and run the same command to continue."
        except (errors.BotoCoreError, boto3.exceptions.Boto3Error, ValueError) as error:
            why = f"boto3 raised {type(error).__name__}. Check AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL."
        else:
            return
        # Without the original error, which may show the endpoint with credentials before its `@`.
        raise RemoteError(f"{self.display_name(key)}: cannot be {verb}: {why}") from None


class _SentPart(NamedTuple):
    """An uploaded part: its MD5, and its ETag in the store."""

    md5: bytes
    etag: str


class _ObjectUpload:
    """The upload of one file, which becomes one object."""

    def __init__(self, bucket: S3Bucket, path: Path, key: str, log: UploadLog, progress: Callable[[int], None]) -> None:
        self._bucket, self._path, self._key, self._log, self._progress = bucket, path, key, log, progress
        try:
            self._fd = open_regular(path)
        except OSError as error:
            raise DestinationError(f"{printable(path)}: cannot be read: {error.strerror}") from error
        self.size = os.fstat(self._fd).st_size
        self._part = part_size(self.size)

    def __enter__(self) -> _ObjectUpload:
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
        try:
            etag = self._bucket.put(self._key, data, replace=replace)
        except FileExistsError:  # possibly sent by an earlier run that was killed, or by a request without a response
            if not self._is_there(md5):
                raise
            etag = md5
        self._progress(self.size)
        return etag

    def in_parts(self, *, replace: bool) -> str:
        """Send a file in parts; return the object's ETag."""
        upload = self._own_upload()
        there = None if upload is None else self._bucket.parts(self._key, upload)
        if upload is not None and there is None:  # completed just before an earlier run was killed, or aborted since
            expected = self._expected({number: self._known(number) for number in self._numbers()})
            if self._is_there(expected):
                self._progress(self.size)
                return expected
        if upload is None or there is None:
            upload, there = self._begin(), []
        arrived = self._send_parts(upload, {part.number: (part.size, part.etag) for part in there})
        expected = self._expected(arrived)
        try:
            etags = {number: part.etag for number, part in arrived.items()}
            etag = self._bucket.complete(self._key, upload, etags, replace=replace)
        except FileNotFoundError:  # the request had succeeded, and was repeated because the first response was lost
            if not self._is_there(expected):
                raise RemoteError(
                    f"{self._bucket.display_name(self._key)}: another program aborted the upload. Run the same "
                    "command to upload it again."
                ) from None
            return expected
        except FileExistsError:
            self._bucket.abort(self._key, upload)
            raise
        # Stores other than S3 may compute the ETag of an object differently.
        return expected if _OF_PARTS.fullmatch(etag) else etag

    def _is_there(self, etag: str) -> bool:
        return same_object(self._bucket.find(self._key), self.size, etag)

    def _own_upload(self) -> str | None:
        """Return the upload that an earlier run began.

        If there are several without a recorded id, abort all but one.
        """
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

    def _of_this_object(self) -> list[PartialUpload]:
        return [upload for upload in self._bucket.uploads(self._key) if upload.key == self._key]

    def _send_parts(self, upload: str, listed: Mapping[int, tuple[int, str]]) -> dict[int, _SentPart]:
        """Send the parts that are missing or differ from the file; return all parts by number."""
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

    def _send_part(self, upload: str, number: int, there: tuple[int, str] | None) -> _SentPart:
        data = self._read((number - 1) * self._part, self._part)
        digest = md5_of(data)
        etag = self._log.etag_of(self._key, number, digest.hex())
        if there != (len(data), etag):
            etag = self._bucket.put_part(self._key, upload, number, data, digest)
            if etag != digest.hex():
                self._log.arrived(self._key, number, digest.hex(), etag)
        self._progress(len(data))
        return _SentPart(digest, etag)

    def _known(self, number: int) -> _SentPart:
        """Return MD5 and ETag of a part without a request to the store."""
        digest = md5_of(self._read((number - 1) * self._part, self._part))
        return _SentPart(digest, self._log.etag_of(self._key, number, digest.hex()))

    def _numbers(self) -> range:
        return range(1, -(-self.size // self._part) + 1)

    def _expected(self, parts: Mapping[int, _SentPart]) -> str:
        """Return the expected ETag of the object from these parts; empty if the store's ETags are not MD5s."""
        if any(part.etag != part.md5.hex() for part in parts.values()):
            return ""
        return f"{md5_of(b''.join(parts[number].md5 for number in self._numbers())).hex()}-{len(parts)}"

    def _read(self, start: int, most: int) -> bytes:
        try:
            data = pread(self._fd, min(most, self.size - start), start)
        except OSError as error:
            raise DestinationError(f"{printable(self._path)}: cannot be read: {error.strerror}") from error
        if len(data) != min(most, self.size - start):
            raise DestinationError(f"{printable(self._path)}: the file became shorter while packer was uploading it")
        return bytes(data)


class UploadLog:
    """The log of one pack's upload. Many threads can write to it at once.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    ids : dict of str to str
        The id of the last upload of each object.
    before : dict of str to set of str
        For each object with an upload whose id was not recorded, the ids of the uploads that existed before this one.
    done : dict of str to str
        The ETags of objects that were completed.
    replaced : set of str or None
        The keys of the objects of the replaced pack; None if no replacement has begun.
    """

    def __init__(self, path: Path) -> None:
        self.replaced: set[str] | None = None
        self.ids: dict[str, str] = {}
        self.before: dict[str, set[str]] = {}
        self.done: dict[str, str] = {}
        self._parts: dict[tuple[str, int, str], str] = {}
        self._lock = threading.Lock()
        with writing_to(path):
            text = path.read_bytes() if os.path.exists(path) else b""
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(json.loads(line))
        self._file = AppendFile(path, keep=len(whole))

    def replaces(self, key: str, replaced: Iterable[str]) -> None:
        """Record that the replacement of a pack is about to begin, and the keys of its objects."""
        self._write({"key": key, "replaced": sorted(replaced)})

    def expect(self, key: str, before: set[str]) -> None:
        """Record that an upload of an object is about to begin, and the ids of the uploads that it already has."""
        self._write({"key": key, "before": sorted(before)})

    def begun(self, key: str, id: str) -> None:
        """Record that an upload has begun."""
        self._write({"key": key, "id": id})

    def arrived(self, key: str, number: int, md5: str, etag: str) -> None:
        """Record the ETag of a part, if the ETag is not the part's MD5."""
        self._write({"key": key, "part": number, "md5": md5, "etag": etag})

    def finished(self, key: str, etag: str) -> None:
        """Record that an object is complete."""
        self._write({"key": key, "done": etag})

    def has_sent(self, key: str, found: StoredObject | None, size: int) -> bool:
        """Tell whether an existing object was completed by an earlier run."""
        return key in self.done and same_object(found, size, self.done[key])

    def etag_of(self, key: str, number: int, md5: str) -> str:
        """Return the ETag of a part with this MD5: the recorded one, or the MD5 itself."""
        return self._parts.get((key, number, md5), md5)

    def knows(self, key: str) -> bool:
        """Tell whether the log has an upload of this object."""
        return key in self.ids or key in self.before or key in self.done

    @property
    def empty(self) -> bool:
        """Whether no upload or replacement was begun."""
        return not (self.ids or self.before or self.done) and self.replaced is None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        with self._lock:
            self._take(line)
            self._file.append(json.dumps(line).encode("ascii") + b"\n")
            self._file.flush()
            self._file.sync()

    def _take(self, line: dict[str, Any]) -> None:
        key = line["key"]
        if "replaced" in line:
            self.replaced = set(line["replaced"])
        elif "before" in line:
            self.ids.pop(key, None)
            self.before[key] = set(line["before"])
        elif "id" in line:
            self.before.pop(key, None)
            self.ids[key] = line["id"]
        elif "part" in line:
            self._parts[key, line["part"], line["md5"]] = line["etag"]
        else:
            self.ids.pop(key, None)
            self.done[key] = line["done"]


def part_size(size: int) -> int:
    """Return the size of the parts of an object except the last; it depends only on the object's size."""
    return max(PART, -(-size // (_MOST_PARTS * _MIB)) * _MIB)


def same_object(found: StoredObject | None, size: int, etag: str) -> bool:
    """Tell whether an object is the uploaded file, by its ETag; without a comparable ETag, by its size."""
    return found is not None and found.size == size and (not etag or found.etag == etag)


def require_uploaded(found: StoredObject | None, size: int, etag: str, shown: str) -> None:
    """Raise RemoteError if an object is not the uploaded file; `shown` is the object's name in the message."""
    if not same_object(found, size, etag):
        raise RemoteError(f"{shown}: the object differs from the uploaded file. Does another program write to it?")


def exists_already(shown: str) -> DestinationError:
    """Return the error for an existing object that must not be replaced."""
    return DestinationError(f"{shown}: exists already. Choose another name, or pass {option('overwrite', True)}.")


def md5_of(data: Buffer) -> bytes:
    """Return the MD5 of bytes, with which a store checks that they arrived intact."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def _unless(replace: bool) -> dict[str, str]:
    """Return the header that makes a store refuse to replace an object."""
    return {} if replace else {"IfNoneMatch": "*"}


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "?"))


def _plain(etag: str) -> str:
    return etag.strip('"')


def _now() -> datetime:
    return datetime.now(timezone.utc)
