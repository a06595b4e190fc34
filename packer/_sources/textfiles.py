"""The text of files that people and their tools write: UTF-8, with a byte order mark or without; or UTF-16 with one.

Excel and Windows Notepad write such marks, and Excel's "Unicode text" is UTF-16.
"""

from __future__ import annotations

import codecs
from pathlib import Path

from packer._storage.opening import open_regular

__all__ = ["encoding_of", "file_text", "text_of", "what_else"]

_HEAD = 16  # bytes that tell what a file is
_MARKS = {  # UTF-32 first: its mark begins as that of UTF-16 does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_NO_TEXT = {
    b"PK\3\4": "it is a workbook of Excel or another zip archive. Save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "it is a workbook of an old Excel. Save the sheet as CSV (UTF-8)",
    b"\x1f\x8b": "it is compressed by gzip. Unpack it",
    b"PAR1": "it is Parquet. Give it the suffix .parquet",
    b"version https://": "it is a pointer of Git LFS, and not the file. Fetch the file: git lfs pull",
}


def encoding_of(data: bytes) -> str:
    """Return the encoding of text that begins with these bytes, as `codecs` calls it."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8-sig")


def text_of(data: bytes) -> str:
    """Return the text of a whole file; UnicodeDecodeError, a ValueError, where it is none."""
    return data.decode(encoding_of(data))


def file_text(path: Path) -> str:
    """Return the text of a file; OSError where it cannot be read, UnicodeDecodeError where it is none."""
    with open(open_regular(path), "rb") as file:
        return text_of(file.read())


def what_else(data: bytes) -> str | None:
    """Say what a file is that begins with these bytes, and how it becomes text; None where it may be text."""
    for magic, said in _NO_TEXT.items():
        if data.startswith(magic):
            return said
    head = data[:_HEAD]
    if b"\0" in head and encoding_of(head) == "utf-8-sig":
        return "it has NUL bytes: it may be UTF-16 without a byte order mark. Save it as UTF-8"
    return None
