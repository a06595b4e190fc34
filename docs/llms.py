"""``llms.txt``, the list of the documentation's pages for programs that read it (https://llmstxt.org).

``docs/conf.py`` writes the file into the site, from the tables of contents in ``docs/index.md``. An entry is the title
of a page, its address in the site, and its sections, or its first sentence where it has none. An address leads to the
page's Markdown, which the site holds as text; for pages that Sphinx makes from docstrings and commands, to HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent

ABOUT = """\
# packer

> packer converts an image folder into a single file and reads it in PyTorch several times faster than other loaders,
> with the same pixels. The package is `packer-images` on the index; the import and the command are `packer`.

`packer convert imagenet/train train.lmdb` makes a pack. `packer.open_dataset("train.lmdb")` takes the place of
torchvision's `ImageFolder`, and `packer.Loader(dataset, 64)` gives batches. `packer COMMAND --help` prints a command's
options.
"""

TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CAPTION = re.compile(r"^:caption: (.+)$", re.MULTILINE)
ENTRY = re.compile(r"(?:(?P<title>.+) <(?P<named>\S+)>|(?P<page>\S+))")
MADE_OF_CODE = "```{eval-rst}"


def llms() -> str:
    """Return the text of ``llms.txt``."""
    return "\n".join([ABOUT, *(line for block in toctrees(DOCS / "index.md") for line in section(block))])


def toctrees(page: Path) -> list[str]:
    return TOCTREE.findall(page.read_text("utf-8"))


def section(block: str) -> Iterator[str]:
    """Yield the lines of one table of contents: its caption, and its pages with those below them."""
    (caption,) = CAPTION.findall(block)
    yield f"## {caption}\n"
    for path, title in pages(block, DOCS):
        text = path.read_text("utf-8")
        title = title or text.partition("\n")[0].removeprefix("# ")
        about = subjects(text)
        yield f"- [{title}]({address(path, text)})" + (f": {about}" if about else "")
    yield ""


def pages(block: str, folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield the file and the title of each entry of a table of contents; after an entry the pages of its own table."""
    lines = [line.strip() for line in block.splitlines()]
    for entry in filter(None, (ENTRY.fullmatch(line) for line in lines if line and not line.startswith(":"))):
        path = (folder / f"{entry['named'] or entry['page']}.md").resolve()
        yield path, entry["title"]
        for below in toctrees(path):
            yield from pages(below, path.parent)


def address(path: Path, text: str) -> str:
    """Return the address of a page below the root of the site."""
    name = path.relative_to(DOCS.parent.resolve()).with_suffix("").as_posix()
    return f"{name}.html" if MADE_OF_CODE in text else f"_sources/{name}.md.txt"


def subjects(text: str) -> str:
    """Return the headings of a page's sections, or its first sentence."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    if sections := re.findall(r"^## (.+)$", prose, re.MULTILINE):
        return "; ".join(sections)
    paragraphs = [*filter(None, map(str.strip, prose.split("\n\n"))), ""]
    return re.split(r"(?<=\.)\s", paragraphs[1].replace("\n", " "), maxsplit=1)[0]
