"""packer's functions do the same as the commands with their names: same bytes, same messages, same files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import packer
from packer.errors import DestinationError, OptionError, OptionTypeError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.samples import content


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verbs") / "tree"
    draw_imagefolder(root, classes=3, per_class=4, size=(40, 56))
    Image.open(root / "class_00" / "0000.jpg").save(root / "class_01" / "large.png")
    return root


@pytest.fixture(scope="module")
def table(tree: Path) -> Path:
    path = tree.parent / "labels.csv"
    names = sorted(file.relative_to(tree).as_posix() for file in tree.rglob("*.jpg"))
    path.write_text("file;kind\n" + "".join(f"{name};{len(name) + n % 2}\n" for n, name in enumerate(names)))
    return path


def run(*commands: list[Any]) -> list[str]:
    """Run commands of `packer`, all of which must succeed without a word on stderr; return the output of each."""
    results = packer_many(commands)
    assert [(result.returncode, result.stderr) for result in results] == [(0, "")] * len(commands)
    return [result.stdout for result in results]


def words(options: dict[str, Any]) -> list[str]:
    """Return keywords as the options of a command line."""
    line = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        line += [option] if value is True else [option.replace("--", "--no-")] if value is False else [option, value]
    return line


CONVERSIONS: list[tuple[str, dict[str, Any]]] = [
    ("keep.lmdb", {}),
    ("keep.h5", {"limit": 5, "workers": 1}),
    ("keep.pth", {"shard_size": 9000}),
    ("any.bin", {"format": "hdf5", "codec": "raw", "resize": 24, "resize_mode": "crop", "upscale": True}),
    ("small.lmdb", {"resize": 24, "quality": 80, "tiles": False, "interpolation": "bicubic", "exif": "apply"}),
    ("few.lmdb", {"sample": 7}),
    ("smaller.lmdb", {"codec": "jpeg", "quality": 50, "recode": True}),
    ("checked.lmdb", {"audit": "decode", "max_pixels": 10**6, "on_error": "skip"}),
    ("parts.lmdb", {"parts": 3, "resize": 32, "resize_mode": "pad"}),
]


def test_convert_makes_the_bytes_that_the_command_makes(tree: Path, table: Path, tmp_path: Path) -> None:
    ours, commands = tmp_path / "function", tmp_path / "command"
    ours.mkdir()
    commands.mkdir()
    labelled = {"labels": table, "path_column": "file", "label_column": "kind", "delimiter": ";"}
    jobs = [
        *((tree, name, options) for name, options in CONVERSIONS),
        (tree, "labelled.lmdb", labelled),
        (ours / "keep.lmdb", "again.h5", {"classes_from": ours / "keep.pth", "report": tmp_path / "report.jsonl"}),
    ]
    for src, name, options in jobs:
        summary = packer.convert(src, str(ours / name), **options)
        assert summary.destination == ours / name
        assert summary.manifest.count == packer.info(ours / name).samples > 0
    run(*(["convert", src, commands / name, "--quiet", *words(options)] for src, name, options in jobs))
    for _, name, _ in jobs:
        assert content(ours / name) == content(commands / name), name


def test_the_earlier_name_of_audit_still_works(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "a.lmdb", audit="decode")
    run(["convert", tree, tmp_path / "b.lmdb", "--check", "decode", "--quiet"])
    assert content(tmp_path / "a.lmdb") == content(tmp_path / "b.lmdb")
    assert packer.info(tmp_path / "a.lmdb").settings["check"] == "decode"  # manifests keep the earlier name


def test_convert_takes_a_listing_and_reports_progress(tree: Path, tmp_path: Path) -> None:
    run(["scan", tree, tmp_path / "tree.scan", "--quiet"], ["convert", tree, tmp_path / "b.lmdb", "--quiet"])
    seen: list[tuple[int, int]] = []
    packer.convert(tmp_path / "tree.scan", tmp_path / "a.lmdb", progress=lambda p: seen.append((p.done, p.total)))
    packer.convert(tree, tmp_path / "c.lmdb", parts=2, progress=lambda p: seen.append((p.done, p.total)))
    assert len({packer.digest(tmp_path / f"{name}.lmdb") for name in "abc"}) == 1
    assert seen[-1] == (13, 13)
    again = packer.convert(tree, tmp_path / "c.lmdb", parts=2)
    assert (again.continued, again.manifest.count) == (13, 13)


def test_the_other_verbs_are_the_commands(tree: Path, tmp_path: Path) -> None:
    pack, part = tmp_path / "pack.lmdb", tmp_path / "part.h5"
    packer.convert(tree, pack, resize=24)
    other = shutil.copytree(tree, tmp_path / "other")
    for file in other.rglob("*.jpg"):
        file.rename(file.with_stem(f"other-{file.stem}"))
    (other / "class_01" / "large.png").unlink()
    (other / "class_02").rename(other / "class_09")
    packer.convert(other, part, resize=24)
    merged = packer.merge([pack, str(part)], tmp_path / "both.lmdb", classes="union")
    assert merged.manifest.classes == ["class_00", "class_01", "class_02", "class_09"]
    assert packer.export(pack, tmp_path / "files") == 13
    printed = run(
        ["verify", "--digest", "--quiet", pack],
        ["info", "--json", pack],
        ["merge", "--classes", "union", pack, part, tmp_path / "both too.lmdb"],
        ["export", "--quiet", pack, tmp_path / "files too"],
        ["stage", pack, tmp_path / "disk"],
    )
    assert packer.verify(pack) == packer.verify(pack, quick=True) == []
    assert printed[0] == packer.digest(pack) + "\n"
    held, told = packer.info(pack), json.loads(printed[1])
    assert [(row.name, row.samples) for row in held.classes] == [(c["name"], c["samples"]) for c in told["classes"]]
    assert [row.samples for row in held.shorter_side] == [row["samples"] for row in told["shorter_side"]]
    same = told.keys() - {"classes", "shorter_side"}
    assert {name: getattr(held, name) for name in same} == {name: told[name] for name in same}
    assert content(tmp_path / "both.lmdb") == content(tmp_path / "both too.lmdb")
    assert content(tmp_path / "files") == content(tmp_path / "files too")
    assert packer.stage(pack, tmp_path / "disk") == Path(printed[4].rstrip("\n"))
    assert packer.warm(pack) == pack.stat().st_size


def test_repair_is_the_command(tree: Path, tmp_path: Path) -> None:
    pack, copy = tmp_path / "pack.lmdb", tmp_path / "copy.lmdb"
    packer.convert(tree, pack)
    whole = pack.read_bytes()
    photo = (tree / "class_02" / "0001.jpg").read_bytes()
    broken = whole.replace(photo[-300:], bytes(300))
    assert broken != whole
    pack.write_bytes(broken)
    copy.write_bytes(broken)
    assert [damage.name for damage in packer.verify(pack)] == ["class_02/0001.jpg"]
    repaired = packer.repair(pack, tree)
    assert (repaired.samples, repaired.left) == (["class_02/0001.jpg"], [])
    run(["verify", copy, "--repair", tree])
    assert pack.read_bytes() == copy.read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"quality": 80},
            OptionError,
            "^quality= applies only to jpeg and webp: without codec= or resize=, packer stores the files' own bytes$",
        ),
        (
            {"resize_mode": "crop"},
            OptionError,
            "^resize_mode= applies only if images are resized: pass the size with resize=$",
        ),
        ({"upscale": True}, OptionError, "^upscale=True applies only if images are resized"),
        ({"delimiter": ";"}, OptionError, "^delimiter= applies only to a table: pass the table with labels=$"),
        ({"shard_size": 1000}, OptionError, "^shard_size= applies only to formats with several files: .pth"),
        (
            {"parts": 2, "report": "x.jsonl"},
            OptionError,
            "^report= cannot be combined with parts=; `packer info --json` lists",
        ),
        ({"codec": "keep", "resize": 8}, OptionError, "cannot be resized"),
        ({"codec": "png", "tiles": True}, OptionError, "not to codec='png'"),
        ({"resize": 0}, OptionError, "resize must be 1 or more, not 0"),
        ({"resize": "256"}, OptionTypeError, "resize must be a whole number, not '256'"),
        ({"limit": True}, OptionTypeError, "limit must be a whole number, not True"),
        ({"quality": 101, "codec": "jpeg"}, OptionError, "quality must be 1 to 100, not 101"),
        ({"resize": 8, "resize_mode": "fit"}, OptionError, "the mode must be one of"),
        ({"codec": "gif"}, OptionError, "codec must be one of"),
        ({"audit": "deep"}, OptionError, "audit must be one of structure, decode, not 'deep'"),
        ({"exif": "turn"}, OptionError, "exif must be one of"),
        ({"on_error": "ignore"}, OptionError, "on_error must be 'fail' or 'skip'"),
        ({"on_error": None}, OptionError, "^on_error must be 'fail' or 'skip', not None$"),
        ({"on_error": None, "parts": 2}, OptionError, "^on_error must be 'fail' or 'skip', not None$"),
        (
            {"format": "zip"},
            OptionError,
            "format must be one of lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5, parquet, not 'zip'",
        ),
        ({"max_pixels": 10**9}, OptionError, "max_pixels must be 1 to 178956970"),
        ({"labels": "l.csv", "delimiter": ";;"}, OptionError, "delimiter must be one character, not ';;'"),
        ({"labels": "l.csv", "delimiter": 7}, OptionTypeError, "delimiter must be text, not 7"),
        ({"workers": 0}, OptionError, "workers must be 1 or more"),
        ({"parts": 1.5}, OptionTypeError, "parts must be a whole number, not 1.5"),
    ],
)
def test_convert_refuses_what_makes_no_sense(
    options: dict[str, Any], error: type[Exception], message: str, tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as raised:
        packer.convert(tree, tmp_path / "x.lmdb", **options)
    assert raised.type is error
    assert list(tmp_path.iterdir()) == []


def test_convert_refuses_what_does_not_fit_the_source(tree: Path, table: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack.lmdb"
    packer.convert(tree, pack, limit=2)
    with pytest.raises(OptionError, match=r"^labels= cannot be used with .*, which already determines the"):
        packer.convert(pack, tmp_path / "x.lmdb", labels=table)
    with pytest.raises(DestinationError, match=r"exists already\. Choose another name, or pass overwrite=True"):
        packer.convert(tree, pack)
    with pytest.raises(DestinationError, match="the suffix determines the format"):
        packer.convert(tree, tmp_path / "x.zip")
    shutil.copytree(tree, tmp_path / "splits" / "train")
    with pytest.raises(SourceError, match=r"contains splits(?s:.*)\n  packer convert .* --split all\n"):
        packer.convert(tmp_path / "splits", tmp_path / "x.lmdb")
    with pytest.raises(TypeError, match="packs is a sequence of paths"):
        packer.merge(str(pack), tmp_path / "x.lmdb")
    with pytest.raises(ValueError, match="one path or more"):
        packer.merge([], tmp_path / "x.lmdb")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pack.lmdb", "splits"]


def test_merge_judges_options_as_convert_does(photo_tree: Path, tmp_path: Path) -> None:
    pack, out = tmp_path / "pack.lmdb", tmp_path / "out.lmdb"
    packer.convert(photo_tree, pack, limit=2)
    with pytest.raises(OptionError, match=r"^shard_size= applies only to"):
        packer.convert(photo_tree, out, shard_size=5000)
    with pytest.raises(OptionError, match=r"^shard_size= applies only to"):
        packer.merge([pack], out, shard_size=5000)
    with pytest.raises(ValueError, match=r"^classes must be 'same' or 'union', not 'x'$"):
        packer.merge([pack], out, classes="x")
    with pytest.raises(TypeError, match="workers must be a whole number, not 'x'"):
        packer.merge([pack], out, workers="x")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["pack.lmdb"]


def labels_of(tree: Path) -> str:
    """Return a file of labels that names every JPEG of a tree."""
    names = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.jpg"))
    return "path,label\n" + "".join(f"{name},x\n" for name in names)


def test_home_is_found_in_every_path(photo_tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    work = tmp_path / "elsewhere"
    work.mkdir()
    monkeypatch.chdir(work)
    shutil.copytree(photo_tree, tmp_path / "tree")
    (tmp_path / "labels.csv").write_text(labels_of(photo_tree))
    packer.convert("~/tree", "~/a.lmdb", report="~/report.jsonl")
    packer.convert("~/tree", "~/labelled.lmdb", labels="~/labels.csv")
    packer.convert("~/tree", "~/b.lmdb", classes_from="~/a.lmdb", limit=1, parts=1)
    packer.convert("~/a.lmdb", "~/c.h5")
    packer.merge(["~/a.lmdb"], "~/d.lmdb")
    packer.export("~/d.lmdb", "~/exported")
    assert packer.repair("~/d.lmdb", "~/tree").left == []
    arguments = ["convert", "~/tree", "~/e.lmdb", "--limit", "1", "--report", "~/other.jsonl", "--quiet"]
    assert [result.returncode for result in packer_many([arguments, ["verify", "~/e.lmdb"]])] == [0, 0]
    assert os.listdir(work) == []
    made = {"a.lmdb", "b.lmdb", "c.h5", "d.lmdb", "e.lmdb", "labelled.lmdb", "exported", "report.jsonl", "other.jsonl"}
    assert set(os.listdir(tmp_path)) == {"tree", "labels.csv", "elsewhere", *made}


def test_a_report_replaces_nothing_that_is_needed(photo_tree: Path, tmp_path: Path) -> None:
    """The destination of the report is checked before the conversion, and nothing is written."""
    tree, pack, out = tmp_path / "tree", tmp_path / "pack.pth", tmp_path / "out.lmdb"
    shutil.copytree(photo_tree, tree)
    table = tmp_path / "labels.csv"
    table.write_text(labels_of(tree))
    packer.convert(tree, pack)
    before = content(tmp_path)
    refused: list[tuple[Path, Path, dict[str, Path]]] = [
        (tree, tmp_path, {}),
        (tree, tmp_path / "missing" / "report.jsonl", {}),
        (tree, out, {}),
        (tree, next(tree.rglob("*.jpg")), {}),
        (tree, table, {"labels": table}),
        (tree, pack / "manifest.json", {"classes_from": pack}),
        (pack, pack / "manifest.json", {}),
    ]
    for src, report, options in refused:
        with pytest.raises(DestinationError):
            packer.convert(src, out, report=report, **options)  # type: ignore[arg-type]
        assert content(tmp_path) == before
