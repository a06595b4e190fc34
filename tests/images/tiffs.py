"""Write TIFFs with any number of bands, and in layouts that few programs write (TIFF 6.0)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

GREY, RGB = 1, 2
"""Photometric interpretations."""

_NONE, _DEFLATE = 1, 8
_FORMATS = {"u": 1, "i": 2, "f": 3}


def noise(bands: int, dtype: str, size: tuple[int, int] = (20, 33)) -> npt.NDArray[Any]:
    """Draw (height, width, bands) numbers over the whole range of a dtype; floats from 0 to 1."""
    rng, kind = np.random.default_rng(bands), np.dtype(dtype)
    if kind.kind == "f":
        return rng.random((*size, bands)).astype(kind)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, (*size, bands), endpoint=True).astype(kind)


def tiff(
    samples: npt.NDArray[Any],
    photometric: int = RGB,
    extra: Sequence[int] = (),
    *,
    planar: bool = False,
    order: str = "<",
    deflated: bool = False,
    predicted: bool = False,
    tile: int = 0,
    rows: int = 0,
    long: bool = False,
    tags: Mapping[int, int] | None = None,
) -> bytes:
    """Write a TIFF of (height, width, bands) samples.

    Parameters
    ----------
    extra : sequence of int
        The meaning of the bands beyond the colours: 0 unspecified, 1 associated alpha, 2 unassociated alpha.
    planar : bool
        Whether each band is stored separately.
    order : {"<", ">"}
    deflated, predicted : bool
        Whether the samples are compressed, and before that replaced by horizontal differences.
    tile : int
        The side of the tiles, a multiple of 16; 0 for strips.
    rows : int
        Rows of a strip; 0 for all.
    long : bool
        Whether it is a BigTIFF.
    tags : mapping, optional
        Other tags of one short value each.
    """
    height, width, bands = samples.shape
    planes = [samples[..., band : band + 1] for band in range(bands)] if planar else [samples]
    pieces = [piece for plane in planes for piece in _pieces(plane, tile, rows or height)]
    packed = [_packed(piece, order, deflated, predicted) for piece in pieces]
    file = bytearray({"<": b"II", ">": b"MM"}[order] + struct.pack(order + "H", 43 if long else 42))
    file += struct.pack(order + "HHQ", 8, 0, 0) if long else bytes(4)
    offsets = []
    for piece in packed:
        offsets.append(len(file))
        file += piece + bytes(len(piece) % 2)
    short, long_value = 3, 16 if long else 4
    entries: dict[int, tuple[int, Sequence[int]]] = {
        256: (long_value, [width]),
        257: (long_value, [height]),
        258: (short, [8 * samples.dtype.itemsize] * bands),
        259: (short, [_DEFLATE if deflated else _NONE]),
        262: (short, [photometric]),
        277: (short, [bands]),
        284: (short, [2 if planar else 1]),
        339: (short, [_FORMATS[samples.dtype.kind]] * bands),
        **{tag: (short, [value]) for tag, value in (tags or {}).items()},
    }
    sizes = [len(piece) for piece in packed]
    if tile:
        entries |= {322: (short, [tile]), 323: (short, [tile]), 324: (long_value, offsets), 325: (long_value, sizes)}
    else:
        entries |= {273: (long_value, offsets), 278: (long_value, [rows or height]), 279: (long_value, sizes)}
    if predicted:
        entries[317] = short, [2]
    if extra:
        entries[338] = short, extra
    _add_directory(file, order, entries, long=long)
    return bytes(file)


def _pieces(plane: npt.NDArray[Any], tile: int, rows: int) -> list[npt.NDArray[Any]]:
    height, width, bands = plane.shape
    if not tile:
        return [plane[top : top + rows] for top in range(0, height, rows)]
    padded = np.zeros((-(-height // tile) * tile, -(-width // tile) * tile, bands), plane.dtype)
    padded[:height, :width] = plane
    return [
        padded[top : top + tile, left : left + tile]
        for top in range(0, padded.shape[0], tile)
        for left in range(0, padded.shape[1], tile)
    ]


def _packed(piece: npt.NDArray[Any], order: str, deflated: bool, predicted: bool) -> bytes:
    if predicted:
        bits = piece.view(f"u{piece.dtype.itemsize}").copy()
        bits[:, 1:] -= piece.view(bits.dtype)[:, :-1]
        piece = bits
    data = piece.astype(piece.dtype.newbyteorder(order)).tobytes()
    return zlib.compress(data) if deflated else data


def _add_directory(
    file: bytearray, order: str, entries: Mapping[int, tuple[int, Sequence[int]]], *, long: bool
) -> None:
    number, place, head = ("Q", "Q", "HHQ") if long else ("H", "I", "HHI")
    inline, at = struct.calcsize(order + place), len(file)
    beyond = at + struct.calcsize(order + number) + len(entries) * (struct.calcsize(order + head) + inline) + inline
    listed, values = b"", b""
    for tag, (kind, numbers) in sorted(entries.items()):
        packed = struct.pack(f"{order}{len(numbers)}{ {3: 'H', 4: 'I', 16: 'Q'}[kind] }", *numbers)
        if len(packed) > inline:
            packed, values = struct.pack(order + place, beyond + len(values)), values + packed + bytes(len(packed) % 2)
        listed += struct.pack(order + head, tag, kind, len(numbers)) + packed.ljust(inline, b"\0")
    file += struct.pack(order + number, len(entries)) + listed + bytes(inline) + values
    struct.pack_into(order + place, file, inline, at)
