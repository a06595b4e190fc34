"""Windows that reach beyond the resized image have the pixels of numpy.pad, with C and without."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, strategies as st

from packer._datasets.decoder import BatchDecoder
from packer._formats import open_pack
from packer._images import native
from packer._images.decode import decode
from packer._images.encode import encode_tiled
from packer._images.geometry import CROP, INTERPOLATIONS, MAX_PIXELS, PADDINGS, Box, affordable, require_affordable
from packer._images.rectangle import RectangleDecoder, resize_by_torch, resize_into
from packer._table import Sample
from packer.errors import CorruptPackError, ImageError, ImageTooLargeError
from packer.testing.reference import torchvision
from tests.images.samples import encoded, photo
from tests.memory import PEAK
from tests.samples import write_pack

Pixels = npt.NDArray[np.uint8]

SIZE = 61, 83
WHOLE = np.array(photo(*SIZE))
STORED = {
    "JPEG": encoded(WHOLE, "JPEG"),
    "tiled": encode_tiled(WHOLE, 90),
    "progressive": encoded(WHOLE, "JPEG", progressive=True),
    "PNG": encoded(WHOLE, "PNG"),
}
SHOWN = {kind: decode(data) for kind, data in STORED.items()} | {"raw": WHOLE}
IN_C = ("JPEG", "tiled", "raw")

with_c = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")


def line(side: int, first: int, count: int, mode: str) -> npt.NDArray[np.int64]:
    """Return which of `side` pixels numpy.pad puts at each position of a window; -1 for the fill.

    Each call of numpy.pad adds at most one reflection, because its versions differ in further ones.
    """
    pixels = np.arange(side)
    before, after = max(-first, 0), max(first + count - side, 0)
    if mode == "constant":
        return np.pad(pixels, (before, after), constant_values=-1)[first + before :][:count]
    most = {"edge": before + after, "reflect": side - 1, "symmetric": side}[mode] or 1
    for width in ((most, 0),) * -(-before // most) + ((0, most),) * -(-after // most):
        pixels = np.pad(pixels, width, mode)  # type: ignore[call-overload]
    return pixels[first + -(-before // most) * most :][:count]


def placed(height: int, width: int) -> torch.Tensor:
    return torch.zeros((1, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)


def pixels_of(image: torch.Tensor) -> Pixels:
    return image[0].permute(1, 2, 0).numpy()


def laid_out(box: Box, draw: Callable[[Box], Pixels]) -> Pixels:
    """Return the window; `draw` returns the part of the resized rectangle that it shows."""
    mode = PADDINGS[box.padding]
    rows = line(box.scaled_height, box.cut_top, box.out_height, mode)
    columns = line(box.scaled_width, box.cut_left, box.out_width, mode)
    window = np.empty((*box.out, 3), np.uint8)
    window[:] = [box.fill & 255, box.fill >> 8 & 255, box.fill >> 16]
    down, across = rows >= 0, columns >= 0
    if down.any() and across.any():
        rows, columns = rows[down], columns[across]
        top, left = int(rows.min()), int(columns.min())
        out = int(rows.max() + 1 - top), int(columns.max() + 1 - left)
        part = box._replace(cut_top=top, cut_left=left, out_height=out[0], out_width=out[1], flip=0)
        window[np.ix_(down, across)] = draw(part)[np.ix_(rows - top, columns - left)]
    return window[:, ::-1] if box.flip else window


def expected(whole: Pixels, box: Box) -> Pixels:
    """Return the window of an image that torch resizes."""

    def draw(part: Box) -> Pixels:
        pixels, drawn = whole[box.top :, box.left :][: box.crop_height, : box.crop_width], placed(*part.out)
        if box.scaled == box.crop:
            pixels = pixels[part.cut_top :, part.cut_left :][: part.out_height, : part.out_width]
        resize_by_torch(np.ascontiguousarray(pixels), part, drawn)
        return pixels_of(drawn)

    return laid_out(box, draw)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Draw a box whose window lies anywhere: inside, across an edge, around everything, or far away."""
    spans = []
    for side in SIZE:
        length = draw(st.one_of(st.integers(1, 3), st.integers(1, side)))
        scaled = draw(st.one_of(st.just(length), st.integers(1, 3), st.integers(1, 90)))
        first = draw(st.one_of(st.just(0), st.integers(-4, 4), st.integers(-200, 200)))
        out = draw(st.one_of(st.just(scaled), st.just(max(scaled - 2 * first, 1)), st.integers(1, 70)))
        spans.append((draw(st.integers(0, side - length)), length, scaled, first, out))
    if draw(st.booleans()):  # nothing is resized
        spans = [(begin, length, length, first, out) for begin, length, _, first, out in spans]
    geometry = (number for both in zip(*spans, strict=True) for number in both)
    kinds = (st.integers(0, 1), st.integers(0, len(INTERPOLATIONS) - 1), st.integers(0, len(PADDINGS) - 1))
    return Box(*geometry, *map(draw, kinds), draw(st.integers(0, (1 << 24) - 1)))


def in_c(kind: str, box: Box) -> Pixels | None:
    """Decode with packer's C alone, or return None if it declines. Memory around the window must not change."""
    data, guard, count = STORED[kind] if kind != "raw" else WHOLE.tobytes(), 64, box.out_height * box.out_width * 3
    memory = np.full(count + 2 * guard, 0xA5, np.uint8)
    task = native.task_of(data, SIZE, box, memory.ctypes.data + guard)
    task["raw"] = kind == "raw"
    left = native.decode_into(task)
    assert (memory[:guard] == 0xA5).all()
    assert (memory[guard + count :] == 0xA5).all()
    return None if left else memory[guard : guard + count].reshape(*box.out, 3)


@contextmanager
def c_or_not(compiled: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(native, "PREFERRED", False)
        yield


ORDINARY = Box.of((0, 0, *SIZE), SIZE)


@with_c
@given(kind=st.sampled_from(IN_C), box=boxes())
@example(kind="JPEG", box=ORDINARY._replace(cut_top=-4, cut_left=4, padding=2))
@example(kind="raw", box=ORDINARY._replace(cut_top=-300, cut_left=500, padding=0, fill=0x010203))
def test_windows_in_c_are_those_of_numpy(kind: str, box: Box) -> None:
    found = in_c(kind, box)
    assert found is not None
    assert np.array_equal(found, expected(SHOWN[kind], box))


@given(kind=st.sampled_from(sorted(STORED)), box=boxes(), compiled=st.booleans())
def test_windows_of_all_images_are_those_of_numpy(kind: str, box: Box, compiled: bool) -> None:
    out = placed(*box.out)
    with c_or_not(compiled):
        RectangleDecoder().decode_into(STORED[kind], SIZE, box, out)
    assert np.array_equal(pixels_of(out), expected(SHOWN[kind], box))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("mode", PADDINGS)
def test_what_is_padded_all_around_is_torchvisions(mode: str, interpolation: str, compiled: bool) -> None:
    torchvision()
    functional = importlib.import_module("torchvision.transforms.v2.functional")
    scaled, (left, top, right, bottom) = (40, 50), (3, 5, 7, 11)
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(SHOWN["JPEG"])[None].permute(0, 3, 1, 2), scaled, mode=interpolation, antialias=True
    )
    padded = functional.pad(resized, [left, top, right, bottom], [1, 2, 3] if mode == "constant" else None, mode)
    for flip in (False, True):
        box = Box.of((0, 0, *SIZE), scaled, (-top, -left), (40 + top + bottom, 50 + left + right), flip)._replace(
            interpolation=INTERPOLATIONS.index(interpolation), padding=PADDINGS.index(mode), fill=0x030201
        )
        out = placed(*box.out)
        with c_or_not(compiled):
            RectangleDecoder().decode_into(STORED["JPEG"], SIZE, box, out)
        assert torch.equal(out, functional.hflip(padded) if flip else padded)


@pytest.mark.parametrize("mode", PADDINGS)
def test_a_window_of_what_is_padded_is_that_of_the_whole(mode: str) -> None:
    """A part of the resized rectangle has the pixels of the whole, to within one level."""
    rng = np.random.default_rng(0)
    for number in range(40):
        scaled = int(rng.integers(9, 70)), int(rng.integers(9, 70))
        cut, kind = rng.integers(-8, 9, 2), number % 2
        box = Box.of((0, 0, *SIZE), scaled, (int(cut[0]), int(cut[1])), scaled)
        box = box._replace(interpolation=kind, padding=PADDINGS.index(mode))
        whole = torch.nn.functional.interpolate(
            torch.from_numpy(WHOLE)[None].permute(0, 3, 1, 2), scaled, mode=INTERPOLATIONS[kind], antialias=True
        )
        padded = np.pad(pixels_of(whole), ((8, 8), (8, 8), (0, 0)), mode)  # type: ignore[call-overload]
        out = placed(*scaled)
        RectangleDecoder().decode_into(STORED["PNG"], SIZE, box, out)
        difference = np.abs(padded[8 + cut[0] :, 8 + cut[1] :][: scaled[0], : scaled[1]].astype(int) - pixels_of(out))
        assert difference.max() <= 1
        assert difference.mean() < 0.01


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("codec", ["keep", "raw"])
def test_windows_of_packs_are_those_of_numpy(codec: str, compiled: bool, tmp_path: Path) -> None:
    kinds = [*STORED] if codec == "keep" else ["raw"] * 4
    samples = [
        Sample(f"a/{number}", 0, STORED[kind] if kind != "raw" else WHOLE.tobytes(), *SIZE)
        for number, kind in enumerate(kinds)
    ]
    rng = np.random.default_rng(0)
    crops = np.zeros(80, CROP)
    for name, low, high in [("crop_height", 20, 62), ("crop_width", 20, 84), ("flip", 0, 2), ("fill", 0, 1 << 24)]:
        crops[name] = rng.integers(low, high, len(crops))
    for name, count in [("interpolation", len(INTERPOLATIONS)), ("padding", len(PADDINGS))]:
        crops[name] = rng.integers(0, count, len(crops))
    for axis in ("height", "width"):
        crops[f"scaled_{axis}"] = np.where(np.arange(80) % 3, 32, crops[f"crop_{axis}"])
    crops["cut_top"], crops["cut_left"] = rng.integers(-9, 9, (2, 80))
    crops["out_height"], crops["out_width"] = 32, 40
    indices, outs = np.arange(80) % 4, torch.zeros((80, 32, 40, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    with c_or_not(compiled), open_pack(write_pack(tmp_path / "x.lmdb", "lmdb", samples, codec=codec)) as reader:
        BatchDecoder(reader).decode_into(indices, crops, outs)
    for index, crop, out in zip(indices.tolist(), crops.tolist(), outs, strict=True):
        assert np.array_equal(pixels_of(out[None]), expected(SHOWN[kinds[index]], Box(*crop)))


# Damage, and numbers that are far too large.

AWAY = Box.of((0, 0, *SIZE), SIZE, (200, -300), (7, 9))
"""A window that shows nothing of the image."""


@pytest.mark.parametrize("mode", PADDINGS)
def test_damage_is_found_though_nothing_of_the_image_is_shown(mode: str, tmp_path: Path) -> None:
    box = AWAY._replace(padding=PADDINGS.index(mode))
    for data, size in [(b"no image", SIZE), (STORED["JPEG"], (61, 84)), (STORED["PNG"], (61, 84)), (b"", SIZE)]:
        with pytest.raises(ImageError):
            RectangleDecoder().decode_into(data, size, box, placed(*box.out))

    def damage(index: int, row: dict[str, int]) -> None:
        row["crc32c"] ^= 1

    for kind, codec in [("JPEG", "keep"), ("PNG", "keep"), ("raw", "raw")]:
        data = WHOLE.tobytes() if kind == "raw" else STORED[kind]
        path = write_pack(
            tmp_path / f"{kind}.lmdb", "lmdb", [Sample("a/x", 0, data, *SIZE)], codec=codec, change=damage
        )
        with open_pack(path) as reader, pytest.raises(CorruptPackError, match="sample 0"):
            BatchDecoder(reader).decode_into([0], np.array([box], CROP), placed(*box.out))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("mode", PADDINGS)
@pytest.mark.parametrize("far", [(1 << 31) - 1, -(1 << 31) + 1])
def test_windows_may_lie_two_billion_pixels_away(far: int, mode: str, compiled: bool) -> None:
    box = Box.of((5, 6, 31, 47), (31, 47), (far, far), (5, 6))._replace(padding=PADDINGS.index(mode), fill=7)
    near = {"reflect": (60, 92), "symmetric": (62, 94)}.get(mode, (500, 500))  # the pixels repeat with this period
    sign = 1 if far > 0 else -1
    cut = [far % period if mode in ("reflect", "symmetric") else sign * period for period in near]
    out = placed(5, 6)
    with c_or_not(compiled):
        RectangleDecoder().decode_into(STORED["JPEG"], SIZE, box, out)
    assert np.array_equal(pixels_of(out), expected(SHOWN["JPEG"], box._replace(cut_top=cut[0], cut_left=cut[1])))


def test_windows_are_affordable_up_to_the_most_pixels() -> None:
    box = Box.of((0, 0, *SIZE), SIZE, (-1, -1))
    for out in ((MAX_PIXELS, 1), (1, MAX_PIXELS), (13_000, 13_000)):
        require_affordable(box._replace(out_height=out[0], out_width=out[1]))
    for out in ((MAX_PIXELS, 2), (13_400, 13_400), (1 << 32, 1 << 32), (1 << 62, 4), ((1 << 63) - 1, (1 << 63) - 1)):
        message = rf"^{out[1]} x {out[0]} pixels, padding included, exceed the {MAX_PIXELS} allowed$"
        with pytest.raises(ImageTooLargeError, match=message):
            require_affordable(box._replace(out_height=out[0], out_width=out[1]))
    for far in (1 << 31, -(1 << 31), 1 << 62, -(1 << 62), -(1 << 63)):
        for name in ("cut_top", "cut_left"):
            with pytest.raises(ImageTooLargeError, match="a window cannot begin at row"):
                require_affordable(box._replace(**{name: far}))


def test_padding_is_no_work_for_resizing() -> None:
    """Tall rectangles are resized horizontally first; the width of the padded window does not add to this work."""
    tall = Box.of((0, 0, 100_000, 10), (10, 20), (0, -5_000), (10, 10_000))
    assert affordable(np.array([tall], CROP)).all()
    assert not affordable(np.array([tall._replace(scaled_width=10_000)], CROP)).any()
    pixels = np.random.default_rng(0).integers(0, 256, (100_000, 10, 3), np.uint8)
    for box in (tall, tall._replace(interpolation=1, padding=2)):
        out = placed(*box.out)
        resize_into(pixels, box, out)
        assert np.array_equal(pixels_of(out), expected(pixels, box))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's account of memory")
def test_padding_in_python_takes_little_more_memory_than_its_window() -> None:
    program = f"""{PEAK}
import numpy as np
from packer._images.geometry import PADDINGS, Box, visible_part
from packer._images.rectangle import pad_into
before = peak()
for mode in ("constant", "reflect"):
    for size in ((1, 10_000_000), (10_000_000, 1)):
        box = Box.of((0, 0, 8, 8), (8, 8), (-3, -5), size)._replace(padding=PADDINGS.index(mode), fill=7)
        out = np.ones((*size, 3), np.uint8)
        part = visible_part(box)
        pad_into(np.zeros((*part.out, 3), np.uint8), part, box, out)
        del out
print((peak() - before) >> 20)
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert int(found) < 60  # MB: the window has 29
