"""PNGs of all kinds, drawn, and changes of them that damage, forgers and careless programs make."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from fuzz.mutations import MUTATIONS
from fuzz.sections import sealed_chunks
from packer.testing.photos import draw_photo

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KINDS = (
    *((0, 1, depth) for depth in (1, 2, 4, 8, 16)),
    *((2, 3, depth) for depth in (8, 16)),
    *((3, 1, depth) for depth in (1, 2, 4, 8)),
    *((4, 2, depth) for depth in (8, 16)),
    *((6, 4, depth) for depth in (8, 16)),
)
"""Kinds as a header says them, the samples of a pixel, and the bits of a sample."""
_PASSES = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))
_CHUNKS = (
    (b"gAMA", 4),
    (b"pHYs", 9),
    (b"sRGB", 1),
    (b"tEXt", 20),
    (b"tIME", 7),
    (b"bKGD", 2),
    (b"tRNS", 2),
    (b"eXIf", 8),
)
_ANY = ("truncated", "flipped", "overwritten", "inserted", "removed", "spliced")  # changes that know nothing of JPEGs


def chunk(name: bytes, body: bytes) -> bytes:
    """Return a chunk with its checksum."""
    return struct.pack(">I", len(body)) + name + body + zlib.crc32(name + body).to_bytes(4, "big")


def drawn_png(chance: random.Random, interlaced: bool) -> bytes:
    """Draw a small PNG of any kind, every line with any filter."""
    colour, channels, depth = chance.choice(_KINDS)
    height, width = chance.randrange(1, 40), chance.randrange(1, 60)
    levels = chance.choice([1, 4, 256])
    body = bytearray()
    for top, down, left, across in _PASSES if interlaced else ((0, 1, 0, 1),):
        columns = len(range(left, width, across))
        for _ in range(top, height if columns else top, down):
            body.append(chance.randrange(5))
            body += bytes(chance.randrange(levels) for _ in range((columns * channels * depth + 7) // 8))
    data = zlib.compress(body, chance.randrange(10))
    cut = chance.randrange(len(data) + 1) if chance.random() < 0.3 else len(data)
    pieces = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))]
    if colour == 3:
        pieces.append(chunk(b"PLTE", chance.randbytes(3 * min(1 << depth, chance.choice([2, 256, 256])))))
    if chance.random() < 0.4:
        name, size = chance.choice(_CHUNKS)
        pieces.append(chunk(name, chance.randbytes(size) if name != b"tEXt" else b"Comment\0" + bytes(range(65, 77))))
    pieces += [chunk(b"IDAT", part) for part in (data[:cut], data[cut:]) if part]
    return SIGNATURE + b"".join([*pieces, chunk(b"IEND", b"")])


def drawn_pngs(chance: random.Random, count: int) -> list[bytes]:
    """Draw PNGs; every third is a photo that Pillow encodes."""
    made = []
    for number in range(count):
        if number % 3:
            made.append(drawn_png(chance, interlaced=chance.random() < 0.4))
            continue
        height, width = chance.randrange(2, 50), chance.randrange(2, 70)
        image = Image.fromarray(draw_photo(np.random.default_rng(chance.randrange(1 << 30)), height, width))
        stream = io.BytesIO()
        mode = chance.choice(["RGB", "RGB", "RGBA", "L", "LA", "P", "1"])
        image.convert(mode).save(stream, "PNG", compress_level=chance.randrange(10))
        made.append(stream.getvalue())
    return made


def changed_png(chance: random.Random, data: bytes, others: Sequence[bytes]) -> tuple[str, bytes]:
    """Return the name of a change, and a PNG with that change; most have matching checksums again."""
    name = chance.choice([*_ANY, "order of chunks", "header"])
    if name == "order of chunks":
        changed = _reordered(chance, data)
    elif name == "header":
        at = chance.choice([19, 23, 24, 25, 26, 27, 28])
        changed = data[:at] + bytes([chance.choice([0, 1, 2, 3, 4, 6, 8, 16, 255])]) + data[at + 1 :]
    else:
        changed = MUTATIONS[name](chance, data, others)
    return f"PNG, {name}", sealed_chunks(changed) if chance.random() < 0.8 else changed


def _reordered(chance: random.Random, data: bytes) -> bytes:
    """Remove, repeat or move a chunk."""
    pieces, at = [], 8
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        pieces.append(data[at:end])
        at = end
    piece = pieces.pop(chance.randrange(len(pieces)))
    for _ in range(chance.randrange(3)):
        pieces.insert(chance.randrange(len(pieces) + 1), piece)
    return SIGNATURE + b"".join(pieces)
