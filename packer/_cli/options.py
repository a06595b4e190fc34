"""What the options of the commands that list and convert images say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ConvertOptions", "ScanOptions", "SourceOptions"]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Which images SRC holds, and their labels; see `packer._cli.source.source_options`."""

    labels: Path | None
    path_column: str
    label_column: str
    delimiter: str
    classes_from: Path | None
    limit: int | None


@dataclass(frozen=True, kw_only=True)
class ScanOptions(SourceOptions):
    """All options of `packer scan`."""

    overwrite: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(SourceOptions):
    """All options of `packer convert`; None where an option was not given and has no default."""

    format: str | None
    splits: tuple[str, ...]
    resize: int | None
    resize_mode: str
    upscale: bool
    interpolation: str
    codec: str | None
    quality: int
    tiles: bool | None
    exif: str
    check: str
    max_pixels: int | None
    on_error: str
    report: Path | None
    workers: int | None
    shard_size: int | None
    parts: int | None
    part: int | None
    cluster: str | None
    jobs: int | None
    scratch: Path | None
    overwrite: bool
    fresh: bool
    quiet: bool
