"""Resizing images of one row or one column: the sizes of the image and of the result limit memory and time."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from packer._codecs import RESIZE_MODES
from packer._conversion.pipeline import prepare
from packer._conversion.recipe import Recipe
from packer._datasets.open import open_dataset
from packer._images import native
from packer._images.encode import encode
from packer._images.resize import ResizeSpec
from packer._table import Sample
from packer.crops import Compose, Crop, RandomResizedCrop, Resize, ResizeCenterCrop
from packer.errors import CorruptPackError, ImageError, ImageTooLargeError
from tests.command import python
from tests.memory import PEAK
from tests.samples import write_pack

pytestmark = pytest.mark.timeout(120)  # a test that hangs must fail

READ = (
    PEAK
    + """
import json, sys
without, *paths = sys.argv[1:]
if without:
    sys.modules["packer._images._native"] = None  # as where there was no compiler
import numpy as np
from packer.crops import Compose, RandomResizedCrop, Resize, ResizeCenterCrop
from packer._datasets.open import open_dataset
from packer.errors import ImageError
from packer._images import native
assert not (without and native.PREFERRED)
for path in paths:
    open_dataset(path, crop=RandomResizedCrop(224, flip=0.5))[0]  # imports, and memory that is kept
before = peak()
for path in paths:
    dataset = open_dataset(path, decoder="turbojpeg" if without else "auto")
    found = {}
    for crop in (RandomResizedCrop(224, flip=0.5), ResizeCenterCrop(224, 256), Resize((224, 224)), Compose([])):
        dataset.crop = crop
        for index in range(len(dataset)):
            try:
                image = dataset[index][0]
                shown = list(image.shape), round(float(image.float().mean()), 1)
            except ImageError as error:
                shown = str(error)
            found[f"{type(crop).__name__} {index}"] = shown
    for index in range(len(dataset)):
        height, width = int(dataset.reader.table.height[index]), int(dataset.reader.table.width[index])
        region = dataset.read_region(index, height // 2, width // 2, 1, 1)
        found[f"read_region {index}"] = list(region.shape), 0
    print(json.dumps([(peak() - before) >> 20, found]))
"""
)


def line(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return noise that compresses well: the same 97 pixels, repeated."""
    row = np.random.default_rng(height + width).integers(0, 256, (1, 97, 3), np.uint8)
    pixels = np.tile(row, (1, -(-height * width // 97), 1))[:, : height * width]
    return pixels.reshape(height, width, 3)


SHAPES = {
    "jpeg": [(1, 60_000), (60_000, 1), (2, 20_000)],
    "webp": [(1, 16_383), (16_383, 1)],
    "png": [(1, 65_537), (65_537, 1), (1, 1_200_000), (1_200_000, 1)],
    "raw": [(1, 300_000), (300_000, 1)],
}


def pack_of(path: Path, codec: str) -> Path:
    samples = [
        Sample(f"a/{height} by {width}", 0, encode(line(height, width), codec, 90), height, width)
        for height, width in SHAPES[codec]
    ]
    return write_pack(path / f"{codec}.lmdb", "lmdb", samples, codec="raw" if codec == "raw" else "keep")


@pytest.fixture(scope="module", params=["", "native"])
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """Return what a process lacks, and for each codec the growth of its memory in MiB and its results."""
    pytest.importorskip("resource", reason="needs getrusage, which Windows has not")
    root = tmp_path_factory.mktemp("extreme")
    arguments = [request.param, *(pack_of(root, codec) for codec in SHAPES)]
    if request.param:
        run = [sys.executable, "-W", "ignore", "-c", READ, *arguments]
        output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    else:  # what a forked process takes more than at its start is its own
        output = python(READ, *arguments).stdout
    return request.param, dict(zip(SHAPES, map(json.loads, output.splitlines()), strict=True))


@pytest.mark.parametrize("codec", SHAPES)
def test_a_crop_takes_little_memory_or_is_refused(read: tuple[str, dict[str, Any]], codec: str) -> None:
    without, (grown, found) = read[0], read[1][codec]
    assert grown < 300
    assert len(found) == 5 * len(SHAPES[codec])
    for what, shown in found.items():
        crop, index = what.split()
        height, width = SHAPES[codec][int(index)]
        size = [height, width] if crop == "Compose" else [1, 1] if crop == "read_region" else [224, 224]
        if isinstance(shown, str):  # only if the shape is extreme and the crop resizes
            assert f"sample {index} (a/{height} by {width}): " in shown
            assert "cannot be resized" in shown
            torch_alone = without or not native.PREFERRED
            refused = {"ResizeCenterCrop"} | ({"Resize"} if not torch_alone or max(height, width) >= 2**20 else set())
            assert crop in refused
            assert torch_alone or max(height, width) > 2**20
        else:
            assert shown[0] == [3, *size]


def raw_dataset(path: Path, pixels: npt.NDArray[np.uint8], crop: Crop) -> npt.NDArray[np.uint8]:
    """Return the crop of an image, read from a pack; (height, width, 3) uint8."""
    sample = Sample("a/x", 0, pixels.tobytes(), *pixels.shape[:2])
    image: npt.NDArray[np.uint8] = open_dataset(
        write_pack(path, "lmdb", [sample], codec="raw"), crop=crop, output="numpy"
    )[0][0]
    return image


def by_torch(pixels: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    whole = torch.from_numpy(np.array(pixels))[None].permute(0, 3, 1, 2)
    scaled = torch.nn.functional.interpolate(whole, size=(height, width), mode="bilinear", antialias=True)
    return scaled[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("size", [(1, 700), (700, 1), (3, 1100), (1100, 3), (40, 5000), (257, 9000)])
def test_the_centre_is_that_of_the_whole_resized_by_torch(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    short, long = 256, int(256 * max(size) / min(size))
    scaled = (short, long) if size[0] < size[1] else (long, short)
    top, left = (round((side - 224) / 2) for side in scaled)
    expected = by_torch(pixels, *scaled)[top : top + 224, left : left + 224]
    assert np.array_equal(raw_dataset(tmp_path / "x.lmdb", pixels, ResizeCenterCrop(224, 256)), expected)


@pytest.mark.parametrize("turned", [False, True])
def test_the_centre_of_what_torch_could_not_resize_as_a_whole(tmp_path: Path, turned: bool) -> None:
    """Enlarged 256 times, the centre depends on only 40 of the 300,000 pixels; torch can resize these."""
    if not native.PREFERRED:
        pytest.skip("needs packer's own resizing")
    pixels = np.random.default_rng(0).integers(0, 256, (1, 300_000, 3), np.uint8)
    begin = 300_000 // 2 - 20
    around = by_torch(pixels[:, begin : begin + 40], 256, 40 * 256)
    left = round((300_000 * 256 - 224) / 2) - begin * 256
    expected = around[16 : 16 + 224, left : left + 224]
    if turned:
        pixels, expected = pixels.transpose(1, 0, 2), expected.transpose(1, 0, 2)
    assert np.array_equal(raw_dataset(tmp_path / "x.lmdb", pixels, ResizeCenterCrop(224, 256)), expected)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (90_000, 1), (1, 90_000)])
def test_thin_images_are_resized_as_torch_resizes(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    assert np.array_equal(raw_dataset(tmp_path / "x.lmdb", pixels, Resize((64, 64))), by_torch(pixels, 64, 64))


HUGE = 2**31 - 1


@pytest.mark.parametrize("codec", ["png", "raw"])
@pytest.mark.parametrize("crop", [RandomResizedCrop(8, flip=0.5), ResizeCenterCrop(8, 9), Resize((8, 8)), Compose([])])
@pytest.mark.parametrize("size", [(HUGE, HUGE), (1, HUGE), (HUGE, 1), (20_000, 20_000)])
def test_a_table_that_says_more_pixels_than_there_are(
    tmp_path: Path, codec: str, crop: Crop, size: tuple[int, int]
) -> None:
    """The checksums are correct: an attacker who writes a pack can compute them."""
    data = encode(line(3, 4), codec, 90)
    samples = [Sample("a/good", 0, data, 3, 4), Sample("a/bad", 0, data, *size)]
    dataset = open_dataset(write_pack(tmp_path / "x.lmdb", "lmdb", samples, codec=codec), crop=crop)
    with pytest.raises((ImageError, CorruptPackError), match=r"sample 1 \(a/bad\): "):
        dataset.__getitems__([0, 1])


@pytest.mark.parametrize("upscale", [False, True])
@pytest.mark.parametrize("mode", RESIZE_MODES)
@pytest.mark.parametrize("size", [(1, 60_000), (60_000, 1)])
def test_a_conversion_resizes_or_refuses_extreme_shapes(size: tuple[int, int], mode: str, upscale: bool) -> None:
    data = encode(line(*size), "png", 90)
    recipe = Recipe(codec="png", resize=ResizeSpec(256, mode, upscale))
    if upscale and mode in ("short", "crop"):
        with pytest.raises(ImageTooLargeError, match=r"\d+ x \d+ pixels exceed the 178956970 allowed"):
            prepare(data, "x.png", recipe)
        return
    made = prepare(data, "x.png", recipe)
    with Image.open(io.BytesIO(made.data)) as image:
        assert (image.height, image.width) == recipe.resize.final(*size)  # type: ignore[union-attr]


def test_a_conversion_refuses_squares_that_no_image_may_be() -> None:
    recipe = Recipe(codec="png", resize=ResizeSpec(20_000, "pad"))
    with pytest.raises(ImageTooLargeError, match="20000 x 20000 pixels exceed the 178956970 allowed"):
        prepare(encode(line(3, 4), "png", 90), "x.png", recipe)
