"""Imports packer's C extension as `_native`, or sets it to None, and tells why the decoder is missing or slow."""

from __future__ import annotations

import os
import platform
import shlex
from pathlib import Path
from typing import NamedTuple

__all__ = ["VECTORS", "Shortcoming", "_native", "require_fields", "shortcoming"]

try:
    import packer._images._native as _native  # noqa: PLR0402 - ModuleNotFoundError tells that the file is not there

    _failure = None
except ImportError as error:
    _native = None  # type: ignore[assignment]
    _failure = error


VECTORS = _native.VECTORS if _failure is None else ""
"""The vector instructions that packer's C uses here, ``"AVX-512"``, ``"AVX2"`` or ``"NEON"``; empty for plain C."""


def require_fields(names: tuple[str, ...] | None, constant: str) -> None:
    """Raise ImportError if the extension was compiled for a record whose fields differ from `names`.

    Parameters
    ----------
    names : tuple of str
        The fields of the record's dtype.
    constant : str
        The extension's constant that lists the field names in C.
    """
    if _native is not None and names != tuple(getattr(_native, constant).split()):
        raise ImportError("packer._images._native was compiled from another version: reinstall packer")


# The version of the wheel is that of the installed package, which pip replaces only with --force-reinstall.
_WHEEL = "a wheel of packer, which scripts/wheels builds in a clone (pip install --force-reinstall --no-deps FILE.whl)"


class Shortcoming(NamedTuple):
    """The reason why packer's own decoder is unavailable or slow on this machine.

    Attributes
    ----------
    reason : str
        The reason, worded to follow a colon.
    cure : str
        The remedy, as a sentence without a full stop; empty if there is no remedy.
    """

    reason: str
    cure: str


def shortcoming() -> Shortcoming | None:
    """Return why packer's own decoder is unavailable, or, if there is a remedy, why it is slow; otherwise None."""
    if _failure is not None:
        return _not_loaded(_failure)
    if VECTORS or platform.machine().lower() not in ("x86_64", "amd64", "aarch64", "arm64"):
        return None
    if not _native.COMPILED_VECTORS:
        return Shortcoming(
            "it was compiled without vector instructions, which need gcc or clang",
            f"Install {_WHEEL}",
        )
    return Shortcoming("this processor has no AVX2", "In a virtual machine, choose a processor type with AVX2")


def _not_loaded(failure: ImportError) -> Shortcoming:
    if not isinstance(failure, ModuleNotFoundError):
        return Shortcoming(f"the compiled code cannot be loaded ({failure})", "Reinstall packer on this machine")
    root = Path(os.path.realpath(__file__)).parents[2]
    if all(os.path.isfile(root / name) for name in ("setup.py", "pyproject.toml")):
        return Shortcoming(
            f"not compiled, because packer is imported from its source tree, {root}",
            "Run Python in another directory, where it finds the installed packer (pip install "
            f"{shlex.quote(str(root))}, which needs a C compiler and Python's headers)",
        )
    return Shortcoming(
        "not compiled, which needs a C compiler and Python's headers during installation",
        f"Install both (on Debian: gcc, python3-dev) and reinstall packer; or install {_WHEEL}",
    )
