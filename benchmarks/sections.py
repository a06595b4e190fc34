"""The measurements of `read.py`: sections of sides, each side a loader with its settings.

The sides of a section read the same images. Most read the same bytes, too. If a loader has its own form of files, or
settings that its project calls faster, these are another side.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from peers import RESIZE


@dataclass(frozen=True)
class Side:
    """A loader with its settings: a module of `peers`, and further arguments of its two functions."""

    name: str
    module: str
    prepare: dict[str, Any] = field(default_factory=dict)
    open: dict[str, Any] = field(default_factory=dict)
    crops: tuple[str, ...] = ("train", "eval")
    tree: str | None = None  # by default the section's


@dataclass(frozen=True)
class Section:
    """Sides with the same images, the side that the others are compared with, and goals for ratios of two sides."""

    title: str
    tree: str
    sides: list[Side]
    base: str
    goals: dict[tuple[str, str], float]
    packs: str
    """The folder of the sides' packs; sections with the same one share them."""


TILED, TILED_LIMIT, LIBRARIES = "packer.Loader, tiled", "limit, tiled", "limit of libjpeg-turbo and torch"
UNCHECKED = 'packer.Loader, check="never"'
LOADER, LIMIT, FOLDER, PIL = "packer.Loader", "limit", "torchvision", "packer, DataLoader, same transforms"

_OURS = [
    Side(PIL, "own", open={"by": "pil"}),
    Side("packer, DataLoader, crop=", "own", open={"by": "crop"}),
    Side(LOADER, "own"),
]
_TENSORS = {"decoder": "tensors"}
_PEERS = [
    Side(FOLDER, "imagefolder"),
    Side("torchvision, tensors", "tensors"),
    Side("torchcodec", "codec"),
    Side("nvImageCodec, CPU", "nvimage"),
    Side("SPDL", "spdl_pipeline"),
    Side("FFCV", "ffcv_beton"),
    Side("DALI, CPU", "dali"),
    Side("DALI, CPU, fast IDCT", "dali", open={"fast": True}),
    Side("LitData", "lit"),
    Side("LitData, tensors", "lit", open=_TENSORS),
    Side("MosaicML Streaming", "mosaic"),
    Side("MosaicML Streaming, tensors", "mosaic", open=_TENSORS),
    Side("WebDataset", "wds"),
    Side("WebDataset, tensors", "wds", open=_TENSORS),
    Side("Energon", "energon"),
    Side("Energon, tensors", "energon", open=_TENSORS),
]
_RAW = {"options": ("--codec", "raw")}
_TILES = {"options": ("--tiles",)}
# Encoded by packer; the peers' tree holds the same pixels, in ordinary JPEGs.
_RESIZED_TILES = {"options": ("--resize", str(RESIZE), "--tiles")}

_PHOTOS = Section(
    "the photos as they are",
    "photos",
    [
        *_OURS,
        Side(TILED, "own", _TILES),
        Side(f"{TILED}, processes", "own", _TILES, {"processes": True}),
        Side(TILED_LIMIT, "limit", _TILES),
        *_PEERS,
        Side("FFCV, its own JPEGs (q90)", "ffcv_beton", {"store": "jpg"}),
        Side("FFCV, its ImageNet recipe's file", "ffcv_beton", {"store": "recipe"}),
        Side(LIMIT, "limit"),
        Side(LIBRARIES, "limit", open={"libraries": True}),
    ],
    LOADER,
    {
        (LOADER, "FFCV"): 1.45,
        (LOADER, "DALI, CPU"): 1.2,
        (LOADER, FOLDER): 1.6,
        (LOADER, LIMIT): 0.88,
        (TILED, LOADER): 1.35,
        (TILED, "FFCV"): 2.1,
        (TILED, "DALI, CPU"): 1.7,
        (TILED, FOLDER): 2.3,
        (TILED, TILED_LIMIT): 0.88,
        (PIL, FOLDER): 1.0,
    },
    "photos",
)
_RESIZED = Section(
    f"resized to {RESIZE} (shorter side, JPEG quality 90)",
    "resized",
    [
        *_OURS,
        Side(TILED, "own", _RESIZED_TILES, tree="photos"),
        Side(f"{TILED}, processes", "own", _RESIZED_TILES, {"processes": True}, tree="photos"),
        *_PEERS,
        Side(LIMIT, "limit"),
        Side(TILED_LIMIT, "limit", _RESIZED_TILES, tree="photos"),
        Side(LIBRARIES, "limit", open={"libraries": True}),
    ],
    LOADER,
    {
        (LOADER, "FFCV"): 1.8,
        (LOADER, FOLDER): 2.2,
        (LOADER, LIMIT): 0.88,
        (TILED, "FFCV"): 2.2,
        (TILED, TILED_LIMIT): 0.88,
        (PIL, FOLDER): 1.0,
    },
    "resized",
)
_PIXELS = Section(
    f"raw pixels, resized to {RESIZE} (shorter side)",
    "resized",
    [
        Side("packer, DataLoader, crop=", "own", _RAW, {"by": "crop"}),
        Side(LOADER, "own", _RAW),
        Side(UNCHECKED, "own", _RAW, {"check": "never"}),
        Side("FFCV", "ffcv_beton", {"store": "raw"}),
        Side(LIMIT, "limit", _RAW),
    ],
    LOADER,
    {(UNCHECKED, "FFCV"): 1.0},
    "raw",
)

SECTIONS = {"photos": _PHOTOS, "resized": _RESIZED, "raw": _PIXELS}
RECIPE = "packer.Loader, the recipe"
_V2, _V2_TENSORS = "torchvision v2, PIL images", "torchvision v2, tensors"


def _recipe(recipe: str, words: str, tree: str, of_own: float | None, of_torchvision: float) -> Section:
    """Return the section of a recipe of `peers.recipes`: float32 batches, and packer's Loader without the recipe."""
    named, where = {"recipe": recipe}, "photos" if tree == "photos" else f"resized to {RESIZE}"
    sides = [
        Side(LOADER, "own"),
        Side(RECIPE, "own", open={"by": "recipe", **named}),
        Side(_V2, "imagefolder", open=named),
        Side(_V2_TENSORS, "tensors", open=named),
        Side("DALI, CPU, its nearest", "dali", open=named),
        Side("FFCV, its nearest", "ffcv_beton", open=named),
    ]
    if recipe == "views":  # FFCV has only its crop and flip
        sides.pop()
    goals = {(RECIPE, _V2): of_torchvision, (RECIPE, _V2_TENSORS): of_torchvision}
    if of_own is not None:
        goals = {(RECIPE, LOADER): of_own, **goals}
    chosen = [replace(side, crops=("train",)) for side in sides]
    return Section(f"recipe: {words}; {where}", tree, chosen, RECIPE, goals, tree)


SECTIONS |= {
    f"{recipe}-{tree}": _recipe(recipe, words, tree, of_own, of_torchvision)
    for recipe, words, of_own, of_torchvision in (
        ("trivial", "TrivialAugmentWide, RandomErasing, normalised", 0.75, 6.0),
        ("rand", "RandAugment(2, 9), MixUp or CutMix, normalised", 0.65, 6.0),
        ("views", "two crops with jitter, grey, blur and solarize, normalised", None, 4.0),
    )
    for tree in ("photos", "resized")
}
