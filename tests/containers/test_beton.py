"""FFCV's files, made by hand in the layout of its writer, because building FFCV needs OpenCV and libjpeg-turbo."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer.errors import SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed

JPEGS = [IMAGES["a.jpg"], IMAGES["c.jpg"]]
PIXELS = np.random.default_rng(3).integers(0, 256, (2, 5, 4, 3), np.uint8)
PAGE = 1 << 12  # with FFCV's smallest pages, each file would take 2 MiB


def beton(path: Path, fields: Mapping[str, int], rows: Sequence[Mapping[str, Any]], arguments: bytes = b"") -> Path:
    """Write a file whose fields have these type numbers; images are JPEGs or arrays. Data lie in reverse order."""
    descriptions = b"".join(struct.pack("<B16s1024s", kind, name.encode(), arguments) for name, kind in fields.items())
    head = 24 + len(descriptions)
    offset, places = 0, {}
    layouts = {0: (8, 8), 1: (8, 8), 2: (13, 1), 3: (16, 1), 4: (8, 8), 5: (16, 1), 255: (16, 1)}
    for name, kind in fields.items():
        size, alignment = layouts[kind]
        offset = -(-offset // alignment) * alignment
        places[name], offset = offset, offset + size
    alignment = max(layouts[kind][1] for kind in fields.values())
    stride = -(-offset // alignment) * alignment
    table, data, allocations = bytearray(stride * len(rows)), bytearray(), list[tuple[int, int, int]]()
    start = -(-(head + len(table)) // PAGE) * PAGE
    for number in reversed(range(len(rows))):
        for name, kind in fields.items():
            value, at = rows[number][name], number * stride + places[name]
            if kind in (0, 1):
                struct.pack_into("<d" if kind == 0 else "<q", table, at, value)
                continue
            stored = bytes(value) if not isinstance(value, np.ndarray) else value.tobytes()
            begin = start + len(data)
            allocations.append((number, begin, len(stored)))
            data += stored + b"\0" * 7
            if kind == 2:
                mode = int(isinstance(value, np.ndarray))
                height, width = value.shape[:2] if mode else (12, 16)
                struct.pack_into("<BHHQ", table, at, mode, width, height, begin)
            elif kind == 4:
                struct.pack_into("<Q", table, at, begin)
            else:
                struct.pack_into("<QQ", table, at, begin, len(stored))
    header = struct.pack("<HHIQQ", 2, len(fields), PAGE, len(rows), start + len(data))
    table += b"\0" * (start - head - len(table))
    ends = b"".join(struct.pack("<QQQ", *allocation) for allocation in allocations)
    path.write_bytes(header + descriptions + table + data + ends)
    return path


def jpegs(path: Path) -> Path:
    return beton(path, {"image": 2, "label": 1}, [{"image": JPEGS[0], "label": 7}, {"image": JPEGS[1], "label": 0}])


def test_jpegs_have_the_lengths_that_the_allocations_tell(tmp_path: Path) -> None:
    path = jpegs(tmp_path / "train.beton")
    seen = everywhere(path, tmp_path)
    assert seen.data == JPEGS
    assert seen.names == ["train/0.jpg", "train/1.jpg"]
    assert seen.labels == [7, 0]
    assert not len(listed(path).copied)


def test_pixels_are_read_where_they_lie(tmp_path: Path) -> None:
    rows = [{"label": 1, "image": pixels} for pixels in PIXELS]
    seen = everywhere(beton(tmp_path / "raw.beton", {"label": 1, "image": 2}, rows), tmp_path, pixels=True)
    assert seen.data == [pixels.tobytes() for pixels in PIXELS]
    assert seen.names == ["raw/0.png", "raw/1.png"]


def test_jpegs_and_pixels_in_one_file_are_converted_and_have_no_index(tmp_path: Path) -> None:
    path = beton(tmp_path / "x.beton", {"image": 2}, [{"image": JPEGS[0]}, {"image": PIXELS[0]}])
    with pytest.raises(SourceError, match=r"some images are raw pixels and others are encoded.*: convert the images"):
        packer.index(path, tmp_path / "made.index")
    packer.convert(path, tmp_path / "made.lmdb")
    dataset = packer.open_dataset(tmp_path / "made.lmdb")
    assert [name for name, _ in dataset.samples] == ["x/0.jpg", "x/1.png"]
    assert np.array_equal(np.moveaxis(np.asarray(dataset[1][0]), 0, -1), PIXELS[0])
    with Image.open(GOLDEN / "images" / "a.jpg") as image:
        assert np.array_equal(np.moveaxis(np.asarray(dataset[0][0]), 0, -1), np.asarray(image))


def test_other_fields_have_their_kinds(tmp_path: Path) -> None:
    said = json.dumps([["", "<f4"]]).encode()
    arguments = np.array([2, 2] + [0] * 30 + [len(said)], "<u8").tobytes() + said
    fields = {"image": 2, "score": 0, "blob": 3, "meta": 5, "box": 4, "label": 1}
    rows = [
        {
            "image": JPEGS[0],
            "score": 0.5,
            "blob": b"\0x",
            "meta": b'{"a":1}\0',
            "box": np.ones((2, 2), "<f4"),
            "label": 3,
        },
        {"image": JPEGS[1], "score": 1.5, "blob": b"", "meta": b"[]\0", "box": np.zeros((2, 2), "<f4"), "label": 1},
    ]
    seen = everywhere(beton(tmp_path / "x.beton", fields, rows, arguments), tmp_path)
    assert seen.data == JPEGS
    assert seen.labels == [3, 1]
    ones, zeros = [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]
    assert seen.fields == {"score": [0.5, 1.5], "blob": [b"\0x", b""], "meta": [{"a": 1}, []], "box": [ones, zeros]}


def test_fields_of_unknown_types_are_left_out(tmp_path: Path) -> None:
    rows = [{"own": b"abc", "image": data, "label": number} for number, data in enumerate(JPEGS)]
    seen = everywhere(beton(tmp_path / "x.beton", {"own": 255, "image": 2, "label": 1}, rows), tmp_path)
    assert seen.data == JPEGS
    assert seen.labels == [0, 1]
    assert seen.fields == {}
    assert any("own" in note and "255" in note for note in seen.notes)


@pytest.mark.parametrize(
    ("at", "new", "message"),
    [
        (0, b"\1", "version 1 of"),
        (2, b"\0", "0 fields"),
        (2, b"\xff\xff", "65535 fields"),
        (8, b"\xff" * 6, "rows do not have the expected layout"),
        (16, b"\0" * 8, "not completely written"),
        (16, b"\xff" * 8, "cut short"),
        (25, b"\0" * 16, "field 0 has no name"),
        (24 + 1041 * 2, b"\2", "bytes are not an image of 16 x 12 pixels in mode 2"),
        (24 + 1041 * 2, b"\1", "664 bytes are not an image of 16 x 12 pixels in mode 1"),
        (24 + 1041 * 2 + 5, b"\1", "sample 0: it points to byte"),
        (-8, b"\xff" * 8, "sample 0: image ends at byte"),
    ],
)
def test_what_stands_in_a_file_is_not_believed(tmp_path: Path, at: int, new: bytes, message: str) -> None:
    path = jpegs(tmp_path / "x.beton")
    data = bytearray(path.read_bytes())
    at %= len(data)
    data[at : at + len(new)] = new
    path.write_bytes(data)
    with pytest.raises(SourceError, match=message):
        listed(path)


def test_values_of_two_samples_at_one_place_are_refused(tmp_path: Path) -> None:
    path = jpegs(tmp_path / "x.beton")
    data = path.read_bytes()
    path.write_bytes(data[:-24] + data[-48:-40] + data[-40:-32] + data[-8:])
    with pytest.raises(SourceError, match="two values begin at the same byte"):
        listed(path)
