"""Uploads to object storage: of a complete pack, and of files that several processes write below one URL.

If a pack has several files, the manifest is uploaded last, because objects without a manifest are not a pack. Objects
of a replaced pack that the new pack does not have are deleted at the end. Files below a shared URL are never replaced.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from packer._storage.remote import client
from packer._storage.remote.s3 import (
    S3Bucket,
    StoredObject,
    UploadLog,
    exists_already,
    part_size,
    require_uploaded,
)
from packer._storage.remote.urls import RemoteSettings, chosen, join, parse
from packer._storage.safe_open import open_regular
from packer._storage.system import python_command
from packer.errors import (
    DestinationError,
    DestinationOptionError,
    MissingDependencyError,
    RemoteError,
    pip_install,
    printable,
)

MANIFESTS = ("manifest.json", ".packer.index/manifest.json")
"""The possible names of the manifest in a pack of several files; the manifest is uploaded last."""

_WRITTEN = ("s3", "gs", "az")  # the schemes to which packs can be written
_PIECE = 8 << 20  # bytes that are compared at a time
_PAUSES = 0.2, 1.0, 4.0  # seconds before an object is sent again


class Upload:
    """The upload of one pack.

    Parameters
    ----------
    destination : str or Path
        The URL of the pack.
    log : UploadLog
        The log of the upload, including earlier runs.
    overwrite : bool
        Whether an existing pack is replaced.
    """

    def __init__(self, destination: str | Path, log: UploadLog, *, overwrite: bool) -> None:
        url = parse(destination)
        self._url, self._key = str(url), url.key.strip("/")
        self._log, self._overwrite = log, overwrite
        self._store = writable_store(destination)
        self._listed: list[str] | None = None

    def list_replaced(self) -> list[str]:
        """List the objects that a replacement may delete; return the names of those below the URL.

        The replacement deletes only objects in this list, so the caller must check the names before it replaces the
        pack.
        """
        self._listed = self._present()
        return _names_below(self._key, self._listed)

    def require_free(self, *, fresh: bool = False) -> list[str]:
        """Refuse a destination that exists and must not be replaced, or to which another process is uploading.

        Returns
        -------
        list of str
            Notes on abandoned uploads, which are aborted. If `fresh` is True, uploads that may be alive are aborted
            too.

        Raises
        ------
        DestinationError
            If something exists that an earlier run did not upload.
        PackLockedError
            If another process may be uploading.
        RemoteError
            If the store cannot be reached or refuses access.
        """
        if self._log.empty:
            self._refuse_existing()
        return self._store.abort_others(self._key, self._log, even_alive=fresh)

    def run(self, files: Sequence[tuple[str, Path]], progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Upload the files of the pack, and compare each with its object.

        Parameters
        ----------
        files : sequence of (str, Path)
            The name of each file in the pack (empty if the pack is one file), and its path on this machine.
        progress : callable, optional
            Called, on any thread, with the number of bytes uploaded, and the total.

        Returns
        -------
        list of str
            The notes that `require_free` returns.

        Raises
        ------
        DestinationError, PackLockedError, RemoteError
            For the same reasons as `require_free`. Calling `run` again continues the upload.
        """
        notes = self.require_free()
        ordered = sorted(files, key=lambda file: (file[0] in MANIFESTS, file[0]))
        keys = [self._key_of(name) for name, _ in ordered]
        if self._overwrite:
            if self._log.empty:
                self._log.replaces(self._key, self._listed or [])
            self._take_apart()
        sent = _ByteCount(sum(path.stat().st_size for _, path in ordered), progress)
        replaced = self._log.replaced or set()
        for key, (name, path) in zip(keys, ordered, strict=True):
            replace = self._overwrite and key in replaced
            try:
                self._store.send(path, key, self._log, replace=replace, progress=sent.add)
            except DestinationError:
                if not self._overwrite or replace or (found := self._store.find(key)) is None:
                    raise
                if not _has_bytes_of(join(self._url, name) if name else self._url, path):
                    raise DestinationError(
                        f"{self._store.display_name(key)}: was written by another program after the upload began. "
                        "Check it, delete it, and run the same command to continue."
                    ) from None
                self._log.finished(key, found.etag)  # an earlier run was killed before it could record this
        if self._overwrite:
            self._store.delete(sorted((replaced & {*self._present()}) - {*keys}))
        return notes

    def give_up(self) -> None:
        """Delete the uploaded objects of an incomplete pack of several files."""
        if not any(self._store.find(self._key_of(name)) for name in MANIFESTS):
            self._store.delete([key for key in self._log.done if key != self._key])

    def _key_of(self, name: str) -> str:
        return f"{self._key}/{name}" if name else self._key

    def _refuse_existing(self) -> None:
        shown = self._store.display_name(self._key)
        if self._overwrite and self._listed is None:
            self.list_replaced()
        if self._store.find(self._key) is not None and not self._overwrite:
            raise exists_already(shown)
        if not self._store.keys_below(f"{self._key}/", 1):
            return
        if not any(self._store.find(self._key_of(name)) for name in MANIFESTS):
            raise DestinationError(
                f"{shown}/: contains objects, but no manifest of a pack: other files, a conversion in parts, or the "
                "rest of an upload whose scratch directory is lost. Check them and delete them, or choose another "
                "name."
            )
        if not self._overwrite:
            raise exists_already(shown)

    def _take_apart(self) -> None:
        """Delete the manifest of the replaced pack; from now on, the objects are neither the old nor the new pack."""
        keys = [self._key_of(name) for name in MANIFESTS]
        self._store.delete([key for key in keys if key not in self._log.done and self._store.find(key) is not None])

    def _present(self) -> list[str]:
        own = [] if self._store.find(self._key) is None else [self._key]
        return own + self._store.keys_below(f"{self._key}/")


def _names_below(key: str, keys: Iterable[str]) -> list[str]:
    """Return the names of objects below a key, without the marker ``key/`` of a directory, which some tools write."""
    names = (found.removeprefix(f"{key}/") for found in keys if found != key)
    return [name for name in names if name]


class _ByteCount:
    """Counts the bytes that have arrived; many threads can add to the count."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._progress is not None:
                self._progress(self._done, self._total)


class SharedPrefix:
    """The objects below a URL, written by many processes.

    Parameters
    ----------
    url : str
        A URL of S3, Google Cloud Storage or Azure. The objects' names begin with this URL and a slash.

    Raises
    ------
    RemoteError
        If the store cannot be reached or refuses access. All methods raise this error too.
    """

    def __init__(self, url: str) -> None:
        self._url = str(parse(url))
        self._key = parse(url).key.strip("/")
        self._store = writable_store(url)

    def is_object(self) -> bool:
        """Tell whether there is an object at the URL itself."""
        return self._store.find(self._key) is not None

    def names(self) -> list[str]:
        """Return the names of the objects, without the URL and the slash, in their order."""
        return _names_below(self._key, self._store.keys_below(f"{self._key}/"))

    def size(self) -> int:
        """Return the total size of the objects in bytes."""
        return sum(entry.version.size for entry in client.list_objects(self._url))

    def read(self, name: str) -> bytes | None:
        """Return an object's bytes; None if there is no object with this name."""
        try:
            return client.get(join(self._url, name))
        except FileNotFoundError:
            return None

    def send(self, path: Path, name: str, log: UploadLog) -> None:
        """Upload a file as an object, unless another process has already uploaded the same bytes.

        Parameters
        ----------
        path : Path
        name : str
        log : UploadLog
            The log, with the state of an interrupted call.

        Raises
        ------
        DestinationError
            If an object with this name has other bytes, or the file cannot be read.
        """
        for pause in (*_PAUSES, None):
            try:
                self._store.send(path, f"{self._key}/{name}", log, replace=False, progress=lambda size: None)
            except DestinationError:
                if _has_bytes_of(join(self._url, name), path):
                    return
                if pause is None or self._store.find(f"{self._key}/{name}") is not None:
                    raise
                time.sleep(pause)  # S3 refuses one of two simultaneous uploads before the object of the other exists
            else:
                return

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects; it is no error if an object does not exist."""
        self._store.delete([f"{self._key}/{name}" for name in names])

    def abort_unfinished(self, log: UploadLog) -> None:
        """Abort the unfinished uploads of other processes, alive or not."""
        self._store.abort_others(self._key, log, even_alive=True)


def _has_bytes_of(url: str, path: Path) -> bool:
    """Compare an object with a file byte by byte, because not every store's ETag is a checksum."""
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


class WritableStore(Protocol):
    """A bucket or a container for writing; keys are relative to it."""

    def display_name(self, key: str) -> str: ...

    def find(self, key: str) -> StoredObject | None: ...

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]: ...

    def delete(self, keys: list[str]) -> None: ...

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None: ...

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]: ...


_PROGRAM = "from packer._storage.remote.obstore import main; main()"
_PUT_REMEDIES = {
    "NotFoundError": "no such bucket or container. Make it first.",
    "PermissionDeniedError": "access is denied. Writing needs permission to read, list, write and delete objects.",
    "UnauthenticatedError": "credentials are missing or expired. Set them, and run the same command to continue.",
    "UnknownConfigurationKeyError": "an environment variable has a setting that obstore does not know.",
}


class ObstoreBucket:
    """A bucket of Google Cloud or a container of Azure. obstore writes to it, in a new process for each request.

    An object appears when all of it has arrived. obstore cannot resume an upload: an interrupted object is sent again.
    The parts that had arrived are orphaned; Azure drops them after a week, and Google by a lifecycle rule.

    Parameters
    ----------
    scheme : {"gs", "az"}
    name : str
    settings : RemoteSettings
        Time limits.
    """

    def __init__(self, scheme: str, name: str, settings: RemoteSettings) -> None:
        self._base = f"{scheme}://{name}"
        self._settings = settings

    def display_name(self, key: str) -> str:
        """Return the name of an object in messages."""
        return printable(f"{self._base}/{key}")

    def find(self, key: str) -> StoredObject | None:
        """Return size and ETag of an object; None if it does not exist."""
        found = self._ask("find", key)
        return None if found is None else StoredObject(found["size"], found["etag"])

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]:
        """Return, in their order, the keys that begin with `prefix`, which must end in a slash."""
        return list(self._ask("list", prefix))[:most]

    def delete(self, keys: list[str]) -> None:
        """Delete objects."""
        for key in keys:
            self._ask("delete", key)

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None:
        """Upload a file as an object, like `S3Bucket.send`, except that a partial upload is not continued."""
        size, found = path.stat().st_size, self.find(key)
        if log.has_sent(key, found, size):
            progress(size)
            return
        if found is not None and not replace:
            raise exists_already(self.display_name(key))
        etag = self._ask("put", key, progress, path=os.fspath(path), part=part_size(size))
        require_uploaded(self.find(key), size, etag, self.display_name(key))
        log.finished(key, etag)

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]:
        """Return nothing: these stores list no unfinished uploads that obstore could abort."""
        return []

    def _ask(self, verb: str, key: str, progress: Callable[[int], None] | None = None, **more: Any) -> Any:
        """Send a request to a new process, and return its result; RemoteError if it fails."""
        request = {"verb": verb, "base": self._base, "key": key, "timeout": self._settings.timeout, **more}
        try:
            command = python_command(_PROGRAM, "obstore")
        except ModuleNotFoundError:
            raise self._failed(key, "ImportError") from None
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(json.dumps(request))
                child.stdin.close()
                for line in child.stdout:
                    response = json.loads(line)
                    if "sent" in response:
                        if progress is not None:
                            progress(response["sent"])
                    elif "error" in response:
                        raise self._failed(key, response["error"])
                    else:
                        return response["result"]
            finally:
                child.kill()
        raise RemoteError(f"{self.display_name(key)}: the upload process ended. Run the same command to try again.")

    def _failed(self, key: str, kind: str) -> Exception:
        if kind == "ImportError":
            return MissingDependencyError(f"writing to {self._base} needs obstore: {pip_install('remote')}")
        why = _PUT_REMEDIES.get(
            kind, f"obstore raised {printable(kind)}. Check the network, and run the same command to try again."
        )
        # Without the text of the error, which may contain a URL with its signature.
        return RemoteError(f"{self.display_name(key)}: {why}")


def writable_store(url: str | Path) -> WritableStore:
    """Return the store to which the object at a URL is written."""
    parts = parse(url)
    settings = chosen(str(parts))
    if parts.scheme == "s3":
        return S3Bucket(parts.host, settings)
    return ObstoreBucket(parts.scheme, parts.host, settings)


def require_writable(destination: str | Path) -> None:
    """Raise DestinationOptionError if no pack can be written to a URL."""
    url = parse(destination)
    if url.scheme not in _WRITTEN:
        raise DestinationOptionError(
            f"{url.redacted()}: packer cannot write to an HTTP server. Write to s3://, gs:// or az://, or to a file."
        )
    if not url.key.strip("/"):
        raise DestinationOptionError(
            f"{url.redacted()}: names a bucket, but no pack in it, such as {url.redacted()}train.lmdb"
        )
