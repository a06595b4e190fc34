"""The manifest of a pack that is a directory: a file of its own, written after all else is on the disk."""

from __future__ import annotations

from pathlib import Path

from packer._manifest import Manifest
from packer._storage.files import AppendFile, sync_directory
from packer._storage.place import Place
from packer.errors import NotAPackError

__all__ = ["MANIFEST_FILE", "read_manifest", "write_manifest"]

MANIFEST_FILE = "manifest.json"
"""Without this file, a directory is no pack."""


def read_manifest(directory: Place) -> Manifest:
    """Read the manifest of the pack in a directory.

    Raises
    ------
    NotAPackError
        If there is none: the pack was not finished.
    PackError
        As for `PackFile.read` and `Manifest.from_json`.
    """
    if not directory.holding([MANIFEST_FILE]):
        raise NotAPackError(f"not a finished pack: there is no {MANIFEST_FILE} in it", directory.path)
    with directory.open(MANIFEST_FILE) as file:
        return Manifest.from_json(file.read(0, file.size), file.path)


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
