"""The pages of docs/ as a site, its plots, and the Chinese pages compared with the English ones."""

from __future__ import annotations

import io
import re
import runpy
import tokenize
from pathlib import Path
from typing import Any

import pytest

import packer
from tests.command import python
from tests.test_docs import CHINESE

ROOT = Path(packer.__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the site, which was built without a warning."""
    for name in ("sphinx", "furo", "myst_parser", "sphinx_click", "sphinx_copybutton"):
        pytest.importorskip(name, reason="needs the site's generator: pip install 'packer-images[docs]'")
    target = tmp_path_factory.mktemp("built")
    # Collecting garbage, of which there is little, takes 40 % of the time.
    code = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    options = ["-q", "-W", "--keep-going", "-c", ROOT / "docs", "-d", target / "trees"]
    built = python(code, *options, ROOT, target / "site", check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return target / "site"


def test_the_site_asks_no_other_host(site: Path) -> None:
    """A page may link to other hosts, but a browser must load nothing from them."""
    pages = list(site.rglob("*.html"))
    assert len(pages) >= 30
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=\"([^\"]*)\"", page.read_text("utf-8")
        )
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == [], page
    listed = re.findall(r"^- \[[^\]]+\]\((\S+?)\)", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert len(listed) >= 30
    assert [address for address in listed if not (site / address).is_file()] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", style.read_text("utf-8")), style


WIDTHS = 390, 1280
WIDE = """
() => [document.documentElement, ...document.querySelectorAll("pre")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent.slice(0, 60))
"""


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_code_is_wider_than_its_column(browser: Any, site: Path) -> None:
    """A long line is wrapped below its indentation; copied text has no line break there."""
    page = browser.new_page(java_script_enabled=False)  # scripts move nothing, and take a quarter of the time
    widths = [*WIDTHS]
    for file in sorted({*site.rglob("*.html")} - {site / "index.html"}):  # it redirects to another page
        page.goto(file.as_uri())
        widths.reverse()  # the page has the width of the previous one: each width is laid out once
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(WIDE) == [], (file, width)
    page.goto((site / "docs" / "frameworks.html").as_uri())
    block = next(text for text in code(ROOT / "docs" / "frameworks.md") if "create_optimizer_v2" in text)
    shown = page.eval_on_selector_all("pre", "all => all.map((one) => one.textContent)")
    words = re.findall(
        r"\w+", without_comments("python", next(text for text in shown if "create_optimizer_v2" in text))
    )
    assert words == re.findall(r"\w+", block)
    lines = "all => all.filter((one) => one.clientHeight > 30).map((one) => [one.textContent, one.clientHeight])"
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.eval_on_selector_all("pre .line", lines), "no line was too long for the column"
    page.close()


def test_the_plots_are_those_of_the_tables() -> None:
    plots = runpy.run_path(str(ROOT / "docs" / "plots.py"))["plots"]()
    for name, drawing in plots.items():
        drawn = (ROOT / "docs" / "pictures" / name).read_text("utf-8")
        assert drawn == drawing, f"{name} is of other tables: run python docs/plots.py"


def test_the_best_bar_of_a_plot_comes_first() -> None:
    plots = runpy.run_path(str(ROOT / "docs" / "plots.py"))["plots"]()
    for name, drawing in plots.items():
        rates = [float(rate.replace(",", "")) for rate in re.findall(r">([\d,.]+)</text>", drawing)]
        assert len(rates) > 2
        assert rates == sorted(rates, reverse=name != "opening.svg"), name


def test_the_plot_of_the_readme_shows_each_tool_at_its_best() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]*) \| ([\d,]+) \| [\d,]* \|$", page.split("### Images with masks")[0], re.MULTILINE)
    drawing = (ROOT / "docs" / "pictures" / "reading.svg").read_text("utf-8")
    for tool in ("FFCV", "DALI", "torchvision", "LitData", "MosaicML", "WebDataset"):
        rates = [int(rate.replace(",", "")) for name, rate in rows if name.startswith(tool)]
        drawn = re.findall(rf">{tool}[^<]*</text>\n<rect[^>]*>\n<text[^>]*>([\d,]+)<", drawing)
        assert [int(rate.replace(",", "")) for rate in drawn] == [max(rates)]


def test_the_reference_has_every_public_name() -> None:
    """`packer.errors` and `packer.samplers` are documented as whole modules."""
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
