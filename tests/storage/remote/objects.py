"""A server of objects on the loopback interface, which records its requests and fails on demand."""

from __future__ import annotations

import contextlib
import email.utils
import functools
import hashlib
import http.server
import re
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@functools.lru_cache(maxsize=4)
def _md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


@dataclass
class Asked:
    """A request: method, object, range of bytes and headers, and the size of the body that was sent in response."""

    method: str
    name: str
    begin: int | None
    end: int | None
    headers: dict[str, str]
    query: str = ""
    sent: int = 0


Fault = Callable[["_Handler", Asked], bool]
"""A function that answers instead of the server, or returns False."""


@dataclass
class ObjectServer:
    """Objects by name, and the requests for them.

    S3 clients can read an object as `/bucket/name`.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    modified: float = 1_700_000_000.0
    ranges: bool = True
    etags: bool = True
    port: int = 0
    delay: float = 0.0
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def sent(self, method: str = "GET") -> int:
        """Return how many bytes of bodies were sent."""
        return sum(asked.sent for asked in self.asked if asked.method == method)

    def ranges_of(self, name: str) -> list[tuple[int, int]]:
        """Return the ranges of an object that were requested."""
        return [(a.begin or 0, a.end or 0) for a in self.asked if a.name == name and a.method == "GET"]

    def etag(self, name: str) -> str:
        return f'"{_md5(self.objects[name])}"'


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        begin = int(wanted[1]) if wanted and wanted[1] else None
        end = int(wanted[2]) + 1 if wanted and wanted[2] else None
        asked = Asked(
            method, path[1:], begin, end, {name.lower(): value for name, value in self.headers.items()}, query
        )
        objects = self.server.objects
        if objects.closing.is_set():  # on a connection that was kept open
            self.close_connection = True
            return
        objects.asked.append(asked)
        if objects.delay:
            time.sleep(objects.delay)
        if any(fault(self, asked) for fault in objects.faults):
            return
        if asked.name not in objects.objects:
            self.refuse(404, "NoSuchKey")
            return
        self.give(asked)

    def refuse(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        """Answer with an error in the form of S3."""
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def give(
        self,
        asked: Asked,
        *,
        body: bytes | None = None,
        says: int | None = None,
        whole: bool = False,
        cut: bool = False,
    ) -> None:
        """Send the requested bytes, or `body` instead.

        `says` is the length in the header; `whole` ignores the range; `cut` closes the connection after the body.
        """
        objects = self.server.objects
        data, etag = objects.objects[asked.name], objects.etag(asked.name)
        if asked.headers.get("if-match", etag) != etag:
            self.refuse(412, "PreconditionFailed")
            return
        partial = asked.begin is not None and objects.ranges and not whole
        begin, end = asked.begin or 0, min(asked.end or len(data), len(data))
        part = data[begin:end] if partial else data
        if partial and begin >= len(data):
            self.refuse(416, "InvalidRange", {"Content-Range": f"bytes */{len(data)}"})
            return
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        if objects.etags:
            self.send_header("ETag", etag)
        self.send_header("Last-Modified", email.utils.formatdate(objects.modified, usegmt=True))
        self.send_header("Accept-Ranges", "bytes")
        part = part if body is None else body
        self.send_header("Content-Length", str(len(part) if says is None else says))
        self.end_headers()
        if asked.method == "GET":
            asked.sent += len(part)
            self.wfile.write(part)
        if cut:
            self.cut()

    def cut(self) -> None:
        """Reset the connection."""
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def silent(self, seconds: float) -> None:
        """Send nothing for some seconds, or until the server ends."""
        self.server.objects.closing.wait(seconds)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, objects: ObjectServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the client has gone


@contextlib.contextmanager
def serving(objects: dict[str, bytes]) -> Iterator[ObjectServer]:
    """Serve objects while a test runs."""
    served = ObjectServer(objects)
    with _Server(served) as server:
        served.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.closing.set()
            server.shutdown()
            thread.join()
