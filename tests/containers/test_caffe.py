"""LMDBs of Caffe and of SSD, whose messages are encoded by hand as protocol buffers."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._formats import open_pack
from packer._packs.verify import verify
from packer.errors import SourceError
from tests.containers.lmdbs import entries_of, photos, write_lmdb

IMAGES = photos(12)
KEYS = [b"%08d_n%02d/photo %d.JPEG" % (number, number % 3, number) for number in range(12)]
NAMES = [key[9:].decode() for key in KEYS]


def varint(value: int) -> bytes:
    value %= 1 << 64
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(*fields: tuple[int, int | bytes | float | bool | None]) -> bytes:
    """Return a message of a protocol buffer without the fields that are None."""
    found = b""
    for number, value in fields:
        if isinstance(value, bytes):
            found += varint(number << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, float):
            found += varint(number << 3 | 5) + struct.pack("<f", value)
        elif value is not None:
            found += varint(number << 3) + varint(int(value))
    return found


def datum(
    data: bytes, label: int | None, size: tuple[int, int, int] | None = None, encoded: bool | None = None
) -> bytes:
    """Return a Datum; `size` is channels, height and width."""
    return message(*enumerate(size or (), 1), (4, data), (5, label), (7, encoded))


def listed(src: Path, **options: Any) -> tuple[list[str], list[int], list[bytes]]:
    """Index a source and verify the index; return its names, labels and bytes."""
    index = src.with_suffix(".index")
    packer.index(src, index, **options)
    assert verify(index) == []
    with open_pack(index) as reader:
        return list(reader.names), reader.table.label.tolist(), [bytes(reader.read(n)) for n in range(len(reader))]


@pytest.mark.parametrize("subdir", [True, False])
def test_encoded_images_lie_in_the_file(tmp_path: Path, subdir: bool) -> None:
    """Caffe itself writes a directory with data.mdb and lock.mdb."""
    values = [datum(image, number, encoded=True) for number, image in enumerate(IMAGES)]
    path = write_lmdb(tmp_path / "ilsvrc12_train_lmdb", zip(KEYS, values, strict=True), subdir=subdir)
    assert listed(path) == (NAMES, list(range(12)), IMAGES)
    for (_, value), image in zip(entries_of(path), IMAGES, strict=True):
        assert image in value
    with open_pack(path.with_suffix(".index")) as reader:
        data = path / "data.mdb" if subdir else path
        assert (reader.table.offset < data.stat().st_size).all()
    assert [label for _, label in packer.open_dataset(path)] == list(range(12))


@pytest.mark.parametrize("label", [0, 1, 127, 128, 300, -1])
def test_labels_are_varints(tmp_path: Path, label: int) -> None:
    """A negative one has ten bytes."""
    path = write_lmdb(tmp_path / "train", [(KEYS[0], datum(IMAGES[0], label, encoded=True))])
    assert listed(path)[1] == [label]


def test_a_label_that_is_left_out_is_0_as_caffe_reads_it(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "train", [(KEYS[0], datum(IMAGES[0], None, encoded=True))])
    assert listed(path)[1] == [0]


def test_what_says_nothing_about_encoding_is_told_by_its_content(tmp_path: Path) -> None:
    """Without the field `encoded`, DALI assumes an encoded image, and Caffe assumes pixels."""
    path = write_lmdb(tmp_path / "encoded", [(KEYS[0], datum(IMAGES[0], 1, (3, 16, 20)))])
    assert listed(path)[2] == [IMAGES[0]]
    pixels = b"\xff\xd8\xff" + bytes(range(45))
    path = write_lmdb(tmp_path / "raw", [(KEYS[0], datum(pixels, 1, (3, 4, 4)))])
    with_pixels(path, [np.frombuffer(pixels, np.uint8).reshape(3, 4, 4)])


def with_pixels(path: Path, planes: list[np.ndarray[Any, Any]]) -> None:
    """Index and convert a file of planes, blue first, and compare the pixels."""
    names, _, data = listed(path)
    packer.convert(path, path.with_suffix(".lmdb"))
    with open_pack(path.with_suffix(".index")) as index, open_pack(path.with_suffix(".lmdb")) as pack:
        assert list(pack.names) == names
        for number, plane in enumerate(planes):
            expected = np.broadcast_to(plane[::-1], (3, *plane.shape[1:])).transpose(1, 2, 0)
            assert data[number] == np.ascontiguousarray(expected).tobytes()
            assert (index.table.height[number], index.table.width[number]) == plane.shape[1:]
            shown = Image.open(io.BytesIO(pack.read(number))).convert("RGB")
            np.testing.assert_array_equal(np.asarray(shown), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("encoded", [False, None])
def test_raw_pixels_are_planes_with_blue_first(tmp_path: Path, channels: int, encoded: bool | None) -> None:
    rng = np.random.default_rng(0)
    planes = [rng.integers(0, 256, (channels, 5 + n, 40), np.uint8) for n in range(8)]
    values = [datum(plane.tobytes(), 3, plane.shape, encoded) for plane in planes]
    path = write_lmdb(tmp_path / "train", zip(KEYS, values, strict=False))
    with_pixels(path, planes)
    assert listed_names(path) == [name.replace(".JPEG", ".png") for name in NAMES[:8]]


def listed_names(path: Path) -> list[str]:
    with open_pack(path.with_suffix(".index")) as reader:
        return list(reader.names)


def test_paths_that_occur_twice_leave_the_whole_keys(tmp_path: Path) -> None:
    keys = [b"00000000_a/1.jpg", b"00000001_a/1.jpg", b"00000002_a/2.jpg"]
    values = [datum(image, number, encoded=True) for number, image in enumerate(IMAGES[:3])]
    path = write_lmdb(tmp_path / "twice", zip(keys, values, strict=True))
    assert listed(path)[0] == [key.decode() for key in keys]
    raw = datum(bytes(12), 0, (3, 2, 2), False)
    path = write_lmdb(tmp_path / "suffixes", [(b"00000000_a.jpg", raw), (b"00000001_a.png", raw)])
    assert listed(path)[0] == ["00000000_a.jpg.png", "00000001_a.png.png"]


def test_absolute_paths_and_keys_without_numbers(tmp_path: Path) -> None:
    keys = [b"00000000_/home/me/1.jpg", b"other"]
    values = [datum(image, 0, encoded=True) for image in IMAGES[:2]]
    assert listed(write_lmdb(tmp_path / "train", zip(keys, values, strict=True)))[0] == [
        "00000000_/home/me/1.jpg",
        "other.jpg",
    ]


def test_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "train", [(b"../../evil.jpg", datum(IMAGES[0], 0, encoded=True))])
    with pytest.raises(SourceError, match=r"train: sample 0, ../../evil.jpg"):
        packer.index(path, tmp_path / "out.index")


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (datum(bytes(12), 0, (3, 2, 2), False), "the file contains both raw pixels and encoded images"),
        (datum(IMAGES[0], 0, encoded=True)[:-40], "bytes are declared"),
        (message((5, 3)), "the Datum has no data"),
        (message((4, b""), (6, 1.5)), "floats"),
        (message((4, b""), (9, 1)), "field 9 does not exist"),
        (message((1, datum(IMAGES[0], 0, encoded=True))), "AnnotatedDatum and Caffe's Datum"),
        (b"\xff" * 30, "more than 64 bits"),
    ],
)
def test_values_that_are_no_encoded_image_are_named(tmp_path: Path, second: bytes, reason: str) -> None:
    first = datum(IMAGES[0], 0, encoded=True)
    path = write_lmdb(tmp_path / "train", [*((key, first) for key in KEYS[:4]), (KEYS[4], second)])
    with pytest.raises(SourceError, match=reason) as caught:
        packer.index(path, tmp_path / "out.index")
    assert f"{path}: {KEYS[4].decode()}: " in str(caught.value)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (datum(bytes(13), 0, (3, 2, 2), False), "13 bytes are not 3 channels of 2 x 2 pixels"),
        (datum(bytes(4), 0, (1, 2, 2), False), "1 and of 3 channels"),
        (datum(bytes(16), 0, (4, 2, 2), False), "4 channels of 2 x 2"),
        (datum(bytes(12), 0, (3, 2, -2), False), "packer reads"),
        (datum(IMAGES[0], 0, encoded=True), "raw pixels and encoded images"),
    ],
)
def test_values_that_are_no_such_pixels_are_named(tmp_path: Path, second: bytes, reason: str) -> None:
    first = datum(bytes(12), 0, (3, 2, 2), False)
    path = write_lmdb(tmp_path / "train", [*((key, first) for key in KEYS[:4]), (KEYS[4], second)])
    with pytest.raises(SourceError, match=reason):
        packer.index(path, tmp_path / "out.index")


def annotated(number: int, boxes: list[tuple[int, int, tuple[float, ...], bool]]) -> bytes:
    """Return an AnnotatedDatum; a box is label, instance, corners, difficult."""
    groups = [
        (3, message((1, label), (2, message((1, instance), (2, message(*enumerate(corners, 1), (6, difficult)))))))
        for label, instance, corners, difficult in boxes
    ]
    return message((1, datum(IMAGES[number], -1, encoded=True)), (2, 0), *groups)


def test_boxes_of_ssd_are_pixels(tmp_path: Path) -> None:
    boxes = [(7, 0, (0.0, 0.25, 0.5, 1.0), False), (15, 3, (0.25, 0.5, 0.75, 0.75), True)]
    values = [annotated(number, boxes[: number % 3]) for number in range(12)]
    path = write_lmdb(tmp_path / "VOC0712_trainval_lmdb", zip(KEYS, values, strict=True), subdir=True)
    names, labels, data = listed(path)
    assert (names, labels, data) == (NAMES, [-1] * 12, IMAGES)
    with open_pack(path.with_suffix(".index")) as reader:
        for number in range(12):
            values_of = {name: field.decode(reader.value(number, name)) for name, field in reader.fields.items()}
            height, width = int(reader.table.height[number]), int(reader.table.width[number])
            expected = [[c * side for c, side in zip(box[2], (width, height) * 2, strict=True)] for box in boxes]
            count = number % 3
            np.testing.assert_allclose(values_of["boxes"], np.reshape(expected[:count], (-1, 4)), rtol=1e-6)
            assert values_of["category"].tolist() == [7, 15][:count]
            assert values_of["instance"].tolist() == [0, 3][:count]
            assert values_of["difficult"].tolist() == [0, 1][:count]


@pytest.mark.parametrize("corner", [float("nan"), float("inf"), 1e30])
def test_boxes_that_are_nowhere_are_refused(tmp_path: Path, corner: float) -> None:
    value = annotated(0, [(7, 0, (0.0, 0.25, corner, 1.0), False)])
    path = write_lmdb(tmp_path / "train", [(KEYS[0], annotated(0, [])), *((key, value) for key in KEYS[1:5])])
    with pytest.raises(SourceError, match="a box has the corners"):
        packer.index(path, tmp_path / "out.index")
