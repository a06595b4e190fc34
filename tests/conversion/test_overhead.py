"""A pack of small images has a note: how many bytes the format adds to the images, and which format adds fewer."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer._storage.files import disk_size


def draw(root: Path, count: int, side: int) -> Path:
    """Write PNGs of noise, of some 3 bytes a pixel, in one class."""
    rng = np.random.default_rng(0)
    (root / "a").mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 256, (side + number % 7, side, 3), np.uint8)
        encoded = io.BytesIO()
        Image.fromarray(pixels).save(encoded, "png", compress_level=0)
        (root / "a" / f"{number}.png").write_bytes(encoded.getvalue())
    return root


def notes(found: list[str]) -> list[str]:
    return [note for note in found if note.startswith("small images: ")]


def test_small_images_name_the_format_that_takes_less(tmp_path: Path) -> None:
    tree = draw(tmp_path / "tree", 2500, 26)  # of some 2.3 kB
    data = sum(path.stat().st_size for path in tree.rglob("*.png"))
    (note,) = notes(packer.convert(tree, tmp_path / "pack.lmdb").notes)
    assert notes(packer.convert(tree, tmp_path / "pack.h5").notes) == []
    assert notes(packer.convert(tree, tmp_path / "pack.pth").notes) == []
    said = re.search(r"\.lmdb .*\((\d+)%\) .*\.h5 would add .*\((\d+)%\)", note)
    assert said is not None
    for share, suffix in zip(said.groups(), (".lmdb", ".h5"), strict=True):
        beside = disk_size(tmp_path / f"pack{suffix}") / data - 1
        assert int(share) == pytest.approx(100 * beside, abs=1)
    assert int(said[1]) > 10 * int(said[2])
    estimated = packer.estimate(tree, tmp_path / "e.lmdb", seconds=0.4)
    (note,) = notes(estimated.notes)
    foretold = re.search(r"\((\d+)%\)", note)
    assert foretold is not None
    assert int(foretold[1]) == pytest.approx(int(said[1]), abs=8)
    assert notes(packer.estimate(tree, tmp_path / "e.h5", seconds=0.4).notes) == []


@pytest.mark.parametrize(("count", "side"), [(60, 220), (40, 26)])
def test_large_images_and_few_images_need_no_word(tmp_path: Path, count: int, side: int) -> None:
    tree = draw(tmp_path / "tree", count, side)
    assert notes(packer.convert(tree, tmp_path / "pack.lmdb").notes) == []
    assert notes(packer.estimate(tree, tmp_path / "e.lmdb", seconds=0.4).notes) == []
