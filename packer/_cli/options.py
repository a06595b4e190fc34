"""The options that only the command line has: which of its runs is meant, and what is printed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["RunOptions"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `packer convert` beside those of a `ConversionRequest`; None where an option was not given."""

    splits: tuple[str, ...]
    part: int | None
    cluster: str | None
    jobs: int | None
    scratch: Path | None
    quiet: bool
