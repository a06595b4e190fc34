"""Measure memory during long reads of a remote pack: ``python -m tests.remote.memory 100000``.

A `Loader` in one process reads a pack of 10,000 small photos again and again, in shuffled blocks. After each step of
10,000 samples the script prints the memory of the reader and of the fetcher (PSS, which divides shared pages among
their processes). If the cache has room for only a part of the pack, every pass fetches again. The script fails if
either process has grown by more than 8 MB since the second step.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.storage.remote.objects import ObjectServer, serving

SIDES = {
    "all of it on a disk": ("cache", "1 GB", 0),
    "a quarter of it on a disk": ("cache", "32 MB", 0),
    "all of it in memory": ("", None, 1 << 30),
    "a quarter of it in memory": ("", None, 32 << 20),
}
"""Where the pack is cached: the directory, its limit, and the limit of the cache in memory."""

_PHOTOS, _BATCH = 10_000, 64


def make_pack(directory: Path, photos: int = _PHOTOS) -> Path:
    """Write a pack of small photos, of 96 x 96 pixels and about 9 kB, and return its path."""
    import io

    import numpy as np
    from PIL import Image

    import packer

    numbers = np.random.default_rng(1)
    kinds = []
    for _ in range(50):
        file = io.BytesIO()
        Image.fromarray(numbers.integers(0, 256, (96, 96, 3), np.uint8)).save(file, "JPEG", quality=90)
        kinds.append(file.getvalue())
    for number in range(photos):
        path = directory / "tree" / f"class{number % 4}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kinds[number % len(kinds)])
    packer.convert(directory / "tree", directory / "photos.lmdb")
    return directory / "photos.lmdb"


def read(  # noqa: PLR0917
    url: str, samples: int, step: int, kept: str, size: str | None, memory: int
) -> list[tuple[int, int]]:
    """Read samples, and return the kB of this process and of the fetcher after each step."""
    import packer
    from packer._storage.remote import client
    from packer._storage.remote.client import Memory

    if memory:
        client._state.memory = Memory(memory)
    dataset = packer.open_dataset(url, crop=packer.RandomResizedCrop(32), cache_dir=kept, cache_size=size)
    found, seen = list[tuple[int, int]](), 0
    with packer.Loader(dataset, _BATCH, threads=1, sampler=packer.BlockShuffleSampler(len(dataset))) as loader:
        while seen < samples:
            for _, labels in loader:
                seen += len(labels)
                if seen // step > len(found):
                    fetcher = client._state.fetcher
                    assert fetcher is not None
                    found.append((_proportional("self"), _proportional(str(fetcher._process.pid))))
    return found


def _proportional(process: str) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def grown(steps: list[tuple[int, int]]) -> tuple[int, int]:
    """Return by how many kB the two processes have grown since the second step."""
    return steps[-1][0] - steps[1][0], steps[-1][1] - steps[1][1]


class _Quick(ObjectServer):
    def etag(self, name: str) -> str:
        return '"the only version"'


def main(samples: int) -> None:
    failed = []
    with tempfile.TemporaryDirectory() as directory:
        path = make_pack(Path(directory))
        with serving({"photos.lmdb": path.read_bytes()}) as server:
            server.__class__ = _Quick  # the hash of all bytes with each request would take most of the time
            for side, (kept, *bounds) in SIDES.items():
                place = kept and str(Path(directory) / side)
                asked = len(server.asked)
                words = json.dumps([f"{server.url}/photos.lmdb", samples, _PHOTOS, place, *bounds])
                line = [sys.executable, "-m", "tests.remote.memory", "--read", words]
                steps = json.loads(subprocess.run(line, stdout=subprocess.PIPE, check=True).stdout)
                sent = sum(one.sent for one in server.asked[asked:])
                print(f"{side}: {len(server.asked) - asked:,} requests, {sent / 1e6:,.0f} MB fetched")  # noqa: T201
                for name, row in zip(("reads", "fetches"), zip(*steps, strict=True), strict=True):
                    print(f"  {name:8}", *(f"{kilobytes / 1000:6.1f}" for kilobytes in row), "MB")  # noqa: T201
                if max(grown(steps)) > 8000:
                    failed.append(side)
    if failed:
        raise SystemExit(f"memory grows: {', '.join(failed)}")


if __name__ == "__main__":
    if sys.argv[1] == "--read":
        sys.stdout.write(json.dumps(read(*json.loads(sys.argv[2]))))
    else:
        main(int(sys.argv[1]))
