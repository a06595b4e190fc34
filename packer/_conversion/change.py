"""What a conversion does to the pixels of an image, for all that belongs to the image."""

from __future__ import annotations

from typing import NamedTuple

from packer._images.geometry import Box
from packer._images.sizing import ResizeSpec

__all__ = ["Change"]


class Change(NamedTuple):
    """What becomes of an image.

    Attributes
    ----------
    size : (height, width)
        The size of the image before the change, in whose pixels the sample's values are given.
    orientation : int
        EXIF orientation by which the image is turned upright, 1 to 8.
    resize : ResizeSpec, optional
        How the upright image is resized; None where it is not.
    exif : {"ignore", "apply"}
        What becomes of the EXIF orientations of further images.
    """

    size: tuple[int, int]
    orientation: int = 1
    resize: ResizeSpec | None = None
    exif: str = "ignore"

    @property
    def upright(self) -> tuple[int, int]:
        """The size after turning."""
        height, width = self.size
        return (width, height) if self.orientation >= 5 else (height, width)

    @property
    def box(self) -> Box | None:
        """What resizing does to the upright image, as a record of `CROP`; None where it changes nothing."""
        if self.resize is None or not self.resize.changes(*self.upright):
            return None
        return self.resize.box(*self.upright)
