"""Import torchvision, the reference in tests of datasets, even with a torch that was built without CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import torch

__all__ = ["torchvision"]


def torchvision() -> Any:
    """Import torchvision and return it; ImportError if it is not installed.

    The wheel of torchvision is built for a torch with CUDA. With another torch, torchvision's compiled operators do not
    load, and its import fails when it registers Python code for these operators. If the operators are declared first,
    the import succeeds. Datasets and transforms do not need the operators, because they are pure Python.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        _declared.append(library)  # keep a reference, because a garbage-collected library removes its declarations
        return importlib.import_module("torchvision")


_declared: list[torch.library.Library] = []
