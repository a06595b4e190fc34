"""Changed tars: each is listed, with ranges that lie in the file, or refused.

``python -m tests.containers.tarfuzz 300`` goes on for 300 seconds.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

from packer._containers.tars.tar import Tar
from packer.errors import OptionError, SourceError

_BLOCK = 512
_PIECES = [b"", b"\0", b"0", b"7", b" ", b"\x80", b"\xff", b"/", b".", b"..", b"\x80" + b"\xff" * 11, b"\n", b"99 "]
_KINDS = b"01234567LKxgXSMVDA\0"
_PLACES = {
    "name": (0, 100),
    "size": (124, 12),
    "checksum": (148, 8),
    "link": (157, 100),
    "magic": (257, 8),
    "prefix": (345, 155),
}
_KEYS = [{}, {"image": "jpg"}, {"image": "jpg;png", "label": "cls"}, {"about:json": "json", "numbers": "npy"}]


def seeds() -> list[bytes]:
    """Return a small tar in each format, with long names, a label and fields."""
    npy = io.BytesIO()
    np.save(npy, np.arange(6.0).reshape(2, 3))
    values = {"jpg": b"\xff\xd8" + b"x" * 700, "cls": b"3", "json": b"[1]", "seg.png": b"p" * 30, "npy": npy.getvalue()}
    tars = []
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=format) as tar:
            for key in ("./a", "b/" * 60 + "b", "é"):
                for extension, data in values.items():
                    info = tarfile.TarInfo(f"{key}.{extension}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        tars.append(file.getvalue()[:-9000])
    return [*tars, tars[0] + tars[1]]


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return a tar with some changes; most keep the sums of headers right."""
    tar = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(max(1, len(tar) // _BLOCK)) * _BLOCK
        what = chance.randrange(6)
        if what == 0:
            del tar[chance.randrange(len(tar) + 1) :]
        elif what == 1:
            place = chance.randrange(len(tar) + 1)
            tar[place : place + chance.randrange(3)] = chance.choice(_PIECES)
        elif what == 2:
            tar[at:at] = tar[(source := chance.randrange(max(1, len(tar) // _BLOCK)) * _BLOCK) : source + _BLOCK]
        elif what == 3 and len(tar) > at + 156:
            tar[at + 156] = chance.choice(_KINDS)
            _sum_again(tar, at)
        elif what == 4:
            begin, size = _PLACES[chance.choice(list(_PLACES))]
            piece = chance.choice(_PIECES)[:size]
            begin += chance.randrange(size - len(piece) + 1)
            tar[at + begin : at + begin + len(piece)] = piece
            _sum_again(tar, at)
        else:
            tar[at : at + _BLOCK] = bytes(_BLOCK)
    return bytes(tar)


def _sum_again(tar: bytearray, at: int) -> None:
    header = bytes(tar[at : at + _BLOCK])
    if len(header) == _BLOCK:
        tar[at + 148 : at + 156] = b"%06o\0 " % sum(header[:148] + b" " * 8 + header[156:])


def try_one(path: Path, data: bytes, keys: dict[str, str]) -> bool:
    """List a tar; tell whether it could be listed."""
    path.write_bytes(data)
    try:
        container = Tar.open([path], keys)
        names = {field.name for field in container.fields}
        for entry in container.entries(0):
            for piece in (entry.image, *entry.values.values()):
                if isinstance(piece, tuple):
                    assert piece.file == 0 <= piece.offset <= piece.offset + piece.size <= len(data)
            assert entry.values.keys() <= names
    except (SourceError, OptionError):
        return False
    return True


def run(directory: Path, *, rounds: int, seed: int) -> tuple[int, int]:
    """Try so many changed tars; return how many were listed, and how many were refused."""
    chance, listed, whole = random.Random(seed), 0, seeds()
    for _ in range(rounds):
        listed += try_one(directory / "x.tar", changed(chance.choice(whole), chance), chance.choice(_KEYS))
    return listed, rounds - listed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        end, seed = time.monotonic() + float(sys.argv[1]), 0
        while time.monotonic() < end:
            begun = time.monotonic()
            counts = run(Path(directory), rounds=1000, seed=seed)
            assert time.monotonic() - begun < 30, f"seed {seed} takes long"
            seed += 1
        sys.stdout.write(json.dumps({"tars": seed * 1000, "listed, refused of the last 1000": counts}) + "\n")
