"""Compares a conversion with an earlier one, whose pack is complete, or is unfinished and can be continued.

Settings and sources are compared; messages name the differences.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._account import counted
from packer._conversion.options import ImageOptions, SourceOptions, options_of, recorded_as
from packer._conversion.recipe import Recipe, provenance
from packer._formats import Reader, open_pack
from packer._manifest import Manifest
from packer._sources.base import ReadBuffer, Source
from packer._sources.scan_list import ListedSource, listed_source
from packer._storage.stamps import Stamp, Stamps, same_stamp, stamp_at, stamp_in
from packer._storage.system import in_order
from packer.errors import (
    ImageError,
    NotAPackError,
    PackNotFoundError,
    ResumeError,
    SourceError,
    option,
    printable,
    warn,
)

_Difference = tuple[tuple[str, ...], Any, Any]
"""The path of a setting, its value before, and its value now."""

_READERS, _AT_ONCE = 8, 256  # threads, and files
_LIBRARIES = "versions"
_SHOWN = 5
_NAMES = {recorded_as(name, one): name for name, one in options_of(SourceOptions, ImageOptions)}
_NAMES |= {"size": "resize", "mode": "resize_mode"}
"""Maps the names in records to the names of options."""

_BOOLEAN = [name for name, one in options_of(SourceOptions, ImageOptions) if one.kind in ("flag", "switch")]
_NO_OPTIONS = {"format": "the format", "src": "SRC"}


def started_differently(directory: Path, differences: Sequence[str]) -> ResumeError:
    """Return the error for an unfinished conversion in `directory` that has other settings or another source."""
    return ResumeError(
        f"{printable(directory)} contains an unfinished conversion that was started differently:\n  "
        + "\n  ".join(differences)
        + f"\nUse the earlier settings and files, or pass {option('fresh', True)} to start over."
    )


def setting_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for each changed setting, options first.

    Both arguments are JSON objects, or convertible to JSON. A line names the option of the setting. There is no line
    for a setting that changed only because of another option, such as the codec that `--resize` implies, or the version
    of a library that only resizes.
    """
    found = list(_differences((), before, json.loads(json.dumps(now))))
    settings = [one for one in found if one[0][0] != _LIBRARIES and not _follows(one, found)]
    libraries = [one for one in found if one[0][0] == _LIBRARIES and (not settings or None not in one[1:])]
    settings.sort(key=lambda one: one[0][-1] in _NO_OPTIONS)
    lines = [f"{_name(path)} was {_value(then)} and is now {_value(present)}" for path, then, present in settings]
    return lines + [
        f"{path[-1]} {_version(then, 'was')} and {_version(present, 'is now')}" for path, then, present in libraries
    ]


def _follows(difference: _Difference, others: Sequence[_Difference]) -> bool:
    """Tell whether a codec differs only because images are now resized, or no longer resized."""
    path, then, present = difference
    resized = [one for one in others if one[0][-1] == "resize" and None in one[1:]]
    return path[-1] == "codec" and {then, present} == {"keep", "jpeg"} and bool(resized)


def _version(version: Any, was: str) -> str:
    """Return a phrase about a library that begins with the verb `was`: ``was version 1.2``, or ``was not used``."""
    return f"{was} not used" if version is None else f"{was} version {printable(version)}"


def _differences(above: tuple[str, ...], before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[_Difference]:
    for name in sorted({*before, *now}):
        then, present = before.get(name), now.get(name)
        if isinstance(then, dict) and isinstance(present, dict):
            yield from _differences((*above, name), then, present)
        elif then != present:
            yield (*above, name), then, present


def _name(path: tuple[str, ...]) -> str:
    """Return the name of a setting in messages: the name of its option."""
    name = _NAMES.get(path[-1], path[-1])
    return _NO_OPTIONS.get(name) or option(name, True if name in _BOOLEAN else None)


def _value(value: Any) -> str:
    if isinstance(value, dict):  # how images are resized
        return _value(value.get("size"))
    if value is None or isinstance(value, bool):
        return {None: "not given", True: "on", False: "off"}[value]
    return printable(value)


def compare_source(
    listing: Path, before: Mapping[str, Any], source: Source, *, done: Iterable[Stamp] = (), files: bool = True
) -> tuple[Source, list[str]]:
    """Compare a source with the source of the unfinished conversion.

    Parameters
    ----------
    listing : Path
        The list that the unfinished conversion wrote.
    before : mapping
        A mapping with the keys ``source`` and ``packs``: the earlier results of `Source.describe` and
        `Source.identities`.
    source : Source
    done : iterable of Stamp
        Stamps of the files already processed, beginning with the first file.
    files : bool
        Whether to compare each file's size and time.

    Returns
    -------
    source : Source
        The source, with the stamps of its files from the listing.
    differences : list of str
        A line for each difference.
    """
    same = source.describe() == before["source"]
    recorded = _recorded(listing, every_image=files or not same)
    then, present = before["source"].get("where"), source.describe().get("where")
    if then != present:
        return source, [f"{option('where')} was {_value(then)} and is now {_value(present)}"]
    if not same:
        named = [] if recorded is None else _listing_differences(recorded, source)
        return source, named or ["the source's list of images or classes changed"]
    if source.origin is not None:
        return source, _pack_differences(before["packs"], source.identities())
    if recorded is None or recorded.stamps is None:
        return source, [
            f"packer cannot tell whether the images changed, because {printable(listing)} is missing or damaged"
        ]
    differences = _file_differences(recorded.stamps, source.present_stamps(), done, source) if files else []
    return replace(source, stamps=recorded.stamps), differences


def _recorded(path: Path, *, every_image: bool) -> ListedSource | None:
    """Return the source's list from an earlier run; None if it is missing or damaged.

    With `every_image`, the whole list is checked for damage.
    """
    try:
        recorded = listed_source(path)
        if every_image:
            recorded.require_undamaged()
    except SourceError:
        return None
    return recorded


def _listing_differences(before: ListedSource, now: Source) -> list[str]:
    if before.kind != now.kind:
        return [f"the kind of the source was {before.kind} and is now {now.kind}"]
    if before.label_type != now.label_type:
        return [f"{option('label_type')} was {before.label_type} and is now {now.label_type}"]
    labels, present = _meanings(before), _meanings(now)
    moved = [name for name in labels.keys() & present.keys() if labels[name] != present[name]]
    what = "class" if now.label_type == "class" else "label"
    lines = [
        _line("class was removed", "classes were removed", set(before.classes) - set(now.classes)),
        _line("class was added", "classes were added", set(now.classes) - set(before.classes)),
        _line("image was removed", "images were removed", labels.keys() - present.keys()),
        _line("image was added", "images were added", present.keys() - labels.keys()),
        _line(f"image has another {what}", f"images have another {what}", moved),
    ]
    named = [line for line in lines if line] + _field_differences(before, now)
    return named or (["the images are in another order"] if list(labels) != list(present) else [])


def _field_differences(before: ListedSource, now: Source) -> list[str]:
    """Return a line for each field whose definition changed, or whose values changed for the same images."""
    then, present = ({field.name: field for field in source.fields} for source in (before, now))
    if then != present:
        changed = {name for name in then.keys() & present.keys() if then[name] != present[name]}
        lines = [
            _line("field was removed", "fields were removed", then.keys() - present.keys()),
            _line("field was added", "fields were added", present.keys() - then.keys()),
            _line("field has another definition", "fields have other definitions", changed),
        ]
        return [line for line in lines if line]
    if len(before) != len(now):
        return []
    if before.about != now.about:
        return ["the part of the annotations that belongs to no image changed"]
    return [
        f"the field {one.field.name!r} has other values"
        for one, other in zip(before.columns, now.columns, strict=True)
        if list(one.content(0, len(before))) != list(other.content(0, len(now)))
    ]


def _meanings(source: Source) -> dict[str, str | int | float]:
    """Map image names to class names, or to labels if labels are not class ids."""
    classes = dict(enumerate(source.classes))
    return {name: classes.get(label, label) for name, label in zip(source.names, source.labels.tolist(), strict=True)}


def _pack_differences(before: Sequence[str], now: Sequence[str]) -> list[str]:
    return [
        f"pack {number} of the source was {then} and is now {present}, and its samples have the same names"
        for number, (then, present) in enumerate(itertools.zip_longest(before, now))
        if then != present
    ]


def _file_differences(before: Stamps, now: Stamps, done: Iterable[Stamp], source: Source) -> list[str]:
    count, named = 0, []
    for index, then in _changed(before, now, done):
        count += 1
        if count <= _SHOWN:
            named.append(f"{printable(source.names[index])} ({source.what_changed(then, stamp_in(now, index))})")
    more = ", …" if count > _SHOWN else ""
    what = "image was" if count == 1 else "images were"
    return [f"{count} {what} changed: {', '.join(named)}{more}"] if count else []


def _changed(before: Stamps, now: Stamps, done: Iterable[Stamp]) -> Iterator[tuple[int, Stamp]]:
    """Yield the index of every file that has changed, and its earlier stamp."""
    first = 0
    for index, then in enumerate(done):
        first = index + 1
        if not same_stamp(then, stamp_in(now, index)):
            yield index, then
    for index in (first + np.flatnonzero((before[first:] != now[first:]).any(axis=1))).tolist():
        if not same_stamp(stamp_in(before, index), stamp_in(now, index)):
            yield index, stamp_in(before, index)


def _line(one: str, many: str, names: Iterable[str]) -> str:
    found = sorted(names)
    if not found:
        return ""
    more = ", …" if len(found) > _SHOWN else ""
    return f"{len(found)} {one if len(found) == 1 else many}: {', '.join(map(printable, found[:_SHOWN]))}{more}"


def made_before(destination: Path, source: Source, recipe: Recipe, format: str, parts: int = 0) -> Manifest | None:
    """Return the manifest of the pack at `destination` if this conversion would make the same pack; otherwise None.

    Parameters
    ----------
    destination : Path
    source : Source
    recipe : Recipe
    format : str
    parts : int
        The number of parts that the pack would have; 0 for an ordinary pack.

    Raises
    ------
    PackError
        If there is a pack that is damaged, or that a newer packer wrote.
    SourceError
        The same errors as from `provenance`.
    """
    try:
        with open_pack(destination) as reader:
            manifest = reader.manifest
            made = manifest.format, len(manifest.parts), manifest.classes, manifest.label_type
            before = manifest.codec, _with_defaults(manifest.settings), manifest.source
            would = provenance(source, recipe)
            same = made == (format, parts, source.classes, source.label_type)
            same = same and before == (would.codec, _with_defaults(would.settings), would.source)
            return manifest if same and _are_as_packed(reader, source) else None
    except (NotAPackError, PackNotFoundError):
        return None


def _are_as_packed(reader: Reader, source: Source) -> bool:
    """Tell whether the pack was made from the present image files of the source, as far as can be determined.

    A file whose bytes are stored must have the size of its sample. If the file is newer than the pack, it must also
    have the bytes of the sample. Re-encoded images cannot be compared with their files, so a warning reports newer
    files. A file is newer if its modification time or its change time is later: a copy may keep the modification time.
    """
    if source.origin is not None:
        return True
    source, manifest = source.stamped(), reader.manifest
    skipped = {str(entry["name"]) for entry in manifest.skipped}
    packed = np.array([name not in skipped for name in source.names] if skipped else [True] * len(source), bool)
    sizes = source.sizes()
    if sizes is None or source.stamps is None or not source.whole_files or int(packed.sum()) != len(reader):
        return True
    rows, made = np.flatnonzero(packed), _time_of(Path(reader.path))
    younger = np.flatnonzero((source.stamps[rows, 1] > made) | (_entry_times(source)[rows] > made)).tolist()
    if manifest.codec == "keep" and not manifest.settings.get("tiles") and manifest.exif != "apply":
        return bool(np.array_equal(sizes[rows], reader.table.size)) and _have_bytes(reader, source, rows, younger)
    if younger:
        images, first = counted(len(younger), "image"), printable(source.names[int(rows[younger[0]])])
        warn(
            f"{printable(reader.path)}: {images} of the source ({first}, …) changed after the pack was made, or only "
            "their modification times did: --overwrite converts them again"
        )
    return True


def _time_of(pack: Path) -> int:
    """Return the time at which the first file of a pack was written, in nanoseconds."""
    files = [os.path.join(directory, name) for directory, _, names in os.walk(pack) for name in names]
    return min(stamp_at(path)[1] for path in files or [str(pack)])


def _entry_times(source: Source) -> npt.NDArray[np.int64]:
    """Return the change time (ctime) of each file, which no program can set; 0 for a missing file."""

    def times(rows: range) -> list[int]:
        found = []
        for row in rows:
            try:
                found.append(os.stat(source.path(row)).st_ctime_ns)
            except (OSError, ValueError):  # reading the file raises the error again
                found.append(0)
        return found

    blocks = (range(at, min(at + _AT_ONCE, len(source))) for at in range(0, len(source), _AT_ONCE))
    return np.fromiter(itertools.chain.from_iterable(in_order(times, blocks, _READERS)), np.int64, len(source))


def _have_bytes(reader: Reader, source: Source, rows: npt.NDArray[np.intp], samples: Sequence[int]) -> bool:
    """Tell whether the files of `samples` have the samples' bytes; `rows` maps a sample to its number in the source."""

    def has(sample: int) -> bool:
        try:
            data, _ = source.read(int(rows[sample]), ReadBuffer())
        except ImageError:
            return False
        return data == memoryview(reader.read(sample))

    with ThreadPoolExecutor(_READERS) as pool:
        return all(all(pool.map(has, samples[at : at + _AT_ONCE])) for at in range(0, len(samples), _AT_ONCE))


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a manifest, completed with the defaults of options that are newer than the pack."""
    return {**Recipe().settings(), **json.loads(json.dumps(settings))}
