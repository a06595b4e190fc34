"""Requests that packer makes itself: persistent connections, odd answers, signed URLs, and the fallback to obstore."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer._storage.remote.http import Connection, PlainClient
from packer._storage.remote.place import RemoteFile
from packer._storage.remote.urls import RemoteSettings
from packer.errors import RemoteError
from tests.storage.remote.objects import Asked, ObjectServer, _Handler, serving

obstore = pytest.importorskip("obstore", reason="needs obstore")

DATA = np.random.default_rng(4).bytes(2_000_003)
NAME = "b/train.lmdb"


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with serving({NAME: DATA}) as served:
        yield served


def opened(server: ObjectServer, kept: Path, seconds: float = 10.0) -> RemoteFile:
    return RemoteFile(f"{server.url}/{NAME}", settings=RemoteSettings(str(kept), 1 << 30, seconds))


def read_apart(file: RemoteFile) -> None:
    """Read some ranges that are far apart, one after the other."""
    for begin in range(100_000, 1_900_000, 200_000):
        assert file.read(begin, 30_000) == DATA[begin : begin + 30_000]


def test_a_connection_is_kept(server: ObjectServer, tmp_path: Path) -> None:
    ports = set[int]()
    server.faults.append(lambda handler, asked: ports.add(handler.client_address[1]) is not None)
    read_apart(opened(server, tmp_path))
    assert len(server.asked) == 10
    assert len(ports) == 1


def closes(handler: _Handler, asked: Asked) -> bool:
    """Answer, and close the connection without notice."""
    handler.give(asked)
    handler.close_connection = True
    return True


def says_more(handler: _Handler, asked: Asked) -> bool:
    """Answer, and send more bytes after the response."""
    handler.give(asked)
    handler.wfile.write(b"HTTP/1.1 206 Partial Content\r\n")
    return True


def redirects(handler: _Handler, asked: Asked) -> bool:
    """Redirect the client to the same object at another URL."""
    if asked.query == "here":
        return False
    handler.send_response(302)
    handler.send_header("Location", f"/{asked.name}?here")
    handler.send_header("Content-Length", "0")
    handler.end_headers()
    return True


def long_head(handler: _Handler, asked: Asked) -> bool:
    """Answer with a header of 40 kB."""
    handler.send_response_only(206)
    for number in range(40):
        handler.send_header(f"X-{number}", "x" * 1000)
    begin, end = asked.begin or 0, asked.end or 0
    handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(DATA)}")
    handler.send_header("ETag", handler.server.objects.etag(NAME))
    handler.send_header("Content-Length", str(end - begin))
    handler.end_headers()
    handler.wfile.write(DATA[begin:end])
    return True


def many_digits(handler: _Handler, asked: Asked) -> bool:
    """Answer with a length that has more digits than Python's `int` accepts."""
    handler.send_response_only(206)
    begin, end = asked.begin or 0, asked.end or 0
    handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(DATA)}")
    handler.send_header("ETag", handler.server.objects.etag(NAME))
    handler.send_header("Content-Length", f"{end - begin:05000}")
    handler.end_headers()
    handler.wfile.write(DATA[begin:end])
    return True


@pytest.mark.parametrize("answer", [closes, says_more, redirects, long_head, many_digits])
def test_odd_answers_give_the_right_bytes(
    server: ObjectServer, tmp_path: Path, answer: Callable[[_Handler, Asked], bool]
) -> None:
    server.faults.append(answer)
    read_apart(opened(server, tmp_path))


@pytest.mark.parametrize("answer", [long_head, many_digits])
def test_a_server_that_gives_other_answers_is_not_asked_twice_each_time(
    server: ObjectServer, tmp_path: Path, answer: Callable[[_Handler, Asked], bool]
) -> None:
    server.faults.append(answer)
    read_apart(opened(server, tmp_path))
    assert len(server.asked) == 11, "once by a plain request, and then by obstore"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 206 x\r\n\r\n", b"\xff\x00 junk\r\n\r\n", b"HTTP/1.1 banana\r\n"])
def test_junk_is_tried_again(server: ObjectServer, tmp_path: Path, head: bytes) -> None:
    file = opened(server, tmp_path)
    left = [3]

    def junk(handler: _Handler, asked: Asked) -> bool:
        left[0] -= 1
        if left[0] >= 0:
            handler.wfile.write(head)
            handler.cut()
        return left[0] >= 0

    server.faults.append(junk)
    read_apart(file)


@pytest.mark.parametrize("host", ["a..b", ".a.b", "a" * 70])
def test_a_name_that_no_host_has_is_said(host: str, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match="the host cannot be reached"):
        RemoteFile(f"http://{host}/{NAME}", settings=RemoteSettings(str(tmp_path), 1 << 30, 5.0))


def test_a_connection_serves_the_host_that_it_leads_to(server: ObjectServer) -> None:
    """The store's endpoint changes before the connection is put back; the new endpoint must not get this connection."""
    endpoints = [server.url]

    def store_of(url: str, seconds: float) -> tuple[Any, str]:
        said = {
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "hunter2",
            "endpoint": endpoints[-1],
        }
        return obstore.store.S3Store("b", client_options={"allow_http": True}, **said), "train.lmdb"

    connections = list[Connection]()

    async def ask(plain: PlainClient) -> bytes:
        answer, connection = await plain.ask(f"s3://{NAME}", 0, 9, "", 5.0)
        connections.append(connection)
        return bytes(answer.data)

    async def move(other: ObjectServer) -> None:
        plain = PlainClient(store_of)
        assert await ask(plain) == DATA[:9]
        endpoints.append(other.url)
        plain.forget()
        assert await ask(plain) == bytes(9)
        plain.put_back(connections[0])
        assert await ask(plain) == bytes(9), "the first connection leads to the first endpoint"
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # they close in the next iteration of the event loop

    with serving({NAME: bytes(9)}) as other:
        asyncio.run(move(other))
    assert len(server.asked) == 1


def test_ranges_are_fetched_in_the_order_given_and_joined_where_they_meet(server: ObjectServer, tmp_path: Path) -> None:
    file = opened(server, tmp_path)
    parts = [(begin, 20_000) for begin in range(1_900_000, 100_000, -40_000)]
    file.ahead([*parts, (80_000, 10_000), (90_000, 10_000)])
    deadline = time.monotonic() + 20
    while len(server.ranges_of(NAME)) < len(parts) + 2 and time.monotonic() < deadline:
        time.sleep(0.01)  # a read that waits for bytes would be served first
    for begin, size in reversed(parts):
        assert file.read(begin, size) == DATA[begin : begin + size]
    begins = [begin for begin, _ in server.ranges_of(NAME)[1:]]
    assert len(begins) == len(parts) + 1
    assert min(begins[:5]) > 500_000, "what is given first, but for what is under way at the same time"


def test_s3_is_asked_by_a_signed_url(server: ObjectServer, tmp_path: Path) -> None:
    code = (
        "import sys, hashlib\n"
        "from packer._storage.remote.place import RemoteFile\n"
        "from packer._storage.remote.urls import RemoteSettings\n"
        "file = RemoteFile(sys.argv[1], settings=RemoteSettings(sys.argv[2], None, 10.0))\n"
        "print(file.path, hashlib.sha256(file.read(0, file.size)).hexdigest())\n"
    )
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "us-east-1"}
    line = [sys.executable, "-c", code, f"s3://{NAME}", str(tmp_path)]
    environment = {**os.environ, **keys, "AWS_ENDPOINT_URL": server.url, "AWS_ALLOW_HTTP": "true"}
    ended = subprocess.run(line, capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout.split() == [f"s3://{NAME}", hashlib.sha256(DATA).hexdigest()]
    assert all("X-Amz-Signature=" in asked.query for asked in server.asked)
    assert {asked.headers["range"] for asked in server.asked[:1]} == {"bytes=0-65535"}
    assert server.asked[-1].headers["if-match"] == server.etag(NAME)
