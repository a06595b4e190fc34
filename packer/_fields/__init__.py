"""The fields of a sample beside image and label."""

from packer._fields.field import DTYPES, KINDS, MOST_FIELDS, PIXELS, RESERVED, Field, Stored

__all__ = ["DTYPES", "KINDS", "MOST_FIELDS", "PIXELS", "RESERVED", "Field", "Stored"]
