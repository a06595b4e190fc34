"""URLs where paths are expected: with a name, a suffix and a parent, and without secrets wherever they are shown."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from packer._storage.remote.urls import is_url, shown
from packer._storage.remote.urls import name as last_part

__all__ = ["UrlPath", "user_path"]


class UrlPath(PurePosixPath):
    """The URL of an object, as a path that is no file's.

    `os.fspath` gives the whole URL, and `str` the one that may be shown.
    """

    @property
    def name(self) -> str:
        """The last part, without a query."""
        return last_part(self.__fspath__())

    def __fspath__(self) -> str:
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}"

    def __str__(self) -> str:
        url = self.__fspath__()
        return shown(url) if is_url(url) else url

    def __reduce__(self) -> tuple[type[UrlPath], tuple[str]]:
        return UrlPath, (self.__fspath__(),)


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return what a person says: a path, in which ``~`` is the user's home, or a `UrlPath`, which opens nothing."""
    return UrlPath(os.fspath(path)) if is_url(path) else Path(os.path.expanduser(path))  # type: ignore[return-value]
