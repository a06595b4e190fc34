"""A directory with one subdirectory a class, listed as torchvision's ImageFolder lists it.

As with `find_classes` in `torchvision.datasets.folder`, classes are the sorted names of the root's subdirectories. What
counts within a class, and in which order, `packer._sources.walking` says.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from packer._account import Account
from packer._containers import files_to_name, numbered_classes
from packer._containers.classdirectories import SPLITS
from packer._sources.base import Source, some
from packer._sources.classlist import class_ids, unknown_classes
from packer._sources.walking import ImageRule, Walk, is_hidden, subdirectories
from packer._storage.systemfiles import LEFT_BY_SYSTEM, MACOSX
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = [
    "HIDDEN_CLASS",
    "FilesOf",
    "class_directories",
    "imagefolder_source",
    "refuse_splits",
    "require_images_in_classes",
    "split_directories",
]

FilesOf = Callable[[Iterable[str]], Mapping[str, str]]
"""Returns, of the names of images, the paths below the root that may be files of their fields; by path an image."""

_TRAINING = ("train", "training")

HIDDEN_CLASS = "a hidden directory is a class, as for ImageFolder; --skip-hidden leaves it out"
"""What an account says of a class whose name begins with a dot."""


def imagefolder_source(
    root: Path,
    classes: Sequence[str] | None = None,
    rule: ImageRule | None = None,
    files_of: FilesOf | None = None,
    *,
    allow_empty: bool = True,
) -> Source:
    """List the images below `root`.

    Parameters
    ----------
    root : Path
    classes : sequence of str, optional
        Class names in the order of their ids; the default is the sorted names of the subdirectories.
    rule : ImageRule, optional
        Which files count as images; by default those that ImageFolder takes.
    files_of : callable, optional
        Which files belong to fields. These are no images of their own, and a directory with no other images is no
        class.
    allow_empty : bool
        Whether a class may have no image, as it may where `classes` are given. ImageFolder has the same argument, and
        raises by default, as the requests of conversions do.

    Raises
    ------
    SourceError
        If `root` is no directory, a directory in it cannot be listed, it has no images, or has a class that is not in
        `classes`, or `classes` name one twice; or if a class has no image.
    """
    walk = Walk(root, rule or ImageRule())
    folders = list(filter(walk.enters, subdirectories(root)))
    if not folders:
        raise SourceError(
            f"{printable(root)}: no subdirectories in it. Images are expected as {printable(root)}/CLASS/IMAGE; "
            "for labels in a file, say --labels FILE.csv; for images without labels, say --unlabeled"
            f"{files_to_name(root)}."
        )
    outside = walk.images_in()
    listed = {folder: walk.images_below(folder) for folder in folders}
    account = _without_left(listed, walk)
    folders = list(listed)
    notes = walk.said()
    if files_of is not None:
        listed = _without_files(root, listed, files_of, notes)
        folders = list(listed)
    if classes is not None:
        unknown = [folder for folder in folders if folder not in set(classes)]
        if unknown:
            raise SourceError(f"{printable(root)}: {unknown_classes([*map(printable, unknown)])}")
    found = [Names.of(names) for names in listed.values()]
    if not any(map(len, found)):
        others = "".join(f". {note}" for note in notes)
        raise SourceError(
            f"{printable(root)}: no images ({rule or ImageRule()}) in its {len(folders)} directories{others}"
            f"{files_to_name(root)}"
        )
    if empty := [folder for folder, names in zip(folders, found, strict=True) if not len(names)]:
        if classes is None and not allow_empty:
            raise _of_empty(root, empty)
        notes += [f"classes without images, which keep their ids: {some(empty)}"] if classes is None else []
    if classes is None:
        _account_for_training(root, folders, account)
    account.left_out("image", "it lies outside of any class, as ImageFolder has it", outside)
    ids = class_ids(folders if classes is None else classes)
    if classes is None:
        notes += numbered_classes(folders)
    labels = np.repeat(np.array([ids[folder] for folder in folders], np.int64), [len(names) for names in found])
    return Source(
        "imagefolder", root, Names.joined(found), labels, list(ids), notes, others=walk.others, account=account
    )


def _account_for_training(root: Path, folders: Sequence[str], account: Account) -> None:
    """Say which classes the training images beside have, and these have not, as ImageFolder numbers both apart."""
    if root.absolute().name.lower() not in SPLITS or root.absolute().name.lower() in _TRAINING:
        return
    try:
        beside = [name for name in subdirectories(root.absolute().parent) if name.lower() in _TRAINING]
        theirs = class_directories(root.absolute().parent / beside[0]) if beside else []
    except (SourceError, OSError):
        return
    lacking = sorted(set(theirs).difference(folders))
    if not lacking or not set(theirs).intersection(folders):
        return
    ids = class_ids(theirs)
    same = all(ids.get(folder, place) == place for place, folder in enumerate(folders))
    others = (
        "" if same else ", and others have other ids there: convert both, and this one with --classes-from its pack"
    )
    account.not_looked_at("class", f"the directory {printable(beside[0])} beside has it{others}", lacking)


def require_images_in_classes(source: Source) -> None:
    """Raise SourceError where a class has no image, as ImageFolder does."""
    there = np.bincount(source.labels, minlength=len(source.classes))
    if empty := [source.classes[label] for label in np.flatnonzero(there == 0).tolist()]:
        raise _of_empty(source.root, empty)


def _of_empty(root: Path, empty: Sequence[str]) -> SourceError:
    hidden = "; --skip-hidden leaves hidden ones out" if any(map(is_hidden, empty)) else ""
    one = len(empty) == 1
    return SourceError(
        f"{printable(root)}: no images in the class director{'y' if one else 'ies'} {some(empty)}, where ImageFolder "
        f"raises too. Fill or remove {'it' if one else 'them'}; or say --allow-empty: such a class keeps its id{hidden}"
    )


def _without_left(listed: dict[str, list[str]], walk: Walk) -> Account:
    """Take out the directories that macOS left, and return what was seen while the images were listed."""
    account = Account()
    account.taken("class", HIDDEN_CLASS, [folder for folder in listed if is_hidden(folder)])
    account.update(walk.account)
    left = list(filter(walk.is_left_by_system, listed))
    account.not_looked_at("directory", LEFT_BY_SYSTEM, left)
    for name, option in walk.beside.items():
        account.not_looked_at("file", f"it may have the labels: {option}", [name])
    for folder in left:
        del listed[folder]
    return account


def _without_files(
    root: Path, listed: Mapping[str, list[str]], files_of: FilesOf, notes: list[str]
) -> dict[str, list[str]]:
    """Return the images of each class without files of fields, and without directories of such files alone."""
    of = files_of(name for names in listed.values() for name in names)
    kept = {folder: [name for name in names if name not in of] for folder, names in listed.items()}
    if any(listed.values()) and not any(kept.values()):
        raise SourceError(f"{printable(root)}: every image is a file of a field of another one")
    if count := sum(map(len, listed.values())) - sum(map(len, kept.values())):
        notes.append(f"{count:,} files of fields lie among the images, and are no images of their own")
    led: dict[str, list[str]] = {}  # from images elsewhere
    for path, name in of.items():
        folder = path.partition("/")[0]
        if folder in kept and folder != name.partition("/")[0]:
            led.setdefault(folder, []).append(path)
    led = {folder: paths for folder, paths in led.items() if any(os.path.isfile(root / path) for path in paths)}
    if beside := [folder for folder in led if not kept[folder]]:
        notes.append(f"directories of files of fields alone, which are no classes: {some(beside)}")
    if mixed := [folder for folder in led if kept[folder]]:
        first = printable(kept[mixed[0]][0])
        notes.append(
            f"directories with files of fields that are classes, as they have other images, such as {first}: "
            f"{some(mixed)}"
        )
    return {folder: names for folder, names in kept.items() if folder not in beside}


def class_directories(root: Path) -> list[str]:
    """Return the sorted names of the subdirectories of `root`; SourceError where it is not a directory.

    What macOS left of a zip archive is none of them, unless there are images in it.
    """
    folders = subdirectories(root)
    if MACOSX in folders and not Walk(root, ImageRule()).images_below(MACOSX):
        folders.remove(MACOSX)
    return folders


def split_directories(root: Path) -> list[str]:
    """Return the names of the splits (train, val, …) below `root`: directories with class directories in them."""
    folders = [folder for folder in class_directories(root) if folder.lower() in SPLITS]
    splits = [folder for folder in folders if class_directories(root / folder)]
    return sorted(splits, key=lambda folder: (SPLITS.index(folder.lower()), folder))


def refuse_splits(root: Path, destination: Path) -> None:
    """Raise SourceError, with the command to use instead, where `root` holds splits and not classes.

    That is so where two directories are splits, or all are; a single class may well be called ``train``.
    """
    splits = split_directories(root)
    folders = [folder for folder in class_directories(root) if not is_hidden(folder)]
    all_named_so = all(folder.lower() in SPLITS for folder in folders)
    if len(splits) > 1 or (splits and all_named_so):
        each = destination.with_stem(f"{destination.stem}-{splits[0]}")
        src, split, dst, split_dst = (shlex.quote(printable(p)) for p in (root, root / splits[0], destination, each))
        raise SourceError(
            f"{printable(root)} holds splits ({', '.join(splits)}), not classes.\n"
            f"Convert all of them, with one class map:\n"
            f"  packer convert {src} {dst} --split all\n"
            f"or one:\n"
            f"  packer convert {split} {split_dst}"
        )
