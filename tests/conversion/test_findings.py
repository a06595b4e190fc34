"""Notes of a conversion about images whose decoded pixels are not what their makers meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer._images.pillow import decode
from packer._images.probe import CLIPPED, DEEP, inspect
from tests.command import packer_many
from tests.images.samples import encoded, oriented, photo
from tests.samples import solid

GREY = photo(37, 53)[..., 0]


def deep(dtype: str, scale: float) -> npt.NDArray[Any]:
    return (GREY.astype(np.float64) * scale).astype(dtype)


def rgb_of_16_bits() -> bytes:
    return cv2.imencode(".png", photo(37, 53).astype(np.uint16) * 257)[1].tobytes()


@pytest.mark.parametrize(
    ("data", "ruined"),
    [
        (encoded(deep("u2", 257), "PNG"), True),
        (encoded(deep("u2", 1), "PNG"), False),
        (encoded(deep("u2", 257), "TIFF"), True),
        (encoded(deep("i4", 1000), "TIFF"), True),
        (encoded(deep("i4", -1), "TIFF"), True),
        (encoded(deep("f4", 1 / 255), "TIFF"), True),
        (encoded(deep("f4", 100), "TIFF"), True),
        (encoded(np.full((40, 40), np.nan, np.float32), "TIFF"), True),
        (encoded(deep("f4", 1), "TIFF"), False),
        (rgb_of_16_bits(), False),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_a_ruined_image_is_told_from_a_reduced_one(data: bytes, ruined: bool) -> None:
    """An image is ruined if its pixels in Pillow's RGB differ from the picture scaled to 8 bits."""
    findings = inspect(data).findings
    assert findings == ((CLIPPED,) if ruined else (DEEP,))
    pixels = decode(data)[..., 0].astype(int)
    expected = photo(37, 53)[..., 2] if data == rgb_of_16_bits() else GREY
    same = pixels.shape == expected.shape and np.abs(pixels - expected).max() <= 1
    assert same != ruined


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("findings") / "tree"
    solid(root / "a" / "plain.jpg", size=(64, 64))
    for name, data in {
        "grey.png": encoded(deep("u2", 257), "PNG"),
        "float.tif": encoded(deep("f4", 1 / 255), "TIFF"),
        "rgb.png": rgb_of_16_bits(),
        "turned.jpg": oriented(photo(48, 64), 6),
    }.items():
        (root / "a" / name).write_bytes(data)
    return root


def test_the_command_says_what_can_be_done(tree: Path, tmp_path: Path) -> None:
    kept, info, made, info_of_made, turned = (
        result.stdout
        for result in packer_many(
            [
                ["convert", tree, tmp_path / "kept.lmdb"],
                ["info", tmp_path / "kept.lmdb"],
                ["convert", tree, tmp_path / "made.lmdb", "--resize", "32", "--to-8-bit", "clip"],
                ["info", tmp_path / "made.lmdb"],
                ["convert", tree, tmp_path / "turned.lmdb", "--exif", "apply"],
            ]
        )
    )
    ruined = "2 images have 16 bits or floats per pixel; read as 8-bit RGB, such images turn white or black; "
    for told in (kept, info):
        assert f'  {ruined}mode="unchanged" reads all bits\n' in f"{told}\n"
        assert "1 x more than 8 bits a channel, read as 8" in told
        assert "1 x EXIF-rotated: not rotated, as with ImageFolder; --exif apply rotates them" in told
    for told in (made, info_of_made):
        assert "3 x more than 8 bits a channel: cut to 8 bits as Pillow cuts them" in told
        assert "white or black" not in told
        assert "x tiled" not in told
    assert "  5 of 5 samples are tiled JPEGs" in made
    assert "1 x EXIF-rotated: rotated upright" in turned


def test_the_stored_bytes_have_the_values(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "pack.lmdb")
    with packer.open_dataset(tmp_path / "pack.lmdb", output="bytes") as dataset:
        stored = {name: data for (data, _), (name, _) in zip(dataset, dataset.samples, strict=True)}
    (tmp_path / "float.tif").write_bytes(stored["a/float.tif"])
    with Image.open(tmp_path / "float.tif") as image:
        assert np.array_equal(np.asarray(image), deep("f4", 1 / 255))
