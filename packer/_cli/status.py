"""How a command ends."""

from __future__ import annotations

import errno

__all__ = ["DISK_IS_FULL", "EXIT_STATUS", "NOBODY_READS", "Interrupted", "Terminated"]

EXIT_STATUS = {"ok": 0, "error": 1, "usage": 2, "skipped": 3, "corrupt": 4, "locked": 5, "sigint": 130, "sigterm": 143}

NOBODY_READS = (errno.EPIPE, errno.EIO)
"""How printing fails where nobody reads any more: ``packer info … | head``, and a terminal that was closed."""

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
"""How printing fails where the output goes to a file, and there is no room: ``packer info … > FILE``."""


class Interrupted(BaseException):
    """SIGINT arrived. The message follows that statement; click's own exception for it has none."""


class Terminated(BaseException):
    """SIGTERM arrived, or the terminal was closed."""
