"""Arrow files, as Hugging Face's `save_to_disk` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.parquet import dataset, name
from tests.interop.photos import Photo

__all__ = ["KIND", "READ_BY", "SUFFIX", "WRITTEN_BY", "name"]

KIND = "Arrow"
SUFFIX = ""


def by_datasets(directory: Path, photos: Sequence[Photo]) -> Path:
    dataset(photos).save_to_disk(str(directory / "saved"), num_shards=2)
    return directory / "saved"


WRITTEN_BY = {"datasets": by_datasets}
READ_BY: dict[str, object] = {}
