"""What one record of `CROP` can say: whether a further step still fits into it.

A record says a rectangle, one resizing of it, and one window of that, which is padded where it reaches outside. So of a
chain of steps some cannot be said; these are refused before any image is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from packer.crops._algebra import Padding

__all__ = ["Record"]

_ADDITIVE = ("constant", "edge")  # padding twice is padding once with both margins


@dataclass(frozen=True)
class Record:
    """What is known of all images' records after some steps.

    Attributes
    ----------
    least : (int, int)
        Height and width that every result has at least.
    resized : bool
    padding : Padding or None
        How some of the results may be padded.
    hides : bool
        Whether pixels may have been cut away that the window would show again if it became larger.
    """

    least: tuple[int, int] = (1, 1)
    resized: bool = False
    padding: Padding | None = None
    hides: bool = False

    def after_resizing(self, least: tuple[int, int]) -> Record:
        if self.resized:
            raise ValueError("the image is resized before, and can be resized once")
        if self.padding is not None:
            raise ValueError("the image may be padded before, and padding is not resized")
        return replace(self, least=least, resized=True)

    def after_cut(self, size: tuple[int, int]) -> Record:
        """Return what is known after a cut that lies inside of every result."""
        return replace(self, least=size, hides=self.hides or self.resized or self.padding is not None)

    def after_padding(self, padding: Padding, least: tuple[int, int]) -> Record:
        if self.hides:
            before = "padded" if self.padding is not None else "resized"
            raise ValueError(f"it pads an image that is {before} and cut before, whose cut pixels would show again")
        if self.padding is not None and self.padding != padding:
            raise ValueError(f"it adds {padding}, and the image may have {self.padding} before")
        if self.padding is not None and padding.mode not in _ADDITIVE:
            raise ValueError(f"the image may be padded before, and {padding.mode} padding of padding is another one")
        return replace(self, least=least, padding=padding)
