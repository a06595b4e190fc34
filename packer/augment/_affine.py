"""Random affine moves, rotations and erased rectangles, for N images at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.operations import FILTERS, KINDS, Operations
from packer.augment._base import Augmentation, Coded, coded
from packer.crops._settings import angles_of, colour_of, filter_of, pair_of, probability, range_of, stored_colour
from packer.crops._steps import Floats, Pairs, below, between, inside
from packer.errors import OptionError, OptionTypeError


def inverse_matrices(angle: Floats, shift: Floats, scale: Floats, shear: Floats, center: Floats) -> Floats:
    """Return matrices that map each position in a result to its position in the image.

    The arithmetic is the same as in ``_get_inverse_affine_matrix`` in torchvision's
    transforms/v2/functional/_geometry.py.

    Parameters
    ----------
    angle, scale : (N,)
        `angle` in degrees, clockwise; `scale` is the factor by which the result is enlarged.
    shift, shear, center : (N, 2)
        Horizontal and vertical values: `shift` in pixels, `shear` in degrees, `center` in pixels from the middle of the
        image.

    Returns
    -------
    (N, 6) float64 array
    """
    turn, (lean, rise) = np.radians(angle), np.radians(shear).T
    (centre_x, centre_y), (moved_x, moved_y) = center.T, (center + shift).T
    a = np.cos(turn - rise) / np.cos(rise)
    b = -(a * np.tan(lean) + np.sin(turn))
    c = np.sin(turn - rise) / np.cos(rise)
    d = np.cos(turn) - c * np.tan(lean)
    a, b, c, d = d / scale, -b / scale, -c / scale, a / scale
    across = centre_x - a * moved_x - b * moved_y
    down = centre_y - c * moved_x - d * moved_y
    return np.stack([a, b, across, c, d, down], 1)


def is_identity(matrices: Floats) -> npt.NDArray[np.bool_]:
    """Tell, for each of N matrices, whether it leaves the image unchanged."""
    same: npt.NDArray[np.bool_] = (matrices == (1, 0, 0, 0, 1, 0)).all(1)
    return same


def moved(operations: Operations, matrices: Floats, filter: int, fill: int) -> None:
    """Fill in N operations that move images; if a matrix moves nothing, its operation does nothing."""
    operations["kind"] = np.where(is_identity(matrices), 0, KINDS.index("affine"))
    operations["matrix"], operations["interpolation"], operations["fill"] = matrices, filter, fill


def turned(angle: Floats, center: Floats, sizes: Pairs) -> Floats:
    """Return the matrices of rotations by `angle` degrees, counter-clockwise.

    The matrices are exact for those multiples of 90 degrees for which torchvision does not interpolate.
    """
    degrees, none = angle % 360, np.zeros((len(angle), 2))
    matrices = inverse_matrices(-degrees, none, np.ones(len(angle)), none, center)
    quarters = (degrees % np.where(sizes[:, 0] == sizes[:, 1], 90, 180) == 0) & (center == 0).all(1)
    matrices[quarters] = np.rint(matrices[quarters]) + 0.0
    return matrices


class RandomRotation(Augmentation):
    """Rotate the image by a random angle: torchvision's RandomRotation.

    Parameters
    ----------
    degrees : float or (float, float)
        The range of angles in degrees, counter-clockwise; a number x means ``(-x, x)``.
    interpolation : {"nearest", "bilinear"} or torchvision's InterpolationMode
    expand : False
        Any other value is refused: images keep their size.
    center : (float, float), optional
        The centre of the rotation, in pixels from the left and from the top; by default the centre of the image.
    fill : int or (int, int, int) or None
        The colour of pixels outside the image, 0 to 255.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
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
            raise OptionError(f"expand must be False, not {expand!r}: the images of a batch keep their size")
        middle = None if center is None else pair_of("center", center)
        name = FILTERS[filter_of(interpolation)]
        turns, colour = angles_of("degrees", degrees), stored_colour(fill)
        self._be(1, 1, degrees=turns, interpolation=name, center=middle, fill=colour)

    def _fill_in(self, chosen: Operations, sizes: Pairs, random: Floats) -> None:
        set_ = self._settings
        matrices = turned(inside(set_["degrees"], random[:, 0]), _from_middle(set_["center"], sizes), sizes)
        moved(chosen[:, 0], matrices, filter_of(set_["interpolation"]), colour_of(set_["fill"]))


class RandomAffine(Augmentation):
    """Rotate, translate, scale and shear the image: torchvision's RandomAffine.

    Parameters
    ----------
    degrees : float or (float, float)
        The range of angles in degrees, clockwise; a number x means ``(-x, x)``.
    translate : (float, float), optional
        The maximum horizontal and vertical translation, as shares of width and height.
    scale : (float, float), optional
        The lowest and the highest scaling factor.
    shear : float, (float, float) or (float, float, float, float), optional
        The range of the horizontal shear, as angles in degrees; with four numbers, also the range of the vertical
        shear.
    interpolation, fill, center
        The same as for `RandomRotation`.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value.
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
            fill=stored_colour(fill),
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
    """Return the horizontal and vertical distance of `center` from the middle of each of N images; 0 if it is None."""
    if center is None:
        return np.zeros((len(sizes), 2))
    distances: Floats = np.asarray(center) - sizes[:, ::-1] * 0.5
    return distances


_ATTEMPTS = 10


class RandomErasing(Augmentation):
    """Fill a random rectangle of the image with one colour: torchvision's RandomErasing, on uint8 pixels.

    The area, as a share of the image's area, is drawn uniformly from `scale`; the aspect ratio is drawn log-uniformly
    from `ratio`. Up to ten rectangles are drawn in this way; the first one that fits into the image is placed at
    random. If none fits, nothing is erased. In many recipes, erasing comes after normalizing, where the value 0 is the
    mean colour of the data set. To get the same result here, pass that colour: for ImageNet,
    ``value=(124, 116, 104)``.

    Parameters
    ----------
    p : float
        The probability of erasing.
    scale : (float, float)
        The lowest and the highest share of the image's area, 0 to 1.
    ratio : (float, float)
        The lowest and the highest ratio of height to width.
    value : int or (int, int, int)
        The colour, 0 to 255: one level for all channels, or red, green and blue.
    inplace : bool
        Has no effect: the images of a batch are not shared.

    Raises
    ------
    TypeError, ValueError
        If a setting has a wrong type or value. ``value="random"`` (noise) is not supported.
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
            raise OptionError("value='random' (noise) is not supported: use torchvision's RandomErasing")
        chance, shares, ratios = probability("p", p), pair_of("scale", scale, 0, 1), range_of("ratio", ratio)
        if shares[0] > shares[1] or ratios[0] == 0:
            raise OptionError(f"scale and ratio must be ascending, and ratio above 0, not {scale!r} and {ratio!r}")
        if value is None:
            raise OptionTypeError("value must be the colour of the rectangle, one integer or three, not None")
        if not isinstance(inplace, bool):
            raise OptionTypeError(f"inplace must be True or False, not {inplace!r}")
        self._be(3 + 2 * _ATTEMPTS, 1, p=chance, scale=shares, ratio=ratios, value=stored_colour(value, "value"))

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
