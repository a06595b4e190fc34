"""RecordIO of MXNet. No tool that can still be installed writes it."""

from __future__ import annotations

from pathlib import Path

from tests.interop.dali import outputs
from tests.interop.photos import Photo

KIND = "RecordIO"
SUFFIX = ".rec"


def read_by_dali(path: Path) -> list[Photo]:
    from nvidia.dali import fn

    files = [str(file) for file in sorted(path.glob("*.rec"))]
    indexes = [str(file) for file in sorted(path.glob("*.idx"))]
    count = sum(len(Path(index).read_text().splitlines()) for index in indexes)

    def read() -> tuple[object, ...]:
        return tuple(fn.readers.mxnet(path=files, index_path=indexes))

    return [Photo(jpeg.tobytes(), int(label[0])) for jpeg, label in outputs(read, count)]


WRITTEN_BY: dict[str, object] = {}
READ_BY = {"DALI": read_by_dali}
