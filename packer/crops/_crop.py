"""What all rules are: a chain of steps, by which crops are chosen."""

from __future__ import annotations

import abc
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from packer._images.geometry import Crops
from packer._table import Ints
from packer.crops._algebra import whole
from packer.crops._record import Record
from packer.crops._steps import Step
from packer.crops._uniforms import Floats

__all__ = ["Compose", "Crop"]


class Crop(abc.ABC):
    """A rule that chooses crops. Crops are frozen: equal settings, equal crops.

    This class is public to name the type of packer's own crops; classes of others cannot be derived from it. For
    another rule, give the dataset a `transform`.
    """

    _steps: tuple[Step, ...]
    _settings: dict[str, Any]

    @abc.abstractmethod
    def __init__(self) -> None: ...

    def _be(self, *steps: Step, **settings: Any) -> None:
        """Become the rule of these steps; the settings are what it shows and what it is compared by."""
        vars(self).update(_steps=steps, _settings=settings)

    @functools.cached_property
    def randoms(self) -> int:
        """How many random numbers an image needs."""
        return sum(step.randoms for step in self._steps)

    @functools.cached_property
    def size(self) -> tuple[int, int] | None:
        """Height and width of every result; None where they depend on the image."""
        size = None
        for step in self._steps:
            size = step.fixed or (step.size_of(size) if size is not None else None)
        return size

    def choose(self, heights: Ints, widths: Ints, random: Floats | None = None) -> Crops:
        """Choose the crops of N images.

        Parameters
        ----------
        heights, widths : (N,) int64
            Sizes of the images, in pixels.
        random : (N, randoms) float64, optional
            Uniform in [0, 1). The crops are a function of them. Without them, the numbers are drawn from torch's
            default generator, image after image, by the same calls as torchvision's transform of the same name, so
            that after the same ``torch.manual_seed`` both choose the same rectangles.

        Returns
        -------
        (N,) array of CROP
            A record an image: the rectangle, in pixels of the image; the size that the rectangle is resized to; the
            window of that, which is the result; whether the result is mirrored; how it is resized and padded.

        Raises
        ------
        ImageError
            If an image is too small for the rule. The error's `index` is the place of the image among the N.
        ValueError
            If `random` has another shape.
        """
        heights, widths = np.asarray(heights, np.int64), np.asarray(widths, np.int64)
        sizes = [(heights, widths)]
        for step in self._steps:
            sizes.append(step.sizes(*sizes[-1]))
        numbers = self._drawn(sizes) if random is None else self._chosen(sizes, random)
        crops = whole(heights, widths)
        for step, chosen in zip(self._steps, numbers, strict=True):
            crops = step.apply(crops, chosen)
        return crops

    def _chosen(self, sizes: list[tuple[Ints, Ints]], random: Floats) -> list[Ints]:
        """Return the numbers of each step, chosen by uniform random numbers."""
        if random.shape != (len(sizes[0][0]), self.randoms):
            raise ValueError(f"random has the shape {(len(sizes[0][0]), self.randoms)}, not {random.shape}")
        ends = np.cumsum([step.randoms for step in self._steps]).tolist()
        return [
            step.choose(*before, random[:, end - step.randoms : end])
            for step, before, end in zip(self._steps, sizes, ends, strict=False)
        ]

    def _drawn(self, sizes: list[tuple[Ints, Ints]]) -> list[Ints]:
        """Return the numbers of each step, drawn image after image."""
        rows: list[list[tuple[int, ...]]] = [[] for _ in self._steps]
        lists = [[*zip(heights.tolist(), widths.tolist(), strict=True)] for heights, widths in sizes]
        chances = [place for place, step in enumerate(self._steps) if step.chosen]
        for image in range(len(lists[0]) if chances else 0):
            for place in chances:
                rows[place].append(self._steps[place].draw(*lists[place][image]))
        return [
            np.array(row, np.int64).reshape(len(lists[0]), step.chosen)
            for row, step in zip(rows, self._steps, strict=True)
        ]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"crops are frozen: make another {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Crop):
            return NotImplemented
        return type(self) is type(other) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash((type(self), *self._settings.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._settings.items())})"


class Compose(Crop):
    """Rules applied one after the other, each to the result of those before: torchvision's Compose.

    All of them together are one record: a rectangle of the image is resized once, and a window of that is the result,
    padded where it reaches outside. So an image is resized once, not after it may be padded, and not padded after a
    resized or padded one was cut; paddings of one image are of one kind.

    Parameters
    ----------
    crops : sequence of Crop
        Without any, the result is the whole image.

    Raises
    ------
    TypeError
        If one is no crop of packer.
    ValueError
        If one record cannot say the rules together; the message names the rule that does not fit, and why.
    """

    def __init__(self, crops: Sequence[Crop]) -> None:
        record = Record()
        for number, crop in enumerate(crops, 1):
            if not isinstance(crop, Crop):
                raise TypeError(f"crops are packer's crops, such as RandomCrop(32), not {crop!r}")
            for step in crop._steps:
                try:
                    record = step.after(record)
                except ValueError as error:
                    raise ValueError(f"Compose cannot apply its crop {number}, {crop!r}: {error}") from None
        self._be(*(step for crop in crops for step in crop._steps), crops=tuple(crops))
