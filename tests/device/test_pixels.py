"""The kernels as plain C give the pixels and numbers of packer's own decoder and resizing, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from device.batch import batch_of, photo_of
from device.stages import buffers_of, stages_of
from device.twin import Twin
from packer._images.geometry import Box
from packer._images.jpeg_tiles import transcode
from packer.crops import RandomResizedCrop
from packer.errors import NotTileableError
from tests.device.crops import LEVELS, corners, mutation, noise, random_box, side_of, table_of, tiled, unequal
from tests.images.samples import SUBSAMPLINGS, VARIANTS

SIZES = ((48, 64), (37, 53), (131, 100), (17, 200), (1, 17), (17, 1), (2, 33), (1, 1), (15, 9))


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("size", SIZES)
def test_crops_are_those_of_the_processor(twin: Twin, subsampling: str, size: tuple[int, int]) -> None:
    photo = tiled(subsampling, size)
    boxes = list(corners(photo, (23, 31)))
    assert unequal(twin, [photo] * len(boxes), boxes) == []


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_variants(twin: Twin, subsampling: str) -> None:
    photos = [tiled(subsampling, (100, 131), variant) for variant in VARIANTS]
    chance = random.Random(subsampling)
    assert unequal(twin, photos, [random_box(photo, (40, 40), chance) for photo in photos]) == []


def test_noise(twin: Twin) -> None:
    boxes = list(corners(noise(), (23, 31)))
    assert unequal(twin, [noise()] * len(boxes), boxes) == []


@pytest.mark.parametrize("kind", ["float16", "float32"])
@pytest.mark.parametrize("planes", [False, True])
def test_numbers(twin: Twin, kind: str, planes: bool) -> None:
    photos = [tiled(subsampling, (67, 90)) for subsampling in SUBSAMPLINGS]
    chance = random.Random(kind)
    boxes = [random_box(photo, (24, 36), chance) for photo in photos]
    assert unequal(twin, photos, boxes, table_of(kind, planes)) == []


@pytest.mark.parametrize("interpolation", [0, 1])
def test_windows_of_what_is_resized(twin: Twin, interpolation: int) -> None:
    """Crops are enlarged, reduced, both at once, in one direction only, or not resized; each has two windows."""
    photos, boxes = [], []
    for subsampling in SUBSAMPLINGS:
        photo = tiled(subsampling, (60, 90))
        for scaled in ((80, 100), (20, 20), (90, 22), (21, 140), (55, 82), (20, 82), (55, 33)):
            for cut in ((0, 0), (scaled[0] - 20, scaled[1] - 20)):
                box = Box.of((3, 5, 55, 82), scaled, cut, (20, 20), flip=len(boxes) % 3 == 0)
                boxes.append(box._replace(interpolation=interpolation))
                photos.append(photo)
    assert unequal(twin, photos, boxes) == []


def test_much_smaller(twin: Twin) -> None:
    """A column depends on more pixels than a block holds."""
    photos = [tiled(subsampling, (9, 3000)) for subsampling in ("4:2:0", "4:4:4", "grey")]
    boxes = [Box.of((0, 7, 9, 2980), (4, columns)) for columns in (5, 5, 5)]
    assert unequal(twin, photos, boxes) == []


@pytest.mark.parametrize("threads", [1, 7, 32, 256])
@pytest.mark.parametrize("backwards", [False, True])
def test_any_threads_in_any_order(twin: Twin, threads: int, backwards: bool) -> None:
    photos = [tiled(subsampling, (131, 100)) for subsampling in SUBSAMPLINGS]
    chance = random.Random(threads)
    boxes = [random_box(photo, (24, 24), chance) for photo in photos]
    assert unequal(Twin(threads=threads, backwards=backwards), photos, boxes) == []


def test_stages_depend_on_nothing_else(twin: Twin) -> None:
    """Not on threads, nor on earlier content of a block's memory. Only the buffer "order" may differ."""
    chance, photos = random.Random(1), []
    for subsampling in SUBSAMPLINGS:
        sound = tiled(subsampling, (131, 100), "optimised")
        photos += [sound, *(mutation(sound, chance) for _ in range(30))]
    batch = batch_of(photos, [random_box(photo, (24, 24), chance) for photo in photos])
    seen = []
    for machine in (twin, Twin(threads=7, backwards=True), *filled()):
        buffers = buffers_of(machine, batch, LEVELS)
        for stage in stages_of(batch, buffers, LEVELS):
            machine.launch(*stage)
        seen.append(buffers.memory)
    for other in seen[1:]:
        for name, content in seen[0].items():
            assert name == "order" or np.array_equal(content, other[name]), name


def filled() -> list[Twin]:
    """Return twins whose unwritten memory has different content, if the compiler can set it."""
    try:
        return [Twin(flags=("-Og", f"-ftrivial-auto-var-init={kind}")) for kind in ("pattern", "zero")]
    except RuntimeError:
        return []


def test_photos_of_imagenet(twin: Twin, shared_data: Path, sweep: int) -> None:
    """Compare 125 random resized crops of 50 photos, or with --faults 1,000 crops of 400 photos."""
    most, step = (125, 8) if sweep == 1 else (1000, 1)
    paths = sorted((shared_data / "imagenet-sample").rglob("*.JPEG"))[:400:step]
    photos = []
    for path in paths:
        try:
            photos.append(photo_of(transcode(path.read_bytes())))
        except NotTileableError:
            continue
    rule = RandomResizedCrop(224, flip=0.5)
    tileable = [photo for photo in photos if photo is not None]
    assert len(tileable) >= 0.98 * len(paths)  # some are CMYK, or PNGs by another name
    of_crops = (tileable * 3)[:most]
    sides = np.array([side_of(photo) for photo in of_crops], np.int64).T
    randoms = np.random.default_rng(5).random((len(of_crops), rule.randoms))
    boxes = [Box(*map(int, record)) for record in rule.choose(*np.ascontiguousarray(sides), randoms).tolist()]
    tables = [LEVELS, table_of("float16", True), table_of("float32", False)]
    for number, first in enumerate(range(0, len(of_crops), 16)):
        some = slice(first, first + 16)
        assert unequal(twin, of_crops[some], boxes[some], tables[number % 3]) == []
