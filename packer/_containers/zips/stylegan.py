"""The labels of StyleGAN's and EDM's ``dataset_tool.py``: ``dataset.json``, in an archive or among images."""

from __future__ import annotations

from typing import Any

import numpy as np

from packer._fields import Field
from packer._fields.values import parsed_json
from packer.errors import SourceError, printable

__all__ = ["DATASET_JSON", "VECTOR", "dataset_labels", "label_vector"]

DATASET_JSON = "dataset.json"
VECTOR = Field("labels", "array", "float32", 1)
"""The field of labels that are lists of numbers."""


def dataset_labels(data: bytes, where: str) -> dict[str, Any]:
    """Return the labels of images by their paths, a whole number or a list of numbers each; empty where there are none.

    Parameters
    ----------
    data : bytes
        The file: ``{"labels": [["00000/img.png", 6], ...]}``, or with null in place of the list.
    where : str
        What a message calls the file.

    Raises
    ------
    SourceError
        If it is none such.
    """
    try:
        said = parsed_json(data.decode("utf-8-sig"))
        pairs = said["labels"] if isinstance(said, dict) else None
        labels = {} if pairs is None else {name.replace("\\", "/"): label for name, label in pairs}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{where}: it has no labels of StyleGAN: {printable(error)}") from error
    for name, label in labels.items():
        if type(label) is not int and not (isinstance(label, list) and label):
            raise SourceError(f"{where}: the label of {printable(name)} is neither a number nor a list of numbers")
    return labels


def label_vector(label: list[Any], where: str, name: str) -> Any:
    """Return a list of numbers as a pack holds it; SourceError where it is none."""
    try:
        return VECTOR.encode(np.array(label, np.float32))
    except (ValueError, TypeError) as error:
        raise SourceError(f"{where}: the label of {printable(name)} is no list of numbers") from error
