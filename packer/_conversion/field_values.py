"""Prepares field values for a pack: checks that they fit the image, and applies the image's changes to them.

An image may be rotated upright by its EXIF orientation, and resized, cut and padded by ``--resize``. The same change is
applied to field values that refer to the image's pixels. Image fields are resized like the image itself. Masks,
including those encoded as run lengths, are resized with nearest-neighbour interpolation. Boxes, keypoints and polygons
get new coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer._conversion.recipe import Change, Recipe
from packer._fields import KINDS, MARGIN, Field, Stored
from packer._fields.coco import counts_of_mask, mask_of, runs_of, text_of
from packer._images.boxes import crop_boxes, crop_keypoints, crop_points, turn_boxes, turn_keypoints, turn_points
from packer._images.cropping import decode_mask, nearest, smooth
from packer._images.decode import apply_orientation
from packer._images.encode import encode, encode_png
from packer._images.geometry import Box, is_padded
from packer._images.modes import decode_unchanged, holds_ids
from packer._images.pillow import opened
from packer._images.png import encode_deep
from packer._images.probe import inspect
from packer._table import Buffer
from packer.errors import ImageError, option

Points = npt.NDArray[np.float64]


_LOSSY = ("jpeg", "mpo", "webp", "avif", "jpeg2000", "jp2")


_DECIMALS = 3  # of the corners of moved polygons; more have no effect: masks are drawn on a grid of 1/5 pixel


def prepare_values(
    fields: Sequence[Field], values: Sequence[Stored], change: Change, recipe: Recipe
) -> tuple[Stored, ...]:
    """Check that a sample's field values fit its image, and return the values after the change of the image.

    Raises
    ------
    ImageError
        If a value does not fit the image, or cannot be changed like the image; the error names the field.
    """
    prepared: list[Stored] = []
    for field, stored in zip(fields, values, strict=True):
        try:
            follows = stored is not None and KINDS[field.kind].is_spatial
            prepared.append(_PREPARED[field.kind](field, stored, change, recipe) if follows else stored)
        except (ImageError, ValueError) as error:
            reason = error.args[0] if isinstance(error, ImageError) else str(error)
            raise ImageError(f"field {field.name!r}: {reason}") from error
    return tuple(prepared)


def _mask(field: Field, data: Buffer, change: Change, recipe: Recipe) -> Buffer:
    info = inspect(data, recipe.max_pixels)
    if info.kind in _LOSSY:
        raise ImageError(f"the mask is a {info.kind.upper()}, but masks must be stored without loss: save it as PNG")
    _require_size("mask", (info.height, info.width), change.size)
    if change.orientation == 1 and change.box is None:
        decode_mask(data, max_pixels=recipe.max_pixels)  # raises an error if the mask is invalid
        return data
    pixels = apply_orientation(decode_mask(data, max_pixels=recipe.max_pixels), change.orientation)
    if change.box is not None:
        pixels = nearest(pixels, change.box)
    return _png(pixels, data)


def _image(field: Field, data: Buffer, change: Change, recipe: Recipe) -> Buffer:
    info = inspect(data, recipe.max_pixels)
    _require_size("image", info.size_shown(change.exif), change.upright)
    turned = change.exif == "apply" and info.orientation != 1
    if change.box is None and (recipe.codec == "keep" or not turned):
        return data
    pixels = decode_unchanged(data, exif=change.exif, max_pixels=recipe.max_pixels)
    ids = holds_ids(data)
    if change.box is not None:
        pixels = nearest(pixels, change.box) if ids else smooth(pixels, change.box)
    if recipe.codec in ("jpeg", "webp") and pixels.dtype == np.uint8 and pixels.shape[2] == 3:
        return encode(pixels, recipe.codec, recipe.quality)
    return _png(pixels, data if ids else None)


def _boxes(field: Field, stored: Stored, change: Change, recipe: Recipe) -> Stored:
    return field.encode(_moved_boxes(field.decode(stored), change))


def _moved_boxes(boxes: npt.NDArray[np.float32], change: Change) -> npt.NDArray[np.float32]:
    _require_inside("box", boxes.reshape(-1, 2), change.size, 2)
    if change.orientation == 1 and change.box is None:
        return boxes
    if change.orientation != 1:
        boxes = turn_boxes(boxes, change.orientation, change.size)
    if change.box is None:
        return boxes
    moved = crop_boxes(boxes, change.box, min_size=0.0)
    if not moved.kept.all():
        raise ImageError(
            f"box {int(np.flatnonzero(~moved.kept)[0])} has no area, or lies outside the part of the image that "
            f"{option('resize')} keeps. Pass {option('resize_mode', 'short')}, which keeps the whole image, and "
            "remove boxes without area"
        )
    return moved.boxes


def _keypoints(field: Field, stored: Stored, change: Change, recipe: Recipe) -> Stored:
    return field.encode(_moved_keypoints(field.decode(stored), change))


def _moved_keypoints(keypoints: npt.NDArray[np.float32], change: Change) -> npt.NDArray[np.float32]:
    seen = keypoints.reshape(-1, 3)
    _require_inside("keypoint", np.where(seen[:, 2:] > 0, seen[:, :2], 0), change.size, 1)
    if change.orientation == 1 and change.box is None:
        return keypoints
    if change.orientation != 1:
        keypoints = turn_keypoints(keypoints, change.orientation, change.size)
    return keypoints if change.box is None else crop_keypoints(keypoints, change.box)


def _segmentation(field: Field, stored: Stored, change: Change, recipe: Recipe) -> Stored:
    segmentations = field.decode(stored)
    require_size_of_runs(segmentations, change.size)
    if change.orientation == 1 and change.box is None:
        return stored
    return field.encode(moved_segmentations(segmentations, change))


_PREPARED: Mapping[str, Callable[[Field, Any, Change, Recipe], Stored]] = {
    "mask": _mask,
    "image": _image,
    "boxes": _boxes,
    "keypoints": _keypoints,
    "segmentation": _segmentation,
}
"""For each spatial kind, the function that checks a value and applies the change of its image."""


def _require_size(what: str, found: tuple[int, int], size: tuple[int, int]) -> None:
    if found != size:
        advice = "" if what == "mask" else ". Images of other sizes can be stored as a field of the kind bytes"
        raise ImageError(
            f"the {what} has {found[1]} x {found[0]} pixels, but its image has {size[1]} x {size[0]}{advice}"
        )


def _require_inside(what: str, points: npt.NDArray[np.float32], size: tuple[int, int], each: int) -> None:
    """Raise ImageError if a point (x, y) lies outside an image; each object has `each` points."""
    height, width = size
    outside = ((points < -MARGIN) | (points > np.array([width, height], np.float32) + MARGIN)).any(1)
    for row in np.flatnonzero(outside)[:1].tolist():
        thing = points[row // each * each : row // each * each + each].ravel().tolist()
        raise ImageError(
            f"{what} {row // each} at {', '.join(f'{number:g}' for number in thing)} lies outside the image of "
            f"{width} x {height} pixels: correct it, or leave it out"
        )


def _png(pixels: npt.NDArray[Any], like: Buffer | None) -> bytes:
    """Encode pixels as a PNG, without loss, with the palette or the bit depth of the image `like`."""
    array = pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    if array.dtype.kind == "f" or array.dtype.itemsize > 2:
        raise ImageError(
            f"pixels of {array.dtype} cannot be resized or rotated: PNG has 8 or 16 bits. Store such fields as arrays "
            "or as bytes, or keep the size and the orientation of the images"
        )
    if array.ndim == 3 and array.dtype == np.uint16:
        return encode_deep(array)
    image = Image.fromarray(array)
    if like is not None:
        with opened(like) as original:
            if original.palette is not None and array.dtype == np.uint8:
                image.putpalette(original.palette.palette, original.palette.mode)
                if "transparency" in original.info:
                    image.info["transparency"] = original.info["transparency"]
            elif original.mode == "1":
                image = Image.fromarray(array.astype(bool))
    return encode_png(image)


def require_size_of_runs(segmentations: Sequence[Any], size: tuple[int, int]) -> None:
    """Raise ImageError if run lengths encode a mask whose size is not `size`, the (height, width) of the image."""
    for number, one in enumerate(segmentations):
        if isinstance(one, dict) and tuple(one["size"]) != size:
            height, width = one["size"]
            raise ImageError(
                f"the run lengths of segmentation {number} are for {width} x {height} pixels, but its image has "
                f"{size[1]} x {size[0]}: they belong to another image, or to this image at another size"
            )


def moved_segmentations(segmentations: Sequence[Any], change: Change) -> list[Any]:
    """Apply the change of an image to its segmentations.

    The corners of polygons are moved like those of boxes. A polygon that extends beyond a crop is kept whole, because a
    drawn mask ends at the crop. If a border is added to the image, polygons are cut off at the border, because the mask
    would show them there. Run lengths are decoded to a mask, which is resized with nearest-neighbour interpolation and
    encoded again.
    """
    return [_moved(one, change) for one in segmentations]


def _moved(segmentation: Any, change: Change) -> Any:
    if isinstance(segmentation, dict):
        return _moved_runs(segmentation, change)
    return None if segmentation is None else [_moved_polygon(shape, change) for shape in segmentation]


def _moved_polygon(shape: Sequence[float], change: Change) -> list[float]:
    corners = np.array(shape, np.float64).reshape(-1, 2)
    if change.orientation != 1:
        corners = turn_points(corners, change.orientation, change.size)
    if change.box is not None:
        corners = crop_points(corners, change.box)
        if is_padded(change.box):
            corners = _inside_the_image(corners, change.box)
    moved: list[float] = corners.ravel().round(_DECIMALS).tolist()
    return moved


def _inside_the_image(corners: Points, box: Box) -> Points:
    """Clip a polygon, (P, 2), at the edges between the image and its border."""
    first = -box.cut_left, -box.cut_top
    ends = first[0] + box.scaled_width, first[1] + box.scaled_height
    for axis in (0, 1):
        corners = _on_one_side(corners, axis, first[axis], 1)
        corners = _on_one_side(corners, axis, ends[axis], -1)
    return corners


def _on_one_side(corners: Points, axis: int, edge: int, sign: int) -> Points:
    """Clip a polygon at a straight edge (Sutherland and Hodgman); `sign` chooses the side that stays."""
    inside = sign * (corners[:, axis] - edge) >= 0
    inner: list[Points] = []
    for index in range(len(corners)):
        here, before = corners[index], corners[index - 1]
        if inside[index] != inside[index - 1]:
            inner.append(before + (edge - before[axis]) / (here[axis] - before[axis]) * (here - before))
        if inside[index]:
            inner.append(here)
    return np.array(inner, np.float64).reshape(-1, 2)


def _moved_runs(runs: dict[str, Any], change: Change) -> dict[str, Any]:
    """Return the run lengths of the changed mask, in the form of `runs`: as text, or as numbers."""
    mask = apply_orientation(mask_of(runs_of(runs, *change.size), *change.size), change.orientation)
    if change.box is not None:
        mask = nearest(mask, change.box)
    lengths = counts_of_mask(mask)
    counts = text_of(lengths) if isinstance(runs["counts"], str) else lengths.tolist()
    return {**runs, "size": list(mask.shape), "counts": counts}
