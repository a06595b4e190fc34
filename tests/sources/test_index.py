"""An index of a source agrees with a conversion of it."""

from __future__ import annotations

import os
import shutil
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer._formats.index import move_index
from packer._sources import index as indexing
from packer._storage import system
from packer._table import Sample
from packer.errors import DestinationError, ImageError, OptionError
from packer.testing.photos import draw_imagefolder
from tests.images.samples import encoded, oriented, photo
from tests.samples import content

FIELDS = ["mask=../masks/{stem}.png", "depth:array=../depth/{stem}.npy", "caption:text=../text/{stem}.txt"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree of photos; next to the tree are masks, arrays and texts for each photo."""
    root = tmp_path / "photos"
    draw_imagefolder(root, classes=2, per_class=3, size=(40, 56))
    for number, file in enumerate(sorted(root.rglob("*.jpg"))):
        file = file.rename(file.with_stem(f"{number:02d}"))
        for beside in ("masks", "depth", "text"):
            (tmp_path / beside).mkdir(exist_ok=True)
        with Image.open(file) as image:
            Image.new("L", image.size, number).save(tmp_path / "masks" / f"{file.stem}.png")
        np.save(tmp_path / "depth" / f"{file.stem}.npy", np.arange(number, dtype=np.float32))
        (tmp_path / "text" / f"{file.stem}.txt").write_text(f"Nº {number}")
    return root


def bag(path: Path, images: list[bytes]) -> Path:
    ends = np.cumsum([len(data) for data in images]).tolist()
    path.write_bytes(b"".join(images) + struct.pack(f"<{len(ends)}Q", *ends))
    return path


def held(path: Path) -> list[Sample]:
    with packer.open_pack(path) as reader:
        return [
            Sample(
                reader.names[index],
                reader.table.label[index].item(),
                bytes(reader.read(index)),
                int(reader.table.height[index]),
                int(reader.table.width[index]),
                tuple(None if (v := reader.value(index, name)) is None else v for name in reader.fields),
            )
            for index in range(len(reader))
        ]


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("fields", [[], FIELDS], ids=["images", "fields"])
def test_it_has_the_samples_and_the_digest_of_a_pack(
    fields: list[str], checksums: bool, tree: Path, tmp_path: Path
) -> None:
    index, pack = tmp_path / "x.index", tmp_path / "x.lmdb"
    packer.index(tree, index, fields=fields, checksums=checksums)
    packer.convert(tree, pack, fields=fields)
    assert held(index) == held(pack)
    assert packer.digest(index) == packer.digest(pack)
    assert packer.verify(index) == []


@pytest.mark.parametrize("fields", [[], FIELDS], ids=["images", "fields"])
def test_python_makes_the_same_index_without_c(
    fields: list[str], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "class_00" / "turned.jpg").write_bytes(oriented(photo(40, 56), 6)) if not fields else None
    bags = bag(tmp_path / "x.bag", [file.read_bytes() for file in sorted(tree.rglob("*.jpg"))])
    sources = [(tree, {"fields": fields})] if fields else [(tree, {}), (bags, {})]
    for exif in ("ignore", "apply"):
        for src, options in sources:
            for checksums in (True, False):
                found = []
                for compiled in (indexing.CAN_SURVEY, False):
                    monkeypatch.setattr(indexing, "CAN_SURVEY", compiled)
                    path = tmp_path / "x.index"
                    packer.index(src, path, exif=exif, checksums=checksums, overwrite=True, **options)
                    found.append(content(path))
                    monkeypatch.undo()
                assert found[0] == found[1]


def test_files_that_several_samples_share_are_listed_once(tree: Path, tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    for name in ("class_00", "class_01"):
        (tmp_path / "text" / f"{name}.txt").write_text(name)
    packer.index(tree, index, fields=["caption:text=../text/{class}.txt"])
    assert packer.info(index).files == 8
    assert packer.verify(index) == []
    assert {sample.fields for sample in held(index)} == {(b"class_00",), (b"class_01",)}


def test_an_image_that_cannot_be_read_is_left_out_or_refused(tree: Path, tmp_path: Path) -> None:
    (tree / "class_01" / "bad.jpg").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"bad\.jpg"):
        packer.index(tree, tmp_path / "x.index")
    with pytest.raises(OptionError, match=r"^on_error must be 'fail' or 'skip', not None$"):
        packer.index(tree, tmp_path / "x.index", on_error=None)  # type: ignore[arg-type]
    assert not os.path.lexists(tmp_path / "x.index")
    for checksums in (True, False):
        summary = packer.index(tree, tmp_path / f"{checksums}.index", on_error="skip", checksums=checksums)
        assert [entry["name"] for entry in summary.manifest.skipped] == ["class_01/bad.jpg"]
        assert len(held(summary.destination)) == 6
        assert packer.verify(summary.destination) == []
        assert packer.digest(summary.destination) == packer.digest(
            packer.convert(tree, tmp_path / f"{checksums}.lmdb", on_error="skip").destination
        )


def test_what_is_unusual_about_images_is_counted_as_by_a_conversion(odd_tree: Path, tmp_path: Path) -> None:
    for checksums in (True, False):
        index = packer.index(odd_tree, tmp_path / f"{checksums}.index", on_error="skip", checksums=checksums)
        pack = packer.convert(odd_tree, tmp_path / f"{checksums}.lmdb", on_error="skip")
        counted = {what: pack.manifest.findings.get(what) for what in index.manifest.findings}
        assert index.manifest.findings == counted
        assert {"CMYK", "EXIF-rotated"} <= counted.keys()
        assert index.manifest.skipped == pack.manifest.skipped


def test_a_source_of_many_blocks_comes_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read on several threads, regardless of this machine's processors; the first block is finished last."""
    monkeypatch.setattr(system, "available_cpus", lambda: 5)
    block, last_is_read = indexing.Survey.block, threading.Event()

    def block_in_turn(self: indexing.Survey, rows: range) -> indexing.Surveyed:
        assert rows.start or last_is_read.wait(60)
        found = block(self, rows)
        if rows.stop == 3000:
            last_is_read.set()
        return found

    monkeypatch.setattr(indexing.Survey, "block", block_in_turn)
    few = [encoded(Image.new("RGB", (1 + number, 3)), "PNG") for number in range(40)]
    images = [few[number % 40] for number in range(3000)]
    index = tmp_path / "x.index"
    packer.index(bag(tmp_path / "x.bag", images), index)
    with packer.open_pack(index) as reader:
        assert reader.table.width.tolist() == [1 + number % 40 for number in range(3000)]
        assert bytes(reader.read(2999)) == images[2999]
    assert packer.verify(index) == []


def test_four_at_once_make_one_whole_index(tree: Path, tmp_path: Path) -> None:
    """One of four threads makes the index; the others are refused, and leave no files."""
    outcomes: list[object] = []

    def make() -> None:
        try:
            outcomes.append(packer.index(tree, tmp_path / "x.index"))
        except DestinationError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(outcome, DestinationError) for outcome in outcomes) == [False, True, True, True]
    assert packer.verify(tmp_path / "x.index") == []
    assert [name for name in os.listdir(tmp_path) if "partial" in name] == []


def test_an_index_that_another_one_made_meanwhile_stays(tree: Path, tmp_path: Path) -> None:
    other, mine = tmp_path / "other.index", tmp_path / "x.index"
    packer.index(tree, other)

    def meanwhile(done: int, total: int) -> None:
        if not mine.exists():
            shutil.copytree(other, mine)

    with pytest.raises(DestinationError, match="exists already"):
        packer.index(tree, mine, progress=meanwhile)
    assert content(mine) == content(other)
    assert [name for name in os.listdir(tmp_path) if "partial" in name] == []


def test_a_pack_needs_no_index(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "x.lmdb")
    packer.index(tree, tmp_path / "x.index")
    for pack in ("x.lmdb", "x.index"):
        with pytest.raises(OptionError, match="is already a pack"):
            packer.index(tmp_path / pack, tmp_path / "y.index")


@pytest.mark.parametrize("parts", [None, 2])
def test_what_is_made_of_an_index_is_what_is_made_of_its_images(parts: int | None, tree: Path, tmp_path: Path) -> None:
    packer.index(tree, tmp_path / "x.index", fields=FIELDS)
    direct = packer.convert(tree, tmp_path / "direct.lmdb", fields=FIELDS).destination
    through = packer.convert(tmp_path / "x.index", tmp_path / "through.lmdb", parts=parts).destination
    assert held(through) == held(direct)
    assert packer.digest(through) == packer.digest(direct)
    merged = packer.merge([tmp_path / "x.index", direct], tmp_path / "m.lmdb", prefixes=["a", "b"]).destination
    assert len(held(merged)) == 12
    packer.export(tmp_path / "x.index", tmp_path / "again")
    for file in tree.rglob("*.jpg"):
        (again,) = (tmp_path / "again").rglob(file.name)
        assert again.read_bytes() == file.read_bytes()


def test_a_stage_of_an_index_brings_the_files(tree: Path, tmp_path: Path) -> None:
    index = packer.index(tree, tmp_path / "x.index", fields=FIELDS).destination
    expected = held(index)
    staged = packer.stage(index, tmp_path / "fast")
    assert packer.stage(index, tmp_path / "fast") == staged
    assert packer.info(index).bytes < packer.warm(index) == packer.warm(staged)
    for place in ("photos", "masks", "text"):
        shutil.rmtree(tmp_path / place)
    assert held(staged) == expected
    assert packer.verify(staged) == []
    with pytest.raises(DestinationError, match="contains its files itself"):
        move_index(staged, tmp_path)
    with pytest.raises(packer.PackError, match="is missing"):
        packer.warm(index)
