"""Images as the network wants them: normalised, converted and laid out, on the device that they are on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from packer._images.compiled import _native
from packer._images.numbers import TYPES, Mixture, Numbers
from packer._images.operations import Operations
from packer._images.tensors import operate
from packer.augment._mixing import mixed_images

__all__ = ["Normalizer", "Unfinished", "images_of", "map_tensors"]

_SHOWN = 8  # tensors that an error describes


class Unfinished(NamedTuple):
    """A batch whose images wait to be augmented, and mixed when they are numbers; its labels are mixed."""

    batch: Any
    mixture: Mixture | None = None
    operations: Operations | None = None


class Normalizer:
    """Turns uint8 images into what the network wants, on the device that they are on.

    Parameters
    ----------
    normalize : (mean, std), optional
        A number a channel each, in units of 0 to 1: the result is ``(image / 255 - mean) / std``, with the roundings of
        torchvision's v2 transforms ToDtype and Normalize.
    dtype : torch.dtype, optional
        Type of the result; by default float32 with `normalize`, and otherwise uint8.
    channels_last : bool
        Whether (N, C, H, W) results are laid out channels last, or contiguous.

    Notes
    -----
    Images are the (N, C, H, W) uint8 tensors in nested tuples, lists and dicts that have a channel for every mean, or 3
    without `normalize`. Where no tensor has four dimensions, images are the (C, H, W) tensors of that kind. Everything
    else stays as it is, such as masks of shape (N, H, W) or (N, 1, H, W).
    """

    def __init__(
        self,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
    ) -> None:
        if dtype is not None and normalize is not None and not dtype.is_floating_point:
            raise ValueError(f"normalised images are floating point numbers, which {dtype} is not")
        self.dtype = dtype or (torch.float32 if normalize is not None else None)
        self.channels_last = channels_last
        self._mean = self._std = torch.empty(0)
        self._channels = 3
        self.normalizes = normalize is not None
        if normalize is not None:
            self._mean, self._std = _mean_and_std(normalize)
            self._channels = len(self._mean)

    @property
    def changes_nothing(self) -> bool:
        """Whether uint8 images that are channels last stay what they are."""
        return self.dtype is None and self.channels_last

    @property
    def makes_fractions(self) -> bool:
        """Whether uint8 images become floating point numbers."""
        return self.dtype is not None and self.dtype.is_floating_point

    @property
    def numbers(self) -> Numbers | None:
        """What packer's C makes of images of three channels in place of this; None where it cannot."""
        name = str(self.dtype).removeprefix("torch.")
        if _native is None or name not in TYPES or self._channels != 3:
            return None
        constants = tuple(self._mean.flatten().tolist()), tuple(self._std.flatten().tolist())
        return Numbers(constants if self.normalizes else None, name, not self.channels_last)

    def __call__(self, value: Any) -> Any:
        """Return a tensor, or nested tuples, lists and dicts of tensors, with the images prepared, also mixed.

        Raises
        ------
        ValueError
            If there is no image, and values were to be changed.
        """
        mixture = mixed = None
        if isinstance(value, Unfinished):
            value, mixture, operations = value
            if operations is not None:
                _augment(value[0], operations)
            mixed = images_of(value) if mixture is not None else None
        tensors = _tensors(value)
        # A batch of as many masks as there are channels has the shape of an image.
        dimensions = 4 if any(tensor.dim() == 4 for tensor in tensors) else 3
        if self.dtype is not None and not any(self._is_image(tensor, dimensions) for tensor in tensors):
            raise self._no_image(tensors)

        def made(tensor: torch.Tensor) -> torch.Tensor:
            own = mixture if tensor is mixed else None
            if self._is_image(tensor, dimensions):
                return self._image(tensor, own)
            return tensor if own is None else mixed_images(tensor, own)

        return map_tensors(value, made)

    def require_channels(self, count: int) -> None:
        """Raise ValueError where the means are for images of another number of channels than `count`."""
        if self._channels != count:
            raise ValueError(
                f"normalize has {self._channels} means, and the images of the dataset have {count} channels"
            )

    def _is_image(self, tensor: torch.Tensor, dimensions: int) -> bool:
        return tensor.dtype == torch.uint8 and tensor.dim() == dimensions and tensor.shape[-3] == self._channels

    def _no_image(self, tensors: list[torch.Tensor]) -> ValueError:
        found = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors[:_SHOWN]) or "none"
        asked = f"normalize (channels: {self._channels})" if self.normalizes else f"dtype={self.dtype}"
        return ValueError(
            f"{asked} is for uint8 tensors of shape (N, {self._channels}, H, W) or ({self._channels}, H, W), and the "
            f"batch has no such tensor. Its tensors: {found}. Give uint8 images, as output='tensor' without a "
            "transform does, or leave the conversion to the transform."
        )

    def _image(self, tensor: torch.Tensor, mixture: Mixture | None) -> torch.Tensor:
        # Computed in float32, and rounded to `dtype` once, at the end.
        if self.normalizes:
            if self._mean.device != tensor.device:
                self._mean, self._std = self._mean.to(tensor.device), self._std.to(tensor.device)
            tensor = tensor.to(torch.float32).mul_(1 / 255).sub_(self._mean).div_(self._std)
        if mixture is not None:
            whole = tensor.dtype == torch.uint8 and self.dtype is not None and self.dtype.is_floating_point
            tensor = mixed_images(tensor.to(torch.float32) if whole else tensor, mixture)
        if self.dtype is not None:
            tensor = tensor.to(self.dtype)
        if tensor.dim() == 4:
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            tensor = tensor.contiguous(memory_format=layout)
        return tensor


def _augment(images: torch.Tensor | list[torch.Tensor], operations: Operations) -> None:
    """Change the images of a batch in place, or each view of them."""
    views = images if isinstance(images, list) else [images]
    of_views = operations.reshape(len(views[0]), len(views), -1)
    for number, view in enumerate(views):
        operate(view, of_views[:, number])


def images_of(batch: Any) -> torch.Tensor:
    """Return the images of a batch that is mixed: the first tensor of four dimensions, of a dict that of its image.

    Raises
    ------
    ValueError
        If there is none.
    """
    where = batch.get("image", batch) if isinstance(batch, Mapping) else batch
    for tensor in _tensors(where):
        if tensor.dim() == 4:
            return tensor
    raise ValueError("mix= mixes (N, C, H, W) images, and a batch has no such tensor: images have to be of one size")


def _mean_and_std(normalize: tuple[Sequence[float], Sequence[float]]) -> list[torch.Tensor]:
    """Return both as (channels, 1, 1) float32 tensors."""
    try:
        mean, std = (torch.as_tensor(values, dtype=torch.float32) for values in normalize)
    except (TypeError, ValueError, RuntimeError):
        mean = std = torch.empty(())
    sound = mean.dim() == 1 and len(mean) > 0 and mean.shape == std.shape and (std > 0).all()
    if not sound or not torch.isfinite(torch.stack([mean, std])).all():
        raise ValueError(
            "normalize is (mean, std), a number a channel each and no std 0, such as "
            f"((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), not {normalize!r}"
        )
    if mean.abs().max() > 1:
        raise ValueError(f"normalize is in units of 0 to 1, and {normalize!r} is not: divide mean and std by 255")
    return [mean.view(-1, 1, 1), std.view(-1, 1, 1)]


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists and dicts."""
    found: list[torch.Tensor] = []
    map_tensors(value, found.append)
    return found


def map_tensors(value: Any, function: Any) -> Any:
    """Apply `function` to every tensor in nested tuples, lists and dicts; leave everything else."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, function) for item in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value
