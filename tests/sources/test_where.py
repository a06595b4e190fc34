"""`--where`: samples of a pack that meet a condition, with their fields; the manifest records the condition."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import packer
from packer import open_pack
from packer._conversion.convert import convert
from packer._fields import Field
from packer.errors import OptionError, PackerError, ResumeError
from tests.command import packer_many
from tests.samples import SUFFIXES, content, files_with_fields, noise

FIELDS = (
    Field("age", "scalar", "int8"),
    Field("ok", "scalar", "bool"),
    Field("kind", "class", classes=("red", "green"), ids=(3, 7)),
    Field("split", "text"),
    Field("mask", "mask"),
)


def mask_of(number: int) -> bytes:
    """Return a mask with the size of image `number`."""
    file = io.BytesIO()
    Image.new("L", (8 + number % 3, 8), number).save(file, "PNG")
    return file.getvalue()


def values_of(number: int) -> tuple[Any, ...]:
    """Return the values of an image; each field is missing at regular intervals."""
    values = [number, number % 2 == 0, 3 + 4 * (number % 2), "train" if number % 3 else "val", mask_of(number)]
    return tuple(None if number % (place + 5) == 0 else value for place, value in enumerate(values))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of 40 images in two classes, with fields."""
    root = tmp_path_factory.mktemp("where")
    for number in range(40):
        noise(root / "tree" / ("cat" if number < 25 else "dog") / f"{number:02d}.png", number, (8, 8 + number % 3))
    convert(files_with_fields(root / "tree", FIELDS, list(map(values_of, range(40)))), root / "pack.lmdb")
    return root / "pack.lmdb"


CONDITIONS = {
    "age > 30": lambda i, age, *_: age is not None and age > 30,
    "age is null": lambda i, age, *_: age is None,
    "not ok": lambda i, age, ok, *_: ok is False,
    'kind == "green" or label == 1': lambda i, age, ok, kind, *_: kind == 7 or i >= 25,
    'split == "train" and label == "cat"': lambda i, age, ok, kind, split, mask: split == "train" and i < 25,
    "mask is not null": lambda i, age, ok, kind, split, mask: mask is not None,
    'name glob "dog/*3?.png"': lambda i, *_: 30 <= i < 40,
    "height == 8 and width >= 10": lambda i, *_: i % 3 == 2,
    "width > height": lambda i, *_: i % 3 > 0,
    "size > 0": lambda i, *_: True,
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_the_chosen_samples_come_with_all_that_belongs_to_them(pack: Path, tmp_path: Path, text: str) -> None:
    summary = packer.convert(pack, tmp_path / "chosen.h5", where=text)
    expected = [number for number in range(40) if CONDITIONS[text](number, *values_of(number))]
    assert len(expected) > 0
    others = 40 - len(expected)
    assert summary.notes == [f"left out: {others} samples: --where does not select them"] * bool(others)
    with open_pack(pack) as whole, open_pack(tmp_path / "chosen.h5") as chosen:
        assert list(chosen.names) == [whole.names[number] for number in expected]
        assert chosen.manifest.classes == ["cat", "dog"]
        assert chosen.manifest.source["where"] == text
        for place, number in enumerate(expected):
            assert bytes(chosen.read(place)) == bytes(whole.read(number))
            assert [field.decode(chosen.value(place, field.name)) for field in FIELDS] == list(values_of(number))
    assert packer.verify(tmp_path / "chosen.h5") == []


def test_parts_a_limit_and_a_sample_are_of_the_chosen(pack: Path, tmp_path: Path) -> None:
    text = "age >= 10"
    names = {}
    for what, options in {
        "whole": {},
        "parts": {"parts": 3},
        "limit": {"limit": 5},
        "sample": {"sample": 5},
        "again": {"sample": 5, "parts": 2},
    }.items():
        packer.convert(pack, tmp_path / f"{what}.lmdb", where=text, **options)  # type: ignore[arg-type]
        with open_pack(tmp_path / f"{what}.lmdb") as reader:
            names[what] = list(reader.names)
            assert reader.manifest.source["where"] == text
    assert names["whole"] == names["parts"]
    assert names["limit"] == names["whole"][:5]
    assert names["sample"] == names["again"] == [names["whole"][place] for place in (2, 7, 12, 16, 21)]  # of 24
    assert packer.digest(tmp_path / "whole.lmdb") == packer.digest(tmp_path / "parts.lmdb")


@pytest.mark.parametrize("parts", [None, 2])
def test_a_conversion_is_not_continued_with_another_condition(pack: Path, tmp_path: Path, parts: int | None) -> None:
    destination = tmp_path / "chosen.lmdb"

    def stop(progress: packer.ConversionProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packer.convert(pack, destination, where="age > 5", parts=parts, progress=stop)
    before = content(tmp_path)
    for other in ("age > 6", "age>5", None):
        with pytest.raises(ResumeError, match=r"where= was age > 5 and is now (age ?> ?[56]|not given)"):
            packer.convert(pack, destination, where=other, parts=parts)
    assert content(tmp_path) == before
    packer.convert(pack, destination, where="age > 5", parts=parts)
    packer.convert(pack, tmp_path / "whole.lmdb", where="age > 5", parts=parts)
    assert content(destination) == content(tmp_path / "whole.lmdb")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("age > 100", "where= selects none of the 40 samples"),
        ("agee > 1", "no column agee"),
        ("age >", "but the condition ends here"),
    ],
)
def test_a_condition_that_chooses_nothing_is_refused(pack: Path, tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        packer.convert(pack, tmp_path / "none.lmdb", where=text)
    assert not list(tmp_path.iterdir())


def test_a_damaged_column_is_not_asked(pack: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.lmdb"
    data = bytearray(pack.read_bytes())
    with open_pack(pack) as reader:
        ages = reader.column("age")[0].tobytes()
    data[data.index(ages) + 7] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(PackerError, match=r"column 'field\.age' does not match its checksum"):
        packer.convert(damaged, tmp_path / "x.lmdb", where="age > 3")
    assert not list(tmp_path.glob("x*"))


def test_the_command_says_how_many_and_refuses_in_one_line(pack: Path, tmp_path: Path) -> None:
    done, tree, wrong, typo = packer_many(
        [
            ["convert", pack, tmp_path / "a.pth", "--where", 'kind == "green" and split == "train"'],
            ["convert", pack.parent / "tree", tmp_path / "b.lmdb", "--where", "age > 3"],
            ["convert", pack, tmp_path / "c.lmdb", "--where", "age > 3 and"],
            ["convert", pack, tmp_path / "d.lmdb", "--where", "kind == 'gren'"],
        ]
    )
    assert done.returncode == 0
    assert " samples: --where does not select them" in done.stdout
    assert [result.returncode for result in (tree, wrong, typo)] == [2, 2, 2]
    assert "--where selects samples of a pack, but " in tree.stderr
    assert "where: at character 12 (its end): expected a column or a value" in wrong.stderr
    assert "where: at character 9 ('gren'): kind has no class gren. There are green, red" in typo.stderr
    assert all(len(result.stderr.splitlines()) <= 3 for result in (tree, wrong, typo))
    assert {path.name for path in tmp_path.iterdir()} == {"a.pth"}


@pytest.mark.parametrize("format", SUFFIXES)
def test_a_joined_pack_is_chosen_from_as_a_whole(pack: Path, tmp_path: Path, format: str) -> None:
    packer.convert(pack, tmp_path / f"parts{SUFFIXES[format]}", parts=3)
    packer.convert(tmp_path / f"parts{SUFFIXES[format]}", tmp_path / "a.lmdb", where='split == "val" or age > 35')
    packer.convert(pack, tmp_path / "b.lmdb", where='split == "val" or age > 35')
    assert packer.digest(tmp_path / "a.lmdb") == packer.digest(tmp_path / "b.lmdb")
