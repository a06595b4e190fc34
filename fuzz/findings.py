"""Findings: forbidden outcomes of using a pack. The first line is the same for the same fault."""

from __future__ import annotations

import os
import traceback

import packer

PACKAGE = os.path.join(os.path.dirname(packer.__file__), "")
"""What the paths of packer's own code begin with."""


class Finding(Exception):  # noqa: N818
    """Using a pack had an outcome that packer promises to exclude."""


def finding_of(error: BaseException) -> Finding:
    """Return an error as a finding; its signature is the line of packer's code that raised it or called what did."""
    frames = traceback.extract_tb(error.__traceback__)
    at = ([frame for frame in frames if frame.filename.startswith(PACKAGE)] or frames)[-1]
    where = f"{at.filename.removeprefix(PACKAGE)}:{at.lineno}"
    text = "".join(traceback.format_exception(error))
    return Finding(f"{type(error).__name__} at {where} ({at.name})\n{text[-3000:]}")


def require_memory(error: BaseException) -> None:
    """Raise a finding if an error is a failed allocation, or one of its causes is."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:  # errors may be each other's context
        seen.add(id(cause))
        if isinstance(cause, MemoryError) or "allocate memory" in str(cause):
            raise finding_of(cause)
        cause = cause.__cause__ or cause.__context__
