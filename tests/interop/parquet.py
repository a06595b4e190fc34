"""Parquet files with images, as Hugging Face's datasets writes and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop.photos import Photo

KIND = "Parquet"
SUFFIX = ".parquet"


def name(path: str) -> str:
    return path.rpartition("/")[2]


def dataset(photos: Sequence[Photo]) -> Any:
    """Return a dataset of photos, with their bytes and names inside."""
    import datasets

    classes = sorted({photo.path.parent.name for photo in photos if photo.path is not None})
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=classes)})
    columns = {
        "image": [{"bytes": photo.data, "path": photo.name} for photo in photos],
        "label": [photo.label for photo in photos],
    }
    return datasets.Dataset.from_dict(columns, features=features)


def photos_of(found: Any) -> list[Photo]:
    """Return the photos of a dataset whose images are not decoded."""
    import datasets

    assert isinstance(found.features["label"], datasets.ClassLabel)
    found = found.cast_column("image", datasets.Image(decode=False))
    return [Photo(one["image"]["bytes"], one["label"], one["image"]["path"]) for one in found]


def by_datasets(directory: Path, photos: Sequence[Photo]) -> Path:
    made = dataset(photos)
    for number in range(2):
        made.shard(2, number, contiguous=True).to_parquet(str(directory / f"train-{number:05d}-of-00002.parquet"))
    return directory


def by_pyarrow(directory: Path, photos: Sequence[Photo]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = pa.array([{"bytes": photo.data, "path": photo.name} for photo in photos])
    table = pa.table({"image": images, "label": [photo.label for photo in photos]})
    options = {"compression": "none", "use_dictionary": False, "row_group_size": 90}
    pq.write_table(table, directory / "photos.parquet", **options)
    return directory / "photos.parquet"


def read_by_datasets(path: Path) -> list[Photo]:
    import datasets

    cache = path.parent / "cache"
    files = [str(file) for file in sorted(path.glob("**/*.parquet"))]
    found = datasets.load_dataset("parquet", data_files={"train": files}, split="train", cache_dir=str(cache))
    directory = datasets.load_dataset(str(path), split="train", cache_dir=str(cache))
    assert directory.features == found.features == directory.cast_column("image", datasets.Image()).features
    photos = photos_of(found)
    assert photos == photos_of(directory)
    return photos


def read_by_pyarrow(path: Path) -> list[Photo]:
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    return [Photo(row["image"]["bytes"], row["label"], row["image"]["path"]) for row in rows]


WRITTEN_BY = {"datasets": by_datasets, "pyarrow": by_pyarrow}
READ_BY = {"datasets": read_by_datasets, "pyarrow": read_by_pyarrow}
