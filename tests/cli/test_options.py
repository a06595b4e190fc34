"""The command line's choices are the library's, and an option that would have no effect is refused."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from pathlib import Path

import click
import pytest

import packer
from packer._cli import EXIT_STATUS, cli
from packer._cli.convert import convert_command
from packer._codecs import CODECS, INTERPOLATIONS, MAX_PIXELS, RESIZE_MODES
from packer._conversion.options import AUDITS, EXIF_POLICIES
from packer._conversion.recipe import Recipe
from packer._conversion.resume import setting_differences
from packer._images.resize import ResizeSpec
from packer.errors import recorded
from packer.testing.photos import draw_imagefolder
from tests.command import every_command, packer_many, python


def test_choices_and_defaults_are_the_librarys() -> None:
    options = {option.name: option for option in convert_command.params}
    for name, values in {
        "resize_mode": RESIZE_MODES,
        "interpolation": INTERPOLATIONS,
        "codec": tuple(CODECS),
        "exif": EXIF_POLICIES,
        "audit": AUDITS,
    }.items():
        choice = options[name].type
        assert isinstance(choice, click.Choice)
        assert tuple(choice.choices) == tuple(values)
    for name in ("exif", "audit"):
        assert options[name].default == getattr(Recipe(), name)
    assert options["max_pixels"].type.most == MAX_PIXELS  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["bench", "tune", "estimate"])
def test_defaults_of_measurements_are_those_of_the_functions(name: str) -> None:
    signature = inspect.signature(getattr(packer, name)).parameters
    options = (one for one in cli.commands[name].params if isinstance(one, click.Option) and one.show_default)
    defaults = {one.name: one.default for one in options if one.name in signature}
    assert "seconds" in defaults
    assert defaults == {word: signature[str(word)].default for word in defaults}


def test_the_help_of_doctor_names_the_defaults_of_the_functions() -> None:
    from packer._measuring.train_hook import profile_training

    training, disk = (inspect.signature(function).parameters for function in (profile_training, packer.doctor))
    helps = {one.name: one.help for one in cli.commands["doctor"].params if isinstance(one, click.Option)}
    assert str(helps["steps"]).endswith(f"[default: {training['steps'].default}]")
    seconds = [one["seconds"].default for one in (disk, training)]
    assert str(helps["seconds"]).endswith(f"[default: {seconds[0]:g}; with --train {seconds[1]:g}]")


OF_SOURCES = {
    "--limit 5 --sample 5": "pass only one of them",
    **{f"--{name} x": "pass the table with --labels" for name in ("path-column", "label-column", "delimiter")},
    "--label-type int": "pass the table with --labels",
    "--suffix .jpg": "pass the table with --labels",
    "--no-header": "pass the table with --labels",
    "--column caption:text": "pass the table with --labels",
    "--field mask": "pass NAME=TEMPLATE",
    "--on-missing null --no-metadata": "--on-missing has no effect without fields",
    "--no-classes --label-type int --labels l.csv": "--no-classes ignores all labels",
    "--labels l.csv --any-image": "--any-image applies only to directories",
    "--labels l.csv --extensions .gif": "--extensions applies only to directories",
    "--coco c.json --voc d": "pass only one of them",
    "--voc d --yolo d.yaml --masks": "pass only one of them",
    "--key image=jpg": "--key applies only to containers",
}
"""What `index` and `scan` refuse."""

NEEDS = {
    "convert": {
        "--path-column x": "pass the table with --labels",
        "--label-column x": "pass the table with --labels",
        "--delimiter tab": "pass the table with --labels",
        "--label-type int": "pass the table with --labels",
        "--suffix .jpg": "pass the table with --labels",
        "--no-header": "pass the table with --labels",
        "--strict --on-error skip": "pass only one of them",
        "--labels l.csv --any-image": "--any-image applies only to directories",
        "--labels l.csv --extensions .gif": "--extensions applies only to directories",
        "--column caption:text": "pass the table with --labels",
        "--column caption --labels l.csv": "has no kind",
        "--field mask": "pass NAME=TEMPLATE",
        "--on-missing null --no-metadata": "--on-missing has no effect without fields",
        "--no-classes --label-type int --labels l.csv": "--no-classes ignores all labels",
        "--resize-mode crop": "--resize",
        "--upscale": "--resize",
        "--limit 5 --sample 5": "pass only one of them",
        "--where label==0": "--where selects samples of a pack",
        "--interpolation bicubic": "--resize",
        "--quality 80": "--quality applies only to jpeg and webp",
        "--codec png --quality 80": "--quality applies only to jpeg and webp",
        "--recode": "--recode encodes all files again, as jpeg, png, webp",
        "--to-8-bit clip": "--to-8-bit applies only to images that are encoded",
        "--codec keep --to-8-bit file": "--to-8-bit applies only to images that are encoded",
        "--codec raw --recode": "--recode encodes all files again, as jpeg, png, webp",
        "--codec png --tiles": "--tiles applies only to JPEGs",
        "--codec keep --resize 8": "keep",
        "--shard-size 1MB": "--shard-size applies only to formats with several files: .pth",
        "--part 0": "--parts",
        "--cluster local:1": "--parts",
        "--jobs 1": "--parts",
        "--scratch .": "--parts",
        "--parts 2 --jobs 1": "--jobs is for --cluster",
        "--parts 2 --scratch .": "--scratch is for --part and --cluster",
        "--parts 2 --part 0 --cluster local:1": "pass only one of them",
        "--parts 2 --part 0 --fresh": "--fresh would delete",
        "--parts 2 --report r.jsonl": "--report cannot be combined with --parts",
        "--parts 2 --split all": "--parts is for one split",
        "--split all --labels l.csv": "--labels is for one split",
        "--split train --coco c.json": "--coco is for one split",
        "--voc d --split train --split val": "one split at a time",
        "--yolo d.yaml --split all": "one split at a time",
        "--coco c.json --labels l.csv": "--labels and --coco cannot be combined",
        "--yolo d.yaml --classes-from x.lmdb": "--classes-from and --yolo cannot be combined",
        "--masks": "pass --coco too",
        "--key image=jpg": "--key applies only to containers",
        "--key image": "expected NAME=KEY",
    },
    "index": {
        **OF_SOURCES,
        "--strict --on-error skip": "pass only one of them",
        "--base d": "leave out OUT.index",
    },
    "scan": OF_SOURCES,
    "doctor": {"--steps 3": "--steps is for --train"},
    "merge": {
        "--shard-size 1MB": "--shard-size applies only to formats with several files: .pth",
        **{
            f"--finish {option}": "--finish takes only DST"
            for option in ("--classes union", "--prefix a", "--workers 1", "--shard-size 1MB", "--overwrite", "--fresh")
        },
    },
    "verify": {
        "--quick --digest": "--quick reads none",
        "--quick --repair photos": "--quick reads none",
        "--with liblmdb --repair photos": "repair the pack first",
    },
}
"""What would decide nothing, by command, with a part of the message."""

ALONE = {
    "convert": "format split unlabeled labels classes-from limit resize codec no-tiles exif audit check max-pixels "
    "on-error report workers parts overwrite fresh ignore-free-space quiet json-progress cache-dir cache-size timeout "
    "skip-hidden allow-empty strict",
    "index": "skip-hidden allow-empty strict unlabeled labels classes-from exif no-checksums on-error overwrite quiet "
    "json-progress",
    "scan": "skip-hidden allow-empty strict unlabeled labels classes-from limit overwrite quiet json-progress",
    "merge": "classes prefix finish workers overwrite fresh quiet json-progress cache-dir cache-size timeout",
    "append": "labels path-column label-column delimiter label-type unlabeled extensions any-image where limit sample "
    "suffix no-header skip-hidden allow-empty strict "
    "resize resize-mode upscale interpolation codec recode to-8-bit quality tiles no-tiles exif audit max-pixels "
    "on-error report workers shard-size fresh ignore-free-space quiet json-progress field column on-missing no-classes "
    "no-metadata coco masks voc yolo key",  # as for convert
    "verify": "quick digest repair workers quiet json-progress with cache-dir cache-size timeout",
    "info": "json classes plot json-progress cache-dir cache-size timeout",
    "export": "quiet json-progress cache-dir cache-size timeout",
    "stage": "quiet json-progress cache-dir cache-size timeout",
    "unstage": "all-versions quiet json-progress",
    "warm": "quiet json-progress cache-dir cache-size timeout",
    "estimate": "format unlabeled labels classes-from limit sample resize resize-mode upscale interpolation codec "
    "recode to-8-bit quality tiles no-tiles exif audit max-pixels on-error report workers parts shard-size overwrite "
    "fresh "
    "where field column on-missing no-classes no-metadata coco masks voc yolo key path-column label-column delimiter "
    "label-type suffix no-header extensions any-image skip-hidden allow-empty ignore-free-space json-progress json "
    "jobs seconds split strict",  # most as for convert
    "completion": "",
    "cache info": "json json-progress",
    "cache clear": "url quiet json-progress",
    "view": "port no-browser html quiet json-progress cache-dir cache-size timeout",
    "doctor": "train seconds json json-progress",
    "bench": "batch images seconds threads recipe plot json quiet json-progress",
    "tune": "batch step-ms seconds recipe json quiet json-progress",
}
"""The options that need no other one, and are none another one's."""


def test_settings_that_changed_are_called_by_their_options() -> None:
    """The differences are listed when an unfinished conversion is continued with other settings."""
    options = {option for own in convert_command.params for option in own.opts}
    before = Recipe("jpeg", ResizeSpec(256)).settings()
    now = Recipe("webp", ResizeSpec(224, "pad", True, "bicubic"), 80, "apply", "decode", 10**6, False, True).settings()
    lines = list(map(recorded, setting_differences({"recipe": before}, {"recipe": now})))
    assert "--resize was 256 and is now 224" in lines
    assert "--resize-mode was short and is now pad" in lines
    assert {line.split()[0] for line in lines} <= options
    assert len(lines) == len(now) - 1 + len(now["resize"])


def test_every_option_needs_others_or_none() -> None:
    for name, known in every_command(cli):
        options = {option for parameter in known.params for option in [*parameter.opts, *parameter.secondary_opts]}
        needy = {word for line in NEEDS.get(name, {}) for word in line.split() if word.startswith("--")}
        alone = {f"--{option}" for option in ALONE[name].split()}
        assert {option for option in options if option.startswith("--")} == needy | alone, name


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw_imagefolder(root := tmp_path_factory.mktemp("options") / "photos", classes=2, per_class=2, size=(16, 16))
    packer_many([["convert", root, root.with_name("pack.lmdb")]])
    return root


@pytest.mark.parametrize("name", NEEDS)
def test_an_option_that_would_decide_nothing_is_refused(photos: Path, tmp_path: Path, name: str) -> None:
    pack, out = photos.with_name("pack.lmdb"), tmp_path / "out.lmdb"
    paths = {
        "convert": [photos, out],
        "index": [photos, out.with_suffix(".index")],
        "scan": [photos, out],
        "doctor": [],
        "merge": [pack, out],
        "verify": [pack],
    }
    places = {line: [out] if "--finish" in line else paths[name] for line in NEEDS[name]}
    results = packer_many([name, *places[line], *line.split()] for line in NEEDS[name])
    for (line, message), result in zip(NEEDS[name].items(), results, strict=True):
        assert result.returncode == EXIT_STATUS["usage"], (line, result)
        assert message in result.stderr, (line, result.stderr)
    assert not list(tmp_path.iterdir())


def test_a_time_without_an_end_is_refused() -> None:
    lines = ["estimate x --seconds inf", "bench x --seconds nan", "tune x --step-ms inf", "doctor --seconds nan"]
    for line, result in zip(lines, packer_many(line.split() for line in lines), strict=True):
        assert result.returncode == EXIT_STATUS["usage"], (line, result)
        assert "is not a number above 0" in result.stderr, (line, result.stderr)


ON_TERMINAL = """
import os, runpy, sys
terminal = os.open(sys.argv.pop(1), os.O_RDWR | os.O_NOCTTY)
for stream in 1, 2:
    os.dup2(terminal, stream)
sys.stdout, sys.stderr = (open(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
os.close(terminal)
sys.argv[0] = "packer"
runpy.run_module("packer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal that can be read")
@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "{tree}", "x.lmdb", "--extensions", ".a{bad}"],
        ["convert", "{tree}", "x.lmdb", "--bad{bad}"],
        ["convert", "{tree}", "x.lmdb", "--split", "{bad}"],
        ["convert", "{tree}", "x{bad}.odd"],
        ["convert", "{tree}{bad}", "x.lmdb"],
        ["convert", "{tree}", "x.lmdb", "--parts", "1", "--cluster", "tcp://{bad}"],
        ["convert", "{tree}", "x.lmdb", "--limit", "{bad}"],
        ["merge", "{bad}", "x.lmdb", "--classes", "{bad}"],
        ["{bad}"],
    ],
)
def test_words_of_the_command_line_never_steer_the_terminal(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test writes to a terminal, because click removes escape sequences from any other output."""
    import pty

    (tmp_path / "tree" / "a").mkdir(parents=True)
    words = [word.format(tree=tmp_path / "tree", bad="\x1b[2J\x07") for word in arguments]
    master, terminal = pty.openpty()
    monkeypatch.chdir(tmp_path)
    status = python(ON_TERMINAL, os.ttyname(terminal), *words, check=False).returncode
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # Linux raises it once nobody has the terminal open
        while piece := os.read(master, 1 << 16):
            shown += piece
    os.close(master)
    assert status != 0
    assert b"packer" in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert b"Traceback" not in shown


def test_a_pattern_that_a_shell_wrote_out_is_to_be_quoted() -> None:
    lines = {
        "index a.tar b.tar c.index": "c.index: too many paths",
        "convert a.tar b.tar c.tar d.lmdb": "c.tar and 1 more: too many paths",
        "estimate a.tar b.tar c.lmdb": "c.lmdb: too many paths",
        "scan a.tar b.tar c.scan": "c.scan: too many paths",
        "append train.lmdb a.tar b.tar": "b.tar: too many paths",
    }
    for line, result in zip(lines, packer_many([line.split() for line in lines]), strict=True):
        assert result.returncode == EXIT_STATUS["usage"]
        assert f"packer: {lines[line]}. Put a pattern in quotes, such as 'shards/*.tar'" in result.stderr
