"""Reads the labels in ``dataset.json``, which ``dataset_tool.py`` of StyleGAN and EDM writes with the images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from packer._account import Account
from packer._fields import Field
from packer._fields.encoding import parsed_json
from packer.errors import SourceError, printable

DATASET_JSON = "dataset.json"
_OF_A_PART = re.compile(r"[0-9]{5}")
VECTOR = Field("labels", "array", "float32", 1)
"""The field of labels that are lists of numbers."""


def dataset_labels(data: bytes, where: str) -> dict[str, Any] | None:
    """Return the labels of images, by path. A label is a whole number or a list of numbers.

    The result is empty if the file declares that there are no labels. It is None if the file has no ``labels`` entry at
    all, because then another tool wrote the file.

    Parameters
    ----------
    data : bytes
        The content of the file: ``{"labels": [["00000/img.png", 6], ...]}``, or null instead of the list.
    where : str
        The name of the file in messages.

    Raises
    ------
    SourceError
        If a label is malformed, or the file is not JSON.
    """
    try:
        document = parsed_json(data.decode("utf-8-sig"))
        if not isinstance(document, dict) or "labels" not in document:
            return None
        pairs = document["labels"]
        labels = {} if pairs is None else {name.replace("\\", "/"): label for name, label in pairs}
    except (ValueError, TypeError, AttributeError) as error:
        raise SourceError(f"{where}: it has no labels of StyleGAN: {printable(error)}") from error
    for name, label in labels.items():
        if type(label) is not int and not (isinstance(label, list) and label):
            raise SourceError(f"{where}: the label of {printable(name)} is neither a number nor a list of numbers")
    return labels


def are_of_images(labels: Mapping[str, Any], names: Sequence[str], account: Account) -> bool:
    """Tell whether labels belong to these images; record the labels of missing images in `account`.

    If no label belongs to one of these images, another tool wrote ``dataset.json``. If the file says that there are no
    labels, the result tells whether all directories are named as ``dataset_tool.py`` names them, such as ``00000``;
    other directories are classes.
    """
    if not labels:
        folders = (name.rpartition("/")[0].rpartition("/")[2] for name in names if "/" in name)
        return bool(names) and all(map(_OF_A_PART.fullmatch, folders))
    if not any(name in labels for name in names):
        return False
    strays = sorted(labels.keys() - set(names))
    account.left_out("label", f"{DATASET_JSON} has it for an image that is not there", strays)
    return True


def label_vector(label: list[Any]) -> Any:
    """Convert a list of numbers to the form that a pack stores; ValueError if the list is invalid."""
    try:
        return VECTOR.encode(np.array(label, np.float32))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("its label is no list of numbers") from error
