"""How the pages become a site: `scripts/docs` calls Sphinx with this file.

Sphinx with furo and MyST, because they are released regularly, read the Markdown that GitHub shows, and take the
reference from docstrings and from the commands. Material for MkDocs, the other choice, gets no features since November
2025 and ends in 2027, and MkDocs below it has no releases.

The sources begin at the repository's root, so that a link from a page to ``../formats.md`` is the same on GitHub and in
the site. The pages are made for people without a network: nothing in them comes from another host.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import llms
from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge

import packer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import click
    from sphinx.application import Sphinx

project = "packer"
author = "packer's authors"
project_copyright = author
version = release = packer.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_click", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "README.md",
    "README.zh.md",
    "formats.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # the pages begin at the level that GitHub shows best

highlight_language = "none"  # of what does not say its own
smartquotes = False  # of --options
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types in words
autodoc_default_options = {"members": True}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False  # types are words here, and no names to link to
napoleon_use_rtype = False

pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "packer"
html_static_path = ["static"]
html_css_files = ["packer.css"]
html_extra_path = ["extra"]
html_copy_source = True  # llms.txt leads to the Markdown
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}


class Lines(HtmlFormatter):
    """Each line of code as an element of its own, which wraps below its indentation where the column is too narrow."""

    def wrap(self, source: Any) -> Any:
        return super().wrap(self._lines(source))

    def _lines(self, source: Any) -> Iterator[tuple[int, str]]:
        for is_code, line in source:
            text = re.sub(r"<[^>]*>", "", line)
            indent = len(text) - len(text.lstrip(" "))
            # A browser breaks at spaces alone, and long calls have none.
            broken = re.sub(r"(<[^>]*>|(?<![0-9])\.|[([/])", _after, line)
            yield is_code, f'<span class="line" style="--indent: {indent}ch">{broken}</span>' if is_code else line


def _after(found: re.Match[str]) -> str:
    """Let a line break after punctuation, but not in a tag."""
    return found[0] if found[0].startswith("<") else f"{found[0]}<wbr>"


PygmentsBridge.html_formatter = Lines


def setup(app: Sphinx) -> None:
    """Have the help of the commands read as plain text, and dashes as dashes; write llms.txt."""
    app.connect("autodoc-process-docstring", _dashed, priority=600)  # after napoleon
    for part in ("description", "options", "arguments"):
        app.connect(f"sphinx-click-process-{part}", _plain)
    app.connect("sphinx-click-process-options", _in_panels)
    app.connect("build-finished", _llms)


def _llms(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        (Path(app.outdir) / "llms.txt").write_text(llms.llms(), "utf-8")


def _dashed(*event: Any) -> None:
    """Set the dash between a parameter and its words, which napoleon leaves to smart quotes."""
    lines = event[-1]
    lines[:] = [line.replace(" -- ", " – ", 1) for line in lines]


def _plain(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Show the examples in a help text as code, and its asterisks as asterisks."""
    plain: list[str] = []
    for line in lines:
        example, inside = line.startswith("| "), bool(plain) and plain[-1].startswith("    ")
        plain += ["", "::", ""] if example and not inside else [""] if inside and not example else []
        plain.append(f"    {line[2:]}" if example else re.sub(r"(?<!\*)\*(?!\*)", r"\*", line))
    lines[:] = plain


def _in_panels(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Put the title of its panel before the first option of each panel, as in the help of the command."""
    from packer._cli.options import OPTIONS, panels_of

    panels = panels_of(context.command, context)
    titles = {options[0].opts[0]: title for title, options in panels.items() if title != OPTIONS}
    grouped: list[str] = []
    for line in lines:
        if (found := re.match(r"\.\. option:: (--[\w-]+)", line)) and found[1] in titles:
            grouped += [f".. rubric:: {titles[found[1]]}", ""]
        grouped.append(line)
    lines[:] = grouped
