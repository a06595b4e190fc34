"""Whose process is at the other end of a connection on the loopback, where the system tells: Linux does."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

__all__ = ["is_own"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ROOT = 0  # who may read everything, and passes connections on for others: of the Windows below a Linux, say
_LOCAL, _REMOTE, _OWNER = 1, 2, 7  # columns of the tables


def is_own(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Tell whether a connection comes from a process of this user.

    Parameters
    ----------
    client, server : (str, int)
        Address and port of its two ends, of IPv4.

    Returns
    -------
    bool
        True too where the system has no tables of connections.
    """
    ends = _spelled(*client), _spelled(*server)
    tables = [table for table in _TABLES if os.access(table, os.R_OK)]
    for table in tables:
        for line in table.read_text("ascii", "replace").splitlines()[1:]:
            columns = line.split()
            # Addresses of IPv4 are at the end of those of IPv6 that stand for them.
            if columns[_LOCAL].endswith(ends[0]) and columns[_REMOTE].endswith(ends[1]):
                return int(columns[_OWNER]) in (_ROOT, os.geteuid())
    return not tables


def _spelled(address: str, port: int) -> str:
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}:{port:04X}"
