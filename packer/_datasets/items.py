"""The items of a batch, made by a pool of threads, and the replacement of unreadable samples.

torch's default_collate copies each image of a batch into new memory, which is shared with the main process. For images
of 224 x 224 float32 numbers this takes half as long as decoding. Therefore images that become float32 numbers are
decoded into one tensor, which is used as the batch without copying.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate, get_worker_info

from packer._datasets.decoder import BatchDecoder
from packer._datasets.fields import FieldDecoder
from packer._datasets.pipeline import Pipeline
from packer._datasets.protocol import IMAGES
from packer._images.geometry import Crops
from packer._table import Ints
from packer.errors import CorruptPackError, ImageError, OptionError, PackError, printable, warn


class Item(NamedTuple):
    """An image and a label; default_collate calls `_collated` to collate such items."""

    image: Any
    label: Any


def empty_rows(count: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return an uninitialized (count, *shape) float32 tensor; in a DataLoader worker, its memory is shared."""
    if get_worker_info() is None:
        return torch.from_numpy(np.empty((count, *shape), np.float32))  # NumPy uses huge pages, torch does not
    batch, size = torch.empty(0), torch.Size((count, *shape))
    new_shared: Any = torch.UntypedStorage._new_shared  # default_collate uses it too
    storage: torch.UntypedStorage = new_shared(size.numel() * batch.element_size())
    return batch.set_(storage).view(size)


def _collated(items: Sequence[Item], *, collate_fn_map: Any = None) -> list[Any]:
    """Collate images and labels like default_collate, but do not copy images that are already rows of a batch."""
    images, labels = ([item[part] for item in items] for part in (0, 1))
    whole = _whole(images)
    return [default_collate(images) if whole is None else whole, default_collate(labels)]


def _whole(images: Sequence[Any]) -> torch.Tensor | None:
    """Return the batch tensor that has exactly these images as its rows, in this order; None if there is none."""
    if not all(isinstance(image, torch.Tensor) and image.is_contiguous() for image in images):
        return None
    first: torch.Tensor
    first, *others = (image.as_subclass(torch.Tensor) for image in images)
    start, step, memory = first.storage_offset(), first.numel(), first.untyped_storage().data_ptr()
    for number, image in enumerate(others, 1):
        follows = image.storage_offset() == start + number * step and image.untyped_storage().data_ptr() == memory
        if not follows or image.shape != first.shape or image.dtype != first.dtype or image.requires_grad:
            return None
    return first.as_strided((len(images), *first.shape), (step, *first.stride()))


try:
    from torch.utils.data._utils.collate import default_collate_fn_map
except ImportError:  # default_collate then copies the images
    pass
else:
    default_collate_fn_map[Item] = _collated  # the documented way to register a type


class ItemMaker:
    """Makes the items of N samples, which threads divide among themselves.

    Random crops are drawn at the beginning, in the order of the samples. There is one exception: without a seed, if a
    transform draws random numbers too, each crop is drawn just before its image is transformed. torchvision's
    transforms draw in this order.

    Parameters
    ----------
    decoder : BatchDecoder
    rows : (N,) int64 array
        The samples' rows in the pack.
    labels : sequence of N labels
    pipeline : Pipeline
    choose : callable
        Takes a slice of the samples, and returns their crops.
    fields : FieldDecoder, optional
        The decoder of fields, if items are dicts.
    seeded : bool
        Whether a crop depends only on the sample, and not on when the crop is chosen.
    before : callable, optional
        Called before the transforms of each sample run, with the sample's position among the N samples.
    """

    def __init__(  # noqa: PLR0917
        self,
        decoder: BatchDecoder,
        rows: Ints,
        labels: Sequence[Any],
        pipeline: Pipeline,
        choose: Callable[[slice], Crops],
        fields: FieldDecoder | None = None,
        *,
        seeded: bool,
        before: Callable[[int], None] | None = None,
    ) -> None:
        self._decoder, self._rows, self._labels, self._fields = decoder, rows, labels, fields
        self._pipeline, self._choose, self._before = pipeline, choose, before
        self._draws_one_by_one = not seeded and pipeline.interleaved
        draws_now = pipeline.crops and not self._draws_one_by_one
        self._crops = choose(slice(0, len(rows))) if draws_now else None
        self._batch: torch.Tensor | None = None  # the tensor with all images
        if pipeline.lookup is not None and pipeline.row_size is not None and len(rows) > 1:
            self._batch = empty_rows(len(rows), (3, *pipeline.row_size))

    def make(self, positions: range) -> list[Any]:
        """Return the items of some of the samples, by positions from 0 to N - 1."""
        part = slice(positions.start, positions.stop)
        if self._batch is not None:
            return self._finished(positions, self._rows_of(self._batch, part))
        if not self._draws_one_by_one:
            crops = None if self._crops is None else self._crops[part]
            return self._finished(positions, self._items(part, crops))
        items = []
        for position in positions:
            one = slice(position, position + 1)
            items += self._finished(range(position, position + 1), self._items(one, self._choose(one)))
        return items

    def _finished(self, positions: range, items: Iterator[Any]) -> list[Any]:
        """Return the items as a list; call `before` with each sample's position before the sample's transforms run."""
        if self._before is None:
            return list(items)
        made = []
        for position in positions:
            self._before(position)
            made.append(next(items))
        return made

    def _rows_of(self, batch: torch.Tensor, part: slice) -> Iterator[Item]:
        """Yield the items of a slice of the samples, whose images are decoded into the batch tensor."""
        lookup = self._pipeline.lookup
        assert lookup is not None
        assert self._crops is not None
        self._decoder.decode_into(self._rows[part], self._crops[part], batch[part], lookup)
        for image, label in zip(lookup.images(batch[part]), self._labels[part], strict=True):
            yield Item(*self._pipeline.item(image, label))

    def _items(self, part: slice, crops: Crops | None) -> Iterator[Any]:
        """Yield the items of a slice of the samples. An item's transforms run when the item is requested."""
        rows, labels, pipeline, fields = self._rows[part], self._labels[part], self._pipeline, self._fields
        bare, operations = pipeline.followed(crops)
        is_target = fields is not None and fields.parts.is_target
        if fields is not None and is_target:
            labels = fields.targets(rows, bare, operations)
        if fields is None or is_target:
            for image, label in zip(self._images(rows, crops), labels, strict=True):
                yield pipeline.item(image, label)
            return
        sizes = fields.sizes(rows, bare)
        values = fields.samples(rows, labels, bare, operations, encoded=pipeline.output == "bytes")
        images = self._images(rows, crops) if fields.parts.with_image else [None] * len(rows)
        for image, of_sample, size in zip(images, values, sizes, strict=True):
            yield pipeline.dict_item({**of_sample, IMAGES: image}, size)

    def _images(self, rows: Ints, crops: Crops | None) -> Iterable[Any]:
        """Yield images in the form that the transforms expect."""
        decoder, pipeline = self._decoder, self._pipeline
        if crops is not None:
            pixels = decoder.decode_crops(rows, crops)
            if pipeline.views:
                for views in pixels:
                    yield tuple(map(pipeline.transform_input, views))
            elif isinstance(pixels, np.ndarray) and pipeline.output == "tensor" and pipeline.lookup is None:
                yield from torch.from_numpy(pixels).permute(0, 3, 1, 2).unbind(0)
            else:
                yield from map(pipeline.transform_input, pixels)
            return
        data_of = decoder.reader.read_many(rows)
        for row, data in zip(decoder.reader.table.rows(rows), data_of, strict=True):
            if pipeline.output == "bytes":
                yield bytes(data)
            else:
                yield pipeline.transform_input(decoder.sample_decoder.decode_whole(row, data))


_of_thread = threading.local()
"""This object has the attribute `in_pool` in the threads of a pool."""


class Pool:
    """Threads that make the items of a batch. They start when they are first needed, and end with the pool.

    An unpickled pool starts its own threads, and so does a forked process.
    """

    def __init__(self) -> None:
        self._executors: dict[tuple[int, int], ThreadPoolExecutor] = {}

    def items(
        self, threads: int, make: Callable[[Any], list[Any]], indices: Sequence[int] | npt.NDArray[np.int64]
    ) -> list[Any]:
        """Return the list ``make(indices)``, computed by `threads` threads for parts of `indices`."""
        if threads == 1 or len(indices) < 2 or hasattr(_of_thread, "in_pool"):  # a thread cannot wait for itself
            return make(indices)
        step = -(-len(indices) // threads)
        executor = self._executor(threads)
        tasks = [executor.submit(make, indices[start : start + step]) for start in range(0, len(indices), step)]
        try:
            return [item for task in tasks for item in task.result()]
        finally:
            wait(tasks)  # after an error too: no thread may still read when the caller handles the error

    def _executor(self, threads: int) -> ThreadPoolExecutor:
        key = os.getpid(), threads  # a fork does not have the threads of its parent
        if key not in self._executors:
            made = ThreadPoolExecutor(threads, "packer", initializer=setattr, initargs=(_of_thread, "in_pool", True))
            return self._executors.setdefault(key, made)
        return self._executors[key]

    def close(self) -> None:
        """End the threads of this process; if threads are needed later, new ones start."""
        executors, self._executors = self._executors, {}
        for (process, _), executor in executors.items():
            if process == os.getpid():
                executor.shutdown()

    def __reduce__(self) -> tuple[type[Pool], tuple[()]]:
        return Pool, ()


SAMPLE_ERRORS = CorruptPackError, ImageError
"""The errors that mean that a sample cannot be read; nothing else raises them."""

_TURN_OF_REPLACEMENT = 1 << 20
"""The turn of a sample that replaces another one (see `SampleView`); all other turns in an epoch are smaller."""


class Replaced:
    """The samples that could not be read in this process; each is replaced by the next readable sample.

    So the replacement is the same in every run and on every rank. A sample that is used as a replacement gets another
    crop than at its own position in the epoch.

    Parameters
    ----------
    most : float
        The maximum share of the dataset's samples that may be replaced. One sample may always be replaced, unless the
        share is 0.

    Attributes
    ----------
    reasons : list of str
        The error of each replaced sample, in the order of discovery.
    """

    def __init__(self, most: float) -> None:
        if not 0 <= most <= 1:
            raise OptionError(f"max_bad is a fraction of the samples and must be 0 to 1, not {most!r}")
        self.most = most
        self.reasons: list[str] = []

    def substitutes(self, indices: Sequence[int] | Ints, length: int, require: Callable[[int], None]) -> Ints:
        """Return indices in which samples that cannot be read are replaced by the next readable ones.

        Parameters
        ----------
        indices : (N,) int64 array
            Indices with turns; see `SampleView`.
        length : int
            The number of samples in the dataset.
        require : callable
            Takes an index, and raises one of the errors in `SAMPLE_ERRORS` if the sample cannot be read.

        Raises
        ------
        PackError
            If there are too many unreadable samples, or no readable one.
        """
        return np.array([self._substitute(int(index), length, require) for index in indices], np.int64)

    def _substitute(self, index: int, length: int, require: Callable[[int], None]) -> int:
        for step in range(length):
            candidate = index if step == 0 else (index + step) % length + _TURN_OF_REPLACEMENT * length
            try:
                require(candidate)
            except SAMPLE_ERRORS as error:
                self._note(error, length)
            else:
                return candidate
        raise PackError("none of the samples can be read")

    def _note(self, error: Exception, length: int) -> None:
        """Record an unreadable sample, and warn; raise PackError if too many of the `length` samples are unreadable."""
        if str(error) in self.reasons:
            return
        self.reasons.append(str(error))
        if len(self.reasons) > (max(1, self.most * length) if self.most else 0):
            some = "; ".join(map(printable, self.reasons[:3]))
            raise PackError(
                f"{len(self.reasons)} of {length} samples cannot be read, more than max_bad={self.most:g} allows: "
                f"{some}"
            ) from error
        warn(f"{error} Another sample replaces it, because of on_error='replace'")


def replaced_from(on_error: str, max_bad: float) -> Replaced | None:
    """Return the record of replaced samples; None if an unreadable sample is an error."""
    if on_error not in ("raise", "replace"):
        raise OptionError(f"on_error must be 'raise' or 'replace', not {on_error!r}")
    replaced = Replaced(max_bad)  # raises an error for an invalid share, whatever `on_error` is
    return replaced if on_error == "replace" else None
