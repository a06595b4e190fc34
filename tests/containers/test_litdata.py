"""LitData: chunks that litdata wrote, and such as it would refuse or write otherwise."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.errors import SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed

DATA = list(IMAGES.values())
LEAF = {"type": None, "context": None, "children_spec": []}
SPEC = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}])


def write(directory: Path, rows: Sequence[Sequence[bytes]], kinds: Sequence[str], **config: Any) -> Path:
    """Write a directory of one chunk, as its layout says."""
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
        ({"item_loader": "TokensLoader"}, "is for TokensLoader"),
        ({"data_format": ["bytes"]}, "1 types of parts, and 2 names"),
        ({"data_format": "bytes"}, "names no types"),
        ({"data_format": ["pickle", "int"]}, "no column of images"),
        ({"data_format": ["bytes", "no_header_numpy:14"]}, "sample 0: an array has the dtype '14'"),
        ({"data_format": ["bytes", "bool"]}, "sample 0: .* requires a buffer of 1 byte"),
        ({"data_spec": "[1, 2]"}, "a tree of parts is expected"),
        ({"data_spec": "[" * 200 + "]" * 200}, "nested too deeply"),
        ({"data_spec": None}, "0 names"),
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
