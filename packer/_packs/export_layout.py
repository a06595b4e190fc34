"""The layout of an export: unique file names for images and fields, and the names of the tables.

Nothing is written outside the directory, whatever a pack contains. A field's template is used if it yields a different
file for each value. If templates lead out of the directory of the images, the images are written to a subdirectory, as
many levels down as the templates lead up: with ``../masks/{stem}.png`` the masks are in ``masks`` and the images in
``images``. So the templates lead from the images to the files, as they did when the pack was made. Names are compared
by their hashes, so that not all names are in memory.
"""

from __future__ import annotations

import functools
import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from packer._fields import KINDS, Field
from packer._formats import Reader
from packer._packs.walk import blobs_of
from packer._sources.sidecar_files import FileField
from packer._storage.safe_open import folded, path_problem
from packer._table import Buffer, Ints, Names, Texts, encode_name, hashes_of, repeats

_LONGEST = 255  # bytes, the limit of Linux and macOS


_LONGEST_NUMBER = "-999999999999"


_REMEMBERED = 1 << 12  # directories; consecutive names are mostly in the same directory


_MOST_LEVELS = 4


_LONGEST_TEMPLATE = 1000


_SUFFIXES: Mapping[bytes, str] = {
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
    b"RIFF": ".webp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"GIF8": ".gif",
    b"BM": ".bmp",
}


_OTHER = ".bin"


_BATCH = 64


class ExportLayout(NamedTuple):
    """The paths of all files, relative to the directory of the export.

    Attributes
    ----------
    files : Files
    classes : list of str
        The directories of the classes; empty if the labels are in a file.
    labels, metadata : str or None
        The file of labels, and the file of field values that are not files.
    lock : str
    """

    files: Files
    classes: list[str]
    labels: str | None
    metadata: str | None
    lock: str

    @property
    def tables(self) -> list[str]:
        """The files with values of all samples: tables of labels and of metadata."""
        return [name for name in (self.labels, self.metadata) if name is not None]


@dataclass(frozen=True)
class Files:
    """The files of all samples: first the image files, then the files of each field.

    Attributes
    ----------
    folder : str
        The directory of the images, ending in a slash; empty if it is the directory of the export.
    images : FileNames
        The names of the image files, relative to `folder`.
    fields : sequence of FieldFiles
    """

    folder: str
    images: FileNames
    fields: Sequence[FieldFiles]

    def __len__(self) -> int:
        return len(self.images) + sum(len(files.names) for files in self.fields)

    def __iter__(self) -> Iterator[str]:
        yield from map(self.folder.__add__, self.images)
        for files in self.fields:
            yield from files.names

    def __getitem__(self, number: int) -> str:
        if number < len(self.images):
            return self.folder + self.images[number]
        number -= len(self.images)
        for files in self.fields:
            if number < len(files.names):
                return files.names[number]
            number -= len(files.names)
        raise IndexError(number)

    def sample(self, number: int) -> int:
        """Return the index of the sample to which a file belongs."""
        samples = [np.arange(len(self.images)), *(files.samples for files in self.fields)]
        for indices in samples:
            if number < len(indices):
                return int(indices[number])
            number -= len(indices)
        raise IndexError(number)


@dataclass(frozen=True)
class FieldFiles:
    """The files of one field.

    Attributes
    ----------
    field : Field
    samples : (K,) int64 array
        The indices of the samples that have a value.
    names : Names
        The path of the file for each of these values, relative to the directory of the export.
    followed : bool
        Whether the field's template yields the paths in `names`.
    """

    field: Field
    samples: Ints
    names: Names
    followed: bool


def layout_of(reader: Reader, images: FileNames, room: int, *, labels: bool) -> ExportLayout:
    """Return the layout of an export.

    Parameters
    ----------
    reader : Reader
    images : FileNames
        The names of the image files.
    room : int
        The maximum length, in bytes, of a path below the directory of the export.
    labels : bool
        Whether there is a file of labels.
    """
    files = _files(reader, images, follow=True)
    if _meet(files, room):
        files = _files(reader, images, follow=False)
    is_file = {one.field.name for one in files.fields}
    others = any(name not in is_file for name in reader.fields) or any(
        KINDS[one.field.kind].form == "pixels" and not one.followed for one in files.fields
    )

    def named(stem: str, suffix: str) -> str:
        inside = (name.removeprefix(files.folder) for name in files if name.startswith(files.folder))
        return files.folder + free_name(inside, stem, suffix)

    return ExportLayout(
        files,
        [] if labels else [files.folder + name for name in reader.manifest.classes],
        named("labels", ".csv") if labels else None,
        named("metadata", ".jsonl") if others else None,
        free_name(files, "packer-export", ".lock"),
    )


def _files(reader: Reader, images: FileNames, *, follow: bool) -> Files:
    found: list[tuple[Field, Ints, Names | None]] = []
    for field in reader.fields.values():
        kind = KINDS[field.kind]
        always = not kind.syntax  # JSON cannot represent the values exactly
        if kind.file and (field.file or always):
            samples = np.flatnonzero(reader.table.more[f"field.{field.name}.size"] >= 0)
            own = Names.of(reader.names[index] for index in samples.tolist())
            names = _by_template(field, own) if follow else None
            if names is not None or always:
                found.append((field, samples, names))
    levels = max((_level(name) for _, _, names in found for name in names or ()), default=0)
    if any(names is None for _, _, names in found):
        levels = max(levels, 1)
    outer = {
        name.split("/")[levels] for _, _, names in found for name in names or () if _level(name) == levels and levels
    }
    outer |= {field.name for field, _, names in found if names is None}
    folder = "".join(["images/"] * (levels - 1))
    if levels:
        folder = free_name(outer, "images", "") + "/" + folder
    return Files(
        folder,
        images,
        [
            FieldFiles(
                field,
                samples,
                Names.of(_own_names(reader, field, samples))
                if names is None
                else Names.of(posixpath.normpath(folder + name) for name in names),
                names is not None,
            )
            for field, samples, names in found
        ],
    )


def _by_template(field: Field, images: Names) -> Names | None:
    """Return the normalised paths from a field's template; None if the template must not be used."""
    if not field.file or len(field.file) > _LONGEST_TEMPLATE:
        return None
    template = FileField(field.name, field.kind, field.file)
    try:
        names = Names.of(_plain(path) for path in _each(template.paths, images))
    except (ValueError, KeyError):
        return None
    return names if next(repeats(names), None) is None else None


def _each(paths: Callable[[Iterable[str]], list[str]], images: Names) -> Iterator[str]:
    """Yield the paths for all images; `paths` is called with some dozens of images at a time."""
    rest = iter(images)
    while some := list(itertools.islice(rest, _BATCH)):
        yield from paths(some)


def _plain(path: str) -> str:
    """Return a normalised path; ValueError if it leads too far out, or is malformed."""
    plain = posixpath.normpath(path)
    level = _level(plain)
    if level > _MOST_LEVELS or path_problem("/".join(plain.split("/")[level:])):
        raise ValueError("not a path that packer follows")
    return plain


def _level(path: str) -> int:
    """Return the number of levels by which a normalised path leads out of its directory."""
    return len(list(itertools.takewhile("..".__eq__, path.split("/"))))


def _own_names(reader: Reader, field: Field, samples: Ints) -> Iterator[str]:
    """Yield the paths for a field without a template: names like the images', in a directory with the field's name."""
    if KINDS[field.kind].form != "pixels":
        suffix = value_suffix(field)
        yield from (f"{field.name}/{reader.names[index]}{suffix}" for index in samples.tolist())
        return
    for index in samples.tolist():
        for blob in blobs_of(reader, range(index, index + 1), field.name):
            yield f"{field.name}/{reader.names[index]}{_suffix_of(blob or b'')}"


def value_suffix(field: Field) -> str:
    """Return the suffix of the files of a field whose values are not images."""
    return ".npy" if KINDS[field.kind].file == "npy" else _OTHER


def _suffix_of(image: Buffer) -> str:
    head = bytes(image[:4])
    return next((suffix for start, suffix in _SUFFIXES.items() if head.startswith(start)), _OTHER)


def _meet(files: Files, room: int) -> bool:
    """Tell whether two files would have the same path, a file is another file's directory, or a path is too long."""
    if not files.fields:
        return False
    if any(len(encode_name(name)) > room for name in files):
        return True
    return next(repeats(files), None) is not None or next(below_files(files), None) is not None


class FileNames:
    """The file name of every sample: the sample's name, plus a suffix if the name has no suitable suffix.

    Two samples such as ``x.jpg`` and ``x.jpg.png`` may get the same file name. If this file name is already the name of
    one of these samples, that sample keeps it; otherwise the first of them gets it. The names of the other samples are
    numbered. Only the numbered names are in memory.

    Parameters
    ----------
    names : Names
        The names of the samples, all different.
    suffixes : tuple of str
        The suitable suffixes; the first one is added. If empty, names do not change.
    """

    def __init__(self, names: Names, suffixes: tuple[str, ...] = ()) -> None:
        self._names = names
        self._suffixes = suffixes
        self._numbered: dict[int, str] = {}
        if suffixes:
            self._number()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> str:
        return self._numbered.get(index) or self._plain(self._names[index])

    def __iter__(self) -> Iterator[str]:
        for index, name in enumerate(self._names):
            yield self._numbered.get(index) or self._plain(name)

    def _plain(self, name: str) -> str:
        return name if self._fits(name) else _candidate(name, self._suffixes[0])

    def _fits(self, name: str) -> bool:
        return not self._suffixes or name.lower().endswith(self._suffixes)

    def _number(self) -> None:
        """Add numbers to file names that another file already has."""
        alike: dict[int, list[int]] = {}
        for index, first in repeats(self):
            alike.setdefault(first, [first]).append(index)
        if not alike:
            return
        taken, chosen = _ordered(self), set[str]()
        following: dict[str, int] = {}  # the next number; several long names may be cut to the same stem
        for indices in alike.values():
            keeper = next((index for index in indices if self._fits(self._names[index])), min(indices))
            for index in sorted({*indices} - {keeper}):
                family = _candidate(self._names[index], _LONGEST_NUMBER + self._suffixes[0])
                for number in itertools.count(following.get(family, 1)):
                    name = _candidate(self._names[index], f"-{number}{self._suffixes[0]}")
                    if name not in chosen and not _holds(taken, hash(name)):
                        break
                following[family] = number + 1
                chosen.add(name)
                self._numbered[index] = name


class Folded:
    """File names in the form that a file system compares if it ignores case and the encoding of accents."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> str:
        return folded(self._files[number])

    def __iter__(self) -> Iterator[str]:
        return map(folded, self._files)


def known(names: Texts) -> Callable[[str], bool]:
    """Return a function that tells whether a name is one of `names`; it compares 8-byte hashes, to save memory."""
    taken = _ordered(names)
    return lambda name: _holds(taken, hash(name))


def free_name(names: Iterable[str], stem: str, suffix: str) -> str:
    """Return an unused name for a file or directory: `stem` and `suffix`, with a number if necessary.

    The name is also unused on a file system that ignores case or the encoding of accents.
    """
    taken = np.fromiter((hash(folded(name.partition("/")[0])) for name in names), np.int64)
    taken.sort()
    return next(name for name in _candidates(stem, suffix) if not _holds(taken, hash(folded(name))))


def below_files(names: Texts) -> Iterator[tuple[int, str]]:
    """Yield index and parent of each name that is below another one, its parent: ``x/a/b.jpg`` is below ``x/a``.

    This takes 8 bytes of memory for each name.
    """
    files = _ordered(names)

    @functools.lru_cache(_REMEMBERED)
    def file_above(folder: str) -> str:
        while folder and not _holds(files, hash(folder)):
            folder = folder.rpartition("/")[0]
        return folder

    for index, name in enumerate(names):
        if found := file_above(name.rpartition("/")[0]):
            yield index, found


def _ordered(names: Texts) -> Ints:
    """Return the hashes of all names, in ascending order."""
    hashes = hashes_of(names)
    hashes.sort()
    return hashes


def _holds(ordered: Ints, value: int) -> bool:
    number = int(np.searchsorted(ordered, value))
    return number < len(ordered) and int(ordered[number]) == value


def _candidates(stem: str, suffix: str) -> Iterator[str]:
    """Yield names of `stem` and `suffix`: first without a number, then with 1, 2 and so on."""
    return (_candidate(stem, f"-{number}{suffix}" if number else suffix) for number in itertools.count())


def _candidate(stem: str, suffix: str) -> str:
    """Return `stem` and `suffix`; the stem is cut if the name would be too long for a file."""
    folder, slash, last = stem.rpartition("/")
    cut = encode_name(last)[: _LONGEST - len(suffix)]
    return folder + slash + (last if cut == encode_name(last) else cut.decode("utf-8", "ignore")) + suffix
