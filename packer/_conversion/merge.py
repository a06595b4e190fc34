"""`packer.merge`: joins several packs into one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from packer._conversion import convert
from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.request import format_options
from packer._conversion.workspace import check_destination, check_inputs
from packer._formats import format_for
from packer._sources.pack import CLASS_MAPS, pack_source
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import user_path
from packer._storage.safe_open import path_problem
from packer._storage.system import require_count
from packer.errors import OptionError, OptionTypeError, option, printable


def merge(
    packs: Sequence[str | os.PathLike[str]],
    dst: str | os.PathLike[str],
    *,
    classes: str = "same",
    prefixes: Sequence[str] = (),
    shard_size: int | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    fresh: bool = False,
    progress: Callable[[ConversionProgress], None] | bool | None = None,
) -> Summary:
    """Join packs, one after the other, into one pack, as `packer merge` does. The samples keep their bytes.

    Parameters
    ----------
    packs : sequence of path
        One or more packs, of any format. No two samples may have the same name; see `prefixes`.
    dst : path
        The path of the new pack; its suffix decides the format. In all paths, ``~`` is the user's home directory.
    classes : {"same", "union"}
        ``same``: the packs must have the same classes. ``union``: the classes of the first pack keep their ids, and
        additional classes of the other packs follow.
    prefixes : sequence of str, optional
        A directory name for each of `packs`, to be put before the names of the pack's samples: with ``["a", "b"]``,
        sample ``cat/1.jpg`` of the second pack becomes ``b/cat/1.jpg``. Labels do not change. An empty prefix leaves
        the names unchanged.
    shard_size, workers, overwrite, fresh, progress
        The same as for `convert`.

    Returns
    -------
    Summary
        The summary that `convert` returns.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    OptionError
        If `shard_size` is given although the format of `dst` has no shards.
    SourceError
        If the classes differ; if two samples have the same name; or if the packs have different settings for reading
        their bytes, such as the codec.
    PackError
        If one of `packs` is not a pack, or is damaged.
    DestinationError, PackLockedError, ResumeError
        The same as for `convert`.
    """
    progress = shown_progress(progress, dst)
    if isinstance(packs, str | os.PathLike):
        raise OptionTypeError(f"packs is a sequence of paths, not the path {printable(user_path(packs))!r}")
    if not packs:
        raise OptionError("packs is empty: pass one path or more")
    if classes not in CLASS_MAPS:
        raise OptionError(f"classes must be {' or '.join(map(repr, CLASS_MAPS))}, not {classes!r}")
    _require_prefixes(prefixes, len(packs))
    require_count("workers", workers)
    destination = user_path(dst)
    options = format_options(format_for(destination), shard_size)
    check_inputs(destination, map(user_path, packs))
    check_destination(destination, overwrite=overwrite)
    return convert.convert(
        pack_source(*packs, class_map=classes, prefixes=prefixes),
        destination,
        options=options,
        workers=workers,
        overwrite=overwrite,
        fresh=fresh,
        progress=progress,
        checked=True,
    )


def _require_prefixes(prefixes: Sequence[str], packs: int) -> None:
    """Raise an error unless there is one prefix per pack, or none. Each must be empty or a valid directory name."""
    if isinstance(prefixes, str) or not isinstance(prefixes, Sequence):
        raise OptionTypeError(f"prefixes must be a sequence of strings, not {prefixes!r}")
    for prefix in prefixes:
        if not isinstance(prefix, str):
            raise OptionTypeError(f"prefixes must be strings, one for each of packs, not {prefix!r}")
    if prefixes and len(prefixes) != packs:
        raise OptionError(
            f"{option('prefixes')} is required once for each pack, but there are {len(prefixes)} for {packs} packs"
        )
    for prefix in prefixes:
        if prefix and (problem := path_problem(prefix)):
            quoted = f"'{printable(prefix)}'"
            raise OptionError(f"{option('prefixes', quoted)}: {problem}")
