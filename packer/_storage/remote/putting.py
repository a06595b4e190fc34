"""Buckets of Google Cloud and containers of Azure as they are written: through obstore, in a process of its own.

obstore's threads hang in a process that is forked after they began. So each request has a process, which runs `main`:
JSON on its standard input, lines of JSON on its standard output.

An object appears when all of it has arrived. obstore cannot go on with an object that was sent in part: it is sent
anew. What arrived of it before belongs to no object; Azure drops it after a week, and Google by a lifecycle rule.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from packer._storage.interpreters import python_command
from packer._storage.remote.multipart import exists_already, part_size, same_object
from packer._storage.remote.s3 import Found
from packer._storage.remote.settings import Settings
from packer._storage.remote.uploadlog import UploadLog
from packer.errors import MissingDependencyError, RemoteError, pip_install, printable

__all__ = ["PuttingStore", "main"]

_CODE = "from packer._storage.remote.putting import main; main()"

_REQUEST = 5  # how much longer a request with a part may take than one wait
_RETRIES = 8
_REMEDIES = {
    "NotFoundError": "there is no such bucket or container. Make it first.",
    "PermissionDeniedError": "access is refused. Writing needs the rights to read, list, write and delete objects.",
    "UnauthenticatedError": "there are no credentials, or they have expired. The same command continues.",
    "UnknownConfigurationKeyError": "a variable of the environment says what obstore does not know.",
}


class PuttingStore:
    """A bucket or a container that is written.

    Parameters
    ----------
    scheme : {"gs", "az"}
    name : str
    settings : Settings
        How long is waited.
    """

    def __init__(self, scheme: str, name: str, settings: Settings) -> None:
        self._base = f"{scheme}://{name}"
        self._settings = settings

    def shown(self, key: str) -> str:
        """Return how messages call an object."""
        return printable(f"{self._base}/{key}")

    def find(self, key: str) -> Found | None:
        """Return what is known of an object; None where there is none."""
        found = self._ask("find", key)
        return None if found is None else Found(found["size"], found["etag"])

    def keys_below(self, prefix: str, most: int | None = None) -> list[str]:
        """Return the keys that begin with `prefix`, which ends in a slash, in their order."""
        return list(self._ask("list", prefix))[:most]

    def delete(self, keys: list[str]) -> None:
        """Delete objects."""
        for key in keys:
            self._ask("delete", key)

    def send(self, path: Path, key: str, log: UploadLog, *, replace: bool, progress: Callable[[int], None]) -> None:
        """Make an object of a file; as `PartsBucket.send`, but for going on with an object that was sent in part."""
        size, found = path.stat().st_size, self.find(key)
        if key in log.done and same_object(found, size, log.done[key]):
            progress(size)
            return
        if found is not None and not replace:
            raise exists_already(self.shown(key))
        etag = self._ask("put", key, progress, path=os.fspath(path), part=part_size(size))
        if not same_object(self.find(key), size, etag):
            raise RemoteError(f"{self.shown(key)}: is not what was uploaded. Does somebody else write there?")
        log.finished(key, etag)

    def abort_others(self, key: str, log: UploadLog, *, even_alive: bool) -> list[str]:
        """Return nothing: these stores list no unfinished uploads that obstore could abort."""
        return []

    def _ask(self, verb: str, key: str, progress: Callable[[int], None] | None = None, **more: Any) -> Any:
        """Have a process do something, and return what it says; RemoteError where it fails."""
        request = {"verb": verb, "base": self._base, "key": key, "timeout": self._settings.timeout, **more}
        try:
            command = python_command(_CODE, "obstore")
        except ModuleNotFoundError:
            raise self._failed(key, "ImportError") from None
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write(json.dumps(request))
                child.stdin.close()
                for line in child.stdout:
                    answer = json.loads(line)
                    if "sent" in answer:
                        if progress is not None:
                            progress(answer["sent"])
                    elif "error" in answer:
                        raise self._failed(key, answer["error"])
                    else:
                        return answer["result"]
            finally:
                child.kill()
        raise RemoteError(f"{self.shown(key)}: the process that writes it ended. The same command tries again.")

    def _failed(self, key: str, kind: str) -> Exception:
        if kind == "ImportError":
            return MissingDependencyError(f"writing to {self._base} needs obstore: {pip_install('remote')}")
        why = _REMEDIES.get(kind, f"obstore says {printable(kind)}. Look at the network; the same command tries again.")
        # Without the text of the error, in which a URL may stand with its signature.
        return RemoteError(f"{self.shown(key)}: {why}")


def main() -> None:
    """Do what standard input asks for."""
    request = json.load(sys.stdin)
    try:
        _say({"result": _done(request)})
    except ImportError:
        _say({"error": "ImportError"})
    except Exception as error:  # whatever it is, the parent says so
        _say({"error": type(error).__name__})


def _done(request: dict[str, Any]) -> Any:
    import obstore
    from obstore.exceptions import NotFoundError

    seconds, key = request["timeout"], request["key"]
    store = obstore.store.from_url(
        request["base"],
        client_options={
            "allow_http": True,
            "connect_timeout": f"{seconds:.0f}s",
            "timeout": f"{_REQUEST * seconds:.0f}s",
        },
        retry_config={"max_retries": _RETRIES},
    )
    if request["verb"] == "find":
        try:
            found = obstore.head(store, key)
        except (NotFoundError, FileNotFoundError):
            return None
        return {"size": found["size"], "etag": found["e_tag"] or ""}
    if request["verb"] == "list":
        return sorted(entry["path"] for chunk in obstore.list(store, key.rstrip("/")) for entry in chunk)
    if request["verb"] == "delete":
        with contextlib.suppress(NotFoundError, FileNotFoundError):
            obstore.delete(store, key)
        return None
    with open(request["path"], "rb") as file:
        given = obstore.put(store, key, _pieces(file, request["part"]), chunk_size=request["part"], max_concurrency=8)
    return given["e_tag"] or ""


def _pieces(file: Any, size: int) -> Iterator[bytes]:
    while piece := file.read(size):
        _say({"sent": len(piece)})
        yield piece


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201 - its standard output is read by its parent alone
