"""Lists of shards in JSON: wids's index, and timm's ``_info.json``.

wids (once a part of webdataset) has ``{"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [{"url":
"a.tar", "nsamples": 10, "filesize": 20480}, ...]}``; timm has ``{"splits": {"train": {"filenames": ["a.tar", ...],
"shard_lengths": [10, ...]}}}``. Neither says where in a shard a sample lies.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from packer._storage.opening import open_regular
from packer._storage.paths import name_problem
from packer.errors import SourceError, printable

__all__ = ["is_shard_list", "listed_shards"]

_MOST = 1 << 28  # bytes
_MEMBERS = (b'"shardlist"', b'"shard_lengths"')


def is_shard_list(path: Path, head: bytes) -> bool:
    """Tell whether a file is a list of shards, by its name and its first bytes."""
    return path.suffix.lower() == ".json" and any(member in head for member in _MEMBERS)


def listed_shards(path: Path) -> list[Path]:
    """Return the shards that a list names, relative to it, in its order.

    Raises
    ------
    SourceError
        If the list is damaged, has several splits, or names what is no file below its directory, or a file whose size
        is not the one that it says.
    """
    said = _parsed(path)
    splits = said.get("splits") if isinstance(said, dict) else None
    if isinstance(splits, dict):
        if len(splits) != 1:
            names = ", ".join(map(printable, list(splits)[:5]))
            remedy = "Name the shards of one by a pattern, such as 'train-*.tar'"
            raise SourceError(f"{printable(path)}: has the splits {names}. {remedy}")
        (split,) = splits.values()
        shards = [{"url": name} for name in _list(split, "filenames", path)]
    else:
        shards = _list(said, "shardlist", path)
    return [_shard(path, number, shard) for number, shard in enumerate(shards)]


def _shard(path: Path, number: int, shard: Any) -> Path:
    url = shard.get("url") if isinstance(shard, dict) else None
    if not isinstance(url, str):
        raise SourceError(f"{printable(path)}: shard {number} has no name of a file")
    if "://" in url or name_problem(url.removeprefix("./")):
        raise SourceError(f"{printable(path)}: shard {number} is {printable(url)}, which is no file below the list")
    file = path.parent / url
    try:
        size = os.stat(file).st_size
    except OSError as error:
        raise SourceError(f"{printable(file)}: {error.strerror}, and {printable(path)} names it") from error
    if shard.get("filesize", size) != size:
        said = f"{printable(path)} says {printable(shard['filesize'])}"
        raise SourceError(f"{printable(file)}: has {size} bytes, and {said}: one of them was changed since")
    return file


def _list(said: Any, name: str, path: Path) -> list[Any]:
    shards = said.get(name) if isinstance(said, dict) else None
    if not isinstance(shards, list) or not shards:
        raise SourceError(f"{printable(path)}: is no list of shards, as it has no {name}")
    return shards


def _parsed(path: Path) -> Any:
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise ValueError(f"it has more than {_MOST:,} bytes")
        return json.loads(data)
    except OSError as error:
        raise SourceError(f"{printable(path)}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{printable(path)}: is no JSON: {error}") from error
