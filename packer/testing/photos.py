"""Synthetic photos, and ImageFolder trees of synthetic photos.

The JPEGs have the size and the decoding time of real photos, so they can replace photos in tests of packs and loaders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

__all__ = ["draw_imagefolder", "draw_photo"]


def draw_photo(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Draw noise with a photo's spectrum (amplitude about 1/f), some hard-edged discs, and sensor noise.

    Returns
    -------
    (height, width, 3) uint8 array
        The RGB pixels.
    """
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1.0
    amplitude = frequency**-1.2
    amplitude[0, 0] = 0.0

    def layer() -> npt.NDArray[np.float64]:
        phase = np.exp(2j * np.pi * rng.random(frequency.shape))
        field = np.fft.irfft2(amplitude * phase, s=(height, width))
        return field / max(float(field.std()), 1e-9)

    light = layer()
    y, x = np.mgrid[0:height, 0:width]
    for _ in range(6):
        top, left = rng.random(2) * (height, width)
        radius = (0.05 + 0.2 * rng.random()) * min(height, width)
        light[(y - top) ** 2 + (x - left) ** 2 < radius**2] += rng.normal(0, 0.8)
    tint = np.stack([layer() for _ in range(3)], -1)
    pixels = 120 + rng.normal(0, 15, 3) + 45 * light[..., None] + 12 * tint + rng.normal(0, 3.5, (height, width, 1))
    return pixels.clip(0, 255).astype(np.uint8)


def draw_imagefolder(
    root: Path,
    *,
    classes: int = 10,
    per_class: int = 20,
    size: tuple[int, int] = (375, 500),
    quality: int = 94,
    seed: int = 0,
) -> None:
    """Write an ImageFolder tree of synthetic JPEGs, ``root/class_00/0000.jpg`` and so on.

    In every fourth image, height and width are swapped.
    """
    rng = np.random.default_rng(seed)
    for label in range(classes):
        folder = root / f"class_{label:02d}"
        folder.mkdir(parents=True)
        for number in range(per_class):
            height, width = size if number % 4 else size[::-1]
            Image.fromarray(draw_photo(rng, height, width)).save(folder / f"{number:04d}.jpg", quality=quality)
