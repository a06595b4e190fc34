from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from packer._conversion.convert import convert
from packer._formats import FORMATS, open_pack
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer.errors import DestinationError
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, drawn, write_pack
from packer.testing.photos import draw_imagefolder

ROW = FORMATS["rec"]
MAGIC = b"\x0a\x23\xd7\xce"


class TestRecordIO(ForeignLayoutConformance):
    format = "rec"

    def holds_samples(self, file: Path) -> bool:
        return file.suffix == ".rec"

    @pytest.mark.parametrize(
        ("label_type", "labels"),
        [("class", [-1, 0, 4, 3]), ("int", [2**24, -(2**24), -7, 99]), ("float", [0.5, -1.0, 1.7e308, 5e-324])],
        ids=["class", "int", "float"],
    )
    def test_gives_back_labels_of_every_type(self, path: Path, label_type: str, labels: list[int | float]) -> None:
        super().test_gives_back_labels_of_every_type(path, label_type, labels)


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each record, joined as dmlc-core's reader joins them."""
    at = 0
    while at < len(data):
        begin, record, kind = at, b"", 1
        while kind in (1, 2):
            assert data[at : at + 4] == MAGIC
            (word,) = struct.unpack("<I", data[at + 4 : at + 8])
            kind, size = word >> 29, word & (1 << 29) - 1
            record += (MAGIC if kind in (2, 3) else b"") + data[at + 8 : at + 8 + size]
            at += 8 + size + -size % 4
        yield begin, record


def test_records_are_those_of_dmlc(tmp_path: Path) -> None:
    """The first record is compared with the bytes that dmlc-core writes for a payload that ends in the magic number."""
    samples = [
        replace(sample, data=data)
        for sample, data in zip(
            draw_samples([1] * 5), [b"x" * 4 + MAGIC, MAGIC + b"12345", b"x" + MAGIC, MAGIC * 3, b"abc"], strict=True
        )
    ]
    path = tmp_path / "pack.rec"
    write_pack(ROW, path, samples)
    data = (path / "data.rec").read_bytes()
    first = struct.pack("<IfQQ", 0, 0.0, 0, 0) + b"xxxx"
    assert data.startswith(MAGIC + bytes.fromhex("1c000020") + first + MAGIC + bytes.fromhex("00000060"))
    found = list(records(data))
    assert [record[24:] for _, record in found] == [sample.data for sample in samples]
    assert [struct.unpack("<IfQQ", record[:24]) for _, record in found] == [
        (0, float(sample.label), index, 0) for index, sample in enumerate(samples)
    ]
    assert (path / "data.idx").read_text() == "".join(f"{key}\t{at}\n" for key, (at, _) in enumerate(found))
    with open_pack(path) as reader:
        assert [bytes(reader.read(index)) for index in range(5)] == [sample.data for sample in samples]
    assert verify(path, quick=True) == []


@drawn
@given(
    payloads=st.lists(
        st.lists(st.sampled_from([MAGIC, b"a", b"bcd", MAGIC[:2]]), min_size=1).map(b"".join), min_size=1, max_size=6
    ),
    durable=st.integers(0, 6),
)
def test_any_payload_comes_back_and_is_continued(
    payloads: list[bytes], durable: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("payloads")
    case = TestRecordIO()
    samples = [replace(s, data=data) for s, data in zip(draw_samples([1] * len(payloads)), payloads, strict=True)]
    case.write(folder / "whole.rec", samples)
    assert [record[24:] for _, record in records((folder / "whole.rec" / "data.rec").read_bytes())] == payloads
    kept = case.interrupt(folder / "again.rec", samples, min(durable, len(samples)), 0, flushed=True)
    case.write(folder / "again.rec", samples, written=kept)
    case.require_same(folder / "whole.rec", folder / "again.rec")


def test_a_converted_tree(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=4, size=(30, 40))
    path = tmp_path / "pack.rec"
    convert(imagefolder_source(tmp_path / "tree"), path)
    found = [record for _, record in records((path / "data.rec").read_bytes())]
    with open_pack(path) as reader:
        assert [record[24:] for record in found] == [bytes(reader.read(index)) for index in range(12)]
        assert [struct.unpack("<If", record[:8])[1] for record in found] == reader.table.label.tolist()
    assert (path / "classes.txt").read_text().splitlines() == ["class_00", "class_01", "class_02"]


def test_labels_that_a_float32_cannot_hold_are_refused(tmp_path: Path) -> None:
    samples = [replace(sample, label=2**24 + 1) for sample in draw_samples([3])]
    with pytest.raises(DestinationError, match=r"float32 in a \.rec, which cannot hold 16777217"):
        write_pack(ROW, tmp_path / "pack.rec", samples)
