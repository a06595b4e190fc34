"""Containers of damaged files: they are listed, or it is said what is wrong with them."""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from packer._containers import ForeignFiles, Listing, Piece, find_container
from packer.errors import PackerError

_PIECES = (b"", b"\0", b"\xff", b"\x80", b"\xff\xff\xff\x7f", b"\xff" * 9 + b"\x01", b"\x0a", b"\x0a\x23\xd7\xce")

Mend = Callable[[bytes], bytes]


def images_of(listing: Listing) -> list[bytes]:
    """Return the images of a listing."""
    container = listing.container
    with_files = ForeignFiles(container.root, container.files)
    return [
        listing.copied[offset : offset + size].tobytes() if file < 0 else with_files.read(file, offset, size)
        for file, offset, size in zip(
            listing.images.file.tolist(), listing.images.offset.tolist(), listing.images.size.tolist(), strict=True
        )
    ]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return bytes of which some were changed, or the end is missing."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        if chance.random() < 0.7:
            changed[at] = chance.choice((0, 1, 2, 8, 10, 18, 26, 127, 128, 255, chance.randrange(256)))
        else:
            changed[at : at + chance.randrange(5)] = chance.choice(_PIECES)
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.05 else changed)


def read_damaged(seeds: Sequence[bytes], path: Path, count: int, mend: Mend, seed: int = 0) -> int:
    """List damaged files; return how many had samples. What no PackerError says is a failure."""
    chance, listed = random.Random(seed), 0
    for _ in range(count):
        data = damaged(chance.choice(seeds), chance)
        path.write_bytes(mend(data) if chance.random() < 0.9 else data)
        with contextlib.suppress(PackerError):
            found = find_container([path])
            if found is not None:
                container = found[0].open(found[1], {})
                for entry in container.entries(0):
                    for value in (entry.image, *entry.values.values()):
                        if isinstance(value, Piece):
                            assert 0 <= value.offset <= value.offset + value.size <= path.stat().st_size
                listed += 1
    return listed


def keep_on(seeds: Sequence[bytes], name: str, mend: Mend) -> None:
    """Read damaged files for as many seconds as the command line says."""
    end, seed, listed = time.monotonic() + float(sys.argv[1]), 0, 0
    with tempfile.TemporaryDirectory() as directory:
        while time.monotonic() < end:
            seed += 1
            listed += read_damaged(seeds, Path(directory, name), 1000, mend, seed)
    sys.stdout.write(f"{listed} of {1000 * seed} have samples\n")
