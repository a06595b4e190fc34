"""What is asked of a store: whether an object is there, its bytes, what lies below a URL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from packer._storage.remote import fetcherprocess
from packer._storage.remote.orders import Message
from packer._storage.remote.settings import Settings, chosen
from packer._storage.remote.urls import parse, shown
from packer.errors import RemoteError

__all__ = ["Listed", "Version", "fetched", "get", "head", "listed", "look"]


class Version(NamedTuple):
    """An object as it was when it was looked at.

    Attributes
    ----------
    size : int
        Bytes.
    etag : str
        What the store calls this version; empty where it says nothing.
    modified : int
        When it was written, in nanoseconds since 1970; 0 where the store does not say it.
    """

    size: int
    etag: str = ""
    modified: int = 0


class Listed(NamedTuple):
    """An object below a URL.

    Attributes
    ----------
    name : str
        Relative to that URL, with slashes.
    version : Version
    """

    name: str
    version: Version


def head(url: str, settings: Settings | None = None) -> Version | None:
    """Return the version of an object that is there now; None where there is none.

    Raises
    ------
    RemoteError
        If the store does not say it within the time limit of the settings, by default those chosen for the URL.
    """
    found = look(url, 1, settings)
    return found and found[0]


def look(url: str, size: int, settings: Settings | None = None) -> tuple[Version, bytes] | None:
    """Return the version of an object and its first bytes, `size` of them at most; None where there is no object."""
    message, payload = fetcherprocess.ask(_get(url, 0, size, None, settings))
    if message.get("failed") == "missing":
        return None
    _require(message, url)
    return Version(*message["version"]), bytes(payload)


def get(
    url: str,
    begin: int = 0,
    end: int | None = None,
    version: Version | None = None,
    settings: Settings | None = None,
) -> bytes:
    """Return bytes of an object, from `begin` to before `end`.

    May be called on many threads at once.

    Parameters
    ----------
    url : str
    begin, end : int
        None stands for the object's end.
    version : Version, optional
        RemoteError where the object is another one by now.
    settings : Settings, optional
        By default those chosen for the URL.

    Raises
    ------
    RemoteError
        If the bytes cannot be had within the time limit of the settings.
    FileNotFoundError
        If there is no such object.
    """
    if end is not None and begin >= end:
        return b""
    message, payload = fetcherprocess.ask(_get(url, begin, end, version, settings))
    if message.get("failed") == "missing":
        raise FileNotFoundError(f"{shown(url)}: there is no such object")
    _require(message, url)
    return bytes(payload)


def listed(url: str) -> Iterator[Listed]:
    """Yield the objects below a URL, in the store's order.

    Raises
    ------
    RemoteError
        If the store does not list them; servers of HTTP never do.
    """
    if parse(url).scheme in ("http", "https"):
        raise RemoteError(f"{shown(url)}: a server of HTTP does not list what it has. Give a list of URLs")
    for message, _ in fetcherprocess.pages({"do": "list", "url": url, "seconds": chosen(url).timeout}):
        _require(message, url)
        for name, *version in message.get("page", ()):
            yield Listed(name, Version(*version))


def fetched(message: Message, payload: bytes, url: str) -> dict[str, Any]:
    """Give the fetcher an order about an object, and return its answer; RemoteError where that is a failure."""
    answer, _ = fetcherprocess.ask(message, payload)
    _require(answer, url)
    return answer


def _get(url: str, begin: int, end: int | None, version: Version | None, settings: Settings | None) -> Message:
    seconds = (settings or chosen(url)).timeout
    return {"do": "get", "url": url, "begin": begin, "end": end, "version": version, "seconds": seconds}


def _require(answer: Message, url: str) -> None:
    if "failed" in answer:
        _refuse(answer, url)


def _refuse(answer: Message, url: str) -> NoReturn:
    raise RemoteError(f"{shown(url)}: {answer['why']}")
