"""The work of each rank of a test; not in the test's module, whose imports would take longer than this work."""

from __future__ import annotations

import os

from packer._datasets.staging import stage


def stage_and_look(pack: str, disk: str) -> tuple[str, int]:
    """Stage a pack; return the copy's path and inode."""
    copy = stage(pack, disk)
    return str(copy), os.stat(copy).st_ino
