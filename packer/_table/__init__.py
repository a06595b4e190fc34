"""Samples, and the table with one row a sample."""

from packer._table.names import LONGEST_NAME, Names, decode_name, encode_name
from packer._table.pieces import blocks, column_checksum, spans
from packer._table.table import (
    COLUMNS,
    NO_VALUE,
    Buffer,
    Ints,
    Labels,
    Row,
    Sample,
    Table,
    are_pixels,
    checksum,
    column_checksums,
    column_types,
    field_columns,
    value_checksum,
    with_offsets,
)
from packer._table.vector import Vector

__all__ = [
    "COLUMNS",
    "LONGEST_NAME",
    "NO_VALUE",
    "Buffer",
    "Ints",
    "Labels",
    "Names",
    "Row",
    "Sample",
    "Table",
    "Vector",
    "are_pixels",
    "blocks",
    "checksum",
    "column_checksum",
    "column_checksums",
    "column_types",
    "decode_name",
    "encode_name",
    "field_columns",
    "spans",
    "value_checksum",
    "with_offsets",
]
