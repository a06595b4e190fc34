"""Rectangles that are erased."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from packer._images.operations import KINDS, Operations
from packer.augment._augmentation import Augmentation
from packer.augment._coded import Coded, coded
from packer.augment._settings import colour_of, kept_colour, pair_of
from packer.crops._algebra import Pairs
from packer.crops._settings import probability, range_of
from packer.crops._uniforms import Floats, below, between, inside

__all__ = ["RandomErasing"]

_ATTEMPTS = 10


class RandomErasing(Augmentation):
    """A rectangle of the image becomes one colour: torchvision's RandomErasing, on uint8 pixels.

    Up to ten times an area is drawn uniformly from `scale`, as a share of the image, and an aspect ratio log-uniformly
    from `ratio`; the first rectangle that fits is put at a random place. Where none fits, nothing is erased. Recipes
    that erase after normalizing make of the rectangle the mean, which is ``value=(124, 116, 104)`` for ImageNet's.

    Parameters
    ----------
    p : float
        Probability that something is erased.
    scale : (float, float)
        Least and largest share of the image's area, 0 to 1.
    ratio : (float, float)
        Least and largest ratio of height to width.
    value : int or (int, int, int)
        The colour, 0 to 255, the same for all or red, green and blue.
    inplace : bool
        Changes nothing here: the images of a batch are nobody else's.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range. ``value="random"``, noise, is refused.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        if isinstance(value, str) and value == "random":
            raise ValueError("value='random' is noise, which packer lacks: torchvision's RandomErasing makes it")
        chance, shares, ratios = probability("p", p), pair_of("scale", scale, 0, 1), range_of("ratio", ratio)
        if shares[0] > shares[1] or ratios[0] == 0:
            raise ValueError(f"scale and ratio begin with the smaller one, ratio above 0: not {scale!r} and {ratio!r}")
        if value is None:
            raise TypeError("value is the colour of what is erased, an integer or three, not None")
        if not isinstance(inplace, bool):
            raise TypeError(f"inplace is True or False, not {inplace!r}")
        self._be(3 + 2 * _ATTEMPTS, 1, p=chance, scale=shares, ratio=ratios, value=kept_colour(value, "value"))

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        low, high = map(math.log, self._settings["ratio"])
        areas = sizes.prod(1)[:, None] * inside(self._settings["scale"], random[:, 3 : 3 + _ATTEMPTS])
        ratios = np.exp(between(low, high, random[:, 3 + _ATTEMPTS :]))
        tried = np.rint(np.sqrt(np.stack([areas * ratios, areas / ratios], 2))).astype(np.int64)
        fits = (tried < sizes[:, None]).all(2)
        first = fits.argmax(1)
        size = tried[np.arange(len(sizes)), first]
        found = fits.any(1) & (random[:, 0] < self._settings["p"])
        corner = below(sizes - size + 1, random[:, 1:3])
        erased = chosen[:, 0]
        for name, numbers in zip(("top", "left", "height", "width"), np.hstack([corner, size]).T, strict=True):
            erased[name][found] = numbers[found]
        erased["kind"][found] = KINDS.index("erase")
        erased["fill"] = colour_of(self._settings["value"])

    def _code(self, height: int, width: int) -> Coded:
        (least, most), (narrowest, widest) = self._settings["scale"], self._settings["ratio"]
        return coded(
            "erasing",
            self.randoms,
            fill=colour_of(self._settings["value"]),
            p=self._settings["p"],
            least=least,
            most=most,
            log_narrowest=math.log(narrowest),
            log_widest=math.log(widest),
        )
