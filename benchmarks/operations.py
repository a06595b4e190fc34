"""Measures the time of each operation of packer.augment, compared with torchvision and Pillow, on one thread.

python benchmarks/operations.py [--than CHECKOUT] [--only hue blur ...] [--side 224] [--rounds 15]

The times are microseconds on drawn photos of SIDE x SIDE pixels. *torchvision* is its v2 functional on uint8 tensors of
(3, SIDE, SIDE); *Pillow* is the same functions on PIL images, and Pillow's own blur. *the other* is the C of another
checkout, compiled there. The sides take turns, round by round; a figure is the median over the rounds. *levels* is the
largest difference between packer's pixels and torchvision's, and *equal* the share of values that are the same.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFilter

from packer._images.extension import _native
from packer._images.operations import FILTERS, KINDS, NO_FILL, OPERATION
from packer.testing.photos import draw_photo
from packer.testing.reference import torchvision

torchvision()
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812
from torchvision.transforms.v2.functional._geometry import _get_inverse_affine_matrix  # noqa: E402

PHOTOS = 8

Pixels = npt.NDArray[np.uint8]
Function = Callable[[Any], Any]


class Case(NamedTuple):
    name: str
    operations: npt.NDArray[Any]
    function: Function
    pillow: Function | None = None


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    photos = [draw_photo(rng, options.side, options.side) for _ in range(PHOTOS)]
    natives = {"packer": _native} | ({"the other": compiled(options.than)} if options.than else {})
    sides = [*natives, "torchvision", "Pillow"]
    print(f"{'':22}", *(f"{side:>12}" for side in sides), f"{'ratio':>7} {'levels':>7} {'equal':>8}")
    for case in cases():
        if not options.only or case.name.split()[0] in options.only:
            show(case, photos, natives, sides, options.rounds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--than", type=Path)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=15)
    return parser.parse_args()


def compiled(checkout: Path) -> ModuleType:
    """Return the C of another checkout."""
    found = [
        path
        for suffix in importlib.machinery.EXTENSION_SUFFIXES
        for path in (checkout / "packer/_images").glob(f"_native{suffix}")
    ]
    if not found:
        raise SystemExit(f"{checkout} has no compiled C: run `python setup.py build_ext --inplace` there")
    spec = importlib.util.spec_from_file_location("packer._images._native", found[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases() -> list[Case]:
    """Return the measured cases: each operation with a strong setting, and some with a weak one too."""
    made = [
        of_function(kind, factor, getattr(F, f"adjust_{kind}"))
        for kind, factor in (
            ("brightness", 1.4),
            ("contrast", 1.4),
            ("saturation", 1.4),
            ("hue", 0.1),
            ("sharpness", 1.9),
        )
    ]
    made += [
        Case("grayscale", operation("grayscale"), lambda image: F.rgb_to_grayscale(image, 3)),
        of_function("solarize", 128, F.solarize),
        of_function("posterize", 4, F.posterize),
    ]
    for kind in ("equalize", "autocontrast", "invert"):
        made.append(Case(kind, operation(kind), getattr(F, kind)))
    for kernel, sigma in ((23, 0.1), (23, 0.5), (23, 1.0), (23, 2.0), (9, 2.0)):
        made.append(blur(kernel, sigma))
    made.append(affine("translate", translate=[20, 0]))
    for filter in FILTERS:
        made += [affine(f"shear {filter}", filter, shear=[15.0, 0.0]), affine(f"rotate {filter}", filter, angle=30.0)]
    made += [affine("rotate filled", "bilinear", angle=30.0, fill=128)]
    erased = operation("erase", top=50, left=60, height=100, width=90, fill=0)
    made.append(
        Case("erase", erased, lambda image: F.erase(image, 50, 60, 100, 90, torch.zeros(3, 1, 1, dtype=torch.uint8)))
    )
    return made


def of_function(kind: str, factor: float, function: Callable[[Any, float], Any]) -> Case:
    return Case(f"{kind} {factor:g}", operation(kind, factor=factor), lambda image: function(image, factor))


def blur(kernel: int, sigma: float) -> Case:
    return Case(
        f"blur {kernel}, {sigma:g}",
        operation("blur", factor=sigma, height=kernel, width=kernel),
        lambda image: F.gaussian_blur(image, [kernel, kernel], [sigma, sigma]),
        lambda image: image.filter(ImageFilter.GaussianBlur(sigma)),
    )


def affine(name: str, interpolation: str = "nearest", *, fill: int | None = None, **moves: Any) -> Case:
    settings = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0], **moves}
    matrix = _get_inverse_affine_matrix([0.0, 0.0], *settings.values())
    colour = NO_FILL if fill is None else fill * 0x10101
    return Case(
        name,
        operation("affine", matrix=matrix, interpolation=FILTERS.index(interpolation), fill=colour),
        lambda image: F.affine(image, **settings, interpolation=interpolation, fill=fill),
    )


def operation(kind: str, **fields: Any) -> npt.NDArray[Any]:
    made = np.zeros(1, OPERATION)
    made["kind"], made["fill"] = KINDS.index(kind), NO_FILL
    for name, value in fields.items():
        made[name] = value
    return made


def show(case: Case, photos: list[Pixels], natives: dict[str, Any], sides: list[str], rounds: int) -> None:
    """Measure an operation on all sides in turn, and print the times."""
    tensors = [torch.from_numpy(photo).permute(2, 0, 1).contiguous() for photo in photos]
    images = [Image.fromarray(photo) for photo in photos]
    runs = {side: changer(native, case, photos) for side, native in natives.items()}
    runs["torchvision"] = lambda: timed(case.function, tensors)
    if case.name != "erase":  # torchvision has it only for tensors
        runs["Pillow"] = lambda: timed(case.pillow or case.function, images)
    seconds: dict[str, list[float]] = {side: [] for side in runs}
    for number in range(rounds):
        for side in list(runs)[:: 1 if number % 2 else -1]:
            seconds[side].append(runs[side]())
    medians = {side: 1e6 * statistics.median(times) for side, times in seconds.items()}
    apart = [distance(natives["packer"], case, photo) for photo in photos]
    levels, equal = max(most for most, _ in apart), statistics.mean(share for _, share in apart)
    ratio = medians["torchvision"] / medians["packer"]
    columns = (f"{medians[side]:12.1f}" if side in medians else f"{'':12}" for side in sides)
    print(f"{case.name:22}", *columns, f"{ratio:6.1f}x {levels:7} {equal:8.4%}", flush=True)


def changer(native: Any, case: Case, photos: list[Pixels]) -> Callable[[], float]:
    """Return a function that changes copies of the photos, and returns the seconds for one of them."""
    copies = [np.empty_like(photo) for photo in photos]
    calls = [(copy.ctypes.data, *copy.shape[:2], case.operations.ctypes.data, 1) for copy in copies]

    def run() -> float:
        for copy, photo in zip(copies, photos, strict=True):
            copy[:] = photo
        begin = time.perf_counter()
        for call in calls:
            native.augment(*call)
        return (time.perf_counter() - begin) / len(calls)

    return run


def timed(function: Function, images: list[Any]) -> float:
    """Return the seconds that a function takes for an image."""
    begin = time.perf_counter()
    for image in images:
        function(image)
    return (time.perf_counter() - begin) / len(images)


def distance(native: Any, case: Case, photo: Pixels) -> tuple[int, float]:
    """Compare a changed photo with torchvision's; return the largest difference, and the share of equal values."""
    changed = photo.copy()
    native.augment(changed.ctypes.data, *changed.shape[:2], case.operations.ctypes.data, 1)
    expected = case.function(torch.from_numpy(photo).permute(2, 0, 1)).permute(1, 2, 0).numpy()
    apart = np.abs(changed.astype(np.int16) - expected)
    return int(apart.max()), float((apart == 0).mean())


if __name__ == "__main__":
    main()
