"""What packer's C computes with the vectors of this processor is what it computes in plain C, to the bit."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packer._images import native, numbers
from packer._images.compiled import VECTORS
from packer._images.encode import encode_tiled
from packer._images.geometry import PADDINGS, Box
from packer._images.operations import KINDS, NO_FILL
from tests.augment.operated import operated, operation
from tests.images.drawn import SUBSAMPLINGS, VARIANTS, damaged, encoded, photo
from tests.images.drawn import jpeg as drawn_jpeg
from tests.images.test_native_pixels import (
    RESIZED,
    SAMPLINGS,
    boxes,
    changed_segments,
    decoded,
    interpolations,
    jpeg,
    jpegs,
)

pytestmark = pytest.mark.skipif(not VECTORS, reason="needs a C compiler at the installation, and AVX2 or NEON")

Pixels = npt.NDArray[np.uint8]
ROOT = Path(__file__).parents[2]
X86 = platform.machine().lower() in ("x86_64", "amd64")
FEWER = ["PLAIN", "NO_AVX512"] if X86 else ["PLAIN"]


def compiled(path: Path, without: str) -> None:
    """Compile packer's C without some vectors."""
    native_c = ROOT / "packer/_images/native"
    sources = sorted(native_c.rglob("*.c"))
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC")
    if os.name != "posix" or not compiler or not sources:
        pytest.skip("needs a C compiler and the sources")
    line = [*compiler.split(), "-std=c11", "-O1", "-shared", "-fPIC", "-ffp-contract=off", f"-DPACKER_{without}"]
    line += ["-DPy_LIMITED_API=0x030A0000", f"-I{sysconfig.get_path('include')}", f"-I{native_c}", "-o", str(path)]
    line += [*os.environ.get("CFLAGS", "").split()]  # such as scripts/coverage has
    made = subprocess.run([*line, *map(str, sources), "-lm"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"needs a C compiler that works: {made.stderr[-200:]}")


@pytest.fixture(scope="module", params=FEWER)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Return packer's C without the vectors of this processor, or without some of them."""
    path = tmp_path_factory.mktemp("compiled") / "_native.so"
    compiled(path, request.param)
    spec = importlib.util.spec_from_file_location("packer._images._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def by_both(other: ModuleType) -> Iterator[Callable[[Callable[[], Pixels | None]], bool]]:
    """Return a function that tells whether something gives the same with all vectors and with fewer."""
    with pytest.MonkeyPatch.context() as patch:

        def same(draw: Callable[[], Pixels | None]) -> bool:
            patch.undo()
            with_all = draw()
            patch.setattr(native, "_native", other)
            with_fewer = draw()
            if with_all is None or with_fewer is None:
                return with_all is with_fewer
            return np.array_equal(with_all, with_fewer)

        yield same


Both = Callable[[Callable[[], Pixels | None]], bool]
many = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_the_module_says_which_vectors_it_has(other: ModuleType, request: pytest.FixtureRequest) -> None:
    assert VECTORS in (("AVX-512", "AVX2") if X86 else ("NEON",))
    fewer: str = other.VECTORS
    assert fewer == ("" if "PLAIN" in request.node.name else "AVX2")


def test_numbers_of_many_images(other: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = torch.randint(0, 256, (4, 224, 224, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    how = numbers.Numbers(((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "float32")
    made = [torch.empty(pixels.shape, memory_format=torch.channels_last) for _ in range(2)]
    numbers.write(how, pixels, made[0], slice(None))
    monkeypatch.setattr(numbers, "_native", other)
    numbers.write(how, pixels, made[1], slice(None))
    assert torch.equal(*made)


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
    """They are more than stays in a processor's caches; rows begin anywhere in what a cache holds together."""
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
    """Between the tiles, markers are sought; and many bytes of the scans are stuffed."""
    noise = np.random.default_rng(0).integers(0, 256, (650, 800, 3), np.uint8)
    for pixels in (noise, np.array(photo(650, 800))):
        data = encode_tiled(pixels, 98)
        for box in ((300, 400, 100, 90), (649, 799, 1, 1), (0, 300, 650, 1), (100, 0, 7, 800)):
            found = Box.of(box, box[2:])
            assert by_both(lambda data=data, found=found: decoded(data, (650, 800), found))  # type: ignore[misc]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.tuples(st.integers(1, 90), st.integers(1, 90)), level=st.sampled_from([0, 6]), data=st.data())
def test_pngs(by_both: Both, size: tuple[int, int], level: int, data: st.DataObject) -> None:
    """Their filters are undone, and their checksums are computed, with vectors too."""
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


@many
@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_operations(by_both: Both, data: st.DataObject, kind: str) -> None:
    size = data.draw(st.tuples(st.integers(12, 90), st.one_of(st.integers(12, 90), st.integers(250, 530))))
    pixels = np.random.default_rng(size).integers(0, 256, (*size, 3), np.uint8)
    factor = data.draw(st.floats(-0.5, 0.5) if kind == "hue" else st.floats(0.1, 8 if kind == "blur" else 3))
    fields = {"factor": factor, "interpolation": data.draw(st.integers(0, 1)), "height": 5, "width": 9}
    fields |= {"height": 23, "width": 21} if kind == "blur" else {}
    matrix = data.draw(st.lists(st.floats(-2, 2), min_size=6, max_size=6))
    fields["fill"] = data.draw(st.sampled_from([NO_FILL, 0x102030]))
    assert by_both(lambda: operated(pixels, operation(kind, matrix=matrix, **fields)))


@many
@given(
    width=st.integers(1, 300),
    dtype=st.sampled_from(numbers.TYPES),
    planes=st.booleans(),
    mixture=st.sampled_from([None, numbers.Mixture(0.3), numbers.Mixture(0.5, (1, 0, 3, 1))]),
)
def test_numbers(by_both: Both, width: int, dtype: str, planes: bool, mixture: numbers.Mixture | None) -> None:
    constants = (0.485, 0.456, 0.406), (0.229, 1e-7, 1e4)  # halves of these are infinite, and nearly 0
    pixels = torch.from_numpy(np.random.default_rng(width).integers(0, 256, (2, 4, width, 3), np.uint8))
    layout = torch.contiguous_format if planes else torch.channels_last
    made = torch.empty((2, 3, 4, width), dtype=getattr(torch, dtype), memory_format=layout)

    def written() -> Pixels:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(numbers, "_native", native._native)
            numbers.write(
                numbers.Numbers(constants, dtype, planes), pixels.permute(0, 3, 1, 2), made, slice(2), mixture
            )
        return made.view(torch.int32 if dtype == "float32" else torch.int16).numpy().copy()

    assert by_both(written)
