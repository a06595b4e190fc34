"""The files of a pack: listing, sequential reading, and copying."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import operator
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packer._formats import FORMATS, INDEX, PARTS, Format, open_pack, recognise, shows_mark
from packer._formats.index import DATA_FILE, INDEX_DIRECTORY, listed_names
from packer._formats.reader import require_distinct
from packer._storage.files import AppendFile, remove, sync_directory, writing_to
from packer._storage.packfile import PackFile
from packer._storage.place import Place, place_of
from packer._storage.safe_open import StrangeFileError
from packer._storage.stray_files import is_system_file
from packer._storage.system import in_units
from packer.errors import CorruptPackError, DestinationError, MissingDependencyError, PackError, printable
from packer.plugins import OWN_INDEX

_CHUNK = 16 << 20
_DECIDING = 16  # bytes at the beginning of a file, which show whether an operating system left it

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class PackFiles:
    """The files of a pack, as they were when they were listed.

    The pack's format requires these files, or its manifest lists them. Other files in a pack's directory are not read.

    Attributes
    ----------
    place : Place
        The pack.
    identity : str
        The identity of its manifest.
    sizes, modified : mapping of str to int
        The size of each file, in bytes, and its modification time, in nanoseconds, by path in the pack. If the pack is
        one file, the only path is an empty string.
    elsewhere : mapping of str to Place
        The locations of other tools' files, by the files' paths in the pack. A copy of the pack keeps the modification
        times of these files.
    """

    place: Place
    identity: str
    sizes: Mapping[str, int]
    modified: Mapping[str, int]
    elsewhere: Mapping[str, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> PackFiles:
        """List a pack's files; PackError if `path` is no pack, or if a file is missing, irregular or listed twice."""
        with open_pack(path) as reader:
            place, names, identity = reader.place, reader.file_names(), reader.manifest.identity()
            elsewhere = {name: where for name in names if (where := reader.place_of(name)) is not None}
        own = place.files([name for name in names if name not in elsewhere])
        require_distinct((place.path_of(name), file) for name, file in own.items())
        found = {name: own[name] if name in own else elsewhere[name].files([""])[""] for name in names}
        sizes = {name: file.size for name, file in found.items()}
        return cls(place, identity, sizes, {name: file.modified for name, file in found.items()}, elsewhere)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(self.sizes.values())

    def digest(self) -> str:
        """Return a short digest of the pack's path and manifest, and of the sizes and times of its files."""
        path = self.place.path if self.place.remote else os.path.realpath(self.place.path)
        key = [path, self.identity, dict(self.sizes), dict(self.modified)]
        return hashlib.sha256(json.dumps(key).encode("ascii")).hexdigest()[:12]

    def open(self, name: str) -> PackFile:
        """Open a file; PackError if it changed since it was listed."""
        other = self.elsewhere.get(name)
        file = self.place.open(name) if other is None else other.open()
        if (file.size, file.modified) != (self.sizes[name], self.modified[name]):
            file.close()
            raise _changed(file)
        return file

    def chunks(self, progress: ProgressCallback | None = None) -> Iterator[tuple[str, PackFile, memoryview]]:
        """Yield path, file and bytes of all files, piece by piece, in memory that is reused for the next piece.

        An empty file yields an empty piece. At most `size` bytes are read, even if a file grows.

        Raises
        ------
        PackError
            If a file cannot be read, or changes.
        """
        done, total = 0, self.size
        buffer = memoryview(bytearray(min(_CHUNK, max(1, total))))
        for name in self.sizes:
            with self.open(name) as file:
                position, count = 0, 1
                while count and (position < file.size or not file.size):
                    count = file.read_into(buffer, position)
                    yield name, file, buffer[:count]
                    position, done = position + count, done + count
                    if progress is not None and count:
                        progress(done, total)
                if position < file.size or file.changed():
                    raise _changed(file)

    def are_at(self, copy: Path) -> bool:
        """Tell whether a copy has all of these files, with the same sizes, as regular files that this user owns."""
        with writing_to(copy):
            try:
                return all(_is_own(os.lstat(copy / name), size) for name, size in self.sizes.items())
            except (FileNotFoundError, NotADirectoryError):
                return False


_PART = re.compile(r"part-([0-9]{5,})\.[a-z0-9]+")
_OLDER_TABLE = re.compile(r"table-[0-9]{5,9}\.bin")
_UNFINISHED_PART = re.compile(r"part-[0-9]{5,}\.[a-z0-9]+\.partial/.+")
_UNFINISHED_MANIFEST = re.compile(r"manifest\.json\..+\.partial")

_LOCK_OF_READERS = "lock.mdb"
"""The file that liblmdb makes next to the data when a program opens a pack in Caffe's layout."""


def files_of_others(pack: str | os.PathLike[str] | Place, found: Iterable[str]) -> list[str]:
    """Return the files in a pack's directory that do not belong to the pack, sorted by name.

    A pack lists its files. If the pack is too damaged to list its files, all files with names that its format uses
    belong to the pack. Files that an interrupted change left in the directory belong to the pack too, and so do files
    that macOS and Windows leave in any directory, such as ``.DS_Store``.

    Parameters
    ----------
    pack : path, URL or Place
        The directory of the pack.
    found : iterable of str
        The paths of all files in the directory, relative to it, with the separator ``/``.

    Raises
    ------
    CorruptPackError
        If the pack is so damaged that its files cannot be told apart from others.
    """
    place = place_of(pack)
    row = recognise(place)
    others = {path for path in found if path != _LOCK_OF_READERS and not _is_left_by_system(place, path)}
    listed = _listed_files(place, row)
    if listed is not None:
        others -= listed
    if row is PARTS:
        others -= _files_of_parts(place, listed, others)
    elif OWN_INDEX in row.signs:
        others -= _files_of_index(place, listed, others)
    elif listed is None and row is FORMATS.own.get("pth"):
        others -= _files_of_pth(others)
    elif listed is None and others and row.name not in FORMATS.own:
        raise CorruptPackError(f"only the plug-in for {row.name} knows the files of this pack", place.path)
    return sorted(others)


def _is_left_by_system(place: Place, path: str) -> bool:
    def head() -> bytes:
        with contextlib.suppress(OSError):
            return place.join(path).head(_DECIDING) or b""
        return b""

    return is_system_file(path.rpartition("/")[2], head)


def _listed_files(place: Place, row: Format) -> set[str] | None:
    """Return the files that a pack lists, except files outside of the pack; None if the pack cannot be read."""
    # Not `open_pack`, which would require the plug-in whose format the parts of the pack have.
    with contextlib.suppress(PackError, MissingDependencyError), row.open_reader()(place) as reader:
        return {name for name in reader.file_names() if reader.place_of(name) is None}
    return None


def _files_of_pth(found: set[str]) -> set[str]:
    """Return the files of a damaged pack in the format ``pth``, whose shards are numbered from 0 without gaps."""
    shards = itertools.takewhile(found.__contains__, (f"shard-{number:05d}.pth" for number in itertools.count()))
    return {*FORMATS["pth"].files, *shards}


def _files_of_parts(place: Place, listed: set[str] | None, found: set[str]) -> set[str]:
    """Return files that belong to a pack with parts although the pack does not list them.

    These are the table from before the last `append`, and the files that an interrupted `append` left: the new part may
    be complete and have its final name, but not be listed yet. If the pack is damaged, the files of all parts are
    returned too.
    """
    files = set() if listed is not None else {*PARTS.files}
    leftovers = _OLDER_TABLE, _UNFINISHED_MANIFEST, _UNFINISHED_PART
    files |= {path for path in found if any(pattern.fullmatch(path) for pattern in leftovers)}
    unlisted = None if listed is None else _next_number(listed)
    inside: dict[str, list[str]] = {}
    for path in found:
        part, _, below = path.partition("/")
        if _PART.fullmatch(part) and unlisted in (None, _part_number(part)):
            inside.setdefault(part, []).append(below)
    for part, names in inside.items():
        with contextlib.suppress(PackError, MissingDependencyError, StrangeFileError):
            place.require_no_link(part)
            own = place.join(part)
            if shows_mark(own):
                others = [] if names == [""] else files_of_others(own, names)
                files |= {f"{part}/{name}" if name else part for name in {*names} - {*others}}
    return files


def _part_number(part: str) -> int:
    match = _PART.fullmatch(part)
    return int(match[1]) if match else -1


def _next_number(listed: set[str]) -> int:
    """Return the number that `append` gives to the next part: the lowest unused one, at least the number of parts."""
    parts = {path.partition("/")[0] for path in listed}
    numbers = {_part_number(part) for part in parts if _PART.fullmatch(part)}
    return next(number for number in itertools.count(len(numbers)) if number not in numbers)


def _files_of_index(place: Place, listed: set[str] | None, found: set[str]) -> set[str]:
    """Return the unlisted files that belong to an index, or to a pack in another tool's layout."""
    files = {path for path in found if _UNFINISHED_MANIFEST.fullmatch(path)}  # of a change of the base
    if listed is not None:
        return files
    sidecars = {*INDEX.files, DATA_FILE}
    inner = {f"{INDEX_DIRECTORY}/{name}" for name in sidecars}
    if found.isdisjoint(inner):  # an index of files elsewhere
        return files | sidecars
    listed = {*listed_names(place.join(INDEX_DIRECTORY))} if found - inner else set()
    return files | inner | listed


def copy_pack(pack: PackFiles, copy: Path, progress: ProgressCallback | None = None) -> None:
    """Write and sync a copy of a pack, replacing the remains of an interrupted copy.

    The caller must sync the directory of the copy to make its name durable.

    Parameters
    ----------
    pack : PackFiles
    copy : Path
        The path of the copy, in a directory that no other process writes into.
    progress : callable, optional
        Called with the number of bytes copied and their total.

    Raises
    ------
    DestinationError
        If there is no room for the copy, or it cannot be written.
    PackError
        If the pack cannot be read, or changes during the copy.
    """
    remove(copy)  # first, to free its room
    with writing_to(copy):
        free = shutil.disk_usage(copy.parent).free
    if pack.size > free:
        raise DestinationError(
            f"{printable(copy.parent)}: {in_units(pack.size)} are needed and {in_units(free)} are free. "
            "Stage to a larger disk, or read the pack where it is."
        )
    for name, pieces in itertools.groupby(pack.chunks(progress), operator.itemgetter(0)):
        target = copy / name
        with writing_to(copy):
            target.parent.mkdir(parents=True, exist_ok=True)
        _, file, piece = next(pieces)
        with contextlib.closing(AppendFile(target, new=True, mode=file.mode & 0o666)) as written:
            for data in itertools.chain([piece], (data for _, _, data in pieces)):
                written.append(data)
                written.flush()  # the piece's memory is used again
            written.sync()
        if name in pack.elsewhere:
            with writing_to(target):
                os.utime(target, ns=(pack.modified[name], pack.modified[name]))
    for folder in {above for name in pack.sizes if name for above in PurePosixPath(name).parents}:
        sync_directory(copy / folder)


def _is_own(status: os.stat_result, size: int) -> bool:
    own = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return own and stat.S_ISREG(status.st_mode) and status.st_size == size


def _changed(file: PackFile) -> PackError:
    return PackError(f"{printable(file.path)}: changed while it was read. Never write into a pack that is in use.")
