from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest
from tfrecord.reader import tfrecord_loader
from tfrecord.tools.tfrecord2idx import create_index

from packer._conversion.convert import convert
from packer._fields import Field
from packer._formats import FORMATS, open_pack
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, write_pack
from packer.testing.photos import draw_imagefolder

ROW = FORMATS["tfrecord"]


class TestTFRecord(ForeignLayoutConformance):
    format = "tfrecord"
    options = {"shard_size": 20_000}  # noqa: RUF012 - read only

    def holds_samples(self, file: Path) -> bool:
        return file.suffix == ".tfrecord"


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def test_tfrecord_reads_what_is_converted(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=7, size=(30, 40))
    path = tmp_path / "pack.tfrecord"
    convert(imagefolder_source(tmp_path / "tree"), path, options={"shard_size": 20_000})
    shards = sorted(path.glob("*.tfrecord"))
    assert len(shards) > 1
    found = [dict(features) for shard in shards for features in tfrecord_loader(str(shard), None)]
    with open_pack(path) as reader:
        assert [bytes(one["image/filename"]).decode() for one in found] == list(reader.names)
        assert [bytes(one["image/encoded"]) for one in found] == [
            bytes(reader.read(index)) for index in range(len(reader))
        ]
        assert [one["image/class/label"].item() for one in found] == reader.table.label.tolist()
        classes = reader.manifest.classes
        assert [bytes(one["image/class/text"]).decode() for one in found] == [
            classes[label] for label in reader.table.label.tolist()
        ]
    assert {(one["image/height"].item(), one["image/width"].item()) for one in found} == {(30, 40), (40, 30)}
    assert {bytes(one["image/format"]) for one in found} == {b"JPEG"}


def test_records_have_their_checksums_and_the_index_is_that_of_tfrecord2idx(tmp_path: Path) -> None:
    path = tmp_path / "pack.tfrecord"
    write_pack(ROW, path, draw_samples([1, 127, 128, 20_000, 300] * 2), {"shard_size": 25_000})
    for shard in path.glob("*.tfrecord"):
        data, at = shard.read_bytes(), 0
        while at < len(data):
            head = data[at : at + 8]
            (size,) = struct.unpack("<Q", head)
            assert data[at + 8 : at + 12] == masked(head)
            record = data[at + 12 : at + 12 + size]
            assert data[at + 12 + size : at + 16 + size] == masked(record)
            at += 16 + size
        assert at == len(data)
        create_index(str(shard), str(tmp_path / "idx"))
        assert shard.with_suffix(".idx").read_text() == (tmp_path / "idx").read_text()


def test_fields_are_features(tmp_path: Path) -> None:
    fields = (
        Field("caption", "text"),
        Field("age", "scalar", "float32"),
        Field("count", "scalar", "int64"),
        Field("kind", "class", classes=("a", "b")),
    )
    rows = [("grün", 1.5, -7, 1), (None, None, None, None)]
    samples = [
        Sample(f"{index}.jpg", -1, b"\x89PNG\r\n\x1a\n", 3, 4, tuple(map(Field.encode, fields, row)))
        for index, row in enumerate(rows)
    ]
    path = tmp_path / "pack.tfrecord"
    write_pack(ROW, path, samples, fields=fields)
    full, empty = (dict(features) for features in tfrecord_loader(str(path / "data-00000.tfrecord"), None))
    assert bytes(full["caption"]).decode() == "grün"
    assert (full["age"].item(), full["count"].item(), full["kind"].item()) == (1.5, -7, 1)
    assert sorted(empty) == ["image/encoded", "image/filename", "image/format", "image/height", "image/width"]


@pytest.mark.parametrize("label", [-(2**63), -1, 0, 127, 128, 2**63 - 1])
def test_labels_are_as_they_are(tmp_path: Path, label: int) -> None:
    path = tmp_path / "pack.tfrecord"
    write_pack(ROW, path, [Sample("a.jpg", label, b"x", 1, 1), Sample("b.jpg", 2**40, b"x", 1, 1)])
    first, _ = (dict(features) for features in tfrecord_loader(str(path / "data-00000.tfrecord"), None))
    assert first["image/class/label"].tolist() == [label]
