"""The pages of docs/ as a site, its plots, and the pages in Chinese beside those in English."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import packer
from tests.test_docs import CHINESE

LOADED = r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]*\""
"""What a browser loads from another host."""

ROOT = Path(packer.__file__).parents[1]


def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    """A page may link to other hosts; nothing that a browser loads by itself may lie there."""
    for name in ("sphinx", "furo", "myst_parser", "sphinx_click", "sphinx_copybutton"):
        pytest.importorskip(name, reason="needs the site's generator: pip install 'packer-images[docs]'")
    line = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", str(tmp_path / "trees")]
    built = subprocess.run([*line, ".", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= 30
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"([^\"]*)\"", page.read_text("utf-8")
        )
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == [], page
    listed = re.findall(r"^- \[[^\]]+\]\((\S+?)\)", (tmp_path / "site" / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert len(listed) >= 30
    assert [address for address in listed if not (tmp_path / "site" / address).is_file()] == []
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", style.read_text("utf-8")), style


def test_the_plots_are_those_of_the_tables() -> None:
    plots = runpy.run_path(str(ROOT / "docs" / "plots.py"))["plots"]()
    for name, drawing in plots.items():
        drawn = (ROOT / "docs" / "pictures" / name).read_text("utf-8")
        assert drawn == drawing, f"{name} is of other tables: run python docs/plots.py"


def test_the_reference_has_every_public_name() -> None:
    """Those of `packer.errors` and `packer.samplers` are there as a whole."""
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    there = {*re.findall(r"^\.\. auto(?:class|function):: (\w+)$", page, re.MULTILINE), "__version__"}
    assert set(packer.__all__) - there - {*packer.errors.__all__, *packer.samplers.__all__} == set()


def code(page: Path) -> list[str]:
    """Return the blocks of a page without their comments."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [without_comments(language, block) for language, block in blocks]


def without_comments(language: str, block: str) -> str:
    if language != "python":
        return "\n".join(re.sub(r"(^| +)# .*", "", line).rstrip() for line in block.splitlines())
    words = tokenize.generate_tokens(io.StringIO(block).readline)
    return " ".join(word.string for word in words if word.type != tokenize.COMMENT)


def cells(page: Path) -> list[tuple[list[str], list[str]]]:
    """Return the code and the numbers of each row of the tables of a page."""
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    return [(re.findall(r"`[^`]*`", row), re.findall(r"\d[\d.]*", row.replace(",", ""))) for row in rows]


@pytest.mark.parametrize(("chinese", "english"), CHINESE.items())
def test_a_page_in_chinese_has_the_code_and_the_figures_of_the_english_one(chinese: str, english: str) -> None:
    assert code(ROOT / chinese) == code(ROOT / english)
    for theirs, ours in zip(cells(ROOT / chinese), cells(ROOT / english), strict=True):
        assert [sorted(part) for part in theirs] == [sorted(part) for part in ours]
