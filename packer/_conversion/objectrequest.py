"""A source at URLs, as a request asks for it: what lies below a URL, or what a table of URLs names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packer._sources import Source, prefix_source, url_table_source
from packer._storage.remote.urls import is_url, parse, shown
from packer.errors import OptionError, SourceError, printable

if TYPE_CHECKING:
    from packer._conversion.sourcerequest import SourceRequest

__all__ = ["is_table", "source_of_objects"]

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_OF_A_DISK = {
    "file_fields": "--field",
    "annotations": "--coco, --voc and --yolo",
    "any_image": "--any-image",
    "container_keys": "--key",
}
"""What is read of files on a disk alone."""


def is_table(src: Path) -> bool:
    """Tell whether SRC is a table, which can name images by their URLs."""
    return src.suffix.lower() in _TABLES and not is_url(src) and os.path.isfile(src)


def source_of_objects(request: SourceRequest, classes: Sequence[str] | None) -> Source | None:
    """List the images at URLs that are asked for; None where they are asked for on a disk.

    Raises
    ------
    OptionError
        If an option is for files on a disk.
    SourceError
        If nothing can be listed.
    """
    at_url = is_url(request.src)
    if not at_url and (request.labels is not None or not is_table(request.src)):
        return None
    for name, options in _OF_A_DISK.items():
        if getattr(request, name):
            raise OptionError(
                f"{options} is for files on a disk, and {_shown(request.src)} is or names objects at URLs"
            )
    if request.in_place:
        raise OptionError(f"{_shown(request.src)}: objects at URLs are converted, and not indexed")
    if at_url and request.labels is None:
        if parse(request.src).scheme in ("http", "https"):
            raise SourceError(
                f"{shown(request.src)}: a server of HTTP does not list what it has. Convert a table of URLs: "
                "`packer convert urls.csv DST`, with a column `url`"
            )
        return prefix_source(
            str(parse(request.src)), classes, request.rule, unlabeled=request.unlabeled or request.no_classes
        )
    return url_table_source(
        str(parse(request.src)) if at_url else None,
        request.src if request.labels is None else request.labels,
        path_column=request.path_column,
        label_column=request.label_column,
        delimiter=request.delimiter,
        label_type=request.label_type,
        unlabeled=request.unlabeled,
        classes=classes,
        columns=request.table_columns,
        has_labels=not request.no_classes,
        suffix=request.suffix,
        has_header=not request.no_header,
        bad=request.bad_samples(),
    )


def _shown(src: Path) -> str:
    return shown(src) if is_url(src) else printable(src)
