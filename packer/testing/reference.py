"""torchvision, the reference for datasets; it also works with a torch that was built without CUDA."""

from __future__ import annotations

import importlib
from typing import Any

import torch

__all__ = ["torchvision"]


def torchvision() -> Any:
    """Import torchvision and return it; ImportError if it is not installed.

    Its wheel is built for a torch with CUDA. With another torch, its compiled operators do not load, and its import
    fails when it registers Python code for them. Declaring the operators first avoids the failure: datasets and
    transforms are pure Python.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
        _declared.append(library)  # a library that is collected takes its declarations with it
        return importlib.import_module("torchvision")


_declared: list[torch.library.Library] = []
