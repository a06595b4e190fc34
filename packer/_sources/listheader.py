"""The header of the list of a source: magic, length and CRC-32C of the JSON, and the JSON."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import google_crc32c

from packer._account import Account
from packer._sample import LABEL_TYPES
from packer._storage.packfile import PackFile
from packer._table import encode_name
from packer.errors import SourceError, printable

__all__ = ["KIND", "advice", "packed_header", "read_header"]

KIND = b"packer scan "
_MAGIC = KIND + b"4\n\0\0"
_WITH_FIELDS = KIND + b"5\n\0\0"
_WITH_IDS_ONLY = KIND + b"3\n\0\0"
_WITHOUT_CHECKSUMS = KIND + b"2\n\0\0"
_HEADER = struct.Struct("<16sQQ")
_ALIGNMENT = 64
_MOST = 1 << 48  # images, and bytes of names: what their places are computed with stays within 64 bits


def packed_header(header: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """Return the header that the JSON of a list has, the JSON, and the zeros after it."""
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    magic = _WITH_FIELDS if "fields" in header else _MAGIC
    return _HEADER.pack(magic, len(text), google_crc32c.value(text)), text, bytes(_padding(len(text)))


def read_header(file: PackFile) -> tuple[dict[str, Any], int, bool]:
    """Return the JSON of a list, where its stamps begin, and whether it has checksums."""
    magic, length, crc = _HEADER.unpack(file.read(0, _HEADER.size))
    known = magic in (_MAGIC, _WITH_FIELDS, _WITH_IDS_ONLY, _WITHOUT_CHECKSUMS)
    shown = printable(file.path)
    if magic.startswith(KIND) and not known:
        raise SourceError(f"{shown}: another version of packer wrote the list. {advice(file.path)}")
    text = file.read(_HEADER.size, length)
    if not known or google_crc32c.value(text) != crc:
        raise SourceError(f"{shown}: the list is damaged. {advice(file.path)}")
    try:
        header = json.loads(text)
        if magic != _WITH_FIELDS:
            header["fields"] = []
        if magic in (_WITH_IDS_ONLY, _WITHOUT_CHECKSUMS):
            header |= {"label_type": "class", "others": {"counts": {}, "names": []}}
        _require_types(header)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(f"{shown}: the list is damaged: {printable(str(error))}. {advice(file.path)}") from error
    return header, _HEADER.size + length + _padding(length), magic != _WITHOUT_CHECKSUMS


def _require_types(header: dict[str, Any]) -> None:
    """Raise ValueError, KeyError or TypeError where a member of the JSON is missing, or is not what it should be."""
    kinds = {"kind": str, "root": str, "count": int, "names": int, "stamps": int}
    kinds |= {"classes": list, "notes": list, "sha256": str, "label_type": str, "others": dict, "fields": list}
    wrong = [name for name, kind in kinds.items() if type(header[name]) is not kind]
    if wrong:
        raise ValueError(f"{', '.join(wrong)}: of the wrong type")
    count, classes, notes = header["count"], header["classes"], header["notes"]
    counts, names = header["others"]["counts"], header["others"]["names"]
    if type(counts) is not dict or type(names) not in (list, type(None)) or header["label_type"] not in LABEL_TYPES:
        raise ValueError("the labels, or the files that were not looked at, are none")
    if not (0 <= count < _MOST and 0 <= header["names"] < _MOST and header["stamps"] in (0, count)):
        raise ValueError(f"{count} images, {header['names']} bytes of names and {header['stamps']} stamps")
    if not all(type(text) is str for text in [*classes, *notes, *(names or ())]):
        raise ValueError("a member has elements of the wrong type")
    for text in (header["kind"], header["root"], header["sha256"], *classes, *notes):
        encode_name(text)  # UnicodeEncodeError is a ValueError
    if not all(type(entry) is dict for entry in header.get("about", ())):
        raise ValueError("what belongs to no image is none")
    for doubt in header.get("doubts", ()):
        encode_name(f"{doubt['name']}{doubt['reason']}")  # UnicodeEncodeError is a ValueError
    if not all(type(number) is int for number in counts.values()):
        raise ValueError("a member has elements of the wrong type")
    if "account" in header:
        Account.from_json(header["account"])  # ValueError where it is none
    if "\0" in header["root"]:
        raise ValueError("the root has a NUL")


def advice(path: str | os.PathLike[str]) -> str:
    """Say how a list is made again: one that was asked for, or one that a conversion made for itself."""
    unfinished = Path(path).absolute().parent.suffix == ".partial"
    return "Say --fresh to start over." if unfinished else "Run `packer scan` again."


def _padding(length: int) -> int:
    return -(_HEADER.size + length) % _ALIGNMENT
