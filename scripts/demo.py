"""Convert an ImageFolder tree with the command line, read the packs, and print sizes and speeds beside ImageFolder's.

Run by scripts/demo.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer._storage.files import held
from packer._storage.system import available_cpus, interrupts_held
from packer.testing.photos import draw_photo

PHOTOS = Path("demo") / "photos"
CLASSES, SPLITS = 10, {"train": 40, "val": 8}  # photos a class
PHOTO = (375, 500)  # height and width; swapped in every fourth photo
SCENE, PER_SCENE = 750, 8  # side of a drawn scene, and the number of photos that are cut from it
SUFFIXES = (".lmdb", ".h5", ".pth")
SIZE = 256
ROUNDS = 3
COMPARED = 16  # samples of each pack
MOST_READ = 200  # samples a round; larger trees are sampled evenly
MOST = 2000  # images that are packed, six times, in the directory for temporary files

Row = tuple[str, int, float | None, float]  # what, bytes, conversion and reading in img/s


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Convert a tree of images and read the packs.")
    parser.add_argument(
        "tree", nargs="?", type=Path, metavar="TREE", help="an ImageFolder; by default photos are drawn"
    )
    parser.add_argument("--keep", action="store_true", help="leave the packs, and say where they are")
    arguments = parser.parse_args()
    started = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="packer-demo-"))
    try:
        tree = arguments.tree.resolve() if arguments.tree else draw(PHOTOS)
        rows = demonstrate(some_of(tree, work / "photos"), work)
        print_table(rows)
        print(f"\nAll of this took {time.monotonic() - started:.0f} s.")
        if not arguments.tree:
            print(f"The photos stay in {PHOTOS}: try `packer convert {tree} train.lmdb` and `packer view train.lmdb`.")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command said why
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    finally:
        if arguments.keep:
            print(f"The packs are in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


def draw(root: Path) -> Path:
    """Draw photos for training and validation below `root`, unless an earlier run did; return the training tree."""
    root.parent.mkdir(exist_ok=True)
    waits = itertools.count()

    def wait() -> None:
        if next(waits) == 0:
            print("Waiting for another run, which draws the photos", flush=True)

    with held(root.with_name(f"{root.name}.lock"), wait):
        for left in root.parent.glob(f"{root.name}-*"):  # by a run that was killed
            shutil.rmtree(left)
        if not root.exists():
            with tempfile.TemporaryDirectory(prefix=f"{root.name}-", dir=root.parent) as unfinished:
                draw_photos(Path(unfinished) / root.name)
                (Path(unfinished) / root.name).rename(root)
    return root / "train"


def draw_photos(root: Path) -> None:
    """Draw all classes of all splits, one in each process."""
    print(f"Drawing {sum(SPLITS.values()) * CLASSES} photos of 500 x 375 ", end="", flush=True)
    classes = [(root, split, label) for label in range(CLASSES) for split in SPLITS]
    with contextlib.ExitStack() as ended:
        with interrupts_held():
            pool = ended.enter_context(multiprocessing.get_context("spawn").Pool(available_cpus()))
        for _ in pool.imap_unordered(draw_class, classes):
            print(".", end="", flush=True)
    print()


def draw_class(drawn: tuple[Path, str, int]) -> None:
    """Draw one class of a split.

    Photos are cut from larger scenes, and every second one is mirrored: to draw a scene for each would take longer than
    all the rest.
    """
    root, split, label = drawn
    folder = root / split / f"class_{label:02d}"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(2 * label + (split == "val"))
    for number in range(SPLITS[split]):
        if number % PER_SCENE == 0:
            scene = draw_photo(rng, SCENE, SCENE)
        height, width = PHOTO if number % 4 else PHOTO[::-1]
        top, left = rng.integers(SCENE - height), rng.integers(SCENE - width)
        pixels = scene[top : top + height, left : left + width]
        Image.fromarray(pixels[:, :: -1 if number % 2 else 1]).save(folder / f"{number:04d}.jpg", quality=94)


def some_of(tree: Path, part: Path) -> Path:
    """Return a tree of links to some of the images, taken evenly, if there are too many for a demonstration."""
    samples = ImageFolder(tree).samples if tree.is_dir() else []
    if len(samples) <= MOST:
        return tree
    chosen = [samples[index][0] for index in evenly(len(samples), MOST)]
    print(f"{tree} has {len(samples):,} images; this is about {len(chosen):,} of them, taken evenly.")
    for path in chosen:
        link = part / os.path.relpath(path, tree)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    return part


def demonstrate(tree: Path, work: Path) -> list[Row]:
    """Convert, compare, measure."""
    packs = {suffix: work / f"photos{suffix}" for suffix in SUFFIXES}
    resized = {suffix: work / f"photos-{SIZE}{suffix}" for suffix in SUFFIXES}
    exported = work / f"photos-{SIZE}-files"
    for suffix in SUFFIXES:
        packer("convert", tree, packs[suffix])
        packer("convert", tree, resized[suffix], "--resize", SIZE)
    packer("export", resized[".lmdb"], exported)
    print("\nMeasuring ", end="", flush=True)
    rates = converting_rates(tree, work)
    return [
        *read(tree, packs, "", rates),
        *read(exported, resized, f" --resize {SIZE}", rates),
    ]


def packer(*arguments: Any) -> None:
    """Run the command line, and show it."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ packer {shlex.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "packer", *words], check=True)


def converting_rates(tree: Path, work: Path) -> dict[str, float]:
    """Convert in this process, which has loaded all modules, in turn; return img/s by suffix and option."""
    from packer._conversion.convert import convert
    from packer._conversion.recipe import Recipe
    from packer._images.resize import ResizeSpec
    from packer._sources.imagefolder import imagefolder_source

    recipes = {"": Recipe(), f" --resize {SIZE}": Recipe("jpeg", ResizeSpec(SIZE))}
    source = imagefolder_source(tree)
    rates: dict[str, list[float]] = {suffix + option: [] for option in recipes for suffix in SUFFIXES}
    for number in range(1 + ROUNDS):
        for option, recipe in recipes.items():
            for suffix in SUFFIXES:
                part = source if number else source.limited(16)  # the first round loads the modules
                rate = len(part) / convert(part, work / f"timed{suffix}", recipe=recipe, overwrite=True).seconds
                rates[suffix + option] += [rate] if number else []
            print(".", end="", flush=True)
    print()
    return {what: statistics.median(values) for what, values in rates.items()}


def read(tree: Path, packs: dict[str, Path], option: str, converting: dict[str, float]) -> list[Row]:
    """Compare packs with ImageFolder over `tree`, and read all of them."""
    from packer import open_dataset
    from packer._storage.files import disk_size

    folder = ImageFolder(tree)
    datasets = {suffix: open_dataset(pack) for suffix, pack in packs.items()}
    for dataset in datasets.values():
        compare(folder, dataset)
    rates = reading_rates([folder, *datasets.values()])
    size = sum(Path(path).stat().st_size for path, _ in folder.samples)
    rows: list[Row] = [(f"ImageFolder{option and ', exported' + option}", size, None, rates[0])]
    for (suffix, pack), rate in zip(packs.items(), rates[1:], strict=True):
        rows.append((f"{suffix}{option}", disk_size(pack), converting[suffix + option], rate))
    return rows


class ImageFolder:
    """The samples of torchvision's ImageFolder over `root`, decoded by Pillow to uint8 tensors, as there."""

    def __init__(self, root: Path) -> None:
        suffixes = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = [
            (os.path.join(folder, name), label)
            for label, folder_name in enumerate(self.classes)
            for folder, _, names in sorted(os.walk(root / folder_name, followlinks=True))
            for name in sorted(names)
            if name.lower().endswith(suffixes)
        ]
        self.targets = [label for _, label in self.samples]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import torch

        path, label = self.samples[index]
        with open(path, "rb") as file:
            pixels = np.array(Image.open(file).convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1), label


def compare(folder: ImageFolder, dataset: Any) -> None:
    """Require the same labels and the same pixels of some samples."""
    if dataset.classes != folder.classes or dataset.targets.tolist() != folder.targets:
        sys.exit(f"{dataset}: not the labels of ImageFolder")
    worst = 0
    for index in evenly(len(folder), COMPARED):
        expected, image = folder[index][0], dataset[index][0]
        worst = max(worst, int((expected.int() - image.int()).abs().max()))
    if worst > 2:  # CMYK differs by rounding
        sys.exit(f"{dataset}: pixels differ from ImageFolder's by up to {worst}")
    same = "the same pixels" if worst == 0 else f"the same pixels to within {worst} levels"
    name = Path(dataset.reader.path).name
    print(f"{name}: all labels are ImageFolder's, and {same} in {len(evenly(len(folder), COMPARED))} samples")


def reading_rates(datasets: Sequence[Any]) -> list[float]:
    """Read each dataset in a plain loop on this thread, in turn; return img/s of each, a median."""
    indices = evenly(len(datasets[0]), MOST_READ)
    rates: list[list[float]] = [[] for _ in datasets]
    print("Reading ", end="", flush=True)
    for _ in range(ROUNDS):
        for dataset, results in zip(datasets, rates, strict=True):
            started = time.perf_counter()
            for index in indices:
                dataset[index]
            results.append(len(indices) / (time.perf_counter() - started))
        print(".", end="", flush=True)
    print()
    return [statistics.median(results) for results in rates]


def evenly(count: int, most: int) -> range:
    """Return up to about `most` indices below `count`."""
    return range(0, count, -(-count // most))


def print_table(rows: Sequence[Row]) -> None:
    width = max(len(what) for what, *_ in rows)
    print(f"\n{'':{width}}  {'size, MB':>9}  {'conversion, img/s':>17}  {'reading, img/s':>14}")
    for what, size, converting, reading in rows:
        shown = "" if converting is None else f"{converting:,.0f}"
        print(f"{what:{width}}  {size / 1e6:9.1f}  {shown:>17}  {reading:14,.0f}")
    print(
        f"\nConversion: on {available_cpus()} threads, to the synced pack, in a process that has its modules loaded;"
        "\nthe commands above loaded them first, torch among them for .pth."
        "\nReading: decoded to a uint8 tensor, a plain loop on one thread, files in the system's cache; ImageFolder"
        "\nas torchvision's, with Pillow."
        f"\nMedians of {ROUNDS} rounds."
    )


if __name__ == "__main__":
    main()
