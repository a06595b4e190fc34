"""Chunks of LitData."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.photos import Photo

KIND = "LitData"
SUFFIX = ""
NAMED = False


def _sample(given: tuple[str, int]) -> dict[str, Any]:
    from PIL import Image

    return {"image": Image.open(given[0]), "label": given[1]}  # LitData stores the bytes of its file


def by_litdata(directory: Path, photos: Sequence[Photo]) -> Path:
    import litdata

    inputs = [(str(photo.path), photo.label) for photo in photos]
    litdata.optimize(_sample, inputs, output_dir=str(directory / "chunks"), chunk_bytes=1 << 20, num_workers=1)
    return directory / "chunks"


WRITTEN_BY = {"litdata": by_litdata}
READ_BY: dict[str, object] = {}
