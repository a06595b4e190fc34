"""Decodes the images of a pack: chooses crops, reads, decodes, resizes and augments.

`SampleDecoder` decodes one image; its errors name the sample. `BatchDecoder` decodes many: C decodes dozens of them in
one call, without Python's lock, and a `SampleDecoder` decodes the images that C does not support.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._codecs import MAX_PIXELS
from packer._formats import Reader
from packer._formats.reader import TaskFiles
from packer._images import native
from packer._images.cropping import crop_image, smooth
from packer._images.decode import decode
from packer._images.extension import _native
from packer._images.geometry import Box, Crops, affordable, from_corner, require_affordable, touched
from packer._images.modes import decode_as
from packer._images.native import LEVELS
from packer._images.native.records import Results, TaskBuilder
from packer._images.numbers import Numbers
from packer._images.operations import Operations, parted, side_by_side, with_operations
from packer._images.rectangle import RectangleDecoder, resize_into
from packer._images.torch_ops import operate
from packer._table import Buffer, Ints, Row, are_pixels
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import CorruptPackError, ImageError
from packer.samplers._random import uniforms

Pixels = npt.NDArray[Any]

_TOGETHER = 32  # images that C decodes in one call, unless they are very large; their files stay open meanwhile

_BETWEEN_VIEWS = 0xD1B54A32D192ED03
"""The difference between the seeds of an image's views. Seeds of users and of joined datasets do not differ by it."""


class SampleDecoder:
    """Decodes the images of a pack one at a time.

    Parameters
    ----------
    reader : packer.Reader
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        The same as for `packer._images.decode.decode`.
    mode : {"RGB", "L", "unchanged"}
        The mode of the arrays.

    Attributes
    ----------
    in_c : bool
        Whether packer's own decoder is tried first for crops.
    raw : bool
        Whether the pack contains raw pixels instead of encoded images.
    """

    def __init__(self, reader: Reader, decoder: str = "auto", mode: str = "RGB") -> None:
        self.reader, self.mode = reader, mode
        self._library, self._exif = decoder, reader.manifest.exif
        self.raw = reader.manifest.codec == "raw"
        self._rectangles = RectangleDecoder(self._exif, decoder)
        known = reader.manifest.codec in ("keep", "jpeg", "png")
        self.in_c = native.PREFERRED if self.raw else self._rectangles.native and known
        self._whole_in_c = self.in_c and not self.raw and native.WHOLE_JPEGS and mode == "RGB"
        self._crops_in_c = self.in_c and mode == "RGB"

    def choose(
        self, crop: Crop, augment: Augmentation | None, row: Row, random: npt.NDArray[np.float64] | None
    ) -> tuple[Box, Operations | None]:
        """Choose the crop of one image, and its augmentations: (1, M) operations on the result of the crop.

        Parameters
        ----------
        random : (randoms,) float64 array, optional
            Random numbers, uniform in [0, 1); None draws them from torch's generator.

        Raises
        ------
        CorruptPackError
            If the pack's table has a height or width of 0 for the image, or a size that the image's bytes contradict.
        ImageError
            If the image is too small for the crop. If the cropped image is too small for `augment`, has too many
            pixels, or needs far too much memory to make.
        """
        if row.height < 1 or row.width < 1:
            raise self.impossible_size(row)
        if self.raw and not are_pixels(row.size, row.height, row.width):
            raise self.other_size(row, row.size)
        own = rest = operations = None
        if random is not None:
            own, rest = random[: crop.randoms], random[None, crop.randoms :]
        try:
            box = crop.choose_one(row.height, row.width, own)
            if augment is not None:
                operations = augment.choose(np.array([box.out_height]), np.array([box.out_width]), rest)
            require_affordable(box)
        except ImageError as error:
            raise self.named(row.number, error) from error
        return box, operations

    def decode_whole(self, row: Row, data: Buffer) -> Pixels:
        """Decode the stored bytes of a whole image to a writable (height, width, channels) array in the decoder's mode.

        Raises
        ------
        CorruptPackError, ImageError
            The same as for ``dataset[index]``.
        """
        if self.raw:
            return self._in_mode(self._raw_pixels(row, data))
        # The chosen library decodes images that C refuses, because of damage or a wrong size, to the same pixels.
        if self._whole_in_c and row.height > 0 < row.width and row.height * row.width <= MAX_PIXELS:
            found = native.decode(data, row.height, row.width)
            if found is not None:
                return found
        try:
            if self.mode == "RGB":
                return decode(data, exif=self._exif, decoder=self._library)
            return decode_as(data, self.mode, exif=self._exif, decoder=self._library)
        except ImageError as error:
            raise self.named(row.number, error) from error

    def decode_crop(self, row: Row, data: Buffer, box: Box, operations: Operations | None = None) -> Pixels:
        """Decode, crop, resize and augment one image; return a (height, width, channels) array in the decoder's mode.

        Parameters
        ----------
        operations : (1, M) array of OPERATION, optional
            The augmentations; only for the mode RGB.

        Raises
        ------
        CorruptPackError, ImageError
            The same as for ``dataset[index]``.
        """
        if self.mode != "RGB":
            return self._decode_crop_in_mode(row, data, box)
        out = np.empty((box.out_height, box.out_width, 3), np.uint8)
        if self._crops_in_c:
            size = row.height, row.width
            if native.decode_one(data, size, box, out.ctypes.data, self.raw, operations):
                return out
        self.decode_crop_into(row, data, box, operations, torch.from_numpy(out).permute(2, 0, 1))
        return out

    def decode_crop_into(  # noqa: PLR0917
        self,
        row: Row,
        data: Buffer,
        box: Box,
        operations: Operations | None,
        out: torch.Tensor,
        numbers: Numbers | None = None,
    ) -> None:
        """Decode an image with a library into a (3, height, width) tensor, augment it, and convert it to numbers."""
        pixels = out if numbers is None else torch.empty(*box.out, 3, dtype=torch.uint8).permute(2, 0, 1)
        self._decode_crop_by_library(row, data, box, pixels[None])
        if operations is not None and native.PREFERRED:
            native.augment(pixels.permute(1, 2, 0).numpy(), operations.reshape(-1))
        elif operations is not None:
            operate(pixels[None], operations.reshape(1, -1))
        if numbers is not None:
            numbers.write(pixels[None], out[None])

    def named(self, row: int, error: ImageError) -> ImageError:
        """Return the error with the sample's row and name added, unless the error already names a sample."""
        return error if error.name else ImageError(error.reason, self.reader.describe(row))

    def impossible_size(self, row: Row) -> CorruptPackError:
        """Return the error for a row of the table with a size that no image can have."""
        return self.reader.corrupt(row.number, f"its row in the table says {row.width} x {row.height} pixels")

    def other_size(self, row: Row, size: int) -> CorruptPackError:
        """Return the error for an image whose number of pixels differs from the number in its row of the table."""
        return self.reader.corrupt(row.number, f"{size} bytes are not {row.width} x {row.height} pixels")

    def _decode_crop_in_mode(self, row: Row, data: Buffer, box: Box) -> Pixels:
        """Decode, crop and resize an image in the decoder's mode, which is not RGB."""
        try:
            if self.raw:
                return smooth(self._in_mode(self._raw_pixels(row, data)), box)
            return crop_image(data, (row.height, row.width), box, self.mode, exif=self._exif)
        except ImageError as error:
            raise self.named(row.number, error) from error

    def _decode_crop_by_library(self, row: Row, data: Buffer, box: Box, out: torch.Tensor) -> None:
        """Decode an image, with a library instead of packer's C, into a (1, 3, height, width) tensor."""
        try:
            if self.raw:
                top, left, height, width = from_corner(box, touched(box))
                pixels = self._raw_pixels(row, data)
                resize_into(pixels[top : top + height, left : left + width], box, out)
            else:
                self._rectangles.decode_into(data, (row.height, row.width), box, out, refused=self.in_c)
        except ImageError as error:
            raise self.named(row.number, error) from error

    def _in_mode(self, pixels: Pixels) -> Pixels:
        """Convert stored pixels to the mode; the mode ``unchanged`` leaves them as they are."""
        return np.array(Image.fromarray(pixels).convert("L"))[..., None] if self.mode == "L" else np.array(pixels)

    def _raw_pixels(self, row: Row, data: Buffer) -> Pixels:
        if row.height < 1 or row.width < 1:
            raise self.impossible_size(row)
        if not are_pixels(len(data), row.height, row.width):
            raise self.other_size(row, len(data))
        return np.frombuffer(data, np.uint8).reshape(row.height, row.width, 3)


class BatchDecoder:
    """Decodes many images of a pack at a time.

    Parameters
    ----------
    reader : packer.Reader
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        The same as for `packer._images.decode.decode`.
    mode : {"RGB", "L", "unchanged"}
        The same as for `packer._images.modes.decode_as`.

    Attributes
    ----------
    sample_decoder : SampleDecoder
        Decodes single images.
    """

    def __init__(self, reader: Reader, decoder: str = "auto", mode: str = "RGB") -> None:
        self.reader, self.mode = reader, mode
        self.sample_decoder = SampleDecoder(reader, decoder, mode)

    @functools.cached_property
    def _task_builder(self) -> TaskBuilder:
        return TaskBuilder(self.reader.table, raw=self.sample_decoder.raw, checked=self.reader.check == "always")

    def choose_crops(  # noqa: PLR0917
        self,
        crop: Crop,
        rows: Sequence[int] | Ints,
        epoch: int,
        seed: int | None,
        keys: Ints | None = None,
        augment: Augmentation | None = None,
    ) -> Crops:
        """Choose the crops of N rows at random, from seed, epoch and keys; without a seed, from torch's generator.

        By default, `keys` are the rows. If a row occurs several times, different keys give it different crops.

        Returns
        -------
        (N,) array of CROP
            See `packer._images.geometry.CROP`. With `augment` the crops have operations; see
            `packer._images.operations.with_operations`.

        Raises
        ------
        CorruptPackError
            If the pack's table has a height or width of 0 for an image, or a size that the image's bytes contradict.
        ImageError
            If an image is too small for the crop. If a cropped image is too small for `augment`, has too many pixels,
            or needs far too much memory to make.
        """
        self.reader.require_table()
        rows, table = self.reader.positions(rows), self.reader.table
        heights, widths = table.height[rows].astype(np.int64), table.width[rows].astype(np.int64)
        shorter = np.minimum(heights, widths)
        if shorter.min(initial=1) < 1:  # a damaged table may contain this, and a crop would divide by it
            raise self.sample_decoder.impossible_size(table.row(int(rows[shorter.argmin()])))
        if self.sample_decoder.raw:
            for wrong in np.flatnonzero(~are_pixels(table.size[rows], heights, widths))[:1]:
                row = table.row(int(rows[wrong]))
                raise self.sample_decoder.other_size(row, row.size)
        random = rest = None
        if seed is not None:
            randoms = crop.randoms + (0 if augment is None else augment.randoms)
            numbers = uniforms(seed, epoch, rows if keys is None else keys, randoms)
            random, rest = numbers[:, : crop.randoms], numbers[:, crop.randoms :]
        try:
            crops = crop.choose(heights, widths, random)
            if augment is not None:
                crops = with_operations(crops, augment.choose(crops["out_height"], crops["out_width"], rest))
        except ImageError as error:  # the error's `index` is a position in `rows`
            raise self.sample_decoder.named(int(rows[error.index or 0]), error) from error
        for refused in np.flatnonzero(~affordable(crops))[:1]:  # before memory for the result is allocated
            try:
                require_affordable(Box(*crops[refused].item()))
            except ImageError as error:
                raise self.sample_decoder.named(int(rows[refused]), error) from error
        return crops

    def choose_views(
        self, views: Sequence[View], rows: Sequence[int] | Ints, epoch: int, seed: int | None, keys: Ints
    ) -> Crops:
        """Choose the crops for V views of N rows, as `choose_crops` does; return an (N, V) array of CROP.

        Each view has its own seed. The first view is the image that its crop and augmentation would give without other
        views.
        """
        crops = []
        for number, view in enumerate(views):
            own_seed = None if seed is None else seed + number * _BETWEEN_VIEWS
            crops.append(self.choose_crops(view.crop, rows, epoch, own_seed, keys, view.augment))
        return side_by_side(crops)

    def decode_into(
        self,
        rows: Sequence[int] | Ints,
        crops: Crops,
        outs: torch.Tensor | Sequence[torch.Tensor | Sequence[torch.Tensor]],
        numbers: Numbers | None = None,
    ) -> None:
        """Read, decode, crop and resize N images into `outs`; with `numbers`, also convert their pixel values.

        With packer's own decoder, C reads, checks and decodes dozens of images in one call, without Python's lock.
        Damaged images, and images that C does not support, are then read and decoded one by one. Each image is read
        once for all of its views, and C decodes it once.

        Parameters
        ----------
        rows : sequence of N int
            Rows of the pack.
        crops : (N,) array of CROP, or (N, V)
            The result of `choose_crops` or `choose_views`, with or without operations.
        outs : (N, 3, height, width) uint8 tensor or sequence of N (3, height, width) uint8 tensors
            Tensors whose memory is channels last. With views, a sequence of V such tensors or sequences. With
            `numbers`, the tensors have the type and layout of the converted images.
        numbers : Numbers, optional
            The conversion of the uint8 levels to the numbers that the network expects.

        Raises
        ------
        ValueError
            If the type, size or layout of `outs` does not match `crops`, or if a crop extends beyond its image.
        IndexError, CorruptPackError, ImageError
            The same as for ``dataset[index]``.
        """
        prepared = self.prepare(self.reader.positions(rows), crops, len(rows), numbers=numbers)
        decode = prepared.batch(slice(None), outs)
        for start in range(0, len(rows), _TOGETHER):
            decode(slice(start, start + _TOGETHER))

    def prepare(
        self,
        rows: Ints,
        crops: Crops,
        batch: int,
        step: int = _TOGETHER,
        numbers: Numbers | None = None,
    ) -> PreparedImages:
        """Prepare images for decoding in batches of `batch`; the memory of each batch is passed later.

        The rows must come from `Reader.positions`, because they are not checked again.
        """
        if len(rows) != len(crops):
            raise ValueError(f"there are {len(rows)} images, but crops for {len(crops)}")
        of_views = crops if crops.ndim == 2 else crops[:, None]
        tasks = None
        if self.sample_decoder.in_c:
            tasks = NativeTasks(self.reader, self._task_builder, rows, of_views, max(batch, 1), max(step, 1), numbers)
        return PreparedImages(self, rows, of_views, crops.ndim == 2, numbers, tasks)

    def decode_crops(self, rows: Ints, crops: Crops) -> Sequence[Any] | npt.NDArray[np.uint8]:
        """Read, decode, crop and resize N images to (height, width, channels) arrays in the dataset's mode.

        Parameters
        ----------
        rows : (N,) int64 array
            Rows of the pack.
        crops : (N,) array of CROP, or (N, V)
            The same as for `decode_into`.

        Returns
        -------
        (N, height, width, 3) uint8 array, or sequence
            One array if the images are RGB and of equal size; otherwise a sequence of N arrays. With (N, V) crops, a
            sequence of N tuples of V arrays.

        Raises
        ------
        ValueError, CorruptPackError, ImageError
            The same as for `decode_into`.
        """
        of_views = crops if crops.ndim == 2 else crops[:, None]
        if self.mode != "RGB":
            found = zip(self.reader.table.rows(rows), of_views.tolist(), self.reader.read_many(rows), strict=True)
            made = [
                tuple(self.sample_decoder.decode_crop(row, data, Box(*crop)) for crop in views)
                for row, views, data in found
            ]
            return made if crops.ndim == 2 else [image for (image,) in made]
        by_view, outs = zip(*(memory_of(view) for view in of_views.T), strict=True)
        self.decode_into(rows, of_views, outs)
        return list(zip(*by_view, strict=True)) if crops.ndim == 2 else by_view[0]


class PreparedImages(NamedTuple):
    """Images of a pack that `BatchDecoder.prepare` has prepared for decoding in batches.

    Attributes
    ----------
    decoder : BatchDecoder
    rows : (N,) int64 array
        The rows of the pack.
    crops : (N, V) array of CROP
        The crops, with or without operations.
    with_views : bool
        Whether the memory of a batch is a sequence with an entry for each of the V views.
    numbers : Numbers, optional
        The conversion of the uint8 levels to the numbers that the network expects.
    tasks : NativeTasks, optional
        The decode tasks for C; None if C does not support the pack.
    """

    decoder: BatchDecoder
    rows: Ints
    crops: Crops
    with_views: bool
    numbers: Numbers | None
    tasks: NativeTasks | None

    def batch(self, some: slice, outs: Any) -> Callable[[slice], None]:
        """Return a function that decodes the batch `some`, a slice of the images, into `outs`.

        The function takes a slice of the batch, as long as the `step` that was passed to `BatchDecoder.prepare`.
        Several threads may call the function. `outs` are the same as for `decode_into`.
        """
        first, end, _ = some.indices(len(self.rows))
        by_view: Any = outs if self.with_views else [outs]
        if len(by_view) != self.crops.shape[1]:
            raise ValueError(f"there are {len(by_view)} views, but crops for {self.crops.shape[1]}")
        if self.tasks is not None:
            self.tasks.aim(first, end, by_view)
        else:
            for view, out in enumerate(by_view):
                addresses_of(out, self.crops[first:end, view], self.numbers)  # raises an error for unsuitable tensors
        return functools.partial(self._decode, first, end, by_view)

    def _decode(self, first: int, end: int, outs: Sequence[Any], part: slice) -> None:
        """Decode a slice of the batch that consists of the images `first` to `end` - 1."""
        tasks, reader = self.tasks, self.decoder.reader
        start, stop = first + (part.start or 0), min(first + part.stop, end)
        if reader.remote and stop - start > 1:  # one request for all samples, which may be in several files
            reader.ahead(self.rows[start:stop] if tasks is None else self.rows[tasks.order[start:stop]], urgent=True)
        left: Sequence[int] = range((stop - start) * len(outs)) if tasks is None else tasks.decode(start, stop)
        if left:
            images = np.arange(start, stop) if tasks is None else tasks.order[start:stop]
            views = [(int(images[number // len(outs)]), number % len(outs)) for number in left]
            self._decode_views(first, outs, views)

    def _decode_views(self, first: int, outs: Sequence[Any], views: Sequence[tuple[int, int]]) -> None:
        """Read and decode views, each identified by image and view number; `first` is the batch's first image."""
        views_of: dict[int, list[int]] = {}
        for image, view in views:
            views_of.setdefault(image, []).append(view)
        images = list(views_of)
        crops, operations = parted(self.crops[images])
        for number, row, data in self.decoder.reader.read_rows(self.rows[images]):
            for view in views_of[images[number]]:
                some = None if operations is None else operations[number, view]
                out = outs[view][images[number] - first]
                self.decoder.sample_decoder.decode_crop_into(
                    row, data, Box(*crops[number, view].item()), some, out, self.numbers
                )


class NativeTasks:
    """Decode tasks for C, one for each view of N images; C runs several tasks in one call.

    Parameters
    ----------
    reader : Reader
    builder : TaskBuilder
    rows : (N,) int64 array
        The result of `Reader.positions`.
    crops : (N, V) array of CROP
        The crops, with or without operations.
    batch : int
        The number of images in a batch; the last batch may have fewer.
    step : int
        The number of images of a batch that are decoded at a time.
    numbers : Numbers, optional
        The conversion of the uint8 levels to the numbers that the network expects.

    Attributes
    ----------
    order : (N,) int64 array
        The images in the order in which they are decoded: within each `step`, the order of their bytes in the pack.
    """

    def __init__(  # noqa: PLR0917
        self,
        reader: Reader,
        builder: TaskBuilder,
        rows: Ints,
        crops: Crops,
        batch: int,
        step: int,
        numbers: Numbers | None,
    ) -> None:
        self._files = TaskFiles(reader)
        tasks = builder.tasks(rows, crops, batch, step, self._files.one)
        self._files.hold_names(tasks.tasks)
        self._tasks, self._crops = tasks, crops
        self.order, self._sums = tasks.places, tasks.sums.tolist()
        (_, self._views, self._each), size = tasks.operations.shape, tasks.tasks.dtype.itemsize
        self._bytes_of_tasks = size * self._views  # for one image
        self._bytes_of_operations = tasks.operations[:1].nbytes
        self._numbers = numbers
        self._conversion = None if numbers is None else numbers.for_c()  # kept alive, because C gets only addresses
        self._become = LEVELS if self._conversion is None else self._conversion.arguments()

    def aim(self, start: int, end: int, outs: Sequence[torch.Tensor | Sequence[torch.Tensor]]) -> None:
        """Set, for each view, the tensors into which a batch is decoded; raise ValueError if a tensor does not fit."""
        batches = [out for out in outs if isinstance(out, torch.Tensor)]
        if len(batches) == len(outs):
            if not self._tasks.aim(start, end, [results_of(out, end - start, self._numbers) for out in batches]):
                raise ValueError(MISFITS)
            return
        for view, out in enumerate(outs):
            addresses = addresses_of(out, self._crops[start:end, view], self._numbers)
            self._tasks.tasks["out"][start:end, view] = addresses[self.order[start:end] - start]

    def decode(self, start: int, end: int) -> list[int]:
        """Decode the images `start` to `end` - 1 in decoding order; return the views that C did not decode.

        View v of the i-th of these images has the number i * V + v. Call `aim` first.
        """
        # `_held` keeps the files open until C has read from them.
        _held = self._files.held or self._files.locate(self._tasks.tasks[start:end])
        if self._sums[end] - self._sums[start] <= MAX_PIXELS:
            return self._decode(start, end)
        left: list[int] = []
        for first, last in self._calls(start, end):
            left += [(first - start) * self._views + number for number in self._decode(first, last)]
        return left

    def _decode(self, first: int, last: int) -> list[int]:
        tasks = self._tasks.at + first * self._bytes_of_tasks
        operations = self._tasks.operations_at + first * self._bytes_of_operations if self._each else 0
        return _native.decode_into(tasks, (last - first) * self._views, operations, self._each, *self._become)

    def _calls(self, start: int, end: int) -> list[tuple[int, int]]:
        """Divide images among several calls of C, because Ctrl-C has no effect until a call ends.

        For usual images, one call is enough. A call decodes at most as many pixels as two images of the maximum size
        have, which takes a few seconds.
        """
        sums = np.array(self._sums[start + 1 : end + 1]) - self._sums[start]
        ends = np.flatnonzero(np.diff(sums // MAX_PIXELS)) + 1
        return list(itertools.pairwise([start, *(start + ends).tolist(), end]))


MISFITS = "the number or the size of the tensors does not match the crops"
"""The message about tensors that do not fit the crops."""


def memory_of(crops: Crops) -> tuple[Any, Any]:
    """Return memory for the results of N crops, as arrays and tensors; results of equal size share one array."""
    sizes = list(zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True))
    if len(set(sizes)) == 1:
        together = np.empty((len(sizes), *sizes[0], 3), np.uint8)
        return together, torch.from_numpy(together).permute(0, 3, 1, 2)
    images = [np.empty((*size, 3), np.uint8) for size in sizes]
    return images, [torch.from_numpy(image).permute(2, 0, 1) for image in images]


def addresses_of(outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops, numbers: Numbers | None = None) -> Ints:
    """Return the memory addresses of (3, height, width) tensors for images or, with `numbers`, for converted images.

    Raises
    ------
    ValueError
        If a tensor does not have the type, size and layout that the crops and numbers need.
    """
    batches = [outs] if isinstance(outs, torch.Tensor) else [out[None] for out in outs]
    for batch in batches:
        _require_memory(batch, numbers)
    shapes = [tuple(batch.shape[1:]) for batch in batches for _ in range(len(batch))]
    if shapes != list(zip(repeat(3), crops["out_height"].tolist(), crops["out_width"].tolist())):
        raise ValueError(MISFITS)
    addresses = [
        batch.data_ptr() + batch.element_size() * math.prod(batch.shape[1:]) * np.arange(len(batch))
        for batch in batches
    ]
    return np.concatenate(addresses) if addresses else np.zeros(0, np.int64)


def results_of(outs: torch.Tensor, count: int, numbers: Numbers | None) -> Results:
    """Describe the memory of a tensor for `count` images; with `numbers`, the tensor is for converted images.

    The height and width of the images are not checked.

    Raises
    ------
    ValueError
        If the tensor has a wrong type, number of images or layout.
    """
    _require_memory(outs, numbers)
    images, channels, height, width = outs.shape
    if images != count or channels != 3:
        raise ValueError(MISFITS)
    return Results(outs.data_ptr(), 3 * height * width * outs.element_size(), height, width)


def _require_memory(batch: torch.Tensor, numbers: Numbers | None) -> None:
    """Raise ValueError unless an image tensor is safe for C to write into, because C gets only its address."""
    dtype, layout = torch.uint8, torch.channels_last
    if numbers is not None:
        dtype = getattr(torch, numbers.dtype)
        layout = torch.contiguous_format if numbers.planes else torch.channels_last
    sound = batch.device.type == "cpu" and batch.dtype == dtype and batch.dim() == 4
    if not sound or not batch.is_contiguous(memory_format=layout):
        if numbers is None:
            raise ValueError("images can be decoded only into uint8 CPU tensors in the memory format channels_last")
        raise ValueError(
            f"normalized images can be written only into {dtype} CPU tensors in the memory format {layout}"
        )
