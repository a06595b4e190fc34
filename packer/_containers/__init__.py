"""Readers for the files of other tools that contain images, one module for each kind of container.

Each module has a subclass of `Container`, which recognises the files and directories of one tool, and lists where each
sample is in them. Among the containers registered in `packer.plugins`, `discovery` finds the one that reads a path.
"""

from __future__ import annotations

from packer._containers.contract import (
    Container,
    Entry,
    Packed,
    Piece,
    PixelLayout,
    Ranges,
    Seals,
    parse_keys,
)
from packer._containers.discovery import (
    account_for_layout,
    files_to_name,
    find_container,
    named_paths,
    numbered_classes,
    open_container,
)
from packer._containers.listing import ForeignFiles, Listing, list_samples
from packer.plugins import CONTAINERS

__all__ = [
    "CONTAINERS",
    "Container",
    "Entry",
    "ForeignFiles",
    "Listing",
    "Packed",
    "Piece",
    "PixelLayout",
    "Ranges",
    "Seals",
    "account_for_layout",
    "files_to_name",
    "find_container",
    "list_samples",
    "named_paths",
    "numbered_classes",
    "open_container",
    "parse_keys",
]
