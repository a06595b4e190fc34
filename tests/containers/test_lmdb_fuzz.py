"""Changed and truncated LMDB files of every kind give a listing or an error of packer's, in bounded time and memory.

``python -m tests.containers.test_lmdb_fuzz SECONDS [SEED]`` goes on for as long as one says.
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from packer._containers import Piece, find_container
from packer.errors import PackerError
from tests.containers.lmdbs import write_lmdb
from tests.containers.test_caffe import datum, message
from tests.containers.test_imagelmdb import pysod
from tests.containers.test_pickledlmdb import golden, python2, serialized

SMALL = b"\xff\xd8\xff\xe0\x00\x02\xff\xc0\x00\x08\x08\x00\x10\x00\x10\x01\xff\xd9"
KINDS = {"caffe lmdb", "lmdb of images", "pickled lmdb", "pysodtoolbox lmdb"}
VALUES = [
    b"",
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff",
    b"\x01\0\0\0",
    b"(",
    b"R",
    b"h",
]


def seeds(root: Path) -> dict[str, Path]:
    """Write a file of each kind; return what is changed of each."""
    box = message((1, 3), (2, message((1, 1), (2, message((1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0))))))
    raw = datum(bytes(12), 1, (3, 2, 2), encoded=False)
    sample = {"img": SMALL, "cat": 3, "name": "x", "sents": ["a"], "box": np.arange(3.0), "weight": 1.5}
    keys = [b"%d" % number for number in range(12)]
    kinds: dict[str, list[bytes]] = {
        "caffe": [datum(SMALL, number, encoded=True) for number in range(12)],
        "raw": [raw] * 12,
        "ssd": [message((1, datum(SMALL, -1, encoded=True)), (2, 0), (3, box), (3, box))] * 12,
        "images": [SMALL] * 60,
        "serialized": [serialized((SMALL, 1), old=False), serialized((SMALL, 1), old=True)],
        "golden": [golden(name) for name in ("tuple", "array", "collated")],
        "serialized dicts": [golden("dict")] * 2,
        "python2": [python2((SMALL, 3))] * 12,
        **{f"pairs {protocol}": [pickle.dumps((SMALL, 3), protocol)] * 12 for protocol in range(6)},
        **{f"dicts {protocol}": [pickle.dumps(sample, protocol)] * 4 for protocol in range(6)},
    }
    found = {}
    for name, values in kinds.items():
        items = [(b"%d" % number, value) for number, value in enumerate(values)]
        if name == "images":  # a tree of two levels
            items = [(b"%0200d" % number, value) for number, value in enumerate(values)]
        if name.startswith("pairs"):
            items.append((b"__keys__", pickle.dumps(keys, int(name[-1]))))
        if name == "golden":
            items += [(b"__keys__", pickle.dumps(keys[:3]))]
        found[name] = write_lmdb(root / name, items)
    arrays = {f"{number}.png": np.zeros((2, 3, 3), np.uint8) for number in range(4)}
    found["pysod"] = pysod(root / "pysod.lmdb", arrays) / "data.mdb"
    found["pysod list"] = pysod(root / "listed.lmdb", arrays) / "meta_info.pkl"
    return found


def changes(data: bytes, chance: random.Random) -> bytes:
    """Return data with some bytes changed, mostly such as say something, or cut short."""
    changed = bytearray(data)
    said = np.flatnonzero(np.frombuffer(data, np.uint8))
    for _ in range(chance.randrange(1, 5)):
        at = int(chance.choice(said)) if chance.random() < 0.9 else chance.randrange(len(changed))
        value = chance.choice(VALUES) if chance.random() < 0.6 else bytes([chance.randrange(256)])
        changed[at : at + len(value)] = value
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.03 else changed[: len(data)])


def look(path: Path) -> str:
    """List a file, and compare what is listed with the file; return the error's class, or the container's."""
    size = path.stat().st_size
    try:
        found = find_container([path])
        if found is None:
            return "none"
        container = found[0].open(found[1], {})
        for entry in container.entries(0):
            for place in (entry.image, *entry.values.values()):
                if isinstance(place, Piece):
                    assert place.offset >= 0, entry
                    assert place.size >= 0, entry
                    assert place.offset + place.size <= size, entry
    except PackerError as error:
        return type(error).__name__ if "\n" not in str(error) else "several lines"
    return container.kind


def run(root: Path, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Change one file after the other, for ever; yield which, and what came of it."""
    kinds = {name: (path, path.read_bytes()) for name, path in seeds(root).items()}
    while True:
        for name, (path, data) in kinds.items():
            path.write_bytes(changes(data, chance))
            target = path.with_name("data.mdb") if path.name == "meta_info.pkl" else path
            yield name, look(target)
            path.write_bytes(data)


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_changed_files_give_a_listing_or_an_error(tmp_path: Path) -> None:
    found: dict[str, set[str]] = {}
    for number, (name, came) in enumerate(run(tmp_path, random.Random(0))):
        found.setdefault(name, set()).add(came)
        if number == 800:
            break
    assert set.union(*found.values()) == {"SourceError", "none", *KINDS}


def test_the_files_are_what_they_are_taken_for(tmp_path: Path) -> None:
    for name, path in seeds(tmp_path).items():
        target = path.with_name("data.mdb") if path.name == "meta_info.pkl" else path
        assert "lmdb" in look(target), name


def main() -> None:
    """Go on for some seconds; leave the file that something was found with."""
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns()
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    end, count, slowest = time.monotonic() + seconds, 0, 0.0
    root = tempfile.mkdtemp(dir=memory)
    sys.stdout.write(f"seed {seed}, in {root}\n")
    before = time.monotonic()
    for name, _ in run(Path(root), random.Random(seed)):
        took, before = time.monotonic() - before, time.monotonic()
        count, slowest = count + 1, max(slowest, took)
        if took > 5:
            sys.stdout.write(f"{name}: {took:.1f} s\n")
        if time.monotonic() > end:
            break
    shutil.rmtree(root)
    sys.stdout.write(f"{count} files, the slowest {slowest:.2f} s\n")


if __name__ == "__main__":
    main()
