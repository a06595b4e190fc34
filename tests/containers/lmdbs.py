"""Write LMDB files with py-lmdb, as other tools do; images and masks to put into them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import lmdb
import numpy as np
from PIL import Image

from packer.testing.photos import draw_photo


def write_lmdb(path: Path, items: Iterable[tuple[bytes, bytes]], *, subdir: bool = False) -> Path:
    """Write an LMDB file, or a directory with data.mdb, in transactions of five values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), subdir=subdir, map_size=1 << 26) as environment:
        rest = list(items)
        for start in range(0, len(rest), 5):
            with environment.begin(write=True) as transaction:
                for key, value in rest[start : start + 5]:
                    assert transaction.put(key, value)
    return path


def entries_of(path: Path) -> list[tuple[bytes, bytes]]:
    """Return the keys and values that py-lmdb reads."""
    with (
        lmdb.open(str(path), subdir=path.is_dir(), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return list(transaction.cursor())


def photos(count: int, form: str = "JPEG") -> list[bytes]:
    """Return images of different sizes: LMDB keeps some in a page of the tree, and others on overflow pages."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        file = io.BytesIO()
        height, width = (16, 20 + number) if number % 3 else (90, 100 + number)
        Image.fromarray(draw_photo(rng, height, width)).save(file, form)
        found.append(file.getvalue())
    return found


def masks(images: Iterable[bytes]) -> list[bytes]:
    """Return a PNG of ids for each image, of its size."""
    found = []
    for image in images:
        file = io.BytesIO()
        Image.open(io.BytesIO(image)).convert("L").point(lambda level: level // 64).save(file, "PNG")
        found.append(file.getvalue())
    return found
