"""Reads the labels in ``dataset.json``, which ``dataset_tool.py`` of StyleGAN and EDM writes with the images."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from packer._account import Account
from packer._fields import Field
from packer._fields.encoding import parsed_json
from packer.errors import SourceError, printable

DATASET_JSON = "dataset.json"
_OF_A_PART = re.compile(r"[0-9]{5}")
VECTOR = Field("labels", "array", "float32", 1)
"""The field of labels that are lists of numbers."""


class DatasetLabels(NamedTuple):
    """The labels of images in a file.

    Attributes
    ----------
    labels : dict of str to int or list
        The label of each image, by path: a whole number, or a list. The elements of a list are not checked yet. Empty
        if the file declares that there are no labels.
    problems : dict of str to str
        The reasons why other images have no usable label, by path.
    nameless : dict of str to str
        The reasons why entries that name no image cannot be used, by the number of the entry.
    """

    labels: dict[str, Any]
    problems: dict[str, str]
    nameless: dict[str, str]

    def are_of_images(self, names: Collection[str], account: Account) -> bool:
        """Tell whether labels belong to these images; record in `account` the labels of all other images.

        The problems of all other images are dropped. The result is False if no label belongs to one of these images,
        because then another tool wrote ``dataset.json``. If the file declares that there are no labels, the result is
        True if all directories have names such as ``00000``, as ``dataset_tool.py`` makes them; directories with other
        names are classes.
        """
        if not self.labels and not self.problems and not self.nameless:
            folders = (name.rpartition("/")[0].rpartition("/")[2] for name in names if "/" in name)
            return bool(names) and all(map(_OF_A_PART.fullmatch, folders))
        if self.labels.keys().isdisjoint(names) and self.problems.keys().isdisjoint(names):
            return False
        strays = sorted((self.labels.keys() | self.problems.keys()) - set(names))
        for name in strays:
            self.problems.pop(name, None)
        account.left_out("label", f"{DATASET_JSON} lists it for an image that does not exist", strays)
        return True


def dataset_labels(data: bytes, where: str, above: str = "") -> DatasetLabels | None:
    """Return the labels of images in a ``dataset.json``.

    The result is None if the file has no ``labels`` entry at all, because then another tool wrote the file.

    Parameters
    ----------
    data : bytes
        The content of the file: ``{"labels": [["00000/img.png", 6], ...]}``, or null instead of the list.
    where : str
        The name of the file in messages.
    above : str
        The text to put before each path.

    Raises
    ------
    SourceError
        If the file is not JSON, or its ``labels`` are not a list.
    """
    try:
        document = parsed_json(data.decode("utf-8-sig"))
        if not isinstance(document, dict) or "labels" not in document:
            return None
        entries = [] if document["labels"] is None else list(document["labels"])
    except (ValueError, TypeError) as error:
        raise SourceError(f"{where}: it does not contain labels for StyleGAN: {printable(error)}") from error
    found = DatasetLabels({}, {}, {})
    for number, entry in enumerate(entries):
        if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str)):
            why = f"entry {number} of labels, counted from 0, is not a path and a label"
            if isinstance(entry, list) and entry and isinstance(entry[0], str):
                found.problems[above + entry[0].replace("\\", "/")] = why
            else:
                found.nameless[f"{above}{DATASET_JSON}, entry {number}"] = why
            continue
        name, label = above + entry[0].replace("\\", "/"), entry[1]
        if type(label) is not int and not (isinstance(label, list) and label):
            found.problems[name] = "its label is neither a number nor a list of numbers"
        elif found.labels.setdefault(name, label) != label:
            found.problems[name] = f"{DATASET_JSON} lists two labels for it"
    for name in found.problems:
        found.labels.pop(name, None)
    return found


def label_vector(label: list[Any]) -> Any:
    """Convert a list of numbers to the form that a pack stores; ValueError if the list is invalid."""
    try:
        return VECTOR.encode(np.array(label, np.float32))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("its label is not a list of numbers") from error
