"""Sources some of whose values are computed when they are asked for, from others and from the image."""

from __future__ import annotations

import abc
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packer._fields import Field, Stored
from packer._sources.base import Source
from packer._sources.container import ContainerSource
from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._sources.readbuffer import ReadBuffer

__all__ = ["DerivedSource", "refuse_derived"]


def refuse_derived(source: Source) -> None:
    """Raise OptionError where a list of the source, which has its columns, would not have all of its fields."""
    if isinstance(source, DerivedSource) and source.derived:
        names = ", ".join(field.name for field in source.derived)
        raise OptionError(
            f"a list of images does not hold the fields {names}, which are computed from the images' annotations: "
            "convert without `packer scan` and --parts"
        )
    if isinstance(source, ContainerSource):
        raise OptionError(
            f"a list of images does not say where they lie in {printable(source.path(0))}: make an index, and take it "
            "in the place of SRC: `packer index SRC OUT.index`"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class DerivedSource(Source, abc.ABC):
    """A source whose first fields are computed from those of its columns.

    Attributes
    ----------
    derived : tuple of Field
        The first of `fields`.
    """

    derived: tuple[Field, ...] = ()

    @abc.abstractmethod
    def derive(self, index: int, stored: Mapping[str, Stored], buffer: ReadBuffer) -> Sequence[Stored]:
        """Return the values of `derived` for image `index`, of which the columns have `stored`; errors as `values`."""

    def values(self, index: int, buffer: ReadBuffer) -> tuple[Stored, ...]:
        stored = super().values(index, buffer)
        if not self.derived:
            return stored
        names = [column.field.name for column in self.columns]
        return (*self.derive(index, dict(zip(names, stored, strict=True)), buffer), *stored)

    def describe(self) -> dict[str, str]:
        described = super().describe()
        fields = json.dumps([field.to_json() for field in self.derived], sort_keys=True)
        sha256 = hashlib.sha256(f"{described['sha256']}{fields}".encode()).hexdigest() if self.derived else ""
        return {**described, **({"sha256": sha256} if sha256 else {})}
