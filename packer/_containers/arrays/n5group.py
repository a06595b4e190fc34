"""Which arrays of an N5 group are its images, labels and fields."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packer._account import Account, has_label_name, is_label_name
from packer._containers.arrays.n5arrays import Array, read_attributes
from packer._containers.arrays.n5images import Images, images_of
from packer._containers.chosen import Chosen, ChosenField
from packer._containers.numericlabels import are_whole
from packer._fields import Field
from packer._storage.paths import name_problem
from packer.errors import OptionError, SourceError, printable

__all__ = ["Group", "Rows"]

_LABELS = ("labels", "label", "targets", "y")
_STEP = 1 << 16  # labels that are looked at together
_OF_DATA = {"offsets", "sizes", "names", "name_ends"}
_OF_NUMBERS, _OF_ROWS = ("scalar", "class"), ("array", "labels", "boxes", "keypoints")
_DTYPES = {"i1": "int8", "i2": "int16", "i4": "int32", "u1": "uint8", "u2": "uint16", "f4": "float32", "f8": "float64"}
_SIGNED = {"uint8": "int16", "uint16": "int32"}  # scalars have a sign
_NO_IMAGES = "no array of images that packer reads: N x H x W x 3 uint8, a block an image, or data and offsets"


@dataclass(frozen=True, eq=False)
class Rows:
    """The arrays whose rows belong together.

    Attributes
    ----------
    images : Images
    labels : Array, optional
    names : (Array, Array), optional
        The bytes of all names, and where each one ends.
    columns : dict of Field to Array
    classes : list of str, optional
    """

    images: Images
    labels: Array | None
    names: tuple[Array, Array] | None
    columns: Mapping[Field, Array]
    classes: list[str] | None


class Group:
    """The arrays below a directory, opened when they are asked for.

    Attributes
    ----------
    root : Path
    account : Account
        What became of the arrays.
    """

    def __init__(self, root: Path, only: str | None = None) -> None:
        self.root, self.account = root, Account()
        self._only = only
        self._chooses = False  # whether keys say what is wanted
        self._arrays: dict[str, Array | None] = {}

    @classmethod
    def at(cls, path: Path) -> Group:
        """Return the group in a directory; an array alone is a group of one."""
        if Array.are_of_one(read_attributes(path)):
            return cls(path.parent, path.name)
        return cls(path)

    def array(self, name: str) -> Array | None:
        """Return an array by its path; None where there is none."""
        if name not in self._arrays:
            attributes = None if name_problem(name) else read_attributes(self.root / name)
            there = attributes is not None and Array.are_of_one(attributes)
            self._arrays[name] = Array(self.root, name, attributes) if there and attributes else None
        return self._arrays[name]

    def _require(self, name: str, key: str) -> Array:
        """Return an array that a person named."""
        array = self.array(name)
        if array is None:
            raise SourceError(f"{printable(self.root)}: --key {key}={printable(name)}: there is no such array in it")
        return array

    def names(self) -> list[str]:
        """Return the names of all arrays and groups in the directory."""
        if self._only is not None:
            return [self._only]
        return sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir(follow_symlinks=False))

    def rows(self, keys: Mapping[str, str]) -> Rows:
        """Return the arrays that keys name; without any, all that belong together.

        Raises
        ------
        SourceError
            If an array is not there, or has another number of rows; or if it is not clear which one has the images.
        OptionError
            If a key cannot be what it should become.
        """
        chosen, self._chooses = Chosen.of(keys), bool(keys)
        images = self._only_images() if chosen.image is None else self._named_images(chosen.image)
        labels, columns = self._named_columns(images, chosen) if keys else self._all_columns(images)
        if labels is not None and len(labels.shape) != 1:
            raise labels.error(f"labels are numbers, and these have {len(labels.shape)} dimensions")
        return Rows(images, labels, self._names_of(images), columns, self._classes(labels))

    @staticmethod
    def has_gaps(labels: Array) -> bool:
        """Tell whether floats are the numbers of classes, with NaN where an image has none."""
        parts = (labels.rows(start, min(start + _STEP, len(labels))) for start in range(0, len(labels), _STEP))
        return are_whole(parts) == (True, True)

    def _named_images(self, name: str) -> Images:
        """Return the images in an array that a person named."""
        images = self._images(self._require(name, "image"))
        if images is None:
            raise SourceError(f"{printable(self.root / name)}: {_NO_IMAGES}")
        return images

    def _only_images(self) -> Images:
        """Return the images of the group."""
        names = self.names()
        found = {}
        for name in names:
            array = self._readable(name)
            images = None if array is None or name in _OF_DATA else self._images(array)
            if images is not None:
                found[name] = images
        if len(found) != 1:
            what = f"images are in several arrays: {', '.join(map(printable, found))}" if found else _NO_IMAGES
            below = "" if found else f". There are {', '.join(map(printable, names[:9]))}" if names else ""
            raise SourceError(f"{printable(self.root)}: {what}. --key image=NAME names an array{below}")
        (images,) = found.values()
        return images

    def _named_columns(self, images: Images, chosen: Chosen) -> tuple[Array | None, dict[Field, Array]]:
        labels = None if chosen.label is None else self._require(chosen.label, "label")
        columns = {field: self._require(field.key, field.name) for field in chosen.fields}
        arrays = [*columns.values(), *([] if labels is None else [labels])]
        for array in arrays:
            if len(array) != images.count:
                raise array.error(f"has {len(array)} rows, and there are {images.count} images")
        taken = {images.array.name, *(array.name for array in arrays)}
        left = [name for name in self.names() if name not in taken | _OF_DATA]
        if left:
            self.account.left_out("array", "no --key names it", left, chosen=True)
        return labels, {_field(field, array): array for field, array in columns.items()}

    def _all_columns(self, images: Images) -> tuple[Array | None, dict[Field, Array]]:
        arrays = {}
        for name in self.names():
            array = self._readable(name)
            if array is None or array is images.array or (name in _OF_DATA and len(images.array.shape) == 1):
                continue
            if len(array) == images.count:
                arrays[name] = array
                continue
            rows = f"it has {len(array):,} rows for {images.count:,} images"
            self.account.left_out("array", rows, [name])
            if has_label_name(name):
                self.account.looks_like_labels("array", name, "", rows)
        label = self._label_among(arrays)
        columns = {}
        for name, array in arrays.items():
            if array is label:
                continue
            try:
                columns[_field(ChosenField(name, "", name), array)] = array
            except OptionError as error:
                self.account.left_out("array", str(error), [name])
        return label, columns

    def _label_among(self, arrays: Mapping[str, Array]) -> Array | None:
        """Return the array of labels, by what it is called; None where nobody can tell."""
        able = [name for name, array in arrays.items() if len(array.shape) == 1]
        known = [name for name in _LABELS if name in able] or [name for name in able if is_label_name(name)]
        if known and (len(known) == 1 or known[0] in _LABELS):
            self.account.taken("array", "the label", [known[0]])
            self.account.candidates.clear()
            return arrays[known[0]]
        for name in filter(has_label_name, arrays):
            why = "" if name in able else f"has {len(arrays[name].shape)} dimensions"
            self.account.looks_like_labels("array", name, f"--key label={name}" if name in able else "", why)
        return None

    def _names_of(self, images: Images) -> tuple[Array, Array] | None:
        """Return the arrays of names beside encoded images."""
        names, ends = (self._sibling(images.array, name) for name in ("names", "name_ends"))
        if images.pixels is not None or names is None or ends is None:
            return None
        if (
            names.dtype.str != "|u1"
            or len(names.shape) != 1
            or ends.shape != (images.count,)
            or ends.dtype.kind not in "iu"
        ):
            raise names.error(f"they are not the names of {images.count} images")
        return names, ends

    def _classes(self, labels: Array | None) -> list[str] | None:
        """Return the names of the classes, where attributes of the group or of the labels have them."""
        if labels is None:
            return None
        for path in (labels.path, labels.path.parent):
            classes = (read_attributes(path) or {}).get("classes")
            if isinstance(classes, list) and classes and all(isinstance(name, str) for name in classes):
                return classes
        return None

    def _images(self, array: Array) -> Images | None:
        return images_of(array, lambda name: self._sibling(array, name))

    def _sibling(self, array: Array, name: str) -> Array | None:
        folder = array.name.rpartition("/")[0]
        return self.array(f"{folder}/{name}" if folder else name)

    def _readable(self, name: str) -> Array | None:
        """Return an array; None where there is none, or none that packer reads, which is left out."""
        try:
            array = self.array(name)
        except SourceError as error:
            self._arrays[name] = array = None
            if not self._chooses:
                self.account.left_out("array", str(error), [name])
        return array


def _field(chosen: ChosenField, array: Array) -> Field:
    """Return the field of an array's rows; OptionError where they are none."""
    name, rank = chosen.name, len(array.shape) - 1
    kind = chosen.kind or ("array" if rank else "scalar")
    allowed = _OF_ROWS if rank else _OF_NUMBERS
    if kind not in allowed:
        raise OptionError(f"{chosen}: the rows of {printable(array.name)} can be {', '.join(allowed)}")
    dtype = _DTYPES.get(array.dtype.str[1:], "int64")
    try:
        if kind == "scalar":
            return Field(name, kind, _SIGNED.get(dtype, dtype))
        return Field(name, kind, dtype, rank) if kind == "array" else Field(name, kind)
    except ValueError as error:
        raise OptionError(f"{error}. --key NAME={printable(array.name)} names it otherwise") from error
