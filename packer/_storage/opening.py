"""Opening the files of a pack: regular files only, and inside of a pack without following symbolic links.

A pack may come from a stranger. What lies under a name in it may be a FIFO, which blocks whoever opens it, a device
without an end, or a link to a file that the pack has no business with. The path of the pack itself is the user's, and
may be a link.
"""

from __future__ import annotations

import errno
import os
import stat

from packer._storage.paths import name_problem

__all__ = ["NO_LINK", "TOO_MANY_OPEN", "StrangeFileError", "cause_of", "open_regular", "require_no_link"]

TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, or a machine, that has as many files open as it may; they say nothing about the file."""

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A flag of `os.open`: fail where the last part of the path is a symbolic link."""

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY") and NO_LINK != 0
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not wait for its other end
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)  # O_PATH: need not be allowed to list it
_LINK_ERRORS = {errno.ELOOP, errno.EMLINK}  # the second is FreeBSD's
_LINK = "is a symbolic link, and the files of a pack are none"
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
}


def cause_of(error: OSError) -> str:
    """Return what the system says of an error, with the remedy where it is none of the file's."""
    if error.errno not in TOO_MANY_OPEN:
        return str(error.strerror)
    return (
        f"{error.strerror}. `ulimit -n` says how many files a process may have open, and `ulimit -n 4096` allows more"
    )


class StrangeFileError(OSError):
    """Under a name lies something else than a regular file, or a link leads there; `strerror` says what."""


def open_regular(path: str | os.PathLike[str], inside: str = "", flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file, without waiting for anything, and return its descriptor.

    Parameters
    ----------
    path : path
        The file, or the directory that `inside` counts from. It may be a symbolic link, unless `flags` have `NO_LINK`.
    inside : str, optional
        The file's place below `path`: names with slashes between them, none of which may be that of a symbolic link.
    flags, mode : int
        As `os.open` takes them.

    Raises
    ------
    StrangeFileError
        If there is something else than a regular file, or a link on the way.
    OSError
        If it cannot be opened.
    """
    try:
        fd = _open_inside(path, inside, flags, mode) if inside else os.open(path, flags | _FLAGS, mode)
    except OSError as error:
        if error.errno in _LINK_ERRORS and (inside or flags & NO_LINK):
            raise StrangeFileError(error.errno, _LINK) from error
        if error.errno == errno.ENXIO:
            raise StrangeFileError(error.errno, "is a socket or a device, and no regular file") from error
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise StrangeFileError(errno.EINVAL, f"is {_KINDS.get(kind, 'something special')}, and no regular file")
    return fd


def require_no_link(path: str | os.PathLike[str], inside: str) -> None:
    """Raise StrangeFileError where a part of `inside`, which counts from the directory `path`, is a symbolic link."""
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
    except NotADirectoryError as error:  # what Linux says of links too
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise StrangeFileError(errno.ELOOP, f"{name} {_LINK}") from error
        raise


def _parts(inside: str) -> list[str]:
    if problem := name_problem(inside):
        raise StrangeFileError(errno.EINVAL, problem)
    return inside.split("/")
