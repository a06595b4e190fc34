"""MixUp and CutMix of a Loader: which batches can be mixed, and their labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from packer._images.numbers import Mixture
from packer._loading.parts import Parts
from packer.augment import Mixing
from packer.augment._mixing import mixed_labels
from packer.augment._settings import named

__all__ = ["refuse_mixing", "require_mixable", "with_mixed_labels"]


def require_mixable(mix: Any, parts: Parts | None, views: object = None) -> None:
    """Raise TypeError or ValueError where `mix` is no Mixing, or items have what cannot be mixed."""
    if mix is None:
        return
    if not isinstance(mix, Mixing):
        raise TypeError(
            "mix is packer's, such as packer.augment.MixUp(num_classes=1000), or packer.augment.RandomChoice of such, "
            f"not {named(mix)}"
        )
    if views is not None:
        raise ValueError("mix= mixes one image of each sample with another, and views= make several")
    if parts is None:
        return
    if parts.is_target or parts.cropped or not {"image", "label"} <= set(parts.names):
        raise ValueError(
            "mix= mixes images and class labels, and neither places nor pixels of fields: items of "
            f"fields={parts.names!r} cannot be mixed"
        )


def refuse_mixing(batch_transform: Any) -> None:
    """Raise TypeError where a transform of batches is torchvision's MixUp or CutMix, or a chain that has one."""
    steps = [batch_transform]
    for step in steps:
        nested = getattr(step, "transforms", ())
        steps += nested if isinstance(nested, (list, tuple)) else ()
        kind = type(step)
        if kind.__name__ in ("MixUp", "CutMix") and kind.__module__.startswith("torchvision."):
            raise TypeError(
                f"batch_transform gets images without their labels, which {kind.__name__} mixes too: say "
                f"mix=packer.augment.{kind.__name__}(num_classes=...)"
            )


def with_mixed_labels(batch: Any, mixture: Mixture) -> Any:
    """Return a batch of images and labels whose labels are mixed; errors as of `mixed_labels`."""
    has_names = isinstance(batch, Mapping)
    labels = batch.get("label") if has_names else _second(batch)
    if not isinstance(labels, torch.Tensor):
        raise ValueError(f"mix= mixes a batch of images and labels, which are a tensor, and these are {labels!r:.80}")
    mixed = mixed_labels(labels, mixture)
    if has_names:
        return {**batch, "label": mixed}
    return type(batch)(batch[0], mixed) if hasattr(batch, "_fields") else type(batch)([batch[0], mixed])


def _second(batch: Any) -> Any:
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None
