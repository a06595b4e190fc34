"""Steps shared by the readers of annotations: choosing a split, and reading a file for each image."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from packer._account import Account, BadSamples
from packer._sources.base import some
from packer._sources.table_source import called_otherwise
from packer.errors import SourceError, option, printable

_T = TypeVar("_T")


def account_for_split(  # noqa: PLR0917
    account: Account, split: str, others: Collection[str], missing: Sequence[str], on_missing: str, where: str
) -> None:
    """Account for images that a split does not name, and for named images that do not exist.

    Parameters
    ----------
    account : Account
    split : str
    others : collection of str
        Existing images that the split does not name.
    missing : sequence of str
        Named images that do not exist.
    on_missing : {"error", "skip"}
    where : str
        The directory or the file of the split, for messages.

    Raises
    ------
    SourceError
        If images are missing, with ``on_missing="error"``.
    """
    account.left_out("image", f"--split {split}", count=len(others), chosen=True)
    if missing and on_missing != "skip":
        otherwise = called_otherwise(set(map(posixpath.basename, others)), [_basename(name) for name in missing])
        raise SourceError(
            f"{where}: {len(missing):,} images of split {printable(split)} are not there: {some(missing)}.{otherwise} "
            f"{option('on_missing', 'skip')} leaves them out."
        )
    account.left_out("image", "the split names it, and it is not there; --on-missing", missing, chosen=True)


def read_each(
    names: Mapping[str, str], read: Callable[[str], _T], where: str, bad: BadSamples
) -> tuple[list[str], list[_T]]:
    """Read the annotations of each image; return the keys of usable images, and their annotations.

    Parameters
    ----------
    names : mapping
        A mapping from each argument of `read` to the name of its image.
    read : callable
        Raises SourceError for annotations that cannot be used.
    where : str
        The name in messages for the images.
    bad : BadSamples
        Collects the images with unusable annotations.

    Raises
    ------
    SourceError
        If no image can be used.
    """
    usable, values = list[str](), list[_T]()
    for key, name in names.items():
        try:
            values.append(read(key))
        except SourceError as error:
            bad.add(name, error)
        else:
            usable.append(key)
    if not usable:
        raise SourceError(f"{where}: no image can be used: {bad.found[0]['reason']}")
    return usable, values


def _basename(name: str) -> str:
    return posixpath.basename(name.replace("\\", "/"))
