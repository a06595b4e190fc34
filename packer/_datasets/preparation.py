"""What is done to an image on its way into an item: what packer does before decoding, and what a transform does.

The generators of random numbers that transforms draw from: torch's, Python's and numpy's, one each a process.

What transforms of whole batches draw from torch comes from a generator of their own instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.overrides import TorchFunctionMode

from packer._datasets.batch_decoder import Lookup, lookup_of
from packer._datasets.fields import Parts, in_form, item_of, wrapped_image
from packer._images.geometry import Crops
from packer._images.operations import Operations, parted
from packer._table import Ints
from packer.augment import Augmentation, View
from packer.crops import Compose, Crop
from packer.crops._fuse import begins_with_pil, pointwise, split_by
from packer.errors import warn
from packer.samplers._random import uniforms

__all__ = [
    "OUTPUTS",
    "Preparation",
    "Transform",
    "drawing_from",
    "followed",
    "generators",
    "preparation_of",
    "require_callable",
    "seeder",
]

OUTPUTS = ("tensor", "numpy", "pil", "bytes")

Transform = Callable[[Any], Any] | None


class Preparation(NamedTuple):
    """The steps from a sample to an item, in their order.

    Attributes
    ----------
    crop : Crop, optional
        What packer does: which part of the image is decoded, at which size.
    output : one of OUTPUTS
        The form of the image before the transforms, unless there is a `lookup`.
    lookup : Lookup, optional
        Conversions that packer does, in place of bringing the image into that form; they make tensors.
    transform, target_transform : callable, optional
        What is left to do with the image, and with the label.
    transforms : callable, optional
        What is done with both together, or with the dict that an item is.
    parts : Parts, optional
        What an item has, where it is a dict.
    augment : Augmentation, optional
        What packer does to the pixels of the crop, before the image is brought into any form.
    views : tuple of View
        The images that packer makes of each, with crops and augmentations of their own; a transform gets one after the
        other. Without any there is one image, which is no view.
    """

    crop: Crop | None
    output: str
    lookup: Lookup | None
    transform: Transform
    target_transform: Transform
    transforms: Callable[..., Any] | None
    parts: Parts | None = None
    augment: Augmentation | None = None
    views: tuple[View, ...] = ()

    @property
    def randoms(self) -> int:
        """How many random numbers the crops of an image need, and their augmentations."""
        return sum(step.randoms for step in (self.crop, self.augment, *self.views) if step is not None)

    @property
    def crops(self) -> tuple[Crop, ...]:
        """The crops of an image: one for each view."""
        if self.views:
            return tuple(view.crop for view in self.views)
        return () if self.crop is None and self.augment is None else (self.crop or Compose([]),)

    @property
    def interleaved(self) -> bool:
        """Whether a transform may draw random numbers: each crop is then drawn just before its image is transformed."""
        random = self.transforms is not None or pointwise(self.transform)[1] is not None
        return self.randoms > 0 and random

    @property
    def leaves_pixels(self) -> bool:
        """Whether the item's image is the tensor that was decoded."""
        return self.output == "tensor" and not (self.lookup or self.transform or self.transforms)

    @property
    def row_size(self) -> tuple[int, int] | None:
        """Height and width of the images where each becomes numbers of a lookup, and nothing is left to do; or None."""
        ends = self.lookup is not None and self.transform is None and self.transforms is None and self.parts is None
        return self.crop.size if ends and self.crop is not None else None

    @property
    def left(self) -> str:
        """What keeps images from being decoded into a batch as the item has them, as a clause."""
        transform = self.transform if self.transforms is None else self.transforms
        if transform is not None:
            return f"this is done to each image by itself, after what packer does: {' '.join(repr(transform).split())}"
        if self.lookup is None and self.output != "tensor":
            return f"the images have output={self.output!r}"
        return "the images have no fixed size: neither crop= nor a fused transform says one"

    def shown(self, pixels: npt.NDArray[Any]) -> Any:
        """Return (height, width, channels) pixels as the transforms take them."""
        return in_form(self.output, pixels) if self.lookup is None else self.lookup(pixels)

    def item(self, image: Any, label: Any) -> tuple[Any, Any]:
        """Return the item of a decoded image and a label."""
        if self.parts is not None and self.parts.wrapped and isinstance(image, torch.Tensor) and self.lookup is None:
            image = wrapped_image(image)
        if self.transforms is not None:
            both: tuple[Any, Any] = self.transforms(image, label)
            return both
        image = self._transformed(image)
        return image, label if self.target_transform is None else self.target_transform(label)

    def dict_item(self, values: Mapping[str, Any], size: tuple[int, int]) -> Any:
        """Return the item of a sample's values, among them a decoded image; `size` is that of the image."""
        assert self.parts is not None
        item = item_of(self.parts, values, self.output, size)
        if self.transforms is not None:
            return self.transforms(item)
        for name, transform in (("image", self._transformed), ("label", self.target_transform)):
            if transform is not None and name in item:
                item[name] = transform(item[name])
        return item

    def _transformed(self, image: Any) -> Any:
        """Return an image, or each view of a tuple, after the transform."""
        if self.transform is None:
            return image
        return tuple(map(self.transform, image)) if self.views else self.transform(image)

    def __str__(self) -> str:
        """Say what runs where, in one line."""
        steps = self.crop, self.augment, self.views or None, self.lookup
        own = ", ".join(f"{step!r}" for step in steps if step is not None)
        own = f"packer: {own}" if own else ""
        left = self.transform if self.transforms is None else self.transforms
        others = " ".join(f"then: {left!r}".split()) if left is not None else ""
        form = f"output={self.output!r}" if self.lookup is None else ""
        return ", ".join(filter(None, [own, form, str(self.parts or ""), others]))


def followed(crops: Crops | None, preparation: Preparation) -> tuple[Crops | None, Operations | None]:
    """Return the crops and the operations that fields follow; they follow no views."""
    if crops is None or preparation.views:
        return None, None
    bare, operations = parted(crops)
    return None if preparation.crop is None else bare, operations


def preparation_of(  # noqa: PLR0917
    crop: Crop | None,
    output: str | None,
    transform: Transform,
    target_transform: Transform,
    transforms: Callable[..., Any] | None,
    parts: Parts | None = None,
    augment: Augmentation | None = None,
    views: tuple[View, ...] = (),
    *,
    fuse: bool,
) -> Preparation:
    """Return the steps that a dataset's settings mean.

    Parameters
    ----------
    output : one of OUTPUTS, optional
        By default what the transform takes: a PIL image, as ImageFolder gives, unless the transform is one of
        torchvision's that takes tensors only; a tensor where there is no transform, or one of the dict.
    parts : Parts, optional
        What an item has, where it is a dict.
    augment : Augmentation, optional
        What is done to the pixels of each crop, or of the whole image.
    views : tuple of View
        What takes the place of both.
    fuse : bool
        Whether packer does what `transform` begins with, as far as it can; of a dict, `transforms`.
    """
    if output is None:
        of_dict = parts is not None and not parts.is_target
        unchanged = transform is None and (transforms is None or of_dict)
        output = "tensor" if unchanged or (transform and begins_with_pil(transform) is False) else "pil"
    lookup = None
    if fuse and parts is not None and transforms is not None:
        crop, transforms = _crop_of_all(transforms, parts, output)
    elif fuse and (transform is None or transforms is not None or output == "bytes"):
        warn("fuse=True changes nothing without transform=, or with output='bytes'")
    elif fuse and parts is not None and parts.cropped:
        _warn_of(transform, f"it is applied to the image alone, and the item has {', '.join(parts.cropped)}")
    elif fuse and transform is not None:
        # An array is nothing that torchvision's crops take.
        crop, rest = (None, transform) if output == "numpy" else split_by(transform, output == "tensor")
        conversions, left = pointwise(rest)
        lookup = lookup_of(conversions, lambda pixels: in_form(output, pixels)) if conversions else None
        if crop is None and lookup is None:
            _warn_of(transform, "packer cannot do what the transform begins with")
        transform = rest if lookup is None else left
    return Preparation(crop, output, lookup, transform, target_transform, transforms, parts, augment, views)


def _crop_of_all(
    transforms: Callable[..., Any], parts: Parts, output: str
) -> tuple[Crop | None, Callable[..., Any] | None]:
    """Return the crop that a joint transform begins with, and what is left, if the crop changes all fields as that.

    packer's crops leave out boxes that torchvision's keep, and resize further images unlike PIL images.
    """
    crop, rest = split_by(transforms, True) if output == "tensor" and parts.wrapped else (None, transforms)
    if crop is None:
        _warn_of(transforms, "packer cannot do what the transform begins with, or the item has no tv_tensors")
    elif parts.positions:
        _warn_of(
            transforms, f"a crop of packer's leaves out boxes, which torchvision's keep: {', '.join(parts.positions)}"
        )
    elif set(parts.cropped) - set(parts.masks):
        _warn_of(transforms, "further images are resized by the transform")
    elif not _pads_with_nothing(crop) or any(name in parts.fill for name in parts.masks):
        _warn_of(transforms, "packer pads masks with what fill= says, or 0")
    else:
        return crop, rest
    return None, transforms


def _pads_with_nothing(crop: Crop) -> bool:
    """Tell whether what a crop shows outside of an image is 0, if it is of one colour."""
    if isinstance(crop, Compose):
        return all(_pads_with_nothing(one) for one in crop._settings["crops"])
    return crop._settings.get("fill", 0) in (0, (0, 0, 0))


def _warn_of(transform: Any, reason: str) -> None:
    warn(f"fuse=True changes nothing: {reason}: {' '.join(repr(transform).split())}")


def require_callable(name: str, transform: object) -> None:
    """Raise TypeError where a transform is none, or a chain of torchvision's has one of packer's rules in it."""
    steps = getattr(transform, "transforms", ())
    for step in (transform, *(steps if isinstance(steps, (list, tuple)) else ())):
        if isinstance(step, (Augmentation, Crop)):
            option = "augment=[...]" if isinstance(step, Augmentation) else "crop="
            raise TypeError(f"{step!r} is no step of {name}=: give it to the dataset as {option}, which comes before")
    if transform is not None and not callable(transform):
        raise TypeError(f"{name} is a callable, which is applied to what a dataset or a Loader has, not {transform!r}")


_APART = 0x5851F42D4C957F2D  # from the seeds of the crops, whose numbers are others


def generators() -> tuple[Any, ...]:
    """Return the states of the generators."""
    _, numbers, place, *_ = np.random.get_state()
    return bytes(torch.get_rng_state().numpy()), random.getstate(), np.asarray(numbers).tobytes(), place


def seeder(seed: int, epoch: int, keys: Ints) -> Callable[[int], None]:
    """Return what lets the next numbers be a function of seed, epoch and one of `keys`, whose place it takes."""
    numbers = (uniforms(seed + _APART, epoch, keys, 1)[:, 0] * 2**53).astype(np.int64).tolist()

    def begin(place: int) -> None:
        torch.default_generator.manual_seed(numbers[place])
        random.seed(numbers[place])
        np.random.seed(numbers[place] % 2**32)

    return begin


_WITH_GENERATOR = {
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial),
    *(torch.poisson, torch.binomial, torch._standard_gamma, torch._sample_dirichlet),
    *(torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.bernoulli_),
    *(torch.Tensor.exponential_, torch.Tensor.cauchy_, torch.Tensor.geometric_, torch.Tensor.log_normal_),
    *(torch.Tensor.bernoulli, torch.Tensor.multinomial),
}
"""torch's functions that draw from the generator that they are given."""

_FILLED = {torch.rand_like: torch.Tensor.uniform_, torch.randn_like: torch.Tensor.normal_}
"""Those that take none, and what they do with new memory."""


class drawing_from(TorchFunctionMode):  # noqa: N801 - it stands in a with statement
    """Let torch's functions draw from a generator of this thread's own, as after ``torch.manual_seed(seed)``.

    torch's default generator, which all threads share, stays as it is.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _FILLED:
            return _FILLED[func](torch.empty_like(*args, **kwargs), generator=self._generator)
        if func in _WITH_GENERATOR and kwargs.get("generator") is None:
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)
