"""A Loader over items with fields: threads and processes make the same dicts, and a pass resumes at its sample."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Subset

import packer
from packer import ImageError, Loader, RandomResizedCrop, open_dataset
from packer._fields import Field
from packer._formats import FORMATS
from packer._loader.prefetch import map_tensors
from packer._table import Sample
from packer.testing.samples import FIELDS as FIELDS_OF_PACKS, write_pack
from tests.conftest import FieldPacks
from tests.fieldpack import CLASSES, COUNT, KINDS, packed, sample

FIELDS = (
    "image",
    "mask",
    "boxes",
    "category",
    "age",
    "seen",
    "caption",
    "embedding",
    "points",
    "label",
    "name",
    "index",
)
SETTINGS: Any = {
    "fields": FIELDS,
    "crop": RandomResizedCrop((16, 20), flip=0.5),
    "seed": 4,
    "per_box": ("category", "points"),
    "fill": {"mask": 255, "age": -1},
}


@pytest.fixture(scope="module")
def pack(field_packs: FieldPacks) -> Path:
    return field_packs(".h5")


def cloned(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a batch, with tensors of its own."""
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in batch.items()}


def same(one: Any, other: Any) -> bool:
    """Tell whether two values, or batches, are the same."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("settings", [{"threads": 1}, {"threads": 3}, {"threads": 2, "processes": 2}])
def test_a_batch_has_its_samples(settings: dict[str, Any], pack: Path) -> None:
    with Loader(open_dataset(pack, **SETTINGS), 4, **settings) as loader:
        batches = [cloned(batch) for batch in loader]
    expected = open_dataset(pack, **SETTINGS)[:]
    assert [len(batch["name"]) for batch in batches] == [4, 4, 4, 2]
    assert tuple(batches[0]) == (*FIELDS[:9], "points_visibility", *FIELDS[9:])
    assert batches[0]["image"].shape == (4, 3, 16, 20)
    assert batches[0]["mask"].shape == (4, 1, 16, 20)
    assert batches[0]["mask"].dtype == torch.uint8
    assert batches[0]["age"].dtype == torch.float32
    assert batches[0]["seen"].dtype == torch.bool
    assert batches[0]["embedding"].shape == (4, 4)
    for number, item in enumerate(expected):
        batch, place = batches[number // 4], number % 4
        for key, value in item.items():
            found = batch[key][place]
            assert (
                torch.equal(torch.as_tensor(found), torch.as_tensor(value))
                if key not in ("name", "caption")
                else (found == value)
            ), (key, number)


def test_batches_of_items_are_those_in_place(pack: Path) -> None:
    """With a transform, even one that changes nothing, the Loader makes items and collates them."""
    in_place, made = (
        list(map(cloned, Loader(open_dataset(pack, **SETTINGS, transforms=transforms), 4)))
        for transforms in (None, dict)
    )
    assert same(in_place, made)


@pytest.mark.parametrize("pad", [4, {"boxes": 4}])
def test_ragged_fields_are_padded_and_counted(pad: Any, pack: Path) -> None:
    dataset = open_dataset(pack, **SETTINGS)
    lists, padded = (next(map(cloned, Loader(dataset, COUNT, pad=each))) for each in (None, pad))
    assert padded["boxes"].shape == (COUNT, 4, 4)
    assert padded["points"].shape == (COUNT, 4, 2, 2)
    assert padded["points_visibility"].shape == (COUNT, 4, 2)
    assert padded["category"].dtype == torch.int64
    for name in ("boxes", "category", "points"):
        counts = padded[f"{name}_count"].tolist()
        assert counts == [len(each) for each in lists[name]]
        for number, count in enumerate(counts):
            assert torch.equal(padded[name][number, :count].flatten(), lists[name][number].flatten())
            assert not padded[name][number, count:].any()


def test_what_is_no_batch_is_said(pack: Path) -> None:
    crop = RandomResizedCrop(16)
    with pytest.raises(ValueError, match=r"sample 3 \(03.png\): 'boxes' has 3 entries, but pad= allows at most 2"):
        list(Loader(open_dataset(pack, fields=("boxes",)), 7, pad=2))
    for name in ("mask", "age"):
        with pytest.raises(ValueError, match=rf"sample 5 \(05.png\): it has no '{name}'.*fill={{'{name}': ...}}"):
            list(Loader(open_dataset(pack, fields=(name, "image"), crop=crop), 7))
    with pytest.raises(ValueError, match=r"sample 1 .*'mask' has the shape \(1, 61, 88\).*crop= of a fixed size"):
        list(Loader(open_dataset(pack, fields=("mask",)), 3))
    with pytest.raises(ValueError, match="opened with fields="):
        Loader(open_dataset(pack), 7, pad=2)
    with pytest.raises(ValueError, match="'age' is not a field that can be padded"):
        Loader(open_dataset(pack, fields="all"), 7, pad={"age": 2})


def test_arrays_of_several_shapes_are_lists_or_padded_on_request(tmp_path: Path) -> None:
    made = [{"image": np.zeros((4, 4, 3), np.uint8), "curve": np.ones((number, 2))} for number in (1, 3)]
    packer.pack(made, tmp_path / "pack.pth", fields={"curve": "array:float64:2"})
    dataset = open_dataset(tmp_path / "pack.pth", fields=("curve",))
    with pytest.raises(ValueError, match=r"'curve' has the shape \(3, 2\).*pad={'curve': ...}"):
        list(Loader(dataset, 2))
    (batch,) = Loader(dataset, 2, pad={"curve": None})
    assert [len(curve) for curve in batch["curve"]] == [1, 3]
    (batch,) = Loader(dataset, 2, pad={"curve": 3})
    assert batch["curve"].sum((1, 2)).tolist() == [2, 6]
    assert batch["curve_count"].tolist() == [1, 3]


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(("first", "processes"), [(np.uint8, 0), (np.uint16, 0), (np.uint8, 1)])
def test_masks_of_eight_and_sixteen_bits_in_one_batch_keep_their_ids(
    first: Any, processes: int, tmp_path: Path
) -> None:
    masks = [
        np.full((6, 6), number * 20 if number < 2 else 700 * number, np.uint8 if number < 2 else np.uint16)
        for number in range(4)
    ]
    masks = masks if first is np.uint8 else masks[::-1]
    packer.pack(
        ({"image": np.zeros((6, 6, 3), np.uint8), "mask": mask} for mask in masks),
        tmp_path / "pack.lmdb",
        fields={"mask": "mask"},
    )
    dataset = open_dataset(tmp_path / "pack.lmdb", fields=("mask", "image"), crop=packer.CenterCrop(6))
    with Loader(dataset, 4, threads=1, processes=processes) as loader:
        (batch,) = loader
        assert batch["mask"].dtype == torch.uint16
        assert batch["mask"][:, 0, 2, 2].tolist() == [mask[0, 0] for mask in masks]


def test_a_pass_goes_on_at_the_sample(pack: Path) -> None:
    def loader() -> Loader:
        return Loader(open_dataset(pack, **{**SETTINGS, "seed": None}), 3, shuffle=True, seed=9, threads=2)

    whole, stopped = loader(), loader()
    expected = list(map(cloned, whole))
    batches = iter(stopped)
    begun = [cloned(next(batches)) for _ in range(2)]
    other = loader()
    other.load_state_dict(stopped.state_dict())
    assert same([*begun, *map(cloned, other)], expected)


def test_parts_and_several_packs_are_read_as_one(pack: Path, tmp_path: Path) -> None:
    one, two = open_dataset(pack, **SETTINGS), open_dataset(packed(tmp_path / "other.pth"), **SETTINGS)
    both = ConcatDataset([Subset(one, [3, 5]), two])
    batches = list(map(cloned, Loader(both, 4, threads=2)))
    assert [name for batch in batches for name in batch["name"]] == ["03.png", "05.png"] + [
        f"{number:02d}.png" for number in range(COUNT)
    ]
    assert batches[0]["mask"].shape == (4, 1, 16, 20)
    assert torch.equal(batches[0]["image"][0], one[3]["image"])
    with pytest.raises(ValueError, match=r"the same fields= of the same kinds, but one has .*, and another has mask"):
        Loader(ConcatDataset([one, open_dataset(pack, fields=("mask",))]), 4)
    with pytest.raises(ValueError, match="image and label"):
        Loader(ConcatDataset([one, open_dataset(pack)]), 4)


def test_normalizing_leaves_masks(pack: Path) -> None:
    dataset = open_dataset(pack, **SETTINGS)
    plain, normalized = (
        cloned(next(iter(Loader(dataset, 4, normalize=each)))) for each in (None, ((0.5,) * 3, (0.5,) * 3))
    )
    assert torch.equal(plain["mask"], normalized["mask"])
    torch.testing.assert_close(normalized["image"], plain["image"] / 127.5 - 1)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("settings", [{}, {"pad": 4}, {"threads": 2, "processes": 2}])
def test_every_tensor_of_a_batch_is_on_the_gpu(settings: dict[str, Any], pack: Path) -> None:
    dataset = open_dataset(pack, **SETTINGS)
    normalize = (0.5,) * 3, (0.5,) * 3
    expected = list(map(cloned, Loader(dataset, 4, normalize=normalize)))
    if "pad" in settings:
        expected = list(map(cloned, Loader(dataset, 4, normalize=normalize, pad=4)))
    with Loader(dataset, 4, normalize=normalize, device="cuda", **settings) as loader:
        made = list(loader)
    assert {tensor.device.type for batch in made for tensor in tensors_in(batch)} == {"cuda"}
    assert same([map_tensors(batch, torch.Tensor.cpu) for batch in made], expected)


def tensors_in(batch: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(batch, found.append)
    return found


def test_another_collate_fn_gets_the_items(pack: Path) -> None:
    (names,) = Loader(open_dataset(pack, **SETTINGS), COUNT, collate_fn=lambda items: [item["name"] for item in items])
    assert names == [f"{number:02d}.png" for number in range(COUNT)]


@pytest.mark.parametrize("damaged", ["mask", "boxes"])
def test_damage_is_named_by_field_and_sample_and_the_others_are_read(damaged: str, tmp_path: Path) -> None:
    given = [dict(sample(number)) for number in range(6)]
    wanted = given[3][damaged].astype("<f4").tobytes()
    if damaged == "mask":
        file = io.BytesIO()
        Image.fromarray(given[3]["mask"]).save(file, "PNG")
        given[3]["mask"] = wanted = file.getvalue()
    path = tmp_path / "pack.lmdb"
    packer.pack(given, path, fields=KINDS, classes=CLASSES)
    data = path.read_bytes()
    at = data.index(wanted) + len(wanted) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
    settings: Any = {"crop": RandomResizedCrop(8), "fill": {"mask": 0}}
    with pytest.raises(packer.CorruptPackError, match=rf"field '{damaged}'.*checksum") as caught:
        list(Loader(open_dataset(path, fields=("image", damaged), **settings), 3))
    assert caught.value.index == 3
    others = tuple({"image", "mask", "boxes", "age"} - {damaged})
    assert (
        len(
            list(
                Loader(
                    open_dataset(
                        path,
                        fields=others,
                        **settings,
                    ),
                    3,
                    collate_fn=list,
                )
            )
        )
        == 2
    )


def test_a_mask_of_another_size_is_refused(tmp_path: Path) -> None:
    """The pack is written without `packer.pack`, which refuses this mask."""
    files = [io.BytesIO(), io.BytesIO()]
    for file, size in zip(files, [(9, 9), (8, 9)], strict=True):
        Image.new("L", size).save(file, "PNG")
    image, mask = (file.getvalue() for file in files)
    values = tuple(mask if field.name == "mask" else None for field in FIELDS_OF_PACKS)
    write_pack(FORMATS["pth"], tmp_path / "pack.pth", [Sample("a.png", 0, image, 9, 9, fields=values)])
    for crop in (None, packer.CenterCrop(3)):
        with pytest.raises(ImageError, match="field 'mask': it has 8 x 9 pixels instead of 9 x 9"):
            _ = open_dataset(tmp_path / "pack.pth", fields=("mask",), crop=crop)[0]


@pytest.mark.parametrize("settings", [{}, {"transforms": dict}])
def test_images_without_objects_are_padded_as_others_have_keypoints(settings: dict[str, Any], tmp_path: Path) -> None:
    points = [[], np.ones((2, 17, 3)), np.zeros((0, 0, 3)), np.zeros((0, 17, 3)), np.ones((1, 17, 3))]
    samples = [{"image": sample(1)["image"], "name": f"{i}.png", "points": one} for i, one in enumerate(points)]
    packer.pack(samples, tmp_path / "pack.lmdb", fields={"points": "keypoints"})
    dataset = open_dataset(tmp_path / "pack.lmdb", fields=("image", "points"), **settings)
    (batch,) = Loader(dataset, 5, pad=3)
    assert (batch["points"].shape, batch["points_visibility"].shape) == ((5, 3, 17, 2), (5, 3, 17))
    assert batch["points_count"].tolist() == [0, 2, 0, 0, 1]
    assert batch["points"].sum((1, 2, 3)).tolist() == [0, 68, 0, 0, 34]


def test_packs_whose_fields_have_other_classes_are_not_one_dataset(tmp_path: Path) -> None:
    image = sample(1)["image"]
    for name, classes in (("a", ["red", "green"]), ("b", ["green", "blue"])):
        given = {"image": image, "label": 0, "name": "1.png", "hue": "green", "hues": ["green"]}
        fields = {of: Field(of, kind, classes=tuple(classes)) for of, kind in (("hue", "class"), ("hues", "labels"))}
        packer.pack([given], tmp_path / f"{name}.lmdb", fields=fields, classes=["x"])
    paths = [tmp_path / "a.lmdb", tmp_path / "b.lmdb"]
    for name in ("hue", "hues"):
        with pytest.raises(ValueError, match=rf"differ in field '{name}': the first gives 'red' the id 0"):
            open_dataset(paths, classes="union", fields=("image", name))
    assert len(open_dataset(paths, classes="union")) == 2
