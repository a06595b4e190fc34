"""Requests ranges of objects over persistent HTTP connections, in a third of the CPU time of obstore.

Requests go directly to HTTP servers, and to S3 with URLs that obstore signs. A `Connection` handles one request at a
time and reads the body into memory that it reuses. It accepts only one kind of response: status 206 with the requested
range and its length. If a server needs more than a plain request, or sends another response, obstore makes the requests
to this server for a while.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import re
import ssl
import time
import urllib.parse
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from packer._storage.remote.obstore import CUT, StoreError
from packer._storage.remote.urls import parse, server_of
from packer.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

Host = tuple[str, int, bool]
"""A server: its name, its port, and whether it is reached by TLS."""

_LONGEST_HEAD = 1 << 14  # bytes
_STEP, _REUSED = 1 << 18, 1 << 20  # bytes of memory, allocated at the beginning and reused for the next body
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
_LENGTH = re.compile(r"\d{1,18}")
_BUSY = (408, 429)  # these, and 500 and above: the server is busy, and is not asked again immediately


class PlainRequestError(Exception):
    """A plain request is not enough; obstore, a complete client, has to make the request."""


class Response(NamedTuple):
    """A response with a range of an object.

    Attributes
    ----------
    size : int
        Bytes of the whole object.
    etag : str
    modified : int
        Nanoseconds since 1970.
    data : memoryview
        The bytes, valid until the connection is used again or released.
    """

    size: int
    etag: str
    modified: int
    data: memoryview


class Connection(asyncio.BufferedProtocol):
    """One connection, for one request at a time.

    Attributes
    ----------
    host : Host
        The server at its other end.
    last_received : float
        Time of the last received data, by the clock of the event loop.
    reusable : bool
        Whether another request may follow.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.last_received = 0.0
        self.reusable = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._begun, self._memory = bytearray(_LONGEST_HEAD), memoryview(b"")
        self._head = memoryview(self._begun)
        self._free = self._head  # where the next bytes go
        self._answer: Response | None = None  # once the head is there
        self._whole: asyncio.Future[Response] | None = None
        self._range = 0, 0
        self._keep = False

    async def ask(self, request: bytes, begin: int, end: int, seconds: float) -> Response:
        """Request the bytes `begin` to `end` - 1; return fewer bytes if the object ends before `end`.

        Raises
        ------
        ConnectionResetError
            If the connection was closed before any data arrived.
        PlainRequestError
            If the response does not fit the request.
        StoreError
            If the body is incomplete, if the server sends nothing for `seconds`, or if it is overloaded.
        """
        assert self._transport is not None
        self.reusable, self._answer, self._free = False, None, self._head
        self._range, self.last_received = (begin, end), self._loop.time()
        self._whole = self._loop.create_future()
        self._watch(seconds)
        try:
            if self._transport.is_closing():
                raise ConnectionResetError
            self._transport.write(request)
            answer = await self._whole
        except BaseException as error:
            self.close()
            if isinstance(error, StoreError):
                error.last_received = self.last_received
            raise
        finally:
            self._watching.cancel()
            self._whole = None
        self.reusable = self._keep
        return answer

    def rest(self) -> None:
        """Release a large buffer. Call this when the bytes of the response are no longer needed."""
        if len(self._memory) > _REUSED:
            self._memory = memoryview(b"")

    def close(self) -> None:
        """End the connection."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._free

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if self._whole is None or self._whole.done():  # without a request
            self.close()
            return
        self.last_received = self._loop.time()
        self._free = self._free[nbytes:]
        try:
            if self._answer is None and not self._take_head():
                return
        except (PlainRequestError, StoreError) as error:
            self._free = self._head  # room for bytes that come until the connection is closed
            self._whole.set_exception(error)
            return
        if not self._free:
            assert self._answer is not None
            self._free = self._head  # further bytes are too many
            self._whole.set_result(self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make the request that is waiting for a response fail."""
        self.reusable = False
        if self._whole is not None and not self._whole.done():
            nothing = self._answer is None and len(self._free) == len(self._head)
            self._whole.set_exception(ConnectionResetError() if nothing else StoreError("again", CUT))

    def _watch(self, seconds: float) -> None:
        """Schedule the next check for the time at which the connection would have been silent for too long."""
        left = self.last_received + seconds - self._loop.time()
        if left > 0:
            self._watching = self._loop.call_later(left, self._watch, seconds)
        elif self._whole is not None and not self._whole.done():
            self._whole.set_exception(StoreError("again", "the server did not respond"))

    def _take_head(self) -> bool:
        """Tell whether the head has arrived; if so, compare it with the request, and process the bytes after it."""
        came = self._head[: len(self._head) - len(self._free)]
        end = self._begun.find(b"\r\n\r\n", 0, len(came))
        if end < 0:
            if not self._free:
                raise PlainRequestError
            return False
        first, *lines = str(came[:end], "latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._answer = self._expected(status[:3], headers)
        size, rest = len(self._answer.data), came[end + 4 :]
        if len(rest) > size:
            raise StoreError("length", "the server sent more bytes than requested")
        self._answer.data[: len(rest)] = rest
        self._free = self._answer.data[len(rest) :]
        return True

    def _expected(self, status: str, headers: dict[str, str]) -> Response:
        """Return the response that a head announces, with memory for its bytes."""
        if status.isdecimal() and (int(status) in _BUSY or int(status) >= 500):
            raise StoreError("again", status)
        found, length = _RANGE.fullmatch(headers.get("content-range", "")), headers.get("content-length", "")
        encoded = "transfer-encoding" in headers or headers.get("content-encoding", "identity") != "identity"
        if status != "206" or found is None or _LENGTH.fullmatch(length) is None or encoded:
            raise PlainRequestError
        begin, last, size = map(int, found.groups())
        expected = min(self._range[1], size) - self._range[0]
        if begin != self._range[0] or last + 1 - begin != expected:
            raise PlainRequestError
        if int(length) != expected:
            raise StoreError(
                "length", f"the server sent {'more' if int(length) > expected else 'fewer'} bytes than requested"
            )
        return Response(
            size, headers.get("etag", ""), _time_of(headers.get("last-modified", "")), self._memory_for(expected)
        )

    def _memory_for(self, size: int) -> memoryview:
        if len(self._memory) < size:
            self._memory = memoryview(bytearray(-(-size // _STEP) * _STEP))
        return self._memory[:size]


def _time_of(date: str) -> int:
    try:
        return int(email.utils.parsedate_to_datetime(date).timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return 0


_CONNECT = 10.0  # seconds until a silent host counts as unreachable
_NOT_FOR = 60.0  # seconds for which obstore sends the requests to a server that sent another response
_SIGNED = 3600.0  # seconds for which a URL is signed; it is used for half of them
_MOST_URLS, _MOST_HOSTS = 1000, 32
_HOST = re.compile(r"[\w.:%\[\]-]+", re.ASCII)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


class _PreparedRequest(NamedTuple):
    """A request for an object, prepared without its last lines; the object's server; and when the request expires."""

    host: Host
    request: bytes
    until: float


class PlainClient:
    """Requests ranges of objects from servers, without obstore.

    Parameters
    ----------
    store_of : callable
        Takes a URL and a time limit in seconds; returns obstore's store and the object's path in it.
    """

    def __init__(self, store_of: Callable[[str, float], tuple[Any, str]]) -> None:
        self._store_of = store_of
        self._idle: dict[Host, list[Connection]] = {}
        self._known: dict[str, _PreparedRequest] = {}
        self._not_before: dict[str, float] = {}
        self._context: ssl.SSLContext | None = None
        self._proxied = _proxied()

    def may_ask(self, url: str) -> bool:
        """Tell whether an object may be fetched from its server without obstore."""
        apart = url.startswith(("gs:", "az:")) or self._proxied
        return not apart and self._not_before.get(server_of(url), 0.0) <= time.monotonic()

    def leave(self, url: str) -> None:
        """Let obstore handle the requests to an object's server for a while."""
        self._not_before[server_of(url)] = time.monotonic() + _NOT_FOR

    def forget(self) -> None:
        """Forget signatures, and settings from environment variables."""
        self._known.clear()
        self._proxied = _proxied()

    async def ask(self, url: str, begin: int, end: int, etag: str, seconds: float) -> tuple[Response, Connection]:
        """Return a range of an object, and the connection.

        After using the bytes, the caller passes the connection to `put_back`.

        Raises
        ------
        PlainRequestError
            If obstore has to make the request.
        StoreError
            For the same reasons as `Connection.ask`.
        """
        prepared = await self._prepared(url, seconds)
        match = f"If-Match: {etag}\r\n" if etag else ""
        try:
            request = prepared.request + f"Range: bytes={begin}-{end - 1}\r\n{match}\r\n".encode("latin-1")
        except UnicodeEncodeError:
            raise PlainRequestError from None
        idle = self._connections_to(prepared.host)
        while True:
            reused = idle.pop() if idle else None
            if reused is not None and not reused.reusable:
                continue
            connection = reused or await self._connected(prepared.host, seconds)
            try:
                return await connection.ask(request, begin, end, seconds), connection
            except ConnectionResetError:
                if reused is None:
                    raise PlainRequestError from None

    def put_back(self, connection: Connection) -> None:
        """Keep a connection for the next request to the same server."""
        if connection.reusable:
            connection.rest()
            self._connections_to(connection.host).append(connection)
        else:
            connection.close()

    def _connections_to(self, host: Host) -> list[Connection]:
        """Return the idle connections to a server; close those to servers without a recent request."""
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
        except (OSError, ValueError, asyncio.TimeoutError):  # such as an unknown host name; obstore reports the cause
            raise PlainRequestError from None

    async def _prepared(self, url: str, seconds: float) -> _PreparedRequest:
        found = self._known.get(url)
        if found is None or found.until < time.monotonic():
            if len(self._known) >= _MOST_URLS:
                self._known.clear()
            until = time.monotonic() + _SIGNED / 2
            web = url if url.startswith("http") else await self._signed(url, seconds)
            found = self._known[url] = _prepare(web, until)
        return found

    async def _signed(self, url: str, seconds: float) -> str:
        import obstore

        store, path = self._store_of(url, seconds)
        try:
            return await obstore.sign_async(store, "GET", path, timedelta(seconds=_SIGNED))
        except Exception:  # such as a public bucket, for which there is nothing to sign with
            raise PlainRequestError from None


def _prepare(url: str, until: float) -> _PreparedRequest:
    """Return the request for an object at an HTTP URL."""
    try:
        parts = parse(url)
        if _HOST.fullmatch(parts.host) is None:
            raise PlainRequestError
        tls = parts.scheme == "https"
        target = urllib.parse.quote(f"/{parts.key}{parts.query and '?'}{parts.query}", safe="/%?#[]@!$&'()*+,;=:~")
        lines = [f"GET {target} HTTP/1.1", f"Host: {parts.host}", "User-Agent: packer", "Accept: */*"]
        if parts.user:
            lines.append(f"Authorization: {parts.authorization()}")
        server = urllib.parse.urlsplit(f"//{parts.host}")
        host = server.hostname or "", server.port or (443 if tls else 80), tls
        return _PreparedRequest(host, "".join(f"{line}\r\n" for line in lines).encode("ascii"), until)
    except (RemoteError, ValueError):  # such as an endpoint with an empty part, or an invalid port
        raise PlainRequestError from None


def _proxied() -> bool:
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)
