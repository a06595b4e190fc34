"""Datasets that are torchvision's VisionDatasets as well, without importing torchvision for those who do not use it."""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["as_vision", "own_class"]


def as_vision(kind: type) -> type:
    """Return a class that is also a `torchvision.datasets.VisionDataset` where torchvision has been imported.

    Whoever asks ``isinstance(dataset, VisionDataset)`` has imported torchvision; for others its import would cost as
    much time as that of torch.
    """
    vision = sys.modules.get("torchvision.datasets.vision")
    base = getattr(vision, "VisionDataset", None)  # missing while torchvision is being imported
    return kind if base is None or issubclass(kind, base) else _joined(kind, base)


def own_class(kind: type) -> type:
    """Return the class that `as_vision` was given: the one that pickle finds by its name."""
    return kind.__dict__.get("_own_class", kind)  # type: ignore[no-any-return]


@functools.cache
def _joined(kind: type, base: type) -> type:
    members: dict[str, Any] = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_own_class": kind}
    members["__qualname__"] = kind.__qualname__
    return type(kind.__name__, (kind, base), members)
