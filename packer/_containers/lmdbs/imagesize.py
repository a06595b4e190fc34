"""Height and width of a JPEG or a PNG, from as few bytes as it takes: fractions of an image become pixels by them."""

from __future__ import annotations

from packer._containers.lmdbs.rangereader import RangeReader

__all__ = ["size_of"]

_PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of frames, which have the size
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers that no length comes after


def size_of(window: RangeReader) -> tuple[int, int]:
    """Return height and width of an image, as it is stored; ValueError where it is no JPEG and no PNG, or cut off."""
    head = window.take(2)
    if head == _PNG[:2]:
        rest = window.take(22)
        if (head + rest).startswith(_PNG):
            return int.from_bytes(rest[18:22], "big"), int.from_bytes(rest[14:18], "big")
    elif head == b"\xff\xd8":
        while True:
            marker = window.byte()
            if marker != 0xFF:
                raise ValueError("its JPEG is damaged")
            while marker == 0xFF:
                marker = window.byte()
            if marker in _ALONE:
                continue
            size = int.from_bytes(window.take(2), "big")
            if marker in _FRAMES:
                frame = window.take(5)
                return int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
            window.skip(size - 2)
    raise ValueError("it is no JPEG and no PNG, and the size of others is not known")
