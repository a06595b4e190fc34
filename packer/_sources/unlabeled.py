"""A directory of images of which nobody says the classes: for self-supervised training, or for inference."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from packer._sample import UNLABELED
from packer._sources.base import Source
from packer._sources.walking import ImageRule, Walk
from packer._table import Names
from packer.errors import SourceError, printable

__all__ = ["unlabeled_source"]


def unlabeled_source(root: Path, rule: ImageRule | None = None) -> Source:
    """List all images below `root`, in the order of their sorted paths, each with the label -1.

    Parameters
    ----------
    root : Path
    rule : ImageRule, optional
        Which files count as images; by default those that ImageFolder takes.

    Raises
    ------
    SourceError
        If `root` is no directory, a directory in it cannot be listed, or it has no images.
    """
    rule = rule or ImageRule()
    walk = Walk(root, rule)
    names = walk.all_images()
    notes = walk.said()
    if not names:
        raise SourceError(f"{printable(root)}: no images ({rule}) below it{''.join(f'. {note}' for note in notes)}")
    notes.insert(0, "the images are unlabeled: every label is -1, and there are no classes")
    labels = np.full(len(names), UNLABELED, np.int64)
    return Source("files", root, Names.of(sorted(names)), labels, [], notes, others=walk.others, account=walk.account)
