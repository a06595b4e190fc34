"""What a label is: the id of a class, or a number that stands for itself. On the disk each takes eight bytes."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LABEL_TYPES", "UNLABELED"]

LABEL_TYPES: Mapping[str, str] = {"class": "<i8", "int": "<i8", "float": "<f8"}
"""The types of labels, as the manifest and ``--label-type`` call them, with the dtype of the table's column.

``class``: an index into the manifest's `classes`, or `UNLABELED`. ``int`` and ``float``: a number without classes.
"""

UNLABELED = -1
"""The label of a sample of which nobody said the class."""
