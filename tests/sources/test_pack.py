"""Packs as a source: order, labels, class maps, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._packs.verify import verify
from packer._sources.base import ReadBuffer
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._table import Sample
from packer.errors import CorruptPackError, ImageError, PackError, SourceError
from tests.packs.test_export import photo
from tests.samples import SUFFIXES, write_pack


def samples(prefix: str, count: int, classes: int = 2) -> list[Sample]:
    return [
        Sample(f"{prefix}/{index}.jpg", index % classes, bytes([index]) * (index + 1), index + 1, 2)
        for index in range(count)
    ]


@pytest.mark.parametrize("format", SUFFIXES)
def test_it_lists_what_the_pack_holds(tmp_path: Path, format: str) -> None:
    held = samples("x", 9)
    source = pack_source(write_pack(tmp_path / f"a{SUFFIXES[format]}", format, held))
    assert list(source.names) == [sample.name for sample in held]
    assert source.labels.tolist() == [sample.label for sample in held]
    assert source.classes == ["a", "b"]
    for index, sample in enumerate(held):
        data, stamp = source.read(index, ReadBuffer())
        assert bytes(data) == sample.data
        assert stamp == source.stamp(index)
        stored = source.sample_of(index)
        assert (stored.codec, stored.height, stored.width) == ("keep", sample.height, sample.width)


def test_several_packs_stand_one_behind_the_other(tmp_path: Path) -> None:
    held = [samples("x", 3), [], samples("y", 4), samples("z", 1)]
    formats = ["lmdb", "hdf5", "hdf5", "pth"]
    paths = [
        write_pack(tmp_path / f"{number}{SUFFIXES[format]}", format, part)
        for number, (format, part) in enumerate(zip(formats, held, strict=True))
    ]
    source = pack_source(*paths)
    everything = [sample for part in held for sample in part]
    assert list(source.names) == [sample.name for sample in everything]
    assert [bytes(source.read(index, ReadBuffer())[0]) for index in range(8)] == [s.data for s in everything]
    assert [source.path(index) for index in (0, 2, 3, 7)] == [str(paths[n]) for n in (0, 0, 2, 3)]
    for start, stop in [(0, 8), (2, 5), (4, 4), (7, 8)]:
        part = source.between(start, stop)
        assert list(part.names) == [sample.name for sample in everything[start:stop]]
        assert [bytes(part.read(index, ReadBuffer())[0]) for index in range(len(part))] == [
            sample.data for sample in everything[start:stop]
        ]
        assert part.describe() == part.origin.source


@pytest.mark.parametrize("format", SUFFIXES)
def test_packs_without_samples_are_refused(tmp_path: Path, format: str) -> None:
    paths = [write_pack(tmp_path / f"{name}{SUFFIXES[format]}", format, []) for name in "ab"]
    for given in (paths[:1], paths):
        with pytest.raises(SourceError, match=rf"{given[-1].name}: contains no samples"):
            pack_source(*given)


def test_class_maps_are_compared_or_united(tmp_path: Path) -> None:
    one = write_pack(tmp_path / "one.lmdb", "lmdb", samples("x", 4), classes=["cat", "dog"])
    two = write_pack(tmp_path / "two.lmdb", "lmdb", samples("y", 4), classes=["ant", "cat"])
    with pytest.raises(SourceError, match=r"ant, dog.*classes='union'"):
        pack_source(one, two)
    united = pack_source(one, two, class_map="union")
    assert united.classes == ["cat", "dog", "ant"]
    assert united.labels.tolist() == [0, 1, 0, 1, 2, 0, 2, 0]
    assert pack_source(two, classes=["ant", "bee", "cat"]).labels.tolist() == [0, 2, 0, 2]
    with pytest.raises(SourceError, match=r"1 of its classes.*dog"):
        pack_source(one, classes=["ant", "cat"])
    with pytest.raises(ValueError, match="class_map"):
        pack_source(one, class_map="both")
    swapped = write_pack(tmp_path / "swapped.lmdb", "lmdb", samples("z", 2), classes=["dog", "cat"])
    with pytest.raises(SourceError, match="another order"):
        pack_source(one, swapped)


def test_what_cannot_be_in_one_pack(tmp_path: Path) -> None:
    kept = write_pack(tmp_path / "kept.lmdb", "lmdb", samples("x", 2))
    raw = write_pack(tmp_path / "raw.lmdb", "lmdb", samples("y", 2), codec="raw")
    turned = write_pack(tmp_path / "turned.lmdb", "lmdb", samples("z", 2), settings={"exif": "apply"})
    with pytest.raises(SourceError, match=r"codec keep.*raw"):
        pack_source(kept, raw)
    with pytest.raises(SourceError, match=r"EXIF policy ignore.*apply"):
        pack_source(kept, turned)
    with pytest.raises(SourceError, match=r"^x/0\.jpg: two samples"):
        pack_source(kept, write_pack(tmp_path / "again.h5", "hdf5", samples("x", 1)))


def test_what_manifests_say_together(tmp_path: Path) -> None:
    one = write_pack(
        tmp_path / "one.lmdb",
        "lmdb",
        samples("x", 2),
        settings={"quality": 90, "exif": "ignore"},
        versions={"packer": "1", "pillow": "3"},
        findings={"grey": 2},
        skipped=[{"name": "bad", "reason": "empty"}],
    )
    two = write_pack(
        tmp_path / "two.lmdb",
        "lmdb",
        samples("y", 2),
        settings={"quality": 80, "exif": "ignore", "tiles": True},
        versions={"packer": "2", "pillow": "3"},
        findings={"cmyk": 1, "grey": 1},
    )
    origin = pack_source(one, two).origin
    assert origin.settings == {"exif": "ignore", "tiles": True}  # some of its JPEGs may have tiles
    assert pack_source(two, one).origin.settings == origin.settings
    assert origin.versions == {"packer": "1 and 2", "pillow": "3"}
    assert origin.findings == {"cmyk": 1, "grey": 3}
    assert origin.skipped == [{"name": "bad", "reason": "empty"}]
    with open_pack(one) as reader:
        assert pack_source(one).origin == reader.manifest


def test_damage_is_an_error_of_the_sample(tmp_path: Path, photo_tree: Path) -> None:
    path = tmp_path / "pack.lmdb"
    convert(imagefolder_source(photo_tree), path)
    source = pack_source(path)
    data = bytes(source.read(7, ReadBuffer())[0])
    path.write_bytes(path.read_bytes().replace(data, data[:-1] + b"?"))
    with pytest.raises(ImageError, match=r"class_01/0002\.jpg.*sample 7.*checksum"):
        pack_source(path).read(7, ReadBuffer())
    with pytest.raises(CorruptPackError, match="sample 7"):
        convert(pack_source(path), tmp_path / "copy.lmdb")
    summary = convert(pack_source(path), tmp_path / "copy.lmdb", on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == ["class_01/0002.jpg"]
    assert summary.manifest.count == 14


def test_labels_of_no_class_get_none(tmp_path: Path) -> None:
    def change(index: int, row: dict[str, object]) -> None:
        row["label"] = [5, 1, -1, -(2**63)][index]

    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples("x", 4), change=change)
    assert pack_source(path, classes=["b", "a"]).labels.tolist() == [-1, 0, -1, -1]


@pytest.mark.parametrize("limit", [1, 3, 4, 9])
def test_findings_are_of_all_samples_or_of_none(tmp_path: Path, limit: int) -> None:
    said = {"findings": {"grey": 4}, "skipped": [{"name": "bad", "reason": "empty"}]}
    origin = pack_source(write_pack(tmp_path / "a.lmdb", "lmdb", samples("x", 4), **said)).limited(limit).origin
    assert (origin.findings, origin.skipped) == ((said["findings"], said["skipped"]) if limit >= 4 else ({}, []))


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "a//b.png", "", "a\0b", "a/good.png"])
def test_names_that_no_sample_has_are_not_passed_on(tmp_path: Path, name: str) -> None:
    """`verify` reports such names as damage, so a conversion must not keep them."""
    samples = [Sample("a/good.png", 0, photo(1), 8, 8), Sample(name, 0, photo(2), 8, 8)]
    path = write_pack(tmp_path / "pack.h5", "hdf5", samples)
    assert [damage.index for damage in verify(path)] == [1]
    with pytest.raises(PackError, match="sample 1"):
        convert(pack_source(path), tmp_path / "strict.lmdb")
    convert(pack_source(path), tmp_path / "skipped.lmdb", on_error="skip")
    assert verify(tmp_path / "skipped.lmdb") == []
    with open_pack(tmp_path / "skipped.lmdb") as reader:
        assert list(reader.names) == ["a/good.png"]
        assert [entry["name"] for entry in reader.manifest.skipped] == [name]


@pytest.mark.parametrize(("label_type", "labels"), [("int", [-2, 3, -1]), ("float", [-2.0, 0.5, -1.0])])
def test_numbers_as_labels_keep_their_values(tmp_path: Path, label_type: str, labels: list[float]) -> None:
    held = [Sample(f"{number}.jpg", label, b"x", 1, 1) for number, label in enumerate(labels)]
    parts = [held[:2], held[2:]]
    paths = [
        write_pack(tmp_path / f"{number}.lmdb", "lmdb", part, classes=[], label_type=label_type, schema=2)
        for number, part in enumerate(parts)
    ]
    assert pack_source(paths[0]).labels.tolist() == labels[:2]
    assert pack_source(*paths).labels.tolist() == labels


def test_a_damaged_label_is_no_class_that_a_list_lacks(tmp_path: Path) -> None:
    held = [Sample(f"{number}.jpg", label, b"x", 1, 1) for number, label in enumerate([0, -2, 1])]
    path = write_pack(tmp_path / "a.lmdb", "lmdb", held)
    for classes in (None, ["b", "a"]):
        source = pack_source(path, classes=classes)
        assert len(source) == 3
        with pytest.raises(ImageError, match="-2"):
            source.read(1, ReadBuffer())
