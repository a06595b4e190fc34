"""Try the installed packer: convert a tree, and compare the packs with the files and with Pillow's pixels.

``python tests/installed.py [--own] [TREE]``, and not with ``-m``, which would import the packer of this repository.
Without TREE, images are drawn. Needs only packer and its dependencies; without torch, no batches are read. Ends with
status 1 if anything differs. The digests of a tree are the same on every machine, those of resized packs with the
same Pillow.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import packer
from packer._images import native
from packer._images.decode import decode, installed_decoders
from packer._images.extension import _native
from packer._images.jpeg_tiles import read_tiles
from packer.testing.photos import draw_imagefolder

SUFFIXES = (".lmdb", ".h5", ".pth")
FORMS: dict[str, tuple[object, ...]] = {"tiled": ("--tiles",), "resized": ("--resize", 256)}
HAS_TORCH = importlib.util.find_spec("torch") is not None


def main() -> None:
    parser = argparse.ArgumentParser(description="Try the packer that is installed.")
    parser.add_argument("tree", nargs="?", type=Path, help="an ImageFolder; by default images are drawn")
    parser.add_argument("--own", action="store_true", help="require that packer's own decoder works here")
    arguments = parser.parse_args()
    require("site-packages" in packer.__file__, f"packer is not installed: it was found at {packer.__file__}")
    require(_native is not None, "packer's C does not load: " + run("--version"))
    require(native.PREFERRED or not arguments.own, "packer's own decoder does not work here: " + run("--version"))
    print(f"Python {sys.version.split()[0]}: {run('--version').strip()}", flush=True)
    warnings.simplefilter("error" if native.PREFERRED else "default")
    with tempfile.TemporaryDirectory() as work:
        packs = Path(work)
        tree = (arguments.tree or packs / "drawn").resolve()
        if arguments.tree is None:
            draw(tree)
        files = sorted(path.relative_to(tree) for path in tree.rglob("*") if path.is_file())
        for suffix in SUFFIXES:
            back = converted(tree, packs / f"plain{suffix}")
            for path in files:
                same = filecmp.cmp(tree / path, back / path, shallow=False)
                require(same, f"{path} came back otherwise from {suffix}")
        print(f"{len(files)} images packed as {', '.join(SUFFIXES)}, verified and exported unchanged", flush=True)
        whole = digest(whole_images(tree, files))
        print(f"whole images: {whole}, by {', '.join(installed_decoders())}", flush=True)
        for form, options in FORMS.items():
            back = converted(tree, packs / f"{form}.lmdb", *options)
            found = sorted(path.relative_to(back) for path in back.rglob("*") if path.is_file())
            require(len(found) == len(files), f"{len(found)} of {len(files)} images came back {form}")
            pixels = digest(whole_images(back, found))
            require((pixels == whole) == (form == "tiled"), f"{form}: pixels {pixels}")
            print(f"{form}: the pack {packer.digest(packs / f'{form}.lmdb')[:16]}, its pixels {pixels}", flush=True)
        tiles = sum(read_tiles((packs / "tiled.lmdb.back" / path).read_bytes()) is not None for path in files)
        require(2 * tiles > len(files), f"only {tiles} of {len(files)} images got tiles")
        print(f"{tiles} of {len(files)} images got tiles, and all kept their pixels", flush=True)
        if HAS_TORCH:
            for form in ("plain", *FORMS):
                try_crops(packs / f"{form}.lmdb")


def draw(tree: Path) -> None:
    """Draw photos: two thirds of them are baseline JPEGs, the others progressive ones and PNGs."""
    draw_imagefolder(tree, classes=4, per_class=12)
    for number, path in enumerate(sorted(tree.rglob("*.jpg"))):
        if number % 6 == 2:
            Image.open(path).save(path, progressive=True, quality=90)
        elif number % 6 == 5:
            Image.open(path).save(path.with_suffix(".png"))
            path.unlink()


def converted(tree: Path, pack: Path, *options: object) -> Path:
    """Convert a tree and verify the pack; return a directory to which its images were exported."""
    back = pack.with_name(f"{pack.name}.back")
    run("convert", "--quiet", *options, tree, pack)
    require("intact" in run("verify", pack), f"{pack} is not intact")
    run("export", "--quiet", pack, back)
    return back


def try_crops(pack: Path) -> None:
    """End the program if the decoders give different crops."""
    own = digest(batches(pack, "auto"))
    for name in installed_decoders():
        require(digest(batches(pack, name)) == own, f"{pack.name}: packer and {name} disagree on crops")
    print(f"crops of {pack.name}: {own}", flush=True)


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        sys.exit(otherwise)


def run(*arguments: object) -> str:
    """Run packer's command and return what it printed."""
    line = [sys.executable, "-m", "packer", *map(str, arguments)]
    elsewhere = Path(__file__).parent  # without a packer in it: Python looks for modules there first
    done = subprocess.run(line, cwd=elsewhere, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"{' '.join(line)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(parts: Iterator[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:16]


def pillow_pixels(path: Path) -> npt.NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def whole_images(tree: Path, files: list[Path]) -> Iterator[bytes]:
    """Yield the pixels of every file; end the program where Pillow and another decoder differ."""
    for path in files:
        data, expected = (tree / path).read_bytes(), pillow_pixels(tree / path)
        for name in ("auto", *installed_decoders()):
            require(np.array_equal(decode(data, decoder=name), expected), f"{path}: {name} gives other pixels")
        yield expected.tobytes()


def batches(path: Path, decoder: str) -> Iterator[bytes]:
    """Yield the pixels of an epoch of random crops."""
    from packer import Loader, RandomResizedCrop, open_dataset

    dataset = open_dataset(path, crop=RandomResizedCrop(96, flip=0.5), seed=1, decoder=decoder)
    for images, labels in Loader(dataset, 16, threads=2):
        yield images.numpy().tobytes() + labels.numpy().tobytes()


if __name__ == "__main__":
    main()
