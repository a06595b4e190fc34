"""Affine moves and rotations by random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from packer._images.operations import FILTERS, KINDS, Operations
from packer.augment._augmentation import Augmentation
from packer.augment._matrices import inverse_matrices, is_identity
from packer.augment._settings import angles_of, colour_of, filter_of, kept_colour, pair_of
from packer.crops._algebra import Pairs
from packer.crops._uniforms import Floats, inside

__all__ = ["RandomAffine", "RandomRotation", "interpolations", "moved", "turned"]


def interpolations(augmentation: Augmentation) -> set[str]:
    """Return how an augmentation may move pixels, as names of `FILTERS`; none where it moves no pixel."""
    settings = augmentation._settings
    found = {str(settings["interpolation"])} if "interpolation" in settings else set()
    for value in settings.values():
        for rule in value if isinstance(value, tuple) else ():
            found |= interpolations(rule) if isinstance(rule, Augmentation) else set()
    return found


def moved(operations: Operations, matrices: Floats, filter: int, fill: int) -> None:
    """Fill in N operations that move images; nothing is done where a matrix moves nothing."""
    operations["kind"] = np.where(is_identity(matrices), 0, KINDS.index("affine"))
    operations["matrix"], operations["interpolation"], operations["fill"] = matrices, filter, fill


def turned(angle: Floats, center: Floats, sizes: Pairs) -> Floats:
    """Return the matrices of rotations by so many degrees, counter-clockwise.

    Where torchvision turns by quarters without computing places, the matrices are exact.
    """
    degrees, none = angle % 360, np.zeros((len(angle), 2))
    matrices = inverse_matrices(-degrees, none, np.ones(len(angle)), none, center)
    quarters = (degrees % np.where(sizes[:, 0] == sizes[:, 1], 90, 180) == 0) & (center == 0).all(1)
    matrices[quarters] = np.rint(matrices[quarters]) + 0.0
    return matrices


class RandomRotation(Augmentation):
    """The image turned: torchvision's RandomRotation.

    Parameters
    ----------
    degrees : float or (float, float)
        Least and largest angle, counter-clockwise; one number stands for both signs.
    interpolation : {"nearest", "bilinear"} or torchvision's InterpolationMode
    expand : False
        Any other value is refused: images keep their size.
    center : (float, float), optional
        What stays, in pixels across and down; by default the middle.
    fill : int or (int, int, int) or None
        The colour of what comes from outside, 0 to 255.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: int | Sequence[int] | None = 0,
    ) -> None:
        if expand is not False:
            raise ValueError(f"expand is False, not {expand!r}: the images of a batch keep their size")
        middle = None if center is None else pair_of("center", center)
        name = FILTERS[filter_of(interpolation)]
        turns, colour = angles_of("degrees", degrees), kept_colour(fill)
        self._be(1, 1, degrees=turns, interpolation=name, center=middle, fill=colour)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        set_ = self._settings
        matrices = turned(inside(set_["degrees"], random[:, 0]), _from_middle(set_["center"], sizes), sizes)
        moved(chosen[:, 0], matrices, filter_of(set_["interpolation"]), colour_of(set_["fill"]))


class RandomAffine(Augmentation):
    """The image turned, moved, resized and sheared: torchvision's RandomAffine.

    Parameters
    ----------
    degrees : float or (float, float)
        Least and largest angle, clockwise; one number stands for both signs.
    translate : (float, float), optional
        The farthest way across and down, as shares of width and height.
    scale : (float, float), optional
        Least and largest factor.
    shear : float, (float, float) or (float, float, float, float), optional
        Least and largest angle of a shear across; and down, where there are four.
    interpolation, fill, center
        As for `RandomRotation`.

    Raises
    ------
    TypeError, ValueError
        If a setting is of another kind or out of range.
    """

    def __init__(  # noqa: PLR0917
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = "nearest",
        fill: int | Sequence[int] | None = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        scales = (1.0, 1.0) if scale is None else pair_of("scale", scale, 1e-6)
        shares = (0.0, 0.0) if translate is None else pair_of("translate", translate, 0, 1)
        across, down = (0.0, 0.0), (0.0, 0.0)
        if isinstance(shear, Sequence) and len(shear) == 4:
            across, down = pair_of("shear", shear[:2]), pair_of("shear", shear[2:])
        elif shear is not None:
            across = angles_of("shear", shear)
        self._be(
            6,
            1,
            degrees=angles_of("degrees", degrees),
            translate=shares,
            scale=scales,
            shear=(*across, *down),
            interpolation=FILTERS[filter_of(interpolation)],
            fill=kept_colour(fill),
            center=None if center is None else pair_of("center", center),
        )

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        set_ = self._settings
        farthest = sizes[:, ::-1] * set_["translate"]
        shift = np.rint((2 * random[:, 1:3] - 1) * farthest)
        shear = np.stack([inside(set_["shear"][:2], random[:, 4]), inside(set_["shear"][2:], random[:, 5])], 1)
        matrices = inverse_matrices(
            inside(set_["degrees"], random[:, 0]),
            shift,
            inside(set_["scale"], random[:, 3]),
            shear,
            _from_middle(set_["center"], sizes),
        )
        moved(chosen[:, 0], matrices, filter_of(set_["interpolation"]), colour_of(set_["fill"]))


def _from_middle(center: tuple[float, float] | None, sizes: Pairs) -> Floats:
    """Return a place in N images, across and down from the middle."""
    if center is None:
        return np.zeros((len(sizes), 2))
    places: Floats = np.asarray(center) - sizes[:, ::-1] * 0.5
    return places
