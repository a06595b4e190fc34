"""The file that says what a conversion in parts is, for those who join it and for those who finish it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packer._conversion.required import require_format
from packer._conversion.workspace import WorkspacePaths
from packer._formats import FORMATS
from packer._storage.files import replacing, sync_directory
from packer.errors import DestinationError, printable

__all__ = ["parse_job", "part_name", "read_job", "write_job"]

_JOB = {
    **{"settings": dict, "request": dict, "source": dict, "packs": list, "made_of": dict},
    **{"listed": bool, "images": int, "overwrite": bool},
}
_SETTINGS = {"format": str, "parts": int, "on_error": str}
"""What the file holds at least, and of which types, for `packer._conversion.job` and `packer._conversion.finish`."""


def part_name(number: int, format: str) -> str:
    """Return the name of a part in the pack."""
    return f"part-{number:05d}{require_format(format).suffixes[0]}"


def read_job(paths: WorkspacePaths) -> dict[str, Any]:
    """Return what was written down when a conversion in parts began; DestinationError where it cannot be read."""
    try:
        return parse_job(paths.job.read_bytes(), paths.job, paths.directory)
    except OSError as error:
        raise DestinationError(f"{printable(paths.job)}: cannot be read: {error.strerror}") from error


def parse_job(text: bytes, path: Path, directory: Path) -> dict[str, Any]:
    """Return what the bytes of such a file say; DestinationError, which names both paths, where it is damaged."""
    try:
        job = json.loads(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, directory, "it is no JSON text") from error
    for where, members in ((job, _JOB), (job.get("settings") if isinstance(job, dict) else None, _SETTINGS)):
        if not isinstance(where, dict):
            raise _damaged(path, directory, "it is not the JSON object that it was")
        for name, kind in members.items():
            if type(where.get(name)) is not kind:
                raise _damaged(path, directory, f"{name!r} is missing, or not what it was")
    if job["settings"]["format"] not in FORMATS or job["settings"]["parts"] < 1:
        raise _damaged(path, directory, "its format or its number of parts is none")
    return dict(job)


def write_job(paths: WorkspacePaths, job: Mapping[str, Any]) -> None:
    """Write down what a conversion in parts is, as a JSON object; from now on others may join it.

    When the function returns, the file is on the disk, and so are the names of all that lies beside it.
    """
    with replacing(paths.job) as file:
        file.append(json.dumps(job).encode("ascii"))
    sync_directory(paths.directory.parent)  # the directory's own name


def _damaged(path: Path, directory: Path, problem: str) -> DestinationError:
    return DestinationError(
        f"{printable(path)}: damaged: {problem}. "
        f"Remove {printable(directory)}, and convert again: that makes all parts anew."
    )
