"""Render tables, bars and pictures as text for a terminal and as HTML for a notebook.

The results of packer's functions yield blocks: lines (`str`), tables and so on. `text` and `html` render blocks. The
content of a block may come from a stranger's pack, so both functions make control characters visible, and `html`
escapes HTML. The HTML needs no script and no other file. It takes its colours from the page, so that it is readable on
light and dark pages. If a site strips the style sheet, tables and bars remain.
"""

from __future__ import annotations

import base64
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from packer.errors import printable

_LONGEST = 1000  # most characters of a name from a pack that are shown
_WIDTH = 30  # length of the longest bar in characters


class Heading(NamedTuple):
    """The title of the blocks that follow."""

    title: str


class Code(NamedTuple):
    """Lines of Python or shell code, shown unchanged so that users can copy them."""

    lines: Sequence[str]


class Bar(NamedTuple):
    """A table cell that shows a number as a bar whose length is in proportion to the number."""

    number: float
    largest: float

    def __str__(self) -> str:
        return "█" * max(1, round(_WIDTH * self.number / max(self.largest, 1)))


class TextTable(NamedTuple):
    """Rows of cells.

    Attributes
    ----------
    rows : sequence of sequence of str or Bar
    columns : sequence of str
        The alignment and the minimum width of each column when rendered as text, such as ``">14"``; an empty string
        leaves cells as they are.
    head : sequence of str
        The titles of the columns; empty without titles.
    indent : str
        The beginning of each line when the table is rendered as text.
    """

    rows: Sequence[Sequence[str | Bar]]
    columns: Sequence[str]
    head: Sequence[str] = ()
    indent: str = "  "


class Thumbnails(NamedTuple):
    """JPEGs with captions, and an error in place of each image that cannot be shown. `text` omits thumbnails."""

    pictures: Sequence[tuple[bytes, str, str]]


Block = str | Heading | Code | TextTable | Thumbnails


def legible(value: object) -> str:
    """Return a name in a form that fits on one line: escaped by `printable`, and shortened in the middle if very long.

    In a stranger's pack, the name of a sample can have 64 kB, and the name of a class can have any length.
    """
    name = str(value)
    cut = name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]} … {name[-_LONGEST // 2 :]}"
    return printable(cut)


def count(number: int) -> str:
    """Return a number with its thousands separated."""
    return f"{number:,}"


def counted(number: int, what: str) -> str:
    """Return a number with its noun: ``1 sample``, ``2 samples``, ``2 classes``."""
    return f"{count(number)} {what}{'' if number == 1 else 'es' if what.endswith(('s', 'ch')) else 's'}"


def duration(seconds: float) -> str:
    """Return a duration in words, in a unit that suits its length."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d} h" if hours else f"{minutes}:{seconds:02d} min"


def in_notebook() -> bool:
    """Tell whether the code runs in the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def here(path: str | os.PathLike[str]) -> str:
    """Return a path as a user would type it: relative to the current directory if it is below that directory."""
    name, directory = os.fspath(path), os.getcwd()
    inside = len(directory) > 1 and name.startswith(directory + os.sep)
    return name[len(directory) + 1 :] if inside else name


class Displayable:
    """An object that a terminal shows as lines, and a notebook as HTML."""

    def _blocks(self) -> Iterable[Block]:
        """Return the blocks to show."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return text(self._blocks())

    def _repr_html_(self) -> str:
        return html(self._blocks())


def text(blocks: Iterable[Block]) -> str:
    """Render blocks as lines for a terminal."""
    return "\n".join(line for block in blocks for line in _lines(block))


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield printable(block)
    elif isinstance(block, Heading):
        yield f"  {printable(block.title)}"
    elif isinstance(block, Code):
        yield from map(printable, block.lines)
    elif isinstance(block, TextTable):
        for row in [block.head, *block.rows] if block.head else block.rows:
            cells = (f"{printable(cell):{column}}" for cell, column in zip(row, block.columns, strict=True))
            yield f"{block.indent}{'  '.join(cells)}".rstrip()


_STYLE = "".join(
    f".packer.packer {rule}"  # the class twice, so that its rules take precedence over those of the page
    for rule in (
        "{font:13px/1.5 system-ui,sans-serif;color:inherit}",
        "p{margin:0;white-space:pre-wrap}",
        "h4{margin:.7em 0 .1em;font-size:13px;font-weight:600}",
        "table{border-collapse:collapse;border:0;margin:.2em 0;table-layout:auto}",
        "tr{background:none}",
        "td,.packer.packer th{padding:0 1em 0 0;border:0;color:inherit;text-align:left;vertical-align:top}",
        ".number{text-align:right;font-variant-numeric:tabular-nums}",
        ".bar{color:#5b8def;font-family:monospace;white-space:nowrap}",
        "pre{margin:.4em 0;padding:.4em .8em;background:rgba(128,128,128,.15);color:inherit;overflow-x:auto}",
        "pre code{background:none;color:inherit;padding:0}",
        "figure{display:inline-block;margin:.4em .6em 0 0;vertical-align:top;width:112px}",
        "figure img{max-width:112px;max-height:112px;margin:0}",
        "figcaption{font-size:11px;opacity:.75;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}",
        "iframe{width:100%;border:1px solid rgba(128,128,128,.4)}",
    )
).replace(".packer.packer {", ".packer.packer{")


def html(blocks: Iterable[Block]) -> str:
    """Render blocks as one HTML element."""
    parts: list[str] = []
    lines: list[str] = []
    for block in [*blocks, None]:
        if isinstance(block, str):
            lines.append(block)
            continue
        parts.append(_paragraph(lines))
        lines = []
        if block is not None:
            parts.append(_element(block))
    return element("".join(parts))


def element(content: str) -> str:
    """Wrap HTML in an element with packer's style sheet."""
    return f'<div class="packer"><style>{_STYLE}</style>{content}</div>'


def safe(value: object) -> str:
    """Return a value as escaped text for an HTML element or attribute."""
    return escape(legible(value))


def _paragraph(lines: list[str]) -> str:
    while lines and not lines[-1]:
        lines.pop()
    return f"<p>{'<br>'.join(map(safe, lines))}</p>" if lines else ""


def _element(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h4>{safe(block.title)}</h4>"
    if isinstance(block, Code):
        return f"<pre><code>{escape(textwrap.dedent(text([block])))}</code></pre>"
    if isinstance(block, TextTable):
        return _table(block)
    assert isinstance(block, Thumbnails)
    return "".join(map(_figure, block.pictures))


def _table(table: TextTable) -> str:
    def row(cells: Sequence[str | Bar], tag: str) -> str:
        return "".join(
            f"<{tag}{_class(cell, column)}>{safe(cell).strip()}</{tag}>"
            for cell, column in zip(cells, table.columns, strict=True)
        )

    head = f"<tr>{row(table.head, 'th')}</tr>" if table.head else ""
    rows = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in table.rows)
    return f"<table>{head}{rows}</table>"


def _class(cell: str | Bar, column: str) -> str:
    name = "bar" if isinstance(cell, Bar) else "number" if column.startswith(">") else ""
    return f' class="{name}"' if name else ""


def _figure(picture: tuple[bytes, str, str]) -> str:
    jpeg, caption, error = picture
    image = f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}">'
    shown = image if jpeg else f"<small>{safe(error)}</small>"
    return f'<figure title="{safe(caption)}">{shown}<figcaption>{safe(caption)}</figcaption></figure>'
