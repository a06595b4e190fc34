"""The source of a conversion in parts, as every task finds it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packer._sources import Source, is_listing, listed_source, pack_source
from packer.errors import SourceError, printable

__all__ = ["SharedSource"]


@dataclass(frozen=True)
class SharedSource:
    """Where every task finds the source: a listing or a pack, on the disk that all of them see.

    Attributes
    ----------
    path : Path
    classes : list of str, optional
        Class names in the order of their ids, in place of those of a pack.
    limit : int, optional
        How many images are taken.
    identities : list of str, optional
        What `Source.identities` of a pack must return.
    sample : int, optional
        How many images are taken, evenly spread.
    where : str, optional
        Which samples of a pack are taken, before the others count.
    """

    path: Path
    classes: list[str] | None = None
    limit: int | None = None
    identities: list[str] | None = None
    sample: int | None = None
    where: str | None = None

    def open(self) -> Source:
        """Open the source, in constant time; SourceError where it is another pack by now."""
        source = listed_source(self.path) if is_listing(self.path) else self._pack()
        if self.identities is not None and source.identities() != self.identities:
            raise SourceError(f"{printable(self.path)}: another pack is there than when the conversion began")
        return source.limited(self.limit) if self.limit else source.sampled(self.sample) if self.sample else source

    def _pack(self) -> Source:
        source = pack_source(self.path, classes=self.classes)
        return source if self.where is None else source.where(self.where)
