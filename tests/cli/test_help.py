"""The help of every command: panels with every option once, summaries that fit on one line, examples, plug-ins."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from packer._cli import cli
from packer._cli.options import MOST_USED, OPTIONS, PANELS, panels_of
from packer._conversion.options import GROUPS, ImageOptions, OutputOptions, RunOptions, SourceOptions, options_of
from packer.errors import flag
from tests.command import every_command
from tests.plugins.test_plugins import BROKEN, TOY, install, packer_of

COMMANDS = dict(every_command(cli))
GROUPS_OF_COMMANDS = {"": cli, **{name: one for name, one in cli.commands.items() if isinstance(one, click.Group)}}


def help_of(name: str, command: click.Command) -> list[str]:
    """Return the lines that a terminal of 80 columns shows."""
    settings = {**cli.context_settings, "terminal_width": 80}
    return command.get_help(click.Context(command, info_name=f"packer {name}".rstrip(), **settings)).splitlines()


def panels_in(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each panel by its title: the blocks below a line that ends in a colon."""
    blocks = [block.split("\n") for block in "\n".join(lines).split("\n\n")]
    return {first[:-1]: more for first, *more in blocks if first.endswith(":") and not first.startswith(" ")}


def options_in(lines: list[str]) -> list[str]:
    """Return the words that begin an option's entry in the lines of a panel."""
    found = [re.match(r"  (?:-h, )?(--[\w-]+)(?: / (--[\w-]+))?", line) for line in lines]
    return [word for one in found if one for word in one.groups() if word]


@pytest.mark.parametrize("name", COMMANDS)
def test_panels_have_every_option_once(name: str) -> None:
    command = COMMANDS[name]
    known = [word for one in command.params if isinstance(one, click.Option) and not one.hidden for word in one.opts]
    known += [word for one in command.params if isinstance(one, click.Option) for word in one.secondary_opts]
    panels = panels_in(help_of(name, command))
    shown = [word for lines in panels.values() for word in options_in(lines)]
    assert sorted(shown) == sorted([*known, "--help"])
    titles = [title for title in panels if title in PANELS]
    assert titles == [title for title in PANELS if title in panels]
    assert len(shown) <= 10 or len(titles) > 1


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_is_made_of_sentences(name: str) -> None:
    command = COMMANDS[name]
    lines = help_of(name, command)
    assert max(map(len, lines)) <= 80
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert re.search(r"\.(  \[default[^]]*\])?(  \[repeatable\])?$", option.help or ""), (
                option.name,
                option.help,
            )
            assert re.match(r"[A-Z]|--|[a-z]+: |trivial", option.help or ""), (option.name, option.help)


@pytest.mark.parametrize("name", GROUPS_OF_COMMANDS)
def test_a_summary_stands_whole_on_its_line(name: str) -> None:
    group = GROUPS_OF_COMMANDS[name]
    rows = [line.split(None, 1) for lines in panels_in(help_of(name, group)).values() for line in lines]
    shown = {word: summary for word, summary in rows if word in group.commands}
    assert set(shown) == set(group.commands)
    assert sum(word in group.commands for word, _ in rows) == len(shown)
    for word, summary in shown.items():
        paragraph = " ".join((group.commands[word].help or "").split("\n\n")[0].split())
        assert summary == paragraph
        assert summary.endswith(".")


def test_the_first_screen_of_convert_has_what_most_users_need() -> None:
    lines = help_of("convert", COMMANDS["convert"])
    panels = panels_in(lines)
    first = next(title for title in panels if title in PANELS)
    assert first == MOST_USED
    assert set(options_in(panels[first])) == {
        *("--resize", "--labels", "--split", "--classes-from", "--on-error", "--overwrite")
    }
    assert lines.index(panels[first][-1]) < 30
    assert sum(line.startswith("    packer convert ") for line in lines[:30]) >= 3


def test_the_options_table_decides_the_panels_of_convert() -> None:
    command = COMMANDS["convert"]
    panels = panels_of(command, click.Context(command))
    title_of = {one.opts[0]: title for title, options in panels.items() for one in options}
    for name, option in options_of(SourceOptions, ImageOptions, OutputOptions, RunOptions):
        if name != "split":  # --split is one option of two parameters
            word = flag(name)
            assert title_of[word] == (MOST_USED if option.common else GROUPS[option.group]), name
    assert OPTIONS not in panels


def test_a_broken_plug_in_warns_once(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, {"packer.containers": {**BROKEN, **TOY["packer.containers"]}}, "brokenpack")
    result = packer_of(site, "convert", "--help")
    assert result.returncode == 0
    names = [re.match(r"packer: the plug-in '(\w+)' ", line) for line in result.stderr.splitlines()]
    assert sorted(name[1] for name in names if name) == sorted([*BROKEN, "toy"])
    assert None not in names
    assert "Plug-ins:" not in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["completion", "bash"]])
def test_help_with_plug_ins_imports_no_library(tmp_path: Path, arguments: list[str]) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "light.py").write_text(
        "from packer.plugins import ContainerDescriptor\n"
        "CONTAINER = ContainerDescriptor('light', ('.light',), 'a test', target='light:none')\n"
    )
    install(site, {"packer.containers": {"light": "light:CONTAINER"}}, "lightpack")
    (site / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "libraries = {'numpy', 'torch', 'PIL', 'h5py'}\n"
        "atexit.register(lambda: print('loaded', sorted(libraries & {*sys.modules}), file=sys.stderr))\n"
    )
    result = packer_of(site, *arguments)
    assert (result.returncode, result.stderr) == (0, "loaded []\n")
    assert ("light (.light)" in result.stdout) == (arguments[0] == "convert")
