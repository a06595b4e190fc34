"""The recipes as DALI's pipelines have them on the CPU.

TrivialAugmentWide and RandAugment are DALI's own (`nvidia.dali.auto_aug`). Erasing, MixUp, grey and solarize are put
together from its operators. DALI has no CutMix: every batch is mixed up. The sides of an erased rectangle are drawn one
by one, not from an area.
"""

from __future__ import annotations

from typing import Any

from peers import OUTPUT, recipes


def augmented(recipe: str, images: Any, labels: Any) -> tuple[Any, Any]:
    """Return the images of a recipe, normalised, and their labels."""
    from nvidia.dali import types
    from nvidia.dali.auto_aug import rand_augment, trivial_augment

    settings = {"shape": (OUTPUT, OUTPUT), "fill_value": 0, "interp_type": types.INTERP_NN}
    if recipe == "trivial":
        images = trivial_augment.trivial_augment_wide(images, **settings)
        return _normalized(_erased(images)), labels
    images = rand_augment.rand_augment(images, n=2, m=9, monotonic_mag=False, **settings)
    return _mixed_up(_normalized(images), labels)


def _normalized(images: Any) -> Any:
    from nvidia.dali import fn, types

    mean, std = ([255 * part for part in parts] for parts in (recipes.MEAN, recipes.STD))
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="HWC", mean=mean, std=std)


def _erased(images: Any) -> Any:
    from nvidia.dali import fn

    # A size of 0 erases nothing.
    chosen = fn.random.coin_flip(probability=recipes.ERASING)
    shape = fn.random.uniform(range=(0.14, 0.57), shape=(2,)) * chosen
    anchor = fn.random.uniform(range=(0.0, 1.0), shape=(2,)) * (1.0 - shape)
    fill = [float(value) for value in recipes.ERASED]
    return fn.erase(images, anchor=anchor, shape=shape, normalized=True, axis_names="HW", fill_value=fill)


def _mixed_up(images: Any, labels: Any) -> tuple[Any, Any]:
    import numpy as np
    from nvidia.dali import fn, types

    part = fn.random.beta(alpha=recipes.MIXUP, beta=recipes.MIXUP)
    part = fn.permute_batch(part, indices=[0] * _batch())  # one for the batch
    others = [*range(1, _batch()), 0]
    targets = fn.one_hot(labels, num_classes=recipes.CLASSES, dtype=types.FLOAT)
    return tuple(  # type: ignore[return-value]
        part * given + (np.float32(1) - part) * fn.permute_batch(given, indices=others) for given in (images, targets)
    )


def _batch() -> int:
    from nvidia.dali.pipeline import Pipeline

    return int(Pipeline.current().max_batch_size)


def views(encoded: Any) -> tuple[Any, Any]:
    """Return two views of the images, normalised; an image is decoded once."""
    from nvidia.dali import fn, types

    images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    return _view(images, 0), _view(images, 1)


def _view(images: Any, number: int) -> Any:
    import numpy as np
    from nvidia.dali import fn, types

    images = fn.random_resized_crop(
        images, size=(OUTPUT, OUTPUT), random_area=recipes.SCALE, interp_type=types.INTERP_TRIANGULAR
    )
    images = fn.flip(images, horizontal=fn.random.coin_flip())
    jittered = fn.random.coin_flip(probability=0.8)
    brightness, contrast, saturation = (
        1.0 + jittered * fn.random.uniform(range=(-amount, amount)) for amount in recipes.JITTER[:3]
    )
    hue = jittered * fn.random.uniform(range=(-360 * recipes.JITTER[3], 360 * recipes.JITTER[3]))
    coloured = 1.0 - fn.random.coin_flip(probability=0.2)
    images = fn.color_twist(images, brightness=brightness, contrast=contrast, saturation=saturation * coloured, hue=hue)
    sigma = fn.random.uniform(range=(0.1, 2.0))
    if number == 0:
        return _normalized(fn.gaussian_blur(images, sigma=sigma, window_size=recipes.BLUR))
    blurred = fn.random.coin_flip(probability=0.1, dtype=types.BOOL)
    solarized = fn.random.coin_flip(probability=0.2, dtype=types.BOOL)
    if blurred:  # DALI chooses for each image
        images = fn.gaussian_blur(images, sigma=sigma, window_size=recipes.BLUR)
    if solarized:
        bright = images >= np.uint8(128)
        images = fn.cast(bright * (255 - images) + (images < np.uint8(128)) * images, dtype=types.UINT8)
    return _normalized(images)
