"""Zip archives, with StyleGAN's dataset.json next to the images."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "zip"
SUFFIX = ""


def by_zipfile(directory: Path, photos: Sequence[Photo]) -> Path:
    with zipfile.ZipFile(directory / "photos.zip", "w", zipfile.ZIP_STORED) as archive:
        for photo in photos:
            archive.writestr(str(photo.name), photo.data)
        labels = {"labels": [[photo.name, photo.label] for photo in photos]}
        archive.writestr("dataset.json", json.dumps(labels))
    return directory / "photos.zip"


WRITTEN_BY = {"zipfile": by_zipfile}
READ_BY: dict[str, object] = {}
