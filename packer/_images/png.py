"""Reads the chunks of PNGs, and samples of any depth as stored; writes 16-bit PNGs.

Pillow would read only 8 of the 16 bits of a colour PNG. It would also read all rows of a mask, even if a crop needs
only a few. Only intact PNGs are read here: the checksum of every chunk is compared. Unusual and damaged PNGs are left
to Pillow. The module also writes 16-bit PNGs in colour, which Pillow cannot.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images.extension import _native
from packer._table import Buffer

SIGNATURE = b"\x89PNG\r\n\x1a\n"

Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

_GREY, _PALETTE = 0, 3
_CHANNELS = {_GREY: 1, 2: 3, _PALETTE: 1, 4: 2, 6: 4}
_DEPTHS = {_GREY: (1, 2, 4, 8, 16), 2: (8, 16), _PALETTE: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_UNUSUAL = (b"eXIf", b"acTL", b"fcTL", b"fdAT", b"zTXt", b"iTXt", b"iCCP")  # an orientation, pages, limits on text
_SIZES = {b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"pHYs": 9}  # of chunks; Pillow refuses shorter ones
_TRANSPARENCY = {_GREY: 2, 2: 6}
_PROFILE = b"Raw profile type"  # beginning of the key of a text with EXIF or XMP
_XMP = b"XML:com.adobe.xmp"  # beginning of the key of a text with XMP
_KEYS = (b"bbox", b"interlace", b"transparency")  # of texts that Pillow interprets
_LONGEST_TEXT = 1 << 16  # bytes of a chunk
_UP = 2
_SUB = 1  # filters up to this one do not look at the row above
_PAETH = 4  # the last filter

_PASSES = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))
"""For each pass of an interlaced image: first row, step of the rows, first column, step of the columns."""


class PNG(NamedTuple):
    """The content of the chunks of a whole PNG.

    Attributes
    ----------
    height, width : int
        1 or more.
    depth, colour, interlacing : int
        The values in IHDR, which are not checked.
    plain : bool
        Whether any decoder may be used: samples have at most 8 bits, no chunk contains an orientation, and Pillow is
        known to accept all chunks.
    animated : bool
    compressed : bytes or None
        The compressed samples; None if the chunks are of unusual kinds or in an unusual order.
    """

    height: int
    width: int
    depth: int
    colour: int
    interlacing: int
    plain: bool
    animated: bool
    compressed: bytes | None

    @property
    def channels(self) -> int:
        """Number of samples per pixel."""
        return _CHANNELS[self.colour]

    def row_size(self, width: int) -> int:
        """Return the number of bytes in a row of `width` pixels, without the byte for its filter."""
        return (width * self.channels * self.depth + 7) // 8


def size_of(data: Buffer) -> tuple[int, int] | None:
    """Return height and width from the first 24 bytes of a PNG; None for other images, or if a side is 0."""
    head = bytes(data[:24])
    if len(head) < 24 or not head.startswith(SIGNATURE) or head[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", head, 16)
    return (height, width) if height and width else None


def read(data: Buffer) -> PNG | None:
    """Walk the chunks of a PNG (PNG specification, section 5.3) and compare every checksum.

    Returns
    -------
    PNG or None
        None if the data are not a whole PNG.
    """
    if bytes(data[: len(SIGNATURE)]) != SIGNATURE:
        return None
    chunks = _chunks(memoryview(data))  # one by one: there may be a chunk every 12 bytes
    name, body = next(chunks, (b"", memoryview(b"")))
    if name != b"IHDR" or len(body) != 13:
        return None
    width, height, depth, colour, compression, filtering, interlacing = struct.unpack(">IIBBBBB", body)
    if not height or not width:
        return None
    known = depth in _DEPTHS.get(colour, ()) and not compression and not filtering
    usual, plain = known and interlacing in (0, 1), known and depth != 16
    palette, begun, animated, before = colour != _PALETTE, False, False, name
    compressed = io.BytesIO()
    for name, body in chunks:
        plain = plain and not _is_unusual(name, len(body), body, colour)
        animated |= name == b"acTL"
        palette |= name == b"PLTE"
        if name == b"IDAT":
            usual = usual and palette and (not begun or before == b"IDAT")
            begun = True
            if usual:
                compressed.write(body)
        elif not name[0] & 0x20 and name not in (b"PLTE", b"IEND"):
            usual = False
        before = name
    if before != b"IEND" or not begun:
        return None
    samples = compressed.getvalue() if usual else None
    return PNG(height, width, depth, colour, interlacing, plain, animated, samples)


def _chunks(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield names and bodies of chunks up to IEND, or up to the first incomplete chunk."""
    position = len(SIGNATURE)
    while position + 12 <= len(view):
        length, name = struct.unpack_from(">I4s", view, position)
        end = position + 12 + length
        if end > len(view):
            return
        (crc,) = struct.unpack_from(">I", view, end - 4)
        if zlib.crc32(view[position + 4 : end - 4]) != crc:
            return
        yield name, view[position + 8 : end - 4]
        if name == b"IEND":
            return
        position = end


def _is_unusual(name: bytes, size: int, body: memoryview, colour: int) -> bool:
    """Tell whether Pillow may refuse a chunk, or find an orientation or pages in it."""
    match name:
        case b"tEXt":
            key, _, _ = bytes(body[:20]).partition(b"\0")
            return size >= _LONGEST_TEXT or key in _KEYS or key.startswith((_PROFILE, _XMP))
        case b"tRNS":
            return size != _TRANSPARENCY[colour] if colour in _TRANSPARENCY else size > 256
        case b"PLTE":
            return size > 768 or size % 3 != 0
    return name in _UNUSUAL or size != _SIZES.get(name, size) or not name.isalnum()


def decode(png: PNG, first: int = 0, end: int | None = None) -> Samples | None:
    """Decode rows to the numbers of ``numpy.asarray(PIL.Image.open(f))``, but keep all bits of 16-bit samples.

    Parameters
    ----------
    png : PNG
    first, end : int
        The rows to return: `first` to `end` - 1; by default all rows. Data are inflated only down to the last of these
        rows.

    Returns
    -------
    (end - first, width, channels) uint8 or uint16 array, or None
        Writable. Grey of 2 or 4 bits is spread over 0 to 255, as in Pillow; grey of 1 bit and palette indices are not
        changed. None if the data are damaged. Without the C extension, also None if samples have fewer than 16 bits,
        which Pillow reads itself.
    """
    end = png.height if end is None else end
    if png.compressed is None or (_native is None and png.depth != 16):
        return None
    return _decode_in_python(png, first, end) if _native is None else _decode_in_c(png, first, end)


def encode_deep(pixels: npt.NDArray[np.uint16]) -> bytes:
    """Return a PNG of 16 bits per sample, which Pillow does not write in colour.

    Parameters
    ----------
    pixels : (height, width, channels) uint16 array
        Grey, grey and alpha, RGB, or RGBA.
    """
    height, width, channels = pixels.shape
    (colour,) = (colour for colour, count in _CHANNELS.items() if count == channels and colour != _PALETTE)
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    filtered = np.full((height, rows.shape[1] + 1), _UP, np.uint8)
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])  # modulo 256
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b"")
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def _decode_in_c(png: PNG, first: int, end: int) -> Samples | None:
    assert png.compressed is not None
    samples = np.empty((end - first, png.width, png.channels), np.uint16 if png.depth == 16 else np.uint8)
    kind = png.height, png.width, png.depth, png.colour, png.interlacing
    done = _native.png_samples(png.compressed, *kind, first, end, samples.ctypes.data)
    return samples if done else None


def _decode_in_python(png: PNG, first: int, end: int) -> Samples | None:
    """Decode rows like `_decode_in_c`, but only of images with 16 bits per sample."""
    if png.interlacing:
        whole = _deinterlaced(png)
        return None if whole is None else whole[first:end]
    size = png.row_size(png.width)
    filtered = _inflated(png, end * (size + 1), whole=end == png.height)
    if filtered is None:
        return None
    rows = _unfiltered(filtered, size, max(1, png.channels * png.depth // 8), first)
    return None if rows is None else _samples(png, rows, png.width)


def _inflated(png: PNG, size: int, *, whole: bool) -> npt.NDArray[np.uint8] | None:
    """Inflate `size` bytes; None if the data have fewer, or if the whole image is read and the data have more."""
    assert png.compressed is not None
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(png.compressed, size + whole)
    except zlib.error:
        return None
    return np.frombuffer(inflated, np.uint8) if len(inflated) == size and (inflating.eof or not whole) else None


def _unfiltered(filtered: npt.NDArray[np.uint8], size: int, step: int, first: int = 0) -> npt.NDArray[np.uint8] | None:
    """Undo the filters of rows.

    Return the rows from `first` on, (rows, size), without the filter byte in front of each.
    """
    rows = filtered.reshape(-1, size + 1)
    filters = rows[:, 0].tobytes()
    if max(filters) > _PAETH:
        return None
    start = first
    while start > 0 and filters[start] > _SUB:  # then it depends on the row above
        start -= 1
    return unfiltered_in_python(rows[start:], step)[first - start :]


def unfiltered_in_python(rows: npt.NDArray[np.uint8], step: int) -> npt.NDArray[np.uint8]:
    """Undo the filters of rows, some hundred times more slowly than C.

    Parameters
    ----------
    rows : (rows, 1 + size) uint8 array
        The number of the filter, then the bytes of the row; the first row has no row above it.
    step : int
        The size of a pixel in bytes.

    Returns
    -------
    (rows, size) uint8 array
    """
    out = np.zeros((len(rows) + 1, rows.shape[1] - 1 + step), np.uint8)  # and zeros above and on the left
    for number, (kind, *_) in enumerate(rows.tolist()):
        line, above, to = rows[number, 1:], out[number], out[number + 1]
        if kind in (0, 2):
            to[step:] = line + above[step:] * (kind == 2)
            continue
        before, current, filtered = above.tolist(), [0] * step, line.tolist()
        for index, value in enumerate(filtered):
            left, up, corner = current[index], before[index + step], before[index]
            current.append(value + _predicted(kind, left, up, corner) & 0xFF)
        to[:] = current
    return out[1:, step:]


def _predicted(kind: int, left: int, above: int, corner: int) -> int:
    """Return the byte that the filter `kind` (Sub, Average or Paeth) predicts."""
    if kind == _SUB:
        return left
    if kind != _PAETH:
        return left + above >> 1
    estimate = left + above - corner
    return min((left, above, corner), key=lambda neighbour: abs(estimate - neighbour))  # the first of the nearest


def _samples(png: PNG, rows: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint16]:
    """Convert unfiltered rows to 16-bit samples, (rows, width, channels)."""
    samples = np.ascontiguousarray(rows).view(">u2").astype(np.uint16)
    return samples.reshape(len(rows), width, png.channels)


def _deinterlaced(png: PNG) -> Samples | None:
    """Assemble the samples of an interlaced image from its passes, which are stored like separate images."""
    shapes = [
        (len(range(top, png.height, down)), len(range(left, png.width, across))) for top, down, left, across in _PASSES
    ]
    sizes = [rows * (png.row_size(columns) + 1) if columns else 0 for rows, columns in shapes]
    filtered = _inflated(png, sum(sizes), whole=True)
    if filtered is None:
        return None
    pixels = np.empty((png.height, png.width, png.channels), np.uint16)
    position = 0
    for (top, down, left, across), (_, columns), size in zip(_PASSES, shapes, sizes, strict=True):
        if size:
            part = filtered[position : position + size]
            rows = _unfiltered(part, png.row_size(columns), max(1, png.channels * png.depth // 8))
            if rows is None:
                return None
            pixels[top::down, left::across] = _samples(png, rows, columns)
        position += size
    return pixels
