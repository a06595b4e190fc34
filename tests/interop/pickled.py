"""LMDB files of pickled pairs, by the steps of Efficient-PyTorch's folder2lmdb.py."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "pickled LMDB"
SUFFIX = ""
NAMED = False


def by_lmdb(directory: Path, photos: Sequence[Photo]) -> Path:
    import lmdb

    path = directory / "train.lmdb"
    keys = [str(number).encode("ascii") for number in range(len(photos))]
    with lmdb.open(str(path), subdir=False, map_size=1 << 30) as environment:
        with environment.begin(write=True) as transaction:
            for key, photo in zip(keys, photos, strict=True):
                transaction.put(key, pickle.dumps((photo.data, photo.label)))
        with environment.begin(write=True) as transaction:
            transaction.put(b"__keys__", pickle.dumps(keys))
            transaction.put(b"__len__", pickle.dumps(len(keys)))
    return path


WRITTEN_BY = {"lmdb": by_lmdb}
READ_BY: dict[str, object] = {}
