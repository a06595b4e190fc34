"""What the source listed when a conversion began, kept beside the journal: it tells how a source of now differs."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from packer.errors import printable
from packer.formats.files import writing_to
from packer.sample import Names
from packer.sources import Source

__all__ = ["listing_differences", "save_listing"]

_SHOWN = 5
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, IndexError, zipfile.BadZipFile, zlib.error)


def save_listing(path: Path, source: Source) -> None:
    """Write down the names, labels and classes of `source`."""
    classes = Names.of(source.classes)
    with writing_to(path), open(path, "wb") as file:
        np.savez(
            file,
            classes=classes.blob,
            class_ends=classes.ends,
            names=source.names.blob,
            name_ends=source.names.ends,
            labels=source.labels,
        )


def listing_differences(path: Path, source: Source) -> list[str]:
    """Return a line for each way in which `source` differs from what was written down.

    The listing only explains, and is not synced: after a crash it may be gone, and then no line is returned.
    """
    try:
        with np.load(path, allow_pickle=False) as saved:
            classes = list(Names(saved["classes"], saved["class_ends"]))
            names = list(Names(saved["names"], saved["name_ends"]))
            labels = saved["labels"].tolist()
    except _UNREADABLE:
        return []
    before = dict(zip(names, labels, strict=False))
    now = dict(zip(source.names, source.labels.tolist(), strict=True))
    moved = [
        name
        for name in before.keys() & now.keys()
        if classes[before[name] : before[name] + 1] != source.classes[now[name] : now[name] + 1]
    ]
    lines = [
        _line("classes were removed", set(classes) - set(source.classes)),
        _line("classes were added", set(source.classes) - set(classes)),
        _line("images were removed", before.keys() - now.keys()),
        _line("images were added", now.keys() - before.keys()),
        _line("images have another class", moved),
    ]
    return [line for line in lines if line]


def _line(what: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return ""
    more = ", …" if len(found) > _SHOWN else ""
    return f"{len(found)} {what}: {', '.join(map(printable, found[:_SHOWN]))}{more}"
