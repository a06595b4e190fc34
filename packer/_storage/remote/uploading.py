"""A pack that is complete on this machine goes to object storage: every file under its name when all of it is there.

Where a pack is several files, the manifest goes last: without it, what is there is no pack. Objects that a replaced
pack had, and the new one has not, are deleted at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from packer._storage.remote.multipart import PartsBucket, exists_already
from packer._storage.remote.putting import PuttingStore
from packer._storage.remote.s3 import Found
from packer._storage.remote.settings import chosen
from packer._storage.remote.uploadlog import UploadLog
from packer._storage.remote.urls import parse
from packer.errors import DestinationError

__all__ = ["MANIFESTS", "Store", "Upload", "require_writable", "store_of"]

MANIFESTS = ("manifest.json", ".packer.index/manifest.json")
"""Where in a pack of several files its manifest lies, which is uploaded last."""

_WRITTEN = ("s3", "gs", "az")


class Store(Protocol):
    """What is asked of a store; keys are relative to its bucket."""

    def shown(self, key: str) -> str: ...

    def find(self, key: str) -> Found | None: ...

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]: ...

    def delete(self, keys: list[str]) -> None: ...

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None: ...

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]: ...


def store_of(url: str | Path) -> Store:
    """Return the store in which the object of a URL is, or will be."""
    parts = parse(url)
    settings = chosen(str(parts))
    if parts.scheme == "s3":
        return PartsBucket(parts.host, settings)
    return PuttingStore(parts.scheme, parts.host, settings)


def require_writable(destination: str | Path) -> None:
    """Raise DestinationError where a URL is none that a pack can be written to."""
    url = parse(destination)
    if url.scheme not in _WRITTEN:
        raise DestinationError(
            f"{url.shown()}: a server of HTTP is read only. Write to s3://, gs:// or az://, or to a file."
        )
    if not url.key.strip("/"):
        raise DestinationError(f"{url.shown()}: names a bucket, and no pack in it, such as {url.shown()}train.lmdb")


class Upload:
    """The upload of one pack.

    Parameters
    ----------
    destination : str or Path
        Its URL.
    log : UploadLog
        What an earlier run uploaded.
    overwrite : bool
        Whether a pack that is there is replaced.
    """

    def __init__(self, destination: str | Path, log: UploadLog, *, overwrite: bool) -> None:
        url = parse(destination)
        self._key = url.key.strip("/")
        self._log, self._overwrite = log, overwrite
        self._store = store_of(destination)

    def require_free(self, *, fresh: bool = False) -> list[str]:
        """Refuse a destination where something is that is not to be replaced, or another process is uploading.

        Returns
        -------
        list of str
            What to say of abandoned uploads, which are aborted; with `fresh` also those that may be alive.

        Raises
        ------
        DestinationError
            If something is there, and was not uploaded by an earlier run.
        PackLockedError
            If another process may be uploading.
        RemoteError
            If the store cannot be reached or refuses.
        """
        if self._log.empty:
            self._refuse_what_is_there()
        return self._store.abort_others(self._key, self._log, even_alive=fresh)

    def run(self, files: Sequence[tuple[str, Path]], progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Upload the files of the pack, and compare each with its object.

        Parameters
        ----------
        files : sequence of (str, Path)
            Where each lies in the pack, and on this machine; the place is empty where the pack is one file.
        progress : callable, optional
            Called, on any thread, with the number of bytes that are there, and their total.

        Returns
        -------
        list of str
            As `require_free`.

        Raises
        ------
        DestinationError, PackLockedError, RemoteError
            As `require_free`; the same call goes on.
        """
        said = self.require_free()
        ordered = sorted(files, key=lambda file: (file[0] in MANIFESTS, file[0]))
        keys = [self._key_of(place) for place, _ in ordered]
        if self._overwrite:
            self._take_apart()
        counted = _Counted(sum(path.stat().st_size for _, path in ordered), progress)
        for key, (_, path) in zip(keys, ordered, strict=True):
            self._store.send(path, key, self._log, replace=self._overwrite, progress=counted.add)
        if self._overwrite:
            stale = {*self._present()} - {*keys}
            self._store.delete(sorted(stale))
        return said

    def give_up(self) -> None:
        """Delete what an earlier run uploaded of a pack of several files that is not complete."""
        if not any(self._store.find(self._key_of(place)) for place in MANIFESTS):
            self._store.delete([key for key in self._log.done if key != self._key])

    def _key_of(self, place: str) -> str:
        return f"{self._key}/{place}" if place else self._key

    def _refuse_what_is_there(self) -> None:
        shown = self._store.shown(self._key)
        if self._store.find(self._key) is not None and not self._overwrite:
            raise exists_already(shown)
        if not self._store.keys_below(f"{self._key}/", 1):
            return
        if not any(self._store.find(self._key_of(place)) for place in MANIFESTS):
            raise DestinationError(
                f"{shown}/: holds objects, and no manifest of a pack is among them: something else, a conversion in "
                "parts, or what an upload left whose scratch is lost. Look at them and delete them, or choose another "
                "name."
            )
        if not self._overwrite:
            raise exists_already(shown)

    def _take_apart(self) -> None:
        """Delete the manifest of the pack that is replaced: what is there from now on is neither pack."""
        keys = [self._key_of(place) for place in MANIFESTS]
        self._store.delete([key for key in keys if key not in self._log.done and self._store.find(key) is not None])

    def _present(self) -> list[str]:
        own = [] if self._store.find(self._key) is None else [self._key]
        return own + self._store.keys_below(f"{self._key}/")


class _Counted:
    """Adds up what arrives on many threads."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(self._done, self._total)
