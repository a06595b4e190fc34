"""LitData: chunks that litdata wrote, and chunks made by hand that it would refuse or write differently."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from packer._containers import Piece
from packer.errors import SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed

DATA = list(IMAGES.values())
LEAF = {"type": None, "context": None, "children_spec": []}
SPEC = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}])


def write(directory: Path, rows: Sequence[Sequence[bytes]], kinds: Sequence[str], **config: Any) -> Path:
    """Write a directory with one chunk in LitData's layout."""
    samples = [struct.pack(f"<{len(row)}I", *map(len, row)) + b"".join(row) for row in rows]
    ends = np.cumsum([4 * (len(rows) + 2), *map(len, samples)])
    (directory / "chunk-0-0.bin").write_bytes(np.array([len(rows), *ends], "<u4").tobytes() + b"".join(samples))
    said = {"compression": None, "data_format": list(kinds), "data_spec": SPEC, "item_loader": "PyTreeLoader", **config}
    chunks = [{"chunk_size": len(rows), "filename": "chunk-0-0.bin"}]
    (directory / "index.json").write_text(json.dumps({"chunks": chunks, "config": said}))
    return directory


def test_chunks_of_litdata_give_what_was_written(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "litdata", tmp_path)
    assert seen.data == DATA
    assert seen.names == ["chunk-0-0/000000.jpg", "chunk-0-0/000001.png", "chunk-0-1/000000.jpg"]
    assert seen.labels == [2, 0, 1]
    assert seen.fields == {
        "caption": ["a dog", "", "größer ☃"],
        "good": [False, True, False],
        "score": [0.0, 0.25, 0.5],
        "free": [list(range(4 + number)) for number in range(3)],
        "table": [[[number, number + 1, number + 2], [number + 3, number + 4, number + 5]] for number in range(3)],
    }


def test_pairs_are_image_and_label_whose_bytes_are_not_copied(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "litdata-pair", tmp_path)
    assert seen.data == [IMAGES["a.jpg"], IMAGES["c.jpg"]]
    assert seen.labels == [0, 1]
    assert not len(listed(GOLDEN / "litdata-pair").copied)
    assert everywhere(GOLDEN / "litdata-pair", tmp_path, keys={"image": "0", "number": "1"}).fields == {
        "number": [0, 1]
    }


def test_pixels_of_pillow_are_read_where_they_lie(tmp_path: Path) -> None:
    image = Image.open(GOLDEN / "images" / "b.png")
    pil = struct.pack("<3I", *image.size, 3) + b"RGB" + image.tobytes()
    directory = write(tmp_path, [[pil, struct.pack("<q", 3)]], ["pil", "int"])
    seen = everywhere(directory, tmp_path, pixels=True)
    assert seen.data == [image.tobytes()]
    assert seen.labels == [3]


def test_a_part_of_several_images_is_a_field_and_no_image(tmp_path: Path) -> None:
    several = struct.pack("<3I", 2, len(DATA[0]), len(DATA[1])) + DATA[0] + DATA[1]
    directory = write(tmp_path, [[several, struct.pack("<q", 0)]], ["jpeg_array", "int"])
    for keys in ({}, {"image": "0"}):
        with pytest.raises(SourceError, match="column '0' has several images in each sample"):
            listed(directory, keys)
    (tmp_path / "beside").mkdir()
    seen = everywhere(write(tmp_path / "beside", [[DATA[0], several]], ["jpeg", "jpeg_array"]), tmp_path)
    assert seen.data == [DATA[0]]
    assert list(seen.fields.values()) == [[several]]


def test_parts_of_nested_samples_have_joined_names(tmp_path: Path) -> None:
    inner = {"type": "builtins.list", "context": "null", "children_spec": [LEAF, LEAF]}
    spec = json.dumps([1, {"type": "builtins.dict", "context": '["image", "box"]', "children_spec": [LEAF, inner]}])
    row = [DATA[0], struct.pack("<d", 0.5), struct.pack("<d", 1.5)]
    seen = everywhere(write(tmp_path, [row], ["image:jpg", "float", "float"], data_spec=spec), tmp_path)
    assert seen.fields == {"box_0": [0.5], "box_1": [1.5]}


def test_chunks_that_are_no_plain_samples_say_what_to_do() -> None:
    with pytest.raises(SourceError, match=r"compressed \(zstd\)\. Write them with"):
        listed(GOLDEN / "litdata-zstd")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"encryption": {"algorithm": "fernet"}}, "encrypted"),
        ({"item_loader": "TokensLoader"}, "was written for TokensLoader"),
        ({"data_format": ["bytes"]}, "1 types of parts, but 2 different names"),
        ({"data_format": "bytes"}, "does not list the types"),
        ({"data_format": ["pickle", "int"]}, "no image column"),
        ({"data_format": ["bytes", "no_header_numpy:14"]}, "sample 0: an array has the dtype '14'"),
        ({"data_format": ["bytes", "bool"]}, "sample 0: .* requires a buffer of 1 byte"),
        ({"data_spec": "[1, 2]"}, "expected a tree of parts"),
        ({"data_spec": "[" * 200 + "]" * 200}, "nested too deeply"),
        ({"data_spec": None}, "0 different names"),
    ],
)
def test_an_index_is_not_believed(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        listed(write(tmp_path, [[DATA[0], struct.pack("<q", 1)]], ["bytes", "int"], **config))


def test_chunks_with_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "litdata", tmp_path / "set")
    index = tmp_path / "set" / "index.json"
    index.write_text(index.read_text().replace("chunk-0-1.bin", "../chunk-0-1.bin"))
    with pytest.raises(SourceError, match=r"chunk 1, \.\./chunk-0-1\.bin: its name is not a plain relative path"):
        listed(tmp_path / "set")


def arrow_chunks(directory: Path, rows: list[dict[str, Any]], per_chunk: int = 2, **config: Any) -> Path:
    """Write chunks of dicts as litdata 0.2.76 does if pyarrow is installed: offsets, followed by an Arrow table."""
    chunks = []
    for number, start in enumerate(range(0, len(rows), per_chunk)):
        part = rows[start : start + per_chunk]
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pylist(part)
        with pa.ipc.new_file(sink, table.schema) as writer:
            for batch in table.to_batches(max_chunksize=1):
                writer.write_batch(batch)
        table_bytes = sink.getvalue().to_pybytes()
        offsets = np.array([len(part), *[4 * (len(part) + 2)] * (len(part) + 1)], "<u4").tobytes()
        end = struct.pack("<I", len(table_bytes)) + b"LDARW01\0"
        (directory / f"chunk-0-{number}.bin").write_bytes(offsets + table_bytes + end)
        chunks.append({"chunk_size": len(part), "filename": f"chunk-0-{number}.bin"})
    said = {"compression": None, "item_loader": "PyTreeLoader", **config}
    (directory / "index.json").write_text(json.dumps({"chunks": chunks, "config": said}))
    return directory


def spec(kinds: dict[str, Any]) -> str:
    def node(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            return LEAF
        return {
            "type": "builtins.dict",
            "context": json.dumps(list(value)),
            "children_spec": [node(one) for one in value.values()],
        }

    return json.dumps([1, node(kinds)])


def test_chunks_that_are_a_table_of_arrow_are_read_where_they_lie(tmp_path: Path) -> None:
    rows = [{"image": data, "label": n, "caption": f"ö{n}", "score": n / 2} for n, data in enumerate(DATA)]
    kinds = {"image": "bytes", "label": "int", "caption": "str", "score": "float"}
    seen = everywhere(
        arrow_chunks(tmp_path, rows, data_format=list(kinds.values()), data_spec=spec(kinds)), tmp_path.parent
    )
    assert (seen.data, seen.labels) == (DATA, [0, 1, 2])
    assert seen.fields == {"caption": ["ö0", "ö1", "ö2"], "score": [0.0, 0.5, 1.0]}
    container = listed(tmp_path).container
    assert isinstance(next(iter(container.entries(0))).image, Piece)


def test_structures_in_a_table_of_arrow_have_joined_names(tmp_path: Path) -> None:
    rows = [
        {"image": {"bytes": data, "path": f"{n}.x"}, "meta": {"class": n if n else None, "tags": ["a", "b"]}}
        for n, data in enumerate(DATA)
    ]
    kinds = {"image": {"bytes": "bytes", "path": "str"}, "meta": {"class": "int", "tags": "json"}}
    arrow_chunks(tmp_path, rows, data_format=["bytes", "str", "int", "json"], data_spec=spec(kinds))
    seen = everywhere(tmp_path, tmp_path.parent)
    assert (seen.data, seen.labels) == (DATA, [-1, 1, 2])
    assert seen.fields == {"image_path": ["0.x", "1.x", "2.x"], "meta_tags": [["a", "b"]] * 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-12] + b"\xff\xff\xff\x7f" + data[-8:], "does not fit into it"),
        (lambda data: data[:-8] + b"LDARW02\0", "too short for the sizes of its parts"),
        (lambda data: data[:40] + b"\xff" * 200 + data[240:], "damaged|too large|cut short"),
    ],
)
def test_damaged_tables_of_arrow_are_refused(tmp_path: Path, change: Callable[[bytes], bytes], message: str) -> None:
    rows = [{"image": data, "label": n} for n, data in enumerate(DATA)]
    arrow_chunks(tmp_path, rows, data_format=["bytes", "int"], data_spec=spec({"image": "", "label": ""}))
    (tmp_path / "chunk-0-0.bin").write_bytes(change((tmp_path / "chunk-0-0.bin").read_bytes()))
    with pytest.raises(SourceError, match=message):
        listed(tmp_path)


def test_compressed_tables_of_arrow_are_refused(tmp_path: Path) -> None:
    arrow_chunks(
        tmp_path, [{"image": DATA[0]}], data_format=["bytes"], data_spec=spec({"image": ""}), ipc_compression="zstd"
    )
    with pytest.raises(SourceError, match=r"compressed \(zstd\)"):
        listed(tmp_path)
