"""What an item of a dataset has, where it is a dict: which fields, in which order, and what becomes of each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from packer._fields import Field
from packer._fields.ofboxes import BOXES, Sizes, fields_of_boxes
from packer._images.modes import MODES
from packer.augment import Augmentation
from packer.crops import Crop

__all__ = ["VISIBILITY", "Parts", "mode_of_images", "parts_of", "require_same_parts", "require_used", "target_parts"]

OWN = ("image", "label", "name", "index")
"""What every sample has."""

VISIBILITY = "_visibility"
"""What stands after the name of keypoints in the name of their visibilities."""

_POSITIONS = ("boxes", "keypoints")
_BY_CROP = ("image", "mask", *_POSITIONS)
_LISTS = ("labels", "array", "keypoints")
_ONE_A_BOX = ("labels", "array", "json", "keypoints", "segmentation")
_FILLABLE = "a value of the field, or a number around and in the place of a mask"


@dataclass(frozen=True)
class Parts:
    """What an item has.

    Attributes
    ----------
    names : tuple of str
        Names of fields, and of `OWN`, in the order of the item.
    fields : dict of str to Field
        The fields that are read: those among `names`, and the boxes that decide which entries of others are kept.
    per_box : dict of str to str, optional
        The name of the boxes for each field that has an entry for each box; None where neither the caller nor the
        pack's fields tell.
    modes : dict of str to str
        How further images are decoded.
    fill : dict
        What stands in the place of a value that is not there.
    min_visible : float
        The least share of a box that a crop leaves.
    wrapped : bool
        Whether tensors are torchvision's `tv_tensors`.
    is_target : bool
        Whether an item is not a dict of these, but the image and a detector's target.
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
        """The keys of an item: the names, and after keypoints those of their visibilities."""
        keys: list[str] = []
        for name in self.names:
            keys.append(name)
            if name in self.fields and self.fields[name].kind == "keypoints":
                keys.append(name + VISIBILITY)
        return tuple(keys)

    def field_of(self, key: str) -> Field | None:
        """Return the field that a key of an item comes from; None of the sample's own image, label, name and index."""
        return self.fields.get(key if key in self.names else key.removesuffix(VISIBILITY))

    @property
    def masks(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name in self.fields and self.fields[name].kind == "mask")

    @property
    def cropped(self) -> tuple[str, ...]:
        """The fields that a crop changes as well."""
        return tuple(field.name for field in self.fields.values() if field.kind in _BY_CROP)

    @property
    def further_images(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields.values() if field.kind == "image")

    @property
    def positions(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields.values() if field.kind in _POSITIONS)

    def require_step(self, step: Crop | Augmentation) -> None:
        """Raise ValueError where a crop, or an augmentation that moves pixels, cannot be that of all fields.

        That is so of segmentations; and of lists beside boxes, of which such a step leaves out some, where nobody said
        whether the lists' entries go along with them.
        """
        kinds = {name: self.fields[name].kind for name in self.names if name in self.fields}
        if drawn := [name for name, kind in kinds.items() if kind == "segmentation" and not self.is_target]:
            changes = "cut" if isinstance(step, Crop) else "move"
            raise ValueError(
                f"{step!r} does not {changes} the polygons and runs of {', '.join(drawn)}: leave these out of fields=, "
                "or say target='coco', which gives their masks"
            )
        boxes = [name for name, field in self.fields.items() if field.kind == "boxes"]
        others = [name for name in self.names if name in self.fields and self.fields[name].kind in _LISTS]
        if boxes and others and self.per_box is None:
            raise ValueError(
                f"{step!r} leaves out boxes ({', '.join(boxes)}): say with per_box= which of {', '.join(others)} have "
                "an entry for each box, and lose it with the box; per_box=() where none has"
            )

    def kinds(self) -> list[tuple[str, Field | None]]:
        """Return the names with their fields, by which items of several packs can be compared."""
        return [(name, replace(self.fields[name], file="") if name in self.fields else None) for name in self.names]

    def __str__(self) -> str:
        wrapped = " (tv_tensors)" if self.wrapped else ""
        return f"fields={self.names!r}{wrapped}"


def mode_of_images(mode: str | Mapping[str, str]) -> str:
    """Return the mode of the samples' own images."""
    own = mode if isinstance(mode, str) else mode.get("image", "RGB")
    if own not in MODES:
        raise ValueError(f"mode is one of {', '.join(MODES)}, or a dict of fields and these, not {own!r}")
    return own


def parts_of(  # noqa: PLR0917
    known: Mapping[str, Field],
    wanted: str | Iterable[str],
    mode: str | Mapping[str, str],
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None,
    fill: Mapping[str, Any] | None,
    min_visible: float,
    output: str | None,
    sizes: Sizes,
) -> Parts:
    """Return what an item has, as the arguments of a dataset say.

    Parameters
    ----------
    known : mapping of str to Field
        The fields of the pack.
    wanted, mode, per_box, fill, min_visible, output
        As for `ImageDataset`.
    sizes : callable
        Returns the sizes of a field's blobs.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, or names what is not there.
    """
    names = _names(known, wanted)
    if per_box is None and BOXES in names:
        per_box = fields_of_boxes(known, sizes)
    boxes_of = {} if per_box is None else _per_box(known, per_box)
    read = {name: known[name] for name in names if name in known}
    read |= {boxes_of[name]: known[boxes_of[name]] for name in names if name in boxes_of}
    _require_no_other(known, names)
    if not 0 <= min_visible <= 1:
        raise ValueError(f"min_visible is a share of a box's area, 0 to 1, not {min_visible!r}")
    return Parts(
        names,
        read,
        None if per_box is None else boxes_of,
        _modes(known, mode),
        {name: _filling(known, name, value) for name, value in (fill or {}).items()},
        min_visible,
        output in (None, "tensor", "pil") and any(read[name].kind in _BY_CROP for name in read) and _has_tv_tensors(),
    )


def target_parts(
    known: Mapping[str, Field], target: str, min_visible: float, output: str | None, sizes: Sizes
) -> Parts:
    """Return what a detector's target is made of; ValueError where the pack has no boxes with categories."""
    if target != "coco":
        raise ValueError(f"target is None or 'coco', not {target!r}")
    if not {"boxes", "category"} <= known.keys():
        raise ValueError("target='coco' needs the fields boxes and category, as `packer convert --coco` makes them")
    per_box = [name for name in ("category", "area", "iscrowd", "segmentation") if name in known]
    names = ["image", "boxes", *per_box, *(name for name in ("image_id",) if name in known)]
    parts = parts_of(known, names, "RGB", {"boxes": per_box}, None, min_visible, output, sizes)
    return replace(parts, is_target=True)


def require_used(  # noqa: PLR0917
    fields: str | Iterable[str] | None,
    target: str | None,
    mode: str | Mapping[str, str],
    per_box: Iterable[str] | Mapping[str, Iterable[str]] | None,
    fill: Mapping[str, Any] | None,
    min_visible: float,
) -> None:
    """Raise ValueError where an argument of a dataset is about fields that its items do not have."""
    if fields is not None:
        if target is not None:
            raise ValueError("target= says which fields are read, so it goes without fields=")
        return
    others = [] if isinstance(mode, str) else [name for name in mode if name != "image"]
    said = {
        f"mode={{{', '.join(map(repr, others))}: ...}}": bool(others),
        "per_box=": per_box is not None and per_box not in ((), [], {}),
        "fill=": bool(fill),
        "min_visible=": target is None and min_visible != 0,
    }
    for argument in (argument for argument, is_said in said.items() if is_said):
        if target is not None:
            raise ValueError(f"target= says what becomes of the fields, so it goes without {argument}")
        raise ValueError(
            f"{argument} is about fields, and without fields= an item is image and label: name the fields, as "
            "fields=('image', 'label', 'mask'), or 'all'"
        )


def require_same_parts(parts: Sequence[Parts | None], roots: Sequence[str]) -> None:
    """Raise ValueError where the items of some datasets have other fields than those of others."""
    kinds = [None if one is None else one.kinds() for one in parts]
    for one, root in zip(kinds, roots, strict=True):
        if one != kinds[0]:
            for (name, here), (other, there) in zip(kinds[0] or (), one or (), strict=False):
                if name == other and here is not None and there is not None and here != there:
                    raise ValueError(f"{roots[0]} and {root} differ in field {name!r}: {_difference(here, there)}")
            shown = [names and ", ".join(name for name, _ in names) for names in (kinds[0], one)]
            raise ValueError(
                "datasets that are read together have the same fields= of the same kinds, not "
                f"{shown[0] or 'image and label'}, and {shown[1] or 'image and label'}"
            )


def _difference(here: Field, there: Field) -> str:
    """Say in what two fields differ, with what to do."""
    for what in ("kind", "dtype", "rank"):
        if (mine := getattr(here, what)) != (theirs := getattr(there, what)):
            return f"its {what} is {mine or 'none'} and {theirs or 'none'}. Convert one of them again"
    ids = [dict(zip(one.classes, one.ids or range(len(one.classes)), strict=False)) for one in (here, there)]
    name = next((name for name in {**ids[0], **ids[1]} if ids[0].get(name) != ids[1].get(name)), "")
    said = [f"has no class {name!r}" if name not in own else f"gives {name!r} the id {own[name]}" for own in ids]
    return f"the first {said[0]}, the second {said[1]}. Convert the second again, with --classes-from of the first"


def _names(known: Mapping[str, Field], wanted: str | Iterable[str]) -> tuple[str, ...]:
    if isinstance(wanted, str):
        if wanted != "all":
            raise TypeError(f"fields is a sequence of names or 'all', not {wanted!r}: say fields=({wanted!r},)")
        return ("image", "label", *known)
    names = tuple(wanted)
    for name in names:
        if name not in known and name not in OWN:
            raise ValueError(f"the pack has no field {name!r}. It has {', '.join([*OWN, *known])}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"fields are different names, one at least, not {names!r}")
    return names


def _per_box(known: Mapping[str, Field], per_box: Iterable[str] | Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Return the boxes of each field that has an entry for each of them."""
    boxes = [name for name, field in known.items() if field.kind == "boxes"]
    if isinstance(per_box, str):
        raise TypeError(f"per_box is a sequence of names of fields, not {per_box!r}: say per_box=({per_box!r},)")
    if not isinstance(per_box, Mapping):
        per_box = tuple(per_box)
        if per_box and len(boxes) != 1:
            raise ValueError(f"the pack has {len(boxes)} fields of boxes: say per_box={{boxes: fields}}")
        per_box = {boxes[0]: per_box} if per_box else {}
    found = {name: of for of, names in per_box.items() for name in names}
    for name, of in found.items():
        if of not in boxes:
            raise ValueError(f"per_box: {of!r} is no field of boxes")
        if name not in known or known[name].kind not in _ONE_A_BOX:
            raise ValueError(f"per_box: {name!r} is no field that has an entry for each box: {', '.join(_ONE_A_BOX)}")
        if known[name].kind == "array" and known[name].rank == 0:
            raise ValueError(f"per_box: {name!r} has arrays without axes")
    return found


def _modes(known: Mapping[str, Field], mode: str | Mapping[str, str]) -> dict[str, str]:
    said = {} if isinstance(mode, str) else {name: one for name, one in mode.items() if name != "image"}
    for name, one in said.items():
        if name not in known or known[name].kind != "image":
            raise ValueError(f"mode: {name!r} is no field of images")
        if one not in MODES:
            raise ValueError(f"mode: {name!r} is decoded as one of {', '.join(MODES)}, not {one!r}")
    return {name: said.get(name, "unchanged") for name, field in known.items() if field.kind == "image"}


def _filling(known: Mapping[str, Field], name: str, value: Any) -> Any:
    """Return what stands where a field has no value, as the field decodes its values; of a mask, a number."""
    field = known.get(name)
    if field is None:
        raise ValueError(f"fill: the pack has no field {name!r}")
    try:
        if field.kind == "mask":
            return int(np.uint16(value))
        if field.kind == "scalar" and field.dtype.startswith("float"):
            return float(value)  # also NaN, which no value is
        if field.kind == "image" or value is None:
            raise ValueError(f"fill is {_FILLABLE}")
        if field.kind == "class":
            return int(value)
        return field.decode(field.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"fill: {value!r} cannot stand in the place of {name!r}: {error}") from error


def _require_no_other(known: Mapping[str, Field], names: Sequence[str]) -> None:
    """Raise ValueError where a field has the name that packer gives to what belongs to another one."""
    for name in names:
        other = name + VISIBILITY
        if name in known and known[name].kind == "keypoints" and other in names:
            raise ValueError(f"an item cannot have {other!r} twice: it is the visibility of {name!r}, and a field")


def _has_tv_tensors() -> bool:
    """Tell whether torchvision is there; it is imported, as its transforms would take plain tensors for images."""
    try:
        importlib.import_module("torchvision.tv_tensors")
    except (ImportError, RuntimeError):  # not installed, or built for another torch
        return sys.modules.get("torchvision.tv_tensors") is not None
    return True
