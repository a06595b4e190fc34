"""One hash over the samples of a pack: two packs with the same digest give the same samples in the same order.

It says nothing of formats, parts, settings or versions, so it compares conversions that were made in different ways.
It is the SHA-256 of hashes, one after the other, each a SHA-256 too: that of the classes, as `Names` stores them
(`ends` as int64, then `blob`), and those of the samples in their order. A sample's is taken of five int64 (length of
the name, label, height, width, length of the data), of the name and of the data. Numbers are little-endian. Where
labels are no class ids, the word "int" or "float" comes before all hashes, and a float label stands as its float64.

Where there are fields, the hash of what they are follows that of the classes: of a JSON array with the member of the
manifest for each, without its `file`, in ASCII and without spaces, the members of objects in the order of their names.
And the hash of a sample is taken also of what follows its data, for each field an int64 and some bytes: of a number,
its size in bytes and the number as its column has it; of other values, the length of the value and the value; -1 where
there is no value.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from packer._fields import Field
from packer._formats import Reader, open_pack
from packer._packs.damage import blobs_or_errors
from packer._packs.sweep import over_samples
from packer._storage.limits import require_count
from packer._storage.progress import shown_progress
from packer._table import NO_VALUE, Buffer, Names
from packer.errors import PackError

__all__ = ["digest"]

_NUMBERS, _LENGTH = struct.Struct("<qqqqq"), struct.Struct("<q")


def digest(
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | bool | None = None,
) -> str:
    """Return the digest of a pack, 64 hexadecimal digits. Every sample is compared with its checksum on the way.

    Parameters
    ----------
    path : path
    workers : int, optional
        Threads; by default the CPUs that affinity, cgroup and SLURM grant.
    progress : bool or callable, optional
        True shows a bar. A callable is called with the number of samples read and their total.

    Raises
    ------
    TypeError, ValueError
        If `workers` is no whole number of 1 or more.
    PackError
        If the pack, or a sample of it, is damaged.
    """
    progress = shown_progress(progress, path)
    require_count("workers", workers)
    with open_pack(path) as reader:
        classes = Names.of(reader.manifest.classes)
        whole = hashlib.sha256()
        if reader.manifest.label_type != "class":  # else an id and the number would be one
            whole.update(reader.manifest.label_type.encode("ascii"))
        whole.update(hashlib.sha256(classes.ends.astype("<i8").tobytes() + classes.blob.tobytes()).digest())
        if reader.fields:
            whole.update(hashlib.sha256(_said(reader.manifest.fields)).digest())
        hashing, before = partial(_hashes, reader), reader.ahead_whole
        for hashes in over_samples(hashing, len(reader), workers=workers, progress=progress, before=before):
            whole.update(hashes)
    return whole.hexdigest()


def _said(fields: Sequence[Field]) -> bytes:
    """Return what fields are, but for where their values came from."""
    members = [replace(field, file="").to_json() for field in fields]
    return json.dumps(members, separators=(",", ":"), sort_keys=True).encode("ascii")


def _hashes(reader: Reader, indices: range) -> bytes:
    table, names = reader.table, reader.names
    hashes = []
    values = [_values(reader, field, indices) for field in reader.fields.values()]
    for index in indices:
        data, name = reader.read(index), names.encoded(index)
        label, height, width = int(table.label[index].view(np.int64)), int(table.height[index]), int(table.width[index])
        sample = hashlib.sha256(_NUMBERS.pack(len(name), label, height, width, len(data)))
        sample.update(name)
        sample.update(data)
        for field in values:
            value = next(field)
            sample.update(_LENGTH.pack(NO_VALUE if value is None else len(value)))
            sample.update(b"" if value is None else value)
        hashes.append(sample.digest())
    return b"".join(hashes)


def _values(reader: Reader, field: Field, indices: range) -> Iterator[Buffer | None]:
    """Yield the bytes of a field's value of each sample, None where there is none."""
    if not field.is_blob:
        values, present = reader.column(field.name)
        for index in indices:
            yield values[index].tobytes() if present[index] else None
        return
    for _, blob in blobs_or_errors(reader, indices, field.name):
        if isinstance(blob, PackError):
            raise blob
        yield blob
