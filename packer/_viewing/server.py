"""The viewer's HTTP server for one user on one machine: bound to the loopback interface, with a secret in its URL.

Every path begins with the secret. The header ``Host`` must name the loopback, so that a site whose name resolves to the
loopback (DNS rebinding) cannot read anything. No response header allows other sites to read a response, and the page
cannot load anything from other sites. Other users of the machine can see the arguments of a browser. So a browser is
started with a URL that opens the page only once, and only for a process of this user. Linux reports which user has
opened a connection on the loopback.

Responses are JSON, pictures, and sheets of many pictures. A sheet has three parts: the length of its head, a
little-endian uint32; the head, a JSON list with an entry for each picture; and the pictures, one after the other. An
entry has the size of its JPEG in bytes under ``picture``.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import math
import os
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from packer._datasets.description import Picture
from packer._display import legible
from packer._images.jpeg_tiles import read_tiles
from packer._images.probe import inspect
from packer._manifest import TILED
from packer._viewing.catalog import Catalog, DamageLog, find_duplicates
from packer._viewing.finder import ORDERS, Finder, Query
from packer._viewing.histograms import draw, histograms
from packer._viewing.pictures import Pictures, annotations_of, further_image, mask_picture
from packer.crops import RandomResizedCrop
from packer.errors import CorruptPackError, DestinationError, ImageError, PackerError, PackError, printable

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT = 0  # this user can read everything anyway, and forwards other users' connections, such as from Windows to WSL
_LOCAL, _REMOTE, _OWNER = 1, 2, 7  # columns of the tables: both addresses of a connection, and its user


def is_own(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Tell whether a connection comes from a process of this user.

    Parameters
    ----------
    client, server : (str, int)
        IPv4 address and port of the two ends of the connection.

    Returns
    -------
    bool
        True if the connection comes from this user, or if the system has no tables of connections.
    """
    ends = _spelled(*client), _spelled(*server)
    tables = [table for table in _TABLES if os.access(table, os.R_OK)]
    for table in tables:
        for line in table.read_text("ascii", "replace").splitlines()[1:]:
            columns = line.split()
            # An IPv6 address that represents an IPv4 address ends with it.
            if columns[_LOCAL].endswith(ends[0]) and columns[_REMOTE].endswith(ends[1]):
                return int(columns[_OWNER]) in (_ROOT, os.geteuid())
    return not tables


def _spelled(address: str, port: int) -> str:
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"


_MOST_PICTURES = 240
_SIDES = (16, 4096)
_MOST_PIXELS = 1 << 26  # most pixels of a sheet
_MOST_EPOCHS, _LARGEST_CROP = 64, 1024
_MOST_LISTED = 1000
_SECONDS_OF_READING = 0.3  # the time for which a request reads samples
_CHECKED_AT_ONCE = 16

Parameters = Mapping[str, str]
"""The parameters of a URL."""


class Payload(NamedTuple):
    """The body of a response, and its media type."""

    type: str
    body: bytes


class Endpoints:
    """The server's endpoints for queries about the samples of packs; many threads can use them at once.

    Parameters
    ----------
    catalog : Catalog
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._damage = DamageLog(len(catalog))
        self._finder = Finder(catalog, self._damage)
        self._pictures = Pictures(catalog)
        self._once = threading.Lock()
        self.routes: dict[str, Callable[[Parameters], Payload]] = {
            "packs": self._packs,
            "found": self._found,
            "category": self._category,
            "sheet": self._sheet,
            "sample": self._sample,
            "image": self._image,
            "field": self._field,
            "crops": self._crops,
            "histograms": self._histograms,
            "duplicates": self._duplicates,
            "check": self._check,
        }
        """The function of each endpoint, by the endpoint's name in the URL."""

    def _packs(self, parameters: Parameters) -> Payload:
        catalog = self._catalog
        pairs = zip(catalog.classes, catalog.class_counts, strict=False)
        return _json(
            {
                "title": catalog.title,
                "paths": catalog.paths,
                "count": len(catalog),
                "facts": catalog.facts(),
                "labels": catalog.label_type,
                "classes": [{"name": legible(name), "count": count} for name, count in pairs],
                "unlabeled": catalog.unlabeled,
                "fields": [
                    {"name": one.name, "kind": one.kind, "category": one.name in catalog.categories}
                    for one in catalog.fields.values()
                ],
                "orders": ORDERS[1:],
                "kept": all(reader.manifest.codec == "keep" for reader in catalog.readers),
                "findings": [(legible(name), count) for name, count in catalog.findings()[:_MOST_LISTED]],
                "leftOut": [(legible(name), legible(reason)) for name, reason in catalog.left_out()[:_MOST_LISTED]],
                "leftOutCount": len(catalog.left_out()),
            }
        )

    def _found(self, parameters: Parameters) -> Payload:
        found = self._finder.find(_query(parameters), _SECONDS_OF_READING)
        return _json({"count": found.count, "complete": found.complete, "unread": found.unread})

    def _category(self, parameters: Parameters) -> Payload:
        found = self._finder.categories(parameters.get("field", ""), _SECONDS_OF_READING)
        listed = found.counts[:_MOST_LISTED]
        return _json({"counts": listed, "more": len(found.counts) - len(listed), "unread": found.unread})

    def _sheet(self, parameters: Parameters) -> Payload:
        count = min(_number(parameters, "count", 60), _MOST_PICTURES)
        indices = self._finder.find(_query(parameters)).part(_number(parameters, "start"), count)
        side = min(_side(parameters), math.isqrt(_MOST_PIXELS // max(len(indices), 1)))
        pictures = self._pictures.small(indices, side)
        entries = [{**self._properties(one.index), "error": one.error, "picture": len(one.jpeg)} for one in pictures]
        if parameters.get("fields"):
            for entry, one in zip(entries, pictures, strict=True):
                entry["fields"] = [] if one.error else annotations_of(self._catalog, one.index)
        self._log_damage(pictures)
        return _sheet_of(entries, [one.jpeg for one in pictures])

    def _log_damage(self, pictures: Iterable[Picture]) -> None:
        for one in pictures:
            if one.is_damaged:
                self._damage.add(one.index, one.error)

    def _properties(self, index: int) -> dict[str, Any]:
        """Return the properties of a sample that are in the pack's table."""
        catalog = self._catalog
        pack, row = catalog.locate(index)
        table = catalog.readers[pack].table
        return {
            "index": index,
            "name": catalog.name(index),
            "label": catalog.label(index),
            "width": int(table.width[row]),
            "height": int(table.height[row]),
            "size": int(table.size[row]),
        }

    def _sample(self, parameters: Parameters) -> Payload:
        catalog, index = self._catalog, _number(parameters, "index")
        pack, row = catalog.locate(index)
        reader = catalog.readers[pack]
        crc = f"{int(reader.table.crc32c[row]):08x}" if reader.has_checksums else ""
        number = int(catalog.labels[index]) if catalog.label_type == "class" else None
        about: dict[str, Any] = {**self._properties(index), "number": number, "crc32c": crc}
        about |= {"pack": catalog.paths[pack], "row": row, "codec": reader.manifest.codec, "error": "", "findings": []}
        try:
            data = reader.read(row)
            if reader.manifest.codec != "raw":
                held = inspect(data)
                about |= {"type": held.kind, "findings": [name for name in held.findings if name != TILED]}
                about["tiles"] = _tiles(data) if held.kind == "jpeg" else None
        except (PackError, ImageError) as error:
            about["error"] = legible(str(error))
            if isinstance(error, CorruptPackError | ImageError):
                self._damage.add(index, about["error"])
        return _json({**about, "fields": annotations_of(catalog, index)})

    def _image(self, parameters: Parameters) -> Payload:
        picture = self._pictures.whole(_number(parameters, "index"), _side(parameters))
        self._log_damage([picture])
        return _sheet_of([{"error": picture.error, "picture": len(picture.jpeg)}], [picture.jpeg])

    def _field(self, parameters: Parameters) -> Payload:
        arguments = self._catalog, _number(parameters, "index"), parameters.get("name", ""), _side(parameters)
        with self._pictures.turn:
            if parameters.get("as") == "mask":
                return Payload("image/png", mask_picture(*arguments))
            return Payload("image/jpeg", further_image(*arguments))

    def _crops(self, parameters: Parameters) -> Payload:
        size, first = _number(parameters, "size", 224), _number(parameters, "epoch")
        crop = RandomResizedCrop(
            min(size, _LARGEST_CROP), scale=(_real(parameters, "least", 0.08), _real(parameters, "most", 1.0))
        )
        epochs = range(first, first + min(_number(parameters, "epochs", 8), _MOST_EPOCHS))
        cuts = self._pictures.cuts(_number(parameters, "index"), crop, _number(parameters, "seed"), epochs)
        entries = [{**asdict(cut), "jpeg": "", "picture": len(cut.jpeg)} for cut in cuts]
        return _sheet_of(entries, [cut.jpeg for cut in cuts])

    def _histograms(self, parameters: Parameters) -> Payload:
        found = histograms(self._catalog, self._finder.find(_query(parameters)).indices)
        return _json([{"measure": one.measure, "svg": draw(one)} for one in found])

    def _duplicates(self, parameters: Parameters) -> Payload:
        with self._once:
            return self._all_duplicates

    @functools.cached_property
    def _all_duplicates(self) -> Payload:
        return _json(asdict(find_duplicates(self._catalog)))

    def _check(self, parameters: Parameters) -> Payload:
        """Read and decode samples for a fraction of a second, from sample `start` on; without `start`, read none.

        Return the damaged samples and the findings known so far, and the number of samples read.
        """
        total, findings = len(self._catalog), self._finder.findings
        start = _number(parameters, "start", total)
        if "start" in parameters:
            findings.advance(_SECONDS_OF_READING)
        everything, until = self._finder.find(Query()), time.monotonic() + _SECONDS_OF_READING
        while start < total and time.monotonic() < until:
            self._log_damage(self._pictures.small(everything.part(start, _CHECKED_AT_ONCE), _SIDES[0]))
            start += _CHECKED_AT_ONCE
        count, reasons = self._damage.listed()
        damaged = [{"index": index, "error": error} for index, error in reasons]
        found = [(legible(name), number) for name, number in findings.counts().items()]
        return _json(
            {
                "next": min(start, total),
                "damaged": damaged,
                "count": count,
                "findings": sorted(found, key=lambda one: -one[1])[:_MOST_LISTED],
                "unread": findings.unread,
            }
        )


_CATEGORY = "in."
"""The prefix of the parameters that select by category: ``in.FIELD=CLASS``."""


def _query(parameters: Parameters) -> Query:
    """Parse a query from the parameters of a URL."""
    label = parameters.get("class", "")
    return Query(
        label=int(label) if label else None,
        name=parameters.get("name", ""),
        condition=parameters.get("where", ""),
        measure=parameters.get("measure", ""),
        low=_real(parameters, "low", float("-inf")),
        high=_real(parameters, "high", float("inf")),
        finding=parameters.get("finding", ""),
        categories=tuple(
            (name.removeprefix(_CATEGORY), value) for name, value in parameters.items() if name.startswith(_CATEGORY)
        ),
        order=parameters.get("order", ""),
    )


def _number(parameters: Parameters, name: str, default: int = 0) -> int:
    number = int(parameters.get(name) or default)
    if number < 0:
        raise ValueError(f"{name} must be 0 or more, not {number}")
    return number


def _real(parameters: Parameters, name: str, default: float) -> float:
    return float(parameters.get(name) or default)


def _side(parameters: Parameters) -> int:
    return min(max(_number(parameters, "side", 256), _SIDES[0]), _SIDES[1])


def _tiles(data: Any) -> dict[str, int] | None:
    """Return the tile grid of a JPEG; None if the JPEG is not tiled."""
    tiles = read_tiles(data)
    return None if tiles is None else tiles.grid._asdict()


def _json(value: object) -> Payload:
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return Payload("application/json", text.encode("ascii"))


def _sheet_of(entries: list[dict[str, Any]], pictures: list[bytes]) -> Payload:
    """Return pictures and their entries as a sheet; see the module's docstring."""
    head = _json(entries).body
    return Payload("application/octet-stream", b"".join([len(head).to_bytes(4, "little"), head, *pictures]))


_LOOPBACK = "127.0.0.1"
_HOSTS = (_LOOPBACK, "localhost")
_IDLE = 60.0  # seconds until an idle connection is closed
_UNKNOWN_IDLE = 10.0  # seconds until an idle connection that has not shown the secret is closed
_MOST_CONNECTIONS = 64  # each has a thread; a browser opens six. Connections without the secret are closed for more
_PATIENCE = 20.0  # seconds that closing the server waits for running requests
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'"
_NOTEBOOKS = "http://127.0.0.1:* http://localhost:* https://127.0.0.1:* https://localhost:* vscode-webview:"
"""The sources of pages that may embed a viewer that was started in a notebook."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingHTTPServer):
    """Serves the page and its requests.

    Parameters
    ----------
    catalog : Catalog
    port : int
        The port; 0 for any free port.
    framed : bool
        Whether notebooks in VS Code, or served from the loopback, may show the page in a frame.

    Attributes
    ----------
    address : str
        The URL of the page, with the secret.
    door : str
        A URL that opens the page only once, to be passed to a browser as an argument.

    Raises
    ------
    DestinationError
        If the port is taken, or this user may not use it.
    """

    daemon_threads = True
    request_queue_size = 64
    allow_reuse_address = os.name != "nt"  # on Windows, True would let another server take this server's requests

    def __init__(self, catalog: Catalog, port: int = 0, *, framed: bool = False) -> None:
        self.ancestors = _NOTEBOOKS if framed else "'none'"
        self.secret = secrets.token_urlsafe(24)
        self._once = secrets.token_urlsafe(24)
        self.catalog, self.routes = catalog, Endpoints(catalog).routes
        self._open: dict[Any, bool] = {}  # for each connection, the oldest first, whether it has sent the secret
        self._opening = threading.Lock()
        self._changed, self._running, self._is_closing = threading.Condition(), 0, False
        self.pages = _page_files()
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            why = f"port {port} of {_LOOPBACK} is not available: {error.strerror}"
            raise DestinationError(f"{why}. Without --port packer uses any free port") from error

    def server_bind(self) -> None:
        """Bind the socket, without asking a name server for the name of this machine."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = _LOOPBACK, self.server_address[1]

    @property
    def address(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/{self.secret}/"

    @property
    def door(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/{self._once}/"

    def opens(self, key: str, client: tuple[str, int]) -> bool:
        """Tell whether a key opens the page. The right key opens it only once, for a process of this user."""
        with self._opening:
            if not _same(key, self._once) or not is_own(client, (_LOOPBACK, self.server_port)):
                return False
            self._once = ""
            return True

    def process_request(self, request: Any, client_address: Any) -> None:
        """Respond in a new thread. If there are too many connections, close the oldest that has not sent the secret."""
        with self._opening:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next((one for one, known in self._open.items() if not known), request)
                self._open.pop(oldest, None)
                with contextlib.suppress(OSError):  # the client may have closed it
                    oldest.shutdown(socket.SHUT_RDWR)  # wakes the connection's thread
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
        """Respond, and then remove the connection from the count of open ones."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def welcome(self, request: Any) -> None:
        """Mark a connection that has sent the secret, so that it is not closed in favour of a new one."""
        with self._opening:
            if request in self._open:
                self._open[request] = True

    def _forget(self, request: Any) -> None:
        with self._opening:
            self._open.pop(request, None)

    @contextlib.contextmanager
    def running_request(self) -> Iterator[None]:
        """Count a request as running during the ``with`` block; PackerError if the server is closing."""
        with self._changed:
            if self._is_closing:
                raise PackerError("the viewer is closing")
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def server_close(self) -> None:
        """Close when running requests have ended, because a process that exits while it decodes images is aborted."""
        with self._changed:
            self._is_closing = True
            self._changed.wait_for(lambda: not self._running, _PATIENCE)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections, because closing a browser causes them."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "packer", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # writes are buffered, so that head and body are sent together
    timeout = _UNKNOWN_IDLE
    server: Server

    def do_GET(self) -> None:
        """Respond to a request, or refuse it."""
        self._send(*self._response())

    def do_HEAD(self) -> None:
        """Respond without a body."""
        self._send(*self._response())

    def _response(self) -> tuple[HTTPStatus, Payload]:
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _message(error)
        secret, _, what = parts.path.removeprefix("/").partition("/")
        if self._host_is_ours() and not what and self.server.opens(secret, self.client_address):
            return HTTPStatus.SEE_OTHER, _message("The page has another address")
        if not self._host_is_ours() or not _same(secret, self.server.secret):
            self.close_connection = True
            return HTTPStatus.FORBIDDEN, _message(
                "This is not an address of packer's viewer: use the address that it printed"
            )
        self.server.welcome(self.connection)
        self.connection.settimeout(_IDLE)
        if what.startswith("ask/"):
            return self._call_endpoint(what.removeprefix("ask/"), dict(parse_qsl(parts.query, keep_blank_values=True)))
        page = self.server.pages.get(unquote(what) or "index.html")
        return (HTTPStatus.OK, page) if page else (HTTPStatus.NOT_FOUND, _message("There is no such page"))

    def _host_is_ours(self) -> bool:
        name, _, port = self.headers.get("Host", "").partition(":")
        return name in _HOSTS and (port.isdecimal() or not port)

    def _call_endpoint(self, name: str, parameters: dict[str, str]) -> tuple[HTTPStatus, Payload]:
        if name not in self.server.routes:
            return HTTPStatus.NOT_FOUND, _message("There is no such request")
        try:
            with self.server.running_request():
                self.server.catalog.require_tables()
                return HTTPStatus.OK, self.server.routes[name](parameters)
        except IndexError as error:
            return HTTPStatus.NOT_FOUND, _message(error)
        except (ValueError, OverflowError) as error:  # including OptionError, and numbers that are far too large
            return HTTPStatus.BAD_REQUEST, _message(error)
        except (PackerError, OSError) as error:
            return HTTPStatus.UNPROCESSABLE_ENTITY, _message(error)
        except Exception as error:  # for example a lack of memory: the page shows the error, and the server continues
            return HTTPStatus.INTERNAL_SERVER_ERROR, _message(f"{type(error).__name__}: {error}")

    def _send(self, status: HTTPStatus, answer: Payload) -> None:
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{_POLICY}; frame-ancestors {self.server.ancestors}")
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
        """Do not log requests."""


def _same(key: str, secret: str) -> bool:
    """Compare two keys in constant time; an empty key never matches."""
    return bool(secret) and hmac.compare_digest(key.encode(), secret.encode())


def _message(message: object) -> Payload:
    return Payload("application/json", json.dumps({"error": printable(message)}).encode("ascii"))


def _page_files() -> dict[str, Payload]:
    """Return the files of the page, by name."""
    found = {}
    for file in resources.files("packer._viewing").joinpath("page").iterdir():
        suffix = os.path.splitext(file.name)[1]
        if suffix in _TYPES:
            found[file.name] = Payload(_TYPES[suffix], file.read_bytes())
    return found
