"""Export writes the same tree, and nothing outside of it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
import packer._table
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import open_pack
from packer._images.resize import ResizeSpec
from packer._packs.export import export
from packer._sources.imagefolder import imagefolder_source
from packer._sources.table_source import csv_source
from packer._table import Sample
from packer.errors import CorruptPackError, DestinationError, PackerError, PackLockedError
from packer.testing.photos import draw_imagefolder
from tests.command import packer as packer_command
from tests.samples import SUFFIXES, content, noise, solid, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=4, size=(24, 32))
    (root / "class_01b empty").mkdir()
    noise(root / "class_01" / "deep" / "er" / "n.png", 1)
    noise(root / "class_01" / "n.PNG", 2)
    noise(root / "class_02" / "n.bmp", 3)
    noise(root / "class_02" / "n.webp", 4)
    noise(root / "class_02" / "n.png", 5).rename(root / "class_02" / "n.jpg")
    if sys.platform == "linux":
        odd = os.fsencode(root) + b"/caf\xe9\n\x1b[31m"
        os.mkdir(odd)
        with open(odd + b"/\xff .jpg", "wb") as file:
            file.write((root / "class_00" / "0000.jpg").read_bytes())
    return root


@formats
def test_kept_bytes_give_the_identical_tree(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    convert(imagefolder_source(tree), path, options={"shard_size": 5000} if format == "pth" else {})
    calls: list[tuple[int, int]] = []
    written = export(path, tmp_path / "out" / "deep", progress=lambda done, total: calls.append((done, total)))
    assert written == len(imagefolder_source(tree))
    assert calls == [(written, written)]
    assert content(tmp_path / "out" / "deep") == content(tree)
    convert(imagefolder_source(tmp_path / "out" / "deep"), tmp_path / f"again{SUFFIXES[format]}", workers=1)
    with open_pack(path) as before, open_pack(tmp_path / f"again{SUFFIXES[format]}") as after:
        assert before.manifest.source == after.manifest.source
        assert before.manifest.columns["crc32c"] == after.manifest.columns["crc32c"]


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "raw"])
def test_what_was_encoded_has_a_name_of_its_type(tree: Path, tmp_path: Path, codec: str) -> None:
    path = tmp_path / "pack.h5"
    convert(imagefolder_source(tree), path, recipe=Recipe(codec, ResizeSpec(16)))
    export(path, tmp_path / "out")
    endings = {"jpeg": (".jpg", ".jpeg"), "png": (".png",), "webp": (".webp",), "raw": (".png",)}[codec]
    with open_pack(path) as reader:
        files = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()}
        for index, name in enumerate(reader.table.sample_names()):
            file = name if name.lower().endswith(endings) else name + endings[0]
            files.remove(file)
            stored = bytes(reader.read(index))
            with Image.open(tmp_path / "out" / file) as image:
                assert image.format == {"raw": "PNG"}.get(codec, codec.upper())
                assert (image.height, image.width) == (reader.table.height[index], reader.table.width[index])
                if codec == "raw":
                    assert image.convert("RGB").tobytes() == stored
                else:
                    assert (tmp_path / "out" / file).read_bytes() == stored
        assert not files
    assert imagefolder_source(tmp_path / "out").classes == imagefolder_source(tree).classes
    assert imagefolder_source(tmp_path / "out").labels.tolist() == imagefolder_source(tree).labels.tolist()


def test_names_that_meet_after_encoding(tmp_path: Path) -> None:
    """``x.jpg`` would be exported as ``x.jpg.png``, which is already the name of another image."""
    noise(tmp_path / "tree" / "a" / "x.jpg", 1)
    noise(tmp_path / "tree" / "a" / "x.jpg.png", 2)
    convert(imagefolder_source(tmp_path / "tree"), tmp_path / "x.lmdb", recipe=Recipe("png"))
    export(tmp_path / "x.lmdb", tmp_path / "out")
    drawn, exported = (
        {file.name: np.array(Image.open(file)).tolist() for file in (tmp_path / tree / "a").iterdir()}
        for tree in ("tree", "out")
    )
    assert exported == {"x.jpg.png": drawn["x.jpg.png"], "x.jpg-1.png": drawn["x.jpg"]}


@formats
def test_labels_that_do_not_follow_from_names(tmp_path: Path, format: str) -> None:
    root = tmp_path / "root"
    names = ["x.png", "dir/y.png", "cat/z.png", 'quo"te, .png']
    for seed, name in enumerate(names):
        noise(root / name, seed)
    table = tmp_path / "labels.csv"
    quoted = [name.replace('"', '""') for name in names]
    table.write_text(
        "path,label\n" + "".join(f'"{n}","{v}"\n' for n, v in zip(quoted, ["dog", "cat", "dog", "a,b"], strict=True))
    )
    source = csv_source(root, table)
    convert(source, tmp_path / f"pack{SUFFIXES[format]}")
    export(tmp_path / f"pack{SUFFIXES[format]}", tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in names} == {
        name: (root / name).read_bytes() for name in names
    }
    again = csv_source(tmp_path / "out", tmp_path / "out" / "labels.csv")
    assert (list(again.names), again.labels.tolist(), again.classes) == (
        list(source.names),
        source.labels.tolist(),
        source.classes,
    )
    assert not (tmp_path / "out" / "dog").exists()


def test_numbers_as_labels_keep_their_ids(tmp_path: Path) -> None:
    for name in "xy":
        noise(tmp_path / "root" / f"{name}.png", 1)
    (tmp_path / "l.csv").write_text("path,label\nx.png,7\ny.png,2\n")
    source = csv_source(tmp_path / "root", tmp_path / "l.csv")
    convert(source, tmp_path / "pack.lmdb")
    export(tmp_path / "pack.lmdb", tmp_path / "out")
    again = csv_source(tmp_path / "out", tmp_path / "out" / "labels.csv")
    assert (again.labels.tolist(), again.classes) == ([7, 2], source.classes)


def test_an_image_called_labels_csv(tmp_path: Path) -> None:
    noise(tmp_path / "root" / "x.png", 1).rename(tmp_path / "root" / "labels.csv")
    (tmp_path / "l.csv").write_text("path,label\nlabels.csv,7\n")
    convert(csv_source(tmp_path / "root", tmp_path / "l.csv"), tmp_path / "pack.lmdb")
    export(tmp_path / "pack.lmdb", tmp_path / "out")
    files = [file for file in (tmp_path / "out").iterdir() if file.read_bytes()[1:4] == b"PNG"]
    assert [file.read_bytes() for file in files] == [(tmp_path / "root" / "labels.csv").read_bytes()]


def test_where_export_goes(tree: Path, tmp_path: Path) -> None:
    convert(imagefolder_source(tree), tmp_path / "pack.lmdb")
    solid(tmp_path / "full" / "x.png")
    with pytest.raises(DestinationError, match="not empty"):
        export(tmp_path / "pack.lmdb", tmp_path / "full")
    assert list(content(tmp_path / "full")) == ["x.png"]
    with pytest.raises(DestinationError, match="cannot be written"):
        export(tmp_path / "pack.lmdb", tmp_path / "full" / "x.png")
    (tmp_path / "empty").mkdir()
    export(tmp_path / "pack.lmdb", tmp_path / "empty")
    assert content(tmp_path / "empty") == content(tree)
    export(tmp_path / "pack.lmdb", tmp_path / "empty")  # again, which changes nothing
    assert content(tmp_path / "empty") == content(tree)
    (tmp_path / "trap").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "trap" / "class_00").symlink_to("../elsewhere", target_is_directory=True)
    with pytest.raises(DestinationError, match="not empty"):
        export(tmp_path / "pack.lmdb", tmp_path / "trap")
    assert not list((tmp_path / "elsewhere").iterdir())
    (tmp_path / "dangling").symlink_to("nowhere/at/all")
    with pytest.raises(DestinationError):
        export(tmp_path / "pack.lmdb", tmp_path / "dangling")


def photo(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)).save(stream, "png")
    return stream.getvalue()


def samples(*names: str) -> list[Sample]:
    return [Sample(name, 0, photo(number), 8, 8) for number, name in enumerate(names)]


@formats
@pytest.mark.parametrize(
    "name",
    [
        "../x.png",
        "/etc/x.png",
        "a/../../x.png",
        "a/..",
        "..",
        ".",
        "",
        "a/",
        "/",
        "a//x.png",
        "./x.png",
        "a\x00.png",
        "a/ok.png",
        "~/../../x",
        "a/\x00",
    ],
)
def test_names_that_lead_elsewhere(tmp_path: Path, format: str, name: str) -> None:
    path = write_pack(tmp_path / f"pack{SUFFIXES[format]}", format, samples("a/ok.png", "a/fine.png", name))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CorruptPackError, match="cannot be exported") as caught:
        export(path, tmp_path / "out")
    assert caught.value.index == 2
    assert str(caught.value).isprintable()
    assert sorted(os.listdir(tmp_path)) == before  # not even the directory


@pytest.mark.parametrize("codec", ["png", "jpeg", "raw"])
def test_suffixes_do_not_hide_such_names(tmp_path: Path, codec: str) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/ok.png", ".."), codec=codec)
    with pytest.raises(CorruptPackError, match=r"cannot be exported \(\.\.\)"):
        export(path, tmp_path / "out" / "deep")
    assert os.listdir(tmp_path) == ["pack.lmdb"]


@pytest.mark.parametrize("bad", ["../x", "/x", "a/b", "..", "", "a\0b"])
def test_classes_that_are_no_directories_are_written_down(tmp_path: Path, bad: str) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/x.png"), classes=["a", bad])
    export(path, tmp_path / "deep" / "out")
    written = [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()]
    assert sorted(written) == ["deep/out/a/x.png", "deep/out/labels.csv", "pack.lmdb"]
    assert sorted(os.listdir(tmp_path)) == ["deep", "pack.lmdb"]


def test_a_class_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/x.png"), classes=["a", "\ud800"])
    with pytest.raises(PackerError):
        export(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("x/a", "x/a/b.jpg"), "another sample's file is x/a, which would be its directory"),
        (("x/a/b/c/d.jpg", "x/0", "x/a"), "another sample's file is x/a"),
        (("x/a", "x/" + "é" * 128 + "/b"), "more than 255 bytes"),
        (
            ("x/a", "x/" + "/".join(["d" * 200] * 25)),
            r"its path has more than \d+ bytes; export to a directory with a shorter",
        ),
    ],
    ids=["below a file", "deep below a file", "long part", "long path"],
)
@pytest.mark.skipif(os.name == "nt", reason="other limits")
def test_names_that_cannot_become_files_are_refused_before_the_first_is_written(
    tmp_path: Path, names: tuple[str, ...], problem: str
) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples(*names))
    with pytest.raises(CorruptPackError, match=problem):
        export(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("taken", ["labels.csv/x.png", "LABELS.csv"])
def test_labels_get_a_name_that_no_file_and_no_directory_has(tmp_path: Path, taken: str) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples(taken, "y.png"))
    for _ in range(2):
        assert export(path, tmp_path / "out") == 2
        assert {name for name, data in content(tmp_path / "out").items() if data} == {taken, "y.png", "labels-1.csv"}


@pytest.mark.parametrize("label", [5, -1, -(2**63)])
def test_labels_that_are_no_class(tmp_path: Path, label: int) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", [Sample("a/x.png", label, photo(0), 8, 8)], classes=["a"])
    with pytest.raises(CorruptPackError):
        export(path, tmp_path / "out")


@pytest.mark.parametrize("codec", ["keep", "jpeg", "raw"])
def test_two_samples_of_one_name(tmp_path: Path, codec: str) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/x.png", "a/y.png", "a/x.png"), codec=codec)
    with pytest.raises(CorruptPackError, match=r"a/x\.png.*same name") as caught:
        export(path, tmp_path / "out")
    assert caught.value.index == 2
    assert not (tmp_path / "out").exists()


def test_labels_of_more_samples_than_are_written_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packer._table, "_BLOCK", 3)
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples(*(f"{number}.png" for number in range(10))))
    export(path, tmp_path / "out")
    rows = (tmp_path / "out" / "labels.csv").read_bytes().decode().split("\r\n")
    assert rows == ["path,label", *(f"{number}.png,a" for number in range(10)), ""]


def test_raw_pixels_that_do_not_fill_their_image(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", [Sample("a/x.png", 0, bytes(190), 8, 8)], codec="raw")
    with pytest.raises(CorruptPackError, match="190 bytes are not 8 x 8 pixels"):
        export(path, tmp_path / "out")


def test_of_two_exports_at_a_time_the_second_is_refused(tmp_path: Path) -> None:
    """Otherwise the second would remove files that the first is writing, as parts of an interrupted export."""
    path, out = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/x.png", "a/y.png")), tmp_path / "out"
    refused: list[tuple[int, str]] = []

    def export_again(done: int, total: int) -> None:
        with pytest.raises(PackLockedError, match="out: another process is exporting to this directory"):
            export(path, out)
        again = packer_command("export", path, out)
        refused.append((again.returncode, again.stderr))

    assert export(path, out, progress=export_again) == 2
    assert refused == [(5, f"packer: {out}: another process is exporting to this directory\n")]
    assert {name for name, data in content(out).items() if data is not None} == {"a/x.png", "a/y.png"}
    assert export(path, out) == 2


def test_a_file_of_the_name_of_the_lock_is_never_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "packer-export.lock").write_bytes(b"of somebody")
    with pytest.raises(DestinationError, match=r"not empty, and packer-export\.lock does not belong"):
        export(write_pack(tmp_path / "pack.lmdb", "lmdb", samples("a/x.png")), out)
    assert content(out) == {"packer-export.lock": b"of somebody"}
    path = write_pack(tmp_path / "own.lmdb", "lmdb", samples("a/x.png", "packer-export.lock"))
    for _ in range(2):
        assert export(path, tmp_path / "own") == 2
        assert {*os.listdir(tmp_path / "own")} == {"a", "labels.csv", "packer-export.lock"}


@formats
def test_damage_is_not_exported(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    convert(imagefolder_source(tree), path)
    with open_pack(path) as reader:
        data, name = bytes(reader.read(3)), reader.table.sample_names()[3]
    (file,) = (f for f in [path, *path.rglob("*")] if f.is_file() and data in f.read_bytes())
    file.write_bytes(file.read_bytes().replace(data, data[:-9] + bytes(9)))
    with pytest.raises(CorruptPackError, match="sample 3"):
        export(path, tmp_path / "out")
    assert not (tmp_path / "out" / name).exists()


def test_names_that_a_spreadsheet_would_run_come_back(tmp_path: Path) -> None:
    """`labels.csv` does not escape names that begin like formulas: otherwise the same pack could not be made again."""
    names = ["=c()", "+1", "-1", "@x", "\tx", "'=c()", '"=c()"', "=1,2"]
    image = solid(tmp_path / "a.png").read_bytes()
    samples = [{"image": image, "label": place, "name": f"{name}.png"} for place, name in enumerate(names)]
    made, again, tree = tmp_path / "a.lmdb", tmp_path / "b.lmdb", tmp_path / "tree"
    packer.pack(iter(samples), made, classes=names)
    packer.export(made, tree)
    packer.convert(tree, again, labels=tree / "labels.csv", classes_from=made)
    with open_pack(made) as first, open_pack(again) as second:
        assert sorted(zip(first.names, first.table.label, strict=True)) == sorted(
            zip(second.names, second.table.label, strict=True)
        )
