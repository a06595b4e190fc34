"""torchvision's own JPEG decoder, which gives tensors, and its transforms v2 of uint8 tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import data_loader, recipes, tensor_transform

REQUIRES = ("torchvision.io",)
NOTE = (
    "ImageFolder of the files' bytes, torchvision.io.decode_jpeg, transforms v2 on uint8 tensors, anti-aliased; "
    "DataLoader with persistent workers"
)


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int, recipe: str | None = None) -> Any:
    return open_folder(pack, crop, threads, decoder(), recipe)


def open_folder(pack: Path, crop: str, threads: int, decode: Callable[[bytes], Any], recipe: str | None = None) -> Any:
    """Return a DataLoader over an ImageFolder tree whose files `decode` turns into (3, height, width) uint8 tensors."""
    from torchvision.datasets import ImageFolder

    transformed = recipes.transform(recipe, "tensors") if recipe else tensor_transform(crop)
    folder = ImageFolder(str(pack), transformed, loader=lambda path: decode(Path(path).read_bytes()))
    return data_loader(folder, crop, threads, recipes.mixed(recipe))


def decoder() -> Callable[[bytes], Any]:
    """Return a function that decodes the bytes of a file; ImportError if torchvision's operators do not load."""
    import torch
    from torchvision.io import ImageReadMode, decode_image

    if not hasattr(torch.ops.image, "decode_jpeg"):
        raise ImportError("torchvision's operators do not load; its wheel is built for another torch (CUDA?)")

    def decode(data: bytes) -> Any:
        # A writable copy: torch warns about read-only bytes.
        return decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)

    return decode
