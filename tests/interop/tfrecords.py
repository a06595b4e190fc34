"""TFRecord files of tf.train.Example, with ImageNet's keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.interop.dali import outputs
from tests.interop.photos import Photo

KIND = "TFRecord"
SUFFIX = ".tfrecord"
_IMAGE, _LABEL, _NAME = "image/encoded", "image/class/label", "image/filename"


def by_tfrecord(directory: Path, photos: Sequence[Photo]) -> Path:
    import tfrecord

    for shard in range(2):
        writer = tfrecord.TFRecordWriter(str(directory / f"train-{shard:05d}-of-00002"))
        for photo in photos[shard * len(photos) // 2 : (shard + 1) * len(photos) // 2]:
            name = str(photo.name).encode()
            values = {_IMAGE: (photo.data, "byte"), _LABEL: (photo.label, "int"), _NAME: (name, "byte")}
            writer.write(values)
        writer.close()
    return directory


def _files(path: Path) -> list[tuple[Path, Path]]:
    """Return each file of records with its index."""
    return [(file, file.with_suffix(".idx")) for file in sorted(path.glob("*.tfrecord"))]


def read_by_tfrecord(path: Path) -> list[Photo]:
    import tfrecord

    kinds = {_IMAGE: "byte", _LABEL: "int", _NAME: "byte"}
    found = []
    for file, index in _files(path):
        shard = 0, 1  # otherwise the loader begins at a random record
        for one in tfrecord.tfrecord_loader(str(file), str(index), kinds, shard):
            found.append(Photo(bytes(one[_IMAGE]), int(one[_LABEL][0]), bytes(one[_NAME]).decode()))
    return found


def read_by_dali(path: Path) -> list[Photo]:
    from nvidia.dali import fn, tfrecord

    files = _files(path)
    count = sum(len(index.read_text().splitlines()) for _, index in files)

    def read() -> tuple[object, ...]:
        features = {
            _IMAGE: tfrecord.FixedLenFeature((), tfrecord.string, ""),
            _LABEL: tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        names = {"path": [str(file) for file, _ in files], "index_path": [str(index) for _, index in files]}
        given = fn.readers.tfrecord(**names, features=features)
        return given[_IMAGE], given[_LABEL]

    return [Photo(jpeg.tobytes(), int(label[0])) for jpeg, label in outputs(read, count)]


WRITTEN_BY = {"tfrecord": by_tfrecord}
READ_BY = {"tfrecord": read_by_tfrecord, "DALI": read_by_dali}
