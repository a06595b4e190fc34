"""What packing would give, as it is measured: some of the samples are converted, and read as packer would read them.

The packs lie in memory where that can be, and else in a temporary directory, for as long as they are measured.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packer._images.probe import inspect
from packer._loading.inplace import SHARED_MEMORY
from packer._measuring.profiling.apart import apart
from packer._measuring.profiling.clocks import Cost
from packer._measuring.profiling.seen import Seen
from packer._measuring.profiling.stages import Stages, measure_stages
from packer._measuring.scratch import scratch_directory
from packer.errors import ImageError

__all__ = ["Packed", "UnpackedError", "measure_packed"]

_SAMPLES = 32
_RESIZED = 256
_WORTH_RESIZING = 1.1
_OF_PACKS = {"crop": "_crop", "output": "_output", "fuse": "_fuse", "mode": "_mode", "transform": "_transform"}
"""Settings of packer's datasets, with the attributes that hold them."""


class UnpackedError(Exception):
    """Packing cannot be tried; the message says why."""


@dataclass(frozen=True)
class Packed:
    """What items of a pack cost.

    Attributes
    ----------
    options : str
        Those of ``packer convert``; empty for packing alone.
    cost : Cost
        Seconds a sample, with transforms and collation.
    samples : int
    """

    options: str
    cost: Cost
    samples: int


def measure_packed(seen: Seen, stages: Stages, seconds: float) -> list[Packed]:
    """Return what the loader's items would cost from a pack, and from one with smaller images where they are large.

    Raises
    ------
    UnpackedError
        If the images' files, or the transform, are not to be seen.
    """
    from packer._conversion.packing import pack as write
    from packer._loading.dataset import open_dataset

    samples = list(_samples(seen, stages))
    if not samples:
        raise UnpackedError("which files the images are is not to be seen in the dataset")
    settings = _settings(seen, stages)
    found: list[Packed] = []
    with scratch_directory("profile", SHARED_MEMORY) as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what fuse= cannot take over, which is no fault here
        for options, given in _ways(seen, samples):
            try:
                pack = directory / f"{len(found)}.lmdb"
                write(samples, pack, classes=["any"], on_error="skip", **given)
                with open_dataset(pack, **settings) as dataset:
                    measured = measure_stages(replace(seen, dataset=dataset, threaded=False), seconds / 2)
            except Exception as error:  # of a person's transform, or of images that packer refuses
                raise UnpackedError(f"the transform and the images do not go together with packer: {error}") from error
            found.append(Packed(options, measured.total, len(samples)))
    return found


def _samples(seen: Seen, stages: Stages) -> Iterator[dict[str, Any]]:
    """Yield samples as `packer.pack` takes them: some of the files that were read, or samples of the pack."""
    if not seen.of_packer:
        for path in list(dict.fromkeys(stages.paths))[:_SAMPLES]:
            yield {"image": Path(path), "label": 0}
        return
    packs = [pack for pack in seen.leaves if len(pack)][:_SAMPLES]
    for pack in packs:
        step = max(len(pack) * len(packs) // _SAMPLES, 1)
        for row in pack._rows_of(list(range(0, len(pack), step)[: _SAMPLES // len(packs)])).tolist():
            yield {"image": bytes(pack.reader.read(row)), "label": 0}


def _settings(seen: Seen, stages: Stages) -> dict[str, Any]:
    """Return the settings with which packer's dataset gives what the loader's dataset gives."""
    dataset, *others = seen.leaves
    names = _OF_PACKS if seen.of_packer else {"transform": "transform"}
    if any(not hasattr(leaf, name) for leaf in seen.leaves for name in names.values()):
        raise UnpackedError("the dataset has no transform that could be applied to a pack's images")
    settings = {name: getattr(dataset, attribute) for name, attribute in names.items()}
    if any(getattr(other, names[name]) != value for other in others for name, value in settings.items()):
        raise UnpackedError("the datasets in a row have transforms of their own")
    if seen.of_packer:
        if any(pack._parts is not None for pack in seen.leaves):
            raise UnpackedError("the samples have fields beside the image")
        return settings
    transform = apart(settings["transform"])
    output = "numpy" if stages.form == "numpy" else "pil" if transform is None else None
    return {"transform": transform, "fuse": transform is not None, "output": output}


def _ways(seen: Seen, samples: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the options that are tried, as the command has them and as `packer.pack` takes them."""
    if not seen.of_packer:
        yield "", {}
    if _shorter_side(samples) > _RESIZED * _WORTH_RESIZING:
        yield f"--resize {_RESIZED}", {"resize": _RESIZED}


def _shorter_side(samples: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean of the shorter sides, in pixels, as the images' headers have them."""
    sides: list[int] = []
    for sample in samples:
        given = sample["image"]
        with contextlib.suppress(OSError, ImageError):
            info = inspect(given if isinstance(given, bytes) else Path(given).read_bytes())
            sides.append(min(info.height, info.width))
    return sum(sides) / max(len(sides), 1)
