"""The lines of Python that read a pack, as commands print them after making one: they fit what the pack holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packer._fields import Field
    from packer._manifest import Manifest

__all__ = ["example"]

_MOST_NAMES = 5
_OF_THE_TOOL = {
    *("image_id", "image_info", "annotation_id", "bbox", "iscrowd", "iscrowd_given", "keypoint_count", "members"),
    *("caption_id", "caption_members", "annotation", "yolo"),
}
"""Fields that keep what a tool's annotations say, rather than what training reads."""


def example(destination: Path | str, manifest: Manifest) -> list[str]:
    """Return the lines that open the pack at `destination`."""
    from packer._formats import FORMATS

    dataset = FORMATS[manifest.format].dataset if manifest.format in FORMATS else "open_dataset"
    arguments, items = repr(str(destination)), "takes ImageFolder's transform=, and fuse=True"
    has_labels = bool(manifest.classes) or manifest.label_type != "class"
    if manifest.fields:
        names = ("image", *(["label"] if has_labels else []), *_chosen(manifest.fields))
        arguments = f"{arguments}, fields={names!r}"
        items = "each item is a dict"
        if len(names) < len(manifest.fields) + 1:
            items += f'; fields="all" gives all {len(manifest.fields)} fields'
    elif not has_labels:
        items = "without classes: every label is -1"
    elif manifest.label_type != "class":
        items = f"labels are {manifest.label_type}s; {items}"
    return [f"  from packer import {dataset}", f"  dataset = {dataset}({arguments})  # {items}"]


def _chosen(fields: Sequence[Field]) -> list[str]:
    """Return the names of the fields that are read first."""
    names = [field.name for field in fields]
    return ([name for name in names if name not in _OF_THE_TOOL] or names)[:_MOST_NAMES]
