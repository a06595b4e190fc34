"""An LMDB file whose values are images, each as a file has it, by any keys.

BasicSR has such files (keys are names without suffix), StyleGAN's tool takes any, and LSUN is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from packer._containers.contract import Entry, Piece, no_keys
from packer._containers.imagenames import image_name, suffix_of
from packer._containers.labelkeys import add_candidates
from packer._containers.lmdbs.lmdbfiles import COUNTS, First, LMDBContainer, Value, text_of

__all__ = ["ImageLMDB"]

_HEAD = 16
_LOOKED_AT = 3  # values
_LONGEST = 64  # bytes of a text or a number beside images


class ImageLMDB(LMDBContainer):
    """Samples in the order of their keys, which are their names; there are no labels."""

    kind = "lmdb of images"

    @classmethod
    def is_of(cls, first: First) -> bool:
        values = [value for value in first.values if value.key not in COUNTS]
        return bool(values) and all(suffix_of(value.head(_HEAD)) for value in values[:_LOOKED_AT])

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> ImageLMDB:
        no_keys(cls.kind, keys)
        return cls.of_files(paths)

    def entry(self, value: Value) -> Entry | None:
        suffix = suffix_of(value.head(_HEAD))
        if not suffix:
            self._leave_out(value)
            return None
        return Entry(image_name(text_of(value.key), suffix), Piece(value.unit, value.offset, value.size))

    def _leave_out(self, value: Value) -> None:
        """Say of a key that its value is a text or a number beside the images; ValueError where it may be an image."""
        key, data = text_of(value.key), value.head()
        if value.key in COUNTS:
            self.account.not_looked_at("key", "it counts the samples", [key])
            return
        if value.size > _LONGEST or not (data.isascii() or data.startswith(b"\x80")):  # a pickle of a number
            raise ValueError("its value is no image, as those of the first keys are")
        if not self.account.candidates:
            add_candidates(self.account, "key", {key: [0]}, "")
        self.account.left_out("key", "their values are texts or numbers, and no images", [key])
