from __future__ import annotations

import hashlib
import io
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image, ImageOps

from packer._images import jpeg as jpeg_header, native
from packer._images.decode import DECODERS, apply_orientation, decode, fast_decoder, installed_decoders
from packer.errors import ImageError, ImageTooLargeError
from tests.images.samples import (
    SIZES,
    SUBSAMPLINGS,
    VARIANTS,
    damaged,
    encoded,
    jpeg,
    oriented,
    photo,
    pillow_pixels,
    png_chunk,
    tiff_orientation,
)
from tests.pairs import pairwise

INSTALLED = installed_decoders()


@pytest.fixture(params=DECODERS)
def decoder(request: pytest.FixtureRequest) -> str:
    if request.param not in INSTALLED:
        pytest.skip(f"needs the library of the decoder {request.param}")
    return str(request.param)


def upright(data: bytes) -> npt.NDArray[np.uint8]:
    with Image.open(io.BytesIO(data)) as image:
        turned = ImageOps.exif_transpose(image)
        return np.asarray(turned.convert("RGB"))


def assert_pillow_agrees(data: bytes, decoder: str) -> None:
    """Require Pillow's pixels, or an error if Pillow raises one."""
    expected = pillow_pixels(data)
    if expected is None:
        with pytest.raises(ImageError):
            decode(data, decoder=decoder)
    else:
        assert np.array_equal(decode(data, decoder=decoder), expected)


@pairwise(subsampling=SUBSAMPLINGS, variant=VARIANTS, size=SIZES)
def test_pixels_are_pillows(subsampling: str, variant: str, size: tuple[int, int], decoder: str) -> None:
    data = jpeg(subsampling, variant, size)
    pixels = decode(data, decoder=decoder)
    expected = pillow_pixels(data)
    assert expected is not None
    assert pixels.shape == (*size, 3)
    assert np.array_equal(pixels, expected)
    # The decoder itself decodes the image, and does not fall back to Pillow.
    assert np.array_equal(fast_decoder(decoder)[1](data), expected)


@pytest.mark.parametrize("size", SIZES)
def test_adobe_rgb(size: tuple[int, int], decoder: str) -> None:
    data = encoded(photo(*size), "JPEG", keep_rgb=True)
    assert np.array_equal(decode(data, decoder=decoder), pillow_pixels(data))


@pytest.mark.parametrize("size", SIZES)
def test_cmyk(size: tuple[int, int], decoder: str) -> None:
    data = encoded(Image.fromarray(photo(*size)).convert("CMYK"), "JPEG")
    pixels, expected = decode(data, decoder=decoder), pillow_pixels(data)
    assert expected is not None
    assert np.abs(pixels.astype(int) - expected).max() <= 2


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(data).toreadonly()])
@pytest.mark.parametrize("data", [jpeg(), encoded(photo(37, 53), "PNG")], ids=["jpeg", "png"])
def test_any_buffer_gives_writable_contiguous_pixels(data: bytes, kind: type, decoder: str) -> None:
    pixels = decode(kind(data), decoder=decoder)
    assert np.array_equal(pixels, pillow_pixels(data))
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable
    assert pixels.flags.c_contiguous


def test_real_photos(shared_data: Path, decoder: str) -> None:
    files = sorted((shared_data / "imagenet-sample").glob("*/*"))[::8]
    assert files
    for path in files:
        assert np.array_equal(decode(path.read_bytes(), decoder=decoder), pillow_pixels(path.read_bytes())), path


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("percent", [0, 5, 10, 50, 90, 99])
def test_truncated(variant: str, percent: int, decoder: str) -> None:
    data = jpeg(variant=variant)
    with pytest.raises(ImageError):
        decode(data[: len(data) * percent // 100], decoder=decoder)


def test_no_end_of_image(decoder: str) -> None:
    assert_pillow_agrees(jpeg()[:-2], decoder)


def test_trailing_junk(decoder: str) -> None:
    assert np.array_equal(decode(jpeg() + b"junk" * 1000, decoder=decoder), pillow_pixels(jpeg()))


def test_junk_before(decoder: str) -> None:
    with pytest.raises(ImageError, match="not an image"):
        decode(bytes(4801) + jpeg(), decoder=decoder)


@pytest.mark.parametrize(
    "marker", [b"\x02", b"\x41", b"\xb9", b"\xc0", b"\xc4", b"\xc8", b"\xd8", b"\xda", b"\xd9", b"\xf1"]
)
@pytest.mark.parametrize("variant", ["baseline", "progressive"])
def test_marker_amid_the_data(variant: str, marker: bytes, decoder: str) -> None:
    data = jpeg(variant=variant)
    header = jpeg_header.read_header(data)
    assert header is not None
    middle = (header.scan + len(data)) // 2
    assert_pillow_agrees(data[:middle] + b"\xff" + marker + data[middle + 2 :], decoder)


@pytest.mark.parametrize("lost", range(4))
def test_restart_marker_lost(lost: int, decoder: str) -> None:
    data = jpeg(variant="restarts")
    place = data.index(bytes([0xFF, 0xD0 + lost]))
    assert_pillow_agrees(data[:place] + data[place + 2 :], decoder)


@pytest.mark.parametrize("height", [1, 40, 49, 4000])
def test_height_that_does_not_fit_the_data(height: int, decoder: str) -> None:
    assert_pillow_agrees(jpeg().replace(b"\x00\x30\x00\x40", height.to_bytes(2, "big") + b"\x00\x40", 1), decoder)


@settings(max_examples=300)
@given(st.sampled_from(sorted(VARIANTS)).flatmap(lambda variant: damaged(jpeg(variant=variant))))
@pytest.mark.filterwarnings("ignore")  # Pillow warns about damaged metadata
def test_damaged_data_give_pillows_pixels_or_an_error(data: bytes) -> None:
    expected = pillow_pixels(data)
    for name in INSTALLED:
        try:
            pixels = decode(data, decoder=name)
        except ImageError:
            assert expected is None, name
        else:
            assert expected is not None, name
            assert np.array_equal(pixels, expected), name


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif(kind: str, orientation: int, decoder: str) -> None:
    data = oriented(photo(37, 53), orientation, kind)
    assert np.array_equal(decode(data, exif="apply", decoder=decoder), upright(data))
    assert np.array_equal(decode(data, exif="ignore", decoder=decoder), pillow_pixels(data))
    assert np.array_equal(decode(data, decoder=decoder), pillow_pixels(data))


@pytest.mark.parametrize("kind", [1, 3, 4])
@pytest.mark.parametrize("order", ["<", ">"])
def test_exif_of_any_type(order: str, kind: int, decoder: str) -> None:
    data = encoded(photo(37, 53), "JPEG", exif=tiff_orientation(order, kind, 6))
    assert np.array_equal(decode(data, exif="apply", decoder=decoder), upright(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_orientation_in_xmp(kind: str, decoder: str) -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><r:Description tiff:Orientation="6"/></x:xmpmeta>'
    if kind == "JPEG":
        data = encoded(photo(37, 53), "JPEG", xmp=xmp)
    else:
        data = encoded(photo(37, 53), "PNG")
        data = data[:33] + png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp) + data[33:]
    assert upright(data).shape == (53, 37, 3)
    assert np.array_equal(decode(data, exif="apply", decoder=decoder), upright(data))


def test_exif_examples(shared_data: Path) -> None:
    """Each photo is decoded in the default way, and by one of the decoders in turn: the photos are large."""
    files = sorted((shared_data / "odd" / "exif").iterdir())
    assert len(files) >= 16
    for path, decoder in zip(files, itertools.cycle(INSTALLED), strict=False):
        data = path.read_bytes()
        apparent, stored = upright(data), pillow_pixels(data)
        for name in ("auto", decoder):
            assert np.array_equal(decode(data, exif="apply", decoder=name), apparent), (path, name)
            assert np.array_equal(decode(data, decoder=name), stored), (path, name)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 1), (1, 5)])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_apply_orientation(orientation: int, shape: tuple[int, int]) -> None:
    pixels = np.arange(shape[0] * shape[1] * 3, dtype=np.uint8).reshape(*shape, 3)
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    turned = apply_orientation(pixels, orientation)
    assert np.array_equal(turned, np.asarray(ImageOps.exif_transpose(image)))
    assert turned.flags.c_contiguous


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
def test_limit(kind: str, decoder: str) -> None:
    data = encoded(photo(37, 53), kind)
    assert decode(data, decoder=decoder, max_pixels=37 * 53).shape == (37, 53, 3)
    with pytest.raises(ImageTooLargeError, match="53 x 37 pixels exceed the 1960 allowed"):
        decode(data, decoder=decoder, max_pixels=37 * 53 - 1)


def test_unknown_decoder() -> None:
    with pytest.raises(ValueError, match=r"'auto' or one of .*'pyturbojpeg', 'opencv', 'pillow'.*not 'dali'"):
        decode(jpeg(), decoder="dali")


def test_without_vectors_whole_sequential_photos_alone_are_left_to_libjpeg_turbo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not native.PREFERRED:
        pytest.skip("needs a C compiler at the installation")
    asked, own = [], native.decode

    def ask(data: bytes, height: int, width: int) -> npt.NDArray[np.uint8] | None:
        asked.append(data)
        return own(data, height, width)

    monkeypatch.setattr(native, "WHOLE_JPEGS", False)
    monkeypatch.setattr(native, "decode", ask)
    images = [jpeg(), jpeg(variant="progressive"), encoded(photo(20, 30), "PNG")]
    for data in images:
        assert np.array_equal(decode(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    assert asked == images[1:]


@pytest.mark.parametrize("missing", [("simplejpeg",), ("simplejpeg", "cv2")], ids=", ".join)
def test_without_the_libraries(missing: tuple[str, ...], tmp_path: Path) -> None:
    """packer never chooses PyTurboJPEG by itself, whichever other libraries are missing."""
    for name in missing:
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden by a test')\n")
    code = """
import hashlib, sys
sys.modules["packer._images._native"] = None
from packer.errors import MissingDependencyError
from packer._images.decode import decode, decoder_advice, fast_decoder
try:
    fast_decoder("turbojpeg")
except MissingDependencyError as error:
    print(error)
print(fast_decoder()[0])
print(decoder_advice())
print(hashlib.sha256(decode(bytes.fromhex(sys.stdin.read())).tobytes()).hexdigest())
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        input=jpeg().hex(),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=True,
    )
    refusal, chosen, advice, digest = run.stdout.splitlines()
    expected = pillow_pixels(jpeg())
    assert expected is not None
    assert refusal == "the decoder turbojpeg: hidden by a test (pip install simplejpeg)"
    assert chosen == ("opencv" if "opencv" in INSTALLED and "cv2" not in missing else "pillow")
    assert (
        f"{chosen} decodes instead, and decodes the whole image for each crop, because simplejpeg is not installed"
        in advice
    )
    assert digest == hashlib.sha256(expected.tobytes()).hexdigest()
