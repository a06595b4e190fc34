"""MosaicML Streaming (https://github.com/mosaicml/streaming)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, samples

REQUIRES = ("streaming", "torchvision")
NOTE = (
    "local MDS shards of the files' bytes, decoded and transformed as the side says; DataLoader with persistent workers"
)


def prepare(tree: Path, directory: Path) -> Path:
    from streaming import MDSWriter

    with MDSWriter(out=str(directory / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in samples(tree):
            writer.write({"image": path.read_bytes(), "label": label})
    return directory / "mds"


def open_loader(pack: Path, crop: str, threads: int, decoder: str = "pil") -> Any:
    import torch
    from streaming import StreamingDataset

    read = image_reader(crop, decoder)

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return read(sample["image"]), sample["label"]

    dataset = Images(local=str(pack), shuffle=crop == "train", batch_size=BATCH)
    return torch.utils.data.DataLoader(dataset, BATCH, num_workers=threads, persistent_workers=True)
