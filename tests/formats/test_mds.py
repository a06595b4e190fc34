from __future__ import annotations

import itertools
import json
import math
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

import packer
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._fields import Field
from packer._formats import FORMATS, open_pack
from packer._formats.foreign import joined_checksum
from packer._formats.mds import MDSWriter
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.errors import DestinationError
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, write_pack
from packer.testing.photos import draw_imagefolder

ROW = FORMATS["mds"]


class TestMDS(ForeignLayoutConformance):
    format = "mds"
    options = {"shard_size": 100_000}  # noqa: RUF012 - read only

    def holds_samples(self, file: Path) -> bool:
        return file.suffix == ".mds"


def rows(path: Path) -> Iterator[dict[str, bytes]]:
    """Yield the bytes of each column of each sample, found as streaming's reader finds them."""
    index = json.loads((path / "index.json").read_text())
    assert index["version"] == 2
    for shard in index["shards"]:
        data = (path / shard["raw_data"]["basename"]).read_bytes()
        assert len(data) == shard["raw_data"]["bytes"]
        assert struct.unpack_from("<I", data) == (shard["samples"],)
        places = struct.unpack_from(f"<{shard['samples'] + 1}I", data, 4)
        config = json.loads(data[4 * (shard["samples"] + 2) : places[0]])
        assert config == {name: value for name, value in shard.items() if name in config}
        assert places[-1] == len(data)
        for begin, end in itertools.pairwise(places):
            at, sizes, row = begin, [], {}
            for size in shard["column_sizes"]:
                if size is None:
                    size, at = *struct.unpack_from("<I", data, at), at + 4
                sizes.append(size)
            for name, size in zip(shard["column_names"], sizes, strict=True):
                row[name], at = data[at : at + size], at + size
            assert at == end
            yield row


def encodings(path: Path) -> dict[str, str]:
    shard = json.loads((path / "index.json").read_text())["shards"][0]
    return dict(zip(shard["column_names"], shard["column_encodings"], strict=True))


def test_a_converted_tree_has_its_samples_in_the_columns(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=7, size=(30, 40))
    path = tmp_path / "pack.mds"
    convert(imagefolder_source(tmp_path / "tree"), path, options={"shard_size": 20_000})
    shards = sorted(path.glob("*.mds"))
    assert len(shards) > 2
    assert max(shard.stat().st_size for shard in shards) <= 20_000 + 400
    found = list(rows(path))
    with open_pack(path) as reader:
        assert [row["name"].decode() for row in found] == list(reader.names)
        assert [row["image"] for row in found] == [bytes(reader.read(index)) for index in range(21)]
        assert [struct.unpack("<q", row["label"])[0] for row in found] == reader.table.label.tolist()
    assert encodings(path) == {"image": "bytes", "label": "int", "name": "str"}
    shutil.rmtree(path / ".packer.index")
    packer.convert(path, tmp_path / "back.lmdb")
    with open_pack(tmp_path / "back.lmdb") as reader:
        assert [bytes(reader.read(index)) for index in range(21)] == [row["image"] for row in found]


@pytest.mark.parametrize(("codec", "encoding"), [("jpeg", "jpeg"), ("png", "png"), ("raw", "ndarray:uint8")])
def test_the_encoding_of_images_that_a_codec_made(tmp_path: Path, codec: str, encoding: str) -> None:
    draw_imagefolder(tmp_path / "tree", classes=1, per_class=2, size=(30, 300))
    path = tmp_path / "pack.mds"
    convert(imagefolder_source(tmp_path / "tree"), path, recipe=Recipe(codec), options={"shard_size": 1 << 20})
    assert encodings(path)["image"] == encoding
    with open_pack(path) as reader:
        table = reader.table
        for index, row in enumerate(rows(path)):
            shape = struct.pack("<BHHH", 13, table.height[index], table.width[index], 3) if codec == "raw" else b""
            assert row["image"] == shape + bytes(reader.read(index))


def test_fields_are_columns(tmp_path: Path) -> None:
    fields = (
        Field("caption", "text"),
        Field("meta", "json"),
        Field("age", "scalar", "float32"),
        Field("precise", "scalar", "float64"),
        Field("count", "scalar", "int16"),
        Field("seen", "scalar", "bool"),
        Field("kind", "class", classes=("a", "b")),
        Field("raw", "bytes"),
    )
    values = [("grün", {"a": [1]}, 1.5, 0.1, -7, True, 1, b"\1\2"), (None,) * 8]
    samples = [
        Sample(f"{index}.jpg", -1, b"x", 1, 1, tuple(map(Field.encode, fields, row)))
        for index, row in enumerate(values)
    ]
    path = tmp_path / "pack.mds"
    write_pack(ROW, path, samples, {"shard_size": 1 << 20}, fields=fields)
    kinds = encodings(path)
    read: dict[str, Any] = {
        "str": bytes.decode,
        "json": json.loads,
        "bytes": bytes,
        "int": lambda data: struct.unpack("<q", data)[0],
        "float32": lambda data: struct.unpack("<f", data)[0],
        "float64": lambda data: struct.unpack("<d", data)[0],
    }
    full, empty = ({name: read[kinds[name]](data) for name, data in row.items()} for row in rows(path))
    one = {"caption": "grün", "meta": {"a": [1]}, "age": 1.5, "precise": 0.1, "count": -7, "seen": True, "kind": 1}
    assert full == {**one, "raw": b"\1\2", "image": b"x", "label": -1, "name": "0.jpg"}
    assert full["seen"] is True
    assert math.isnan(empty.pop("age"))
    assert math.isnan(empty.pop("precise"))
    missing = {"caption": "", "meta": None, "count": None, "seen": None, "kind": -1, "raw": b""}
    assert empty == {**missing, "image": b"x", "label": -1, "name": "1.jpg"}
    assert verify(path, quick=True) == []


def test_a_name_that_is_no_text_is_one_in_the_column(tmp_path: Path) -> None:
    path = tmp_path / "pack.mds"
    write_pack(ROW, path, draw_samples([1], ["ä\udcff.jpg"]), {"shard_size": 1 << 20})
    assert [row["name"].decode() for row in rows(path)] == ["ä\\xff.jpg"]
    with open_pack(path) as reader:
        assert list(reader.names) == ["ä\udcff.jpg"]


def test_labels_that_are_floats_have_all_their_bits(tmp_path: Path) -> None:
    path = tmp_path / "pack.mds"
    samples = [replace(sample, label=0.1) for sample in draw_samples([1, 1])]
    write_pack(ROW, path, samples, {"shard_size": 1 << 20})
    assert [struct.unpack("<d", row["label"]) for row in rows(path)] == [(0.1,)] * 2


def test_a_shard_has_as_many_samples_as_its_head_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "pack.mds"
    write_pack(ROW, path, draw_samples([10] * 100), {"shard_size": 40 << 12})
    assert [shard["samples"] for shard in json.loads((path / "index.json").read_text())["shards"]] == [40, 40, 20]


def test_shards_whose_places_have_more_than_32_bits_are_refused(tmp_path: Path) -> None:
    MDSWriter.check_options({"shard_size": 3 << 30})
    with pytest.raises(DestinationError, match="a shard must have 1 to 3221225472 bytes"):
        MDSWriter.check_options({"shard_size": (3 << 30) + 1})


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 5), (1, 0), (7, 100), (5000, 3), (3, (1 << 20) + 9)])
def test_the_checksums_of_a_head_and_what_follows_are_joined(first: int, second: int) -> None:
    head, rest = np.random.default_rng(0).bytes(first), np.random.default_rng(1).bytes(second)
    joined = joined_checksum(google_crc32c.value(head), google_crc32c.value(rest), second)
    assert joined == google_crc32c.value(head + rest)
