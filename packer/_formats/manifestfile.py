"""The manifest of a pack that is a directory: a file of its own, written when all else is on the disk."""

from __future__ import annotations

from pathlib import Path

from packer._manifest import Manifest
from packer._storage.files import AppendFile, sync_directory

__all__ = ["MANIFEST_FILE", "write_manifest"]

MANIFEST_FILE = "manifest.json"
"""Without this file, a directory is no pack."""


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of the pack in `directory`, and return once it is on the disk under its name."""
    file = AppendFile(directory / MANIFEST_FILE)
    try:
        file.append(manifest.to_json())
        file.flush()
        file.sync()
    finally:
        file.close()
    sync_directory(directory)
