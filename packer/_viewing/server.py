"""A small HTTP server for one person on one machine: bound to the loopback, with a secret in its address.

Every path begins with the secret. The name in the header ``Host`` must be the loopback's, so that no page of another
name that was made to lead here can read anything. No header lets other sites read, and the page may load nothing from
elsewhere.

Other users of the machine see with which arguments a browser is started. So it is started with an address that leads
to the page once, and only who is this user.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import socketserver
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from packer._viewing.answers import Answer, Answers
from packer._viewing.catalog import Catalog
from packer._viewing.peers import is_own
from packer.errors import DestinationError, PackerError, printable

__all__ = ["Server"]

_LOOPBACK = "127.0.0.1"
_HOSTS = (_LOOPBACK, "localhost")
_IDLE = 60.0  # seconds until a connection is closed that asks for nothing
_STRANGE = 10.0  # seconds, of one that has not shown the secret
_MOST_CONNECTIONS = 64  # at a time, each with a thread; a browser has six, and strangers give way to it
_PATIENCE = 20.0  # seconds until what is under way is waited for no longer
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Serves the page, and what it asks for.

    Parameters
    ----------
    catalog : Catalog
    port : int
        0 for any that is free.

    Attributes
    ----------
    address : str
        Where the page is, with the secret.
    door : str
        An address that leads to the page, once: for the arguments of a browser.

    Raises
    ------
    DestinationError
        If the port is taken, or not for this user.
    """

    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = os.name != "nt"  # where it would let another server take this one's requests

    def __init__(self, catalog: Catalog, port: int = 0) -> None:
        self.secret = secrets.token_urlsafe(24)
        self._once = secrets.token_urlsafe(24)
        self.catalog, self.ways = catalog, Answers(catalog).ways
        self._open: dict[Any, bool] = {}  # connections, the oldest first, and which of them have shown the secret
        self._opening = threading.Lock()
        self._changed, self._under_way, self._ends = threading.Condition(), 0, False
        self.pages = _page_files()
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            why = f"port {port} of {_LOOPBACK} cannot be had: {error.strerror}"
            raise DestinationError(f"{why}. Without --port any free one is taken") from error

    def server_bind(self) -> None:
        """Bind, without asking any name server who this is."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/{self.secret}/"

    @property
    def door(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/{self._once}/"

    def opens(self, key: str, client: tuple[str, int]) -> bool:
        """Tell whether a key opens the door, which it does once, for a process of this user."""
        with self._opening:
            if not _same(key, self._once) or not is_own(client, (_LOOPBACK, self.server_port)):
                return False
            self._once = ""
            return True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own. Where there are too many connections, the stranger that came first goes."""
        with self._opening:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next((one for one, known in self._open.items() if not known), request)
                self._open.pop(oldest, None)
                with contextlib.suppress(OSError):  # it may have gone by itself
                    oldest.shutdown(socket.SHUT_RDWR)  # which wakes its thread
                if oldest is request:
                    self.shutdown_request(request)
                    return
            self._open[request] = False
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread can be started
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and let another connection in."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def welcome(self, request: Any) -> None:
        """Let a connection stay that has shown the secret."""
        with self._opening:
            if request in self._open:
                self._open[request] = True

    def _forget(self, request: Any) -> None:
        with self._opening:
            self._open.pop(request, None)

    @contextlib.contextmanager
    def question(self) -> Iterator[None]:
        """Count a question that is under way; PackerError where no more are answered."""
        with self._changed:
            if self._ends:
                raise PackerError("the viewer ends")
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def server_close(self) -> None:
        """Close, when what is under way has ended: a process that ends while images are decoded is aborted."""
        with self._changed:
            self._ends = True
            self._changed.wait_for(lambda: not self._under_way, _PATIENCE)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections: a browser that is closed breaks them off."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "packer", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together
    timeout = _STRANGE
    server: Server

    def do_GET(self) -> None:
        """Answer, or refuse."""
        self._send(*self._answer())

    def do_HEAD(self) -> None:
        """Answer without a body."""
        self._send(*self._answer())

    def _answer(self) -> tuple[HTTPStatus, Answer]:
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _said(error)
        secret, _, what = parts.path.removeprefix("/").partition("/")
        if self._host_is_ours() and not what and self.server.opens(secret, self.client_address):
            return HTTPStatus.SEE_OTHER, _said("The page is elsewhere")
        if not self._host_is_ours() or not _same(secret, self.server.secret):
            self.close_connection = True
            return HTTPStatus.FORBIDDEN, _said("This address is no address of packer's viewer: take the one it printed")
        self.server.welcome(self.connection)
        self.connection.settimeout(_IDLE)
        if what.startswith("ask/"):
            return self._asked(what.removeprefix("ask/"), dict(parse_qsl(parts.query)))
        page = self.server.pages.get(unquote(what) or "index.html")
        return (HTTPStatus.OK, page) if page else (HTTPStatus.NOT_FOUND, _said("There is no such page"))

    def _host_is_ours(self) -> bool:
        name, _, port = self.headers.get("Host", "").partition(":")
        return name in _HOSTS and (port.isdecimal() or not port)

    def _asked(self, name: str, wanted: dict[str, str]) -> tuple[HTTPStatus, Answer]:
        if name not in self.server.ways:
            return HTTPStatus.NOT_FOUND, _said("There is no such question")
        try:
            with self.server.question():
                self.server.catalog.require_tables()
                return HTTPStatus.OK, self.server.ways[name](wanted)
        except IndexError as error:
            return HTTPStatus.NOT_FOUND, _said(error)
        except (ValueError, OverflowError) as error:  # OptionError too; a number that is far too large
            return HTTPStatus.BAD_REQUEST, _said(error)
        except (PackerError, OSError) as error:
            return HTTPStatus.UNPROCESSABLE_ENTITY, _said(error)
        except Exception as error:  # such as no memory: the page says so, and the others go on
            return HTTPStatus.INTERNAL_SERVER_ERROR, _said(f"{type(error).__name__}: {error}")

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.SEE_OTHER:
            self.send_header("Location", self.server.address)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""


def _same(key: str, secret: str) -> bool:
    """Compare in a time that says nothing of the secret; an empty one is no key's."""
    return bool(secret) and hmac.compare_digest(key.encode(), secret.encode())


def _said(message: object) -> Answer:
    return Answer("application/json", json.dumps({"error": printable(message)}).encode("ascii"))


def _page_files() -> dict[str, Answer]:
    """Return the files of the page, by name."""
    found = {}
    for file in resources.files("packer._viewing").joinpath("page").iterdir():
        suffix = os.path.splitext(file.name)[1]
        if suffix in _TYPES:
            found[file.name] = Answer(_TYPES[suffix], file.read_bytes())
    return found
