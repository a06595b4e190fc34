"""NVIDIA DALI on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, samples

REQUIRES = ("nvidia.dali",)
NOTE = (
    "CPU pipeline of DALI's ImageNet example, crop in the decoder, anti-aliased (INTERP_TRIANGULAR), NHWC; "
    "prefetch queue of 2; outputs taken without a copy; the last batch is full"
)

_QUEUE = 2


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(pack: Path, crop: str, threads: int, layout: str = "tree") -> Any:
    """Return an iterable over a tree, or over the files of its images in another layout, which packer wrote."""
    return Epochs(*READERS[layout](pack), crop, threads)


Reader = tuple[Callable[[bool], Any], int]
"""A function that makes the reader, shuffled or not, and how many samples there are."""


def _of_tree(tree: Path) -> Reader:
    def read(shuffled: bool) -> Any:
        from nvidia.dali import fn

        return fn.readers.file(file_root=str(tree), random_shuffle=shuffled, name="reader")

    return read, len(samples(tree))


def _of_tars(pack: Path) -> Reader:
    files, indexes, _ = _indexed(pack, ".tar")

    def read(shuffled: bool) -> Any:
        from nvidia.dali import fn

        suffixes = ["jpg;jpeg;JPEG;png", "cls"]
        encoded, labels = fn.readers.webdataset(paths=files, index_paths=indexes, ext=suffixes, random_shuffle=shuffled)
        return encoded, fn.pad(labels)  # digits, of which there are several

    return read, sum(int(Path(index).read_text().split()[1]) for index in indexes)


def _of_tfrecords(pack: Path) -> Reader:
    files, indexes, count = _indexed(pack, ".tfrecord")

    def read(shuffled: bool) -> Any:
        from nvidia.dali import fn, tfrecord

        features = {
            "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
        }
        found = fn.readers.tfrecord(path=files, index_path=indexes, features=features, random_shuffle=shuffled)
        return [found[name] for name in features]

    return read, count


def _of_recordio(pack: Path) -> Reader:
    files, indexes, count = _indexed(pack, ".rec")

    def read(shuffled: bool) -> Any:
        from nvidia.dali import fn

        return fn.readers.mxnet(path=files, index_path=indexes, random_shuffle=shuffled)

    return read, count


def _indexed(pack: Path, suffix: str) -> tuple[list[str], list[str], int]:
    """Return the files of a pack, the index of each, and how many lines the indexes have together."""
    files = sorted(pack.glob(f"*{suffix}"))
    indexes = [file.with_suffix(".idx") for file in files]
    return [*map(str, files)], [*map(str, indexes)], sum(len(index.read_text().splitlines()) for index in indexes)


READERS = {"tree": _of_tree, "tar": _of_tars, "TFRecord": _of_tfrecords, "RecordIO": _of_recordio}


class Epochs:
    """Runs a pipeline for one epoch at a time; its own iterator would work ahead into the next one, between epochs."""

    def __init__(self, read: Callable[[bool], Any], count: int, crop: str, threads: int) -> None:
        from nvidia.dali import fn, pipeline_def, types

        @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=_QUEUE, seed=1)  # type: ignore[untyped-decorator]
        def pipeline() -> Any:
            encoded, labels = read(crop == "train")
            if crop == "train":
                images = fn.decoders.image_random_crop(
                    encoded,
                    device="cpu",
                    output_type=types.RGB,
                    random_aspect_ratio=[3 / 4, 4 / 3],
                    random_area=[0.08, 1.0],
                    num_attempts=10,
                )
                images = fn.resize(images, resize_x=OUTPUT, resize_y=OUTPUT, interp_type=types.INTERP_TRIANGULAR)
                images = fn.flip(images, horizontal=fn.random.coin_flip())
            else:
                images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
                images = fn.resize(images, resize_shorter=RESIZE, interp_type=types.INTERP_TRIANGULAR)
                images = fn.crop(images, crop=(OUTPUT, OUTPUT))
            return images, labels

        self.batches = -(-count // BATCH)
        self.pipeline = pipeline()
        self.pipeline.build()

    def __iter__(self) -> Iterator[Any]:
        import torch

        scheduled = 0
        for done in range(self.batches):
            while scheduled < min(done + _QUEUE, self.batches):
                self.pipeline.schedule_run()
                scheduled += 1
            images, labels = self.pipeline.share_outputs()
            yield tuple(torch.from_dlpack(part.as_tensor()) for part in (images, labels))
            self.pipeline.release_outputs()
