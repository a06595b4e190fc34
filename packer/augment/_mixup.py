"""MixUp and CutMix, which mix the images of a batch and their labels, as in torchvision."""

from __future__ import annotations

import abc
import bisect
import itertools
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from packer._images.extension import _native
from packer._images.native.crop_steps import require_uniform
from packer._images.numbers import Mixture
from packer.crops._crop import Frozen
from packer.crops._settings import count_of, real
from packer.crops._steps import Floats
from packer.errors import OptionError, OptionTypeError

_LEAST_ALPHA = 1e-100  # with a smaller alpha, NumPy returns NaN
_of_thread = threading.local()
"""Contains `source`, the generator of each thread, which is seeded before each use."""


class Mixing(Frozen, abc.ABC):
    """A rule that mixes each image of a batch with the previous image, and the first image with the last.

    Pass it to a `Loader` as ``mix=``, or call it with a batch, as in torchvision: ``mix(images, labels)``.

    This class is public for type annotations and `isinstance`; your own subclasses are not supported.
    """

    randoms: int = 0
    """The number of random numbers that a batch needs."""

    makes_fractions: bool = False
    """Whether mixed pixels can be numbers with fractions."""

    @abc.abstractmethod
    def __init__(self) -> None: ...

    def _be(self, randoms: int, **settings: Any) -> None:
        """Initialise the mixing; repr shows the settings, and comparisons compare them."""
        import numpy.random  # noqa: F401  # now, and not in the first batch: a Ctrl-C during this import is lost

        vars(self).update(randoms=randoms, _settings=settings)

    def choose(self, height: int, width: int, random: Floats | None = None) -> Mixture:
        """Choose the mixture of a batch.

        Parameters
        ----------
        height, width : int
            Size of the images, in pixels.
        random : (randoms,) float64, optional
            Random numbers, uniform in [0, 1); the mixture depends only on these and on the size. By default the numbers
            are drawn from torch's default generator.

        Returns
        -------
        Mixture
            A tuple of ``share``, ``box`` and ``num_classes``. ``share`` is the weight of an image's own label. ``box``
            is top, left, bottom and right of the rectangle that comes from the other image, or None if all pixels are
            mixed with the weight ``share``.

        Raises
        ------
        ValueError
            If `random` has a wrong shape, or numbers outside [0, 1).
        """
        if random is None:
            random = torch.rand(self.randoms, dtype=torch.float64).numpy()
        require_uniform(random, (self.randoms,))
        return self._chosen(height, width, random)

    def __call__(self, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Mix a batch with random numbers from torch's default generator, like torchvision's ``forward``.

        Parameters
        ----------
        *inputs
            Images and labels, as two arguments or as one pair. Images: an (N, C, H, W) tensor of floating point
            numbers; for `CutMix`, of any numbers. Labels: an (N,) tensor of class ids, or an (N, num_classes) tensor of
            shares.

        Returns
        -------
        images, labels : (N, C, H, W) tensor, (N, num_classes) tensor of floating point numbers

        Raises
        ------
        TypeError, ValueError
            If the inputs do not have these types and shapes.
        """
        pair = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (tuple, list)) else inputs
        if len(pair) != 2 or not all(isinstance(part, torch.Tensor) for part in pair):
            raise OptionTypeError("mixing needs a batch of two tensors, images and labels")
        images, labels = pair
        if images.ndim != 4 or len(images) != len(labels):
            shapes = tuple(images.shape), tuple(labels.shape)
            raise OptionError(
                f"mixing needs (N, C, H, W) images and N labels, not tensors of {shapes[0]} and {shapes[1]}"
            )
        mixture = self.choose(*images.shape[-2:])
        return mixed_images(images, mixture), mixed_labels(labels, mixture)

    @abc.abstractmethod
    def _chosen(self, height: int, width: int, random: Floats) -> Mixture:
        """Return the mixture that these random numbers choose."""


class MixUp(Mixing):
    """Mix each image with another one, and their labels in the same way: torchvision's MixUp (Zhang and others 2018).

    The new image and the new label are weighted means of the two images and the two labels.

    Parameters
    ----------
    alpha : float
        The value of both parameters of the Beta distribution from which weights are drawn; more than 0.
    num_classes : int, optional
        The number of classes, which is the length of the new labels. Required unless the labels are already an (N,
        num_classes) tensor of shares.
    labels_getter : "default"
        Any other value is refused: the labels are the second entry of a batch, or the key ``label`` of a dict.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    makes_fractions = True

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        self._be(1, **_settings(alpha, num_classes, labels_getter))

    def _chosen(self, height: int, width: int, random: Floats) -> Mixture:
        return Mixture(_beta(self._settings["alpha"], random[0]), None, self._settings["num_classes"])


class CutMix(Mixing):
    """Replace a rectangle of each image, and the same share of its label: torchvision's CutMix (Yun and others 2019).

    Parameters
    ----------
    alpha : float
        The value of both parameters of a Beta distribution, more than 0. The share of the image that is not replaced is
        drawn from this distribution. The rectangle is then clipped to the image.
    num_classes, labels_getter
        The same as for `MixUp`.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        self._be(3, **_settings(alpha, num_classes, labels_getter))

    def _chosen(self, height: int, width: int, random: Floats) -> Mixture:
        radius = 0.5 * math.sqrt(1 - _beta(self._settings["alpha"], random[0]))
        across, down = int(radius * width), int(radius * height)
        x, y = int(random[1] * width), int(random[2] * height)
        left, top, right, bottom = max(x - across, 0), max(y - down, 0), min(x + across, width), min(y + down, height)
        share = 1 - (right - left) * (bottom - top) / (width * height)
        return Mixture(share, (top, left, bottom, right), self._settings["num_classes"])


class ChoiceOfMixings(Mixing):
    """Applies one of several mixings to each batch; `RandomChoice` of mixings returns it."""

    _shown = "RandomChoice"

    def __init__(self, transforms: Sequence[Mixing], p: Sequence[float] | None = None) -> None:
        rules = tuple(transforms)
        shares = shares_of(p, len(rules))
        self._be(1 + max(rule.randoms for rule in rules), transforms=rules, p=shares)
        vars(self)["makes_fractions"] = any(rule.makes_fractions for rule in rules)

    def _chosen(self, height: int, width: int, random: Floats) -> Mixture:
        which = bisect.bisect_right([*itertools.accumulate(self._settings["p"][:-1])], random[0])
        rule: Mixing = self._settings["transforms"][which]
        return rule._chosen(height, width, random[1 : 1 + rule.randoms])


def shares_of(p: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Convert a user's weights to the probabilities of `count` augmentations; ValueError if they are invalid."""
    if not count:
        raise OptionError("there is nothing to choose from: pass one augmentation or more")
    try:
        weights = np.ones(count) if p is None else np.asarray(p, np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if weights.shape != (count,) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise OptionError(f"p must have a weight, 0 or more, for each of the {count} augmentations, not {p!r}")
    shares: tuple[float, ...] = tuple((weights / weights.sum()).tolist())
    return shares


def mixed_images(images: torch.Tensor, mixture: Mixture) -> torch.Tensor:
    """Return (N, C, H, W) images, each mixed with the previous one; ValueError if MixUp would mix integers."""
    if mixture.box is None:
        if not images.is_floating_point():
            raise OptionError(
                f"MixUp makes fractions, which {images.dtype} cannot represent: convert the images first, as a Loader "
                "does with normalize= or dtype="
            )
        return images.roll(1, 0).mul_(1.0 - mixture.share).add_(images.mul(mixture.share))
    top, left, bottom, right = mixture.box
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
    return mixed


def mixed_labels(labels: torch.Tensor, mixture: Mixture) -> torch.Tensor:
    """Return labels, each mixed with the previous one, as (N, num_classes) shares.

    Raises
    ------
    ValueError
        If the labels are neither class ids nor shares, or their classes do not fit `num_classes`.
    """
    if labels.ndim == 1:
        return _mixed_ids(labels, mixture)
    if labels.ndim != 2 or (mixture.num_classes not in (None, labels.shape[1])):
        raise OptionError(
            f"labels of shape {tuple(labels.shape)} are neither (N,) class ids nor (N, num_classes) fractions, with "
            f"num_classes={mixture.num_classes}"
        )
    labels = labels if labels.is_floating_point() else labels.float()
    return labels.roll(1, 0).mul_(1.0 - mixture.share).add_(labels.mul(mixture.share))


def _mixed_ids(labels: torch.Tensor, mixture: Mixture) -> torch.Tensor:
    """Mix class ids as `mixed_labels` does, but faster, because most of the resulting shares are 0."""
    classes, share = mixture.num_classes, mixture.share
    if labels.is_floating_point():
        raise OptionError("mixed labels must be class ids or fractions of classes, not other numbers")
    if classes is None:
        raise OptionError(
            "the labels are class ids: pass the number of classes, as in packer.augment.MixUp(num_classes=1000)"
        )
    if _native is not None and labels.dtype == torch.int64 and labels.device.type == "cpu" and labels.is_contiguous():
        count, own_and_other = labels.shape[0], np.array([share, 1.0 - share], np.float32)
        shares = torch.empty(count, classes, dtype=torch.float32)
        numbers = labels.data_ptr(), count, classes, own_and_other.ctypes.data, shares.data_ptr()
        if _native.mix_labels(*numbers):
            return shares
    ids = labels.long()[:, None]
    shares = torch.zeros(len(ids), classes, dtype=torch.float32, device=ids.device)
    if not len(ids):
        return shares
    least, most = map(int, ids.aminmax())
    if not (least >= 0 and most < classes):
        wrong = least if least < 0 else most
        raise OptionError(f"num_classes={classes}, but there is a label {wrong}; -1 means an unknown label")
    shares.scatter_(1, ids.roll(1, 0), 1.0 - share)
    return shares.scatter_(1, ids, shares.gather(1, ids) + share)


def _settings(alpha: object, num_classes: object, labels_getter: object) -> dict[str, Any]:
    if labels_getter != "default":
        raise OptionError(
            f"labels_getter must be 'default', not {labels_getter!r}: labels are the second element of a batch, or "
            "the entry 'label' of a dict"
        )
    if not real("alpha", alpha) >= _LEAST_ALPHA:
        raise OptionError(f"alpha must be above 0, at least {_LEAST_ALPHA:g}, not {alpha!r}")
    classes = None if num_classes is None else count_of("num_classes", num_classes, 1)
    return {"alpha": real("alpha", alpha), "num_classes": classes}


def _beta(alpha: float, random: float) -> float:
    """Return a number from the Beta distribution, computed from a uniform random number.

    numpy promises that RandomState gives the same numbers in every version.
    """
    seed = int(random * 2**53)
    if not hasattr(_of_thread, "source"):
        _of_thread.source = np.random.RandomState()  # made once, because seeding it again takes a fraction of the time
    _of_thread.source.seed([seed >> 32, seed & 0xFFFFFFFF])
    return float(_of_thread.source.beta(alpha, alpha))
