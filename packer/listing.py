"""How a source differs from what it was when a conversion of it began, in lines that name what differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import SourceError, printable
from packer.sources import ScannedSource, Source, scanned_source
from packer.sources.stamps import Stamp, Stamps, same_stamp, stamp_in, take_stamps, what_changed

__all__ = ["compare_source"]

_SHOWN = 5


def compare_source(
    scan: Path, before: Mapping[str, Any], source: Source, *, done: Iterable[Stamp] = (), files: bool = True
) -> tuple[Source, list[str]]:
    """Compare a source with what it was when a conversion of it began.

    Parameters
    ----------
    scan : Path
        The list that was written then.
    before : mapping
        Under ``source`` and ``packs`` what `Source.describe` and `Source.identities` returned then.
    source : Source
    done : iterable of Stamp
        What the first files were when they were read, or left out.
    files : bool
        Whether to look at each file's size and time.

    Returns
    -------
    source : Source
        With the stamps that its files had then.
    differences : list of str
        A line for each way in which it is not what it was.
    """
    recorded = _recorded(scan)
    if source.describe() != before["source"]:
        named = [] if recorded is None else _listing_differences(recorded, source)
        return source, named or ["the source's list of images or classes changed"]
    if source.origin is not None:
        return source, _pack_differences(before["packs"], source.identities())
    if recorded is None or recorded.stamps is None:
        return source, [f"what its images were is not known: {printable(scan)} is missing or damaged"]
    differences = (
        _file_differences(recorded.stamps, take_stamps(source.root, source.names), done, source) if files else []
    )
    return replace(source, stamps=recorded.stamps), differences


def _recorded(path: Path) -> ScannedSource | None:
    try:
        return scanned_source(path)
    except SourceError:
        return None


def _listing_differences(before: ScannedSource, now: Source) -> list[str]:
    if before.kind != now.kind:
        return [f"the source was of the kind {before.kind} and is of {now.kind}"]
    labels = dict(zip(before.names, before.labels.tolist(), strict=True))
    present = dict(zip(now.names, now.labels.tolist(), strict=True))
    moved = [
        name
        for name in labels.keys() & present.keys()
        if before.classes[labels[name] : labels[name] + 1] != now.classes[present[name] : present[name] + 1]
    ]
    lines = [
        _line("classes were removed", set(before.classes) - set(now.classes)),
        _line("classes were added", set(now.classes) - set(before.classes)),
        _line("images were removed", labels.keys() - present.keys()),
        _line("images were added", present.keys() - labels.keys()),
        _line("images have another class", moved),
    ]
    named = [line for line in lines if line]
    return named or (["the images are in another order"] if list(labels) != list(present) else [])


def _pack_differences(before: Sequence[str], now: Sequence[str]) -> list[str]:
    return [
        f"pack {number} of the source was {then} and is {present}, with samples of the same names"
        for number, (then, present) in enumerate(itertools.zip_longest(before, now))
        if then != present
    ]


def _file_differences(before: Stamps, now: Stamps, done: Iterable[Stamp], source: Source) -> list[str]:
    count, named = 0, []
    for index, then in _changed(before, now, done):
        count += 1
        if count <= _SHOWN:
            named.append(f"{printable(source.names[index])} ({what_changed(then, stamp_in(now, index))})")
    more = ", …" if count > _SHOWN else ""
    return [f"{count} images were changed: {', '.join(named)}{more}"] if count else []


def _changed(before: Stamps, now: Stamps, done: Iterable[Stamp]) -> Iterator[tuple[int, Stamp]]:
    """Yield the index of every file that changed, and what it was."""
    first = 0
    for index, then in enumerate(done):
        first = index + 1
        if not same_stamp(then, stamp_in(now, index)):
            yield index, then
    for index in (first + np.flatnonzero((before[first:] != now[first:]).any(axis=1))).tolist():
        if not same_stamp(stamp_in(before, index), stamp_in(now, index)):
            yield index, stamp_in(before, index)


def _line(what: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return ""
    more = ", …" if len(found) > _SHOWN else ""
    return f"{len(found)} {what}: {', '.join(map(printable, found[:_SHOWN]))}{more}"
