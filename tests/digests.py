"""Prints a SHA-256 of every kind of pack: ``python -m tests.digests > FILE``, for `diff` between two checkouts.

Two checkouts that convert alike print the same on one machine. The sources are drawn photos and images of other types
and, with ``--source``, a tree of photos; each becomes a pack in every format, plain, resized, tiled, with fields, in
parts and so on. If a format refuses a variant, its line has the error. packer's own version is blanked in the packs;
the versions of the libraries are printed first.

Everything is written below ``--work``. Some packs contain its name, so it must be the same in both runs.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORK = Path("/tmp/packer-digests")
SUFFIXES = ("lmdb", "h5", "pth", "wds", "tfrecord", "rec", "mds", "caffe", "n5", "parquet")
LIBRARIES = ("h5py", "numpy", "opencv-python-headless", "pillow", "pyarrow", "simplejpeg", "torch")
TIME = 1_700_000_000  # seconds since 1970, of all files of the sources

VARIANTS: dict[str, dict[str, Any]] = {
    "keep": {},
    "bad left out": {"on_error": "skip", "extensions": ".jpg,.jpeg,.png,.broken"},
    "resize": {"resize": 64},
    "resize, no tiles": {"resize": 64, "tiles": False},
    "resize, pad": {"resize": 64, "resize_mode": "pad", "interpolation": "bicubic", "quality": 80},
    "tiles": {"tiles": True},
    "png": {"resize": 32, "codec": "png"},
    "webp": {"resize": 32, "codec": "webp"},
    "raw": {"resize": 32, "resize_mode": "crop", "codec": "raw"},
    "exif": {"resize": 64, "exif": "apply", "audit": "decode"},
    "shards": {"shard_size": 1 << 18},
    "parts": {"parts": 3},
    "resize, parts": {"resize": 64, "parts": 3},
    "some": {"sample": 7, "extensions": ".jpg,.jpeg,.png"},
}
"""Settings of conversions of a tree."""


def main() -> None:
    options = parse()
    blank_version()
    for library in LIBRARIES:
        say(f"# {library} {version_of(library)}")
    options.work.mkdir(parents=True)
    try:
        draw(options.work / "drawn" / "images")
        trees = {"drawn": options.work / "drawn" / "images"}
        if options.source is not None:
            trees["photos"] = options.work / "photos" / "images"
            shutil.copytree(options.source, trees["photos"])
        for name, tree in trees.items():
            describe(tree)
            set_times(tree.parent)
            for what, digest in digests(tree, options.work / "packs"):
                say(f"{digest}  {name}, {what}")
    finally:
        shutil.rmtree(options.work)


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def blank_version() -> None:
    """Set packer's version to 0, before its modules read it."""
    import packer

    packer.__version__ = "0"
    for name in ("packer._version",):  # only some checkouts have it
        try:
            setattr(importlib.import_module(name), "__version__", "0")  # noqa: B010
        except ImportError:
            continue


def version_of(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def draw(root: Path) -> None:
    """Write drawn photos, and one image each of other types and modes."""
    from packer.testing.photos import draw_imagefolder, draw_photo

    draw_imagefolder(root, classes=3, per_class=12, size=(150, 200))
    rng = np.random.default_rng(7)
    turned = Image.Exif()
    turned[0x0112] = 6
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "grey.jpg": ("L", {}),
        "progressive.jpg": ("RGB", {"progressive": True, "subsampling": "4:4:4"}),
        "turned.jpg": ("RGB", {"exif": turned}),
        "cmyk.jpg": ("CMYK", {}),
        "photo.png": ("RGB", {}),
        "alpha.png": ("RGBA", {}),
        "palette.png": ("P", {}),
        "é.webp": ("RGB", {}),
        "level.bmp": ("L", {}),
        "scan.tif": ("RGB", {}),
    }
    for name, (mode, settings) in kinds.items():
        Image.fromarray(draw_photo(rng, 90, 70)).convert(mode).save(root / "class_01" / name, **settings)
    (root / "class_02" / "cut.broken").write_bytes((root / "class_02" / "0000.jpg").read_bytes()[:1000])


def describe(tree: Path) -> None:
    """Write masks and a table of labels and columns beside the images of a tree."""
    files = [path for path in tree.rglob("*") if path.is_file() and path.suffix != ".broken"]
    names = sorted(path.relative_to(tree).as_posix() for path in files)
    for number, name in enumerate(names):
        mask = tree.parent / "masks" / f"{name}.png"
        mask.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(tree / name) as image:
            width, height = image.size
        Image.fromarray(np.full((height, width), number % 5, np.uint8)).save(mask)
    with open(tree.parent / "table.csv", "w", newline="", encoding="utf-8") as file:
        rows = ([name, number / 3, f"caption {number}", number % 2] for number, name in enumerate(names))
        csv.writer(file).writerows([("path", "label", "caption", "age"), *rows])


def set_times(root: Path) -> None:
    """Give all files and directories one time: indexes and lists keep the times of files."""
    for path in [root, *root.rglob("*")]:
        os.utime(path, (TIME, TIME))


def digests(tree: Path, out: Path) -> Iterator[tuple[str, str]]:
    """Yield a description of each pack, and the digest of its files or the error."""
    import packer

    table, masks = tree.parent / "table.csv", {"mask": "../masks/{path}.png"}
    variants = VARIANTS | {
        "fields": {"fields": masks},
        "fields, resize": {"fields": masks, "resize": 64},
        "fields, parts": {"fields": masks, "parts": 2},
        "labels": {"labels": table, "label_type": "float", "columns": {"caption": "text", "age": "int32"}},
    }
    for suffix in SUFFIXES:
        for variant, settings in variants.items():
            path = out / f"pack.{suffix}"
            made = attempt(path, lambda path=path, settings=settings: packer.convert(tree, path, **settings))  # type: ignore[misc]
            yield f"{suffix}, {variant}", made
        out_of = {"repacked": {}, "repacked, resized": {"resize": 48}}
        for variant, settings in out_of.items():
            yield f"{suffix}, {variant}", repacked(tree, out / f"pack.{suffix}", settings)
        yield f"{suffix}, appended", appended(tree, out / f"pack.{suffix}")
    yield "index", attempt(out / "tree.index", lambda: packer.index(tree, out / "tree.index"))
    yield "merged", merged(tree, out)


def repacked(tree: Path, path: Path, settings: dict[str, Any]) -> str:
    """Return the digest of a pack that is converted from another pack, whose images are resized already."""
    import packer

    first = path.with_name("first.lmdb")

    def make() -> None:
        packer.convert(tree, first, resize=64)
        packer.convert(first, path, **settings)

    return attempt(path, make)


def appended(tree: Path, path: Path) -> str:
    """Return the digest of a pack in parts to which images were appended."""
    import packer

    more = path.with_name("more")

    def make() -> None:
        for image in sorted(tree.glob("*/*.[jJ]*"))[:4]:
            copy = more / image.parent.name / f"new {image.name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(image, copy)
        packer.convert(tree, path, parts=2)
        packer.append(path, more)

    return attempt(path, make)


def merged(tree: Path, out: Path) -> str:
    """Return the digest of a pack that is merged from two halves."""
    import packer

    path, halves = out / "merged.lmdb", [out / "one.lmdb", out / "two.lmdb"]

    def make() -> None:
        packer.convert(tree, halves[0], extensions=".jpg")
        packer.convert(tree, halves[1], extensions=".png", classes_from=halves[0])
        packer.merge(halves, path)

    return attempt(path, make)


def attempt(path: Path, make: Callable[[], object]) -> str:
    """Return the digest of the pack that `make` writes, or the class of the error. Remove the pack's directory."""
    path.parent.mkdir()
    try:
        make()
        return digest(path)
    except Exception as error:
        return f"{type(error).__name__:<64}"
    finally:
        shutil.rmtree(path.parent)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and the files in a directory."""
    whole = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file()):
        data = file.read_bytes()
        whole.update(f"{file.relative_to(path).as_posix()}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, metavar="IMAGEFOLDER", help="a tree of photos, which is packed as well")
    parser.add_argument("--work", type=Path, default=WORK, metavar="DIR", help="is made, and removed (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
