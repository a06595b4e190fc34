"""packer's inflate returns the bytes that zlib deflated, and refuses what zlib refuses."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from packer._images.extension import _native

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler when packer is installed")


def inflated(data: bytes, size: int, whole: bool = True) -> bytes | None:
    out = np.full(size + 16, 0xA5, np.uint8)
    done = _native.inflate(data, out.ctypes.data, size, whole)
    assert (out[size:] == 0xA5).all()
    return out[:size].tobytes() if done else None


def by_zlib(data: bytes, size: int) -> bytes | None:
    """Return what zlib inflates; None unless the stream is complete and has `size` bytes."""
    inflating = zlib.decompressobj()
    try:
        out = inflating.decompress(data, size + 1)
    except zlib.error:
        return None
    return out if inflating.eof and len(out) == size else None


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Draw noise, zeros, runs, few symbols, or lines that repeat."""
    size, rng = draw(st.sampled_from([0, 1, 2, 7, 300, 5000, 70_000])), np.random.default_rng(draw(st.integers(0, 99)))
    match draw(st.integers(0, 4)):
        case 0:
            return rng.bytes(size)
        case 1:
            return bytes(size)
        case 2:
            return np.repeat(rng.integers(0, 20, size // 7 + 1, np.uint8), 7).tobytes()[:size]
        case 3:
            return rng.normal(0, 3, size).astype(np.int8).tobytes()
        case _:
            return (rng.integers(0, 9, 501, np.uint8).tobytes() * (size // 501 + 1))[:size]


@st.composite
def deflated(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """Draw bytes, and the same bytes deflated with random settings of zlib."""
    raw = draw(contents())
    settings = (
        draw(st.integers(0, 9)),
        8,
        draw(st.sampled_from([9, 12, 15])),
        draw(st.integers(1, 9)),
        draw(st.integers(0, 4)),
    )
    deflating = zlib.compressobj(*settings)
    half = draw(st.integers(0, len(raw)))
    data = deflating.compress(raw[:half])
    if draw(st.booleans()):
        data += deflating.flush(draw(st.sampled_from([zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])))
    return raw, data + deflating.compress(raw[half:]) + deflating.flush()


@given(pair=deflated(), data=st.data())
def test_all_that_zlib_deflates_is_inflated(pair: tuple[bytes, bytes], data: st.DataObject) -> None:
    raw, packed = pair
    assert inflated(packed, len(raw)) == raw
    assert inflated(packed + b"more", len(raw)) == raw
    assert inflated(packed, len(raw) + 1) is None
    assert inflated(packed, len(raw) + 1, whole=False) is None
    first = data.draw(st.integers(0, len(raw)))
    assert inflated(packed, first, whole=False) == raw[:first]
    assert first == len(raw) or inflated(packed, first) is None


def test_zlibs_checksum_is_compared() -> None:
    packed = bytearray(zlib.compress(bytes(range(256)) * 300))
    packed[-1] ^= 1
    assert inflated(bytes(packed), 256 * 300) is None
    assert inflated(bytes(packed), 256 * 299, whole=False) is not None


@given(pair=deflated(), data=st.data())
def test_of_damaged_bytes_no_more_is_inflated_than_by_zlib(pair: tuple[bytes, bytes], data: st.DataObject) -> None:
    raw, packed = pair
    damaged = bytearray(packed)
    places = st.one_of(st.integers(0, len(packed) - 1), st.integers(0, min(len(packed) - 1, 80)))
    for place in data.draw(st.lists(places, max_size=3)):
        damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    damaged = damaged[: data.draw(st.one_of(st.just(len(packed)), st.integers(0, len(packed))))]
    assert inflated(bytes(damaged), len(raw)) == by_zlib(bytes(damaged), len(raw))
    begun = inflated(bytes(damaged), len(raw) // 2, whole=False)
    whole = by_zlib(bytes(damaged), len(raw))
    assert whole is None or begun == whole[: len(raw) // 2]
    with_room = zlib.decompressobj(-15)
    try:
        expected = with_room.decompress(bytes(damaged[2:]), len(raw) // 2) if len(raw) > 1 else begun
    except zlib.error:
        return
    assert begun in (expected, None)


def test_arguments_that_are_none_are_refused() -> None:
    for arguments in ([], [b""], ["text", 0, 0, 0], [b"", 0, -1, 0]):
        with pytest.raises((TypeError, ValueError)):
            _native.inflate(*arguments)
    for function in (_native.png_samples, _native.gather):
        with pytest.raises(TypeError):
            function(1)
    for kind in ((0, 1, 8, 0), (1, 0, 8, 0), (1, 1, 3, 0), (1, 1, 8, 5), (1 << 32, 1, 8, 0)):
        with pytest.raises(ValueError, match="this kind"):
            _native.png_samples(b"", *kind, 0, 0, 1, 0)
    for rows in ((-1, 1), (1, 1), (0, 3)):
        with pytest.raises(ValueError, match="this kind"):
            _native.png_samples(b"", 2, 2, 8, 0, 0, *rows, 0)
    with pytest.raises(ValueError, match="the size of the window"):
        _native.gather(0, 0, 0, 0, 0, 0, 0, 0, 0)


class Blocks:
    """Blocks of deflated data that no encoder writes, bit by bit (RFC 1951, section 3.2)."""

    def __init__(self) -> None:
        self.bits: list[str] = []
        self.content = b""

    def _put(self, number: int, count: int) -> None:
        self.bits.append(f"{number:0{count}b}"[::-1])

    def fixed(self, content: bytes = b"") -> Blocks:
        """Add a block with the fixed codes; the literals must be below 144."""
        self.bits.append("010" + "".join(f"{48 + level:08b}" for level in content) + "0000000")
        self.content += content
        return self

    def codes(self) -> Blocks:
        """Add an empty block with dynamic codes, whose only literal code is the end of the block."""
        for number, count in ((0, 1), (2, 2), (0, 5), (0, 5), (14, 4)):
            self._put(number, count)
        for k in range(18):  # one bit for "zeros" and for the length 1
            self._put(k in (2, 17), 3)
        self.bits.append("1" + f"{138 - 11:07b}"[::-1] + "1" + f"{118 - 11:07b}"[::-1] + "0" + "0" + "0")
        return self

    def stream(self) -> bytes:
        """Return the blocks and an empty last block as a zlib stream."""
        bits = "".join([*self.bits, "110", "0000000"])
        body = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))
        return b"\x78\x9c" + body + zlib.adler32(self.content).to_bytes(4, "big")


def test_blocks_of_other_codes_may_follow_each_other() -> None:
    blocks = Blocks().fixed(b"one").fixed(b"two").codes().fixed(b"three").codes().codes().fixed().fixed(b"four")
    data = blocks.stream()
    assert by_zlib(data, 15) == inflated(data, 15) == b"onetwothreefour"


def test_any_number_of_blocks_of_the_fixed_codes_is_inflated() -> None:
    """The tables are not filled again for each block, which would take as long as hundreds of bytes."""
    data = Blocks().fixed(b"first").stream()
    assert inflated(data, 5) == b"first"
    blocks = Blocks().fixed(b"first")
    blocks.bits += ["0100000000"] * 100_000
    assert inflated(blocks.fixed(b"last").stream(), 9) == b"firstlast"


def test_more_new_codes_than_an_encoder_writes_count_as_damage() -> None:
    for number in (1000, 20_000):
        blocks = Blocks().fixed(b"first")
        blocks.bits += Blocks().codes().bits * number
        data = blocks.fixed(b"last").stream()
        assert by_zlib(data, 9) == b"firstlast"
        assert inflated(data, 9) == (b"firstlast" if number == 1000 else None)


@pytest.mark.parametrize("flush", [zlib.Z_BLOCK, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY])
def test_the_shortest_blocks_that_zlib_writes_are_inflated(strategy: int, flush: int) -> None:
    """zlib uses the least memory, and is flushed after every few bytes, as if after each row of a narrow image."""
    levels = np.random.default_rng(3).integers(0, 3, 300_000, np.uint8).tobytes()
    for size, whole in ((2, levels[:50_000]), (100, levels), (300_000, levels)):
        deflating = zlib.compressobj(9, 8, 9, 1, strategy)
        rows = [deflating.compress(whole[at : at + size]) + deflating.flush(flush) for at in range(0, len(whole), size)]
        assert inflated(b"".join(rows) + deflating.flush(), len(whole)) == whole
