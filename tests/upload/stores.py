"""Object stores on the loopback: moto's S3, an HTTP server with ETags, and a proxy that watches requests."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_MOTO = """
import logging, sys
from moto import backends
from moto.server import ThreadedMotoServer
logging.disable()
modules = list(backends.list_of_moto_modules())
backends.list_of_moto_modules = lambda: modules  # for each request it would look at each file of moto's directory
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class Moto:
    """moto's server, in a process of its own, until `close`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _MOTO],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class CutError(Exception):
    """Raised by the `watch` function of a proxy to close the connection without an answer."""


class _Server:
    """An HTTP server on the loopback, until `close`."""

    def __init__(self, answer: Callable[[_Handler, bytes], None]) -> None:
        handler = type("Handler", (_Handler,), {"answer": answer})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        # `close` waits until the server's next poll, hence a short interval.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Proxy(_Server):
    """Forwards requests to a server; calls `watch` "before" that, and "after" it, before the answer is returned.

    If `watch` returns a status "before", that is the answer, and the server gets no request. Requests are texts, such
    as "PUT /bucket/key".
    """

    def __init__(self, port: int, watch: Callable[[str, str], int | None]) -> None:
        self.watch = watch
        self.seen: list[str] = []

        super().__init__(lambda handler, body: handler.forward(self, port, body))


class FileServer(_Server):
    """An HTTP server with ranges; it has `objects` by path, with ETags. `gets` lists the paths that were read."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.gets: list[str] = []

        super().__init__(lambda handler, body: handler.serve(self))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, body: bytes) -> None:
        raise NotImplementedError

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any  # noqa: N815 - as http.server calls them

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def forward(self, proxy: Proxy, port: int, body: bytes) -> None:
        request = f"{self.command} {self.path}"
        proxy.seen.append(request)
        try:
            status = proxy.watch(request, "before")
            if status is not None:
                return self.reply(status, b"", {})
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
            proxy.watch(request, "after")
        except CutError:
            self.close_connection = True
            return None
        own = ("transfer-encoding", "connection", "content-length", "server", "date")
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in own}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length") or "0"
        return self.reply(answer.status, data, headers)

    def serve(self, server: FileServer) -> None:
        data = server.objects.get(self.path.partition("?")[0])
        if data is None:
            return self.reply(404, b"", {})
        headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "Accept-Ranges": "bytes"}
        status = 200
        if self.command == "GET":
            server.gets.append(self.path)
            if self.headers.get("If-Match") not in (None, headers["ETag"]):
                return self.reply(412, b"", {})
            if (wanted := self.headers.get("Range")) is not None:
                begin, _, end = wanted.removeprefix("bytes=").partition("-")
                first, size = int(begin), len(data)
                data, status = data[first : int(end) + 1 if end else size], 206
                headers["Content-Range"] = f"bytes {first}-{first + len(data) - 1}/{size}"
        if self.command == "HEAD":
            headers["Content-Length"] = str(len(data))
        return self.reply(status, data, headers)

    def reply(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
        except OSError:  # the client was killed
            self.close_connection = True
