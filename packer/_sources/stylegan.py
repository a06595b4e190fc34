"""Image directories with a ``dataset.json``, as ``dataset_tool.py`` of StyleGAN and EDM writes them.

The subdirectories are parts of equal size, not classes. Order and labels are the same as for these files in a zip.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from packer._account import Account, BadSamples
from packer._codecs import UNLABELED
from packer._containers.dataset_json import DATASET_JSON, VECTOR, are_of_images, dataset_labels, label_vector
from packer._sources.base import BlobColumn, Source
from packer._sources.imagefolder import ImageRule, Walk
from packer._sources.labels import unknown_classes, without_bad
from packer._storage.safe_open import open_regular
from packer._table import Names
from packer.errors import SourceError, option, printable

_MOST = 1 << 28  # bytes of labels


def stylegan_source(
    root: Path, classes: Sequence[str] | None = None, rule: ImageRule | None = None, bad: BadSamples | None = None
) -> Source | None:
    """List the images of a directory with the labels of its ``dataset.json``; None if another tool wrote it.

    The file may declare that there are no labels.

    Parameters
    ----------
    root : Path
    classes : sequence of str, optional
        Class names in the order of their ids; by default classes are called by their numbers.
    rule : ImageRule, optional
        The rule that decides which files are images.
    bad : BadSamples, optional
        Collects the images whose label is none of `classes`; by default such a label is an error.

    Raises
    ------
    SourceError
        If the file has an invalid label, or one outside of `classes`; or the directory cannot be listed.
    """
    path = root / DATASET_JSON
    labels = _labels(path)
    if labels is None:
        return None
    walk, account = Walk(root, rule or ImageRule()), Account()
    names = sorted(walk.all_images())
    has_labels = "the labels" if labels else "it says that there are no labels"
    why = f"{has_labels}, and directories are no classes; --no-metadata leaves it alone"
    account.taken("file", why, [DATASET_JSON])
    account.update(walk.account)
    if not are_of_images(labels, names, account):
        return None
    bad = bad or BadSamples()
    vectors = {row: label for row, label in enumerate(map(labels.get, names)) if isinstance(label, list)}
    columns, unusable = [], list[int]()
    if vectors:
        stored: list[Any] = [None] * len(names)
        for row, vector in vectors.items():
            try:
                stored[row] = label_vector(vector)
            except ValueError as error:
                bad.add(names[row], SourceError(f"{printable(path)}: {printable(names[row])}: {error}"))
                unusable.append(row)
        columns.append(BlobColumn.of(VECTOR, stored))
    ids = [label if type(label) is int else UNLABELED for label in map(labels.get, names)]
    known = [] if (columns or not labels) and max(ids) == min(ids) == UNLABELED else _classes(ids, classes, path, bad)
    unknown = [row for row, label in enumerate(ids) if known and label >= len(known)]
    for row in unknown:
        bad.add(names[row], SourceError(f"its label is {ids[row]}, and there are {len(known)} classes"))
    others = walk.others.without(DATASET_JSON)
    source = Source(
        "stylegan",
        root,
        Names.of(names),
        np.array(ids, np.int64),
        known,
        others.notes(),
        others=others,
        account=account,
    )
    return without_bad(source.having(*columns), sorted({*unknown, *unusable}), bad)


def _labels(path: Path) -> dict[str, Any] | None:
    """Return the labels in a file; None if there is no file, or another tool wrote it."""
    try:
        if os.path.getsize(path) > _MOST:
            return None
        with open(open_regular(path), "rb") as file:
            return dataset_labels(file.read(_MOST), printable(path))
    except (OSError, SourceError):
        return None


def _classes(labels: Sequence[int], classes: Sequence[str] | None, path: Path, bad: BadSamples) -> list[str]:
    least, most = min(labels), max(labels)
    if least < UNLABELED or most > 1000 + 10 * len(labels):
        raise SourceError(
            f"{printable(path)}: labels from {least} to {most} are no ids of classes. "
            f"{option('no_metadata', True)} leaves the "
            "file alone"
        )
    if classes is None:
        return list(map(str, range(most + 1)))
    if most >= len(classes):
        bad.require_skip(SourceError(f"{printable(path)}: {unknown_classes([str(most)])}"))
    return list(classes)
