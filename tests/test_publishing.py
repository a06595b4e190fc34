"""A release: one version everywhere, a conda recipe with the package's requirements, addresses that lead to pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import packer
from packer._cli import cli

ROOT = Path(packer.__file__).parents[1]
CHANGES = ROOT / "CHANGELOG.md"

pytestmark = pytest.mark.skipif(not CHANGES.exists(), reason="needs the repository")


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def test_the_version_and_its_date_are_the_same_everywhere() -> None:
    version, date = re.findall(r"^## \[(\d[\d.]*)\] - (\d{4}-\d\d-\d\d)$", read("CHANGELOG.md"), re.MULTILINE)[0]
    assert version == packer.__version__
    assert re.findall(r"^(?:version|date-released): (.*)$", read("CITATION.cff"), re.MULTILINE) == [version, date]
    assert re.findall(r'^  version: "(.*)"$', read("conda/recipe.yaml"), re.MULTILINE) == [version]
    assert f"\npacker {version}, " in read("docs/install.md")


CONDA = {"torch": "pytorch", "lmdb": "python-lmdb", "pyturbojpeg": "pyturbojpeg"}
"""Names of packages on conda that differ from those on the index."""


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", read("pyproject.toml"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    needs = [Requirement(one) for one in re.findall(r'^    "(.*)",', listed[1], re.MULTILINE)]
    x86 = {"platform_machine": "x86_64", "python_version": "3.12", "sys_platform": "linux"}
    expected = {
        f"{CONDA.get(need.name.lower(), need.name)} {','.join(sorted(map(str, need.specifier), reverse=True))}".strip()
        for need in needs
        if need.marker is None or need.marker.evaluate(x86)
    }
    run = read("conda/recipe.yaml").partition("  run:\n")[2].partition("\n\n")[0]
    assert set(re.findall(r"^    - (\S.*)$", run, re.MULTILINE)) - {"python"} == expected


def test_every_option_that_the_changelog_names_is_there() -> None:
    context = cli.make_context("packer", ["--help"], resilient_parsing=True)
    commands: list[Any] = [cli.get_command(context, name) for name in cli.list_commands(context)]
    commands += [below for command in commands for below in getattr(command, "commands", {}).values()]
    there = {name for command in commands for parameter in command.params for name in parameter.opts}
    there |= {name for command in commands for parameter in command.params for name in parameter.secondary_opts}
    named = set(re.findall(r"--[a-z0-9][a-z0-9-]*", read("CHANGELOG.md")))
    assert len(named) > 15
    assert named - there == set()


def test_a_tag_is_published_by_an_action_that_is_pinned() -> None:
    """A tag of an action can be moved to other code; a commit cannot."""
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", path.read_text("utf-8"))
        assert [one for one in used if not re.fullmatch(r"\./\S+|[\w./-]+@[0-9a-f]{40}", one)] == [], path


def test_every_page_of_the_site_is_in_llms_txt_and_every_address_is_a_page() -> None:
    text: str = runpy.run_path(str(ROOT / "docs" / "llms.py"))["llms"]()
    assert re.match(r"# packer\n\n> ", text)
    addresses = re.findall(r"^- \[[^\]]+\]\((\S+?)\)", text, re.MULTILINE)
    assert len(addresses) == len(re.findall(r"^- ", text, re.MULTILINE)) == len(set(addresses))
    pages = {re.sub(r"^_sources/|\.txt$", "", re.sub(r"html$", "md", address)) for address in addresses}
    assert [page for page in pages if not (ROOT / page).is_file()] == []
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert there - pages == {"docs/index.md"}
