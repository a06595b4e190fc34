"""RecordIO of MXNet. No tool that still installs writes it."""

from __future__ import annotations

from pathlib import Path

from tests.interop.dali import outputs
from tests.interop.photos import Photo

KIND = "RecordIO"
SUFFIX = ".rec"


def read_by_dali(path: Path) -> list[Photo]:
    from nvidia.dali import fn

    index = path.with_suffix(".idx")
    count = len(index.read_text().splitlines())

    def read() -> tuple[object, ...]:
        return tuple(fn.readers.mxnet(path=[str(path)], index_path=[str(index)]))

    return [Photo(jpeg.tobytes(), int(label[0])) for jpeg, label in outputs(read, count)]


WRITTEN_BY: dict[str, object] = {}
READ_BY = {"DALI": read_by_dali}
