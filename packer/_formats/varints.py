"""Whole numbers as protocol buffers write them."""

from __future__ import annotations

__all__ = ["varint"]


def varint(number: int) -> bytes:
    """Return a number of 64 bits, 7 in a byte, the lowest first; a negative one has ten bytes."""
    number &= (1 << 64) - 1
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
