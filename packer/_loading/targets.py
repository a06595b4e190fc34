"""The labels of a dataset: an array, which adds up as ImageFolder's list of labels does."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._table import Labels

__all__ = ["Targets"]


class Targets(np.ndarray[Any, np.dtype[Any]]):
    """The labels of samples, (N,), read-only.

    ``a.targets + b.targets`` concatenates, and so does adding a list, which gives a list; `count`, `index` and the
    truth value are a list's too. Scripts for ImageFolder rely on that, and an array would add the numbers without a
    word. All that is made of this array otherwise, such as ``targets[mask]``, ``targets == 3``, ``targets * 2`` or
    ``targets.copy()``, is an ordinary array. A pickled one comes back as what it was.
    """

    __slots__ = ()
    _plain_attributes = frozenset(dir(np.ndarray)) - {"__class__", "flags", "setflags"}

    @classmethod
    def of(cls, labels: npt.ArrayLike) -> Targets:
        """Return labels as such an array, which is a view of them."""
        targets = np.asarray(labels).view(cls)
        targets.flags.writeable = False
        return targets

    def __getattribute__(self, name: str) -> Any:
        own = name in Targets.__dict__ or name not in Targets._plain_attributes
        return object.__getattribute__(self if own else _plain(self), name)

    def __getitem__(self, index: Any) -> Any:
        return _plain(self)[index]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*_plain(inputs), **_plain(options))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return function(*_plain(args), **_plain(options))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Targets):
            return Targets.of(np.concatenate([_plain(self), _plain(other)]))
        return _plain(self).tolist() + other if isinstance(other, list) else _plain(self) + other

    def __radd__(self, other: Any) -> Any:
        return other + _plain(self).tolist() if isinstance(other, list) else other + _plain(self)

    def __iadd__(self, other: Any) -> Any:  # the array is read-only
        return self + other

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, label: object) -> bool:
        return self.count(label) > 0

    def count(self, label: object) -> int:
        """Return how many samples have a label."""
        return int(np.count_nonzero(self._are(label)))

    def index(self, label: object, start: int = 0, stop: int = sys.maxsize) -> int:
        """Return the index of the first sample with a label, from `start` to before `stop`; ValueError without one."""
        begin, end, _ = slice(start, stop).indices(len(self))
        found = np.flatnonzero(self._are(label)[begin:end])
        if not len(found):
            raise ValueError(f"{label!r} is not among the targets")
        return begin + int(found[0])

    def _are(self, label: object) -> npt.NDArray[np.bool_]:
        is_number = isinstance(label, int | float | np.integer | np.floating)
        return np.asarray(_plain(self) == label) if is_number else np.zeros(len(self), bool)

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __copy__(self) -> Labels:
        copied: Labels = _plain(self).copy()
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return Targets.of, (_plain(self),)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()


def _plain(value: Any) -> Any:
    """Return a value with ordinary arrays in place of those of a dataset."""
    if isinstance(value, Targets):
        return np.ndarray.view(value, np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return {name: _plain(one) for name, one in value.items()} if type(value) is dict else value
