"""Values of the fields of a pack's samples, under the crops of their images: masks, boxes, numbers, texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from packer._fields import PIXELS, Field, Stored
from packer._formats import Reader
from packer._images.geometry import Box, Crops
from packer._images.modes import decode_as
from packer._images.moving import AFFINE, moved
from packer._images.nearest import nearest
from packer._images.operations import Operations
from packer._images.windows import cut_image, cut_mask, decode_mask
from packer._loading.detection import coco_target
from packer._loading.forms import target_in_form
from packer._loading.parts import VISIBILITY, Parts
from packer._table import Ints
from packer.augment._points import moved_boxes, moved_keypoints
from packer.crops._points import Moved, move_boxes, move_keypoints
from packer.errors import ImageError, PackerError, printable, warn

__all__ = ["FieldDecoder", "Values"]

Values = dict[str, Any]
"""Values of one sample by the names of their fields: see `FieldDecoder.values`."""

_LOOKED_AT = 1000  # samples, for the first mask of a pack

_Decode = Callable[["FieldDecoder", Field, Any, tuple[int, int], Box | None], Any]


class FieldDecoder:
    """Gives values of a pack's fields, of many samples at a time.

    Parameters
    ----------
    reader : packer.Reader
    parts : Parts
        Which fields, and what becomes of each.
    library : str
        As for `packer._images.decode.decode`.
    """

    def __init__(self, reader: Reader, parts: Parts, library: str = "auto") -> None:
        self.reader = reader
        self._parts = parts
        self._library = library
        self._exif = reader.manifest.exif
        self._warned: set[str] = set()  # names of fields

    def values(
        self,
        rows: Ints,
        crops: Crops | None,
        operations: Operations | None = None,
        memory: Mapping[str, torch.Tensor | Sequence[torch.Tensor]] | None = None,
        *,
        encoded: bool = False,
    ) -> list[Values]:
        """Return the values of N samples, as they are where their images are cut by crops and moved by operations.

        Parameters
        ----------
        rows : (N,) int64 array
            Places in the pack.
        crops : (N,) array of CROP, optional
            Without them the images are whole.
        operations : (N, M) array of OPERATION, optional
            What is done to the results. Those that move pixels move what the fields say of places; others change
            nothing here.
        memory : mapping of str to N tensors, optional
            Where masks are written, (1, height, width) tensors. Such a mask is among the values only if the dtype of
            the tensor cannot hold it, or there is none.
        encoded : bool
            Whether images and masks are left encoded.

        Returns
        -------
        list of dict
            For each sample the values that `Field.decode` gives, but a mask as a (height, width) array, an image as a
            (height, width, channels) array, and keypoints as (K, P, 2) positions and, under a name of their own,
            (K, P) visibilities; None where there is none.

        Raises
        ------
        CorruptPackError, ImageError
            If a value is damaged; the reason begins with the name of its field.
        """
        self.reader.require_table()
        boxes = [None] * len(rows) if crops is None else [Box(*crop) for crop in crops.tolist()]
        sizes = self.sizes(rows, None)
        found: list[Values] = [{} for _ in range(len(rows))]
        for (name, field), of_field in zip(self._parts.fields.items(), self._stored(rows), strict=True):
            kind = "encoded" if encoded and field.kind in PIXELS else field.kind
            decode: _Decode = _DECODERS.get(kind, FieldDecoder._plain)
            for place, stored in enumerate(of_field):
                try:
                    value = decode(self, field, stored, sizes[place], boxes[place])
                except (ImageError, ValueError) as error:
                    raise self._error(int(rows[place]), name, error) from error
                found[place][name] = value
        if operations is not None and (operations["kind"] == AFFINE).any():
            self._move(rows, found, operations, np.array(self.sizes(rows, crops)))
        for row, values in zip(rows.tolist(), found, strict=True):
            self._keep_in_step(row, values)
        if memory is not None:
            self._write(found, memory)
        return found

    @property
    def makes_targets(self) -> bool:
        """Whether an item is the image and a detector's target."""
        return self._parts.is_target

    def targets(self, rows: Ints, crops: Crops | None, operations: Operations | None = None) -> list[dict[str, Any]]:
        """Return a detector's targets of N samples, whose boxes and masks are cut and moved as the images are.

        Errors are those of `values`.
        """
        found = zip(self.values(rows, crops, operations), self.sizes(rows, None), self.sizes(rows, crops), strict=True)
        targets = []
        for place, (values, before, after) in enumerate(found):
            try:
                target = coco_target(values, before)
            except ValueError as error:
                raise self._error(int(rows[place]), "segmentation", error) from error
            if "masks" in target and (crops is not None or operations is not None):
                masks = list(target["masks"].numpy())
                if crops is not None:
                    box = Box(*crops[place].item())
                    masks = [nearest(mask, box) for mask in masks]
                if operations is not None:
                    masks = [moved(mask, operations[place], 0) for mask in masks]
                target["masks"] = torch.from_numpy(np.array(masks, np.uint8).reshape(-1, *after))
            targets.append(target_in_form(target, after) if self._parts.wrapped else target)
        return targets

    @property
    def with_images(self) -> bool:
        """Whether an item has the sample's own image."""
        return "image" in self._parts.names

    def sizes(self, rows: Ints, crops: Crops | None) -> list[tuple[int, int]]:
        """Return heights and widths of the images of N samples, as they are in the items."""
        table = self.reader.table
        heights, widths = (table.height[rows], table.width[rows]) if crops is None else _windows(crops)
        return list(zip(heights.tolist(), widths.tolist(), strict=True))

    def samples(
        self,
        rows: Ints,
        labels: Sequence[Any],
        crops: Crops | None,
        operations: Operations | None = None,
        memory: Mapping[str, torch.Tensor | Sequence[torch.Tensor]] | None = None,
        *,
        encoded: bool = False,
    ) -> list[Values]:
        """Return what `values` gives, and the label, the name and the index in the pack of each sample."""
        found = self.values(rows, crops, operations, memory, encoded=encoded)
        for row, label, values in zip(rows.tolist(), labels, found, strict=True):
            values["label"], values["index"] = label, row
            if "name" in self._parts.names:
                values["name"] = self.reader.names.get(row)
        return found

    def dtype_of(self, name: str) -> str:
        """Return the dtype of the first mask of a field, whose blobs are images of one channel; uint8 without one."""
        sizes = self.reader.table.more[f"field.{name}.size"][:_LOOKED_AT]
        for row in np.flatnonzero(sizes > 0)[:1]:
            with contextlib.suppress(PackerError):  # which whoever comes to that sample is told
                mask = decode_mask(self.reader.blobs(np.array([row]), name)[0] or b"")
                return str(mask.dtype)
        return "uint8"

    def _stored(self, rows: Ints) -> Iterator[Sequence[Stored]]:
        """Yield what the pack holds of each field."""
        names = [name for name, field in self._parts.fields.items() if field.is_blob]
        blobs = iter(self.reader.blobs_of(rows, names))
        for name, field in self._parts.fields.items():
            if field.is_blob:
                yield next(blobs)
                continue
            values, present = self.reader._values_of(rows, name)
            numbers = zip(values.tolist(), present.tolist(), strict=True)
            yield [value if there else None for value, there in numbers]

    def _move(self, rows: Ints, found: list[Values], operations: Operations, sizes: Ints) -> None:
        """Move masks, further images, boxes and keypoints as operations move the images of these sizes."""
        for name, field in self._parts.fields.items():
            values = [of_sample[name] for of_sample in found]
            if field.kind == "boxes":
                values = moved_boxes(values, operations, sizes, min_visible=self._parts.min_visible)
            elif field.kind == "keypoints":
                values = moved_keypoints(values, operations, sizes)
            elif field.kind in ("mask", "image"):
                fill = (self._parts.fill.get(name) or 0) if field.kind == "mask" else None
                for place, pixels in enumerate(values):
                    try:
                        values[place] = None if pixels is None else moved(pixels, operations[place], fill)
                    except ValueError as error:
                        raise self._error(int(rows[place]), name, error) from error
            for of_sample, value in zip(found, values, strict=True):
                of_sample[name] = value

    def _keep_in_step(self, row: int, values: Values) -> None:
        """Leave out the entries of those boxes that were left out, and name keypoints and visibilities."""
        kept = {name: one.kept for name, one in values.items() if isinstance(one, Moved)}
        for name, of in (self._parts.per_box or {}).items():
            if values.get(name) is None or of not in kept:
                continue
            if len(values[name]) != len(kept[of]):
                reason = f"{len(values[name])} entries, and {of!r} has {len(kept[of])} boxes"
                raise self._error(row, name, ValueError(reason))
            values[name] = _of_boxes(values[name], kept[of])
        self._warn_of_whole(values, kept)
        for name in kept:
            values[name] = values[name].boxes
        for name, field in self._parts.fields.items():
            if field.kind == "keypoints":
                points = values[name]
                values[name] = None if points is None else np.ascontiguousarray(points[..., :2])
                values[name + VISIBILITY] = None if points is None else np.ascontiguousarray(points[..., 2])

    def _warn_of_whole(self, values: Values, kept: Mapping[str, npt.NDArray[np.bool_]]) -> None:
        """Warn once of a list that keeps all entries where boxes were left out, and has as many as there were boxes."""
        for name, field in self._parts.fields.items():
            if field.kind not in ("labels", "array", "keypoints") or name in (self._parts.per_box or {}):
                continue
            value = values.get(name)
            for boxes, own in kept.items():
                alike = value is not None and np.ndim(value) > 0 and len(value) == len(own) > 1
                if alike and not own.all() and name not in self._warned:
                    self._warned.add(name)
                    warn(
                        f"the crop leaves out some of {boxes!r}, and {name!r} keeps all entries, as many as there were "
                        f"boxes: if each belongs to a box, say so with per_box=({name!r}, ...)"
                    )

    def _write(self, found: list[Values], memory: Mapping[str, torch.Tensor | Sequence[torch.Tensor]]) -> None:
        for name in self._parts.masks:
            for values, out in zip(found, memory.get(name, ()), strict=name in memory):
                mask, to = values[name], out.numpy()[0]
                if mask is not None and np.can_cast(mask.dtype, to.dtype, "safe"):
                    to[:] = values.pop(name)

    def _error(self, row: int, name: str, error: Exception) -> ImageError:
        """Return the error of a value, which names its sample."""
        reason = error.reason if isinstance(error, ImageError) else str(error)
        where = f"{printable(self.reader.path)}, sample {row} ({printable(self.reader._name_in_error(row))})"
        return ImageError(f"field {name!r}: {reason}", where)

    def _plain(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        return self._parts.fill.get(field.name) if stored is None else field.decode(stored)

    def _encoded(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        return None if stored is None else bytes(stored)

    def _mask(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        fill = self._parts.fill.get(field.name)
        if stored is None:
            shape = size if box is None else box.out
            return None if fill is None else np.full(shape, fill, np.min_scalar_type(fill))
        if box is None:
            return decode_mask(stored, size=size)
        return cut_mask(stored, size, box, fill=fill or 0)

    def _image(self, field: Field, stored: Any, size: tuple[int, int], box: Box | None) -> Any:
        mode = self._parts.modes[field.name]
        if stored is None:
            return None
        if box is None:
            return decode_as(stored, mode, exif=self._exif, decoder=self._library)
        return cut_image(stored, size, box, mode, exif=self._exif)

    def _boxes(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        boxes = self._plain(field, stored, size, box)
        if boxes is None:
            return None
        if box is None:
            return Moved(boxes, np.ones(len(boxes), bool))
        return move_boxes(boxes, box, min_visible=self._parts.min_visible)

    def _keypoints(self, field: Field, stored: Stored, size: tuple[int, int], box: Box | None) -> Any:
        points = self._plain(field, stored, size, box)
        return points if points is None or box is None else move_keypoints(points, box)


_DECODERS: Mapping[str, _Decode] = {
    "encoded": FieldDecoder._encoded,
    "mask": FieldDecoder._mask,
    "image": FieldDecoder._image,
    "boxes": FieldDecoder._boxes,
    "keypoints": FieldDecoder._keypoints,
}


def _windows(crops: Crops) -> tuple[Ints, Ints]:
    return crops["out_height"], crops["out_width"]


def _of_boxes(values: Any, kept: npt.NDArray[np.bool_]) -> Any:
    """Return the entries of those boxes that are kept, of an array or of a list."""
    if isinstance(values, np.ndarray):
        return values[kept]
    return [value for value, keep in zip(values, kept.tolist(), strict=True) if keep]
