"""MDS: shards that MosaicML Streaming wrote, and shards made by hand that it would refuse or write differently."""

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

import packer
from packer._formats import open_pack
from packer.errors import OptionError, SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed, opened

DATA = list(IMAGES.values())


def shard(path: Path, columns: dict[str, tuple[str, int | None]], rows: Sequence[Sequence[bytes]]) -> dict[str, Any]:
    """Write a shard in MDS's layout, with its columns sorted by name; return its entry for an index."""
    names = sorted(columns)
    config = {
        "column_names": names,
        "column_encodings": [columns[name][0] for name in names],
        "column_sizes": [columns[name][1] for name in names],
        "compression": None,
        "format": "mds",
        "version": 2,
    }
    head = json.dumps(config, sort_keys=True).encode()
    samples = []
    for row in rows:
        values = [row[list(columns).index(name)] for name in names]
        sizes = [len(value) for name, value in zip(names, values, strict=True) if columns[name][1] is None]
        samples.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
    ends = np.cumsum([4 * (len(rows) + 2) + len(head), *map(len, samples)])
    path.write_bytes(np.array([len(rows), *ends], "<u4").tobytes() + head + b"".join(samples))
    raw = {"basename": path.name, "bytes": path.stat().st_size, "hashes": {}}
    return {**config, "samples": len(rows), "raw_data": raw, "zip_data": None}


def write_index(directory: Path, shards: Sequence[dict[str, Any]]) -> Path:
    (directory / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return directory


def one(tmp: Path, columns: dict[str, tuple[str, int | None]], rows: Sequence[Sequence[bytes]]) -> Path:
    return write_index(tmp, [shard(tmp / "shard.00000.mds", columns, rows)])


def test_shards_of_streaming_give_what_was_written(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "mds", tmp_path)
    assert seen.data == DATA
    assert seen.names == ["shard.00000/000000.jpg", "shard.00000/000001.png", "shard.00001/000000.jpg"]
    assert seen.labels == [2, 0, 1]
    assert seen.fields == {
        "caption": ["a dog", "", "größer ☃"],
        "meta": [{"number": number} for number in range(3)],
        "score": [0.0, 0.25, 0.5],
        "small": [250, 251, 252],
        "long": [10**10, 10**10 + 1, 10**10 + 2],
        "fixed": [[[number, number + 1, number + 2], [number + 3, number + 4, number + 5]] for number in range(3)],
        "free": [list(range(4 + number)) for number in range(3)],
    }
    assert any("secret" in note and "pickle" in note for note in seen.notes)


def test_shards_say_their_columns_themselves(tmp_path: Path) -> None:
    with_index, without = everywhere(GOLDEN / "mds", tmp_path), everywhere(GOLDEN / "mds" / "shard.*.mds", tmp_path)
    assert with_index == without
    assert everywhere(GOLDEN / "mds" / "index.json", tmp_path) == with_index


def test_jpegs_keep_their_bytes_and_an_index_copies_none(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "mds-jpeg", tmp_path)
    assert seen.data == [IMAGES["a.jpg"], IMAGES["c.jpg"]]
    assert seen.labels == [0, 1]
    assert not len(listed(GOLDEN / "mds-jpeg").copied)


def test_pixels_of_pillow_are_read_where_they_lie(tmp_path: Path) -> None:
    seen = everywhere(GOLDEN / "mds-pil", tmp_path, pixels=True)
    assert seen.data == [Image.open(GOLDEN / "images" / name).convert("RGB").tobytes() for name in IMAGES]
    assert not len(listed(GOLDEN / "mds-pil").copied)


def pil(image: Image.Image) -> bytes:
    return struct.pack("<3I", *image.size, len(image.mode)) + image.mode.encode() + image.tobytes()


def test_grey_pixels_of_pillow_are_repeated_and_other_modes_refused(tmp_path: Path) -> None:
    grey = Image.open(GOLDEN / "images" / "a.jpg").convert("L")
    directory = one(tmp_path, {"image": ("pil", None)}, [[pil(grey)]])
    assert everywhere(directory, tmp_path, pixels=True).data == [grey.convert("RGB").tobytes()]
    for images in ([grey, grey.convert("RGB")], [grey.convert("RGBA")], [grey.convert("I;16")]):
        one(tmp_path, {"image": ("pil", None)}, [[pil(image)] for image in images])
        with pytest.raises(SourceError, match=r"shard\.00000\.mds: .*sample [01]: its pixels have the mode"):
            listed(directory)


def test_compressed_shards_are_converted_and_have_no_index(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"shard\.00000\.mds\.zstd, byte 0: is compressed \(zstd\): convert it"):
        packer.index(GOLDEN / "mds-zstd", tmp_path / "made.index")
    packer.convert(GOLDEN / "mds-zstd", tmp_path / "made.lmdb")
    with open_pack(tmp_path / "made.lmdb") as reader:
        assert [bytes(reader.read(index)) for index in range(2)] == [IMAGES["a.jpg"], IMAGES["c.jpg"]]
        assert list(reader.names) == ["shard.00000/000000.jpg", "shard.00000/000001.jpg"]
    with pytest.raises(SourceError, match=r"mds\.zstd: is compressed\. Decompress it first"):
        listed(GOLDEN / "mds-zstd" / "shard.00000.mds.zstd")
    shutil.copytree(GOLDEN / "mds-zstd", tmp_path / "both")
    index = tmp_path / "both" / "index.json"
    index.write_text(index.read_text().replace('"compression": "zstd"', '"compression": "bz2"'))
    with pytest.raises(SourceError, match=r"shard 0 is compressed \(bz2\), which packer does not read"):
        listed(tmp_path / "both")
    shutil.copy(GOLDEN / "mds-jpeg" / "shard.00000.mds", tmp_path / "both")
    assert everywhere(tmp_path / "both", tmp_path).data == [IMAGES["a.jpg"], IMAGES["c.jpg"]]


def test_keys_choose_columns(tmp_path: Path) -> None:
    columns: dict[str, tuple[str, int | None]]
    columns = {"a": ("bytes", None), "b": ("str", None), "c": ("bytes", None), "d": ("int64", 8)}
    rows = [[DATA[0], b"x/one.JPEG", DATA[1], struct.pack("<q", 5)], [DATA[1], b"two", DATA[1], struct.pack("<q", 0)]]
    directory = one(tmp_path, columns, rows)
    with pytest.raises(SourceError, match=r"no image column found: choose one with --key image=COLUMN, of a, c$"):
        listed(directory)
    keys = {"image": "a", "name": "b", "depth:bytes": "c", "count": "d"}
    seen = everywhere(directory, tmp_path, keys=keys)
    assert seen.names == ["x/one.JPEG", "two.png"]
    assert seen.fields == {"depth": [DATA[1], DATA[1]], "count": [5, 0]}
    assert seen.labels == [-1, -1]
    assert everywhere(directory, tmp_path, keys={"image": "a", "label": "d"}).labels == [5, 0]
    assert everywhere(directory, tmp_path, keys={"image": "a", "label": "b"}).classes == ["two", "x/one.JPEG"]
    for keys in (
        {"image": "b"},
        {"image": "a", "label": "c"},
        {"image": "a", "n:boxes": "c"},
        {"image": "a", "1": "b"},
    ):
        with pytest.raises(OptionError, match="--key"):
            opened(directory, keys)
    with pytest.raises(SourceError, match="no column 'z': there are a, b, c, d"):
        opened(directory, {"image": "z"})


def test_a_column_of_several_images_is_a_field_and_no_image(tmp_path: Path) -> None:
    several = struct.pack("<3I", 2, len(DATA[0]), len(DATA[1])) + DATA[0] + DATA[1]
    columns: dict[str, tuple[str, int | None]] = {"image": ("jpeg_array", None), "label": ("int64", 8)}
    directory = one(tmp_path, columns, [[several, struct.pack("<q", 0)]])
    for keys in ({}, {"image": "image"}):
        with pytest.raises(SourceError, match="column 'image' has several images in each sample"):
            listed(directory, keys)
    (tmp_path / "beside").mkdir()
    directory = one(tmp_path / "beside", {"photo": ("jpeg", None), **columns}, [[DATA[0], several, bytes(8)]])
    assert everywhere(directory, tmp_path).data == [DATA[0]]


def test_names_and_labels_that_cannot_be_are_refused(tmp_path: Path) -> None:
    directory = one(tmp_path, {"image": ("bytes", None), "n": ("str", None)}, [[DATA[0], b"../../x"]])
    with pytest.raises(SourceError, match="not a plain relative path"):
        listed(directory, {"image": "image", "name": "n"})
    one(tmp_path, {"image": ("bytes", None), "label": ("float32", 4)}, [[DATA[0], struct.pack("<f", np.nan)]])
    with pytest.raises(SourceError, match="sample 0: its label is NaN"):
        listed(directory)
    one(tmp_path, {"image": ("bytes", None), "big": ("uint64", 8)}, [[DATA[0], b"\xff" * 8]])
    with pytest.raises(SourceError, match="sample 0: field 'big': 18446744073709551615 does not fit"):
        listed(directory)


def test_columns_have_names_that_fields_may_have(tmp_path: Path) -> None:
    columns = {"image": ("bytes", None), "width": ("uint8", 1), "a b": ("uint8", 1), "a-b": ("uint8", 1)}
    seen = everywhere(one(tmp_path, columns, [[DATA[0], b"\1", b"\2", b"\3"]]), tmp_path)
    assert seen.fields == {"a_b": [2], "a_b_2": [3], "width_": [1]}
    assert "the column width becomes the field width_" in seen.notes


def test_floats_as_labels_are_numbers(tmp_path: Path) -> None:
    columns = {"image": ("png", None), "label": ("float64", 8)}
    seen = everywhere(one(tmp_path, columns, [[DATA[1], struct.pack("<d", 0.1)]]), tmp_path)
    assert seen.labels == [0.1]
    assert seen.classes == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"raw_data": {"basename": "../out.mds"}}, "not a plain relative path"),
        ({"raw_data": {"basename": "gone.mds"}}, r"gone\.mds.*missing"),
        ({"samples": 7}, "has 2 samples, but the index says 7"),
        ({"samples": "2"}, "no number of samples"),
        ({"format": "json"}, "not in the format mds"),
        ({"column_sizes": [8]}, "(lists no|does not list) columns"),
        ({"column_sizes": [4, 4]}, "sample 0"),
        ({"column_encodings": ["ndarray:object", "int"]}, "not an encoding of arrays"),
        ({"column_encodings": ["bytes", "int8"]}, "8 bytes are not the size of int8"),
        ({"column_names": ["a", "a"]}, "two columns have the same name"),
        ({"column_encodings": ["pkl", "int"]}, "no image column"),
    ],
)
def test_an_index_is_not_believed(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = [[DATA[0], struct.pack("<q", 1)], [DATA[1], struct.pack("<q", 0)]]
    made = shard(tmp_path / "shard.00000.mds", {"image": ("bytes", None), "label": ("int", 8)}, rows)
    with pytest.raises(SourceError, match=message):
        listed(write_index(tmp_path, [{**made, **change}]))


def test_shards_of_other_columns_are_refused(tmp_path: Path) -> None:
    made = [
        shard(tmp_path / "0.mds", {"image": ("bytes", None)}, [[DATA[0]]]),
        shard(tmp_path / "1.mds", {"image": ("jpeg", None)}, [[DATA[0]]]),
    ]
    with pytest.raises(SourceError, match="shard 1 has other columns than the first"):
        listed(write_index(tmp_path, made))


def test_changed_shards_are_named(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "mds", tmp_path / "mds")
    packer.index(tmp_path / "mds", tmp_path / "made.index")
    file = tmp_path / "mds" / "shard.00001.mds"
    file.write_bytes(file.read_bytes()[:-10])
    dataset = packer.open_dataset(tmp_path / "made.index")
    assert dataset[0][1] == 2
    with pytest.raises(packer.PackerError, match=r"shard\.00001/000000\.jpg.*changed"):
        dataset[2]
    with pytest.raises(SourceError, match=r"shard\.00001\.mds: sample 0 should be at bytes"):
        listed(tmp_path / "mds")


@pytest.mark.parametrize(("name", "shards"), [("mds", "shards"), ("litdata", "chunks")])
def test_a_shard_that_an_index_lists_twice_is_refused(tmp_path: Path, name: str, shards: str) -> None:
    """Otherwise a short index could fill the disk with copies of one shard."""
    shutil.copytree(GOLDEN / name, tmp_path / "set")
    index = json.loads((tmp_path / "set/index.json").read_text())
    index[shards] *= 2
    (tmp_path / "set/index.json").write_text(json.dumps(index))
    with pytest.raises(SourceError, match=r"set/(shard|chunk).*: is listed twice"):
        listed(tmp_path / "set")


@pytest.mark.parametrize(
    ("name", "encoding", "values", "expected"),
    [
        ("Label", "str_int", [b"3", b"1"], [3, 1]),
        ("target", "str", [b"cat", b"dog"], ["cat", "dog"]),
        ("category", "bytes", [b"cat", b"dog"], ["cat", "dog"]),
        ("y", "str_float", [b"0.5", b"1.25"], [0.5, 1.25]),
    ],
)
def test_a_column_with_a_name_of_labels_is_the_label(
    tmp_path: Path, name: str, encoding: str, values: list[bytes], expected: list[Any]
) -> None:
    rows = list(zip(DATA[:2], values, strict=True))
    listing = listed(one(tmp_path, {"image": ("jpeg", None), name: (encoding, None)}, rows))
    labels = listing.labels.tolist()
    assert [listing.classes[label] if encoding in ("str", "bytes") else label for label in labels] == expected
    assert [item.line() for item in listing.container.account] == [f"taken: 1 column ({name}): the label"]


def test_a_column_of_several_labels_is_a_field_and_one_that_is_not_read_is_said(tmp_path: Path) -> None:
    rows = [(data, b"[1, 2]", b"?") for data in DATA[:2]]
    columns = {"image": ("jpeg", None), "labels": ("json", None), "class": ("pkl", None)}
    listing = listed(one(tmp_path, columns, rows))
    assert [field.name for field in listing.container.fields] == ["labels"]
    assert [item.line() for item in listing.container.account] == [
        "left out: 1 column (class): it holds pickles, which can run any code",
        "taken: 1 column (labels): a field, because its values are not single labels",
    ]


def test_a_sample_without_an_image_or_a_label_can_be_skipped(tmp_path: Path) -> None:
    rows = [(DATA[0], b"1"), (DATA[1], b"nan"), (DATA[2], b"2.5")]
    path = one(tmp_path, {"image": ("jpeg", None), "y": ("str_float", None)}, rows)
    with pytest.raises(SourceError, match=r"sample 1: its label is NaN.*skip"):
        packer.index(path, tmp_path / "a.index")
    packer.index(path, tmp_path / "a.index", on_error="skip")
    assert list(packer.open_dataset(tmp_path / "a.index").targets) == [1.0, 2.5]
