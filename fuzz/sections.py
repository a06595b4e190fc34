"""Several files as one input; and corrected checksums, because wrong ones would stop a fuzzer early."""

from __future__ import annotations

import struct
import zlib

import google_crc32c

_SEAL = b',"crc32c":"'
_TILES = b"TILES\0"


def joined(*parts: bytes) -> bytes:
    """Return several files as one input, each after its length."""
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def split(data: bytes, count: int) -> list[bytes]:
    """Return the `count` files of an input; missing ones are empty."""
    parts = []
    for _ in range(count):
        length = int.from_bytes(data[:4], "little")
        parts.append(data[4 : 4 + length])
        data = data[4 + length :]
    return parts


def sealed_manifest(text: bytes) -> bytes:
    """Return a manifest with a matching checksum."""
    body = text.rpartition(_SEAL)[0] or text
    return body + _SEAL + b"%08x" % google_crc32c.value(body) + b'"}'


def sealed_chunks(data: bytes) -> bytes:
    """Return a PNG whose chunks have matching checksums."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    sealed, at = bytearray(data), 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            break
        sealed[end : end + 4] = zlib.crc32(data[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
    return bytes(sealed)


def sealed_tiles(data: bytes) -> bytes:
    """Return a JPEG whose first tile segment has a checksum that matches its table and the header after it."""
    at = data.find(_TILES)
    if at < 4 or len(data) < at + 20:
        return data
    (size,) = struct.unpack_from(">H", data, at - 2)
    (length,) = struct.unpack_from(">H", data, at + 14)
    checksum = zlib.crc32(data[at + 20 : at - 2 + size + length], zlib.crc32(data[at : at + 16]))
    return data[: at + 16] + checksum.to_bytes(4, "big") + data[at + 20 :]
