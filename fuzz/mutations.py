"""Changes of JPEGs that damage, forgers and careless programs make."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from packer._images.jpeg import segments
from packer.errors import ImageError
from packer.testing.photos import draw_photo

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
"""Takes a source of chance, a JPEG, and others that pieces may be taken of."""

_METADATA = (
    (0xE0, b"JFIF\0", 16),
    (0xE1, b"Exif\0\0", 80),
    (0xE1, b"http://ns.adobe.com/xap/1.0/\0", 60),
    (0xE2, b"ICC_PROFILE\0", 40),
    (0xE2, b"MPF\0", 60),
    (0xED, b"Photoshop 3.0\0", 60),
    (0xEE, b"Adobe", 16),
    (0xFE, b"", 20),
)
_TAGS = (0x0112, 0x011A, 0x0128, 0x010E, 0x8769, 0xB001, 0xB002)


def drawn_jpegs(chance: random.Random, count: int) -> list[bytes]:
    """Draw small photos and encode them in all usual ways: samplings, restarts, progressive, grey, with metadata."""
    made = []
    for number in range(count):
        height, width = chance.randrange(1, 50), chance.randrange(1, 70)
        pixels = draw_photo(np.random.default_rng(chance.randrange(1 << 30)), max(height, 2), max(width, 2))
        image = Image.fromarray(pixels[:height, :width])
        exif = Image.Exif()
        if number % 3 == 0:
            exif[0x0112], exif[0x011A], exif[0x0128] = chance.randrange(10), 72.0, 2
        stream = io.BytesIO()
        chance.choice([image, image, image, image.convert("L"), image.convert("CMYK")]).save(
            stream,
            "JPEG",
            quality=chance.randrange(10, 100),
            subsampling=chance.randrange(3),
            progressive=chance.random() < 0.4,
            restart_marker_blocks=chance.choice([0, 0, 1, 2, 3, 5, 7, 1000]),
            exif=exif,
            icc_profile=bytes(chance.randrange(200)) if number % 4 == 0 else None,
        )
        made.append(stream.getvalue())
    return made


def _truncated(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: chance.randrange(len(data))]


def _flipped(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwritten(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data))
    junk = _junk(chance)
    return data[:at] + junk + data[at + len(junk) :]


def _inserted(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + _junk(chance) + data[at:]


def _removed(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice([1, 2, 3, chance.randrange(1, 60)]) :]


def _spliced(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = chance.choice(others)
    return data[: chance.randrange(len(data))] + other[chance.randrange(len(other)) :]


def _length_of_a_segment(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the length that a segment announces, or cut or stretch the segment itself."""
    marker, begin, end = chance.choice(_segments(data))
    change = chance.choice([-1, 1, -2, 2, chance.randrange(-70, 70)])
    length = max(0, end - begin - 2 + change) & 0xFFFF
    content = data[begin + 4 : end]
    if chance.random() < 0.6:
        content = (content + bytes(70))[: max(0, length - 2)]
    return data[:begin] + struct.pack(">BBH", 0xFF, marker, length) + content + data[end:]


def _order_of_segments(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Remove a segment, repeat it, or add one of another image."""
    _, begin, end = chance.choice(_segments(data))
    other = chance.choice(others)
    _, other_begin, other_end = chance.choice(_segments(other))
    piece = chance.choice([b"", 2 * data[begin:end], data[begin:end] + other[other_begin:other_end]])
    return data[:begin] + piece + data[end:]


def _bytes_between_segments(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    _, begin, _ = chance.choice(_segments(data))
    junk = chance.choice([b"\xff", b"\xff\xff\xff", b"\0", b"\xff\0", b"\xff\x01", b"ab", _junk(chance)])
    return data[:begin] + junk + data[begin:]


def _metadata(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Write metadata of any length into the header: well-formed, empty, or of random bytes."""
    marker, name, longest = chance.choice(_METADATA)
    content = _content(chance, name, longest)
    content = (name + content)[: chance.choice([70_000, 70_000, chance.randrange(longest)])]
    _, begin, end = chance.choice(_segments(data))
    piece = struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content
    return data[:begin] + piece + data[chance.choice([begin, end]) :]


def _content(chance: random.Random, name: bytes, longest: int) -> bytes:
    if name.startswith((b"Exif", b"MPF")) and chance.random() < 0.9:
        return _directory(chance)
    if name.startswith(b"Photo"):
        resource = b"8BIM" + struct.pack(">H", chance.choice([0x03ED, 0x0404])) + bytes([chance.randrange(4)])
        size = chance.choice([0, 1, 4, 16, 1 << 31])
        whole = (resource + bytes(3) + struct.pack(">I", size) + bytes(min(size, 16))) * chance.randrange(1, 3)
        return whole[: chance.choice([100, chance.randrange(len(whole) + 1)])]
    return chance.randbytes(chance.randrange(longest)) if chance.random() < 0.5 else bytes(chance.randrange(longest))


def _directory(chance: random.Random) -> bytes:
    """Return a TIFF with a directory of fields of any type."""
    order, head = chance.choice([("<", b"II*\0"), (">", b"MM\0*"), (">", b"MM*\0"), ("<", b"junk")])
    fields = b"".join(
        struct.pack(
            order + "HHII",
            chance.choice(_TAGS),
            chance.randrange(18),
            chance.choice([0, 1, 1, 1, 1, 2, 3, 200]),
            chance.choice([0, 1, 3, 6, 0x36000000, 0x00060000, 8, 26, 1 << 31]),
        )
        for _ in range(chance.randrange(5))
    )
    values = struct.pack(order + "II", chance.choice([0, 6, 72]), chance.choice([0, 1])) + chance.randbytes(8)
    count = len(fields) // 12 + chance.choice([0, 0, 0, 1])
    begin = chance.choice([8, 8, 8, 8, 9, 400])
    return head + struct.pack(order + "I", begin) + struct.pack(order + "H", count) + fields + bytes(4) + values


def _frame(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the frame: its kind, the size of the image, the components."""
    for marker, begin, end in _segments(data):
        if 0xC0 <= marker <= 0xC2:
            changed = bytearray(data)
            at = chance.randrange(begin + 4, end)
            changed[at] = chance.choice([0, 1, 2, 3, 4, 0x11, 0x12, 0x21, 0x22, 0x41, 0xFF, changed[at] ^ 1])
            if chance.random() < 0.2:
                changed[begin + 1] = chance.randrange(0xC0, 0xD0)
            return bytes(changed)
    return data


def _restart_marker(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Remove, repeat, renumber or move a restart marker, or change the restart interval."""
    places = [at for at in range(len(data) - 1) if data[at] == 0xFF and 0xD0 <= data[at + 1] <= 0xD7]
    interval = data.find(b"\xff\xdd\0\x04")
    if interval >= 0 and (not places or chance.random() < 0.3):
        wrong = struct.pack(">H", chance.choice([0, 1, 2, 5, 6, 7, 8, 0xFFFF]))
        return data[: interval + 4] + wrong + data[interval + 6 :]
    at = chance.choice(places or [len(data) - 2])
    marker = bytes([0xFF, 0xD0 + chance.randrange(8)])
    piece = chance.choice([b"", data[at : at + 2] * 2, marker, b"\xff" + data[at : at + 2], b"\0" + data[at : at + 2]])
    return data[:at] + piece + data[at + 2 :]


def _scans(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Remove, repeat or move a scan, or change its header."""
    starts = [at for at in range(len(data) - 9) if data[at : at + 2] == b"\xff\xda"]
    if not starts:
        return data
    begin = chance.choice(starts)
    if chance.random() < 0.5:
        at = begin + 4 + chance.randrange(min(4 + 2 * data[begin + 4], len(data) - begin - 4))
        value = chance.choice([0, 1, 2, 5, 6, 63, 64, 0x10, 0x21, 0x32, 0xE0, 0xFF, data[at] ^ 1])
        return data[:at] + bytes([value]) + data[at + 1 :]
    end = next((at for at in starts if at > begin), len(data) - 2)
    piece, rest = data[begin:end], data[:begin] + data[end:]
    at = chance.choice([at if at <= begin else at - len(piece) for at in starts])
    return chance.choice([rest, data[:begin] + piece + data[begin:], rest[:at] + piece + rest[at:]])


def _before_the_end(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Write bytes after the last row, before the marker that ends the image, or leave out or change that marker."""
    junk = chance.choice([bytes(chance.choice([1, 9, 9000])), b"\xff\x0f", b"\xff\xc4\0\x02", _junk(chance)])
    return data[:-2] + junk + chance.choice([b"\xff\xd9", b"\xff\xd9", b"\xff\xd9", b"", b"\xff", b"\xff\xff\xd9"])


def _after_the_end(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data + chance.choice([b"\0", b"\xff\xd9", bytes(70_000), _junk(chance), chance.choice(others)])


def _junk(chance: random.Random) -> bytes:
    marker = bytes([0xFF, chance.randrange(256)])
    return chance.choice([b"\0", b"\xff", marker, marker + b"\0\x02", chance.randbytes(chance.randrange(1, 30))])


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    """Return the segments up to the first scan, or the whole as one where there are none."""
    try:
        found = list(segments(data))
    except ImageError:
        found = []
    return found or [(0xFE, 2, min(len(data), 60_000))]


MUTATIONS: dict[str, Mutation] = {
    function.__name__.strip("_").replace("_", " "): function
    for function in (
        *(_truncated, _flipped, _overwritten, _inserted, _removed, _spliced),
        *(_length_of_a_segment, _order_of_segments, _bytes_between_segments, _metadata, _frame),
        *(_restart_marker, _scans, _before_the_end, _after_the_end),
    )
}
"""Changes, by what becomes of the image."""
