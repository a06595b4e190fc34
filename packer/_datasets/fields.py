"""Fields of samples: the keys of an item, and the decoding, cropping and conversion of their values."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._fields import KINDS, Field, Stored
from packer._fields.coco import mask_of, runs_of
from packer._fields.field import BOXES, fields_of_boxes, names_of_boxes
from packer._formats import Reader
from packer._images.boxes import KeptBoxes, crop_boxes, crop_keypoints, warp_boxes, warp_keypoints
from packer._images.cropping import crop_image, crop_mask, decode_mask, nearest, warp_pixels
from packer._images.geometry import Box, Crops
from packer._images.modes import MODES, decode_as
from packer._images.operations import AFFINE, Operations
from packer._table import Ints
from packer.augment import Augmentation
from packer.crops import Crop
from packer.errors import ImageError, OptionError, OptionTypeError, PackerError, option, warn

OWN = ("image", "label", "name", "index")
"""The keys that every sample has."""

VISIBILITY = "_visibility"
"""The key of the visibilities of keypoints is the field's name followed by this suffix."""


@dataclass(frozen=True)
class Parts:
    """The keys of an item, and the settings for their values.

    Attributes
    ----------
    names : tuple of str
        Names of fields and names in `OWN`, in the order of the item.
    fields : dict of str to Field
        The fields to read: the fields in `names`, and the box fields that determine which entries of these fields a
        crop removes.
    per_box : dict of str to str, optional
        Maps each field that has one entry per box to the box field; None if neither the caller nor the pack specifies
        such fields.
    modes : dict of str to str
        The modes in which image fields are decoded.
    fill : dict
        For each field, the value that replaces a missing value.
    min_visible : float
        The minimum share of a box's area that must remain in a crop.
    wrapped : bool
        Whether tensors are wrapped as torchvision's `tv_tensors`.
    is_target : bool
        Whether an item is a pair of the image and a detector's target, instead of a dict of fields.
    """

    names: tuple[str, ...]
    fields: dict[str, Field]
    per_box: dict[str, str] | None
    modes: dict[str, str]
    fill: dict[str, Any]
    min_visible: float
    wrapped: bool
    is_target: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of an item: the names, and after each keypoint field the key of its visibilities."""
        keys: list[str] = []
        for name in self.names:
            keys.append(name)
            if name in self.fields and KINDS[self.fields[name].kind].has_visibilities:
                keys.append(name + VISIBILITY)
        return tuple(keys)

    def field_of(self, key: str) -> Field | None:
        """Return the field of a key of an item; None for the sample's own image, label, name and index."""
        return self.fields.get(key if key in self.names else key.removesuffix(VISIBILITY))

    @property
    def with_image(self) -> bool:
        """Whether an item contains the sample's own image."""
        return "image" in self.names

    @property
    def item_fields(self) -> dict[str, Field]:
        """The fields in `names`."""
        return {name: self.fields[name] for name in self.names if name in self.fields}

    @property
    def masks(self) -> tuple[str, ...]:
        """The mask fields in `names`."""
        return tuple(name for name, field in self.item_fields.items() if KINDS[field.kind].pixels == "ids")

    @property
    def cropped(self) -> tuple[str, ...]:
        """The fields whose values a crop changes."""
        return tuple(name for name, field in self.fields.items() if KINDS[field.kind].is_cropped)

    @property
    def further_images(self) -> tuple[str, ...]:
        """The image fields, whose images an item contains in addition to the sample's own image."""
        return tuple(name for name, field in self.fields.items() if KINDS[field.kind].pixels == "colours")

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The fields that contain coordinates in the image: boxes and keypoints."""
        return tuple(name for name in self.cropped if KINDS[self.fields[name].kind].form == "rows")

    def require_step(self, step: Crop | Augmentation) -> None:
        """Raise ValueError if a crop, or an augmentation that moves pixels, cannot be applied to all fields.

        Segmentations can be neither cropped nor moved. If items have boxes and lists, `per_box` must be known. A step
        that removes a box also removes the box's entry from each list that has one entry per box.
        """
        kinds = {name: KINDS[field.kind] for name, field in self.item_fields.items()}
        drawn = [name for name, kind in kinds.items() if kind.is_spatial and not kind.is_cropped]
        if drawn and not self.is_target:
            changes = "cut" if isinstance(step, Crop) else "move"
            raise OptionError(
                f"{step!r} cannot {changes} the polygons and run lengths of {', '.join(drawn)}: leave these out of "
                "fields=, or pass target='coco', which returns masks"
            )
        boxes = names_of_boxes(self.fields)
        others = [name for name, kind in kinds.items() if kind.is_list]
        if boxes and others and self.per_box is None:
            raise OptionError(
                f"{step!r} can remove boxes ({', '.join(boxes)}): list in per_box= which of {', '.join(others)} have "
                "an entry for each box, which is removed with the box; if none has, pass per_box=()"
            )

    def kinds(self) -> list[tuple[str, Field | None]]:
        """Return the names with their fields, to compare the items of several packs."""
        return [(name, replace(self.fields[name], file="") if name in self.fields else None) for name in self.names]

    def __str__(self) -> str:
        wrapped = " (tv_tensors)" if self.wrapped else ""
        return f"fields={self.names!r}{wrapped}"


@dataclass(frozen=True)
class FieldOptions:
    """The arguments of a dataset that determine the keys of its items and their values; see `ImageDataset`."""

    fields: str | Iterable[str] | None = None
    target: str | None = None
    mode: str | Mapping[str, str] = "RGB"
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None = None
    fill: Mapping[str, Any] | None = None
    min_visible: float = 0.0
    output: str | None = None

    @property
    def image_mode(self) -> str:
        """The mode of the samples' own images; ValueError if it is unknown."""
        own = self.mode if isinstance(self.mode, str) else self.mode.get("image", "RGB")
        if own not in MODES:
            raise OptionError(
                f"mode must be one of {', '.join(MODES)}, or a dict that maps fields to these, not {own!r}"
            )
        return own

    def require_used(self) -> None:
        """Raise ValueError if an argument for fields is set without `fields`, or together with `target`."""
        if self.fields is not None:
            if self.target is not None:
                raise OptionError("target= determines which fields are read: leave out fields=")
            return
        others = [] if isinstance(self.mode, str) else [name for name in self.mode if name != "image"]
        used = {
            f"mode={{{', '.join(map(repr, others))}: ...}}": bool(others),
            "per_box=": self.per_box is not None and self.per_box not in ((), [], {}),
            "fill=": bool(self.fill),
            "min_visible=": self.target is None and self.min_visible != 0,
        }
        for argument in (argument for argument, is_used in used.items() if is_used):
            if self.target is not None:
                raise OptionError(f"target= determines the form of the fields: leave out {argument}")
            raise OptionError(
                f"{argument} applies only to fields, but without fields= an item has only image and label: name the "
                "fields, as in fields=('image', 'label', 'mask'), or pass fields='all'"
            )

    def parts(self, reader: Reader) -> Parts | None:
        """Return the keys of the items of a pack, with their settings; None if an item is an image and a label.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value, or names a field that the pack lacks. If a target is requested,
            but the pack has no boxes with categories.
        """
        if self.target is not None:
            parts = self._with_fields_of_target(reader.fields).parts(reader)
            return None if parts is None else replace(parts, is_target=True)
        return None if self.fields is None else self._parts_with(self.fields, reader)

    def _parts_with(self, fields: str | Iterable[str], reader: Reader) -> Parts:
        known, names, per_box = reader.fields, _names(reader.fields, fields), self.per_box
        if per_box is None and BOXES in names:
            per_box = fields_of_boxes(known, lambda field: np.asarray(reader.table.more[f"field.{field}.size"]))
        boxes_of = {} if per_box is None else _per_box(known, per_box)
        read = {name: known[name] for name in names if name in known}
        read |= {boxes_of[name]: known[boxes_of[name]] for name in names if name in boxes_of}
        _require_unique_visibilities(known, names)
        if not 0 <= self.min_visible <= 1:
            raise OptionError(f"min_visible is a fraction of a box's area and must be 0 to 1, not {self.min_visible!r}")
        return Parts(
            names,
            read,
            None if per_box is None else boxes_of,
            _modes(known, self.mode),
            {name: _filling(known, name, value) for name, value in (self.fill or {}).items()},
            self.min_visible,
            self.output in (None, "tensor", "pil")
            and any(KINDS[field.kind].is_cropped for field in read.values())
            and _has_tv_tensors(),
        )

    def _with_fields_of_target(self, known: Mapping[str, Field]) -> FieldOptions:
        """Return options that read the fields from which a detector's target is made."""
        if self.target != "coco":
            raise OptionError(f"target must be None or 'coco', not {self.target!r}")
        if not {"boxes", "category"} <= known.keys():
            raise OptionError("target='coco' needs the fields boxes and category, which `packer convert --coco` makes")
        per_box = [name for name in ("category", "area", "iscrowd", "segmentation") if name in known]
        names = ["image", "boxes", *per_box, *(name for name in ("image_id",) if name in known)]
        return replace(self, fields=names, target=None, mode="RGB", per_box={"boxes": per_box}, fill=None)


def require_same_parts(parts: Sequence[Parts | None], roots: Sequence[str]) -> None:
    """Raise ValueError if the items of the datasets have different fields."""
    kinds = [None if one is None else one.kinds() for one in parts]
    for one, root in zip(kinds, roots, strict=True):
        if one != kinds[0]:
            for (name, here), (other, there) in zip(kinds[0] or (), one or (), strict=False):
                if name == other and here is not None and there is not None and here != there:
                    raise OptionError(f"{roots[0]} and {root} differ in field {name!r}: {_difference(here, there)}")
            shown = [names and ", ".join(name for name, _ in names) for names in (kinds[0], one)]
            raise OptionError(
                "datasets that are read together must have the same fields= of the same kinds, but one has "
                f"{shown[0] or 'image and label'}, and another has {shown[1] or 'image and label'}"
            )


def _difference(here: Field, there: Field) -> str:
    """Describe the difference between two fields, and the remedy."""
    for trait in ("kind", "dtype", "rank"):
        if (mine := getattr(here, trait)) != (theirs := getattr(there, trait)):
            return (
                f"its {trait} is {mine or 'none'} in the first and {theirs or 'none'} in the second. Convert one of "
                "them again"
            )
    ids = [dict(zip(one.classes, one.ids or range(len(one.classes)), strict=False)) for one in (here, there)]
    name = next((name for name in {**ids[0], **ids[1]} if ids[0].get(name) != ids[1].get(name)), "")
    clauses = [f"has no class {name!r}" if name not in own else f"gives {name!r} the id {own[name]}" for own in ids]
    return (
        f"the first {clauses[0]}, the second {clauses[1]}. Convert the second again, with {option('classes_from')} "
        "and the path of the first"
    )


def _names(known: Mapping[str, Field], fields: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(fields, str):
        if fields != "all":
            raise OptionTypeError(
                f"fields must be a sequence of names or 'all', not {fields!r}: pass fields=({fields!r},)"
            )
        return ("image", "label", *known)
    names = tuple(fields)
    for name in names:
        if name not in known and name not in OWN:
            raise OptionError(f"the pack has no field {name!r}. It has {', '.join([*OWN, *known])}")
    if not names or len(set(names)) < len(names):
        raise OptionError(f"fields must be one or more names without duplicates, not {names!r}")
    return names


def _per_box(known: Mapping[str, Field], per_box: Iterable[str] | Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Map each field that has one entry per box to its box field."""
    boxes = names_of_boxes(known)
    if isinstance(per_box, str):
        raise OptionTypeError(
            f"per_box must be a sequence of field names, not {per_box!r}: pass per_box=({per_box!r},)"
        )
    if not isinstance(per_box, Mapping):
        per_box = tuple(per_box)
        if per_box and len(boxes) != 1:
            raise OptionError(f"the pack has {len(boxes)} box fields: pass a dict such as per_box={{boxes: fields}}")
        per_box = {boxes[0]: per_box} if per_box else {}
    found = {name: of for of, names in per_box.items() for name in names}
    for name, of in found.items():
        if of not in boxes:
            raise OptionError(f"per_box: {of!r} is not a box field")
        if name not in known or not KINDS[known[name].kind].has_entries:
            able = ", ".join(name for name, kind in KINDS.items() if kind.has_entries)
            raise OptionError(
                f"per_box: {name!r} cannot have an entry for each box; only fields of these kinds can: {able}"
            )
        if KINDS[known[name].kind].form == "array" and known[name].rank == 0:
            raise OptionError(f"per_box: {name!r} has arrays without axes, so it has no entry for each box")
    return found


def _modes(known: Mapping[str, Field], mode: str | Mapping[str, str]) -> dict[str, str]:
    images = [name for name, field in known.items() if KINDS[field.kind].pixels == "colours"]
    own_modes = {} if isinstance(mode, str) else {name: one for name, one in mode.items() if name != "image"}
    for name, one in own_modes.items():
        if name not in images:
            raise OptionError(f"mode: {name!r} is not an image field")
        if one not in MODES:
            raise OptionError(f"mode: {name!r} must be decoded as one of {', '.join(MODES)}, not {one!r}")
    return {name: own_modes.get(name, "unchanged") for name in images}


def _filling(known: Mapping[str, Field], name: str, value: Any) -> Any:
    """Return a field's fill value in the same form as the field's decoded values; for a mask, return a number."""
    field = known.get(name)
    if field is None:
        raise OptionError(f"fill: the pack has no field {name!r}")
    kind = KINDS[field.kind]
    try:
        if kind.pixels == "ids":
            return int(np.uint16(value))
        if not field.is_blob and field.dtype.startswith("float"):
            return float(value)  # may be NaN, although NaN cannot be stored
        if kind.form == "pixels" or value is None:
            raise OptionError(
                "fill must be a value of the field, or for a mask the number that fills padding and missing masks"
            )
        if not field.is_blob and kind.has_classes:
            return int(value)
        return field.decode(field.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise OptionError(f"fill: {value!r} cannot replace a missing value of {name!r}: {error}") from error


def _require_unique_visibilities(known: Mapping[str, Field], names: Sequence[str]) -> None:
    """Raise ValueError if a field has the same name as the key of another field's visibilities."""
    for name in names:
        other = name + VISIBILITY
        if name in known and KINDS[known[name].kind].has_visibilities and other in names:
            raise OptionError(
                f"{other!r} is the key of the visibilities of {name!r}, and also the name of a field: leave one of "
                "the two out of fields="
            )


def _has_tv_tensors() -> bool:
    """Tell whether torchvision has `tv_tensors`; its transforms need them to recognise boxes, keypoints and masks."""
    try:
        importlib.import_module("torchvision.tv_tensors")
    except (ImportError, RuntimeError):  # not installed, or built for another torch
        return sys.modules.get("torchvision.tv_tensors") is not None
    return True


def in_form(output: str, pixels: npt.NDArray[Any]) -> Any:
    """Return (height, width, channels) pixels in the form that a dataset's `output` selects."""
    if output == "tensor":
        return as_tensor(pixels).permute(2, 0, 1)
    if output == "numpy":
        return pixels
    if pixels.dtype == np.uint16 and pixels.shape[2] > 1:
        raise OptionError(
            "Pillow does not support colour images with 16 bits per channel: pass output='tensor' or 'numpy'"
        )
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array as a tensor.

    The array is copied only if it is read-only, or if torch lacks its dtype: the copy is then int32.
    """
    if not array.flags.writeable:
        array = array.copy()  # torch warns about arrays that are read-only
    if array.dtype == np.uint8:  # a shortcut for nearly every image: the line below takes longer than `from_numpy`
        return torch.from_numpy(array)
    return torch.from_numpy(array.astype(tensor_dtype(array.dtype.name), copy=False))


def tensor_dtype(dtype: str) -> str:
    """Return the name of the torch dtype for numbers of a NumPy dtype: the same name, or int32 if torch lacks it."""
    return dtype if hasattr(torch, dtype) else "int32"


def item_of(parts: Parts, values: Mapping[str, Any], output: str, size: tuple[int, int]) -> dict[str, Any]:
    """Return an item: field values in their output forms, other values unchanged, in the order of the item's keys.

    Parameters
    ----------
    parts : Parts
    values : mapping
        All values of a sample: the field values from `FieldDecoder.samples`, and its own image, label, name and index.
    output : one of OUTPUTS
    size : (height, width)
        The size of the image in the item, to which boxes and keypoints refer.
    """
    item: dict[str, Any] = {}
    for key in parts.keys:
        field = parts.fields.get(key)
        value = values[key]
        if field is not None and value is not None:
            value = _shown(field, value, output, size, parts.wrapped)
        elif key not in parts.names and output != "numpy" and value is not None:
            value = as_tensor(value)  # the visibilities of keypoints
        elif key == "image" and parts.wrapped and output == "tensor" and isinstance(value, torch.Tensor):
            value = wrapped_image(value)
        item[key] = value
    return item


def wrapped_image(image: torch.Tensor) -> torch.Tensor:
    """Return the tensor of an image as a tv_tensor."""
    wrapped: torch.Tensor = _tv().Image(image)
    return wrapped


def target_in_form(target: dict[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return a detector's target with boxes and masks as tv_tensors; `size` is the size of its image."""
    wrapped = {**target, "boxes": _tv().BoundingBoxes(target["boxes"], format="XYXY", canvas_size=size)}
    return {**wrapped, "masks": _tv().Mask(target["masks"])} if "masks" in target else wrapped


def _shown(field: Field, value: Any, output: str, size: tuple[int, int], wrapped: bool) -> Any:
    if output == "numpy" or not isinstance(value, np.ndarray):
        return value
    if KINDS[field.kind].pixels == "colours" and output == "pil":
        return in_form(output, value)
    tensor = tensor_of(field, value)
    return _wrapped(field, tensor, size) if wrapped else tensor


def tensor_of(field: Field, value: Any) -> torch.Tensor:
    """Return an array as a tensor; pixels become channels first."""
    tensor = as_tensor(np.asarray(value))
    if KINDS[field.kind].form != "pixels":
        return tensor
    return tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)


def _wrapped(field: Field, tensor: torch.Tensor, size: tuple[int, int]) -> Any:
    tv = _tv()
    if field.kind == "boxes":
        return tv.BoundingBoxes(tensor, format="XYXY", canvas_size=size)
    if field.kind == "keypoints" and hasattr(tv, "KeyPoints"):  # torchvision 0.23 added them
        return tv.KeyPoints(tensor, canvas_size=size)
    pixels = KINDS[field.kind].pixels
    return {"ids": tv.Mask, "colours": tv.Image}[pixels](tensor) if pixels else tensor


def _tv() -> Any:
    return importlib.import_module("torchvision.tv_tensors")


_MOST_BYTES = 1 << 31  # for the masks of one image


def coco_target(values: Mapping[str, Any], size: tuple[int, int]) -> dict[str, Any]:
    """Return the target of an image in the form that torchvision's detectors expect.

    torchvision's ``wrap_dataset_for_transforms_v2`` makes the same target from ``CocoDetection``, if the same keys are
    selected. The only difference is that lists of numbers are tensors here. For an image without annotations, the
    tensors have no rows; torchvision's target then contains only ``image_id``, which no detector accepts.

    Parameters
    ----------
    values : mapping
        Values of the fields ``boxes`` and ``category``, and of ``image_id``, ``segmentation``, ``area`` and ``iscrowd``
        if the pack has these fields. A missing value is None.
    size : (int, int)
        Height and width, in pixels, of the image to which boxes and segmentations belong.

    Returns
    -------
    dict
        ``boxes``, (K, 4) float32, x y x y in pixels; ``labels``, (K,) int64, ids of categories; ``masks``, (K, H, W)
        uint8 of 0 and 1; ``image_id``, int; ``area``, (K,) float32 in pixels; ``iscrowd``, (K,) int64 of 0 and 1.
        ``masks`` is included if `values` has ``segmentation``; ``image_id``, ``area`` and ``iscrowd`` are included if
        `values` has them.

    Raises
    ------
    ValueError
        If a segmentation is invalid or has another size, or the masks need more than 2 GiB.
    """
    labels = _rows(values["category"], np.int64)
    boxes = _rows(values["boxes"], np.float32)
    target: dict[str, Any] = {"boxes": torch.from_numpy(boxes.reshape(-1, 4)), "labels": torch.from_numpy(labels)}
    if "segmentation" in values:
        target["masks"] = torch.from_numpy(_masks(values["segmentation"] or (), size))
    if "image_id" in values:
        target["image_id"] = values["image_id"]
    for name, dtype in (("area", np.float32), ("iscrowd", np.int64)):
        if name in values:
            target[name] = torch.from_numpy(_rows(values[name], dtype))
    return target


def _rows(value: Any, dtype: Any) -> Any:
    """Return a field's value as a new array, so that a tensor may use its memory; empty if the value is missing."""
    return np.array(() if value is None else value, dtype)


def _masks(segmentations: Any, size: tuple[int, int]) -> Any:
    needed = len(segmentations) * size[0] * size[1]
    if needed > _MOST_BYTES:
        raise OptionError(f"{len(segmentations):,} masks of {size[0]} x {size[1]} pixels would need more than 2 GiB")
    masks = np.empty((len(segmentations), *size), np.uint8)
    for mask, segmentation in zip(masks, segmentations, strict=True):
        mask[...] = mask_of(runs_of(segmentation, *size), *size)
    return masks


Values = dict[str, Any]
"""The values of one sample, by the names of their fields; see `FieldDecoder.samples`."""

_SEARCHED = 1000  # samples that are searched for a first mask

_Decode = Callable[["FieldDecoder", Field, Any, tuple[int, int], Box | None], Any]


class _Warps(NamedTuple):
    """Operations that move the pixels of N images.

    Attributes
    ----------
    rows : (N,) int64 array
        The rows of the images in the pack.
    operations : (N, M) array of OPERATION
    sizes : (N, 2) array
        Heights and widths, in pixels.
    """

    rows: Ints
    operations: Operations
    sizes: Ints


_WarpValues = Callable[["FieldDecoder", Field, Sequence[Any], _Warps], Sequence[Any]]


class FieldDecoder:
    """Reads and decodes field values of many samples at a time.

    Parameters
    ----------
    reader : packer.Reader
    parts : Parts
        The fields, and the settings for their values.
    library : str
        The same as for `packer._images.decode.decode`.
    """

    def __init__(self, reader: Reader, parts: Parts, library: str = "auto") -> None:
        self.reader, self.parts = reader, parts
        self._library = library
        self._exif = reader.manifest.exif
        self._warned: set[str] = set()  # the fields about which a warning was given

    def samples(
        self,
        rows: Ints,
        labels: Sequence[Any],
        crops: Crops | None,
        operations: Operations | None = None,
        memory: Mapping[str, torch.Tensor | Sequence[torch.Tensor]] | None = None,
        *,
        encoded: bool = False,
    ) -> list[Values]:
        """Return the field values, the label, the name and the row of N samples.

        Field values are changed in the same way as crops and operations change the images.

        Parameters
        ----------
        rows : (N,) int64 array
            Rows of the pack.
        labels : sequence of N labels
        crops : (N,) array of CROP, optional
            The crops of the images; without them, images are whole.
        operations : (N, M) array of OPERATION, optional
            Operations on the cropped images. Operations that move pixels also move boxes, keypoints and masks; other
            operations do not change the fields.
        memory : mapping of str to N tensors, optional
            (1, height, width) tensors into which masks are written; the returned values do not contain these masks. If
            a mask is missing, nothing is written, and the returned value is None. If the tensor's dtype cannot hold a
            mask, nothing is written, and the returned value is the mask.
        encoded : bool
            Whether images and masks are left encoded.

        Returns
        -------
        list of dict
            For each sample, the values that `Field.decode` returns, with three exceptions. A mask is a (height, width)
            array. An image is a (height, width, channels) array. Keypoints are (K, P, 2) positions, and their (K, P)
            visibilities have a key of their own. A missing value is None.

        Raises
        ------
        CorruptPackError, ImageError
            If a value is damaged; the reason begins with the name of its field.
        """
        found = self._values(rows, crops, operations, encoded=encoded)
        if memory is not None:
            self._write(found, memory)
        for row, label, values in zip(rows.tolist(), labels, found, strict=True):
            values["label"], values["index"] = label, row
            if "name" in self.parts.names:
                values["name"] = self.reader.names.get(row)
        return found

    def targets(self, rows: Ints, crops: Crops | None, operations: Operations | None = None) -> list[dict[str, Any]]:
        """Return the detector targets of N samples; boxes and masks are cropped and moved like the images.

        Raises the same errors as `samples`.
        """
        found = zip(self._values(rows, crops, operations), self.sizes(rows, None), self.sizes(rows, crops), strict=True)
        targets = []
        for number, (values, before, after) in enumerate(found):
            try:
                target = coco_target(values, before)
            except ValueError as error:
                raise self._error(int(rows[number]), "segmentation", error) from error
            if "masks" in target and (crops is not None or operations is not None):
                masks = list(target["masks"].numpy())
                if crops is not None:
                    box = Box(*crops[number].item())
                    masks = [nearest(mask, box) for mask in masks]
                if operations is not None:
                    masks = [warp_pixels(mask, operations[number], 0) for mask in masks]
                target["masks"] = torch.from_numpy(np.array(masks, np.uint8).reshape(-1, *after))
            targets.append(target_in_form(target, after) if self.parts.wrapped else target)
        return targets

    def sizes(self, rows: Ints, crops: Crops | None) -> list[tuple[int, int]]:
        """Return the (height, width) that the images of N samples have in their items."""
        table = self.reader.table
        if crops is None:
            heights, widths = table.height[rows], table.width[rows]
        else:
            heights, widths = crops["out_height"], crops["out_width"]
        return list(zip(heights.tolist(), widths.tolist(), strict=True))

    def dtype_of(self, name: str) -> str:
        """Return the dtype of the first mask of a field; uint8 if the first 1,000 samples have no mask."""
        sizes = self.reader.table.more[f"field.{name}.size"][:_SEARCHED]
        for row in np.flatnonzero(sizes > 0)[:1]:
            with contextlib.suppress(PackerError):  # reading the damaged sample raises the error
                mask = decode_mask(self.reader.blobs(np.array([row]), name)[0] or b"")
                return str(mask.dtype)
        return "uint8"

    def _values(
        self, rows: Ints, crops: Crops | None, operations: Operations | None, *, encoded: bool = False
    ) -> list[Values]:
        """Return the field values of N samples; see `samples`."""
        self.reader.require_table()
        boxes = [None] * len(rows) if crops is None else [Box(*crop) for crop in crops.tolist()]
        sizes = self.sizes(rows, None)
        found: list[Values] = [{} for _ in range(len(rows))]
        for (name, field), of_field in zip(self.parts.fields.items(), self._stored(rows), strict=True):
            kind = KINDS[field.kind]
            decode: _Decode = _DECODERS[field.kind] if kind.is_cropped else FieldDecoder._plain
            if encoded and kind.form == "pixels":
                decode = FieldDecoder._encoded
            for number, stored in enumerate(of_field):
                try:
                    value = decode(self, field, stored, sizes[number], boxes[number])
                except (ImageError, ValueError) as error:
                    raise self._error(int(rows[number]), name, error) from error
                found[number][name] = value
        if operations is not None and (operations["kind"] == AFFINE).any():
            self._warp(found, _Warps(rows, operations, np.array(self.sizes(rows, crops))))
        for row, values in zip(rows.tolist(), found, strict=True):
            self._remove_entries(row, values)
        return found

    def _stored(self, rows: Ints) -> Iterator[Sequence[Stored]]:
        """Yield, for each field, the values stored for these rows."""
        names = [name for name, field in self.parts.fields.items() if field.is_blob]
        blobs = iter(self.reader.blobs_of(rows, names))
        for name, field in self.parts.fields.items():
            if field.is_blob:
                yield next(blobs)
                continue
            values, present = self.reader.values(rows, name)
            numbers = zip(values.tolist(), present.tolist(), strict=True)
            yield [value if there else None for value, there in numbers]

    def _warp(self, found: list[Values], warps: _Warps) -> None:
        """Move boxes, and the other fields that a crop changes, like the images' pixels."""
        for name in self.parts.cropped:
            field = self.parts.fields[name]
            values = _WARPERS[field.kind](self, field, [of_sample[name] for of_sample in found], warps)
            for of_sample, value in zip(found, values, strict=True):
                of_sample[name] = value

    def _remove_entries(self, row: int, values: Values) -> None:
        """Remove the entries that belong to removed boxes, and split keypoints into positions and visibilities."""
        kept = {name: one.kept for name, one in values.items() if isinstance(one, KeptBoxes)}
        for name, of in (self.parts.per_box or {}).items():
            if values.get(name) is None or of not in kept:
                continue
            if len(values[name]) != len(kept[of]):
                reason = f"it has {len(values[name])} entries, but {of!r} has {len(kept[of])} boxes"
                raise self._error(row, name, ValueError(reason))
            values[name] = _of_boxes(values[name], kept[of])
        self._warn_of_uncut(values, kept)
        for name in kept:
            values[name] = values[name].boxes
        for name, field in self.parts.fields.items():
            if KINDS[field.kind].has_visibilities:
                points = values[name]
                values[name] = None if points is None else np.ascontiguousarray(points[..., :2])
                values[name + VISIBILITY] = None if points is None else np.ascontiguousarray(points[..., 2])

    def _warn_of_uncut(self, values: Values, kept: Mapping[str, npt.NDArray[np.bool_]]) -> None:
        """Warn once about a list that still has an entry for each original box although boxes were removed."""
        for name, field in self.parts.fields.items():
            if not KINDS[field.kind].is_list or name in (self.parts.per_box or {}):
                continue
            value = values.get(name)
            for boxes, own in kept.items():
                alike = value is not None and np.ndim(value) > 0 and len(value) == len(own) > 1
                if alike and not own.all() and name not in self._warned:
                    self._warned.add(name)
                    warn(
                        f"the crop removes some of {boxes!r}, but {name!r} keeps all entries, as many as there were "
                        f"boxes: if each entry belongs to a box, pass per_box=({name!r}, ...)"
                    )

    def _write(self, found: list[Values], memory: Mapping[str, torch.Tensor | Sequence[torch.Tensor]]) -> None:
        for name in self.parts.masks:
            for values, out in zip(found, memory.get(name, ()), strict=name in memory):
                mask, to = values[name], out.numpy()[0]
                if mask is not None and np.can_cast(mask.dtype, to.dtype, "safe"):
                    to[:] = values.pop(name)

    def _error(self, row: int, name: str, error: Exception) -> ImageError:
        """Return the error for a value, with the name of its sample."""
        reason = error.reason if isinstance(error, ImageError) else str(error)
        return ImageError(f"field {name!r}: {reason}", self.reader.describe(row))

    def _plain(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        return self.parts.fill.get(field.name) if stored is None else field.decode(stored)

    def _encoded(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        return None if stored is None else bytes(stored)

    def _mask(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        fill = self.parts.fill.get(field.name)
        if stored is None:
            shape = size if box is None else box.out
            return None if fill is None else np.full(shape, fill, np.min_scalar_type(fill))
        if box is None:
            return decode_mask(stored, size=size)
        return crop_mask(stored, size, box, fill=fill or 0)

    def _image(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        mode = self.parts.modes[field.name]
        if stored is None:
            return None
        if box is None:
            return decode_as(stored, mode, exif=self._exif, decoder=self._library)
        return crop_image(stored, size, box, mode, exif=self._exif)

    def _boxes(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        boxes = self._plain(field, stored, size, box)
        if boxes is None:
            return None
        if box is None:
            return KeptBoxes(boxes, np.ones(len(boxes), bool))
        return crop_boxes(boxes, box, min_visible=self.parts.min_visible)

    def _keypoints(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        points = self._plain(field, stored, size, box)
        return points if points is None or box is None else crop_keypoints(points, box)

    def _warp_pixels(self, field: Field, images: Sequence[Any], warps: _Warps) -> Sequence[Any]:
        """Move the pixels of masks or images.

        Empty areas get the field's fill value in masks, and the operation's fill value in images.
        """
        fill = (self.parts.fill.get(field.name) or 0) if KINDS[field.kind].pixels == "ids" else None
        made = []
        for row, pixels, operations in zip(warps.rows.tolist(), images, warps.operations, strict=True):
            try:
                made.append(None if pixels is None else warp_pixels(pixels, operations, fill))
            except ValueError as error:
                raise self._error(row, field.name, error) from error
        return made

    def _warp_boxes(self, field: Field, boxes: Sequence[Any], warps: _Warps) -> Sequence[Any]:
        return warp_boxes(boxes, warps.operations, warps.sizes, min_visible=self.parts.min_visible)

    def _warp_keypoints(self, field: Field, points: Sequence[Any], warps: _Warps) -> Sequence[Any]:
        return warp_keypoints(points, warps.operations, warps.sizes)


_DECODERS: Mapping[str, _Decode] = {
    "mask": FieldDecoder._mask,
    "image": FieldDecoder._image,
    "boxes": FieldDecoder._boxes,
    "keypoints": FieldDecoder._keypoints,
}
"""The methods that decode a value and crop it, for each kind that is cropped."""

_WARPERS: Mapping[str, _WarpValues] = {
    "mask": FieldDecoder._warp_pixels,
    "image": FieldDecoder._warp_pixels,
    "boxes": FieldDecoder._warp_boxes,
    "keypoints": FieldDecoder._warp_keypoints,
}
"""The methods that move the values of N samples like their images, for each kind that is cropped."""


def _of_boxes(values: Any, kept: npt.NDArray[np.bool_]) -> Any:
    """Return the entries of an array or a list for which `kept` is true; `kept` has one bool for each box."""
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, keep in zip(values, kept.tolist(), strict=True) if keep]
