"""How objects are read: where they are cached, how much of them, and how long anything is waited for."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass

from packer._storage.remote.urls import parse
from packer.errors import OptionError, printable, warn

__all__ = ["Settings", "choose", "chosen", "default_directory", "size_of"]

CACHE_DIR, CACHE_SIZE, TIMEOUT = "PACKER_CACHE_DIR", "PACKER_CACHE_SIZE", "PACKER_TIMEOUT"
"""The variables that say what an option does not."""

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtT]?)i?[bB]?\s*")
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_SECONDS = 60.0
_KEEPS = hasattr(os, "pread") and hasattr(os, "pwrite")  # which Windows has not: files of a cache are not written there


@dataclass(frozen=True)
class Settings:
    """How objects are read.

    Attributes
    ----------
    cache_dir : str or None
        The directory that keeps what was fetched; None: memory keeps it, as long as the process lives. So it is on
        systems without `os.pread`, such as Windows.
    cache_size : int or None
        How many bytes are kept at most; None: a share of what is free.
    timeout : float
        Seconds until waiting for bytes ends with an error.
    """

    cache_dir: str | None
    cache_size: int | None = None
    timeout: float = _SECONDS

    @classmethod
    def of(
        cls,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        timeout: float | None = None,
    ) -> Settings:
        """Return the settings that options ask for; of an option that is None, the variable's, or the default.

        Parameters
        ----------
        cache_dir : path, optional
            The empty string keeps the bytes in memory alone.
        cache_size : int or str, optional
            Bytes, or a text such as "200 GB".
        timeout : float, optional
            Seconds.

        Raises
        ------
        OptionError
            If one of them is no size, or no time.
        """
        said = os.environ.get(CACHE_DIR) if cache_dir is None else os.fspath(cache_dir)
        directory = default_directory() if said is None else said
        if not _KEEPS and directory:
            _say_that_memory_keeps(said)
            directory = ""
        size = os.environ.get(CACHE_SIZE) or None if cache_size is None else cache_size
        seconds = os.environ.get(TIMEOUT) or _SECONDS if timeout is None else timeout
        return cls(
            os.path.abspath(os.path.expanduser(directory)) if directory else None,
            None if size is None else size_of(size),
            _seconds_of(seconds),
        )


def _say_that_memory_keeps(said: str | None) -> None:
    """Say once in this process that a directory which somebody named is not used on this system."""
    if said is not None and not _told:
        _told.add(said)
        warn(
            f"the cache directory {printable(said)} is not used: this system does not read files at positions "
            "(os.pread). Memory keeps what is fetched, as long as the process lives"
        )


_told = set[str]()


def default_directory() -> str:
    """Return the directory that keeps what was fetched, where nobody says another one."""
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.join(os.path.expanduser("~"), ".cache"), "packer")


def size_of(size: int | str) -> int:
    """Return a number of bytes that was given as a number or as a text such as "200 GB"."""
    found = _SIZE.fullmatch(str(size))
    if found is None or isinstance(size, bool) or float(found[1]) <= 0:
        raise OptionError(f"cache_size: {size!r} is no number of bytes above 0, such as 200000000000 or '200 GB'")
    return max(1, int(float(found[1]) * _UNITS[found[2].lower()]))


def _seconds_of(seconds: float | str) -> float:
    try:
        number = float(seconds)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise OptionError(f"timeout: {seconds!r} is no number of seconds above 0")
    return number


_chosen: dict[str, Settings] = {}


def choose(place: str | os.PathLike[str], settings: Settings) -> None:
    """Have this process read what lies at a URL, and below it, with these settings."""
    _chosen[_key(place)] = settings


def chosen(place: str | os.PathLike[str]) -> Settings:
    """Return the settings that were chosen for a URL, or for what it lies in; else those of the variables."""
    key = _key(place)
    while key:
        if key in _chosen:
            return _chosen[key]
        key = key.rpartition("/")[0]
    return Settings.of()


def _key(place: str | os.PathLike[str]) -> str:
    url = parse(place)
    return f"{url.scheme}://{url.host}/{url.key}".rstrip("/")
