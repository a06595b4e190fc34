"""Measures images with masks: packer's Loader compared with torchvision's joint transforms on the same files.

python benchmarks/masks.py TREE [--images 400] [--rounds 3] [--batch-size 64]

TREE is an ImageFolder tree of photos. For the first `--images` of them masks of the same size are drawn, palette PNGs
of 21 classes, and packed. The other side reads the same files through torch's DataLoader with 2 workers, and gives them
to v2's RandomResizedCrop(224) and RandomHorizontalFlip, as PIL images and as tensors. All make uint8 batches, in turn.
The ratios are medians of the rounds; torchvision's is its faster side.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from report import table
from torch.utils.data import DataLoader, Dataset

import packer
from packer.testing.reference import torchvision

torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

CLASSES = 21
TRANSFORMS = {
    "PIL images, then tensors": v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()]),
    "tensors": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]),
}
CROP = packer.RandomResizedCrop(224, flip=0.5)


class Files(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Images and masks, read from their files."""

    def __init__(self, pairs: list[tuple[Path, Path]], transform: Any) -> None:
        self.pairs, self.transform = pairs, transform

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, mask = self.pairs[index]
        with Image.open(image) as photo, Image.open(mask) as ids:
            return self.transform(photo.convert("RGB"), tv_tensors.Mask(torch.from_numpy(np.array(ids))[None]))  # type: ignore[no-any-return]


def draw_mask(size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """Draw a mask of a photo's width and height: discs of ids, similar to the objects in segmentation data sets."""
    y, x = np.mgrid[: size[1], : size[0]]
    ids = np.zeros((size[1], size[0]), np.uint8)
    for _ in range(rng.integers(1, 6)):
        left, top, radius = rng.random(3) * (*size, min(size) / 2)
        ids[(x - left) ** 2 + (y - top + 8 * np.sin(x / 9)) ** 2 < radius**2] = rng.integers(1, CLASSES)
    mask = Image.fromarray(ids, "P")
    mask.putpalette(rng.integers(0, 256, 768, dtype=np.uint8).tobytes())
    return mask


def draw_masks(tree: Path, count: int, directory: Path) -> list[tuple[Path, Path]]:
    """Draw a mask for each of the first photos of a tree; return the pairs of files."""
    pairs, rng = [], np.random.default_rng(0)
    for number, photo in enumerate(sorted(path for path in tree.rglob("*") if path.is_file())[:count]):
        pairs.append((photo, directory / f"{number:05d}.png"))
        with Image.open(photo) as image:
            draw_mask(image.size, rng).save(pairs[-1][1])
    return pairs


def samples(pairs: Iterable[tuple[Path, Path]]) -> Iterator[dict[str, Any]]:
    return ({"image": photo, "name": mask.with_suffix(photo.suffix).name, "mask": mask} for photo, mask in pairs)


def rate(batches: Any, count: int) -> float:
    """Return the samples a second of an epoch, from its first batch on, without the start of workers."""
    batches = iter(batches)
    first = next(batches)
    done = len(first[0] if isinstance(first, (list, tuple)) else first["image"])
    begin = time.perf_counter()
    for _ in batches:
        pass
    return (count - done) / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3, help="how often an epoch has each image")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        pairs = draw_masks(options.tree, options.images, Path(directory))
        pack = Path(directory, "pack.lmdb")
        packer.pack(samples(pairs), pack, fields={"mask": "mask"})
        dataset = packer.open_dataset(pack, fields=("image", "mask"), crop=CROP)
        loaders: dict[str, Any] = {
            f"torchvision, {name}": DataLoader(
                Files(pairs * options.repeat, transform), options.batch_size, shuffle=True, num_workers=2
            )
            for name, transform in TRANSFORMS.items()
        }
        turns = np.tile(np.arange(len(pairs)), options.repeat)
        loaders["packer"] = packer.Loader(dataset.select(turns), options.batch_size, shuffle=True, threads=2)
        count = len(turns)
        rates = [{name: rate(loader, count) for name, loader in loaders.items()} for _ in range(options.rounds)]
        best = [max(of[name] for name in of if name.startswith("torchvision")) for of in rates]
        ratio = statistics.median(of["packer"] / other for of, other in zip(rates, best, strict=True))
        rows = [[name, f"{statistics.median(of[name] for of in rates):,.0f}"] for name in loaders]
        print(table(["", "samples a second"], rows))
        print(f"packer : torchvision {ratio:.1f}")


if __name__ == "__main__":
    main()
