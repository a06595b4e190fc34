"""A directory that nobody but this user writes into: what lies in it is what this user put there."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from packer._storage.files import require_directory, writing_to
from packer.errors import DestinationError, printable

__all__ = ["own_directories", "own_directory"]


def own_directory(directory: Path) -> Path:
    """Return a directory that nobody but this user writes into: `directory`, or one in it; made where it is missing.

    The path that is returned is resolved, so that a link which is changed later leads no other way.
    """
    with writing_to(directory):
        require_directory(directory.parent, directory)
        _require_trusted_link(directory)
        _make_directory(directory)
        directory = _resolved(directory)
        if _is_private(os.stat(directory)):
            return directory
        _require_guarded(directory)
    own = directory / _own_name()
    with writing_to(own):
        _make_directory(own)
        if _is_private(os.lstat(own)):
            return own
    raise DestinationError(
        f"{printable(own)}: is no directory that is yours and that nobody else may write into. "
        "Remove it, or stage to another directory."
    )


def own_directories(directory: Path) -> list[Path]:
    """Return those directories that `own_directory` may have returned for `directory` and that are there.

    DestinationError where `own_directory` refuses what is there: a stranger could have it lead elsewhere.
    """
    with writing_to(directory), contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _require_trusted_link(directory)
        directory = _resolved(directory)
        found = [directory] if _is_private(os.stat(directory)) else []
        if not found:
            _require_guarded(directory)
        own = directory / _own_name()
        with contextlib.suppress(FileNotFoundError):
            if _is_private(os.lstat(own)):
                found.append(own)
        return found
    return []


def _resolved(directory: Path) -> Path:
    """Return a directory without links, in directories where no stranger can exchange it."""
    directory = Path(os.path.realpath(directory, strict=True))
    for parent in directory.parents:
        _require_guarded(parent)
    return directory


def _own_name() -> str:
    return f"packer-{os.geteuid()}" if hasattr(os, "geteuid") else "packer"


def _require_trusted_link(path: Path) -> None:
    """Raise DestinationError where a path is a link of somebody else, who may let it lead elsewhere at any time."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) and not _is_trusted(status):
            raise DestinationError(f"{printable(path)}: is a link of somebody else. Stage to another directory.")


def _require_guarded(directory: Path) -> None:
    """Raise DestinationError where a stranger may rename what is in a directory that everybody may write into.

    The sticky bit keeps everybody but the directory's owner from that. A directory that only its owner and its group
    may write into was made for them: whoever stages there trusts them.
    """
    status = os.stat(directory)
    if not hasattr(os, "geteuid") or not status.st_mode & stat.S_IWOTH:
        return
    if not status.st_mode & stat.S_ISVTX:
        reason = "may be written into by everybody, and has no sticky bit (chmod +t)"
    elif not _is_trusted(status):
        reason = "may be written into by everybody, and belongs to somebody else"
    else:
        return
    raise DestinationError(
        f"{printable(directory)}: {reason}, so a copy could be exchanged there. Stage to another directory."
    )


def _make_directory(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_closed(status)


def _is_closed(status: os.stat_result) -> bool:
    return not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_trusted(status: os.stat_result) -> bool:
    """Tell whether a file belongs to this user, or to root, who may do everything anyway."""
    return not hasattr(os, "geteuid") or status.st_uid in (0, os.geteuid(), _uid_of_unmapped_root())


def _uid_of_unmapped_root() -> int:
    """Return the uid that root's files show in a container that does not know root; 0 elsewhere.

    See user_namespaces(7): an id without a mapping shows as the overflow id.
    """
    try:
        mapped = [line.split()[1] for line in Path("/proc/self/uid_map").read_bytes().splitlines()]
        return 0 if b"0" in mapped else int(Path("/proc/sys/kernel/overflowuid").read_bytes())
    except (OSError, ValueError, IndexError):  # another system than Linux
        return 0
