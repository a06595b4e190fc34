"""Synthetic photos, and ImageFolder trees of synthetic photos.

The JPEGs have the size and the decoding time of real photos, so they can replace photos in tests of packs and loaders.
"""

from __future__ import annotations

from functools import lru_cache
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
    amplitude = _amplitude(height, width)

    def layer() -> npt.NDArray[np.float64]:
        phase = 2 * np.pi * rng.random(amplitude.shape)
        spectrum = np.empty(amplitude.shape, np.complex128)
        np.multiply(amplitude, np.cos(phase), out=spectrum.real)
        np.multiply(amplitude, np.sin(phase), out=spectrum.imag)
        field = np.fft.irfft2(spectrum, s=(height, width))
        field /= max(float(field.std()), 1e-9)
        return field

    light = layer()
    y, x = np.ogrid[0:height, 0:width]
    for _ in range(6):
        top, left = rng.random(2) * (height, width)
        radius = (0.05 + 0.2 * rng.random()) * min(height, width)
        light[(y - top) ** 2 + (x - left) ** 2 < radius**2] += rng.normal(0, 0.8)
    tints = [layer() for _ in range(3)]
    means = 120 + rng.normal(0, 15, 3)
    noise = rng.normal(0, 3.5, (height, width))
    light *= 45
    pixels = np.empty((height, width, 3), np.uint8)
    for channel, (mean, tint) in enumerate(zip(means, tints, strict=True)):
        tint *= 12
        pixels[..., channel] = np.clip(mean + light + tint + noise, 0, 255)
    return pixels


@lru_cache(maxsize=4)
def _amplitude(height: int, width: int) -> npt.NDArray[np.float64]:
    """Return the amplitude of each frequency of a photo, in the order of `numpy.fft.rfft2`; 0 for the mean."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = 1.0
    amplitude: npt.NDArray[np.float64] = frequency**-1.2
    amplitude[0, 0] = 0.0
    return amplitude


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
