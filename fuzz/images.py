"""Targets that read images: their headers, their pixels, rectangles of them, and tiled JPEGs made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fuzz.campaign import disagreement
from fuzz.sections import sealed_chunks, sealed_tiles
from packer._images import jpeg_tiles, native, turbojpeg
from packer._images.cropping import crop_mask, nearest
from packer._images.decode import decode, installed_decoders
from packer._images.geometry import Box, Rectangle, visible_part
from packer._images.jpeg import read_header
from packer._images.jpeg_tiles import Tiles, cut_out, cut_out_in_python, first_rows, first_rows_in_python, read_tiles
from packer._images.modes import decode_unchanged
from packer._images.pillow import opened
from packer._images.probe import inspect
from packer._images.rectangle import RectangleDecoder, pad_into, resize_by_torch
from packer.errors import ImageError

MAX_PIXELS = 1 << 18
CONTROLS = 6
"""Bytes before the image in the inputs of `region`: where the rectangle is, its size, one that is not used, and what
becomes of an orientation."""
DRAW_CONTROLS = 11
"""The same for `draw`: where the rectangle is, its size, what it is resized to, the window's size and place in that,
whether it is mirrored or padded, and the interpolation."""

_COMPILED = jpeg_tiles._native is not None


def sniff(data: bytes) -> None:
    """Determine the type and the size of an image."""
    read_header(data)
    try:
        info = inspect(data, MAX_PIXELS)
    except ImageError:
        return
    assert 0 < info.height * info.width <= MAX_PIXELS
    assert info.orientation in range(1, 9)


def image(data: bytes) -> None:
    """Decode an image: every decoder gives Pillow's pixels, with the announced size, or refuses if Pillow does."""
    for exif in ("ignore", "apply"):
        _, problem = disagreement(data, ("auto", *installed_decoders()), exif, MAX_PIXELS)
        assert problem is None, problem
    try:
        info = inspect(data, MAX_PIXELS)
    except ImageError:
        return
    pixels = _decoded(data)
    assert pixels is None or pixels.shape == (info.height, info.width, 3)


def region(data: bytes) -> None:
    """Decode a rectangle of an image: it has the pixels of the whole."""
    controls, picture = data[:CONTROLS].ljust(CONTROLS, b"\0"), data[CONTROLS:]
    exif = ("ignore", "apply")[controls[5] & 1]
    for stored in {picture, sealed_tiles(picture)}:
        try:
            size = inspect(stored, MAX_PIXELS).size_shown(exif)
        except ImageError:
            continue
        top, left = controls[0] * size[0] // 256, controls[1] * size[1] // 256
        height, width = 1 + controls[2] * (size[0] - top) // 256, 1 + controls[3] * (size[1] - left) // 256
        _region(stored, (top, left, height, width), size, exif)


def _region(data: bytes, rectangle: Rectangle, size: tuple[int, int], exif: str) -> None:
    if _COMPILED:
        assert cut_out(data, size, rectangle) == cut_out_in_python(data, size, rectangle)
        bottom = rectangle[0] + rectangle[2]
        assert first_rows(data, size, bottom) == first_rows_in_python(data, size, bottom)
    try:
        pixels = RectangleDecoder(exif, max_pixels=MAX_PIXELS).decode(data, rectangle, size)
    except ImageError:
        return
    _require_same(pixels, data, rectangle, size, exif)


def _require_same(
    pixels: npt.NDArray[np.uint8], data: bytes, rectangle: Rectangle, size: tuple[int, int], exif: str
) -> None:
    """Assert that the pixels of a rectangle are those of the whole image, if that can be decoded."""
    top, left, height, width = rectangle
    assert pixels.shape == (height, width, 3)
    whole: npt.NDArray[np.uint8] | None
    header = read_header(data)
    turned = exif == "apply" and header is not None and header.orientation != 1
    tiles = None if turned else read_tiles(data)
    if tiles is None:
        whole = _decoded(data, exif=exif)
    else:
        if not _truthful(data, tiles):
            return
        whole = np.empty((*size, 3), np.uint8)
        try:
            turbojpeg.decode_jpeg(data, whole)
        except ImageError:
            return
    assert whole is None or np.array_equal(pixels, whole[top : top + height, left : left + width])


def _truthful(data: bytes, tiles: Tiles) -> bool:
    """Tell whether a scan has exactly the markers of its tiles, at the offsets in its table."""
    scan = np.frombuffer(data[tiles.scan : tiles.group_ends[-1]], np.uint8)
    markers = np.flatnonzero(scan[:-1] == 0xFF)
    markers = markers[scan[markers + 1] != 0]
    count = tiles.grid.rows * tiles.grid.columns
    expected = [*(0xD0 + number % 8 for number in range(count - 1)), 0xD9]
    if scan[markers + 1].tolist() != expected:
        return False
    ends = tiles.scan + 2 + markers[tiles.grid.columns - 1 :: tiles.grid.columns]
    return np.array_equal([*ends[tiles.group - 1 : -1 : tiles.group], ends[-1]], tiles.group_ends)


def draw(data: bytes) -> None:
    """Draw a window of a resized rectangle: packer's C gives the pixels of Pillow and torch, or leaves it to them.

    The whole image is decoded as well: what packer's own decoder accepts, Pillow does not refuse.
    """
    controls, picture = data[:DRAW_CONTROLS].ljust(DRAW_CONTROLS, b"\0"), data[DRAW_CONTROLS:]
    for stored in {picture, sealed_tiles(picture)}:
        try:
            info = inspect(stored, MAX_PIXELS)
        except ImageError:
            continue
        size = info.height, info.width
        whole = _decoded(stored, decoder="pillow")
        alone = native.decode(stored, *size) if native.PREFERRED else None
        assert alone is None or (whole is not None and np.array_equal(alone, whole))
        box = _box(controls, size)
        found = _drawn(stored, size, box) if native.PREFERRED else None
        tiles = read_tiles(stored)
        if found is None or (tiles is not None and not _truthful(stored, tiles)):
            continue
        if whole is None:  # it is damaged where the window does not depend on it
            continue
        assert np.array_equal(found, _expected(whole, box))


def _expected(whole: npt.NDArray[np.uint8], box: Box) -> npt.NDArray[np.uint8]:
    """Return the window of an image as torch resizes it, padded by numpy."""
    part, (top, left, height, width) = visible_part(box)._replace(flip=0), box.rectangle
    pixels = whole[top : top + height, left : left + width]
    if box.scaled == (height, width):  # then torch is given the window alone
        pixels = pixels[part.cut_top :, part.cut_left :][: part.out_height, : part.out_width]
    drawn = torch.empty((1, *part.out, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    resize_by_torch(np.ascontiguousarray(pixels), part, drawn)
    padded = np.empty((*box.out, 3), np.uint8)
    pad_into(drawn[0].permute(1, 2, 0).numpy(), part, box, padded)
    return padded


def _box(controls: bytes, size: tuple[int, int]) -> Box:
    """Return the box that the controls of `draw` give for an image of that height and width."""
    top, left = controls[0] * size[0] // 256, controls[1] * size[1] // 256
    height, width = 1 + controls[2] * (size[0] - top - 1) // 255, 1 + controls[3] * (size[1] - left - 1) // 255
    scaled = controls[4] or height, controls[5] or width
    window = 1 + controls[6] * (scaled[0] - 1) // 255, 1 + controls[7] * (scaled[1] - 1) // 255
    cut = controls[8] * (scaled[0] - window[0]) // 255, controls[9] * (scaled[1] - window[1]) // 255
    kinds = controls[10]
    if kinds & 2:  # then the window reaches outside
        cut, window = (cut[0] - controls[8] // 4, cut[1] - controls[9] // 4), (window[0] + 20, window[1] + 30)
    box = Box.of((top, left, height, width), scaled, cut, window, bool(kinds & 1))
    return box._replace(interpolation=kinds >> 2 & 1, padding=kinds >> 3 & 3, fill=kinds * 0x010101)


def _drawn(data: bytes, size: tuple[int, int], box: Box) -> npt.NDArray[np.uint8] | None:
    out = np.empty((*box.out, 3), np.uint8)
    return None if native.decode_into(native.task_of(data, size, box, out.ctypes.data)) else out


def unchanged(data: bytes) -> None:
    """Decode an image without conversion: values are Pillow's or have more bits, and windows of masks agree."""
    controls, picture = data[:DRAW_CONTROLS].ljust(DRAW_CONTROLS, b"\0"), data[DRAW_CONTROLS:]
    for stored in {picture, sealed_chunks(picture)}:
        try:
            whole = decode_unchanged(stored, max_pixels=MAX_PIXELS)
        except ImageError:
            continue
        size = whole.shape[0], whole.shape[1]
        shown = _opened(stored)
        assert shown is not None
        assert shown.shape[:2] == size
        if whole.dtype != np.uint16 or whole.shape[2] == 1:
            assert np.array_equal(whole, shown.reshape(*size, -1), equal_nan=True)
        _require_same_mask(stored, whole, _box(controls, size))


def _require_same_mask(data: bytes, whole: npt.NDArray[Any], box: Box) -> None:
    """Assert that a window of an encoded mask is that of the decoded one."""
    if whole.shape[2] == 1 and whole.dtype.kind != "f":
        window = crop_mask(data, (whole.shape[0], whole.shape[1]), box, fill=9)
        assert np.array_equal(window, nearest(whole[..., 0], box, 9))


def _opened(data: bytes) -> npt.NDArray[Any] | None:
    try:
        with opened(data, MAX_PIXELS) as image:
            return np.array(image)
    except ImageError:
        return None


def transcode(data: bytes) -> None:
    """Make a tiled JPEG of a JPEG: it has the same pixels, or the JPEG is refused."""
    try:
        inspect(data, MAX_PIXELS)
        made = jpeg_tiles.transcode(data)
    except ImageError:
        return
    assert read_tiles(made) is not None
    before, after = _decoded(data), _decoded(made)
    assert before is not None
    assert np.array_equal(before, after)  # type: ignore[arg-type]


def _decoded(data: bytes, *, exif: str = "ignore", decoder: str = "auto") -> npt.NDArray[np.uint8] | None:
    try:
        return decode(data, exif=exif, decoder=decoder, max_pixels=MAX_PIXELS)
    except ImageError:
        return None
