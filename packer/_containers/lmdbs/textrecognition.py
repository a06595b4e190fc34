"""LMDB files of text recognition: images of words, and the text in each.

The key ``num-samples`` has a number as text, N; ``image-000000001`` to N are images, and ``label-000000001`` to N their
texts, in UTF-8. https://github.com/clovaai/deep-text-recognition-benchmark, create_lmdb_dataset.py, writes them, and
most tools of the field read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packer._containers.contract import Entry, Piece, no_keys
from packer._containers.imagenames import image_name, suffix_of
from packer._containers.lmdbs.lmdbfiles import First, LMDBContainer, Value, text_of
from packer._containers.lmdbs.lmdbtree import Tree
from packer._fields import Field
from packer.errors import SourceError, printable

__all__ = ["TextRecognition"]

_COUNT = b"num-samples"
_IMAGE = re.compile(rb"image-([0-9]{9})")
_OF_A_SAMPLE = re.compile(rb"(?:image|label)-([0-9]{9})")
_TEXT = Field("text", "text")
_HEAD = 16
_DIGITS = 9


class TextRecognition(LMDBContainer):
    """Samples in the order of their numbers, whose texts are a field; there are no classes."""

    kind = "lmdb of text recognition"
    tree: Tree

    @classmethod
    def is_of(cls, first: First) -> bool:
        return first.tree.find(_COUNT) is not None and any(_IMAGE.fullmatch(value.key) for value in first.values)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> TextRecognition:
        no_keys(cls.kind, keys)
        return cls.of_files(paths, fields=(_TEXT,), why_unlabeled="their labels are texts: the field text")

    def ordered(self, path: Path, blank: Value, tree: Tree) -> Iterator[Value]:
        self.tree, file = tree, blank.file
        place = tree.find(_COUNT)
        said = file.read(place[0], min(place[1], _DIGITS + 1)).strip() if place is not None else b""
        if not said.isdigit() or len(said) > _DIGITS or int(said) > tree.entries:
            raise SourceError(
                f"{printable(path)}: {text_of(_COUNT)} is {printable(text_of(said))}, and no count of samples"
            )
        count, beyond = int(said), list[str]()
        for key, _, _ in tree.walk():
            match = _OF_A_SAMPLE.fullmatch(key)
            if key != _COUNT and not (match and 1 <= int(match[1]) <= count):
                beyond.append(text_of(key))
        self.account.left_out("key", f"they are none of the {count:,} samples that {text_of(_COUNT)} counts", beyond)
        for number in range(1, count + 1):
            key = b"image-%09d" % number
            offset, size = tree.find(key) or (0, 0)  # where it is missing, it has no image
            yield Value(blank.unit, file, key, offset, size)

    def entry(self, value: Value) -> Entry:
        suffix = suffix_of(value.head(_HEAD))
        if not suffix:
            raise ValueError("it has no image")
        name = image_name(text_of(value.key), suffix)
        text = self.tree.find(b"label-" + value.key.partition(b"-")[2])
        values = {} if text is None else {_TEXT.name: Piece(value.unit, *text)}
        return Entry(name, Piece(value.unit, value.offset, value.size), None, values)
