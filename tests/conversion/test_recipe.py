from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, strategies as st
from PIL import Image, ImageOps

from packer._codecs import CODECS, RESIZE_MODES
from packer._conversion.pipeline import prepare
from packer._conversion.recipe import Recipe
from packer._images.resize import ResizeSpec
from packer.errors import ImageError, ImageTooLargeError
from tests.conftest import odd_images
from tests.images.samples import encoded, jpeg, oriented, photo, pillow_pixels
from tests.pairs import pairwise

PHOTO = photo(37, 53)
ODD = odd_images()
MAKING = [codec for codec in CODECS if codec != "keep"]


def stored(data: bytes, name: str = "c/x.jpg", recipe: Recipe | None = None) -> bytes:
    return bytes(prepare(memoryview(data), name, recipe or Recipe()).data)


def pixels_of(data: bytes, name: str, recipe: Recipe) -> npt.NDArray[np.uint8]:
    """Return the pixels of the prepared sample; require that they have the announced size."""
    prepared = prepare(data, name, recipe)
    if recipe.codec == "raw":
        return np.frombuffer(prepared.data, np.uint8).reshape(prepared.height, prepared.width, 3)
    pixels = pillow_pixels(prepared.data)
    assert pixels is not None
    assert pixels.shape == (prepared.height, prepared.width, 3)
    return pixels


@pairwise(name=ODD, exif=["ignore", "apply"], audit=["structure", "decode"])
def test_keep_never_changes_bytes(name: str, exif: str, audit: str) -> None:
    prepared = prepare(memoryview(ODD[name]), name, Recipe(exif=exif, audit=audit))
    assert bytes(prepared.data) == ODD[name]
    with Image.open(io.BytesIO(ODD[name])) as image:
        shown = ImageOps.exif_transpose(image) if exif == "apply" else image
        assert (prepared.width, prepared.height) == shown.size


@pytest.mark.parametrize("codec", ["png", "raw"])
@pytest.mark.parametrize("name", ODD)
def test_lossless_codecs_store_pillows_pixels(name: str, codec: str) -> None:
    expected = pillow_pixels(ODD[name])
    assert expected is not None
    pixels = pixels_of(ODD[name], name, Recipe(codec=codec, to_8_bit="clip"))
    assert np.abs(pixels.astype(int) - expected).max() <= (2 if "cmyk" in name else 0)


@pytest.mark.parametrize("codec", ["png", "raw"])
@pytest.mark.parametrize("name", [name for name in ODD if name.startswith("exif")])
def test_apply_stores_upright_pixels(name: str, codec: str) -> None:
    with Image.open(io.BytesIO(ODD[name])) as image:
        upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert np.array_equal(pixels_of(ODD[name], name, Recipe(codec=codec, exif="apply")), upright)


@pytest.mark.parametrize("data", [jpeg(), jpeg("grey"), jpeg(variant="progressive"), jpeg() + b"junk"])
def test_jpeg_keeps_a_jpegs_bytes(data: bytes) -> None:
    assert stored(data, recipe=Recipe(codec="jpeg")) == data
    assert stored(data, recipe=Recipe(codec="jpeg", quality=5)) == data
    assert stored(data, recipe=Recipe(codec="jpeg", resize=ResizeSpec(500))) == data  # never enlarged


@pytest.mark.parametrize(
    ("codec", "kind", "options"), [("png", "PNG", {}), ("webp", "WEBP", {}), ("webp", "WEBP", {"lossless": True})]
)
def test_png_and_webp_keep_their_own(codec: str, kind: str, options: dict[str, Any]) -> None:
    data = encoded(PHOTO, kind, **options)
    assert stored(data, recipe=Recipe(codec=codec)) == data


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_jpeg_encodes_all_others(kind: str) -> None:
    data = encoded(PHOTO, kind)
    low, high = (stored(data, recipe=Recipe(codec="jpeg", quality=quality)) for quality in (10, 95))
    assert high.startswith(b"\xff\xd8\xff")
    assert len(low) < len(high)
    expected, found = pillow_pixels(data), pillow_pixels(high)
    assert expected is not None
    assert found is not None
    assert np.abs(found.astype(int) - expected).mean() < 6


def test_jpeg_encodes_a_rotated_jpeg_upright() -> None:
    data = oriented(PHOTO, 6)
    assert stored(data, recipe=Recipe(codec="jpeg")) == data
    made = prepare(data, "c/x.jpg", Recipe(codec="jpeg", exif="apply"))
    assert (made.height, made.width) == (53, 37)
    with Image.open(io.BytesIO(made.data)) as image:
        assert image.size == (37, 53)
        assert image.getexif().get(0x0112, 1) == 1


def test_jpeg_encodes_cmyk_when_asked_for_rgb() -> None:
    """Without resizing, a CMYK JPEG keeps its bytes, because readers of the pack can decode it."""
    data = ODD["types/cmyk.jpg"]
    assert stored(data, recipe=Recipe(codec="jpeg")) == data
    with Image.open(io.BytesIO(stored(data, recipe=Recipe(codec="jpeg", resize=ResizeSpec(20))))) as image:
        assert (image.mode, image.size) == ("RGB", (28, 20))


RECORDED = Recipe(codec="jpeg", resize=ResizeSpec(24, "short"), tiles=True, recode=True, to_8_bit="clip").settings()


@pytest.mark.parametrize("value", [{}, [], "x", 1.5, None, True, 7])
@pytest.mark.parametrize(
    ("outer", "name"), [(None, name) for name in RECORDED] + [("resize", name) for name in RECORDED["resize"]]
)
def test_recorded_settings_of_a_wrong_type_are_refused(outer: str | None, name: str, value: Any) -> None:
    """A manifest may be damaged or forged: its settings make samples, or they are refused where they are read."""
    before = RECORDED if outer is None else RECORDED[outer]
    after = {**before, name: value}
    try:
        recipe = Recipe.of(after if outer is None else {**RECORDED, outer: after})
    except ValueError:
        assert type(value) is not type(before[name]) or value in ("x", {})
        return
    with suppress(ImageError):
        stored(jpeg(), recipe=recipe)


@pytest.mark.parametrize("codec", MAKING)
@pytest.mark.parametrize("mode", RESIZE_MODES)
def test_resize(mode: str, codec: str) -> None:
    spec = ResizeSpec(20, mode)
    prepared = prepare(jpeg(size=(37, 53)), "c/x.jpg", Recipe(codec=codec, resize=spec))
    expected = {"short": (20, 28), "long": (13, 20), "exact": (20, 20), "crop": (20, 20), "pad": (20, 20)}[mode]
    assert (prepared.height, prepared.width) == expected
    assert pixels_of(jpeg(size=(37, 53)), "c/x.jpg", Recipe(codec=codec, resize=spec)).shape == (*expected, 3)


def test_resize_is_pillows() -> None:
    data = jpeg(size=(37, 53))
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB").resize((28, 20), Image.Resampling.BILINEAR))
    pixels = pixels_of(data, "c/x.jpg", Recipe(codec="raw", resize=ResizeSpec(20)))
    assert np.abs(pixels.astype(int) - expected).max() <= 1


def test_resize_turns_first() -> None:
    recipe = Recipe(codec="raw", resize=ResizeSpec(30, "exact"), exif="apply")
    with Image.open(io.BytesIO(oriented(PHOTO, 6))) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    expected = np.asarray(upright.resize((30, 30), Image.Resampling.BILINEAR))
    assert np.abs(pixels_of(oriented(PHOTO, 6), "c/x.jpg", recipe).astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("name", "data", "findings"),
    [
        ("c/x.jpg", jpeg(), ()),
        ("c/x.JPEG", jpeg(), ()),
        ("c/x.png", encoded(photo(48, 64), "PNG"), ()),
        ("c/x.tif", encoded(photo(48, 64), "TIFF"), ()),
        ("c/x.pgm", encoded(photo(48, 64), "PPM"), ()),
        ("c/x", jpeg(), ()),
        ("c/x.jpg", encoded(photo(48, 64), "PNG"), ("PNG named .jpg",)),
        ("c/x.JPG", encoded(photo(48, 64), "WEBP"), ("WEBP named .jpg",)),
        ("c/x.png", encoded(photo(48, 64), "GIF"), ("GIF named .png",)),
        ("c/x.webp", jpeg(), ("JPEG named .webp",)),
        ("c/x.jpg", jpeg() + b"junk", ("bytes after its end",)),
        ("c/x.jpg", oriented(photo(48, 64), 3), ("EXIF-rotated",)),
        ("c/x.jpg", jpeg(size=(17, 1)), ("tiny (a side below 32 pixels)",)),
        ("c/x.png", oriented(photo(31, 100), 8), ("EXIF-rotated", "JPEG named .png", "tiny (a side below 32 pixels)")),
    ],
)
def test_findings(name: str, data: bytes, findings: tuple[str, ...]) -> None:
    assert prepare(data, name, Recipe()).findings == findings


def test_finding_of_images_that_are_too_small() -> None:
    finding = "smaller than --resize, and not enlarged"
    assert prepare(jpeg(), "x.jpg", Recipe(codec="jpeg", resize=ResizeSpec(49))).findings == (finding,)
    assert prepare(jpeg(), "x.jpg", Recipe(codec="jpeg", resize=ResizeSpec(48))).findings == ()
    assert (
        prepare(jpeg(), "x.jpg", Recipe(codec="jpeg", resize=ResizeSpec(49, upscale=True), tiles=False)).findings == ()
    )


def with_damaged_body(data: bytes) -> bytes:
    """Return a JPEG with intact structure whose image data Pillow refuses."""
    middle = (data.index(b"\xff\xda") + len(data)) // 2
    damaged = data[:middle] + b"\xff\xb9" + data[middle + 2 :]
    assert pillow_pixels(damaged) is None
    return damaged


def test_structure_does_not_look_at_the_body_and_decode_does() -> None:
    data = with_damaged_body(jpeg())
    assert stored(data) == data
    with pytest.raises(ImageError):
        prepare(data, "c/x.jpg", Recipe(audit="decode"))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_decode_finds_damage_of_other_types(kind: str) -> None:
    data = bytearray(encoded(PHOTO, kind, **({"lossless": True} if kind == "WEBP" else {})))
    data[25:-20] = bytes(len(data) - 45)
    with pytest.raises(ImageError):
        prepare(bytes(data), "c/x.png", Recipe(audit="decode"))


@pytest.mark.parametrize("codec", MAKING)
def test_making_finds_damage(codec: str) -> None:
    recipe = Recipe(codec=codec, resize=ResizeSpec(16))
    with pytest.raises(ImageError):
        prepare(with_damaged_body(jpeg()), "c/x.jpg", recipe)


@pytest.mark.parametrize("recipe", [Recipe(), Recipe(audit="decode"), *(Recipe(codec=codec) for codec in MAKING)])
@pytest.mark.parametrize("data", [b"", b"junk", jpeg()[:300], jpeg()[:-2], bytes(10) + jpeg()])
def test_refused(data: bytes, recipe: Recipe) -> None:
    with pytest.raises(ImageError) as caught:
        prepare(data, "c/x.jpg", recipe)
    assert caught.value.reason


@pytest.mark.parametrize(("codec", "side"), [("jpeg", 65_501), ("webp", 16_384)])
@pytest.mark.parametrize("tall", [False, True])
def test_too_large_for_the_codec(codec: str, side: int, tall: bool) -> None:
    size = (side, 1) if tall else (1, side)
    data = encoded(np.zeros((*size, 3), np.uint8), "PNG")
    with pytest.raises(ImageError):
        prepare(data, "c/x.png", Recipe(codec=codec))
    for fitting in (
        Recipe(),
        Recipe(codec="png"),
        Recipe(codec="raw"),
        Recipe(codec=codec, resize=ResizeSpec(9, "long")),
    ):
        assert prepare(data, "c/x.png", fitting).height <= side


def test_max_pixels() -> None:
    prepare(jpeg(), "c/x.jpg", Recipe(max_pixels=48 * 64))
    with pytest.raises(ImageTooLargeError, match="64 x 48 pixels exceed the 3071 allowed"):
        prepare(jpeg(), "c/x.jpg", Recipe(max_pixels=48 * 64 - 1))


WEBP_SIDE = 16383
"""The longest side of a WebP."""


@given(
    st.sampled_from(sorted(ODD)),
    st.sampled_from(MAKING),
    st.sampled_from(RESIZE_MODES),
    st.integers(1, 60),
    st.booleans(),
)
@example("tiny/1x300.png", "webp", "short", 55, True)
def test_size_is_that_of_the_bytes(name: str, codec: str, mode: str, size: int, upscale: bool) -> None:
    spec = ResizeSpec(size, mode, upscale)
    recipe, expected = Recipe(codec=codec, resize=spec, to_8_bit="clip"), pillow_pixels(ODD[name])
    assert expected is not None
    shape = spec.final(*expected.shape[:2])
    if codec == "webp" and max(shape) > WEBP_SIDE:
        with pytest.raises(ImageError, match=f"cannot be encoded as webp: .* {WEBP_SIDE} pixels"):
            pixels_of(ODD[name], name, recipe)
    else:
        assert pixels_of(ODD[name], name, recipe).shape[:2] == shape


@pytest.mark.parametrize("codec", CODECS)
def test_deterministic(codec: str) -> None:
    recipe = Recipe(codec=codec, resize=None if codec == "keep" else ResizeSpec(20))
    assert stored(jpeg(), recipe=recipe) == stored(jpeg(), recipe=recipe)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"codec": "gif"}, "codec must be one of keep, jpeg, png, webp, bmp, raw, not 'gif'"),
        ({"exif": "rotate"}, "exif must be one of ignore, apply, not 'rotate'"),
        ({"audit": "none"}, "audit must be one of structure, decode, not 'none'"),
        ({"quality": 0}, "quality must be 1 to 100, not 0"),
        ({"quality": 101}, "quality must be 1 to 100, not 101"),
        ({"resize": ResizeSpec(8)}, "cannot be resized; use jpeg, png, webp, bmp or raw"),
    ],
)
def test_refused_recipes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_real_photos_keep_their_bytes(shared_data: Path) -> None:
    for path in sorted((shared_data / "imagenet-sample").glob("*/*"))[::4]:
        prepared = prepare(path.read_bytes(), path.name, Recipe(audit="decode"))
        assert bytes(prepared.data) == path.read_bytes()
        with Image.open(path) as image:
            assert (prepared.width, prepared.height) == image.size
