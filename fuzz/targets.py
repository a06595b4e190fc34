"""The targets of fuzzing: functions of bytes that assert packer's promises and may raise nothing but `PackerError`."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from fuzz import images, packs

_FUNCTIONS: list[Callable[[bytes], None]] = [
    *(packs.lmdb, packs.hdf5, packs.pth, packs.parts, packs.manifest, packs.table),
    *(images.sniff, images.image, images.region, images.draw, images.transcode, images.unchanged),
]

TARGETS = {function.__name__: function for function in _FUNCTIONS}

warnings.simplefilter("ignore")  # Pillow's remarks about odd images
