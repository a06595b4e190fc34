"""Leftovers of an earlier version: unfinished work, indexes, a cache, states. packer uses or refuses each of them.

``python -m tests.golden.leftovers`` writes the leftovers that are missing; those that are there stay as they are.

``unfinished``  conversions that were killed, in three formats
``half``        a conversion in three parts, of which one is done and one was interrupted
``parts``       a conversion whose parts are all done, which was killed before they became one pack
``upload``      the scratch of a pack that was uploaded in part; ``uploaded.json`` lists the objects that had arrived
``objects``     the objects of a store to which one of two parts of ``s3://leftovers/pack.lmdb`` was written
``cache``       a pack, and the cache of a reader that fetched some samples of it from ``s3://leftovers/pack.lmdb``
``index``       indexes of a directory of images and of a tar file
``scan``        a listing that ``packer scan`` wrote
``states``      a pack, states of samplers and loaders in the middle of an epoch, and the samples that follow

The images are not stored: `draw` writes them again, with the same bytes and times. The leftovers were made in the
directory `MADE_IN`, which `put` replaces by another one.
"""

from __future__ import annotations

import io
import json
import os
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

LEFTOVERS = Path(__file__).parent
MADE_IN = f"/tmp/packer-leftovers-{'0' * 180}"
"""The directory in which the leftovers were made. Its name is longer than that of any other one."""

VERSION = "0.2.0"
"""The version of packer that made the unfinished conversions; no other version continues them."""
SERVER = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_CONFIG_FILE": "/nonexistent",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
}
"""The environment for access to a server of objects, without the endpoint."""

KEPT = range(6, 9)
"""The samples that were read through the cache."""

IMAGES, SIDE = 12, 16  # pixels; LARGE takes more than the first request for a remote pack brings
LARGE = 96
_TIME = 1_700_000_000  # seconds since 1970


def draw(work: Path, side: int = SIDE) -> None:
    """Write images of two classes to ``work/tree``, and the same images to ``work/images.tar``."""
    for number, data in enumerate(_bitmaps(side)):
        path = work / "tree" / f"class_{2 * number // IMAGES}" / f"{number:02d}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (_TIME, _TIME))
    with tarfile.open(work / "images.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, data in enumerate(_bitmaps(side)):
            for suffix, member in (("bmp", data), ("cls", b"%d" % (2 * number // IMAGES))):
                info = tarfile.TarInfo(f"{number:02d}.{suffix}")
                info.size, info.mtime = len(member), _TIME
                tar.addfile(info, io.BytesIO(member))
    os.utime(work / "images.tar", (_TIME, _TIME))


def _bitmaps(side: int) -> Iterator[bytes]:
    """Yield BMPs made without a library, so that no new version of one changes them."""
    size = 3 * side * side
    head = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + size, 0, 54, 40, side, side, 1, 24, 0, size, 2835, 2835, 0, 0)
    for number in range(IMAGES):
        yield head + bytes((number * 20 + place * (number + 3)) % 256 for place in range(size))


def keep(path: Path) -> None:
    """Store a directory as a leftover."""
    with tarfile.open(LEFTOVERS / f"{path.name}.tar.xz", "w:xz") as tar:
        tar.add(path, path.name)


def put(name: str, work: Path) -> Path:
    """Unpack a leftover in a directory, possibly that of the images; return its path."""
    with tarfile.open(LEFTOVERS / f"{name}.tar.xz") as tar:
        tar.extractall(work, filter="data")
    for path in (work / name).rglob("*"):
        if path.is_file() and MADE_IN.encode() in (data := path.read_bytes()):
            path.write_bytes(_moved(data, work) if path.suffix != ".json" else data.replace(_path(), _path(work)))
    return work / name


def _path(work: Path | str = MADE_IN) -> bytes:
    return os.fspath(work).encode()


def _moved(data: bytes, work: Path) -> bytes:
    """Return a list of files with another root of the same length, and the new checksum of its JSON."""
    begin = data.index(b"{")
    _, size = json.JSONDecoder().raw_decode(data[begin:].decode("latin-1"))
    text, rest = data[begin : begin + size], data[begin + size :]
    moved = text.replace(_path(), _path(work).ljust(len(_path()), b"/"))
    before, after = (google_crc32c.value(one).to_bytes(4, "little") for one in (text, moved))
    if len(moved) != len(text) or data[:begin].count(before) != 1:
        raise ValueError(f"{work}: a path that does not fit in the place of {MADE_IN}")
    return data[:begin].replace(before, after) + moved + rest
