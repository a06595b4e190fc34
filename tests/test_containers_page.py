"""docs/containers.md: its commands run on files of the tools it names, and its tables are complete."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from pathlib import Path

import pytest

import packer
from packer._formats import FORMATS
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.containers.everywhere import GOLDEN, IMAGES
from tests.containers.lmdbs import write_lmdb
from tests.containers.test_arrays import cifar10, mnist, npy
from tests.containers.test_beton import jpegs
from tests.interop.__main__ import CONTAINERS

PAGE = Path(packer.__file__).parents[1] / "docs" / "containers.md"
COPIED = {
    "webdataset": "shards",
    "tfrecord": "records",
    "parquet/plain.parquet": "hub/train-00000-of-00001.parquet",
    "datasets/saved": "saved",
    "mds": "mds",
    "litdata": "chunks",
    "datadings": "datadings",
    "bagz/images.bag": "images.bag",
    "zipped/stored.zip": "photos.zip",
    "caffe/train_lmdb": "caffe_lmdb",
    "lsun": "lsun",
    "pickled/train_lmdb": "train_lmdb",
    "n5/z5py/group.n5": "volume.n5",
    "hdf5/images.h5": "images.h5",
}
"""Golden containers, and their names on the page."""


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw_imagefolder(Path("imagenet/train"), classes=2, per_class=2, size=(24, 32))
    for golden, name in COPIED.items():
        Path(name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (GOLDEN / golden).is_dir() else shutil.copy)(GOLDEN / golden, name)
    packer.convert("imagenet/train", "made.rec")
    shutil.move("made.rec", "faces")
    Path("faces/data.rec").rename("faces/train.rec")
    Path("faces/data.idx").rename("faces/train.idx")
    write_lmdb(Path("images_lmdb"), [(name.encode(), data) for name, data in IMAGES.items()], subdir=True)
    words = [
        (f"{what}-000000001".encode(), data) for what, data in (("image", next(iter(IMAGES.values()))), ("label", b"a"))
    ]
    write_lmdb(Path("words_lmdb"), [*words, (b"num-samples", b"1")], subdir=True)
    for make, name in ((cifar10, "cifar-10-batches-bin"), (mnist, "mnist"), (npy, "arrays"), (jpegs, "train.beton")):
        make(Path(name))
    said = re.findall(
        r"`(packer (?:index|convert) (?![A-Z])[^`]*)`|^(packer (?:index|convert) .*)$",
        PAGE.read_text("utf-8"),
        re.MULTILINE,
    )
    lines = [shlex.split(span or line)[1:] for span, line in said]
    assert len(lines) >= 28
    for line, result in zip(lines, packer_many(lines), strict=True):
        assert result.returncode == 0, (line, result.stderr)
        if line[0] == "index":
            assert "read from their own files" in result.stdout


def test_what_is_compared_stands_in_the_table() -> None:
    rows = re.findall(
        r"^\| (.*?) \| (read|written) \| (\S+) .*\| 400 \| equal.* \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    for name in CONTAINERS:
        module = importlib.import_module(f"tests.interop.{name}")
        written = module.SUFFIX in SUFFIXES
        expected = {(module.KIND, "read", tool) for tool in module.WRITTEN_BY}
        expected |= {(module.KIND, "written", tool) for tool in module.READ_BY if written}
        assert expected == {row for row in rows if row[0] == module.KIND}, name


SUFFIXES = {suffix for row in FORMATS.values() for suffix in row.suffixes}


@pytest.mark.parametrize(
    "page", ["README.md", "docs/converting.md", "docs/containers.md", "docs/formats/others.md", "formats.md"]
)
def test_every_layout_that_packer_writes_is_named(page: str) -> None:
    text = (PAGE.parents[1] / page).read_text("utf-8")
    own = {".lmdb", ".h5", ".hdf5", ".pth"} if page in ("docs/containers.md", "docs/formats/others.md") else {".hdf5"}
    assert {suffix for suffix in SUFFIXES - own if f"{suffix}" not in text} == set()


def test_the_help_names_every_format() -> None:
    (result,) = packer_many([["convert", "--help"]])
    said = result.stdout.partition("--format FORMAT")[2].partition("--split")[0]
    assert all(re.search(rf"\b{name}\b", said) for name in FORMATS), said
