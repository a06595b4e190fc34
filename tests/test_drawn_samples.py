"""Samples that are read, checked and drawn in C: the same as without it, and no other errors."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import packer.formats.spread
from packer.convert import convert
from packer.crops import CenterCrop, Crop, Full, RandomResizedCrop, Resize
from packer.datasets import ImageDataset, open_dataset
from packer.errors import CorruptPackError, ImageError
from packer.images import drawing
from packer.images.sizing import ResizeSpec
from packer.prepare import Recipe
from packer.sample import Sample
from packer.sources import imagefolder_source
from tests.packs import SUFFIXES, write_pack

CROPS = [RandomResizedCrop(24), CenterCrop(20, resize=31), Resize(19), Full()]
RECIPES = {
    "keep": Recipe(),
    "raw": Recipe("raw", resize=ResizeSpec(40)),
    "jpeg": Recipe("jpeg", tiles=True),
    "png": Recipe("png"),
    "exif applied": Recipe(exif="apply"),
}

needs_c = pytest.mark.skipif(not drawing.AVAILABLE, reason="needs a C compiler when packer is installed, and AVX2")


@pytest.fixture(scope="module")
def packs(odd_tree: Path, photo_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a pack of ordinary and odd images; tests must not change it."""
    root = tmp_path_factory.mktemp("packs")
    shutil.copytree(odd_tree, root / "tree")
    shutil.copytree(photo_tree, root / "tree", dirs_exist_ok=True)

    def made(format: str, recipe: str = "keep", **options: Any) -> Path:
        path = root / f"{recipe}{len(options)}{SUFFIXES[format]}"
        if not path.exists():
            convert(imagefolder_source(root / "tree"), path, recipe=RECIPES[recipe], **options)
        return path

    return made


def drawn(dataset: ImageDataset, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return all images, drawn in any order in batches of several sizes."""
    found: dict[int, Any] = {}
    order = np.random.default_rng(seed).permutation(len(dataset))
    for batch in np.split(order, [0, 1, 8, 9]):
        items = dataset.__getitems__(batch)  # type: ignore[arg-type]
        found.update(zip(batch.tolist(), (image for image, _ in items), strict=True))
    return [found[index] for index in range(len(dataset))]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let `drawing.draw` note how many of its jobs it did."""
    done = []
    draw = drawing.draw

    def noting(jobs: Any) -> list[int]:
        left = draw(jobs)
        done.append(len(jobs) - len(left))
        return left

    monkeypatch.setattr(drawing, "draw", noting)
    return done


@needs_c
@pytest.mark.parametrize("check", ["always", "never"])
@pytest.mark.parametrize("crop", CROPS, ids=lambda crop: type(crop).__name__)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("format", SUFFIXES)
def test_the_pixels_are_those_without_c(  # noqa: PLR0917
    format: str, recipe: str, crop: Crop, check: str, packs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packs(format, recipe)
    dataset = open_dataset(path, crop=crop, output="numpy", check=check)
    with monkeypatch.context() as patch:
        done = counted(patch)
        found = drawn(dataset)
    if recipe not in ("png", "exif applied"):
        assert max(done) > 1  # many at once
    monkeypatch.setattr(drawing, "AVAILABLE", False)
    for image, expected in zip(found, drawn(dataset), strict=True):
        assert np.array_equal(image, expected)


@needs_c
def test_scaled_decoding_is_left_to_libjpeg_turbo(packs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    drawn(open_dataset(packs("lmdb"), crop=Resize(8), scaled_decode=True))
    assert sum(done) == 0
    drawn(open_dataset(packs("lmdb"), crop=Resize(8), decoder="opencv"))
    assert sum(done) == 0
    drawn(open_dataset(packs("lmdb"), crop=Resize(40), scaled_decode=True))
    assert max(done) > 1


@pytest.mark.parametrize("check", ["always", "never"])
def test_more_files_than_are_kept_open(check: str, packs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = drawn(open_dataset(packs("lmdb"), crop=CROPS[0], output="numpy"))
    path = packs("pth", options={"shard_size": 4000})
    assert len(list(path.glob("shard-*.pth"))) > 5
    monkeypatch.setattr(packer.formats.spread, "_OPEN_FILES", 1)
    dataset = open_dataset(path, crop=CROPS[0], output="numpy", check=check)
    for image, other in zip(drawn(dataset), expected, strict=True):
        assert np.array_equal(image, other)


@pytest.mark.parametrize("change", ["removed", "cut short", "replaced"])
def test_files_that_are_no_longer_what_they_were(change: str, packs: Any, tmp_path: Path) -> None:
    path = shutil.copytree(packs("pth", options={"shard_size": 4000}), tmp_path / "pack.pth")
    dataset = open_dataset(path, crop=CROPS[0])
    dataset[len(dataset) - 1]
    victim = path / "shard-00001.pth"
    match change:
        case "removed":
            victim.unlink()
        case "cut short":
            os.truncate(victim, 700)
        case _:
            shutil.copyfile(path / "shard-00002.pth", victim)
    first = int(np.searchsorted(dataset.reader.table.offset, 4000))
    with pytest.raises(CorruptPackError) as caught:
        drawn(dataset)
    assert caught.value.index is not None
    assert caught.value.index <= first
    assert dataset._name(caught.value.index) in str(caught.value)


def test_the_first_that_is_damaged_in_the_file_is_named(packs: Any, tmp_path: Path) -> None:
    path = shutil.copyfile(packs("hdf5"), tmp_path / "pack.h5")
    dataset = open_dataset(path, crop=CROPS[0])
    stored, _files = dataset.reader.stored(np.array([3, 9]))
    with open(path, "r+b") as file:
        for at in stored["position"].tolist():
            file.seek(at + 300)
            file.write(b"????")
    with pytest.raises(CorruptPackError, match=r"sample 3\b"):
        dataset.__getitems__([9, 1, 3, 2])


def test_raw_pixels_of_another_size_than_the_row_says(tmp_path: Path) -> None:
    samples = [Sample(str(number), 0, bytes(5 * 7 * 3), *size) for number, size in enumerate([(5, 7), (7, 5), (5, 6)])]
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples, codec="raw")
    dataset = open_dataset(path, crop=Full())
    assert [tuple(image.shape) for image, _ in dataset.__getitems__([0, 1])] == [(3, 5, 7), (3, 7, 5)]
    with pytest.raises(CorruptPackError, match=r"sample 2.*105 bytes are not 6 x 5 pixels"):
        dataset.__getitems__([0, 2])


def test_images_of_another_size_than_the_row_says(tmp_path: Path, photo_tree: Path) -> None:
    data = next(photo_tree.rglob("*.jpg")).read_bytes()
    samples = [Sample("right", 0, data, 64, 48), Sample("wrong", 0, data, 63, 48)]
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples)
    with pytest.raises(ImageError, match=r"sample 1 \(wrong\).*48 x 64 pixels.*48 x 63"):
        open_dataset(path, crop=Full()).__getitems__([0, 1])


def test_indices_that_are_none_or_negative(packs: Any) -> None:
    dataset = open_dataset(packs("lmdb"), crop=CROPS[1])
    assert dataset.__getitems__([]) == []
    (image, _), (other, _) = dataset.__getitems__([-1, len(dataset) - 1])
    assert torch.equal(image, other)
    with pytest.raises(IndexError, match="out of range"):
        dataset.__getitems__([0, len(dataset)])


@needs_c
@given(data=st.binary(max_size=4000), cut=st.integers(0, 4000))
def test_checksums_are_those_of_a_library(data: bytes, cut: int) -> None:
    expected = google_crc32c.value(data)
    assert drawing._native.crc32c(data, 0) == expected
    assert drawing._native.crc32c(data[cut:], drawing._native.crc32c(data[:cut], 0)) == expected
