"""Zip archives of images: trees of class directories, and those of StyleGAN and Swin.

=====================  ===============================================================================================
in the archive         labels and order
=====================  ===============================================================================================
``dataset.json``       StyleGAN, EDM (``dataset_tool.py``): ``{"labels": [["00000/img.png", 6], ...]}`` or null; sorted
``train_map.txt``      Swin Transformer: a line ``path<tab>label`` each image, in their order; it may lie beside the
                       archive ``train.zip``
directories            as ImageFolder lists them where the archive is unpacked; directories above all classes go
none                   no labels; sorted
=====================  ===============================================================================================

A stored member is a range of the archive, a deflated one a compressed range.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer._account import Account, counted, is_label_name
from packer._containers.classdirectories import above_classes, numbered_classes, splits_among
from packer._containers.contract import Container, Entry, Packed, Piece, Seal, no_keys
from packer._containers.imagenames import suffix_of
from packer._containers.unpacking import MOST_UNPACKED, unpack
from packer._containers.zips.stylegan import DATASET_JSON, VECTOR, are_parts, dataset_labels, label_vector
from packer._containers.zips.zipdirectory import ENCRYPTED, Member, data_of, members_of
from packer._sample import IMAGE_SUFFIXES
from packer._storage.packfile import PackFile
from packer._storage.paths import name_problem
from packer._storage.systemfiles import LEFT_BY_SYSTEM, MACOSX, is_system_file
from packer._table import Buffer
from packer.errors import SourceError, printable

__all__ = ["Zip"]

_STORED, _DEFLATED = 0, 8
_CODECS = {_DEFLATED: "deflate", 93: "zstd"}
_BEGINNING = 64  # bytes by which a member is known
_TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl")
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_MOST_TEXT = 1 << 28  # bytes of labels
_FEW, _RATIO = 1 << 24, 64  # what few compressed bytes give at most: JSON takes up to 30 times its text in memory
_MAP = "_map.txt"
_OF_OTHERS = (".npz", ".pth", ".pt")  # zip archives too


@dataclass
class _Archive:
    """The images of one archive, in their order, and what is known of them by their names in it."""

    images: list[Member]
    skip: int = 0
    """How many characters the names of all images begin with that go."""
    labels: Mapping[str, Any] | None = None
    """By names; None where directories are classes."""


@dataclass(eq=False)
class Zip(Container):
    """Files ``.zip`` with images in them."""

    kind = "zip"
    suffixes = (".zip",)
    sealed = True

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
        made, classes = cls.of_files(paths), set[str]()
        for path in paths:
            with PackFile(path) as file:
                archive, folders = _archive(file, made.notes, made.account)
            made.archives.append(archive)
            classes |= folders
        if all(archive.labels is None for archive in made.archives):
            made.classes, made.why_unlabeled = sorted(classes), "they lie in no class directory"
        elif any(isinstance(label, list) for archive in made.archives for label in (archive.labels or {}).values()):
            made.fields = (VECTOR,)
        return made

    def entries(self, unit: int) -> Iterator[Entry]:
        archive = self.archives[unit]
        with self.opened(unit) as file:
            for member in archive.images:
                name = member.name[archive.skip :]
                if archive.labels is None:
                    label: Any = name.partition("/")[0] if "/" in name else None
                else:
                    label = archive.labels.get(member.name)
                values: dict[str, Any] = {}
                if isinstance(label, list):
                    where = f"{printable(file.path)}, {DATASET_JSON}"
                    values, label = {"labels": label_vector(label, where, member.name)}, None
                image = _image(file, unit, member)
                seal = Seal(image.offset, image.size, member.crc32) if isinstance(image, Piece) else None
                yield Entry(name, image, label, values, seal=seal)


def _archive(file: PackFile, notes: list[str], account: Account) -> tuple[_Archive, set[str]]:
    """Read the structure of an archive; return its images and the names of its classes."""
    images, folders, texts = _taken(file, notes, account)
    beside = Path(file.path).with_name(Path(file.path).stem + _MAP)
    if text := _only(file, [member for member in texts if member.name.endswith(_MAP)]):
        where = f"{printable(file.path)}, {printable(text.name)}"
        return _swin(file, images, _text_of(file, text), where, account), set()
    if os.path.isfile(beside):
        with PackFile(beside) as named:
            listed = named.read(0, _few(file, beside.name, named.size))
        notes.append(f"labels and order are those of {printable(beside.name)}")
        return _swin(file, images, listed, printable(beside), account), set()
    if text := _only(file, [member for member in texts if not member.name.endswith(_MAP)]):
        if (archive := _stylegan(file, images, text)) is not None:
            return archive, set()
        account.not_looked_at("file", "it has no labels of images", [text.name])
    return _tree(file, images, folders, notes, account)


def _taken(file: PackFile, notes: list[str], account: Account) -> tuple[list[Member], list[str], list[Member]]:
    """Return the images of an archive, its directories, and its files of labels; say what else there is."""
    images: dict[str, Member] = {}
    folders, texts, archives = list[str](), list[Member](), list[str]()
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
            account.left_out("image", "they are links: make the archive again without zip -y", [member.name])
        elif not suffix:
            account.left_out("image", "their names have no suffix", [member.name])
        else:
            if problem := name_problem(member.name):
                raise SourceError(f"{printable(file.path)}: {printable(member.name)}: {problem}")
            if member.name in images:
                raise SourceError(f"{printable(file.path)}: {printable(member.name)}: is in it twice")
            images[member.name] = member
    if backslashes:
        notes.append(f"{printable(Path(file.path).name)}: names have backslashes, which are taken for slashes")
    if archives and not images:
        raise SourceError(
            f"{printable(file.path)}: has no images, but {counted(len(archives), 'archive')} in it, such as "
            f"{printable(archives[0])}, and packer reads none within another. Extract it, and convert these"
        )
    return list(images.values()), folders, texts


def _pass_over(name: str, base: str, suffix: str, account: Account) -> None:
    """Say of a file that it is no image; it may be a table of labels."""
    account.not_looked_at("file", f"its suffix is {suffix}" if suffix else "it has no suffix", [name])
    if suffix in _TABLES and (base.startswith("metadata.") or is_label_name(base.partition(".")[0])):
        account.looks_like_labels("file", name, "", f"once the archive is unpacked, --labels {base} takes it")


def _is_of_system(file: PackFile, member: Member, base: str) -> bool:
    """Tell whether a member is what macOS or Windows leaves in directories, and no image whatever its name is."""
    if member.name.startswith(f"{MACOSX}/") and (not base or base.startswith("._")):
        return True
    return is_system_file(base, lambda: _head(file, member))


def _head(file: PackFile, member: Member) -> bytes:
    """Return the first bytes of a member; none of one that cannot be read."""
    if member.flags & ENCRYPTED or member.method not in (_STORED, _DEFLATED):
        return b""
    packed = file.read(data_of(file, member), min(member.packed, _BEGINNING))
    try:
        return packed if member.method == _STORED else zlib.decompressobj(-15).decompress(packed, _BEGINNING)
    except zlib.error:
        return b""


def _only(file: PackFile, texts: Sequence[Member]) -> Member | None:
    """Return the one file of labels that lies highest; None without any."""
    texts = sorted(texts, key=lambda member: member.name.count("/"))
    if len(texts) > 1 and texts[0].name.count("/") == texts[1].name.count("/"):
        names = f"{printable(texts[0].name)} and {printable(texts[1].name)}"
        raise SourceError(f"{printable(file.path)}: has {names}, and one of them can have the labels: unpack it")
    return texts[0] if texts else None


def _tree(
    file: PackFile, images: list[Member], folders: Sequence[str], notes: list[str], account: Account
) -> tuple[_Archive, set[str]]:
    """Return images as ImageFolder lists them, and the classes, of which some may have no image."""
    above = above_classes([member.name.split("/")[:-1] for member in images])
    if above:
        notes.append(
            f"{printable(Path(file.path).name)}: the directory {printable(above)} above all classes is left out"
        )
    below = [member.name[len(above) :] for member in images]
    tops = {name.partition("/")[0] for name in below if "/" in name}
    if splits := splits_among([name.rpartition("/")[0] for name in below]):
        shown = ", ".join(map(printable, splits))
        raise SourceError(f"{printable(file.path)}: has several splits: {shown}. Unpack it, and take one.")
    if tops:
        outside = [member.name for member in images if "/" not in member.name[len(above) :]]
        account.left_out("image", "they lie outside of any class, where ImageFolder has none", outside)
        images = [member for member in images if "/" in member.name[len(above) :]]
    images.sort(key=lambda member: _in_tree(member.name[len(above) :]))
    if not tops:
        return _Archive(images, len(above)), set()
    of_folders = {name[len(above) :].partition("/")[0] for name in folders if name.startswith(above) and name != above}
    if empty := sorted(of_folders - tops):
        notes.append(f"classes without images, which keep their ids: {', '.join(map(printable, empty[:5]))}")
    hidden = sorted(name for name in tops | of_folders if name.startswith("."))
    account.taken("class", "a hidden directory is a class, as for ImageFolder", hidden)
    notes += numbered_classes(sorted(tops | of_folders))
    return _Archive(images, len(above)), tops | of_folders


def _in_tree(name: str) -> str:
    """Return a key that sorts as ImageFolder does: by class, by directory, by name; no name has a NUL."""
    directory, _, base = name.rpartition("/")
    return f"{directory.replace('/', chr(0), 1)}\0{base}" if "/" in directory else f"{directory}\0\0{base}"


def _stylegan(file: PackFile, images: list[Member], text: Member) -> _Archive | None:
    """Return images with the labels of ``dataset.json``; None where it has none, and directories are classes."""
    where = f"{printable(file.path)}, {printable(text.name)}"
    above = text.name[: -len(DATASET_JSON)]
    said = dataset_labels(_text_of(file, text), where)
    if said is None or not (said or are_parts(member.name for member in images)):
        return None
    labels = {above + name: label for name, label in said.items()}
    if labels and (missing := [member.name for member in images if member.name not in labels]):
        raise SourceError(f"{where}: has no label of {printable(missing[0])}")
    return _Archive(sorted(images), _shared(images, above), labels)


def _swin(file: PackFile, images: list[Member], listed: bytes, where: str, account: Account) -> _Archive:
    """Return the images that a map names, in its order."""
    by_name = {member.name: member for member in images}
    chosen, labels = list[Member](), dict[str, int]()
    for number, line in enumerate(listed.decode("utf-8", "surrogateescape").splitlines(), 1):
        name, tab, label = line.rstrip().partition("\t")
        if not line.strip():
            continue
        if not tab or not label.isascii() or not label.isdigit() or len(label) > 18:
            raise SourceError(f"{where}, line {number}: a path, a tab and the id of a class are expected")
        if name not in by_name:
            raise SourceError(f"{where}, line {number}: {printable(file.path)} has no image {printable(name)}")
        if name in labels:
            raise SourceError(f"{where}, line {number}: {printable(name)} is named a second time")
        labels[name] = int(label)
        chosen.append(by_name[name])
    unnamed = [member.name for member in images if member.name not in labels]
    account.left_out("image", f"{where.rpartition(', ')[2]} does not name them", unnamed)
    return _Archive(chosen, 0, labels)


def _shared(images: Sequence[Member], above: str) -> int:
    return len(above) if all(member.name.startswith(above) for member in images) else 0


def _image(file: PackFile, unit: int, member: Member) -> Piece | Packed:
    if member.flags & ENCRYPTED:
        raise _refused(file, member, "is encrypted: unpack the archive")
    piece = Piece(unit, data_of(file, member), member.packed)
    if piece.offset + piece.size > file.size:
        raise _refused(file, member, f"its data at byte {piece.offset} do not lie in the file: it was cut short")
    if member.method == _STORED:
        if member.packed != member.size:
            raise _refused(file, member, f"is stored, and has {member.size} bytes in {member.packed}: it is damaged")
        return piece
    if member.method not in _CODECS:
        raise _refused(file, member, f"is compressed by method {member.method}: pack it again with zip -0")
    if member.size > MOST_UNPACKED:
        raise _refused(file, member, f"has {member.size:,} bytes, more than any image")
    return Packed.whole(piece, _CODECS[member.method], member.size, member.crc32)


def _refused(file: PackFile, member: Member, why: str) -> SourceError:
    return SourceError(f"{printable(file.path)}: {printable(member.name)}: {why}")


def _text_of(file: PackFile, member: Member) -> bytes:
    """Return the bytes of a file of labels in an archive."""
    _few(file, member.name, max(member.size, member.packed))
    piece = _image(file, 0, member)
    if isinstance(piece, Piece):
        return file.read(piece.offset, piece.size)
    if piece.unpacked > _FEW + _RATIO * member.packed:
        raise _refused(file, member, f"{member.packed:,} bytes of it give {member.size:,}: store it with zip -0")
    try:
        return unpack(piece.codec, file.read(piece.piece.offset, piece.piece.size), piece.unpacked)
    except ValueError as error:
        raise SourceError(f"{printable(file.path)}: {printable(member.name)}: {error}") from error


def _few(file: PackFile, name: str, size: int) -> int:
    if size > _MOST_TEXT:
        raise SourceError(f"{printable(file.path)}: {printable(name)}: {size:,} bytes are more than labels have")
    return size
