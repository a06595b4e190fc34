"""Messages name options for the command line, and arguments for who calls a function."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import click
import pytest

import packer
from packer import DestinationError, OptionError
from packer._cli import cli
from packer._conversion.request import as_arguments
from tests.making import packer_many, solid


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("Say --on-error skip as before, or --fresh.", "Say on_error='skip' as before, or fresh=True."),
        ("--no-tiles is for JPEGs; --tiles too", "tiles=False is for JPEGs; tiles=True too"),
        ("say to which size with --resize", "say to which size with resize="),
        ("Say --codec jpeg, or leave --tiles out.", "Say codec='jpeg', or leave tiles=True out."),
        ("say --labels FILE.csv.", "say labels='FILE.csv'."),
        ("say --delimiter tab", r"say delimiter='\t'"),
        ("--limit takes the first, --sample from everywhere", "limit= takes the first, sample= from everywhere"),
        ("`packer info --json` and `packer convert --parts`", "`packer info --json` and `packer convert --parts`"),
        ("say:\n  packer convert a b --split all\nor --parts", "say:\n  packer convert a b --split all\nor parts="),
        ("/rc/--workers/none: no such directory", "/rc/--workers/none: no such directory"),
        ("--workers/none: say --fresh", "--workers/none: say fresh=True"),
        ("is '--fresh' or 'a --limit b', packer's (--limit)", "is '--fresh' or 'a --limit b', packer's (limit=)"),
        ("--quality 90 and --delimiter ';'", "quality=90 and delimiter=';'"),
        ("/a/b--fresh/x--limit: --unknown", "/a/b--fresh/x--limit: --unknown"),
    ],
)  # fmt: skip
def test_options_as_arguments(said: str, meant: str) -> None:
    assert as_arguments(said, inspect.signature(packer.convert).parameters) == meant


def test_options_that_are_given_several_times() -> None:
    parameters = inspect.signature(packer.merge).parameters
    assert as_arguments("say: --prefix a --prefix 'b c'", parameters) == "say: prefixes=['a', 'b c']"
    assert as_arguments("--prefix is said once", parameters) == "prefixes= is said once"
    assert as_arguments("Say --classes union to", parameters) == "Say classes='union' to"


def test_each_is_spoken_to_in_its_own_words(tmp_path: Path) -> None:
    solid(tmp_path / "tree" / "a" / "x.png")
    pack = tmp_path / "x.lmdb"
    packer.convert(tmp_path / "tree", pack)
    for function, source in ((packer.convert, pack), (packer.merge, [pack])):
        with pytest.raises(DestinationError, match="say overwrite=True") as caught:
            function(source, pack)
        assert "--" not in str(caught.value)
        with pytest.raises(OptionError, match=r"shard_size= is for"):
            function(source, tmp_path / "y.h5", shard_size=5)
    for name in ("convert", "merge"):
        shown, wrong = packer_many([[name, pack, pack], [name, pack, tmp_path / "y.h5", "--shard-size", "5"]])
        assert "say --overwrite" in shown.stderr
        assert "--shard-size is for" in wrong.stderr


def test_messages_name_options_that_there_are() -> None:
    """Else they were misspelt, and would be translated for nobody."""
    commands = [*cli.commands.values()]
    commands += [
        below for command in commands if isinstance(command, click.Group) for below in command.commands.values()
    ]
    options = {option for one in commands for own in one.params for option in (*own.opts, *own.secondary_opts)}
    named = set()
    for file in Path(packer.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", node.value))
    of_others = {
        "--dereference",
        "--hard-dereference",
        "--sparse",
        "--sort",
        "--encoded",
    }  # of tar and of convert_imageset
    of_others |= {
        "--cpus",
        "--shm-size",
        "--ulimit",
        "--ipc",
        "--cpus-per-task",
        "--query-gpu",
        "--force-reinstall",
        "--no-deps",
    }  # Docker, SLURM, nvidia-smi, pip
    assert named - options - of_others - {"--help", "--version", "--faults"} == set()


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
