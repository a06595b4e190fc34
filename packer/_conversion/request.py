"""What a conversion is asked for, in paths and options: by the command line, or by a call of `packer.convert`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packer._account import BadSamples
from packer._conversion.convert import ConversionProgress, Summary, convert
from packer._conversion.ledger import check_report
from packer._conversion.recipe import Recipe
from packer._conversion.required import require_format, require_parts, require_policy
from packer._conversion.sourcerequest import SourceRequest, is_pack, option
from packer._conversion.workspace import check_destination
from packer._formats import FORMATS, Format, format_for
from packer._images.geometry import MAX_PIXELS
from packer._images.sizing import ResizeSpec
from packer._sample import LOSSY
from packer._sources import Source
from packer._storage.limits import require_count
from packer._storage.remote.urls import is_url, shown
from packer.errors import OptionError

__all__ = ["ConversionRequest", "SourceRequest", "format_options", "is_pack"]


@dataclass(frozen=True, kw_only=True)
class ConversionRequest(SourceRequest):
    """A conversion of images to a pack. None stands for what was not said; `packer.convert` explains each option."""

    dst: Path
    format: str | None = None
    resize: int | None = None
    resize_mode: str | None = None
    upscale: bool = False
    interpolation: str | None = None
    codec: str | None = None
    quality: int | None = None
    tiles: bool | None = None
    recode: bool = False
    to_8_bit: str | None = None
    exif: str = "ignore"
    audit: str = "structure"
    max_pixels: int | None = None
    on_error: str = "fail"
    report: Path | None = None
    workers: int | None = None
    shard_size: int | None = None
    parts: int | None = None
    overwrite: bool = False
    fresh: bool = False
    ignore_free_space: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("resize", "quality", "max_pixels", "workers", "shard_size", "parts"):
            require_count(name, getattr(self, name))
        if self.max_pixels is not None and self.max_pixels > MAX_PIXELS:
            raise ValueError(f"max_pixels is {MAX_PIXELS} or less, not {self.max_pixels}")
        require_policy(self.on_error)
        self.require_strict_policy(self.on_error)
        self._refuse_without_effect(self.recipe)
        format_options(self.format_row, self.shard_size)
        if self.parts:
            require_parts(self.format_row)
        if self.parts and self.report:
            raise OptionError("--report is for packs without parts; `packer info --json` lists what was left out")

    @cached_property
    def recipe(self) -> Recipe:
        """What the images become."""
        resize = None
        if self.resize is not None:
            mode, interpolation = self.resize_mode or "short", self.interpolation or "bilinear"
            resize = ResizeSpec(self.resize, mode, self.upscale, interpolation)
        codec = self.codec or ("jpeg" if resize else "keep")
        return Recipe(
            codec=codec,
            resize=resize,
            quality=90 if self.quality is None else self.quality,
            exif=self.exif,
            audit=self.audit,
            max_pixels=self.max_pixels or MAX_PIXELS,
            tiles=self.tiles if self.tiles or codec == "jpeg" else None,  # only JPEGs that are encoded get tiles
            recode=self.recode,
            to_8_bit=self.to_8_bit,
        )

    @cached_property
    def format_row(self) -> Format:
        """The format of the pack; DestinationError where neither `format` nor the suffix of `dst` says one."""
        advice = "Change the name, or say --format."
        name = shown(self.dst) if is_url(self.dst) else self.dst
        return format_for(name, advice) if self.format is None else require_format(self.format)

    @property
    def format_options(self) -> dict[str, Any]:
        """The format's own settings, of which there is one."""
        return format_options(self.format_row, self.shard_size)

    @property
    def allows_empty(self) -> bool:
        return self.parts is not None

    def bad_samples(self) -> BadSamples:
        return BadSamples(skip=self.on_error == "skip")

    def require_destination(self) -> None:
        """Raise DestinationError where pack or report cannot be written: listing the images may take long."""
        check_destination(self.dst, overwrite=self.overwrite)
        if self.report is not None:
            inputs = (self.src, self.labels, self.classes_from, *self.coco, self.yolo)
            check_report(self.report, [self.dst, *(path for path in inputs if path is not None)])

    def convert(
        self,
        source: Source,
        progress: Callable[[ConversionProgress], None] | None = None,
        samples: Iterable[Mapping[str, Any]] | None = None,
        *,
        allow_empty: bool = False,
    ) -> Summary:
        """Write the images that `open` listed, or `samples`, to one pack; see `packer._conversion.convert.convert`."""
        return convert(
            source,
            self.dst,
            recipe=self.recipe,
            format=self.format_row.name,
            options=self.format_options,
            on_error=self.on_error,
            workers=self.workers,
            overwrite=self.overwrite,
            fresh=self.fresh,
            ignore_free_space=self.ignore_free_space,
            report=self.report,
            allow_empty=allow_empty,
            progress=progress,
            samples=samples,
        )

    def _refuse_without_effect(self, recipe: Recipe) -> None:
        """Raise OptionError where an option asks for what will not happen; for what happens anyway, it may ask."""
        kept = "files keep their own bytes, unless --codec or --resize is said"
        why = kept if recipe.codec == "keep" else f"--codec {recipe.codec} has none"
        if self.quality is not None and recipe.codec not in LOSSY:
            raise OptionError(f"--quality is for {' and '.join(LOSSY)}: {why}")
        resizing = [name for name in ("interpolation", "resize_mode", "upscale") if getattr(self, name)]
        if recipe.resize is None and resizing:
            raise OptionError(f"{option(resizing[0])} says how to resize: say to which size with --resize")


def format_options(format: Format, shard_size: int | None) -> dict[str, Any]:
    """Return a format's own settings; OptionError where the format has none such."""
    require_count("shard_size", shard_size)
    if shard_size is None:
        return {}
    if not format.shards:
        known = ", ".join(row.suffixes[0] for row in FORMATS.values() if row.shards)
        raise OptionError(f"--shard-size is for packs of several files: {known}")
    return {"shard_size": shard_size}
