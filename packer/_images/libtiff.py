"""What libtiff says of a damaged TIFF.

Pillow lets libtiff write to the error output, where nobody knows which file is meant; and of some damage nothing else
tells. So the lines of the thread that decodes are kept here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import PIL

__all__ = ["listening"]

_MOST = 16  # lines of an image
_LONGEST = 400  # bytes of a line
_OF_PILLOW = "tempfile.tif"  # how Pillow calls all files

_lines = threading.local()


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Keep what libtiff says on this thread in the ``with`` block; a block inside of another one has the same list."""
    _listen()
    outer: list[str] | None = getattr(_lines, "now", None)
    _lines.now = [] if outer is None else outer
    try:
        yield _lines.now
    finally:
        _lines.now = outer


@functools.cache
def _listen() -> object:
    """Give libtiff a function that takes its lines; return what has to live as long as libtiff."""
    library = _library()
    if library is None:
        return None
    try:
        opened, c = ctypes.CDLL(str(library)), ctypes.CDLL(None)
        install, write = opened.TIFFSetErrorHandler, c.vsnprintf
    except (OSError, AttributeError):
        return None
    write.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]

    def take(module: bytes | None, format: bytes, arguments: int) -> None:
        line = ctypes.create_string_buffer(_LONGEST)
        write(line, _LONGEST, format, arguments)
        where, said = (module or b"").decode("utf-8", "replace"), line.value.decode("utf-8", "replace")
        _take(said if where in ("", _OF_PILLOW) else f"{where}: {said}")

    taking = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)(take)
    install.argtypes, install.restype = [type(taking)], ctypes.c_void_p
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(taking))  # a thread may decode until the very end of the process
    install(taking)
    return taking


def _take(line: str) -> None:
    lines: list[str] | None = getattr(_lines, "now", None)
    if lines is None:  # somebody else's image
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"{line.rstrip('.')}.\n")
    elif len(lines) < _MOST:
        lines.append(line.rstrip("."))


def _library() -> Path | None:
    """Return the libtiff that this process has loaded for Pillow; None where Pillow has it inside of itself."""
    if os.name == "nt":
        return None
    own = Path(PIL.__file__).parent
    for directory in (own.parent / "pillow.libs", own / ".dylibs"):
        for path in sorted(directory.glob("libtiff*")):
            return path
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
            if "/libtiff" in line:
                return Path(line[line.index("/") :])
    return None
