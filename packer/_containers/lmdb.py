"""LMDB files of other tools: the base class of their containers, and the containers whose values are images.

An LMDB container is a file, or a directory with ``data.mdb``. The first entries of the file show which container it is.

`ImageLMDB`: the values are image files, the keys are arbitrary. BasicSR writes these files, with names without a suffix
as keys. StyleGAN's tool reads them, whatever the keys are.

`LSUN` (https://github.com/fyu/lsun): a directory ``CLASS_SPLIT_lmdb`` with ``data.mdb`` for each class. The values are
images (WebP in the published files), and the keys are hashes of the images. As in torchvision, the classes are sorted
by name; ``test_lmdb`` has no class.

`TextRecognition`: images of words, and the text in each. The value of the key ``num-samples`` is the number of samples
N, as text. The keys ``image-000000001`` up to N have the images, and ``label-000000001`` up to N have their texts, in
UTF-8. ``create_lmdb_dataset.py`` of https://github.com/clovaai/deep-text-recognition-benchmark writes these files, and
most tools for text recognition read them.

`UnreadLMDB`: any other LMDB file. packer names the file and refuses to read it.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from packer._containers.contract import (
    IMAGE_HEAD,
    Container,
    Entry,
    Piece,
    head_of,
    image_name,
    natural,
    no_keys,
    suffix_of,
)
from packer._containers.roles import add_candidates
from packer._fields import Field
from packer._storage.lmdb_tree import MAGIC, VERSION, LMDBTree
from packer._storage.packfile import PackFile
from packer.errors import CorruptPackError, PackError, SourceError, printable

COUNTS = frozenset({b"__keys__", b"__len__", b"num-samples", b"length", b"__meta__"})
"""Keys whose values list or count the samples."""

DATA = "data.mdb"
"""The name of the file in an LMDB directory."""

_OWN = b"packer/"  # prefix of the keys that only packer's own packs have
_FEW = 8
_HEAD = 64
_MAGIC = MAGIC.to_bytes(4, "little")


class LMDBValue(NamedTuple):
    """The location of one value in an LMDB file.

    Attributes
    ----------
    unit : int
        The number of the file in its container.
    file : PackFile
    key : bytes
    offset, size : int
        The range of the value in the file.
    problem : str
        The reason why the value is missing; empty otherwise.
    """

    unit: int
    file: PackFile
    key: bytes
    offset: int = 0
    size: int = 0
    problem: str = ""

    @property
    def piece(self) -> Piece:
        """The value's range, as a `Piece` of the container."""
        return Piece(self.unit, self.offset, self.size)

    def head(self, size: int = _HEAD) -> bytes:
        """Return the first bytes of the value."""
        return self.file.read(self.offset, min(size, self.size))

    def suffix(self) -> str:
        """Return the file suffix for the value's image type; empty if the value is not an image."""
        return suffix_of(self.head(IMAGE_HEAD))


class First(NamedTuple):
    """The first keys and values of a file, from which its container is recognised.

    Attributes
    ----------
    path : Path
    tree : LMDBTree
    values : list of LMDBValue
        The first values, in the order of their keys.
    """

    path: Path
    tree: LMDBTree
    values: list[LMDBValue]


class LMDBContainer(Container):
    """A container with samples that are values of one LMDB file, or of one file per class."""

    @classmethod
    @abc.abstractmethod
    def is_of(cls, first: First) -> bool:
        """Tell whether a file belongs to this container. A ValueError means that it does not."""

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        if not is_lmdb(path, head):
            return False
        try:
            with first_of(path) as first:
                return not _is_own(first.tree) and bool(first.values) and cls.is_of(first)
        except (ValueError, PackError):  # damaged: opening it as a pack raises the error
            return False

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        data = path / DATA
        return [data] if DATA in names and cls.recognise_file(data, head_of(data)) else None

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file, failing(file.path):
            tree = LMDBTree(file)
            tree.require_plain()
            for value in self.ordered(unit, file, tree):
                try:
                    if value.problem:
                        raise ValueError(value.problem)
                    entry = self.entry(value)
                except ValueError as error:
                    entry = Entry(text_of(value.key), b"", problem=printable(error))
                if entry is not None:
                    yield entry

    def ordered(self, unit: int, file: PackFile, tree: LMDBTree) -> Iterator[LMDBValue]:
        """Yield the values that are samples in one file: by default all values, in the order of their keys."""
        for key, offset, size in tree.walk():
            yield LMDBValue(unit, file, key, offset, size)

    @abc.abstractmethod
    def entry(self, value: LMDBValue) -> Entry | None:
        """Return the sample in a value; None if the value is left out; ValueError if it is invalid."""


def is_lmdb(path: Path, head: bytes) -> bool:
    """Tell whether a file is an LMDB file, by its first bytes.

    Raises
    ------
    SourceError
        If the file has another version or byte order, or comes from a 32-bit machine.
    """
    if head[16:20] == _MAGIC:
        version, of = int.from_bytes(head[20:24], "little"), ""
    elif head[24:28] == _MAGIC:  # LMDB 1.0, whose pages begin with a header of 24 bytes
        version, of = int.from_bytes(head[28:32], "little"), " of LMDB 1.0"
    elif head[16:20] == _MAGIC[::-1] or head[12:16] in (_MAGIC, _MAGIC[::-1]):
        version, of = 0, " of a machine with another byte order or with 32 bits"
    else:
        return False
    if version != VERSION:
        data = f"data version {version}{of}" if version else f"the layout{of}"
        raise SourceError(
            f"{printable(path)}: an LMDB file with {data}, which packer does not read. "
            "Copy it: mdb_dump with the LMDB that wrote it, and mdb_load with LMDB 0.9 on this machine"
        )
    return True


def _is_own(tree: LMDBTree) -> bool:
    """Tell whether a tree has the keys of packer's own packs."""
    return any(key.startswith(_OWN) for key, _, _ in itertools.islice(tree.walk(_OWN), 1))


@contextlib.contextmanager
def first_of(path: Path) -> Iterator[First]:
    """Open a file and find its first values.

    Raises
    ------
    PackError
        If the file is damaged.
    """
    with PackFile(path) as file:
        tree = LMDBTree(file)
        tree.require_plain()
        found = itertools.islice(tree.walk(), _FEW)
        yield First(path, tree, [LMDBValue(0, file, key, offset, size) for key, offset, size in found])


@contextlib.contextmanager
def failing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of reading a file into SourceErrors that name the file."""
    try:
        yield
    except CorruptPackError as error:
        raise SourceError(f"{printable(path)}: {error.reason}") from error
    except PackError as error:
        raise SourceError(str(error)) from error


def shown_key(key: bytes) -> str:
    """Format a key for messages."""
    return f"key {printable(key.decode('utf-8', 'surrogateescape'))[:200]!r}"


def text_of(key: bytes) -> str:
    """Return a key as text, or as hexadecimal digits if it is not printable text."""
    text = key.decode("utf-8", "surrogateescape")
    return text if text.isprintable() else key.hex()


_FIRST_VALUES = 3  # values
_LONGEST = 64  # bytes of a text or a number next to images


class ImageLMDB(LMDBContainer):
    """LMDB files of images without labels; each key is the name of a sample."""

    kind = "lmdb of images"

    @classmethod
    def is_of(cls, first: First) -> bool:
        values = [value for value in first.values if value.key not in COUNTS]
        return bool(values) and all(value.suffix() for value in values[:_FIRST_VALUES])

    def entry(self, value: LMDBValue) -> Entry | None:
        suffix = value.suffix()
        if not suffix:
            self._leave_out(value)
            return None
        return Entry(image_name(text_of(value.key), suffix), value.piece)

    def _leave_out(self, value: LMDBValue) -> None:
        """Record in the account a key whose value is a text or a number; ValueError if the value may be an image."""
        key, data = text_of(value.key), value.head()
        if value.key in COUNTS:
            self.account.not_looked_at("key", "it holds the number of samples", [key])
            return
        if value.size > _LONGEST or not (data.isascii() or data.startswith(b"\x80")):  # a pickle of a number
            raise ValueError("its value is not an image, unlike those of the first keys")
        if not self.account.candidates:
            add_candidates(self.account, "key", {key: [0]}, "")
        self.account.left_out("key", "their values are texts or numbers, not images", [key])


_DIRECTORY = re.compile(r"(?:(?P<name>.+?)_)??(?:(?P<split>train|val|test)_)?lmdb")


class LSUN(ImageLMDB):
    """Class directories of LSUN: a single one, several of one split, or their parent directory."""

    kind = "lsun"

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return path.name == DATA and bool(_DIRECTORY.fullmatch(path.parent.name)) and super().recognise_file(path, head)

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        if DATA in names:
            return super().recognise_directory(path, names)
        inner = [path / name / DATA for name in names if _DIRECTORY.fullmatch(name)]
        inner = sorted(filter(os.path.isfile, inner), key=natural)
        return inner if inner and cls.recognise_file(inner[0], head_of(inner[0])) else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> LSUN:
        no_keys(cls.kind, keys)
        found = [(_DIRECTORY.fullmatch(path.parent.name), path) for path in paths]
        splits = {match["split"] or "" for match, _ in found if match}
        if len(splits) > 1 or not all(match for match, _ in found):
            raise SourceError(
                f"{printable(paths[0].parent.parent)}: has the splits {', '.join(sorted(splits))}. Choose one: "
                f"{printable(paths[0].parent.parent / '*_train_lmdb')}"
            )
        for path in paths:
            if not cls.recognise_file(path, head_of(path)):
                raise SourceError(f"{printable(path)}: is not an LMDB file of images, unlike {printable(paths[0])}")
        classes = sorted({match["name"] for match, _ in found if match and match["name"]})
        if len(paths) == 1 and not splits - {""}:
            classes = []  # one directory of images, which need not be a class
        if classes and len(classes) != len(paths):
            raise SourceError(
                f"{printable(paths[0].parent.parent)}: several directories have the same class, or a directory has "
                "no class"
            )
        return cls.of_files(paths, classes=classes or None)

    def entry(self, value: LMDBValue) -> Entry | None:
        entry = super().entry(value)
        match = _DIRECTORY.fullmatch(Path(value.file.path).parent.name)
        if entry is None or self.classes is None or match is None:
            return entry
        return entry._replace(name=f"{match['name']}/{entry.name}", label=match["name"])


_COUNT = b"num-samples"
_IMAGE = re.compile(rb"image-([0-9]{9})")
_OF_A_SAMPLE = re.compile(rb"(?:image|label)-([0-9]{9})")
_TEXT = Field("text", "text")
_DIGITS = 9
_NO_IMAGE = "it has no image"


class TextRecognition(LMDBContainer):
    """LMDB files of text recognition: the text of each image is a field, and there are no classes."""

    kind = "lmdb of text recognition"
    tree: LMDBTree

    @classmethod
    def is_of(cls, first: First) -> bool:
        return first.tree.find(_COUNT) is not None and any(_IMAGE.fullmatch(value.key) for value in first.values)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> TextRecognition:
        no_keys(cls.kind, keys)
        return cls.of_files(paths, fields=(_TEXT,), why_unlabeled="their labels are texts: the field text")

    def ordered(self, unit: int, file: PackFile, tree: LMDBTree) -> Iterator[LMDBValue]:
        self.tree = tree
        found = tree.find(_COUNT)
        digits = file.read(found[0], min(found[1], _DIGITS + 1)).strip() if found is not None else b""
        if not digits.isdigit() or len(digits) > _DIGITS or int(digits) > tree.entries:
            raise SourceError(
                f"{printable(file.path)}: {text_of(_COUNT)} is {printable(text_of(digits))}, not a number of samples"
            )
        count, beyond = int(digits), list[str]()
        for key, _, _ in tree.walk():
            match = _OF_A_SAMPLE.fullmatch(key)
            if key != _COUNT and not (match and 1 <= int(match[1]) <= count):
                beyond.append(text_of(key))
        self.account.left_out("key", f"they are not among the {count:,} samples that {text_of(_COUNT)} counts", beyond)
        for number in range(1, count + 1):
            key = b"image-%09d" % number
            found = tree.find(key)
            yield LMDBValue(unit, file, key, *found) if found else LMDBValue(unit, file, key, problem=_NO_IMAGE)

    def entry(self, value: LMDBValue) -> Entry:
        suffix = value.suffix()
        if not suffix:
            raise ValueError(_NO_IMAGE)
        name = image_name(text_of(value.key), suffix)
        text = self.tree.find(b"label-" + value.key.partition(b"-")[2])
        values = {} if text is None else {_TEXT.name: Piece(value.unit, *text)}
        return Entry(name, value.piece, None, values)


_READ = "images, pickles, values of pyarrow.serialize, and Caffe's Datum"


class UnreadLMDB(LMDBContainer):
    """Any other LMDB file that is not a pack; the last container in the registry's order."""

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
                f"{_guess(value.head())}. packer reads LMDB files of {_READ}. With the tool that wrote this file, "
                "export the images to files or to such an LMDB"
            )

    def entry(self, value: LMDBValue) -> Entry:
        raise AssertionError("an LMDB file that packer cannot read was opened")


def _guess(head: bytes) -> str:
    """Guess the type of a value from its first bytes, for a message."""
    if not head:
        return "empty"
    if head[:1] in (b"{", b"["):
        return "text, perhaps JSON"
    if head[:1] in (b"(", b"]", b"}", b"c") and b"\n" in head:
        return "perhaps a pickle of protocol 0, with Python objects that packer never creates"
    if 0x80 <= head[0] < 0xA0 or 0xDC <= head[0] < 0xE0:
        return "perhaps MessagePack"
    if head.isascii() and head.decode().isprintable():
        return f"the text {printable(head[:20].decode())!r}"
    return f"unknown: it begins with the bytes {head[:8].hex(' ')}"
