"""A table in a file that names images by their URLs, or by paths below a URL, with labels and fields."""

from __future__ import annotations

import posixpath
import urllib.parse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer._account import Account, BadSamples
from packer._sample import UNLABELED
from packer._sources.base import Source
from packer._sources.csv import NO_COLUMN, Rows
from packer._sources.fieldvalues import Files
from packer._sources.labels import Meaning, meaning_of, unusable_labels
from packer._sources.objects import ObjectSource, stamp_of_version, versions_of
from packer._sources.tablecolumns import ColumnSpec
from packer._sources.tables import Cells, Table, open_table
from packer._sources.walking import ImageRule
from packer._storage.paths import name_problem
from packer._storage.remote.folders import listed_in_parallel
from packer._storage.remote.urls import Url, is_url, join, parse, shown
from packer._storage.urlpath import user_path
from packer._table import Names
from packer.errors import OptionError, RemoteError, SourceError, printable

__all__ = ["url_table_source"]

_PATHS = "url", "path"
"""The columns of URLs where nobody says one: the first that is there."""


def url_table_source(
    base: str | None,
    table: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    delimiter: str | None = None,
    label_type: str | None = None,
    unlabeled: bool = False,
    classes: Sequence[str] | None = None,
    columns: Sequence[ColumnSpec] = (),
    has_labels: bool = True,
    suffix: str | None = None,
    has_header: bool = True,
    bad: BadSamples | None = None,
) -> Source:
    """List the images that a table names, in its order, and look at each: its size, and its ETag.

    An image that is not there is listed all the same: reading it says so, and names it.

    Parameters
    ----------
    base : str, optional
        The URL that paths count from; by default, what all URLs begin with.
    table : Path
        A file, as for `csv_source`, which explains the other parameters.

    Raises
    ------
    SourceError
        As for `csv_source`; if a cell is no URL, or a store cannot be reached.
    """
    rows = _UrlRows(base, open_table(table, delimiter, bad, has_header=has_header), unlabeled, suffix or "")
    header = rows.table.header()
    _require_header(rows.table, header)
    paths, labels = (_PATHS, "label") if has_header else (("1",), "2")
    named = path_column or next((name for name in paths if name in header), paths[0])
    rows.read(header, named, label_column or labels if has_labels else None, columns)
    rows.settle()
    rows.name_all()
    rows.settle()
    rows.require_sound()
    if has_labels and rows.table.bad.skip:
        for row, error in unusable_labels(rows.labels, label_type, classes, rows.refused_label):
            rows.table.leave_out(rows.lines[row], error)
        rows.settle()
        rows.require_sound()
    meaning = Meaning(np.full(len(rows.names), UNLABELED, np.int64))
    if has_labels:
        rows.require_labels(header, label_column or labels)
        meaning = meaning_of(rows.labels, label_type, classes, rows.refused_label, rows.table.bad)
    made = rows.columns(rows.root)
    if files := [column.field.name for column in made if isinstance(column, Files)]:
        raise OptionError(
            f"--column {files[0]} would be files beside the images, which are read of a disk alone: copy them, or "
            "leave the column out"
        )
    account, notes = _unnamed(base, rows)
    account.not_looked_at("column", NO_COLUMN, rows.unused)
    versions = versions_of(rows.urls)
    source = ObjectSource(
        "csv",
        rows.root,
        Names.of(rows.names),
        meaning.labels,
        meaning.classes,
        [*notes, *rows.notes, *meaning.notes],
        stamps=np.array([stamp_of_version(version) for version in versions], np.int64),
        label_type=meaning.label_type,
        lines=np.array(rows.lines, np.int64),
        doubts=tuple(rows.table.bad.found),
        account=account,
        base=rows.base,
        etags=Names.of("" if version is None else version.etag for version in versions),
        urls=Names.of(rows.urls),
    )
    return source.having(*made)


def _unnamed(base: str | None, rows: _UrlRows) -> tuple[Account, list[str]]:
    """Return an account of the images below the URL that the table does not name, and what is not known of them."""
    account, suffixes = Account(), ImageRule().extensions
    if base is None or parse(base).scheme in ("http", "https"):  # nobody lists what is there
        return account, []
    try:
        below = {name for name, _ in listed_in_parallel(base) if name.lower().endswith(suffixes)}
    except RemoteError as error:
        return account, [f"which images the table does not name is not known: {error}"]
    known = {*rows.names, *(one["name"] for one in rows.table.left.values())}
    account.left_out("image", "the table does not name it", sorted(below - known))
    return account, []


def _require_header(table: Table, header: Sequence[str]) -> None:
    """Raise SourceError where the first line of a table without a header would be taken for one, and be lost."""
    if table.has_header and table.of_texts and (first := next(filter(is_url, header), None)):
        raise SourceError(
            f"{printable(table.path)}: the first line looks like a row and not like a header: {shown(first)} is a URL, "
            "which would be lost. Where there is no header, say --no-header: columns are called by their numbers, "
            f"--path-column {header.index(first) + 1}"
        )


class _UrlRows(Rows):
    """The rows of a table of URLs.

    Attributes
    ----------
    base : str
        What the names of all images count from.
    urls : list of str
    """

    def __init__(self, base: str | None, table: Table, unlabeled: bool, suffix: str) -> None:
        super().__init__(Path(), table, unlabeled, suffix)
        self._given = base
        self.base = ""
        self.urls: list[str] = []

    def name_all(self) -> None:
        """Give the images names: what their URLs have after the base, without queries, which may be secret."""
        if not self.urls:
            return
        places = [parse(url) for url in self.urls]
        first = places[0]
        same = all((place.scheme, place.host) == (first.scheme, first.host) for place in places)
        folders = [posixpath.dirname(place.key) for place in places]
        above = posixpath.commonpath(folders) if same and all(folders) else ""
        self.base = self._given or (str(Url(first.scheme, first.host, above)) if same else f"{first.scheme}://")
        self.root = user_path(self.base)
        start = parse(self._given).key.strip("/") if self._given is not None else above
        for row, place in enumerate(places):
            name = place.key[len(start) :].lstrip("/") if same else f"{place.host}/{place.key}"
            name = urllib.parse.unquote(name) if place.scheme in ("http", "https") else name
            if problem := name_problem(name):
                self.leave_out(row, f"{place.shown()} names no image: {problem}")
            self.names.append(name)

    def _keep(self, rows: Sequence[int]) -> None:
        super()._keep(rows)
        self.urls = [self.urls[row] for row in rows]

    def _add_names(self, cells: Cells, lines: Sequence[int]) -> None:
        for cell, line in zip(cells, lines, strict=True):
            url = ""
            try:
                url = self._url(cell)
            except (RemoteError, ValueError) as error:
                self.table.leave_out(line, self.table.refused(line, str(error)))
            self.urls.append(url)

    def _url(self, cell: Any) -> str:
        """Return the URL that a cell says; ValueError or RemoteError where it says none."""
        if not isinstance(cell, str) or not cell:
            raise ValueError("the URL is missing" if cell is None or cell == "" else "is no URL")
        cell += self._suffix if not cell.endswith(self._suffix) else ""
        if is_url(cell):
            url = str(parse(cell))
        elif self._given is not None and not name_problem(cell):
            url = join(self._given, cell)
        else:
            raise ValueError(
                f"{printable(cell)} is no URL such as https://host/image.jpg or s3://bucket/image.jpg. For files on a "
                "disk, say their directory as SRC, and this table with --labels"
            )
        if self._given is not None and not f"{parse(url)}".startswith(f"{self._given.rstrip('/')}/"):
            raise ValueError(f"{shown(url)} is not below SRC")
        return url
