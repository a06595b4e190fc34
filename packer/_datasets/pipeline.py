"""Compile the settings of a dataset into the fixed steps that make an item from a sample."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from packer._datasets.decoder import SampleDecoder
from packer._datasets.fields import Parts, in_form, item_of, wrapped_image
from packer._formats import Reader
from packer._images.geometry import Crops
from packer._images.numbers import Lookup, lookup_of
from packer._images.operations import Operations, parted
from packer._table import Row
from packer.augment import Augmentation, View
from packer.augment._base import chain_of
from packer.crops import Compose, Crop
from packer.crops._crop import pads_with_black
from packer.crops._fuse import Snapshot, begins_with_pil, pointwise, split_by
from packer.errors import OptionError, OptionTypeError, warn

OUTPUTS = ("tensor", "numpy", "pil", "bytes")

Transform = Callable[[Any], Any] | None


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The steps from a sample to an item, in their order.

    Attributes
    ----------
    crop : Crop, optional
        The part of the image that packer decodes, and the size to which it is resized.
    output : one of OUTPUTS
        The form of the image before the transforms, unless there is a `lookup`.
    lookup : Lookup, optional
        The conversions to a tensor that packer applies instead of converting the image to `output`.
    transform, target_transform : callable, optional
        The remaining steps for the image, and the steps for the label.
    transforms : callable, optional
        The steps for image and label together, or for an item that is a dict.
    mode : {"RGB", "L", "unchanged"}
        The mode of decoded images.
    parts : Parts, optional
        The keys of an item, if items are dicts.
    augment : Augmentation, optional
        Operations of packer on the pixels of the crop, before the image is converted to `output`.
    views : tuple of View
        The versions that packer makes of each image, each with its own crop and augmentation. A transform is applied to
        each version in turn. If the tuple is empty, each item has a single image.
    """

    crop: Crop | None
    output: str
    lookup: Lookup | None
    transform: Transform
    target_transform: Transform
    transforms: Callable[..., Any] | None
    mode: str = "RGB"
    parts: Parts | None = None
    augment: Augmentation | None = None
    views: tuple[View, ...] = ()

    @cached_property
    def randoms(self) -> int:
        """The number of random numbers that the crops and augmentations of an image need."""
        return sum(step.randoms for step in (self.crop, self.augment, *self.views) if step is not None)

    @cached_property
    def crops(self) -> tuple[Crop, ...]:
        """The crops of an image: one, or one for each view."""
        if self.views:
            return tuple(view.crop for view in self.views)
        return () if self.crop is None and self.augment is None else (self.crop or Compose([]),)

    @cached_property
    def takes_one(self) -> bool:
        """Whether the method `sample` can make the items.

        An item with fields or views is made as a batch of one item instead.
        """
        return self.parts is None and not self.views

    @cached_property
    def interleaved(self) -> bool:
        """True if crops and transforms may draw from the same generator.

        If so, each crop is drawn just before its image is transformed.
        """
        random = self.transforms is not None or pointwise(self.transform)[1] is not None
        return self.randoms > 0 and random

    @property
    def leaves_pixels(self) -> bool:
        """Whether the image in the item is the decoded tensor, without any change."""
        return self.output == "tensor" and not (self.lookup or self.transform or self.transforms)

    @cached_property
    def row_size(self) -> tuple[int, int] | None:
        """Height and width of the images if `lookup` is the last step for each of them; otherwise None."""
        ends = self.lookup is not None and self.transform is None and self.transforms is None and self.parts is None
        return self.crop.size if ends and self.crop is not None else None

    @property
    def left(self) -> str:
        """The reason, as a clause, why images cannot be decoded directly into a batch; used only if they cannot."""
        transform = self.transform if self.transforms is None else self.transforms
        if transform is not None:
            return (
                "this transform is applied to each image separately, after packer's own steps: "
                f"{' '.join(repr(transform).split())}"
            )
        if self.lookup is None and self.output != "tensor":
            return f"the images have output={self.output!r}"
        return "the images have no fixed size: neither crop= nor a fused transform determines one"

    def sample(
        self,
        reader: Reader,
        decoder: SampleDecoder,
        row: Row,
        label: int | float,
        random: npt.NDArray[np.float64] | None,
    ) -> tuple[Any, Any]:
        """Read one sample and return its item; call this method only if `takes_one` is true.

        Parameters
        ----------
        random : (randoms,) float64 array, optional
            The random numbers for crop and augmentation; None draws them from torch's generator.
        """
        if self.output == "bytes":
            image: Any = bytes(reader.read_row(row))
        elif not self.crops:
            image = self.transform_input(decoder.decode_whole(row, reader.read_row(row)))
        else:
            box, operations = decoder.choose(self.crops[0], self.augment, row, random)
            image = self.transform_input(decoder.decode_crop(row, reader.read_row(row), box, operations))
        return self.item(image, label)

    def transform_input(self, pixels: npt.NDArray[Any]) -> Any:
        """Return (height, width, channels) pixels in the form that the transforms expect."""
        return in_form(self.output, pixels) if self.lookup is None else self.lookup(pixels)

    def item(self, image: Any, label: Any) -> tuple[Any, Any]:
        """Make an item from a decoded image and a label."""
        if self.parts is not None and self.parts.wrapped and isinstance(image, torch.Tensor) and self.lookup is None:
            image = wrapped_image(image)
        if self.transforms is not None:
            both: tuple[Any, Any] = self.transforms(image, label)
            return both
        if self.transform is not None:
            image = self._transformed(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def dict_item(self, values: Mapping[str, Any], size: tuple[int, int]) -> Any:
        """Make an item from a sample's values, including a decoded image; `size` is the size of the image."""
        assert self.parts is not None
        item = item_of(self.parts, values, self.output, size)
        if self.transforms is not None:
            return self.transforms(item)
        for name, transform in (("image", self._transformed), ("label", self.target_transform)):
            if transform is not None and name in item:
                item[name] = transform(item[name])
        return item

    def followed(self, crops: Crops | None) -> tuple[Crops | None, Operations | None]:
        """Return the crops and operations to apply to fields.

        If items have no crop, the returned crops are None: field values refer to the whole image.
        """
        if crops is None:
            return None, None
        bare, operations = followed_by_fields(crops)
        return None if self.crop is None else bare, operations

    def without_transforms(self) -> Pipeline:
        """Return only packer's own steps, without the user's transforms."""
        return replace(self, lookup=None, transform=None, target_transform=None, transforms=None)

    def _transformed(self, image: Any) -> Any:
        """Apply the transform to an image, or to each view in a tuple."""
        if self.transform is None:
            return image
        return tuple(map(self.transform, image)) if self.views else self.transform(image)

    def __str__(self) -> str:
        """Return packer's steps and the remaining transforms in one line."""
        steps = self.crop, self.augment, self.views or None, self.lookup
        own = ", ".join(f"{step!r}" for step in steps if step is not None)
        own = f"packer: {own}" if own else ""
        left = self.transform if self.transforms is None else self.transforms
        others = " ".join(f"then: {left!r}".split()) if left is not None else ""
        form = f"output={self.output!r}" if self.lookup is None else ""
        return ", ".join(filter(None, [own, form, str(self.parts or ""), others]))


@dataclass(frozen=True, eq=False)
class ItemSettings:
    """The settings of a dataset that determine how items are made; immutable, so each change returns a new object.

    Attributes
    ----------
    output, mode, fuse, transforms
        The same as in `ImageDataset`.
    transform, target_transform, crop, augment, views
        The same as in `ImageDataset`, whose properties set them.
    parts : Parts, optional
        The keys of an item, if items are dicts.
    """

    output: str | None = None
    mode: str = "RGB"
    fuse: bool = False
    transforms: Callable[..., Any] | None = None
    transform: Transform = None
    target_transform: Transform = None
    crop: Crop | None = None
    augment: Augmentation | None = None
    views: tuple[View, ...] | None = None
    parts: Parts | None = None

    def with_transform(self, name: str, transform: Transform) -> ItemSettings:
        """Return settings that replace the transform called `name`; raise TypeError or ValueError if it is invalid."""
        require_callable(name, transform)
        if transform is not None and self.transforms is not None:
            raise OptionError(
                "transforms= is applied to image and label together, so it replaces transform= and target_transform="
            )
        changed: dict[str, Any] = {name: transform}
        return replace(self, **changed)

    def with_crop(self, crop: Crop | Sequence[Crop] | None) -> ItemSettings:
        """Return settings with another crop; raise TypeError or ValueError if it is invalid or unsupported."""
        if isinstance(crop, (list, tuple)):
            crop = Compose(crop)
        if crop is not None and not isinstance(crop, Crop):
            raise OptionTypeError(
                f"crop is one of packer's crops, such as packer.RandomResizedCrop(224), not {crop!r}. To take "
                "the crop of a transform, use packer.crops.split(transform)[0], or transform= with fuse=True"
            )
        if crop is not None and self.fuse:
            raise OptionError("fuse=True takes the crop from transform=, so it contradicts crop=: pass one of them")
        if crop is not None and self.output == "bytes":
            raise OptionError("output='bytes' returns the stored bytes, which cannot be cropped")
        self._require_no_views("crop", crop)
        return replace(self, crop=crop)

    def with_augment(self, augment: Augmentation | Sequence[Augmentation] | None) -> ItemSettings:
        """Return settings with another augmentation; raise TypeError or ValueError if it is invalid or unsupported."""
        self._require_no_views("augment", augment)
        return replace(self, augment=None if augment is None else self._usable(augment))

    def with_views(self, views: Sequence[View] | None) -> ItemSettings:
        """Return settings with other views; raise TypeError or ValueError if they are invalid or unsupported."""
        return replace(self, views=None if views is None else self._usable_views(views))

    def compiled(self, transform: Transform) -> Compiled:
        """Return the steps for these settings, with `transform` applied to each image.

        Raises
        ------
        ValueError
            If items do not contain what the transform changes, or if a crop or an augmentation cannot be applied to the
            fields.
        """
        fused = self.fused(transform)
        snapshot = Snapshot(fused) if self.fuse and fused is not None else None
        made = self._steps(transform, self.transforms if transform is self.transform else None)
        if self.parts is not None and transform is not None and not self.parts.with_image:
            raise OptionError("transform= is applied to the image, which is not in fields=: pass transforms=")
        if self.parts is not None and made.crop is not None:
            self.parts.require_step(made.crop)
        if self.parts is not None and made.augment is not None and made.augment.interpolations():
            self.parts.require_step(made.augment)
        return Compiled(self, transform, snapshot, made)

    def fused(self, transform: Transform) -> Any:
        """Return the transform whose first steps packer runs if `fuse` is set."""
        return self.transforms if transform is None and self.parts is not None else transform

    def _steps(self, transform: Transform, transforms: Callable[..., Any] | None) -> Pipeline:
        """Return the steps; with `fuse`, packer itself runs the first steps of `transform`.

        By default, the output is the form that the transform accepts. That form is a tensor for a torchvision transform
        that accepts only tensors, and otherwise a PIL image, as in ImageFolder. Without a transform, or with a
        transform of a dict, the output is a tensor.
        """
        parts, output, crop, lookup = self.parts, self.output, self.crop, None
        if output is None:
            of_dict = parts is not None and not parts.is_target
            unchanged = transform is None and (transforms is None or of_dict)
            output = "tensor" if unchanged or (transform and begins_with_pil(transform) is False) else "pil"
        if self.fuse and parts is not None and transforms is not None:
            crop, transforms = _crop_of_all(transforms, parts, output)
        elif self.fuse and (transform is None or transforms is not None or output == "bytes"):
            warn("fuse=True has no effect without transform=, or with output='bytes'")
        elif self.fuse and parts is not None and parts.cropped:
            _warn_of(transform, f"it is applied only to the image, but the item also has {', '.join(parts.cropped)}")
        elif self.fuse and transform is not None:
            crop, lookup, transform = _fused(transform, output)
        own = crop, output, lookup, transform, self.target_transform, transforms
        return Pipeline(*own, self.mode, parts, self.augment, self.views or ())

    def _require_no_views(self, name: str, value: object) -> None:
        if value is not None and self.views is not None:
            raise OptionError(f"each of views= has its own crop and augmentation, which replace {name}=")

    def _usable_views(self, views: Sequence[View]) -> tuple[View, ...]:
        """Return the views; raise an error with the reason if this dataset does not support them."""
        if not isinstance(views, (list, tuple)) or not views or not all(isinstance(view, View) for view in views):
            raise OptionTypeError(
                "views must be a list of views, such as [packer.View(packer.RandomResizedCrop(224))] * 2, not "
                f"{views!r}"
            )
        others = {"crop=": self.crop, "augment=": self.augment, "fuse=True": self.fuse or None}
        for name in (name for name, value in others.items() if value is not None):
            raise OptionError(f"each of views= has its own crop and augmentation, which replace {name}")
        if self.transforms is not None:
            raise OptionError(
                "transforms= expects one image, but views= make several; pass transform=, which is applied to each view"
            )
        if self.output == "bytes":
            raise OptionError("output='bytes' returns the stored bytes, from which views cannot be made")
        if self.parts is not None and self.parts.cropped:
            fields = ", ".join(self.parts.cropped)
            raise OptionError(
                f"views= make several images of a sample, but {fields} would belong to only one of "
                f"them: leave it out of fields="
            )
        for view in views:
            if view.augment is not None:
                self._usable(view.augment)
            if self.parts is not None:
                self.parts.require_step(view.crop)
        return tuple(views)

    def _usable(self, augment: Augmentation | Sequence[Augmentation]) -> Augmentation:
        """Return the augmentations as one; raise an error with the reason if this dataset does not support them."""
        chain = chain_of(augment)
        if self.output == "bytes":
            raise OptionError("output='bytes' returns the stored bytes, which cannot be augmented")
        if self.mode != "RGB":
            raise OptionError(f"augment= supports only RGB images, not mode={self.mode!r}")
        others = self.parts.further_images if self.parts is not None else ()
        if others and "bilinear" in chain.interpolations():
            raise OptionError(
                f"augment= moves other image fields with nearest-neighbour interpolation: with {', '.join(others)}, "
                "pass interpolation='nearest', or leave these out of fields="
            )
        return chain


SettingsChange = Callable[[ItemSettings], ItemSettings]


class ItemDataset(Dataset[tuple[Any, Any]]):
    """The item settings of a dataset as attributes, for one or more packs."""

    def _item_settings(self) -> ItemSettings:
        """Return the settings; for several packs, the settings of the first one."""
        raise NotImplementedError

    def _change_settings(self, change: SettingsChange) -> None:
        """Replace the settings of each pack by the result of `change`, a function of the settings."""
        raise NotImplementedError

    @property
    def transform(self) -> Transform:
        """The transform of each image; you may replace it between two passes."""
        return self._item_settings().transform

    @transform.setter
    def transform(self, transform: Transform) -> None:
        self._change_settings(lambda settings: settings.with_transform("transform", transform))

    @property
    def target_transform(self) -> Transform:
        """The transform of each label; you may replace it between two passes."""
        return self._item_settings().target_transform

    @target_transform.setter
    def target_transform(self, target_transform: Transform) -> None:
        self._change_settings(lambda settings: settings.with_transform("target_transform", target_transform))

    @property
    def transforms(self) -> Any:
        """The transform of image and label together: `transforms`, or `transform` and `target_transform` in one."""
        return self._item_settings().transforms or joint(self.transform, self.target_transform)

    @property
    def crop(self) -> Crop | None:
        """The crop that selects the part of each image to decode; you may replace it between two passes."""
        return self._item_settings().crop

    @crop.setter
    def crop(self, crop: Crop | Sequence[Crop] | None) -> None:
        self._change_settings(lambda settings: settings.with_crop(crop))

    @property
    def augment(self) -> Augmentation | None:
        """The operations on the pixels of each crop; you may replace them between two passes."""
        return self._item_settings().augment

    @augment.setter
    def augment(self, augment: Augmentation | Sequence[Augmentation] | None) -> None:
        self._change_settings(lambda settings: settings.with_augment(augment))

    @property
    def views(self) -> tuple[View, ...] | None:
        """The views of each image, if there are several; you may replace them between two passes."""
        return self._item_settings().views

    @views.setter
    def views(self, views: Sequence[View] | None) -> None:
        self._change_settings(lambda settings: settings.with_views(views))


def joint(transform: Any, target_transform: Any) -> Any:
    """Join two transforms into one callable, as torchvision's VisionDataset does; None if both are None."""
    if transform is None and target_transform is None:
        return None
    vision = sys.modules.get("torchvision.datasets.vision")
    if vision is None:
        return lambda image, target: (
            transform(image) if transform is not None else image,
            target_transform(target) if target_transform is not None else target,
        )
    return vision.StandardTransform(transform, target_transform)


def followed_by_fields(crops: Crops) -> tuple[Crops | None, Operations | None]:
    """Return the crops and operations to apply to the fields of N images.

    If `crops` are crops of views, return (None, None).
    """
    return (None, None) if crops.ndim == 2 else parted(crops)


class Compiled(NamedTuple):
    """Steps, the settings from which they were compiled, and a snapshot to notice later changes of the transform."""

    settings: ItemSettings
    transform: Transform
    snapshot: Snapshot | None
    pipeline: Pipeline

    def fits(self, settings: ItemSettings, transform: Transform) -> bool:
        """Tell whether compiling these settings and this transform would give the same steps."""
        same = self.settings is settings and self.transform is transform
        return same and (self.snapshot is None or self.snapshot.holds(settings.fused(transform)))


def _fused(transform: Any, output: str) -> tuple[Crop | None, Lookup | None, Transform]:
    """Split a transform into the crop and the conversions at its beginning, and the remaining steps."""
    # torchvision's crops do not accept arrays.
    crop, rest = (None, transform) if output == "numpy" else split_by(transform, output == "tensor")
    conversions, left = pointwise(rest)
    lookup = lookup_of(conversions, lambda pixels: in_form(output, pixels)) if conversions else None
    if crop is None and lookup is None:
        _warn_of(transform, "packer does not support the first step of the transform")
    return crop, lookup, rest if lookup is None else left


def _crop_of_all(
    transforms: Callable[..., Any], parts: Parts, output: str
) -> tuple[Crop | None, Callable[..., Any] | None]:
    """Split a joint transform into its first crop and the rest, if packer's crop changes fields as torchvision's does.

    packer's crops remove boxes that torchvision's crops keep. Resized image fields get other pixels than in
    torchvision.
    """
    crop, rest = split_by(transforms, True) if output == "tensor" and parts.wrapped else (None, transforms)
    if crop is None:
        _warn_of(transforms, "packer does not support the first step of the transform, or the item has no tv_tensors")
    elif parts.coordinates:
        _warn_of(
            transforms, f"packer's crops remove boxes that torchvision's crops keep: {', '.join(parts.coordinates)}"
        )
    elif set(parts.cropped) - set(parts.masks):
        _warn_of(transforms, "the transform also resizes image fields, with other pixels than packer")
    elif not pads_with_black(crop) or any(name in parts.fill for name in parts.masks):
        _warn_of(transforms, "packer pads masks with the value of fill=, or 0")
    else:
        return crop, rest
    return None, transforms


def _warn_of(transform: Any, reason: str) -> None:
    warn(f"fuse=True has no effect: {reason}: {' '.join(repr(transform).split())}")


def require_callable(name: str, transform: object) -> None:
    """Raise TypeError if a transform is not callable, or if it is (or contains) a crop or augmentation of packer."""
    steps = getattr(transform, "transforms", ())
    for step in (transform, *(steps if isinstance(steps, (list, tuple)) else ())):
        if isinstance(step, (Augmentation, Crop)):
            option = "augment=[...]" if isinstance(step, Augmentation) else "crop="
            raise OptionTypeError(
                f"{step!r} is not a step of {name}=: pass it to the dataset as {option}, which is applied first"
            )
    if transform is not None and not callable(transform):
        raise OptionTypeError(
            f"{name} must be a callable that is applied to the items of a dataset or a Loader, not {transform!r}"
        )
