"""MosaicML Streaming (https://github.com/mosaicml/streaming)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import BATCH, samples, transform

REQUIRES = ("streaming", "torchvision")
NOTE = (
    "local MDS shards of the files' bytes, decoded by Pillow, torchvision's transforms; DataLoader, persistent workers"
)


def prepare(tree: Path, directory: Path) -> Path:
    from streaming import MDSWriter

    with MDSWriter(out=str(directory / "mds"), columns={"image": "jpeg", "label": "int"}) as writer:
        from PIL import Image

        for path, label in samples(tree):
            with Image.open(path) as image:
                writer.write({"image": image, "label": label})
    return directory / "mds"


def open_loader(pack: Path, crop: str, threads: int) -> Any:
    import torch
    from streaming import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        transformed = transform(crop)

        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return self.transformed(sample["image"].convert("RGB")), sample["label"]

    dataset = Images(local=str(pack), shuffle=crop == "train", batch_size=BATCH)
    return torch.utils.data.DataLoader(dataset, BATCH, num_workers=threads, persistent_workers=True)
