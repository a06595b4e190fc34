"""The files of a tree that were not looked at, because their suffixes are none of an image: how many, and which."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packer._images.signatures import SUFFIXES
from packer.errors import printable

__all__ = ["OtherFiles"]

_NAMED = 2000  # files: a listing and a report hold their names
_KINDS = 1000  # suffixes: names such as scan.0001 have one each
_SHOWN = 10
_WITHOUT, _MORE = "(none)", "(more)"


@dataclass
class OtherFiles:
    """The files of a tree that were not looked at.

    Attributes
    ----------
    counts : dict of str to int
        How many files have each suffix, in lower case; ``"(none)"`` where a name has no suffix.
    names : list of str, optional
        Paths relative to the source, in no order; None where the files are more than a report lists.
    """

    counts: dict[str, int] = field(default_factory=dict)
    names: list[str] | None = field(default_factory=list)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, name: str) -> None:
        """Count a file."""
        suffix = _suffix(name)
        if suffix not in self.counts and len(self.counts) >= _KINDS:
            suffix = _MORE
        self.counts[suffix] = self.counts.get(suffix, 0) + 1
        if self.names is not None:
            self.names.append(name)
            if len(self.names) > _NAMED:
                self.names = None

    def without(self, name: str) -> OtherFiles:
        """Return the files but one that was read after all."""
        if self.names is not None and name not in self.names:
            return self
        counts = dict(self.counts)
        counts[_suffix(name)] = counts.get(_suffix(name), 0) - 1
        names = None if self.names is None else [other for other in self.names if other != name]
        return OtherFiles({suffix: number for suffix, number in counts.items() if number > 0}, names)

    def note(self) -> str:
        """Say how many there are with which suffixes, and how images among them are taken; nothing where none are."""
        if not self.counts:
            return ""
        ordered = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        listed = ", ".join(f"{printable(suffix)} {number:,}" for suffix, number in ordered[:_SHOWN])
        more = f", … ({len(ordered)} suffixes)" if len(ordered) > _SHOWN else ""
        files = "1 file of another type was" if len(self) == 1 else f"{len(self):,} files of other types were"
        advice = ". --any-image takes the images among them; --extensions says which suffixes count"
        return f"{files} not looked at: {listed}{more}{advice if self._may_be_images() else ''}"

    def report(self) -> Iterator[Mapping[str, Any]]:
        """Yield what a report says: each file, or the counts where the files are too many."""
        if self.names is None:
            yield {"not_looked_at": self.counts}
        for name in sorted(self.names or ()):
            yield {"name": name, "not_looked_at": _suffix(name)}

    def _may_be_images(self) -> bool:
        return any(suffix in SUFFIXES or suffix == _WITHOUT for suffix in self.counts)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower() or _WITHOUT
