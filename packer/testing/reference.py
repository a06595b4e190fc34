"""torchvision, the reference that datasets are compared with, beside a torch without CUDA too."""

from __future__ import annotations

import importlib
from typing import Any

import torch

__all__ = ["torchvision"]


def torchvision() -> Any:
    """Import torchvision and return it; ImportError where it is not installed.

    Its wheel is built for a torch with CUDA. Beside another torch its compiled operators do not load, and its import
    stops where it registers Python implementations for them. Declaring the operators first lets it go on: datasets and
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
