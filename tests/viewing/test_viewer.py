"""`packer.view` serves a page from Python, which only the page of a notebook may embed."""

from __future__ import annotations

import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._viewing.catalog import open_catalog
from tests.command import python
from tests.viewing.conftest import COUNT


def get(url: str) -> tuple[dict[str, str], bytes]:
    with urllib.request.urlopen(url, timeout=20) as page:
        return dict(page.headers), page.read()


def test_a_viewer_serves_its_page_until_it_is_closed(pack: Path) -> None:
    with packer.view(pack, browser=False) as viewer:
        assert viewer.url.startswith("http://127.0.0.1:")
        headers, page = get(viewer.url)
        assert b"<html" in page
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]  # this process is not a notebook
        assert f'"count":{COUNT}'.encode() in get(f"{viewer.url}ask/packs")[1]
        assert viewer.url in repr(viewer)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(viewer.url.rpartition("/")[0][:-1] + "/")
    with pytest.raises(urllib.error.URLError):
        get(viewer.url)
    assert repr(viewer).endswith("closed")
    assert "iframe" not in viewer._repr_html_().partition("</style>")[2]
    viewer.close()  # again


def test_a_browser_is_opened_with_an_address_that_leads_to_the_page_once(pack: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    opener = tmp_path / "browser.py"
    opener.write_text(
        "import pathlib, sys, urllib.request\n"
        "with urllib.request.urlopen(sys.argv[1], timeout=20) as page:\n"
        f"    pathlib.Path({str(seen)!r}).write_text(sys.argv[1] + ' ' + page.url)\n"
    )
    code = (
        f"import pathlib, time, packer\nviewer, seen = packer.view({str(pack)!r}), pathlib.Path({str(seen)!r})\n"
        "until = time.monotonic() + 30\n"
        "while not (seen.exists() and seen.read_text()) and time.monotonic() < until: time.sleep(0.05)\n"
        "print(viewer.url)"
    )
    done = python(code, environment=os.environ | {"BROWSER": f"{sys.executable} {opener} %s"})
    assert done.stderr == ""
    door, page = seen.read_text().split()
    assert page == done.stdout.strip() != door


def test_many_viewers_close_the_oldest(pack: Path) -> None:
    viewers = [packer.view(pack, browser=False) for _ in range(9)]
    with pytest.raises(urllib.error.URLError):
        get(viewers[0].url)
    assert b"<html" in get(viewers[1].url)[1]
    for viewer in viewers:
        viewer.close()


def test_wrong_arguments_leave_nothing_open(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(packer.PackNotFoundError):
        packer.view(tmp_path / "missing.lmdb")
    with pytest.raises(packer.OptionError, match="port must be 1 or more"):
        packer.view(pack, port=0)
    with packer.view(pack, browser=False) as viewer, pytest.raises(packer.DestinationError, match="is not available"):
        packer.view(pack, port=int(viewer.url.split(":")[2].split("/")[0]), browser=False)


class _Notebook(BaseHTTPRequestHandler):
    """A page that contains the HTML of a viewer, like a notebook."""

    content = ""

    def do_GET(self) -> None:
        body = self.content.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request."""


@pytest.fixture
def notebook() -> Iterator[tuple[type[_Notebook], int]]:
    handler = type("Notebook", (_Notebook,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield handler, server.server_address[1]
        server.shutdown()


def page_within(browser: Any, viewer: packer.Viewer, address: str) -> str:
    """Return the text of the viewer's page embedded in another page; empty if the browser refuses to embed it."""
    page = browser.new_page()
    page.goto(address, wait_until="load")
    frame = page.frame(url=viewer.url)
    text = "" if frame is None else frame.locator("body").inner_text(timeout=20_000)
    page.close()
    return str(text)


@pytest.mark.parametrize("framed", [True, False])
def test_only_a_notebook_on_the_loopback_has_the_page_within_its_own(
    pack: Path, browser: Any, notebook: tuple[type[_Notebook], int], framed: bool
) -> None:
    handler, port = notebook
    with packer.Viewer(open_catalog([pack]), framed=framed) as viewer:
        handler.content = f"<!doctype html><body>{viewer._repr_html_()}</body>"
        for host, is_notebook in (("localhost", True), ("127.0.0.1", True), ("other.localhost", False)):
            shown = page_within(browser, viewer, f"http://{host}:{port}/")
            assert ("Duplicates" in shown) == (framed and is_notebook), (host, shown)
