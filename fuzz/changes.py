"""Changes of structured files: truncation, and other bytes, numbers, words and blocks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import numpy as np

from tests.containers.records import tfrecord_mended

WORDS = (
    *(b"", b".", b"..", b"/", b"../../outside/secret", b"../../../outside/secret", b"/etc/passwd", b"a/../../b"),
    *(b"\\", b"\0"),
    *(b"null", b"[]", b"{}", b"true", b"-1", b"1.5", b"jpg", b"jpeg", b"image", b"label", b"bytes", b"pickle", b"int"),
    *(b"C:\\x", b"//host/x", b"\xff\xfe", b"\xc3\xa9", b"\n", b"%s", b"x" * 300, b"[" * 200, b'{"a":' * 200),
)
"""Texts that something may be made of which it should not be; a directory "outside" lies beside what is changed."""

_BYTES = (
    *(b"", b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 4, b"\xff" * 8, b"\0" * 8),
    *(
        b"\xff" * 9 + b"\1",
        b"\x80" + b"\xff" * 11,
        b"(",
        b"R",
        b"h",
        b"c",
        b"0",
        b"7",
        b"9",
        b" ",
        b'"',
        b"\n",
        b"\x0a",
    ),
)
_DIGITS = (
    *(b"0", b"1", b"-1", b"-0", b"00", b"7", b"1.5", b"1e400", b"NaN", b"-Infinity", b"true", b"null", b"[]", b'"1"'),
    *(b"9" * 20, b"9" * 5000, b"4294967296", b"2147483648", b"9223372036854775807", b"9223372036854775808"),
)
_NUMBERS = (0, 1, 2, 255, 256, 1 << 15, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1)
_BLOCKS = (8, 64, 512, 4096)
_WORD, _NUMBER = re.compile(rb'"[^"\n]{0,200}"|[A-Za-z_./]{2,100}'), re.compile(rb"-?[0-9]+")

Change = Callable[[random.Random, bytearray, bytes], None]
"""Takes a source of chance, what is changed in its place, and another file that pieces may be taken of."""


def changed(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Return bytes with one to four changes, and rarely truncated as well.

    Parameters
    ----------
    data : bytes
    chance : random.Random
    others : sequence of bytes
        Files of the same kind.
    """
    mutant = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 4))):
        if mutant:
            chance.choice(_CHANGES)(chance, mutant, chance.choice(others))
    if chance.random() < 0.05:
        del mutant[chance.randrange(len(mutant) + 1) :]
    return bytes(mutant[: 2 * len(data) + 20_000])


def _place(chance: random.Random, data: bytearray) -> int:
    """Return an offset: near the start, near the end, anywhere, or twice as often at a byte that is not zero."""
    where = chance.randrange(5)
    if where == 0:
        return chance.randrange(min(len(data), 64))
    if where == 1:
        return len(data) - 1 - chance.randrange(min(len(data), 400))
    if where == 2:
        return chance.randrange(len(data))
    said = np.flatnonzero(np.frombuffer(bytes(data), np.uint8))
    return int(said[chance.randrange(len(said))]) if len(said) else chance.randrange(len(data))


def _flip(chance: random.Random, data: bytearray, other: bytes) -> None:
    data[_place(chance, data)] ^= 1 << chance.randrange(8)


def _another_byte(chance: random.Random, data: bytearray, other: bytes) -> None:
    at = _place(chance, data)
    data[at] = chance.choice((chance.randrange(256), data[at] + 1 & 255, data[at] - 1 & 255))


def _overwrite(chance: random.Random, data: bytearray, other: bytes) -> None:
    at, new = _place(chance, data), chance.choice(_BYTES)
    data[at : at + len(new)] = new[: len(data) - at]


def _replace(chance: random.Random, data: bytearray, other: bytes) -> None:
    at = _place(chance, data)
    data[at : at + chance.randrange(5)] = chance.choice(_BYTES)


def _number(chance: random.Random, data: bytearray, other: bytes) -> None:
    """Replace a number of 2, 4 or 8 bytes by another one."""
    size = chance.choice((2, 4, 4, 8, 8))
    at = _place(chance, data)
    at = at if chance.random() < 0.3 else at // size * size
    if at + size <= len(data):
        order = chance.choice(("little", "little", "big"))
        there = int.from_bytes(data[at : at + size], order)
        near = there + chance.choice((-8, -1, 1, 8, there, len(data)))
        new = chance.choice((near, near, len(data), chance.choice(_NUMBERS), -chance.randrange(1, 100)))
        data[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, order)


def _digits(chance: random.Random, data: bytearray, other: bytes) -> None:
    """Replace a number in ASCII by another one."""
    match = _NUMBER.search(data, _place(chance, data)) or _NUMBER.search(data)
    if match:
        near = b"%d" % (int(match[0][:18]) + chance.choice((-1, 1, 100)))
        new = chance.choice((near, near, *_DIGITS))
        data[match.start() : match.end()] = new


def _word(chance: random.Random, data: bytearray, other: bytes) -> None:
    """Replace a word by another one, of the same length or not."""
    match = _WORD.search(data, _place(chance, data)) or _WORD.search(data)
    if match:
        there = [found[0] for found in _WORD.finditer(other[:20_000])]
        word = chance.choice(there) if there and chance.random() < 0.3 else chance.choice(WORDS)
        quoted = match[0].startswith(b'"')
        word = b'"' + word.replace(b'"', b"") + b'"' if quoted and chance.random() < 0.8 else word
        if chance.random() < 0.3 and not quoted:
            word = word.ljust(len(match[0]), b"\0")[: len(match[0])]
        data[match.start() : match.end()] = word


def _moved(chance: random.Random, data: bytearray, other: bytes) -> None:
    """Insert a piece of this file or of another one, or overwrite bytes with it."""
    source = other if chance.random() < 0.5 else bytes(data)
    start, at = chance.randrange(len(source) + 1), _place(chance, data)
    size = chance.randrange(1, 60)
    if chance.random() < 0.5:
        block = chance.choice(_BLOCKS)
        start, at, size = start // block * block, at // block * block, block
    data[at : at + chance.choice((0, size))] = source[start : start + size]


def _removed(chance: random.Random, data: bytearray, other: bytes) -> None:
    at = _place(chance, data)
    block = chance.choice((1, 2, 4, *_BLOCKS))
    at = at // block * block
    del data[at : at + block]


def _cleared(chance: random.Random, data: bytearray, other: bytes) -> None:
    block = chance.choice((4, *_BLOCKS))
    at = _place(chance, data) // block * block
    data[at : at + block] = bytes(min(block, len(data) - at))


_CHANGES: list[Change] = [
    *(_flip, _another_byte, _another_byte, _overwrite, _overwrite, _replace, _replace, _number, _number, _number),
    *(_digits, _digits, _word, _word, _moved, _moved, _removed, _cleared),
]


def _tar(data: bytes, chance: random.Random) -> bytes:
    """Change the types and other fields of some members, and correct the checksums of all headers."""
    tar = bytearray(data)
    for at in range(0, len(tar) - 511, 512):
        if tar[at + 257 : at + 262] == b"ustar":
            if chance.random() < 0.05:
                tar[at + 156] = chance.choice(b"01234567LKxgXSMVDA\0")
            if chance.random() < 0.05:
                begin, size = chance.choice(((0, 100), (124, 12), (157, 100), (345, 155), (386, 97), (482, 14)))
                word = chance.choice((*WORDS, *_DIGITS, b"\x80" + b"\xff" * 11, b"77777777777 "))[:size]
                tar[at + begin : at + begin + size] = word.ljust(size, b"\0")
            header = bytes(tar[at : at + 512])
            tar[at + 148 : at + 156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])
    return bytes(tar)


MENDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "tar": _tar,
    "tfrecord": lambda data, chance: tfrecord_mended(data),
}
"""What makes sums of changed files right again, by the names of seeds, so that what follows them is read."""
