"""How a command ends."""

from __future__ import annotations

__all__ = ["EXIT_STATUS", "Interrupted", "Terminated"]

EXIT_STATUS = {"ok": 0, "error": 1, "usage": 2, "skipped": 3, "corrupt": 4, "locked": 5, "sigint": 130, "sigterm": 143}


class Interrupted(BaseException):
    """SIGINT arrived. The message goes behind that statement; click's own exception for it has none."""


class Terminated(BaseException):
    """SIGTERM arrived."""
