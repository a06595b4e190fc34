"""`packer.append`: converts images to an additional part of a pack, and adds the part to the pack's manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packer._conversion.convert import ConversionProgress, Summary, summary_of_made
from packer._conversion.destination import part_name
from packer._conversion.options import OF_THE_PACK, options_of, values_of
from packer._conversion.recipe import provenance
from packer._conversion.request import ConversionRequest, looks_like_pack
from packer._conversion.resume import made_before, setting_differences
from packer._conversion.workspace import Workspace, WorkspacePaths
from packer._fields import Field
from packer._formats import FORMATS, INDEX, check_readable, open_pack
from packer._formats.parts import append_part
from packer._manifest import Manifest
from packer._sources.base import Source
from packer._sources.labels import with_given_classes
from packer._sources.scan_list import is_listing
from packer._storage.files import disk_size, remove
from packer._storage.progress import shown_progress
from packer._storage.remote.urls import is_url, redacted, user_path
from packer._table import Names, repeats
from packer.errors import DestinationError, OptionError, OptionTypeError, SourceError, option, printable


def append(
    pack: str | os.PathLike[str],
    src: str | os.PathLike[str],
    *,
    progress: Callable[[ConversionProgress], None] | bool | None = None,
    **options: Any,
) -> Summary:
    """Add a new part with more images to a pack that consists of parts, as `packer append` does.

    Processes that have the pack open continue to read the old state. A process that opens the pack sees either all of
    the new samples or none of them. After an interruption, the same call continues. If the pack already has the part
    that the call would make, the call does nothing.

    Parameters
    ----------
    pack : path
        A pack with parts, as ``packer.convert(src, pack, parts=4)`` makes it.
    src : path
        A source, as for `convert`. Its samples must not have names that are already in the pack.
    progress : bool or callable, optional
        The same as for `convert`.
    **options
        The arguments of `convert`, except `format`, `classes_from`, `parts` and `overwrite`, which the pack determines.
        Arguments that affect the stored images, such as `resize`, must have the values with which the pack was made.

    Returns
    -------
    Summary
        The summary that `convert` returns, for the new part; only `destination` and `manifest` describe the whole pack.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    DestinationError
        If `pack` has no parts, or another interrupted `append` has left an unfinished part in it.
    OptionError, SourceError
        If the images differ from the pack in classes, fields or settings, or their names are already in the pack.
    PackLockedError
        If another process appends to the pack, or replaces it.
    PackerError
        The same errors as from `convert`.
    """
    values, progress = _values(options), shown_progress(progress, pack)
    if is_url(pack):
        raise DestinationError(
            f"{redacted(pack)}: a pack at a URL cannot be changed. Append to a copy on a disk, and "
            "convert the copy to a URL"
        )
    pack, src = Path(os.path.abspath(os.path.expanduser(pack))), user_path(src)
    _require_parts(pack)
    with Workspace(pack):  # its lock excludes all writers of this pack
        whole = _require_parts(pack)
        part_path = _next_part(pack, whole)
        request = ConversionRequest(src=src, dst=part_path, **values)
        source = _opened(request, pack, whole)
        made = _made_part(pack, whole, source, request)
        if made is not None:
            name, images = made
            return replace(summary_of_made(pack, whole, disk_size(pack / name), images), notes=["done already"])
        _require_new_names(pack, source)
        summary = _part(request, source, progress)
        made_of = {"kind": whole.source.get("kind", ""), "sha256": _digest([whole.source, summary.manifest.source])}
        manifest = append_part(pack, whole, part_path.name, made_of)
        check_readable(pack, manifest)
        return replace(summary, destination=pack, manifest=manifest)


def _values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the request; raise TypeError if an option is unknown, or if the pack determines it."""
    known = {name for name, _ in options_of(ConversionRequest)}
    for name in options:
        if name not in known or name in OF_THE_PACK:
            decided = name in (*OF_THE_PACK, "src", "dst")
            why = "the pack determines it" if decided else "packer.convert has no such argument"
            raise OptionTypeError(f"append takes no {name!r}: {why}")
    return values_of(ConversionRequest, options)


def _require_parts(pack: Path) -> Manifest:
    with open_pack(pack) as reader:
        manifest = reader.manifest
    name = printable(pack)
    if manifest.format == INDEX.name:
        raise DestinationError(f"{name}: an index cannot be appended to. Make a new index of all images")
    if not manifest.parts:
        if manifest.format in FORMATS and not FORMATS[manifest.format].parts:
            raise DestinationError(
                f"{name}: a pack in the layout of another tool cannot be changed. Convert the new images to a pack of "
                "their own, and open both packs together: open_dataset([a, b])"
            )
        raise DestinationError(
            f"{name}: a pack without parts cannot be changed. Convert it to a pack with parts, and append to the new "
            f"pack: `packer convert {name} {printable(pack.with_name(f'{pack.stem}-parts{pack.suffix}'))} --parts 1`"
        )
    return manifest


def _next_part(pack: Path, whole: Manifest) -> Path:
    """Return the path of the new part. It gets the first number that no part of the pack has."""
    present = {str(name) for name, *_ in whole.parts}
    number = len(present)
    while part_name(number, whole.format) in present:
        number += 1
    return pack / part_name(number, whole.format)


def _opened(request: ConversionRequest, pack: Path, whole: Manifest) -> Source:
    """List the images with the pack's class ids; OptionError or SourceError if the images do not fit the pack."""
    classes = whole.classes if whole.label_type == "class" and not is_listing(request.src) else None
    shown = printable(pack)
    try:
        source = request.open(None, classes)
    except SourceError:
        own = [] if classes is None else request.open(None, None).classes
        new = [name for name in own if name not in whole.classes]
        if not new:
            raise
        raise SourceError(
            f"{shown} has no class {_joined(new)}, and append cannot add classes. Convert {printable(request.src)} to "
            f"a pack OTHER, and then merge both into a new pack: `packer merge {shown} OTHER NEW --classes union`"
        ) from None
    remedy = "Classes cannot be added to a field: convert all images again, with all classes, to a new pack."
    source = with_given_classes(source, whole.fields, pack, request.bad_samples(), request.labels, remedy=remedy)
    would = provenance(source, request.recipe)
    differences = setting_differences(
        {"codec": whole.codec, **whole.settings}, {"codec": would.codec, **json.loads(json.dumps(would.settings))}
    )
    if differences:
        raise OptionError(
            f"{shown} was made with other settings: {'; '.join(differences)}. Pass the options that the pack was made "
            "with."
        )
    for what, here, there in (
        ("label type", whole.label_type, source.label_type),
        ("classes", _joined(whole.classes), _joined(source.classes)),
    ):
        if here != there:
            raise SourceError(
                f"{shown} has the {what} {here}, and {printable(request.src)} has {there}. They must be the same. "
                "Convert the new images to a pack of their own, and open both packs together: open_dataset([a, b])"
            )
    _require_same_fields(pack, whole.fields, request.src, source.fields)
    return source


def _require_same_fields(pack: Path, whole: Sequence[Field], src: Path, own: Sequence[Field]) -> None:
    """Raise SourceError if the new images and the pack have different fields.

    The message names the first difference.
    """
    there, here = [field.name for field in whole], [field.name for field in own]
    if there != here:
        raise _other_fields(f"{printable(pack)} has the fields {_joined(there)}, and {printable(src)} {_joined(here)}")
    for one, other in zip(whole, own, strict=True):
        for what in ("kind", "dtype", "rank", "file"):
            mine, theirs = getattr(one, what), getattr(other, what)
            if mine != theirs:
                raise _other_fields(
                    f"{printable(pack)} has the field {one.name!r} with the {what} {printable(mine or 'none')}, and "
                    f"{printable(src)} has {printable(theirs or 'none')}"
                )


def _other_fields(problem: str) -> SourceError:
    return SourceError(
        f"{problem}. New images must have the pack's fields, in the same order: pass the {option('fields')} and "
        f"{option('columns')} that the pack was made with, or convert the new images to a pack of their own"
    )


def _joined(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names)) or "none"


def _made_part(pack: Path, whole: Manifest, source: Source, request: ConversionRequest) -> tuple[str, int] | None:
    """If an earlier run of this call added the part, return the part's name and number of samples; otherwise None."""
    for name, images, *_ in reversed(whole.parts):
        if images <= len(source) and _is_made(pack / str(name), source, request):
            return str(name), images
    return None


def _is_made(path: Path, source: Source, request: ConversionRequest) -> bool:
    return made_before(path, source, request.recipe, request.format_row.name) is not None


def _require_new_names(pack: Path, source: Source) -> None:
    with open_pack(pack) as reader:
        names = Names.joined([reader.names, source.names])
        index = min((index for index, _ in repeats(names)), default=None)
        if index is not None:
            raise SourceError(
                f"{printable(pack)} has a sample {printable(names[index])} already, and {printable(source.root)} "
                "has another sample with this name. Rename the file, or leave it out; nothing was appended."
            )


def _part(request: ConversionRequest, source: Source, progress: Callable[[ConversionProgress], None] | None) -> Summary:
    """Make the part, unless an earlier run made it but died before changing the manifest."""
    path = request.dst
    if request.fresh:
        remove(path)
    if not os.path.lexists(path):
        return request.convert(source, progress)
    if os.path.islink(path) or not looks_like_pack(path) or not _is_made(path, source, request):
        raise DestinationError(
            f"{printable(path)}: contains an unfinished part of other images. Append those other images first, or pass "
            f"{option('fresh', True)} to delete this part."
        )
    remove(WorkspacePaths(path).directory)
    with open_pack(path) as reader:
        return summary_of_made(path, reader.manifest, disk_size(path), len(reader))


def _digest(sources: object) -> str:
    return hashlib.sha256(json.dumps(sources, sort_keys=True).encode("ascii")).hexdigest()
