"""Advice in messages: it names options of the command that gives it, and following it leads to images."""

from __future__ import annotations

import re
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path

import click
import h5py
import numpy as np
import pytest

import packer
from packer._cli import cli
from packer._measuring.bench import ways
from packer.errors import OptionTypeError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.command import every_command, packer as run_packer, packer_many
from tests.containers.lmdbs import write_lmdb

COMMANDS = {
    "convert": ["convert", "SRC", "OUT/new.lmdb"],
    "index": ["index", "SRC", "OUT/new.index"],
    "scan": ["scan", "SRC", "OUT/new.scan"],
    "estimate": ["estimate", "SRC", "OUT/new.lmdb", "--seconds", "0.1"],
    "info": ["info", "SRC"],
    "verify": ["verify", "SRC"],
}
SOURCES = [
    "splits",
    "splits/*",
    "splits/train/*",
    "flat",
    "empty",
    "photos.zip",
    "photos.h5",
    "photos_lmdb",
    "noise.lmdb",
    "of spaces",
]
IMPOSSIBLE = ["empty", "noise.lmdb"]
"""Sources without images, for which no advice leads anywhere."""

_LINE = re.compile(r"`packer ((?:convert|index) [^`\n]+)`|^ +packer (\w+ .+)$", re.MULTILINE)
_PLACE = re.compile(r"Pass (?:one of them|the directory that contains all files): (.+)$", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")
_OWN_LINE = re.compile(r"`packer [^`]*`|^ +packer .*$|Try `.*", re.MULTILINE)
_STEPS = 4  # from the first command to images


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for split in ("train", "val"):
        draw_imagefolder(root / "splits" / split, classes=2, per_class=2, size=(40, 48))
    draw_imagefolder(root / "of spaces" / "train", classes=2, per_class=2, size=(40, 48))
    (root / "flat").mkdir()
    (root / "empty").mkdir()
    with zipfile.ZipFile(root / "photos.zip", "w") as archive:
        for number, image in enumerate(sorted((root / "splits" / "train").glob("*/*"))):
            archive.write(image, f"{image.parent.name}/{image.name}")
            (root / "flat" / f"{number}{image.suffix}").write_bytes(image.read_bytes())
    photos = [path.read_bytes() for path in sorted((root / "flat").iterdir())]
    write_lmdb(root / "photos_lmdb", [(f"{n:03d}".encode(), photo) for n, photo in enumerate(photos)], subdir=True)
    with h5py.File(root / "photos.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((4, 40, 48, 3), np.uint8), np.arange(4)
    (root / "noise.lmdb").write_bytes(bytes(range(1, 200)) * 50)
    return root


def options_of(name: str) -> set[str]:
    command = dict(every_command(cli))[name]
    options = [one for one in command.params if isinstance(one, click.Option)]
    return {word for one in options for word in (*one.opts, *one.secondary_opts)}


def advised(line: Sequence[str], message: str, out: Path) -> list[str] | None:
    """Return the next command line of a user who follows the advice of a message; None if there is none."""
    if found := _LINE.search(message):
        words = shlex.split(found[1] or found[2])
        src, dst = line[1] if words[1] == "SRC" else words[1], out / f"named{Path(words[2]).suffix}"
        return [words[0], src, str(dst), *words[3:]]
    if found := _PLACE.search(message):
        return [line[0], found[1], *line[2:]]
    if "pass --unlabeled" in message and "--unlabeled" not in line:
        return [*line, "--unlabeled"]
    return None


@pytest.mark.parametrize("source", SOURCES)
def test_following_the_advice_leads_to_images(sources: Path, tmp_path: Path, source: str) -> None:
    parts = {"SRC": str(sources / source)}
    lines = {}
    for name, words in COMMANDS.items():
        (tmp_path / name).mkdir()
        lines[name] = [parts.get(word, word.replace("OUT", str(tmp_path / name))) for word in words]
    if "*" in source:  # these commands take the name of one pack, and no pattern
        del lines["info"], lines["verify"]
    for _ in range(_STEPS):
        results = packer_many(lines.values())
        for (name, line), result in zip(list(lines.items()), results, strict=True):
            assert result.returncode in (0, 1, 2, 4), (line, result.stderr)
            named = set(_OPTION.findall(_OWN_LINE.sub("", result.stderr)))
            assert named <= options_of(line[0]), (line, result.stderr)
            following = advised(line, result.stderr, tmp_path / name) if result.returncode else None
            if following is None:
                assert result.returncode == 0 or source in IMPOSSIBLE, (line, result.stderr)
                del lines[name]
            else:
                lines[name] = following
        if not lines:
            return
    assert source in IMPOSSIBLE, lines


def test_bench_refuses_splits_and_directories_without_classes(sources: Path) -> None:
    with pytest.raises(SourceError, match=r"contains splits \(train, val\), not classes\. Pass one of them: .*train$"):
        list(ways({"splits": str(sources / "splits")}, None))
    assert list(ways({"train": str(sources / "splits" / "train")}, None))
    for name in ("empty", "flat"):
        result = run_packer("bench", sources / name)
        assert result.returncode == 1
        assert not _OPTION.search(result.stderr)
        assert f"`packer convert {sources / name} OUT.lmdb`" in result.stderr


def test_a_dataset_in_place_names_a_split_that_can_be_opened(sources: Path) -> None:
    with pytest.raises(SourceError) as raised:
        packer.open_dataset(sources / "splits")
    (split,) = _PLACE.findall(str(raised.value))
    assert len(packer.open_dataset(split)) == 4


def test_a_container_is_named_for_its_commands(sources: Path) -> None:
    assert "`packer index" in run_packer("info", sources / "photos.zip").stderr
    for other in ("photos.h5", "photos_lmdb"):
        result = run_packer("verify", sources / other)
        assert result.returncode == 1
        assert "It may be a file of another tool" in result.stderr
    result = run_packer("info", sources / "noise.lmdb")
    assert "not a file of another tool that packer reads" in result.stderr
    assert "packer index" not in result.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda: packer.open_dataset(None),  # type: ignore[arg-type]
        lambda: packer.LMDBImageDataset(None),  # type: ignore[arg-type]
        lambda: packer.info(3),  # type: ignore[arg-type]
        lambda: packer.convert(None, "x.lmdb"),  # type: ignore[arg-type]
        lambda: packer.estimate(None),  # type: ignore[arg-type]
    ],
)
def test_another_type_than_a_path_is_refused_with_what_to_pass(call: object) -> None:
    with pytest.raises(
        OptionTypeError, match=r"a path must be a string such as 'train\.lmdb', or a pathlib\.Path, not"
    ):
        call()  # type: ignore[operator]


def test_a_loader_of_a_path_names_the_function_that_opens_it() -> None:
    with pytest.raises(OptionTypeError, match=r"pass packer\.open_dataset\('a\.lmdb'\)"):
        packer.Loader("a.lmdb", 32)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("info a b", "packer: b: too many arguments for `packer info [OPTIONS] PACK`"),
        ("info a b c", "packer: b c: too many arguments for `packer info [OPTIONS] PACK`"),
        ("convert --nosuch", "packer: --nosuch: no such option"),
        ("convert --resise", "packer: --resise: no such option; did you mean --resize?"),
    ],
)
def test_mistakes_on_the_command_line(line: str, message: str) -> None:
    result = run_packer(*line.split())
    assert (result.returncode, result.stderr.splitlines()[0]) == (2, message)


def test_a_format_may_be_named_by_its_suffix(sources: Path, tmp_path: Path) -> None:
    packer.convert(sources / "splits" / "train", tmp_path / "pack", format="h5")
    assert packer.info(tmp_path / "pack").format == "hdf5"


def test_messages_count_and_name_once(sources: Path, tmp_path: Path) -> None:
    (tmp_path / "tree" / "only").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"in its 1 directory$"):
        packer.convert(tmp_path / "tree", tmp_path / "x.lmdb")
    known, other = tmp_path / "known.lmdb", tmp_path / "other"
    packer.convert(sources / "splits" / "train", known)
    draw_imagefolder(other, classes=3, per_class=1, size=(40, 48))
    made = packer.convert(other, tmp_path / "y.lmdb", classes_from=known, on_error="skip").manifest
    assert [entry["reason"] for entry in made.skipped] == ["its class class_02 is not one of the given classes"]
    images = sorted(path.relative_to(other).as_posix() for path in other.glob("*/*"))
    rows = "".join(f'{name}," {name.partition("/")[0]}"\n' for name in images)
    (tmp_path / "labels.csv").write_text(f"path,label\n{rows}")
    noted = packer.convert(other, tmp_path / "z.lmdb", labels=tmp_path / "labels.csv").notes
    assert any("3 labels, such as ' class_00': the spaces around them are part" in note for note in noted)
