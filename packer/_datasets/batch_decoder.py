"""Batches of a pack's images: crops chosen by the table, bytes read, decoded and resized into their places.

Images that are offered to C, which reads, checks and decodes many of them in one call, without Python's lock.

The memory that images are decoded into: made, or given by others and looked at before C writes into it.

Conversions of single pixels, such as ToTensor and Normalize, done by a table: the same numbers in one step.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._formats import Reader
from packer._images import native
from packer._images.decode import decode
from packer._images.extension import _native
from packer._images.geometry import MAX_PIXELS, Box, Crops, affordable, from_corner, require_affordable, touched
from packer._images.masks import cut_image, smooth
from packer._images.modes import decode_as
from packer._images.native import become_in_c
from packer._images.native.records import Locating, Results
from packer._images.numbers import Numbers, write
from packer._images.operations import Operations, parted, side_by_side, with_operations
from packer._images.rectangle import RectangleDecoder, require_channels_last, resize_into
from packer._images.torch_ops import operate
from packer._storage.packfile import NOWHERE
from packer._table import Buffer, Ints, Row, are_pixels
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import CorruptPackError, ImageError, printable
from packer.samplers._random import uniforms

__all__ = [
    "OTHERS",
    "BatchDecoder",
    "Begun",
    "Lookup",
    "Offer",
    "addresses_of",
    "addresses_of_numbers",
    "lookup_of",
    "memory_of",
    "places_of",
    "results_of",
]

_LEVELS = 256


class Lookup:
    """What conversions make of each level of each colour.

    Parameters
    ----------
    table : (3, 256) float32 array
        The number that a level of red, green and blue becomes.
    kind : type
        The class of the result, torch.Tensor or one derived from it.
    conversions : sequence of callable
        What the table does, to be shown.
    planes : bool
        Whether the result is contiguous, or laid out channels last, as the conversions leave it.

    Attributes
    ----------
    table : (3, 256) float32 array
    """

    dtype = "float32"
    """The type of the numbers in a batch, where they are written colour by colour; as those of `Numbers`."""
    planes = True

    def __init__(
        self,
        table: npt.NDArray[np.float32],
        kind: type[torch.Tensor],
        conversions: Sequence[Callable[[Any], Any]],
        *,
        planes: bool,
    ) -> None:
        self.table = table
        self._planes = planes
        self._kind = kind
        self._conversions = conversions

    def __eq__(self, other: object) -> bool:
        """Tell whether another one makes the same of images."""
        return isinstance(other, Lookup) and self._made == other._made

    def __hash__(self) -> int:
        return hash(self._made)

    @property
    def _made(self) -> tuple[object, ...]:
        return self.table.tobytes(), self._kind, self._planes

    def __repr__(self) -> str:
        return ", ".join(" ".join(repr(convert).split()) for convert in self._conversions)

    def __call__(self, pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Return (height, width, 3) uint8 pixels as a (3, height, width) float32 tensor."""
        return self._shown(torch.from_numpy(native.look_up(pixels, self.table, planes=self._planes)))

    def write(self, pixels: npt.NDArray[np.uint8], out: torch.Tensor) -> None:
        """Write (N, height, width, 3) uint8 pixels as numbers into a contiguous (N, 3, height, width) tensor."""
        native.look_up(pixels, self.table, out=out.numpy())

    def images(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Return the images of a batch of numbers, each of the class of the result."""
        return [self._shown(image) for image in numbers.unbind(0)]

    def _shown(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._kind is torch.Tensor else tensor.as_subclass(self._kind)


def lookup_of(conversions: Sequence[Callable[[Any], Any]], shown: Callable[[npt.NDArray[np.uint8]], Any]) -> Any:
    """Return a Lookup that does what conversions do, one after the other; None where no table can.

    Parameters
    ----------
    conversions : sequence of callable
        Each makes of a number another number, whatever its place and neighbours: see `packer.crops._fuse.pointwise`.
    shown : callable
        Gives pixels the form in which the first of them takes images.
    """
    levels = np.repeat(np.arange(_LEVELS, dtype=np.uint8)[None, :, None], 3, 2)
    try:
        image = shown(levels)
        for convert in conversions:
            image = convert(image)
    except Exception:  # which each image would raise as well, and then names itself
        return None
    if not isinstance(image, torch.Tensor) or image.dtype != torch.float32 or image.shape != (3, 1, _LEVELS):
        return None
    return Lookup(
        image.as_subclass(torch.Tensor)[:, 0].contiguous().numpy(),
        type(image),
        conversions,
        planes=image.stride(2) == 1,
    )


OTHERS = "images are decoded into tensors of other sizes, or another number, than the crops say"
"""What is wrong with such tensors."""


def memory_of(crops: Crops) -> tuple[Any, Any]:
    """Return memory for the results of N crops, as arrays and as tensors: one of each where they have one size."""
    sizes = list(zip(crops["out_height"].tolist(), crops["out_width"].tolist(), strict=True))
    if len(set(sizes)) == 1:
        together = np.empty((len(sizes), *sizes[0], 3), np.uint8)
        return together, torch.from_numpy(together).permute(0, 3, 1, 2)
    images = [np.empty((*size, 3), np.uint8) for size in sizes]
    return images, [torch.from_numpy(image).permute(2, 0, 1) for image in images]


def addresses_of(outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops) -> Ints:
    """Return the addresses of (3, height, width) uint8 tensors, whose memory is channels last and what crops need.

    Raises
    ------
    ValueError
        If a tensor is of another kind, size or layout.
    """
    heights, widths = crops["out_height"], crops["out_width"]
    if isinstance(outs, torch.Tensor):
        require_channels_last(outs)
        if outs.shape[:2] != (len(crops), 3) or (heights != outs.shape[2]).any() or (widths != outs.shape[3]).any():
            raise ValueError(OTHERS)
        return outs.data_ptr() + math.prod(outs.shape[1:]) * np.arange(len(crops))
    for out in outs:
        require_channels_last(out[None])
    if [tuple(out.shape) for out in outs] != list(zip(repeat(3), heights.tolist(), widths.tolist())):
        raise ValueError(OTHERS)
    return np.array([out.data_ptr() for out in outs], np.int64)


def addresses_of_numbers(
    outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops, dtype: torch.dtype, planes: bool
) -> Ints:
    """Return the addresses of (3, height, width) tensors of numbers, whose memory is what crops need.

    Raises
    ------
    ValueError
        If a tensor is of another type, size or layout.
    """
    batches = [outs] if isinstance(outs, torch.Tensor) else [out[None] for out in outs]
    for batch in batches:
        _require_numbers(batch, dtype, planes)
    sizes = [(3, height, width) for height, width in zip(crops["out_height"], crops["out_width"], strict=True)]
    if [tuple(image.shape) for batch in batches for image in batch] != sizes:
        raise ValueError(OTHERS)
    size = dtype.itemsize * math.prod(sizes[0]) if sizes else 0
    addresses = [batch.data_ptr() + size * np.arange(len(batch)) for batch in batches]
    return np.concatenate(addresses) if addresses else np.zeros(0, np.int64)


def places_of(outs: torch.Tensor | Sequence[torch.Tensor], crops: Crops, numbers: Lookup | Numbers | None) -> Ints:
    """Return the addresses of the tensors into which images are decoded, or written as numbers; errors as above."""
    if numbers is None:
        return addresses_of(outs, crops)
    return addresses_of_numbers(outs, crops, *_kind_of(numbers))


def results_of(outs: torch.Tensor, count: int, numbers: Lookup | Numbers | None) -> Results:
    """Return the memory of a tensor of `count` images, or of the numbers that they become, whose size is not compared.

    Raises
    ------
    ValueError
        If the tensor is of another type, number or layout.
    """
    if numbers is None:
        require_channels_last(outs)
    else:
        _require_numbers(outs, *_kind_of(numbers))
    images, channels, height, width = outs.shape
    if images != count or channels != 3:
        raise ValueError(OTHERS)
    return Results(outs.data_ptr(), 3 * height * width * outs.element_size(), height, width)


def _kind_of(numbers: Lookup | Numbers) -> tuple[torch.dtype, bool]:
    """Return the type of numbers, and whether those of a colour lie together."""
    return (torch.float32, True) if isinstance(numbers, Lookup) else (getattr(torch, numbers.dtype), numbers.planes)


def _require_numbers(batch: torch.Tensor, dtype: torch.dtype, planes: bool) -> None:
    layout = torch.contiguous_format if planes else torch.channels_last
    sound = batch.device.type == "cpu" and batch.dtype == dtype and batch.dim() == 4
    if not sound or not batch.is_contiguous(memory_format=layout):
        raise ValueError(f"images become numbers in {dtype} tensors of the CPU, whose memory is {layout}")


class Offer:
    """Views of images of some batches, of which C decodes some at a time. What C needs of all is made at once.

    Parameters
    ----------
    reader : Reader
    locating : Locating
    rows : (N,) int64 array
        As `Reader.positions` gives them.
    crops : (N, V) array of CROP
        With operations or without.
    batch : int
        How many images a batch has; the last one may have fewer.
    step : int
        How many images of a batch are decoded at a time.
    numbers : Lookup or Numbers, optional
        What levels become.

    Attributes
    ----------
    places : (N,) int64 array
        The images in the order in which they are decoded: of each `step` that of their bytes.
    """

    def __init__(  # noqa: PLR0917
        self,
        reader: Reader,
        locating: Locating,
        rows: Ints,
        crops: Crops,
        batch: int,
        step: int,
        numbers: Lookup | Numbers | None,
    ) -> None:
        reader.require_table()
        found = reader._one_file()
        self._reader, self._held = reader, found
        file = (-1, 0, 0) if found is None else (found[0].number, *found[1:])
        located = locating.tasks(rows, crops, batch, step, file)
        self._names = reader._hold_names(located.tasks.reshape(-1))
        self._located, self._crops = located, crops
        self.places, self._sums = located.places, located.sums.tolist()
        (_, self._views, self._each), size = located.operations.shape, located.tasks.dtype.itemsize
        self._task = size * self._views  # bytes of an image's tasks
        self._operations = located.operations[:1].nbytes
        self._numbers = numbers
        self._table = numbers.table if isinstance(numbers, Lookup) else None
        self._coded = numbers.coded() if isinstance(numbers, Numbers) else None
        self._become = become_in_c(self._table, self._coded)

    def aim(self, begin: int, end: int, outs: Sequence[torch.Tensor | Sequence[torch.Tensor]]) -> None:
        """Say where the images of a batch go, for each view; ValueError where the tensors are none for them."""
        batches = [out for out in outs if isinstance(out, torch.Tensor)]
        if len(batches) == len(outs):
            if not self._located.aim(begin, end, [results_of(out, end - begin, self._numbers) for out in batches]):
                raise ValueError(OTHERS)
            return
        for view, out in enumerate(outs):
            addresses = places_of(out, self._crops[begin:end, view], self._numbers)
            self._located.tasks["out"][begin:end, view] = addresses[self.places[begin:end] - begin]

    def decode(self, begin: int, end: int) -> list[int]:
        """Decode the images from one place in their order to before another; return the views that are left to others.

        A view's number counts the views of these images. `aim` was called before.
        """
        _held = self._held or self._locate(begin, end)  # keeps files open until C has read from them
        if self._sums[end] - self._sums[begin] <= MAX_PIXELS:
            return self._decode(begin, end)
        left: list[int] = []
        for first, last in self._calls(begin, end):
            left += [(first - begin) * self._views + number for number in self._decode(first, last)]
        return left

    def _decode(self, first: int, last: int) -> list[int]:
        tasks = self._located.at + first * self._task
        operations = self._located.operations_at + first * self._operations if self._each else 0
        return _native.decode_into(tasks, (last - first) * self._views, operations, self._each, *self._become)

    def _locate(self, begin: int, end: int) -> object:
        """Let tasks tell in which files the bytes lie, once; return what is to be kept until they were read."""
        tasks = self._located.tasks[begin:end]
        first = tasks[:, 0].copy()
        held = self._reader._locate_in_files(first)
        tasks["file"] = np.where(tasks["file"] == NOWHERE, NOWHERE, first["file"][:, None])
        tasks["position"] = first["position"][:, None]
        return held

    def _calls(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Divide images among calls of C, as Ctrl-C waits until a call ends.

        One call does for usual images. No call has more pixels than two images of the largest size, some seconds' work.
        """
        sums = np.array(self._sums[begin + 1 : end + 1]) - self._sums[begin]
        ends = np.flatnonzero(np.diff(sums // MAX_PIXELS)) + 1
        return list(itertools.pairwise([begin, *(begin + ends).tolist(), end]))


Begun = Callable[[slice, Any], Callable[[slice], None]]

_TOGETHER = 32  # images whose files are held open at a time, and which C decodes in one call unless they are very large

_BETWEEN_VIEWS = 0xD1B54A32D192ED03
"""What lies between the seeds of an image's views: not so that another seed, or another dataset in a row, has them."""


class BatchDecoder:
    """Decodes images of a pack, many at a time.

    Parameters
    ----------
    reader : packer.Reader
    decoder : {"auto", "turbojpeg", "pyturbojpeg", "opencv", "pillow"}
        As for `packer._images.decode.decode`.
    scaled : bool
        Whether the decoder may halve an image whose crop is at least twice as large as wanted.
    mode : {"RGB", "L", "unchanged"}
        As for `packer._images.modes.decode_as`.
    """

    def __init__(self, reader: Reader, decoder: str = "auto", scaled: bool = False, mode: str = "RGB") -> None:
        self.reader = reader
        self.mode = mode
        self._library = decoder
        self._scaled = scaled
        self._exif, self._raw = reader.manifest.exif, reader.manifest.codec == "raw"
        self._rectangles = RectangleDecoder(self._exif, decoder)
        known = reader.manifest.codec in ("keep", "jpeg", "png")
        self._in_c = native.PREFERRED if self._raw else self._rectangles.native and known

    @functools.cached_property
    def _locating(self) -> Locating:
        checked = self.reader.check == "always"
        return Locating(self.reader.table, raw=self._raw, checked=checked, scaled=self._scaled)

    def choose_crops(  # noqa: PLR0917
        self,
        crop: Crop,
        indices: Sequence[int] | Ints,
        epoch: int,
        seed: int | None,
        keys: Ints | None = None,
        augment: Augmentation | None = None,
    ) -> Crops:
        """Choose the crops of N images: a function of seed, epoch and index, or, without a seed, drawn by torch.

        `keys` take the place of the indices there, so that an image that comes again may get another crop.

        Returns
        -------
        (N,) array of CROP
            See `packer._images.geometry.CROP`. With `augment` the crops have operations; see
            `packer._images.operations.with_operations`.

        Raises
        ------
        CorruptPackError
            If an image has no pixels by its row in the table, or a size that its bytes contradict.
        ImageError
            If an image is too small for the crop, or its result for `augment`, or the result has too many pixels or
            needs far too much memory on the way.
        """
        self.reader.require_table()
        positions, table = self.reader.positions(indices), self.reader.table
        heights, widths = table.height[positions].astype(np.int64), table.width[positions].astype(np.int64)
        shorter = np.minimum(heights, widths)
        if shorter.min(initial=1) < 1:  # a stranger's table; a crop divides by it
            place = int(shorter.argmin())
            raise self._impossible_size(int(positions[place]), int(heights[place]), int(widths[place]))
        if self._raw:
            for wrong in np.flatnonzero(~are_pixels(table.size[positions], heights, widths))[:1]:
                raise self._other_size(int(positions[wrong]), int(table.size[positions[wrong]]))
        random = rest = None
        if seed is not None:
            randoms = crop.randoms + (0 if augment is None else augment.randoms)
            numbers = uniforms(seed, epoch, positions if keys is None else keys, randoms)
            random, rest = numbers[:, : crop.randoms], numbers[:, crop.randoms :]
        try:
            crops = crop.choose(heights, widths, random)
            if augment is not None:
                crops = with_operations(crops, augment.choose(crops["out_height"], crops["out_width"], rest))
        except ImageError as error:  # `index` is its place in the batch
            raise self._naming(int(positions[error.index or 0]), error) from error
        for refused in np.flatnonzero(~affordable(crops))[:1]:  # before there is any memory for it
            try:
                require_affordable(Box(*crops[refused].item()))
            except ImageError as error:
                raise self._naming(int(positions[refused]), error) from error
        return crops

    def choose_views(
        self, views: Sequence[View], indices: Sequence[int] | Ints, epoch: int, seed: int | None, keys: Ints
    ) -> Crops:
        """Choose the crops of V views of N images, (N, V) of CROP, as `choose_crops`: each view has a seed of its own.

        The first view is what the same crop and augmentation give alone, with the same seed.
        """
        seeds = [None if seed is None else seed + number * _BETWEEN_VIEWS for number in range(len(views))]
        return side_by_side(
            [
                self.choose_crops(view.crop, indices, epoch, own, keys, view.augment)
                for view, own in zip(views, seeds, strict=True)
            ]
        )

    def decode_into(
        self,
        indices: Sequence[int] | Ints,
        crops: Crops,
        outs: torch.Tensor | Sequence[torch.Tensor | Sequence[torch.Tensor]],
        numbers: Lookup | Numbers | None = None,
    ) -> None:
        """Read N images, and decode, crop and resize them into their places, where they may become numbers.

        Where packer's own decoder is used, C reads, checks and decodes dozens of images in one call, without Python's
        lock. The images that C leaves, which are of other kinds or damaged, are read and decoded one by one. Each image
        is read once, however many views of it there are, and C decodes it once.

        Parameters
        ----------
        indices : sequence of N int
        crops : (N,) array of CROP, or (N, V)
            As `choose_crops` gives them, or `choose_views`; with operations or without.
        outs : (N, 3, height, width) uint8 tensor or sequence of N (3, height, width) uint8 tensors
            Their memory is channels last. With views, a sequence of V such. With numbers, tensors of their type and
            layout.
        numbers : Lookup or Numbers, optional
            What levels become.

        Raises
        ------
        ValueError
            If `outs` are other tensors than `crops` need, or a rectangle does not lie inside of its image.
        IndexError, CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        decode = self.begun(self.reader.positions(indices), crops, len(indices), numbers=numbers)(slice(None), outs)
        for begin in range(0, len(indices), _TOGETHER):
            decode(slice(begin, begin + _TOGETHER))

    def begun(
        self, positions: Ints, crops: Crops, batch: int, step: int = _TOGETHER, numbers: Lookup | Numbers | None = None
    ) -> Begun:
        """Return what begins with a batch, and then decodes slices of `step` images, on any threads, as `decode_into`.

        What begins with a batch takes which of the images it has, a slice of `batch` images, and their `outs`; what
        decodes takes slices of the batch. What does not depend on threads and outs is done at once for all images.
        The positions, as `Reader.positions` gives them, are believed.
        """
        columns = crops if crops.ndim == 2 else crops[:, None]
        if len(positions) != len(crops):
            raise ValueError(f"{len(positions)} images are to be decoded, and there are crops for {len(crops)}")
        offer = None
        if self._in_c:
            offer = Offer(self.reader, self._locating, positions, columns, max(batch, 1), max(step, 1), numbers)

        def begin(some: slice, outs: torch.Tensor | Sequence[Any]) -> Callable[[slice], None]:
            first, end, _ = some.indices(len(positions))
            by_view: Any = outs if crops.ndim == 2 else [outs]
            if len(by_view) != columns.shape[1]:
                raise ValueError(f"{len(by_view)} views are to be decoded, and there are crops for {columns.shape[1]}")
            if offer is not None:
                offer.aim(first, end, by_view)
            else:
                for view, out in enumerate(by_view):
                    places_of(out, columns[first:end, view], numbers)  # which looks at the tensors

            def decode(part: slice) -> None:
                begin, last = first + (part.start or 0), min(first + part.stop, end)
                if self.reader.remote and last - begin > 1:  # samples of several files are ordered together
                    some = positions[begin:last] if offer is None else positions[offer.places[begin:last]]
                    self.reader.ahead(some, urgent=True)
                left: Sequence[int] = range((last - begin) * len(by_view))
                if offer is not None:
                    left = offer.decode(begin, last)
                if left:
                    places = np.arange(begin, last) if offer is None else offer.places[begin:last]
                    self._decode_left(places - first, left, positions[first:end], columns[first:end], by_view, numbers)

            return decode

        return begin

    def cut(self, rows: Ints, crops: Crops) -> Sequence[Any] | npt.NDArray[np.uint8]:
        """Read N images, and decode, crop and resize them to (height, width, channels) arrays of the mode.

        Parameters and errors are those of `decode_into`. RGB images of one size are one array. With (N, V) crops,
        there is a tuple of V for each image.
        """
        columns = crops if crops.ndim == 2 else crops[:, None]
        if self.mode != "RGB":
            found = zip(rows.tolist(), columns.tolist(), self.reader.read_many(rows), strict=True)
            made = [tuple(self._cut_in_mode(row, data, Box(*crop)) for crop in views) for row, views, data in found]
            return made if crops.ndim == 2 else [image for (image,) in made]
        by_view, outs = zip(*(memory_of(view) for view in columns.T), strict=True)
        self.decode_into(rows, columns, outs)
        return list(zip(*by_view, strict=True)) if crops.ndim == 2 else by_view[0]

    def decode(self, index: int, data: Buffer) -> npt.NDArray[Any]:
        """Decode the stored bytes of a whole image to a (height, width, channels) array of the mode, writable.

        Raises
        ------
        CorruptPackError, ImageError
            As for ``dataset[index]``.
        """
        if self._raw:
            return self._of_raw(self._raw_pixels(index, data))
        try:
            if self.mode == "RGB":
                return decode(data, exif=self._exif, decoder=self._library)
            return decode_as(data, self.mode, exif=self._exif, decoder=self._library)
        except ImageError as error:
            raise self._naming(index, error) from error

    def _cut_in_mode(self, row: int, data: Buffer, box: Box) -> npt.NDArray[Any]:
        """Decode, crop and resize an image to another mode than RGB."""
        try:
            if self._raw:
                return smooth(self._of_raw(self._raw_pixels(row, data)), box)
            size = int(self.reader.table.height[row]), int(self.reader.table.width[row])
            return cut_image(data, size, box, self.mode, exif=self._exif)
        except ImageError as error:
            raise self._naming(row, error) from error

    def _of_raw(self, pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Return stored pixels in the mode; they are unchanged as they are."""
        return np.array(Image.fromarray(pixels).convert("L"))[..., None] if self.mode == "L" else np.array(pixels)

    def _decode_left(  # noqa: PLR0917
        self,
        places: Ints,
        left: Sequence[int],
        positions: Ints,
        crops: Crops,
        outs: Sequence[Any],
        numbers: Lookup | Numbers | None,
    ) -> None:
        """Read and decode the views that C leaves, of the images in some places, one by one."""
        bare, operations = parted(crops)
        views: dict[int, list[int]] = {}  # that are left, by the place of their image
        for number in left:
            views.setdefault(int(places[number // len(outs)]), []).append(number % len(outs))
        rest = list(views)
        for number, row, data in self.reader.read_rows(positions[rest]):
            place = rest[number]
            for view in views[place]:
                some = None if operations is None else operations[place, view]
                self._decode_and_operate(row, data, Box(*bare[place, view].item()), some, outs[view][place], numbers)

    def _decode_and_operate(  # noqa: PLR0917
        self,
        row: Row,
        data: Buffer,
        box: Box,
        operations: Operations | None,
        out: torch.Tensor,
        numbers: Lookup | Numbers | None,
    ) -> None:
        """Decode an image of any kind, operations and numbers included, into a (3, height, width) tensor."""
        pixels = out if numbers is None else torch.empty(*box.out, 3, dtype=torch.uint8).permute(2, 0, 1)
        self._decode_by_itself(row, data, box, pixels[None])
        if operations is not None and native.PREFERRED:
            native.augment(pixels.permute(1, 2, 0).numpy(), operations)
        elif operations is not None:
            operate(pixels[None], operations[None])
        if isinstance(numbers, Lookup):
            numbers.write(pixels[None].permute(0, 2, 3, 1).numpy(), out[None])
        elif numbers is not None:
            write(numbers, pixels[None], out[None], slice(None))

    def _decode_by_itself(self, row: Row, data: Buffer, box: Box, out: torch.Tensor) -> None:
        """Decode an image of any kind, which C was offered before or is not, into a (1, 3, height, width) tensor."""
        try:
            if self._raw:
                top, left, height, width = from_corner(box, touched(box))
                pixels = self._raw_pixels(row.number, data)
                resize_into(pixels[top : top + height, left : left + width], box, out)
            else:
                size = row.height, row.width
                refused = self._in_c and not self._scaled  # of those that may be halved, C was not offered all
                self._rectangles.decode_into(data, size, box, out, self._scaled, refused=refused)
        except ImageError as error:
            raise self._naming(row.number, error) from error

    def _raw_pixels(self, index: int, data: Buffer) -> npt.NDArray[np.uint8]:
        height, width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        if height < 1 or width < 1:
            raise self._impossible_size(index, height, width)
        if not are_pixels(len(data), height, width):
            raise self._other_size(index, len(data))
        return np.frombuffer(data, np.uint8).reshape(height, width, 3)

    def _naming(self, index: int, error: ImageError) -> ImageError:
        """Return an error that names the damaged image."""
        if error.name:
            return error
        name, path = printable(self.reader._name_in_error(index)), printable(self.reader.path)
        return ImageError(error.reason, f"{path}, sample {index % len(self.reader)} ({name})")

    def _impossible_size(self, index: int, height: int, width: int) -> CorruptPackError:
        """Return the error of a row of the table that says a size which no image has."""
        reason = f"its row in the table says {width} x {height} pixels"
        return CorruptPackError(reason, self.reader.path, index % len(self.reader), self.reader._name_in_error(index))

    def _other_size(self, index: int, size: int) -> CorruptPackError:
        """Return the error of pixels of another number than a row of the table says."""
        height, width = int(self.reader.table.height[index]), int(self.reader.table.width[index])
        reason = f"{size} bytes are not {width} x {height} pixels"
        return CorruptPackError(reason, self.reader.path, index, self.reader._name_in_error(index))
