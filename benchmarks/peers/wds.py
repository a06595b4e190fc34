"""WebDataset (https://github.com/webdataset/webdataset)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, samples

REQUIRES = ("webdataset", "torchvision")
NOTE = (
    "4 tar shards of the files' bytes, decoded and transformed as the side says, batched in the workers; "
    "shuffles a window of 256; WebLoader with persistent workers"
)

_SHARDS = 4


def prepare(tree: Path, directory: Path) -> Path:
    import webdataset

    files = samples(tree)
    for shard in range(_SHARDS):
        with webdataset.TarWriter(str(directory / f"{shard:04d}.tar")) as writer:
            for number in range(shard, len(files), _SHARDS):
                path, label = files[number]
                writer.write({"__key__": f"{number:08d}", "jpg": path.read_bytes(), "cls": label})
    return directory


def open_loader(pack: Path, crop: str, threads: int, decoder: str = "pil") -> Any:
    import webdataset

    urls = sorted(map(str, pack.glob("*.tar")))
    train = crop == "train"
    dataset = webdataset.WebDataset(urls, shardshuffle=len(urls) if train else False, empty_check=False)
    if train:
        dataset = dataset.shuffle(256)
    # decode() makes the label a number, and leaves the image to the reader.
    dataset = dataset.decode().to_tuple("jpg", "cls").map_tuple(image_reader(crop, decoder)).batched(BATCH)
    return webdataset.WebLoader(dataset, batch_size=None, shuffle=False, num_workers=threads, persistent_workers=True)
