"""Ranges of objects over kept connections: what obstore does as well, at three times the cost of a processor.

Servers of HTTP are asked by themselves, and S3 by URLs that obstore signs. Where a server wants more than a plain
request, or gives another answer, obstore asks in place of this for a while.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import time
import urllib.parse
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from packer._storage.remote.connection import Answer, Connection, Host, UnplainError
from packer._storage.remote.urls import parse
from packer.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Plain"]

_CONNECT = 10.0  # seconds until a host that says nothing counts as one that is not there
_NOT_FOR = 60.0  # seconds for which obstore asks a server that gave another answer
_SIGNED = 3600.0  # seconds for which a URL is signed; it is used for half of them
_MOST_URLS, _MOST_HOSTS = 1000, 32
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class _Where(NamedTuple):
    """An object: its server's name, port and whether by TLS; a request without its end; until when it is right."""

    host: Host
    request: bytes
    until: float


class Plain:
    """Asks servers by itself.

    Parameters
    ----------
    store_of : callable
        Given a URL and seconds, returns the store of obstore's and the object's path there.
    """

    def __init__(self, store_of: Callable[[str, float], tuple[Any, str]]) -> None:
        self._store_of = store_of
        self._idle: dict[Host, list[Connection]] = {}
        self._known: dict[str, _Where] = {}
        self._not_before: dict[str, float] = {}
        self._context: ssl.SSLContext | None = None
        self._proxied = _proxied()

    def may_ask(self, url: str) -> bool:
        """Tell whether an object's server is asked by itself."""
        apart = url.startswith(("gs:", "az:")) or self._proxied
        return not apart and self._not_before.get(_server(url), 0.0) <= time.monotonic()

    def leave(self, url: str) -> None:
        """Have obstore ask an object's server for a while."""
        self._not_before[_server(url)] = time.monotonic() + _NOT_FOR

    def forget(self) -> None:
        """Forget what was signed, and what the environment said."""
        self._known.clear()
        self._proxied = _proxied()

    async def ask(self, url: str, begin: int, end: int, etag: str, seconds: float) -> tuple[Answer, Connection]:
        """Return a range of an object, and the connection, which `put_back` takes once the bytes were used.

        Raises
        ------
        UnplainError
            If obstore has to ask.
        StoreError
            As `Connection.ask`.
        """
        where = await self._where(url, seconds)
        match = f"If-Match: {etag}\r\n" if etag else ""
        try:
            request = where.request + f"Range: bytes={begin}-{end - 1}\r\n{match}\r\n".encode("latin-1")
        except UnicodeEncodeError:
            raise UnplainError from None
        idle = self._connections_to(where.host)
        while True:
            kept = idle.pop() if idle else None
            if kept is not None and not kept.reusable:
                continue
            connection = kept or await self._connected(where.host, seconds)
            try:
                return await connection.ask(request, begin, end, seconds), connection
            except ConnectionResetError:
                if kept is None:
                    raise UnplainError from None

    def put_back(self, connection: Connection) -> None:
        """Keep a connection for the next request to its server, which an object's URL may not lead to any more."""
        if connection.reusable:
            connection.rest()
            self._connections_to(connection.host).append(connection)
        else:
            connection.close()

    def _connections_to(self, host: Host) -> list[Connection]:
        """Return the connections to a server that are not in use; those to servers that were asked long ago end."""
        idle = self._idle[host] = self._idle.pop(host, [])
        while len(self._idle) > _MOST_HOSTS:
            for connection in self._idle.pop(next(iter(self._idle))):
                connection.close()
        return idle

    async def _connected(self, host: Host, seconds: float) -> Connection:
        name, port, tls = host
        if tls and self._context is None:
            self._context = ssl.create_default_context()
        opening = asyncio.get_running_loop().create_connection(
            lambda: Connection(host), name, port, ssl=self._context if tls else None
        )
        try:
            return (await asyncio.wait_for(opening, min(seconds, _CONNECT)))[1]
        except (OSError, ValueError, asyncio.TimeoutError):  # such as a name that is none; obstore says what is wrong
            raise UnplainError from None

    async def _where(self, url: str, seconds: float) -> _Where:
        found = self._known.get(url)
        if found is None or found.until < time.monotonic():
            if len(self._known) >= _MOST_URLS:
                self._known.clear()
            until = time.monotonic() + _SIGNED / 2
            web = url if url.startswith("http") else await self._signed(url, seconds)
            found = self._known[url] = _where_of(web, until)
        return found

    async def _signed(self, url: str, seconds: float) -> str:
        import obstore

        store, path = self._store_of(url, seconds)
        try:
            return await obstore.sign_async(store, "GET", path, timedelta(seconds=_SIGNED))
        except Exception:  # such as a public bucket, for which there is nothing to sign with
            raise UnplainError from None


def _where_of(url: str, until: float) -> _Where:
    """Return where an object is, by a URL of HTTP."""
    try:
        place = parse(url)
        if _HOST.fullmatch(place.host) is None:
            raise UnplainError
        tls = place.scheme == "https"
        target = urllib.parse.quote(f"/{place.key}{place.query and '?'}{place.query}", safe="/%?#[]@!$&'()*+,;=:~")
        lines = [f"GET {target} HTTP/1.1", f"Host: {place.host}", "User-Agent: packer", "Accept: */*"]
        if place.user:
            word = base64.b64encode(urllib.parse.unquote_to_bytes(place.user)).decode()
            lines.append(f"Authorization: Basic {word}")
        server = urllib.parse.urlsplit(f"//{place.host}")
        host = server.hostname or "", server.port or (443 if tls else 80), tls
        return _Where(host, "".join(f"{line}\r\n" for line in lines).encode("ascii"), until)
    except (RemoteError, ValueError):  # such as an endpoint with an empty part, no port, what is no text
        raise UnplainError from None


def _proxied() -> bool:
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)


def _server(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])
