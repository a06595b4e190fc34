"""packer reads plain BMPs, whole or in part, with Pillow's pixels; it leaves other BMPs to Pillow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import packer
from packer._images import pillow
from packer._images.decode import decode
from packer._images.probe import inspect
from packer._images.rectangle import RectangleDecoder
from packer.errors import ImageError, ImageTooLargeError
from tests.images.samples import SIZES, encoded, photo

PHOTO = encoded(photo(7, 9), "BMP")


@pytest.mark.parametrize("size", SIZES)
def test_pixels_are_pillows(size: tuple[int, int]) -> None:
    data = encoded(photo(*size), "BMP")
    found = pillow.read_bmp(data)
    assert found is not None
    assert np.array_equal(found.decode(), pillow.decode(data))
    assert decode(data).flags.writeable
    assert inspect(data) == inspect(memoryview(data))
    assert (inspect(data).height, inspect(data).width, inspect(data).plain) == (*size, True)


@given(st.data())
def test_a_part_is_that_of_the_whole(drawn: st.DataObject) -> None:
    found = pillow.read_bmp(PHOTO)
    assert found is not None
    top, left = drawn.draw(st.integers(0, 6)), drawn.draw(st.integers(0, 8))
    height, width = drawn.draw(st.integers(1, 7 - top)), drawn.draw(st.integers(1, 9 - left))
    part = photo(7, 9)[top : top + height, left : left + width]
    assert np.array_equal(found.decode(top, left, height, width), part)


def test_the_decoder_pillow_is_pillow_for_a_plain_bmp_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Pillow's BMP plugin, only packer's own reader can decode the file."""
    rectangle, size = (1, 2, 3, 4), (7, 9)
    assert np.array_equal(decode(PHOTO, decoder="pillow"), photo(7, 9))
    assert np.array_equal(RectangleDecoder(decoder="pillow").decode(PHOTO, rectangle, size), photo(7, 9)[1:4, 2:6])
    monkeypatch.delitem(Image.OPEN, "BMP")
    assert np.array_equal(decode(PHOTO), photo(7, 9))
    assert np.array_equal(RectangleDecoder().decode(PHOTO, rectangle, size), photo(7, 9)[1:4, 2:6])
    with pytest.raises(ImageError):
        decode(PHOTO, decoder="pillow")
    with pytest.raises(ImageError):
        RectangleDecoder(decoder="pillow").decode(PHOTO, rectangle, size)


@pytest.mark.parametrize("kind", ["L", "P", "1", "RGBA"])
def test_other_bmps_are_left_to_pillow(kind: str) -> None:
    data = encoded(Image.fromarray(photo(7, 9)).convert(kind), "BMP")
    assert pillow.read_bmp(data) is None
    assert np.array_equal(decode(data), pillow.decode(data))
    assert not inspect(data).plain


def test_a_bmp_whose_rows_begin_at_the_top_is_left_to_pillow() -> None:
    data = bytearray(PHOTO)
    data[22:26] = (-7).to_bytes(4, "little", signed=True)
    assert pillow.read_bmp(data) is None
    assert np.array_equal(decode(data), photo(7, 9)[::-1])


@given(st.integers(0, 53), st.integers(0, 255))
def test_changed_headers_give_what_pillow_gives(place: int, byte: int) -> None:
    data = bytearray(PHOTO)
    data[place] = byte
    try:
        expected = pillow.decode(data, max_pixels=10**6)
    except ImageError:
        with pytest.raises(ImageError):
            decode(data, max_pixels=10**6)
    else:
        assert np.array_equal(decode(data, max_pixels=10**6), expected)
        assert (inspect(data).height, inspect(data).width) == expected.shape[:2]


def test_one_that_is_cut_short_or_too_large_is_refused() -> None:
    with pytest.raises(ImageError):
        decode(PHOTO[:-2])  # the last byte of the file is padding
    with pytest.raises(ImageTooLargeError):
        decode(PHOTO, max_pixels=62)


@pytest.mark.parametrize("crop", [packer.RandomResizedCrop(5), packer.ResizeCenterCrop(6, 8)])
def test_crops_of_a_pack_are_those_of_the_pixels(crop: packer.Crop, photo_tree: Path, tmp_path: Path) -> None:
    for codec in ("raw", "bmp"):
        packer.convert(photo_tree, tmp_path / f"{codec}.lmdb", codec=codec)
    packs = [packer.open_dataset(tmp_path / f"{codec}.lmdb", crop=crop, seed=1) for codec in ("raw", "bmp")]
    for (one, label), (other, same) in zip(*packs, strict=True):
        assert (one == other).all()
        assert label == same
    with packer.open_pack(tmp_path / "bmp.lmdb") as reader:
        assert reader.manifest.codec == "bmp"
        assert bytes(reader.read(0))[:2] == b"BM"
    exported = tmp_path / "files"
    packer.export(tmp_path / "bmp.lmdb", exported)
    assert {path.suffix for path in exported.rglob("*") if path.is_file()} >= {".bmp"}
