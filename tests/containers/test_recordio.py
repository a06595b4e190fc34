"""RecordIO files, read in place."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import packer
from packer._containers import Listing, find_container, list_samples
from packer._storage.packfile import PackFile
from packer.errors import OptionError, SourceError
from tests.containers.everywhere import source_of
from tests.containers.records import MAGIC, image_record, part, photo, rec, rec_and_idx
from tests.containers.samples import images_of


def listed(*paths: Path, keys: Mapping[str, str] | None = None) -> Listing:
    found = find_container(list(paths))
    assert found is not None
    kind, files = found
    assert kind.kind == "recordio"
    return list_samples(kind.open(files, keys or {}))


def arrays(listing: Listing, name: str) -> list[list[float]]:
    """Return the values of a field of arrays."""
    (field,) = (field for field in listing.container.fields if field.name == name)
    ranges = listing.ranges[name]
    assert (ranges.file < 0).all()
    rows = zip(ranges.offset.tolist(), ranges.size.tolist(), strict=True)
    return [field.decode(listing.copied[offset : offset + size].tobytes()).tolist() for offset, size in rows]


def test_the_encoder_of_these_tests_makes_the_vectors_of_the_specification() -> None:
    assert rec(b"x" * 28 + MAGIC) == bytes.fromhex("0a23d7ce1c000020") + b"x" * 28 + bytes.fromhex("0a23d7ce00000060")
    assert rec(MAGIC + b"12345") == bytes.fromhex("0a23d7ce00000020 0a23d7ce05000060 3132333435000000")


def test_records_are_listed_in_their_order_with_the_keys_of_their_index(tmp_path: Path) -> None:
    data, idx = rec_and_idx([image_record(photo(n), n % 2, n) for n in range(5)], [3, 0, 4, 1, 2])
    (tmp_path / "a.rec").write_bytes(data)
    listing = listed(tmp_path / "a.rec")
    assert images_of(listing) == [photo(n) for n in range(5)]
    assert listing.labels.tolist() == [0, 1, 0, 1, 0]
    assert list(listing.names) == [f"a/0000000{n}.jpg" for n in range(5)]
    (tmp_path / "a.idx").write_text("".join(sorted(idx.splitlines(keepends=True))))
    listing = listed(tmp_path / "a.rec")
    assert images_of(listing) == [photo(n) for n in range(5)]
    assert list(listing.names) == [f"a/0000000{key}.jpg" for key in (3, 0, 4, 1, 2)]
    assert not listing.container.fields
    assert find_container([tmp_path])


def test_an_index_and_a_conversion_have_samples_in_parts(tmp_path: Path) -> None:
    images = [photo(0) + bytes(-len(photo(0)) % 4) + MAGIC * 2 + b"end", photo(1), MAGIC + photo(2)]
    (tmp_path / "a.rec").write_bytes(b"".join(rec(image_record(image, n)) for n, image in enumerate(images[:2])))
    packer.index(tmp_path / "a.rec", tmp_path / "a.index")
    packer.convert(tmp_path / "a.rec", tmp_path / "a.lmdb")
    for pack in (tmp_path / "a.index", tmp_path / "a.lmdb"):
        with packer.open_pack(pack) as reader:
            assert [bytes(reader.read(number)) for number in range(2)] == images[:2]
    listing = listed(tmp_path / "a.rec")
    assert (listing.images.file == [~0, 0]).all()


@given(
    st.lists(st.lists(st.sampled_from([MAGIC, b"\x0a", b"1234", b"\xce12"]), max_size=6).map(b"".join), max_size=4),
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=5),
)
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[bytes], labels: list[float]
) -> None:
    images = [b"\xff\xd8\xff!" + body for body in [*bodies, MAGIC]]
    path = tmp_path_factory.getbasetemp() / "any.rec"
    path.write_bytes(b"".join(rec(image_record(image, labels)) for image in images))
    listing = listed(path, keys={"label": "float"})
    assert images_of(listing) == images
    assert arrays(listing, "labels") == [labels] * len(images)
    assert listing.labels.tolist() == [labels[0]] * len(images)


def test_samples_may_have_several_labels(tmp_path: Path) -> None:
    records = [image_record(photo(0), [2, 0.5, 7]), image_record(photo(1), 3), image_record(photo(2), [1])]
    (tmp_path / "a.rec").write_bytes(b"".join(map(rec, records)))
    listing = listed(tmp_path / "a.rec")
    assert listing.labels.tolist() == [2, 3, 1]
    assert arrays(listing, "labels") == [[2, 0.5, 7], [3], [1]]
    assert images_of(listing) == [photo(n) for n in range(3)]


def test_labels_that_are_not_whole_are_numbers(tmp_path: Path) -> None:
    half, whole = rec(image_record(photo(0), 0.5)), rec(image_record(photo(1), 2))
    (tmp_path / "a.rec").write_bytes(whole + half)
    listing = listed(tmp_path / "a.rec")
    assert (listing.label_type, listing.labels.tolist()) == ("float", [2.0, 0.5])
    (tmp_path / "a.rec").write_bytes(whole * 256 + half)
    with pytest.raises(
        SourceError, match=r"its label is 0.5, but the first labels are integers: pass --key label=float"
    ):
        listed(tmp_path / "a.rec")
    assert listed(tmp_path / "a.rec", keys={"label": "float"}).labels[-1] == 0.5
    with pytest.raises(SourceError, match=r"its label is 0.5"):
        listed(tmp_path / "a.rec", keys={"label": "class"})
    with pytest.raises(OptionError, match="label=class or label=float"):
        listed(tmp_path / "a.rec", keys={"image": "x"})
    (tmp_path / "a.rec").write_bytes(half + rec(image_record(photo(0), float("nan"))))
    with pytest.raises(SourceError, match="its label is not a number"):
        listed(tmp_path / "a.rec")
    (tmp_path / "a.rec").write_bytes(whole * 256 + rec(image_record(photo(0), [1, 2])))
    with pytest.raises(SourceError, match=r"it has 2 labels, but the first records have one: pass --key labels=all"):
        listed(tmp_path / "a.rec")
    assert arrays(listed(tmp_path / "a.rec", keys={"labels": "all"}), "labels")[255:] == [[2], [1, 2]]


def test_labels_that_float32_rounds_are_noted(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(rec(image_record(photo(0), 2**24 + 2)))
    listing = listed(tmp_path / "a.rec")
    assert listing.labels.tolist() == [2**24 + 2]
    assert any("2^24" in note for note in listing.notes)


@pytest.mark.parametrize("with_index", [False, True])
def test_records_of_faces_that_are_no_images_are_left_out(tmp_path: Path, with_index: bool) -> None:
    faces = [image_record(photo(n), label) for n, label in enumerate([0, 0, 1, [1, 0]])]
    identities = [image_record(b"", [1, 3]), image_record(b"", [3, 5])]
    data, idx = rec_and_idx([image_record(b"", [5, 7]), *faces, *identities])
    (tmp_path / "train.rec").write_bytes(data)
    if with_index:
        (tmp_path / "train.idx").write_text(idx)
    (tmp_path / "property").write_text("3,112,112")
    listing = listed(tmp_path)
    assert images_of(listing) == [photo(n) for n in range(4)]
    assert list(listing.names) == [f"train/0000000{key}.jpg" for key in (1, 2, 3, 4)]
    assert listing.labels.tolist() == [0, 0, 1, 1]
    assert listing.classes == ["0", "1", "2"]
    passed_over = [item.count for item in listing.container.account if item.fate == "not looked at"]
    assert passed_over == [3], "the first record, and those of identities"


def test_a_first_record_of_two_labels_and_an_image_is_an_image(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"".join(rec(image_record(photo(n), [n, 9])) for n in range(2)))
    assert images_of(listed(tmp_path / "a.rec")) == [photo(0), photo(1)]
    (tmp_path / "a.rec").write_bytes(rec(image_record(photo(0), 0)) + rec(image_record(b"", [1, 2])))
    with pytest.raises(SourceError, match="it has no image"):
        listed(tmp_path / "a.rec")


def test_a_list_gives_names_and_classes(tmp_path: Path) -> None:
    data, idx = rec_and_idx([image_record(photo(n), n % 2, n) for n in range(4)], [7, 5, 6, 4])
    lines = [f"{key}\t{n % 2}.000000\t{'dog' if n % 2 else 'cat'}/{n}.jpg\n" for n, key in enumerate([7, 5, 6, 4])]
    (tmp_path / "a.rec").write_bytes(data)
    (tmp_path / "a.idx").write_text(idx)
    (tmp_path / "a.lst").write_text("".join(sorted(lines)))
    listing = listed(tmp_path)
    assert list(listing.names) == ["cat/0.jpg", "dog/1.jpg", "cat/2.jpg", "dog/3.jpg"]
    assert listing.classes == ["cat", "dog"]
    for wrong, said in [
        (lines[:3], "a.lst: does not match the record file: image 4 has label 1, but the list has no line for it"),
        (
            [*lines[:3], "4\t0\tcat/3.jpg\n"],
            "a.lst: does not match the record file: image 4 has label 1, but the list has label 0",
        ),
        ([*lines, "x\n"], "a.lst: line 5 is not a key, a label and a path"),
        ([*lines, "9\t1\t../x.jpg\n"], "a.lst: line 5: its name is not a plain relative path"),
        ([*lines, f"{1 << 70}\t1\tx.jpg\n"], "a.lst: line 5 is not a key, a label and a path"),
    ]:
        (tmp_path / "a.lst").write_text("".join(wrong))
        with pytest.raises(SourceError) as raised:
            listed(tmp_path)
        assert said in str(raised.value)
    (tmp_path / "a.lst").write_text("".join(line.replace("cat/2", "cow/2") for line in lines))
    assert listed(tmp_path).classes == ["0", "1"]


@pytest.mark.parametrize(
    ("idx", "said"),
    [
        (
            "0\t0\n1\t{second}\n2\t{end}\n",
            "a.idx: does not match the record file: it lists 3 records, but the file has 2",
        ),
        ("0\t0\n", "a.idx: does not match the record file: no entry for the record at byte {second}"),
        ("0\t0\n1\t4\n", "a.idx: does not match the record file: no entry for the record at byte {second}"),
        ("0\t0\n0\t{second}\n", "a.idx: two records have one key"),
        ("-1\t0\n0\t{second}\n", "a.idx: two records have one key, or one has a negative key"),
        ("0 0\n", "a.idx: line 1 is not a key and an offset of a record"),
        ("0\t99999999999999999999\n", "a.idx: line 1 is not a key and an offset of a record"),
    ],
)
def test_an_index_that_does_not_fit_is_named(tmp_path: Path, idx: str, said: str) -> None:
    data, _ = rec_and_idx([image_record(photo(n), n) for n in range(2)])
    places = {"second": len(rec(image_record(photo(0), 0))), "end": len(data)}
    (tmp_path / "a.rec").write_bytes(data)
    (tmp_path / "a.idx").write_text(idx.format(**places))
    with pytest.raises(SourceError) as raised:
        listed(tmp_path / "a.rec")
    assert said.format(**places) in str(raised.value)


def test_several_files_are_one_set(tmp_path: Path) -> None:
    for number in range(11):
        data, idx = rec_and_idx([image_record(photo(number), number)])
        (tmp_path / f"part_{number}.rec").write_bytes(data)
        (tmp_path / f"part_{number}.idx").write_text(idx)
    listing = listed(tmp_path)
    assert listing.labels.tolist() == list(range(11))
    assert len(set(listing.names)) == 11
    (tmp_path / "val.rec").write_bytes(data)
    (tmp_path / "train.rec").write_bytes(data)
    with pytest.raises(SourceError, match="several splits"):
        find_container([tmp_path])


def test_an_image_in_parts_has_the_name_and_the_time_of_its_own_file(tmp_path: Path) -> None:
    image = photo(0) + bytes(-len(photo(0)) % 4) + MAGIC + b"end"
    for number, name in enumerate("abc"):
        (tmp_path / f"{name}.rec").write_bytes(rec(image_record(image, 0)))
        (tmp_path / f"{name}.lst").write_text("0\t0\tx.jpg\n")
        os.utime(tmp_path / f"{name}.rec", (10**9 + number, 10**9 + number))
    listing = listed(tmp_path)
    assert list(listing.names) == ["a/x.jpg", "b/x.jpg", "c/x.jpg"]
    source = source_of(tmp_path)
    assert source.stamps is not None
    assert [source.path(number) for number in range(3)] == [str(tmp_path / f"{name}.rec") for name in "abc"]
    assert source.stamps[:, 1].tolist() == [(10**9 + number) * 10**9 for number in range(3)]


def test_large_images_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = b"\xff\xd8\xff" + np.random.default_rng(0).bytes(300_000)
    (tmp_path / "a.rec").write_bytes(b"".join(rec(image_record(image, [n] * 200)) for n in range(3)))
    sizes: list[int] = []
    read = PackFile.read

    def counted(self: PackFile, offset: int, size: int) -> Any:
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(PackFile, "read", counted)
    listing = listed(tmp_path / "a.rec")
    assert 0 < sum(sizes) < len(image)
    assert listing.images.size.tolist() == [len(image)] * 3
    assert listing.images.offset.tolist()[0] == 8 + 24 + 800
    assert arrays(listing, "labels")[2] == [2] * 200


def test_damaged_files_are_named(tmp_path: Path) -> None:
    usual = rec(image_record(photo(0), 0))
    at = len(usual)
    for data, said in [
        (usual + usual[:-1], f"cut short: the record at byte {at} extends beyond the end of the file"),
        (usual + MAGIC, f"cut short: the record at byte {at}"),
        (usual + b"\0" * 8, f"the record at byte {at}: it is not the beginning of a record"),
        (usual + part(4, b""), f"the record at byte {at}: it is not the beginning of a record"),
        (usual + part(2, b"x"), f"the record at byte {at}: a record does not begin with its first part"),
        (usual + part(1, b"x"), f"cut short: the record at byte {at} extends beyond"),
        (usual + part(1, b"x") + usual, f"the record at byte {at + 12}: the parts of a record are out of order"),
        (
            usual + part(1, b"x") + part(1, b"x"),
            f"the record at byte {at + 12}: the parts of a record are out of order",
        ),
        (usual + part(0, b"x" * 23), f"the record at byte {at}: a record of 23 bytes is too short for a label"),
        (
            usual + part(0, struct.pack("<IfQQ", 9, 0, 0, 0)),
            f"at byte {at}: a record of 24 bytes is too short for its 9 labels",
        ),
        (usual + rec(image_record(b"", 0)), f"the record at byte {at}: it has no image"),
    ]:
        (tmp_path / "a.rec").write_bytes(data)
        with pytest.raises(SourceError) as raised:
            listed(tmp_path / "a.rec")
        assert said in str(raised.value)
        assert "a.rec" in str(raised.value)


def test_a_record_without_an_image_or_with_another_label_can_be_skipped(tmp_path: Path) -> None:
    records = [image_record(photo(0), 1), image_record(b"", 2), image_record(photo(1), 0.5), image_record(photo(2), 3)]
    (tmp_path / "a.rec").write_bytes(b"".join(map(rec, [*records[:1] * 300, *records[1:]])))
    with pytest.raises(SourceError, match=r"record at byte \d+: it has no image.*skip"):
        packer.index(tmp_path / "a.rec", tmp_path / "a.index")
    packer.index(tmp_path / "a.rec", tmp_path / "a.index", on_error="skip")
    dataset = packer.open_dataset(tmp_path / "a.index")
    assert (len(dataset), list(dataset.targets[-2:])) == (301, [1, 3])
    with packer.open_pack(tmp_path / "a.index") as reader:
        reasons = [skipped["reason"] for skipped in reader.manifest.skipped]
    assert ["no image" in reasons[0], "its label is 0.5" in reasons[1]] == [True, True]
