"""An LMDB file whose values are images, each as a file has it, by any keys.

BasicSR has such files (keys are names without suffix), StyleGAN's tool takes any, and LSUN is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packer._containers.contract import Entry, Piece, no_keys
from packer._containers.imagenames import image_name, suffix_of
from packer._containers.lmdbs.lmdbfiles import First, LMDBContainer, Value, text_of

__all__ = ["ImageLMDB"]

_HEAD = 16


class ImageLMDB(LMDBContainer):
    """Samples in the order of their keys, which are their names; there are no labels."""

    kind = "lmdb of images"

    @classmethod
    def is_of(cls, first: First) -> bool:
        return all(suffix_of(value.head(_HEAD)) for value in first.values)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> ImageLMDB:
        no_keys(cls.kind, keys)
        return cls.of_files(paths)

    def entry(self, value: Value) -> Entry:
        suffix = suffix_of(value.head(_HEAD))
        if not suffix:
            raise ValueError("its value is no image, as those of the first keys are")
        return Entry(image_name(text_of(value.key), suffix), Piece(value.unit, value.offset, value.size))
