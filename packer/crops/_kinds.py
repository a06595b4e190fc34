"""What a transform is, told by its class alone, without importing torchvision or timm.

A transform can only be one of theirs where their modules are imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["begins_with_pil", "is_pointwise", "kind_of", "leaves", "rebuilt", "steps_of"]

_FAMILIES = {
    "torch.nn.modules.container": "torch",
    "torchvision.transforms._presets": "presets",
    "torchvision.transforms.autoaugment": "v1",
    "torchvision.transforms.transforms": "v1",
    "torchvision.transforms.v2._augment": "v2",
    "torchvision.transforms.v2._auto_augment": "v2",
    "torchvision.transforms.v2._color": "v2",
    "torchvision.transforms.v2._container": "v2",
    "torchvision.transforms.v2._deprecated": "v2",
    "torchvision.transforms.v2._geometry": "v2",
    "torchvision.transforms.v2._misc": "v2",
    "torchvision.transforms.v2._type_conversion": "v2",
    "timm.data.auto_augment": "timm",
    "timm.data.naflex_transforms": "timm",
    "timm.data.random_erasing": "timm",
    "timm.data.transforms": "timm",
}
_CHAINS = ("v1.Compose", "v2.Compose", "torch.Sequential")
_CHOOSERS = ("RandomApply", "RandomChoice", "RandomOrder")
_OF_TENSORS = (
    "ConvertImageDtype",
    "GaussianNoise",
    "LinearTransformation",
    "Normalize",
    "Patchify",
    "RandomErasing",
    "ToDtype",
    "ToPILImage",
    "ToPureTensor",
)
_OF_ANYTHING = ("Lambda", "Identity", "CutMix", "MixUp", "Sequential", "ModuleList")
_POINTWISE = (
    "timm.MaybePILToTensor",
    "timm.MaybeToTensor",
    "v1.Normalize",
    "v1.PILToTensor",
    "v1.ToTensor",
    "v2.Normalize",
    "v2.PILToTensor",
    "v2.ToImage",
    "v2.ToPureTensor",
    "v2.ToTensor",
)
_OVERRIDES = ("__call__", "forward", "get_params", "make_params", "transform", "_call_kernel")


def kind_of(transform: object) -> str | None:
    """Return what a transform is, such as ``v2.Resize``; None of other people's, their subclasses, and changed ones."""
    cls = type(transform)
    family = _FAMILIES.get(cls.__module__)
    if family is None or getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        return None
    own = getattr(transform, "__dict__", {})
    hooked = any(own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks"))
    return None if hooked or any(name in own for name in _OVERRIDES) else f"{family}.{cls.__qualname__}"


def steps_of(transform: Any) -> list[Any] | None:
    """Return the transforms that a chain applies one after the other; None of what is no chain."""
    kind = kind_of(transform)
    if kind not in _CHAINS:
        return None
    return list(transform if kind == "torch.Sequential" else transform.transforms)


def rebuilt(chain: Any, steps: list[Any]) -> Any:
    """Return a chain of the same kind, of other steps."""
    made = type(chain)(*steps) if kind_of(chain) == "torch.Sequential" else type(chain)(steps)
    if isinstance(chain, torch.nn.Module):
        made.training = chain.training  # alone: `train` would change the steps too
    return made


def is_pointwise(transform: Any) -> bool:
    """Tell whether a transform makes a tensor of uint8 or float32 numbers, or scales them, each by itself."""
    kind = kind_of(transform)
    if kind in ("v1.ConvertImageDtype", "v2.ConvertImageDtype"):
        return transform.dtype is torch.float32
    if kind == "v2.ToDtype":
        return transform.dtype is torch.float32 and transform.scale is True
    return kind in _POINTWISE


def begins_with_pil(transform: Callable[[Any], Any]) -> bool | None:
    """Tell whether a transform takes PIL images: True of most of torchvision's and timm's, False where the first one
    takes tensors alone, None of what is not known.
    """
    first = next(_leaves(transform), None)
    kind = kind_of(first)
    if kind is None:
        return None
    name = kind.partition(".")[2]
    if name in _CHOOSERS:
        return begins_with_pil(next(iter(first.transforms), None))  # type: ignore[union-attr, arg-type]
    return None if name in _OF_ANYTHING else name not in _OF_TENSORS


def leaves(transform: Any) -> tuple[Any, ...]:
    """Return the transforms that are no chains, in their order."""
    return tuple(_leaves(transform))


def _leaves(transform: Any) -> Iterator[Any]:
    steps = steps_of(transform)
    if steps is None:
        yield transform
    else:
        for step in steps:
            yield from _leaves(step)
