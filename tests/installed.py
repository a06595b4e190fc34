"""Try the packer that is installed: convert a tree, and compare what the packs give with the files and with Pillow.

``python tests/installed.py [--own] [TREE]``, and not with ``-m``, so that the packer beside this file stays out of
sight. Without a tree photos are drawn. Needs nothing but packer and what it needs; without torch no batches are read.
Ends with status 1 where anything is not as it should be. The digests of a tree are the same on every machine.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import importlib.util
import io
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import packer
from packer._images import native
from packer._images.compiled import _native
from packer._images.decode import decode
from packer.testing.photos import draw_imagefolder

SUFFIXES = (".lmdb", ".h5", ".pth")
HAS_TORCH = importlib.util.find_spec("torch") is not None


def main() -> None:
    parser = argparse.ArgumentParser(description="Try the packer that is installed.")
    parser.add_argument("tree", nargs="?", type=Path, help="an ImageFolder; by default photos are drawn")
    parser.add_argument("--own", action="store_true", help="require that packer's own decoder works here")
    arguments = parser.parse_args()
    require("site-packages" in packer.__file__, f"packer is not installed: it was found at {packer.__file__}")
    require(_native is not None, "packer's C does not load: " + run("--version"))
    require(native.PREFERRED or not arguments.own, "packer's own decoder does not work here: " + run("--version"))
    print(f"Python {sys.version.split()[0]}: {run('--version').strip()}", flush=True)
    warnings.simplefilter("error" if native.PREFERRED else "default")
    with tempfile.TemporaryDirectory() as work:
        tree = arguments.tree
        if tree is None:
            tree = Path(work) / "photos"
            draw_imagefolder(tree, classes=4, per_class=10)
        files = sorted(path for path in tree.rglob("*") if path.is_file())
        for suffix in SUFFIXES:
            pack = Path(work) / f"pack{suffix}"
            run("convert", "--quiet", tree, pack)
            require("intact" in run("verify", pack), f"{pack} is not intact")
            run("export", "--quiet", pack, Path(work) / f"back{suffix}")
            for path in files:
                back = Path(work) / f"back{suffix}" / path.relative_to(tree)
                require(filecmp.cmp(path, back, shallow=False), f"{path} came back otherwise from {suffix}")
        print(f"{len(files)} images packed as {', '.join(SUFFIXES)}, verified and exported unchanged", flush=True)
        print(f"whole images: {digest(whole_images(files))}, Pillow's pixels", flush=True)
        if HAS_TORCH:
            run("convert", "--quiet", "--resize", 128, tree, Path(work) / "small.lmdb")
            for path in (Path(work) / "pack.lmdb", Path(work) / "small.lmdb"):
                began = time.monotonic()
                found = digest(batches(path, "auto"))
                seconds = time.monotonic() - began
                require(found == digest(batches(path, "pillow")), f"{path}: Pillow and packer disagree on crops")
                print(f"crops of {path.name}: {found}, {len(files) / seconds:.0f} images a second", flush=True)


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        sys.exit(otherwise)


def run(*arguments: object) -> str:
    """Run packer's command and return what it printed."""
    line = [sys.executable, "-m", "packer", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"{' '.join(line)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(parts: Iterator[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:16]


def whole_images(files: list[Path]) -> Iterator[bytes]:
    """Yield the pixels of every file; end the program where Pillow shows others."""
    for path in files:
        data = path.read_bytes()
        with Image.open(io.BytesIO(data)) as image:
            expected = np.asarray(image.convert("RGB"))
        require(np.array_equal(decode(data), expected), f"{path}: Pillow shows other pixels")
        yield expected.tobytes()


def batches(path: Path, decoder: str) -> Iterator[bytes]:
    """Yield the pixels of an epoch of random crops."""
    from packer import Loader, RandomResizedCrop, open_dataset

    dataset = open_dataset(path, crop=RandomResizedCrop(96, flip=0.5), seed=1, decoder=decoder)
    for images, labels in Loader(dataset, 16, threads=2):
        yield images.numpy().tobytes() + labels.numpy().tobytes()


if __name__ == "__main__":
    main()
