"""Bytes to pixels and back. Knows no format and no pack."""
