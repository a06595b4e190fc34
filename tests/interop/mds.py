"""MDS shards of MosaicML's streaming."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.photos import Photo

KIND = "MDS"
SUFFIX = ".mds"
NAMED = False
OPTIONS = {"shard_size": 1 << 20}  # several shards


def by_streaming(directory: Path, photos: Sequence[Photo]) -> Path:
    from PIL import Image
    from streaming import MDSWriter

    columns = {"image": "jpeg", "label": "int"}
    with MDSWriter(out=str(directory / "mds"), columns=columns, size_limit=1 << 20) as writer:
        for photo in photos:
            with Image.open(str(photo.path)) as image:  # streaming stores the bytes of its file
                writer.write({"image": image, "label": photo.label})
    return directory / "mds"


def read_by_streaming(path: Path) -> list[Photo]:
    from streaming import StreamingDataset

    dataset = StreamingDataset(local=str(path), shuffle=False, batch_size=1)
    for shard in dataset.shards:  # otherwise streaming would decode the images
        shard.column_encodings = ["bytes" if kind in ("jpeg", "png") else kind for kind in shard.column_encodings]
    samples = [dataset[number] for number in range(len(dataset))]
    image = next(name for name, value in samples[0].items() if isinstance(value, bytes))
    return [Photo(one[image], int(one["label"])) for one in samples]


WRITTEN_BY = {"streaming": by_streaming}
READ_BY = {"streaming": read_by_streaming}
