"""Encode TFRecords and RecordIO by their published specifications, without packer's own encoders."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping, Sequence

import google_crc32c
import numpy as np
from PIL import Image

BYTES, FLOATS, INTS = 1, 2, 3


def photo(number: int, size: tuple[int, int] = (24, 16), suffix: str = "JPEG") -> bytes:
    """Return an encoded image that depends on `number`."""
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, suffix)
    return file.getvalue()


def varint(value: int) -> bytes:
    """Return a varint of 64 bits."""
    value %= 1 << 64
    groups = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def sized(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def bytes_list(*values: bytes) -> bytes:
    """Return a feature of byte strings."""
    return sized(BYTES, b"".join(sized(1, value) for value in values))


def int_list(*values: int, packed: bool = True) -> bytes:
    """Return a feature of ints."""
    encoded = [varint(value) for value in values]
    return sized(INTS, sized(1, b"".join(encoded)) if packed else b"".join(b"\x08" + value for value in encoded))


def float_list(*values: float, packed: bool = True) -> bytes:
    """Return a feature of floats."""
    encoded = [struct.pack("<f", value) for value in values]
    return sized(FLOATS, sized(1, b"".join(encoded)) if packed else b"".join(b"\x0d" + value for value in encoded))


def example(features: Mapping[str, bytes]) -> bytes:
    """Return an Example."""
    return sized(1, b"".join(sized(1, sized(1, key.encode()) + sized(2, value)) for key, value in features.items()))


def masked(data: bytes) -> bytes:
    """Return the masked CRC-32C that TFRecords store."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % (1 << 32))


def tfrecord(records: Iterable[bytes]) -> bytes:
    """Return a file of records."""
    framed = []
    for data in records:
        size = struct.pack("<Q", len(data))
        framed += [size, masked(size), data, masked(data)]
    return b"".join(framed)


def tfrecord_mended(data: bytes) -> bytes:
    """Return a damaged file with correct checksums of the sizes."""
    mended, at = bytearray(data), 0
    while at + 12 <= len(mended):
        mended[at + 8 : at + 12] = masked(bytes(mended[at : at + 8]))
        at += 16 + int.from_bytes(mended[at : at + 8], "little")
    return bytes(mended)


MAGIC = struct.pack("<I", 0xCED7230A)


def part(kind: int, data: bytes) -> bytes:
    """Return a part of a record of RecordIO."""
    return MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + bytes(-len(data) % 4)


def rec(data: bytes) -> bytes:
    """Return a record of RecordIO, split where its data have the magic number at a multiple of 4."""
    parts, begin = [], 0
    for at in range(0, len(data) - 3, 4):
        if data[at : at + 4] == MAGIC:
            parts.append(data[begin:at])
            begin = at + 4
    parts.append(data[begin:])
    if len(parts) == 1:
        return part(0, data)
    kinds = [1, *[2] * (len(parts) - 2), 3]
    return b"".join(part(kind, one) for kind, one in zip(kinds, parts, strict=True))


def image_record(image: bytes, label: float | Sequence[float], number: int = 0) -> bytes:
    """Return the data of a record that im2rec or insightface writes."""
    if isinstance(label, (int, float)):
        return struct.pack("<IfQQ", 0, label, number, 0) + image
    return struct.pack(f"<IfQQ{len(label)}f", len(label), 0, number, 0, *label) + image


def rec_and_idx(records: Iterable[bytes], keys: Iterable[int] | None = None) -> tuple[bytes, str]:
    """Return a file of records, and an index of it."""
    data, lines = b"", []
    for record in records:
        lines.append(len(data))
        data += rec(record)
    named = range(len(lines)) if keys is None else keys
    return data, "".join(f"{key}\t{offset}\n" for key, offset in zip(named, lines, strict=True))
