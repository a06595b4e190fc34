"""A segmentation that is drawn after a conversion gives the mask from before, rotated and resized like a mask."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._fields.coco import counts_of_mask, mask_of, runs_of, text_of
from packer._images.decode import apply_orientation

HEIGHT, WIDTH = 90, 120
RNG = np.random.default_rng(3)
PIXELS = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


def star(x: float, y: float, radius: float) -> list[float]:
    turns = [(radius if number % 2 else radius / 2, math.tau * number / 10) for number in range(10)]
    return [round(place, 2) for away, turn in turns for place in (x + away * math.cos(turn), y + away * math.sin(turn))]


POLYGONS = [[star(40, 45, 30)], [star(95, 30, 20), star(90, 70, 15)], [star(2, 88, 30)]]  # the last reaches outside
MASKS = [mask_of(runs_of(one, HEIGHT, WIDTH), HEIGHT, WIDTH) for one in POLYGONS]
RUNS = [
    {"size": [HEIGHT, WIDTH], "counts": text_of(counts_of_mask(MASKS[0]))},
    {"size": [HEIGHT, WIDTH], "counts": counts_of_mask(MASKS[1]).tolist()},
]


def packed(path: Path, segmentations: list[Any], image: Any = PIXELS, **options: Any) -> tuple[list[Any], list[Any]]:
    """Pack an image with segmentations, and with their masks in fields of masks; return both as stored."""
    fields = {"segmentation": "segmentation"} | {f"mask{number}": "mask" for number in range(len(MASKS))}
    masks = {f"mask{number}": mask for number, mask in enumerate(MASKS)}
    packer.pack([{"image": image, "segmentation": segmentations, **masks}], path, fields=fields, codec="png", **options)
    with packer.open_pack(path) as reader:
        held = {name: field.decode(reader.value(0, name)) for name, field in reader.fields.items()}
    return held["segmentation"], [np.asarray(Image.open(io.BytesIO(held[name]))) for name in masks]


def drawn(segmentation: Any, like: np.ndarray) -> np.ndarray:
    return mask_of(runs_of(segmentation, *like.shape), *like.shape)


def require_near(found: np.ndarray, mask: np.ndarray, scale: float = 1.0) -> None:
    """Assert that two masks differ in fewer pixels than part of their edge has, and hardly in their area."""
    edge = int((mask != np.roll(mask, 1, 0)).sum() + (mask != np.roll(mask, 1, 1)).sum())
    assert edge > 20
    assert (found != mask).sum() <= 0.4 * max(scale, 1) * edge
    assert abs(int(found.sum()) - int(mask.sum())) <= 0.15 * max(scale, 1) * edge


RESIZED = [
    {"resize": 45},
    {"resize": 64, "resize_mode": "exact"},
    {"resize": 60, "resize_mode": "crop"},
    {"resize": 80, "resize_mode": "pad"},
    {"resize": 200, "upscale": True},
]


@pytest.mark.parametrize("options", RESIZED)
def test_masks_that_are_drawn_after_resizing_are_those_that_were_resized(tmp_path: Path, options: Any) -> None:
    found, masks = packed(tmp_path / "a.lmdb", [*POLYGONS, *RUNS, None, []], **options)
    for segmentation, mask in zip(found[:3], masks, strict=True):
        require_near(drawn(segmentation, mask), mask, min(mask.shape) / HEIGHT)
    for segmentation, mask, given in zip(found[3:5], masks[:2], RUNS, strict=True):
        assert np.array_equal(drawn(segmentation, mask), mask)
        assert type(segmentation["counts"]) is type(given["counts"])
    assert found[5:] == [None, []]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_turns_polygons_and_runs(tmp_path: Path, orientation: int) -> None:
    stream, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(PIXELS).save(stream, "JPEG", exif=exif)
    found, masks = packed(tmp_path / "a.lmdb", [*POLYGONS, *RUNS], stream.getvalue(), exif="apply")
    for segmentation, mask, before in zip(found, [*masks, *masks[:2]], [*MASKS, *MASKS[:2]], strict=True):
        assert np.array_equal(mask, apply_orientation(before, orientation))
        require_near(drawn(segmentation, mask), mask)
    assert np.array_equal(drawn(found[3], masks[0]), masks[0])


def test_what_a_crop_cuts_off_stays_in_the_polygon(tmp_path: Path) -> None:
    square = [[0, 0, 120, 0, 120, 90, 0, 90]]
    (found,), _ = packed(tmp_path / "a.lmdb", [square], resize=60, resize_mode="crop")
    assert found == [[-10, 0, 70, 0, 70, 60, -10, 60]]
    assert drawn(found, np.zeros((60, 60))).all()


def test_without_a_change_the_bytes_stay_and_a_pack_is_changed_as_its_images_are(tmp_path: Path) -> None:
    found, _ = packed(tmp_path / "a.lmdb", [*POLYGONS, *RUNS])
    assert found == [*POLYGONS, *RUNS]
    directly, _ = packed(tmp_path / "b.lmdb", [*POLYGONS, *RUNS], resize=50)
    packer.convert(tmp_path / "a.lmdb", tmp_path / "c.lmdb", resize=50, codec="png")
    with packer.open_pack(tmp_path / "c.lmdb") as reader:
        assert reader.fields["segmentation"].decode(reader.value(0, "segmentation")) == directly


def test_runs_of_another_size_than_the_image_are_refused(tmp_path: Path) -> None:
    runs = {"size": [HEIGHT - 1, WIDTH], "counts": [(HEIGHT - 1) * WIDTH]}
    problem = "field 'segmentation': the run lengths of segmentation 1 are for 120 x 89 pixels, .* has 120 x 90"
    with pytest.raises(packer.ImageError, match=problem):
        packed(tmp_path / "a.lmdb", [None, runs])


def test_a_batch_has_a_list_of_segmentations(tmp_path: Path) -> None:
    packed(tmp_path / "a.lmdb", [*POLYGONS, *RUNS, None])
    dataset = packer.open_dataset(tmp_path / "a.lmdb", fields=("image", "segmentation"))
    (batch,) = packer.Loader(dataset, batch_size=1)
    assert batch["segmentation"] == [[*POLYGONS, *RUNS, None]]
