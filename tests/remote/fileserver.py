"""The files of this machine, as the objects of a server."""

from __future__ import annotations

import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from tests.storage.remote.objects import ObjectServer


class FilesOfThisMachine(dict[str, bytes]):
    """Every regular file, by its absolute path without the first slash."""

    def __contains__(self, name: object) -> bool:
        return os.path.isfile(_path(str(name)))

    def __getitem__(self, name: str) -> bytes:
        return Path(_path(name)).read_bytes()


def _path(name: str) -> str:
    return "/" + urllib.parse.unquote(name, errors="surrogateescape")


@dataclass
class Served:
    """A server of the files of this machine."""

    server: ObjectServer

    def url(self, path: str | os.PathLike[str]) -> str:
        """Return the URL of a file or a directory."""
        quoted = urllib.parse.quote(os.path.abspath(path), errors="surrogateescape")
        return f"{self.server.url}{quoted}"
