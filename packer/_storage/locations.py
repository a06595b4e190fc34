"""Where the bytes of samples lie: the records that formats make, and that C reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._table import Ints

__all__ = ["BY_PATH", "LISTED", "LOCATION", "MEMORY", "NOWHERE", "Listed", "by_path"]

LOCATION = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("file", "position", "size"),
            *("raw", "height", "width"),
            *("checked", "crc32c", "label", "name", "name_size"),
        )
    ]
)
"""Where the bytes of a sample lie and what they are compared with, for C.

``file``, ``position``, ``size``
    A file's descriptor, and where in it how many bytes lie. `MEMORY` for a file: the position is their address.
    `BY_PATH`: they are a whole file, and the position is the address of its `LISTED`. `NOWHERE`: they are not where the
    table says, or C shall not read them.
``raw``, ``height``, ``width``
    Whether the bytes are pixels; the image's size.
``checked``, ``crc32c``, ``label``, ``name``, ``name_size``
    Whether they are compared with a checksum, which one, and what else it was taken of; `name` is an address.
"""

MEMORY, NOWHERE, BY_PATH = -1, -2, -3

LISTED = np.dtype([(name, np.int64) for name in ("directory", "path", "size", "modified")])
"""A file that C opens by its path, and reads where its size and time are those that were listed.

``directory``, ``path``
    A directory's descriptor, and the address of a path below it, with a NUL after it.
``size``, ``modified``
    Bytes; when the file was changed last, in nanoseconds.
"""


class Listed(NamedTuple):
    """Records of `LISTED`, and the memory that they are the addresses of."""

    records: npt.NDArray[Any]
    paths: npt.NDArray[np.uint8]


def by_path(directory: int, paths: Sequence[bytes], stamps: Ints) -> tuple[Ints, Listed]:
    """Return the positions of locations `BY_PATH`, and what is to be kept until the files were read.

    Parameters
    ----------
    directory : int
        A descriptor.
    paths : sequence of bytes
        Below the directory. One that has a NUL in it is no file's.
    stamps : (N, 2) int64 array
        Size and time of each file.
    """
    listed = np.empty(len(paths), LISTED)
    blob = np.frombuffer(b"".join(path + b"\0" for path in paths), np.uint8)
    sizes = np.fromiter(map(len, paths), np.int64, len(paths)) + 1
    listed["directory"] = directory
    listed["path"] = blob.ctypes.data + np.cumsum(sizes) - sizes
    listed["size"], listed["modified"] = stamps.T
    return listed.ctypes.data + LISTED.itemsize * np.arange(len(paths)), Listed(listed, blob)
