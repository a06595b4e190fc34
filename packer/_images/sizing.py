"""Which size an image gets: the five modes of `--resize-mode`. Arithmetic only; `resize` does the work."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.geometry import INTERPOLATIONS, MAX_PIXELS, Box, require_affordable
from packer._images.pillow import require_pixels

__all__ = ["INTERPOLATIONS", "MODES", "ResizeSpec"]

MODES = ("short", "long", "exact", "crop", "pad")


@dataclass(frozen=True)
class ResizeSpec:
    """How to resize.

    Attributes
    ----------
    size : int
        Pixels.
    mode : str
        ``short``: the shorter side becomes `size`, the longer one ``int(size * long / short)``, as in torchvision.
        ``long``: the longer side becomes `size`, the shorter one ``int(size * short / long)``, at least 1.
        ``exact``: both sides become `size`, whatever the shape.
        ``crop``: as ``short``, then the centre square, as torchvision's ``CenterCrop``.
        ``pad``: as ``long``, then black borders to a square of `size`.
    upscale : bool
        Whether an image may grow. Where it must not, each mode works with the largest size that fits the image
        instead of `size`; ``pad`` still fills up to a square of `size`.
    interpolation : str
        ``bilinear`` or ``bicubic``, anti-aliased.
    """

    size: int
    mode: str = "short"
    upscale: bool = False
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"the size is 1 or more, not {self.size}")
        if self.mode not in MODES:
            raise ValueError(f"the mode is one of {MODES}, not {self.mode!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise ValueError(f"the interpolation is one of {INTERPOLATIONS}, not {self.interpolation!r}")

    def settings(self) -> dict[str, Any]:
        """Return the fields as the manifest records them."""
        return asdict(self)

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width after resizing and before cropping or padding."""
        if self.mode == "exact":
            return (self.size, self.size) if self.upscale else (min(self.size, height), min(self.size, width))
        short, long = min(height, width), max(height, width)
        reference = short if self.mode in ("short", "crop") else long
        target = self.size if self.upscale else min(self.size, reference)
        other = max(1, int(target * (long if reference == short else short) / reference))
        if reference == short:
            return (target, other) if height <= width else (other, target)
        return (other, target) if height <= width else (target, other)

    def final(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the result."""
        scaled_height, scaled_width = self.scaled(height, width)
        if self.mode == "crop":
            side = min(scaled_height, scaled_width)
            return side, side
        return (self.size, self.size) if self.mode == "pad" else (scaled_height, scaled_width)

    def require_affordable(self, height: int, width: int) -> None:
        """Raise ImageTooLargeError where resizing an image of this size would give, or need, far too many pixels."""
        scaled = self.scaled(height, width)
        require_affordable(Box.of((0, 0, height, width), scaled))
        require_pixels(*self.final(height, width), MAX_PIXELS)

    def enlarges(self, height: int, width: int) -> bool:
        """Tell whether `size` is more than an image of this size has."""
        side = max(height, width) if self.mode in ("long", "pad") else min(height, width)
        return side < self.size

    def changes(self, height: int, width: int) -> bool:
        """Tell whether an image of this size comes out with other pixels."""
        return (height, width) != self.scaled(height, width) or (height, width) != self.final(height, width)

    def box(self, height: int, width: int) -> Box:
        """Return what becomes of an image of this size as a record of `CROP`: for all that belongs to the image."""
        scaled, final = self.scaled(height, width), self.final(height, width)
        if self.mode == "crop":
            cut = round((scaled[0] - final[0]) / 2), round((scaled[1] - final[1]) / 2)  # torchvision's rounding
        else:
            cut = -((final[0] - scaled[0]) // 2), -((final[1] - scaled[1]) // 2)
        box = Box.of((0, 0, height, width), scaled, cut, final)
        return box._replace(interpolation=INTERPOLATIONS.index(self.interpolation))

    def frame(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Crop or pad pixels that were scaled: (H, W, 3) uint8 to the final size, contiguous."""
        height, width = pixels.shape[:2]
        if self.mode == "crop":
            side = min(height, width)
            top, left = round((height - side) / 2), round((width - side) / 2)  # torchvision's rounding
            return np.ascontiguousarray(pixels[top : top + side, left : left + side])
        if self.mode == "pad":
            canvas = np.zeros((self.size, self.size, 3), np.uint8)
            top, left = (self.size - height) // 2, (self.size - width) // 2
            canvas[top : top + height, left : left + width] = pixels
            return canvas
        return pixels
