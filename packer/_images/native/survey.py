"""Sizes and checksums of images, found in C from their bytes, of which no more are read than that needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from packer._images.compiled import _native
from packer._images.probe import ROTATED
from packer._storage.locations import LOCATION

__all__ = ["CAN_SURVEY", "FINDINGS", "KINDS", "SURVEY", "survey"]

CAN_SURVEY = _native is not None
"""Whether C was compiled; without it, `packer._images.probe.inspect` says what there is to say of each image."""

FINDINGS = {1: "CMYK", 2: ROTATED, 4: "bytes after its end"}
"""The bits of ``findings``, and what `inspect` calls them."""

KINDS = "jpeg", "png", "webp"
"""What `inspect` calls a ``kind``."""

_OF_AN_IMAGE = "turned", "out", "read", "modified", "kind", "orientation", "findings", "seen"

SURVEY = np.dtype([*LOCATION.descr, *((name, np.int64) for name in _OF_AN_IMAGE)])
"""An image and what was found.

The fields of `LOCATION`
    ``checked`` says whether a checksum is taken. ``height``, ``width`` and ``crc32c`` are written.
``turned``
    Whether an EXIF orientation has a say in height and width.
``out``, ``read``
    The address of memory for all bytes of an image in a file, or 0: no more are read than tells its size. Whether they
    were read; a whole file is not where it changed meanwhile.
``modified``
    When a whole file was changed last, in nanoseconds; of what was ``read``.
``kind``, ``orientation``
    Which of `KINDS`; EXIF orientation, 1 to 8.
``findings``
    Bits of `FINDINGS`.
``seen``
    0 where nothing was found: the image is not there, or so unusual that `inspect` decides what it is.
"""

if _native is not None and SURVEY.names != tuple(_native.SURVEY_FIELDS.split()):
    raise ImportError("packer._images._native was compiled from another version: install packer anew")


def survey(records: npt.NDArray[Any]) -> None:
    """Look at images, as `inspect` does, and write what was found into their records.

    Parameters
    ----------
    records : contiguous (N,) array of SURVEY
        Addresses in them are believed.
    """
    _native.survey(records.ctypes.data, len(records))
