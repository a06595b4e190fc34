"""With codec raw and check="never", only the rows of the crop are read."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from torchvision.transforms.functional import center_crop

import packer
from packer._images import native
from packer.crops import CenterCrop, Compose, Crop, Pad, RandomCrop, RandomResizedCrop, ResizeCenterCrop
from packer.errors import CorruptPackError
from packer.testing.photos import draw_imagefolder
from tests.command import python
from tests.samples import SUFFIXES

pytestmark = pytest.mark.skipif(
    not native.PREFERRED or not hasattr(os, "pread"), reason="needs packer's own C, and a system where it reads files"
)

SIZE = 90
CROPS = [
    CenterCrop(40),
    RandomCrop(40, flip=1.0),
    RandomResizedCrop(32),
    ResizeCenterCrop(20, 30),
    Compose([RandomCrop(40), Pad(3, padding_mode="reflect")]),
]


@pytest.fixture(params=SUFFIXES.values())
def raw(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=3, size=(SIZE, SIZE))
    pack = tmp_path / f"raw{request.param}"
    packer.convert(tmp_path / "tree", pack, codec="raw")
    return pack


def images(pack: Path, crop: Crop, check: str) -> list[npt.NDArray[np.uint8]]:
    with packer.open_dataset(pack, crop=crop, check=check, seed=0, output="numpy") as dataset:
        return [image for image, _ in dataset.__getitems__(range(len(dataset)))]


def overwrite_first_rows(pack: Path, rows: int) -> None:
    """Overwrite the first rows of each image with zeros."""
    with packer.open_dataset(pack, output="bytes") as dataset:
        stored = [data for data, _ in dataset.__getitems__(range(len(dataset)))]
    found = 0
    for file in [pack] if pack.is_file() else sorted(pack.iterdir()):
        whole = bytearray(file.read_bytes())
        for data in stored:
            begin = whole.find(data)
            if begin >= 0:
                whole[begin : begin + 3 * SIZE * rows] = bytes(3 * SIZE * rows)
                found += 1
        file.write_bytes(whole)
    assert found == len(stored)


@pytest.mark.parametrize("crop", CROPS, ids=repr)
def test_rows_that_are_read_alone_give_the_same_pixels(raw: Path, crop: Crop) -> None:
    for one, other in zip(images(raw, crop, "always"), images(raw, crop, "never"), strict=True):
        np.testing.assert_array_equal(one, other)


def test_damage_beside_the_crop_changes_no_pixel_where_nothing_is_checked_and_is_found_where_it_is(raw: Path) -> None:
    before = images(raw, CenterCrop(40), "always")
    overwrite_first_rows(raw, (SIZE - 40) // 2)
    for one, other in zip(before, images(raw, CenterCrop(40), "never"), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(CorruptPackError, match="checksum"):
        images(raw, CenterCrop(40), "always")


@pytest.mark.parametrize("check", ["always", "never"])
@pytest.mark.parametrize("width", [301, 320])
def test_many_large_crops_are_the_images_in_their_places(tmp_path: Path, width: int, check: str) -> None:
    """A batch of 2 MiB or more bypasses the caches. The width 320 is that of the images: whole rows are read."""
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=4, size=(330, 320))
    packer.convert(tmp_path / "tree", tmp_path / "raw.lmdb", codec="raw")
    with packer.open_dataset(tmp_path / "raw.lmdb", output="numpy") as dataset:
        wholes = [image for image, _ in dataset.__getitems__(range(len(dataset)))]
    crop = CenterCrop((320, width))
    assert 3 * 320 * width * len(wholes) >= 2 << 20
    for image, whole in zip(images(tmp_path / "raw.lmdb", crop, check), wholes, strict=True):
        np.testing.assert_array_equal(image, center_crop(Image.fromarray(whole), [320, width]))


READ_ON = """
import os, sys, threading
import packer
from packer.crops import CenterCrop
from packer.errors import PackerError

for side, pack in (200, sys.argv[1]), (320, sys.argv[2]):
    with packer.open_dataset(pack, crop=CenterCrop(side), check="never") as dataset:
        indices, begun = [*range(len(dataset))] * 8, threading.Barrier(3, timeout=60)

        def read() -> None:
            try:
                dataset.__getitems__(indices)
                begun.wait()
                while True:
                    dataset.__getitems__(indices)
            except PackerError as error:
                sys.stdout.write(f"{type(error).__name__} {'shorter' in str(error)}\\n")

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        begun.wait()
        print("reading", side, flush=True)
        os.truncate(pack, 1000)
        for thread in threads:
            thread.join()
"""


def test_a_file_that_is_truncated_while_it_is_read_is_an_error_and_kills_nobody(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=8, size=(330, 320))
    packs = [tmp_path / "parts.lmdb", tmp_path / "whole rows.lmdb"]
    packer.convert(tmp_path / "tree", packs[0], codec="raw")
    shutil.copyfile(*packs)
    done = python(READ_ON, *packs, check=False)
    told = "".join(f"reading {side}\n" + "CorruptPackError True\n" * 2 for side in (200, 320))
    assert (done.returncode, done.stdout) == (0, told), done.stderr


def bytes_read() -> int:
    """Return how many bytes this process has read from files."""
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a process has read")
def test_no_more_than_the_rows_of_the_crop_is_read(raw: Path) -> None:
    read = {}
    for check in ("always", "never"):
        with packer.open_dataset(raw, crop=CenterCrop(30), check=check) as dataset:
            dataset.__getitems__([0])  # some bytes are read only once
            costs = []
            for _ in range(2):
                before = bytes_read()
                dataset.__getitems__(range(len(dataset)))
                costs.append(bytes_read() - before)
            read[check] = min(costs) / len(dataset)
    assert read["always"] >= 3 * SIZE * SIZE
    assert 3 * SIZE * 29 < read["never"] < 3 * SIZE * 30 + 1000
