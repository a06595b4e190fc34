"""What several processes put below one URL: each file under a name of its own, and none is ever replaced."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from packer._storage.opening import open_regular
from packer._storage.remote import client
from packer._storage.remote.uploading import store_of
from packer._storage.remote.uploadlog import UploadLog
from packer._storage.remote.urls import join, parse
from packer.errors import DestinationError

__all__ = ["SharedPrefix"]

_PIECE = 8 << 20  # bytes that are compared at a time
_PAUSES = 0.2, 1.0, 4.0  # seconds before an object is sent again


class SharedPrefix:
    """The objects below a URL, as many processes write them.

    Parameters
    ----------
    url : str
        A URL of S3, Google Cloud Storage or Azure. The objects' names begin with it and a slash.

    Raises
    ------
    RemoteError
        If the store cannot be reached or refuses; so all methods raise it.
    """

    def __init__(self, url: str) -> None:
        self._url = str(parse(url))
        self._key = parse(url).key.strip("/")
        self._store = store_of(url)

    def is_object(self) -> bool:
        """Tell whether there is an object at the URL itself."""
        return self._store.find(self._key) is not None

    def names(self) -> list[str]:
        """Return the names of the objects, after the slash, in their order."""
        return [key[len(self._key) + 1 :] for key in self._store.keys_below(f"{self._key}/")]

    def size(self) -> int:
        """Return how many bytes the objects have together."""
        return sum(entry.version.size for entry in client.listed(self._url))

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes; None where there is none of this name."""
        try:
            return client.get(join(self._url, name))
        except FileNotFoundError:
            return None

    def send(self, path: Path, name: str, log: UploadLog) -> None:
        """Make an object of a file, unless another process made it with the same bytes.

        Parameters
        ----------
        path : Path
        name : str
        log : UploadLog
            Where an interrupted call left off.

        Raises
        ------
        DestinationError
            If an object of this name has other bytes, or the file cannot be read.
        """
        for pause in (*_PAUSES, None):
            try:
                self._store.send(path, f"{self._key}/{name}", log, replace=False, progress=lambda size: None)
            except DestinationError:
                if self._has_bytes_of(path, name):
                    return
                if pause is None or self._store.find(f"{self._key}/{name}") is not None:
                    raise
                time.sleep(pause)  # S3 refuses one of two that come at once, before the object of the other is there
            else:
                return

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; no error where there is none."""
        self._store.delete([f"{self._key}/{name}" for name in names])

    def abort_unfinished(self, log: UploadLog) -> None:
        """Abort the uploads that others began here and did not complete, alive or not."""
        self._store.abort_others(self._key, log, even_alive=True)

    def _has_bytes_of(self, path: Path, name: str) -> bool:
        """Compare an object with a file, for not every store's ETag says what is in the object."""
        url = join(self._url, name)
        with open(open_regular(path), "rb") as file:
            found = client.head(url)
            if found is None or found.size != path.stat().st_size:
                return False
            try:
                return all(
                    client.get(url, start, min(start + _PIECE, found.size), found) == file.read(_PIECE)
                    for start in range(0, found.size, _PIECE)
                )
            except FileNotFoundError:  # another process dropped it meanwhile
                return False
