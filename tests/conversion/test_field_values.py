"""Values of fields in a conversion: rotated and resized with their image, and refused if they do not fit it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
from packer._images.modes import decode_unchanged
from packer._images.png import encode_deep
from packer._packs.verify import verify
from packer.testing.reference import torchvision

torchvision()
from torchvision import tv_tensors  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402, N812

FIELDS = {"mask": "mask", "depth": "image", "boxes": "boxes", "points": "keypoints"}
HEIGHT, WIDTH = 30, 41
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
MASK = RNG.integers(0, 9, (HEIGHT, WIDTH), np.uint8)
DEPTH = RNG.integers(0, 65536, (HEIGHT, WIDTH)).astype(np.uint16)
BOXES = [[2, 3, 20, 17.5], [0, 0, WIDTH, HEIGHT]]
POINTS = [[[5, 6, 2], [40, 29, 1], [0, 0, 0]]]


def encoded(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, options.pop("format", "PNG"), **options)
    return stream.getvalue()


def palette_mask() -> bytes:
    image = Image.fromarray(MASK)
    image.putpalette([7 * number % 256 for number in range(30)])
    return encoded(image)


def sample(**changes: Any) -> dict[str, Any]:
    values = {"image": PIXELS, "mask": palette_mask(), "depth": DEPTH, "boxes": BOXES, "points": POINTS}
    return {**values, **changes}


def packed(path: Path, values: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Pack one sample; return its fields and its size as stored."""
    packer.pack([values], path, fields=FIELDS, **options)
    assert verify(path) == []
    with packer.open_pack(path) as reader:
        held = {name: field.decode(reader.value(0, name)) for name, field in reader.fields.items()}
        held["size"] = int(reader.table.height[0]), int(reader.table.width[0])
        return held


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize(
    ("options", "scaled", "padded"),
    [
        ({"resize": 20}, (20, 27), None),
        ({"resize": 16, "resize_mode": "long"}, (11, 16), None),
        ({"resize": 64, "resize_mode": "exact", "upscale": True}, (64, 64), None),
        ({"resize": 24, "resize_mode": "pad"}, (17, 24), (3, 4)),
    ],
)
def test_masks_boxes_and_keypoints_are_resized_as_torchvision_does(
    tmp_path: Path, options: dict[str, Any], scaled: tuple[int, int], padded: tuple[int, int] | None
) -> None:
    held = packed(tmp_path / "pack.lmdb", sample(), codec="png", **options)
    height, width = scaled
    mask = F.resize(tv_tensors.Mask(MASK[None]), [height, width])
    depth = F.resize(torch.from_numpy(DEPTH.astype(np.float32))[None], [height, width], antialias=True)
    boxes = tv_tensors.BoundingBoxes(BOXES, format="XYXY", canvas_size=(HEIGHT, WIDTH), dtype=torch.float32)
    boxes = F.resize(boxes, [height, width])
    shift = 0, 0
    if padded:
        left, top, right, bottom = 0, padded[0], 0, padded[1]
        shift = left, top
        mask, depth = (F.pad(each, [left, top, right, bottom]) for each in (mask, depth))
    assert held["size"] == tuple(mask.shape[1:])
    assert np.array_equal(pixels(held["mask"]), mask[0].numpy())
    assert Image.open(io.BytesIO(held["mask"])).mode == "P"
    assert np.abs(pixels(held["depth"]).astype(np.float32) - depth[0].numpy()).max() <= 1
    assert np.allclose(held["boxes"], boxes.numpy() + np.array([*shift, *shift]), atol=1e-3)
    scale = np.array([width / WIDTH, height / HEIGHT])
    places = np.minimum(np.array(POINTS)[0, :2, :2] * scale, [width - 1, height - 1])
    assert np.allclose(held["points"][0, :2, :2], places + shift, atol=1e-3 if padded is None else 1)
    assert held["points"][0, :, 2].tolist() == [2, 1, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_turns_all_that_belongs_to_the_image(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = encoded(Image.fromarray(PIXELS), format="JPEG", exif=exif)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[5:9, 12:30] = 1
    turned = {"exif": "apply", "codec": "png"}
    depth = encoded(Image.fromarray(DEPTH), exif=exif)  # with the same orientation as the image
    held = packed(tmp_path / "pack.lmdb", sample(image=image, mask=mask, boxes=[[12, 5, 30, 9]], depth=depth), **turned)
    rows, columns = np.nonzero(pixels(held["mask"]))
    assert held["boxes"].tolist() == [[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]
    assert held["size"] == pixels(held["mask"]).shape == pixels(held["depth"]).shape


def test_what_is_not_changed_keeps_its_bytes(tmp_path: Path) -> None:
    values = sample(depth=encoded(Image.fromarray(DEPTH), compress_level=1))
    held = packed(tmp_path / "pack.lmdb", values)
    assert held["mask"] == values["mask"]
    assert held["depth"] == values["depth"]
    assert held["boxes"].tolist() == BOXES


def test_a_pack_that_is_resized_changes_its_values_once(tmp_path: Path) -> None:
    first = tmp_path / "first.lmdb"
    packer.pack([sample()], first, fields=FIELDS)
    packer.convert(first, tmp_path / "half.h5", resize=15, codec="png")
    directly = packed(tmp_path / "direct.lmdb", sample(), resize=15, codec="png")
    with packer.open_pack(tmp_path / "half.h5") as reader:
        for name, field in reader.fields.items():
            assert np.array_equal(field.decode(reader.value(0, name)), directly[name]), name
    packer.convert(tmp_path / "half.h5", tmp_path / "copy.pth")
    assert packer.digest(tmp_path / "half.h5") == packer.digest(tmp_path / "copy.pth")


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({"mask": MASK[1:]}, {}, r"field 'mask': the mask has 41 x 29 pixels, but its image has 41 x 30"),
        (
            {"mask": encoded(Image.fromarray(MASK), format="JPEG")},
            {},
            r"field 'mask': the mask is a JPEG, but masks must be stored without loss",
        ),
        ({"mask": PIXELS}, {}, r"field 'mask': a mask has one id for each pixel"),
        ({"depth": DEPTH[:, 1:]}, {}, r"field 'depth': the image has 40 x 30 pixels"),
        ({"boxes": [*BOXES, [0, 0, 50, 9]]}, {}, r"field 'boxes': box 2 at 0, 0, 50, 9 lies outside the image"),
        ({"points": [[[50, 6, 2]]]}, {}, r"field 'points': keypoint 0 at 50, 6 lies outside"),
        ({"boxes": [[0, 0, 1, 9]]}, {"resize": 20, "resize_mode": "crop"}, r"field 'boxes': box 0 .* lies outside"),
    ],
)
def test_what_does_not_fit_its_image_is_refused(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(packer.ImageError, match=problem):
        packer.pack([sample(**changes)], tmp_path / "pack.lmdb", fields=FIELDS, **options)
    assert not (tmp_path / "pack.lmdb").exists()


def test_colours_of_16_bits_are_resized_and_keep_their_bits(tmp_path: Path) -> None:
    colours = RNG.integers(0, 65536, (HEIGHT, WIDTH, 3)).astype(np.uint16)
    held = packed(tmp_path / "pack.pth", sample(depth=encode_deep(colours)), resize=20, resize_mode="short")
    found = decode_unchanged(held["depth"])
    assert (found.dtype, found.shape[:2]) == (np.uint16, held["size"])
    assert len(np.unique(found & 255)) > 200


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_a_png_of_16_bits_has_the_pixels_that_were_written(channels: int) -> None:
    pixels = RNG.integers(0, 65536, (5, 7, channels)).astype(np.uint16)
    data = encode_deep(pixels)
    assert np.array_equal(decode_unchanged(data), pixels)
    eight = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA" if channels in (2, 4) else "RGB"))
    assert np.array_equal(eight[..., 0], pixels[..., 0] >> 8)


@pytest.mark.parametrize("resize", [None, 20])
def test_the_orientation_of_a_mask_itself_is_ignored_everywhere(tmp_path: Path, resize: int | None) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = encoded(Image.fromarray(PIXELS), format="JPEG", exif=exif)
    options: dict[str, Any] = {"exif": "apply"} | ({"resize": resize} if resize else {})
    depth = encoded(Image.fromarray(DEPTH), exif=exif)
    wanted = packed(tmp_path / "plain.lmdb", sample(image=image, depth=depth), **options)
    mask = encoded(Image.fromarray(MASK), exif=exif)
    path = tmp_path / "pack.lmdb"
    held = packed(path, sample(image=image, depth=depth, mask=mask), **options)
    assert held["size"] == wanted["size"] == pixels(held["mask"]).shape
    with packer.open_dataset(path, fields=("image", "mask")) as dataset:
        assert np.array_equal(np.asarray(dataset[0]["mask"]).reshape(held["size"]), pixels(wanted["mask"]))


def test_keypoints_without_any_keep_their_shape_where_the_image_is_resized(tmp_path: Path) -> None:
    held = packed(tmp_path / "pack.lmdb", sample(points=np.zeros((0, 17, 3))), resize=20)
    assert held["points"].shape == (0, 17, 3)
