"""Uses obstore: makes the store for a URL, converts errors, and sends requests that write.

The threads of obstore do not survive a fork, so obstore runs in separate processes. The fetcher reads through obstore,
and `ObstoreBucket` runs `main` in a new process for each request. Neither process imports NumPy, so both start fast.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import sys
import urllib.parse
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from packer._storage.remote.urls import Url, parse
from packer.errors import printable

_CONNECT = 10.0  # seconds until a silent host counts as unreachable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_URLS = re.compile(r"\bhttps?://\S+")
_PATH = re.compile(r'[Pp]ath:? "(.{1,1000}?)"')
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Decode|Request|Body)")
_ENDPOINT = re.compile(r"https?://[^/\s]", re.IGNORECASE)
_METADATA = "169.254.169.254"
"""The address at which machines in a cloud get credentials if none are configured."""

REPLACED = "it was replaced after it was opened. Open it again"
CUT = "the connection was interrupted, or the response is invalid"

_REMEDIES = {
    "s3": "Set credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws/credentials (AWS_PROFILE); for "
    "a public bucket set AWS_SKIP_SIGNATURE=true",
    "gs": "Set GOOGLE_APPLICATION_CREDENTIALS to the path of a credentials file",
    "az": "Set credentials in AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "http": "The URL may have expired, or needs a user, as in https://user:password@host/",
}
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SKIP_SIGNATURE")
_S3_SETTINGS = {
    "region": ("region", "AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("endpoint", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    "aws_access_key_id": ("access_key_id", *_KEYS),
    "aws_secret_access_key": ("secret_access_key", *_KEYS),
    "aws_session_token": ("session_token", *_KEYS),
}
"""Settings of a profile: obstore's name for each, and the variables that override it."""

_BOTO3_KNOWS = {"role_arn", "sso_session", "sso_start_url", "credential_process", "source_profile"}


class StoreError(Exception):
    """An error of a store, free of secrets.

    Attributes
    ----------
    kind : str
        "missing", "changed", "denied" and "refused" (any other reason) are permanent failures. "again" is a temporary
        failure, and "away" an unreachable host. "outside" is a range beyond the object, "partial" a server that sends
        only whole objects, "length" a response with a wrong number of bytes, and "name" an object whose name is not a
        valid path.
    last_received : float
        Time of the last received byte before the error, by the monotonic clock; 0 if unknown.
    """

    last_received = 0.0

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def store_of(url: str, seconds: float) -> tuple[Any, str]:
    """Return the store of an object, and the object's path in it.

    Parameters
    ----------
    url : str
    seconds : float
        How long a request may go without receiving data.

    Raises
    ------
    StoreError
        If credentials are missing or malformed.
    """
    from obstore.exceptions import BaseError

    try:
        return _store_of(url, seconds)
    except (BaseError, ValueError):  # whose text has the credentials
        raise StoreError("denied", f"the credentials are incomplete or invalid. {_remedy(url)}") from None


def _store_of(url: str, seconds: float) -> tuple[Any, str]:
    import obstore.store as stores

    place = parse(url)
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=min(seconds, _CONNECT)),
            "read_timeout": timedelta(seconds=seconds),
            "timeout": timedelta(days=1),
            "user_agent": "packer",
        },
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=seconds)},
    }
    if place.scheme == "s3":
        settings = _s3_settings()
        _require_endpoint(settings.get("endpoint"))
        return stores.S3Store(place.host, **settings, **options), place.key
    if place.scheme == "gs":
        return stores.GCSStore(place.host, **options), place.key
    if place.scheme == "az":
        return stores.AzureStore(place.host, **options), place.key
    base = str(Url(place.scheme, place.host, "", place.query))
    if place.user:  # which obstore leaves out
        options["client_options"]["default_headers"] = {"authorization": place.authorization()}
    return stores.HTTPStore(base, **options), urllib.parse.unquote(place.key)


def error_of(error: BaseException, url: str) -> StoreError:
    """Convert an error of obstore; its own text is left out, because it contains the whole URL."""
    from obstore import exceptions

    text = str(error)
    own = _URLS.sub("", text)  # a signed URL contains the word credential, and a name may contain any word
    status, code, kind = _STATUS.search(text), _CODE.search(text), _KIND.search(text)
    answer = " ".join(found[1] for found in (status, code) if found)
    number = int(status[1]) if status else 0
    denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
    region = " AWS_REGION may be the region of another bucket." if parse(url).scheme == "s3" else ""
    for fits, failure, why in (
        (isinstance(error, FileNotFoundError), "missing", "no such object"),
        (number == 416, "outside", "it has fewer bytes than before"),
        (isinstance(error, exceptions.PreconditionError) or number == 412, "changed", REPLACED),
        (isinstance(error, denied) or number in (401, 403), "denied", f"access is denied ({answer}). {_remedy(url)}"),
        (
            f"//{_METADATA}/" in text or (not number and "redential" in own),
            "denied",
            f"no credentials were found. {_remedy(url)}",
        ),
        (
            "non-partial response" in text or "RangeNotSupported" in text,
            "partial",
            "the server sends only whole objects and no ranges. Copy the pack to a disk, or use a server that "
            "supports range requests, such as nginx",
        ),
        (
            "InvalidCertificate" in own,
            "refused",
            "this machine does not trust the server's certificate. Set SSL_CERT_FILE to a file with the certificate "
            "of its authority",
        ),
        (
            isinstance(error, exceptions.InvalidPathError),
            "name",
            f"the name of an object has an empty part, `.` or `..`: {_name_in(text)}. Rename the object",
        ),
        (code and code[1] == "NoSuchBucket", "refused", "no such bucket"),
        (
            300 <= number < 500 and number not in (408, 429),
            "refused",
            f"the server refuses the request: {answer}.{region}",
        ),
        (number, "again", answer),
        (kind and kind[1] == "Connect", "away", "the host cannot be reached"),
        (kind and kind[1] == "Timeout", "again", "the server did not respond"),
    ):
        if fits:
            return StoreError(failure, why)
    return StoreError("again", CUT)


def _name_in(text: str) -> str:
    found = _PATH.search(text)
    return printable(found[1]) if found else "?"


def _remedy(url: str) -> str:
    scheme = parse(url).scheme
    return _REMEDIES["http" if scheme == "https" else scheme]


def _s3_settings() -> dict[str, Any]:
    """Return the settings in AWS's files that no environment variable overrides; obstore reads the variables."""
    profile = _profile()
    settings: dict[str, Any] = {
        own: profile[theirs]
        for theirs, (own, *variables) in _S3_SETTINGS.items()
        if profile.get(theirs) and not any(os.environ.get(variable) for variable in variables)
    }
    own_way = any(os.environ.get(variable) for variable in _KEYS)
    if not own_way and "access_key_id" not in settings and not _BOTO3_KNOWS.isdisjoint(profile):
        with contextlib.suppress(ImportError):
            from obstore.auth.boto3 import Boto3CredentialProvider

            settings["credential_provider"] = Boto3CredentialProvider()
    return settings


def _require_endpoint(endpoint: str | None) -> None:
    """Raise StoreError if the URL of a store has no scheme, because obstore would panic."""
    for name, value in (
        ("endpoint_url", endpoint),
        *((name, os.environ.get(name)) for name in _S3_SETTINGS["endpoint_url"]),
    ):
        if value and not _ENDPOINT.match(value):
            raise StoreError("refused", f"{name} is not a URL: it must begin with http:// or https://")


def _profile() -> dict[str, str]:
    """Return the settings of the chosen profile in the files of AWS."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", name),
    ):
        parser = configparser.RawConfigParser()
        try:
            parser.read(os.path.expanduser(os.environ.get(variable) or default), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
        if parser.has_section(section):
            found.update(parser.items(section))
    return found


_REQUEST = 5  # a request that uploads a part may take this many times the time limit
_RETRIES = 8


def main() -> None:
    """Read a request from standard input, as JSON, and write the responses to standard output, one on each line."""
    request = json.load(sys.stdin)
    try:
        _respond({"result": _result(request)})
    except ImportError:
        _respond({"error": "ImportError"})
    except Exception as error:  # regardless of its type, the parent raises it
        _respond({"error": type(error).__name__})


def _result(request: dict[str, Any]) -> Any:
    import obstore
    from obstore.exceptions import NotFoundError

    seconds, key = request["timeout"], request["key"]
    store = obstore.store.from_url(
        request["base"],
        client_options={
            "allow_http": True,
            "connect_timeout": f"{seconds:.0f}s",
            "timeout": f"{_REQUEST * seconds:.0f}s",
        },
        retry_config={"max_retries": _RETRIES},
    )
    if request["verb"] == "find":
        try:
            found = obstore.head(store, key)
        except (NotFoundError, FileNotFoundError):
            return None
        return {"size": found["size"], "etag": found["e_tag"] or ""}
    if request["verb"] == "list":
        return sorted(entry["path"] for chunk in obstore.list(store, key.rstrip("/")) for entry in chunk)
    if request["verb"] == "delete":
        with contextlib.suppress(NotFoundError, FileNotFoundError):
            obstore.delete(store, key)
        return None
    with open(request["path"], "rb") as file:
        stored = obstore.put(store, key, _pieces(file, request["part"]), chunk_size=request["part"], max_concurrency=8)
    return stored["e_tag"] or ""


def _pieces(file: Any, size: int) -> Iterator[bytes]:
    while piece := file.read(size):
        _respond({"sent": len(piece)})
        yield piece


def _respond(response: dict[str, Any]) -> None:
    print(json.dumps(response), flush=True)  # noqa: T201 - its standard output is read by its parent alone
