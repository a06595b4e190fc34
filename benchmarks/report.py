"""Functions that the benchmarks share: a table, the facts of the machine, JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer._measuring.machine import processor, version_of
from packer._storage.system import available_cpus


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align cells under their header: the first column to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def show(line: Sequence[str]) -> str:
        first, *others = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        return "  ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]).rstrip()

    return "\n".join([show(header), "  ".join("-" * width for width in widths), *map(show, rows)])


def machine() -> dict[str, Any]:
    """Return the facts that the figures depend on: the machine, and the versions of installed packages."""
    packages = ("h5py", "numpy", "opencv-python-headless", "pillow", "simplejpeg", "torch")
    return {
        "system": platform.platform(),
        "cpu": processor(),
        "cpus": available_cpus(),
        "python": platform.python_version(),
        **{name: version for name in packages if (version := version_of(name)) is not None},
    }


def write_json(path: Path | None, results: dict[str, Any]) -> None:
    """Write the results, if there is a file to write them to."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        print(f"\nwritten to {path}")
