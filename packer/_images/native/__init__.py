"""Reading, decoding, resizing and padding images in C, without Python's lock.

packer's own decoder reads nearly all JPEGs and PNGs. Its JPEG pixels equal those of libjpeg-turbo (CMYK is converted as
in Pillow), and its PNG pixels equal those of Pillow. The decoder decodes only the part of an image that a crop needs:
it skips the tiles that the crop's rectangle does not touch, and stops below the rectangle. Unusual and damaged images
are left to other decoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.extension import VECTORS, _native, require_fields
from packer._images.geometry import CROP, Box, Crops
from packer._images.operations import OPERATION, Operations, as_numbers
from packer._storage.packfile import LOCATION, MEMORY
from packer._table import Buffer, Ints

Pixels = npt.NDArray[np.uint8]
Records = npt.NDArray[Any]

PREFERRED = _native is not None
"""Whether packer's C was compiled. On every processor it decodes crops and PNGs, and resizes, faster than other
libraries. Measured on x86-64 without AVX2, libjpeg-turbo with SSE2 and torch take 1.8 times as long for a training
crop, and Pillow takes 2.5 times as long for a PNG."""

WHOLE_JPEGS = bool(VECTORS)
"""Whether packer's C is also the fastest decoder of whole sequential JPEGs, as it is with AVX2 or NEON. libjpeg-turbo
uses other vectors too, and its plain C is faster: measured on x86-64 without AVX2, it takes 0.65 of the time, and on
64-bit RISC-V 0.5 of the instructions."""

WRITES_JPEGS = VECTORS in ("AVX2", "AVX-512")
"""Whether packer's C is the fastest encoder of JPEGs. It has no code for other vectors, and its plain C takes three
times as long as OpenCV."""

TASK = np.dtype([*LOCATION.descr, *CROP.descr, ("out", np.int64)])
"""An image and its crop: the fields of `LOCATION` and of `CROP`, and the address of the memory for the result. The
result is (out_height, out_width, 3) uint8 levels, or as many numbers if levels are converted."""


class LevelConversion(NamedTuple):
    """The conversion of pixel levels to numbers, in the form that C takes.

    Without a table and constants, levels stay unchanged.

    Attributes
    ----------
    table : contiguous (3, 256) float32 array, optional
        The number for each level of red, green and blue.
    constants : contiguous float32 array, optional
        Used instead of a table: the factor for levels, the offset and the divisor of each channel, and the two shares
        of a mixture.
    type : int
        The index of the numbers' type in `packer._images.numbers.TYPES`.
    planes : bool
        True if the numbers of each colour are contiguous in memory; False if the numbers of each pixel are.
    """

    table: npt.NDArray[np.float32] | None = None
    constants: npt.NDArray[np.float32] | None = None
    type: int = 0
    planes: bool = False

    def arguments(self) -> tuple[int, int, int, bool]:
        """Return the arguments for C; they are valid as long as this object exists."""
        table, constants = (0 if array is None else array.ctypes.data for array in self[:2])
        return table, constants, self.type, self.planes


LEVELS = LevelConversion().arguments()
"""C's arguments for levels that are not converted."""


require_fields(TASK.names, "TASK_FIELDS")
require_fields(OPERATION.names, "OPERATION_FIELDS")


def tasks(locations: Records, crops: Crops, addresses: Ints) -> Records:
    """Build the tasks that `decode_into` takes: one record for each image, its crop and the address of the result.

    Parameters
    ----------
    locations : (N,) array of LOCATION
    crops : (N,) array of CROP
    addresses : (N,) int64 array
        Addresses of the results' memory.

    Returns
    -------
    (N,) array of TASK
    """
    made = np.empty(len(locations), TASK)
    numbers, begin = as_numbers(made), LOCATION.itemsize // 8
    numbers[:, :begin] = as_numbers(locations)
    numbers[:, begin:-1] = as_numbers(crops)
    numbers[:, -1] = addresses
    return made


def in_memory(images: Sequence[Buffer], sizes: Sequence[tuple[int, int]]) -> Records:
    """Return an (N,) array of LOCATION for images in memory with known sizes. The caller keeps the images alive."""
    locations, bytes_of = np.zeros(len(images), LOCATION), [np.frombuffer(data, np.uint8) for data in images]
    locations["file"] = MEMORY
    locations["position"] = [data.ctypes.data for data in bytes_of]
    locations["size"] = [data.size for data in bytes_of]
    locations["height"], locations["width"] = np.array(sizes, np.int64).reshape(-1, 2).T
    return locations


def task_of(data: Buffer, size: tuple[int, int], box: Box, address: int, raw: bool = False) -> Records:
    """Return the task for one image in memory, as a (1,) array of TASK. The caller keeps the image alive."""
    image = np.frombuffer(data, np.uint8)
    location = MEMORY, image.ctypes.data, image.size, raw, *size, 0, 0, 0, 0, 0
    return np.array((*location, *box, address), np.int64).view(TASK)  # five times as fast as filling a record


def decode_one(  # noqa: PLR0917
    data: Buffer,
    size: tuple[int, int],
    box: Box,
    address: int,
    raw: bool = False,
    operations: Operations | None = None,
) -> bool:
    """Decode a crop of one image in memory, in a fifth of the time that `decode_into` needs for one task.

    Parameters
    ----------
    data : bytes-like
        The encoded image; if `raw` is True, its pixels instead.
    size : (height, width)
        The size of the whole image.
    box : Box
    address : int
        The address of the result's memory.
    operations : (1, M) array of OPERATION, optional

    Returns
    -------
    bool
        Whether the image was decoded; if not, the caller tries other decoders.
    """
    task = task_of(data, size, box, address, raw)
    changes, each = (0, 0) if operations is None else (operations.ctypes.data, operations.shape[1])
    return not _native.decode_into(task.ctypes.data, 1, changes, each, *LEVELS)


def decode_into(
    tasks: Records,
    operations: Operations | None = None,
    conversion: LevelConversion | None = None,
) -> list[int]:
    """Read images, decode and resize rectangles, and write windows of the results as pixels or converted numbers.

    Consecutive tasks of one image are run together: the image is read, checked and decoded once.

    Parameters
    ----------
    tasks : (N,) array of TASK
        The addresses in the tasks are not checked.
    operations : (N, M) array of OPERATION, optional
        The operations on each result, one after the other.
    conversion : LevelConversion, optional

    Returns
    -------
    list of int
        The indices of the tasks that failed. Their bytes are missing or have changed, or are not an intact JPEG or PNG
        of a supported kind and of the size in the task. The outputs of these tasks are undefined, and the caller tries
        other decoders.

    Raises
    ------
    ValueError
        If a rectangle does not lie inside of its image, an operation cannot be applied to a result of this size, or a
        number in a record is far out of range.
    """
    tasks = np.ascontiguousarray(tasks, TASK)
    become = LEVELS if conversion is None else conversion.arguments()
    if operations is None:
        return _native.decode_into(tasks.ctypes.data, len(tasks), 0, 0, *become)
    operations = np.ascontiguousarray(operations, OPERATION)
    if operations.ndim != 2 or len(operations) != len(tasks):
        raise ValueError(
            f"{len(tasks)} images need operations of shape (images, operations for each), not {operations.shape}"
        )
    return _native.decode_into(tasks.ctypes.data, len(tasks), operations.ctypes.data, operations.shape[1], *become)


def augment(pixels: Pixels, operations: Operations) -> None:
    """Change an image in place by operations, one after the other.

    Parameters
    ----------
    pixels : contiguous (height, width, 3) uint8 array
        RGB.
    operations : (N,) array of OPERATION

    Raises
    ------
    ValueError
        If an operation cannot be applied to an image of this size, or if the array has another shape, dtype or layout.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.flags.c_contiguous:
        raise ValueError(
            f"pixels must be uint8, contiguous and of shape (height, width, 3), not {pixels.dtype} {pixels.shape}"
        )
    operations = np.ascontiguousarray(operations, OPERATION)
    height, width, _ = pixels.shape
    _native.augment(pixels.ctypes.data, height, width, operations.ctypes.data, len(operations))


def decode(data: Buffer, height: int, width: int, out: Pixels | None = None) -> Pixels | None:
    """Decode a JPEG or a PNG.

    Parameters
    ----------
    data : bytes-like
        Any image.
    height, width : int
        The size of the image in pixels.
    out : contiguous (H, W, 3) uint8 array, optional
        The output array. The image is resized to the size of this array, bilinear with anti-aliasing.

    Returns
    -------
    (H, W, 3) uint8 array or None
        RGB. None if the image is left to other decoders.
    """
    if out is None:
        out = np.empty((height, width, 3), np.uint8)
    new_height, new_width, _ = out.shape
    box = Box(0, 0, height, width, new_height, new_width, 0, 0, new_height, new_width)
    return out if decode_one(data, (height, width), box, out.ctypes.data) else None


def decode_grey(data: Buffer, height: int, width: int) -> Pixels | None:
    """Decode a JPEG in grey, without expansion to RGB.

    Parameters
    ----------
    data : bytes-like
        Any image.
    height, width : int
        The size of the image in pixels, each 1 or more.

    Returns
    -------
    (height, width, 1) uint8 array or None
        None if the image is left to other decoders, or is in colour.
    """
    out = np.empty((height, width, 1), np.uint8)
    return out if _native.decode_grey(bytes(data), height, width, out.ctypes.data) else None


def encode_jpeg(pixels: Pixels, quality: int, interval: int) -> bytes:
    """Encode pixels as a baseline JPEG with 4:2:0 subsampling; the bytes are the same as from Pillow.

    Parameters
    ----------
    pixels : (height, width, 3) uint8 array
        RGB, with 1 to 65500 pixels per side.
    quality : int
        1 to 100.
    interval : int
        Number of MCUs between restart markers, at most 65535; 0 for no markers.

    Raises
    ------
    ValueError
        If a number is out of range, or the array has another shape or dtype (C would misread its bytes as levels).
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ValueError(f"pixels must be uint8 of shape (height, width, 3), not {pixels.dtype} {pixels.shape}")
    if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 0:
        pixels = np.ascontiguousarray(pixels)
    height, width, _ = pixels.shape
    return _native.encode_jpeg(pixels.ctypes.data, height, width, pixels.strides[0], quality, interval)


def resize(pixels: Pixels, box: Box, address: int) -> bool:
    """Resize the pixels of a box's rectangle, and write the box's window, which must lie inside of the resized pixels.

    Parameters
    ----------
    pixels : (H, W, 3) uint8 array
        Pixels that begin at the upper left corner of the rectangle, and cover at least the area that
        `packer._images.geometry.touched` returns.
    address : int
        The address of an output array, (out_height, out_width, 3) uint8.

    Returns
    -------
    bool
        Whether the window was written. False if a side has more than 2**20 pixels.

    Raises
    ------
    ValueError
        If the window reaches outside of the resized pixels, or a number in the box is far out of range.
    """
    if pixels.strides[1:] != (3, 1) or pixels.strides[0] < 0:
        pixels = np.ascontiguousarray(pixels)
    begin, stride, (rows, columns, _) = pixels.ctypes.data, pixels.strides[0], pixels.shape
    crop, scaled, cut, out = box.crop, box.scaled, box.cut, box.out
    kind = bool(box.flip), box.interpolation
    return _native.resize(begin, stride, rows, columns, *crop, *scaled, *cut, *out, *kind, address)


def look_up(
    pixels: Pixels,
    table: npt.NDArray[np.float32],
    *,
    planes: bool = True,
    out: npt.NDArray[np.float32] | None = None,
) -> npt.NDArray[np.float32]:
    """Convert the pixel levels of one image or several to the numbers in a table.

    Parameters
    ----------
    pixels : (height, width, 3) or (N, height, width, 3) uint8 array
        RGB.
    table : (3, 256) float32 array
        The number for each level of red, green and blue.
    planes : bool
        Whether the numbers are planar in memory; otherwise the numbers of a pixel are adjacent.
    out : contiguous (3, height, width) or (N, 3, height, width) float32 array, optional
        The output for the numbers, colour by colour.

    Returns
    -------
    (3, height, width) or (N, 3, height, width) float32 array
    """
    pixels, table = np.ascontiguousarray(pixels, np.uint8), np.ascontiguousarray(table, np.float32)
    if table.shape != (3, 256) or pixels.ndim not in (3, 4) or pixels.shape[-1] != 3:
        raise ValueError(
            f"the table must have the shape (3, 256) and the pixels (H, W, 3), not {table.shape} and {pixels.shape}"
        )
    several, size = pixels.shape[:-3], pixels.shape[-3:-1]
    if out is not None and (
        not planes or out.shape != (*several, 3, *size) or out.dtype != np.float32 or not out.flags.c_contiguous
    ):
        raise ValueError(f"numbers of {size} pixels need a contiguous float32 array, not {out.dtype} {out.shape}")
    numbers = np.empty((*several, 3, *size) if planes else (*several, *size, 3), np.float32) if out is None else out
    by_colour = numbers if planes else np.moveaxis(numbers, -1, -3)
    if _native is None:
        for colour, levels in enumerate(table):
            by_colour[..., colour, :, :] = levels[pixels[..., colour]]
    else:
        pixels_each, images = size[0] * size[1], several[0] if several else 1
        _native.look_up(pixels.ctypes.data, pixels_each, table.ctypes.data, numbers.ctypes.data, planes, images)
    return by_colour
