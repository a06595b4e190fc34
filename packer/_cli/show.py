"""How numbers, conversions and what was found are shown to a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packer._cli.example import example
from packer._cli.progress import ProgressDisplay, duration
from packer._storage.limits import in_units
from packer.errors import printable

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._fields import Field
    from packer._manifest import Manifest

__all__ = [
    "ProgressDisplay",
    "account",
    "conversion",
    "count",
    "counted",
    "duration",
    "fields",
    "kept",
    "labels",
    "losses",
    "outcome",
    "rates",
]


def count(number: int) -> str:
    """Return a number with its thousands apart."""
    return f"{number:,}"


def counted(number: int, what: str) -> str:
    """Return how many of something there are: ``1 sample``, ``2 samples``, ``2 classes``."""
    return f"{count(number)} {what}{'' if number == 1 else 'es' if what.endswith('s') else 's'}"


def labels(label_type: str, classes: int) -> str:
    """Return what the labels are: of how many classes, or numbers of which type."""
    return counted(classes, "class") if label_type == "class" else f"{label_type} labels"


def conversion(summary: Summary) -> str:
    """Return what a person should know of a conversion that is done."""
    manifest = summary.manifest
    done = manifest.count + len(manifest.skipped) - summary.continued
    rate = done / max(summary.seconds, 1e-9)
    head = (
        f"{printable(summary.destination)}: {counted(manifest.count, 'sample')}, {labels(manifest.label_type, len(manifest.classes))}, "
        f"{in_units(summary.bytes_in)} in, {in_units(summary.bytes_out)} out, {duration(summary.seconds)} ({rate:,.0f} img/s)"
    )
    notes = list(summary.notes)
    if summary.continued:
        notes.insert(0, f"continued after {counted(summary.continued, 'image')} of an earlier run")
    if summary.kept and manifest.codec != "keep":
        notes.append(kept(summary.kept, manifest.codec))
    return "\n".join([head, *outcome(summary.destination, manifest, notes)])


def kept(number: int, codec: str) -> str:
    """Return the note on files that a conversion could have encoded anew, and had no reason to."""
    return (
        f"{count(number)} x kept as it was, being {codec.upper()} already and not resized; --recode encodes such files"
    )


def outcome(destination: Path | str, manifest: Manifest, notes: Iterable[str] = ()) -> list[str]:
    """Return lines that say what was found and left out, and how to read a pack."""
    from packer._manifest import TILED

    lines = [*fields(manifest.fields), *(f"  {printable(note)}" for note in notes)]
    if tiled := manifest.findings.get(TILED):
        lines.append(f"  {count(tiled)} of {counted(manifest.count, 'sample')} are tiled JPEGs")
    lines += [f"  {line}" for line in findings(manifest.findings, manifest.codec, manifest.settings)]
    if manifest.skipped:
        lines.append(f"  {count(len(manifest.skipped))} x left out:")
        lines += [f"    {printable(entry['name'])}: {printable(entry['reason'])}" for entry in manifest.skipped[:10]]
        if len(manifest.skipped) > 10:
            lines.append(
                f"    … and {len(manifest.skipped) - 10} more; --report FILE lists all, as does the pack's manifest"
            )
    return [*lines, "", *example(destination, manifest)]


def account(recorded: list[dict[str, Any]] | None, unlabeled: int) -> list[str]:
    """Return what a manifest tells of its source; of an older one, which tells nothing, how many samples are unlabeled."""
    from packer._account import Account

    if recorded is not None:
        return Account.from_json(recorded).lines() or ["nothing was left out, unlabeled or renumbered"]
    known = f"; {counted(unlabeled, 'sample')} without a label" if unlabeled else ""
    return [f"not recorded, as an older packer made the pack: what its source had beyond this{known}"]


def losses(recorded: list[dict[str, Any]] | None, unlabeled: int) -> list[str]:
    """Return the lines of `account` that speak of lost images, labels and fields, or that these were not recorded."""
    from packer._account import Account

    if recorded is None:
        return account(recorded, unlabeled)
    return [item.line() for item in Account.from_json(recorded).losses()]


def fields(of: Sequence[Field]) -> list[str]:
    """Return a line that names fields with their kinds, and scalars with their dtypes; none where there are none."""
    said = ", ".join(f"{field.name} ({field.dtype if field.kind == 'scalar' else field.kind})" for field in of)
    return [f"  fields: {said}"] if said else []


def findings(found: Mapping[str, int], codec: str, settings: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of finding, with what a person can do; of a pack with this codec and these settings."""
    from packer._images.probe import CLIPPED, ROTATED
    from packer._manifest import TILED

    exif = settings.get("exif")
    bytes_kept = (
        'mode="unchanged" reads them as they are' if codec == "keep" else "--codec keep stores the files' own bytes"
    )
    turned = {"ignore": ": not turned, as with ImageFolder; --exif apply turns them", "apply": ": turned upright"}
    lines = []
    for finding, number in found.items():
        if finding == CLIPPED:
            have = "1 image has" if number == 1 else f"{count(number)} images have"
            what = "16 bits or floats a pixel; read as 8-bit RGB, such images turn white or black"
            lines.append(f"{have} {what}; {bytes_kept}")
        elif finding == ROTATED:
            lines.append(f"{count(number)} x {ROTATED}{turned.get(str(exif), '')}")
        elif finding != TILED:
            lines.append(f"{count(number)} x {printable(finding)}")
    return lines


def rates(nodes: Mapping[str, float], workers: int) -> dict[str, str]:
    """Return the images a second of each node, as notes of a `ProgressDisplay`; of many nodes, the least and the most."""
    if not nodes:
        return {"workers": str(workers)}
    if len(nodes) <= 4:
        return {"workers": str(workers), **{f"img/s on {node}": f"{rate:.0f}" for node, rate in nodes.items()}}
    least, most = min(nodes.values()), max(nodes.values())
    return {"workers": str(workers), f"img/s on each of {len(nodes)} nodes": f"{least:.0f} to {most:.0f}"}
