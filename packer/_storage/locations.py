"""Where the bytes of samples lie: the records that formats make, and that C reads."""

from __future__ import annotations

import numpy as np

__all__ = ["LOCATION", "MEMORY", "NOWHERE"]

LOCATION = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("file", "position", "size"),
            *("raw", "height", "width"),
            *("checked", "crc32c", "label", "name", "name_size"),
        )
    ]
)
"""Where the bytes of a sample lie and what they are compared with, for C.

``file``, ``position``, ``size``
    A file's descriptor, and where in it how many bytes lie. `MEMORY` for a file: the position is their address.
    `NOWHERE`: they are not where the table says, or C shall not read them.
``raw``, ``height``, ``width``
    Whether the bytes are pixels; the image's size.
``checked``, ``crc32c``, ``label``, ``name``, ``name_size``
    Whether they are compared with a checksum, which one, and what else it was taken of; `name` is an address.
"""


MEMORY, NOWHERE = -1, -2
