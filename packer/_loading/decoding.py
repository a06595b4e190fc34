"""Batches of a pack's images: crops chosen by the table, bytes read, decoded and resized into their places."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._formats import Reader
from packer._images import native
from packer._images.decode import decode
from packer._images.geometry import Box, Crops, affordable, from_corner, require_affordable, touched
from packer._images.modes import decode_as
from packer._images.native.locating import Locating
from packer._images.numbers import Numbers, write
from packer._images.operations import Operations, parted, side_by_side, with_operations
from packer._images.rectangle import RectangleDecoder, resize_into
from packer._images.tensors import operate
from packer._images.windows import cut_image, smooth
from packer._loading.lookup import Lookup
from packer._loading.offering import Offer
from packer._loading.placing import memory_of, places_of
from packer._table import Buffer, Ints, Row, are_pixels
from packer.augment import Augmentation, View
from packer.crops import Crop
from packer.errors import CorruptPackError, ImageError, printable
from packer.samplers._uniforms import uniforms

__all__ = ["BatchDecoder", "Begun"]


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
