"""Images in object storage: below a URL, with one folder for each class as in ImageFolder, or at the URLs in a table.

Size and ETag identify the version of an object, as size and time do for a file. Many objects are read at once, because
each request has a latency.
"""

from __future__ import annotations

import hashlib
import itertools
import posixpath
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from packer._account import Account, BadSamples
from packer._codecs import UNLABELED
from packer._containers.discovery import SPLITS, account_for_layout
from packer._sources.base import FileColumn, OtherFiles, ReadBuffer, Source
from packer._sources.imagefolder import HIDDEN_CLASS, HIDDEN_IMAGES, ImageRule, is_hidden
from packer._sources.labels import class_ids, in_known_classes
from packer._sources.table_source import UNNAMED, TableRows
from packer._sources.tables import Cells, LabelTable, TableOptions, open_table
from packer._storage.packfile import LARGEST_READ
from packer._storage.remote.client import Version, get, head, list_in_parallel
from packer._storage.remote.urls import Url, is_url, join, parse, redacted, user_path
from packer._storage.safe_open import name_problem
from packer._storage.stamps import NO_STAMP, Stamp, Stamps, stamp_in
from packer._storage.stray_files import LEFT_BY_SYSTEM, is_system_file, may_be_system_file
from packer._table import Names
from packer.errors import ImageError, OptionError, RemoteError, SourceError, option, printable

AT_ONCE = 32
"""The smallest number of objects that are read at once, even on few processors, because each request has a latency."""

_LOOKED_AT_ONCE = 64
_HEAD = 16  # bytes for recognising an object


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectSource(Source):
    """Images that are objects in object storage, or files on a web server.

    Attributes
    ----------
    base : str
        The URL to which names are relative.
    etags : Names
        The ETag of each object when it was listed; empty if the store sent none.
    urls : Names, optional
        The URL of each object, if it is not `base` followed by the name.
    """

    is_local: ClassVar[bool] = False
    _by_row: ClassVar[tuple[str, ...]] = (*Source._by_row, "etags", "urls")

    base: str
    etags: Names
    urls: Names | None = None

    def present_stamps(self) -> Stamps:
        """Return the stamps from the listing, without requests to the store, because the listing is recent."""
        assert self.stamps is not None
        return self.stamps

    @property
    def tree(self) -> None:
        return None

    def path(self, index: int) -> str:
        return join(self.base, self.names[index]) if self.urls is None else self.urls[index]

    def read(self, index: int, buffer: ReadBuffer) -> tuple[memoryview, Stamp]:
        url = self.path(index)
        assert self.stamps is not None
        listed, etag = stamp_in(self.stamps, index), self.etags[index]
        size = listed[0]
        known = size >= 0 and etag != ""  # otherwise the object was missing, or had a time and no ETag: ask again
        try:
            version = Version(size, etag) if known else head(url)
            if version is None:
                raise FileNotFoundError(redacted(url))
            if version.size > LARGEST_READ:
                reason = f"has {version.size} bytes, but a sample can have at most {LARGEST_READ}"
                raise ImageError(reason, self.names[index])
            data = get(url, 0, version.size, version)
        except FileNotFoundError:
            self._require_as_listed(index, NO_STAMP)
            named = "" if self.lines is None else f", named in line {self.lines[index]} of the table"
            reason = f"cannot be read: there is no such object{named}: {redacted(url)}"
            raise ImageError(reason, self.names[index]) from None
        except RemoteError as error:
            self._require_as_listed(index, self.stamp(index))
            raise SourceError(f"{error}. Run the same command to continue.") from error
        stamp = (len(data), listed[1]) if known else stamp_of_version(version)
        self._require_as_listed(index, stamp)
        return memoryview(data), stamp

    def stamp(self, index: int) -> Stamp:
        try:
            return stamp_of_version(head(self.path(index)))
        except RemoteError as error:
            raise SourceError(f"{error}. Run the same command to continue.") from error

    def what_changed(self, before: Stamp, now: Stamp) -> str:
        if NO_STAMP in (before, now):
            return "it was deleted" if now == NO_STAMP else "it did not exist before"
        if before[0] != now[0]:
            return f"its size was {before[0]} bytes and is now {now[0]}"
        return "its ETag changed"


def stamp_of_version(version: Version | None) -> Stamp:
    """Return the stamp of an object: its size, and a number derived from its ETag, or from its time without an ETag."""
    if version is None:
        return NO_STAMP
    identity = version.etag or str(version.modified)
    return version.size, int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") >> 2


def versions_of(urls: Sequence[str]) -> list[Version | None]:
    """Request the versions of objects in parallel, and return them; None for a missing object.

    Raises
    ------
    SourceError
        If a store cannot be reached or refuses a request.
    """
    with ThreadPoolExecutor(_LOOKED_AT_ONCE, thread_name_prefix="packer-head") as pool:
        try:
            return list(pool.map(head, urls))
        except RemoteError as error:
            raise SourceError(str(error)) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def prefix_source(
    base: str,
    classes: Sequence[str] | None = None,
    rule: ImageRule | None = None,
    *,
    unlabeled: bool = False,
    bad: BadSamples | None = None,
) -> ObjectSource:
    """List the images below a URL, in ImageFolder's order.

    Parameters
    ----------
    base : str
    classes : sequence of str, optional
        Class names in the order of their ids; the default is the sorted names of the folders.
    rule : ImageRule, optional
        The rule that decides which names are images; by default ImageFolder's.
    unlabeled : bool
        Whether all images get the label -1, without classes, and are sorted by name.
    bad : BadSamples, optional
        The same as for `imagefolder_source`.

    Raises
    ------
    SourceError
        If the objects cannot be listed, there is no image, the folders are splits, or a class is not in `classes`.
    """
    rule, bad = rule or ImageRule(), bad or BadSamples()
    others, account, versions, outside = OtherFiles(), Account(), dict[str, Version](), list[str]()
    listed = dict(_listed(base, bad))
    for name in _system_files(base, listed):
        del listed[name]
        account.not_looked_at("file", LEFT_BY_SYSTEM, [name])
    for name, version in listed.items():
        if not name.lower().endswith(rule.extensions):
            others.add(name)
        elif rule.skip_hidden and any(map(is_hidden, name.split("/"))):
            account.left_out("image", "it is hidden, and --skip-hidden", [name], chosen=True)
        elif "/" in name or unlabeled:
            versions[name] = version
        else:
            outside.append(name)
    notes = others.notes()
    if not versions:
        raise SourceError(
            f"{redacted(base)}: no images ({rule}) below it{''.join(f'. {note}' for note in notes)}. Images are "
            f"expected as {redacted(base).rstrip('/')}/CLASS/IMAGE; for images without labels, pass "
            f"{option('unlabeled', True)}."
        )
    names = sorted(versions) if unlabeled else sorted(versions, key=_in_tree)
    _account_for_hidden(names, account, unlabeled=unlabeled)
    account.left_out("image", "it is not in a class directory; ImageFolder ignores it too", sorted(outside))
    ids: dict[str, int] = {}
    if unlabeled:
        notes.insert(0, "the images are unlabeled: every label is -1, and there are no classes")
    else:
        by_class = {folder: list(images) for folder, images in itertools.groupby(names, _class)}
        _refuse_splits(base, list(by_class), names)
        account_for_layout(account, by_class, "", "copy them to a disk, and convert")
        if classes is not None:
            by_class = in_known_classes(redacted(base), by_class, classes, bad)
            names = list(itertools.chain.from_iterable(by_class.values()))
        ids = class_ids(list(by_class) if classes is None else classes)
    return ObjectSource(
        "files" if unlabeled else "imagefolder",
        user_path(base),
        Names.of(names),
        np.array([UNLABELED if unlabeled else ids[_class(name)] for name in names], np.int64),
        list(ids),
        notes,
        stamps=np.array([stamp_of_version(versions[name]) for name in names], np.int64),
        others=others,
        doubts=tuple(bad.found),
        account=account,
        base=base,
        etags=Names.of(versions[name].etag for name in names),
    )


def _system_files(base: str, listed: Mapping[str, Version]) -> list[str]:
    """Return the objects that were helper files of macOS or Windows before they were uploaded."""
    likely = [name for name in listed if may_be_system_file(name.rpartition("/")[2])]

    def is_one(name: str) -> bool:
        version = listed[name]
        return is_system_file(
            name.rpartition("/")[2], lambda: get(join(base, name), 0, min(version.size, _HEAD), version)
        )

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="packer-head") as pool:
        try:
            return list(itertools.compress(likely, pool.map(is_one, likely)))
        except (RemoteError, FileNotFoundError) as error:
            raise SourceError(f"{redacted(base)}: {error}") from error


def _account_for_hidden(names: Sequence[str], account: Account, *, unlabeled: bool) -> None:
    """Record in the account which classes and images are hidden. Like ImageFolder, packer does not leave them out."""
    tops = dict.fromkeys(name.partition("/")[0] for name in names)
    classes = [] if unlabeled else list(filter(is_hidden, tops))
    account.taken("class", HIDDEN_CLASS, classes)
    hidden = [name for name in names if any(map(is_hidden, name.split("/")))]
    if classes:
        hidden = [name for name in hidden if name.partition("/")[0] not in classes]
    account.taken("image", HIDDEN_IMAGES, hidden)


def _listed(base: str, bad: BadSamples) -> Iterator[tuple[str, Version]]:
    """Yield names and versions of the objects below a URL.

    An object with a name that is invalid for samples is a bad sample.
    """
    try:
        listed = list_in_parallel(base)
    except RemoteError as error:
        raise SourceError(str(error)) from error
    for name, version in listed:
        if name.endswith("/") or not name:  # some tools create such objects for directories
            continue
        if problem := name_problem(name):
            bad.add(
                name,
                SourceError(
                    f"{redacted(base)}: the object {printable(name)} cannot be a sample: {problem}. Rename it."
                ),
            )
            continue
        yield name, version


def _class(name: str) -> str:
    return name.partition("/")[0]


def _in_tree(name: str) -> tuple[str, str, str]:
    """Return the key that sorts names in ImageFolder's order: class, folder, and the name in the folder."""
    folder, _, own = name.rpartition("/")
    return _class(name), folder, own


def _refuse_splits(base: str, folders: Sequence[str], names: Sequence[str]) -> None:
    """Raise SourceError if the folders below a URL are splits and not classes, like `refuse_splits` for a directory."""
    deep = {parts[0] for name in names if len(parts := PurePosixPath(name).parts) > 2}
    splits = [folder for folder in folders if folder.lower() in SPLITS and folder in deep]
    if len(splits) > 1 or (splits and len(splits) == len(folders)):
        raise SourceError(
            f"{redacted(base)} contains splits ({', '.join(splits)}), not classes. Convert each split separately, "
            f"beginning with {redacted(join(base, splits[0]))}, and the others with {option('classes_from')} and the "
            "pack of the first."
        )


_URL_COLUMNS = "url", "path"
"""The default names of the column of URLs; the first one that the table has is used."""


def url_table_source(base: str | None, table: Path, options: TableOptions) -> Source:
    """List the images at the URLs in a table, in the table's order, with size and ETag of each.

    A missing image is listed too: reading it raises an error with its name.

    Parameters
    ----------
    base : str, optional
        The URL to which paths are relative; by default the common beginning of all URLs.
    table : Path
        A file of the same types as for `csv_source`.
    options : TableOptions

    Raises
    ------
    SourceError
        The same as for `csv_source`; also if a cell is not a URL, or a store cannot be reached.
    """
    rows = _UrlRows(base, open_table(table, options), options)
    header = rows.table.header()
    _require_url_header(rows.table, header)
    paths = _URL_COLUMNS if options.has_header else ("1",)
    path_column = options.path_column or next((name for name in paths if name in header), paths[0])
    rows.read(header, path_column, options.label if options.has_labels else None)
    rows.name_all()
    rows.require_sound()
    rows.leave_out_unusable()
    meaning, columns = rows.meaning(header), rows.columns()
    if files := [column.field.name for column in columns if isinstance(column, FileColumn)]:
        raise OptionError(
            f"{option('columns', files[0])} is a column of files, which can be read only from a disk: copy the images "
            "and files to a disk, or leave out the column"
        )
    account, notes = _unnamed(base, rows)
    versions = versions_of(rows.urls)
    source = ObjectSource(
        **rows.members(meaning, account, notes),
        stamps=np.array([stamp_of_version(version) for version in versions], np.int64),
        base=rows.base,
        etags=Names.of("" if version is None else version.etag for version in versions),
        urls=Names.of(rows.urls),
    )
    return source.having(*columns)


def _unnamed(base: str | None, rows: _UrlRows) -> tuple[Account, list[str]]:
    """Return an account of the images below `base` that the table does not name, and a list of notes.

    If the images cannot be listed, the account is empty, and a note has the reason.
    """
    account, suffixes = Account(), ImageRule().extensions
    if base is None or parse(base).scheme in ("http", "https"):  # HTTP servers do not list their files
        return account, []
    try:
        below = {name for name, _ in list_in_parallel(base) if name.lower().endswith(suffixes)}
    except RemoteError as error:
        return account, [f"unknown which images the table does not name: {error}"]
    known = {*rows.names, *(one["name"] for one in rows.table.left.values())}
    account.left_out("image", UNNAMED, sorted(below - known))
    return account, []


def _require_url_header(table: LabelTable, header: Sequence[str]) -> None:
    """Raise SourceError if the header has a URL: then it is probably the first row of a table without a header."""
    if table.has_header and table.of_texts and (first := next(filter(is_url, header), None)):
        raise SourceError(
            f"{printable(table.path)}: the first line looks like a row and not like a header: {redacted(first)} is a "
            f"URL, which would be lost. If there is no header, pass {option('no_header', True)} and name columns by "
            f"their numbers: {option('path_column', str(header.index(first) + 1))}"
        )


class _UrlRows(TableRows):
    """The rows of a table of URLs.

    Attributes
    ----------
    base : str
        The URL to which all names are relative.
    urls : list of str
    """

    def __init__(self, base: str | None, table: LabelTable, options: TableOptions) -> None:
        super().__init__(Path(), table, options)
        self._prefix = base
        self.base = ""
        self.urls: list[str] = []

    def name_all(self) -> None:
        """Set the names of the images to their URLs, relative to `base`, without queries, which may contain secrets."""
        self.drop_left()
        if not self.urls:
            return
        parsed = [parse(url) for url in self.urls]
        first = parsed[0]
        same = all((target.scheme, target.host) == (first.scheme, first.host) for target in parsed)
        folders = [posixpath.dirname(target.key) for target in parsed]
        above = posixpath.commonpath(folders) if same and all(folders) else ""
        self.base = self._prefix or (str(Url(first.scheme, first.host, above)) if same else f"{first.scheme}://")
        self.root = user_path(self.base)
        start = parse(self._prefix).key.strip("/") if self._prefix is not None else above
        for row, target in enumerate(parsed):
            name = target.key[len(start) :].lstrip("/") if same else f"{target.host}/{target.key}"
            name = urllib.parse.unquote(name) if target.scheme in ("http", "https") else name
            if problem := name_problem(name):
                self.leave_out(row, f"{target.redacted()} does not name an image: {problem}")
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
        """Return the URL that a cell contains; ValueError or RemoteError if it contains none."""
        if not isinstance(cell, str) or not cell:
            raise ValueError("the URL is missing" if cell is None or cell == "" else "the cell is not a URL")
        cell += self.options.suffix if not cell.endswith(self.options.suffix) else ""
        if is_url(cell):
            url = str(parse(cell))
        elif self._prefix is not None and not name_problem(cell):
            url = join(self._prefix, cell)
        else:
            raise ValueError(
                f"{printable(cell)} is not a URL such as https://host/image.jpg or s3://bucket/image.jpg. For files "
                f"on a disk, pass their directory as SRC, and this table with {option('labels')}"
            )
        if self._prefix is not None and not f"{parse(url)}".startswith(f"{self._prefix.rstrip('/')}/"):
            raise ValueError(f"{redacted(url)} is not below SRC")
        return url
