"""Measure what opening a pack of ImageNet's size costs: time, memory, pickled size, `packer info`.

The samples are 100 random bytes each and are never decoded. Every figure comes from fresh processes; see README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SAMPLES = 1_281_167  # of ImageNet's train split
CLASSES = 1000
SAMPLE_BYTES = 100
TARGETS = {"open_s": 0.2, "memory_mb": 20, "pickled_bytes": 10_000, "info_s": 0.5}
FORMAT_NAMES = ("lmdb", "hdf5", "pth")


def main() -> None:
    arguments = _arguments()
    if arguments.measure:
        print(json.dumps(_measure_here(Path(arguments.measure), loaded=arguments.loaded)))
        return
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        _measure_all(Path(directory), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"in each pack ({SAMPLES})")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to write the packs")
    parser.add_argument("--rounds", type=int, default=7, help="processes a figure is the median of (7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--measure", metavar="PACK", help=argparse.SUPPRESS)  # for the fresh processes
    parser.add_argument("--loaded", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure_all(work: Path, arguments: argparse.Namespace) -> None:
    from report import machine, table, write_json

    from packer._formats import FORMATS

    results: dict[str, Any] = {
        "machine": machine(),
        "samples": arguments.samples,
        "rounds": arguments.rounds,
        "targets": TARGETS,
    }
    rows = []
    for name in FORMAT_NAMES:
        pack = work / f"pack{FORMATS[name].suffixes[0]}"
        started = time.perf_counter()
        build(name, pack, arguments.samples)
        print(f"{name}: {arguments.samples:,} samples written in {time.perf_counter() - started:.0f} s", flush=True)
        results[name] = figures = _measure(pack, arguments.rounds)
        rows.append(
            [
                name,
                f"{1e3 * figures['open_s']:.1f}",
                f"{1e3 * figures['open_first_s']:.1f}",
                *(
                    f"{figures[kind] / 1e6:.1f}"
                    for kind in ("private_bytes", "uss_bytes", "rss_bytes", "beyond_torch_bytes")
                ),
                f"{figures['pickled_bytes']:,.0f}",
                f"{figures['info_s']:.2f}",
            ]
        )
    target = ["target", f"{1e3 * TARGETS['open_s']:.0f}", "", f"{TARGETS['memory_mb']}", "", "", ""]
    rows.append([*target, f"{TARGETS['pickled_bytes']:,}", f"{TARGETS['info_s']}"])
    header = [
        "format",
        "open, ms",
        "first, ms",
        "private, MB",
        "USS, MB",
        "RSS, MB",
        "beyond torch, MB",
        "pickled, B",
        "info, s",
    ]
    print("\n" + table(header, rows))
    print(f"\n`packer --version` takes {_info_seconds(['--version'], arguments.rounds):.2f} s")
    write_json(arguments.json, results)


def build(name: str, path: Path, count: int) -> None:
    """Write a pack of `count` samples with a format's writer, as `packer._conversion.convert` does."""
    import numpy as np

    from packer._conversion.recipe import Recipe
    from packer._formats import FORMATS
    from packer._manifest import Manifest
    from packer._storage.files import TableBuilder
    from packer._table import Sample, checksum, column_checksums

    content = np.random.default_rng(0).bytes(count + SAMPLE_BYTES)  # each sample begins one byte later in it
    classes = [f"n{1_440_764 + 13_577 * label:08d}" for label in range(CLASSES)]
    writer = FORMATS[name].open_writer()(path, {}, TableBuilder().build())
    rows = TableBuilder()
    try:
        for index in range(count):
            label = index * CLASSES // count
            sample_name = f"{classes[label]}/{classes[label]}_{index % 20_000}.JPEG"
            data = content[index : index + SAMPLE_BYTES]
            encoded = sample_name.encode()
            height, width = (375, 500) if index % 4 else (500, 375)
            offset = writer.append(Sample(sample_name, label, data, height, width)).offset
            rows.append(
                label=label,
                height=height,
                width=width,
                offset=offset,
                size=len(data),
                crc32c=checksum(data, label, height, width, encoded),
                name=encoded,
            )
            if index % 100_000 == 99_999:
                writer.flush()
        table = rows.build()
        manifest = Manifest(
            name,
            count,
            classes,
            settings=Recipe().settings(),
            source={"kind": "synthetic"},
            columns=column_checksums(table),
            layout=writer.layout(),
        )
        writer.commit(manifest, table)
    finally:
        writer.close()


def _measure(pack: Path, rounds: int) -> dict[str, Any]:
    """Return figures, each the median of several processes."""
    loaded = [_in_fresh_process(pack, "--loaded") for _ in range(rounds)]
    first = [_in_fresh_process(pack) for _ in range(rounds)]
    figures: dict[str, Any] = {key: statistics.median(run[key] for run in loaded) for key in loaded[0]}
    figures["open_first_s"] = statistics.median(run["open_s"] for run in first)
    figures["beyond_torch_bytes"] = statistics.median(run["beyond_torch_bytes"] for run in first)
    figures["info_s"] = _info_seconds(["info", str(pack)], rounds)
    return figures


def _in_fresh_process(pack: Path, *options: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", str(pack), *options]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def _info_seconds(arguments: list[str], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "packer", *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _measure_here(pack: Path, *, loaded: bool) -> dict[str, float]:
    """Open the pack in this process; with `loaded`, after the imports that a first opening brings along."""
    import pickle

    import torch  # noqa: F401 - what a training process has before

    with_torch = _memory()
    from packer._datasets import open as dataset
    from packer._formats import recognise
    from packer._images.decode import fast_decoder

    dataset_class = {
        "lmdb": dataset.LMDBImageDataset,
        "hdf5": dataset.HDF5ImageDataset,
        "pth": dataset.PthImageDataset,
    }[recognise(pack).name]
    if loaded:
        recognise(pack).open_reader()
        fast_decoder()
    before = _memory()
    started = time.perf_counter()
    dataset = dataset_class(pack, output="bytes")
    image, _ = dataset[len(dataset) // 2]
    opened = time.perf_counter() - started
    assert len(image) == SAMPLE_BYTES
    for index in random.Random(0).sample(range(len(dataset)), min(1000, len(dataset))):
        dataset[index]
    after = _memory()
    return {
        "open_s": opened,
        "pickled_bytes": len(pickle.dumps(dataset)),
        **{f"{kind}_bytes": after[kind] - before[kind] for kind in after},
        "beyond_torch_bytes": after["private"] - with_torch["private"],
    }


def _memory() -> dict[str, int]:
    """Return this process's memory in bytes.

    ``private`` is memory that no other process shares and that the system cannot drop. It has no pages of mapped files;
    ``uss`` counts these as long as no second process maps them, and ``rss`` always.
    """
    import psutil

    process = psutil.Process()
    full = process.memory_full_info()
    private = full.uss
    if os.path.exists("/proc/self/smaps_rollup"):
        lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
        private = next(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return {"private": private, "uss": full.uss, "rss": full.rss}


if __name__ == "__main__":
    main()
