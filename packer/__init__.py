"""packer: trees of images in one pack, read at the speed of the decoder.

The names below are imported when they are first used, so that ``import packer`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from packer._conversion.convert import ConversionProgress, Summary
    from packer._conversion.packing import pack
    from packer._conversion.verbs import append, convert, index, merge
    from packer._fields import Field
    from packer._formats import Reader, open_pack
    from packer._loading.concat import ConcatImageDataset
    from packer._loading.dataloader import DataLoader
    from packer._loading.dataset import HDF5ImageDataset, ImageDataset, LMDBImageDataset, PthImageDataset, open_dataset
    from packer._loading.loader import Loader
    from packer._loading.prefetch import BackgroundPrefetcher, CUDAPrefetcher
    from packer._loading.staging import stage, unstage, warm
    from packer._measuring.bench import Benchmark, Rate, bench
    from packer._measuring.doctor import Diagnosis, doctor
    from packer._measuring.estimating.estimate import Estimate
    from packer._measuring.estimating.verbs import estimate
    from packer._measuring.findings import Finding
    from packer._measuring.profiling.profile import Profile, profile
    from packer._measuring.profiling.report import ProfileReport
    from packer._measuring.tune import LoaderSettings, Trial, Tuning, tune
    from packer._packs.digest import digest
    from packer._packs.export import export
    from packer._packs.info import PackInfo, info
    from packer._packs.repair import Repaired, repair
    from packer._packs.verify import Damage, verify
    from packer.augment import View
    from packer.crops import (
        CenterCrop,
        Compose,
        Crop,
        Pad,
        RandomCrop,
        RandomHorizontalFlip,
        RandomResizedCrop,
        Resize,
        ResizeCenterCrop,
    )
    from packer.errors import (
        ClusterError,
        CorruptPackError,
        DestinationError,
        ImageChangedError,
        ImageError,
        ImageTooLargeError,
        MissingDependencyError,
        NotAPackError,
        NotTileableError,
        OptionError,
        PackerError,
        PackError,
        PackLockedError,
        PackNotFoundError,
        RemoteError,
        ResumeError,
        SourceError,
        UnsupportedVersionError,
        WorkerError,
    )
    from packer.samplers import BlockShuffleSampler, OrderSampler, SequentialSampler, ShuffleSampler

__all__ = [
    "BackgroundPrefetcher",
    "Benchmark",
    "BlockShuffleSampler",
    "CUDAPrefetcher",
    "CenterCrop",
    "ClusterError",
    "Compose",
    "ConcatImageDataset",
    "ConversionProgress",
    "CorruptPackError",
    "Crop",
    "Damage",
    "DataLoader",
    "DestinationError",
    "Diagnosis",
    "Estimate",
    "Field",
    "Finding",
    "HDF5ImageDataset",
    "ImageChangedError",
    "ImageDataset",
    "ImageError",
    "ImageTooLargeError",
    "LMDBImageDataset",
    "Loader",
    "LoaderSettings",
    "MissingDependencyError",
    "NotAPackError",
    "NotTileableError",
    "OptionError",
    "OrderSampler",
    "PackError",
    "PackInfo",
    "PackLockedError",
    "PackNotFoundError",
    "PackerError",
    "Pad",
    "Profile",
    "ProfileReport",
    "PthImageDataset",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Rate",
    "Reader",
    "RemoteError",
    "Repaired",
    "Resize",
    "ResizeCenterCrop",
    "ResumeError",
    "SequentialSampler",
    "ShuffleSampler",
    "SourceError",
    "Summary",
    "Trial",
    "Tuning",
    "UnsupportedVersionError",
    "View",
    "WorkerError",
    "__version__",
    "append",
    "bench",
    "convert",
    "digest",
    "doctor",
    "estimate",
    "export",
    "index",
    "info",
    "merge",
    "open_dataset",
    "open_pack",
    "pack",
    "profile",
    "repair",
    "stage",
    "tune",
    "unstage",
    "verify",
    "warm",
]

_HOMES = {
    "packer._conversion.convert": "ConversionProgress Summary",
    "packer._conversion.packing": "pack",
    "packer._conversion.verbs": "append convert index merge",
    "packer._fields": "Field",
    "packer._formats": "Reader open_pack",
    "packer._loading.concat": "ConcatImageDataset",
    "packer._loading.dataloader": "DataLoader",
    "packer._loading.dataset": "HDF5ImageDataset ImageDataset LMDBImageDataset PthImageDataset open_dataset",
    "packer._loading.loader": "Loader",
    "packer._loading.prefetch": "BackgroundPrefetcher CUDAPrefetcher",
    "packer._loading.staging": "stage unstage warm",
    "packer._measuring.doctor": "Diagnosis doctor",
    "packer._measuring.findings": "Finding",
    "packer._measuring.profiling.profile": "Profile profile",
    "packer._measuring.profiling.report": "ProfileReport",
    "packer._measuring.estimating.estimate": "Estimate",
    "packer._measuring.estimating.verbs": "estimate",
    "packer._measuring.bench": "Benchmark Rate bench",
    "packer._measuring.tune": "LoaderSettings Trial Tuning tune",
    "packer._packs.digest": "digest",
    "packer._packs.export": "export",
    "packer._packs.info": "PackInfo info",
    "packer._packs.repair": "Repaired repair",
    "packer._packs.verify": "Damage verify",
    "packer.augment": "View",
    "packer.crops": "CenterCrop Compose Crop Pad RandomCrop "
    "RandomHorizontalFlip RandomResizedCrop Resize ResizeCenterCrop",
    "packer.samplers": "BlockShuffleSampler OrderSampler SequentialSampler ShuffleSampler",
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
_PACKAGES = ("augment", "crops", "errors", "samplers")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"packer.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES.get(name, "packer.errors")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
