"""One hash over the samples of a pack: two packs with the same digest give the same samples in the same order.

It says nothing of formats, parts, settings or versions, so it compares conversions that were made in different ways.
It is the SHA-256 of hashes, one after the other, each a SHA-256 too: that of the classes, as `Names` stores them
(`ends` as int64, then `blob`), and those of the samples in their order. A sample's is taken of five int64 (length of
the name, label, height, width, length of the data), of the name and of the data. Numbers are little-endian. Where
labels are no class ids, the word "int" or "float" comes before all hashes, and a float label stands as its float64.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable
from functools import partial

import numpy as np

from packer._formats import Reader, open_pack
from packer._limits import require_count
from packer._packs.sweep import over_samples
from packer._table import Names

__all__ = ["digest"]

_NUMBERS = struct.Struct("<qqqqq")


def digest(
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> str:
    """Return the digest of a pack, 64 hexadecimal digits. Every sample is compared with its checksum on the way.

    Parameters
    ----------
    path : path
    workers : int, optional
        Threads; by default the CPUs that affinity, cgroup and SLURM grant.
    progress : callable, optional
        Called with the number of samples read and their total.

    Raises
    ------
    TypeError, ValueError
        If `workers` is no whole number of 1 or more.
    PackError
        If the pack, or a sample of it, is damaged.
    """
    require_count("workers", workers)
    with open_pack(path) as reader:
        classes = Names.of(reader.manifest.classes)
        whole = hashlib.sha256()
        if reader.manifest.label_type != "class":  # else an id and the number would be one
            whole.update(reader.manifest.label_type.encode("ascii"))
        whole.update(hashlib.sha256(classes.ends.astype("<i8").tobytes() + classes.blob.tobytes()).digest())
        for hashes in over_samples(partial(_hashes, reader), len(reader), workers=workers, progress=progress):
            whole.update(hashes)
    return whole.hexdigest()


def _hashes(reader: Reader, indices: range) -> bytes:
    table, names = reader.table, reader.names
    hashes = []
    for index in indices:
        data, name = reader.read(index), names.encoded(index)
        label, height, width = int(table.label[index].view(np.int64)), int(table.height[index]), int(table.width[index])
        sample = hashlib.sha256(_NUMBERS.pack(len(name), label, height, width, len(data)))
        sample.update(name)
        sample.update(data)
        hashes.append(sample.digest())
    return b"".join(hashes)
