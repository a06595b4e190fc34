"""torchcodec's JPEG decoder (https://github.com/pytorch/torchcodec), with torchvision's transforms v2 of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import tensors

REQUIRES = ("torchcodec.decoders", "torchvision")
NOTE = (
    "ImageFolder of the files' bytes, torchcodec.decoders.decode_image, transforms v2 on uint8 tensors, anti-aliased; "
    "DataLoader with persistent workers"
)

prepare = tensors.prepare


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    from torchcodec.decoders import decode_image

    return tensors.open_folder(pack, crop, threads, decode_image)
