"""Which key of a container's samples has the labels: by its name, and by values that repeat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from packer._account import Account, has_label_name, is_label_name

__all__ = ["add_candidates", "is_named", "label_key"]

_BY_RANK = ("label", "class", "cls", "target", "category", "labels", "targets", "y")
_OF_OTHERS = frozenset(
    [
        "alpha",
        "age",
        "angle",
        "area",
        "aspect",
        "bands",
        "bits",
        "blur",
        "bytes",
        "camera",
        "caption",
        "captions",
        "channel",
        "channels",
        "colorspace",
        "comment",
        "copyright",
        "count",
        "crc",
        "date",
        "day",
        "depth",
        "description",
        "dimension",
        "dimensions",
        "dpi",
        "duration",
        "encoding",
        "exif",
        "extension",
        "file",
        "filename",
        "filepath",
        "folder",
        "format",
        "frame",
        "frames",
        "h",
        "height",
        "hash",
        "id",
        "idx",
        "image",
        "img",
        "index",
        "instance",
        "key",
        "lang",
        "language",
        "lat",
        "latitude",
        "length",
        "license",
        "lon",
        "longitude",
        "md5",
        "mime",
        "mode",
        "month",
        "name",
        "num",
        "number",
        "offset",
        "orientation",
        "page",
        "patient",
        "path",
        "position",
        "prompt",
        "quality",
        "question",
        "resolution",
        "row",
        "score",
        "seed",
        "seq",
        "sequence",
        "session",
        "sha",
        "sha1",
        "sha256",
        "shape",
        "shard",
        "similarity",
        "site",
        "size",
        "source",
        "split",
        "stamp",
        "status",
        "subject",
        "text",
        "time",
        "timestamp",
        "title",
        "txt",
        "type",
        "uid",
        "uri",
        "url",
        "user",
        "uuid",
        "value",
        "version",
        "video",
        "view",
        "w",
        "weight",
        "width",
        "x",
        "year",
    ]
)
"""Words in the names of keys whose values may repeat, and that are no labels."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FEWEST = 4  # values by which it is told whether they repeat
_LARGEST = 1 << 20  # of an integer that may be the id of a class
_LONGEST = 64  # characters of the name of a class


def label_key(keys: Iterable[str], known: Sequence[str] = ()) -> str | None:
    """Return the key of the labels; None where no key has a name of labels.

    Parameters
    ----------
    keys : iterable of str
        Those whose values can be labels.
    known : sequence of str
        The names that the container's own tools use: the first of them counts, before any other name of labels.
    """
    there = list(keys)
    found = [key for key in known if key in there]
    found += sorted((key for key in there if is_named(key)), key=_rank)
    return next(iter(found), None)


def is_named(key: str) -> bool:
    """Tell whether a key has a name of labels; of one with dots or slashes, by its last part."""
    return is_label_name(key.replace(".", "/"))


def add_candidates(
    account: Account, what: str, values: Mapping[str, Sequence[Any]], option: str = "--key label={}"
) -> None:
    """Add the keys that look like labels to an account, for containers in which no key was taken for the labels.

    Parameters
    ----------
    account : Account
    what : str
        What keys are called: ``column``, ``feature``.
    values : mapping
        By key, values that can be labels, of the samples that were looked at.
    option : str
        The option that takes a key, with ``{}`` in its place.
    """
    for key, found in values.items():
        if found and (has_label_name(key) or _repeat(key, found)):
            account.looks_like_labels(what, key, option.format(key))


def _rank(key: str) -> int:
    return _BY_RANK.index(key.replace(".", "/").rpartition("/")[2].lower())


def _words(key: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(key))


def _repeat(key: str, values: Sequence[Any]) -> bool:
    """Tell whether values are few small integers or short texts, and the key does not say that they are no labels."""
    if len(values) < _FEWEST or _words(key) & _OF_OTHERS:
        return False
    small = all(type(value) is int and 0 <= value < _LARGEST for value in values)
    short = all(isinstance(value, str) and 0 < len(value) <= _LONGEST for value in values)
    return (small or short) and 2 <= len(set(values)) <= len(values) // 2
