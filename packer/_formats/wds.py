"""WebDataset: a directory of tars, in which the members of a sample follow each other and share a key.

``shard-000000.tar``   samples
``shard-000000.idx``   the index of the shard, as DALI's ``wds2idx`` makes it, version 1.2
``classes.txt``        the class names, one on each line, if the classes have names

A sample has the member ``KEY.cls`` (its label in ASCII), ``KEY.jpg`` or a similar one (its image), and one for each
field, such as ``KEY.caption.txt``. The members are sorted by the part after the key, as webdataset's writer sorts them.

In webdataset, a key ends at the first dot of the file name, and parts such as ``__x__`` are ignored; ``wds2idx``
separates its columns by blanks. So a key is the sample's name without the suffix of an image, and some characters in it
are encoded as in a URL. Among them are blanks, all characters that are not printable ASCII, dots of the file name, and
the first of two underscores at the beginning of a part of the path. ``a.b.jpg`` has the key ``a%2Eb``, and
`urllib.parse.unquote` gives back ``a.b``. Every field of a tar header that describes the writer is zero, so that
headers depend on name and size alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from packer._codecs import IMAGE_SUFFIXES
from packer._containers.contract import suffix_of
from packer._fields import KINDS, Field
from packer._formats.contract import IMAGE, NOTHING, Contents, Frame
from packer._formats.foreign import ShardWriter
from packer._storage.safe_open import name_problem
from packer._table import Buffer, Names, Sample, Table, encode_name
from packer.errors import DestinationError, printable

BLOCK = 512
RECORD = 10_240
"""The length of a tar is a multiple of this number of bytes."""

_NAME, _PREFIX = 100, 155


def header(name: str, size: int) -> bytes:
    """Return the bytes before a member's data.

    A name that does not fit into a ustar header is stored in a PAX header before it.

    Parameters
    ----------
    name : str
        Printable ASCII.
    size : int
        The size of the member in bytes, below 8 GiB.
    """
    path = name.encode("ascii")
    if len(path) <= _NAME:
        return _header(path, b"", size, b"0")
    cut = path.find(b"/", len(path) - _NAME - 1)
    if 0 < cut <= _PREFIX:
        return _header(path[cut + 1 :], path[:cut], size, b"0")
    text = _pax(b"path", path)
    extended = _header(b"PaxHeaders/" + path[: _NAME - 11], b"", len(text), b"x")
    return extended + text + bytes(-len(text) % BLOCK) + _header(path[:_NAME], b"", size, b"0")


def _header(path: bytes, prefix: bytes, size: int, kind: bytes) -> bytes:
    numbers = b"0000444\0" + b"0000000\0" * 2 + b"%011o\0" % size + b"00000000000\0"
    before, after = path.ljust(_NAME, b"\0") + numbers, kind + bytes(100) + b"ustar\x0000" + bytes(64 + 16)
    after += prefix.ljust(_PREFIX, b"\0") + bytes(12)
    checksum = sum(before) + sum(after) + 8 * ord(" ")
    return before + b"%06o\0 " % checksum + after


def _pax(keyword: bytes, value: bytes) -> bytes:
    """Return a record of a PAX header, which begins with its own length."""
    rest = b" %s=%s\n" % (keyword, value)
    length = len(rest) + 1
    while length != len(rest) + len(b"%d" % length):
        length = len(rest) + len(b"%d" % length)
    return b"%d" % length + rest


_PLAIN = "!#$&'()*+,-/:;=@[]^_{}~"
_NETPBM = re.compile(rb"P[1-6]\s")
_SUFFIXES = {"": "bin", "text": "txt", "json": "json"}  # by the syntax


def key_of(name: str) -> str:
    """Return the key of the sample with this name."""
    stem, dot, suffix = name.rpartition(".")
    if not (dot and stem and f".{suffix}".lower() in IMAGE_SUFFIXES):
        stem = name
    if name_problem(stem):  # of a name that is no path
        return quote(encode_name(stem), safe="").replace(".", "%2E")
    folder, slash, last = quote(encode_name(stem), safe=_PLAIN).rpartition("/")
    key = folder + slash + last.replace(".", "%2E")
    return re.sub(r"(^|/)_(?=_)", r"\1%5F", key)


class WebDatasetWriter(ShardWriter):
    """Writes tars that webdataset reads."""

    shard_name = "shard-{:06d}.tar"
    index_name = "shard-{:06d}.idx"

    def __init__(self, path: Path, options: Mapping[str, Any], written: Table, contents: Contents = NOTHING) -> None:
        self._members: list[tuple[str, int, int, str]] = []  # of the last frame
        self._key = ""
        lowered = [one.name.lower() for one in contents.fields]
        if len(set(lowered)) < len(lowered):
            raise DestinationError("two field names differ only in upper and lower case, which webdataset ignores")
        super().__init__(path, options, written, contents)

    @classmethod
    def check_names(cls, names: Names) -> None:
        hashes = np.fromiter((hash(key_of(name)) for name in names), np.int64, len(names))
        hashes.sort()
        if not (hashes[1:] == hashes[:-1]).any():
            return
        seen: dict[str, str] = {}
        twice = {int(value) for value in hashes[1:][hashes[1:] == hashes[:-1]]}
        for name in names:
            key = key_of(name)
            if hash(key) in twice and seen.setdefault(key, name) != name:
                raise _same_key(seen[key], name)

    def frame(self, sample: Sample) -> Frame:
        key, frame = key_of(sample.name), self.new_frame()
        if key == self._key:  # which webdataset would take for one sample
            raise _same_key(f"{key}.*", sample.name)
        self._key, self._members = key, []
        for extension, data, slot in sorted(self._parts(sample), key=lambda part: part[0]):
            name = f"{key}.{extension}"
            frame.add(header(name, len(data)))
            begin = frame.add_value(data, slot)
            frame.add(bytes(-len(data) % BLOCK))
            self._members.append((extension, begin, len(data), name))
        return frame

    def index_line(self, frame: Frame, at: int) -> bytes:
        parts = (f"{extension} {at + begin} {size} {name}" for extension, begin, size, name in self._members)
        return " ".join(parts).encode("ascii") + b"\n"

    def index_head(self, count: int) -> bytes:
        return b"v1.2 %d\n" % count

    def trailer(self, size: int, *, last: bool) -> bytes:
        return bytes(2 * BLOCK + -(size + 2 * BLOCK) % RECORD)

    def _parts(self, sample: Sample) -> Iterator[tuple[str, Buffer, int | None]]:
        """Yield extension, bytes and slot of each member; the slot is a blob's number, `IMAGE` or None."""
        if self._contents.label_type == "float":
            yield "label.json", json.dumps(sample.label).encode("ascii"), None
        elif self._contents.label_type == "int" or sample.label >= 0:
            yield "cls", b"%d" % sample.label, None
        yield self._image_extension(sample.data), sample.data, IMAGE
        for one, stored in zip(self._contents.fields, sample.fields, strict=True):
            if stored is None:
                continue
            if isinstance(stored, (int, float)):
                yield _number(one, stored)
            else:
                yield f"{one.name}.{_extension(one, stored)}", stored, self._blob_fields[one.name]

    def _image_extension(self, data: Buffer) -> str:
        return "rgb" if self._contents.codec == "raw" else _image_extension(data)


def _number(one: Field, stored: int | float) -> tuple[str, bytes, None]:
    """Return extension, bytes and slot of the member for a value of a scalar or class field."""
    if KINDS[one.kind].has_classes:
        return f"{one.name}.cls", b"%d" % stored, None
    return f"{one.name}.json", json.dumps(one.decode(stored)).encode("ascii"), None


def _extension(one: Field, stored: Buffer) -> str:
    return _image_extension(stored) if KINDS[one.kind].form == "pixels" else _SUFFIXES[KINDS[one.kind].syntax]


def _image_extension(data: Buffer) -> str:
    head = bytes(data[:16])
    return suffix_of(head)[1:] or ("ppm" if _NETPBM.match(head) else "img")


def _same_key(one: str, other: str) -> DestinationError:
    return DestinationError(
        f"{printable(one)} and {printable(other)} would be one sample in webdataset, which ignores the "
        "suffix. Rename one of them, or choose another format."
    )
