"""Print what tests/native/host.c prints of JPEGs, by Pillow, torch and google-crc32c: ``expected.py JPEG ...``."""

from __future__ import annotations

import sys
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

SIDE = 96


def checksum(pixels: npt.NDArray[np.uint8]) -> str:
    return f"{google_crc32c.value(pixels.tobytes()):08x}"


def crop(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the middle, resized and mirrored."""
    height, width = pixels.shape[:2]
    part = pixels[height // 4 : height // 4 + (height + 1) // 2, width // 4 : width // 4 + (width + 1) // 2]
    batch = torch.from_numpy(part.copy())[None].permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(batch, (SIDE, SIDE), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()[:, ::-1]


for path in map(Path, sys.argv[1:]):
    with Image.open(path) as image:
        pixels = np.array(image.convert("RGB"))
    print(path.name, *pixels.shape[:2], checksum(pixels), checksum(crop(pixels)))
