"""packer's own C, `packer._images._native`, or None where packer was installed without a compiler."""

from __future__ import annotations

try:
    from packer._images import _native
except ImportError:
    _native = None  # type: ignore[assignment]

__all__ = ["_native"]
