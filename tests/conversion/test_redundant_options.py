"""Options that request the default behaviour are accepted, and change nothing."""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer import open_dataset
from tests.sourcekinds import SOURCES, Source

ANYWAY: list[dict[str, Any]] = [
    {"tiles": False},
    {"codec": "keep"},
    {"codec": "keep", "tiles": False},
    {"exif": "ignore"},
    {"audit": "structure"},
    {"on_error": "fail"},
    {"on_missing": "error"},
    {"overwrite": True},
    {"fresh": True},
    {"limit": 4000},
]
IN_A_DIRECTORY: list[dict[str, Any]] = [{"no_metadata": True}, {"no_metadata": True, "on_missing": "error"}]
ANNOTATED: list[dict[str, Any]] = [{"unlabeled": True}, {"no_classes": True}]


DIRECTORIES = ["imagefolder", "coco", "voc", "yolo"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Source, Path]]:
    """Return a function that makes a source of a kind, and its pack without options, once for each kind."""

    @functools.cache
    def made(kind: str) -> tuple[Source, Path]:
        root = tmp_path_factory.mktemp("plain")
        source, own = SOURCES.get(kind, SOURCES["imagefolder"])(root)
        if kind == "pack":
            packer.convert(source, root / "source.lmdb")
            source = root / "source.lmdb"
        elif kind == "zip":
            with zipfile.ZipFile(root / "source.zip", "w") as file:
                for path in sorted(source.rglob("*.png")):
                    file.write(path, path.relative_to(source).as_posix())
            source = root / "source.zip"
        packer.convert(source, root / "plain.lmdb", **own)
        return (source, own), root / "plain.lmdb"

    return made


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, options) for kind in [*DIRECTORIES, "pack", "zip"] for options in ANYWAY),
        *((kind, options) for kind in DIRECTORIES for options in IN_A_DIRECTORY),
    ],
    ids=str,
)
def test_what_happens_anyway_may_be_said(
    kind: str, options: dict[str, Any], plain: Callable[[str], tuple[Source, Path]], tmp_path: Path
) -> None:
    (source, own), expected = plain(kind)
    packer.convert(source, tmp_path / "said.lmdb", **own, **options)
    assert (tmp_path / "said.lmdb").read_bytes() == expected.read_bytes()  # the settings are in the pack


@pytest.mark.parametrize("options", ANNOTATED, ids=str)
@pytest.mark.parametrize("kind", ["coco", "voc", "yolo"])
def test_annotated_images_may_be_called_unlabeled(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    source, own = SOURCES[kind](tmp_path)
    packer.convert(source, tmp_path / "pack.lmdb", **own, **options)
    assert set(open_dataset(tmp_path / "pack.lmdb").targets) == {-1}


@pytest.mark.parametrize("codec", ["png", "raw", "webp"])
def test_what_is_no_jpeg_may_be_asked_to_have_no_tiles(codec: str, tmp_path: Path) -> None:
    source, _ = SOURCES["imagefolder"](tmp_path)
    plain = packer.convert(source, tmp_path / "plain.lmdb", codec=codec)
    assert packer.convert(source, tmp_path / "said.lmdb", codec=codec, tiles=False).manifest.settings == (
        plain.manifest.settings
    )


def test_no_field_of_boxes_may_be_said_of_image_and_label(tmp_path: Path) -> None:
    source, _ = SOURCES["imagefolder"](tmp_path)
    packer.convert(source, tmp_path / "pack.lmdb")
    assert len(open_dataset(tmp_path / "pack.lmdb", per_box=())[0]) == 2
