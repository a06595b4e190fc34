"""Draws the plots of docs/measurements.md from the tables of benchmarks/README.md, which has the only figures.

python docs/plots.py

A test compares docs/pictures with what this program draws.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"

_PLOTS = {
    "reading.svg": ("Images per second, random crops of 224, full-size JPEGs", "Reading", "photos as they are"),
    "reading-photos.svg": (
        "Images per second, random crops of 224, full-size JPEGs",
        "Reading",
        "photos as they are",
    ),
    "reading-256.svg": ("Images per second, random crops of 224, images of 256", "Reading", "resized to 256"),
    "masks.svg": ("Samples per second, photos with masks", "Images with masks", "samples a second"),
    "converting.svg": ("Images per second, converted", "Converting", "images a second"),
    "opening.svg": ("Milliseconds to open 1,281,167 samples and read one", "Opening", ""),
}
"""The file of a plot; its title; the section and the column of the table. Without a column it is the first row."""

_SHORT = "reading.svg"
"""The plot of the README: packer's rows, and the best row of each other tool."""

_STYLE = """<style>
  text { font: 14px system-ui, "Noto Sans", sans-serif; fill: #24292f }
  .title { font-weight: 600; font-size: 15px }
  .card { fill: #fff; stroke: #d0d7de }
  .packer { fill: #1f7a4d }
  .other { fill: #8c959f }
  .limit { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .card { fill: #161b22; stroke: #30363d }
    .packer { fill: #3fb27f }
    .other { fill: #6e7681 }
  }
</style>"""

_WIDTH, _LEFT, _ROW = 640, 20, 36  # narrow, with names above the bars, so that a phone shows letters that can be read


def main() -> None:
    for name, drawing in plots().items():
        (PICTURES / name).write_text(drawing, encoding="utf-8")


def plots() -> dict[str, str]:
    """Return the drawing of each plot, by the name of its file; the best bar comes first."""
    page = (ROOT / "benchmarks" / "README.md").read_text("utf-8")
    drawn = {}
    for name, (title, section, column) in _PLOTS.items():
        rows = sorted(values(page, section, column), key=lambda row: row[1], reverse=bool(column))  # or milliseconds
        drawn[name] = bars(title, best(rows) if name == _SHORT else rows)
    return drawn


def best(rows: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return packer's rows, and the first one of each other tool; no limits, which are no loaders."""
    seen, found = set(), []
    for name, value in rows:
        tool = re.split(r"\W", name)[0]
        if _is_packers(name) or tool not in {*seen, "limit"}:
            found.append((name, value))
            seen.add(tool)
    return found


def values(page: str, section: str, column: str) -> list[tuple[str, float]]:
    """Return the rows of the first table in a section that have a number in the column, or the first row's columns."""
    text = re.split(rf"^#+ {re.escape(section)}$", page, maxsplit=1, flags=re.MULTILINE)[1]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines, section
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[0].splitlines()]
    if not column:
        return [(_plain(name), _number(cell)) for name, cell in zip(head[1:], rows[0][1:], strict=True)]
    place, found, last = head.index(column), [], ""
    for row in rows:
        name = _plain(row[0])
        last = name if not name.startswith("…") else last
        if name.startswith("…"):  # a row that goes on from the one above
            more = name.removeprefix("…").strip(" ,")
            name = re.split(r",| to ", last)[0] + (" " if more.startswith("to ") else ", ") + more
        if re.match(r"[\d,.]+", row[place]):
            found.append((name, _number(row[place])))
    return found


def bars(title: str, rows: list[tuple[str, float]]) -> str:
    """Draw horizontal bars. Those of packer have its colour, and limits are outlines."""
    height = 44 + _ROW * len(rows) + 12
    unit = (_WIDTH - _LEFT - 80) / max(value for _, value in rows)
    said = "; ".join(f"{name}: {value:,.10g}" for name, value in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(said)}</desc>",
        _STYLE,
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="title" x="20" y="28">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(rows):
        top = 44 + _ROW * number
        kind = "limit" if name.startswith("limit") else "packer" if _is_packers(name) else "other"
        lines += [
            f'<text x="{_LEFT}" y="{top + 13}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{top + 18}" width="{value * unit:.1f}" height="11" rx="2"/>',
            f'<text x="{_LEFT + value * unit + 8:.1f}" y="{top + 28}">{value:,.10g}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _is_packers(name: str) -> bool:
    return bool(re.match(r"packer|Loader\(|LMDB|HDF5|\.pth", name))


def _number(cell: str) -> float:
    found = re.match(r"[\d,.]+", cell)
    assert found, cell
    return float(found[0].replace(",", ""))


def _plain(cell: str) -> str:
    return cell.replace("`", "")


if __name__ == "__main__":
    main()
