"""The members of a zip archive, as the directory at its end lists them, and where the data of each one begin.

PKWARE's APPNOTE.TXT has the layout. In front of a member's data lies a header of its own, whose name and extra fields
may be longer or shorter than those in the directory: only it says where the data begin. Bytes in front of the archive
move every offset in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from packer._storage.packfile import PackFile
from packer.errors import PackError, SourceError, printable

__all__ = ["ENCRYPTED", "Member", "data_of", "members_of"]

ENCRYPTED = 1
"""The flag of a member that is encrypted."""

_UTF8 = 1 << 11
_ODD = "surrogateescape"  # what becomes of bytes that are no UTF-8

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LISTED = struct.Struct("<4s2B5HL2L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")

_MOST_COMMENT = 0xFFFF
_IN_ZIP64 = 0xFFFFFFFF
_ZIP64 = 1  # the extra field with what does not fit into 32 bits
_BLOCK = 1 << 20  # bytes of the directory at a time
_LINK = 0o120000  # the kind of file, among the upper 16 bits of the attributes that Unix tools write
_UNIX = 3


class Member(NamedTuple):
    """A file in an archive.

    Attributes
    ----------
    name : str
        A relative path with forward slashes, also where backslashes were written. That of a directory ends in a slash.
    method, flags : int
    packed, size : int
        Bytes of the data as they lie, and of what they give.
    crc32 : int
    offset : int
        Where its own header begins, from the beginning of the file.
    is_link : bool
    raw_name : bytes
        The name as it lies, where that is not the name in UTF-8; else empty.
    """

    name: str
    method: int
    flags: int
    packed: int
    size: int
    crc32: int
    offset: int
    is_link: bool
    raw_name: bytes


class _Directory(NamedTuple):
    """Where the directory begins and ends, how many members it lists, and what moves the offsets in it."""

    begin: int
    end: int
    members: int
    shift: int


def members_of(file: PackFile) -> Iterator[Member]:
    """Yield the members of an archive in the order of its directory.

    Raises
    ------
    SourceError
        If it is damaged, cut short, or spread over several files.
    """
    directory = _directory(file)
    block, at, count = b"", directory.begin, 0
    begin = 0  # of the next record in the block
    while at - len(block) + begin < directory.end:
        if len(block) - begin < _LISTED.size + 3 * _MOST_COMMENT and at < directory.end:
            more = file.read(at, min(_BLOCK, directory.end - at))
            block, begin, at = block[begin:] + more, 0, at + len(more)
        member, begin = _listed(file, block, begin, at - len(block), directory)
        count += 1
        yield member
    if count & 0xFFFF != directory.members & 0xFFFF:
        raise _damaged(file, directory.begin, f"{directory.members} members are announced, and {count} are listed")


def data_of(file: PackFile, member: Member) -> int:
    """Return where the data of a member begin; SourceError where no member with its name is there."""
    raw = member.raw_name or member.name.encode(errors=_ODD)
    try:
        header = file.read(member.offset, _LOCAL.size + len(raw))
    except PackError as error:
        raise _damaged(file, member.offset, f"{printable(member.name)} does not lie in the file") from error
    signature, _, flags, method, *_, name_size, extra = _LOCAL.unpack_from(header)
    if signature != b"PK\3\4" or name_size != len(raw) or header[_LOCAL.size :] != raw:
        raise _damaged(file, member.offset, f"{printable(member.name)} is listed there, and something else lies there")
    if method != member.method or (flags ^ member.flags) & ENCRYPTED:
        raise _damaged(file, member.offset, f"{printable(member.name)} is compressed otherwise than is listed")
    return int(member.offset + _LOCAL.size + name_size + extra)


def _directory(file: PackFile) -> _Directory:
    """Find the directory by the record at the end of the file."""
    tail_at = max(0, file.size - _END.size - _MOST_COMMENT)
    tail = file.read(tail_at, file.size - tail_at)
    at = tail.rfind(b"PK\5\6")
    while at >= 0 and (len(tail) - at < _END.size or _END.unpack_from(tail, at)[-1] > len(tail) - at - _END.size):
        at = tail.rfind(b"PK\5\6", 0, at + 3)
    if at < 0:
        raise SourceError(f"{printable(file.path)}: a zip archive without its directory: it was cut short, or is none")
    _, disk, first_disk, here, count, size, offset, _ = _END.unpack_from(tail, at)
    end = tail_at + at
    if here != count or (disk, first_disk) not in ((0, 0), (0xFFFF, 0xFFFF)):
        raise SourceError(f"{printable(file.path)}: an archive in several files: join them with zip -s 0")
    if found := _directory_64(file, end):
        end, count, size, offset = found
    begin = end - size
    if begin < 0 or begin < offset:
        raise _damaged(file, end, f"a directory of {size} bytes at byte {offset} is announced, and does not lie there")
    return _Directory(begin, end, count, begin - offset)


def _directory_64(file: PackFile, end: int) -> tuple[int, int, int, int] | None:
    """Return the end of the directory, its members, size and offset of a large archive; None of any other."""
    at = end - _LOCATOR_64.size
    locator = _LOCATOR_64.unpack(file.read(at, _LOCATOR_64.size)) if at >= 0 else (b"", 0, 0, 0)
    if locator[0] != b"PK\6\7":
        return None
    for place in (locator[2], at - _END_64.size):  # bytes in front of the archive move the first
        if 0 <= place <= at - _END_64.size:
            signature, _, _, _, disk, first, here, count, size, offset = _END_64.unpack(file.read(place, _END_64.size))
            if signature == b"PK\6\6":
                if disk or first or here != count:
                    raise SourceError(f"{printable(file.path)}: an archive in several files: join them with zip -s 0")
                return place, count, size, offset
    raise _damaged(file, at, "the record of a large archive's end is not where it should be")


def _listed(file: PackFile, block: bytes, begin: int, at: int, directory: _Directory) -> tuple[Member, int]:
    """Return the member whose record begins in a block that lies at byte `at`, and where the next one begins."""
    name_at = begin + _LISTED.size
    if name_at > len(block) or not block.startswith(b"PK\1\2", begin):
        raise _damaged(file, at + begin, "its directory has something else than a member")
    record = _LISTED.unpack_from(block, begin)
    _, _, host, _, flags, method, _, _, crc32, packed, size, name_size, extra_size, comment_size, disk = record[:15]
    attributes, offset = record[16:]
    extra_at = name_at + name_size
    end = extra_at + extra_size + comment_size
    if end > len(block):
        raise _damaged(file, at + begin, "its directory ends within a member")
    raw = block[name_at:extra_at]
    if _IN_ZIP64 in (packed, size, offset) or disk == 0xFFFF:
        extra = block[extra_at : extra_at + extra_size]
        try:
            size, packed, offset, disk = _large(extra, [size, packed, offset], disk)
        except ValueError as error:
            raise _damaged(file, at + begin, str(error)) from error
    name = _text(raw, flags).replace("\\", "/")  # of PowerShell 5, of .NET, of old tools: unzip does so, too
    if name.startswith(("./", "/")) or "//" in name or "/./" in name:
        name = "/".join(part for part in name.split("/") if part not in ("", ".")) + "/" * name.endswith("/")
    offset += directory.shift
    if disk or offset + _LOCAL.size + name_size + packed > directory.begin:
        raise _damaged(file, at + begin, f"{printable(name)} does not lie in the file")
    is_link = host == _UNIX and (attributes >> 16) & 0o170000 == _LINK
    size = packed if size == packed else size  # one number, of which there may be millions
    return Member(
        name, method, flags, packed, size, crc32, offset, is_link, b"" if name.encode(errors=_ODD) == raw else raw
    ), end


def _large(extra: bytes, numbers: list[int], disk: int) -> list[int]:
    """Return what the extra fields of a large member say in place of those numbers that are the largest ones."""
    begin = 0
    while begin + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, begin)
        begin += _EXTRA.size
        if kind == _ZIP64:
            place, end = begin, min(begin + length, len(extra))
            for which, number in enumerate(numbers):
                if number == _IN_ZIP64:
                    if place + 8 > end:
                        raise ValueError("the numbers of a large member are missing")
                    numbers[which] = int.from_bytes(extra[place : place + 8], "little")
                    place += 8
            if disk == 0xFFFF:
                disk = int.from_bytes(extra[place : min(place + 4, end)], "little")
            break
        begin += length
    return [*numbers, disk]  # where there is no such field, they are these numbers themselves


def _text(raw: bytes, flags: int) -> str:
    """Return a name: UTF-8, as the flag and many tools without it have it, or the code page of the first PCs."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp437" if not flags & _UTF8 else "utf-8", _ODD)


def _damaged(file: PackFile, at: int, what: str) -> SourceError:
    return SourceError(f"{printable(file.path)}, byte {at}: a damaged zip archive: {what}")
