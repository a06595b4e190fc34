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

from packer._formats import open_pack
from packer._formats.reader import require_distinct
from packer._storage.files import AppendFile, remove, sync_directory, writing_to
from packer._storage.packfile import PackFile
from packer._storage.place import Place
from packer._storage.stray_files import is_system_file
from packer._storage.system import in_units
from packer.errors import DestinationError, PackError, printable

_CHUNK = 16 << 20

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True)
class PackFiles:
    """The files of a pack, as they were when they were listed.

    They are named by the pack's format and its manifest. Other files in a pack's directory are not read.

    Attributes
    ----------
    place : Place
        The pack.
    identity : str
        The identity of its manifest.
    sizes, modified : mapping of str to int
        The size of each file, in bytes, and its modification time, in nanoseconds, by path in the pack. The only path
        is empty if the pack is one file.
    elsewhere : mapping of str to Place
        The other tools' files, by their paths in the pack. Copies keep the times of these files.
    """

    place: Place
    identity: str
    sizes: Mapping[str, int]
    modified: Mapping[str, int]
    elsewhere: Mapping[str, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> PackFiles:
        """List the files of a pack; PackError if there is none, a file is missing, not regular, or listed twice."""
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
        """Bytes of all files."""
        return sum(self.sizes.values())

    def digest(self) -> str:
        """Return a short digest of path, times, sizes and manifest of these files."""
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
        """Tell whether a copy has all of the files, each a regular file of this user with the same size."""
        with writing_to(copy):
            try:
                return all(_is_own(os.lstat(copy / name), size) for name, size in self.sizes.items())
            except (FileNotFoundError, NotADirectoryError):
                return False


_UNFINISHED = re.compile(
    r"table-[0-9]{5,9}\.bin|manifest\.json\..+\.partial|part-[0-9]{5,}\.[a-z0-9]+\.partial/.+",
)
"""What `packer append` leaves in a pack with parts: the table before, and what it had not finished when it ended."""

_OF_PACKER = re.compile(
    r"(part-[0-9]{5,}\.[a-z0-9]+/)?(manifest\.json|(table|files|data)\.bin|table\.pth|shard-[0-9]{5,}\.pth)"
    r"|part-[0-9]{5,}\.[a-z0-9]+"
)
"""The names of the files in packs of packer's own formats."""

_LOCK_OF_READERS = "lock.mdb"
"""The file that liblmdb makes beside the data when a program opens a pack in Caffe's layout."""


def files_of_others(pack: str | os.PathLike[str], found: Iterable[str]) -> list[str]:
    """Return the files in a pack's directory that do not belong to the pack, sorted by name.

    A pack lists its files. If it is too damaged for that, the names by which packer stores files decide. Files that
    macOS and Windows leave in any directory, such as ``.DS_Store``, are left out.

    Parameters
    ----------
    pack : path or URL
        The directory of the pack.
    found : iterable of str
        The paths of all files in the directory, relative to it, with the separator ``/``.
    """
    own: set[str] | None = None
    with contextlib.suppress(PackError), open_pack(pack) as reader:
        own = {name for name in reader.file_names() if reader.place_of(name) is None}

    def belongs(path: str) -> bool:
        name = path.rpartition("/")[2]
        if path == _LOCK_OF_READERS or _UNFINISHED.fullmatch(path) or is_system_file(name, lambda: b""):
            return True
        return path in own if own is not None else _OF_PACKER.fullmatch(path) is not None

    return sorted(path for path in found if not belongs(path))


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
        If the pack cannot be read, or changes meanwhile.
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
        written = AppendFile(target, new=True, mode=file.mode & 0o666)
        for data in itertools.chain([piece], (data for _, _, data in pieces)):
            written.append(data)
            written.flush()  # the piece's memory is used again
        written.sync()
        written.close()
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
