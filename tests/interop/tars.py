"""Tars in WebDataset's layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.dali import outputs
from tests.interop.photos import Photo

KIND = "WebDataset tar"
SUFFIX = ".wds"
_SHARD = 150  # photos


def name(path: str) -> str:
    """Return a path without its suffix, which webdataset returns in lower case."""
    return path.rpartition(".")[0]


def by_webdataset(directory: Path, photos: Sequence[Photo]) -> Path:
    import webdataset

    with webdataset.ShardWriter(str(directory / "shard-%06d.tar"), maxcount=_SHARD, verbose=0) as writer:
        for photo in photos:
            key, _, suffix = str(photo.name).rpartition(".")
            writer.write({"__key__": key, suffix: photo.data, "cls": photo.label})
    return directory


def read_by_webdataset(path: Path) -> list[Photo]:
    import webdataset

    shards = [str(shard) for shard in sorted(path.glob("*.tar"))]
    samples = webdataset.WebDataset(shards, shardshuffle=False)
    return [Photo(one.get("jpg", one.get("jpeg")), int(one["cls"]), f"{one['__key__']}.jpg") for one in samples]


def read_by_dali(path: Path) -> list[Photo]:
    from nvidia.dali import fn

    shards = sorted(path.glob("*.tar"))
    indexes = [shard.with_suffix(".idx") for shard in shards]
    count = sum(int(index.read_text().split("\n")[0].split()[1]) for index in indexes)

    def read() -> tuple[object, ...]:
        names = {"paths": list(map(str, shards)), "index_paths": list(map(str, indexes))}
        return tuple(fn.readers.webdataset(**names, ext=["jpg;jpeg;JPEG", "cls"], missing_component_behavior="error"))

    return [Photo(jpeg.tobytes(), int(label.tobytes())) for jpeg, label in outputs(read, count)]


WRITTEN_BY = {"webdataset": by_webdataset}
READ_BY = {"webdataset": read_by_webdataset, "DALI": read_by_dali}
