"""What a Loader reads of what torch makes of datasets: parts, and several in one row."""

from __future__ import annotations

from typing import Any

from torch.utils.data import ConcatDataset, Subset

from packer._loading.concat import ConcatImageDataset
from packer._loading.imagedataset import ImageDataset
from packer._loading.readable import Readable, has_own

__all__ = ["UnreadableError", "readable"]


class UnreadableError(TypeError):
    """A dataset that is not packer's, or of which packer's threads would not make its items.

    Parameters
    ----------
    message : str
    reason : str
        The same as a clause, without what to do.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def readable(dataset: Any) -> Readable:
    """Return what a Loader reads of a dataset, of a torch Subset or ConcatDataset of such, or of these in each other.

    Raises
    ------
    UnreadableError
        If it is something else, or of a class with a ``__getitem__`` of its own, which a Loader would pass over.
    """
    if isinstance(dataset, ImageDataset):
        _require_plain(dataset)
        return dataset
    return _in_a_row(dataset)


def _in_a_row(dataset: Any) -> ConcatImageDataset:
    """Return what `readable` says as datasets in a row, also where it is one."""
    _require_plain(dataset)
    if isinstance(dataset, ConcatImageDataset):
        return dataset
    if isinstance(dataset, ImageDataset):
        return ConcatImageDataset([dataset])
    if isinstance(dataset, Subset):
        return _in_a_row(dataset.dataset)._some(dataset.indices)
    if isinstance(dataset, ConcatDataset):
        return ConcatImageDataset._of([_in_a_row(part) for part in dataset.datasets])
    raise UnreadableError(
        f"a Loader reads a dataset such as packer.open_dataset gives, or a Subset or ConcatDataset of such, not "
        f"{dataset!r}; torch's DataLoader reads any",
        f"{type(dataset).__name__} is not a dataset of packer's, nor a Subset or ConcatDataset of such",
    )


def _require_plain(dataset: Any) -> None:
    """Raise TypeError for a dataset that gives other items than its kind does."""
    for kind in (ImageDataset, ConcatImageDataset, Subset, ConcatDataset):
        if isinstance(dataset, kind) and (own := has_own(dataset, kind)):
            raise UnreadableError(
                f"{type(dataset).__name__} has a {own} of its own, which a Loader would not call: give it to "
                "torch's DataLoader, or what it does to the dataset as transform=",
                f"{type(dataset).__name__} has a {own} of its own",
            )
