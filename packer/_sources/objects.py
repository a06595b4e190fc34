"""Images in object storage: below a URL, with one folder for each class as in ImageFolder, or at the URLs in a table.

An object is identified by its size and its ETag, like a file by its size and its time. Many objects are read at once,
because each request has a latency.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

import numpy as np

from packer._account import Account, BadSamples
from packer._codecs import UNLABELED
from packer._containers.discovery import SPLITS, account_for_layout
from packer._sources.base import OtherFiles, ReadBuffer, Source
from packer._sources.imagefolder import HIDDEN_CLASS, HIDDEN_IMAGES, ImageRule, is_hidden
from packer._sources.labels import class_ids, in_known_classes
from packer._storage.foreign_files import LEFT_BY_SYSTEM, is_system_file, may_be_system_file
from packer._storage.packfile import LARGEST_READ
from packer._storage.remote.client import Version, get, head, list_in_parallel
from packer._storage.remote.urls import join, shown, user_path
from packer._storage.safe_open import name_problem
from packer._storage.stamps import NO_STAMP, Stamp, Stamps, stamp_in
from packer._table import Names
from packer.errors import ImageError, RemoteError, SourceError, option, printable

AT_ONCE = 32
"""Objects that are read at a time at least, whatever the number of processors: each lets one wait."""

_LOOKED_AT_ONCE = 64
_HEAD = 16  # bytes for recognising an object


@dataclass(frozen=True, eq=False, kw_only=True)
class ObjectSource(Source):
    """Images that are objects.

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
        """Return the objects' stamps at the time of the listing, which was made recently."""
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
        known = size >= 0 and etag != ""  # otherwise it was missing, may be any other object, or has only a time
        try:
            version = Version(size, etag) if known else head(url)
            if version is None:
                raise FileNotFoundError(shown(url))
            if version.size > LARGEST_READ:
                reason = f"has {version.size} bytes, and a sample has {LARGEST_READ} at most"
                raise ImageError(reason, self.names[index])
            data = get(url, 0, version.size, version)
        except FileNotFoundError:
            self._require_as_listed(index, NO_STAMP)
            named = "" if self.lines is None else f", which line {self.lines[index]} of the table names"
            reason = f"cannot be read: there is no such object{named}: {shown(url)}"
            raise ImageError(reason, self.names[index]) from None
        except RemoteError as error:
            self._require_as_listed(index, self.stamp(index))
            raise SourceError(f"{error}. The same command continues.") from error
        stamp = (len(data), listed[1]) if known else stamp_of_version(version)
        self._require_as_listed(index, stamp)
        return memoryview(data), stamp

    def stamp(self, index: int) -> Stamp:
        try:
            return stamp_of_version(head(self.path(index)))
        except RemoteError as error:
            raise SourceError(f"{error}. The same command continues.") from error

    def what_changed(self, before: Stamp, now: Stamp) -> str:
        if NO_STAMP in (before, now):
            return "it is gone" if now == NO_STAMP else "it was not there"
        if before[0] != now[0]:
            return f"its size was {before[0]} and is {now[0]} bytes"
        return "its ETag is another"


def stamp_of_version(version: Version | None) -> Stamp:
    """Return the stamp of an object: its size, and a number derived from its ETag, or from its time without one."""
    if version is None:
        return NO_STAMP
    identity = version.etag or str(version.modified)
    return version.size, int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") >> 2


def versions_of(urls: Sequence[str]) -> list[Version | None]:
    """Return the versions of objects, requested in parallel; None for a missing object.

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
        Whether to take all images without classes, each with the label -1, in the order of their names.
    bad : BadSamples, optional
        The same as for `imagefolder_source`.

    Raises
    ------
    SourceError
        If nothing is listed, there is no image, the folders are splits, or a class is not in `classes`.
    """
    rule, others, versions, outside = rule or ImageRule(), OtherFiles(), dict[str, Version](), list[str]()
    listed, account = dict(_listed(base)), Account()
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
            f"{shown(base)}: no images ({rule}) below it{''.join(f'. {note}' for note in notes)}. Images are expected "
            f"as {shown(base).rstrip('/')}/CLASS/IMAGE; for images without labels, say {option('unlabeled', True)}."
        )
    names, bad = sorted(versions) if unlabeled else sorted(versions, key=_in_tree), bad or BadSamples()
    _tell_of_hidden(names, account, unlabeled=unlabeled)
    account.left_out("image", "it lies outside of any class, as ImageFolder has it", sorted(outside))
    labels, found = np.full(len(names), UNLABELED, np.int64), list[str]()
    if unlabeled:
        notes.insert(0, "the images are unlabeled: every label is -1, and there are no classes")
    else:
        by_class: dict[str, list[str]] = {}
        for name in names:
            by_class.setdefault(name.partition("/")[0], []).append(name)
        _refuse_splits(base, sorted(by_class), names)
        account_for_layout(account, by_class, "", "copy them to a disk, and convert")
        if classes is not None:
            by_class = in_known_classes(shown(base), by_class, classes, bad)
            names = [name for some in by_class.values() for name in some]
        ids = class_ids(sorted(by_class) if classes is None else classes)
        labels, found = np.array([ids[name.partition("/")[0]] for name in names], np.int64), list(ids)
    return ObjectSource(
        "files" if unlabeled else "imagefolder",
        user_path(base),
        Names.of(names),
        labels,
        found,
        notes,
        stamps=np.array([stamp_of_version(versions[name]) for name in names], np.int64),
        others=others,
        doubts=tuple(bad.found),
        account=account,
        base=base,
        etags=Names.of(versions[name].etag for name in names),
    )


def _system_files(base: str, listed: Mapping[str, Version]) -> list[str]:
    """Return the objects that macOS or Windows left as files before the upload."""
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
            raise SourceError(f"{shown(base)}: {error}") from error


def _tell_of_hidden(names: Sequence[str], account: Account, *, unlabeled: bool) -> None:
    """Report hidden classes and images, which are included because ImageFolder includes them too."""
    tops = dict.fromkeys(name.partition("/")[0] for name in names)
    classes = [] if unlabeled else list(filter(is_hidden, tops))
    account.taken("class", HIDDEN_CLASS, classes)
    hidden = [name for name in names if any(map(is_hidden, name.split("/")))]
    if classes:
        hidden = [name for name in hidden if name.partition("/")[0] not in classes]
    account.taken("image", HIDDEN_IMAGES, hidden)


def _listed(base: str) -> Iterator[tuple[str, Version]]:
    """Yield names and versions of the objects below a URL; SourceError if a name is invalid for a sample."""
    try:
        listed = list_in_parallel(base)
    except RemoteError as error:
        raise SourceError(str(error)) from error
    for name, version in listed:
        if name.endswith("/") or not name:  # some tools create such objects for directories
            continue
        if problem := name_problem(name):
            raise SourceError(f"{shown(base)}: the object {printable(name)} cannot be a sample: {problem}. Rename it.")
        yield name, version


def _in_tree(name: str) -> tuple[str, str, str]:
    """Return the sort key of a name: class, folder, and name in it, in ImageFolder's order."""
    folder, _, own = name.rpartition("/")
    return name.partition("/")[0], folder, own


def _refuse_splits(base: str, folders: Sequence[str], names: Sequence[str]) -> None:
    """Raise SourceError if there are splits and not classes below a URL, like `refuse_splits` for a directory."""
    deep = {parts[0] for name in names if len(parts := PurePosixPath(name).parts) > 2}
    splits = [folder for folder in folders if folder.lower() in SPLITS and folder in deep]
    if len(splits) > 1 or (splits and len(splits) == len(folders)):
        raise SourceError(
            f"{shown(base)} holds splits ({', '.join(splits)}), not classes. Convert each by itself, from "
            f"{shown(join(base, splits[0]))}, and the others with {option('classes_from')} the first one's pack."
        )
