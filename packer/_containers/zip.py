"""Zip archives of images: trees of class directories, and the archives of StyleGAN and Swin.

=====================  ===============================================================================================
in the archive         labels and order
=====================  ===============================================================================================
``dataset.json``       StyleGAN, EDM (``dataset_tool.py``): ``{"labels": [["00000/img.png", 6], ...]}`` or null; sorted
``train_map.txt``      Swin Transformer: a line ``path<tab>label`` for each image, in order; this file may also be
                       next to the archive ``train.zip``
directories            as ImageFolder lists the unpacked archive, without directories above all classes
none                   no labels; sorted
=====================  ===============================================================================================

packer reads a stored member as a range of the archive, and a deflated member as a compressed range.

The directory at the end of an archive lists its members; PKWARE's APPNOTE.TXT specifies the bytes. A member's data
follow a local header. The name and the extra fields in that header may have other lengths than in the directory, so
only the local header determines where the data begin. If other bytes precede the archive, they shift every offset in
it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer._account import Account, counted
from packer._codecs import IMAGE_SUFFIXES
from packer._containers.blocks import errors_in
from packer._containers.compression import MOST_UNPACKED, unpack
from packer._containers.contract import Container, Entry, Packed, Piece, Seal, no_keys, suffix_of
from packer._containers.dataset_json import DATASET_JSON, VECTOR, dataset_labels, label_vector
from packer._containers.discovery import above_classes, account_for_layout, by_class, numbered_classes, splits_among
from packer._containers.roles import LABEL_SUFFIXES, is_label_name
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._storage.stray_files import LEFT_BY_SYSTEM, MACOSX, is_system_file
from packer._table import Buffer, Names
from packer.errors import PackError, SourceError, option, printable

ENCRYPTED = 1
"""The flag of a member that is encrypted."""

_UTF8 = 1 << 11
_ODD = "surrogateescape"  # for bytes that are not UTF-8

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_LISTED = struct.Struct("<4s2B5HL2L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")

_MOST_COMMENT = 0xFFFF
_IN_ZIP64 = 0xFFFFFFFF
_ZIP64 = 1  # the extra field for numbers that do not fit into 32 bits
_BLOCK = 1 << 20  # bytes of the directory at a time
_LINK = 0o120000  # the kind of file, among the upper 16 bits of the attributes that Unix tools write
_UNIX = 3


class ZipMember(NamedTuple):
    """A file or directory in an archive, as the archive's directory describes it.

    Attributes
    ----------
    name : str
        A relative path with forward slashes, even if it was stored with backslashes. The name of a directory ends in a
        slash.
    method, flags : int
    packed, size : int
        The sizes of the data, compressed and unpacked.
    crc32 : int
    offset : int
        The offset of the member's local header in the file.
    is_link : bool
    raw_name : bytes
        The bytes of the name in the archive, if they differ from `name` in UTF-8; otherwise empty.
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
    """The archive's directory: its range, its number of members, and the number to add to the offsets that it lists."""

    begin: int
    end: int
    members: int
    shift: int


def members_of(file: PackFile) -> Iterator[ZipMember]:
    """Yield the members of an archive in directory order.

    Raises
    ------
    SourceError
        If the archive is damaged, cut short, or spread over several files.
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
        raise _damaged(
            file, directory.begin, f"its end record counts {directory.members} members, but the directory lists {count}"
        )


def data_of(file: PackFile, member: ZipMember) -> int:
    """Return the offset of a member's data; ValueError if the local header does not belong to the member."""
    raw = member.raw_name or member.name.encode(errors=_ODD)
    try:
        header = file.read(member.offset, _LOCAL.size + len(raw))
    except PackError as error:
        raise _misplaced(member, "is not within the file") from error
    signature, _, flags, method, *_, name_size, extra = _LOCAL.unpack_from(header)
    if signature != b"PK\3\4" or name_size != len(raw) or header[_LOCAL.size :] != raw:
        raise _misplaced(member, "is listed at this offset, but its header is not there")
    if method != member.method or (flags ^ member.flags) & ENCRYPTED:
        raise _misplaced(member, "has another compression method or encryption than is listed")
    return int(member.offset + _LOCAL.size + name_size + extra)


def _misplaced(member: ZipMember, why: str) -> ValueError:
    return ValueError(f"byte {member.offset}: a damaged zip archive: {printable(member.name)} {why}")


def _directory(file: PackFile) -> _Directory:
    """Find the archive's directory, from the record at the end of the file."""
    tail_at = max(0, file.size - _END.size - _MOST_COMMENT)
    tail = file.read(tail_at, file.size - tail_at)
    at = tail.rfind(b"PK\5\6")
    while at >= 0 and (len(tail) - at < _END.size or _END.unpack_from(tail, at)[-1] > len(tail) - at - _END.size):
        at = tail.rfind(b"PK\5\6", 0, at + 3)
    if at < 0:
        raise SourceError(
            f"{printable(file.path)}: no zip directory: the archive was cut short, or is not a zip archive"
        )
    _, disk, first_disk, here, count, size, offset, _ = _END.unpack_from(tail, at)
    end = tail_at + at
    if here != count or (disk, first_disk) not in ((0, 0), (0xFFFF, 0xFFFF)):
        raise SourceError(f"{printable(file.path)}: a split archive: join its files with zip -s 0")
    if found := _directory_64(file, end):
        end, count, size, offset = found
    begin = end - size
    if begin < 0 or begin < offset:
        raise _damaged(
            file, end, f"its directory of {size} bytes is not at byte {offset}, where the end record places it"
        )
    return _Directory(begin, end, count, begin - offset)


def _directory_64(file: PackFile, end: int) -> tuple[int, int, int, int] | None:
    """Return end, member count, size and offset of a Zip64 archive's directory; None for other archives."""
    at = end - _LOCATOR_64.size
    locator = _LOCATOR_64.unpack(file.read(at, _LOCATOR_64.size)) if at >= 0 else (b"", 0, 0, 0)
    if locator[0] != b"PK\6\7":
        return None
    for begin in (locator[2], at - _END_64.size):  # bytes before the archive make the first one wrong
        if 0 <= begin <= at - _END_64.size:
            signature, _, _, _, disk, first, here, count, size, offset = _END_64.unpack(file.read(begin, _END_64.size))
            if signature == b"PK\6\6":
                if disk or first or here != count:
                    raise SourceError(f"{printable(file.path)}: a split archive: join its files with zip -s 0")
                return begin, count, size, offset
    raise _damaged(file, at, "the ZIP64 end record is not where its locator points")


def _listed(file: PackFile, block: bytes, begin: int, at: int, directory: _Directory) -> tuple[ZipMember, int]:
    """Parse the directory record at `begin` in a block; return the member, and the position of the next record.

    The block begins at byte `at` of the file.
    """
    name_at = begin + _LISTED.size
    if name_at > len(block) or not block.startswith(b"PK\1\2", begin):
        raise _damaged(file, at + begin, "an entry of its directory is not a member")
    record = _LISTED.unpack_from(block, begin)
    _, _, host, _, flags, method, _, _, crc32, packed, size, name_size, extra_size, comment_size, disk = record[:15]
    attributes, offset = record[16:]
    extra_at = name_at + name_size
    end = extra_at + extra_size + comment_size
    if end > len(block):
        raise _damaged(file, at + begin, "its directory ends in the middle of an entry")
    raw = block[name_at:extra_at]
    if _IN_ZIP64 in (packed, size, offset) or disk == 0xFFFF:
        extra = block[extra_at : extra_at + extra_size]
        try:
            size, packed, offset, disk = _large(extra, [size, packed, offset], disk)
        except ValueError as error:
            raise _damaged(file, at + begin, str(error)) from error
    name = _text(raw, flags).replace("\\", "/")  # as written by PowerShell 5, .NET and old tools; unzip does the same
    if name.startswith(("./", "/")) or "//" in name or "/./" in name:
        name = "/".join(part for part in name.split("/") if part not in ("", ".")) + "/" * name.endswith("/")
    offset += directory.shift
    if disk or offset + _LOCAL.size + name_size + packed > directory.begin:
        raise _damaged(file, at + begin, f"{printable(name)} is not within the file")
    is_link = host == _UNIX and (attributes >> 16) & 0o170000 == _LINK
    size = packed if size == packed else size  # one object: there may be millions
    return ZipMember(
        name, method, flags, packed, size, crc32, offset, is_link, b"" if name.encode(errors=_ODD) == raw else raw
    ), end


def _large(extra: bytes, numbers: list[int], disk: int) -> list[int]:
    """Replace the numbers that are too large for a directory record by the numbers in its extra fields."""
    begin = 0
    while begin + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, begin)
        begin += _EXTRA.size
        if kind == _ZIP64:
            position, end = begin, min(begin + length, len(extra))
            for which, number in enumerate(numbers):
                if number == _IN_ZIP64:
                    if position + 8 > end:
                        raise ValueError("the ZIP64 sizes of a member are missing")
                    numbers[which] = int.from_bytes(extra[position : position + 8], "little")
                    position += 8
            if disk == 0xFFFF:
                disk = int.from_bytes(extra[position : min(position + 4, end)], "little")
            break
        begin += length
    return [*numbers, disk]  # without this field, the numbers are literal


def _text(raw: bytes, flags: int) -> str:
    """Decode a name as UTF-8 (many tools write it without setting the flag), or else as code page 437."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp437" if not flags & _UTF8 else "utf-8", _ODD)


def _damaged(file: PackFile, at: int, what: str) -> SourceError:
    return SourceError(f"{printable(file.path)}, byte {at}: a damaged zip archive: {what}")


_STORED, _DEFLATED = 0, 8
_CODECS = {_DEFLATED: "deflate", 93: "zstd"}
_BEGINNING = 64  # first bytes of a member, which identify its type
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_MOST_TEXT = 1 << 28  # bytes of labels
_FEW, _RATIO = 1 << 24, 64  # most unpacked bytes: _FEW + _RATIO x packed; parsed JSON takes up to 30 times as much
_MAP = "_map.txt"
_OF_OTHERS = (".npz", ".pth", ".pt")  # zip archives too


@dataclass(eq=False)
class Zip(Container):
    """Zip archives of images."""

    kind = "zip"
    suffixes = (".zip",)
    sealed = True
    labels_are_ids = True

    archives: list[_Archive] = field(default_factory=list)

    @staticmethod
    def checksum(data: Buffer) -> int:
        return zlib.crc32(data)

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if path.suffix.lower() in _OF_OTHERS:
            return False
        return head.startswith((b"PK\3\4", b"PK\5\6")) or path.suffix.lower() in cls.suffixes

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Zip:
        no_keys(cls.kind, keys)
        made = cls.of_files(paths)
        for path in paths:
            with PackFile(path) as file:
                made.archives.append(_Archive(file, made.notes, made.account))
        labels = [archive.labels for archive in made.archives]
        if all(of_one is None for of_one in labels):
            made.classes = sorted(set[str]().union(*(archive.classes for archive in made.archives)))
            made.why_unlabeled = "they are not in a class directory"
        elif any(isinstance(label, list) for of_one in labels for label in (of_one or {}).values()):
            made.fields = (VECTOR,)
        return made

    def entries(self, unit: int) -> Iterator[Entry]:
        archive = self.archives[unit]
        for name, problem in archive.bad.items():
            yield Entry(name, b"", problem=problem)
        with self.opened(unit) as file:
            for member in archive.images:
                try:
                    entry = _entry(file, unit, archive, member)
                except ValueError as error:
                    entry = Entry(member.name[archive.skip :], b"", problem=str(error))
                yield entry


def _entry(file: PackFile, unit: int, archive: _Archive, member: ZipMember) -> Entry:
    """Return the entry of an image; ValueError if the image or its label cannot be used."""
    name = member.name[archive.skip :]
    if archive.labels is None:
        label: Any = name.partition("/")[0] if "/" in name else None
    else:
        label = archive.labels.get(member.name)
    values: dict[str, Any] = {}
    if isinstance(label, list):
        values, label = {VECTOR.name: label_vector(label)}, None
    image = _image(file, unit, member)
    seal = Seal(image.offset, image.size, member.crc32) if isinstance(image, Piece) else None
    return Entry(name, image, label, values, seal=seal)


class _Archive:
    """The images of an archive, and their labels.

    Parameters
    ----------
    file : PackFile
    notes : list of str
        Receives notes for the user.
    account : Account
        Receives the members that are not used.

    Attributes
    ----------
    images : list of ZipMember
        The images, in the order of samples.
    skip : int
        The number of characters to remove from the beginning of each name.
    labels : mapping, optional
        The labels, by name; None if directories are classes.
    classes : set of str
        The names of the class directories; some may be empty.
    bad : dict of str to str
        The images that cannot be used, with the reasons, by name.
    """

    def __init__(self, file: PackFile, notes: list[str], account: Account) -> None:
        self._file, self._notes, self._account = file, notes, account
        self.skip = 0
        self.labels: Mapping[str, Any] | None = None
        self.classes: set[str] = set()
        self.bad: dict[str, str] = {}
        self.images, folders, texts = self._members()
        sidecar = Path(file.path).with_name(Path(file.path).stem + _MAP)
        if text := _only(file, [member for member in texts if member.name.endswith(_MAP)]):
            self._take_map(_text_of(file, text), printable(text.name))
        elif os.path.isfile(sidecar):
            with PackFile(sidecar) as named:
                listed = named.read(0, _few(file, sidecar.name, named.size))
            notes.append(f"labels and order are those of {printable(sidecar.name)}")
            self._take_map(listed, printable(sidecar))
        elif not self._take_dataset_json([member for member in texts if not member.name.endswith(_MAP)]):
            self._take_tree(folders)

    def _members(self) -> tuple[list[ZipMember], list[str], list[ZipMember]]:
        """Return the images, directories and label files of an archive; record all other members in the account."""
        file, account = self._file, self._account
        images: dict[str, ZipMember] = {}
        folders, texts, archives = list[str](), list[ZipMember](), list[str]()
        backslashes = False
        for member in members_of(file):
            backslashes |= b"\\" in member.raw_name
            base = member.name.rpartition("/")[2]
            suffix = os.path.splitext(base)[1].lower()
            if _is_of_system(file, member, base):
                account.not_looked_at("file", LEFT_BY_SYSTEM, [member.name] * (not member.name.endswith("/")))
            elif member.name.endswith("/"):
                folders.append(member.name)
            elif base == DATASET_JSON or base.endswith(_MAP):
                texts.append(member)
            elif not (suffix in IMAGE_SUFFIXES or (not suffix and suffix_of(_head(file, member)))):
                archives += [member.name] * (suffix in _ARCHIVES)
                _pass_over(member.name, base, suffix, account)
            elif member.is_link:
                account.left_out("image", "they are links: create the archive again without zip -y", [member.name])
            elif not suffix:
                account.left_out("image", "their names have no suffix", [member.name])
            elif problem := name_problem(member.name):
                self.bad[member.name] = problem
            elif images.setdefault(member.name, member) is not member:
                self.bad[member.name] = "the archive contains this name twice"
        if backslashes:
            called = printable(Path(file.path).name)
            self._notes.append(f"{called}: backslashes in names are read as slashes")
        if archives and not images:
            raise SourceError(
                f"{printable(file.path)}: contains no images, but {counted(len(archives), 'archive')}, such as "
                f"{printable(archives[0])}, and packer does not read nested archives. Extract it, and convert the "
                "inner archives"
            )
        return [member for name, member in images.items() if name not in self.bad], folders, texts

    def _take_map(self, listed: bytes, where: str) -> None:
        """Take the images that Swin's map lists, in the map's order; `where` is the map's name in messages."""
        by_name = {member.name: member for member in self.images}
        labels: dict[str, int] = {}
        for number, line in enumerate(listed.decode("utf-8", "surrogateescape").splitlines(), 1):
            name, tab, label = line.rstrip().partition("\t")
            if not line.strip() or name in self.bad:
                continue
            problem = ""
            if not tab or not label.isascii() or not label.isdigit() or len(label) > 18:
                problem = "expected a path, a tab and a class id"
            elif name not in by_name:
                problem = f"the archive has no image {printable(name)}"
            elif name in labels:
                problem = f"{printable(name)} is listed a second time"
            if not problem:
                labels[name] = int(label)
            elif name in labels and label == str(labels[name]):  # the line repeats the label, so it costs no image
                self.bad[f"{where.rpartition('/')[2]}, line {number}"] = problem
            else:
                self.bad[name] = f"{where}, line {number}: {problem}"
        unnamed = [name for name in by_name if name not in labels and name not in self.bad]
        self._account.left_out("image", f"{where} does not name them", unnamed)
        self.images = [by_name[name] for name in labels if name not in self.bad]
        self.labels = labels

    def _take_dataset_json(self, texts: Sequence[ZipMember]) -> bool:
        """Take the labels from the ``dataset.json`` that StyleGAN's tool wrote; return whether there is such a file."""
        text = _only(self._file, texts)
        if text is None:
            return False
        above, where = text.name[: -len(DATASET_JSON)], f"{printable(self._file.path)}, {printable(text.name)}"
        found = dataset_labels(_text_of(self._file, text), where, above)
        names = [member.name for member in self.images]
        if found is None or not found.are_of_images(names, self._account):
            self._account.not_looked_at("file", "it has no labels for these images", [text.name])
            return False
        self.bad |= found.problems | found.nameless
        self.images = sorted(member for member in self.images if member.name not in self.bad)
        self.labels = found.labels
        self.skip = len(above) if all(name.startswith(above) for name in names) else 0
        return True

    def _take_tree(self, folders: Sequence[str]) -> None:
        """Take the images as ImageFolder lists them, and the directories as classes."""
        file, notes, account = self._file, self._notes, self._account
        above = above_classes([member.name.split("/")[:-1] for member in self.images])
        self.skip = len(above)
        if above:
            notes.append(
                f"{printable(Path(file.path).name)}: the directory {printable(above)} above all classes is left out"
            )
        below = {member.name: member.name[self.skip :] for member in self.images}
        tops = {name.partition("/")[0] for name in below.values() if "/" in name}
        if splits := splits_among([name.rpartition("/")[0] for name in below.values()]):
            shown = ", ".join(map(printable, splits))
            raise SourceError(
                f"{printable(file.path)}: has several splits: {shown}. Unpack it and convert one of them."
            )
        if tops:
            outside = [name for name, inner in below.items() if "/" not in inner]
            account.left_out(
                "image", "they are outside of the class directories, where ImageFolder reads no images", outside
            )
            self.images = [member for member in self.images if "/" in below[member.name]]
        self.images.sort(key=lambda member: _in_tree(below[member.name]))
        if not tops:
            return
        inside = [name[self.skip :] for name in folders if name.startswith(above) and name != above]
        of_folders = {name.partition("/")[0] for name in inside}
        if empty := sorted(of_folders - tops):
            notes.append(f"classes without images, which keep their ids: {', '.join(map(printable, empty[:5]))}")
        self.classes = tops | of_folders
        hidden = sorted(name for name in self.classes if name.startswith("."))
        account.taken("class", "a hidden directory is a class, as in ImageFolder", hidden)
        notes += numbered_classes(sorted(self.classes))
        listed = by_class(Names.of(member.name for member in self.images), above)
        account_for_layout(account, listed, printable(above), "unpack it, and convert")


def _pass_over(name: str, base: str, suffix: str, account: Account) -> None:
    """Record in `account` a file that is not an image, and whether it may be a table of labels."""
    account.not_looked_at("file", f"its suffix is {suffix}" if suffix else "it has no suffix", [name])
    if suffix in LABEL_SUFFIXES and (base.startswith("metadata.") or is_label_name(base.partition(".")[0])):
        account.looks_like_labels("file", name, "", f"unpack the archive to use it with {option('labels', base)}")


def _is_of_system(file: PackFile, member: ZipMember, base: str) -> bool:
    """Tell whether a member is a file that macOS or Windows leaves in directories."""
    if member.name.startswith(f"{MACOSX}/") and (not base or base.startswith("._")):
        return True
    return is_system_file(base, lambda: _head(file, member))


def _head(file: PackFile, member: ZipMember) -> bytes:
    """Return the first bytes of a member; empty if the member cannot be read."""
    if member.flags & ENCRYPTED or member.method not in (_STORED, _DEFLATED):
        return b""
    try:
        packed = file.read(data_of(file, member), min(member.packed, _BEGINNING))
        return packed if member.method == _STORED else zlib.decompressobj(-15).decompress(packed, _BEGINNING)
    except (ValueError, zlib.error):
        return b""


def _only(file: PackFile, texts: Sequence[ZipMember]) -> ZipMember | None:
    """Return the label file closest to the archive's root; None if there is none."""
    texts = sorted(texts, key=lambda member: member.name.count("/"))
    if len(texts) > 1 and texts[0].name.count("/") == texts[1].name.count("/"):
        names = f"{printable(texts[0].name)} and {printable(texts[1].name)}"
        raise SourceError(
            f"{printable(file.path)}: contains {names}, but only one file can hold the labels: unpack the archive"
        )
    return texts[0] if texts else None


def _in_tree(name: str) -> str:
    """Return a sort key for ImageFolder's order: by class, by directory, by name.

    These parts are separated by NUL, which no name contains.
    """
    directory, _, base = name.rpartition("/")
    return f"{directory.replace('/', chr(0), 1)}\0{base}" if "/" in directory else f"{directory}\0\0{base}"


def _image(file: PackFile, unit: int, member: ZipMember) -> Piece | Packed:
    """Return the location of a member's data; ValueError if the member cannot be read."""
    if member.flags & ENCRYPTED:
        raise ValueError("is encrypted: unpack the archive")
    piece = Piece(unit, data_of(file, member), member.packed)
    if piece.offset + piece.size > file.size:
        raise ValueError(f"its data at byte {piece.offset} extend beyond the file: it was cut short")
    if member.method == _STORED:
        if member.packed != member.size:
            raise ValueError(
                f"is stored uncompressed, but its two sizes differ ({member.size} and {member.packed} bytes): it is "
                "damaged"
            )
        return piece
    if member.method not in _CODECS:
        raise ValueError(
            f"is compressed by method {member.method}, which packer does not read: pack it again with zip -0"
        )
    if member.size > MOST_UNPACKED:
        raise ValueError(f"has {member.size:,} bytes, too many for an image")
    return Packed.whole(piece, _CODECS[member.method], member.size, member.crc32)


def _text_of(file: PackFile, member: ZipMember) -> bytes:
    """Return the content of a label file in an archive."""
    _few(file, member.name, max(member.size, member.packed))
    with errors_in(f"{printable(file.path)}: {printable(member.name)}"):
        piece = _image(file, 0, member)
        if isinstance(piece, Piece):
            return file.read(piece.offset, piece.size)
        if piece.unpacked > _FEW + _RATIO * member.packed:
            raise ValueError(
                f"{member.packed:,} bytes decompress to {member.size:,}, too many for labels: store it with zip -0"
            )
        return unpack(piece.codec, file.read(piece.piece.offset, piece.piece.size), piece.unpacked)


def _few(file: PackFile, name: str, size: int) -> int:
    if size > _MOST_TEXT:
        raise SourceError(f"{printable(file.path)}: {printable(name)}: {size:,} bytes are too many for labels")
    return size
