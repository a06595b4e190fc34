"""Another part for a joined pack: converted in its place, and then listed by the manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer._conversion.changes import setting_differences
from packer._conversion.convert import ConversionProgress, Summary
from packer._conversion.jobfile import part_name
from packer._conversion.provenance import made_before, provenance
from packer._conversion.request import ConversionRequest, is_pack
from packer._conversion.workspace import Workspace, WorkspacePaths
from packer._formats import check_readable, open_pack
from packer._formats.joined import append_part
from packer._manifest import Manifest
from packer._sources import Source, is_listing
from packer._sources.repeats import repeats
from packer._storage.files import disk_size, remove
from packer._table import Names
from packer.errors import DestinationError, OptionError, SourceError, printable

__all__ = ["append"]


def append(
    pack: Path, src: Path, options: Mapping[str, Any], progress: Callable[[ConversionProgress], None] | None = None
) -> Summary:
    """Convert images to one more part of a joined pack.

    Readers that have the pack open go on, and whoever opens the pack finds it without the part or with all of it. The
    same call continues after an interruption; where the last part is what the call would make, it does nothing.

    Parameters
    ----------
    pack : Path
        A pack with parts.
    src : Path
        As of `packer.convert`.
    options : mapping
        Arguments of `ConversionRequest`, which must lead to the settings that the pack was made with.
    progress : callable, optional
        As of `packer.convert`.

    Returns
    -------
    Summary
        Of the part; `destination` and `manifest` are those of the whole.

    Raises
    ------
    DestinationError
        If `pack` has no parts, or holds another part that is not listed.
    OptionError, SourceError
        If the images would not agree with the pack: in classes, fields, settings; or the pack has their names already.
    PackLockedError
        If another process appends to the pack, or replaces it.
    PackerError
        As of `packer.convert`.
    """
    pack = Path(os.path.abspath(pack))
    _require_parts(pack)
    with Workspace(pack):  # whose lock is that of all who write here
        whole = _require_parts(pack)
        place = _place(pack, whole)
        request = ConversionRequest(src=src, dst=place, **options)
        source = _opened(request, pack, whole)
        last = pack / str(whole.parts[-1][0])
        if _is_made(last, source, request):
            images = whole.parts[-1][1]
            return Summary(pack, whole, 0, disk_size(last), 0.0, continued=images, kept=0, notes=["done already"])
        _require_new_names(pack, source)
        summary = _part(request, source, progress)
        made_of = {"kind": whole.source.get("kind", ""), "sha256": _digest([whole.source, summary.manifest.source])}
        manifest = append_part(pack, whole, place.name, made_of)
        check_readable(pack, manifest)
        return replace(summary, destination=pack, manifest=manifest)


def _require_parts(pack: Path) -> Manifest:
    with open_pack(pack) as reader:
        manifest = reader.manifest
    if not manifest.parts:
        name = printable(pack)
        raise DestinationError(
            f"{name}: a pack without parts, which never changes. Make a pack with parts of it, and append to that: "
            f"packer convert {name} {printable(pack.with_name(f'{pack.stem}-parts{pack.suffix}'))} --parts 1"
        )
    return manifest


def _place(pack: Path, whole: Manifest) -> Path:
    """Return where the next part goes: its number is the first after those that there are."""
    present = {str(name) for name, *_ in whole.parts}
    number = len(present)
    while part_name(number, whole.format) in present:
        number += 1
    return pack / part_name(number, whole.format)


def _opened(request: ConversionRequest, pack: Path, whole: Manifest) -> Source:
    """List the images, with the pack's class ids; OptionError or SourceError where they do not agree with the pack."""
    classes = whole.classes if whole.label_type == "class" and not is_listing(request.src) else None
    shown = printable(pack)
    try:
        source = request.open(request.dst, classes)
    except SourceError:
        own = [] if classes is None else request.open(request.dst, None).classes
        new = [name for name in own if name not in whole.classes]
        if not new:
            raise
        raise SourceError(
            f"{shown} has no class {_joined(new)}, and its classes never change. Convert {printable(request.src)} to a "
            f"pack OTHER of its own, and then both to a new pack: packer merge {shown} OTHER NEW --classes union"
        ) from None
    would = provenance(source, request.recipe)
    differences = setting_differences(
        {"codec": whole.codec, **whole.settings}, {"codec": would.codec, **json.loads(json.dumps(would.settings))}
    )
    if differences:
        raise OptionError(
            f"{shown} was made with other settings: {'; '.join(differences)}. Say the options that it was made with."
        )
    for what, here, there in (
        ("label type", whole.label_type, source.label_type),
        ("classes", _joined(whole.classes), _joined(source.classes)),
        ("fields", _fields(whole.fields), _fields(source.fields)),
    ):
        if here != there:
            raise SourceError(f"{shown} has the {what} {here}, and {printable(request.src)} has {there}")
    return source


def _joined(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names)) or "none"


def _fields(fields: Iterable[Any]) -> str:
    return ", ".join(json.dumps(field.to_json()) for field in fields) or "none"


def _is_made(path: Path, source: Source, request: ConversionRequest) -> bool:
    return made_before(path, source, request.recipe, request.format_row.name) is not None


def _require_new_names(pack: Path, source: Source) -> None:
    with open_pack(pack) as reader:
        names = Names.joined([reader.names, source.names])
        index = min((index for index, _ in repeats(names)), default=None)
        if index is not None:
            raise SourceError(
                f"{printable(pack)} has a sample {printable(names[index])} already, and {printable(source.root)} "
                "brings another one of this name"
            )


def _part(request: ConversionRequest, source: Source, progress: Callable[[ConversionProgress], None] | None) -> Summary:
    """Make the part, unless an earlier run made it and died before the manifest said so."""
    place = request.dst
    if request.fresh:
        remove(place)
    if not os.path.lexists(place):
        return request.convert(source, progress)
    if not is_pack(place) or not _is_made(place, source, request):
        raise DestinationError(
            f"{printable(place)}: a part of other images, whose appending was interrupted. Append those first, or say "
            "--fresh to drop that part."
        )
    remove(WorkspacePaths(place).directory)
    with open_pack(place) as reader:
        return Summary(place, reader.manifest, 0, disk_size(place), 0.0, continued=len(reader), kept=0)


def _digest(sources: object) -> str:
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode("ascii")).hexdigest()
