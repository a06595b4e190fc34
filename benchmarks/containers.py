"""Measures how fast images are read in place, compared with packer's LMDB of the same images and with other readers.

python benchmarks/containers.py TREE [CONTAINER ...] [--images 4000] [--rounds 5] [--threads 2] [--json FILE]

TREE is an ImageFolder tree, whose images are linked under new names until there are --images of them. From these the
program makes packer's LMDB; a tar, TFRecord files, a .rec and a Bagz file by packer; tars, TFRecord files and a Bagz
file by their own tools, if these are installed; and packer's index of each, and of the tree. Each CONTAINER holds
images in the layout of another tool (a file, a directory, or a pattern in quotes), and gets an index too.

A Loader with training crops reads each index. The other sides are torchvision's ImageFolder, and, if installed,
webdataset and DALI's readers of a tree, tars, TFRecord files and a .rec, with the same number of threads or processes.
All sides take turns, so that other work on the machine affects all of them. The table has the median of images a
second, and the median over the rounds of the ratio to the LMDB.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, dali, imagefolder, samples, wds

import packer

OWN = "packer LMDB"
_SHARD = 64 << 20  # bytes
_LAYOUTS = {"tar": ".wds", "TFRecord": ".tfrecord", "RecordIO": ".rec"}
_FILES = {"tar": "*.tar", "TFRecord": "*.tfrecord", "RecordIO": "*.rec"}

Epoch = Callable[[int], float]


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        work = Path(directory)
        tree = _multiplied(arguments.tree, arguments.images, work / "tree")
        layouts = {name: work / f"own{suffix}" for name, suffix in _LAYOUTS.items()}
        sides = dict(_own(tree, layouts, arguments, work))
        if not arguments.only_packer:
            sides |= dict(_others(tree, layouts, arguments.threads, work))
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(arguments.rounds + 1):
            for name, epoch in sides.items():
                rate = epoch(number)
                if number:  # the first epoch fills caches
                    rates[name].append(rate)
    _show(rates)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rates, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("containers", nargs="*")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-packer", action="store_true", help="leave out the readers of other tools")
    parser.add_argument("--work", type=Path, help="where the packs are made")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _multiplied(tree: Path, count: int, into: Path) -> Path:
    """Make a tree of links to the images of another tree, each as often as is needed for `count` links."""
    found = samples(tree)
    for copy in range(max(1, -(-count // len(found)))):
        for path, _ in found:
            link = into / path.parent.name / f"{path.stem}-{copy}{path.suffix}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path.resolve())
    return into


def _own(
    tree: Path, layouts: dict[str, Path], arguments: argparse.Namespace, work: Path
) -> Iterator[tuple[str, Epoch]]:
    """Yield packer's sides, its LMDB and each index, with their names in the table."""
    lmdb = work / "own.lmdb"
    packer.convert(tree, lmdb)
    yield OWN, _by_packer(lmdb, arguments.threads)
    containers = {"the tree": tree, "Bagz": _bag(lmdb, work / "own.bag")}
    for name, path in layouts.items():
        packer.convert(tree, path, **({} if name == "RecordIO" else {"shard_size": _SHARD}))
        containers[name] = path / _FILES[name]
    for tool, (name, write) in _TOOLS.items():
        if importlib.util.find_spec(tool) is not None:
            place = work / f"by {tool}"
            place.mkdir()
            containers[f"{name} by {tool}"] = write(tree, place)
    containers |= {text: Path(text) for text in arguments.containers}
    for number, (name, container) in enumerate(containers.items()):
        index = work / f"{number}.index"
        packer.index(container, index)
        yield f"index of {name}", _by_packer(index, arguments.threads)


def _bag(pack: Path, bag: Path) -> Path:
    ends, end = [], 0
    with packer.open_pack(pack) as reader, bag.open("wb") as file:
        for index in range(len(reader)):
            data = reader.read(index)
            file.write(data)
            end += len(data)
            ends.append(end)
        file.write(struct.pack(f"<{len(ends)}Q", *ends))
    return bag


def _tars_by_webdataset(tree: Path, directory: Path) -> Path:
    return wds.prepare(tree, directory) / "*.tar"


def _records_by_tfrecord(tree: Path, directory: Path) -> Path:
    import tfrecord

    writer = tfrecord.TFRecordWriter(str(directory / "train-00000-of-00001"))
    for path, label in samples(tree):
        image, name = (path.read_bytes(), "byte"), (path.name.encode(), "byte")
        writer.write({"image/encoded": image, "image/class/label": (label, "int"), "image/filename": name})
    writer.close()
    return directory


def _bag_by_bagz(tree: Path, directory: Path) -> Path:
    import bagz

    with bagz.Writer(directory / "photos.bag") as writer:
        for path, _ in samples(tree):
            writer.write(path.read_bytes())
    return directory / "photos.bag"


_TOOLS: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "webdataset": ("tar", _tars_by_webdataset),
    "tfrecord": ("TFRecord", _records_by_tfrecord),
    "bagz": ("Bagz", _bag_by_bagz),
}


def _others(tree: Path, layouts: dict[str, Path], threads: int, work: Path) -> Iterator[tuple[str, Epoch]]:
    """Yield the sides of other tools that are installed, with the same images."""
    yield "torchvision ImageFolder, DataLoader", _timed(imagefolder.open_loader(tree, "train", threads))
    if importlib.util.find_spec("webdataset") is not None:
        yield "webdataset, of its tars", _timed(wds.open_loader(work / "by webdataset", "train", threads))
    if importlib.util.find_spec("nvidia") is not None and importlib.util.find_spec("nvidia.dali") is not None:
        for layout, path in {"tree": tree, **layouts}.items():
            yield f"DALI, of packer's {layout}", _timed(dali.open_loader(path, "train", threads, layout))


def _by_packer(pack: Path, threads: int) -> Epoch:
    dataset = packer.open_dataset(pack, crop=packer.RandomResizedCrop(OUTPUT, flip=0.5))
    return _timed(packer.Loader(dataset, BATCH, threads=threads, shuffle=True))


def _timed(loader: Any) -> Epoch:
    """Return a function that runs an epoch, and returns the images a second."""

    def epoch(number: int) -> float:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(number)
        began = time.perf_counter()
        count = sum(len(batch[1]) for batch in loader)
        return count / (time.perf_counter() - began)

    return epoch


def _show(rates: dict[str, list[float]]) -> None:
    own = rates[OWN]
    print(f"{'':40}  images/s  ratio to the LMDB")
    for name, found in rates.items():
        ratio = statistics.median(one / other for one, other in zip(found, own, strict=True))
        print(f"{name:40}  {statistics.median(found):8,.0f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
