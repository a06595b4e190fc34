"""Images prepared on many threads, given back in the order of the source, a bounded number of them ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, Future
from queue import SimpleQueue

from packer._conversion.journal import Entry
from packer._conversion.prepare import Prepared, prepare
from packer._conversion.recipe import Recipe
from packer._conversion.repack import prepare_sample
from packer._conversion.values import prepare_values
from packer._fields import Field, Stored
from packer._sources import Source
from packer._sources.base import ReadBuffer
from packer._sources.manyfiles import ManyFiles
from packer._storage.limits import available_cpus
from packer._storage.stamps import Stamp
from packer._table import Sample, checksum, decode_name, encode_name, field_columns
from packer.errors import CorruptPackError, ImageError

__all__ = ["BATCH_BYTES", "Batch", "Pipeline", "sample_of", "threads_for"]

Batch = list[tuple[Entry, Sample | None]]

BATCH_BYTES = 2 << 20
"""As many files are a batch as have about this size together."""
_MAX_BATCH = 64


def threads_for(workers: int | None, recipe: Recipe) -> int:
    """Return on how many threads images are prepared: as many as were asked for, by default as many as CPUs.

    Where images are encoded, it is one more, as one of them waits now and then: for a file, or for Python's lock. Where
    they keep their bytes, the thread that writes has enough to do.
    """
    return workers or available_cpus() + (recipe.codec != "keep")


class Pipeline:
    """Prepares the images of a source on an executor and gives them back in order.

    Parameters
    ----------
    source : Source
    recipe : Recipe
    on_error : {"fail", "skip"}
        Whether an image that cannot be used ends the work, or is given back with the reason.
    start : int
        The first image to prepare.

    Attributes
    ----------
    bytes_read : int
        Size of the images that were given back.
    """

    def __init__(self, source: Source, recipe: Recipe, on_error: str, *, start: int) -> None:
        self._source = source
        self._recipe = recipe
        self._on_error = on_error
        self._next = start
        self._batch = 1  # images; adapted to the sizes of those that were read
        self._buffers: SimpleQueue[ReadBuffer] = SimpleQueue()
        keeps = recipe.codec == "keep" and not recipe.tiles
        self._files = ManyFiles(source, recipe.exif, recipe.max_pixels, checked=keeps)
        self.bytes_read = 0

    def run(self, executor: Executor, *, ahead: int) -> Generator[Batch, None, None]:
        """Yield batches, with `ahead` others in work. A batch's data are valid until the next batch is asked for."""
        for _ in range(ahead + 1):
            self._buffers.put(ReadBuffer())
        pending: deque[Future[tuple[Batch, ReadBuffer]]] = deque()
        try:
            while True:
                while len(pending) < ahead and self._next < len(self._source):
                    indices = range(self._next, min(self._next + self._batch, len(self._source)))
                    self._source.ahead(indices)
                    pending.append(executor.submit(self._prepare, indices))
                    self._next = indices.stop
                if not pending:
                    return
                batch, buffer = pending.popleft().result()
                self._adapt(batch)
                yield batch
                self._buffers.put(buffer)
        finally:
            for future in pending:
                future.cancel()

    def _adapt(self, batch: Batch) -> None:
        read = sum(entry.stamp[0] for entry, _ in batch)
        self.bytes_read += read
        fitting = BATCH_BYTES * len(batch) // max(read, 1)
        self._batch = max(1, min(fitting, 2 * self._batch, _MAX_BATCH))

    def _prepare(self, indices: range) -> tuple[Batch, ReadBuffer]:
        buffer = self._buffers.get()
        buffer.reset()
        batch: Batch = []
        fields, labels = self._source.fields, self._source.labels[indices.start : indices.stop].tolist()
        names = list(self._source.names.between(indices.start, indices.stop).each_encoded())
        files = self._files.read(indices, names, buffer)
        for index, encoded, label, file in zip(indices, names, labels, files, strict=True):
            name = decode_name(encoded or b"")  # of a pack's sample that has none, reading says so
            try:
                data, stamp, info, crc32c = file or (*self._source.read(index, buffer), None, None)
                stored = self._source.sample_of(index)
                if stored is None:
                    prepared = prepare(data, name, self._recipe, info)
                else:
                    prepared = prepare_sample(data, name, self._recipe, stored)
                _require_size(prepared.change.size, self._source.expected_size(index))
                values = prepare_values(fields, self._source.values(index, buffer), prepared.change, self._recipe)
            except ImageError as error:
                error.name, error.index = error.name or name, index
                if self._on_error == "fail":
                    if isinstance(error.__cause__, CorruptPackError):  # it is the pack that must be mended
                        raise error.__cause__ from None
                    raise
                stamp = self._source.stamp(index)
                batch.append((Entry(name, stamp=stamp, reason=error.reason), None))
            else:
                taken = crc32c if prepared.data is data else None
                batch.append(sample_of(name, label, prepared, stamp, fields, values, taken))
        return batch, buffer


def _require_size(found: tuple[int, int], said: tuple[int, int] | None) -> None:
    """Raise ImageError where annotations say another height and width of a file than it has."""
    if said is None or said == found:
        return
    remedy = "Take the file that was annotated, or correct height and width"
    if said == found[::-1]:
        remedy += "; where EXIF turns the file, save it upright"
    raise ImageError(
        f"it has {found[1]} x {found[0]} pixels, and its annotations are of {said[1]} x {said[0]}. {remedy}"
    )


def sample_of(  # noqa: PLR0917
    name: str,
    label: int | float,
    prepared: Prepared,
    stamp: Stamp,
    fields: Sequence[Field],
    values: tuple[Stored, ...],
    crc32c: int | None = None,
) -> tuple[Entry, Sample]:
    """Return a sample, and its entry in the journal, of what was prepared for it; its checksum may be known."""
    data, height, width, stored_name = prepared.data, prepared.height, prepared.width, encode_name(name)
    crc = checksum(data, label, height, width, stored_name) if crc32c is None else crc32c
    entry = Entry(name, label, height, width, 0, len(data), crc, stamp, prepared.findings, prepared.kept)
    entry.more = field_columns(fields, values, stored_name)
    return entry, Sample(name, label, data, height, width, values)
