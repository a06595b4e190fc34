"""Matrices of affine moves, for N images at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer.crops._uniforms import Floats

__all__ = ["inverse_matrices", "is_identity"]


def inverse_matrices(angle: Floats, shift: Floats, scale: Floats, shear: Floats, center: Floats) -> Floats:
    """Return which place of an image each place of its result shows.

    The arithmetic is that of ``_get_inverse_affine_matrix`` in torchvision's transforms/v2/functional/_geometry.py.

    Parameters
    ----------
    angle, scale : (N,)
        Degrees, clockwise; and how much larger the result is.
    shift, shear, center : (N, 2)
        Across and down: pixels; degrees; pixels from the middle of the image.

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
    """Tell which of N matrices move nothing."""
    same: npt.NDArray[np.bool_] = (matrices == (1, 0, 0, 0, 1, 0)).all(1)
    return same
