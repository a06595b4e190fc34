"""Messages name options on the command line, and arguments in Python."""

from __future__ import annotations

import dataclasses
import pickle
import re
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

import packer
from packer import DestinationError, ImageError, OptionError
from packer._cli import cli
from packer._conversion import options
from packer.errors import message_of, option, recorded, spelled
from tests.command import packer_many
from tests.samples import solid


@pytest.mark.parametrize(
    ("name", "value", "argument", "words"),
    [
        ("on_error", "skip", "on_error='skip'", "--on-error skip"),
        ("fresh", True, "fresh=True", "--fresh"),
        ("tiles", False, "tiles=False", "--no-tiles"),
        ("no_header", True, "no_header=True", "--no-header"),
        ("resize", None, "resize=", "--resize"),
        ("quality", 90, "quality=90", "--quality 90"),
        ("path_column", "1", "path_column='1'", "--path-column 1"),
        ("delimiter", "tab", r"delimiter='\t'", "--delimiter tab"),
        ("delimiter", "';'", "delimiter=';'", "--delimiter ';'"),
        ("fields", "'m={stem}.png'", "fields='m={stem}.png'", "--field 'm={stem}.png'"),
        ("columns", None, "columns=", "--column"),
        ("prefixes", ["a", "b c"], "prefixes=['a', 'b c']", "--prefix a --prefix 'b c'"),
        ("labels", "a⟩¦.csv", "labels='a??.csv'", "--labels a??.csv"),
    ],
)
def test_an_option_is_spelled_for_each_face(name: str, value: Any, argument: str, words: str) -> None:
    message = f"say {option(name, value)} or ⟨not⟩"
    assert spelled(message) == f"say {argument} or ⟨not⟩"
    assert recorded(message) == f"say {words} or ⟨not⟩"


def test_an_error_is_spelled_where_it_is_shown() -> None:
    error = OptionError(f"say {option('fresh', True)}")
    for shown in (str(error), f"{error}", str(pickle.loads(pickle.dumps(error)))):
        assert shown == "say fresh=True"
    assert repr(error) == "OptionError('say fresh=True')"
    assert recorded(message_of(error)) == "say --fresh"
    of_image = ImageError(f"say {option('codec', 'png')}", "a.jpg")
    assert of_image.reason == "say codec='png'"
    assert str(of_image) == "a.jpg: say codec='png'"
    assert recorded(message_of(of_image)) == "a.jpg: say --codec png"


def test_records_are_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    """Manifests name options even if a function made the pack, because commands print them."""
    solid(tmp_path / "tree" / "a" / "x.png")
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "tree" / "a" / "y.png")
    with pytest.raises(ImageError, match=r"pass to_8_bit='clip' \(cut"):
        packer.convert(tmp_path / "tree", tmp_path / "x.lmdb", codec="png")
    summary = packer.convert(tmp_path / "tree", tmp_path / "y.lmdb", codec="png", on_error="skip")
    assert "pass --to-8-bit clip (cut" in summary.manifest.skipped[0]["reason"]


def test_each_is_spoken_to_in_its_own_words(tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "a" / "x.png")
    pack, there = tmp_path / "x.lmdb", tmp_path / "there.lmdb"
    packer.convert(tmp_path / "tree", pack)
    there.touch()
    for function, source in ((packer.convert, pack), (packer.merge, [pack])):
        with pytest.raises(DestinationError, match="pass overwrite=True") as caught:
            function(source, there)
        assert "--" not in str(caught.value)
        with pytest.raises(OptionError, match=r"shard_size= applies only to"):
            function(source, tmp_path / "y.h5", shard_size=5)
    for name in ("convert", "merge"):
        shown, wrong = packer_many([[name, pack, there], [name, pack, tmp_path / "y.h5", "--shard-size", "5"]])
        assert "pass --overwrite" in shown.stderr
        assert "--shard-size applies only to" in wrong.stderr


def test_messages_name_options_that_there_are() -> None:
    """A misspelt option in any string of packer fails this test."""
    commands = [*cli.commands.values()]
    commands += [
        below for command in commands if isinstance(command, click.Group) for below in command.commands.values()
    ]
    known = {option for one in commands for own in one.params for option in (*own.opts, *own.secondary_opts)}
    kinds = [one for one in vars(options).values() if dataclasses.is_dataclass(one) and isinstance(one, type)]
    fields = {name for kind in kinds for name, _ in options.options_of(kind)} | {"library"}
    named, mentioned = set(), set()
    for file in Path(packer.__file__).parent.rglob("*.py"):
        mentioned |= set(re.findall(r"""\boption\(\s*['"](\w+)""", file.read_text()))
        for text in _strings(SourceFileLoader("module", str(file)).get_code("module")):
            named |= set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))
    assert len(mentioned) > 40
    assert mentioned - fields == set()
    of_others = {
        "--dereference",
        "--hard-dereference",
        "--sparse",
        "--sort",
        "--encoded",
    }  # of tar and convert_imageset
    of_others |= {
        "--cpus",
        "--shm-size",
        "--ulimit",
        "--ipc",
        "--cpus-per-task",
        "--query-gpu",
        "--force-reinstall",
        "--no-deps",
    }  # of Docker, SLURM, nvidia-smi and pip
    assert len(named & known) > 50
    assert named - known - of_others - {"--help", "--version", "--faults", "--no-"} == set()


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings of compiled code; Python keeps it in a file, so that reading it takes less than parsing."""
    if isinstance(value, str):
        yield value
    if isinstance(value, CodeType):
        value = value.co_consts
    for inner in value if isinstance(value, tuple | frozenset) else ():
        yield from _strings(inner)


def test_what_the_caller_gave_is_quoted_as_it_was_given(tmp_path: Path) -> None:
    for name in ("--workers", "a --fresh b", "x (--limit)"):
        with pytest.raises(packer.SourceError) as caught:
            packer.convert(tmp_path / name / "none", tmp_path / "x.lmdb")
        assert str(caught.value).startswith(f"{tmp_path / name}/none: no such")
        solid(tmp_path / name / "tree" / "a" / f"{name}.png")
        (tmp_path / name / "tree" / "a" / f"{name}.png").write_bytes(b"none")
        with pytest.raises(packer.PackerError, match=re.escape(f"a/{name}.png: not an image")):
            packer.convert(tmp_path / name / "tree", tmp_path / f"{name}.lmdb")
    with pytest.raises(OptionError, match=r"^prefixes='\.\.': "):
        packer.merge([tmp_path / "x.lmdb"], tmp_path / "y.lmdb", prefixes=[".."])
