from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import packer
import packer._formats.parquet
from packer._containers.parquet import BINARY, binary, i32, i64, listed, read_struct, struct
from packer._fields import Field
from packer._formats import FORMATS, open_pack
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, drawn, write_pack
from packer.testing.photos import draw_imagefolder
from packer.testing.samples import FIELDS, assert_holds, with_values

ROW = FORMATS["parquet"]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packer._formats.parquet, "_ROWS", 4)


class TestParquet(ForeignLayoutConformance):
    format = "parquet"
    options = {"shard_size": 20_000}  # noqa: RUF012 - read only

    def holds_samples(self, file: Path) -> bool:
        return file.suffix == ".parquet"


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(path.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def features_of(path: Path) -> dict[str, Any]:
    metadata = pq.read_schema(path / "data-00000.parquet").metadata
    features: dict[str, Any] = json.loads(metadata[b"huggingface"])["info"]["features"]
    return features


def test_pyarrow_reads_what_is_converted(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=7, size=(30, 40))
    path = tmp_path / "pack.parquet"
    packer.convert(tmp_path / "tree", path, shard_size=10_000)
    files = sorted(path.glob("*.parquet"))
    assert len(files) > 1
    assert pq.ParquetFile(files[0]).num_row_groups > 1
    with open_pack(path) as reader:
        assert rows_of(path) == [
            {"image": {"bytes": bytes(reader.read(index)), "path": name}, "label": label}
            for index, (name, label) in enumerate(zip(reader.names, reader.table.label.tolist(), strict=True))
        ]
    assert features_of(path) == {
        "image": {"_type": "Image"},
        "label": {"names": ["class_00", "class_01", "class_02"], "_type": "ClassLabel"},
    }
    said = pq.ParquetFile(files[0]).metadata.row_group(0).column(0)
    assert (said.compression, said.path_in_schema) == ("UNCOMPRESSED", "image.bytes")


def test_pyarrow_reads_fields_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "pack.parquet"
    samples = with_values(draw_samples([100, 1, 3000] * 10))
    write_pack(ROW, path, samples, {"shard_size": 9000})
    kinds = {one.name: one for one in FIELDS}
    for row, sample in zip(rows_of(path), samples, strict=True):
        assert row["image"]["bytes"] == sample.data
        for (name, one), stored in zip(kinds.items(), sample.fields, strict=True):
            expected: Any = stored
            if stored is not None and one.kind == "mask":
                expected = {"bytes": stored, "path": None}
            elif stored is not None and one.kind == "text":
                expected = bytes(stored).decode()
            elif stored is not None and one.dtype == "bool":
                expected = bool(stored)
            assert row[name] == expected, name
    types = {field.name: str(field.type) for field in pq.read_schema(path / "data-00000.parquet")}
    assert types["small"] == "int8"
    assert types["seen"] == "bool"
    assert types["caption"] == "string"
    assert features_of(path)["mask"] == {"_type": "Image"}
    assert features_of(path)["kind"] == {"dtype": "int64", "_type": "Value"}  # its ids are not 0, 1, 2


def test_classes_of_fields_and_labels_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "pack.parquet"
    fields = [Field("color", "class", classes=("red", "green"))]
    samples = [replace(sample, label=-1, fields=(value,)) for sample in draw_samples([9]) for value in (1, None)]
    write_pack(ROW, path, samples, fields=fields)
    assert [(row["label"], row["color"]) for row in rows_of(path)] == [(-1, 1), (-1, None)]
    assert features_of(path)["color"] == {"names": ["red", "green"], "_type": "ClassLabel"}


def test_packer_reads_the_files_as_it_reads_those_of_others(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=4, size=(30, 40))
    path = tmp_path / "pack.parquet"
    packer.convert(tmp_path / "tree", path, shard_size=10_000)
    assert packer.open_pack(path).manifest.format == "parquet"  # not a container with the same suffix
    (path / ".packer.index").rename(tmp_path / "elsewhere")
    packer.index(path, tmp_path / "again.index")
    packer.convert(tmp_path / "tree", tmp_path / "straight.lmdb")
    with open_pack(tmp_path / "again.index") as again, open_pack(tmp_path / "straight.lmdb") as straight:
        assert again.manifest.classes == straight.manifest.classes
        assert again.table.label.tolist() == straight.table.label.tolist()
        assert list(map(bytes, again.read_many(range(12)))) == list(map(bytes, straight.read_many(range(12))))
        assert set(path.iterdir()) == set(path.glob("data-*.parquet"))


def test_raw_pixels_are_no_images_to_datasets_and_come_with_their_sizes(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(30, 40))
    path = tmp_path / "pack.parquet"
    packer.convert(tmp_path / "tree", path, codec="raw")
    assert all(len(row["image"]["bytes"]) == row["height"] * row["width"] * 3 for row in rows_of(path))
    assert "_type" not in features_of(path)["image"]


def test_a_pack_without_samples_is_a_table_without_rows(tmp_path: Path) -> None:
    write_pack(ROW, tmp_path / "pack.parquet", [])
    assert rows_of(tmp_path / "pack.parquet") == []


@drawn
@given(
    small=st.integers(-(2**31), 2**31 - 1),
    large=st.integers(-(2**63), 2**63 - 1),
    texts=st.lists(st.binary(), max_size=20),
)
def test_structures_of_thrift_are_read_as_they_were_written(small: int, large: int, texts: list[bytes]) -> None:
    values = {1: i32(small), 4: i64(large), 19: listed(BINARY, list(map(binary, texts))), 20: struct({3: i32(1)})}
    _, data = struct({2: struct({1: i64(0)}), 17: struct(values)})
    found, end = read_struct(data, 0, {17: {1: int, 4: int, 19: [bytes], 20: {3: int}}})
    assert found == {17: {1: small, 4: large, 19: texts, 20: {3: 1}}}
    assert end == len(data)


def test_names_that_are_no_text_are_in_the_index_as_they_are(tmp_path: Path) -> None:
    path, (sample,) = tmp_path / "pack.parquet", draw_samples([5], ["a\udcff.jpg"])
    write_pack(ROW, path, [sample])
    assert rows_of(path)[0]["image"]["path"] == "a�.jpg"
    with open_pack(path) as reader:
        assert_holds(reader, [sample])
