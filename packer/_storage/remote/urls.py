"""URLs of objects: parsing, joining, display without secrets, and the settings for reading them."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packer.errors import OptionError, OptionTypeError, RemoteError, printable, warn

SCHEMES = ("s3", "gs", "az", "http", "https")
"""The schemes of URLs of objects."""

# `pathlib` makes one slash of two, and a user who passes a `Path` means the same.
_URL = re.compile(rf"({'|'.join(SCHEMES)}):/{{1,2}}(?=[^/])", re.IGNORECASE)
_ANY_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_HOST = re.compile(r"[^:@\[\]]*(:[0-9]*)?|\[[0-9a-fA-F:.%]*\](:[0-9]*)?")
_TAIL = re.compile(r"(.*?)([?]|#(?=[^/]*=))(.*)", re.DOTALL)
_WELL_KNOWN = re.compile(  # names in a query are not secret, but their values may be
    r"x-(amz|goog)-[a-z-]{1,30}|awsaccesskeyid|googleaccessid|signature|expires|key-pair-id|policy|versionid|token|"
    r"access_token|generation|download|s[a-z]{1,2}|sktid|skoid|skiat|response-content-[a-z]{1,20}",
    re.IGNORECASE,
)
_PERISHABLE = re.compile(  # signatures of requests: new ones each time for the same object
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
        The bucket or the container; for HTTP, host and port.
    key : str
        The object's name in the bucket, or the path on the server, as written in the URL, without the first slash.
    query : str
        The part after the question mark, which only URLs of HTTP have.
    user : str
        The part before the host's ``@``, which only URLs of HTTP have.
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
        return f"Url({self.redacted()!r})"

    def redacted(self) -> str:
        """Return the URL without possible secrets: the user, and the query.

        Of a query, only well-known names are shown, without their values. In the URL of a bucket, text that looks like
        a query or a fragment belongs to the key, and is hidden as well. A malformed host is hidden too, because it may
        be half of a password.
        """
        host = self.host if _HOST.fullmatch(self.host) else "..."
        if self.scheme in ("http", "https"):
            key, mark, query = self.key if host != "..." else "...", "?" if self.query else "", self.query
        else:
            found = _TAIL.search(self.key)
            key, mark, query = found.groups() if found else (self.key, "", "")
        return printable(f"{self.scheme}://{host}/{key}{mark}{_redacted_query(query) if mark else ''}")

    def authorization(self) -> str:
        """Return the authorization header."""
        return f"Basic {base64.b64encode(urllib.parse.unquote_to_bytes(self.user)).decode()}"


def server_of(url: str) -> str:
    """Return scheme and host of a URL, or scheme and bucket."""
    return "/".join(url.split("/", 3)[:3])


def is_url(path: object) -> bool:
    """Tell whether a path is a URL instead of a file's path. A URL that `parse` refuses counts too."""
    return isinstance(path, str | os.PathLike) and any(kind.match(_text(path)) for kind in (_URL, _ANY_URL))


def parse(path: str | os.PathLike[str]) -> Url:
    """Return the parts of a URL.

    Raises
    ------
    RemoteError
        If this is not the URL of an object, or has parts that such a URL cannot have.
    """
    text = _text(path)
    begin = _URL.match(text)
    if begin is None:
        wrong = "not a supported URL; these begin with" if _ANY_URL.match(text) else "not a URL; URLs begin with"
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
        raise RemoteError(
            f"{scheme}://...@...: the URL of a bucket cannot have a user. Set credentials in environment variables or "
            "files."
        )
    url = Url(scheme, host, key, query, user)
    if not _HOST.fullmatch(host):
        raise RemoteError(
            f"{url.redacted()}: has no host. In a password, write %2F for /, %3F for ?, %23 for # and %40 for @"
        )
    if not host or any(part in (".", "..") for part in key.split("/")) or "//" in f"/{key}" or "\0" in text:
        raise RemoteError(f"{url.redacted()}: the path of an object cannot have an empty part, `.` or `..`")
    return url


def join(path: str | os.PathLike[str], *parts: str) -> str:
    """Return the URL of an object below another URL; `parts` are names, with slashes between them.

    In an HTTP URL, characters that are not allowed are encoded.
    """
    url = parse(path)
    below = "/".join(part.strip("/") for part in parts if part.strip("/"))
    if url.scheme in ("http", "https"):
        below = urllib.parse.quote(below, safe="/~!$&'()*+,;=:@", errors="surrogateescape")
    key = f"{url.key.rstrip('/')}/{below}" if url.key and below else url.key or below
    return str(replace(url, key=key))


def parent(path: str | os.PathLike[str]) -> str:
    """Return the URL of an object's directory, or of the bucket for a top-level object."""
    url = parse(path)
    return str(replace(url, key=url.key.rstrip("/").rpartition("/")[0]))


def name(path: str | os.PathLike[str]) -> str:
    """Return the last part of a URL's path, decoded for an HTTP URL."""
    url = parse(path)
    last = url.key.rstrip("/").rpartition("/")[2]
    return urllib.parse.unquote(last) if url.scheme in ("http", "https") else last


def redacted(path: str | os.PathLike[str]) -> str:
    """Return a URL for errors and logs, without credentials and query; return a path unchanged."""
    text = _text(path)
    return parse(path).redacted() if _URL.match(text) else _hidden(text) if is_url(text) else printable(text)


def identity(path: str | os.PathLike[str], *more: object) -> str:
    """Return a hexadecimal name for an object; the name does not depend on secrets in the URL.

    Parameters
    ----------
    path : str or path
        The URL of the object. A signature in the query is ignored, because it changes each time.
    *more
        Further properties that distinguish this object, such as its ETag and its size.
    """
    url = parse(path)
    query = sorted(part for part in url.query.split("&") if part and not _PERISHABLE.match(part.partition("=")[0]))
    parts = [str(replace(url, query="&".join(query), user="")), *map(str, more)]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _redacted_query(query: str) -> str:
    """Return the well-known names in a query, and ``...`` for everything else."""
    parts = [part.partition("=") for part in query.split("&")]
    known = [f"{name}=..." if equal and _WELL_KNOWN.fullmatch(name) else "..." for name, equal, _ in parts]
    return "&".join(dict.fromkeys(known))


def _text(path: object) -> str:
    return os.fspath(path) if isinstance(path, str | os.PathLike) else str(path)


def _hidden(text: str) -> str:
    """Return a text, which may be a URL of any kind, without user and query."""
    scheme, _, rest = text.partition("://")
    return printable(f"{scheme}://..." if re.search("[@?#]", rest) else text)


CACHE_DIR, CACHE_SIZE, TIMEOUT = "PACKER_CACHE_DIR", "PACKER_CACHE_SIZE", "PACKER_TIMEOUT"
"""The environment variables for the settings of reading; an option takes precedence over its variable."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtT]?)i?[bB]?\s*")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_SECONDS = 60.0
_KEEPS = hasattr(os, "pread") and hasattr(os, "pwrite")  # Windows has neither, so no cache files are written there


@dataclass(frozen=True)
class RemoteSettings:
    """Settings for reading objects.

    Attributes
    ----------
    cache_dir : str or None
        The directory of the cache. None: cache in memory only, for the life of the process. On systems without
        `os.pread`, such as Windows, it is always None.
    cache_size : int or None
        The size limit of the cache in bytes; None: a share of the free space.
    timeout : float
        How many seconds to wait for bytes before raising an error.
    """

    cache_dir: str | None
    cache_size: int | None = None
    timeout: float = _SECONDS

    @classmethod
    def of(
        cls,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        timeout: float | None = None,
    ) -> RemoteSettings:
        """Return settings; an option that is None comes from its environment variable, or has its default.

        Parameters
        ----------
        cache_dir : path, optional
            An empty string means that bytes are cached in memory only.
        cache_size : int or str, optional
            Bytes, or a text such as "200 GB".
        timeout : float, optional
            Seconds.

        Raises
        ------
        OptionError
            If an option is an invalid size or time.
        """
        named = os.environ.get(CACHE_DIR) if cache_dir is None else os.fspath(cache_dir)
        directory = default_directory() if named is None else named
        if not _KEEPS and directory:
            _warn_that_memory_keeps(named)
            directory = ""
        size = os.environ.get(CACHE_SIZE) or None if cache_size is None else cache_size
        seconds = os.environ.get(TIMEOUT) or _SECONDS if timeout is None else timeout
        return cls(
            os.path.abspath(os.path.expanduser(directory)) if directory else None,
            None if size is None else size_of(size),
            _seconds_of(seconds),
        )


def _warn_that_memory_keeps(named: str | None) -> None:
    """Warn once in this process that the cache directory is not used on this system."""
    if named is not None and not _warned:
        _warned.add(named)
        warn(
            f"the cache directory {printable(named)} is not used, because this system has no os.pread. Downloads are "
            "cached in memory until the process ends"
        )


_warned = set[str]()


def default_directory() -> str:
    """Return the default directory of the cache."""
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".cache"), "packer")


def size_of(size: int | str) -> int:
    """Parse a number of bytes: a number, or a text such as "200 GB"."""
    found = _SIZE.fullmatch(str(size))
    if found is None or isinstance(size, bool) or float(found[1]) <= 0:
        raise OptionError(
            f"cache_size must be a number of bytes above 0, such as 200000000000 or '200 GB', not {size!r}"
        )
    return max(1, int(float(found[1]) * _UNITS[found[2].lower()]))


def _seconds_of(seconds: float | str) -> float:
    try:
        number = float(seconds)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise OptionError(f"timeout must be a number of seconds above 0, not {seconds!r}")
    return number


_chosen: dict[str, RemoteSettings] = {}


def choose(path: str | os.PathLike[str], settings: RemoteSettings) -> None:
    """Set how this process reads the object at a URL, and objects below it."""
    _chosen[_key(path)] = settings


def chosen(path: str | os.PathLike[str]) -> RemoteSettings:
    """Return the settings that were chosen for a URL or one of its parents; otherwise those of the environment."""
    key = _key(path)
    while key:
        if key in _chosen:
            return _chosen[key]
        key = key.rpartition("/")[0]
    return RemoteSettings.of()


def _key(path: str | os.PathLike[str]) -> str:
    url = parse(path)
    return f"{url.scheme}://{url.host}/{url.key}".rstrip("/")


class UrlPath(PurePosixPath):
    """The URL of an object, with the interface of a path.

    `os.fspath` gives the whole URL, `str` the URL without secrets.
    """

    @property
    def name(self) -> str:
        """The last part, without a query."""
        return name(self.__fspath__())

    def __fspath__(self) -> str:
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}"

    def __str__(self) -> str:
        url = self.__fspath__()
        return redacted(url) if is_url(url) else url

    def __reduce__(self) -> tuple[type[UrlPath], tuple[str]]:
        return UrlPath, (self.__fspath__(),)


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a user's path with ``~`` expanded; for a URL, a `UrlPath`, which cannot be opened as a file."""
    require_path(path)
    return UrlPath(os.fspath(path)) if is_url(path) else Path(os.path.expanduser(path))  # type: ignore[return-value]


def require_path(path: object) -> None:
    """Raise OptionTypeError if `path` is neither text nor a path."""
    if not isinstance(path, str | os.PathLike):
        raise OptionTypeError(f"a path must be a string such as 'train.lmdb', or a pathlib.Path, not {path!r}")


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a user's path on this machine, with ``~`` expanded.

    Raises
    ------
    OptionError
        If `path` is a URL.
    """
    if is_url(path):
        raise OptionError(
            f"{redacted(path)} is a URL, but only paths on this machine are allowed here. `packer stage URL "
            "DIRECTORY` copies a pack to this machine"
        )
    return user_path(path)
