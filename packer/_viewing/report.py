"""Reports on packs as self-contained HTML pages that can be mailed: they need no server, no requests and no scripts."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from importlib import resources

import numpy as np

from packer._datasets.description import Picture
from packer._display import safe
from packer._packs.walk import over_samples
from packer._storage.files import require_output, write_output
from packer._storage.system import in_units
from packer._table import Ints
from packer._version import __version__
from packer._viewing.catalog import UNLABELED, Catalog, find_duplicates
from packer._viewing.histograms import draw, histograms
from packer._viewing.pictures import Pictures

_MOST_PICTURES = 600  # each picture takes 5 to 8 kB
_MOST_OF_A_CLASS = 12
_SIDE = 160  # largest width and height of a picture in pixels
_MOST_CHECKED = 20_000  # number of samples that are decoded in some dozens of seconds
_MOST_LISTED = 200
_MOST_CLASSES = 5_000

Progress = Callable[[int, int], None]


def write_report(catalog: Catalog, target: str | os.PathLike[str], *, progress: Progress | None = None) -> int:
    """Write a report: histograms, classes, pictures of each class, findings, duplicates, and damaged samples.

    If the packs have at most 20,000 samples in all, every sample is read and decoded to find damaged ones. Otherwise
    only the samples that the page shows are read.

    Parameters
    ----------
    catalog : Catalog
    target : path
        The HTML file. An existing HTML page is replaced; any other existing file is an error.
    progress : callable, optional
        Called with the number of samples read so far, and their total.

    Returns
    -------
    int
        The size of the file, in bytes.

    Raises
    ------
    DestinationError
        If the file cannot be written, or would replace a file that is not a page.
    CorruptPackError
        If the file of a pack's table has been cut short since it was opened.
    """
    require_report(target)
    page = "\n".join(_page(catalog, progress)).encode("utf-8", "backslashreplace")
    write_output(target, page)
    return len(page)


def require_report(target: str | os.PathLike[str]) -> None:
    """Raise the errors of `write_report` that can be found before any sample is read."""
    require_output(target, "page", (b"<!doctype html>",))


def _page(catalog: Catalog, progress: Progress | None) -> Iterator[str]:
    style = resources.files("packer._viewing").joinpath("page").joinpath("report.css").read_text("utf-8")
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    title = safe(catalog.title)
    yield f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{style}</style></head><body><h1>{title}</h1>"
    facts = (f"<div><dt>{safe(name)}</dt><dd>{safe(text)}</dd></div>" for name, text in catalog.facts())
    yield f"<dl>{''.join(facts)}</dl>"
    yield f'<h2>Sizes and labels</h2><div class="charts">{"".join(map(draw, histograms(catalog)))}</div>'
    yield from _classes(catalog)
    pictures = Pictures(catalog)
    shown = list(_samples(catalog))
    chosen = np.concatenate([indices for _, indices in shown]) if shown else np.empty(0, np.int64)
    yield from _damaged(catalog, pictures, chosen, progress)
    yield from _pictures(catalog, pictures, shown)
    yield from _findings(catalog)
    yield from _duplicates(catalog, pictures)
    yield f"<footer>packer {__version__}</footer></body></html>\n"


def _classes(catalog: Catalog) -> Iterator[str]:
    if not catalog.classes:
        return
    counts = list(zip(catalog.classes, catalog.class_counts, strict=True))
    if catalog.unlabeled:
        counts.insert(0, ("without a label", catalog.unlabeled))
    yield f"<h2>Classes</h2>{_more(len(counts), _MOST_CLASSES)}"
    rows = (f"<div><span>{safe(name)}</span><span>{count:,}</span></div>" for name, count in counts[:_MOST_CLASSES])
    listed = f'<div class="classes">{"".join(rows)}</div>'
    yield listed if len(counts) <= 100 else f"<details><summary>{len(counts):,} classes</summary>{listed}</details>"


def _more(count: int, listed: int) -> str:
    return f"<p>The first {listed:,} of {count:,}.</p>" if count > listed else ""


def _samples(catalog: Catalog) -> Iterator[tuple[str, Ints]]:
    """Yield the name of each class, as HTML, and some of its samples, evenly spread over the packs."""
    if not catalog.classes:
        yield "", _spread(np.arange(len(catalog)), _MOST_PICTURES // 4)
        return
    order = np.argsort(catalog.labels, kind="stable")
    sorted_labels = catalog.labels[order]
    labels = np.flatnonzero(np.array(catalog.class_counts) > 0)
    labels = np.concatenate(([UNLABELED] * bool(catalog.unlabeled), _spread(labels, _MOST_PICTURES))).astype(np.int64)
    each = max(1, min(_MOST_OF_A_CLASS, _MOST_PICTURES // max(len(labels), 1)))
    for label in labels.tolist():
        begin, end = np.searchsorted(sorted_labels, [label, label + 1]).tolist()
        name = catalog.classes[label] if label >= 0 else "without a label"
        yield f"{safe(name)}<small>{end - begin:,}</small>", _spread(order[begin:end], each)


def _spread(indices: Ints, most: int) -> Ints:
    """Return at most `most` of the indices, evenly spread."""
    return indices[np.unique(np.linspace(0, len(indices) - 1, min(most, len(indices))).astype(np.int64))]


def _pictures(catalog: Catalog, pictures: Pictures, shown: list[tuple[str, Ints]]) -> Iterator[str]:
    yield "<h2>Pictures</h2>"
    if len(shown) > 1 and max(len(indices) for _, indices in shown) == 1:
        firsts = np.concatenate([indices for _, indices in shown])
        yield f"<p>One of each class.</p>{_strip(catalog, pictures.small(firsts, _SIDE))}"
        return
    for head, indices in shown:
        yield (f"<h3>{head}</h3>" if head else "") + _strip(catalog, pictures.small(indices, _SIDE))


def _strip(catalog: Catalog, pictures: Iterable[Picture]) -> str:
    return f'<div class="strip">{"".join(_figure(catalog, one) for one in pictures)}</div>'


def _figure(catalog: Catalog, picture: Picture) -> str:
    name = catalog.name(picture.index)
    label = catalog.label(picture.index)
    if picture.error:
        image = f'<div class="why">damaged: {safe(picture.error)}</div>'
    else:
        image = f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}">'
    text = safe(f"{name}: {label}" if label else name)
    return f'<figure title="{text}">{image}<figcaption>{safe(name.rpartition("/")[2])}</figcaption></figure>'


def _damaged(catalog: Catalog, pictures: Pictures, shown: Ints, progress: Progress | None) -> Iterator[str]:
    whole = len(catalog) <= _MOST_CHECKED
    indices = np.arange(len(catalog)) if whole else shown

    def check(part: range) -> list[Picture]:
        return [one for one in pictures.small(indices[part.start : part.stop], 16) if one.error]

    found = [one for part in over_samples(check, len(indices), progress=progress) for one in part]
    what = f"all {len(indices):,} samples" if whole else f"the {len(indices):,} samples that are shown here"
    text = f"{len(found):,} of {what} cannot be read and decoded." if found else f"No damage in {what}."
    yield f"<h2>Damage</h2><p>{text}</p>{_more(len(found), _MOST_LISTED)}"
    if not whole:
        yield "<p><code>packer verify</code> reads every sample.</p>"
    yield _table((f"sample {one.index}: {catalog.name(one.index)}", one.error) for one in found[:_MOST_LISTED])


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{safe(name)}</td><td>{safe(text)}</td></tr>" for name, text in rows)
    return f"<table>{cells}</table>" if cells else ""


def _findings(catalog: Catalog) -> Iterator[str]:
    found, out = catalog.findings(), catalog.left_out()
    yield "<h2>Findings of the conversion</h2>"
    yield _table((name, f"{count:,}") for name, count in found[:_MOST_LISTED]) or "<p>Nothing unusual was found.</p>"
    if out:
        yield f"<h2>Left out</h2>{_more(len(out), _MOST_LISTED)}{_table(out[:_MOST_LISTED])}"


def _duplicates(catalog: Catalog, pictures: Pictures) -> Iterator[str]:
    found = find_duplicates(catalog)
    yield "<h2>Duplicates</h2>"
    if found.reason or not found.candidates:
        yield f"<p>{safe(found.reason or 'No duplicates: every image is different.')}</p>"
        return
    yield f"<p>Groups of samples that have the same checksum and size: {found.candidates:,}.</p>"
    yield _more(len(found.groups), 20)
    for group in found.groups[:20]:
        yield f"<h3>{group.count:,} times<small>{in_units(group.size)} each, compared byte by byte</small></h3>"
        yield _strip(catalog, pictures.small(np.array(group.indices[:6]), _SIDE))
