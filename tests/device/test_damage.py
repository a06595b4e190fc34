"""The kernels report the same images as damaged that packer's decoder on the CPU refuses."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pytest

from device.batch import Photo, batch_of, photo_of
from device.stages import run
from device.twin import Twin
from packer._images import jpeg
from packer._images.geometry import Box
from packer._images.jpeg_tiles import read_tiles
from tests.device.crops import LEVELS, by_processor, cut, mutation, random_box, side_of, tiled
from tests.images.samples import SUBSAMPLINGS

FINE, DAMAGED, UNSUPPORTED = range(3)
SIZE = (97, 140)


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_the_processor_agrees_on_what_is_damaged(twin: Twin, subsampling: str) -> None:
    chance = random.Random(subsampling)
    sound = tiled(subsampling, SIZE)
    photos = [mutation(sound, chance) for _ in range(250)]
    boxes = [random_box(sound, (16, 16), chance) for _ in photos]
    batch = batch_of(photos, boxes)
    made = run(twin, batch, LEVELS)
    there = iter(zip(made.status, made.out, strict=True))
    seen = {True: 0, False: 0}
    for number, (photo, box) in enumerate(zip(photos, boxes, strict=True)):
        status, pixels = (DAMAGED, None) if number in batch.refused else next(there)
        part = cut(sound, photo.data, box)
        expected = None if part is None else by_processor(*part)
        assert (status == FINE) == (expected is not None), (number, box)
        seen[expected is not None] += 1
        assert expected is None or np.array_equal(pixels, expected), (number, box)
        whole = by_processor(photo.data, side_of(photo), box)  # checks markers outside the crop's groups, too
        assert whole is None or expected is None or np.array_equal(pixels, whole), (number, box)
    assert min(seen.values()) > 20


def scan_pieces(photo: Photo) -> list[bytes]:
    """Return the tiles of a photo, each with the marker after it."""
    scan = photo.data[photo.tiles.scan : int(photo.tiles.group_ends[-1])]
    pieces, begin, at = [], 0, 0
    while at < len(scan) - 1:
        at += 2 if scan[at] == 0xFF else 1
        if scan[at - 2] == 0xFF and scan[at - 1]:
            pieces.append(scan[begin:at])
            begin = at
    return pieces


def with_pieces(photo: Photo, pieces: list[bytes]) -> Photo:
    """Return a photo with other tiles and a table that fits them."""
    tiles = photo.tiles
    each, scan = tiles.group * tiles.grid.columns, b"".join(pieces)
    sizes = [sum(map(len, pieces[first : first + each])) for first in range(0, len(pieces), each)]
    entry = photo.data[tiles.segment + 11]
    table = b"".join(size.to_bytes(entry, "big") for size in sizes)
    return read_again(photo, table, photo.data[tiles.header : tiles.scan], scan)


def read_again(photo: Photo, table: bytes, header: bytes, scan: bytes) -> Photo:
    """Return a photo with another table of tiles, header or scan, and a valid checksum."""
    tiles, data = photo.tiles, photo.data
    fixed = bytearray(data[tiles.segment : tiles.table - 4])
    frame = header.index(b"\xff\xc0")
    struct.pack_into(">HH", fixed, 16, frame, len(header))
    struct.pack_into(">H", fixed, 2, len(fixed) + 4 - 2 + len(table))
    checksum = zlib.crc32(header, zlib.crc32(table, zlib.crc32(bytes(fixed[4:]))))
    made = photo_of(data[: tiles.segment] + bytes(fixed) + checksum.to_bytes(4, "big") + table + header + scan)
    assert made is not None
    assert read_tiles(made.data) is not None
    return made


@pytest.mark.parametrize("subsampling", ["4:2:0", "4:4:4", "grey"])
def test_a_tile_ends_in_its_last_byte(twin: Twin, subsampling: str) -> None:
    """Any tile with a byte too many or too few is damaged."""
    sound = tiled(subsampling, SIZE)
    pieces = scan_pieces(sound)
    assert len(pieces) == sound.tiles.grid.rows * sound.tiles.grid.columns
    box = Box.of((0, 0, *SIZE), (16, 16))
    assert run(twin, batch_of([with_pieces(sound, pieces)], [box]), LEVELS).status.tolist() == [FINE]
    photos = []
    for number, piece in enumerate(pieces):
        for other in (
            piece[:-2] + b"\x00" + piece[-2:],
            piece[:-3] + piece[-2:],
            piece[:-2] + b"\xff\x00" + piece[-2:],
        ):
            photos.append(with_pieces(sound, [*pieces[:number], other, *pieces[number + 1 :]]))
    made = run(twin, batch_of(photos, [box] * len(photos)), LEVELS)
    for number, photo in enumerate(photos):
        assert by_processor(photo.data, side_of(photo), box) is None
        assert made.status[number] == DAMAGED


def with_bytes_after_a_group(photo: Photo) -> Photo:
    """Return a photo with two bytes after the last marker of the first group of rows, which the table counts."""
    pieces, last = scan_pieces(photo), photo.tiles.group * photo.tiles.grid.columns - 1
    assert last + 1 < len(pieces)
    return with_pieces(photo, [*pieces[:last], pieces[last] + bytes(2), *pieces[last + 1 :]])


def test_a_group_ends_with_its_last_marker(twin: Twin) -> None:
    photo = with_bytes_after_a_group(tiled("4:4:4", (300, 420)))
    box = Box.of((0, 0, 40, 40), (16, 16))
    assert cut(photo, photo.data, box) is None
    assert run(twin, batch_of([photo], [box]), LEVELS).status.tolist() == [DAMAGED]


def tables_of(photo: Photo) -> tuple[bytes, bytes, bytes]:
    """Return the header of a photo in three parts: before the Huffman tables, the tables, after them."""
    data, tiles = photo.data, photo.tiles
    found = [(start, end) for marker, start, end in jpeg.segments(data, tiles.header) if marker == 0xC4]
    begin, end = found[0][0], found[-1][1]
    return data[tiles.header : begin], data[begin:end], data[end : tiles.scan]


def with_tables(photo: Photo, huffman: bytes) -> Photo | None:
    """Return a photo with other Huffman tables; None where the host refuses it."""
    before, _, after = tables_of(photo)
    tiles = photo.tiles
    table = photo.data[tiles.table : tiles.header]
    try:
        return read_again(photo, table, before + huffman + after, photo.data[tiles.scan :])
    except AssertionError:
        return None


def test_tables_are_checked_as_on_the_processor(twin: Twin) -> None:
    """The changed tables have invalid codes, symbols that no sequential JPEG has, or other valid codes."""
    sound, chance = tiled("4:2:0", SIZE), random.Random(4)
    box, seen = Box.of((0, 0, *SIZE), (16, 16)), [0, 0, 0]
    _, huffman, _ = tables_of(sound)
    for _ in range(400):
        at = chance.randrange(5, len(huffman))
        photo = with_tables(sound, huffman[:at] + bytes([chance.randrange(256)]) + huffman[at + 1 :])
        expected = None if photo is None else by_processor(photo.data, SIZE, box)
        if photo is None:
            continue
        made = run(twin, batch_of([photo], [box]), LEVELS)
        seen[made.status[0]] += 1
        if made.status[0] == UNSUPPORTED:  # the CPU may accept them
            continue
        assert (made.status[0] == FINE) == (expected is not None)
        assert expected is None or np.array_equal(made.out[0], expected)
    assert seen[FINE] > 2
    assert seen[DAMAGED] > 100


def test_more_long_codes_than_there_is_room_for_are_left_to_the_processor(twin: Twin) -> None:
    """All codes are of 11 bits, so that 81 prefixes of 10 bits have a second level."""
    sound = tiled("grey", SIZE)
    symbols = bytes([*(run << 4 | size for run in range(16) for size in range(1, 11)), 0x00, 0xF0])
    ac = bytes([*bytes(10), len(symbols), *bytes(5), *symbols])
    _, huffman, _ = tables_of(sound)
    dc = huffman[: 5 + 16 + sum(huffman[5:21])]
    photo = with_tables(sound, struct.pack(">BBHB", 0xFF, 0xC4, 3 + len(ac), 0x10) + ac + _alone(dc))
    assert photo is not None
    made = run(twin, batch_of([photo], [Box.of((0, 0, *SIZE), (16, 16))]), LEVELS)
    assert made.status.tolist() == [UNSUPPORTED]


def _alone(segment: bytes) -> bytes:
    """Return the first table of a DHT segment in a segment of its own."""
    return struct.pack(">BBH", 0xFF, 0xC4, len(segment) - 2) + segment[4:]
