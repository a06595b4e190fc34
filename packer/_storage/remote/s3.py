"""Buckets of S3, and of stores that speak as S3 does, as they are written: through boto3, which is pure Python.

boto3 finds credentials, the endpoint and the region as every other tool does: in ``AWS_PROFILE``, ``AWS_ENDPOINT_URL``
and the like, in files, or from the machine. Every call has a limit for connecting, for each wait on the line, and for
the number of attempts.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from packer._storage.remote.settings import Settings
from packer._table import Buffer
from packer.errors import MissingDependencyError, RemoteError, pip_install, printable

__all__ = ["Bucket", "Found", "Piece", "Unfinished", "md5_of"]

_ATTEMPTS = 8
_SECONDS_TO_CONNECT = 20.0
_PAGE = 1000  # keys that one request deletes

_REMEDIES = {
    "NoSuchBucket": "there is no such bucket. Make it first, or look at AWS_ENDPOINT_URL.",
    "AccessDenied": "access is refused. Needed are the rights to get, put, list and delete, and to abort uploads.",
    "InvalidAccessKeyId": "the credentials are not known. Look at AWS_PROFILE, AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL.",
    "SignatureDoesNotMatch": "the credentials do not fit. Look at AWS_PROFILE, AWS_SECRET_ACCESS_KEY.",
    "ExpiredToken": "the credentials have expired. Renew them; the same command continues.",
    "BadDigest": "what arrived is not what was sent, again and again. Look at the network and the memory.",
    "PermanentRedirect": "the bucket lies in another region. Say which with AWS_REGION.",
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
class Found:
    """An object that is there.

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
class Piece:
    """A part of an upload that has arrived; numbers count from 1."""

    number: int
    size: int
    etag: str
    arrived: datetime


@dataclass(frozen=True)
class Unfinished:
    """An upload in parts that was begun, and neither completed nor aborted."""

    key: str
    id: str
    begun: datetime


class Bucket:
    """A bucket that is written. Safe in many threads at once.

    Parameters
    ----------
    name : str
    settings : Settings
        How long is waited.
    connections : int
        How many requests there are at once, at most.

    Raises
    ------
    MissingDependencyError
        If boto3 is not installed.
    RemoteError
        If what it is configured with cannot be used; so from all methods, where the store cannot be reached or refuses.
    """

    def __init__(self, name: str, settings: Settings, connections: int = 16) -> None:
        try:
            import boto3
            import botocore.config
        except ImportError as error:
            raise MissingDependencyError(f"writing to s3:// needs boto3: {pip_install('remote')}") from error
        self.name = name
        self._timeout = settings.timeout
        # Not every store knows the checksums that boto3 adds by itself. All know Content-MD5, which is given here.
        how = botocore.config.Config(
            connect_timeout=min(_SECONDS_TO_CONNECT, settings.timeout),
            read_timeout=settings.timeout,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            max_pool_connections=connections,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        with self._calling("", "used"):
            self._client: Any = boto3.session.Session().client("s3", config=how)

    def shown(self, key: str) -> str:
        """Return how messages call an object."""
        return printable(f"s3://{self.name}/{key}")

    def find(self, key: str) -> Found | None:
        """Return what is known of an object; None where there is none."""
        with self._calling(key, "looked at"):
            try:
                head = self._client.head_object(Bucket=self.name, Key=key)
            except self._client.exceptions.ClientError as error:
                if _code(error) in ("404", "NoSuchKey", "NotFound"):
                    return None
                raise
        return Found(int(head["ContentLength"]), _plain(head["ETag"]))

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]:
        """Return the keys that begin with `prefix`, in their order; no more than about `most`."""
        found: list[str] = []
        with self._calling(prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.name, Prefix=prefix, PaginationConfig={"MaxItems": most} if most else {}
            )
            for page in pages:
                found += [entry["Key"] for entry in page.get("Contents", ())]
        return found

    def folders_in(self, prefix: str) -> tuple[list[str], bool]:
        """Return the prefixes right below `prefix` that end in a slash, and whether objects lie beside them."""
        found: list[str] = []
        beside = False
        with self._calling(prefix, "listed"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.name, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                found += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
                beside = beside or any(entry["Key"] != prefix for entry in page.get("Contents", ()))
        return found, beside

    def put(self, key: str, data: Buffer, *, replace: bool) -> str:
        """Write a small object; return its ETag. FileExistsError where one is there that is not to be replaced."""
        with self._calling(key, "written"), self._refusing(key):
            given = self._client.put_object(
                Bucket=self.name,
                Key=key,
                Body=bytes(data),
                ContentMD5=_base64(md5_of(data)),
                **({} if replace else {"IfNoneMatch": "*"}),
            )
        return _plain(given["ETag"])

    def delete(self, keys: list[str]) -> None:
        """Delete objects; no error where there is none."""
        for start in range(0, len(keys), _PAGE):
            for key in keys[start : start + _PAGE]:  # one by one: the request for many wants checksums of its own
                with self._calling(key, "deleted"):
                    self._client.delete_object(Bucket=self.name, Key=key)

    def uploads(self, prefix: str) -> Iterator[Unfinished]:
        """Yield the uploads in parts of the keys that begin with `prefix`; none where a store does not list them."""
        with self._calling(prefix, "asked for unfinished uploads"):
            more: Mapping[str, Any] = {}
            while True:
                try:
                    page = self._client.list_multipart_uploads(Bucket=self.name, Prefix=prefix, **more)
                except self._client.exceptions.ClientError as error:
                    if _code(error) not in ("NotImplemented", "501"):
                        raise
                    return
                for entry in page.get("Uploads", ()):
                    if entry["Key"].startswith(prefix):  # not all stores look at the prefix
                        yield Unfinished(entry["Key"], entry["UploadId"], entry["Initiated"])
                if not page.get("IsTruncated"):
                    return
                more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}

    def begin(self, key: str) -> str:
        """Begin an upload in parts; return its id."""
        with self._calling(key, "written"):
            begun = self._client.create_multipart_upload(Bucket=self.name, Key=key)
        return str(begun["UploadId"])

    def parts(self, key: str, upload: str) -> list[Piece] | None:
        """Return the parts of an upload that have arrived, in their order; None where there is no such upload."""
        found: list[Piece] = []
        with self._calling(key, "asked for its parts"):
            try:
                for page in self._client.get_paginator("list_parts").paginate(
                    Bucket=self.name, Key=key, UploadId=upload
                ):
                    found += [
                        Piece(int(part["PartNumber"]), int(part["Size"]), _plain(part["ETag"]), part["LastModified"])
                        for part in page.get("Parts", ())
                    ]
            except self._client.exceptions.ClientError as error:
                if _code(error) in ("NoSuchUpload", "404", "NoSuchKey"):
                    return None
                raise
        return found

    def put_part(self, key: str, upload: str, number: int, data: Buffer, md5: bytes) -> str:
        """Write a part, which the store compares with `md5`; return the part's ETag."""
        with self._calling(key, f"written (part {number})"):
            given = self._client.upload_part(
                Bucket=self.name,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=bytes(data),
                ContentMD5=_base64(md5),
            )
        return _plain(given["ETag"])

    def complete(self, key: str, upload: str, etags: Mapping[int, str], *, replace: bool) -> str:
        """Make an object of the parts; return its ETag.

        Raises
        ------
        FileExistsError
            If an object is there that is not to be replaced.
        FileNotFoundError
            If there is no such upload.
        """
        parts = [{"PartNumber": number, "ETag": f'"{etags[number]}"'} for number in sorted(etags)]
        with self._calling(key, "completed"), self._refusing(key):
            given = self._client.complete_multipart_upload(
                Bucket=self.name,
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
                **({} if replace else {"IfNoneMatch": "*"}),
            )
        return _plain(given["ETag"])

    def abort(self, key: str, upload: str) -> None:
        """Drop an upload with its parts; no error where there is none."""
        with self._calling(key, "rid of an unfinished upload"):
            try:
                self._client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
            except self._client.exceptions.ClientError as error:
                if _code(error) not in ("NoSuchUpload", "404", "NoSuchKey"):
                    raise

    @contextlib.contextmanager
    def _refusing(self, key: str) -> Iterator[None]:
        try:
            yield
        except self._client.exceptions.ClientError as error:
            if _code(error) in ("PreconditionFailed", "412", "ConditionalRequestConflict", "409"):
                raise FileExistsError(self.shown(key)) from error
            if _code(error) == "NoSuchUpload":
                raise FileNotFoundError(self.shown(key)) from error
            raise

    @contextlib.contextmanager
    def _calling(self, key: str, verb: str) -> Iterator[None]:
        """Turn the errors of boto3 into a RemoteError, which says what cannot be done to which object, and why."""
        import boto3.exceptions
        import botocore.exceptions as errors

        try:
            yield
        except errors.ClientError as error:
            code = _SAME.get(_code(error), _code(error))
            why = _REMEDIES.get(code) or f"the store says {printable(code)}. The same command tries again."
        except (errors.NoCredentialsError, errors.PartialCredentialsError, errors.CredentialRetrievalError):
            why = "there are no credentials. Say AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        except errors.ProfileNotFound:
            why = "AWS_PROFILE names a profile that no file of credentials has."
        except (errors.ConnectTimeoutError, errors.ReadTimeoutError):
            why = (
                f"nothing came for {self._timeout:g} s, {_ATTEMPTS} times. The same command continues; "
                "PACKER_TIMEOUT says how many seconds are waited."
            )
        except (errors.HTTPClientError, errors.ConnectionError):
            why = "the connection fails. Look at the network and at AWS_ENDPOINT_URL; the same command continues."
        except (errors.BotoCoreError, boto3.exceptions.Boto3Error, ValueError) as error:
            why = f"boto3 says {type(error).__name__}. Look at AWS_PROFILE, AWS_REGION and AWS_ENDPOINT_URL."
        else:
            return
        # Without the error that it came from: that one may show the endpoint, with what stands before its `@`.
        raise RemoteError(f"{self.shown(key)}: cannot be {verb}: {why}") from None


def md5_of(data: Buffer) -> bytes:
    """Return the MD5 of bytes, by which a store knows that they arrived as they were sent."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode("ascii")


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "?"))


def _plain(etag: str) -> str:
    return etag.strip('"')
