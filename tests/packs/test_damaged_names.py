"""A pack with a damaged name, which lies outside of the names: every function and command reports or skips it."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._datasets.open import open_dataset
from packer._formats import open_pack
from packer._packs.export import export
from packer._packs.info import digest
from packer._packs.repair import repair
from packer._packs.verify import verify
from packer._sources.pack import pack_source
from packer._table import Sample
from packer.errors import CorruptPackError
from tests.command import packer_many
from tests.samples import write_pack

NAMES = ["a/0.png", "a/1.png", "b/2.png", "b/3.png"]


def photo(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)).save(stream, "png")
    return stream.getvalue()


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Return a pack with a flipped bit in the end of the second of four names, which also begins the third."""
    samples = [Sample(name, number // 2, photo(number), 8, 8) for number, name in enumerate(NAMES)]
    path = write_pack(tmp_path / "pack.h5", "hdf5", samples, settings=Recipe().settings())
    ends = np.cumsum([len(name) for name in NAMES]).astype("<i8")
    damaged = ends.copy()
    damaged[1] |= 1 << 40
    data = path.read_bytes()
    assert data.count(ends.tobytes()) == 1
    path.write_bytes(data.replace(ends.tobytes(), damaged.tobytes()))
    return path


@pytest.mark.parametrize(
    "look",
    [
        list,
        lambda names: names[1],
        lambda names: names[2],
        lambda names: names[:],
        lambda names: names.count(names[0]),
        lambda names: names.index(names[3]),
        lambda names: names[3] in names,
        lambda names: list(reversed(names)),
        dict.fromkeys,
    ],
)
def test_looking_for_names_says_which_one_is_damaged(pack: Path, look: Callable[[object], object]) -> None:
    names = open_dataset(pack).reader.names
    with pytest.raises(CorruptPackError, match=r"pack\.h5, sample [12]: the name of sample [12] is outside") as caught:
        look(names)
    assert caught.value.index in (1, 2)
    assert len(names) == 4


def test_there_are_no_samples_of_such_a_dataset(pack: Path) -> None:
    with pytest.raises(CorruptPackError, match="column 'name_end'"):
        _ = open_dataset(pack).samples


def test_nothing_is_exported(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptPackError, match="column 'name_end'"):
        export(pack, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_such_samples_are_left_out_or_stop_the_conversion(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptPackError, match="sample 1"):
        convert(pack_source(pack), tmp_path / "copy.lmdb")
    manifest = convert(pack_source(pack), tmp_path / "copy.lmdb", on_error="skip").manifest
    assert [entry["reason"].split(": ")[0] for entry in manifest.skipped] == [f"{pack}, sample {n}" for n in (1, 2)]
    assert [name for name, _ in open_dataset(tmp_path / "copy.lmdb").samples] == [NAMES[0], NAMES[3]]
    assert verify(tmp_path / "copy.lmdb") == []


@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 3), (2, 4), (3, 4)])
def test_parts_of_such_a_pack_have_no_other_names(pack: Path, tmp_path: Path, start: int, stop: int) -> None:
    part = pack_source(pack).between(start, stop)
    convert(part, tmp_path / "part.lmdb", on_error="skip", allow_empty=True)
    whole = {n: NAMES[n] for n in (0, 3)}
    found = [name for name, _ in open_dataset(tmp_path / "part.lmdb").samples]
    assert found == [whole[n] for n in range(start, stop) if n in whole]


def test_such_a_pack_is_not_merged(pack: Path, tmp_path: Path) -> None:
    other = write_pack(tmp_path / "other.h5", "hdf5", [Sample("c/0.png", 0, photo(9), 8, 8)])
    for packs in ([pack, other], [other, pack]):
        with pytest.raises(CorruptPackError, match=r"pack\.h5, sample 1: the name of sample 1"):
            pack_source(*packs)


def test_there_is_no_digest_and_no_repair(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptPackError, match="sample 1"):
        digest(pack)
    before = pack.read_bytes()
    repaired = repair(pack, tmp_path)
    assert repaired.samples == []
    assert "column 'name_end'" in str(repaired.left[0])
    assert pack.read_bytes() == before


def test_no_command_ends_with_a_traceback(pack: Path, tmp_path: Path) -> None:
    results = packer_many(
        [
            ["verify", pack],
            ["verify", pack, "--digest"],
            ["verify", pack, "--repair", tmp_path],
            ["export", pack, tmp_path / "out"],
            ["convert", pack, tmp_path / "x.lmdb"],
            ["convert", pack, tmp_path / "x.lmdb", "--on-error", "skip"],
            ["merge", pack, pack, tmp_path / "y.lmdb"],
            ["info", pack],
        ]
    )
    assert [result.returncode for result in results] == [4, 4, 4, 4, 4, 3, 4, 0]
    assert not [result.stderr for result in results if "Traceback" in result.stderr]


@pytest.mark.parametrize("forged", [{"label": 99}, {"label": -7}, {"height": -1, "width": -1}, {"height": 0}])
@pytest.mark.parametrize("codec", ["keep", "raw"])
@pytest.mark.parametrize("recipe", [Recipe(), Recipe("png")], ids=["carried", "encoded"])
def test_rows_that_no_sample_has_are_not_passed_on(
    tmp_path: Path, forged: dict[str, Any], codec: str, recipe: Recipe
) -> None:
    """Their checksums match: the pack was forged, and not damaged."""
    data = bytes(192) if codec == "raw" else photo(1)
    good, bad = Sample("a/good.png", 1, data, 8, 8), replace(Sample("a/bad.png", 0, data, 8, 8), **forged)
    if codec == "raw" and bad.label == 0:
        bad = replace(bad, data=bytes(bad.height * bad.width * 3))
    path = write_pack(tmp_path / "pack.h5", "hdf5", [good, bad], codec=codec)
    for classes, label, copy in [(None, 1, tmp_path / "one.lmdb"), (["b", "a"], 0, tmp_path / "two.lmdb")]:
        with pytest.raises(CorruptPackError, match=r"sample 1 \(a/bad.png\)"):
            convert(pack_source(path, classes=classes), copy, recipe=recipe)
        manifest = convert(pack_source(path, classes=classes), copy, recipe=recipe, on_error="skip").manifest
        assert [entry["name"] for entry in manifest.skipped] == ["a/bad.png"]
        with open_pack(copy) as reader:
            assert (list(reader.names), reader.table.label.tolist()) == (["a/good.png"], [label])
    assert {item.index for item in verify(path)} == {1}
    if codec == "raw" or bad.label != 0:  # else its bytes are a file, whatever size the table gives
        with pytest.raises(CorruptPackError, match="sample 1"):
            export(path, tmp_path / "out")
