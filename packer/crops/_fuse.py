"""Split a transform into the crop at its beginning, which packer chooses before decoding, and the rest.

Transforms of torchvision and timm are recognised by their classes. Neither library is imported for this: while a
library is not imported, no transform can be an instance of its classes.
"""

from __future__ import annotations

import itertools
import math
import random as python_random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from packer._table import Ints
from packer.crops._crop import (
    CenterCrop,
    Compose,
    Crop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from packer.crops._settings import interpolation_of, padding_of, range_of, sides
from packer.crops._steps import (
    ATTEMPTS,
    CenterCut,
    Floats,
    Pairs,
    RandomCutOfV1,
    RandomResizedCut,
    Record,
    Resized,
    below,
    refuse,
)
from packer.crops._torch_rng import NumberSource
from packer.errors import OptionError

_FAMILIES = {
    "torch.nn.modules.container": "torch",
    "torchvision.transforms._presets": "presets",
    "torchvision.transforms.autoaugment": "v1",
    "torchvision.transforms.transforms": "v1",
    "torchvision.transforms.v2._augment": "v2",
    "torchvision.transforms.v2._auto_augment": "v2",
    "torchvision.transforms.v2._color": "v2",
    "torchvision.transforms.v2._container": "v2",
    "torchvision.transforms.v2._deprecated": "v2",
    "torchvision.transforms.v2._geometry": "v2",
    "torchvision.transforms.v2._misc": "v2",
    "torchvision.transforms.v2._type_conversion": "v2",
    "timm.data.auto_augment": "timm",
    "timm.data.naflex_transforms": "timm",
    "timm.data.random_erasing": "timm",
    "timm.data.transforms": "timm",
}
"""The modules of supported transforms, each with the prefix that `name_of` gives its transforms, such as ``v2``."""

_CHAINS = ("v1.Compose", "v2.Compose", "torch.Sequential")
_CHOOSERS = ("RandomApply", "RandomChoice", "RandomOrder")
_OF_TENSORS = (
    "ConvertImageDtype",
    "GaussianNoise",
    "LinearTransformation",
    "Normalize",
    "Patchify",
    "RandomErasing",
    "ToDtype",
    "ToPILImage",
    "ToPureTensor",
)
_OF_ANYTHING = ("Lambda", "Identity", "CutMix", "MixUp", "Sequential", "ModuleList")
_POINTWISE = (
    "timm.MaybePILToTensor",
    "timm.MaybeToTensor",
    "v1.Normalize",
    "v1.PILToTensor",
    "v1.ToTensor",
    "v2.Normalize",
    "v2.PILToTensor",
    "v2.ToImage",
    "v2.ToPureTensor",
    "v2.ToTensor",
)
_OVERRIDES = ("__call__", "forward", "get_params", "make_params", "transform", "_call_kernel")


def name_of(transform: object) -> str | None:
    """Return the name of a transform, such as ``v2.Resize``.

    The result is None if the transform's class is unknown, even if it is a subclass of a known class. It is also None
    if the object has hooks or methods of its own.
    """
    cls = type(transform)
    family = _FAMILIES.get(cls.__module__)
    if family is None or getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        return None
    own = getattr(transform, "__dict__", {})
    hooked = any(own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks"))
    return None if hooked or any(name in own for name in _OVERRIDES) else f"{family}.{cls.__qualname__}"


def steps_of(transform: Any) -> list[Any] | None:
    """Return the transforms that a chain applies one after the other; None if it is not a chain."""
    name = name_of(transform)
    if name not in _CHAINS:
        return None
    return list(transform if name == "torch.Sequential" else transform.transforms)


def rebuilt(chain: Any, steps: list[Any]) -> Any:
    """Return a chain of the same kind as `chain`, with other steps."""
    made = type(chain)(*steps) if name_of(chain) == "torch.Sequential" else type(chain)(steps)
    if isinstance(chain, torch.nn.Module):
        made.training = chain.training  # set directly, because `train` would change the steps too
    return made


def is_pointwise(transform: Any) -> bool:
    """Tell whether a transform only converts images to uint8 or float32 tensors, or scales each value independently."""
    name = name_of(transform)
    if name in ("v1.ConvertImageDtype", "v2.ConvertImageDtype"):
        return transform.dtype is torch.float32
    if name == "v2.ToDtype":
        return transform.dtype is torch.float32 and transform.scale is True
    return name in _POINTWISE


def begins_with_pil(transform: Callable[[Any], Any]) -> bool | None:
    """Tell whether torchvision's or timm's transform accepts PIL images; None for transforms of other libraries."""
    first = next(leaves(transform), None)
    _, _, name = (name_of(first) or "").partition(".")
    if not name:
        return None
    if name in _CHOOSERS:
        return begins_with_pil(next(iter(first.transforms), None))  # type: ignore[union-attr, arg-type]
    return None if name in _OF_ANYTHING else name not in _OF_TENSORS


def leaves(transform: Any) -> Iterator[Any]:
    """Yield the single steps of a transform, with all nested chains expanded, in their order."""
    steps = steps_of(transform)
    if steps is None:
        yield transform
    else:
        for step in steps:
            yield from leaves(step)


class RandomCropOfV1(RandomCrop):
    """A RandomCrop that draws its numbers like RandomCrop of torchvision's v1 transforms."""

    _cut = RandomCutOfV1


def plain_fill(fill: Any) -> Any:
    """Return the fill colour of a transform in packer's form; return an unknown form unchanged."""
    colours = [0 if fill is None else fill] if not isinstance(fill, Sequence) else [*fill]
    plain = [int(c) if isinstance(c, float) and c.is_integer() else c for c in colours]
    return plain[0] if len(plain) == 1 else tuple(plain)


def _resize(op: Any) -> Crop:
    return Resize(op.size, op.interpolation, op.max_size)


def _random_resized_crop(op: Any) -> Crop:
    return RandomResizedCrop(op.size, op.scale, op.ratio, op.interpolation)


def _random_resized_crop_of_v2(op: Any) -> Crop | None:
    drawn_from = getattr(op, "_log_ratio", None)  # v2 computes this from `ratio` once; later changes have no effect
    if drawn_from is not None and not torch.equal(drawn_from, torch.log(torch.tensor(op.ratio))):
        return None
    return _random_resized_crop(op)


def _by_v1(read: Callable[[Any], Crop]) -> Callable[[Any, bool], Crop | None]:
    """Return a converter for v1 transforms of PIL images.

    For transforms of tensors, the converter returns None: v1 resizes tensors as floats, so packer's pixels might
    differ.
    """
    return lambda op, by_tensor: None if by_tensor else read(op)


def _by_v2(read: Callable[[Any], Crop | None]) -> Callable[[Any, bool], Crop | None]:
    """Return a converter for v2 transforms.

    For transforms of tensors without antialias=True, the converter returns None, because packer always anti-aliases.
    """
    return lambda op, by_tensor: None if by_tensor and op.antialias is not True else read(op)


def _center_crop(op: Any, by_tensor: bool) -> Crop:
    return CenterCrop(op.size)


def _flip(op: Any, by_tensor: bool) -> Crop:
    return RandomHorizontalFlip(op.p)


def _pad(op: Any, by_tensor: bool) -> Crop | None:
    return Pad(op.padding, plain_fill(op.fill), op.padding_mode) if _fills(op, by_tensor) else None


def _random_crop_of_v1(op: Any, by_tensor: bool) -> Crop | None:
    twice = op.padding is not None and op.pad_if_needed  # v1 then pads twice; some modes differ from padding once
    if (twice and op.padding_mode not in ("constant", "edge")) or not _fills(op, by_tensor):
        return None
    return RandomCropOfV1(op.size, op.padding, op.pad_if_needed, plain_fill(op.fill), op.padding_mode)


def _random_crop_of_v2(op: Any, by_tensor: bool) -> Crop | None:
    if not _fills(op, by_tensor):
        return None
    left, right, top, bottom = op.padding or (0, 0, 0, 0)
    margins = left, top, right, bottom
    return RandomCrop(op.size, margins, op.pad_if_needed, plain_fill(op.fill), op.padding_mode)


def _fills(op: Any, by_tensor: bool) -> bool:
    """Tell whether torchvision accepts the fill of a transform.

    For tensors, torchvision accepts one number; v2 also accepts a colour if the padding is constant.
    """
    of_v2 = ".v2." in type(op).__module__
    return not by_tensor or not isinstance(op.fill, Sequence) or (of_v2 and op.padding_mode == "constant")


@dataclass(frozen=True)
class _ResizedCut(RandomResizedCut):
    """timm's ``RandomResizedCropAndInterpolation.get_params``, followed by the random choice of an interpolation."""

    randoms = RandomResizedCut.randoms + 1

    @property
    def code(self) -> None:
        return None

    def choose(self, sizes: Pairs, random: Floats) -> Ints:
        numbers = super().choose(sizes, random)
        interpolations = np.array([self._interpolation(number) for number in range(len(self.interpolations))])
        numbers[:, 4] = interpolations[below(np.full(len(sizes), len(interpolations)), random[:, -1])]
        return numbers

    def draw(self, height: int, width: int, source: NumberSource) -> tuple[int, ...]:
        chosen = self._rectangle(height, width)
        several = range(len(self.interpolations))
        return *chosen, self._interpolation(python_random.choice(several) if len(several) > 1 else 0)

    def _rectangle(self, height: int, width: int) -> tuple[int, ...]:
        area, low, high = height * width, *map(math.log, self.ratio)
        for _ in range(ATTEMPTS):
            target = python_random.uniform(*self.scale) * area
            aspect = math.exp(python_random.uniform(low, high))
            wide, tall = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if wide <= width and tall <= height:
                top, left = python_random.randint(0, height - tall), python_random.randint(0, width - wide)
                # timm raises an error when it resizes a rectangle without pixels.
                return min(top, height - 1), min(left, width - 1), max(tall, 1), max(wide, 1)
        return self._centred_in(height, width)


class RandomResizedCropAndInterpolation(Crop):
    """timm's RandomResizedCrop, which can also choose the interpolation at random."""

    def __init__(self, size: Any, scale: Any, ratio: Any, interpolations: tuple[Any, ...]) -> None:
        out, shares, ratios = sides("size", size), range_of("scale", scale), range_of("ratio", ratio)
        names = tuple(map(interpolation_of, interpolations))
        if ratios[0] == 0:
            raise OptionError(f"ratio must be above 0, not {ratio!r}")
        step = _ResizedCut(out, shares, ratios, names)
        self._be(step, size=out, scale=shares, ratio=ratios, interpolations=names)


@dataclass(frozen=True)
class _ResizedKeepingRatio(Resized):
    """timm's ``ResizeKeepRatio.get_params`` without random changes; `size` is (height, width)."""

    longest: float = 0.0

    @property
    def code(self) -> None:
        return None

    @property
    def fixed(self) -> None:
        return None

    def after(self, record: Record) -> Record:
        return record.after_resizing((1, 1))

    def sizes(self, sizes: Pairs) -> Pairs:
        ratios = sizes / np.array(self.size)
        ratio = ratios.max(1) * self.longest + ratios.min(1) * (1.0 - self.longest)
        new: Pairs = np.rint(sizes / ratio[:, None]).astype(np.int64)
        refuse(np.any(new < 1, axis=1), sizes, "cannot be resized: no pixel is left")
        return new


class ResizeKeepRatio(Crop):
    """timm's ResizeKeepRatio: the result covers `size` if longest=0, and fits into `size` if longest=1."""

    def __init__(self, size: Any, longest: float, interpolation: Any) -> None:
        out, name = sides("size", size), interpolation_of(interpolation)
        self._be(_ResizedKeepingRatio(out, name, None, longest), size=out, longest=longest, interpolation=name)


class CenterCropOrPad(Crop):
    """timm's CenterCropOrPad: a centre crop that pads smaller images in any padding mode."""

    def __init__(self, size: Any, fill: Any, padding_mode: str) -> None:
        out, padding = sides("size", size), padding_of(fill, padding_mode)
        self._be(CenterCut(out, padding), size=out, fill=fill, padding_mode=padding_mode)


def _timm_random_resized_crop(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor:  # timm resizes tensors as floats
        return None
    several = op.interpolation if isinstance(op.interpolation, tuple | list) else (op.interpolation,)
    return RandomResizedCropAndInterpolation(op.size, op.scale, op.ratio, tuple(several))


def _resize_keep_ratio(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor or op.random_scale_prob > 0 or op.random_aspect_prob > 0:
        return None
    return ResizeKeepRatio(op.size, op.longest, op.interpolation)


def _center_crop_or_pad(op: Any, by_tensor: bool) -> Crop | None:
    if by_tensor and not isinstance(op.fill, int):
        return None
    return CenterCropOrPad(op.size, plain_fill(op.fill), op.padding_mode)


_READERS: dict[str, Callable[[Any, bool], Crop | None]] = {
    "v1.CenterCrop": _center_crop,
    "v1.Pad": _pad,
    "v1.RandomCrop": _random_crop_of_v1,
    "v1.RandomHorizontalFlip": _flip,
    "v1.RandomResizedCrop": _by_v1(_random_resized_crop),
    "v1.Resize": _by_v1(_resize),
    "v2.CenterCrop": _center_crop,
    "v2.Pad": _pad,
    "v2.RandomCrop": _random_crop_of_v2,
    "v2.RandomHorizontalFlip": _flip,
    "v2.RandomResizedCrop": _by_v2(_random_resized_crop_of_v2),
    "v2.Resize": _by_v2(_resize),
    "timm.RandomResizedCropAndInterpolation": _timm_random_resized_crop,
    "timm.ResizeKeepRatio": _resize_keep_ratio,
    "timm.CenterCropOrPad": _center_crop_or_pad,
}
"""The functions that convert transforms to crops, by the transforms' names.

They take the transform, and whether it is applied to tensors instead of PIL images. If packer has no equal crop, they
return None, or raise TypeError or ValueError.
"""

_TO_TENSOR = ("v1.PILToTensor", "v2.PILToTensor", "v2.ToImage", "timm.MaybePILToTensor")
"""Conversions that do not change pixels."""


class Split(NamedTuple):
    """The two parts into which `split` divides a transform.

    Attributes
    ----------
    crop : Crop or None
        The crop at the beginning of the transform, if there is one.
    rest : callable or None
        The remaining transform, which takes the crop's result. It consists of the same transform objects, in the same
        kind of chain, such as a ``Compose``.
    """

    crop: Crop | None
    rest: Callable[[Any], Any] | None


def split(transform: Callable[[Any], Any]) -> Split:
    """Divide a transform of torchvision or timm into the crop at its beginning and the rest.

    The crop followed by the rest is equivalent to the transform. After the same seed, the crop's ``choose(heights,
    widths)`` draws the same random numbers as the transform. The pixels equal the transform's result on tensors.
    Compared with the transform's result on PIL images, some resized pixels differ by one level, and a few by two.

    The supported classes of torchvision are Resize, CenterCrop, RandomCrop, RandomResizedCrop, Pad and
    RandomHorizontalFlip, from ``transforms`` and ``transforms.v2``. The supported classes of timm are
    RandomResizedCropAndInterpolation, ResizeKeepRatio and CenterCropOrPad. Subclasses are not supported. Supported
    transforms can stand alone, or in a ``Compose`` or ``torch.nn.Sequential``, which may be nested. ToImage and
    PILToTensor do not change pixels, so supported transforms after them become part of the crop too. The rest begins at
    the first transform that is of another class, has an unsupported setting, or cannot be combined with the earlier
    transforms (see `Compose`).

    Parameters
    ----------
    transform : callable
        A transform of PIL images, or of tensors if its classes require tensors. The object is not changed.

    Returns
    -------
    Split
        The two parts; ``(None, transform)`` if the transform does not begin with a supported crop.
    """
    return split_by(transform, by_tensor=False)


def split_by(transform: Callable[[Any], Any], by_tensor: bool) -> Split:
    """Split a transform like `split`.

    `by_tensor` is True if the transform takes tensors, and False if it takes PIL images.
    """
    crops, taken = list[Crop](), list[bool]()
    for step in leaves(transform):
        if name_of(step) in _TO_TENSOR:
            by_tensor = True
            taken.append(False)
            continue
        crop = _crop_of(step, by_tensor)
        if crop is None or _composed([*crops, crop]) is None:
            break
        crops.append(crop)
        taken.append(True)
    return Split(_composed(crops), _without(transform, taken)) if crops else Split(None, transform)


def pointwise(rest: Callable[[Any], Any] | None) -> tuple[list[Any], Callable[[Any], Any] | None]:
    """Divide a transform into its first pixel-wise steps and the rest; the rest is None if no steps remain.

    Pixel-wise steps convert images to tensors, convert them to float32 numbers from 0 to 1, or normalize; see
    `is_pointwise`.
    """
    steps = [] if rest is None else leaves(rest)
    conversions = list(itertools.takewhile(is_pointwise, steps))
    return conversions, None if rest is None else _without(rest, [True] * len(conversions))


class Snapshot:
    """The steps of a transform, with the current settings of those steps that packer can run."""

    def __init__(self, transform: Any) -> None:
        self._steps = list(leaves(transform))
        self._read = [vars(step) for step in self._steps if name_of(step) in _READERS or is_pointwise(step)]
        # References to the values are held, so that no other object gets the same id.
        self._values = [value for settings in self._read for value in settings.values()]
        self._ids = [*map(id, self._values)]
        self._contents = [(value, copy(value)) for value in self._values if type(value) in (list, dict, OrderedDict)]
        numbers = [value for value in self._values if isinstance(value, (torch.Tensor, np.ndarray))]
        self._numbers = [(value, value.tolist()) for value in numbers]

    def holds(self, transform: Any) -> bool:
        """Tell whether a transform still has these steps and settings; users can change steps in place."""
        return (
            list(leaves(transform)) == self._steps
            and [id(value) for settings in self._read for value in settings.values()] == self._ids
            and all(value == content for value, content in self._contents)
            and all(value.tolist() == numbers for value, numbers in self._numbers)
        )


def _crop_of(step: Any, by_tensor: bool) -> Crop | None:
    read = _READERS.get(name_of(step) or "")
    try:
        return read(step, by_tensor) if read is not None else None
    except (TypeError, ValueError):  # packer does not support a setting
        return None


def _composed(crops: list[Crop]) -> Crop | None:
    try:
        return crops[0] if len(crops) == 1 else Compose(crops)
    except ValueError:  # one record cannot hold the steps
        return None


def _without(transform: Any, taken: Iterable[bool]) -> Any:
    """Return a transform without some of its steps; None if no step is left.

    Parameters
    ----------
    taken : iterable of bool
        For each step, in the order of `leaves`, whether it is left out; steps without an entry stay.
    """
    remaining = _remaining(transform, iter(taken))
    return remaining[0] if remaining else None


def _remaining(transform: Any, taken: Iterator[bool]) -> list[Any]:
    """Return a list with the transform, or with a shorter chain of the same kind; an empty list if no step is left."""
    steps = steps_of(transform)
    if steps is None:
        return [] if next(taken, False) else [transform]
    left = [kept for step in steps for kept in _remaining(step, taken)]
    if [*map(id, left)] == [*map(id, steps)]:
        return [transform]
    return [rebuilt(transform, left)] if left else []
