"""Seeds for fuzzing packer's C: small drawn images of all kinds, after the controls of each target."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz import seeds as drawn
from fuzz.mutations import drawn_jpegs
from fuzz.pngs import SIGNATURE, chunk, drawn_png

CONTROLS = {
    **{"window": 12, "whole": 5, "png": 7, "survey": 3, "transcode": 2, "cut": 5, "annotate": 5, "inflate": 5},
    **{"views": 96, "operations": 3, "numbers": 5, "choosing": 3, "encode": 5},
}
"""The targets, and how many bytes of their inputs are controls, which the C of each reads."""

_JPEGS, _SHORT = 100, 1200  # drawn images of all samplings, sizes and kinds; only those with fewer bytes are used
_PNGS = 40
# Flags in the first control of some targets.
_RAW, _CHECKED, _BICUBIC, _FLIPPED, _REFLECTED, _UNSCALED, _INSIDE = 1, 2, 4, 8, 0x20, 0x40, 0x80
_WINDOWS = (_INSIDE, _INSIDE | _BICUBIC | _FLIPPED, _REFLECTED, _UNSCALED | _INSIDE, _UNSCALED | _CHECKED)
_STORED = 2
_VIEWS = (0, 8, 16, 8 + 2, 16 + 2, 8 + 4)  # how many operations on each; numbers; in plain C
_TALL, _WIDE, _OPERATIONS = 16, 32, 15
_CUT_SHORT = 192  # in the middle of the last marker


def write_seeds(directory: Path) -> None:
    """Write the seeds of each target to a folder of its name."""
    for name in CONTROLS:
        (directory / name).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(_seeds(name)):
            (directory / name / f"seed-{number:03d}").write_bytes(data)


def _seeds(name: str) -> Iterator[bytes]:
    chance = random.Random(name)
    yield from _GIVEN[name](chance) if name in _GIVEN else _images(name, chance)


def _images(name: str, chance: random.Random) -> Iterator[bytes]:
    images = [*drawn.images(), *drawn.tiled()]
    pngs = [data for data in [*images, *drawn.stored()] if data.startswith(SIGNATURE)]
    pngs += [drawn_png(chance, interlaced=number % 2 == 0) for number in range(_PNGS)]
    jpegs = [data for data in images if data.startswith(b"\xff\xd8")]
    jpegs += [*itertools.islice(drawn.long_scans(), 2), drawn.high_chroma()]
    jpegs += [data for data in drawn_jpegs(chance, _JPEGS) if len(data) < _SHORT]
    if name == "views":
        yield from _views(chance, [*jpegs, *pngs])
    elif name == "png":
        yield from (_controls(chance, name, 0) + data for data in pngs)
        yield from (_controls(chance, name, _STORED) + _inflated(data) for data in pngs)
    elif name == "inflate":
        yield from (_controls(chance, name, number % 4) + data for number, data in enumerate(_deflated(chance)))
    elif name == "annotate":
        for data in (*drawn.tiled(), *jpegs):
            yield _controls(chance, name, 0) + _without_table(data)
    elif name == "survey":
        yield from (_controls(chance, name, 2 * (number % 4)) + data for number, data in enumerate([*images, *jpegs]))
    elif name == "window":
        for number, data in enumerate(jpegs):
            yield _window(chance, _WINDOWS[number % len(_WINDOWS)]) + data
        for flags in _WINDOWS:
            yield _window(chance, flags | _RAW) + bytes([39, 29]) + chance.randbytes(40 * 30 * 3)
    else:
        for number, data in enumerate(jpegs):
            yield _controls(chance, name, _CUT_SHORT if number % 4 == 3 else 0) + data


def _controls(chance: random.Random, name: str, flags: int) -> bytes:
    if name == "inflate":  # the size of the result, and of the largest piece
        return struct.pack(">BHH", flags, chance.choice([100, 3000]), chance.choice([0, 50, 2000]))
    return bytes([flags]) + chance.randbytes(CONTROLS[name] - 1)


def _window(chance: random.Random, flags: int) -> bytes:
    """Return a rectangle, a size of less than 60 pixels, a window in that, and a colour."""
    return bytes([flags, *chance.randbytes(4), *(byte % 60 for byte in chance.randbytes(2)), *chance.randbytes(5)])


def _inflated(png: bytes) -> bytes:
    """Return a PNG whose samples are not compressed, in one chunk, as the target wraps them."""
    made, samples, at = SIGNATURE, b"", 8
    while at < len(png):
        end = at + 12 + int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            samples += png[at + 8 : end - 4]
        elif png[at + 4 : at + 8] == b"IEND":
            made += chunk(b"IDAT", zlib.decompress(samples)) + png[at:end]
        else:
            made += png[at:end]
        at = end
    return made


def _deflated(chance: random.Random) -> Iterator[bytes]:
    """Yield 100 and 3000 bytes of several kinds, compressed by zlib with dynamic codes, fixed ones and none."""
    kinds = (bytes(3000), chance.randbytes(3000), b"abcdefg " * 375, bytes(chance.choices(range(9), k=3000)))
    for data in kinds:
        for level, strategy in ((9, zlib.Z_DEFAULT_STRATEGY), (6, zlib.Z_FIXED), (1, zlib.Z_HUFFMAN_ONLY), (0, 0)):
            for size in (100, 3000):
                packed = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
                yield packed.compress(data[:size]) + packed.flush()


def _views(chance: random.Random, images: list[bytes]) -> Iterator[bytes]:
    """Yield views of images, and of pixels."""
    pixels = bytes([39, 29]) + chance.randbytes(40 * 30 * 3)
    for flags, data in [*zip(itertools.cycle(_VIEWS), images), *((flags | _RAW, pixels) for flags in _VIEWS)]:
        yield bytes([flags]) + chance.randbytes(CONTROLS["views"] - 1) + data


def _without_table(jpeg: bytes) -> bytes:
    """Return a JPEG without the segments that have its table of tiles."""
    at, kept = 2, [jpeg[:2]]
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        kept += [jpeg[at:end]] if jpeg[at + 4 : at + 9] != b"TILES" else []
        at = end
    return b"".join(kept) + jpeg[at:]


def _operations(chance: random.Random) -> Iterator[bytes]:
    """Yield operations of each kind, alone and several, on images of usual, tall and wide sizes."""
    for kind, flags in itertools.product(range(_OPERATIONS), (0, _TALL, _WIDE, 1)):
        controls = bytes([flags | 1, *chance.randbytes(2), kind, chance.randrange(240)])
        yield controls + bytes(chance.randrange(224) for _ in range(12)) + chance.randbytes(300)
    for _ in range(20):
        yield bytes([chance.choice([2, 3])]) + bytes(chance.randrange(224) for _ in range(60)) + chance.randbytes(300)


def _numbers(chance: random.Random) -> Iterator[bytes]:
    """Yield batches of all types and mixtures, of short and of long rows."""
    for flags in range(128):
        yield bytes([flags]) + bytes(chance.randrange(224) for _ in range(30)) + chance.randbytes(200)


def _chances(chance: random.Random) -> Iterator[bytes]:
    """Yield steps and rules, with random numbers of their own and with given ones."""
    for number in range(80):
        yield bytes([number % 4]) + chance.randbytes(200)


def _pixels(chance: random.Random) -> Iterator[bytes]:
    """Yield pixels of small, tall and wide images, of few levels and of all; rows as long as whole vectors."""
    for flags in range(32):
        yield bytes([flags]) + chance.randbytes(4) + chance.randbytes(chance.choice([3, 48, 3000]))
        yield bytes([flags, chance.randrange(40), chance.choice([15, 63]), 228, 2]) + chance.randbytes(600)


_GIVEN = {"operations": _operations, "numbers": _numbers, "choosing": _chances, "encode": _pixels}
