"""The fields of a sample, in addition to image and label."""

from packer._fields.field import DTYPES, KINDS, MARGIN, MOST_FIELDS, OF_SCALARS, PIXELS, RESERVED, Field, Stored
from packer._fields.where import Column, Condition

__all__ = [
    "DTYPES",
    "KINDS",
    "MARGIN",
    "MOST_FIELDS",
    "OF_SCALARS",
    "PIXELS",
    "RESERVED",
    "Column",
    "Condition",
    "Field",
    "Stored",
]
