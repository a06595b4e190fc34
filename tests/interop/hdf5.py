"""HDF5 files with encoded images as vectors of variable length, in the way of Fuel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.interop.photos import Photo

KIND = "HDF5"
SUFFIX = ""
NAMED = False


def by_h5py(directory: Path, photos: Sequence[Photo]) -> Path:
    import h5py

    with h5py.File(directory / "train.h5", "w") as file:
        images = file.create_dataset("encoded_images", (len(photos),), h5py.vlen_dtype(np.uint8))
        for number, photo in enumerate(photos):
            images[number] = np.frombuffer(photo.data, np.uint8)
        file["targets"] = np.array([photo.label for photo in photos], np.int16)
    return directory / "train.h5"


WRITTEN_BY = {"h5py": by_h5py}
READ_BY: dict[str, object] = {}
