"""Estimates conversions on many nodes, with rates measured here and a simulation; measures readers of large packs.

README.md in this directory lists the measurements, the assumptions, and the limits of the simulation.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IMAGES = {"1.28 M": 1_281_167, "14 M": 14_197_122, "1 B": 1_000_000_000}
NODES = (1, 16, 256)
TARGETS = {"open_parts_s": 1.0, "open_rows_s": 1.0, "scheduling": 1.3}
ROW_BYTES = 44 + 30  # of the table, for a sample: its columns, and a name


@dataclass(frozen=True)
class Cluster:
    """Assumptions about a cluster; rates are bytes or files a second.

    Attributes
    ----------
    cores : int
        The number of cores of a node.
    network : float
        The bytes that a node sends and receives.
    read, write : float
        The bytes that the shared file system reads and writes, for all nodes together.
    opens : float
        The files that it opens, for all nodes together.
    listing : float
        The files that one process lists.
    stats : float
        The files whose size and time one process reads.
    spread : float
        Standard deviation of the logarithm of a part's duration: nodes and images differ.
    """

    cores: int
    network: float
    read: float
    write: float
    opens: float
    listing: float
    stats: float
    spread: float = 0.15


def main() -> None:
    arguments = _arguments()
    results: dict[str, Any] = {}
    if arguments.work is not None:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        work = Path(directory)
        if "simulation" in arguments.sections:
            results["rates"] = rates = _measure_rates(work, arguments.source, arguments.images)
            results["simulation"] = _simulate_all(rates, _cluster(arguments))
        if "open" in arguments.sections:
            results["open"] = _measure_opening(work)
        if "scheduling" in arguments.sections:
            results["scheduling"] = _measure_scheduling(work, arguments.rounds)
    from report import machine, write_json

    write_json(arguments.json, {"machine": machine(), "targets": TARGETS, **results})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = ["simulation", "open", "scheduling"]
    parser.add_argument("--sections", nargs="+", choices=sections, default=sections)
    parser.add_argument("--source", type=Path, metavar="DIR", help="an ImageFolder (by default photos are drawn)")
    parser.add_argument("--images", type=int, default=400, help="how many of them the rates are measured with (400)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to write")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of `scheduling` (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--cores", type=int, default=32, help="of a node (32)")
    parser.add_argument("--network", type=float, default=3.0, help="GB/s of a node (3.0: 25 Gb Ethernet)")
    parser.add_argument("--read", type=float, default=40.0, help="GB/s of the shared file system (40)")
    parser.add_argument("--write", type=float, default=20.0, help="GB/s of the shared file system (20)")
    parser.add_argument("--opens", type=float, default=100e3, help="files it opens a second (100,000)")
    parser.add_argument("--listing", type=float, default=20e3, help="files that one process lists a second (20,000)")
    parser.add_argument(
        "--stats", type=float, default=50e3, help="files whose size and time one process learns a second (50,000)"
    )
    return parser.parse_args()


def _cluster(arguments: argparse.Namespace) -> Cluster:
    return Cluster(
        arguments.cores,
        arguments.network * 1e9,
        arguments.read * 1e9,
        arguments.write * 1e9,
        arguments.opens,
        arguments.listing,
        arguments.stats,
    )


# The simulation.


def _measure_rates(work: Path, source: Path | None, images: int) -> dict[str, dict[str, float]]:
    """Return, for each kind of conversion, the images a second of one core, and an image's bytes in and out."""
    from report import table

    from packer._conversion.convert import convert
    from packer._conversion.recipe import Recipe
    from packer._images.resize import ResizeSpec
    from packer._sources.imagefolder import imagefolder_source
    from packer.testing.photos import draw_imagefolder

    if source is None:
        source = work / "photos"
        draw_imagefolder(source, classes=4, per_class=-(-images // 4), size=(375, 500))
    listed = imagefolder_source(source).limited(images)
    rates = {}
    for name, recipe in [("keep", Recipe()), ("resize 256", Recipe("jpeg", ResizeSpec(256)))]:
        best = 0.0
        for _ in range(3):  # the first one also brings the files into memory
            began = time.process_time()
            summary = convert(listed, work / "pack.lmdb", recipe=recipe, workers=1, overwrite=True)
            best = max(best, len(listed) / (time.process_time() - began))
        rates[name] = {
            "images_per_core_s": best,
            "bytes_in": summary.bytes_in / len(listed),
            "bytes_out": summary.bytes_out / len(listed),
        }
    header = ["measured here", "img/s of a core", "kB in", "kB out"]
    rows = [
        [name, f"{r['images_per_core_s']:,.0f}", f"{r['bytes_in'] / 1e3:.0f}", f"{r['bytes_out'] / 1e3:.0f}"]
        for name, r in rates.items()
    ]
    print(table(header, rows) + "\n")
    return rates


def _simulate_all(rates: dict[str, dict[str, float]], cluster: Cluster) -> list[dict[str, Any]]:
    from report import table

    results = []
    for kind, rate in rates.items():
        for label, images in IMAGES.items():
            for nodes in NODES:
                results.append(
                    {"images": label, "nodes": nodes, "kind": kind, **_simulate(images, nodes, rate, cluster)}
                )
    header = [
        "conversion",
        "images",
        "nodes",
        "parts",
        "scan",
        "parts made",
        "joined",
        "in all",
        "bottleneck",
        "% of it",
    ]
    rows = [
        [
            f"{row['kind']}",
            row["images"],
            str(row["nodes"]),
            str(row["parts"]),
            *(_time(row[f"{phase}_s"]) for phase in ("scan", "convert", "finish", "total")),
            row["bottleneck"],
            f"{100 * row['share']:.0f}",
        ]
        for row in results
    ]
    print(table(header, rows) + "\n")
    return results


def _simulate(images: int, nodes: int, rate: dict[str, float], cluster: Cluster) -> dict[str, Any]:
    """Return the seconds of each phase, and the bottleneck of the longest one.

    Nodes take parts one at a time, as they become free. The time of a part is the longest of the times that its images
    need on the cores, on the node's network and on the node's share of the file system, times a random factor.
    """
    parts = max(64, 8 * nodes)
    each = images / parts
    demands = {
        "cores": each / (cluster.cores * rate["images_per_core_s"]),
        "network": each * (rate["bytes_in"] + rate["bytes_out"]) / cluster.network,
        "reading": each * rate["bytes_in"] * nodes / cluster.read,
        "writing": each * rate["bytes_out"] * nodes / cluster.write,
        "opening files": each * nodes / cluster.opens,
    }
    slowest = max(demands, key=lambda name: demands[name])
    rng = random.Random(0)
    free = [0.0] * nodes
    for _ in range(parts):
        heapq.heapreplace(free, free[0] + demands[slowest] * rng.lognormvariate(0, cluster.spread))
    phases = {
        "scan_s": images / cluster.listing + images / cluster.stats,
        "convert_s": max(free),
        "finish_s": 2 * images * ROW_BYTES / min(cluster.network, cluster.write),
    }
    total = sum(phases.values())
    longest = max(phases, key=lambda name: phases[name])
    bottleneck = {"scan_s": "listing", "convert_s": slowest, "finish_s": "the table"}[longest]
    return {**phases, "total_s": total, "parts": parts, "bottleneck": bottleneck, "share": phases[longest] / total}


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


# Readers of large packs.


def _measure_opening(work: Path) -> dict[str, float]:
    from packer._formats.parts import join_parts

    path = work / "parts.lmdb"
    path.mkdir()
    names = [f"part-{number:05d}.lmdb" for number in range(1000)]
    for number, name in enumerate(names):
        _write_part(path / name, number)
    began = time.perf_counter()
    join_parts(path, names, {"kind": "synthetic", "sha256": ""})
    figures = {"join_1000_parts_s": time.perf_counter() - began}
    figures["open_1000_parts_s"] = _opened(path, 50_000)
    figures["open_1e9_rows_s"] = _opened(_sparse(work / "rows.lmdb", 1_000_000_000), 987_654_321)
    figures["open_index_of_1e9_rows_s"] = _opened(_sparse_index(work / "rows.index", 1_000_000_000), 987_654_321)
    print(f"1,000 parts joined in {figures['join_1000_parts_s']:.1f} s")
    print(f"1,000 parts: opened, and a sample of one read, in {1e3 * figures['open_1000_parts_s']:.1f} ms")
    print(f"1,000,000,000 rows: opened, and one read, in {1e3 * figures['open_1e9_rows_s']:.1f} ms  (target: 1000)")
    milliseconds = 1e3 * figures["open_index_of_1e9_rows_s"]
    print(f"an index of 1,000,000,000 rows in 10,000 files: opened, and one read, in {milliseconds:.1f} ms")
    print(f"most memory of this process: {_most_memory() / 1e6:.0f} MB\n")
    return figures


def _opened(path: Path, index: int) -> float:
    from packer._datasets.open import open_dataset

    times = []
    for _ in range(7):
        began = time.perf_counter()
        data, label = open_dataset(path, output="bytes")[index]
        times.append(time.perf_counter() - began)
        assert label == index % 1000, label
        assert len(data) == 100
    return statistics.median(times)


def _write_part(path: Path, number: int) -> None:
    """Write a pack of 100 samples; the first one is sample number * 100 of the whole."""
    from packer._formats import FORMATS
    from packer._manifest import Manifest
    from packer._storage.files import TableBuilder
    from packer._table import Sample, checksum, column_checksums

    writer = FORMATS["lmdb"].open_writer()(path, {}, TableBuilder().build())
    rows = TableBuilder()
    for index in range(number * 100, number * 100 + 100):
        name, data = f"class/{index}.jpg", bytes([index % 256]) * 100
        offset = writer.append(Sample(name, index % 1000, data, 10, 10)).offset
        crc = checksum(data, index % 1000, 10, 10, name.encode())
        rows.append(label=index % 1000, height=10, width=10, offset=offset, size=100, crc32c=crc, name=name.encode())
    table = rows.build()
    classes = [f"class {label}" for label in range(1000)]
    writer.commit(Manifest("lmdb", len(table), classes, columns=column_checksums(table)), table)
    writer.close()


def _sparse(path: Path, rows: int) -> Path:
    """Make a pack of `rows` samples in 10,000 parts; only one sample exists, the rest of the files are holes."""
    from packer._formats.reader import write_manifest
    from packer._manifest import Manifest
    from packer._table import COLUMNS

    parts, part_bytes = 10_000, rows * 100 // 10_000
    path.mkdir()
    names = _sparse_table(path, rows, COLUMNS)
    number = _ROW * 100 // part_bytes
    with open(path / f"part-{number:05d}.lmdb", "wb") as file:
        file.truncate(part_bytes)
    parts_of = [f"part-{part:05d}.lmdb" for part in range(parts)]
    layout = {
        "names": names,
        "parts": [[part, rows // parts, "0" * 12] for part in parts_of],
        "files": [[part, part_bytes, 0, part_bytes] for part in parts_of],
    }
    write_manifest(path, Manifest("lmdb", rows, _CLASSES, layout=layout))
    return path


def _sparse_index(path: Path, rows: int) -> Path:
    """Make an index of `rows` samples in 10,000 files; only one file exists, and the table has only one row."""
    import numpy as np

    from packer._formats.index import FILES_FILE, file_columns
    from packer._formats.reader import write_manifest
    from packer._manifest import Manifest
    from packer._storage.stamps import ANY_TIME
    from packer._table import Names

    files, file_bytes = 10_000, rows * 100 // 10_000
    path.mkdir()
    manifest = Manifest("index", rows, _CLASSES, layout={"apart": True}, schema=2)
    names = _sparse_table(path, rows, manifest.column_types)
    shards = path.with_name("shards")
    shards.mkdir()
    number = _ROW * 100 // file_bytes
    with open(shards / f"shard-{number:05d}.bin", "wb") as file:
        file.truncate(file_bytes)
    listed = file_columns(
        Names.of(f"shard-{shard:05d}.bin" for shard in range(files)),
        np.full((files, 2), (file_bytes, ANY_TIME), np.int64),
    )
    (path / FILES_FILE).write_bytes(b"".join(column.tobytes() for column in listed))
    layout = {
        "names": names,
        "apart": True,
        "checksums": True,
        "base": "../shards",
        "files": files,
        "file_names": len(listed[-1]),
        "file_columns": [0] * 4,
        "data": 0,
    }
    write_manifest(path, Manifest("index", rows, _CLASSES, layout=layout, schema=2))
    return path


_ROW = 987_654_321
_CLASSES = [f"class {label}" for label in range(1000)]


def _sparse_table(path: Path, rows: int, types: Mapping[str, str]) -> int:
    """Write a table that is a hole except one row; return the size of the names in bytes."""
    import numpy as np

    from packer._formats.parts import TABLE_FILE, column_offsets
    from packer._table import checksum

    name, data = f"class/{_ROW}.jpg".encode(), bytes(100)
    row = {
        "label": _ROW % 1000,
        "offset": _ROW * 100,
        "size": 100,
        "name_end": (_ROW + 1) * len(name),
        "height": 10,
        "width": 10,
        "crc32c": checksum(data, _ROW % 1000, 10, 10, name),
    }
    places = column_offsets(rows, types)
    with open(path / TABLE_FILE, "wb") as file:
        file.truncate(places["names"] + rows * len(name))
        for column, value in row.items():
            item = np.dtype(types[column])
            before = [value - len(name)] if column == "name_end" else []
            file.seek(places[column] + item.itemsize * (_ROW - len(before)))
            file.write(np.array([*before, value], item).tobytes())
        file.seek(places["names"] + row["name_end"] - len(name))
        file.write(name)
    print(f"a table of {os.path.getsize(path / TABLE_FILE) / 1e9:.0f} GB, of which {_blocks(path) / 1e6:.1f} MB exist")
    return rows * len(name)


def _most_memory() -> float:
    """Return the peak memory of this process in bytes; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _blocks(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.iterdir())


# The cost of Dask.


def _measure_scheduling(work: Path, rounds: int) -> dict[str, Any]:
    """Make 100 parts of 100 tiny images in this process and on a cluster of two, in turn."""
    from packer._conversion.dask import open_client
    from packer._storage.system import available_cpus
    from packer.testing.photos import draw_imagefolder

    tree = work / "tiny"
    draw_imagefolder(tree, classes=10, per_class=20, size=(32, 32))
    for folder in sorted(tree.iterdir()):
        images = sorted(folder.iterdir())
        for number in range(980):
            shutil.copyfile(images[number % 20], folder / f"z{number:04d}.jpg")
    workers = min(2, available_cpus())
    figures: dict[str, list[float]] = {"process_s": [], "dask_s": [], "process_cpu_s": [], "dask_cpu_s": []}
    with open_client(f"local:{workers}") as client:
        for number in range(rounds + 1):
            for how, seconds, cpu in _both(work, tree, client, workers):
                if number:  # the first round is for imports
                    figures[f"{how}_s"].append(seconds)
                    figures[f"{how}_cpu_s"].append(cpu)
    ratios = [dask / one for dask, one in zip(figures["dask_s"], figures["process_s"], strict=True)]
    ratio = statistics.median(ratios)
    print(f"100 parts of 100 tiny images: {statistics.median(figures['process_s']):.2f} s in one process, ", end="")
    print(f"{statistics.median(figures['dask_s']):.2f} s through Dask with {workers} workers; ", end="")
    print(f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}; target: {TARGETS['scheduling']})")
    return {**figures, "ratio": ratio}


def _both(work: Path, tree: Path, client: Any, workers: int) -> Iterator[tuple[str, float, float]]:
    """Yield the two sides, each with its seconds and those of the CPU."""
    from packer._conversion.dask import convert_on
    from packer._conversion.partition import Partition, SharedSource, begin
    from packer._conversion.request import ConversionRequest

    def cpu_of_all() -> float:
        return time.process_time() + sum(client.run(time.process_time).values())

    for how in ("process", "dask"):
        job = Partition(ConversionRequest(src=tree, dst=work / f"{how}.lmdb", parts=100, fresh=True))
        source = begin(job, share=True)
        os.sync()
        cpu, began = cpu_of_all(), time.perf_counter()
        if how == "process":
            for number in job.missing():
                job.convert(source, number, workers=workers)
        else:
            convert_on(client, job, SharedSource(job.listing()))
        yield how, time.perf_counter() - began, cpu_of_all() - cpu


if __name__ == "__main__":
    main()
