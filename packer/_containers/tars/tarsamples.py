"""Samples in a tar, as webdataset has them: members that follow each other and have the same key.

A member's key is its path up to the first dot of the file's name, and its extension, in lower case, is what comes after
that dot: ``dir/0001.seg.png`` is ``seg.png`` of the sample ``dir/0001``. A key that comes back later is another sample.
See https://github.com/webdataset/webdataset, webdataset/tariterators.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packer._containers.tars.tarheaders import Member
from packer.errors import SourceError, printable

__all__ = ["Sample", "shown_name", "tar_samples"]

Sample = dict[str, Member]
"""The members of a sample by their extensions."""

_META = re.compile("__[^/]*__($|/)")  # names that webdataset keeps for itself
_MOST = 1000  # members of a sample


def tar_samples(path: str, members: Iterable[Member]) -> Iterator[Sample]:
    """Yield the samples that members of a tar make, in their order.

    Files whose names begin with a dot, or have none, belong to no sample.

    Raises
    ------
    SourceError
        If a sample has two members of one extension, or very many.
    """
    sample: Sample = {}
    key, archive = "", -1
    for member in members:
        name = member.name
        slash = name.rfind("/") + 1
        dot = name.find(".", slash)
        if dot <= slash or (name.startswith("__") and _META.match(name)):
            continue
        if name[:dot] != key or member.archive != archive:
            if sample:
                yield sample
            sample, key, archive = {}, name[:dot], member.archive
        extension = name[dot + 1 :].lower()
        if extension in sample or len(sample) >= _MOST:
            why = f"has .{extension} twice" if extension in sample else f"has more than {_MOST} members"
            where = f"{printable(path)}: byte {member.header}: sample {printable(key)}"
            raise SourceError(f"{where} {printable(why)}. The key of a sample ends at the first dot of a file's name")
        sample[extension] = member
    if sample:
        yield sample


def shown_name(member: Member) -> str:
    """Return the name of a member, without the ``./`` that some tools begin it with."""
    name = member.name
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name
