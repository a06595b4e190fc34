"""PySODToolBox's LMDB (ForBigDataset/ImageFolder2LMDB.py): pixels in OpenCV's order, and ``meta_info.pkl``.

``meta_info.pkl`` is a pickled dict with two lists, ``keys`` and ``resolution``. The resolutions are a text ``C_H_W``
for each key, or a single one if all images have the same size. A value is the pixels of an image, H x W x C, blue
first. The number of bits per channel, 8 or 16, is not recorded, but follows from the size of a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._containers.blocks import errors_in
from packer._containers.contract import Entry, PixelLayout, no_keys
from packer._containers.lmdb import First, LMDBContainer, LMDBValue, failing, shown_key, text_of
from packer._containers.safe_pickle import unpickled
from packer._storage.lmdb_tree import LMDBTree
from packer._storage.packfile import PackFile
from packer.errors import SourceError, printable

__all__ = ["PySODToolBox"]

_SIDECAR = "meta_info.pkl"
_MOST_OPCODES = 1 << 27
_SHAPE = re.compile("([0-9]{1,6})_([0-9]{1,9})_([0-9]{1,9})")


class PySODToolBox(LMDBContainer):
    """PySODToolBox's samples, in the order of the keys in ``meta_info.pkl``.

    The name of a sample is its key, with ``.png`` in place of the key's suffix. If keys differ only in their suffixes,
    ``.png`` is added to the whole key.
    """

    kind = "pysodtoolbox lmdb"
    shapes: Mapping[bytes, tuple[int, int]]
    suffixed: bool

    @classmethod
    def is_of(cls, first: First) -> bool:
        return os.path.isfile(first.path.with_name(_SIDECAR)) and bool(_shapes_of(first.path))

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> PySODToolBox:
        no_keys(cls.kind, keys)
        for path in paths:
            channels = {shape[0] for _, shape in _listed_beside(path)}
            if len(channels) > 1 or not channels <= {1, 3}:
                raise SourceError(
                    f"{printable(path)}: has images of {', '.join(map(str, sorted(channels)))} channels; packer reads "
                    "1 or 3 channels, the same for all images. Convert the image files instead"
                )
        return cls.of_files(paths, pixels=PixelLayout("HWC", "BGR" if channels == {3} else "L"))

    def ordered(self, unit: int, file: PackFile, tree: LMDBTree) -> Iterator[LMDBValue]:
        listed = _listed_beside(Path(file.path))
        self.shapes = {key: shape[1:] for key, shape in listed}
        self.suffixed = len({os.path.splitext(key)[0] for key, _ in listed}) == len(listed)
        missing = 0
        for key, _ in listed:
            if (found := tree.find(key)) is not None:
                yield LMDBValue(unit, file, key, *found)
            else:
                missing += 1
                yield LMDBValue(unit, file, key, problem=f"{shown_key(key)}: is missing, although {_SIDECAR} lists it")
        unlisted = tree.entries - len(listed) + missing
        self.account.left_out("key", f"{_SIDECAR} does not list them", count=unlisted)

    def entry(self, value: LMDBValue) -> Entry:
        assert self.pixels is not None
        height, width = self.shapes[value.key]
        if value.size != self.pixels.size(height, width):
            what = "pixels of 16 bits" if value.size == 2 * self.pixels.size(height, width) else "the wrong number"
            raise ValueError(f"{value.size} bytes for {width} x {height} are {what}. Convert the image files instead")
        name = text_of(value.key)
        name = (os.path.splitext(name)[0] if self.suffixed else name) + ".png"
        return Entry(name, value.piece, shape=(height, width))


def _listed_beside(path: Path) -> list[tuple[bytes, tuple[int, int, int]]]:
    """Do the same as `_shapes_of`, but raise SourceError for all errors."""
    sidecar = path.with_name(_SIDECAR)
    with failing(sidecar), errors_in(printable(sidecar)):
        return _shapes_of(path)


def _shapes_of(path: Path) -> list[tuple[bytes, tuple[int, int, int]]]:
    """Return the keys in ``meta_info.pkl``, each with channels, height and width; ValueError if it is invalid."""
    with PackFile(path.with_name(_SIDECAR)) as file:
        info = unpickled(file, 0, file.size, min(_MOST_OPCODES, file.size))
        keys, shapes = (_texts(info, name) for name in ("keys", "resolution"))
    if not keys or len(set(keys)) < len(keys) or len(shapes) not in (1, len(keys)):
        raise ValueError(f"lists {len(keys)} keys and {len(shapes)} resolutions")
    found = []
    for number, key in enumerate(keys):
        match = _SHAPE.fullmatch(shapes[number if len(shapes) > 1 else 0])
        if match is None:
            raise ValueError("its resolutions do not have the form C_H_W")
        found.append((key.encode("utf-8", "surrogateescape"), (int(match[1]), int(match[2]), int(match[3]))))
    return found


def _texts(info: Any, name: str) -> list[str]:
    texts = info.get(name) if isinstance(info, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("has no lists of keys and resolutions")
    return texts
