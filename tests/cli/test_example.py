"""The lines of Python that commands print after making a pack: they run, and open a dataset of the pack."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from packer._cli import EXIT_STATUS
from packer._conversion.words import example
from packer._manifest import Manifest
from tests.command import packer, packer_many
from tests.samples import SUFFIXES
from tests.sourcekinds import SOURCES

OPTIONS = {
    "coco": "--coco",
    "voc": "--voc",
    "yolo": "--yolo",
    "labels": "--labels",
    "label_type": "--label-type",
    "unlabeled": "--unlabeled",
    "no_classes": "--no-classes",
    "masks": "--masks",
}
NAMES: dict[str, tuple[str, ...]] = {
    "masks": ("image", "label", "mask"),
    "masks, unlabeled": ("image", "mask"),
    "coco": ("image", "boxes", "category", "area", "segmentation", "keypoints"),
    "coco without boxes": ("image", "category"),
    "coco with masks": ("image", "mask", "boxes", "category", "area", "segmentation"),
    "captions": ("image", "captions"),
    "voc": ("image", "boxes", "category", "difficult"),
    "yolo": ("image", "boxes", "category"),
    "hub, objects": ("image", "boxes", "labels"),
    "hub, text": ("image", "text"),
}
"""The keys of an item, of packs whose samples are not image and label."""


def line(kind: str, root: Path, target: Path) -> list[object]:
    """Return the `packer convert` line for a kind of source."""
    source, options = SOURCES[kind](root)
    words: list[object] = []
    for name, value in options.items():
        if name == "fields":
            words += [word for field, template in value.items() for word in ("--field", f"{field}={template}")]
        else:
            words += [OPTIONS[name]] if value is True else [OPTIONS[name], value]
    return ["convert", source, target, *words]


def run(output: str) -> Any:
    """Run the example in a command's output; return the dataset, which the caller closes."""
    found = re.search(r"^  (from packer import .*)\n  (dataset = .*)$", output, re.MULTILINE)
    assert found is not None, output
    scope: dict[str, Any] = {}
    exec("\n".join(found.groups()), scope)
    return scope["dataset"]


def check(kind: str, output: str) -> None:
    with run(output) as dataset:
        item = dataset[0]
        if kind in NAMES:
            keys = tuple(key for key in item if not key.endswith("_visibility"))
            assert keys == NAMES[kind]
        else:
            assert len(item) == 2
            assert ("every label is -1" in output.splitlines()[-1]) == (set(dataset.targets) == {-1})


@pytest.mark.parametrize("kind", SOURCES)
def test_the_example_fits_the_pack(kind: str, tmp_path: Path) -> None:
    result = packer(*line(kind, tmp_path, tmp_path / "pack.lmdb"))
    assert result.returncode == EXIT_STATUS["ok"], result.stderr
    check(kind, result.stdout)


@pytest.mark.parametrize("kind", ["imagefolder", "coco", "unlabeled", "table of floats"])
def test_the_example_fits_every_format(kind: str, tmp_path: Path) -> None:
    lines = [line(kind, tmp_path / suffix, tmp_path / f"it's a pack{suffix}") for suffix in SUFFIXES.values()]
    for one, result in zip(lines, packer_many(lines), strict=True):
        assert result.returncode == EXIT_STATUS["ok"], (one, result.stderr)
        check(kind, result.stdout)


@pytest.mark.parametrize("kind", ["imagefolder", "masks", "coco", "voc", "hub, objects", "unlabeled"])
def test_other_commands_print_it_too(kind: str, tmp_path: Path) -> None:
    convert = line(kind, tmp_path / "a", tmp_path / "parts.pth")
    _, source, _, *options = convert
    lines: dict[str, list[object]] = {
        "parts": [*convert, "--parts", 2],
        "index": ["index", source, tmp_path / "x.index", *options],
        "again": ["convert", tmp_path / "x.index", tmp_path / "again.h5"],
        "merge": ["merge", tmp_path / "again.h5", tmp_path / "merged.lmdb"],
    }
    for name, result in zip(lines, packer_many(lines.values()), strict=True):
        assert result.returncode == EXIT_STATUS["ok"], (name, result.stderr)
        check(kind, result.stdout)


def test_a_url_stands_in_the_example_as_it_is() -> None:
    manifest = Manifest("lmdb", 1, ["cat"])
    imported, opened = example("s3://bucket/train.lmdb", manifest)
    assert imported.strip() == "from packer import LMDBImageDataset"
    assert "LMDBImageDataset('s3://bucket/train.lmdb')" in opened
