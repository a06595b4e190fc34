"""A dataset, transform or collation that may be tried without the training noticing: a copy with a state of its own.

Random generators, counters, lists, dictionaries and small arrays are the copy's own. Large arrays and tensors, open
files and connections are shared: they are costly, or cannot be had twice. What a copy opens is closed with the copy,
and what it shares is not.
"""

from __future__ import annotations

import copy
import random
import sys
from collections import deque
from types import FunctionType, MethodType, ModuleType
from typing import Any

__all__ = ["Known", "apart"]

Known = dict[int, tuple[Any, Any]]

_SMALL = 1 << 20  # bytes of an array that is copied
_FEW = 256  # entries of a list or dictionary that are copied, too
_DEEPEST = 12


def apart(value: Any, known: Known | None = None) -> Any:
    """Return a value alike, whose use leaves this one as it is.

    Parameters
    ----------
    value : object
        A dataset, a transform, a collation; what cannot be copied is returned itself.
    known : dict, optional
        The copies so far, with what they are copies of, by ids: what two values share, their copies share.
    """
    return _Copying({} if known is None else known).of(value, 0)


class _Copying:
    def __init__(self, known: Known) -> None:
        self._known = known

    def of(self, value: Any, depth: int) -> Any:
        """Return the copy of a value, or the value itself."""
        if id(value) not in self._known:
            try:
                made = self._made(value, depth)
            except Exception:  # a person's own class may do anything
                made = value
            self._known[id(value)] = value, made
        return self._known[id(value)][1]

    def _made(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST or isinstance(value, type | ModuleType | FunctionType):
            return value
        if isinstance(value, MethodType):
            return MethodType(value.__func__, self.of(value.__self__, depth + 1))
        if type(value) in (list, dict, set, tuple, deque, bytearray):
            return self._container(value, depth)
        if _is_generator(value):
            return _generator(value)
        if _is_small_array(value):
            return value.copy() if hasattr(value, "copy") else value.clone()
        return self._instance(value, depth) if hasattr(value, "__dict__") and _is_work(value) else value

    def _container(self, value: Any, depth: int) -> Any:
        if len(value) > _FEW or type(value) in (set, deque, bytearray):
            return value if type(value) is tuple else copy.copy(value)
        if type(value) is dict:
            return {key: self.of(one, depth + 1) for key, one in value.items()}
        return type(value)(self.of(one, depth + 1) for one in value)

    def _instance(self, value: Any, depth: int) -> Any:
        kind: Any = type(value)
        if hasattr(kind, "__del__"):  # which would close what both have
            names = {"__del__": lambda this: None, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
            kind = type(value.__class__)(kind.__name__, (kind,), names)
        alike = object.__new__(kind)  # without __getstate__, which drops what is open
        self._known[id(value)] = value, alike
        for name, held in vars(value).items():
            alike.__dict__[name] = self.of(held, depth + 1)
        return alike


def _is_work(value: Any) -> bool:
    """Tell whether a value is a dataset or something that is called; not a file, a connection, a pool of threads."""
    return callable(value) or any("__getitem__" in vars(kind) for kind in type(value).__mro__)


def _is_generator(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        isinstance(value, random.Random)
        or (numpy is not None and isinstance(value, numpy.random.Generator | numpy.random.RandomState))
        or (torch is not None and isinstance(value, torch.Generator))
    )


def _generator(value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        alike = torch.Generator(value.device)
        alike.set_state(value.get_state())
        return alike
    return copy.deepcopy(value)


def _is_small_array(value: Any) -> bool:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and type(value) is numpy.ndarray:
        return bool(value.nbytes <= _SMALL)
    return torch is not None and type(value) is torch.Tensor and bool(value.nbytes <= _SMALL)
