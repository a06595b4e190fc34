"""packer's C gives the same results with this processor's vector instructions as with fewer or none, to the bit."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from packer._images import native
from packer._images.encode import encode_tiled
from packer._images.extension import VECTORS
from packer._images.geometry import PADDINGS, Box
from tests.images.samples import SUBSAMPLINGS, VARIANTS, damaged, encoded, jpeg as drawn_jpeg, photo
from tests.images.test_native_pixels import (
    RESIZED,
    SAMPLINGS,
    boxes,
    changed_segments,
    decode_into,
    decoded,
    interpolations,
    jpeg,
    jpegs,
)

pytestmark = pytest.mark.skipif(not VECTORS, reason="needs a C compiler at the installation, and AVX2 or NEON")

Pixels = npt.NDArray[np.uint8]
X86 = platform.machine().lower() in ("x86_64", "amd64")


Both = Callable[[Callable[[], Pixels | None]], bool]
many = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
some = settings(many, max_examples=100)


def test_the_module_says_which_vectors_it_has(other: ModuleType, request: pytest.FixtureRequest) -> None:
    assert VECTORS in (("AVX-512", "AVX2") if X86 else ("NEON",))
    fewer: str = other.VECTORS
    assert fewer == ("" if "PLAIN" in request.node.name else "AVX2")


@many
@given(image=jpegs(100))
def test_whole_images(by_both: Both, image: tuple[bytes, tuple[int, int], str]) -> None:
    data, size, _ = image
    assert by_both(lambda: native.decode(data, *size))


@many
@given(sampling=st.sampled_from(SAMPLINGS), box=boxes(131, 157), padding=st.sampled_from(range(len(PADDINGS))))
def test_windows(by_both: Both, sampling: str, box: Box, padding: int) -> None:
    assert by_both(lambda: decoded(RESIZED[sampling], (131, 157), box))
    padded = box._replace(cut_top=box.cut_top - 3, cut_left=box.cut_left - 5, padding=padding, fill=0x030201)
    assert by_both(lambda: decoded(RESIZED[sampling], (131, 157), padded))


@many
@given(image=jpegs(70), data=st.data())
def test_damaged_images(by_both: Both, image: tuple[bytes, tuple[int, int], str], data: st.DataObject) -> None:
    stored = data.draw(damaged(image[0]))
    assert by_both(lambda: native.decode(stored, *image[1]))


LONG = 40, 120


def noise(seed: int, sampling: str = "4:4:4", restarts: int = 0, progressive: bool = False) -> bytes:
    """Return a JPEG of ``LONG`` pixels, whose scan is longer than what the decoder reads ahead."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*LONG, 3), np.uint8)
    return jpeg(pixels, sampling, 100, restarts, progressive=progressive)


@st.composite
def views(draw: st.DrawFn) -> Box:
    """Draw a window of a ``noise`` image; many reach beyond the resized rectangle."""
    box = draw(boxes(*LONG, most=60))
    if draw(st.booleans()):
        cut = draw(st.integers(-9, 9)), draw(st.integers(-9, 9))
        box = box._replace(
            cut_top=cut[0], cut_left=cut[1], padding=draw(st.integers(0, len(PADDINGS) - 1)), fill=0x030201
        )
    return box


def made(images: Sequence[tuple[bytes, Box]]) -> Pixels:
    """Return for each view of a ``noise`` image whether C makes it, followed by the pixels of those that it makes.

    Consecutive views of one image are made together.
    """
    outs = [np.zeros((*box.out, 3), np.uint8) for _, box in images]
    done = decode_into([(data, LONG, box, out.ctypes.data) for (data, box), out in zip(images, outs, strict=True)])
    pixels = [out.ravel() for out, is_done in zip(outs, done, strict=True) if is_done]
    return np.concatenate([np.array(done, np.uint8), *pixels])


def test_views_of_images_that_end_too_early(by_both: Both) -> None:
    """No view needs the missing bytes: whether C makes it depends on how far the decoder reads ahead."""
    ends = [noise(seed)[:-100] for seed in range(100)]
    images = [(data, Box.of((0, left, 29, 5), (5, 108))) for left in range(0, LONG[1], 8) for data in ends]
    assert 0 < made(images)[: len(images)].sum() < len(images)
    assert by_both(lambda: made(images))


@some
@given(
    image=st.builds(
        noise, st.integers(0, 2**32), st.sampled_from(SAMPLINGS), st.sampled_from([0, 1, 15, 20]), st.booleans()
    ),
    boxes=st.lists(views(), min_size=1, max_size=4),
    data=st.data(),
)
def test_views_of_images(by_both: Both, image: bytes, boxes: list[Box], data: st.DataObject) -> None:
    """Views of sound and of damaged images are made together and alone."""
    stored = data.draw(st.one_of(st.just(image), damaged(image)))
    assert by_both(lambda: made([(stored, box) for box in boxes]))
    assert all(by_both(lambda box=box: made([(stored, box)])) for box in boxes)  # type: ignore[misc]


@many
@given(image=st.tuples(st.sampled_from(SUBSAMPLINGS), st.sampled_from([(48, 64), (131, 157)])), data=st.data())
def test_progressive_images(by_both: Both, image: tuple[str, tuple[int, int]], data: st.DataObject) -> None:
    stored = drawn_jpeg(image[0], "progressive", image[1])
    if data.draw(st.booleans()):
        stored = data.draw(damaged(stored))
    assert by_both(lambda: native.decode(stored, *image[1]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("sampling", SUBSAMPLINGS)
def test_tiles(other: ModuleType, sampling: str, variant: str) -> None:
    for size in ((48, 64), (131, 157)):
        data = drawn_jpeg(sampling, variant, size)
        assert other.transcode(data, 1 << 30, 100) == native._native.transcode(data, 1 << 30, 100)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_coefficients_that_no_image_has(by_both: Both, sampling: str) -> None:
    rng = np.random.default_rng(0)
    some = ([255] * 64, [20] * 64, [2] * 64, [130] + [1] * 63, [1] + [255] * 63, rng.integers(1, 256, 64).tolist())
    for factors in some:
        pixels = rng.choice(np.array([0, 255], np.uint8), (48, 64, 3))
        pixels[:24] = rng.integers(0, 256, (24, 64, 3), np.uint8)
        data = changed_segments(
            jpeg(pixels, sampling, 100),
            0xDB,
            lambda tables, factors=factors: b"".join(
                tables[at : at + 1] + bytes(factors) for at in range(0, len(tables), 65)
            ),
        )
        assert by_both(lambda data=data: native.decode(data, 48, 64))  # type: ignore[misc]


@many
@given(data=st.data())
def test_resized_pixels(by_both: Both, data: st.DataObject) -> None:
    size = data.draw(st.tuples(st.integers(1, 150), st.integers(1, 150)))
    scaled = data.draw(st.tuples(st.integers(1, 200), st.integers(1, 200)))
    levels = data.draw(st.sampled_from([(0, 255), range(256)]))
    pixels = np.random.default_rng(size).choice(np.array(levels, np.uint8), (*size, 3))
    box = Box.of((0, 0, *size), scaled, flip=data.draw(st.booleans()))._replace(interpolation=data.draw(interpolations))

    def resized() -> Pixels:
        out = np.zeros((*scaled, 3), np.uint8)
        assert native.resize(pixels, box, out.ctypes.data)
        return out

    assert by_both(resized)


@many
@given(
    size=st.tuples(st.integers(1, 90), st.one_of(st.integers(1, 90), st.integers(250, 530))),
    levels=st.sampled_from([(0, 255), range(256), range(100, 130), (7,)]),
    quality=st.integers(1, 100),
    interval=st.sampled_from([0, 1, 2, 3, 20]),
)
def test_jpegs_that_are_written(
    other: ModuleType, size: tuple[int, int], levels: Sequence[int], quality: int, interval: int
) -> None:
    pixels = np.random.default_rng(size).choice(np.array(levels, np.uint8), (*size, 3))
    for drawn in (pixels, np.ascontiguousarray(photo(*size))):
        numbers_of = drawn.ctypes.data, *size, 3 * size[1], quality, interval
        made = other.encode_jpeg(*numbers_of)
        assert made == native._native.encode_jpeg(*numbers_of)
        restarts = {"restart_marker_blocks": interval} if interval else {}
        assert made == encoded(drawn, "JPEG", quality=quality, **restarts)


@pytest.mark.parametrize("left", [0, 1, 10, 21])
@pytest.mark.parametrize("side", [840, 853])
def test_pixels_that_are_copied(by_both: Both, side: int, left: int) -> None:
    """So many pixels bypass the caches; rows begin anywhere in a cache line."""
    pixels = np.random.default_rng(0).integers(0, 256, (870, 880, 3), np.uint8)
    stored = pixels.tobytes()
    for start in (0, 1, 63):

        def copied(start: int = start) -> Pixels:
            out = np.full(3 * side * side + 128, 7, np.uint8)
            box = Box.of((3, left, side, side), (side, side))
            task = native.task_of(stored, pixels.shape[:2], box, out.ctypes.data + start)
            task["raw"] = 1
            assert native.decode_into(task) == []
            found = out[start:][: 3 * side * side].reshape(side, side, 3)
            np.testing.assert_array_equal(found, pixels[3:][:side, left:][:, :side])
            assert (out[:start] == 7).all()
            assert (out[start + 3 * side * side :] == 7).all()
            return out

        assert by_both(copied)


def test_parts_of_tiles(by_both: Both) -> None:
    """C searches for the markers between tiles, and many bytes of the scans are stuffed."""
    noise = np.random.default_rng(0).integers(0, 256, (650, 800, 3), np.uint8)
    for pixels in (noise, np.array(photo(650, 800))):
        data = encode_tiled(pixels, 98)
        for box in ((300, 400, 100, 90), (649, 799, 1, 1), (0, 300, 650, 1), (100, 0, 7, 800)):
            found = Box.of(box, box[2:])
            assert by_both(lambda data=data, found=found: decoded(data, (650, 800), found))  # type: ignore[misc]


@some
@given(size=st.tuples(st.integers(1, 90), st.integers(1, 90)), level=st.sampled_from([0, 6]), data=st.data())
def test_pngs(by_both: Both, size: tuple[int, int], level: int, data: st.DataObject) -> None:
    """Undoing filters and computing checksums use vectors, too."""
    pixels = data.draw(
        st.sampled_from([photo(*size), np.random.default_rng(size).integers(0, 256, (*size, 3), np.uint8)])
    )
    stored = bytearray(encoded(pixels, "PNG", compress_level=level))
    assert by_both(lambda: native.decode(bytes(stored), *size))
    assert native.decode(bytes(stored), *size) is not None
    stored[data.draw(st.integers(41, len(stored) - 17))] ^= 1 << data.draw(st.integers(0, 7))
    assert by_both(lambda: native.decode(bytes(stored), *size))
    assert native.decode(bytes(stored), *size) is None


@given(size=st.one_of(st.integers(0, 100), st.integers(1500, 20_000)), start=st.integers(0, 15))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_checksums(other: ModuleType, size: int, start: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, start + size, np.uint8).tobytes()[start:]
    before = native._native.crc32c(b"before", 0)
    assert before == other.crc32c(b"before", 0)
    assert native._native.crc32c(data, before) == other.crc32c(data, before)
