"""Decoding to modes other than RGB: grey, and unchanged.

The mode "unchanged" keeps the stored pixels of a file: grey, alpha, the indices of a palette, 16 bits, floats. Pillow
decodes most of these images. If Pillow would lose bits or bands, packer reads the image itself, or refuses it. Pillow
reads all bits of grey images with 8, 16 and 32 bits. So a TIFF of several bands, such as red, green, blue and infrared,
is passed to Pillow as a grey TIFF in which the bands are side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._codecs import MAX_PIXELS
from packer._images import jpeg, native, pillow, png, tiff
from packer._images.decode import apply_orientation, decode
from packer._images.probe import require_affordable
from packer._images.tiff import TIFF, depth_of, is_whole, require_all_bits
from packer._table import Buffer
from packer.errors import ImageError

_MODES = {("u", 8): np.uint8, ("u", 16): np.uint16, ("i", 16): np.int32, ("i", 32): np.int32, ("f", 32): np.float32}
"""The kinds and bits of the numbers that Pillow reads as grey, and for each the dtype of Pillow's array."""

_COLOURS = (1, 2, 5)  # grey, RGB and CMYK
_UNPREDICTED = (1, 32773)  # compressions without a predictor: none, and PackBits
_PREDICTED = (5, 8, 32946, 50000)  # compressions that may have a predictor: LZW, Deflate and Zstandard
_DIFFERENCES = 2  # the predictor that stores differences of neighbours
_MOST_SEPARATE = 256  # bands that are stored one after the other: each takes a copy of the file
_PREMULTIPLIED = 1  # the colours were multiplied by alpha, which Pillow undoes


def decode_bands(data: Buffer, directory: TIFF) -> npt.NDArray[Any] | None:
    """Return all bands of a TIFF with their stored numbers; the image is turned upright, as Pillow turns TIFFs.

    Returns
    -------
    (height, width, bands) array or None
        uint8, uint16, int32 or float32; writable. None for TIFFs in colours other than grey, RGB and CMYK, and for
        TIFFs with a palette or with JPEG compression. Also None if Pillow cannot read the numbers as grey.

    Raises
    ------
    ImageError
        If the file is damaged, or has far too many numbers.
    """
    dtype = _MODES.get((directory.kind, directory.bits))
    if dtype is None or not _is_known(directory):
        return None
    height, width, bands = directory.value(tiff.HEIGHT, 0), directory.value(tiff.WIDTH, 0), directory.bands
    pillow.require_pixels(height, width * bands, MAX_PIXELS)
    numbers = np.empty((height, width, bands), dtype)
    if directory.is_separate:
        for band in range(bands):
            numbers[..., band] = _grey(tiff.grey_copy(data, directory, band), (height, width), dtype)
    else:
        wide = _grey(tiff.grey_copy(data, directory, None), (height, width * bands), dtype)
        numbers[:] = _summed_by_band(wide, directory).reshape(numbers.shape)
    turn = directory.value(tiff.ORIENTATION, 1)
    return apply_orientation(numbers, turn) if turn in range(2, 9) else numbers


def _is_known(directory: TIFF) -> bool:
    tags, compression = directory.tags, directory.value(tiff.COMPRESSION, 1)
    predictor = directory.value(tiff.PREDICTOR, 1)
    predicted = compression in _PREDICTED and predictor in (1, _DIFFERENCES)
    offsets = tags.get(tiff.TILE_OFFSETS, tags.get(tiff.STRIP_OFFSETS, ()))
    return (
        (compression in _UNPREDICTED or predicted)
        and directory.value(tiff.PHOTOMETRIC, 0) in _COLOURS
        and directory.is_uniform
        and not (directory.is_separate and _PREMULTIPLIED in tags.get(tiff.EXTRA_SAMPLES, ()))
        and {tiff.WIDTH, tiff.HEIGHT, tiff.BITS} <= tags.keys()
        and (tiff.TILE_OFFSETS not in tags or {tiff.TILE_WIDTH, tiff.TILE_HEIGHT} <= tags.keys())
        and bool(offsets)
        and (not directory.is_separate or (len(offsets) % directory.bands == 0 and directory.bands <= _MOST_SEPARATE))
    )


def _grey(data: bytes, size: tuple[int, int], dtype: type[Any]) -> npt.NDArray[Any]:
    with pillow.opened(data) as image:
        numbers = np.asarray(pillow.in_machine_order(image))
        if numbers.shape != size:  # `opened` turns the error into an ImageError
            raise ValueError(
                f"{numbers.shape[1]} x {numbers.shape[0]} pixels are present instead of {size[1]} x {size[0]}"
            )
    return numbers.astype(dtype, copy=False)


def _summed_by_band(wide: npt.NDArray[Any], directory: TIFF) -> npt.NDArray[Any]:
    """Correct the numbers that Pillow read from a TIFF with a predictor.

    The file stores differences between neighbouring numbers of the same band. Pillow summed these as if each number
    were a pixel of its own.
    """
    compression, predictor = directory.value(tiff.COMPRESSION, 1), directory.value(tiff.PREDICTOR, 1)
    if predictor != _DIFFERENCES or compression not in _PREDICTED or directory.bands == 1:
        return wide
    height, width = wide.shape
    step = directory.value(tiff.TILE_WIDTH, width // directory.bands) * directory.bands
    kind = f"u{directory.bits // 8}"  # sums overflow as in the file
    unsigned = wide.view(kind).copy() if directory.kind == "f" else wide.astype(kind)
    for start in range(0, width, step):
        part = unsigned[:, start : start + step]
        part[:, 1:] -= part[:, :-1].copy()
        sums = part.reshape(height, -1, directory.bands).cumsum(axis=1, dtype=unsigned.dtype)
        part[:] = sums.reshape(part.shape)
    signed = unsigned.view(f"{directory.kind}{directory.bits // 8}")
    return signed.astype(wide.dtype, copy=False)


MODES = ("RGB", "L", "unchanged")
"""The modes that pixels can be decoded to."""

Pixels = npt.NDArray[Any]

_IDS = ("1", "P", "PA")  # modes whose numbers are not levels, so that they cannot be interpolated
_NUMBERS = ("1", "L", "P", "LA", "La", "PA", "RGB", "RGBX", "RGBA", "RGBa", "CMYK", "YCbCr", "LAB", "HSV", "I", "F")
_UNSIGNED = ("PNG", "PPM")  # formats whose mode I has numbers of 16 bits


def decode_as(
    data: Buffer,
    mode: str,
    *,
    exif: str = "ignore",
    decoder: str = "auto",
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
) -> Pixels:
    """Decode an image of any type to pixels of a mode.

    Parameters
    ----------
    data, exif, decoder, max_pixels
        The same as for `packer._images.decode.decode`.
    mode : {"RGB", "L", "unchanged"}
        ``"RGB"``: the pixels of `packer._images.decode.decode`. ``"L"``: the pixels of
        ``PIL.Image.open(f).convert("L")``; alpha is dropped. ``"unchanged"``: the pixels of `decode_unchanged`.
    size : (height, width), optional
        The size that the image must have.

    Returns
    -------
    (height, width, channels) array
        Writable: uint8 with 3 channels ("RGB") or 1 channel ("L"), or the result of `decode_unchanged`.

    Raises
    ------
    ImageError
        For the same reasons as `decode` and `decode_unchanged`. With ``"L"``, also for floats and for grey of more than
        8 bits, which Pillow turns white or black.
    ValueError
        If the mode does not exist.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {MODES}, not {mode!r}")
    if mode == "unchanged":
        return decode_unchanged(data, exif=exif, decoder=decoder, max_pixels=max_pixels, size=size)
    if mode == "RGB":
        pixels = decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels)
    else:
        pixels = _decode_grey(data, exif, decoder, max_pixels)
    _require_size(pixels.shape, size)
    return pixels


def decode_unchanged(
    data: Buffer,
    *,
    exif: str = "ignore",
    decoder: str = "auto",
    max_pixels: int = MAX_PIXELS,
    size: tuple[int, int] | None = None,
    rows: tuple[int, int] | None = None,
) -> Pixels:
    """Decode an image of any type to its stored numbers: ``numpy.asarray(PIL.Image.open(f))``, with a channel axis.

    =============================  ========  ==================================================
    the image                      channels  dtype, and range
    =============================  ========  ==================================================
    1 bit                          1         uint8, 0 and 1
    grey                           1         uint8; 2 or 4 bits of a PNG are spread to 0 to 255
    palette                        1         uint8, the indices
    grey of 9 to 16 bits           1         uint16; int32 for TIFFs with signed numbers
    grey of 32 bits                1         int32
    floats (TIFF, PFM)             1         float32
    grey and alpha                 2         uint8; uint16 for PNGs and TIFFs with 16 bits
    RGB                            3         uint8; uint16 for PNGs and TIFFs with 16 bits
    RGB and alpha                  4         uint8; uint16 for PNGs and TIFFs with 16 bits
    CMYK                           4         uint8, as from Pillow; uint16 for TIFFs with 16 bits
    palette and alpha              2         uint8, the indices first
    YCbCr, LAB (TIFF)              3         uint8
    TIFF of these with more bands  all       uint8, uint16, int32, float32
    =============================  ========  ==================================================

    Parameters
    ----------
    data, exif, decoder, max_pixels
        The same as for `packer._images.decode.decode`.
    size : (height, width), optional
        The size that the image must have.
    rows : (first, end), optional
        The rows of the upright image to return: `first` to `end` - 1; by default all rows. Most PNGs are decoded only
        down to the last of these rows.

    Returns
    -------
    (height, width, channels) array
        The numbers, in native byte order. Writable.

    Raises
    ------
    ImageError
        If the image does not have this `size`; if Pillow cannot read the image; or if Pillow would read fewer bits or
        bands than the file has. The last case applies to AVIFs with more than 8 bits, and to JPEG 2000s and PPMs in
        colour with more than 8 bits. It also applies to TIFFs in colours other than grey, RGB and CMYK, and to TIFFs
        with JPEG compression.
    """
    header = _ordinary(data)
    if header is not None and header.components == 1:
        return _of_rows(_levels(data, header, exif, decoder, max_pixels), size, rows)
    if header is not None:
        rgb = decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels, header=header)
        return _of_rows(rgb, size, rows)
    found = png.read(data)
    if found is not None and found.plain:
        pillow.require_pixels(found.height, found.width, max_pixels)
        _require_size((found.height, found.width), size)
        samples = png.decode(found, *(rows or ()))
        if samples is not None:
            return samples
    with pillow.opened(data, max_pixels) as image:
        if found is not None and found.depth == 16 and not found.animated:
            whole = png.decode(found)
            if whole is not None:
                return _of_rows(_turned(whole, image, exif), size, rows)
        if (numbers := _all_bands(image, data)) is not None:
            return _of_rows(numbers, size, rows)
        return _of_rows(_turned(_numbers(image, data), image, exif), size, rows)


def _decode_grey(data: Buffer, exif: str, decoder: str, max_pixels: int) -> npt.NDArray[np.uint8]:
    header = _ordinary(data)
    if header is not None and header.components == 1:
        return _levels(data, header, exif, decoder, max_pixels)
    if header is not None:
        rgb = decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels, header=header)
        return np.array(Image.fromarray(rgb).convert("L"))[..., None]
    with pillow.opened(data, max_pixels) as image:
        if image.mode[0] in "IF":
            raise ImageError(
                "its grey levels have more than 8 bits, which mode='L' would cut off: decode it with mode='unchanged'"
            )
        return np.array(pillow.upright(image, "L") if exif == "apply" else image.convert("L"))[..., None]


def holds_ids(data: Buffer) -> bool:
    """Tell whether the numbers from `decode_unchanged` are ids (palette indices, or single bits) instead of levels.

    Images of ids are resized with nearest-pixel interpolation, as in Pillow.

    Raises
    ------
    ImageError
        If Pillow cannot open the image.
    """
    with pillow.opened(data) as image:
        return image.mode in _IDS


def _ordinary(data: Buffer) -> jpeg.JPEGHeader | None:
    """Return the header of a JPEG that libraries decode and that Pillow opens in mode L or RGB; otherwise None."""
    header = jpeg.read_header(data) if bytes(data[:3]) == b"\xff\xd8\xff" else None
    return header if header is not None and header.ordinary else None


def _levels(data: Buffer, header: jpeg.JPEGHeader, exif: str, decoder: str, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Decode a JPEG of one component. If packer's own decoder supports the image, the image is not expanded to RGB."""
    if decoder == "auto" and native.PREFERRED:
        require_affordable(header, data, max_pixels)
        own = native.decode_grey(data, header.height, header.width)
        if own is not None:
            return apply_orientation(own, header.orientation) if exif == "apply" else own
    rgb = decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels, header=header)
    return np.ascontiguousarray(rgb[..., :1])


def _require_size(found: tuple[int, ...], size: tuple[int, int] | None) -> None:
    if size is not None and found[:2] != size:
        raise ImageError(f"it has {found[1]} x {found[0]} pixels instead of {size[1]} x {size[0]}")


def _of_rows(pixels: Pixels, size: tuple[int, int] | None, rows: tuple[int, int] | None) -> Pixels:
    _require_size(pixels.shape, size)
    return pixels if rows is None else pixels[rows[0] : rows[1]]


def _turned(pixels: Pixels, image: Image.Image, exif: str) -> Pixels:
    turn = pillow.orientation(image) if exif == "apply" else 1
    return apply_orientation(pixels, turn) if turn in range(2, 9) else pixels


def _all_bands(image: Image.Image, data: Buffer) -> Pixels | None:
    """Return all numbers of an opened TIFF that Pillow would read only in part; None for other images.

    Planar TIFFs are read here too, because Pillow misreads their alpha.
    """
    directory = tiff.read(data) if image.format == "TIFF" else None
    if directory is None or (is_whole(image, depth_of(image, data)) and not directory.is_separate):
        return None
    return decode_bands(data, directory)


def _numbers(image: Image.Image, data: Buffer) -> Pixels:
    """Return the pixel values of an opened image as an array of shape (height, width, channels)."""
    deep = image.mode.startswith("I;16")
    if not deep and image.mode not in _NUMBERS:
        raise ImageError(f"Pillow reads it in mode {image.mode}, which packer does not know")
    require_all_bits(image, depth_of(image, data))
    numbers = np.asarray(pillow.in_machine_order(image))  # before the orientation: a TIFF is turned when it is loaded
    if deep or (image.mode == "I" and image.format in _UNSIGNED):
        numbers = numbers.astype(np.uint16)
    elif image.mode == "1":
        numbers = numbers.astype(np.uint8)
    return np.array(numbers).reshape(*numbers.shape[:2], -1)
