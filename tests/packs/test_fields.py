"""Fields of packs are verified, repaired, counted and hashed like images."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._fields import Field, Stored
from packer._formats import FORMATS, open_pack
from packer._images.resize import ResizeSpec
from packer._packs.info import digest, info
from packer._packs.repair import repair
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._sources.sidecar_files import FileField, with_files
from packer._table import Sample
from packer.errors import CorruptPackError
from packer.testing.samples import write_pack
from tests.command import packer as packer_command
from tests.samples import SUFFIXES, content

formats = pytest.mark.parametrize("format", SUFFIXES)

FIELDS = (
    Field("age", "scalar", "float32"),
    Field("seen", "scalar", "bool"),
    Field("kind", "class", classes=("red", "green"), ids=(3, 7)),
    Field("mask", "mask", file="../masks/{stem}.png"),
    Field("depth", "image"),
    Field("tags", "labels", classes=("a", "b", "c")),
    Field("caption", "text"),
    Field("about", "json"),
    Field("raw", "bytes", file="{path}.bin"),
    Field("embedding", "array", "float16", 1),
    Field("boxes", "boxes"),
    Field("points", "keypoints"),
)
HEIGHT, WIDTH = 6, 8


def png(mode: str, seed: int, size: tuple[int, int] = (HEIGHT, WIDTH)) -> bytes:
    shape = (*size, 3) if mode == "RGB" else size
    top, dtype = (65535, np.uint16) if mode == "I;16" else (20, np.uint8)
    pixels = np.random.default_rng(seed).integers(0, top, shape).astype(dtype)
    image = Image.fromarray(pixels)
    if mode == "P":
        image.putpalette([*range(96)])
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


def values_of(index: int) -> dict[str, Any]:
    return {
        "age": index + 0.5,
        "seen": bool(index % 2),
        "kind": [3, 7][index % 2],
        "mask": png("P", index),
        "depth": png("I;16", index),
        "tags": [index % 3, 2],
        "caption": f"an ä number {index}",
        "about": {"index": index, "words": ["é"]},
        "raw": bytes([index, 1, 2, 255]) * 9,
        "embedding": np.arange(index + 3, dtype=np.float16) + index / 4,
        "boxes": [[0, 1, 4, 5.5], [index / 2, 0, WIDTH, HEIGHT]],
        "points": [[[1, 2, 2], [index % 8, 0, 1]]],
    }


def sample(index: int, fields: Sequence[Field] = FIELDS, **others: Any) -> Sample:
    """Return a sample; every fifth one has no values. `others` replaces some values."""
    values = {**values_of(index), **others}
    missing = index % 5 == 4 and not others
    stored = tuple(None if missing else _stored(field, values[field.name]) for field in fields)
    return Sample(f"class_{index % 2}/{index:03d}.png", index % 2, png("RGB", 100 + index), HEIGHT, WIDTH, stored)


class Raw(bytes):
    """Bytes that are stored unchanged and without checks."""


def _stored(field: Field, value: Any) -> Stored:
    return bytes(value) if isinstance(value, Raw) else field.encode(value)


def written(path: Path, samples: Sequence[Sample] | None = None, fields: Sequence[Field] = FIELDS, **said: Any) -> Path:
    format = next(name for name, suffix in SUFFIXES.items() if path.suffix == suffix)
    samples = [sample(index, fields) for index in range(11)] if samples is None else samples
    write_pack(FORMATS[format], path, samples, {"shard_size": 6000} if format == "pth" else {}, fields=fields, **said)
    return path


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("packs")
    return {format: written(root / f"pack{suffix}") for format, suffix in SUFFIXES.items()}


@pytest.fixture
def pack(packs: dict[str, Path], tmp_path: Path, format: str) -> Path:
    """Return a copy of a pack that a test may damage."""
    return copied(packs[format], tmp_path / packs[format].name)


def copied(path: Path, to: Path) -> Path:
    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, to)
    return to


def place(pack: Path, index: int, name: str) -> tuple[Path, int]:
    """Return the file of a pack that has a value of a field, and the value's offset."""
    with open_pack(pack) as reader:
        offset = int(reader.locate_blobs(np.array([index]), name)[0][0])
        for file, begin, size in reader.data_files():
            if offset < size:
                return pack / file if file else pack, begin + offset
            offset -= size
    raise AssertionError("it lies in no file")


def places(pack: Path, wanted: bytes) -> list[tuple[Path, int]]:
    """Return the files and offsets of some bytes in a pack, except in shards of samples."""
    found = []
    for file in sorted(pack.iterdir()) if pack.is_dir() else [pack]:
        data, at = file.read_bytes(), -1
        while (at := data.find(wanted, at + 1)) >= 0 and "shard" not in file.name:
            found.append((file, at))
    return found


def flip(file: Path, at: int, bit: int = 0) -> None:
    with open(file, "r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 1 << bit]))


def damaged(pack: Path, *where: tuple[int, str]) -> None:
    """Change a byte of some blobs."""
    for index, name in where:
        file, at = place(pack, index, name)
        flip(file, at + 3)


@formats
def test_an_intact_pack(packs: dict[str, Path], format: str) -> None:
    for options in ({}, {"quick": True}, {"workers": 1}):
        assert verify(packs[format], **options) == []


@formats
def test_a_flipped_bit_in_each_blob_is_named_by_its_field_and_the_others_are_read(pack: Path) -> None:
    with open_pack(pack) as reader:
        held = {(i, name): reader.value(i, name) for name in reader.fields for i in (0, 3)}
    for (index, name), blob in held.items():
        if not isinstance(blob, bytes | memoryview | bytearray):
            continue
        file, at = place(pack, index, name)
        for step in {0, len(blob) - 1} if index == 0 else {len(blob) // 2}:
            flip(file, at + step, step % 8)
            (found,) = [item for item in verify(pack) if item.index is not None]
            assert (found.index, found.field, found.name) == (index, name, f"class_{index % 2}/{index:03d}.png")
            assert str(found).startswith(
                f"sample {index} (class_{index % 2}/{index:03d}.png): damaged: field '{name}': "
            )
            with open_pack(pack) as reader:
                for (other, field), value in held.items():
                    if (other, field) != (index, name):
                        assert reader.value(other, field) == value
                with pytest.raises(CorruptPackError, match=f"field '{name}'"):
                    reader.value(index, name)
            flip(file, at + step, step % 8)
    assert verify(pack) == []


@formats
def test_fields_that_are_read_together_are_those_that_are_read_one_by_one(pack: Path) -> None:
    with open_pack(pack) as reader:
        names = [name for name, field in reader.fields.items() if field.is_blob]
        positions = np.array([7, 0, 4, 3, 0])
        expected = {name: reader.blobs(positions, name) for name in names}
        for some in (names, names[::-1], names[1::3], []):
            assert reader.blobs_of(positions, some) == [expected[name] for name in some]
        with pytest.raises(KeyError, match="age"):
            reader.blobs_of(positions, ["mask", "age"])
    damaged(pack, (3, "caption"))
    with open_pack(pack) as reader, pytest.raises(CorruptPackError, match=r"sample 3 .*field 'caption': the checksum"):
        reader.blobs_of(positions, names)


def test_a_size_that_leads_out_of_the_file_is_named_by_its_field_among_many(packs: dict[str, Path]) -> None:
    with open_pack(packs["lmdb"]) as reader:
        names = [name for name, field in reader.fields.items() if field.is_blob]
        before = names[: names.index("caption")]
        sizes = reader.table.more["field.caption.size"].copy()
        expected = reader.blobs_of(np.array([3]), before)
        for wrong in (1 << 40, 1 << 62, -7):
            sizes[3] = wrong
            reader.table = replace(reader.table, more={**reader.table.more, "field.caption.size": sizes})
            with pytest.raises(CorruptPackError, match=r"sample 3 .*field 'caption'"):
                reader.blobs_of(np.array([3]), names)
            assert reader.blobs_of(np.array([3]), before) == expected


def test_the_fields_of_a_sample_are_read_at_once(tmp_path: Path) -> None:
    fields = tuple(Field(f"text{number}", "text") for number in range(40))
    with open_pack(written(tmp_path / "pack.lmdb", [_of_texts(fields)], fields)) as reader:
        read: list[int] = []
        fetch = reader._fetch
        reader._fetch = lambda offset, size: (read.append(size), fetch(offset, size))[1]  # type: ignore[method-assign]
        (first, *_, last) = reader.blobs_of(np.array([0]), list(reader.fields))
    assert (first, last, len(read)) == ([b"value of text0"], [b"value of text39"], 1)


def _of_texts(fields: Sequence[Field]) -> Sample:
    values = tuple(f"value of {field.name}".encode() for field in fields)
    return Sample("a.png", 0, png("RGB", 1), HEIGHT, WIDTH, values)


@formats
def test_a_flipped_bit_in_each_column_is_named(pack: Path) -> None:
    with open_pack(pack) as reader:
        columns = {name: column.tobytes() for name, column in reader.table.more.items()}
        kept = {name: [reader.value(index, name) for index in range(len(reader))] for name in ("age", "depth")}
    for name, column in columns.items():
        found_at = places(pack, column)  # several, because columns of several fields may have the same bytes
        for position in range(0, len(column), 61):
            named = []
            for file, at in found_at:
                flip(file, at + position, position % 8)
                found = [verify(pack, quick=quick) for quick in (False, True)]
                named.append(all(any(f"'{name}'" in item.reason for item in damage) for damage in found))
                if named[-1]:
                    _require_other_fields(pack, name.split(".")[1], kept)
                flip(file, at + position, position % 8)
            assert any(named), (name, position)
    assert verify(pack) == []


def _require_other_fields(pack: Path, damaged: str, kept: dict[str, list[Stored]]) -> None:
    """Require that fields independent of the damaged column can be read, and that a damaged "age" cannot."""
    with open_pack(pack) as reader:
        for name, values in kept.items():
            if name == damaged and name == "age":
                with pytest.raises(CorruptPackError, match="age"):
                    reader.value(0, name)
            elif damaged not in ("mask", name):
                assert [reader.value(index, name) for index in range(len(reader))] == values


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mask", png("P", 1, (5, 5)), "a mask of 5 x 5 pixels, but its image has 8 x 6"),
        ("mask", b"no image", "not an image that Pillow can read"),
        ("mask", b"", "empty file"),
        ("depth", png("I;16", 1)[:70], "cannot be decoded"),
        ("tags", [5, 1], None),
        ("tags", Raw(b"1234567"), "7 bytes are not a list of ids"),
        ("tags", Raw(np.array([1, 9], "<i8").tobytes()), "9 is not a class id of the field"),
        ("caption", Raw(b"\xff\xfe"), "not UTF-8: byte 0"),
        ("about", Raw(b"{"), "Expecting property name"),
        ("about", Raw(b"[" * 100_000), "nested too deeply"),
        ("embedding", Raw(b"12345"), "are too few for the shape of an array with 1 axes"),
        ("embedding", Raw(np.array([9], "<i8").tobytes()), "not the elements of an array"),
        ("boxes", [[0, 0, WIDTH + 2, 3]], "is not inside of the image, which has 8 x 6 pixels"),
        ("boxes", [[-3, 0, 2, 3]], "is not inside of the image"),
        ("boxes", Raw(np.array([4, 0, 2, 3], "<f4").tobytes()), "a box ends before it begins"),
        ("boxes", Raw(np.array([np.nan, 0, 2, 3], "<f4").tobytes()), "not all numbers are finite: expected boxes"),
        ("boxes", Raw(b"123"), "3 bytes are not boxes"),
        ("points", Raw(np.array([1, 2], "<i8").tobytes()), "not the elements"),
        ("points", [[[1, 2, 2], [WIDTH + 2, 0, 1]]], "the visible keypoint at 10, 0 is not inside of the image"),
        ("points", [[[-1.5, 2, 1]]], "the visible keypoint at -1.5, 2 is not inside"),
        ("depth", png("I;16", 3, (5, 9)), "an image of 9 x 5 pixels, but its image has 8 x 6"),
        ("about", Raw(b"NaN"), "NaN is not a JSON number"),
        ("about", Raw(b'{"x":[1e999]}'), "the number '1e999' is too large"),
        ("about", Raw(b'["\\ud800"]'), "cannot be encoded as UTF-8"),
    ],
)
def test_a_value_that_is_none_of_its_kind(tmp_path: Path, name: str, value: Any, reason: str | None) -> None:
    """Its checksum matches: the pack was written with this value."""
    if reason is None:
        with pytest.raises(ValueError, match="5 is not a class id"):
            sample(1, **{name: value})
        return
    path = written(tmp_path / "x.h5", [sample(0), sample(1, **{name: value}), sample(2)])
    (found,) = verify(path)
    assert (found.index, found.field) == (1, name)
    assert found.reason.startswith(f"field '{name}': ")
    assert re.search(reason, found.reason), found.reason
    assert verify(path, quick=True) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([None, [[0, -1, 9, 0, 8, 5.5]], {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]}], None),
        (Raw(b"{}"), "not a list of segmentations"),
        (Raw(b"[null,[[1,2]]]"), "segmentation 1: a polygon must have three points"),
        ([{"size": [5, 5], "counts": [25]}], "for 5 x 5 pixels, but its image has 8 x 6"),
    ],
)
def test_segmentations_are_those_of_their_image(tmp_path: Path, value: Any, reason: str | None) -> None:
    fields = (Field("shapes", "segmentation"),)
    path = written(tmp_path / "x.h5", [sample(0, fields, shapes=value)], fields)
    found = verify(path)
    assert [one.field for one in found] == ["shapes"] * (reason is not None)
    assert all(str(reason) in one.reason for one in found)


def test_a_box_may_end_beside_its_image_by_rounding(tmp_path: Path) -> None:
    points = [[[-0.5, 0, 2], [WIDTH + 0.9, 0, 1], [-99, 99, 0]]]  # the last one is not visible
    path = written(tmp_path / "x.h5", [sample(0, boxes=[[-0.5, 0, WIDTH + 0.01, HEIGHT + 0.9]], points=points)])
    assert verify(path) == []


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("field.age", np.nan, "field 'age': its row in the table has nan and 0, which are neither a value of float32"),
        ("field.age.null", 2, "field 'age': .* has 1.5 and 2"),
        ("field.seen", 2, "field 'seen': .* has 2 and 0, which are neither a value of bool"),
        ("field.kind", 5, "field 'kind': 5 is not an id of its classes"),
        ("field.kind", -7, "field 'kind': -7 is not an id"),
        ("field.mask.size", -1, "field 'mask': .* has the size -1 and the checksum"),
        ("field.mask.size", -9, "field 'mask': .* has the size -9"),
    ],
)
def test_a_number_that_no_field_has(tmp_path: Path, column: str, value: float, reason: str) -> None:
    """The checksum of its column matches."""

    def change(manifest: Any, table: Any) -> Any:
        more = {name: values.copy() for name, values in table.more.items()}
        more[column][1] = value
        table = replace(table, more=more)
        return replace(manifest, columns=packer._table.column_checksums(table)), table

    path = written(tmp_path / "x.h5", change=change)
    found = verify(path, quick=True)
    assert [(item.index, item.field) for item in found] == [(1, column.split(".")[1])]
    assert re.match(reason, found[0].reason), found[0].reason


@formats
def test_damaged_values_come_back_from_a_copy(packs: dict[str, Path], pack: Path, format: str) -> None:
    other = packs["pth" if format == "lmdb" else "lmdb"]
    where = [(0, "mask"), (0, "caption"), (3, "points"), (5, "embedding"), (6, "raw")]
    damaged(pack, *where)
    repaired = repair(pack, other)
    assert sorted(repaired.samples) == ["class_0/000.png", "class_0/006.png", "class_1/003.png", "class_1/005.png"]
    assert [item for item in repaired.left if item.index is not None] == []
    assert content(pack) == content(packs[format])


def test_damaged_values_come_back_from_files(packs: dict[str, Path], tmp_path: Path) -> None:
    pack = copied(packs["lmdb"], tmp_path / "pack.lmdb")
    (tmp_path / "tree" / "class_1").mkdir(parents=True)
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks" / "001.png").write_bytes(values_of(1)["mask"])
    (tmp_path / "masks" / "003.png").write_bytes(values_of(4)["mask"])
    (tmp_path / "tree" / "class_1" / "001.png.bin").write_bytes(values_of(1)["raw"])
    for index in (1, 3):
        (tmp_path / "tree" / "class_1" / f"{index:03d}.png").write_bytes(sample(index).data)
    damaged(pack, (1, "mask"), (1, "raw"), (1, "caption"), (3, "mask"), (3, "raw"))
    repaired = repair(pack, tmp_path / "tree")
    assert repaired.samples == ["class_1/001.png"]
    left = {(item.index, item.field): item.reason for item in repaired.left}
    assert [*left] == [(1, "caption"), (3, "mask"), (3, "raw")]
    assert "the file of the field 'caption'" in left[1, "caption"]
    assert "does not give the same value" in left[3, "mask"]
    assert "class_1/003.png.bin cannot be read: No such file" in left[3, "raw"]
    result = packer_command("verify", pack, "--repair", packs["pth"])
    assert (result.returncode, content(pack)) == (0, content(packs["lmdb"]))


def test_a_damaged_mask_is_made_again_as_the_conversion_made_it(tmp_path: Path) -> None:
    for index in (0, 1):
        (tmp_path / "tree" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / "a" / f"{index}.png").write_bytes(png("RGB", index))
        (tmp_path / "masks").mkdir(exist_ok=True)
        (tmp_path / "masks" / f"{index}.png").write_bytes(png("P", index))
    fields = [FileField("mask", "mask", "../masks/{stem}.png")]
    source = with_files(imagefolder_source(tmp_path / "tree"), fields)
    convert(source, tmp_path / "pack.lmdb", recipe=Recipe("png", ResizeSpec(4)))
    before = content(tmp_path / "pack.lmdb")
    damaged(tmp_path / "pack.lmdb", (1, "mask"))
    assert [item.field for item in verify(tmp_path / "pack.lmdb")] == ["mask"]
    assert repair(tmp_path / "pack.lmdb", tmp_path / "tree").samples == ["a/1.png"]
    assert content(tmp_path / "pack.lmdb") == before


@formats
def test_the_digest_covers_fields(packs: dict[str, Path], tmp_path: Path, format: str) -> None:
    assert digest(packs[format]) == digest(packs["lmdb"])
    pack = copied(packs[format], tmp_path / packs[format].name)
    damaged(pack, (3, "points"))
    with pytest.raises(CorruptPackError, match=r"sample 3.*field 'points'"):
        digest(pack)


def test_any_difference_of_a_field_changes_the_digest(tmp_path: Path) -> None:
    samples = [sample(index) for index in range(5)]
    named = (replace(FIELDS[0], name="years"), *FIELDS[1:])
    filed = (*FIELDS[:3], replace(FIELDS[3], file="x/{stem}.png"), *FIELDS[4:])
    nothing = replace(samples[1], fields=(None, *samples[1].fields[1:]))
    empty = replace(samples[4], fields=(*samples[4].fields[:6], b"", *samples[4].fields[7:]))
    packs = [
        written(tmp_path / "0.h5", samples),
        written(tmp_path / "1.h5", samples, named),
        written(tmp_path / "2.h5", [samples[0], sample(1, age=7.5), *samples[2:]]),
        written(tmp_path / "3.h5", [samples[0], sample(1, caption="?"), *samples[2:]]),
        written(tmp_path / "4.h5", [samples[0], nothing, *samples[2:]]),
        written(tmp_path / "5.h5", [*samples[:4], empty]),
        written(tmp_path / "6.h5", [replace(one, fields=()) for one in samples], ()),
    ]
    digests = [digest(path) for path in packs]
    assert len({*digests}) == len(packs)
    assert digest(written(tmp_path / "7.h5", samples, filed)) == digests[0]


@formats
def test_info_lists_fields(packs: dict[str, Path], format: str) -> None:
    fields = {field.name: field for field in info(packs[format]).fields}
    assert [*fields] == [field.name for field in FIELDS]
    assert fields["kind"].classes == ("red", "green")
    assert {field.missing for field in fields.values()} == {2}
    assert fields["age"].bytes == 4 * 11
    assert fields["mask"].bytes == sum(len(values_of(index)["mask"]) for index in range(11) if index % 5 != 4)
    said = json.loads(packer_command("info", "--json", packs[format]).stdout)["fields"]
    assert said[2] == {
        "name": "kind",
        "kind": "class",
        "dtype": "",
        "rank": 0,
        "classes": ["red", "green"],
        "ids": [3, 7],
        "file": "",
        "missing": 2,
        "bytes": 88,
    }
    shown = packer_command("info", packs[format]).stdout
    assert "float32 scalar, 44 B, 2 missing" in shown
    assert "mask, of ../masks/{stem}.png" in shown
    assert "class, 2 classes (red, green), 88 B" in shown
