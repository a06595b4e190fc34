from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

import packer
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS, open_pack
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._storage.packfile import PackFile
from packer._table import Sample
from packer.contrib.caffe import CaffeWriter, datum_of
from packer.errors import DestinationError, PackerError
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, write_pack
from packer.testing.photos import draw_imagefolder
from tests.samples import content

ROW = FORMATS["caffe"]


class TestCaffe(ForeignLayoutConformance):
    format = "caffe"

    def holds_samples(self, file: Path) -> bool:
        return file.name == "data.mdb"

    @pytest.mark.parametrize(
        ("label_type", "labels"),
        [("class", [-1, 0, 4, 3]), ("int", [2**31 - 1, -(2**31), -7, 99])],
        ids=["class", "int"],
    )
    def test_gives_back_labels_of_every_type(self, path: Path, label_type: str, labels: list[int | float]) -> None:
        super().test_gives_back_labels_of_every_type(path, label_type, labels)

    @pytest.mark.parametrize("durable", [1])
    def test_continues_with_labels_that_are_floats(self, tmp_path: Path, samples: list[Sample], durable: int) -> None:
        with pytest.raises(DestinationError, match="int32 in Caffe, but these are floats"):
            super().test_continues_with_labels_that_are_floats(tmp_path, samples, durable)


def entries(path: Path) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def test_lmdb_finds_a_datum_of_each_sample_and_nothing_else(tmp_path: Path) -> None:
    lengths = [1, 127, 128, 1990, 2021, 2022, 2023, 4080, 100_000, 50] * 20
    names = [f"class {index}/{'ä' * (index * 3)}.jpg" for index in range(len(lengths))]  # some are longer than a key
    samples = draw_samples(lengths, names)
    samples[3] = replace(samples[3], label=-1)
    path = tmp_path / "pack.caffe"
    _, table = write_pack(ROW, path, samples)
    found = entries(path)
    assert [key for key, _ in found] == [f"{index:08d}_{name}".encode()[:511] for index, name in enumerate(names)]
    with PackFile(path / "data.mdb") as file:
        for (_, value), offset, sample in zip(found, table.offset.tolist(), samples, strict=True):
            begin = offset - value.index(bytes(sample.data))
            datum = datum_of(file, begin, len(value))
            assert (datum.offset, datum.size, datum.encoded) == (offset, len(sample.data), True)
            assert (datum.label, datum.labeled) == (sample.label, True)
    lmdb.open(str(path), readonly=True).close()  # as Caffe opens it, which leaves a file for locks
    assert {file.name for file in path.iterdir()} == {".packer.index", "classes.txt", "data.mdb", "lock.mdb"}
    assert verify(path, quick=True) == []


def test_a_converted_tree_is_read_as_a_container_without_its_index(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=4, size=(30, 40))
    path, plain = tmp_path / "pack.caffe", tmp_path / "plain"
    convert(imagefolder_source(tmp_path / "tree"), path)
    plain.mkdir()
    (path / "data.mdb").rename(plain / "data.mdb")
    packer.convert(plain, tmp_path / "back.lmdb")
    with open_pack(tmp_path / "back.lmdb") as reader:
        tree = content(tmp_path / "tree")
        assert {name: bytes(reader.read(index)) for index, name in enumerate(reader.names)} == {
            name: data for name, data in tree.items() if data is not None
        }
        assert reader.table.label.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (path / "classes.txt").read_text().splitlines() == ["class_00", "class_01", "class_02"]


@pytest.mark.parametrize("label", [2**31, -(2**31) - 1])
def test_labels_that_an_int32_cannot_hold_are_refused_by_name(tmp_path: Path, label: int) -> None:
    samples = [replace(sample, label=label) for sample in draw_samples([3])]
    with pytest.raises(DestinationError, match=rf"class_0/000000\.jpg: .* int32 in Caffe, which cannot hold {label}"):
        write_pack(ROW, tmp_path / "pack.caffe", samples)


def test_pixels_and_too_many_samples_are_refused(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=1, per_class=1)
    with pytest.raises(PackerError, match="planes of pixels one after the other"):
        convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.caffe", recipe=Recipe("raw"))
    with pytest.raises(DestinationError, match="keys have eight digits"):
        CaffeWriter.check_table(10**8 + 1, 0)
    with pytest.raises(DestinationError, match=r"a \.caffe pack is one file"):
        CaffeWriter.check_options({"shard_size": 1})
