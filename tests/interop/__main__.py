"""Run every comparison, each in a process of its own, and print the results.

``python -m tests.interop [CONTAINER ...] [--photos TREE] [--count N]``
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import packer
from packer._containers import find_container
from packer.errors import PackerError
from tests.interop.photos import Photo, difference, draw, of_tree

CONTAINERS = (
    *("tars", "tfrecords", "recordio", "parquet", "arrow", "mds", "litdata_chunks", "datadings_files", "bagz_files"),
    *("zips", "caffe", "lsun", "pickled", "n5", "hdf5"),
)
_DISTRIBUTIONS = {"DALI": "nvidia-dali-cuda120", "streaming": "mosaicml-streaming", "zipfile": "", "tarfile": ""}
_SECONDS = 300
_MARK = "compared: "


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("containers", nargs="*", help="by default all")
    parser.add_argument("--photos", type=Path, help="a tree with a folder for each class; by default photos are drawn")
    parser.add_argument("--count", type=int, default=400, help="photos that are drawn")
    parser.add_argument("--one", nargs=2, metavar=("DIRECTION", "TOOL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = options.photos or Path(directory, "photos")
        if options.one:
            return compare(options.containers[0], *options.one, root, Path(directory))
        if options.photos is None:
            draw(root, options.count)
        rows = [row for name in options.containers or CONTAINERS for row in rows_of(name, root)]
    head = ["container", "direction", "tool", "samples", "result"]
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(4)]
    for row in [head, ["-" * width for width in [*widths, 6]], *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)]
        print("|", " | ".join(cells), "|")
    return int(any(row[-1].startswith("differs") for row in rows))


def rows_of(name: str, photos: Path) -> list[list[str]]:
    """Return the rows of the table of one container."""
    module = importlib.import_module(f"tests.interop.{name}")
    rows = []
    for direction, tools in (("read", module.WRITTEN_BY), ("written", module.READ_BY)):
        for tool in tools:
            line = [sys.executable, "-m", "tests.interop", name, "--photos", str(photos), "--one", direction, tool]
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
            try:
                done = subprocess.run(
                    line, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment
                )
                said = [line.removeprefix(_MARK) for line in done.stdout.splitlines() if line.startswith(_MARK)]
                error = f"status {done.returncode}: {' '.join(done.stderr.split())[-200:]}"
            except subprocess.TimeoutExpired:
                said, error = [], f"no end within {_SECONDS} s"
            count, result = json.loads(said[0]) if said else (0, f"differs: {error}")
            rows.append([module.KIND, direction, f"{tool} {version(tool)}".strip(), str(count), result])
    return rows


def version(tool: str) -> str:
    """Return the version of an installed tool; for modules of the standard library that of Python."""
    distribution = _DISTRIBUTIONS.get(tool, tool)
    try:
        return importlib.metadata.version(distribution) if distribution else f"of Python {sys.version.split()[0]}"
    except importlib.metadata.PackageNotFoundError:
        return ""


def compare(name: str, direction: str, tool: str, photos: Path, directory: Path) -> int:
    """Run one comparison; print the number of compared samples and the result, as JSON."""
    module = importlib.import_module(f"tests.interop.{name}")
    expected = of_tree(photos)
    try:
        run = read if direction == "read" else written
        result = run(module, tool, photos, expected, directory)
    except ImportError as error:
        result = f"left out: {tool} is not installed ({error})"
    except PackerError as error:
        result = f"differs: {type(error).__name__}: {error}"
    print(_MARK + json.dumps([0 if result.startswith("left out") else len(expected), result]))
    return 0


def read(module: ModuleType, tool: str, photos: Path, expected: list[Photo], directory: Path) -> str:
    """Have a tool write photos; index and convert what it wrote, and compare both."""
    (directory / "written").mkdir()
    path = module.WRITTEN_BY[tool](directory / "written", expected)
    keys = getattr(module, "KEYS", ())
    if not find_container([path]):
        return "left out: this packer does not read it"
    packer.convert(path, directory / "converted.lmdb", keys=keys)
    results = {"converted": shown(directory / "converted.lmdb", module)}
    if getattr(module, "IN_PLACE", True):
        packer.index(path, directory / "of.index", keys=keys)
        results["in place"] = shown(directory / "of.index", module)
    wrong = {how: difference(named(module, found), named(module, expected)) for how, found in results.items()}
    if any(wrong.values()):
        return "differs: " + "; ".join(f"{how}: {what}" for how, what in wrong.items() if what)
    return "equal" if len(results) > 1 else "equal (converted)"


def shown(pack: Path, module: ModuleType) -> list[Photo]:
    """Return the photos of a pack."""
    with packer.open_pack(pack) as reader:
        has_names = getattr(module, "NAMED", True)
        names = list(reader.names)
        labels = reader.table.label.tolist() if getattr(module, "LABELED", True) else [None] * len(names)
        return [
            Photo(bytes(reader.read(number)), labels[number], name if has_names else None)
            for number, name in enumerate(names)
        ]


def named(module: ModuleType, photos: Sequence[Photo]) -> list[Photo]:
    """Return photos with their names as the container stores them."""
    kept = getattr(module, "name", str)
    return [photo._replace(name=None if photo.name is None else kept(photo.name)) for photo in photos]


def written(module: ModuleType, tool: str, photos: Path, expected: list[Photo], directory: Path) -> str:
    """Have packer write photos, and a tool read them."""
    if not module.SUFFIX:
        return "left out: packer does not write it"
    path = directory / f"pack{module.SUFFIX}"
    try:
        packer.convert(photos, path, **getattr(module, "OPTIONS", {}))
    except packer.PackerError as error:
        if "unknown format" in str(error) or "ends in" in str(error) or "suffix" in str(error):
            return "left out: this packer does not write it"
        raise
    wrong = difference(named(module, module.READ_BY[tool](path)), named(module, expected))
    return f"differs: {wrong}" if wrong else "equal"


if __name__ == "__main__":
    sys.exit(main())
