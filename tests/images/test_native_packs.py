"""Packs are read the same with packer's own C and without it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from packer._conversion.convert import convert
from packer._datasets.decoder import BatchDecoder
from packer._datasets.open import open_dataset
from packer._formats import Reader, open_pack
from packer._images import native
from packer._images.encode import encode_tiled
from packer._images.geometry import INTERPOLATIONS, PADDINGS
from packer._sources.imagefolder import imagefolder_source
from packer.crops import Compose, Crop, RandomResizedCrop, Resize, ResizeCenterCrop
from tests.elsewhere import python_with
from tests.images.samples import encoded, photo
from tests.images.test_native_pixels import RESIZED, UNUSUAL, jpeg

pytestmark = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")


def digest_of_items(path: str) -> str:
    """Return the digest of all items of a pack, cropped in several ways."""
    digest = hashlib.sha256()
    for crop in (None, RandomResizedCrop(33, flip=0.5), ResizeCenterCrop(20, 31), Resize((19, 19)), Compose([])):
        dataset = open_dataset(path, output="numpy", crop=crop, seed=0)
        for image, _ in dataset.__getitems__(range(len(dataset))):
            digest.update(repr(image.shape).encode() + image.tobytes())
        digest.update(dataset.read_region(0, 1, 2, 13, 14).tobytes())
        dataset.reader.close()
    with open_pack(path) as reader:
        for crop in (RandomResizedCrop(33, flip=0.5), ResizeCenterCrop(20, 31), Compose([])):
            digest.update(padded_bicubic(reader, crop))
    return digest.hexdigest()


def padded_bicubic(reader: Reader, crop: Crop) -> bytes:
    """Return the pixels of all images, cropped, resized bicubic and padded in all ways."""
    count, drawn = len(reader), b""
    crops = BatchDecoder(reader).choose_crops(crop, range(count), 0, 0)
    crops["interpolation"] = INTERPOLATIONS.index("bicubic")
    crops["cut_top"], crops["cut_left"], crops["out_height"], crops["out_width"] = -5, 3, 41, 90
    for padding in range(len(PADDINGS)):
        crops["padding"], crops["fill"] = (np.arange(count) + padding) % len(PADDINGS), 0x030201
        outs = torch.zeros((count, 41, 90, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
        BatchDecoder(reader).decode_into(range(count), crops, outs)
        drawn += outs.permute(0, 2, 3, 1).numpy().tobytes()
    return drawn


HIDDEN = """
import sys
sys.modules["packer._images._native"] = None
from packer._images import native
assert not native.PREFERRED
from tests.images.test_native_packs import digest_of_items
print(digest_of_items(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pack of JPEGs of all kinds and a WebP image."""
    root = tmp_path_factory.mktemp("packed")
    folder = root / "tree" / "class"
    folder.mkdir(parents=True)
    files = {f"{sampling.replace(':', '')}.jpg": data for sampling, data in RESIZED.items()}
    files |= {f"{name}.img.jpg": UNUSUAL[name] for name in ("WebP", "RGB")}
    pixels = np.array(photo(131, 157))
    files |= {f"progressive {name}.jpg": jpeg(pixels, name, 90, 5, progressive=True) for name in ("grey", "4:2:0")}
    files["CMYK.jpg"] = encoded(Image.fromarray(pixels).convert("CMYK"), "JPEG", progressive=True)
    files |= {"tiled.jpg": encode_tiled(np.array(photo(121, 190)), 85), "tall.jpg": jpeg(np.array(photo(200, 30)))}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    return root / "pack.lmdb"


def test_packs_are_read_the_same_without_the_compiled_part(packed: Path) -> None:
    hidden = python_with(Path(__file__).parents[2], HIDDEN, packed)
    assert hidden.stdout.strip() == digest_of_items(str(packed))
