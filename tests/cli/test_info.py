"""`packer info`."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

from packer._codecs import RESIZE_MODES
from packer._conversion.convert import convert
from packer._conversion.options import AUDITS, EXIF_POLICIES
from packer._conversion.recipe import Recipe
from packer._conversion.words import settings_in_words
from packer._images.resize import ResizeSpec
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.testing.photos import draw_imagefolder
from tests.command import command, packer, packer_many
from tests.samples import SUFFIXES, solid, write_pack

formats = pytest.mark.parametrize("format", SUFFIXES)


@formats
def test_what_it_says(tmp_path: Path, format: str) -> None:
    root, path = tmp_path / "root", tmp_path / f"pack{SUFFIXES[format]}"
    draw_imagefolder(root, classes=2, per_class=2, size=(300, 400))
    solid(root / "class_01" / "z.png", size=(20, 700))
    (root / "class_02").mkdir()
    convert(imagefolder_source(root, allow_empty=True), path, recipe=Recipe("webp", ResizeSpec(250)))
    result = packer("info", path)
    assert (result.returncode, result.stderr) == (0, "")
    for part in (
        f"{format} pack, schema 1",
        "5 samples, 3 classes",
        "WEBP of quality 90",
        "the shorter side resized to 250 pixels (bilinear; smaller images not enlarged)",
        "EXIF orientation ignored, as ImageFolder ignores it",
        "images were checked by type, header, size and end",
        "class_01  3",
        "class_02  0",
    ):
        assert part in result.stdout
    assert [line.split()[-1] for line in result.stdout.splitlines() if "█" in line] == ["1", "4"]
    result = packer("info", path, "--json")
    facts = json.loads(result.stdout)
    assert result.returncode == 0
    assert (facts["format"], facts["samples"], facts["codec"]) == (format, 5, "webp")
    assert facts["classes"] == [
        {"name": f"class_{label:02d}", "samples": number} for label, number in enumerate([2, 3, 0])
    ]
    assert facts["shorter_side"] == [{"from": 0, "below": 32, "samples": 1}, {"from": 224, "below": 256, "samples": 4}]
    files = [path] if path.is_file() else list(path.iterdir())
    assert facts["bytes"] == sum(file.stat().st_size for file in files)
    assert facts["settings"]["resize"]["size"] == 250


def test_settings_of_a_stranger_are_shown_as_they_are() -> None:
    assert settings_in_words({}, "keep") == ["the files' own bytes"]
    for settings in (
        {"codec": "other", "exif": "turn", "resize": {"size": 3}, "quality": 90},
        {"codec": [1], "exif": {"a": 1}, "check": None, "resize": 7, "recode": [], "max_pixels": {}, "more": 1},
        {"resize": {"size": 3, "mode": [], "upscale": 1, "interpolation": 2}},
    ):
        words = settings_in_words(settings, "png")
        assert words[0] == "PNG"
        assert words[1:] == [f"{name} {value}" for name, value in settings.items() if name != "quality"]


def test_every_setting_has_words() -> None:
    for resize in (None, *(ResizeSpec(20, mode, upscale) for mode in RESIZE_MODES for upscale in (False, True))):
        for exif, audit in itertools.product(EXIF_POLICIES, AUDITS):
            settings = Recipe("jpeg", resize, exif=exif, audit=audit, max_pixels=10**6, recode=True).settings()
            words = settings_in_words(settings, "jpeg")
            assert not [line for line in words if line.split()[0] in settings], words


def test_many_classes(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / "root" / f"class {number:04d} with a name that fills the pipe").mkdir(parents=True)
    solid(tmp_path / "root" / "class 1999 with a name that fills the pipe" / "x.png")
    path = tmp_path / "x.lmdb"
    convert(imagefolder_source(tmp_path / "root", allow_empty=True), path)
    short, long = packer("info", path).stdout, packer("info", path, "--classes").stdout
    assert "1,992 more (--classes lists all)" not in long
    assert "1992 more (--classes lists all)" in short.replace(",", "")
    assert "class 1999" in short
    assert "class 0004" in short
    assert "class 0005" not in short
    assert sum("class " in line and "fills" in line for line in long.splitlines()) == 2000
    for arguments in (["info", path, "--classes"], ["info", path, "--json"]):
        with subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()  # as `head -1` does
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode in (0, 1)
    reader, writer = os.pipe()
    os.close(reader)
    result = packer("info", path, stdout=writer, capture_output=False, stderr=subprocess.PIPE)
    os.close(writer)
    assert result.stderr == ""


@formats
def test_a_strangers_pack_writes_nothing_to_the_terminal(tmp_path: Path, format: str) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\nsecond line"
    path = write_pack(
        tmp_path / f"pack{SUFFIXES[format]}",
        format,
        [Sample(f"a/{evil}", 0, b"x", 1, 1), Sample("../x", 9, b"x", -1, 2**31 - 1)],
        classes=[evil, "b\ud800"],
        settings={evil: evil, "codec": {evil: evil}},
        versions={evil: evil},
        findings={evil: 1},
        skipped=[{"name": evil, "reason": evil}],
    )
    lines = [["info", path], ["info", path, "--json"], ["verify", path], ["export", path, tmp_path / "out"]]
    for result in packer_many(lines):
        assert result.returncode in (0, 1, 4)
        assert "Traceback" not in result.stderr, result.args
        assert "\x1b" not in result.stdout + result.stderr, result.args
        assert "\nsecond line" not in result.stdout + result.stderr, result.args


STRANGE = [
    {"skipped": [{}]},
    {"skipped": ["x"]},
    {"skipped": {"a": 1}},
    {"findings": []},
    {"findings": {"CMYK": "many"}},
    {"versions": "1.0"},
    {"classes": [1, None]},
    {"settings": {"codec": []}},
]


def test_manifests_of_a_stranger(tmp_path: Path) -> None:
    """`packer info` shows the manifest or refuses the pack; there is no traceback."""
    sample = Sample("a/x", 0, b"x", 1, 1)
    paths = [write_pack(tmp_path / f"{n}.lmdb", "lmdb", [sample], **m) for n, m in enumerate(STRANGE)]  # type: ignore[arg-type]
    results = packer_many(["info", path] for path in paths)
    wrong = [(m, r.stderr[-100:]) for m, r in zip(STRANGE, results, strict=True) if "Traceback" in r.stderr]
    assert wrong == []
    assert {result.returncode for result in results} <= {0, 4}


def test_what_is_no_pack(tmp_path: Path) -> None:
    (tmp_path / "text.lmdb").write_text("x" * 100)
    (tmp_path / "dir.pth").mkdir()
    names = ("text.lmdb", "dir.pth", "missing.h5", "mis\x1bsing.h5")
    lines = [["info"], ["info", "--json"], ["verify"], ["export", tmp_path / "out"]]
    for result in packer_many([verb, tmp_path / name, *rest] for name in names for verb, *rest in lines):
        verb, path = result.args[:2]
        # To `verify`, an existing path with the suffix of a pack is a damaged pack.
        assert result.returncode == (4 if verb == "verify" and Path(path).exists() else 1)
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"packer: {tmp_path}/")
        assert line.isprintable()
    assert not (tmp_path / "out").exists()


def test_samples_of_no_class_are_counted(tmp_path: Path) -> None:
    path = write_pack(tmp_path / "x.lmdb", "lmdb", [Sample(f"a/{label}", label, b"x", 1, 1) for label in (0, 99, -7)])
    shown, as_json = packer_many([["info", path], ["info", path, "--json"]])
    assert "2 samples whose label is not a class: `packer verify` names them" in shown.stdout
    assert json.loads(as_json.stdout)["without_class"] == 2
