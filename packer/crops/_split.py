"""Transforms divided: the crop that they begin with, which is chosen before decoding, and what is left."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch

from packer.crops import _timm, _torchvision
from packer.crops._crop import Compose, Crop
from packer.crops._kinds import is_pointwise, kind_of, leaves, rebuilt, steps_of

__all__ = ["Snapshot", "Split", "pointwise", "split", "split_by"]

_READERS = {**_torchvision.READERS, **_timm.READERS}
_TO_TENSOR = ("v1.PILToTensor", "v2.PILToTensor", "v2.ToImage", "timm.MaybePILToTensor")  # which change no pixel


class Split(NamedTuple):
    """A transform, divided.

    Attributes
    ----------
    crop : Crop or None
        What the transform begins with, as far as a crop can say it.
    rest : callable or None
        What is then left to do with the crop's result: the same transform objects, in a chain of the same kind.
    """

    crop: Crop | None
    rest: Callable[[Any], Any] | None


def split(transform: Callable[[Any], Any]) -> Split:
    """Divide a transform of torchvision or timm into the crop that it begins with and the rest.

    The crop, and the rest of its result, do what the transform does. After the same seed the crop's
    ``choose(heights, widths)`` draws as the transform draws. The pixels are those of the transform on tensors. From the
    transform on PIL images, resized pixels differ by a level, seldom by two.

    Known are, of exactly these classes, torchvision's Resize, CenterCrop, RandomCrop, RandomResizedCrop, Pad and
    RandomHorizontalFlip, both in ``transforms`` and in ``transforms.v2``, and timm's RandomResizedCropAndInterpolation,
    ResizeKeepRatio and CenterCropOrPad, in ``Compose`` and ``torch.nn.Sequential``, nested or alone. ToImage and
    PILToTensor change no pixel, so the crops after them are taken too. With the first other transform, with a setting
    that packer lacks, and with what one record cannot say (see `Compose`) the rest begins.

    Parameters
    ----------
    transform : callable
        It takes a PIL image, or tensors where it says so. It is not changed.

    Returns
    -------
    Split
        ``(None, transform)`` of a transform that begins with no known crop.
    """
    return split_by(transform, by_tensor=False)


def split_by(transform: Callable[[Any], Any], by_tensor: bool) -> Split:
    """Do the same as `split`, for a transform that gets tensors where `by_tensor` says so, and PIL images otherwise."""
    crops: list[Crop] = []

    def take(step: Any) -> _Verdict:
        nonlocal by_tensor
        if kind_of(step) in _TO_TENSOR:
            by_tensor = True
            return _Verdict.PASSED
        crop = _crop_of(step, by_tensor)
        if crop is None or _composed([*crops, crop]) is None:
            return _Verdict.LAST
        crops.append(crop)
        return _Verdict.TAKEN

    left = _Walk(take).left(transform)
    crop = _composed(crops) if crops else None
    return Split(crop, left[0] if left else None) if crop is not None else Split(None, transform)


def pointwise(rest: Callable[[Any], Any] | None) -> tuple[list[Any], Callable[[Any], Any] | None]:
    """Return the conversions of single pixels that a transform begins with, and what is left of it, or None.

    The conversions are to tensors, to float32 numbers of 0 to 1, and normalizing; see `is_pointwise`.
    """
    conversions: list[Any] = []

    def take(step: Any) -> _Verdict:
        if not is_pointwise(step):
            return _Verdict.LAST
        conversions.append(step)
        return _Verdict.TAKEN

    left = _Walk(take).left(rest) if rest is not None else []
    return conversions, left[0] if left else None


class Snapshot:
    """The steps of a transform, and the settings of those that packer may do, as they stand now."""

    def __init__(self, transform: Any) -> None:
        self._steps = leaves(transform)
        self._read = [vars(step) for step in self._steps if kind_of(step) in _READERS or is_pointwise(step)]
        self._values = [value for settings in self._read for value in settings.values()]  # held, so ids stay theirs
        self._ids = [*map(id, self._values)]
        self._contents = [(value, copy(value)) for value in self._values if type(value) in (list, dict, OrderedDict)]
        numbers = [value for value in self._values if isinstance(value, (torch.Tensor, np.ndarray))]
        self._numbers = [(value, value.tolist()) for value in numbers]

    def holds(self, transform: Any) -> bool:
        """Tell whether nothing of this was changed since; people change steps in place."""
        return (
            leaves(transform) == self._steps
            and [id(value) for settings in self._read for value in settings.values()] == self._ids
            and all(value == content for value, content in self._contents)
            and all(value.tolist() == numbers for value, numbers in self._numbers)
        )


def _crop_of(step: Any, by_tensor: bool) -> Crop | None:
    read = _READERS.get(kind_of(step) or "")
    try:
        return read(step, by_tensor) if read is not None else None
    except (TypeError, ValueError):  # a setting that packer lacks
        return None


def _composed(crops: list[Crop]) -> Crop | None:
    try:
        return crops[0] if len(crops) == 1 else Compose(crops)
    except ValueError:  # what one record cannot say
        return None


class _Verdict(enum.Enum):
    TAKEN = enum.auto()
    PASSED = enum.auto()
    LAST = enum.auto()


class _Walk:
    """A way through nested transforms, from the first on, that takes some of them and ends at one."""

    def __init__(self, take: Callable[[Any], _Verdict]) -> None:
        self._take = take
        self._ended = False

    def left(self, transform: Any) -> list[Any]:
        """Return what is left of a transform: itself, another chain of its kind, or nothing."""
        if self._ended:
            return [transform]
        steps = steps_of(transform)
        if steps is None:
            verdict = self._take(transform)
            self._ended = verdict is _Verdict.LAST
            return [] if verdict is _Verdict.TAKEN else [transform]
        left = [kept for step in steps for kept in self.left(step)]
        if [*map(id, left)] == [*map(id, steps)]:
            return [transform]
        return [rebuilt(transform, left)] if left else []
