"""Writes the golden containers with their own libraries: mosaicml-streaming, litdata, datadings and bagz.

``python make_shards.py`` in this directory, in an environment that has them; what they write is committed. The images
are those in ``images``, whose bytes all containers hold but where a library encodes them itself.
"""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path

import numpy as np
from PIL import Image

from packer.testing.reference import torchvision

HERE = Path(__file__).parent
NAMES = ["a.jpg", "b.png", "c.jpg"]
LABELS = [2, 0, 1]
CAPTIONS = ["a dog", "", "größer ☃"]


def images() -> list[bytes]:
    """Return the images, and draw them where there are none."""
    folder = HERE / "images"
    if not folder.exists():
        folder.mkdir()
        y, x = np.mgrid[:12, :16]
        for number, name in enumerate(NAMES):
            pixels = np.stack([x * 15, y * 20, (x + y) * 5 + 40 * number], -1).astype(np.uint8)
            Image.fromarray(pixels[: 12 - number]).save(folder / name)
    return [(folder / name).read_bytes() for name in NAMES]


def mds() -> None:
    torchvision()  # which streaming imports
    from streaming import MDSWriter

    columns = {
        "image": "bytes",
        "label": "int",
        "caption": "str",
        "meta": "json",
        "score": "float32",
        "small": "uint8",
        "long": "str_int",
        "fixed": "ndarray:int16:2,3",
        "free": "ndarray",
        "secret": "pkl",
    }
    with MDSWriter(out=str(HERE / "mds"), columns=columns, size_limit=1500, hashes=["sha1"]) as out:
        for number, data in enumerate(images()):
            out.write(
                {
                    "image": data,
                    "label": LABELS[number],
                    "caption": CAPTIONS[number],
                    "meta": {"number": number},
                    "score": np.float32(number / 4),
                    "small": np.uint8(250 + number),
                    "long": 10**10 + number,
                    "fixed": np.arange(6, dtype=np.int16).reshape(2, 3) + number,
                    "free": np.arange(4 + number, dtype=np.float32),
                    "secret": {"number": number},
                }
            )
    for name, options in {"mds-jpeg": {}, "mds-zstd": {"compression": "zstd"}}.items():
        with MDSWriter(out=str(HERE / name), columns={"image": "jpeg", "label": "uint16"}, **options) as out:
            for number, name in enumerate(["a.jpg", "c.jpg"]):
                out.write({"image": Image.open(HERE / "images" / name), "label": np.uint16(number)})
    with MDSWriter(out=str(HERE / "mds-pil"), columns={"image": "pil", "label": "int"}) as out:
        for number, name in enumerate(NAMES):
            out.write({"image": Image.open(HERE / "images" / name).copy(), "label": LABELS[number]})


def sample_of_litdata(number: int) -> dict[str, object]:
    """Return what LitData stores of an image."""
    return {
        "image": images()[number],
        "label": LABELS[number],
        "caption": CAPTIONS[number],
        "good": number == 1,
        "score": number / 4,
        "free": np.arange(4 + number, dtype=np.float32),
        "table": np.arange(6, dtype=np.int16).reshape(2, 3) + number,
    }


def pair_of_litdata(number: int) -> tuple[object, int]:
    """Return a pair, whose image LitData stores as the file has it."""
    return Image.open(HERE / "images" / ["a.jpg", "c.jpg"][number]), number


def litdata() -> None:
    from litdata import optimize

    optimize(sample_of_litdata, [0, 1, 2], str(HERE / "litdata"), num_workers=1, chunk_size=2)
    optimize(pair_of_litdata, [0, 1], str(HERE / "litdata-pair"), num_workers=1, chunk_size=2)
    options = {"num_workers": 1, "chunk_size": 2, "compression": "zstd"}
    optimize(pair_of_litdata, [0, 1], str(HERE / "litdata-zstd"), **options)


def datadings() -> None:
    sys.modules.setdefault("gdown", types.ModuleType("gdown"))  # which downloads, and is not needed here
    from datadings.writer import FileWriter

    (HERE / "datadings").mkdir()
    with FileWriter(HERE / "datadings" / "train.msgpack") as out:
        for name, data, label in zip(NAMES, images(), LABELS, strict=True):
            out.write({"key": f"some/{name}", "image": data, "label": label})


def bagz() -> None:
    import bagz

    with bagz.Writer(str(HERE / "images.bag")) as out:
        for data in images():
            out.write(data)


if __name__ == "__main__":
    for made in [*HERE.glob("mds*"), *HERE.glob("litdata*"), HERE / "datadings"]:
        shutil.rmtree(made, ignore_errors=True)
    for write in (mds, litdata, datadings, bagz):
        write()
