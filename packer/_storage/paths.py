"""Which names of samples may become files: a name from a stranger's pack must not lead out of a directory."""

from __future__ import annotations

import os
import unicodedata

__all__ = ["folded", "longest_path", "name_problem", "path_problem", "windows_problem"]

_LONGEST = 255  # bytes, or on Windows units of UTF-16: what file systems take between slashes
_PORTS = "123456789\u00b9\u00b2\u00b3"  # Windows takes raised digits for digits
_RESERVED = {"con", "prn", "aux", "nul", "conin$", "conout$", *(f"{p}{n}" for p in ("com", "lpt") for n in _PORTS)}


def path_problem(name: str) -> str | None:
    """Say why `name` must not become a path below a directory on this system; None where it may."""
    if problem := name_problem(name):
        return problem
    if len(name) > _LONGEST // 4 and any(  # a character has no more than 4 bytes
        _size(part) > _LONGEST for part in name.split("/")
    ):
        return f"a part of its name has more than {_LONGEST} {'characters' if os.name == 'nt' else 'bytes'}"
    return windows_problem(name) if os.name == "nt" else None


def longest_path() -> int:
    """Return the most bytes of a path on this system; on Windows, where settings decide, what no path exceeds."""
    try:
        return os.pathconf("/", "PC_PATH_MAX") - 1  # less the NUL at its end
    except (AttributeError, OSError, ValueError):
        return 32_767


def folded(name: str) -> str:
    """Return what a file system takes `name` for that ignores case, and how accents are encoded.

    Ask `path_problem` first: the time that accents take grows with the square of how many there are in a row.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def name_problem(name: str) -> str | None:
    """Say why `name` is no name of a sample, on any system; None where it may be one."""
    parts = name.split("/")
    if not name or "\0" in name:
        return "its name is empty or has a NUL in it"
    try:
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return "its name is not text"
    if name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "its name is not a plain relative path"
    return None


def _size(part: str) -> int:
    if os.name == "nt":
        return len(part.encode("utf-16-le", "surrogatepass")) // 2
    return len(part.encode("utf-8", "surrogateescape"))


def windows_problem(name: str) -> str | None:
    """Say why Windows would take `name` for something else than a plain relative path; None where it would not."""
    for part in name.split("/"):
        if any(c in '<>:"|?*\\' or ord(c) < 32 for c in part) or part.endswith((" ", ".")):
            return "its name has characters that Windows does not allow"
        if part.split(".")[0].rstrip(" ").lower() in _RESERVED:
            return "its name is one that Windows reserves"
    return None
