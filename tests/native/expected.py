"""Print the lines of tests/native/host.c, from Pillow, torch and google-crc32c: ``expected.py IMAGE ...``.

The transcoder is that of the installed packer.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._images.extension import _native

SIDE = 96


def checksum(data: bytes) -> str:
    return f"{google_crc32c.value(data):08x}"


def transcoded(data: bytes) -> bytes:
    """Return the pieces of a tiled JPEG, one after the other, or the reason for the refusal."""
    made = _native.transcode(data, 1 << 27, 460)
    if isinstance(made, str):
        return made.encode()
    return b"".join(piece if isinstance(piece, bytes) else struct.pack("q", piece) for piece in made)


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
    sums = pixels.tobytes(), crop(pixels).tobytes(), transcoded(path.read_bytes())
    print(path.name, *pixels.shape[:2], *map(checksum, sums))
