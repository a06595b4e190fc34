"""Decoding of one image of a pack: its crop is chosen, cut, resized and augmented; errors name the sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from packer._formats import Reader
from packer._images import native
from packer._images.decode import decode
from packer._images.geometry import MAX_PIXELS, Box, from_corner, require_affordable, touched
from packer._images.masks import cut_image, smooth
from packer._images.modes import decode_as
from packer._images.numbers import Numbers
from packer._images.operations import Operations
from packer._images.rectangle import RectangleDecoder, resize_into
from packer._images.torch_ops import operate
from packer._table import Buffer, Row, are_pixels
from packer.augment import Augmentation
from packer.crops import Crop
from packer.errors import CorruptPackError, ImageError

Pixels = npt.NDArray[Any]


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
        self._cuts_in_c = self.in_c and mode == "RGB"

    def choose(
        self, crop: Crop, augment: Augmentation | None, row: Row, random: npt.NDArray[np.float64] | None
    ) -> tuple[Box, Operations | None]:
        """Choose the crop of one image, and the (1, M) operations on the result of the crop.

        Parameters
        ----------
        random : (randoms,) float64 array, optional
            Random numbers, uniform in [0, 1); None draws them from torch's generator.

        Raises
        ------
        CorruptPackError
            If, by its row in the table, the image has no pixels, or a size that its bytes contradict.
        ImageError
            If the image is too small for the crop, the result of the crop is too small for `augment`, or the result has
            too many pixels or needs far too much memory while it is made.
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

    def whole(self, row: Row, data: Buffer) -> Pixels:
        """Decode the stored bytes of a whole image to a writable (height, width, channels) array of the mode.

        Raises
        ------
        CorruptPackError, ImageError
            The same as for ``dataset[index]``.
        """
        if self.raw:
            return self._in_mode(self._raw_pixels(row, data))
        # Images that this leaves, for another size or damage, go to the chosen library: the pixels are the same.
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

    def cut(self, row: Row, data: Buffer, box: Box, operations: Operations | None = None) -> Pixels:
        """Decode, crop and resize one image to a (height, width, channels) array of the mode, and augment it.

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
            return self._cut_in_mode(row, data, box)
        out = np.empty((box.out_height, box.out_width, 3), np.uint8)
        if self._cuts_in_c:
            size = row.height, row.width
            if native.decode_one(data, size, box, out.ctypes.data, self.raw, operations):
                return out
        self.cut_into(row, data, box, operations, torch.from_numpy(out).permute(2, 0, 1))
        return out

    def cut_into(  # noqa: PLR0917
        self,
        row: Row,
        data: Buffer,
        box: Box,
        operations: Operations | None,
        out: torch.Tensor,
        numbers: Numbers | None = None,
    ) -> None:
        """Decode an image that C does not support into a (3, height, width) tensor, with operations and numbers."""
        pixels = out if numbers is None else torch.empty(*box.out, 3, dtype=torch.uint8).permute(2, 0, 1)
        self._cut_by_library(row, data, box, pixels[None])
        if operations is not None and native.PREFERRED:
            native.augment(pixels.permute(1, 2, 0).numpy(), operations.reshape(-1))
        elif operations is not None:
            operate(pixels[None], operations.reshape(1, -1))
        if numbers is not None:
            numbers.write(pixels[None], out[None])

    def named(self, index: int, error: ImageError) -> ImageError:
        """Return the error with the index and name of the image."""
        if error.name:
            return error
        return ImageError(error.reason, self.reader.describe(index))

    def impossible_size(self, row: Row) -> CorruptPackError:
        """Return the error for a row of the table with a size that no image can have."""
        return self.reader.corrupt(row.number, f"its row in the table says {row.width} x {row.height} pixels")

    def other_size(self, row: Row, size: int) -> CorruptPackError:
        """Return the error for pixels whose number differs from that in their row of the table."""
        return self.reader.corrupt(row.number, f"{size} bytes are not {row.width} x {row.height} pixels")

    def _cut_in_mode(self, row: Row, data: Buffer, box: Box) -> Pixels:
        """Decode, crop and resize an image to another mode than RGB."""
        try:
            if self.raw:
                return smooth(self._in_mode(self._raw_pixels(row, data)), box)
            return cut_image(data, (row.height, row.width), box, self.mode, exif=self._exif)
        except ImageError as error:
            raise self.named(row.number, error) from error

    def _cut_by_library(self, row: Row, data: Buffer, box: Box, out: torch.Tensor) -> None:
        """Use a library to decode an image that C did not decode into a (1, 3, height, width) tensor."""
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
