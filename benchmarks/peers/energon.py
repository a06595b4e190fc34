"""Megatron-Energon (https://github.com/NVIDIA/Megatron-Energon)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, samples, wds

REQUIRES = ("megatron.energon", "webdataset", "torchvision")
NOTE = (
    "4 tar shards of the files' bytes, indexed by its own prepare, decoded and transformed as the side says; shuffles "
    "a window of 256; get_loader with its own workers, which live on"
)

_FIELDS = """\
sample_type:
  __module__: megatron.energon
  __class__: ImageClassificationSample
field_map:
  image: jpg
  label: cls
"""


def prepare(tree: Path, directory: Path) -> Path:
    from megatron.energon.flavors import BaseWebdatasetFactory

    wds.prepare(tree, directory)
    shards = sorted(path.name for path in directory.glob("*.tar"))
    BaseWebdatasetFactory.prepare_dataset(directory, shards, split_parts_ratio=[("train", 1), ("val", 0)], workers=1)
    (directory / ".nv-meta" / "dataset.yaml").write_text(_FIELDS)
    (directory / "count").write_text(str(len(samples(tree))))
    return directory


def open_loader(pack: Path, crop: str, threads: int, decoder: str = "pil") -> Any:
    from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset

    read = image_reader(crop, decoder)

    class Images(DefaultTaskEncoder):  # type: ignore[misc]
        decoder = None  # the sample's bytes

        def encode_sample(self, sample: Any) -> Any:
            sample.image, sample.label = read(sample.image), int(sample.label)
            return sample

    dataset = get_train_dataset(
        pack,
        worker_config=WorkerConfig(rank=0, world_size=1, num_workers=threads),
        batch_size=BATCH,
        shuffle_buffer_size=256 if crop == "train" else None,
        max_samples_per_sequence=100,
        task_encoder=Images(),
    )
    return Epochs(get_loader(dataset), int((pack / "count").read_text()))


class Epochs:
    """Takes the batches of one epoch at a time: Energon's training loader never ends."""

    def __init__(self, loader: Any, count: int) -> None:
        self.batches = iter(loader)
        self.count = -(-count // BATCH)

    def __iter__(self) -> Iterator[Any]:
        for batch in itertools.islice(self.batches, self.count):
            yield batch.image, batch.label
