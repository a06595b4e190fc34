"""Tiled JPEGs: ordinary JPEGs in which restart markers divide the scan into tiles, with a table of the tiles' offsets.

An application segment holds the table; see "Tiled JPEG" in formats.md. If that segment does not match the JPEG, it is
ignored, and the JPEG is decoded as a whole. Tiling is lossless. packer's own C (`packer/_images/native/tiling`) codes
the same coefficients again, with restart markers and the best Huffman codes; this module joins the pieces.

Most decoders cannot decode a rectangle. For these decoders, this module cuts a smaller JPEG out of the original JPEG.
This is possible because a decoder stops after the rows that the header declares. Also, the data after a restart marker
can be decoded without the data before the marker. So the header of a smaller image, followed by the tiles that a
rectangle touches, is a JPEG of that part with the same pixels.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._codecs import MAX_PIXELS
from packer._images import jpeg
from packer._images.extension import _native, shortcoming
from packer._images.geometry import Rectangle
from packer._table import Buffer
from packer.errors import MissingDependencyError, NotTileableError

_SOF0, _SOF1, _EOI, _DRI, _APP9, _COM = 0xC0, 0xC1, 0xD9, 0xDD, 0xE9, 0xFE
_FRAMES = b"\xff\xc0", b"\xff\xc1"
_IDENTIFIER = b"TILES\0"
_VERSION = 2
# Marker, length, identifier, version, bytes of an entry, columns, rows of a group, frame, header, checksum.
_SEGMENT = struct.Struct(">HH6sBBHHHHI")
_INTERVAL = struct.Struct(">HHH")  # marker, length, MCUs
_LONGEST = 0xFFFF  # the largest number of two bytes
_GROUP = 1 << 13  # bytes of a group of rows at least: finding the markers in it takes less than a microsecond

_NARROWEST = 2  # MCUs of a tile: each end of a tile slows down the decoder


class TileWindow(NamedTuple):
    """A window of tiles: the rows `first_row` to `row_end` - 1, and the columns `first` to `end` - 1."""

    first_row: int
    row_end: int
    first: int
    end: int


class Grid(NamedTuple):
    """The geometry of an image's tiles.

    Attributes
    ----------
    height, width : int
        Pixels of the image.
    tile_height, tile_width : int
        Pixels of a tile. Tiles in the last row or column may be smaller, because the image ends there.
    rows, columns : int
    interval : int
        The number of MCUs in a tile, which is the restart interval.
    margin_height, margin_width : int
        The number of pixels outside of a window that the upsampling of chroma may read.
    """

    height: int
    width: int
    tile_height: int
    tile_width: int
    rows: int
    columns: int
    interval: int
    margin_height: int
    margin_width: int

    def window(self, rectangle: Rectangle) -> TileWindow | None:
        """Return the tiles that a rectangle depends on; None if it depends on all tiles."""
        top, left, height, width = rectangle
        vertical, horizontal = self.margin_height, self.margin_width
        first_row = max(top - vertical, 0) // self.tile_height
        row_end = min(-(-(top + height + vertical) // self.tile_height), self.rows)
        first = max(left - horizontal, 0) // self.tile_width
        end = min(-(-(left + width + horizontal) // self.tile_width), self.columns)
        whole = row_end - first_row == self.rows and end - first == self.columns
        return None if whole else TileWindow(first_row, row_end, first, end)

    def extent(self, window: TileWindow) -> Rectangle:
        """Return the rectangle that a window of tiles covers, in pixels."""
        first_row, row_end, first, end = window
        top, left = first_row * self.tile_height, first * self.tile_width
        bottom, right = min(row_end * self.tile_height, self.height), min(end * self.tile_width, self.width)
        return top, left, bottom - top, right - left

    @classmethod
    def of(cls, frame: Buffer, columns: int) -> Grid | None:
        """Return the grid with `columns` tiles in each MCU row of a frame; None if such a grid is impossible.

        Parameters
        ----------
        frame : bytes-like
            The parameters of a start-of-frame segment (ITU-T T.81, B.2.2), and the following bytes.
        """
        precision, height, width, components = struct.unpack_from(">BHHB", frame)
        across = down = 1
        if components == 3:
            across = max(frame[7] >> 4, frame[10] >> 4, frame[13] >> 4)
            down = max(frame[7] & 15, frame[10] & 15, frame[13] & 15)
        elif components != 1:  # in a scan of one component, an MCU is a block, regardless of sampling factors
            return None
        if precision != 8 or not (height and width and across and down and columns):
            return None
        interval, left_over = divmod(-(-width // (8 * across)), columns)
        if left_over:
            return None
        margins = 0 if down == 1 else down, 0 if across == 1 else across  # one sample of chroma
        rows = -(-height // (8 * down))
        return cls(height, width, 8 * down, 8 * across * interval, rows, columns, interval, *margins)


class Tiles(NamedTuple):
    """The content of a tile segment.

    Attributes
    ----------
    grid : Grid
    segment, table, header, frame, scan : int
        Offsets in the JPEG, in bytes: of the tile segment, its table, the headers after the segment, the frame's
        parameters, and the scan.
    group : int
        The number of tile rows that an entry of the table covers.
    group_ends : (ceil(rows / group),) int64 array
        The offset in the JPEG at which each group of tile rows ends; the group includes the marker after its last tile.
    """

    grid: Grid
    segment: int
    table: int
    header: int
    frame: int
    scan: int
    group: int
    group_ends: npt.NDArray[np.int64]


def restarts(first: int, count: int) -> npt.NDArray[np.uint8]:
    """Return the second bytes of `count` successive restart markers; the first of them has the number `first`."""
    return (0xD0 + (np.arange(first, first + count) & 7)).astype(np.uint8)


def read_tiles(data: Buffer) -> Tiles | None:
    """Return the tiles of a JPEG; None if it has no tile segment, or if the segment does not match the JPEG."""
    try:
        segment = _find(data)
        return None if segment is None else _read(data, segment)
    except (struct.error, IndexError):
        return None


def _find(data: Buffer) -> int | None:
    """Find the tile segment among the application segments and comments, and return its offset."""
    at = 2
    while data[at] == 0xFF and ((marker := data[at + 1]) & 0xF0 == 0xE0 or marker == _COM):
        if marker == _APP9 and data[at + 4 : at + 10] == _IDENTIFIER:
            return at
        at += 2 + (data[at + 2] << 8 | data[at + 3])
    return None


def _read(data: Buffer, segment: int) -> Tiles | None:
    _, size, _, version, entry, columns, group, frame, length, checksum = _SEGMENT.unpack_from(data, segment)
    table, header = segment + _SEGMENT.size, segment + 2 + size
    frame, scan = header + frame, header + length
    if version != _VERSION or entry not in (2, 4) or not group or not table <= header < frame < scan <= len(data):
        return None
    if zlib.crc32(data[table:scan], zlib.crc32(data[segment + 4 : table - 4])) != checksum:
        return None
    grid = Grid.of(data[frame + 4 : scan], columns) if data[frame : frame + 2] in _FRAMES else None
    if grid is None or header - table != entry * -(-grid.rows // group):
        return None
    if data[header : header + _INTERVAL.size] != _INTERVAL.pack(0xFF00 | _DRI, 4, grid.interval):
        return None
    sizes = np.frombuffer(data, f">u{entry}", (header - table) // entry, table).astype(np.int64)
    ends = scan + sizes.cumsum()
    if sizes.min() < 2 or data[ends[-1] - 2 : ends[-1]] != b"\xff\xd9":
        return None
    return Tiles(grid, segment, table, header, frame + 4, scan, group, ends)


def choose_columns(mcus: int, most: int) -> int:
    """Return the number of tiles, at most `most`, in each row of `mcus` MCUs.

    A tile costs about four bytes and some decoding time, so very small tiles are not worthwhile.
    """
    for count in range(min(mcus // _NARROWEST, most), 1, -1):
        if mcus % count == 0:
            return count
    return 1


def assemble(  # noqa: PLR0917
    metadata: Buffer,
    header: Buffer,
    columns: int,
    row_sizes: npt.NDArray[np.integer[Any]],
    scan: Buffer,
    rest: Buffer = b"",
) -> bytes:
    """Assemble a tiled JPEG from its pieces, with the tile segment.

    Parameters
    ----------
    metadata : bytes-like
        Application segments and comments.
    header : bytes-like
        The other segments, from the first marker up to the scan.
    columns : int
        The number of tiles in each MCU row.
    row_sizes : (rows,) array of int
        The number of bytes in each row of tiles, including the marker after each tile.
    scan : bytes-like
        The coded data with the restart markers between the tiles, without an end-of-image marker.
    rest : bytes-like
        The bytes after the end of the image.

    Raises
    ------
    NotTileableError
        If the header is too long for the tile segment to record.
    """
    group = max(min(_GROUP * len(row_sizes) // int(row_sizes.sum()), len(row_sizes)), 1)
    sizes = np.add.reduceat(row_sizes, np.arange(0, len(row_sizes), group))
    entry = 2 if sizes.max() <= _LONGEST else 4
    interval, others, frame = b"", bytearray(), 0
    for marker, start, end in jpeg.segments(header, 0):
        if marker == _DRI:
            interval = bytes(header[start:end])
            continue
        if marker in (_SOF0, _SOF1):
            frame = _INTERVAL.size + len(others)
        others += header[start:end]
    core = interval + others  # the interval first, because a reader compares it with the number of columns
    if len(core) > _LONGEST:
        raise NotTileableError("its header is too long")
    table = sizes.astype(f">u{entry}").tobytes()
    length = _SEGMENT.size - 2 + len(table)
    values = _IDENTIFIER, _VERSION, entry, columns, group, frame, len(core)
    fixed = _SEGMENT.pack(0xFF00 | _APP9, length, *values, 0)[:-4]
    checksum = zlib.crc32(core, zlib.crc32(table, zlib.crc32(fixed[4:])))
    return b"".join((b"\xff\xd8", metadata, fixed, checksum.to_bytes(4, "big"), table, core, scan, b"\xff\xd9", rest))


def annotate(data: Buffer) -> bytes:
    """Add the tile table to a JPEG whose restart markers form tiles.

    Raises
    ------
    NotTileableError
        If the restart markers do not form tiles.
    ImageError
        If the data are not a JPEG.
    """
    made = None if _native is None else _native.annotate(bytes(data))
    return annotate_in_python(data) if made is None else made


def annotate_in_python(data: Buffer) -> bytes:
    """Add the tile table like `annotate`; for JPEGs that the C code does not handle, and for tests."""
    metadata, header = bytearray(), bytearray()
    interval, frame, scan_at = 0, b"", 0
    for marker, start, end in jpeg.segments(data):
        if marker & 0xF0 == 0xE0 or marker == _COM:
            if data[start + 4 : start + 10] != _IDENTIFIER:
                metadata += data[start:end]
            continue
        header += data[start:end]
        if marker == _DRI:
            (interval,) = struct.unpack_from(">H", data, start + 4)
        elif marker in (_SOF0, _SOF1):
            frame = bytes(data[start + 4 : end])
        scan_at = end
    rows = Grid.of(frame, 1) if frame else None
    if rows is None or not interval or rows.interval % interval:
        raise NotTileableError("its restart markers do not divide its rows")
    columns = rows.interval // interval
    scan = np.frombuffer(data, np.uint8, offset=scan_at)
    markers = np.flatnonzero(scan[:-1] == 0xFF)
    markers = markers[scan[markers + 1] != 0][: rows.rows * columns]
    found = scan[markers + 1]
    if len(found) < rows.rows * columns or found[-1] != _EOI or (found[:-1] != restarts(0, len(found) - 1)).any():
        raise NotTileableError("its scan has other markers than those between its tiles")
    row_sizes = np.diff(markers[columns - 1 :: columns] + 2, prepend=0)
    end = scan_at + int(markers[-1])
    return assemble(metadata, header, columns, row_sizes, data[scan_at:end], data[end + 2 :])


_END = b"\xff\xd9"
_WORTH_PYTHON = 50_000  # bytes of an image: a smaller one is decoded as a whole faster than Python can cut it


class CutOut(NamedTuple):
    """A JPEG of a part of an image, and the rectangle of this part in the whole image."""

    data: Buffer
    rectangle: Rectangle


def first_rows(data: Buffer, size: tuple[int, int], bottom: int) -> tuple[Buffer, int] | None:
    """Return a JPEG whose header declares only the rows needed down to `bottom`, and the number of these rows.

    Parameters
    ----------
    data : bytes-like
        Any image.
    size : (height, width)
        The size of the image in pixels.
    bottom : int
        The number of pixel rows that are needed, counted from the top; 1 or more.

    Returns
    -------
    (bytes-like, int) or None
        The JPEG, and the number of rows that it declares; the image itself if no rows can be left out. None if the
        image is not an ordinary, sequential JPEG of this size in one scan.
    """
    if _native is None:
        return first_rows_in_python(data, size, bottom)
    return _native.first_rows(bytes(data), *size, bottom)


def first_rows_in_python(data: Buffer, size: tuple[int, int], bottom: int) -> tuple[Buffer, int] | None:
    """Do the same as `first_rows`, but in Python, which is slower."""
    header = _read_header(data)
    if header is None or (header.height, header.width) != size:
        return None
    step = header.mcu_height
    if step not in (8, 16, 32):
        return data, header.height
    rows = -(-bottom // step) * step
    if step > 8:
        rows += step  # upsampling of the chroma planes looks at the row below
    if rows >= header.height:
        return data, header.height
    part = bytearray(data)
    struct.pack_into(">H", part, header.frame + 1, rows)
    return part, rows


def cut_out(data: Buffer, size: tuple[int, int], rectangle: Rectangle) -> CutOut | None:
    """Return a JPEG of the tiles that a rectangle of a tiled JPEG depends on.

    Parameters
    ----------
    data : bytes-like
        Any image.
    size : (height, width)
        The size of the image in pixels.
    rectangle : (top, left, height, width)
        In pixels of the whole image; it must lie inside the image.

    Returns
    -------
    CutOut or None
        The whole image if nothing can be left out. None if the image is not a tiled JPEG of this size, its markers do
        not match its table, or cutting is not worthwhile.
    """
    if _native is None:
        return cut_out_in_python(data, size, rectangle) if len(data) >= _WORTH_PYTHON else None
    made = _native.cut_out(bytes(data), *size, *rectangle)
    return None if made is None else CutOut(*made)


def cut_out_in_python(data: Buffer, size: tuple[int, int], rectangle: Rectangle) -> CutOut | None:
    """Do the same as `cut_out`, but in Python, which is slower."""
    tiles = read_tiles(data) if _read_header(data) is not None else None
    if tiles is None or tiles.grid[:2] != size:
        return None
    top, left, height, width = rectangle
    if not (height >= 1 <= width and 0 <= top <= size[0] - height and 0 <= left <= size[1] - width):
        raise ValueError("the rectangle does not lie inside of the image")
    window = tiles.grid.window(rectangle)
    if window is None:
        return CutOut(data, (0, 0, *size))
    joined = _join(data, tiles, window)
    if joined is None:
        return None
    part = tiles.grid.extent(window)
    struct.pack_into(">HH", joined, tiles.segment + tiles.frame - tiles.header + 1, *part[2:])
    return CutOut(joined, part)


def _read_header(data: Buffer) -> jpeg.JPEGHeader | None:
    """Read the header of an ordinary JPEG that is coded in one scan; None for other images."""
    header = jpeg.read_header(data) if bytes(data[:3]) == b"\xff\xd8\xff" else None
    if header is None or not header.ordinary or not header.sequential or not jpeg.one_scan(data, header):
        return None
    return header


def _join(data: Buffer, tiles: Tiles, window: TileWindow) -> bytearray | None:
    """Join the headers and the tiles of a window; None if the rows of tiles have unexpected markers."""
    grid, group = tiles.grid, tiles.group
    first_group, group_end = window.first_row // group, -(-window.row_end // group)
    first_row, row_end = first_group * group, min(group_end * group, grid.rows)
    begin = int(tiles.group_ends[first_group - 1]) if first_group else tiles.scan
    before, count = first_row * grid.columns, (row_end - first_row) * grid.columns
    expected = restarts(before, count)
    if row_end == grid.rows:
        expected[-1] = _END[1]
    scan = np.frombuffer(data, np.uint8)[begin : tiles.group_ends[group_end - 1]]
    markers = np.flatnonzero(scan[:-1] == 0xFF)
    markers = markers[scan[markers + 1] != 0]
    if not np.array_equal(scan[markers + 1], expected):
        return None
    ends = (markers + 2).reshape(-1, grid.columns)
    last_rows = [*range(group - 1, len(ends) - 1, group), -1]
    if not np.array_equal(begin + ends[last_rows, -1], tiles.group_ends[first_group:group_end]):
        return None
    if before and data[begin - 2 : begin] != bytes([0xFF, *restarts(before - 1, 1)]):
        return None

    # The tiles of a row are contiguous.
    rows = slice(window.first_row - first_row, window.row_end - first_row)
    starts = np.concatenate([[0], ends.ravel()[:-1]]).reshape(ends.shape)[rows, window.first]
    ends = ends[rows, window.first : window.end]
    joined = bytearray(data[: tiles.segment]) + data[tiles.header : tiles.scan]
    head = len(joined)
    for start, end in zip(starts.tolist(), ends[:, -1].tolist(), strict=True):
        joined += data[begin + start : begin + end]

    # Each tile was copied with the marker after it, which needs a new number. The last marker becomes the end of image.
    lengths = ends[:, -1] - starts
    at = head + ends + (lengths.cumsum() - lengths - starts)[:, None] - 1
    np.frombuffer(joined, np.uint8)[at.ravel()] = restarts(0, at.size)
    joined[-2:] = _END
    return joined


_LEAST_TILE = 460  # bytes of a tile on average: ImageNet's photos become half a per cent larger


def require_transcoder() -> None:
    """Raise MissingDependencyError if packer's own C is not installed."""
    if _native is None:
        short = shortcoming()
        assert short is not None
        raise MissingDependencyError(f"writing tiled JPEGs needs packer's compiled code: {short.reason}. {short.cure}")


def transcode(data: Buffer) -> bytes:
    """Convert a JPEG to a tiled JPEG with the same pixels and metadata.

    Parameters
    ----------
    data : bytes-like
        A JPEG: 8 bits, one or three components, Huffman-coded; sequential or progressive.

    Raises
    ------
    NotTileableError
        If the image is another kind of JPEG, or is not well-formed; the error has the reason.
    MissingDependencyError
        If packer's own C is not installed.
    """
    require_transcoder()
    source = bytes(data)
    made = _native.transcode(source, MAX_PIXELS, _LEAST_TILE)
    if isinstance(made, str):
        raise NotTileableError(made)
    metadata, header, columns, row_sizes, scan, end = made
    return assemble(metadata, header, columns, np.frombuffer(row_sizes, np.int64), scan, memoryview(source)[end:])
