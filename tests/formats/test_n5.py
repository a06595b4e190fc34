from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import z5py

import packer
from packer._formats import FORMATS, open_pack
from packer.errors import DestinationError
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, write_pack
from packer.testing.photos import draw_imagefolder

ROW = FORMATS["n5"]


class TestN5(ForeignLayoutConformance):
    format = "n5"
    options = {"shard_size": 35_000}  # noqa: RUF012 - read only

    def holds_samples(self, file: Path) -> bool:
        return file.parent.name == "data" and file.name.isdigit()


def test_z5py_reads_what_is_converted(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=7, size=(30, 40))
    path = tmp_path / "pack.n5"
    packer.convert(tmp_path / "tree", path, shard_size=5000)
    assert len(list((path / "data").glob("[0-9]*"))) > 1
    group = z5py.File(str(path), mode="r", use_zarr_format=False)
    data, begins, sizes, labels, text, ends = (
        group[name][:] for name in ("data", "offsets", "sizes", "labels", "names", "name_ends")
    )
    assert group.attrs["classes"] == ["class_00", "class_01", "class_02"]
    with open_pack(path) as reader:
        images = [data[begin : begin + size].tobytes() for begin, size in zip(begins, sizes, strict=True)]
        assert images == [bytes(reader.read(index)) for index in range(21)]
        assert labels.tolist() == reader.table.label.tolist()
        limits = [0, *ends.tolist()]
        names = [bytes(text[begin:end]).decode() for begin, end in itertools.pairwise(limits)]
        assert names == list(reader.names)


def test_blocks_have_their_headers_and_the_last_one_ends_with_the_data(tmp_path: Path) -> None:
    path = tmp_path / "pack.n5"
    samples = draw_samples([6, 4, 5, 7])
    write_pack(ROW, path, samples, {"shard_size": 10})
    first, second, third = ((path / "data" / str(number)).read_bytes() for number in range(3))
    head = bytes.fromhex("0000 0001 0000000a")
    assert first == head + samples[0].data + samples[1].data
    assert second == head + samples[2].data + bytes(5)
    assert third == bytes.fromhex("0000 0001 00000007") + samples[3].data
    assert json.loads((path / "data" / "attributes.json").read_text()) == {
        "dimensions": [27],
        "blockSize": [10],
        "dataType": "uint8",
        "compression": {"type": "raw"},
    }
    offsets = (path / "offsets" / "0").read_bytes()
    assert offsets[:8] == bytes.fromhex("0000 0001 00000004")
    assert np.frombuffer(offsets[8:], ">u8").tolist() == [0, 6, 10, 20]


def test_packer_reads_the_arrays_as_it_reads_those_of_others(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=4, size=(30, 40))
    path = tmp_path / "pack.n5"
    packer.convert(tmp_path / "tree", path, shard_size=5000)
    (path / ".packer.index").rename(tmp_path / "elsewhere")
    packer.convert(path, tmp_path / "again.lmdb")
    packer.convert(tmp_path / "tree", tmp_path / "straight.lmdb")
    with open_pack(tmp_path / "again.lmdb") as again, open_pack(tmp_path / "straight.lmdb") as straight:
        assert list(again.names) == list(straight.names)
        assert again.manifest.classes == straight.manifest.classes
        assert again.table.label.tolist() == straight.table.label.tolist()
        assert list(map(bytes, again.read_many(range(12)))) == list(map(bytes, straight.read_many(range(12))))


def test_an_image_larger_than_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"000001\.jpg: 2,000 bytes do not fit .* 1,999 bytes\. .* shard_size="):
        write_pack(ROW, tmp_path / "pack.n5", draw_samples([1000, 2000]), {"shard_size": 1999})
    with pytest.raises(DestinationError, match="a shard must have 1 to 2147483647 bytes"):
        write_pack(ROW, tmp_path / "pack.n5", [], {"shard_size": 1 << 31})


def test_raw_pixels_come_with_their_sizes(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(30, 40))
    packer.convert(tmp_path / "tree", tmp_path / "pack.n5", codec="raw")
    group = z5py.File(str(tmp_path / "pack.n5"), mode="r", use_zarr_format=False)
    with open_pack(tmp_path / "pack.n5") as reader:
        assert group["heights"][:].tolist() == reader.table.height.tolist()
        assert group["widths"][:].tolist() == reader.table.width.tolist()
