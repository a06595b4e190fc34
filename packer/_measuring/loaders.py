"""The ways in which training code reads a pack or a tree, run by `packer bench` in child processes.

`RepeatedEpochs` reads from memory. `FirstEpoch` reads a pack at a URL with an empty cache. `RecipeSteps` measures the
steps of a training recipe in packer and in torchvision. `DecodeLimit` measures the upper bound for every loader: only
the calls that decode and resize, on plain threads, with images in memory.

A user's own recipe is a Python file (`read_recipe`), which may define

``loader(path, threads)``
    Returns an iterable of batches, such as a DataLoader with `threads` workers; it is measured as a further way of
    reading. A batch is a tuple, a list or a dict. The last item of a tuple or a list has one label for each sample; the
    first value of a dict has one item for each sample.
``transform``
    A transform from a PIL image to a tensor, as for ImageFolder; it replaces the usual training transform.
``crop``
    One of packer's crops, for the ways that decode with ``crop=``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Subset, default_collate

from packer import augment
from packer._datasets.concat import readable
from packer._datasets.image_dataset import ImageDataset
from packer._datasets.open import open_dataset
from packer._images import native
from packer._images.geometry import CROP, Box
from packer._images.operations import parted
from packer._images.rectangle import RectangleDecoder
from packer._loader.loader import Loader
from packer._measuring.harness import run_together, timed_calls
from packer._sources.base import spread_indices
from packer._table import Ints
from packer.crops import RandomResizedCrop
from packer.errors import OptionError, PackerError, SourceError, printable
from packer.samplers import BlockShuffleSampler, ShuffleSampler

AT_A_TIME = 8  # images of one decoding call

Call = Callable[[torch.Tensor], None]
"""Decodes some images into an (N, 3, H, W) uint8 tensor."""


class DecodeLimit:
    """The speed of packer's decoding calls alone, for some images of a dataset.

    All crops have one size, and are drawn for epoch 0 and seed 0.

    Parameters
    ----------
    dataset : ImageDataset
        A dataset with a `crop`.
    indices : (N,) int64 array
        The images; their bytes are held in memory.
    """

    def __init__(self, dataset: ImageDataset, indices: Ints) -> None:
        crops, _ = parted(readable(dataset).choose(indices, 0, 0))
        self._tasks: list[tuple[Call, int]] = []
        self._shape = 3, int(crops["out_height"][0]), int(crops["out_width"][0])
        table, raw = dataset.reader.table, dataset.reader.manifest.codec == "raw"
        for start in range(0, len(indices), AT_A_TIME):
            some = indices[start : start + AT_A_TIME]
            stored = [bytes(dataset.reader.read(int(index))) for index in some]
            sizes = list(zip(table.height[some].tolist(), table.width[some].tolist(), strict=True))
            boxes = [Box(*numbers) for numbers in crops[start : start + AT_A_TIME].tolist()]
            self._tasks.append((drawing(raw, stored, sizes, boxes), len(some)))

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Decode images again and again for about `seconds`; return the number of images, and the elapsed seconds."""
        tasks = itertools.cycle(self._tasks)
        counts, begin = [0] * threads, time.perf_counter()

        def work(number: int) -> None:
            _, height, width = self._shape
            pixels = torch.empty((AT_A_TIME, height, width, 3), dtype=torch.uint8).permute(0, 3, 1, 2)

            def decode() -> int:
                call, count = next(tasks)
                call(pixels[:count])
                return count

            counts[number], _ = timed_calls(decode, seconds - (time.perf_counter() - begin))

        run_together(work, threads)
        return sum(counts), time.perf_counter() - begin


def drawing(raw: bool, stored: Sequence[bytes], sizes: Sequence[tuple[int, int]], boxes: Sequence[Box]) -> Call:
    """Return a function that decodes these images, each with its crop, into a tensor; raw pixels are only resized."""
    images = native.in_memory(stored, sizes)
    images["raw"] = raw
    tasks = native.tasks(images, np.array(boxes, CROP), np.zeros(len(boxes), np.int64))

    def call(pixels: Any) -> None:
        _, channels, height, width = pixels.shape
        own = tasks.copy()
        own["out"] = pixels.data_ptr() + channels * height * width * np.arange(len(pixels))
        for number in native.decode_into(own):  # the numbers of the images that C leaves to libraries
            RectangleDecoder().decode_into(stored[number], sizes[number], boxes[number], pixels[number][None])

    return call


@dataclass(frozen=True)
class TrainingRecipe:
    """The definitions of a user's recipe; a definition that the recipe leaves out is None."""

    loader: Callable[[str, int], Any] | None = None
    transform: Callable[[Any], Any] | None = None
    crop: Any = None


def read_recipe(path: str | os.PathLike[str] | None) -> TrainingRecipe:
    """Run a recipe as a module with the recipe's name, so that other processes can import its definitions.

    Raises
    ------
    OptionError
        If the file cannot be read or run, defines no part of a recipe, or defines a function that cannot be called.
    """
    if path is None:
        return TrainingRecipe()
    path = Path(path).absolute()
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{printable(path)}: a recipe must be a Python file, NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's, and may be JSON
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # SystemExit: the file is a script that runs when it is imported
        raise OptionError(f"the recipe {printable(path)}: {type(error).__name__}: {printable(error)}") from error
    found = {name: getattr(module, name, None) for name in ("loader", "transform", "crop")}
    if all(value is None for value in found.values()):
        raise OptionError(
            f"{printable(path)}: a recipe must define loader(path, threads), transform or crop, but this file defines "
            "none of them"
        )
    for name in ("loader", "transform"):
        if found[name] is not None and not callable(found[name]):
            raise OptionError(f"{printable(path)}: {name} is not callable: {printable(repr(found[name]))}")
    return TrainingRecipe(**found)


@contextlib.contextmanager
def errors_of_recipe(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Turn an error in a recipe's code into an OptionError that names the line; pass on other errors."""
    try:
        yield
    except PackerError:
        raise
    except Exception as error:
        own = "" if path is None else os.path.abspath(path)
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
        if not lines:
            raise
        reason = f"{type(error).__name__}: {printable(error)}"
        raise OptionError(f"the recipe {printable(own)}, line {lines[-1]}: {reason}") from error


OUTPUT = 224
PROCESSES = "Loader, processes"
WAYS_OF_PACKS = ("DataLoader", "Loader", PROCESSES, "limit")
WAYS_OF_TREES = ("ImageFolder, DataLoader", "Loader, in place")

_SAMPLES_AT_ONCE = 256  # of one request
_FEWEST_BATCHES = 3  # of a measurement


def _prepare_process() -> None:
    """Let torch use one thread, as in a DataLoader's workers, and ignore warnings about seeds and epochs."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _read_once(dataset: ImageDataset, indices: Ints) -> tuple[int, int]:
    """Read samples, so that they are in memory; return the number of samples and of bytes."""
    parts = np.array_split(indices, -(-len(indices) // _SAMPLES_AT_ONCE))  # at a URL, each part takes few requests
    return len(indices), sum(len(data) for part in parts for data in dataset.reader.read_many(part.tolist()))


class RepeatedEpochs:
    """One way of reading some samples of one pack or tree, again and again in shuffled order.

    Parameters
    ----------
    way : str
        One of the names of ways in this module, or "recipe".
    path : str
    batch : int
        Samples per batch.
    images : int
        The maximum number of samples; they are spread evenly over all samples.
    recipe : str, optional
        The path of a recipe.
    """

    def __init__(self, way: str, path: str, batch: int, images: int, recipe: str | None) -> None:
        _prepare_process()
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):  # every child would print its lines
            self._recipe = read_recipe(recipe)
        self._way, self._path, self._batch = way, path, batch
        self._with_processes: Loader | None = None  # kept, because its processes take long to start
        self._limit: DecodeLimit | None = None
        self._dataset = None if way == "recipe" else _dataset(way, path, self._recipe)
        if self._dataset is not None:
            self._indices = spread_indices(images, len(self._dataset))

    def describe(self) -> tuple[int, int]:
        """Read all samples once, so that they are in memory; return the number of samples and of bytes."""
        if self._dataset is None:
            return 0, 0
        if isinstance(self._dataset, ImageDataset):
            return _read_once(self._dataset, self._indices)
        paths = [self._dataset.samples[index][0] for index in self._indices.tolist()]
        return len(paths), sum(len(Path(path).read_bytes()) for path in paths)

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Read for about `seconds` with threads or workers; return the number of samples, and the elapsed seconds."""
        if self._way == "limit":
            if self._limit is None:
                assert isinstance(self._dataset, ImageDataset)
                self._limit = DecodeLimit(self._dataset, self._indices)
            return self._limit.read(threads, seconds)
        loader, settle = self._loader(threads)
        return read_for(loader, settle, seconds)

    def _loader(self, threads: int) -> tuple[Iterable[Any], int]:
        """Return a loader, and the number of batches after which its speed is steady."""
        if self._way == "recipe":
            assert self._recipe.loader is not None
            return Endless(self._recipe.loader(self._path, threads)), threads + 1
        dataset: Any = Subset(self._dataset, self._indices.tolist())  # type: ignore[arg-type]
        order = Endless(ShuffleSampler(len(self._indices), seed=0))
        if "DataLoader" in self._way:
            return DataLoader(dataset, self._batch, sampler=order, num_workers=threads), threads + 1
        if self._way != PROCESSES:
            loader = Loader(dataset, self._batch, sampler=order, threads=threads)
            return loader, loader.prefetch + 1
        held = self._with_processes
        if held is None or held.processes != threads:
            if held is not None:
                held.close()
            held = Loader(dataset, self._batch, sampler=order, threads=threads, processes=threads)
            self._with_processes = held
        return held, held.prefetch + 1


class Endless:
    """Iterates over a sampler or a loader epoch after epoch, without end."""

    def __init__(self, epoch: Any) -> None:
        self._epoch, self._numbers = epoch, itertools.count()

    def __iter__(self) -> Iterator[Any]:
        for number in self._numbers:
            if hasattr(self._epoch, "set_epoch"):
                self._epoch.set_epoch(number)
            is_empty = True
            for one in self._epoch:
                is_empty = False
                yield one
            if is_empty:
                raise ValueError("the loader returns no batches")


def read_for(loader: Iterable[Any], settle: int, seconds: float) -> tuple[int, float]:
    """Read for `seconds` after the first `settle` batches; return the number of samples, and the elapsed seconds."""
    batches = iter(loader)
    for _ in range(settle):
        next(batches)
    measured = timed_calls(lambda: _length(next(batches)), seconds, _FEWEST_BATCHES)
    if hasattr(batches, "close"):  # a DataLoader's iterator has none: its workers end when it is garbage-collected
        batches.close()
    return measured


def _length(batch: Any) -> int:
    """Return the number of samples in a batch."""
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[-1])


def _dataset(way: str, path: str, recipe: TrainingRecipe) -> Any:
    if way == "ImageFolder, DataLoader":
        return _folder(path, recipe)
    crop = recipe.crop if recipe.crop is not None else RandomResizedCrop(OUTPUT, flip=0.5)
    if recipe.transform is None or (way == "limit" and recipe.crop is not None):
        dataset = open_dataset(path, crop=crop)
    elif way == "limit":
        raise OptionError("the limit is measured with a crop, which the recipe does not define")
    else:
        dataset = open_dataset(path, recipe.transform, fuse=way != "DataLoader")
    if not len(dataset):
        raise SourceError("it has no samples")
    return dataset


def _folder(path: str, recipe: TrainingRecipe) -> Any:
    datasets, steps = torchvision().datasets, torchvision().transforms
    if recipe.transform is not None:
        return datasets.ImageFolder(path, recipe.transform)
    usual = [steps.RandomResizedCrop(OUTPUT), steps.RandomHorizontalFlip(), steps.PILToTensor()]
    return datasets.ImageFolder(path, steps.Compose(usual))


def torchvision() -> Any:
    """Import torchvision; ImportError if it is not installed, or does not work with this torch."""
    try:
        import torchvision as found
        import torchvision.transforms.v2
    except RuntimeError as error:
        raise ImportError(f"torchvision does not work with this torch: {error}") from error
    return found


SIDES = ("packer", "torchvision")

_NORMALIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CLASSES = 1000


class _Step(NamedTuple):
    """A step of a recipe, applied after all earlier steps.

    Attributes
    ----------
    name : str
    make : callable, optional
        Creates the operation on an image. The argument is the module that has it: `packer.augment` or torchvision's
        ``transforms.v2``.
    """

    name: str
    make: Callable[[Any], Any] | None = None


_CROP, _NORMALISE, _MIX = _Step("crop and flip"), _Step("normalise"), _Step("MixUp or CutMix")
_RECIPES = {
    "trivial": (
        _CROP,
        _Step("TrivialAugmentWide", lambda of: of.TrivialAugmentWide()),
        _Step("RandomErasing", lambda of: of.RandomErasing(0.1)),
        _NORMALISE,
        _MIX,
    ),
    "rand": (_CROP, _Step("RandAugment", lambda of: of.RandAugment(2, 9)), _NORMALISE, _MIX),
    "three": (
        _CROP,
        _Step(
            "three-augment",
            lambda of: of.RandomChoice([of.Grayscale(3), of.RandomSolarize(128, 1), of.GaussianBlur(9)]),
        ),
        _Step("ColorJitter", lambda of: of.ColorJitter(0.3, 0.3, 0.3)),
        _NORMALISE,
        _MIX,
    ),
    "dino": (
        _CROP,
        _Step("ColorJitter", lambda of: of.RandomApply([of.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8)),
        _Step("grayscale", lambda of: of.RandomGrayscale(0.2)),
        _Step("blur", lambda of: of.RandomApply([of.GaussianBlur(23)], 0.5)),
        _Step("solarize", lambda of: of.RandomSolarize(128, 0.2)),
        _NORMALISE,
    ),
}


def steps_of(recipe: str) -> list[str]:
    """Return the names of a recipe's steps."""
    return [step.name for step in _RECIPES[recipe]]


class RecipeSteps:
    """Measures the steps of a recipe with packer or with torchvision, each step together with all earlier steps.

    Parameters
    ----------
    side : str
        One of `SIDES`: a `Loader` with packer's augmentations, or a DataLoader over the same samples with torchvision's
        v2 transforms. These process PIL images up to the crop, and tensors after the crop.
    path : str
    batch : int
        Samples per batch.
    images : int
        The maximum number of samples; they are spread evenly over all samples.
    recipe : str
    """

    def __init__(self, side: str, path: str, batch: int, images: int, recipe: str) -> None:
        _prepare_process()
        self._side, self._path, self._batch = side, path, batch
        self._steps = _RECIPES[recipe]
        self._indices = spread_indices(images, len(self._dataset(0)))

    def describe(self) -> tuple[int, int]:
        """Read all samples once, so that they are in memory; return the number of samples and of bytes."""
        with open_dataset(self._path) as dataset:
            return _read_once(dataset, self._indices)

    def read(self, threads: int, seconds: float, step: int) -> tuple[int, float]:
        """Read with the recipe's steps up to `step`; return the number of samples, and the elapsed seconds."""
        dataset: Any = Subset(self._dataset(step), self._indices.tolist())
        order = Endless(ShuffleSampler(len(self._indices), seed=0))
        done = self._steps[: step + 1]
        if self._side == SIDES[0]:
            normalize = _NORMALIZE if _NORMALISE in done else None
            mix = _either(augment) if _MIX in done else None
            loader = Loader(dataset, self._batch, sampler=order, threads=threads, mix=mix, normalize=normalize)
            return read_for(loader, loader.prefetch + 1, seconds)
        collate = _Mixed() if _MIX in done else default_collate
        batches: Any = DataLoader(dataset, self._batch, sampler=order, num_workers=threads, collate_fn=collate)
        return read_for(batches, threads + 1, seconds)

    def _dataset(self, step: int) -> Any:
        done = self._steps[: step + 1]
        if self._side == SIDES[0]:
            chain = [one.make(augment) for one in done if one.make is not None]
            return open_dataset(self._path, crop=RandomResizedCrop(OUTPUT, flip=0.5), augment=chain or None)
        v2 = torchvision().transforms.v2
        chain = [v2.RandomResizedCrop(OUTPUT), v2.RandomHorizontalFlip(), v2.PILToTensor()]
        chain += [one.make(v2) for one in done if one.make is not None]
        if _NORMALISE in done:
            chain += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(*_NORMALIZE)]
        return open_dataset(self._path, v2.Compose(chain))


def _either(of: Any) -> Any:
    return of.RandomChoice([of.MixUp(num_classes=_CLASSES), of.CutMix(num_classes=_CLASSES)])


class _Mixed:
    """A collate function with MixUp or CutMix, as in torchvision's reference training."""

    def __init__(self) -> None:
        self._mix = _either(torchvision().transforms.v2)

    def __call__(self, items: list[Any]) -> Any:
        return self._mix(*default_collate(items))


BLOCKS, RANDOM = "block shuffle, first epoch", "random order, first epoch"

_FETCH_CROP = RandomResizedCrop(OUTPUT, flip=0.5)
_BLOCK = 256  # samples: the default of `BlockShuffleSampler`
_LONGEST = 10  # a measurement ends after this many times the planned duration


class FirstEpoch:
    """Reads the first samples of an epoch in one kind of order; every measurement fetches the samples again.

    Parameters
    ----------
    way : {BLOCKS, RANDOM}
    url : str
    batch : int
        Samples per batch.
    images : int
        The maximum number of samples. With a block shuffle, whole blocks are read, because an epoch reads all samples
        of a block soon after each other.
    directory : str
        The directory for fetched samples; the caller removes it at the end.
    """

    def __init__(self, way: str, url: str, batch: int, images: int, directory: str) -> None:
        _prepare_process()  # without the warning that a random order fetches each sample by itself
        self._way, self._url, self._batch, self._images = way, url, batch, images
        self._epoch, self._directory = 0, directory

    def describe(self) -> tuple[int, int]:
        """Return the number of samples and of bytes that are read."""
        dataset = open_dataset(self._url, crop=_FETCH_CROP)
        order = self._order(len(dataset))
        return len(order), int(dataset.reader.table.size[order].sum())

    def read(self, threads: int, seconds: float) -> tuple[int, float]:
        """Read the samples once; return the number of samples, and the elapsed seconds."""
        with tempfile.TemporaryDirectory(dir=self._directory, ignore_cleanup_errors=True) as directory:
            dataset = open_dataset(self._url, crop=_FETCH_CROP, cache_dir=directory)
            self._epoch += 1
            order = self._order(len(dataset)).tolist()
            count, begin = 0, time.perf_counter()
            with Loader(dataset, self._batch, sampler=order, threads=threads) as loader:
                for batch in loader:
                    count += len(batch[-1])
                    if time.perf_counter() - begin > _LONGEST * seconds:
                        break
            return count, time.perf_counter() - begin

    def _order(self, length: int) -> Ints:
        if self._way == RANDOM:
            return np.random.default_rng(self._epoch).permutation(length)[: self._images].astype(np.int64)
        block = min(_BLOCK, self._images)
        window = max(1, self._images // block)
        order = BlockShuffleSampler(length, block, window, seed=self._epoch, rank=0, world=1)
        return order.order(np.arange(min(block * window, length), dtype=np.int64))
