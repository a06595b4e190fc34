"""Opens files of packs: regular files only, without following symbolic links inside a pack.

A pack may come from a stranger. A name in the pack may refer to a FIFO (opening it blocks), to a device without an end,
or to a link to an unrelated file. The path of the pack itself is chosen by the user, and may be a link. Before a file
is created with the name of a sample, the name is checked too, because it must not lead out of the directory.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata

from packer._storage.stray_files import IS_POINTER, LARGEST_POINTER, is_pointer

_LONGEST = 255  # bytes, or on Windows UTF-16 units: the longest name that file systems accept
_PORTS = "123456789\u00b9\u00b2\u00b3"  # Windows takes raised digits for digits
_RESERVED = {"con", "prn", "aux", "nul", "conin$", "conout$", *(f"{p}{n}" for p in ("com", "lpt") for n in _PORTS)}


def path_problem(name: str) -> str | None:
    """Return why `name` must not become a path below a directory on this system; None if it may."""
    if problem := name_problem(name):
        return problem
    if len(name) > _LONGEST // 4 and any(  # a character has no more than 4 bytes
        _size(part) > _LONGEST for part in name.split("/")
    ):
        return f"a part of its name has more than {_LONGEST} {'characters' if os.name == 'nt' else 'bytes'}"
    return windows_problem(name) if os.name == "nt" else None


def longest_path() -> int:
    """Return the maximum length of a path on this system, in bytes; on Windows, the highest possible setting."""
    try:
        return os.pathconf("/", "PC_PATH_MAX") - 1  # less the NUL at its end
    except (AttributeError, OSError, ValueError):
        return 32_767


def folded(name: str) -> str:
    """Return `name` in the form that a file system compares if it ignores case and the encoding of accents.

    The time grows with the square of the number of consecutive accents, so call `path_problem` first, which refuses
    long names.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def name_problem(name: str) -> str | None:
    """Return why `name` cannot be the name of a sample; None if it can. The rules are the same on every system."""
    parts = name.split("/")
    if not name or "\0" in name:
        return "its name is empty or contains a NUL"
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "its name is not text"
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "its name is not a plain relative path"
    return None


def _size(part: str) -> int:
    if os.name == "nt":
        return len(part.encode("utf-16-le", "surrogatepass")) // 2
    return len(part.encode("utf-8", "surrogateescape"))


def windows_problem(name: str) -> str | None:
    """Return why `name` is not a plain relative path on Windows; None if it is one."""
    for part in name.split("/"):
        if any(c in '<>:"|?*\\' or ord(c) < 32 for c in part) or part.endswith((" ", ".")):
            return "its name has characters that Windows does not allow"
        if part.split(".")[0].rstrip(" ").lower() in _RESERVED:
            return "its name is one that Windows reserves"
    return None


TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
"""The errors if the process or the machine has too many open files; they say nothing about the file."""

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A flag that makes `os.open` fail if the last part of the path is a symbolic link."""

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY") and NO_LINK != 0
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not wait for its other end
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)  # O_PATH: no permission to list
_LINK_ERRORS = {errno.ELOOP, errno.EMLINK}  # the second is FreeBSD's
_LINK = "is a symbolic link, but the files of a pack must not be links"
KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def cause_of(error: OSError) -> str:
    """Return the system's text of an error, and the remedy if too many files are open."""
    if error.errno not in TOO_MANY_OPEN:
        return str(error.strerror)
    return (
        f"{error.strerror}. `ulimit -n` shows how many files a process may have open, and `ulimit -n 4096` allows more"
    )


class StrangeFileError(OSError):
    """A path is not a regular file, or leads through a link; `strerror` names the kind."""


class PointerError(StrangeFileError):
    """A path has a Git LFS pointer in place of the file."""


def open_regular(path: str | os.PathLike[str], inside: str = "", flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file, without waiting for anything, and return its descriptor.

    Parameters
    ----------
    path : path
        The file, or the directory that `inside` is relative to. It may be a symbolic link, unless `flags` have
        `NO_LINK`.
    inside : str, optional
        The file's path below `path`: names with slashes between them. No part of this path may be a symbolic link.
    flags, mode : int
        The arguments of `os.open`.

    Raises
    ------
    StrangeFileError
        If the path is not a regular file, or leads through a link. PointerError if the file is opened for reading only,
        and is a Git LFS pointer.
    OSError
        If the file cannot be opened.
    """
    try:
        fd = _open_inside(path, inside, flags, mode) if inside else os.open(path, flags | _FLAGS, mode)
    except OSError as error:
        if error.errno in _LINK_ERRORS and (inside or flags & NO_LINK):
            raise StrangeFileError(error.errno, _LINK) from error
        if error.errno == errno.ENXIO:
            raise StrangeFileError(error.errno, "is a socket or a device, not a regular file") from error
        raise
    status = os.fstat(fd)
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise StrangeFileError(errno.EINVAL, f"is {KINDS.get(kind, 'something special')}, not a regular file")
    if 0 < status.st_size <= LARGEST_POINTER and not flags & (os.O_WRONLY | os.O_RDWR) and _is_pointer(fd):
        os.close(fd)
        raise PointerError(errno.EINVAL, IS_POINTER)
    return fd


def _is_pointer(fd: int) -> bool:
    """Tell whether a newly opened file is a Git LFS pointer; its position stays at the beginning."""
    try:
        head = os.read(fd, LARGEST_POINTER)
        os.lseek(fd, 0, os.SEEK_SET)
    except OSError:  # reading the file raises it
        return False
    return is_pointer(head)


def require_no_link(path: str | os.PathLike[str], inside: str) -> None:
    """Raise StrangeFileError if a part of `inside`, relative to the directory `path`, is a symbolic link."""
    here = os.fspath(path)
    for part in _parts(inside):
        here = os.path.join(here, part)
        if os.path.islink(here):
            raise StrangeFileError(errno.ELOOP, _LINK)


def _open_inside(path: str | os.PathLike[str], inside: str, flags: int, mode: int) -> int:
    *folders, name = _parts(inside)
    if not _BY_DESCRIPTOR:  # Windows
        require_no_link(path, inside)
        return os.open(os.path.join(path, *folders, name), flags | _FLAGS, mode)
    here = os.open(path, _FOLDER)
    try:
        for folder in folders:
            below = _open_folder(folder, here)
            os.close(here)
            here = below
        return os.open(name, flags | _FLAGS | NO_LINK, mode, dir_fd=here)
    finally:
        os.close(here)


def _open_folder(name: str, above: int) -> int:
    try:
        return os.open(name, _FOLDER | NO_LINK, dir_fd=above)
    except NotADirectoryError as error:  # Linux's error for links too
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise StrangeFileError(errno.ELOOP, f"{name} {_LINK}") from error
        raise


def _parts(inside: str) -> list[str]:
    if problem := name_problem(inside):
        raise StrangeFileError(errno.EINVAL, problem)
    return inside.split("/")
