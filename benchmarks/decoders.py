"""Measures the decoders that Python programs use: whole photos to RGB arrays, on one thread.

python benchmarks/decoders.py TREE [--suffix .png] [--rounds 5] [--only pillow ...] [--json FILE]

The photos are JPEGs by default; a decoder that cannot read files with the suffix is named with its error.

Decoders that are not installed are named with the reason. Pillow-SIMD replaces Pillow, so it must be measured in an
environment of its own; the program needs only NumPy. The decoders take turns, round by round, over bytes in memory; a
round is the whole tree. *as Pillow* is the share of the values that are equal to Pillow's, in the first 50 photos.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Decoder = Callable[[bytes], Pixels]


def pillow() -> Decoder:
    from PIL import Image

    return lambda data: np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def opencv() -> Decoder:
    import cv2

    cv2.setNumThreads(0)
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return lambda data: np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), flags))


def simplejpeg() -> Decoder:
    import simplejpeg

    return lambda data: np.asarray(simplejpeg.decode_jpeg(data, "RGB"))


def pyturbojpeg() -> Decoder:
    from turbojpeg import TJPF_RGB, TurboJPEG

    decoder = TurboJPEG()
    return lambda data: np.asarray(decoder.decode(data, pixel_format=TJPF_RGB))


def jpeg4py() -> Decoder:
    import jpeg4py

    return lambda data: np.asarray(jpeg4py.JPEG(np.frombuffer(data, np.uint8)).decode())


def accimage() -> Decoder:
    import tempfile

    import accimage

    file = Path(tempfile.mkdtemp()) / "image.jpg"  # it opens nothing but paths

    def decode(data: bytes) -> Pixels:
        file.write_bytes(data)
        image = accimage.Image(str(file))
        pixels = np.empty((image.channels, image.height, image.width), np.uint8)
        image.copyto(pixels)
        return pixels.transpose(1, 2, 0)

    return decode


def torchvision() -> Decoder:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    return lambda data: (
        decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB).permute(1, 2, 0).numpy()
    )


def spng() -> Decoder:
    from imagecodecs import spng_decode

    return lambda data: np.asarray(spng_decode(data))


def libpng() -> Decoder:
    from imagecodecs import png_decode

    return lambda data: np.asarray(png_decode(data))


def libwebp() -> Decoder:
    from imagecodecs import webp_decode

    return lambda data: np.asarray(webp_decode(data))


def packer() -> Decoder:
    from packer._images.decode import decode

    return lambda data: np.asarray(decode(data))


DECODERS: dict[str, tuple[Callable[[], Decoder], tuple[str, ...]]] = {
    "pillow": (pillow, ("pillow", "pillow-simd")),
    "opencv": (opencv, ("opencv-python-headless", "opencv-python")),
    "torchvision": (torchvision, ("torchvision",)),
    "simplejpeg": (simplejpeg, ("simplejpeg",)),
    "pyturbojpeg": (pyturbojpeg, ("pyturbojpeg",)),
    "jpeg4py": (jpeg4py, ("jpeg4py",)),
    "accimage": (accimage, ("accimage",)),
    "spng": (spng, ("imagecodecs",)),
    "libpng": (libpng, ("imagecodecs",)),
    "libwebp": (libwebp, ("imagecodecs",)),
    "packer": (packer, ("packer-images",)),
}
"""The function that makes each decoder, and the packages that may contain it."""


def main() -> None:
    options = parse()
    photos = [path.read_bytes() for path in sorted(options.tree.rglob("*")) if path.suffix.lower() in options.suffix]
    decoders: dict[str, Decoder] = {}
    for name in options.only or DECODERS:
        try:
            decoders[name] = DECODERS[name][0]()
            decoders[name](photos[0])
        except Exception as error:  # each library has its own errors
            decoders.pop(name, None)
            print(f"{name}: not measured: {error}")
    seconds: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(options.rounds):
        for name, decode in decoders.items():
            begin = time.perf_counter()
            for photo in photos:
                decode(photo)
            seconds[name].append(time.perf_counter() - begin)
    results = {name: result(name, decoders, seconds, photos) for name in decoders}
    for name, row in results.items():
        alike = "" if row["as Pillow"] is None else f"  {row['as Pillow']:.2%} of the values as Pillow"
        print(f"{name:12} {row['package']:34} {row['images a second']:7.0f} images a second{alike}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"photos": len(photos), "decoders": results}, indent=2) + "\n", "utf-8")


def result(name: str, decoders: dict[str, Decoder], seconds: dict[str, list[float]], photos: list[bytes]) -> Any:
    """Return the rate of a decoder, and how many of its values are those of Pillow."""
    alike = None
    if "pillow" in decoders and name != "pillow":
        shares = [float(np.mean(decoders[name](photo) == decoders["pillow"](photo))) for photo in photos[:50]]
        alike = statistics.fmean(shares)
    return {
        "package": installed(DECODERS[name][1]),
        "images a second": len(photos) / statistics.median(seconds[name]),
        "rounds": [len(photos) / taken for taken in seconds[name]],
        "as Pillow": alike,
    }


def installed(packages: tuple[str, ...]) -> str:
    """Return the names and versions of those packages that are installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found) or "not from pip"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--suffix", nargs="+", default=[".jpg", ".jpeg"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=DECODERS)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
