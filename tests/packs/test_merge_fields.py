"""Packs with fields are joined, made in parts and copied with all that they hold, or refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import packer
from packer._fields import Field
from packer._formats import open_pack
from packer._formats.reader import write_manifest
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._storage.files import disk_size
from packer.errors import SourceError
from tests.packs.test_fields import FIELDS, sample, written
from tests.samples import SUFFIXES, content

formats = pytest.mark.parametrize("format", SUFFIXES)

# A conversion requires that an image in a field has the size of the sample's image.
KEPT = tuple(field for field in FIELDS if field.name != "depth")


def part(path: Path, start: int, stop: int, fields: Sequence[Field] = KEPT) -> Path:
    return written(path, [sample(index, fields) for index in range(start, stop)], fields)


@formats
def test_packs_of_the_same_fields_are_merged(tmp_path: Path, format: str) -> None:
    """They are merged even if the fields have another order, or came from other files."""
    whole = part(tmp_path / "whole.h5", 0, 11)
    others = (*KEPT[3:], *KEPT[:3])
    moved = tuple(replace(field, file="elsewhere/{stem}.png") if field.name == "mask" else field for field in others)
    packs = [part(tmp_path / "a.lmdb", 0, 4), part(tmp_path / "b.h5", 4, 9, moved), part(tmp_path / "c.pth", 9, 11)]
    merged = tmp_path / f"merged{SUFFIXES[format]}"
    packer.merge(packs, merged)
    assert verify(merged) == []
    assert digest(merged) == digest(whole)
    with open_pack(merged) as reader:
        assert reader.fields["mask"].file == ""
        assert reader.fields["raw"].file == "{path}.bin"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((), "a.lmdb has the fields age, seen, kind, mask, tags, …, which .*b.h5 does not have: .* with these"),
        (KEPT[:-1], "a.lmdb has the fields points, which .*b.h5 does not have"),
        ((Field("new", "text"), *KEPT), "b.h5 has the fields new, which .*a.lmdb does not have"),
        (
            (Field("age", "scalar", "float64"), *KEPT[1:]),
            "in field 'age': its dtype is float32 in the first and float64 in the second. Convert",
        ),
        (
            (*KEPT[:-1], Field("points", "bytes")),
            "in field 'points': its kind is keypoints in the first and bytes in the second",
        ),
        (
            (*KEPT[:2], Field("kind", "class", classes=("red", "blue"), ids=(3, 7)), *KEPT[3:]),
            "in field 'kind': its classes differ .blue, green., .* Convert both again, with the same list",
        ),
        ((*KEPT[:2], Field("kind", "class", classes=("red", "green"), ids=(7, 3)), *KEPT[3:]), "same names with other"),
    ],
)
def test_packs_of_other_fields_are_refused_by_name(tmp_path: Path, fields: tuple[Field, ...], message: str) -> None:
    one = part(tmp_path / "a.lmdb", 0, 2)
    other = written(tmp_path / "b.h5", [replace(sample(3), fields=(None,) * len(fields))], fields)
    with pytest.raises(SourceError, match=message):
        packer.merge([one, other], tmp_path / "merged.pth")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.lmdb", "b.h5"]


@formats
def test_a_pack_made_in_parts_has_the_fields(tmp_path: Path, format: str) -> None:
    whole = part(tmp_path / "whole.lmdb", 0, 11)
    packer.convert(whole, tmp_path / "parts", format=format, parts=3)
    assert verify(tmp_path / "parts") == []
    assert digest(tmp_path / "parts") == digest(whole)
    packer.convert(tmp_path / "parts", tmp_path / "again.lmdb")
    assert digest(tmp_path / "again.lmdb") == digest(whole)
    packer.convert(whole, tmp_path / "few.h5", sample=4)
    with open_pack(whole) as before, open_pack(tmp_path / "few.h5") as after:
        for index, name in enumerate(after.names):
            place = list(before.names).index(name)
            for field in after.fields:
                assert after.value(index, field) == before.value(place, field)


def test_parts_whose_fields_are_not_those_of_the_whole_are_named(tmp_path: Path) -> None:
    whole = part(tmp_path / "whole.lmdb", 0, 4, KEPT[:1])
    packer.convert(whole, tmp_path / "parts", format="lmdb", parts=2)
    with open_pack(tmp_path / "parts") as reader:
        manifest = reader.manifest
    columns = {name.replace("age", "years"): number for name, number in manifest.columns.items()}
    write_manifest(tmp_path / "parts", replace(manifest, fields=(replace(KEPT[0], name="years"),), columns=columns))
    assert [str(damage) for damage in verify(tmp_path / "parts")] == [
        f"part-0000{number}.lmdb: its fields differ from those of the joined pack" for number in (0, 1)
    ]


@formats
def test_a_pack_with_fields_is_staged_warmed_and_converted_to_the_same_bytes(tmp_path: Path, format: str) -> None:
    path = part(tmp_path / f"pack{SUFFIXES[format]}", 0, 11)
    (tmp_path / "local").mkdir()
    staged = Path(packer.stage(path, tmp_path / "local"))
    assert content(staged) == content(path)
    assert packer.warm(staged) == disk_size(path)
    packer.unstage(path, tmp_path / "local")
    assert content(tmp_path / "local") == {}
    packer.convert(path, tmp_path / f"one{SUFFIXES[format]}")
    packer.convert(tmp_path / f"one{SUFFIXES[format]}", tmp_path / f"two{SUFFIXES[format]}")
    assert content(tmp_path / f"one{SUFFIXES[format]}") == content(tmp_path / f"two{SUFFIXES[format]}")
    assert digest(tmp_path / f"one{SUFFIXES[format]}") == digest(path)


def test_packs_whose_fields_have_other_classes_are_refused_by_the_first_that_differs(tmp_path: Path) -> None:
    for number, classes in enumerate([("cat", "dog"), ("cat", "emu", "dog")]):
        field = packer.Field("kind", "class", classes=classes)
        samples = [{"image": np.zeros((4, 4, 3), np.uint8), "kind": "cat", "name": f"{number}.png"}]
        packer.pack(samples, tmp_path / f"{number}.lmdb", fields={"kind": field})
    packs = [tmp_path / "0.lmdb", tmp_path / "1.lmdb"]
    said = (
        r"0.lmdb and .*1.lmdb differ in field 'kind': the first gives 'dog' the id 1, the second gives 'dog' the id 2"
    )
    with pytest.raises(ValueError, match=said):
        packer.open_dataset(packs, fields=("image", "kind"))


def test_names_with_a_prefix_have_no_template(tmp_path: Path) -> None:
    field = packer.Field("caption", "text", file="{stem}.txt")
    packer.pack(
        [{"image": np.zeros((4, 4, 3), np.uint8), "caption": "x"}], tmp_path / "a.lmdb", fields={"caption": field}
    )
    packer.merge([tmp_path / "a.lmdb"], tmp_path / "b.lmdb", prefixes=["a"])
    assert [field.file for field in packer.info(tmp_path / "b.lmdb").fields] == [""]
    packer.merge([tmp_path / "a.lmdb"], tmp_path / "c.lmdb")
    assert [field.file for field in packer.info(tmp_path / "c.lmdb").fields] == ["{stem}.txt"]
