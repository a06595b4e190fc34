"""What a person asked for beside a pack, such as a report or a picture: refused early, or written as a whole."""

from __future__ import annotations

import os
from pathlib import Path

from packer._storage.files import replacing, require_directory, writing_to
from packer.errors import DestinationError, printable

__all__ = ["PICTURES", "require_output", "write_output"]

PICTURES = {".png": (b"\x89png\r\n\x1a\n",), ".svg": (b"<?xml", b"<svg")}
"""The kinds of pictures, and how their files begin; in lower case."""


def require_output(path: str | os.PathLike[str], what: str, begins: tuple[bytes, ...]) -> None:
    """Refuse a path at which a file, such as a report, cannot be written, or would replace a file that is none.

    A slip of the hand, such as ``--html train.lmdb``, would cost a pack whose originals may be gone.

    Raises
    ------
    DestinationError
        Also where a file is there that is not empty, and begins with none of `begins` (in lower case) as files of
        its kind do.
    """
    shown = printable(os.fspath(path))
    parent = os.path.dirname(os.path.abspath(path))
    require_directory(parent, path)
    if os.path.isdir(path):
        raise DestinationError(f"{shown}: is a directory. Say the name of a file for the {what}.")
    if not os.access(path if os.path.exists(path) else parent, os.W_OK):
        raise DestinationError(f"{shown}: the {what} cannot be written: Permission denied")
    if os.path.isfile(path):  # reading anything else, such as a FIFO, may not end
        with writing_to(path), open(path, "rb") as file:
            start = file.read(max(map(len, begins)))
        if start and not start.lower().startswith(begins):
            message = f"the {what} would replace a file that is not a {what}. Choose another name."
            raise DestinationError(f"{shown}: {message}")


def write_output(path: str | os.PathLike[str], content: bytes) -> None:
    """Write all of it, or else what stood there stays.

    Raises
    ------
    DestinationError
        If it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):  # such as a FIFO, or a terminal
        with writing_to(path), open(target, "wb") as file:
            file.write(content)
        return
    with replacing(target, shown=Path(path)) as new:
        new.append(content)
