"""LitData (https://github.com/Lightning-AI/litData)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, samples

REQUIRES = ("litdata", "torchvision")
NOTE = (
    "StreamingDataset of the files' bytes on the local disk, decoded and transformed as the side says; "
    "StreamingDataLoader with persistent workers"
)


def prepare(tree: Path, directory: Path, chunk: str = "64MB") -> Path:
    import litdata

    litdata.optimize(
        fn=_sample,
        inputs=[(str(path), label) for path, label in samples(tree)],
        output_dir=str(directory / "chunks"),
        chunk_bytes=chunk,
        num_workers=1,
    )
    return directory / "chunks"


def _sample(item: tuple[str, int]) -> dict[str, Any]:
    return {"image": Path(item[0]).read_bytes(), "label": item[1]}


def open_loader(pack: Path, crop: str, threads: int, decoder: str = "pil") -> Any:
    import litdata

    read = image_reader(crop, decoder)

    class Images(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return read(sample["image"]), sample["label"]

    dataset = Images(str(pack), shuffle=crop == "train", drop_last=False)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=threads, persistent_workers=True)
