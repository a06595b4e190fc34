"""Parts of an object that are fetched as a whole, such as its table: once a node, and kept by its version."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator

from packer._storage.locks import try_lock
from packer._storage.opening import NO_LINK, open_regular
from packer._storage.packfile import Descriptor, FileBytes
from packer._storage.remote import client
from packer._storage.remote.blocks import Blocks
from packer._storage.remote.cache import Home, touch
from packer._storage.remote.tablefile import crc32c_of, tables_in
from packer.errors import PackerError

__all__ = ["whole"]

_LOOK_AGAIN = 0.05  # seconds between two looks, while another process fetches the same


def whole(blocks: Blocks, begin: int, size: int) -> tuple[FileBytes | mmap.mmap, int]:
    """Return what has a range of an object, a file of this node or memory, and where the range begins in it.

    Raises
    ------
    RemoteError
        If the range cannot be had.
    """
    if blocks.home is not None:
        found = _kept(blocks.home.directory, begin, size)
        if found is None:
            with _first_come(blocks.home, begin, size, blocks.settings.timeout):
                found = _kept(blocks.home.directory, begin, size) or _fetched(blocks, begin, size)
        if found is not None:
            return found[0], begin - found[1]
    data = mmap.mmap(-1, size)  # no disk takes it
    data.write(client.get(blocks.url, begin, begin + size, blocks.version, blocks.settings))
    return data, 0


def _kept(directory: str, begin: int, size: int) -> tuple[FileBytes, int] | None:
    """Open a file that has the range and is what was fetched, and return where it begins in the object."""
    for path, start, length, checksum in tables_in(directory):
        if start <= begin and begin + size <= start + length:
            found = _opened(path, length, checksum)
            if found is not None:
                touch(path)
                return found, start
            with contextlib.suppress(OSError):
                os.unlink(path)
    return None


def _opened(path: str, size: int, checksum: int) -> FileBytes | None:
    try:
        descriptor = Descriptor(open_regular(path, flags=os.O_RDONLY | NO_LINK))
        fd = descriptor.number
        intact = os.fstat(fd).st_size == size and crc32c_of(fd, size) == checksum
    except OSError:
        return None
    return FileBytes(descriptor, path, size) if intact else None


def _fetched(blocks: Blocks, start: int, size: int) -> tuple[FileBytes, int] | None:
    answer = client.fetched(blocks.order("table", begin=start, size=size), b"", blocks.url)
    found = answer["path"] and _kept(os.path.dirname(answer["path"]), start, size)
    return found or None


@contextlib.contextmanager
def _first_come(home: Home, begin: int, size: int, seconds: float) -> Iterator[None]:
    """Wait while another process fetches the range; not for ever, and for no process that died."""
    path = os.path.join(home.directory, f"{begin}-{size}.lock")
    try:
        home.make()
        lock = open(open_regular(path, flags=os.O_RDWR | os.O_CREAT | NO_LINK), "ab")  # noqa: SIM115 - closed below
    except OSError:
        yield
        return
    until = time.monotonic() + seconds
    with lock:
        with contextlib.suppress(PackerError):  # a file system without locks: then each fetches it
            while not try_lock(lock) and time.monotonic() < until and not _is_kept(home.directory, begin, size):
                time.sleep(_LOOK_AGAIN)
        yield
    with contextlib.suppress(OSError):
        os.unlink(path)


def _is_kept(directory: str, begin: int, size: int) -> bool:
    return any(start <= begin and begin + size <= start + length for _, start, length, _ in tables_in(directory))
