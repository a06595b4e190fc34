"""packer stores a directory of images in one pack, and reads the images as fast as they can be decoded.

A module is imported when one of its names below is first used. So ``import packer`` takes almost no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from packer._version import __version__ as __version__

if TYPE_CHECKING:
    from packer._conversion.api import convert as convert, pack as pack
    from packer._conversion.append import append as append
    from packer._conversion.convert import ConversionProgress as ConversionProgress, Summary as Summary
    from packer._conversion.index import index as index
    from packer._conversion.merge import merge as merge
    from packer._datasets.concat import ConcatImageDataset as ConcatImageDataset
    from packer._datasets.open import (
        HDF5ImageDataset as HDF5ImageDataset,
        ImageDataset as ImageDataset,
        LMDBImageDataset as LMDBImageDataset,
        PthImageDataset as PthImageDataset,
        open_dataset as open_dataset,
    )
    from packer._datasets.protocol import Fetching as Fetching, LoaderDataset as LoaderDataset, Traits as Traits
    from packer._datasets.staging import stage as stage, unstage as unstage, warm as warm
    from packer._fields import Field as Field
    from packer._formats import Reader as Reader, open_pack as open_pack
    from packer._loader.dataloader import DataLoader as DataLoader
    from packer._loader.loader import Loader as Loader
    from packer._loader.prefetch import BackgroundPrefetcher as BackgroundPrefetcher, CUDAPrefetcher as CUDAPrefetcher
    from packer._measuring.bench import Benchmark as Benchmark, Rate as Rate, bench as bench
    from packer._measuring.diagnosis import Profile as Profile, ProfileReport as ProfileReport, profile as profile
    from packer._measuring.doctor import Diagnosis as Diagnosis, doctor as doctor
    from packer._measuring.estimate import Estimate as Estimate, estimate as estimate
    from packer._measuring.machine import Finding as Finding
    from packer._measuring.tune import LoaderSettings as LoaderSettings, Trial as Trial, Tuning as Tuning, tune as tune
    from packer._packs.export import export as export
    from packer._packs.info import PackInfo as PackInfo, digest as digest, info as info
    from packer._packs.repair import Repaired as Repaired, repair as repair
    from packer._packs.verify import Damage as Damage, Verification as Verification, verify as verify
    from packer._viewing.viewer import Viewer as Viewer, view as view
    from packer.augment import View as View
    from packer.crops import (
        CenterCrop as CenterCrop,
        Compose as Compose,
        Crop as Crop,
        Pad as Pad,
        RandomCrop as RandomCrop,
        RandomHorizontalFlip as RandomHorizontalFlip,
        RandomResizedCrop as RandomResizedCrop,
        Resize as Resize,
        ResizeCenterCrop as ResizeCenterCrop,
    )
    from packer.errors import (
        ClusterError as ClusterError,
        CorruptPackError as CorruptPackError,
        DestinationError as DestinationError,
        DestinationOptionError as DestinationOptionError,
        ImageChangedError as ImageChangedError,
        ImageError as ImageError,
        ImageTooLargeError as ImageTooLargeError,
        MissingDependencyError as MissingDependencyError,
        NoSampleError as NoSampleError,
        NotAPackError as NotAPackError,
        NotTileableError as NotTileableError,
        OptionError as OptionError,
        OptionTypeError as OptionTypeError,
        PackerError as PackerError,
        PackError as PackError,
        PackLockedError as PackLockedError,
        PackNotFoundError as PackNotFoundError,
        RemoteError as RemoteError,
        ResumeError as ResumeError,
        SourceError as SourceError,
        UnsupportedVersionError as UnsupportedVersionError,
        WorkerError as WorkerError,
    )
    from packer.samplers import (
        BlockShuffleSampler as BlockShuffleSampler,
        OrderSampler as OrderSampler,
        SequentialSampler as SequentialSampler,
        ShuffleSampler as ShuffleSampler,
    )

_HOMES = {
    "packer._conversion.api": "convert pack",
    "packer._conversion.append": "append",
    "packer._conversion.convert": "ConversionProgress Summary",
    "packer._conversion.index": "index",
    "packer._conversion.merge": "merge",
    "packer._datasets.concat": "ConcatImageDataset",
    "packer._datasets.open": "HDF5ImageDataset ImageDataset LMDBImageDataset PthImageDataset open_dataset",
    "packer._datasets.protocol": "Fetching LoaderDataset Traits",
    "packer._datasets.staging": "stage unstage warm",
    "packer._fields": "Field",
    "packer._formats": "Reader open_pack",
    "packer._loader.dataloader": "DataLoader",
    "packer._loader.loader": "Loader",
    "packer._loader.prefetch": "BackgroundPrefetcher CUDAPrefetcher",
    "packer._measuring.bench": "Benchmark Rate bench",
    "packer._measuring.diagnosis": "Profile ProfileReport profile",
    "packer._measuring.doctor": "Diagnosis doctor",
    "packer._measuring.estimate": "Estimate estimate",
    "packer._measuring.machine": "Finding",
    "packer._measuring.tune": "LoaderSettings Trial Tuning tune",
    "packer._packs.export": "export",
    "packer._packs.info": "PackInfo digest info",
    "packer._packs.repair": "Repaired repair",
    "packer._packs.verify": "Damage Verification verify",
    "packer._viewing.viewer": "Viewer view",
    "packer.augment": "View",
    "packer.crops": (
        "CenterCrop Compose Crop Pad RandomCrop RandomHorizontalFlip RandomResizedCrop Resize ResizeCenterCrop"
    ),
    "packer.errors": (
        "ClusterError CorruptPackError DestinationError DestinationOptionError ImageChangedError ImageError "
        "ImageTooLargeError MissingDependencyError NoSampleError NotAPackError NotTileableError OptionError "
        "OptionTypeError PackError PackLockedError PackNotFoundError PackerError RemoteError ResumeError "
        "SourceError UnsupportedVersionError WorkerError"
    ),
    "packer.samplers": "BlockShuffleSampler OrderSampler SequentialSampler ShuffleSampler",
}
"""For each module, the public names that it defines. Type checkers read the imports above instead."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = sorted(["__version__", *_MODULES])  # noqa: PLE0605 - the names of the table above

_PACKAGES = ("augment", "crops", "errors", "samplers")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"packer.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
