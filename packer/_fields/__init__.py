"""Fields: the data of a sample in addition to its image and label."""

from packer._fields.field import MARGIN, MOST_FIELDS, RESERVED, Field, Stored, declared_field
from packer._fields.kinds import DTYPES, KINDS, NO_VALUE, OF_SCALARS
from packer._fields.where import Column, Condition

__all__ = [
    "DTYPES",
    "KINDS",
    "MARGIN",
    "MOST_FIELDS",
    "NO_VALUE",
    "OF_SCALARS",
    "RESERVED",
    "Column",
    "Condition",
    "Field",
    "Stored",
    "declared_field",
]
