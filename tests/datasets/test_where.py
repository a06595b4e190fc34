"""Columns of a dataset, and conditions on them; a missing value never looks like a number."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer import open_dataset
from packer._conversion.convert import convert
from packer._fields import Field
from packer.errors import OptionError
from tests.samples import SUFFIXES, content, files_with_fields, noise

FIELDS = (
    Field("age", "scalar", "int16"),
    Field("score", "scalar", "float32"),
    Field("ok", "scalar", "bool"),
    Field("full", "scalar", "int64"),
    Field("kind", "class", classes=("red", "green"), ids=(3, 7)),
    Field("caption", "text"),
    Field("boxes", "boxes"),
)
ROWS: list[tuple[Any, ...]] = [
    (number - 5, number / 4, number % 2 == 0, number, 3 + 4 * (number % 2), f"caption {number}", [[0, 0, 1, 1]])
    for number in range(12)
]
ROWS[3] = (None, None, None, 3, None, None, None)
ROWS[8] = (0, None, None, 8, 7, "", [])


@pytest.fixture(scope="module", params=[*SUFFIXES.values(), "parts"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("columns")
    for number in range(12):
        noise(root / "tree" / ("cat" if number < 7 else "dog") / f"{number:02d}.png", number, (8, 8 + number))
    suffix = ".lmdb" if request.param == "parts" else request.param
    convert(files_with_fields(root / "tree", FIELDS, ROWS), root / f"pack{suffix}")
    if request.param != "parts":
        return root / f"pack{suffix}"
    packer.convert(root / "pack.lmdb", root / "parts.lmdb", parts=3)
    return root / "parts.lmdb"


def values(array: Any) -> list[Any]:
    """Return the values of an array, None for those that are masked."""
    return list(np.ma.asarray(array).tolist())


def test_columns_are_the_values_and_masked_where_there_are_none(path: Path) -> None:
    dataset = open_dataset(path)
    for place, field in enumerate(FIELDS[:6]):
        assert values(dataset.columns[field.name]) == [row[place] for row in ROWS], field.name
    assert dataset.columns["age"].dtype == np.int16
    assert dataset.columns["ok"].dtype == bool
    assert dataset.columns["label"].tolist() == dataset.targets.tolist()
    assert dataset.columns["name"].tolist() == [name for name, _ in dataset.samples]
    assert dataset.columns["height"].tolist() == [8] * 12
    assert dataset.columns["width"].tolist() == [8 + number for number in range(12)]
    assert dataset.columns["size"].tolist() == [len(dataset.reader.read(index)) for index in range(12)]
    assert list(dataset.columns) == [*(field.name for field in FIELDS), "label", "name", "height", "width", "size"]


def test_below_the_mask_lies_nothing_that_looks_like_a_value(path: Path) -> None:
    columns = open_dataset(path).columns
    assert isinstance(columns["age"], np.ma.MaskedArray)
    assert np.asarray(columns["age"])[3] == -(2**15)
    assert np.isnan(np.asarray(columns["score"])[[3, 8]]).all()
    assert np.asarray(columns["kind"])[3] == -1
    assert np.asarray(columns["caption"])[3] is None
    assert not np.ma.isMaskedArray(columns["full"])


def test_a_column_is_read_only_and_a_view(path: Path) -> None:
    dataset = open_dataset(path)
    for name in ("full", "age", "caption", "label", "kind", "name"):
        with pytest.raises(ValueError, match="read-only"):
            dataset.columns[name][0] = 1
    assert np.shares_memory(dataset.columns["full"], dataset.columns["full"])
    assert not dataset[:3].columns["full"].flags.writeable


def test_what_is_no_column_is_refused(path: Path) -> None:
    columns = open_dataset(path).columns
    with pytest.raises(KeyError, match=r"no column 'agee'\. There are age"):
        _ = columns["agee"]
    with pytest.raises(KeyError, match="'boxes' contains boxes"):
        _ = columns["boxes"]
    assert "boxes" in columns
    assert "agee" not in columns


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("age > 0", [6, 7, 9, 10, 11]),
        ("not age > 0", [0, 1, 2, 4, 5, 8]),
        ('kind == "green" and score >= 2.5', [11]),
        ("boxes is null", [3]),
        ('caption glob "caption 1*"', [1, 10, 11]),
        ('label == "dog" and name != "dog/09.png"', [7, 8, 10, 11]),
    ],
)
def test_a_condition_chooses_samples(path: Path, condition: str, expected: list[int]) -> None:
    dataset = open_dataset(path)
    chosen = dataset.where(condition)
    assert chosen.columns["full"].tolist() == expected
    assert chosen.samples[:] == [dataset.samples[index] for index in expected]
    assert chosen.targets.tolist() == dataset.targets[expected].tolist()
    for item, index in zip(chosen, expected, strict=True):
        assert torch.equal(item[0], dataset[index][0])
    again = pickle.loads(pickle.dumps(chosen))
    assert again.columns["full"].tolist() == expected


def test_a_condition_on_a_selection_is_of_its_samples_and_labels(path: Path) -> None:
    dataset = open_dataset(path).select([11, 8, 3, 0, 11])
    assert dataset.where("age != 0").columns["full"].tolist() == [11, 0, 11]
    assert values(dataset.columns["caption"]) == ["caption 11", "", None, "caption 0", "caption 11"]
    assert dataset.columns["name"].tolist() == [name for name, _ in dataset.samples]
    dataset.targets = [0, 1, -1, 1, 0]
    assert dataset.where('label == "cat"').columns["full"].tolist() == [11, 11]
    assert dataset.where("label is null").columns["full"].tolist() == [3]
    assert values(dataset.columns["label"]) == [0, 1, None, 1, 0]
    dataset.targets = [0.5, 1.5, -1, 0, 0]
    assert dataset.where("label < 0").columns["full"].tolist() == [3]


def test_masks_choose_what_they_say(path: Path) -> None:
    dataset = open_dataset(path)
    ages = dataset.columns["age"]
    assert dataset.where(ages > 0).columns["full"].tolist() == dataset.where("age > 0").columns["full"].tolist()
    assert dataset.where(ages != 5).columns["full"].tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]
    assert len(dataset.where(ages < -100)) == 0
    mask = np.arange(12) % 5 == 0
    for same in (mask, mask.tolist(), torch.from_numpy(mask)):
        assert dataset.where(same).columns["full"].tolist() == [0, 5, 10]
    for wrong in (mask[:5], mask.astype(int), [0, 5, 10], np.ma.masked_array(np.arange(12))):
        with pytest.raises(ValueError, match="a mask of 12 bools"):
            dataset.where(wrong)
    with pytest.raises(OptionError, match="where: at character 1 "):
        dataset.where("agee > 3")


def test_a_loader_reads_what_was_chosen(path: Path) -> None:
    dataset = open_dataset(path, crop=packer.CenterCrop(8))
    chosen = dataset.where("score > 1 or score is null")
    images = torch.cat([images for images, _ in packer.Loader(chosen, 4)])
    rows = [number for number, row in enumerate(ROWS) if row[1] is None or row[1] > 1]
    assert len(images) == len(rows)
    for image, index in itertools.zip_longest(images, rows):
        assert torch.equal(image, dataset[index][0])


def test_choosing_changes_no_file(path: Path) -> None:
    before = content(path)
    with open_dataset(path) as dataset:
        dataset.where("age > 0").where("ok")
    assert content(path) == before


def test_packs_without_fields_have_packers_own_columns(tmp_path: Path) -> None:
    for number in range(4):
        noise(tmp_path / "tree" / f"class_{number % 2}" / f"{number}.png", number, (8 + number, 8))
    packer.convert(tmp_path / "tree", tmp_path / "pack.h5")
    packer.convert(tmp_path / "tree", tmp_path / "bare.h5", unlabeled=True)
    dataset = open_dataset(tmp_path / "pack.h5")
    assert list(dataset.columns) == ["label", "name", "height", "width", "size"]
    assert dataset.where("label == 1 and height < 11").samples[:] == [("class_1/1.png", 1)]
    assert len(open_dataset(tmp_path / "bare.h5").where("label is null")) == 4
    assert np.ma.getmaskarray(open_dataset(tmp_path / "bare.h5").columns["label"]).all()


def test_columns_of_several_packs_are_one_after_the_other(path: Path, tmp_path: Path) -> None:
    for number in range(4):
        noise(tmp_path / "tree" / ("dog" if number < 2 else "emu") / f"{number}.png", 50 + number, (9, 9))
    other = (
        *FIELDS[:4],
        Field("kind", "class", classes=("green", "blue", "grey"), ids=(3, 4, 7)),
        *FIELDS[5:6],
        Field("boxes", "mask"),
        Field("only", "scalar", "int8"),
    )
    rows: list[tuple[Any, ...]] = [(40, 1.5, True, 1, kind, None, None, 1) for kind in (3, 4, 7, None)]
    convert(files_with_fields(tmp_path / "tree", other, rows), tmp_path / "other.h5")
    both = open_dataset([path, tmp_path / "other.h5"], classes="union")
    for place, name in enumerate(("age", "score", "ok", "full")):
        assert values(both.columns[name]) == [row[place] for row in (*ROWS, *rows)], name
    assert both.columns["age"].dtype == np.int16
    assert values(both.columns["kind"])[12:] == [7, 4, 8, None]  # red stays 3 and green 7, so grey gets a new id
    assert both.columns["label"].tolist() == both.targets.tolist()
    assert both.columns["name"].tolist() == [name for name, _ in both.samples]
    assert both.datasets[1].columns["label"].tolist() == both.datasets[1].targets.tolist() == [1, 1, 2, 2]
    assert len(both.datasets[1].where("label == 'emu'")) == 2
    for condition, expected in [
        ("label == 'dog'", [7, 8, 9, 10, 11, 12, 13]),
        ("kind == 'green' and full < 4", [1, 12]),
        ("kind in ['blue', 'grey'] or age is null", [3, 13, 14]),
        (both.columns["width"] == 9, [1, 12, 13, 14, 15]),
    ]:
        chosen = both.where(condition)
        assert [name for name, _ in chosen.samples] == [both.samples[index][0] for index in expected]
    some = both.select([15, 0, 13, 13])
    assert values(some.columns["age"]) == [40, -5, 40, 40]
    assert [name for name, _ in some.where("age > 0").samples] == [both.samples[index][0] for index in (15, 13, 13)]
    for name, problem in [
        ("only", "has no column only, which .*other.h5 has"),
        ("boxes", "the column boxes contains boxes in .*, but masks in .*other.h5"),
    ]:
        with pytest.raises(OptionError, match=problem):
            both.columns[name]
        with pytest.raises(OptionError, match=f"at character 10 .*{problem}"):
            both.where(f"age>0 or {name} is null")
    with pytest.raises(KeyError, match="there is no column 'agee'"):
        both.columns["agee"]
    with pytest.raises(ValueError, match="a mask of 16 bools"):
        both.where([True])
    apart = packer.ConcatImageDataset([open_dataset(path), open_dataset(tmp_path / "other.h5")])
    assert values(apart.columns["age"]) == values(both.columns["age"])
    with pytest.raises(OptionError, match="classes='union'"):
        apart.where("label == 'dog'")
