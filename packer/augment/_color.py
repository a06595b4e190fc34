"""Random changes of levels and colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from packer._images.operations import KINDS, Operations
from packer.augment._base import Augmentation
from packer.crops._settings import count_of, pair_of, probability, range_of, real, sides, within
from packer.crops._steps import Floats, Pairs, inside, refuse
from packer.errors import OptionError

_JITTERED = ("brightness", "contrast", "saturation", "hue")


class ColorJitter(Augmentation):
    """Change brightness, contrast, saturation and hue, in random order: torchvision's ColorJitter.

    Parameters
    ----------
    brightness, contrast, saturation : float or (float, float), optional
        The lowest and the highest factor, 0 or more; a number x means ``(max(0, 1 - x), 1 + x)``.
    hue : float or (float, float), optional
        The lowest and the highest shift, -0.5 to 0.5; a number x means ``(-x, x)``.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        limits = {
            "brightness": _limits("brightness", brightness, 1, 0, math.inf),
            "contrast": _limits("contrast", contrast, 1, 0, math.inf),
            "saturation": _limits("saturation", saturation, 1, 0, math.inf),
            "hue": _limits("hue", hue, 0, -0.5, 0.5),
        }
        count = sum(limit is not None for limit in limits.values())
        self._be(2 * count, count, **limits)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        order = random[:, self.operations :].argsort(1)
        jittered = [name for name in _JITTERED if self._settings[name] is not None]
        factors = [inside(self._settings[name], random[:, number]) for number, name in enumerate(jittered)]
        kinds = np.array([KINDS.index(name) for name in jittered], np.int64)
        if jittered:
            chosen["kind"] = kinds[order]
            chosen["factor"] = np.take_along_axis(np.stack(factors, 1), order, 1)


def _limits(
    name: str, value: float | Sequence[float] | None, neutral: float, least: float, most: float
) -> tuple[float, float] | None:
    """Return the range of a factor; None if the factor is always neutral."""
    if value is None:
        return None
    if isinstance(value, Sequence):
        low, high = pair_of(name, value, least, most)
    else:
        spread = within(name, value, 0, most)
        low, high = max(neutral - spread, least), neutral + spread
    if low > high:
        raise OptionError(f"{name} must be ascending, not {value!r}")
    return None if low == high == neutral else (low, high)


class GaussianBlur(Augmentation):
    """Blur the image: torchvision's GaussianBlur.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Width and height of the kernel, in pixels: odd, and less than twice the width and height of the image.
    sigma : float or (float, float)
        The standard deviation in pixels, or the range from which it is drawn uniformly.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        kernel = sides("kernel_size", kernel_size, "(width, height)")
        if not all(side % 2 for side in kernel):
            raise OptionError(f"kernel_size must be odd, not {kernel_size!r}")
        limits = range_of("sigma", sigma) if isinstance(sigma, Sequence) else (real("sigma", sigma),) * 2
        if limits[0] <= 0:
            raise OptionError(f"sigma must be more than 0, not {sigma!r}")
        self._be(1, 1, kernel_size=kernel, sigma=limits)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        width, height = self._settings["kernel_size"]
        too_small = np.any(sizes <= (height // 2, width // 2), axis=1)
        refuse(too_small, sizes, f"are too few for a blur with {width} x {height} pixels")
        chosen["kind"], chosen["height"], chosen["width"] = KINDS.index("blur"), height, width
        chosen["factor"][:, 0] = inside(self._settings["sigma"], random[:, 0])


class Grayscale(Augmentation):
    """Convert the image to grey: torchvision's Grayscale.

    Parameters
    ----------
    num_output_channels : 3
        Must be 3, because batches keep three channels, which are equal in the result. torchvision's default, 1, and all
        other numbers are refused.

    Raises
    ------
    ValueError
        If `num_output_channels` is not 3.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels != 3:
            raise OptionError(
                f"num_output_channels must be 3, not {num_output_channels!r}, because the images of a batch have "
                "three channels: use Grayscale(3)"
            )
        self._be(0, 1, num_output_channels=3)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        chosen["kind"] = KINDS.index("grayscale")


class _ByChance(Augmentation):
    """An operation with a fixed factor that is applied with a given probability."""

    _kind: str

    def _be_by_chance(self, p: float, factor: float = 0.0, **settings: object) -> None:
        self._be(1, 1, **settings, p=probability("p", p))
        vars(self)["_factor"] = factor

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        chosen["kind"][:, 0] = np.where(random[:, 0] < self._settings["p"], KINDS.index(self._kind), 0)
        chosen["factor"] = vars(self)["_factor"]


class RandomGrayscale(_ByChance):
    """Convert the image to grey, with the probability `p`: torchvision's RandomGrayscale."""

    _kind = "grayscale"

    def __init__(self, p: float = 0.1) -> None:
        self._be_by_chance(p)


class RandomEqualize(_ByChance):
    """Equalize the histogram of each channel, with the probability `p`: torchvision's RandomEqualize."""

    _kind = "equalize"

    def __init__(self, p: float = 0.5) -> None:
        self._be_by_chance(p)


class RandomAutocontrast(_ByChance):
    """Stretch each channel over all levels, with the probability `p`: torchvision's RandomAutocontrast."""

    _kind = "autocontrast"

    def __init__(self, p: float = 0.5) -> None:
        self._be_by_chance(p)


class RandomInvert(_ByChance):
    """Invert the image, with the probability `p`: torchvision's RandomInvert."""

    _kind = "invert"

    def __init__(self, p: float = 0.5) -> None:
        self._be_by_chance(p)


class RandomPosterize(_ByChance):
    """Reduce levels to `bits` bits, 0 to 8, with the probability `p`: torchvision's RandomPosterize."""

    _kind = "posterize"

    def __init__(self, bits: int, p: float = 0.5) -> None:
        kept = int(within("bits", count_of("bits", bits, 0), 0, 8))
        self._be_by_chance(p, kept, bits=kept)


class RandomSolarize(_ByChance):
    """Invert levels of `threshold` (0 to 255) or more, with the probability `p`: torchvision's RandomSolarize."""

    _kind = "solarize"

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        limit = within("threshold", threshold, 0, 255)
        self._be_by_chance(p, limit, threshold=limit)


class RandomAdjustSharpness(_ByChance):
    """Sharpen by `sharpness_factor`, 0 or more, with the probability `p`: torchvision's RandomAdjustSharpness."""

    _kind = "sharpness"

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        factor = within("sharpness_factor", real("sharpness_factor", sharpness_factor), 0, math.inf)
        self._be_by_chance(p, factor, sharpness_factor=factor)
