"""The file that says what a conversion in parts is, for those who join it and for those who finish it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from packer._conversion.convert import require_format
from packer._conversion.workspace import WorkspacePaths
from packer._storage.files import writing_to
from packer.errors import DestinationError, printable

__all__ = ["part_name", "read_job", "write_job"]


def part_name(number: int, format: str) -> str:
    """Return the name of a part in the pack."""
    return f"part-{number:05d}{require_format(format).suffixes[0]}"


def read_job(paths: WorkspacePaths) -> dict[str, Any]:
    """Return what was written down when a conversion in parts began; DestinationError where it cannot be read."""
    try:
        job: dict[str, Any] = json.loads(paths.parts.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise DestinationError(f"{printable(paths.parts)}: cannot be read: {error}") from error
    return job


def write_job(paths: WorkspacePaths, job: Mapping[str, Any]) -> None:
    """Write down what a conversion in parts is, as a JSON object; from now on others may join it."""
    # A name of its own, for several tasks may join at the same time.
    written = paths.parts.with_name(f"{paths.parts.name}.{socket.gethostname()}-{os.getpid()}")
    with writing_to(paths.directory):
        written.write_text(json.dumps(job), encoding="ascii")
        os.replace(written, paths.parts)
