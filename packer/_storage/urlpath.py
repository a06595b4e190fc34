"""URLs where paths are expected: with a name, a suffix and a parent, and without secrets wherever they are shown."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from packer._storage.remote.urls import is_url, shown
from packer._storage.remote.urls import name as last_part
from packer.errors import OptionError

__all__ = ["UrlPath", "local_path", "user_path"]


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


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of this machine that a person says, in which ``~`` is the user's home.

    Raises
    ------
    OptionError
        If it is a URL.
    """
    if is_url(path):
        raise OptionError(
            f"{shown(path)} is a URL, and this works with paths of this machine. `packer stage URL DIRECTORY` copies a "
            "pack here"
        )
    return Path(os.path.expanduser(path))
