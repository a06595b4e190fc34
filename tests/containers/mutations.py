"""Files that were cut and changed: a container lists them, or says that they are damaged."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from packer._containers import Container, ForeignFiles, list_samples
from packer.errors import PackerError

CHANGES = [b"", b"\0", b"\1", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\0" * 8]


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return bytes cut short, or with a few of them changed, left out, added or moved."""
    if chance.random() < 0.1:
        return data[: chance.randrange(len(data))]
    mutant = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(mutant)) if chance.random() < 0.5 else -chance.randrange(1, min(400, len(mutant)))
        kind = chance.randrange(4)
        if kind == 0:
            mutant[at] = chance.randrange(256)
        elif kind == 1:
            piece = chance.choice(CHANGES)
            mutant[at : at + len(piece) if at + len(piece) else None] = piece
        elif kind == 2:
            del mutant[at : at + chance.randrange(1, 9)]
        else:
            start = chance.randrange(len(mutant))
            mutant[at:at] = mutant[start : start + chance.randrange(1, 40)]
        if not mutant:
            return b""
    return bytes(mutant)


def read_all(kind: type[Container], path: Path) -> int:
    """List a container and read every value; return how many samples it has, 0 where it says what is wrong with it."""
    try:
        container = kind.open([path], {})
        listing = list_samples(container)
    except PackerError:
        return 0
    files = ForeignFiles(container.root, container.files, packed=listing.packed)
    for ranges in (listing.images, *listing.ranges.values()):
        for file, offset, size in zip(ranges.file.tolist(), ranges.offset.tolist(), ranges.size.tolist(), strict=True):
            if file >= 0 and size >= 0:
                with contextlib.suppress(PackerError):
                    assert len(files.read(file, offset, size)) == size
    files.close()
    return len(listing)


def run(kind: type[Container], seeds: Mapping[str, bytes], directory: Path, *, rounds: int, seed: int = 1) -> int:
    """Read so many changed files; return how many of them were listed.

    Parameters
    ----------
    kind : type of Container
    seeds : mapping of str to bytes
        Whole files, by the names that they have.
    directory : Path
        Where they are written.
    rounds, seed : int
    """
    chance, listed = random.Random(seed), 0
    for _ in range(rounds):
        name = chance.choice(sorted(seeds))
        (directory / name).write_bytes(changed(seeds[name], chance))
        listed += bool(read_all(kind, directory / name))
    return listed


def run_for(kind: type[Container], make: Callable[[Path], Mapping[str, bytes]], directory: Path, seconds: float) -> int:
    """Read changed files for some time; return how many."""
    seeds, end, count = make(directory), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        run(kind, seeds, directory, rounds=500, seed=count)
        count += 500
    return count
