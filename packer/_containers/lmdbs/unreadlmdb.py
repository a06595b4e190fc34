"""LMDB files with values that no other container knows: they are named as what they are, and refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from packer._containers.contract import Entry
from packer._containers.lmdbs.lmdbfiles import First, LMDBContainer, Value, failing, first_of, shown_key
from packer.errors import SourceError, printable

__all__ = ["UnreadLMDB"]

_READ = "images, pickles, values of pyarrow.serialize, and Caffe's Datum"


class UnreadLMDB(LMDBContainer):
    """Any LMDB file that is no pack of packer's; the last container that is asked."""

    kind = "lmdb"

    @classmethod
    def is_of(cls, first: First) -> bool:
        return True

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> NoReturn:
        with failing(paths[0]), first_of(paths[0]) as first:
            value = first.values[0]
            raise SourceError(
                f"{printable(paths[0])}: is an LMDB file, and the value of its {shown_key(value.key)} is "
                f"{_guess(value.head())}. Of LMDB files packer reads those of {_READ}. Write the images to files, or "
                "to such an LMDB, with the tool that made it"
            )

    def entry(self, value: Value) -> Entry:
        raise AssertionError("an LMDB file that nobody reads is not opened")


def _guess(head: bytes) -> str:
    """Return what a value may be, by its first bytes."""
    if not head:
        return "empty"
    if head[:1] in (b"{", b"["):
        return "text, perhaps JSON"
    if head[:1] in (b"(", b"]", b"}", b"c") and b"\n" in head:
        return "perhaps a pickle of protocol 0, with Python objects that packer never makes"
    if 0x80 <= head[0] < 0xA0 or 0xDC <= head[0] < 0xE0:
        return "perhaps MessagePack"
    if head.isascii() and head.decode().isprintable():
        return f"the text {printable(head[:20].decode())!r}"
    return f"unknown: it begins with the bytes {head[:8].hex(' ')}"
