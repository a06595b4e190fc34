"""The formats of packs, one in each module, and functions that open a pack of any format."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Collection
from pathlib import Path

from packer._formats.contract import Writer
from packer._formats.reader import Reader, read_manifest
from packer._manifest import Manifest
from packer._storage.place import Place, choose_reading, place_of
from packer._storage.remote.urls import require_path, user_path
from packer._storage.safe_open import StrangeFileError
from packer.errors import (
    CorruptPackError,
    DestinationOptionError,
    MissingDependencyError,
    NotAPackError,
    PackerError,
    PackError,
    PackNotFoundError,
    message_of,
    printable,
    reason_of,
)
from packer.plugins import FORMATS, OWN_INDEX, Format

__all__ = [
    "FORMATS",
    "INDEX",
    "PARTS",
    "Format",
    "Reader",
    "Writer",
    "check_readable",
    "format_for",
    "is_pack",
    "open_pack",
    "recognise",
    "shows_mark",
]


PARTS = Format(
    "parts",
    (),
    "packs with parts",
    reader="packer._formats.parts:PartsReader",
    signs=("table.bin",),
    files=("manifest.json", "table.bin"),
)
"""Packs with parts: several packs of one of `FORMATS`, read as one pack. `packer._conversion.partition` writes them."""

INDEX = Format(
    "index",
    (".index",),
    "samples that stay in their original files",
    reader="packer._formats.index:IndexReader",
    signs=("files.bin", OWN_INDEX),
    files=("manifest.json", "table.bin", "files.bin"),
)
"""Indexes of files that stay where they are, and packs in the layouts of other tools, which contain an index."""

_HEAD = 64  # bytes
_DIRECTORIES = (*(row for row in FORMATS.own.values() if row.files), INDEX, PARTS)
_PLUGIN = re.compile(rb"packer:([a-z0-9][a-z0-9_.-]{0,40})\n")
_PLUGIN_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,40}")
"""Matches the name of a plug-in's format. Its files begin with this name, so an error can name the missing plug-in."""


def format_for(path: str | os.PathLike[str], advice: str = "Change the name.") -> Format:
    """Return the format for the suffix of a pack's name; DestinationOptionError, with `advice`, if there is none."""
    path = user_path(path)
    suffix = path.suffix.lower()
    for row in FORMATS.values():
        if suffix in row.suffixes:
            return row
    if suffix in INDEX.suffixes:
        raise DestinationOptionError(
            f"{printable(path)}: an index contains no images. To make one, use `packer index SRC DST`"
        )
    known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    raise DestinationOptionError(
        f"{printable(path)}: the suffix determines the format, but "
        f"{f'{suffix} is not one of' if suffix else 'this name has none of'} {known}. {advice}"
    )


def recognise(path: str | os.PathLike[str] | Place) -> Format:
    """Determine the format of the pack at a path or a URL from its content.

    Raises
    ------
    PackNotFoundError
        If nothing exists there.
    NotAPackError
        If something other than a pack is there.
    PackError
        If the system does not permit reading it.
    """
    place = place_of(path)
    head = _head(place)
    own = (*FORMATS.own.values(), INDEX, PARTS)  # an index has the files of a pack with parts, and more
    row = _recognised(place, head, own) or _recognised(place, head, FORMATS.plugins.values())
    if row is not None:
        return row
    if head is None and not place.is_directory():
        raise PackNotFoundError(f"{printable(place.as_written)}: there is no object and no pack of this name.")
    _refuse_of_plugin(place, head)
    known = ", ".join(FORMATS)
    reason = f"not a pack of any format that this packer reads ({known}), or damaged at its beginning"
    raise NotAPackError(_kind_of_directory(place) if head is None else reason, place.as_written)


def _what_else(place: Place) -> str:
    """Return the end of the message about a path that is not a pack: what is there, and which commands can read it."""
    if place.remote:
        return (
            ". To read a file of another tool in place, index it where the file is on a disk; then `packer "
            "index NAME.index --base URL`"
        )
    from packer._containers import CONTAINERS, find_container

    path, name = Path(os.path.abspath(place.as_written)), os.path.join(place.as_written, "").rstrip("/" + os.sep)
    src = shlex.quote(printable(name))
    try:
        found = find_container([path])
        if found is None and os.path.isdir(path) and _is_part_of_pack(place):
            return ""
        if found is None and os.path.isdir(path):
            pack, index = (shlex.quote(printable(name + suffix)) for suffix in (".lmdb", ".index"))
            return (
                f". If it contains images, convert them: `packer convert {src} {pack}`, or index them in place: "
                f"`packer index {src} {index}`"
            )
        if found is None:
            return ", and not a file of another tool that packer reads"
        container, files = found
        container.open(files, {})
    except PackerError as error:  # of a container that is damaged, needs an option, or lacks its library
        return f". {message_of(error)}"
    return (
        f". It may be a file of another tool ({printable(CONTAINERS[container.kind].help)}): `packer "
        f"convert {src} NAME.lmdb` copies the images, `packer index {src} NAME.index` reads them in place"
    )


def _recognised(place: Place, head: bytes | None, rows: Collection[Format]) -> Format | None:
    """Return the format in `rows` that a file's signature or a directory's files match; None if none matches."""
    row = next((row for row in rows if row.begins(head)), None)
    signs = {sign for row in rows for sign in row.signs}
    if row is None and signs:
        held = place.holding(signs)  # even if `head` is not None: a server may send a page for a directory
        row = next((row for row in rows if not held.isdisjoint(row.signs)), None)
    return row


def _refuse_of_plugin(place: Place, head: bytes | None) -> None:
    """Raise MissingDependencyError if a pack declares a format that no installed package provides."""
    if head is not None:
        match = _PLUGIN.match(head)
        name = match[1].decode() if match else ""
    else:
        name = ""
        with contextlib.suppress(PackError):
            name = read_manifest(place).format
    if name and name not in FORMATS:
        raise _missing(place, name)


def _missing(place: Place, format: str) -> PackError | MissingDependencyError:
    """Return the error for an unknown format: a missing plug-in, or damage if no plug-in can have this name."""
    if not _PLUGIN_NAME.fullmatch(format):
        return CorruptPackError(f"the manifest contains an invalid format: {printable(format)!r}", place.as_written)
    why = FORMATS.why_missing(format)
    return MissingDependencyError(f"{printable(place.as_written)}: is a pack of {printable(why)}")


def _kind_of_directory(place: Place) -> str:
    """Describe, for an error, a directory that packer cannot open: it is no pack, or a pack that lacks files."""
    if not _is_part_of_pack(place):
        return "a directory that is not a pack"
    missing = " or ".join(row.files[-1] for row in _DIRECTORIES)
    return f"a directory without {missing}: a pack that was copied incompletely, or is damaged"


def _is_part_of_pack(place: Place) -> bool:
    """Tell whether a directory that is not a pack has the name of a pack, or contains a file of a pack."""
    name = os.path.join(place.as_written, "").rstrip("/" + os.sep)
    try:
        held = place.names()
    except OSError as error:
        raise PackError(f"{printable(place.as_written)}: cannot be read: {error.strerror}") from error
    return name.endswith(FORMATS["pth"].suffixes) or any(file in held for row in _DIRECTORIES for file in row.files)


def _head(place: Place) -> bytes | None:
    try:
        return place.head(_HEAD)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise PackNotFoundError(f"{printable(place.as_written)}: {reason_of(error)}.{place.why_missing()}") from None
    except StrangeFileError as error:
        raise NotAPackError(str(error.strerror), place.as_written) from error
    except OSError as error:
        raise PackError(f"{printable(place.as_written)}: cannot be read: {error.strerror}") from error


def open_pack(
    path: str | os.PathLike[str] | Place,
    *,
    check: str = "always",
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    timeout: float | None = None,
) -> Reader:
    """Open a pack of any format for reading; return a `Reader`. A ``~`` in `path` stands for the user's home directory.

    Parameters
    ----------
    path : path or URL
        The pack.
    check : {"always", "never"}
        As for `Reader`.
    cache_dir, cache_size, timeout
        Settings for a pack at a URL; see `open_dataset`.
    """
    choose_reading([path], cache_dir, cache_size, timeout)
    if not isinstance(path, Place):
        require_path(path)
    place = path if isinstance(path, Place) else place_of(os.path.expanduser(path))
    try:
        return _opened(place, check)
    except NotAPackError as error:
        is_about_pack = os.path.abspath(error.path) == os.path.abspath(place.as_written)
        if not is_about_pack or isinstance(error.__cause__, StrangeFileError):
            raise
        raise NotAPackError(f"{error.reason}{_what_else(place)}", error.path) from error.__cause__


def is_pack(path: str | os.PathLike[str]) -> bool:
    """Tell whether there is a pack at `path`, by opening it; PackError if it is damaged, or a newer packer wrote it."""
    require_path(path)
    try:
        _opened(place_of(os.path.expanduser(path)), "always").close()
    except (NotAPackError, PackNotFoundError):
        return False
    return True


def shows_mark(path: str | os.PathLike[str] | Place) -> bool:
    """Tell whether packer wrote the file or directory at a path or a URL, which may be a damaged pack.

    Raises
    ------
    PackNotFoundError
        If nothing exists there.
    PackError, RemoteError, MissingDependencyError
        If packer cannot tell, because the pack is too damaged, cannot be read, or needs a package that is not
        installed.
    """
    place = place_of(path)
    try:
        row = recognise(place)
    except NotAPackError as error:
        return not isinstance(error.__cause__, StrangeFileError) and place.is_a_file() and _shows_mark_inside(place)
    match = _PLUGIN.match(_head(place) or b"")
    return (match is not None and match[1].decode() == row.name) or row.open_reader().shows_mark(place)


def _shows_mark_inside(place: Place) -> bool:
    """Tell whether a file whose beginning is damaged has another sign that packer wrote it."""
    for row in FORMATS.own.values():
        if row.magic:  # a pack of this format is one file
            with contextlib.suppress(MissingDependencyError):
                if row.open_reader().shows_mark(place):
                    return True
    return False


def _opened(place: Place, check: str) -> Reader:
    row = recognise(place)
    reader = row.open_reader()(place, check=check)
    format = reader.manifest.format
    known = INDEX if format == INDEX.name else FORMATS.get(format)
    if known is None and (row is PARTS or OWN_INDEX in row.signs):
        reader.close()
        raise _missing(place, format)
    if known is None or (row is not PARTS and known.reader != row.reader and known.open_reader() is not type(reader)):
        reader.close()
        raise CorruptPackError(
            f"the manifest says {format!r}, but the files are a pack of the format {row.name}", place.as_written
        )
    return reader


def check_readable(path: str | os.PathLike[str], manifest: Manifest) -> None:
    """Open a pack that was just written, and read some of its samples, before it gets its final name.

    Raises
    ------
    PackError
        If the pack cannot be read, or its manifest differs from the written one.
    """
    with open_pack(path) as reader:
        if reader.manifest != manifest:
            raise CorruptPackError(
                "the data read back differ from the data written; the disk or the memory is faulty", path
            )
        for index in {0, len(reader) // 2, len(reader) - 1} if len(reader) else ():
            reader.read(index)
