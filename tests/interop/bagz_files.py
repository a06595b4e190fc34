"""Files of Bagz."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "Bagz"
SUFFIX = ""
LABELED = NAMED = False


def by_bagz(directory: Path, photos: Sequence[Photo]) -> Path:
    import bagz

    with bagz.Writer(directory / "photos.bag") as writer:
        for photo in photos:
            writer.write(photo.data)
    return directory / "photos.bag"


WRITTEN_BY = {"bagz": by_bagz}
READ_BY: dict[str, object] = {}
