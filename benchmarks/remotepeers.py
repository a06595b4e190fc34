"""MosaicML Streaming at a server of objects, for `benchmarks/remote.py`.

It speaks S3. The server need not: a GET of /bucket/key is what S3 asks for, and nginx ignores the signature. LitData
0.2.76 fetches chunks over https alone, which nginx on the loopback does not speak.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, mosaic

__all__ = ["PEERS", "open_remote", "prepare"]

BUCKET = "bucket"
PEERS = {"mosaic": "MosaicML Streaming"}


def prepare(tree: Path, served: Path) -> None:
    """Write its pack below a directory that is served."""
    (served / BUCKET).mkdir()
    mosaic.prepare(tree, served / BUCKET)


def open_remote(peer: str, endpoint: str, cache: Path, threads: int, decoder: str = "pil") -> Iterable[Any]:
    """Return batches of an epoch, shuffled, with nothing in the cache before.

    Parameters
    ----------
    peer : str
        One of `PEERS`.
    endpoint : str
        The URL of the server.
    cache : Path
        A directory that is made.
    threads : int
        Processes that decode.
    decoder : {"pil", "tensors"}
        The same as `peers.image_reader` takes.
    """
    from packer.testing.reference import torchvision

    torchvision()
    import torch

    os.environ |= {
        "AWS_ENDPOINT_URL": endpoint,
        "S3_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    read = image_reader("train", decoder)
    from streaming import StreamingDataset

    class Shards(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return read(sample["image"]), sample["label"]

    shards = Shards(remote=f"s3://{BUCKET}/mds", local=str(cache), shuffle=True, batch_size=BATCH)
    return torch.utils.data.DataLoader(shards, BATCH, num_workers=threads)
