"""Targets that open and read packs, and crops of the images in them."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.images import MAX_PIXELS
from fuzz.sections import sealed_manifest, split
from packer._datasets.open import open_dataset
from packer._formats import Reader, open_pack
from packer._formats.reader import table_from
from packer._images.probe import inspect
from packer._manifest import Manifest
from packer._packs.verify import verify
from packer._storage.files import process_directory
from packer._table import COLUMNS
from packer.crops import RandomResizedCrop, ResizeCenterCrop
from packer.errors import CorruptPackError, PackerError

PARTS = ("part-00000", "part-00001")
"""The parts of the packs with parts; what they are says their content."""

_PTH_FILES = ("manifest.json", "table.pth", "shard-00000.pth")
_CROPS = (ResizeCenterCrop(5, 9), RandomResizedCrop(7, scale=(0.01, 0.3), flip=0.5))

_directory = process_directory("packer-fuzz-")  # libFuzzer exits without clean-up: the next process removes it
_open_manifest = Manifest.from_json.__func__  # type: ignore[attr-defined]


def lmdb(data: bytes) -> None:
    """Open and read an LMDB pack."""
    path = _directory / "pack.lmdb"
    path.write_bytes(data)
    _read_pack(path)


def hdf5(data: bytes) -> None:
    """Open and read an HDF5 pack."""
    path = _directory / "pack.h5"
    path.write_bytes(data)
    _read_pack(path)


def pth(data: bytes) -> None:
    """Open and read a .pth pack of one shard."""
    _write_files(_directory / "pack.pth", _PTH_FILES, split(data, 3))
    _read_pack(_directory / "pack.pth")


def parts(data: bytes) -> None:
    """Open and read a pack with two parts: the manifest and the table of the whole, then three files a part.

    A part whose second and third file are empty is one file, and else a .pth pack.
    """
    path = _directory / "parts"
    shutil.rmtree(path, ignore_errors=True)
    whole, rows, *files = split(data, 2 + 3 * len(PARTS))
    _write_files(path, ("manifest.json", "table.bin"), (whole, rows))
    for number, name in enumerate(PARTS):
        first, *others = files[3 * number : 3 * number + 3]
        if any(others):
            _write_files(path / name, _PTH_FILES, (first, *others))
        else:
            (path / name).write_bytes(first)
    _read_pack(path)


def manifest(data: bytes) -> None:
    """Read a manifest; if it is accepted, it is written and read again without a change."""
    try:
        read = Manifest.from_json(sealed_manifest(data), "manifest")
    except PackerError:
        return
    again = Manifest.from_json(read.to_json(), "manifest")
    assert repr(again) == repr(read)  # NaN is not itself
    read.identity()


def table(data: bytes) -> None:
    """Build a table of any bytes and read its rows."""
    pieces = dict(zip(COLUMNS, split(data, len(COLUMNS)), strict=True))
    columns: dict[str, Any] = {}
    for name, dtype in COLUMNS.items():
        size = np.dtype(dtype).itemsize
        columns[name] = np.frombuffer(pieces[name][: len(pieces[name]) // size * size], dtype)
    try:
        rows = table_from(columns, Manifest("lmdb", len(columns["label"]), []), "table")
    except PackerError:
        return
    for index in range(len(rows)):
        with contextlib.suppress(CorruptPackError):
            rows.row(index).matches(b"data")
            rows.sample_names()[index].encode("utf-8", "surrogateescape")


def _write_files(path: Path, names: tuple[str, ...], contents: Any) -> None:
    path.mkdir(exist_ok=True)
    for name, content in zip(names, contents, strict=True):
        (path / name).write_bytes(content)


def _read_pack(path: Path) -> None:
    Manifest.from_json = classmethod(  # type: ignore[method-assign, assignment]
        lambda cls, text, where: _open_manifest(cls, sealed_manifest(text), where)
    )
    try:
        with contextlib.suppress(PackerError):
            with open_pack(path, check="never") as reader:
                _read_all(reader)
            verify(path, workers=1)
            _read_crops(path)
    finally:
        Manifest.from_json = classmethod(_open_manifest)  # type: ignore[method-assign, assignment]


def _read_all(reader: Reader) -> None:
    list(itertools.islice(reader.check_structure(), 100))
    for index in itertools.chain(range(min(len(reader), 30)), [-1]):
        with contextlib.suppress(PackerError, IndexError):
            assert len(reader.read(index)) == reader.table.size[index]
    for name in reader.fields:
        for index in range(min(len(reader), 30)):
            with contextlib.suppress(PackerError, IndexError):
                reader.value(index, name)
    for index in range(min(len(reader), 30)):
        with contextlib.suppress(CorruptPackError):
            assert reader.names[index] == reader.names.get(index)


def _read_crops(path: Path) -> None:
    """Read crops of the first samples, and single pixels in corners; images that would take long are skipped."""
    dataset = open_dataset(path, output="numpy", check="never", crop=_CROPS[0])
    with dataset.reader as reader:
        for crop, index in itertools.product(_CROPS, range(min(len(reader), 3))):
            dataset.crop = crop
            with contextlib.suppress(PackerError):
                if reader.manifest.codec != "raw":
                    inspect(reader.read(index), MAX_PIXELS)
                assert dataset[index][0].shape == (*crop.size, 3)
                height, width = int(reader.table.height[index]), int(reader.table.width[index])
                for top, left in ((0, 0), (height - 1, width - 1), (height // 2, width // 2)):
                    assert dataset.read_region(index, top, left, 1, 1).shape == (1, 1, 3)
