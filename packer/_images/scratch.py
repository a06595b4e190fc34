"""Memory in which a thread decodes and resizes, used again and again: fresh memory costs more than a copy."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

__all__ = ["scratch"]

Pixels = npt.NDArray[np.uint8]


class _Scratch(threading.local):
    """The memory of one thread: what a method returns is valid until that method is called again."""

    def __init__(self) -> None:
        self._decoded = np.empty(0, np.uint8)
        self._framed = np.empty(0, np.uint8)
        self._mirrored = np.empty(0, np.uint8)
        self._exchanged = np.empty(0, np.uint8)

    def decoded(self, height: int, width: int, halvings: int) -> Pixels:
        """Return memory for an image of that size, halved so many times."""
        height, width = -(-height >> halvings), -(-width >> halvings)
        self._decoded = _enough(self._decoded, height * width * 3)
        return self._decoded[: height * width * 3].reshape(height, width, 3)

    def framed(self, pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
        """Return a rectangle with pixels in it from (top, left) on; the other pixels have any colour."""
        self._framed = _enough(self._framed, height * width * 3)
        framed = self._framed[: height * width * 3].reshape(height, width, 3)
        inside = framed[max(top, 0) :, max(left, 0) :]
        inside[:] = pixels[max(-top, 0) :, max(-left, 0) :][: inside.shape[0], : inside.shape[1]]
        return framed

    def mirrored(self, height: int, width: int) -> Pixels:
        """Return memory for an image of that size."""
        self._mirrored = _enough(self._mirrored, height * width * 3)
        return self._mirrored[: height * width * 3].reshape(height, width, 3)

    def exchanged(self, height: int, width: int) -> Pixels:
        """Return memory for an image of that size, whose colours come in another order."""
        self._exchanged = _enough(self._exchanged, height * width * 3)
        return self._exchanged[: height * width * 3].reshape(height, width, 3)


def _enough(memory: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """Return memory of that size or more, but not of very much more."""
    if size <= memory.size <= max(4 * size, 1 << 24):
        return memory
    return np.empty(max(size, 1 << 21), np.uint8)


scratch = _Scratch()
