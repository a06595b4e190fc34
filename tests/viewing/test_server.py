"""The viewer's server, without a browser: who is let in, what is answered, how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from click.testing import CliRunner

import packer
from packer._cli import cli
from packer._viewing.catalog import open_catalog
from packer._viewing.server import Server
from tests.command import packer_started
from tests.viewing.conftest import COUNT, DAMAGED, SCRIPT, serving


def answer(
    server: Server, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request(method, path, headers=headers or {})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def asked(server: Server, what: str, status: int = 200) -> bytes:
    response, body = answer(server, f"/{server.secret}/ask/{what}")
    assert response.status == status, body
    return body


def sheet(body: bytes) -> tuple[list[dict[str, object]], bytes]:
    length = int.from_bytes(body[:4], "little")
    return json.loads(body[4 : 4 + length]), body[4 + length :]


@pytest.mark.parametrize("path", ["/", "/viewer.js", "/{}x/", "/x/{}/", "/ask/packs", "/%00/ask/packs", "/é/"])
def test_nobody_is_let_in_without_the_secret(server: Server, path: str) -> None:
    response, body = answer(server, quote(path.format(server.secret), safe="/%"))
    assert response.status == 403
    assert b"packer" in body
    assert b"Photo" not in body


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost:x"])
def test_no_other_name_of_this_machine_is_answered(server: Server, host: str) -> None:
    response, _ = answer(server, f"/{server.secret}/", headers={"Host": host})
    assert response.status == 403


def test_the_headers_allow_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", f"/{server.secret}/", f"/{server.secret}/ask/packs"):
        response, _ = answer(server, path, headers={"Origin": "http://evil.example"})
        assert response.getheader("Content-Security-Policy", "").startswith("default-src 'self'")
        assert response.getheader("X-Content-Type-Options") == "nosniff"
        assert response.getheader("Referrer-Policy") == "no-referrer"
        assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control")]
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.secret) >= 32


def test_a_page_and_its_files_come_over_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.connect()
    connection.auto_open = 0  # a request after the server closed the connection raises NotConnected
    for name, kind in {
        "": "text/html",
        "viewer.js": "text/javascript",
        "viewer.css": "text/css",
        "icon.svg": "image/svg",
    }.items():
        connection.request("GET", f"/{server.secret}/{name}")
        response = connection.getresponse()
        assert response.status == 200
        assert response.getheader("Content-Type", "").startswith(kind)
        assert len(response.read()) > 100
    connection.request("HEAD", f"/{server.secret}/")
    assert connection.getresponse().read() == b""
    connection.close()
    for path in ("../server.py", "%2e%2e/server.py", "nothing.js", "ask/nothing"):
        assert answer(server, f"/{server.secret}/{path}")[0].status == 404
    assert answer(server, f"/{server.secret}/", "POST")[0].status == 501


def test_a_sheet_has_the_pictures_of_many_samples(server: Server) -> None:
    entries, pictures = sheet(asked(server, "sheet?start=0&count=100&side=32&fields=1"))
    assert [entry["index"] for entry in entries] == list(range(COUNT))
    assert entries[0]["name"] == SCRIPT
    assert [entry["index"] for entry in entries if entry["error"]] == [DAMAGED]
    assert sum(int(str(entry["picture"])) for entry in entries) == len(pictures)
    assert pictures.count(b"\xff\xd8\xff") == COUNT - 1
    assert entries[1]["fields"]
    assert sheet(asked(server, "sheet?start=99"))[0] == []
    assert sheet(asked(server, "sheet?start=" + "9" * 30))[0] == []


def test_questions_that_make_no_sense_are_answered_in_a_sentence(server: Server) -> None:
    for what, status, said in [
        ("found?where=nothing%3E1", 400, "nothing"),
        ("found?class=x", 400, "invalid literal"),
        ("sheet?start=-5", 400, "0 or more"),
        ("sample?index=999", 404, "there is no sample 999"),
        ("sheet?start=" + "9" * 30 + "&order=by+heart", 400, "an order must be one of"),
        ("field?index=1&name=nothing&as=mask", 400, "no field nothing"),
        ("crops?index=1&size=0", 400, ""),
    ]:
        assert said in json.loads(asked(server, what, status))["error"]


def test_one_sample_is_told_with_its_metadata(server: Server) -> None:
    said = json.loads(asked(server, "sample?index=4"))
    assert (said["label"], said["type"], said["error"]) == ("<b>dog</b>", "jpeg", "")
    assert re.fullmatch("[0-9a-f]{8}", said["crc32c"])
    assert {field["name"] for field in said["fields"]} == {"mask", "boxes", "kind", "caption"}
    assert "checksum does not match" in json.loads(asked(server, f"sample?index={DAMAGED}"))["error"]
    (entry,), picture = sheet(asked(server, "image?index=4"))
    assert (entry["error"], picture[:3], entry["picture"]) == ("", b"\xff\xd8\xff", len(picture))
    (entry,), picture = sheet(asked(server, f"image?index={DAMAGED}"))
    assert "checksum does not match" in str(entry["error"])
    assert picture == b""
    assert asked(server, "field?index=4&name=mask&as=mask").startswith(b"\x89PNG")
    assert len(sheet(asked(server, "crops?index=4&seed=1&epochs=5&size=32"))[0]) == 5


def test_all_samples_are_checked_when_asked(server: Server) -> None:
    start = 0
    while start < COUNT:
        said = json.loads(asked(server, f"check?start={start}"))
        start = said["next"]
    assert [one["index"] for one in said["damaged"]] == [DAMAGED]


def test_the_rest_of_the_page_is_answered(server: Server) -> None:
    assert json.loads(asked(server, "packs"))["count"] == COUNT
    assert json.loads(asked(server, "found?name=photo&order=largest"))["count"] == COUNT - 1
    assert len(json.loads(asked(server, "histograms?class=1"))) == 5
    assert json.loads(asked(server, "duplicates"))["candidates"] == 1


def test_a_browser_that_goes_away_is_no_matter(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            request = f"GET /{server.secret}/ask/sheet?count=100&side=512 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(request.encode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert json.loads(asked(server, "packs"))["count"] == COUNT
    assert capfd.readouterr().err == ""


def test_strangers_neither_take_a_thread_each_nor_keep_anybody_out(server: Server) -> None:
    before = threading.active_count()
    friend = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    friend.request("GET", f"/{server.secret}/")
    friend.getresponse().read()
    held = [socket.create_connection(("127.0.0.1", server.server_port)) for _ in range(100)]
    for connection in held:
        connection.settimeout(20)
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /")
    gone = held[: 100 - 63]  # who came first gives way; 63 and the friend stay
    assert not any(map(received, gone))
    deadline = time.monotonic() + 20  # a thread ends after its connection
    while threading.active_count() > before + 66:
        assert time.monotonic() < deadline, threading.active_count()
        time.sleep(0.01)
    assert json.loads(asked(server, "packs"))["count"] == COUNT
    friend.request("GET", f"/{server.secret}/ask/packs")
    assert json.loads(friend.getresponse().read())["count"] == COUNT
    for connection in [*held, friend]:
        connection.close()
    with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
        connection.sendall(b"GET http://[/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_who_does_not_know_the_secret_is_not_asked_again(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(b"GET /guess/ HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
        said = b"".join(iter(lambda: received(connection), b""))
    assert said.count(b"HTTP/1.1") == 1
    assert b"HTTP/1.1 403" in said


ASK = """
exec 3<>/dev/tcp/127.0.0.1/$0
printf 'GET %s HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' "$1" >&3
head -n 1 <&3
"""


def test_what_a_browser_is_started_with_leads_to_the_page_once_and_no_other_user(pack: Path) -> None:
    for server in serving(pack):
        door = urlsplit(server.door)
        assert server.secret not in server.door
        if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("bash"):
            line = ["bash", "-c", ASK, str(server.server_port), door.path]
            done = subprocess.run(line, user=65534, group=65534, capture_output=True, text=True, cwd="/", check=True)
            assert done.stdout.startswith("HTTP/1.1 403")
        assert answer(server, f"{door.path}ask/packs")[0].status == 403
        response, _ = answer(server, door.path)
        assert (response.status, response.getheader("Location")) == (303, server.address)
        assert answer(server, door.path)[0].status == 403
        assert answer(server, "//")[0].status == 403, "an address that is spent is not an empty one"


def received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def test_a_pack_that_is_cut_short_while_it_is_shown_is_said_to_be(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer._storage.packfile.MOST_HELD", -1)  # as of a pack of many samples
    shutil.copy(pack, cut := tmp_path / "cut.lmdb")
    catalog = open_catalog([cut])
    with Server(catalog) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        os.truncate(cut, 0)
        for what in ("sheet?count=9&fields=1", "sample?index=1", "found?order=largest", "histograms", "check", "packs"):
            assert "became shorter" in json.loads(asked(server, what, 422))["error"]
        server.shutdown()
    catalog.close()


def test_a_browser_that_is_waited_for_is_answered_meanwhile(pack: Path, tmp_path: Path) -> None:
    browser, seen = tmp_path / "browser.py", tmp_path / "seen"
    browser.write_text(
        "import sys, urllib.request, pathlib\n"
        "with urllib.request.urlopen(sys.argv[1], timeout=20) as page:\n"
        f"    pathlib.Path({str(seen)!r}).write_bytes(sys.argv[1].encode() + page.url.encode() + page.read())\n"
    )
    told = os.environ | {"BROWSER": f"{sys.executable} {browser} %s"}
    with packer_started("view", pack, "--quiet", environment=told) as viewer:
        until = time.monotonic() + 30
        while not seen.exists() and time.monotonic() < until:
            time.sleep(0.05)
        viewer.send_signal(signal.SIGINT)
        address = viewer.communicate()[0].strip()
    given, _, page = seen.read_bytes().partition(address.encode())
    assert given.startswith(b"http://127.0.0.1:"), "not the address that shows the secret to all users"
    assert b"<html" in page


def test_the_command_prints_an_address_serves_it_and_ends_by_ctrl_c(pack: Path, tmp_path: Path) -> None:
    with packer_started("view", pack, "--no-browser") as viewer:
        address = urlsplit(viewer.stdout.readline().strip())
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
        connection.request("GET", f"{address.path}ask/packs")
        assert json.loads(connection.getresponse().read())["count"] == COUNT
        viewer.send_signal(signal.SIGINT)
        _, errors = viewer.communicate()
        connection.close()
    assert viewer.returncode == 0
    assert errors.endswith("packer: press Ctrl-C to stop the server\n")


def test_ctrl_c_ends_it_in_order_while_pictures_are_made(pack: Path, tmp_path: Path) -> None:
    def look(port: int, path: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with contextlib.suppress(Exception), contextlib.closing(connection):
            while True:
                connection.request("GET", path)
                connection.getresponse().read()

    for _ in range(2):
        with packer_started("view", pack, "--no-browser", "--quiet") as viewer:
            address = urlsplit(viewer.stdout.readline().strip())
            asked_for = address.port or 0, f"{address.path}ask/crops?index=1&size=1024&epochs=16"
            threads = [threading.Thread(target=look, args=asked_for) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            viewer.send_signal(signal.SIGINT)
            _, errors = viewer.communicate()
        for thread in threads:
            thread.join()
        assert (viewer.returncode, errors) == (0, "")


def test_a_port_that_is_taken_is_refused_and_another_viewer_takes_another(server: Server, pack: Path) -> None:
    catalog = open_catalog([pack])
    with pytest.raises(packer.DestinationError, match=f"port {server.server_port} of 127.0.0.1 is not available"):
        Server(catalog, server.server_port)
    with Server(catalog) as other:
        assert other.server_port != server.server_port
        assert other.secret != server.secret
    catalog.close()


def test_the_command_writes_a_report_and_a_plot(pack: Path, tmp_path: Path) -> None:
    report, plot = str(tmp_path / "r.html"), str(tmp_path / "p.svg")
    runner = CliRunner()
    result = runner.invoke(cli, ["view", str(pack), "--html", report], catch_exceptions=False)
    assert report in result.output
    assert runner.invoke(cli, ["info", str(pack), "--plot", plot]).exit_code == 0
    assert Path(plot).read_bytes().startswith(b"<svg")
    with pytest.raises(packer.OptionError, match="--html writes a file"):
        runner.invoke(cli, ["view", str(pack), "--html", report, "--port", "80"], catch_exceptions=False)
