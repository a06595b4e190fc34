"""Headers of tar members, the same for the same name and size."""

from __future__ import annotations

__all__ = ["BLOCK", "RECORD", "header"]

BLOCK = 512
RECORD = 10_240
"""A tar's length is a multiple of this."""

_NAME, _PREFIX = 100, 155


def header(name: str, size: int) -> bytes:
    """Return what stands before a member's data.

    A name that does not fit into a ustar header stands in a PAX header before it.

    Parameters
    ----------
    name : str
        Printable ASCII.
    size : int
        Bytes of the member, below 8 GiB.
    """
    path = name.encode("ascii")
    if len(path) <= _NAME:
        return _header(path, b"", size, b"0")
    cut = path.find(b"/", len(path) - _NAME - 1)
    if 0 < cut <= _PREFIX:
        return _header(path[cut + 1 :], path[:cut], size, b"0")
    text = _pax(b"path", path)
    extended = _header(b"PaxHeaders/" + path[: _NAME - 11], b"", len(text), b"x")
    return extended + text + bytes(-len(text) % BLOCK) + _header(path[:_NAME], b"", size, b"0")


def _header(path: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    numbers = b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"00000000000\0"
    before, after = path.ljust(_NAME, b"\0") + numbers, kind + bytes(100) + b"ustar\x0000" + bytes(64 + 16)
    after += prefix.ljust(_PREFIX, b"\0") + bytes(12)
    checksum = sum(before) + sum(after) + 8 * ord(" ")
    return before + b"%06o\0 " % checksum + after


def _pax(keyword: bytes, value: bytes) -> bytes:
    """Return a record of a PAX header, which begins with its own length."""
    rest = b" %s=%s\n" % (keyword, value)
    length = len(rest) + 1
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest
