"""Compressed values in files."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from packer._containers.compression import CODECS, PackedSpool, unpack
from packer._containers.contract import Packed, Piece
from packer._containers.listing import ForeignFiles
from packer.errors import ImageError

DATA = bytes(range(256)) * 40
_FRAMES = {"deflate": -15, "zlib": 15, "gzip": 31}


def packed_by(codec: str, data: bytes = DATA) -> bytes:
    if codec not in _FRAMES:
        return bytes(pa.compress(data, codec=codec, asbytes=True))
    deflater = zlib.compressobj(6, zlib.DEFLATED, _FRAMES[codec])
    return deflater.compress(data) + deflater.flush()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_gives_what_was_compressed_and_nothing_of_another_size(codec: str) -> None:
    packed = packed_by(codec)
    assert unpack(codec, packed, len(DATA)) == DATA
    assert unpack(codec, packed_by(codec, b""), 0) == b""
    for size in (0, len(DATA) - 1, len(DATA) + 1, 1 << 20, -1, 1 << 40):
        with pytest.raises(ValueError, match=r"bytes|damaged"):
            unpack(codec, packed, size)
    for cut in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(ValueError, match=r"bytes|damaged"):
            unpack(codec, packed[:cut], len(DATA))


def test_gzip_may_have_several_members() -> None:
    assert unpack("gzip", packed_by("gzip") * 2, 2 * len(DATA)) == DATA * 2
    with pytest.raises(ValueError, match="too early"):
        unpack("zlib", packed_by("zlib") * 2, 2 * len(DATA))


def test_gzip_of_very_many_members_is_unpacked_in_time() -> None:
    """The rest of the data is not copied for each member: with so many members, the copies would take minutes."""
    short = packed_by("gzip", b"") * 100_000 + packed_by("gzip", b"x") * 5000
    long = packed_by("gzip", np.random.default_rng(1).bytes(200_000))
    unpacked = unpack("gzip", short + long, 205_000)
    assert unpacked == b"x" * 5000 + zlib.decompress(long, 31)


def test_values_lie_in_compressed_ranges_as_in_files(tmp_path: Path) -> None:
    first, second = packed_by("deflate"), packed_by("zstd", DATA[::-1])
    (tmp_path / "a").write_bytes(b"??" + first + second)
    spool, ranges = PackedSpool(1), (Piece(0, 2, len(first)), Piece(0, 2 + len(first), len(second)))
    numbers = [
        spool.add(packed)
        for packed in (
            Packed(ranges[0], "deflate", len(DATA), 0, 9, zlib.crc32(DATA)),
            Packed(ranges[0], "deflate", len(DATA), 9, 9, zlib.crc32(DATA)),
            Packed.whole(ranges[1], "zstd", len(DATA)),
            Packed.whole(ranges[1], "zstd", len(DATA), 17),
        )
    ]
    assert numbers == [1, 1, 2, 3]
    files = ForeignFiles(tmp_path, ["a"], packed=spool.ranges())
    assert files.read(0, 0, 2) == b"??"
    assert files.read(1, 9, 9) == DATA[9:18]
    assert files.read(2, 0, len(DATA)) == DATA[::-1]
    assert files.packed.origins(np.array([~0, 0, 1, 3])).tolist() == [0, 0, 0, 0]
    with pytest.raises(ImageError, match=r"a, byte .* do not match their checksum"):
        files.read(3, 0, 5)
