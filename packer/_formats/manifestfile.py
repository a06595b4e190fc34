"""The manifest of a pack that is a directory: a file of its own, written after all else is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from packer._manifest import Manifest
from packer._storage.files import AppendFile, sync_directory
from packer._storage.packfile import PackFile
from packer.errors import NotAPackError

__all__ = ["MANIFEST_FILE", "read_manifest", "write_manifest"]

MANIFEST_FILE = "manifest.json"
"""Without this file, a directory is no pack."""


def read_manifest(directory: str) -> Manifest:
    """Read the manifest of the pack in `directory`.

    Raises
    ------
    NotAPackError
        If there is none: the pack was not finished.
    PackError
        As for `PackFile.read` and `Manifest.from_json`.
    """
    path = os.path.join(directory, MANIFEST_FILE)
    if not os.path.isfile(path):
        raise NotAPackError(f"not a finished pack: there is no {MANIFEST_FILE} in it", directory)
    with PackFile(directory, MANIFEST_FILE) as file:
        return Manifest.from_json(file.read(0, file.size), path)


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
