"""LitData and MosaicML Streaming with a server of objects, for `benchmarks/remote.py`.

Both use S3, as packer does for an s3:// URL. Any web server will do: S3 reads by a GET of /bucket/key, and nginx
ignores the signature. Each peer needs one line that its users have to find out. Without it, LitData 0.2.76 refuses
http://, and the processes of Streaming 0.13.0 share a connection, so that one sometimes waits a minute for a response
that another has read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from peers import BATCH, image_reader, lit, mosaic

AHEAD = 4096  # photos that Streaming may fetch ahead: 1.09 times the rate with its default, 512
PEERS = {"litdata": "LitData", "mosaic": "MosaicML Streaming"}


def prepare(tree: Path, bucket: Path) -> None:
    """Write the packs of both into a directory that is served as a bucket."""
    lit.prepare(tree, bucket, chunk="16MB")  # with 64 MB it read only 0.4 times as many images a second
    mosaic.prepare(tree, bucket)


def open_remote(peer: str, bucket: str, cache: Path, threads: int, decoder: str = "tensors") -> Iterable[Any]:
    """Return batches of an epoch, shuffled, with nothing in the cache before.

    Parameters
    ----------
    peer : str
        One of `PEERS`.
    bucket : str
        The URL of the bucket that `prepare` filled; the environment says where its server is.
    cache : Path
        A directory that is made.
    threads : int
        Processes that decode.
    decoder : {"pil", "tensors"}
        The same as `peers.image_reader` takes.
    """
    from packer.testing.reference import torchvision

    torchvision()
    return {"litdata": _litdata, "mosaic": _mosaic}[peer](bucket, cache, threads, image_reader("train", decoder))


def _litdata(bucket: str, cache: Path, threads: int, read: Any) -> Iterable[Any]:
    import litdata
    from litdata.streaming import downloader

    # obstore fetches its chunks, and accepts http:// only with this setting, for which LitData has no option.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True

    class Images(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return read(sample["image"]), sample["label"]

    dataset = Images(f"{bucket}/chunks", cache_dir=str(cache), shuffle=True, drop_last=False)
    return litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=threads)


def _mosaic(bucket: str, cache: Path, threads: int, read: Any) -> Iterable[Any]:
    import torch
    from streaming import StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]  # Streaming has a name of its own

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> tuple[Any, int]:
            sample = super().__getitem__(index)
            return read(sample["image"]), sample["label"]

    dataset = Images(remote=f"{bucket}/mds", local=str(cache), shuffle=True, batch_size=BATCH, predownload=AHEAD)
    for stream in dataset.streams:
        stream._downloader.clean_up()  # the connection that fetched the index: forked workers would share it
    return torch.utils.data.DataLoader(dataset, BATCH, num_workers=threads)
