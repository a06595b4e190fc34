"""Items with fields: which values, in which order and form; what is refused."""

from __future__ import annotations

import io
import math
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import packer
from packer import ImageError, open_dataset
from packer.testing.reference import torchvision
from tests.conftest import FieldPacks
from tests.fieldpack import COUNT, KINDS, packed, sample, size_of
from tests.samples import SUFFIXES

torchvision()


@pytest.fixture(scope="module")
def pack(field_packs: FieldPacks) -> Path:
    return field_packs(".lmdb")


def take_all(items: list[Any]) -> list[Any]:
    return items


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_an_item_has_what_was_packed_in_the_order_asked_for(suffix: str, tmp_path: Path) -> None:
    wanted = ("name", "mask", "boxes", "caption", "image", "age", "seen", "embedding", "category", "label", "index")
    dataset = open_dataset(packed(tmp_path / f"pack{suffix}"), fields=wanted)
    item, given = dataset[7], sample(7)
    assert tuple(item) == wanted
    assert torch.equal(item["image"].permute(1, 2, 0), torch.from_numpy(given["image"]))
    assert torch.equal(item["mask"], torch.from_numpy(given["mask"])[None])
    np.testing.assert_array_equal(item["boxes"], given["boxes"].astype(np.float32))
    np.testing.assert_array_equal(item["category"], given["category"])
    np.testing.assert_array_equal(item["embedding"], given["embedding"])
    assert item["category"].dtype == torch.int64
    assert [item[name] for name in ("name", "caption", "age", "seen", "label", "index")] == [
        *("07.png", "sample 7", 3.5, False, 1, 7)
    ]


def test_without_fields_items_stay_image_and_label(pack: Path) -> None:
    image, label = open_dataset(pack)[3]
    assert type(image) is torch.Tensor
    assert (image.shape, label) == ((3, *size_of(3)), 0)


def test_all_is_image_label_and_every_field(pack: Path) -> None:
    keys = tuple(open_dataset(pack, fields="all")[0])
    assert keys == (*("image", "label", *KINDS)[:8], "points_visibility", *tuple(KINDS)[6:])


def test_tensors_are_torchvisions_where_transforms_need_to_know_what_they_are(pack: Path) -> None:
    item = open_dataset(pack, fields="all")[6]
    assert [type(item[name]).__name__ for name in ("image", "depth", "mask", "boxes", "points", "category")] == [
        *("Image", "Image", "Mask", "BoundingBoxes", "KeyPoints", "Tensor")
    ]
    assert item["boxes"].canvas_size == item["points"].canvas_size == size_of(6)
    assert item["boxes"].format.value == "XYXY"
    assert item["points"].shape == (2, 2, 2)
    assert item["points_visibility"].tolist() == [[2, 2], [2, 2]]
    assert item["depth"].dtype == torch.uint16


def test_without_torchvision_tensors_are_plain(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.tv_tensors", None)  # its import then fails
    item = open_dataset(pack, fields="all")[6]
    assert {type(item[name]) for name in ("image", "mask", "boxes", "points")} == {torch.Tensor}


def test_torchs_collation_makes_batches_of_the_items(pack: Path) -> None:
    dataset = open_dataset(
        pack, fields=("image", "mask", "caption", "age"), crop=packer.CenterCrop(8), fill={"mask": 0, "age": 0}
    )
    batches = list(DataLoader(dataset, 7, num_workers=1))
    assert batches[1]["image"].shape == (7, 3, 8, 8)
    assert torch.equal(batches[1]["mask"][2], dataset[9]["mask"])
    assert batches[0]["caption"][3] == "sample 3"


def test_numpy_arrays_and_pil_images(pack: Path) -> None:
    given = sample(6)
    item = open_dataset(pack, fields="all", output="numpy")[6]
    for name in ("image", "mask", "category", "embedding"):
        assert type(item[name]) is np.ndarray
        np.testing.assert_array_equal(item[name], given[name])
    np.testing.assert_array_equal(item["depth"], given["depth"][..., None])
    shown = open_dataset(pack, fields="all", output="pil")[6]
    assert (shown["image"].mode, shown["depth"].mode) == ("RGB", "I;16")
    assert type(shown["mask"]).__name__ == "Mask"  # v2's transforms would treat a PIL mask as an image


def test_bytes_are_the_stored_ones(pack: Path) -> None:
    item = open_dataset(pack, fields=("image", "mask", "caption"), output="bytes")[2]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(item["mask"]))), sample(2)["mask"])
    assert item["caption"] == "sample 2"


def test_what_is_not_there_is_none_or_what_fill_says(pack: Path) -> None:
    names = ("mask", "age", "caption")
    assert list(open_dataset(pack, fields=names)[5].values()) == [None, None, "sample 5"]
    fill = {"mask": 255, "age": math.nan}
    filled = open_dataset(pack, fields=names, fill=fill)[5]
    assert filled["mask"].shape == (1, *size_of(5))
    assert (filled["mask"] == 255).all()
    assert math.isnan(filled["age"])
    assert open_dataset(pack, fields=names, fill=fill)[4]["age"] == 2


def test_modes(pack: Path, tmp_path: Path) -> None:
    given = sample(4)
    for mode, expected in [("RGB", given["image"]), ("L", np.array(Image.fromarray(given["image"]).convert("L")))]:
        image, _ = open_dataset(pack, mode=mode, output="numpy")[4]
        np.testing.assert_array_equal(image, expected.reshape(*expected.shape[:2], -1))
    deep = [{"image": sample(number)["depth"], "depth": sample(number)["image"]} for number in range(3)]
    packer.pack(deep, tmp_path / "deep.pth", fields={"depth": "image"})
    image, _ = open_dataset(tmp_path / "deep.pth", mode="unchanged")[1]
    assert image.dtype == torch.uint16
    np.testing.assert_array_equal(image[0], sample(1)["depth"])
    crop = packer.Compose([packer.CenterCrop(20)])
    image, _ = open_dataset(tmp_path / "deep.pth", mode="unchanged", crop=crop, output="numpy")[0]
    np.testing.assert_array_equal(image[..., 0], sample(0)["depth"][20:40, 35:55])
    item = open_dataset(tmp_path / "deep.pth", fields="all", mode={"image": "unchanged", "depth": "L"})[2]
    assert (item["image"].dtype, item["depth"].shape) == (torch.uint16, (1, *size_of(2)))
    region = open_dataset(tmp_path / "deep.pth", mode="unchanged", output="numpy").read_region(0, 5, 6, 7, 8)
    np.testing.assert_array_equal(region[..., 0], sample(0)["depth"][5:12, 6:14])


def test_a_transform_is_of_the_image_alone_and_transforms_of_the_item(pack: Path) -> None:
    item = open_dataset(pack, fields=("mask", "image", "label"), transform=np.asarray, target_transform=str)[3]
    assert (type(item["image"]), item["label"]) == (np.ndarray, "0")
    assert item["mask"].shape == (1, *size_of(3))
    assert open_dataset(pack, fields=("age", "image"), transforms=list)[3] == ["age", "image"]


def test_a_selection_has_the_indices_of_the_pack(pack: Path) -> None:
    dataset = open_dataset(pack, fields=("index", "caption"))
    assert dataset[3:5][1] == dataset[-10] == {"index": 4, "caption": "sample 4"}


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize(("context", "count"), [("fork", 2), ("forkserver", 2)])
def test_workers_give_the_same_items(context: str, count: int, pack: Path) -> None:
    settings: Any = {"fields": ("image", "mask", "boxes", "age"), "crop": packer.RandomResizedCrop(8), "seed": 1}
    dataset, other = (open_dataset(pack, **settings) for _ in range(2))
    batches = DataLoader(dataset, 4, num_workers=count, multiprocessing_context=context, collate_fn=take_all)
    found = [item for batch in batches for item in batch]
    for item, expected in zip(found, pickle.loads(pickle.dumps(other)), strict=True):
        assert item["age"] == expected["age"]
        assert all(
            torch.equal(item[name], expected[name]) for name in ("image", "boxes", "mask") if expected[name] is not None
        )
    assert len(found) == COUNT


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"fields": ("image", "masks")}, ValueError, "no field 'masks'. It has image, label, name, index, mask"),
        ({"fields": "mask"}, TypeError, r"pass fields=\('mask',\)"),
        ({"fields": ()}, ValueError, "without duplicates"),
        ({"fields": ("mask", "mask")}, ValueError, "must be one or more names"),
        ({"fields": "all", "per_box": "area"}, TypeError, r"pass per_box=\('area',\)"),
        ({"fields": "all", "per_box": ("age",)}, ValueError, "'age' cannot have an entry for each box"),
        ({"fields": "all", "per_box": {"mask": ("area",)}}, ValueError, "'mask' is not a box field"),
        ({"fields": "all", "crop": packer.CenterCrop(9)}, ValueError, "list in per_box= which of category, area"),
        ({"fields": "all", "min_visible": 2}, ValueError, "0 to 1"),
        ({"fields": "all", "fill": {"age": "old"}}, ValueError, "'old' cannot replace a missing value of 'age'"),
        ({"fields": "all", "fill": {"depth": 1}}, ValueError, "cannot replace a missing value of 'depth'"),
        ({"fields": "all", "mode": {"mask": "L"}}, ValueError, "'mask' is not an image field"),
        ({"mode": "RGBA"}, ValueError, "mode must be one of RGB, L, unchanged"),
        ({"target": "coco", "fields": "all"}, ValueError, "leave out fields="),
        ({"target": "voc"}, ValueError, "None or 'coco'"),
        (
            {"per_box": ("area",)},
            ValueError,
            "per_box= applies only to fields, but without fields= an item has only image and label",
        ),
        ({"fill": {"age": 3}}, ValueError, "fill= applies only to fields"),
        ({"min_visible": 0.5}, ValueError, "min_visible= applies only to fields"),
        ({"mode": {"image": "L", "depth": "L"}}, ValueError, "mode={'depth': ...} applies only to fields"),
        ({"target": "coco", "per_box": ("area",)}, ValueError, "leave out per_box="),
        ({"target": "coco", "fill": {"age": 3}}, ValueError, "leave out fill="),
        ({"target": "coco", "mode": {"depth": "L"}}, ValueError, "leave out mode={'depth': ...}"),
        ({"mode": "L", "fuse": True, "transform": np.asarray}, ValueError, "not mode='L'"),
        ({"fields": ("mask",), "transform": np.asarray}, ValueError, "which is not in fields="),
    ],
)
def test_wrong_arguments(settings: dict[str, Any], error: type[Exception], words: str, pack: Path) -> None:
    with pytest.raises(error, match=words):
        open_dataset(pack, **settings)


def test_errors_name_field_and_sample(tmp_path: Path) -> None:
    one = {"image": sample(1)["image"], "name": "one.png", "boxes": [[0, 0, 9, 9], [1, 1, 5, 5]], "kinds": [1]}
    packer.pack([one], tmp_path / "pack.pth", fields={"boxes": "boxes", "kinds": "labels"})
    dataset = open_dataset(tmp_path / "pack.pth", fields=("boxes", "kinds"), per_box=("kinds",))
    with pytest.raises(
        ImageError, match=r"sample 0 \(one.png\).*field 'kinds': it has 1 entries, but 'boxes' has 2 boxes"
    ):
        _ = dataset[0]
