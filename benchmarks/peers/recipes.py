"""Training recipes with more than a crop and a flip, in torchvision's transforms v2; other modules have their own.

``trivial``: TrivialAugmentWide, RandomErasing. ``rand``: RandAugment(2, 9), and MixUp or CutMix of each batch.
``views``: two crops of each image with jitter, grey, blur, and solarize in the second, as SimCLR and DINO have them.
All begin with RandomResizedCrop and a flip, and end with normalising: batches are float32.
"""

from __future__ import annotations

from typing import Any

from peers import OUTPUT

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ERASED = tuple(round(255 * mean) for mean in MEAN)
"""The colour of erased rectangles: the mean, which normalising makes 0."""

ERASING = 0.25
"""The probability of RandomErasing."""

MIXUP, CUTMIX, CLASSES = 0.2, 1.0, 1000
SCALE = 0.4, 1.0
"""The range of the share of an image's area that a view has, as in DINO."""

JITTER, BLUR = (0.4, 0.4, 0.2, 0.1), 23
"""The strengths of the jitter of brightness, contrast, saturation and hue; the side of the blur's kernel in pixels."""


def transform(recipe: str, decoder: str) -> Any:
    """Return torchvision's transform v2 of a PIL image, or, with decoder "tensors", of a (3, height, width) tensor."""
    import torch
    from torchvision.transforms import v2

    ready = [] if decoder == "tensors" else [v2.PILToTensor()]
    ready += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    if recipe == "views":
        return _Views(*(v2.Compose([*_view(number), *ready]) for number in range(2)))
    steps: list[Any] = [v2.RandomResizedCrop(OUTPUT, antialias=True), v2.RandomHorizontalFlip()]
    if recipe == "trivial":  # RandomErasing takes only tensors.
        return v2.Compose([*steps, v2.TrivialAugmentWide(), *ready, v2.RandomErasing(ERASING)])
    return v2.Compose([*steps, v2.RandAugment(2, 9), *ready])


def _view(number: int) -> list[Any]:
    from torchvision.transforms import v2

    steps = [
        v2.RandomResizedCrop(OUTPUT, SCALE, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(*JITTER)], 0.8),
        v2.RandomGrayscale(0.2),
    ]
    blur = v2.GaussianBlur(BLUR, (0.1, 2.0))
    return [*steps, blur] if number == 0 else [*steps, v2.RandomApply([blur], 0.1), v2.RandomSolarize(128, 0.2)]


class _Views:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def __call__(self, image: Any) -> tuple[Any, Any]:
        return self.first(image), self.second(image)


def mixed(recipe: str | None) -> Any:
    """Return DataLoader's `collate_fn` that mixes the images of a batch, or None if the recipe mixes none."""
    if recipe != "rand":
        return None
    from torch.utils.data import default_collate
    from torchvision.transforms import v2

    mix = v2.RandomChoice([v2.MixUp(alpha=MIXUP, num_classes=CLASSES), v2.CutMix(alpha=CUTMIX, num_classes=CLASSES)])
    return lambda samples: mix(*default_collate(samples))
