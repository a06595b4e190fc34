"""LSUN: an LMDB of files for each class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "LSUN LMDB"
SUFFIX = ""
LABELED = NAMED = False  # the directory's name is the class, and the keys are digests


def by_lmdb(directory: Path, photos: Sequence[Photo]) -> Path:
    import lmdb

    path = directory / "tower_val_lmdb"
    with lmdb.open(str(path), map_size=1 << 30) as environment, environment.begin(write=True) as transaction:
        for number, photo in enumerate(photos):
            transaction.put(f"{number:040x}".encode(), photo.data)
    return path


WRITTEN_BY = {"lmdb": by_lmdb}
READ_BY: dict[str, object] = {}
