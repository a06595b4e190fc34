"""URLs of objects: what is one, its parts, joining, and how it is shown without secrets."""

from __future__ import annotations

import hashlib
import os
import re
import urllib.parse
from dataclasses import dataclass, replace

from packer.errors import RemoteError, printable

__all__ = ["SCHEMES", "Url", "identity", "is_url", "join", "name", "parent", "parse", "shown"]

SCHEMES = ("s3", "gs", "az", "http", "https")
"""What stands before `://` in the URL of an object."""

# `pathlib` makes one slash of two, and a person who passes a `Path` means the same.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}(?=[^/])", re.IGNORECASE)
_ANY_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_PERISHABLE = re.compile(  # what signs a request: another one each time for the same object
    r"x-amz-|x-goog-|awsaccesskeyid$|googleaccessid$|signature$|expires$|key-pair-id$|policy$|(sig|se|st|sv|sr|sp|spr|sip|ske|sks|skt|skv|skoid|sktid)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Url:
    """The parts of a URL.

    Attributes
    ----------
    scheme : str
        One of `SCHEMES`.
    host : str
        The bucket or the container; of HTTP, host and port.
    key : str
        The object's name in the bucket, or the path on the server, as it stands in the URL, without the first slash.
    query : str
        What follows the question mark, which only URLs of HTTP have.
    user : str
        What stands before the host's ``@``, which only URLs of HTTP have.
    """

    scheme: str
    host: str
    key: str
    query: str = ""
    user: str = ""

    def __str__(self) -> str:
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.user and self.user + '@'}{self.host}/{self.key}{query}"

    def __repr__(self) -> str:
        return f"Url({self.shown()!r})"

    def shown(self) -> str:
        """Return the URL without what may be secret: who logs in, and the values of the query."""
        names = [part.partition("=")[0] for part in self.query.split("&")] if self.query else []
        query = "?" + "&".join(f"{name}=..." for name in names) if names else ""
        return printable(f"{self.scheme}://{self.host}/{self.key}{query}")


def is_url(place: object) -> bool:
    """Tell whether a place is the URL of an object, and not the path of a file."""
    return isinstance(place, str | os.PathLike) and _URL.match(_text(place)) is not None


def parse(place: str | os.PathLike[str]) -> Url:
    """Return the parts of a URL.

    Raises
    ------
    RemoteError
        If it is no URL of an object, or has parts that no object has.
    """
    text = _text(place)
    begin = _URL.match(text)
    if begin is None:
        wrong = "a URL of another kind than" if _ANY_URL.match(text) else "none of"
        raise RemoteError(f"{_hidden(text)}: {wrong} {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    scheme, rest, query = begin[1].lower(), text[begin.end() :], ""
    user = ""
    if scheme in ("http", "https"):
        rest = rest.partition("#")[0]
        rest, _, query = rest.partition("?")
    host, _, key = rest.partition("/")
    if scheme in ("http", "https"):
        user, _, host = host.rpartition("@")
    elif "@" in host:
        raise RemoteError(f"{scheme}://...@...: a bucket has no user. Credentials stand in variables and files.")
    url = Url(scheme, host, key, query, user)
    if not host or any(part in (".", "..") for part in key.split("/")) or "//" in f"/{key}" or "\0" in text:
        raise RemoteError(f"{url.shown()}: has parts that the URL of an object has not: an empty one, `.` or `..`")
    return url


def join(place: str | os.PathLike[str], *parts: str) -> str:
    """Return the URL of what lies below another URL; `parts` are names, with slashes between them.

    In a URL of HTTP, characters that are not allowed there are encoded.
    """
    url = parse(place)
    below = "/".join(part.strip("/") for part in parts if part.strip("/"))
    if url.scheme in ("http", "https"):
        below = urllib.parse.quote(below, safe="/~!$&'()*+,;=:@", errors="surrogateescape")
    key = f"{url.key.rstrip('/')}/{below}" if url.key and below else url.key or below
    return str(replace(url, key=key))


def parent(place: str | os.PathLike[str]) -> str:
    """Return the URL of what an object lies in; that of a bucket for what lies in nothing else."""
    url = parse(place)
    return str(replace(url, key=url.key.rstrip("/").rpartition("/")[0]))


def name(place: str | os.PathLike[str]) -> str:
    """Return the last part of a URL's path, decoded where it is HTTP's."""
    url = parse(place)
    last = url.key.rstrip("/").rpartition("/")[2]
    return urllib.parse.unquote(last) if url.scheme in ("http", "https") else last


def shown(place: str | os.PathLike[str]) -> str:
    """Return a URL as errors and logs have it: without who logs in, and without the values of its query."""
    return parse(place).shown()


def identity(place: str | os.PathLike[str], *more: object) -> str:
    """Return a name for an object, of hexadecimal digits, that no secret goes into.

    Parameters
    ----------
    place : str or path
        Its URL. A signature in the query does not count: it is another one each time.
    *more
        What else tells this object from others: its ETag, its size.
    """
    url = parse(place)
    query = sorted(part for part in url.query.split("&") if part and not _PERISHABLE.match(part.partition("=")[0]))
    told = [str(replace(url, query="&".join(query), user="")), *map(str, more)]
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _text(place: object) -> str:
    return os.fspath(place) if isinstance(place, str | os.PathLike) else str(place)


def _hidden(text: str) -> str:
    """Return what may be a URL of any kind, without who logs in and without a query."""
    return printable(re.sub(r"//[^/@]*@", "//", text.partition("?")[0]))
