"""`packer.estimate`: what the command does, as a function; errors speak of arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from packer._conversion.annotated import files_said
from packer._conversion.request import ConversionRequest
from packer._conversion.required import require_format
from packer._conversion.spoken import speaking_of_arguments
from packer._conversion.verbs import convert
from packer._measuring.estimating.estimate import Estimate, estimate_request
from packer._storage.limits import require_count, require_seconds
from packer._storage.progress import shown_progress
from packer._storage.urlpath import local_path

__all__ = ["estimate"]

_PATHS = ("labels", "classes_from", "report", "voc", "yolo")


@partial(speaking_of_arguments, others=convert)
def estimate(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    jobs: int | None = None,
    seconds: float = 10.0,
    seed: int = 0,
    progress: Callable[[str, int, int | None], None] | bool | None = None,
    **options: Any,
) -> Estimate:
    """Estimate what a conversion gives and takes, as `packer estimate` does.

    Some images of every size are converted as all would be, into a directory beside `dst` that goes again. All images
    are listed and, where time allows, asked for their sizes.

    Parameters
    ----------
    src : path
        What `convert` takes.
    dst : path, optional
        Where the pack will be: its suffix decides the format, and the trials lie on its disk. By default a ``.lmdb``
        of the name of `src` in the present directory.
    jobs : int, optional
        On how many machines such as this one parts may be made; 1 by default.
    seconds : float
        How long it may take, about; a listing that takes more than half of that comes in addition.
    seed : int
        Decides which images are tried.
    progress : bool or callable, optional
        True shows a bar. A callable is called with what is done now, how much of it is done, and how much there is of
        it, or None where that is not known.
    **options
        The arguments of `convert`.

    Returns
    -------
    Estimate
        `size` in bytes and `seconds`, both with `value`, `low` and `high`; `findings`, `alternatives`, the `command`
        that makes the pack, and what else was learnt.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these.
    OptionError, SourceError, PackError, DestinationError, MissingDependencyError
        As `convert`.
    """
    progress = shown_progress(progress, "estimate")
    require_count("jobs", jobs)
    require_seconds("seconds", seconds)
    request = requested(src, dst, options)
    return estimate_request(request, jobs=jobs or 1, seconds=seconds, seed=seed, progress=progress)


def requested(
    src: str | os.PathLike[str], dst: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> ConversionRequest:
    """Return the conversion that is asked for; TypeError for an option that `packer.convert` has not."""
    known = {field.name for field in fields(ConversionRequest)}
    for name in options:
        if name not in known:
            raise TypeError(f"estimate takes no {name!r}: packer.convert has no such argument")
    paths: dict[str, Any] = {name: local_path(options[name]) for name in _PATHS if options.get(name) is not None}
    if options.get("coco"):
        paths["coco"] = files_said(options["coco"])
    place = default_destination(local_path(src), options.get("format")) if dst is None else local_path(dst)
    return ConversionRequest(src=local_path(src), dst=place, **{**options, **paths})


def default_destination(src: Path, format: str | None) -> Path:
    """Return where the pack would lie: a free name in the present directory, or beside that where it is of `src`."""
    suffix = ".lmdb" if format is None else require_format(format).suffixes[0]
    name = re.sub(r"[^\w.-]+", "", Path(os.path.abspath(src)).stem).strip(".-") or "pack"
    inside = Path.cwd().is_relative_to(os.path.realpath(src))
    folder = Path(os.path.realpath(src)).parent if inside else Path()
    number, place = 1, folder / f"{name}{suffix}"
    while os.path.lexists(place):
        number += 1
        place = folder / f"{name}-{number}{suffix}"
    return place
