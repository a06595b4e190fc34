"""A reader of tar archives: headers of 512 bytes, each followed by the bytes of its member in blocks of 512.

The formats ustar (POSIX.1-1988), pax (POSIX.1-2001), GNU tar and version 7 are supported. The standard is at
https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html, and GNU's additions are at
https://www.gnu.org/software/tar/manual/html_node/Standard.html. In a file of several archives, joined with ``cat``, the
archives are read one after the other.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple, NoReturn
from zlib import adler32

from packer._containers.blocks import BlockReader
from packer._storage.packfile import PackFile
from packer.errors import SourceError, printable

BLOCK = 512
"""The size of a header in bytes; members and archives are padded to multiples of this size."""

_HEADER = struct.Struct("100s 24x 12s 12x 8s c 100x 6s 82x 155s 12x")  # name, size, checksum, type, magic, prefix
_ZEROS = bytes(BLOCK)
_BLANKS = sum(b" " * 8)
_POSIX = b"ustar\0"  # GNU's own is "ustar ", and has times where POSIX has the prefix of a name
_REGULAR = (b"0", b"\0", b"7")
_WITHOUT_BYTES = (b"1", b"2", b"3", b"4", b"5", b"6")  # regardless of the size in their headers
_NO_BYTES = "which has no data of its own. Extract the tar, and create it again with --dereference --hard-dereference"
_SPARSE = "is sparse. Extract the tar, and create it again without --sparse"
_PROBLEMS = {
    b"1": f"is a hard link, {_NO_BYTES}",
    b"2": f"is a symbolic link, {_NO_BYTES}",
    b"S": _SPARSE,
    b"M": "begins in another volume. Join the volumes into one tar",
}
_EXTENDED, _EXTENDED_AGAIN = 482, 504  # offsets of the flag for a further header, in a sparse file's headers
_LONGEST = {b"L": 1 << 16, b"K": 1 << 16, b"x": 1 << 20, b"X": 1 << 20, b"g": 1 << 20}  # bytes
_FARTHEST = 1 << 20  # bytes of zeros searched for a joined archive: tar pads archives to whole records
_JOINED = "several tars joined into one, of which other tools may read only the first"
_OF_A_MEMBER = re.compile(rb" (?:path|size|GNU\.sparse\.)")
_RECORD = re.compile(rb"([1-9][0-9]{0,7}) ")


class TarMember(NamedTuple):
    """A regular file in a tar archive.

    Attributes
    ----------
    name : str
    offset, size : int
        The range of the member's bytes in the file.
    header : int
        The offset of the member's header.
    archive : int
        In a file of several joined archives, the number of archives before the member's own.
    problem : str
        The reason why the member's bytes are not a single range of the file: the member is a link, is sparse, or began
        in another volume. Empty otherwise.
    """

    name: str
    offset: int
    size: int
    header: int
    archive: int
    problem: str = ""


def begins_tar(head: bytes) -> bool:
    """Tell whether bytes begin with the header of a tar archive."""
    return len(head) >= BLOCK and head[0] != 0 and _is_header(head[:BLOCK], _HEADER.unpack_from(head)[2])


class TarWalk:
    """Iterates over the regular files in a tar.

    Parameters
    ----------
    file : PackFile
    window : BlockReader
        The reader of the file, which callers also use to read members.

    Attributes
    ----------
    remarks : list of str
        Remarks on the archive; complete after the walk.
    doubt : str
        The reason why members may be missing; empty if none are. Set after the walk.
    """

    def __init__(self, file: PackFile, window: BlockReader) -> None:
        self._path, self._window, self._size = file.path, window, file.size
        self._name: str | None = None  # from the headers before the member's own
        self._bytes: int | None = None
        self._sparse = False
        self._expects_member = False  # after such a header, whatever its contents
        self._archive = 0
        self.remarks: list[str] = []
        self.doubt = ""

    def __iter__(self) -> Iterator[TarMember]:
        """Yield the members in archive order.

        Raises
        ------
        SourceError
            If a header is missing or damaged, or the file ends within a member.
        """
        read, unpack, file_size, position = self._window.read, _HEADER.unpack, self._size, 0
        while position < file_size:
            header = read(position, BLOCK)
            if header == _ZEROS:
                following = self._after_end(position)
                if following is None:
                    return
                position, self._archive = following, self._archive + 1
                continue
            if len(header) < BLOCK:
                self._fail(position, "the file was cut short")
            name, octal, checksum, kind, magic, prefix = unpack(header)
            if not _is_header(header, checksum):
                self._fail(position, "there is no tar header: the file is damaged, or is not a tar")
            size = _number(octal)
            if size is None:
                self._fail(position, f"the size in the header is not a number: {printable(octal)}")
            offset = position + BLOCK
            if kind in _REGULAR:
                long = magic == _POSIX and prefix[0]
                shown = _text(_joined(name, prefix) if long else name.partition(b"\0")[0])
                if self._name is not None or self._bytes is not None:
                    shown, size = self._described(shown, size)
                if size > file_size - offset:
                    self._require_whole(position, size, shown)
                self._expects_member = False
                if shown[-1:] != "/":  # version 7 marks directories by a slash after the name
                    problem = f"{printable(shown)} {_SPARSE}" if self._sparse else ""
                    yield TarMember(shown, offset, size, position, self._archive, problem)
                self._sparse = False
            elif kind in _LONGEST:
                self._read_extension(kind, position, size)
            else:
                shown, size = self._described(_text(name.partition(b"\0")[0]), size)
                size = self._stored_size(kind, position, size, header, shown)
                self._expects_member = False
                yield from self._unusable(kind, position, shown)
            position = offset + size + -size % BLOCK
        self._ended_without_mark()

    def _described(self, name: str, size: int) -> tuple[str, int]:
        """Return a member's name and size; values from extension headers replace those from its own header."""
        name = name if self._name is None else self._name
        size = size if self._bytes is None else self._bytes
        self._name = self._bytes = None
        return name, size

    def _read_extension(self, kind: bytes, position: int, size: int) -> None:
        """Read an extension header, which describes the next member or all members."""
        if size > _LONGEST[kind]:
            self._fail(position, f"a header of {size:,} bytes is too long")
        self._require_whole(position, size, "a header")
        data = self._window.read(position + BLOCK, size)
        if kind == b"L":
            self._name = self._name or _text(data.partition(b"\0")[0])
        elif kind != b"K":
            self._take_records(kind, position, data)
        self._expects_member = kind != b"g"

    def _stored_size(self, kind: bytes, position: int, size: int, header: bytes, name: str) -> int:
        """Return how many bytes follow the header of a member that is not a regular file."""
        if kind in _WITHOUT_BYTES:
            return 0
        if kind == b"S":
            is_extended, after = header[_EXTENDED : _EXTENDED + 1], position + BLOCK
            while is_extended not in (b"", b"\0"):
                is_extended = self._window.read(after, BLOCK)[_EXTENDED_AGAIN : _EXTENDED_AGAIN + 1]
                after, size = after + BLOCK, size + BLOCK
        self._require_whole(position, size, name)
        return size

    def _unusable(self, kind: bytes, position: int, name: str) -> Iterator[TarMember]:
        """Yield a member that is not a single range of the file.

        Skip links without a suffix, which belong to no sample.
        """
        if kind in _PROBLEMS and (kind not in _WITHOUT_BYTES or "." in name.rpartition("/")[2].lstrip(".")):
            problem = f"{printable(name)} {_PROBLEMS[kind]}"
            yield TarMember(name, position + BLOCK, 0, position, self._archive, problem)

    def _take_records(self, kind: bytes, position: int, data: bytes) -> None:
        """Take path and size for the next member from the records of a pax header."""
        if not _OF_A_MEMBER.search(data):  # other keys, such as times, which many tools write before each member
            return
        records = dict(self._records(position, data))  # the later one of two records with one key counts
        self._sparse |= any(key.startswith(b"GNU.sparse.") for key in records)
        # GNU tar gives a sparse member a path of its own, such as `GNUSparseFile.5448/2.png`.
        path, size = records.get(b"GNU.sparse.name") or records.get(b"path"), records.get(b"size")
        if kind == b"g" and (path or size):
            self._fail(position, "a global header contains the path or the size of a single member")
        if path:
            self._name = self._name or _text(path)
        if size:
            if not size.isdigit() or len(size) > 19:
                self._fail(position, f"the size in a header is not a number: {printable(size)}")
            self._bytes = int(size) if self._bytes is None else self._bytes

    def _records(self, position: int, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each record ``LENGTH KEY=VALUE\\n``."""
        start = 0
        while start < len(data) and data[start]:
            match = _RECORD.match(data, start)
            end = start + int(match[1]) if match else 0
            key, sign, value = data[match.end() : end - 1].partition(b"=") if match else (b"", b"", b"")
            if not sign or end > len(data) or data[end - 1 : end] != b"\n":
                self._fail(position, f"the header has a damaged record, {start} bytes from its beginning")
            yield key, value
            start = end

    def _after_end(self, position: int) -> int | None:
        """Skip the zeros at the end of an archive; return the offset of the next archive, or None at the file's end."""
        self._require_nothing_pending(position)
        last = min(self._size - BLOCK, position + _FARTHEST)
        for at in range(position + BLOCK, last + 1, BLOCK):
            block = self._window.read(at, BLOCK)
            if block != _ZEROS:
                if begins_tar(block):
                    self._remark(_JOINED)
                    return at
                self._doubt(at, "the data after the end of the tar are left out")
                return None
        if last < self._size - BLOCK:
            self._remark("zeros after the end of the tar, and any data after these, are left out")
        return None

    def _ended_without_mark(self) -> None:
        self._require_nothing_pending(self._size)
        self._doubt(self._size, "the file ends without a tar's end marker, so it may have been cut short")

    def _require_nothing_pending(self, position: int) -> None:
        if self._expects_member:
            self._fail(position, "the tar ends after a header that describes the next member: it was cut short")

    def _doubt(self, position: int, why: str) -> None:
        self._remark(why)
        self.doubt = f"byte {position}: {why}"

    def _remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def _require_whole(self, position: int, size: int, name: str) -> None:
        if size > self._size - position - BLOCK:
            why = f"{printable(name)} has {size:,} bytes, but the file ends before that: it was cut short"
            self._fail(position, why)

    def _fail(self, position: int, why: str) -> NoReturn:
        raise SourceError(f"{printable(self._path)}: byte {position}: {why}")


def _is_header(header: bytes, checksum: bytes) -> bool:
    """Tell whether a header's checksum is correct: the sum of its bytes, with blanks in place of the checksum.

    The sum is computed in C by means of Adler-32: its lower half is the sum plus 1, modulo 65521.
    """
    expected = _number(checksum)
    if not expected:
        return False
    if adler32(header) & 0xFFFF == (expected - _BLANKS + sum(checksum) + 1) % 65521:
        return True
    around = header[:148] + header[156:]
    return _BLANKS + sum(around) - 256 * sum(byte > 127 for byte in around) == expected  # old tools add signed bytes


def _number(field: bytes) -> int | None:
    """Decode a number in a header: octal digits, or the byte 128 and an 11-byte integer; None for anything else."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else None
    digits = field.strip(b" \0")
    try:
        return int(digits, 8) if digits.isdigit() else None if digits else 0
    except ValueError:
        return None


def _joined(name: bytes, prefix: bytes) -> bytes:
    return prefix.partition(b"\0")[0] + b"/" + name.partition(b"\0")[0]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
