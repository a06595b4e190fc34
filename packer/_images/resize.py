"""Computes the target size of an image in the five modes of `--resize-mode`, and resizes images.

Resizing is anti-aliased, as in Pillow and torchvision. torch's kernel for uint8 is much faster than Pillow's, and its
levels differ from Pillow's by at most one, rarely two. packer's own C computes torch's result even faster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from packer._codecs import INTERPOLATIONS, MAX_PIXELS, RESIZE_MODES
from packer._images import native
from packer._images.geometry import Box, require_affordable
from packer._images.pillow import require_pixels
from packer.errors import OptionError

if TYPE_CHECKING:
    import torch

_BY_TORCH = {"bilinear": "_upsample_bilinear2d_aa", "bicubic": "_upsample_bicubic2d_aa"}


def require_kernel() -> None:
    """Import the modules that `resize` needs, which may take a second."""
    if not native.PREFERRED:
        import torch  # noqa: F401


def resize(pixels: npt.NDArray[np.uint8], height: int, width: int, interpolation: str) -> npt.NDArray[np.uint8]:
    """Resize (H, W, 3) uint8 pixels to (height, width, 3), by "bilinear" or "bicubic" interpolation."""
    full_height, full_width, _ = pixels.shape
    if (full_height, full_width) == (height, width):
        return pixels
    if native.PREFERRED:
        out = np.empty((height, width, 3), np.uint8)
        box = Box.of((0, 0, full_height, full_width), (height, width))
        if native.resize(pixels, box._replace(interpolation=INTERPOLATIONS.index(interpolation)), out.ctypes.data):
            return out
    import torch

    # The batch dimension is added first: otherwise torch would not recognise the memory as channels last, and would use
    # the slower kernel for planes.
    images = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    return np.ascontiguousarray(resize_batch(images, (height, width), interpolation)[0].permute(1, 2, 0).numpy())


def resize_numbers(numbers: npt.NDArray[Any], height: int, width: int, interpolation: str) -> npt.NDArray[Any]:
    """Resize (H, W, C) numbers of any dtype to (height, width, C) as torchvision resizes tensors, then round.

    Integers other than uint8 are resized as floats. Results of bicubic interpolation outside of the range of the dtype
    are clipped to the range; in torchvision they overflow.
    """
    if numbers.shape[:2] == (height, width):
        return numbers
    if numbers.dtype == np.uint8 and numbers.shape[2] == 3:
        return resize(np.ascontiguousarray(numbers), height, width, interpolation)
    import torch

    floating = {1: np.float32, 2: np.float32, 4: np.float64, 8: np.float64}[numbers.dtype.itemsize]
    # torch's kernel for uint8 mistakes the layout of images that are one pixel wide or high.
    levels = numbers.dtype == np.uint8 and min(*numbers.shape[:2], height, width) > 1
    native_kernel = levels or numbers.dtype.kind == "f"
    planes = np.ascontiguousarray(numbers.transpose(2, 0, 1), None if native_kernel else floating)
    kernel = getattr(torch.ops.aten, _BY_TORCH[interpolation])
    resized: npt.NDArray[Any] = kernel(torch.from_numpy(planes)[None], (height, width), False)[0].numpy()
    if not native_kernel:
        limits = np.iinfo(numbers.dtype)
        resized = resized.round().clip(limits.min, limits.max).astype(numbers.dtype)
    return np.ascontiguousarray(resized.transpose(1, 2, 0))


def resize_batch(
    images: torch.Tensor,
    size: tuple[int, int],
    interpolation: str = INTERPOLATIONS[0],
    scale: tuple[float, float] | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Resize (N, 3, H, W) uint8 images by torch's kernel, anti-aliased, as torch.nn.functional.interpolate does.

    Parameters
    ----------
    images : (N, 3, H, W) uint8 tensor
        Channels last.
    size : (height, width)
    interpolation : {"bilinear", "bicubic"}
    scale : (float, float), optional
        The factors for height and width, if `size` covers only a part of the whole result.
    out : (N, 3, height, width) uint8 tensor, optional
    """
    import torch

    kernel = getattr(torch.ops.aten, _BY_TORCH[interpolation])
    down, across = scale or (None, None)
    if out is None:
        return kernel(images, size, False, down, across)  # type: ignore[no-any-return]
    return kernel.out(images, size, False, down, across, out=out)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ResizeSpec:
    """Settings of a resize.

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
        Whether an image may be enlarged. If not, `size` is reduced for each image to the largest size that does not
        enlarge it; ``pad`` still pads to a square of the full `size`.
    interpolation : str
        ``bilinear`` or ``bicubic``, anti-aliased.
    """

    size: int
    mode: str = RESIZE_MODES[0]
    upscale: bool = False
    interpolation: str = INTERPOLATIONS[0]

    def __post_init__(self) -> None:
        if self.size < 1:
            raise OptionError(f"the size must be 1 or more, not {self.size}")
        if self.mode not in RESIZE_MODES:
            raise OptionError(f"the mode must be one of {RESIZE_MODES}, not {self.mode!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise OptionError(f"the interpolation must be one of {INTERPOLATIONS}, not {self.interpolation!r}")

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
        """Raise ImageTooLargeError if resizing an image of this size would return or need far too many pixels."""
        scaled = self.scaled(height, width)
        require_affordable(Box.of((0, 0, height, width), scaled))
        require_pixels(*self.final(height, width), MAX_PIXELS)

    def enlarges(self, height: int, width: int) -> bool:
        """Tell whether `size` would enlarge an image of this height and width, whatever `upscale` says."""
        side = max(height, width) if self.mode in ("long", "pad") else min(height, width)
        return side < self.size

    def changes(self, height: int, width: int) -> bool:
        """Tell whether resizing changes the pixels of an image of this size."""
        return (height, width) != self.scaled(height, width) or (height, width) != self.final(height, width)

    def box(self, height: int, width: int) -> Box:
        """Return a `CROP` record that resizes an image of this size, and also its masks and boxes."""
        scaled, final = self.scaled(height, width), self.final(height, width)
        if self.mode == "crop":
            cut = round((scaled[0] - final[0]) / 2), round((scaled[1] - final[1]) / 2)  # torchvision's rounding
        else:
            cut = -((final[0] - scaled[0]) // 2), -((final[1] - scaled[1]) // 2)
        box = Box.of((0, 0, height, width), scaled, cut, final)
        return box._replace(interpolation=INTERPOLATIONS.index(self.interpolation))

    def frame(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Crop or pad scaled (H, W, 3) uint8 pixels to the final size; return them contiguous."""
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
