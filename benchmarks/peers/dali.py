"""NVIDIA DALI on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peers import BATCH, OUTPUT, RESIZE, dali_recipes, samples

REQUIRES = ("nvidia.dali",)
NOTE = (
    "CPU pipeline of DALI's ImageNet example, crop in the decoder, anti-aliased (INTERP_TRIANGULAR), NHWC; "
    "prefetch queue of 2; outputs taken without a copy; the last batch is full"
)

_QUEUE = 2


def prepare(tree: Path, directory: Path) -> Path:
    return tree


def open_loader(
    pack: Path,
    crop: str,
    threads: int,
    layout: str = "tree",
    *,
    fast: bool = False,
    recipe: str | None = None,
    mixed: bool = False,
    batch: int = BATCH,
) -> Any:
    """Return an iterable over a tree, or over the files of its images in another layout, which packer wrote.

    `fast` takes libjpeg-turbo's inverse DCT of lower precision, which DALI calls faster. `mixed` decodes on a GPU, and
    leaves batches there.
    """
    read, count = READERS[layout](pack)

    def process(encoded: Any, labels: Any) -> Any:
        if recipe == "views":
            return *dali_recipes.views(encoded), labels
        images = _images(encoded, crop, {"device": "mixed"} if mixed else {"device": "cpu", "use_fast_idct": fast})
        return dali_recipes.augmented(recipe, images, labels) if recipe else (images, labels)

    return Epochs(lambda: read(crop == "train"), count, threads, process, batch=batch, gpu=0 if mixed else None)


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
        return encoded, fn.pad(labels)  # text, of different lengths

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
    """Return the files of a pack, the index of each, and the number of lines of all indexes."""
    files = sorted(pack.glob(f"*{suffix}"))
    indexes = [file.with_suffix(".idx") for file in files]
    return [*map(str, files)], [*map(str, indexes)], sum(len(index.read_text().splitlines()) for index in indexes)


READERS = {"tree": _of_tree, "tar": _of_tars, "TFRecord": _of_tfrecords, "RecordIO": _of_recordio}


def _images(encoded: Any, crop: str, decoding: dict[str, Any]) -> Any:
    from nvidia.dali import fn, types

    decoding = {**decoding, "output_type": types.RGB}
    if crop == "train":
        images = fn.decoders.image_random_crop(
            encoded, random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0], num_attempts=10, **decoding
        )
        images = fn.resize(images, resize_x=OUTPUT, resize_y=OUTPUT, interp_type=types.INTERP_TRIANGULAR)
        return fn.flip(images, horizontal=fn.random.coin_flip())
    images = fn.resize(
        fn.decoders.image(encoded, **decoding), resize_shorter=RESIZE, interp_type=types.INTERP_TRIANGULAR
    )
    return fn.crop(images, crop=(OUTPUT, OUTPUT))


class Epochs:
    """Runs a pipeline for one epoch at a time; DALI's own iterator would prefetch the next one between epochs."""

    def __init__(
        self,
        read: Callable[[], Any],
        count: int,
        threads: int,
        process: Callable[..., Any],
        *,
        batch: int = BATCH,
        gpu: int | None = None,
    ) -> None:
        from nvidia.dali import pipeline_def

        @pipeline_def(
            batch_size=batch,
            num_threads=threads,
            device_id=gpu,
            prefetch_queue_depth=_QUEUE,
            seed=1,
            enable_conditionals=True,
        )  # type: ignore[untyped-decorator]
        def pipeline() -> Any:
            return process(*read())

        self.batches = -(-count // batch)
        self.pipeline = pipeline()
        self.pipeline.build()

    def __iter__(self) -> Iterator[Any]:
        import torch

        scheduled = 0
        for done in range(self.batches):
            while scheduled < min(done + _QUEUE, self.batches):
                self.pipeline.schedule_run()
                scheduled += 1
            *images, labels = [torch.from_dlpack(part.as_tensor()) for part in self.pipeline.share_outputs()]
            yield images[0] if len(images) == 1 else images, labels
            self.pipeline.release_outputs()
