"""How fast images are read where they lie, beside packer's own LMDB of the same images.

python benchmarks/containers.py TREE [CONTAINER ...] [--rounds 5] [--threads 2] [--batch-size 128] [--json FILE]

TREE is an ImageFolder tree; each CONTAINER holds the same images in the layout of another tool (a file, a directory, or
a pattern in quotes). Made here: packer's LMDB, an index of the tree, a Bagz file and its index, and an index of each
container. All sides are read by one Loader with the crops of training, in turn, so that the machine treats all alike;
torchvision's ImageFolder is read by a DataLoader with as many processes. The table has the median of images a second,
and the ratio to the LMDB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import packer


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        work = Path(directory)
        packs = _packs(arguments.tree, arguments.containers, work)
        sides = {name: _by_packer(pack, arguments) for name, pack in packs.items()}
        if not arguments.no_torchvision:
            sides["torchvision ImageFolder, DataLoader"] = _by_torchvision(arguments)
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1, help="epochs of a round")
    parser.add_argument("--no-torchvision", action="store_true")
    parser.add_argument("--work", type=Path, help="where the packs are made")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _packs(tree: Path, containers: list[str], work: Path) -> dict[str, Path]:
    """Make the pack and the indexes; return them by what the table calls them."""
    lmdb, of_tree, bag, of_bag = (work / name for name in ("own.lmdb", "tree.index", "own.bag", "bag.index"))
    packer.convert(tree, lmdb)
    packer.index(tree, of_tree)
    _write_bag(lmdb, bag)
    packer.index(bag, of_bag)
    packs = {"packer LMDB": lmdb, "index of the tree": of_tree, "index of Bagz": of_bag}
    for number, container in enumerate(containers):
        place = work / f"{number}.index"
        packer.index(container, place)
        packs[f"index of {container}"] = place
    return packs


def _write_bag(pack: Path, bag: Path) -> None:
    ends, end = [], 0
    with packer.open_pack(pack) as reader, bag.open("wb") as file:
        for index in range(len(reader)):
            data = reader.read(index)
            file.write(data)
            end += len(data)
            ends.append(end)
        file.write(struct.pack(f"<{len(ends)}Q", *ends))


def _by_packer(pack: Path, arguments: argparse.Namespace) -> Callable[[int], float]:
    dataset = packer.open_dataset(pack, crop=packer.RandomResizedCrop(224))
    loader = packer.Loader(dataset, arguments.batch_size, threads=arguments.threads, shuffle=True)

    def epoch(number: int) -> float:
        loader.set_epoch(number)
        began = time.perf_counter()
        count = sum(len(batch[1]) for _ in range(arguments.repeat) for batch in loader)
        return count / (time.perf_counter() - began)

    return epoch


def _by_torchvision(arguments: argparse.Namespace) -> Callable[[int], float]:
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    dataset = datasets.ImageFolder(str(arguments.tree), transforms.Compose(steps))
    loader = DataLoader(
        dataset, arguments.batch_size, shuffle=True, num_workers=arguments.threads, persistent_workers=True
    )

    def epoch(number: int) -> float:
        began = time.perf_counter()
        count = sum(len(labels) for _, labels in loader)
        return count / (time.perf_counter() - began)

    return epoch


def _show(rates: dict[str, list[float]]) -> None:
    own = rates["packer LMDB"]
    print(f"{'':40}  images/s  ratio to the LMDB")
    for name, found in rates.items():
        ratio = statistics.median(one / other for one, other in zip(found, own, strict=True))
        print(f"{name:40}  {statistics.median(found):8,.0f}  {ratio:.3f}")


if __name__ == "__main__":
    main()
