"""N5 (https://github.com/saalfeldlab/n5): a directory of arrays, see `packer._containers.arrays.n5arrays`.

Images are recognised in four layouts. A group is a directory of arrays, whose rows belong together:

==================  ===========================================================================================
``data`` (uint8)    encoded images one after the other, and ``offsets`` (N integers): where in it each one begins.
                    With ``sizes`` (N integers) there may be something between them; packer's own groups leave the
                    rest of a block empty where the next image would not fit into it. Without ``sizes`` there are N + 1
                    offsets. Names may stand in ``names`` (uint8, UTF-8) and ``name_ends`` (N integers).
N blocks of 1       (uint8) the bytes of an encoded image each, in mode 1
N x H x W x 3       (uint8) pixels; also N x 3 x H x W
N x H x W           (uint8) grey pixels
==================  ===========================================================================================

The array ``labels``, or ``label``, ``targets``, ``y``, has the labels, and every other array of N rows becomes a field.
Attributes of the group or of the labels may name the ``classes``.

A sample is a range of a block's file where the blocks are raw and a block has all of it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packer._containers.arrays.n5arrays import ATTRIBUTES, Array, read_attributes
from packer._containers.arrays.n5group import Group, Rows
from packer._containers.contract import Container, Entry
from packer._fields import Field, Stored
from packer._sample import UNLABELED
from packer.errors import OptionError

__all__ = ["N5"]

_LOOKED_AT = 64  # directories by which a group is known that has no attributes


@dataclass(eq=False)
class N5(Container):
    """A group of arrays, or one array.

    Attributes
    ----------
    rows : Rows
    """

    rows: Rows = field(kw_only=True)

    kind = "n5"

    units_are_files = False  # but steps through the images, each of which may lie in several blocks

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return False

    @classmethod
    def recognise_directory(cls, path: Path, names: Collection[str]) -> list[Path] | None:
        attributes = read_attributes(path) if ATTRIBUTES in names else None
        if attributes is not None and ("n5" in attributes or Array.are_of_one(attributes)):
            return [path]
        below = [path / name for name in sorted(names)[:_LOOKED_AT]]
        found = any(Array.are_of_one(read_attributes(one)) for one in below if os.path.isfile(one / ATTRIBUTES))
        return [path] if found else None

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> N5:
        if len(paths) != 1:
            raise OptionError(f"N5 is read one directory at a time, and these are {len(paths)}")
        if "name" in keys:
            raise OptionError("--key name: the arrays of N5 hold no text; samples are called by their numbers")
        group = Group.at(paths[0])
        rows = group.rows(keys)
        labels = rows.labels
        is_float = labels is not None and labels.dtype.kind == "f" and not group.has_gaps(labels)
        return cls(
            group.root,
            rows.images.array.files,
            tuple(rows.columns),
            rows.classes,
            "float" if is_float else "class",
            rows.images.pixels,
            [rows.images.note] * bool(rows.images.note),
            account=group.account,
            rows=rows,
        )

    @property
    def units(self) -> int:
        return -(-self.rows.images.count // self.rows.images.step)

    def entries(self, unit: int) -> Iterator[Entry]:
        images = self.rows.images
        start = unit * images.step
        stop = min(start + images.step, images.count)
        digits = len(str(images.count - 1))
        names, labels = self._names(start, stop), self._labels(start, stop)
        columns = [_stored(field, array, start, stop) for field, array in self.rows.columns.items()]
        values = zip(*columns, strict=True) if columns else itertools.repeat(())
        of_fields = [field.name for field in self.fields]
        for number, (image, suffix), label, stored in zip(
            range(start, stop), images.between(start, stop), labels, values, strict=False
        ):
            name = next(names, "") or f"{number:0{digits}d}{suffix}"
            yield Entry(name, image, label, dict(zip(of_fields, stored, strict=True)), images.shape)

    def _labels(self, start: int, stop: int) -> list[Any]:
        """Return labels; None where there is none."""
        labels = self.rows.labels
        if labels is None:
            return [None] * (stop - start)
        found = labels.rows(start, stop).tolist()
        if self.label_type == "float":
            return [None if math.isnan(label) else label for label in found]
        return [None if math.isnan(label) or label == UNLABELED else int(label) for label in found]

    def _names(self, start: int, stop: int) -> Iterator[str]:
        """Yield names; none where nobody wrote them."""
        if self.rows.names is None:
            return
        names, ends = self.rows.names
        limits = ends.rows(max(0, start - 1), stop).tolist()
        if not start:
            limits = [0, *limits]
        if limits != sorted(limits) or not 0 <= limits[0] <= limits[-1] <= len(names):
            raise ends.error(f"damaged: the names from {start} on do not lie one after the other")
        text = names.rows(limits[0], limits[-1]).tobytes()
        for begin, end in itertools.pairwise(limits):
            yield text[begin - limits[0] : end - limits[0]].decode("utf-8", "surrogateescape")


def _stored(field: Field, array: Array, start: int, stop: int) -> list[Stored]:
    """Return the values of rows as a pack holds them."""
    rows = array.rows(start, stop)
    try:
        if field.dtype.startswith("float") and field.kind == "scalar":
            return [None if math.isnan(value) else field.encode(value) for value in rows.tolist()]  # which is no number
        return [field.encode(value) for value in (rows if field.rank else rows.tolist())]
    except ValueError as error:
        raise array.error(f"rows {start} to {stop}: {error}") from error
