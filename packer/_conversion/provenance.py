"""The origin of a pack's samples, for its manifest, and the check whether the same conversion was done before."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer._account import Account, counted
from packer._conversion.pipeline import carries
from packer._conversion.recipe import Recipe
from packer._formats import Reader, open_pack
from packer._manifest import TILED, Manifest
from packer._sources.base import ReadBuffer, Source
from packer._storage.stamps import stamp_at
from packer._storage.threads import in_order
from packer._version import __version__
from packer.errors import ImageError, NotAPackError, PackNotFoundError, SourceError, option, printable, warn

_READERS, _AT_ONCE = 8, 256  # threads, and files


@dataclass(frozen=True)
class Provenance:
    """The origin of a pack's samples and their settings, in the form of the manifest.

    Samples carried over from another pack keep the provenance of that pack, because their bytes were made for it.

    Attributes
    ----------
    codec : str
    settings, source : mapping
        The same as in the manifest.
    versions : mapping
        Versions of the libraries that make, or made, the bytes.
    findings : mapping
        The earlier audit's counts for carried-over samples.
    skipped : sequence of dict
        Images that were left out before.
    account : Account, optional
        The outcome for everything in the source and in the packs from which it came; None if it was not recorded.
    """

    codec: str
    settings: Mapping[str, Any]
    source: Mapping[str, Any]
    versions: Mapping[str, str]
    findings: Mapping[str, int] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, str]] = ()
    account: Account | None = None


def provenance(source: Source, recipe: Recipe) -> Provenance:
    """Return the provenance of the pack made from `source` with `recipe`.

    Raises
    ------
    SourceError
        If the samples of a pack are to be tiled unchanged, and are not JPEGs.
    """
    origin = source.origin
    skipped = source.doubts if origin is None else origin.skipped
    account = source.complete_account()
    if origin is not None:
        account = Account.united([origin.recorded_account(), account])
    if origin is None or not carries(recipe, origin.codec, origin.exif):
        versions = {"packer": __version__, **recipe.versions()}
        made_of = recipe.settings(), source.describe(), versions
        return Provenance(recipe.codec, *made_of, skipped=skipped, account=account)
    settings, findings = origin.settings, origin.findings
    if recipe.tiles:
        if origin.codec not in ("keep", "jpeg"):
            raise SourceError(
                f"{printable(source.root)}: its samples are {origin.codec}, and tiles are parts of JPEGs. "
                f"Say {option('codec', 'jpeg')}, or leave {option('tiles', True)} out."
            )
        settings = {**settings, "tiles": True}
        findings = {name: number for name, number in findings.items() if TILED not in name}  # counted again
    return Provenance(origin.codec, settings, origin.source, origin.versions, findings, skipped, account)


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
        If there is a pack, and it is damaged or was written by a newer packer.
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
    """Tell whether the images' files are the ones that the pack was made from, as far as can be determined.

    Files kept byte for byte must still have the sizes of their samples, and those younger than the pack also their
    bytes. For re-encoded images this cannot be determined: a warning reports younger files. Both modification and
    change times are used, because a copy may keep the time of its original.
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
            "their times did: --overwrite converts again"
        )
    return True


def _time_of(pack: Path) -> int:
    """Return the time at which the first file of a pack was written, in nanoseconds."""
    files = [os.path.join(directory, name) for directory, _, names in os.walk(pack) for name in names]
    return min(stamp_at(path)[1] for path in files or [str(pack)])


def _entry_times(source: Source) -> npt.NDArray[np.int64]:
    """Return the change time of each file's inode, which programs cannot set; 0 for a missing file."""

    def times(rows: range) -> list[int]:
        found = []
        for row in rows:
            try:
                found.append(os.stat(source.path(row)).st_ctime_ns)
            except (OSError, ValueError):  # reading the file reports it
                found.append(0)
        return found

    blocks = (range(at, min(at + _AT_ONCE, len(source))) for at in range(0, len(source), _AT_ONCE))
    return np.fromiter(itertools.chain.from_iterable(in_order(times, blocks, _READERS)), np.int64, len(source))


def _have_bytes(reader: Reader, source: Source, rows: npt.NDArray[np.intp], samples: Sequence[int]) -> bool:
    """Tell whether the files of some samples have the samples' bytes; `rows` are the images of all samples."""

    def has(sample: int) -> bool:
        try:
            data, _ = source.read(int(rows[sample]), ReadBuffer())
        except ImageError:
            return False
        return data == memoryview(reader.read(sample))

    with ThreadPoolExecutor(_READERS) as pool:
        return all(all(pool.map(has, samples[at : at + _AT_ONCE])) for at in range(0, len(samples), _AT_ONCE))


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as in a manifest, with defaults for settings newer than the pack."""
    return {**Recipe().settings(), **json.loads(json.dumps(settings))}
