"""Images read, decoded, resized and put into their places in C, without Python's lock: see packer/_images/native.

packer's own decoder knows baseline JPEGs, which nearly all JPEGs are, and gives libjpeg-turbo's pixels. Of a rectangle
it decodes no more than what is wanted: tiles that are not touched it skips, and what lies below it leaves alone.
Whatever is unusual or damaged it leaves to other decoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.geometry import Box
from packer._storage.locations import LOCATION, MEMORY
from packer._table import Buffer

__all__ = ["PREFERRED", "TASK", "decode", "decode_into", "in_memory", "resize", "task_of", "tasks"]

Ints = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]

PREFERRED = _native is not None and bool(_native.HAS_VECTORS)
"""Whether this is the fastest way: C was compiled, and there are the vectors that it uses (AVX2). libjpeg-turbo knows
more kinds of vectors, and without them is twice as fast."""

_WANTED = (
    *("top", "left", "crop_height", "crop_width"),
    *("scaled_height", "scaled_width"),
    *("cut_top", "cut_left", "out_height", "out_width"),
    "flip",
)
TASK = np.dtype([*LOCATION.descr, *((name, np.int64) for name in (*_WANTED, "out"))])
"""An image and what is wanted of it: `LOCATION`; the fields of a crop; the address of the memory of
the window, of (out_height, out_width, 3) uint8."""

if _native is not None and TASK.names != tuple(_native.TASK_FIELDS.split()):
    raise ImportError("packer._images._native was compiled from another version: install packer anew")


def tasks(stored: Records, plan: Ints, addresses: Ints) -> Records:
    """Return what `decode_into` has to do.

    Parameters
    ----------
    stored : (N,) array of LOCATION
    plan : (N, 11) int64 array
        What is wanted of each; see `packer._images.geometry.Box.of`.
    addresses : (N,) int64 array
        Those of the windows' memory.

    Returns
    -------
    (N,) array of TASK
    """
    numbers = stored.view(np.int64).reshape(len(stored), len(LOCATION.names or ()))
    made = np.concatenate([numbers, plan, addresses[:, None]], 1, dtype=np.int64)
    return made.view(TASK)[:, 0]


def in_memory(images: Sequence[Buffer], sizes: Sequence[tuple[int, int]]) -> Records:
    """Return where images of known pixels lie in memory, where they must stay; an (N,) array of LOCATION."""
    stored, bytes_of = np.zeros(len(images), LOCATION), [np.frombuffer(data, np.uint8) for data in images]
    stored["file"] = MEMORY
    stored["position"] = [data.ctypes.data for data in bytes_of]
    stored["size"] = [data.size for data in bytes_of]
    stored["height"], stored["width"] = np.array(sizes, np.int64).reshape(-1, 2).T
    return stored


def task_of(data: Buffer, size: tuple[int, int], box: Box, out_size: tuple[int, int], out: int) -> Records:
    """Return what `decode_into` has to do for one image in memory, which must stay there; a (1,) array of TASK."""
    plan = np.array([(*box.rectangle, *box.scaled, *box.cut, *out_size, box.flip)], np.int64)
    return tasks(in_memory([data], [size]), plan, np.array([out], np.int64))


def decode_into(tasks: Records) -> list[int]:
    """Read images, decode rectangles of them, resize those, and write windows of the results.

    Parameters
    ----------
    tasks : (N,) array of TASK
        Addresses in them are believed.

    Returns
    -------
    list of int
        The numbers of those that are to be done in another way: the bytes are not there, or not what they were, or
        no undamaged baseline JPEG of that size. Their windows may have any pixels.

    Raises
    ------
    ValueError
        If a rectangle does not lie inside of its image, or a window inside of what that is resized to.
    """
    tasks = np.ascontiguousarray(tasks, TASK)
    return _native.decode_into(tasks.ctypes.data, len(tasks))


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
    box = Box((0, 0, height, width), (out.shape[0], out.shape[1]))
    return None if decode_into(task_of(data, (height, width), box, box.scaled, out.ctypes.data)) else out


def resize(pixels: Pixels, box: Box, out_size: tuple[int, int], out: int) -> bool:
    """Resize the pixels of a box's rectangle, and write the box's window of the result.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        From the rectangle's upper left corner on, as much as `packer._images.geometry.touched` says or more.
    out_size : (height, width)
        The window's.
    out : int
        The address of its memory, of (height, width, 3) uint8.

    Returns
    -------
    bool
        Whether that was done. Not where a side has more than 2**20 pixels.
    """
    if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 0:
        pixels = np.ascontiguousarray(pixels)
    (rows, columns, _), (tall, wide) = pixels.shape, box.rectangle[2:]
    address, stride = pixels.ctypes.data, pixels.strides[0]
    return _native.resize(address, stride, rows, columns, tall, wide, *box.scaled, *box.cut, *out_size, box.flip, out)
