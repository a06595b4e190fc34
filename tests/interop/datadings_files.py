"""Files of datadings: records of msgpack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "datadings"
SUFFIX = ""


def by_datadings(directory: Path, photos: Sequence[Photo]) -> Path:
    from datadings.writer import FileWriter

    with FileWriter(directory / "train.msgpack") as writer:
        for photo in photos:
            writer.write({"key": photo.name, "image": photo.data, "label": photo.label})
    return directory / "train.msgpack"


WRITTEN_BY = {"datadings": by_datadings}
READ_BY: dict[str, object] = {}
