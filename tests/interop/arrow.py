"""Arrow files, as Hugging Face's `save_to_disk` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.parquet import dataset
from tests.interop.photos import Photo

KIND = "Arrow"
SUFFIX = ""
SHORT_NAMES = True


def by_datasets(directory: Path, photos: Sequence[Photo]) -> Path:
    dataset(photos).save_to_disk(str(directory / "saved"), num_shards=2)
    return directory / "saved"


WRITTEN_BY = {"datasets": by_datasets}
READ_BY: dict[str, object] = {}
