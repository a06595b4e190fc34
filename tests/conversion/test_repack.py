"""A pack as the source of another: bytes are copied, or encoded from the pixels that the pack shows."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer._conversion.convert import ConversionProgress, convert
from packer._conversion.recipe import Recipe
from packer._datasets.open import open_dataset
from packer._formats import open_pack
from packer._images.resize import ResizeSpec
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._table import Sample
from packer.errors import ImageError
from packer.testing.photos import draw_imagefolder
from tests.samples import SUFFIXES, content, write_pack


def pixels(path: Path) -> list[np.ndarray]:
    return [image for image, _ in open_dataset(path, output="numpy")]


@pytest.mark.parametrize("codec", ["keep", "raw"])
@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(SUFFIXES, 2)))
def test_there_and_back_gives_the_same_bytes(
    photo_tree: Path, tmp_path: Path, one: str, other: str, codec: str
) -> None:
    first, between, back = (
        tmp_path / f"{name}{SUFFIXES[format]}" for name, format in [("first", one), ("other", other), ("back", one)]
    )
    convert(imagefolder_source(photo_tree), first, recipe=Recipe(codec=codec))
    for source, destination in [(first, between), (between, back)]:
        convert(pack_source(source), destination)
        assert verify(destination) == []
    assert digest(first) == digest(between)
    assert content(first) == content(back)


@pytest.mark.parametrize("codec", ["keep", "png", "raw"])
def test_resizing_a_pack_is_resizing_what_it_shows(photo_tree: Path, tmp_path: Path, codec: str) -> None:
    convert(imagefolder_source(photo_tree), tmp_path / "whole.lmdb", recipe=Recipe(codec=codec))
    small = Recipe("png", ResizeSpec(24))
    convert(pack_source(tmp_path / "whole.lmdb"), tmp_path / "small.h5", recipe=small)
    convert(imagefolder_source(photo_tree), tmp_path / "direct.h5", recipe=small)
    assert digest(tmp_path / "small.h5") == digest(tmp_path / "direct.h5")
    with open_pack(tmp_path / "small.h5") as reader:
        assert reader.manifest.settings == small.settings() | {"codec": "png"}
        assert reader.manifest.source["kind"] == "pack"
        assert reader.manifest.findings == {}


def oriented(orientation: int) -> bytes:
    image = Image.fromarray(np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stream = io.BytesIO()
    image.save(stream, "PNG", exif=exif)
    return stream.getvalue()


def test_orientations_are_what_the_pack_says(tmp_path: Path) -> None:
    """A stored file may still need rotation; a re-encoded image is upright, whatever its EXIF says."""
    kept = write_pack(tmp_path / "kept.lmdb", "lmdb", [Sample("a.png", 0, oriented(6), 8, 12)])
    turned = write_pack(
        tmp_path / "turned.lmdb", "lmdb", [Sample("a.png", 0, oriented(6), 12, 8)], settings={"exif": "apply"}
    )
    encoded = write_pack(tmp_path / "encoded.lmdb", "lmdb", [Sample("a.png", 0, oriented(6), 8, 12)], codec="png")
    shown = {path: pixels(path)[0] for path in (kept, turned, encoded)}
    assert shown[turned].shape == (12, 8, 3)
    cases = [
        (kept, Recipe(), shown[kept]),
        (kept, Recipe(exif="apply"), shown[turned]),
        (kept, Recipe("raw"), shown[kept]),
        (kept, Recipe("raw", exif="apply"), shown[turned]),
        (turned, Recipe(), shown[turned]),
        (turned, Recipe("raw"), shown[turned]),
        (encoded, Recipe(), shown[kept]),
        (encoded, Recipe(exif="apply"), shown[kept]),
        (encoded, Recipe("raw", exif="apply"), shown[kept]),
    ]
    for number, (path, recipe, expected) in enumerate(cases):
        destination = tmp_path / f"{number}.h5"
        convert(pack_source(path), destination, recipe=recipe)
        np.testing.assert_array_equal(pixels(destination)[0], expected, err_msg=str(number))
        with open_pack(destination) as reader:
            assert (int(reader.table.height[0]), int(reader.table.width[0])) == expected.shape[:2]


def test_samples_that_are_not_what_the_pack_says(tmp_path: Path) -> None:
    raw = write_pack(tmp_path / "raw.lmdb", "lmdb", [Sample("a", 0, b"12345", 1, 2)], codec="raw")
    with pytest.raises(ImageError, match="5 bytes are not 2 x 1 pixels"):
        convert(pack_source(raw), tmp_path / "png.lmdb", recipe=Recipe("png"))
    rubbish = write_pack(tmp_path / "rubbish.lmdb", "lmdb", [Sample("a", 0, b"no image", 1, 2)])
    convert(pack_source(rubbish), tmp_path / "carried.h5")
    with pytest.raises(ImageError):
        convert(pack_source(rubbish), tmp_path / "checked.h5", recipe=Recipe(audit="decode"))


def test_an_interrupted_copy_continues(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=40, size=(16, 16))
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.lmdb")
    convert(pack_source(tmp_path / "pack.lmdb"), tmp_path / "whole.h5")

    def stop(progress: ConversionProgress) -> None:
        if progress.done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(pack_source(tmp_path / "pack.lmdb"), tmp_path / "copy.h5", progress=stop)
    summary = convert(pack_source(tmp_path / "pack.lmdb"), tmp_path / "copy.h5")
    assert summary.continued > 20
    assert content(tmp_path / "copy.h5") == content(tmp_path / "whole.h5")
