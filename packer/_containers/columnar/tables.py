"""What the containers have in common whose samples are rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from packer._containers.columnar.hfcolumns import Columns
from packer._containers.contract import Container

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TableImages"]


@dataclass(eq=False)
class TableImages(Container):
    """Files of tables with a column of images.

    Attributes
    ----------
    columns : Columns
        What the columns become.
    """

    columns: Columns = field(default_factory=lambda: Columns(""))

    @classmethod
    def of_columns(cls, paths: Sequence[Path], columns: Columns) -> Self:
        """Return the container whose files have these columns."""
        return cls.of_files(
            paths,
            fields=columns.fields,
            classes=columns.classes,
            label_type=columns.label_type,
            notes=columns.notes,
            account=columns.account,
            columns=columns,
        )
