"""Images decoded, resized and put into their places in C, without Python's lock: see packer/images/native.

packer's own decoder knows baseline JPEGs, which nearly all JPEGs are, and gives libjpeg-turbo's pixels. Of a rectangle
it decodes no more than what is wanted: tiles that are not touched it skips, and what lies below it leaves alone.
Whatever is unusual or damaged it leaves to other decoders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from packer.images.box import Box
from packer.images.cutting import cut_out
from packer.sample import Buffer

try:
    from packer.images import _native
except ImportError:  # it was installed without a compiler
    _native = None  # type: ignore[assignment]

__all__ = ["AVAILABLE", "decode", "draw", "job_rows", "resize"]

Ints = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]

AVAILABLE = _native is not None and bool(_native.HAS_VECTORS)
"""Whether this is the fastest way: C was compiled, and there are the vectors that it uses (AVX2). libjpeg-turbo knows
more kinds of vectors, and without them is twice as fast."""

_WORTH_CUTTING = 1 << 18  # bytes of a JPEG; in a smaller one all markers are found faster than a table is checked


def decode(data: Buffer, height: int, width: int, scaled: tuple[int, int] | None = None) -> Pixels | None:
    """Decode a JPEG.

    Parameters
    ----------
    data : bytes-like
        Any image.
    height, width : int
        Its pixels.
    scaled : (height, width), optional
        What it is resized to, anti-aliased and bilinear; by default it is not.

    Returns
    -------
    (height, width, 3) uint8 array or None
        RGB. None where another decoder has to do it.
    """
    out = np.empty((*(scaled or (height, width)), 3), np.uint8)
    numbers = height, width, 0, 0, height, width, *out.shape[:2], 0, 0, *out.shape[:2], False, out.ctypes.data
    job = np.array(numbers, np.int64)
    return None if _native.draw((bytes(data),), job.ctypes.data) else out


def job_rows(sizes: Ints, plan: Ints, addresses: Ints) -> Ints:
    """Return what `draw` has to do.

    Parameters
    ----------
    sizes : (N, 2) int64 array
        Heights and widths of N images.
    plan : (N, 11) int64 array
        What is wanted of each; see `packer.images.box.Box.of`.
    addresses : (N,) int64 array
        Those of the windows' memory, of (height, width, 3) uint8 each.

    Returns
    -------
    (N, 14) int64 array
        One job a row.
    """
    return np.concatenate([sizes, plan, addresses[:, None]], 1, dtype=np.int64)


def draw(images: Sequence[Buffer], jobs: Ints) -> list[int]:
    """Decode rectangles of JPEGs, resize them, and write windows of the results.

    Parameters
    ----------
    images : sequence of N bytes-like
        Any images.
    jobs : (N, 14) int64 array
        As `job_rows` gives.

    Returns
    -------
    list of int
        The numbers of those that another decoder has to do, as the image is not an undamaged baseline JPEG of that
        size. Their windows may have any pixels.
    """
    if jobs.shape != (len(images), 14) or jobs.dtype != np.int64:
        raise ValueError("a job for each image is needed, of 14 numbers")
    jobs = np.ascontiguousarray(jobs)
    if max(map(len, images), default=0) >= _WORTH_CUTTING:
        jobs = jobs.copy()
        images = [_cut(data, job) for data, job in zip(images, jobs, strict=True)]
    return _native.draw([bytes(data) for data in images], jobs.ctypes.data)


def _cut(data: Buffer, job: Ints) -> bytes:
    """Return what of an image the tiles are that its job depends on, and change the job accordingly."""
    if len(data) < _WORTH_CUTTING:
        return bytes(data)
    height, width, top, left, tall, wide = job[:6].tolist()
    part = cut_out(data, (height, width), (top, left, tall, wide))
    if part is None:
        return bytes(data)
    part_top, part_left, *size = part.rectangle
    job[:4] = *size, top - part_top, left - part_left
    return bytes(part.data)


def resize(pixels: Pixels, box: Box, out_size: tuple[int, int], out: int) -> bool:
    """Resize the pixels of a box's rectangle, and write the box's window of the result.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        From the rectangle's upper left corner on, as much as `packer.images.box.touched` says or more.
    out_size, out
        As for `draw`.

    Returns
    -------
    bool
        Whether that was done. Not where a side has more than 65,536 pixels.
    """
    if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 0:
        pixels = np.ascontiguousarray(pixels)
    (rows, columns, _), (tall, wide) = pixels.shape, box.rectangle[2:]
    address, stride = pixels.ctypes.data, pixels.strides[0]
    return _native.resize(address, stride, rows, columns, tall, wide, *box.scaled, *box.cut, *out_size, box.flip, out)
