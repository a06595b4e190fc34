"""Every operation on fields, with every kind of field: a kind that was forgotten somewhere fails here."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

import packer
from packer._datasets import fields
from packer._fields import KINDS, Field, Stored
from packer._formats import open_pack
from packer._packs.export import export_and_say
from packer._table import Sample
from packer._viewing.catalog import open_catalog
from packer._viewing.pictures import annotations_of
from tests.command import packer as packer_command
from tests.samples import write_pack

HEIGHT, WIDTH = 40, 60


def png(pixels: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png")
    return stream.getvalue()


def levels(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 200, shape).astype(np.uint8)


class Example(NamedTuple):
    """A field of a kind, with a value and the expected results.

    Attributes
    ----------
    field : Field
    value : object
    damaged : object
        A stored value that is invalid; None if every stored value of this kind is valid.
    batch : type
        The type of a batch of two values.
    shown : str
        The key of a value's description in the viewer, in addition to its text; empty if none.
    condition : str
        A condition that is true of the value.
    misplaced : object
        A value of another image; None if values do not refer to an image.
    """

    field: Field
    value: Any
    damaged: Stored
    batch: type
    shown: tuple[str, ...] = ()
    condition: str = "x is not null"
    misplaced: Any = None


MASK, RUNS = levels(HEIGHT, WIDTH), {"size": [HEIGHT, WIDTH], "counts": [100, 600, HEIGHT * WIDTH - 700]}
EXAMPLES = {
    "scalar": Example(Field("x", "scalar", "float32"), 0.5, float("nan"), torch.Tensor, condition="x > 0"),
    "class": Example(Field("x", "class", classes=("a", "b")), 1, 7, torch.Tensor, condition="x == 'b'"),
    "labels": Example(Field("x", "labels"), np.array([3, 4]), b"123", list),
    "text": Example(Field("x", "text"), "ein Hund", b"\xff", list, condition="x glob '*Hund'"),
    "json": Example(Field("x", "json"), {"a": [1, None]}, b"{", list),
    "bytes": Example(Field("x", "bytes"), b"\0\1\2", None, list),
    "array": Example(Field("x", "array", "float32", 1), np.arange(3, dtype=np.float32), b"123", torch.Tensor),
    "image": Example(
        Field("x", "image"),
        png(levels(HEIGHT, WIDTH, 3)),
        b"no image",
        torch.Tensor,
        ("picture",),
        misplaced=png(levels(9, 9, 3)),
    ),
    "mask": Example(
        Field("x", "mask"), png(MASK), b"no image", torch.Tensor, ("picture",), misplaced=png(levels(9, 9))
    ),
    "boxes": Example(
        Field("x", "boxes"),
        np.array([[20, 10, 50, 30]], np.float32),
        b"123",
        list,
        ("boxes",),
        misplaced=np.array([[20, 10, 500, 30]], np.float32),
    ),
    "keypoints": Example(
        Field("x", "keypoints"),
        np.array([[[20, 10, 2], [30, 20, 1]]], np.float32),
        b"1",
        list,
        ("keypoints",),
        misplaced=np.array([[[20, 100, 2]]], np.float32),
    ),
    "segmentation": Example(
        Field("x", "segmentation"),
        [[[10, 10, 50, 10, 30, 30]], RUNS],
        b"{}",
        list,
        ("polygons", "picture"),
        misplaced=[{"size": [9, 9], "counts": [81]}],
    ),
}

every_kind = pytest.mark.parametrize("kind", KINDS)
every_spatial_kind = pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.is_spatial])


def packed(path: Path, kind: str, value: Any = None, **options: Any) -> Path:
    """Write a pack of two samples with a value, and one without."""
    example = EXAMPLES[kind]
    value = example.value if value is None else value
    samples = [{"image": levels(HEIGHT, WIDTH, 3), "name": f"{number}.png"} for number in range(3)]
    packer.pack(
        [sample | {"x": value} if number < 2 else sample for number, sample in enumerate(samples)],
        path,
        fields={"x": example.field},
        **options,
    )
    return path


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("kinds")
    return {kind: packed(root / f"{kind}.lmdb", kind) for kind in KINDS}


@pytest.fixture
def pack(packs: dict[str, Path], kind: str) -> Path:
    return packs[kind]


def same(one: Any, other: Any) -> bool:
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def stored_in(path: Path) -> Stored:
    with open_pack(path) as reader:
        return reader.value(0, "x")


def test_every_kind_has_an_example() -> None:
    assert list(EXAMPLES) == list(KINDS)


@every_kind
def test_a_value_is_stored_and_read(kind: str, pack: Path) -> None:
    field, value = EXAMPLES[kind].field, EXAMPLES[kind].value
    with open_pack(pack) as reader:
        assert reader.fields["x"] == field
        assert same(field.decode(reader.value(0, "x")), value)
        assert reader.value(2, "x") is None
        assert field.misfit(reader.value(0, "x")) is None


@every_kind
def test_verify_finds_what_is_no_value(kind: str, pack: Path, tmp_path: Path) -> None:
    assert not packer.verify(pack)
    field, damaged, misplaced = EXAMPLES[kind].field, EXAMPLES[kind].damaged, EXAMPLES[kind].misplaced
    assert (misplaced is not None) == KINDS[kind].is_spatial
    for number, stored in enumerate((damaged, field.encode(misplaced))):
        if stored is not None:
            sample = Sample("0.png", -1, png(levels(HEIGHT, WIDTH, 3)), HEIGHT, WIDTH, (stored,))
            path = write_pack(tmp_path / f"{number}.lmdb", "lmdb", [sample], fields=[field], classes=())
            assert [damage.field for damage in packer.verify(path)] == ["x"]


@every_kind
def test_a_resized_image_changes_the_values_that_refer_to_its_pixels(kind: str, pack: Path, tmp_path: Path) -> None:
    resized = packed(tmp_path / "resized.lmdb", kind, resize=HEIGHT // 2, codec="png")
    assert (stored_in(resized) != stored_in(pack)) == KINDS[kind].is_spatial
    assert not packer.verify(resized)


@every_spatial_kind
def test_a_value_of_another_image_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(packer.PackerError, match="'x'"):
        packed(tmp_path / "misplaced.lmdb", kind, EXAMPLES[kind].misplaced)


@pytest.mark.parametrize("table", [fields._DECODERS, fields._WARPERS])
def test_every_kind_that_is_cropped_has_its_way(table: dict[str, Any]) -> None:
    assert table.keys() == {name for name, kind in KINDS.items() if kind.is_cropped}


def test_kinds_of_encoded_images_declare_what_their_pixels_are() -> None:
    assert all((kind.pixels in ("colours", "ids")) == (kind.form == "pixels") for kind in KINDS.values())


def augmented(pack: Path, **options: Any) -> Any:
    dataset = packer.open_dataset(pack, fields=("image", "x"), output="numpy", **options)
    return dataset[0]["x"]


@every_kind
@pytest.mark.parametrize(
    "step",
    [{"crop": packer.CenterCrop(24)}, {"augment": packer.augment.RandomAffine(20, translate=(0.1, 0.1)), "seed": 1}],
)
def test_crops_and_augmentations_change_values(kind: str, pack: Path, step: dict[str, Any]) -> None:
    if KINDS[kind].is_spatial and not KINDS[kind].is_cropped:
        with pytest.raises(ValueError, match=r"cannot .* of x: leave these out"):
            augmented(pack, **step)
    else:
        assert same(augmented(pack), augmented(pack, **step)) != KINDS[kind].is_cropped


@every_kind
@pytest.mark.parametrize("transforms", [None, dict])
def test_values_are_collated(kind: str, pack: Path, transforms: Callable[[Any], Any] | None) -> None:
    dataset = packer.open_dataset(pack, fields=("image", "x"), transforms=transforms).where("x is not null")
    (batch,) = packer.Loader(dataset, 2)
    assert type(batch["x"]) is EXAMPLES[kind].batch
    assert len(batch["x"]) == 2
    item = dataset[1]["x"]
    found = batch["x"][1]
    assert torch.equal(found, torch.as_tensor(item)) if isinstance(found, torch.Tensor) else same(found, item)


@every_kind
def test_conditions_choose_samples(kind: str, pack: Path) -> None:
    assert packer.open_dataset(pack).where("x is null").samples == [("2.png", -1)]
    assert len(packer.open_dataset(pack).where(EXAMPLES[kind].condition)) == 2
    if EXAMPLES[kind].condition == "x is not null":
        with pytest.raises(
            packer.OptionError, match=f"x contains {KINDS[kind].values}, which can be tested only with `is null`"
        ):
            packer.open_dataset(pack).where("x == 1")


@every_kind
def test_the_viewer_describes_values(kind: str, pack: Path) -> None:
    catalog = open_catalog([str(pack)])
    found, nothing = (annotations_of(catalog, index)[0] for index in (0, 2))
    json.dumps(found, allow_nan=False)
    assert "error" not in found
    assert found["text"]
    assert nothing == {"name": "x", "kind": kind, "text": "none"}
    assert found.keys() - {"name", "kind", "text", "labels", "ids"} == set(EXAMPLES[kind].shown)


@every_kind
def test_an_export_makes_the_same_pack(kind: str, pack: Path, tmp_path: Path) -> None:
    count, command = export_and_say(pack, tmp_path / "files")
    assert count >= 3
    assert command is not None
    packer_command(*shlex.split(command)[1:])
    with open_pack(tmp_path / "files-again.lmdb") as reader, open_pack(pack) as before:
        assert reader.fields["x"].kind == kind
        assert [reader.value(index, "x") for index in range(3)] == [before.value(index, "x") for index in range(3)]


@every_kind
@pytest.mark.parametrize("format", ["mds", "tfrecord", "wds", "parquet"])
def test_formats_of_other_tools_hold_values(kind: str, pack: Path, format: str, tmp_path: Path) -> None:
    path = tmp_path / f"pack.{format}"
    packer.convert(pack, path, format=format)
    assert not packer.verify(path)
    assert same(EXAMPLES[kind].field.decode(stored_in(path)), EXAMPLES[kind].value)
