"""packer's PNG reader returns Pillow's arrays, and all 16 bits."""

from __future__ import annotations

import io
import itertools
import struct
import tracemalloc
import zlib
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from packer._images import png
from packer._images.extension import _native
from packer._images.probe import inspect
from tests.images.samples import encoded, photo, png_chunk

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler when packer is installed")

KINDS = ((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16), (3, 1), (3, 2), (3, 4), (3, 8))
KINDS += ((4, 8), (4, 16), (6, 8), (6, 16))
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))


def packed(samples: npt.NDArray[Any], depth: int) -> npt.NDArray[np.uint8]:
    """Return (rows, width, channels) samples as the bytes of rows."""
    if depth == 16:
        return samples.astype(">u2").reshape(len(samples), -1).view(np.uint8)
    bits = np.unpackbits(samples.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth :]
    return np.packbits(bits.reshape(len(samples), -1), axis=-1)


def filtered(rows: npt.NDArray[np.uint8], step: int, filters: list[int]) -> bytes:
    """Filter rows, one filter after the other, as the specification says."""
    out = bytearray()
    padded = np.zeros((len(rows) + 1, rows.shape[1] + step), np.int64)
    padded[1:, step:] = rows
    for number in range(len(rows)):
        kind = filters[number % len(filters)]
        line, left = padded[number + 1, step:], padded[number + 1, :-step]
        above, corner = padded[number, step:], padded[number, :-step]
        estimate = left + above - corner
        distances = np.abs(np.stack([estimate - left, estimate - above, estimate - corner]))
        nearest = np.choose(distances.argmin(0), [left, above, corner])
        expected = [0, left, above, (left + above) // 2, nearest][kind]
        out += bytes([kind]) + ((line - expected) & 0xFF).astype(np.uint8).tobytes()
    return bytes(out)


def drawn(  # noqa: PLR0917
    samples: npt.NDArray[Any], colour: int, depth: int, filters: list[int], interlaced: bool = False, parts: int = 1
) -> bytes:
    """Write a PNG of (height, width, channels) samples."""
    height, width, channels = samples.shape
    step = max(1, channels * depth // 8)
    passes = [samples[a::b, c::d] for a, b, c, d in PASSES] if interlaced else [samples]
    raw = b"".join(filtered(packed(part, depth), step, filters) for part in passes if part.size)
    body = zlib.compress(raw)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    palette = png_chunk(b"PLTE", bytes(range(256)) * 3) if colour == 3 else b""
    cuts = [len(body) * k // parts for k in range(parts + 1)]
    data = b"".join(png_chunk(b"IDAT", body[a:b]) for a, b in itertools.pairwise(cuts))
    return png.SIGNATURE + png_chunk(b"IHDR", header) + palette + data + png_chunk(b"IEND", b"")


def decoded(data: bytes, *rows: int) -> npt.NDArray[Any]:
    found = png.read(data)
    assert found is not None
    pixels = png.decode(found, *rows)
    assert pixels is not None
    assert pixels.flags.writeable
    return pixels


def samples_of(seed: int, size: tuple[int, int], colour: int, depth: int) -> npt.NDArray[np.uint16]:
    shape = (*size, CHANNELS[colour])
    return np.random.default_rng(seed).integers(0, 1 << depth, shape).astype(np.uint16)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), KINDS)
def test_every_kind_of_png_is_read_exactly(colour: int, depth: int, interlaced: bool, tmp_path: Any) -> None:
    for size in ((1, 1), (1, 9), (7, 1), (13, 17), (9, 8)):
        samples = samples_of(size[1], size, colour, depth)
        data = drawn(samples, colour, depth, [0, 4, 3, 2, 1, 2, 4], interlaced, parts=3)
        pixels = decoded(data)
        spread = 255 // ((1 << depth) - 1) if colour == 0 and 1 < depth < 8 else 1
        assert pixels.dtype == (np.uint16 if depth == 16 else np.uint8)
        assert np.array_equal(pixels, samples * spread)
        for first, end in ((0, 1), (size[0] // 2, size[0] // 2 + 1), (size[0] - 1, size[0])):
            assert np.array_equal(decoded(data, first, end), pixels[first:end])
        if depth < 16 or colour == 0:
            (tmp_path / "a.png").write_bytes(data)
            shown = np.asarray(Image.open(tmp_path / "a.png"))
            assert np.array_equal(pixels, shown.reshape(pixels.shape))
        elif colour in (2, 6):
            bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
            assert np.array_equal(pixels, bgr[..., [2, 1, 0, 3][: pixels.shape[2]]])


@pytest.mark.parametrize("step", [1, 3, 4, 6, 8])
def test_filters_in_c_and_in_python_are_the_same(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(step).integers(0, 256, (40, 1 + 24), np.uint8)
    rows[:, 0] = np.arange(40) % 5
    *_, colour = (colour for colour, depth in KINDS if CHANNELS[colour] * depth == 8 * step and colour != 3)
    depth = 8 * step // CHANNELS[colour]
    header = struct.pack(">IIBBBBB", 24 // step, 40, depth, colour, 0, 0, 0)
    body = png_chunk(b"IDAT", zlib.compress(rows.tobytes())) + png_chunk(b"IEND", b"")
    out = decoded(png.SIGNATURE + png_chunk(b"IHDR", header) + body)
    expected = png.unfiltered_in_python(rows, step)
    assert np.array_equal(out, expected.view(">u2" if depth == 16 else np.uint8).reshape(out.shape))
    if depth == 16:
        monkeypatch.setattr(png, "_native", None)
        again = decoded(png.SIGNATURE + png_chunk(b"IHDR", header) + body, 7, 40)
        assert np.array_equal(again, out[7:])


@given(data=st.data())
def test_a_damaged_png_is_left_to_others(data: st.DataObject) -> None:
    """Each chunk's CRC is compared, so any flipped bit and any truncation is found."""
    whole = drawn(samples_of(1, (9, 11), 0, 8), 0, 8, [0, 1, 2, 3, 4], parts=2)
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(changed), whole[:place]):
        assert png.read(damaged) is None


def test_unusual_pngs_are_left_to_pillow() -> None:
    samples = samples_of(2, (4, 5), 3, 8)
    data = drawn(samples, 3, 8, [0], parts=2)
    ihdr, plte, first, second, iend = chunks_of(data)
    known = png_chunk(b"tEXt", b"Comment\0hello")
    for chunks, compressed, plain in (
        ((ihdr, plte, known, first, second, iend), True, True),
        ((ihdr, plte, first, known, second, iend), False, True),
        ((ihdr, first, second, plte, iend), False, True),
        ((ihdr, plte, png_chunk(b"ABCD", b""), first, second, iend), False, True),
        ((ihdr, plte, png_chunk(b"eXIf", b"MM"), first, second, iend), True, False),
        ((ihdr, plte, png_chunk(b"tEXt", b"Raw profile type exif\0"), first, second, iend), True, False),
        ((ihdr, plte, png_chunk(b"tEXt", b"interlace\0yes"), first, second, iend), True, False),
        ((ihdr, plte, png_chunk(b"tRNS", bytes(257)), first, second, iend), True, False),
    ):
        found = png.read(png.SIGNATURE + b"".join(chunks))
        assert found is not None
        assert (found.compressed is not None, found.plain) == (compressed, plain)
    assert png.read(png.SIGNATURE + ihdr + plte + iend) is None
    assert png.read(b"") is None


def chunks_of(data: bytes) -> list[bytes]:
    chunks, position = [], len(png.SIGNATURE)
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position : position + 4], "big")
        chunks.append(data[position:end])
        position = end
    return chunks


@pytest.mark.parametrize("raw", [bytes(19), bytes(21), bytes([5, *range(4)]) * 4, b""])
def test_samples_of_another_number_or_filter_are_none(raw: bytes) -> None:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0))
    body = png_chunk(b"IDAT", zlib.compress(raw)) + png_chunk(b"IEND", b"")
    found = png.read(png.SIGNATURE + header + body)
    assert found is not None
    assert png.decode(found) is None


def test_samples_that_are_not_inflated_are_none() -> None:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0))
    found = png.read(png.SIGNATURE + header + png_chunk(b"IDAT", b"none") + png_chunk(b"IEND", b""))
    assert found is not None
    assert png.decode(found) is None


def test_masks_as_pillow_writes_them_are_read() -> None:
    ids = (photo(60, 70)[..., 0] >> 4).astype(np.uint8)
    for colours in (2, 4, 16, 255):
        image = Image.fromarray(ids % colours)
        image.putpalette(list(range(colours)) * 3)
        assert image.mode == "P"
        assert np.array_equal(decoded(encoded(image, "PNG"))[..., 0], ids % colours)


def test_an_orientation_in_xmp_in_a_text_chunk_is_left_to_pillow() -> None:
    xmp = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'
    info, file = PngInfo(), io.BytesIO()
    info.add_text("XML:com.adobe.xmp", xmp)
    Image.new("RGB", (4, 2)).save(file, "PNG", pnginfo=info)
    found = png.read(file.getvalue())
    assert found is not None
    assert not found.plain
    assert inspect(file.getvalue()).orientation == 6


@pytest.mark.parametrize("name", [b"IDAT", b"tEXt", b"abCd"])
def test_chunks_of_no_bytes_cost_no_more_memory_than_they_are(name: bytes) -> None:
    header, samples = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), zlib.compress(b"\0\7")
    data = (
        png.SIGNATURE + header + 10_000 * png_chunk(name, b"") + png_chunk(b"IDAT", samples) + png_chunk(b"IEND", b"")
    )
    tracemalloc.start()
    try:
        found = png.read(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.compressed == samples
    assert most < len(data)
