"""A Loader's collation: makes a batch from items by stacking, listing, or padding and counting their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from packer._datasets.fields import Parts, Values, as_tensor, tensor_dtype, tensor_of
from packer._datasets.protocol import IMAGES, images_in
from packer._fields import KINDS, Field
from packer._storage.system import require_count
from packer.errors import OptionError

_COUNT = "_count"
"""The key of the numbers of entries of a padded field is the field's name followed by this suffix."""

Pad = int | Mapping[str, int | None] | None


def collate_items(collate: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return a batch of items that are pairs; raise ValueError, with advice, if image shapes differ."""
    try:
        return collate(items)
    except RuntimeError as error:
        images = [image if isinstance(image, tuple) else (image,) for image, _ in items]  # tuples of views
        shapes = next((sorted(made) for view in zip(*images) if len(made := set(map(_shape, view))) > 1), [])  # noqa: B905
        if collate is not default_collate or len(shapes) < 2:
            raise
        raise OptionError(
            f"the images of a batch have different shapes, such as {shapes[0]} and {shapes[-1]}: pass the dataset a "
            "crop= of a fixed size, such as packer.CenterCrop(224), or the Loader a collate_fn= that does not stack "
            "images"
        ) from error


def _shape(image: Any) -> tuple[int, ...]:
    return tuple(getattr(image, "shape", ()))


def collation_of(parts: Parts | None, pad: Pad) -> Collation | None:
    """Return the collation for items that are dicts; None if items are pairs."""
    if parts is None:
        if pad is not None:
            raise OptionError("pad= applies only to a dataset that was opened with fields=")
        return None
    return Collation(parts, pad)


class UnevenError(ValueError):
    """Raised if the values of a batch's samples cannot be joined.

    Parameters
    ----------
    position : int
        The position in the batch of a sample that does not fit the others.
    reason : str
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position, self.reason = position, reason


class Collation:
    """Makes batches of samples that are dicts.

    Parameters
    ----------
    parts : Parts
        The keys of an item, and the settings for their values.
    pad : int, or mapping of str to int, optional
        The same as for `Loader`.

    Raises
    ------
    TypeError, ValueError
        If `pad` names a field that cannot be padded.
    """

    def __init__(self, parts: Parts, pad: Pad = None) -> None:
        self._parts = parts
        self._lengths = _lengths(parts, pad)
        taken = [name + _COUNT for name in self._lengths if name + _COUNT in parts.keys]
        if taken:
            raise OptionError(
                f"pad: {taken[0]!r} is the key of the counts of a padded field, and also the name of a field: leave "
                "one of the two out"
            )

    def batch(self, memory: Mapping[str, torch.Tensor], values: Sequence[Values]) -> dict[str, Any]:
        """Return the batch of N samples.

        Parameters
        ----------
        memory : mapping of str to tensor
            Pixels that are already in the batch, as (N, C, height, width) tensors.
        values : sequence of N dicts
            All other values. A mask in these dicts replaces the mask in memory.

        Raises
        ------
        UnevenError
            If a sample lacks a value, has more entries than `pad`, or has pixels of another size than the first sample.
        """
        batch: dict[str, Any] = {}
        for key in self._parts.keys:
            if key == IMAGES and (images := images_in(memory)) is not None:
                batch[key] = images
            elif key in memory:
                batch[key] = self._filled(key, memory[key], values)
            else:
                batch |= self._together(key, [of_sample[key] for of_sample in values])
        return batch

    def of_items(self, items: Sequence[Any]) -> Any:
        """Return the batch of N items, which transforms may have changed. Raises the same errors as `batch`."""
        if not all(isinstance(item, Mapping) and item.keys() == items[0].keys() for item in items):
            return default_collate(list(items))
        batch: dict[str, Any] = {}
        for key in items[0]:
            batch |= self._together(key, [item[key] for item in items])
        return batch

    def _together(self, key: str, values: list[Any]) -> dict[str, Any]:
        """Return the entries of the batch for one key: the values and, for a padded field, ``NAME_count``.

        ``NAME_count`` has the number of entries of each sample.
        """
        field = self._parts.field_of(key)
        length = None if field is None else self._lengths.get(field.name)
        if field is None or length is None:
            return {key: self._joined(key, field, values)}
        padded, counts = self._padded(key, values, length)
        return {key: padded, key + _COUNT: counts} if key == field.name else {key: padded}

    def _joined(self, key: str, field: Field | None, values: list[Any]) -> Any:
        if field is None and key == IMAGES and all(isinstance(value, tuple) for value in values):
            return [self._joined(key, None, list(view)) for view in zip(*values, strict=True)]
        if field is None:
            images = all(isinstance(value, torch.Tensor) for value in values)
            return values if key == "name" else self._stacked(key, values) if images else default_collate(values)
        form = KINDS[field.kind].form
        if form == "object":
            return values
        if form == "rows" or self._as_list(field.name):
            return [None if value is None else _tensor(value) for value in values]
        self._require_all(key, values)
        if form == "number":
            return torch.tensor(values, dtype=getattr(torch, field.dtype or "int64"))
        tensors = [value if isinstance(value, torch.Tensor) else tensor_of(field, value) for value in values]
        return self._stacked(key, tensors)

    def _as_list(self, name: str) -> bool:
        return name in (self._parts.per_box or {}) or self._lengths.get(name, 0) is None

    def _stacked(self, key: str, tensors: list[torch.Tensor]) -> torch.Tensor:
        for position, tensor in enumerate(tensors):
            if tensor.shape != tensors[0].shape:
                shape, first = tuple(tensor.shape), tuple(tensors[0].shape)
                raise UnevenError(
                    position,
                    f"{key!r} has the shape {shape}, but in the first sample of the batch {first}: pass the dataset a "
                    f"crop= of a fixed size; for arrays pass the Loader pad={{{key!r}: ...}}, with a length, or with "
                    "None to get lists",
                )
        return torch.stack([tensor.as_subclass(torch.Tensor) for tensor in _of_one_dtype(tensors)])

    def _filled(self, key: str, memory: torch.Tensor, values: Sequence[Values]) -> torch.Tensor:
        """Return the masks of a batch: those in `memory`, and those in `values`, which need a wider dtype."""
        others = {position: of_sample[key] for position, of_sample in enumerate(values) if key in of_sample}
        for position, mask in others.items():
            self._require_all(key, [mask], position)
        if not others:
            return memory
        dtype = np.result_type(memory.numpy().dtype, *(mask.dtype for mask in others.values())).name
        wider = memory.to(getattr(torch, tensor_dtype(dtype)))
        for position, mask in others.items():
            wider[position, 0] = _tensor(mask.astype(dtype))
        return wider

    def _padded(self, key: str, values: list[Any], length: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._require_all(key, values)
        tensors = [_tensor(value) for value in values]
        for position, tensor in enumerate(tensors):
            if len(tensor) > length:
                raise UnevenError(position, f"{key!r} has {len(tensor)} entries, but pad= allows at most {length}")
        shape = np.max([tensor.shape[1:] for tensor in tensors], axis=0, initial=0).astype(int).tolist()
        padded = torch.zeros((len(tensors), length, *shape), dtype=tensors[0].dtype)
        for position, tensor in enumerate(tensors):
            if len(tensor) and list(tensor.shape[1:]) != shape:
                raise UnevenError(
                    position, f"entries of {key!r} have the shape {tuple(tensor.shape[1:])}, but others {shape}"
                )
            padded[position, : len(tensor)] = tensor if len(tensor) else 0
        return padded, torch.tensor([len(tensor) for tensor in tensors])

    def _require_all(self, key: str, values: list[Any], first: int = 0) -> None:
        for position, value in enumerate(values, first):
            if value is None:
                raise UnevenError(
                    position,
                    f"it has no {key!r}, and a tensor cannot contain missing values: open the dataset with "
                    f"fill={{{key!r}: ...}}, which replaces them, or leave out such samples",
                )


def _lengths(parts: Parts, pad: Pad) -> dict[str, int | None]:
    """Return the length to which each field is padded; None for arrays that become lists."""
    forms = {name: KINDS[field.kind].form for name, field in parts.item_fields.items()}
    paddable = [name for name, form in forms.items() if form == "rows" or (form == "array" and parts.fields[name].rank)]
    if pad is None:
        return {}
    if not isinstance(pad, Mapping):
        alike = [name for name in paddable if forms[name] == "rows" or name in (parts.per_box or {})]
        pad = dict.fromkeys(alike, pad)
        if not pad:
            raise OptionError("pad: the items have no boxes, labels or keypoints")
    lengths = dict(pad)
    for name, length in pad.items():
        if name not in paddable:
            raise OptionError(f"pad: {name!r} is not a field that can be padded; these can: {', '.join(paddable)}")
        if length is not None:
            require_count(f"pad[{name!r}]", length)
    for name, of in (parts.per_box or {}).items():
        if of in lengths and name in paddable:
            lengths.setdefault(name, lengths[of])
    return lengths


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else as_tensor(np.asarray(value))


def _of_one_dtype(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return integer tensors converted to the widest dtype among them."""
    if len({tensor.dtype for tensor in tensors}) == 1:
        return tensors
    dtype = np.result_type(*(tensor.numpy().dtype for tensor in tensors)).name
    return [tensor.to(getattr(torch, tensor_dtype(dtype))) for tensor in tensors]
