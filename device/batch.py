"""Batches of crops as the kernels take them: bytes of tiles, and the layout of each crop; see ``layout.h``."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._images import jpeg
from packer._images.geometry import Box, is_padded
from packer._images.jpeg_tiles import Tiles, TileWindow, read_tiles
from packer.errors import ImageError

Array = npt.NDArray[Any]

GROUP = np.dtype([(name, np.uint32) for name in ("from", "size", "to", "tile", "tiles", "number", "is_last")])
COMPONENT = np.dtype(
    [
        *((name, np.int32) for name in ("across", "down", "wide", "tall", "upsampling", "first_row", "first_column")),
        *((name, np.int32) for name in ("height", "width", "blocks", "stride")),
        *(("coefficients", np.uint32), ("plane", np.uint32)),
        *(("dc", np.int32), ("ac", np.int32)),
    ],
    align=True,
)
AXIS = np.dtype(
    [
        *((name, np.float64) for name in ("scale", "stretch", "reach")),
        *((name, np.int32) for name in ("side", "cut", "out", "most", "is_same")),
        *((name, np.uint32) for name in ("spans", "weights", "precision")),
    ],
    align=True,
)
IMAGE = np.dtype(
    [
        ("components", COMPONENT, 3),
        *((name, np.int32) for name in ("count", "rows", "columns", "tile_rows", "tile_columns", "image_columns")),
        *((name, np.int32) for name in ("interval", "skipped")),
        *(("tile", np.uint32), ("order", np.uint32), ("tables", np.int32, 4)),
        *((name, np.int32) for name in ("top", "left", "height", "crop_top", "crop_left")),
        *(("resized", np.uint32), ("out", np.uint32), ("flip", np.int32), ("interpolation", np.int32)),
        ("axes", AXIS, 2),
    ],
    align=True,
)
SPAN = np.dtype([("first", np.int32), ("count", np.int32)])
CHUNK = np.dtype([("image", np.uint32), ("first", np.uint32)])

SAYS = 16 + 256
"""Bytes of a Huffman table: how many codes there are of each length, and the symbols."""

TILES = 128
"""Tiles of an image that a block decodes: ``CHUNK`` in ``entropy.h``."""

TABLES = np.dtype([("entries", np.uint16, 8200), ("looks", np.uint32, 16), ("states", np.uint32, 4)])
STRUCTURES = (GROUP, COMPONENT, AXIS, IMAGE, SPAN, CHUNK, TABLES)
"""In the order of ``structure_sizes`` in ``kernels.c``."""

_AS_IT_IS, _SMOOTH, _SMOOTH_DOWN, _REPEATED = range(4)
_SOF0, _SOF1, _DHT, _DQT, _APP0, _APP14 = 0xC0, 0xC1, 0xC4, 0xDB, 0xE0, 0xEE
_BEYOND = 4096 + 64  # bytes that kernels may load after the last ones
_MOST_BLOCKS = 10  # of an MCU
_ZIGZAG = np.array(sorted(range(64), key=lambda i: (i // 8 + i % 8, i % 8 if (i // 8 + i % 8) % 2 == 0 else i // 8)))
_COLUMNWISE = _ZIGZAG % 8 * 8 + _ZIGZAG // 8


class Sampling(NamedTuple):
    """A component of a photo: its factors, and the places of its tables."""

    across: int
    down: int
    quantum: int
    dc: int
    ac: int


class Photo(NamedTuple):
    """A tiled JPEG that the kernels take.

    Attributes
    ----------
    data : bytes-like
    tiles : Tiles
    components : tuple of Sampling
    quanta : dict of int to (64,) int16 array
        Column by column.
    tables : list of four bytes
        The two Huffman tables of DC, then the two of AC; a missing one is empty.
    """

    data: bytes
    tiles: Tiles
    components: tuple[Sampling, ...]
    quanta: dict[int, Array]
    tables: list[bytes]


def photo_of(data: bytes) -> Photo | None:
    """Return a JPEG as the kernels take it; None where they do not: it is left to the processor.

    They take tiled JPEGs of the kinds that packer's decoder takes, of one component or three, with two Huffman tables
    of each kind at most.
    """
    tiles = read_tiles(data)
    try:
        header = None if tiles is None else jpeg.read_header(data)
        return None if tiles is None or header is None or not header.usual else _read(data, tiles)
    except (ImageError, struct.error, IndexError, KeyError):
        return None


class _Segments(NamedTuple):
    """The segments of a header: tables by their numbers, the frame, the scan, and whether colours are YCbCr."""

    quanta: dict[int, Array]
    huffman: dict[int, bytes]
    frame: bytes
    scan: bytes
    is_ycc: bool


def _segments(data: bytes) -> _Segments:
    quanta: dict[int, Array] = {}
    huffman: dict[int, bytes] = {}
    frame, scan, adobe, is_jfif = b"", b"", -1, False
    for marker, start, end in jpeg.segments(data):
        scan = content = data[start + 4 : end]  # the last segment is the scan's header
        if marker == _DQT:
            quanta.update(_quanta(content))
        elif marker == _DHT:
            huffman.update(_huffman(content))
        elif marker in (_SOF0, _SOF1):
            frame = content
        elif marker == _APP0:
            is_jfif |= content[:5] == b"JFIF\0"
        elif marker == _APP14 and len(content) >= 12 and content[:5] == b"Adobe":
            adobe = content[11]
    is_usual = adobe < 0 and frame[6::3] == bytes([1, 2, 3])  # colours are those that libjpeg concludes
    return _Segments(quanta, huffman, frame, scan, is_jfif or adobe == 1 or is_usual)


def _read(data: bytes, tiles: Tiles) -> Photo | None:
    quanta, huffman, frame, scan, is_ycc = _segments(data)
    count, parts = frame[5], [frame[at : at + 3] for at in range(6, len(frame), 3)]
    components, selectors = scan[1 : 1 + 2 * count : 2], scan[2 : 2 + 2 * count : 2]
    if count == 3 and not is_ycc:
        return None
    if scan[0] != count or components != frame[6::3] or scan[1 + 2 * count :] != bytes([0, 63, 0]):
        return None
    factors = [(part[1] >> 4, part[1] & 15) if count > 1 else (1, 1) for part in parts]
    if not _are_usual(factors):
        return None
    dc, ac = (_distinct([huffman[own] for own in numbers]) for numbers in _numbers(selectors))
    if dc is None or ac is None or any(part[2] not in quanta for part in parts):
        return None
    samplings = zip(factors, parts, dc[1], ac[1], strict=True)
    made = tuple(Sampling(*factor, part[2], own_dc, 2 + own_ac) for factor, part, own_dc, own_ac in samplings)
    return Photo(data, tiles, made, quanta, [*dc[0], *ac[0]])


def _numbers(selectors: bytes) -> tuple[list[int], list[int]]:
    """Return the numbers of the Huffman tables that components have, of DC and of AC, as DHT segments say them."""
    return [own >> 4 for own in selectors], [16 | own & 15 for own in selectors]


def _are_usual(factors: list[tuple[int, int]]) -> bool:
    """Tell whether the factors of components divide each other, and an MCU has not too many blocks."""
    across, down = max(a for a, _ in factors), max(d for _, d in factors)
    fit = all(1 <= a <= 4 and 1 <= d <= 4 and across % a == 0 and down % d == 0 for a, d in factors)
    return fit and sum(a * d for a, d in factors) <= _MOST_BLOCKS


def _quanta(content: bytes) -> dict[int, Array]:
    made = {}
    for at in range(0, len(content), 65):
        if content[at] > 3 or len(content) < at + 65:
            raise KeyError("quantisation of another kind")
        quantum = np.zeros(64, np.int16)
        quantum[_COLUMNWISE] = np.frombuffer(content, np.uint8, 64, at + 1)
        made[content[at]] = quantum
    return made


def _huffman(content: bytes) -> dict[int, bytes]:
    made, at = {}, 0
    while at < len(content):
        size = 16 + sum(content[at + 1 : at + 17])
        if content[at] & 0xEC or size > SAYS or len(content) < at + 1 + size:
            raise KeyError("a Huffman table of another kind")
        made[content[at]] = bytes(content[at + 1 : at + 1 + size])
        at += 1 + size
    return made


def _distinct(tables: list[bytes]) -> tuple[list[bytes], list[int]] | None:
    """Return two tables, of which the second may be empty, and which of them each component has."""
    kinds = list(dict.fromkeys(tables))
    return None if len(kinds) > 2 else ([*kinds, b""][:2], [kinds.index(table) for table in tables])


class Place(NamedTuple):
    """The parts of an image that a crop needs.

    Attributes
    ----------
    rows, columns : range
        Pixels that resizing depends on, in the image.
    window : TileWindow
        MCUs.
    read : TileWindow
        Tiles whose groups of rows are read: those that a decoder of the whole format may look at.
    """

    rows: range
    columns: range
    window: TileWindow
    read: TileWindow


def _upsampling(wide: int, tall: int, width: int) -> int:
    """Return how a component becomes as large as the image: `upsampling_of` in decoding.c."""
    if wide == 1 and tall <= 2:
        return _AS_IT_IS if tall == 1 else _SMOOTH_DOWN
    return _SMOOTH if wide == 2 and tall <= 2 and width > 2 else _REPEATED


def _axis(side: int, scaled: int, window: tuple[int, int], whole: bool, cubic: bool) -> Array:
    """Return an axis of resizing, of which a window begins somewhere and has some pixels: `axis_set` in weighing.c."""
    axis = np.zeros((), AXIS)
    scale = side / scaled if whole else 1 / (scaled / side)
    stretch = max(scale, 1.0)
    reach = 2 * stretch if cubic else stretch
    axis["scale"], axis["stretch"], axis["reach"] = scale, stretch, reach
    axis["side"], (axis["cut"], axis["out"]), axis["most"] = side, window, 1 + int(2 * reach + 1e-6)
    axis["is_same"] = scale == 1
    return axis


def _depends(axis: Array) -> range:
    """Return which pixels the first and the last one of an axis, and so all, depend on."""
    cut, out = int(axis["cut"]), int(axis["out"])
    if axis["is_same"]:
        return range(cut, cut + out)
    scale, reach, side = float(axis["scale"]), float(axis["reach"]), int(axis["side"])
    first = max(int(scale * (cut + 0.5) - reach + 0.5), 0)
    centre = scale * (cut + out - 1 + 0.5)
    begin = max(int(centre - reach + 0.5), 0)
    return range(first, begin + min(min(int(centre + reach + 0.5), side) - begin, int(axis["most"])))


@functools.lru_cache(1 << 12)
def _axes(box: Box) -> tuple[Array, Array]:
    whole = box.scaled == box.out
    cubic = box.interpolation == 1
    return (
        _axis(box.crop_height, box.scaled_height, (box.cut_top, box.out_height), whole, cubic),
        _axis(box.crop_width, box.scaled_width, (box.cut_left, box.out_width), whole, cubic),
    )


class Batch(NamedTuple):
    """Crops as the kernels take them.

    Attributes
    ----------
    slab : (bytes / 4,) uint32 array
        Groups of rows of tiles, as they are in the JPEGs.
    groups, images, chunks : arrays of GROUP, IMAGE and CHUNK
    says : (images, 4, SAYS) uint8 array
        Huffman tables.
    quanta : (images, 3, 64) int16 array
        The quantisation of each component, column by column.
    sizes : dict of str to int
        Elements of each buffer that the kernels share.
    refused : tuple of int
        Which of the crops have no image here: their JPEGs are damaged in a way that the host sees.
    tiles : tuple of slice
        The tiles of each image, with those beside the window, among all tiles.
    out : (int, int)
        Height and width of each result.
    """

    slab: Array
    groups: Array
    images: Array
    chunks: Array
    says: Array
    quanta: Array
    sizes: dict[str, int]
    refused: tuple[int, ...]
    tiles: tuple[slice, ...]
    out: tuple[int, int]


class _Builder:
    """The part of a batch that is laid out so far."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.groups: list[tuple[int, ...]] = []
        self.images: list[Array] = []
        self.says: list[Array] = []
        self.quanta: list[Array] = []
        self.tiles: list[slice] = []
        names = ("bytes", "words", "tiles", "order", "blocks", "samples", "spans", "weights", "precisions", "resized")
        self.sizes = dict.fromkeys((*names, "pixels"), 0)

    def take(self, name: str, count: int) -> int:
        """Return where so many elements of a buffer begin that nothing else has."""
        begin = self.sizes[name]
        self.sizes[name] += count
        return begin

    def add(self, photo: Photo, box: Box) -> bool:
        """Add a crop; tell whether its groups of tiles begin and end where they must."""
        grid = photo.tiles.grid
        image = np.zeros((), IMAGE)
        place = self._place(photo, box, image)
        first_tile = self._add_groups(photo, place.read)
        if first_tile is None:
            return False
        window, interval = place.window, grid.interval
        group_row = place.read.first_row // photo.tiles.group * photo.tiles.group
        column, column_end = window.first // interval, -(-window.end // interval)
        image["count"], image["rows"], image["columns"] = len(photo.components), *_sides(window)
        image["tile_rows"], image["tile_columns"] = window.row_end - window.first_row, column_end - column
        image["image_columns"], image["interval"] = grid.columns, interval
        image["skipped"] = window.first - column * interval
        image["tile"] = first_tile + (window.first_row - group_row) * grid.columns + column
        image["order"] = self.take("order", int(image["tile_rows"]) * int(image["tile_columns"]))
        image["flip"], image["interpolation"] = box.flip, box.interpolation
        self._add_components(photo, window, image)
        self._add_axes(box, place, image)
        says = np.zeros((4, SAYS), np.uint8)
        for number, table in enumerate(photo.tables):
            says[number, : len(table)] = np.frombuffer(table, np.uint8)
            image["tables"][number] = len(table)
        quanta = np.zeros((3, 64), np.int16)
        quanta[: len(photo.components)] = [photo.quanta[c.quantum] for c in photo.components]
        self.says.append(says)
        self.quanta.append(quanta)
        self.images.append(image)
        return True

    @staticmethod
    def _place(photo: Photo, box: Box, image: Array) -> Place:
        image["axes"][0], image["axes"][1] = _axes(box)
        grid, components = photo.tiles.grid, photo.components
        across, down = max(c.across for c in components), max(c.down for c in components)
        rows, columns = (_depends(axis) for axis in image["axes"])
        rows = range(rows.start + box.top, rows.stop + box.top)
        columns = range(columns.start + box.left, columns.stop + box.left)
        above = beside = 0
        for number, c in enumerate(components):
            wide, tall = across // c.across, down // c.down
            kind = _upsampling(wide, tall, -(-grid.width // wide))
            above |= kind != _REPEATED and tall == 2
            beside |= kind == _SMOOTH
            image["components"][number]["upsampling"] = kind
        high, long = 8 * down, 8 * across
        window = TileWindow(
            max(rows.start - above, 0) // high,
            min(-(-(rows.stop + above) // high), -(-grid.height // high)),
            max(columns.start - beside, 0) // long,
            min(-(-(columns.stop + beside) // long), -(-grid.width // long)),
        )
        read = grid.window((rows.start, columns.start, len(rows), len(columns)))
        return Place(rows, columns, window, read or TileWindow(0, grid.rows, 0, grid.columns))

    def _add_groups(self, photo: Photo, window: TileWindow) -> int | None:
        """Add the groups of rows of a window of tiles; return the number of their first tile."""
        data, tiles = photo.data, photo.tiles
        rows, columns, each = tiles.grid.rows, tiles.grid.columns, tiles.group
        first, end = window.first_row // each, -(-window.row_end // each)
        begins = [tiles.scan, *tiles.group_ends.tolist()]
        begin, stop = begins[first], begins[end]
        if first and data[begin - 2 : begin] != bytes([0xFF, 0xD0 + (first * each * columns - 1 & 7)]):
            return None
        counts = [(min((number + 1) * each, rows) - number * each) * columns for number in range(first, end)]
        tile = first_tile = self.take("tiles", sum(counts))
        self.tiles.append(slice(tile, tile + sum(counts)))
        at = self.take("bytes", -(-(stop - begin) // 16) * 16)
        self.pieces += [data[begin:stop], bytes(self.sizes["bytes"] - at - (stop - begin))]
        for number, count in zip(range(first, end), counts, strict=True):
            size = begins[number + 1] - begins[number]
            to = self.take("words", -(-size // 4) + 1)
            is_last = number + 1 == len(begins) - 1
            self.groups.append((at + begins[number] - begin, size, to, tile, count, number * each * columns, is_last))
            tile += count
        return first_tile

    def _add_components(self, photo: Photo, window: TileWindow, image: Array) -> None:
        grid, sampling = photo.tiles.grid, photo.components
        across, down = max(c.across for c in sampling), max(c.down for c in sampling)
        rows, columns = _sides(window)
        for number, own in enumerate(sampling):
            c = image["components"][number]
            c["across"], c["down"], c["wide"], c["tall"] = own.across, own.down, across // own.across, down // own.down
            c["first_row"], c["first_column"] = window.first_row * 8 * own.down, window.first * 8 * own.across
            c["height"], c["width"] = -(-grid.height // int(c["tall"])), -(-grid.width // int(c["wide"]))
            c["blocks"], c["stride"] = columns * own.across, columns * own.across * 8
            blocks = rows * own.down * columns * own.across
            c["coefficients"], c["plane"] = self.take("blocks", blocks), self.take("samples", 64 * blocks)
            c["dc"], c["ac"] = own.dc, own.ac

    def _add_axes(self, box: Box, place: Place, image: Array) -> None:
        down, across = (int(image["components"][name].max()) for name in ("down", "across"))
        top, left = place.window.first_row * 8 * down, place.window.first * 8 * across
        image["top"], image["left"] = place.rows.start - top, place.columns.start - left
        image["height"] = len(place.rows)
        image["crop_top"], image["crop_left"] = box.top - top, box.left - left
        for axis in image["axes"]:
            axis["spans"] = self.take("spans", int(axis["out"]))
            axis["weights"] = self.take("weights", int(axis["out"]) * int(axis["most"]))
            axis["precision"] = self.take("precisions", 1)
        image["resized"] = self.take("resized", len(place.rows) * box.out_width)
        image["out"] = self.take("pixels", box.out_height * box.out_width)


def _chunks(images: Array) -> Array:
    """Return the chunks of all images: the first ones of each, which have the largest tiles, then the second ones."""
    counts = -(-images["tile_rows"].astype(np.int64) * images["tile_columns"] // TILES)
    numbers = np.repeat(np.arange(len(images)), counts)
    order = np.arange(len(numbers)) - np.repeat(counts.cumsum() - counts, counts)
    made = np.zeros(len(numbers), CHUNK)
    made["image"], made["first"] = numbers, order * TILES
    return made[np.argsort(order, kind="stable")]


def _require_inside(photo: Photo, box: Box) -> None:
    """Raise ValueError for a crop that does not lie inside of its photo."""
    grid, (top, left, height, width) = photo.tiles.grid, box.rectangle
    if min(top, left) < 0 or min(height, width) < 1 or top + height > grid.height or left + width > grid.width:
        raise ValueError(
            f"the rectangle {box.rectangle} lies outside of a photo of {grid.height} x {grid.width} pixels"
        )


def _sides(window: TileWindow) -> tuple[int, int]:
    return window.row_end - window.first_row, window.end - window.first


def batch_of(photos: Sequence[Photo], boxes: Sequence[Box]) -> Batch:
    """Return crops as the kernels take them.

    Parameters
    ----------
    photos : sequence of N Photo
    boxes : sequence of N Box
        The results have all the same size, and are not padded.

    Raises
    ------
    ValueError
        If a window is padded, a rectangle lies outside of its photo, the results differ in size, or the batch has
        2**28 bytes or more.
    """
    builder, refused = _Builder(), []
    if len({box.out for box in boxes}) != 1 or any(map(is_padded, boxes)):
        raise ValueError("the results of a batch need the same size, and no padding")
    for number, (photo, box) in enumerate(zip(photos, boxes, strict=True)):
        _require_inside(photo, box)
        if not builder.add(photo, box):
            refused.append(number)
    if builder.sizes["bytes"] >= 1 << 28:
        raise ValueError(f"a batch has at most 2**28 bytes, not {builder.sizes['bytes']}: take fewer crops")
    slab = b"".join([*builder.pieces, bytes(-(-_BEYOND // 16) * 16)])
    sizes = {**builder.sizes, "words": builder.sizes["words"] + _BEYOND // 4}
    groups = np.array(builder.groups, GROUP) if builder.groups else np.zeros(0, GROUP)
    images = np.stack(builder.images) if builder.images else np.zeros(0, IMAGE)
    says = np.stack(builder.says) if builder.says else np.zeros((0, 4, SAYS), np.uint8)
    quanta = np.stack(builder.quanta) if builder.quanta else np.zeros((0, 3, 64), np.int16)
    words = np.frombuffer(slab, np.uint32)
    return Batch(
        words, groups, images, _chunks(images), says, quanta, sizes, tuple(refused), tuple(builder.tiles), boxes[0].out
    )
