"""Batches decoded into the tensors of the caller, by one call of C and image by image."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from packer._conversion.pipeline import Recipe
from packer._datasets.decoder import BatchDecoder, NativeTasks, addresses_of
from packer._datasets.open import open_dataset
from packer._formats import open_pack
from packer._formats.reader import TaskFiles
from packer._images import native
from packer._images.geometry import CROP, MAX_PIXELS, Box, Crops
from packer._images.native.records import Results, TaskBuilder
from packer._images.numbers import NumberFormat
from packer._images.resize import ResizeSpec
from packer._loader.loader import Loader
from packer._storage.packfile import LOCATION, NOWHERE
from packer.crops import Crop, RandomCrop, RandomResizedCrop, Resize
from packer.errors import ImageError

Packs = Callable[..., Path]


class Lying(Crop):
    """A crop whose images are larger than its `size`."""

    randoms, _settings = 0, {}

    def __init__(self) -> None:
        pass

    @property
    def size(self) -> tuple[int, int]:
        return 8, 8

    def choose(self, heights: npt.NDArray[np.int64], widths: npt.NDArray[np.int64], random: Any) -> Crops:
        return Resize((9, 9)).choose(heights, widths, random)


@pytest.mark.parametrize("codec", ["keep", "raw"])
def test_nothing_is_decoded_beyond_its_place(codec: str, photo_tree: Path, packs: Packs) -> None:
    dataset = open_dataset(packs(photo_tree, "lmdb", Recipe(codec=codec)), crop=Lying())
    with pytest.raises(ValueError, match="the number or the size of the tensors"):
        list(Loader(dataset, 2, threads=1))
    decoder, indices = BatchDecoder(dataset.reader), np.arange(2)
    crops = decoder.choose_crops(Lying(), indices, 0, 0)
    images = torch.empty((3, 9, 9, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    decoder.decode_into(indices, crops, images[:2])
    others = images[:2].to(torch.int16), images[:2].to("meta")
    for wrong in (images, images[:1], images[:2, :, :8], images[:2].contiguous(), *others):
        with pytest.raises(ValueError, match="tensors"):
            decoder.decode_into(indices, crops, wrong)
    with pytest.raises(ValueError, match="3 images, but crops for 2"):
        decoder.decode_into(np.arange(3), crops, images[:2])


@pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler when packer is installed")
@pytest.mark.parametrize("codec", ["jpeg", "png", "raw"])
def test_a_batch_is_decoded_by_c_alone(codec: str, photo_tree: Path, packs: Packs) -> None:
    reader = open_dataset(packs(photo_tree, "lmdb", Recipe(codec=codec, resize=ResizeSpec(24)))).reader
    decoder = BatchDecoder(reader)
    images, indices = torch.empty((4, 8, 8, 3), dtype=torch.uint8).permute(0, 3, 1, 2), np.arange(4)
    crops = decoder.choose_crops(RandomResizedCrop(8), indices, 0, 0)
    assert decoder.sample_decoder.in_c
    offer = NativeTasks(reader, decoder._task_builder, indices, crops[:, None], 4, 3, None)
    offer.aim(0, 4, [images])
    assert offer.decode(0, 3) == offer.decode(3, 4) == []


@pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler when packer is installed")
@pytest.mark.parametrize("check", ["always", "never"])
def test_c_gathers_what_the_table_says_also_where_it_is_damaged(check: str, photo_tree: Path, packs: Packs) -> None:
    with open_pack(packs(photo_tree, "lmdb"), check=check) as reader:
        count, rng = len(reader), np.random.default_rng(0)
        positions = rng.integers(0, count, 50)
        for number in range(3):
            stored, _files = reader.locate(positions)
            locating = TaskBuilder(reader.table, raw=False, checked=check == "always")
            crops = rng.integers(1, 100, (50, 2, len(CROP))).view(CROP)[..., 0]
            files, groups = TaskFiles(reader), [0, 8, 16, 20, 28, 36, 40, 48, 50]
            made = locating.tasks(positions, crops, 20, 8, files.one)
            for group, end in itertools.pairwise(groups):
                offsets = stored["position"][made.places[group:end]]
                assert sorted(made.places[group:end]) == [*range(group, end)]
                assert (np.diff(offsets.astype(object)) >= 0).all()
            made.tasks["out_height"], made.tasks["out_width"] = crops["out_height"], crops["out_width"] = (5, 6), 7
            results = [Results(1 << 40, 1000, 5, 7), Results(9, 100, 6, 7)]
            assert made.aim(0, 20, results)
            assert made.aim(20, 40, results)
            assert made.aim(40, 50, results)
            for view, (address, between, *_) in enumerate(results):
                assert np.array_equal(made.tasks["out"][:, view], address + between * (made.places % 20))
            assert not made.aim(40, 50, [results[0], results[1]._replace(width=8)])
            assert not made.aim(0, 20, [results[0]._replace(height=6), results[1]])
            expected, found = stored[made.places], made.tasks[:, 0]
            for view in range(2):
                task = made.tasks[:, view]
                for name in LOCATION.names:
                    assert np.array_equal(task[name], found[name]), name
                for name in CROP.names:
                    assert np.array_equal(task[name], crops[name][made.places, view]), name
            named = expected["file"] != NOWHERE
            assert named.all() == (number == 0)
            assert np.array_equal(found["file"] != NOWHERE, named)
            for name in LOCATION.names[1:]:
                assert np.array_equal(found[name], expected[name]), name
            columns = {"name_end": [-(1 << 62), 0, 5, 1 << 62], "offset": [-1, 0, 1 << 62], "label": [-(1 << 63), 7]}
            columns |= {"size": [-1, 1 << 40], "height": [-(1 << 31), 3], "width": [0, 9], "crc32c": [0, (1 << 32) - 1]}
            table = reader.table
            types = {name: getattr(table, name).dtype for name in columns}
            odd = {name: rng.choice(some, 2 * count).astype(types[name])[::2] for name, some in columns.items()}
            reader.table = replace(table, **odd)  # not contiguous


@pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler when packer is installed")
@pytest.mark.parametrize(
    "sides", [[(1, 1)], [(500, 375)] * 32, [(13_300, 13_300)] * 32, [(1 << 15, 1 << 15)] * 3 + [(1, 1)] * 29]
)
def test_a_call_of_c_has_few_pixels_and_usual_images_take_one(
    sides: list[tuple[int, int]], photo_tree: Path, packs: Packs
) -> None:
    with open_pack(packs(photo_tree, "lmdb")) as reader:
        rows = np.arange(len(sides)) % len(reader)
        crops = np.array([Box.of((0, 0, *side), (1, 1), out=side) for side in sides], CROP)[:, None]
        locating = TaskBuilder(reader.table, raw=False, checked=True)
        offer = NativeTasks(reader, locating, rows, crops, len(sides), len(sides), None)
        calls = offer._calls(0, len(sides))
        pixels = [sides[place][0] * sides[place][1] for place in offer.order]
    assert [index for begin, end in calls for index in range(begin, end)] == list(range(len(sides)))
    assert all(sum(min(size, MAX_PIXELS) for size in pixels[begin:end]) < 2 * MAX_PIXELS for begin, end in calls)
    assert len(calls) == 1 or sum(pixels) > MAX_PIXELS


def test_images_that_are_decoded_in_several_calls_are_the_same(
    packs: Packs, photo_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(packs(photo_tree, "lmdb"), crop=RandomResizedCrop(16, flip=0.5), seed=0)
    expected = [image for image, _ in dataset.__getitems__(list(range(15)))]
    dataset.set_epoch(0)
    monkeypatch.setattr("packer._datasets.decoder.MAX_PIXELS", 2 * 48 * 64)
    found = [image for image, _ in dataset.__getitems__(list(range(15)))]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_an_image_that_is_too_small_for_its_crop_is_named(photo_tree: Path, packs: Packs) -> None:
    dataset = open_dataset(packs(photo_tree, "lmdb"), crop=RandomCrop(50))
    with pytest.raises(
        ImageError, match=r"sample 3 \(class_00/.*\): 64 x 48 pixels are too small for the crop of 50 x 50; pad"
    ):
        dataset[3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("planes", [True, False])
def test_numbers_are_written_into_tensors_of_their_layout_and_the_crops_size_alone(
    dtype: torch.dtype, planes: bool
) -> None:
    crops = np.array([Box.of((0, 0, 8, 8), (4, 6))] * 2, CROP)
    numbers = NumberFormat(None, str(dtype).removeprefix("torch."), planes)
    layouts = [torch.channels_last, torch.contiguous_format]
    right = torch.empty(2, 3, 4, 6, dtype=dtype).contiguous(memory_format=layouts[planes])
    places = [right[0].data_ptr(), right[1].data_ptr()]
    assert addresses_of(right, crops, numbers).tolist() == places
    assert addresses_of([right[1], right[0]], crops, numbers).tolist() == places[::-1]
    other = right.contiguous(memory_format=layouts[not planes])
    wrongs: list[Any] = [right.double(), right[:1], right[..., :5], other, right[:, :2], right[0], [right[0], other[1]]]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"can be written only into|the number or the size of the tensors"):
            addresses_of(wrong, crops, numbers)
