"""Prepares images for a pack on many threads, in the order of the source, with a bounded number of images in progress.

C reads many files at once, and also returns the sizes and the checksums of their images. Each image is inspected; the
recipe decides whether it is decoded, resized, encoded or tiled. If the source is a pack, a sample keeps its bytes, or
is re-encoded from its pixels.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer._codecs import MAX_PIXELS
from packer._conversion.field_values import prepare_values
from packer._conversion.recipe import Change, Recipe
from packer._conversion.workspace import RecordEntry
from packer._fields import Field, Stored
from packer._images import native
from packer._images.decode import decode, fast_decoder
from packer._images.depth import FOUND, decode_to_8_bit, require_8_bit
from packer._images.encode import encode, encode_tiled
from packer._images.geometry import scratch
from packer._images.jpeg_tiles import transcode
from packer._images.native.records import CAN_SURVEY, FINDINGS, KINDS, SURVEY, survey
from packer._images.probe import CLIPPED, DEEP, SIGNED, ImageInfo, inspect
from packer._images.resize import resize
from packer._manifest import TILED
from packer._sources.base import ReadBuffer, Source, StoredSample
from packer._storage.packfile import BY_PATH, LARGEST_READ, NOWHERE, Descriptor, by_path
from packer._storage.stamps import Stamp
from packer._storage.system import available_cpus, results
from packer._table import Buffer, Ints, Sample, are_pixels, checksum, decode_name, encode_name, field_columns
from packer.errors import CorruptPackError, ImageError, NotTileableError, recorded

_TINY = 32
SMALLER = "smaller than --resize, and not enlarged"
"""A finding: the image keeps its size."""


_SUFFIXES = {
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".png": "png",
    ".ppm": "ppm",
    ".pgm": "ppm",
    ".bmp": "bmp",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".webp": "webp",
}


Batch = list[tuple[RecordEntry, Sample | None]]


BATCH_BYTES = 2 << 20
"""The approximate total size of the files of a batch, in bytes."""


_MAX_BATCH = 64


def threads_for(workers: int | None, recipe: Recipe) -> int:
    """Return the number of threads that prepare images: `workers`, or by default the number of CPUs.

    If images are encoded, the default is one thread more, because threads sometimes wait for a file or for Python's
    lock. If images keep their bytes, the writing thread is the bottleneck.
    """
    return workers or available_cpus() + (recipe.codec != "keep")


class ConversionPipeline:
    """Prepares the images of a source on an executor, and yields them in order.

    Parameters
    ----------
    source : Source
    recipe : Recipe
    on_error : {"fail", "skip"}
        ``"fail"``: an unusable image raises an error. ``"skip"``: it is yielded as an entry with the reason, without a
        sample.
    start : int
        The first image to prepare.

    Attributes
    ----------
    recipe : Recipe
    bytes_read : int
        Size in bytes of the images in the batches that were yielded so far.
    """

    def __init__(self, source: Source, recipe: Recipe, on_error: str, *, start: int) -> None:
        self._source = source
        self.recipe = recipe
        self._on_error = on_error
        self._next = start
        self._batch = 1  # images; adapted to the sizes of the images read so far
        self._buffers: SimpleQueue[ReadBuffer] = SimpleQueue()
        keeps = recipe.codec == "keep" and not recipe.tiles
        self._files = ManyFiles(source, recipe.exif, recipe.max_pixels, checked=keeps)
        self.bytes_read = 0

    def run(self, executor: Executor, *, ahead: int) -> Generator[Batch, None, None]:
        """Yield batches, while `ahead` further batches are in progress. A batch is valid until the next is taken."""
        for _ in range(ahead + 1):
            self._buffers.put(ReadBuffer())
        for batch, buffer in results(self._begun(executor), ahead):
            self._adapt(batch)
            yield batch
            self._buffers.put(buffer)

    def _begun(self, executor: Executor) -> Iterator[Future[tuple[Batch, ReadBuffer]]]:
        """Submit the batches to the executor, one after the other."""
        while self._next < len(self._source):
            indices = range(self._next, min(self._next + self._batch, len(self._source)))
            self._source.ahead(indices)
            self._next = indices.stop
            yield executor.submit(self._prepare, indices)

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
            name = decode_name(encoded or b"")  # if a damaged pack lacks the name, reading the sample raises the error
            try:
                data, stamp, info, crc32c = file or (*self._source.read(index, buffer), None, None)
                stored = self._source.sample_of(index)
                if stored is None:
                    prepared = prepare(data, name, self.recipe, info)
                else:
                    prepared = prepare_sample(data, name, self.recipe, stored)
                _require_size(prepared.change.size, self._source.expected_size(index))
                values: tuple[Stored, ...] = ()
                if fields:
                    stored_values = self._source.values(index, buffer)
                    values = prepare_values(fields, stored_values, prepared.change, self.recipe)
            except ImageError as error:
                error.name, error.index = error.name or name, index
                if self._on_error == "fail":
                    if isinstance(error.__cause__, CorruptPackError):  # the user has to repair the source pack
                        raise error.__cause__ from None
                    raise
                stamp = self._source.stamp(index)
                batch.append((RecordEntry(name, stamp=stamp, reason=recorded(error.args[0])), None))
            else:
                taken = crc32c if prepared.data is data else None
                batch.append(sample_of(name, label, prepared, stamp, fields, values, taken))
        return batch, buffer


_FOUND = ("size", "read", "modified", "seen", "kind", "height", "width", "orientation", "findings", "crc32c")
"""The columns of the records in which C stores its results."""


class FileRead(NamedTuple):
    """The content of an image file, and what is known about it.

    Attributes
    ----------
    data : memoryview
    stamp : Stamp
    info : ImageInfo or None
        The result of `inspect`; None if the caller has yet to call `inspect`.
    crc32c : int or None
        The checksum that the sample will have if it is the unchanged file; None if the checksum was not computed.
    """

    data: memoryview
    stamp: Stamp
    info: ImageInfo | None = None
    crc32c: int | None = None


class ManyFiles:
    """Reads the files of a source without Python's lock; may be used by many threads at once.

    Parameters
    ----------
    source : Source
    exif : {"ignore", "apply"}
        ``apply``: the height and width that checksums cover are those after the rotation by the EXIF orientation.
    max_pixels : int
        Larger images are refused.
    checked : bool
        Whether to compute checksums.
    """

    def __init__(self, source: Source, exif: str, max_pixels: int, *, checked: bool) -> None:
        self._source = source
        self._turned = exif == "apply"
        self._checked = checked
        self._directory: Descriptor | None = None
        # C only supports the default limit of pixels.
        if CAN_SURVEY and os.name != "nt" and source.whole_files and max_pixels == MAX_PIXELS:
            with contextlib.suppress(OSError):  # reading the first file raises the error again
                self._directory = Descriptor(os.open(source.root, os.O_RDONLY))

    def read(self, rows: range, names: Sequence[bytes | None], buffer: ReadBuffer) -> list[FileRead | None]:
        """Read the files of images with these names; return None for each file that `Source.read` must read instead.

        Such a file has changed since the listing, cannot be read, or has an unusual path.
        """
        if self._directory is None or self._source.stamps is None:
            return [None] * len(rows)
        stamps, paths = self._source.stamps[rows.start : rows.stop], [name or b"" for name in names]
        fits = (stamps[:, 0] > 0) & (stamps[:, 0] <= LARGEST_READ)
        sizes = stamps[:, 0] * fits
        room, starts = buffer.room(int(sizes.sum())), np.cumsum(sizes) - sizes
        records = np.zeros(len(rows), SURVEY)
        records["position"], listed = by_path(self._directory.number, paths, stamps)
        records["file"], records["size"] = np.where(fits, BY_PATH, NOWHERE), sizes
        records["out"] = np.frombuffer(room, np.uint8).ctypes.data + starts
        records["turned"], records["checked"] = self._turned, self._checked
        records["label"] = np.ascontiguousarray(self._source.labels[rows.start : rows.stop]).view(np.int64)
        records["name"], records["name_size"] = listed.records["path"], [len(path) for path in paths]
        survey(records)
        return list(self._found(records, starts, room.toreadonly()))

    def _found(self, records: npt.NDArray[Any], starts: Ints, room: memoryview) -> Iterator[FileRead | None]:
        for start, *found in zip(starts.tolist(), *(records[column].tolist() for column in _FOUND), strict=True):
            size, read, modified, seen, kind, height, width, orientation, findings, crc32c = found
            data, stamp = room[start : start + size], (size, modified)
            if not read:
                yield None
            elif not seen:
                yield FileRead(data, stamp)
            else:
                stored = (width, height) if self._turned and orientation >= 5 else (height, width)
                info = _info(kind, *stored, orientation, findings)
                yield FileRead(data, stamp, info, crc32c if self._checked else None)


@functools.lru_cache(maxsize=1024)
def _info(kind: int, height: int, width: int, orientation: int, findings: int) -> ImageInfo:
    """Return C's results for an image as an ImageInfo; cached, because many images have the same size."""
    words = tuple(words for bit, words in FINDINGS.items() if findings & bit)
    return ImageInfo(KINDS[kind], height, width, orientation, words)


def _require_size(found: tuple[int, int], expected: tuple[int, int] | None) -> None:
    """Raise ImageError if an image does not have the height and width that its annotations give."""
    if expected is None or expected == found:
        return
    remedy = "Use the file that was annotated, or correct height and width in the annotations"
    if expected == found[::-1]:
        remedy += "; if the file has an EXIF rotation, save it upright"
    raise ImageError(
        f"it has {found[1]} x {found[0]} pixels, but its annotations say {expected[1]} x {expected[0]}. {remedy}"
    )


def sample_of(  # noqa: PLR0917
    name: str,
    label: int | float,
    prepared: Prepared,
    stamp: Stamp,
    fields: Sequence[Field],
    values: tuple[Stored, ...],
    crc32c: int | None = None,
) -> tuple[RecordEntry, Sample]:
    """Return the journal entry and the sample for a prepared image; `crc32c` is the checksum, if it is known."""
    data, height, width, stored_name = prepared.data, prepared.height, prepared.width, encode_name(name)
    crc = checksum(data, label, height, width, stored_name) if crc32c is None else crc32c
    entry = RecordEntry(name, label, height, width, 0, len(data), crc, stamp, prepared.findings, prepared.kept)
    entry.more = field_columns(fields, values, stored_name)
    return entry, Sample(name, label, data, height, width, values)


class Prepared(NamedTuple):
    """An image as it is stored in a sample.

    Attributes
    ----------
    data : bytes-like
    height, width : int
        The size of the decoded image, in pixels.
    findings : tuple of str
        The audit's findings.
    change : Change
        The change of the image's geometry.
    kept : bool
        Whether `data` are the unchanged bytes of a file.
    """

    data: Buffer
    height: int
    width: int
    findings: tuple[str, ...]
    change: Change
    kept: bool = False


def prepare(data: Buffer, name: str, recipe: Recipe, info: ImageInfo | None = None) -> Prepared:
    """Convert the bytes of a file to the bytes of a sample.

    Parameters
    ----------
    data : bytes-like
    name : str
    recipe : Recipe
    info : ImageInfo, optional
        The result of `inspect`, if known.

    Raises
    ------
    ImageError
        If the file is not an image that Pillow reads, or the codec cannot represent it.
    """
    info = info or inspect(data, recipe.max_pixels)
    plan = _plan(recipe, info, os.path.splitext(name)[1].lower())
    findings, height, width, change = plan.findings, plan.height, plan.width, plan.change
    if plan.kept:
        pixels = None
        if recipe.audit == "decode" and info.plain:  # `inspect` has already decoded all other images with Pillow
            pixels = decode(data, max_pixels=recipe.max_pixels, header=info.header)
        if not recipe.tiles:
            return Prepared(data, height, width, findings, change, kept=True)
        stored, finding = tiled(data, info, pixels)
        return Prepared(stored, height, width, (*findings, finding), change, kept=stored is data)
    return _encoded(_decoded(data, info, plan, recipe), recipe, findings, change)


class _Plan(NamedTuple):
    """The plan for images of one type and size.

    Attributes
    ----------
    findings : tuple of str
    height, width : int
        The size of the decoded image.
    change : Change
    kept : bool
        Whether the file's own bytes are stored.
    scaled : (height, width)
        The size to which the image is resized.
    at_once : bool
        Whether packer's C may decode and resize the image in one step.
    """

    findings: tuple[str, ...]
    height: int
    width: int
    change: Change
    kept: bool
    scaled: tuple[int, int]
    at_once: bool


@functools.lru_cache(maxsize=1024)
def _plan(recipe: Recipe, info: ImageInfo, suffix: str) -> _Plan:
    """Return the plan for an image, before its pixels are read. Cached, because many images have the same size.

    Raises
    ------
    ImageTooLargeError
        If the resized image would have far too many pixels.
    ImageError
        If the codec cannot store all bits or bands of the image, and `to_8_bit` is not set.
    """
    height, width = info.size_shown(recipe.exif)
    findings, scaled, resize = audit(info, suffix), (height, width), recipe.resize
    turned = info.orientation if recipe.exif == "apply" and info.orientation in range(2, 9) else 1
    change = Change((info.height, info.width), turned, resize, recipe.exif)
    if resize is not None and not resize.upscale and resize.enlarges(height, width):
        findings += (SMALLER,)
    kept = _kept(info, height, width, recipe)
    if not kept and info.depth.excess:
        findings = _reduced(info, findings, recipe)
    if resize is not None and not kept:
        resize.require_affordable(height, width)
        scaled = resize.scaled(height, width)
    bilinear = resize is None or resize.interpolation == "bilinear"
    upright = recipe.exif == "ignore" or info.orientation == 1
    at_once = native.PREFERRED and info.plain and info.kind == "jpeg" and upright and bilinear
    return _Plan(findings, height, width, change, kept, scaled, at_once)


def audit(info: ImageInfo, suffix: str) -> tuple[str, ...]:
    """Return the findings on an image; `suffix` is the suffix of its file, in lower case, such as ``.jpg``."""
    findings = info.findings
    expected = _SUFFIXES.get(suffix)
    kind = {"mpo": "jpeg", "pgm": "ppm"}.get(info.kind, info.kind)
    if expected is not None and kind != expected:
        findings += (f"{info.kind.upper()} named {suffix}",)
    if min(info.height, info.width) < _TINY:
        findings += (f"tiny (a side below {_TINY} pixels)",)
    return findings


def _reduced(info: ImageInfo, findings: tuple[str, ...], recipe: Recipe) -> tuple[str, ...]:
    """Return the findings on an image that becomes 8-bit RGB; raise ImageError if `to_8_bit` is needed and not set."""
    if recipe.to_8_bit is None:
        require_8_bit(info.depth, recipe.codec)
        return findings
    others = tuple(note for note in findings if note not in (CLIPPED, DEEP, SIGNED))
    return (*others, FOUND[recipe.to_8_bit]) if info.depth.is_deep else others


def _kept(info: ImageInfo, height: int, width: int, recipe: Recipe) -> bool:
    """Tell whether the file's own bytes are stored: by request, or because nothing has to be changed."""
    if recipe.codec == "keep" or recipe.recode:
        return recipe.codec == "keep"
    unchanged = recipe.resize is None or not recipe.resize.changes(height, width)
    upright = recipe.exif == "ignore" or info.orientation == 1
    return unchanged and upright and info.plain and info.kind == recipe.codec


def _decoded(data: Buffer, info: ImageInfo, plan: _Plan, recipe: Recipe) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, resized."""
    scaled, decoder = plan.scaled, "auto"
    if plan.at_once:  # the whole image is never in memory
        pixels = native.decode(data, plan.height, plan.width, scratch.image("decoded", *scaled))
        if pixels is not None:
            return pixels
        decoder, _ = fast_decoder()  # packer's own decoder does not support this image
    if info.depth.is_deep and recipe.to_8_bit is not None:
        pixels = decode_to_8_bit(data, recipe.to_8_bit, info.depth, exif=recipe.exif, max_pixels=recipe.max_pixels)
    else:
        pixels = decode(data, exif=recipe.exif, decoder=decoder, max_pixels=recipe.max_pixels, header=info.header)
    return resize(pixels, *scaled, "bilinear" if recipe.resize is None else recipe.resize.interpolation)


def _resized(pixels: npt.NDArray[np.uint8], recipe: Recipe) -> Prepared:
    """Resize and encode the pixels of an image, (height, width, 3) uint8 RGB."""
    height, width = pixels.shape[:2]
    if recipe.resize is not None:
        recipe.resize.require_affordable(height, width)
        pixels = resize(pixels, *recipe.resize.scaled(height, width), recipe.resize.interpolation)
    return _encoded(pixels, recipe, (), Change((height, width), 1, recipe.resize))


def _encoded(pixels: npt.NDArray[np.uint8], recipe: Recipe, findings: tuple[str, ...], change: Change) -> Prepared:
    """Cut or pad resized pixels as the recipe says, and encode them."""
    if recipe.resize is not None:
        pixels = recipe.resize.frame(pixels)
    tiles = recipe.tiles or (recipe.tiles is None and recipe.codec == "jpeg")
    try:
        data = encode_tiled(pixels, recipe.quality) if tiles else encode(pixels, recipe.codec, recipe.quality)
    except (OSError, ValueError) as error:
        raise ImageError(f"cannot be encoded as {recipe.codec}: {error}") from error
    return Prepared(data, pixels.shape[0], pixels.shape[1], (*findings, TILED) if tiles else findings, change)


def tiled(data: Buffer, info: ImageInfo, pixels: npt.NDArray[np.uint8] | None) -> tuple[Buffer, str]:
    """Convert an image to a tiled JPEG; return its bytes (the original bytes if that is impossible) and a finding.

    The original bytes are not stored, so the pixels of the original and of the tiled JPEG are compared. packer's own
    decoder detects errors of the transcoder in this way, because the two share no code for scans. If the `pixels` of
    the original are passed, another library decodes the tiled JPEG, so that two decoders have to agree.
    """
    if info.kind != "jpeg":
        return data, f"not tiled: {info.kind.upper()}"
    try:
        made = transcode(data)
        decoder = "auto" if pixels is None else fast_decoder()[0]
        before = decode(data, header=info.header) if pixels is None else pixels
        if not np.array_equal(decode(made, decoder=decoder), before):
            raise NotTileableError("its pixels would change")
    except NotTileableError as error:
        return data, f"not tiled: {error.reason}"
    except ImageError:
        return data, "not tiled: its pixels cannot be compared"
    return made, TILED


def prepare_sample(data: Buffer, name: str, recipe: Recipe, stored: StoredSample) -> Prepared:
    """Convert a sample of one pack to a sample of another pack; raise ImageError if that is not possible."""
    if stored.codec == "raw" and not are_pixels(len(data), stored.height, stored.width):
        raise ImageError(f"{len(data)} bytes are not {stored.width} x {stored.height} pixels")
    if recipe.carries(stored.codec, stored.exif):
        pixels = None
        findings: tuple[str, ...] = ()
        if recipe.audit == "decode" and stored.codec != "raw":
            pixels = decode(data, max_pixels=recipe.max_pixels)
        if recipe.tiles and stored.codec in ("keep", "jpeg"):
            data, finding = tiled(data, inspect(data, recipe.max_pixels), pixels)
            findings = (finding,)
        return Prepared(
            data, stored.height, stored.width, findings, Change((stored.height, stored.width), exif=stored.exif)
        )
    if stored.codec == "raw":
        rows = np.frombuffer(data, np.uint8).reshape(stored.height, stored.width, 3)
        return _resized(np.array(rows), recipe)  # a copy, because torch requires a writable array
    if stored.codec == "keep" and stored.exif == "apply":  # the pack's field values refer to the upright image
        prepared = prepare(data, name, replace(recipe, exif="apply"))
        return prepared._replace(change=Change(prepared.change.upright, 1, recipe.resize, "apply"))
    if stored.codec == "keep":
        return prepare(data, name, recipe)
    # The sample is upright already, and the suffix of its name is that of the original file.
    return prepare(data, "", replace(recipe, exif="ignore"))
