"""Messages between a process that reads objects and the one that fetches them: JSON, and bytes beside it.

Nothing that comes through a pipe is run: there is no pickle in it.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

__all__ = ["Message", "receive", "send"]

Message = dict[str, Any]

_HEAD = struct.Struct("<IQ")
_WRITTEN_TOGETHER = 1 << 16  # bytes; a larger body is written by itself, and not copied to follow its head


def send(fd: int, message: Message, payload: bytes | memoryview = b"") -> None:
    """Write a message to a pipe; OSError where nobody reads it any more."""
    text = json.dumps(message).encode()
    head = _HEAD.pack(len(text), len(payload)) + text
    if len(payload) <= _WRITTEN_TOGETHER:
        _write(fd, head + payload)
    else:
        _write(fd, head)
        _write(fd, payload)


def receive(fd: int) -> tuple[Message, memoryview] | None:
    """Wait for the next message of a pipe; None where the other side has ended."""
    head = _read(fd, _HEAD.size)
    if head is None:
        return None
    length, size = _HEAD.unpack(head)
    text, payload = _read(fd, length), _read(fd, size)
    if text is None or payload is None:
        return None
    return json.loads(bytes(text)), payload.toreadonly()


def _write(fd: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _read(fd: int, size: int) -> memoryview | None:
    """Return exactly `size` bytes; None where there are fewer."""
    data = memoryview(bytearray(size))
    begin = 0
    while begin < size:
        piece = os.read(fd, min(size - begin, 1 << 20))
        if not piece:
            return None
        data[begin : begin + len(piece)] = piece
        begin += len(piece)
    return data
