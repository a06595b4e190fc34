"""What ImageFolder's arguments mean for a pack, whose images are no files any more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from packer._loading.samples import Samples
from packer._table import Ints, Names, encode_name
from packer.errors import printable

__all__ = ["joint", "require_known_loader", "row_of", "valid_rows"]


def require_known_loader(loader: Callable[[str], Any] | None) -> None:
    """Raise TypeError for a loader that is none of torchvision's: there are no files for it."""
    folder = sys.modules.get("torchvision.datasets.folder")
    known = [getattr(folder, name, None) for name in ("default_loader", "pil_loader")]
    if loader is not None and loader not in known:
        raise TypeError(
            f"loader={loader!r} loads files, and the images of a pack are no files: say output='bytes', which gives "
            "transform= the bytes of each file"
        )


def valid_rows(
    samples: Samples, classes: Sequence[str], is_valid_file: Callable[[str], bool], allow_empty: bool
) -> Ints:
    """Return which samples have a name that `is_valid_file` takes.

    Raises
    ------
    FileNotFoundError
        If a class loses all of its samples, as by ImageFolder, unless `allow_empty`.
    """
    kept = np.array([number for number, (name, _) in enumerate(samples) if is_valid_file(name)], np.int64)
    labels = samples.labels
    lost = np.setdiff1d(labels, labels[kept]).tolist()
    if lost and not allow_empty:
        names = ", ".join(classes[label] if 0 <= label < len(classes) else str(label) for label in lost)
        raise FileNotFoundError(f"is_valid_file leaves no sample of the classes {names}; allow_empty=True allows that")
    return kept


def row_of(names: Names, name: str) -> int:
    """Return the place of the sample with a name; FileNotFoundError where there is none."""
    wanted, blob = encode_name(name), names.blob.tobytes()
    begin = blob.find(wanted)
    while begin >= 0:
        row = int(np.searchsorted(names.ends, begin + len(wanted)))
        if row < len(names) and names[row] == name:
            return row
        begin = blob.find(wanted, begin + 1)
    raise FileNotFoundError(f"{printable(names.path)}: no sample has the name {printable(name)}")


def joint(transform: Any, target_transform: Any) -> Any:
    """Return torchvision's joint transform of the two, which VisionDataset calls `transforms`; None without them."""
    if transform is None and target_transform is None:
        return None
    vision = sys.modules.get("torchvision.datasets.vision")
    if vision is None:
        return lambda image, target: (
            transform(image) if transform is not None else image,
            target_transform(target) if target_transform is not None else target,
        )
    return vision.StandardTransform(transform, target_transform)
