"""Small containers that other tools wrote, driven by `tests.golden.containers.make`, are read correctly."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._formats import open_pack
from packer.errors import NotAPackError, SourceError
from tests.containers.everywhere import GOLDEN, IMAGES

EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "expected.json").read_text())
READ_BY_OTHERS = {"images", "indexes", "mds-pil", "litdata-zstd", "pyarrow-11"}
"""What has tests of its own: images, indexes, pixels, what is refused, and single values."""


def seen(pack: Path) -> dict[str, Any]:
    """Return the names, labels, classes and digests of images of a pack or an index."""
    with open_pack(pack) as reader:
        digests = [hashlib.sha256(reader.read(number)).hexdigest() for number in range(len(reader))]
        labels, classes = reader.table.label.tolist(), reader.manifest.classes
        return {"names": list(reader.names), "labels": labels, "classes": classes, "sha256": digests}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_other_tools_wrote_holds_what_went_in(name: str, tmp_path: Path) -> None:
    expected = dict(EXPECTED[name])
    compressed = expected.pop("compressed", False)
    packer.convert(GOLDEN / name, tmp_path / "made.lmdb")
    assert seen(tmp_path / "made.lmdb") == expected
    if compressed:
        with pytest.raises(SourceError, match="is compressed"):
            packer.index(GOLDEN / name, tmp_path / "made.index")
        return
    packer.index(GOLDEN / name, tmp_path / "made.index")
    assert seen(tmp_path / "made.index") == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about images without labels
        dataset = packer.open_dataset(GOLDEN / name, output="bytes")
    assert [hashlib.sha256(dataset[number][0]).hexdigest() for number in range(len(dataset))] == expected["sha256"]


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("look", [packer.info, packer.verify])
def test_commands_for_packs_name_the_tool_and_the_commands_that_read_it(name: str, look: Callable[[Path], Any]) -> None:
    path = GOLDEN / name
    with pytest.raises(NotAPackError) as refused:
        look(path)
    assert "It may be a file of another tool (" in str(refused.value)
    assert f"`packer convert {path} NAME.lmdb`" in str(refused.value)


def test_every_container_that_is_here_is_read() -> None:
    there = {path.name for path in GOLDEN.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert there == {name.partition("/")[0] for name in EXPECTED} | READ_BY_OTHERS


@pytest.mark.parametrize(("suffix", "index"), [(".wds", "wds.idx"), (".tfrecord", "tfrecord.idx")])
def test_indexes_that_are_written_are_those_of_dali(suffix: str, index: str, tmp_path: Path) -> None:
    labels = [2, 0, 1]
    samples = [
        {"image": IMAGES[name], "label": label, "name": name} for name, label in zip(IMAGES, labels, strict=True)
    ]
    packer.pack(samples, tmp_path / f"made{suffix}", classes=["0", "1", "2"])
    (written,) = (tmp_path / f"made{suffix}").glob("*.idx")
    assert written.read_bytes() == (GOLDEN / "indexes" / index).read_bytes()


@pytest.mark.parametrize("size", [3000, 3072])
def test_a_tar_that_ends_after_the_header_of_a_time_was_cut_short(size: int, tmp_path: Path) -> None:
    """webdataset writes a header with the time before each member."""
    (tmp_path / "cut.tar").write_bytes((GOLDEN / "webdataset" / "shard-000000.tar").read_bytes()[:size])
    with pytest.raises(SourceError, match="cut short"):
        packer.index(tmp_path / "cut.tar", tmp_path / "made.index")
