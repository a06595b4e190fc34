"""Crops of tiled photos, by the kernels and by packer's own decoder."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from device.batch import Photo, batch_of, photo_of
from device.stages import KINDS, Run, Table, run
from device.twin import Twin
from packer._images import native
from packer._images.extension import _native
from packer._images.geometry import Box
from packer._images.jpeg_tiles import transcode
from packer._images.numbers import NumberFormat
from tests.images.samples import encoded, jpeg

Array = npt.NDArray[Any]

LEVELS = Table("uint8", False)
NORMALIZE = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@functools.cache
def tiled(subsampling: str, size: tuple[int, int], variant: str = "baseline") -> Photo:
    """Return a drawn photo, tiled."""
    photo = photo_of(transcode(jpeg(subsampling, variant, size)))
    assert photo is not None
    return photo


@functools.cache
def noise() -> Photo:
    """Return a photo of noise: most coefficients have long codes, and many blocks end with their last coefficient."""
    pixels = np.random.default_rng(8).integers(0, 256, (64, 96, 3), np.uint8)
    photo = photo_of(transcode(encoded(pixels, "JPEG", quality=100, subsampling=0)))
    assert photo is not None
    return photo


def side_of(photo: Photo) -> tuple[int, int]:
    """Return the height and width of a photo."""
    return photo.tiles.grid.height, photo.tiles.grid.width


def corners(photo: Photo, out: tuple[int, int]) -> Iterator[Box]:
    """Yield crops of a photo: all of it, its corners, a pixel, a row, a column, and one in the middle."""
    height, width = side_of(photo)
    tall, wide = max(height // 2, 1), max(width // 3, 1)
    rectangles = [(0, 0, height, width), (height // 3, width // 3, max(height // 3, 1), wide)]
    rectangles += [(top, left, tall, wide) for top in (0, height - tall) for left in (0, width - wide)]
    rectangles += [(height - 1, width - 1, 1, 1), (height // 2, 0, 1, width), (0, width // 2, height, 1)]
    for number, rectangle in enumerate(rectangles):
        yield Box.of(rectangle, out, flip=number % 2 == 1)


def random_box(photo: Photo, out: tuple[int, int], chance: random.Random) -> Box:
    """Return a random crop of a photo."""
    height, width = side_of(photo)
    tall, wide = chance.randint(1, height), chance.randint(1, width)
    corner = chance.randint(0, height - tall), chance.randint(0, width - wide)
    return Box.of((*corner, tall, wide), out, flip=chance.random() < 0.5)


@functools.cache
def table_of(kind: str, planes: bool) -> Table:
    """Return the normalised numbers of all levels, computed by packer's C."""
    levels = torch.arange(256, dtype=torch.uint8)[None, None, None].expand(1, 3, 1, 256)
    levels = levels.contiguous(memory_format=torch.channels_last)
    out = torch.empty((1, 3, 1, 256), dtype=getattr(torch, kind))
    NumberFormat(NORMALIZE, kind, True).write(levels, out)
    return Table(kind, planes, out.numpy().reshape(3, 256).view(KINDS[kind]).copy())


def by_processor(data: bytes, size: tuple[int, int], box: Box, table: Table = LEVELS) -> Array | None:
    """Return the crop by packer's decoder, as the bits of its numbers; None where the decoder refuses the image."""
    shape = (3, *box.out) if table.planes else (*box.out, 3)
    out = np.zeros(shape, KINDS[table.kind])
    conversion = None if table.kind == "uint8" else NumberFormat(NORMALIZE, table.kind, table.planes).for_c()
    left = native.decode_into(native.task_of(data, size, box, out.ctypes.data), conversion=conversion)
    return None if left else out


def cut(photo: Photo, data: bytes, box: Box) -> tuple[bytes, tuple[int, int], Box] | None:
    """Return the JPEG of the tiles that a crop touches, its size, and the crop of it; None where markers are wrong."""
    assert _native is not None
    found = _native.cut_out(data, *side_of(photo), *box.rectangle)
    if found is None:
        return None
    part, (top, left, height, width) = found
    return bytes(part), (height, width), box._replace(top=box.top - top, left=box.left - left)


def by_kernels(twin: Twin, photos: Sequence[Photo], boxes: Sequence[Box], table: Table = LEVELS) -> Run:
    """Return crops made by the kernels; require that the host refuses none."""
    batch = batch_of(photos, boxes)
    assert not batch.refused
    return run(twin, batch, table)


def unequal(twin: Twin, photos: Sequence[Photo], boxes: Sequence[Box], table: Table = LEVELS) -> list[int]:
    """Return which of some crops of sound photos differ from those of packer's decoder."""
    made = by_kernels(twin, photos, boxes, table)
    found = []
    for number, (photo, box) in enumerate(zip(photos, boxes, strict=True)):
        expected = by_processor(photo.data, side_of(photo), box, table)
        if made.status[number] or expected is None or not np.array_equal(made.out[number], expected):
            found.append(number)
    return found


def changed(photo: Photo, at: int, new: bytes) -> Photo:
    """Return a photo whose bytes from `at` on are replaced by `new`."""
    data = photo.data[:at] + new + photo.data[at + len(new) :]
    return photo._replace(data=data[: len(photo.data)])


def mutation(photo: Photo, chance: random.Random) -> Photo:
    """Return a photo with a random change in its scan."""
    ends = int(photo.tiles.group_ends[-1])
    at = chance.randrange(photo.tiles.scan, ends - 2)
    match chance.randrange(4):
        case 0:
            return changed(photo, at, bytes([photo.data[at] ^ 1 << chance.randrange(8)]))
        case 1:
            return changed(photo, at, bytes([chance.choice([0, 0xFF, 0xD0 + chance.randrange(8), 0xD9, 0x7F])]))
        case 2:
            return changed(photo, at, bytes([0xFF, 0xD0 + chance.randrange(8)])[: ends - 2 - at])
        case _:
            return changed(photo, at, chance.randbytes(chance.randrange(1, 9))[: ends - 2 - at])
