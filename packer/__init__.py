"""packer: trees of images in one pack, read at the speed of the decoder.

The names below are imported when they are first used, so that ``import packer`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from packer._formats import open_pack
    from packer._loading.dataset import HDF5ImageDataset, ImageDataset, LMDBImageDataset, PthImageDataset, open_dataset
    from packer.errors import PackerError

__all__ = [
    "HDF5ImageDataset",
    "ImageDataset",
    "LMDBImageDataset",
    "PackerError",
    "PthImageDataset",
    "__version__",
    "open_dataset",
    "open_pack",
]

_MODULES = {
    "HDF5ImageDataset": "packer._loading.dataset",
    "ImageDataset": "packer._loading.dataset",
    "LMDBImageDataset": "packer._loading.dataset",
    "PackerError": "packer.errors",
    "PthImageDataset": "packer._loading.dataset",
    "open_dataset": "packer._loading.dataset",
    "open_pack": "packer._formats",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
