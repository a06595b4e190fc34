"""Whether the values of fields are what their kinds are, and fit the image that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._conversion.segmentation import require_size_of_runs
from packer._fields import MARGIN, PIXELS, Field
from packer._formats import Reader
from packer._images.probe import inspect
from packer._packs.damage import Damage, blobs_or_errors
from packer._table import NO_VALUE, Buffer, spans
from packer.errors import CorruptPackError, ImageError, PackError

__all__ = ["blob_problem", "wrong_blobs", "wrong_rows"]

Wrong = npt.NDArray[np.bool_]


def wrong_rows(reader: Reader, field: Field) -> Iterator[Damage]:
    """Yield the rows of a field's columns that no sample may have."""
    columns = [reader.table.stored(column) for column in field.columns()]
    tells, reason = _ROWS.get(field.kind, _ROWS["blob"])(field)
    for part in spans(len(reader)):
        for place in np.flatnonzero(tells(*(column[part] for column in columns))).tolist():
            index = part.start + place
            numbers = tuple(column[index].item() for column in columns)
            what = f"field {field.name!r}: {reason.format(*numbers)}"
            yield Damage(what, index, reader._name_in_error(index), field.name)


def _scalar_rows(field: Field) -> tuple[Callable[..., Wrong], str]:
    def tells(values: npt.NDArray[np.generic], missing: npt.NDArray[np.uint8]) -> Wrong:
        wrong = missing > 1
        if field.dtype == "bool":
            wrong |= (missing == 0) & (values > 1)  # type: ignore[operator]
        elif values.dtype.kind == "f":
            wrong |= (missing == 0) & np.isnan(values)
        return np.asarray(wrong)

    return tells, f"its row in the table says {{0}} and {{1}}, which is no {field.dtype} and no missing one"


def _class_rows(field: Field) -> tuple[Callable[..., Wrong], str]:
    def tells(ids: npt.NDArray[np.int64]) -> Wrong:
        return np.asarray((ids != NO_VALUE) & ~field.knows(ids))

    return tells, "{0} is no id of its classes"


def _blob_rows(field: Field) -> tuple[Callable[..., Wrong], str]:
    def tells(sizes: npt.NDArray[np.int64], checksums: npt.NDArray[np.uint32]) -> Wrong:
        return np.asarray((sizes < NO_VALUE) | ((sizes == NO_VALUE) & (checksums != 0)))

    return tells, "its row in the table says {0} bytes and the checksum {1}"


_ROWS = {"scalar": _scalar_rows, "class": _class_rows, "blob": _blob_rows}


def wrong_blobs(reader: Reader, indices: range) -> Iterator[tuple[int, Field, PackError]]:
    """Yield the values of some samples that cannot be read, or are none of their fields' kinds, and the errors."""
    table, exif = reader.table, reader.manifest.exif
    for field in reader.fields.values():
        if not field.is_blob:
            continue
        for index, blob in blobs_or_errors(reader, indices, field.name):
            if isinstance(blob, PackError):
                yield index, field, blob
            elif blob is not None:
                problem = blob_problem(field, blob, int(table.height[index]), int(table.width[index]), exif)
                if problem is not None:
                    reason = f"field {field.name!r}: {problem}"
                    yield index, field, CorruptPackError(reason, reader.path, index, reader._name_in_error(index))


def blob_problem(field: Field, blob: Buffer, height: int, width: int, exif: str = "ignore") -> str | None:
    """Say why some bytes are no value of a field, of a sample whose image has such a size; None where they are one.

    A further image and a mask are looked at as a conversion looks at an image. Both have the size of the image, and so
    has the mask of run lengths; a further image, after it is turned where `exif` is ``"apply"``. Boxes and the visible
    keypoints lie in the image, or up to `MARGIN` beside the image.
    """
    if field.kind in PIXELS:
        return _pixels_problem(field, blob, (height, width), exif)
    problem, fits = field.misfit(blob), _FITS.get(field.kind)
    return fits(field.decode(blob), height, width) if problem is None and fits is not None else problem


def _pixels_problem(field: Field, blob: Buffer, size: tuple[int, int], exif: str) -> str | None:
    try:
        info = inspect(blob)
    except ImageError as error:
        return error.reason
    found = (info.height, info.width) if field.kind == "mask" else info.size_shown(exif)
    if found == size:
        return None
    what = "a mask" if field.kind == "mask" else "an image"
    return f"{what} of {found[1]} x {found[0]} pixels, and its image has {size[1]} x {size[0]}"


def _runs_problem(segmentations: Sequence[Any], height: int, width: int) -> str | None:
    try:
        require_size_of_runs(segmentations, (height, width))
    except ImageError as error:
        return error.reason
    return None


def _boxes_problem(boxes: npt.NDArray[np.float32], height: int, width: int) -> str | None:
    wrong = (boxes[:, :2] < -MARGIN) | (boxes[:, 2:] > (width + MARGIN, height + MARGIN))
    for box in boxes[wrong.any(axis=1)][:1].tolist():
        return f"the box {box} (x y x y) does not lie in the image, which has {width} x {height} pixels"
    return None


def _keypoints_problem(keypoints: npt.NDArray[np.float32], height: int, width: int) -> str | None:
    points = keypoints.reshape(-1, 3)
    places = points[points[:, 2] > 0, :2]
    wrong = (places < -MARGIN) | (places > (width + MARGIN, height + MARGIN))
    for x, y in places[wrong.any(axis=1)][:1].tolist():
        return f"the visible keypoint at {x:g}, {y:g} does not lie in the image, which has {width} x {height} pixels"
    return None


_FITS: Mapping[str, Callable[[Any, int, int], str | None]] = {
    "boxes": _boxes_problem,
    "keypoints": _keypoints_problem,
    "segmentation": _runs_problem,
}
