"""What a conversion in parts began with, and whether a process that joins the conversion asks for the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packer._conversion.changes import setting_differences, started_differently
from packer._conversion.provenance import provenance
from packer._conversion.recipe import Recipe
from packer._sources import ListedSource, Source
from packer.errors import SourceError, printable

__all__ = ["described", "require_same"]


def described(
    settings: Mapping[str, Any], recipe: Recipe, source: Source, request: Mapping[str, Any], *, overwrite: bool
) -> dict[str, Any]:
    """Return what a job that begins writes down, as a JSON object; see `packer._conversion.jobfile`.

    Parameters
    ----------
    settings : mapping
        Those of the job.
    recipe : Recipe
    source : Source
    request : mapping
        Where the source is and what of it is taken, as JSON values.
    overwrite : bool
        Whether the pack replaces another one.

    Raises
    ------
    SourceError
        If the source has fewer images than there are parts.
    """
    made_of = provenance(source, recipe)
    if len(source) < settings["parts"]:
        raise SourceError(f"{printable(source.root)}: {len(source)} images cannot be {settings['parts']} parts")
    return {
        "settings": dict(settings),
        "request": dict(request),
        "source": source.describe(),
        "packs": source.identities(),
        "listed": source.origin is None and source.is_local and not isinstance(source, ListedSource),
        "made_of": dict(made_of.source),
        "images": len(source),
        "overwrite": overwrite,
    }


def require_same(
    begun: Mapping[str, Any], settings: Mapping[str, Any], request: Mapping[str, Any], directory: Path
) -> bool:
    """Raise ResumeError where a job was begun with other settings; tell whether this one leaves out bad files first.

    Parameters
    ----------
    begun : mapping
        What was written down when the job began.
    settings, request : mapping
        Those of who joins.
    directory : Path
        Where it was written down, for the message.
    """
    before = dict(begun["settings"])
    # A task that stopped at a bad file may go on without it: the parts that are there have left nothing out.
    relaxed = (before["on_error"], settings["on_error"]) == ("fail", "skip")
    if relaxed:
        before["on_error"] = "skip"
    differences = setting_differences(before, settings) + setting_differences(begun["request"], request)
    if differences:
        raise started_differently(directory, differences)
    return relaxed
