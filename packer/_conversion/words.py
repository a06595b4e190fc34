"""Summaries of manifests and conversions in plain words: a pack's contents, its findings, and how to read the pack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packer._codecs import LOSSY, MAX_PIXELS
from packer._display import Block, Code, count, counted, duration, here
from packer._storage.system import in_units
from packer.errors import option, printable, spelled

if TYPE_CHECKING:
    from packer._conversion.convert import Summary
    from packer._fields import Field
    from packer._manifest import Manifest

_MOST_NAMES = 5
_OF_THE_TOOL = {
    *("image_id", "image_info", "annotation_id", "bbox", "iscrowd", "iscrowd_given", "keypoint_count", "members"),
    *("caption_id", "caption_members", "annotation", "yolo"),
}
"""Fields that preserve the annotations of another tool, and that training seldom reads."""


def example(destination: Path | str, manifest: Manifest) -> list[str]:
    """Return example lines of Python that open the pack at `destination`."""
    from packer._formats import FORMATS

    dataset = FORMATS[manifest.format].dataset if manifest.format in FORMATS else "open_dataset"
    arguments, items = repr(here(destination)), "takes ImageFolder's transform=, and fuse=True"
    has_labels = bool(manifest.classes) or manifest.label_type != "class"
    if manifest.fields:
        names = ("image", *(["label"] if has_labels else []), *_chosen(manifest.fields))
        arguments = f"{arguments}, fields={names!r}"
        items = "each item is a dict"
        if len(names) < len(manifest.fields) + 1:
            items += f'; fields="all" gives all {len(manifest.fields)} fields'
    elif not has_labels:
        items = "without classes: every label is -1"
    elif manifest.label_type != "class":
        items = f"labels are {manifest.label_type}s; {items}"
    return [f"  from packer import {dataset}", f"  dataset = {dataset}({arguments})  # {items}"]


def _chosen(fields: Sequence[Field]) -> list[str]:
    """Return a few fields for an example, preferably fields that are used for training."""
    names = [field.name for field in fields]
    return ([name for name in names if name not in _OF_THE_TOOL] or names)[:_MOST_NAMES]


def labels(label_type: str, classes: int) -> str:
    """Describe the labels: the number of classes, or the type of the numbers."""
    return counted(classes, "class") if label_type == "class" else f"{label_type} labels"


def conversion(summary: Summary) -> Iterator[Block]:
    """Yield remarks for the user on a finished conversion."""
    manifest = summary.manifest
    if summary.continued and not summary.seconds:
        left_out = f", {count(len(manifest.skipped))} x left out" if manifest.skipped else ""
        yield f"{here(summary.destination)}: done already{left_out}"
        return
    yield f"{here(summary.destination)}: {_size(summary)}, {duration(summary.seconds)}{_rate(summary)}"
    notes = list(summary.notes)
    if summary.continued:
        notes.insert(0, f"continued after {counted(summary.continued, 'image')} of an earlier run")
    if summary.kept and manifest.codec != "keep":
        notes.append(kept(summary.kept, manifest.codec))
    yield from outcome(summary.destination, manifest, notes)


def _size(summary: Summary) -> str:
    manifest = summary.manifest
    held = f"{counted(manifest.count, 'sample')}, {labels(manifest.label_type, len(manifest.classes))}"
    if manifest.format == "index":
        return f"{held}, read from their own files"
    if manifest.parts:
        return f"{held}, {counted(len(manifest.parts), 'part')}, {in_units(summary.bytes_out)} out"
    return f"{held}, {in_units(summary.bytes_in)} in, {in_units(summary.bytes_out)} out"


def _rate(summary: Summary) -> str:
    manifest = summary.manifest
    if manifest.format == "index" or manifest.parts:
        return ""
    done = manifest.count + len(manifest.skipped) - summary.continued
    return f" ({done / max(summary.seconds, 1e-9):,.0f} img/s)"


def kept(number: int, codec: str) -> str:
    """Return a note on files that were not re-encoded because they already had the codec's type."""
    recode = spelled(option("recode", True))
    return (
        f"{count(number)} x stored unchanged, because it was {codec.upper()} already and needed no resizing; {recode} "
        "encodes such files again"
    )


def outcome(destination: Path | str, manifest: Manifest, notes: Iterable[str] = ()) -> Iterator[Block]:
    """Yield lines about fields, findings and images that were left out, and an example that reads the pack."""
    from packer._manifest import TILED

    yield from fields(manifest.fields)
    yield from (f"  {note}" for note in notes)
    if tiled := manifest.findings.get(TILED):
        yield f"  {count(tiled)} of {counted(manifest.count, 'sample')} are tiled JPEGs"
    yield from (f"  {line}" for line in findings(manifest.findings, manifest.codec, manifest.settings))
    if manifest.skipped:
        yield f"  {count(len(manifest.skipped))} x left out:"
        yield from (f"    {printable(entry['name'])}: {printable(entry['reason'])}" for entry in manifest.skipped[:10])
        if len(manifest.skipped) > 10:
            report = spelled(option("report", "FILE"))
            yield f"    … and {len(manifest.skipped) - 10} more; {report} lists all, and so does the pack's manifest"
    yield ""
    yield Code(example(destination, manifest))


def account(recorded: list[dict[str, Any]] | None, unlabeled: int) -> list[str]:
    """Return lines that say what a pack took from its source and what it left out; old manifests do not record this."""
    from packer._account import Account

    if recorded is not None:
        return Account.from_json(recorded).lines() or ["nothing was left out, unlabeled or renumbered"]
    known = f"; {counted(unlabeled, 'sample')} without a label" if unlabeled else ""
    return [f"unknown whether anything was left out: the older packer that made the pack did not record it{known}"]


def losses(recorded: list[dict[str, Any]] | None, unlabeled: int) -> list[str]:
    """Return lines about lost images, labels and fields, or a line that says that losses were not recorded."""
    from packer._account import Account

    if recorded is None:
        return account(recorded, unlabeled)
    return [item.line() for item in Account.from_json(recorded).losses()]


def fields(of: Sequence[Field]) -> list[str]:
    """Return a line that lists the fields with their kinds, or for numbers their dtypes; no line without fields."""
    said = ", ".join(f"{field.name} ({field.dtype if field.kind == 'scalar' else field.kind})" for field in of)
    return [f"  fields: {said}"] if said else []


def findings(found: Mapping[str, int], codec: str, settings: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of finding in a pack with this codec and these settings, with a remedy."""
    from packer._images.probe import CLIPPED, ROTATED
    from packer._manifest import TILED

    exif = settings.get("exif")
    keep, upright = spelled(option("codec", "keep")), spelled(option("exif", "apply"))
    remedy = 'mode="unchanged" reads all bits' if codec == "keep" else f"{keep} stores the files' own bytes"
    turned = {"ignore": f": not rotated, as with ImageFolder; {upright} rotates them", "apply": ": rotated upright"}
    lines = []
    for finding, number in found.items():
        if finding == CLIPPED:
            have = "1 image has" if number == 1 else f"{count(number)} images have"
            what = "16 bits or floats per pixel; read as 8-bit RGB, such images turn white or black"
            lines.append(f"{have} {what}; {remedy}")
        elif finding == ROTATED:
            lines.append(f"{count(number)} x {ROTATED}{turned.get(str(exif), '')}")
        elif finding != TILED:
            lines.append(f"{count(number)} x {printable(finding)}")
    return lines


_STORED = {"keep": "the files' own bytes", "raw": "uint8 RGB pixels"}
_RESIZED = {
    "short": "the shorter side resized to {size} pixels",
    "long": "the longer side resized to {size} pixels",
    "exact": "resized to {size} x {size} pixels",
    "crop": "resized and cropped to {size} x {size} pixels",
    "pad": "resized and padded to {size} x {size} pixels",
}
_TOLD = {
    ("exif", "ignore"): "EXIF orientation ignored, as ImageFolder ignores it",
    ("exif", "apply"): "EXIF orientation applied",
    ("check", "structure"): "images were checked by type, header, size and end",
    ("check", "decode"): "images were checked by decoding every pixel",
    ("recode", True): "every file encoded again",
    ("to_8_bit", "clip"): "more than 8 bits per channel clipped to 8 bits, as in Pillow",
    ("to_8_bit", "type"): "more than 8 bits per channel scaled to 8 bits by the range of the data type",
    (
        "to_8_bit",
        "file",
    ): "more than 8 bits per channel scaled to 8 bits by the lowest and the highest value of each file",
}


def settings_in_words(settings: Mapping[str, Any], codec: str) -> list[str]:
    """Return the settings in words, as they apply to samples of `codec`; unknown settings are returned unchanged."""
    stored = [_STORED.get(codec, codec.upper())]
    if codec in LOSSY and "quality" in settings:
        stored[0] += f" of quality {settings['quality']}"
    for name, value in settings.items():
        words = _told(name, value, codec)
        stored += [f"{name} {value}"] if words is None else [words] if words else []
    return stored


def _told(name: str, value: Any, codec: str) -> str | None:
    """Return a setting in words; an empty text if another line describes the setting, None if it is unknown."""

    if name in ("quality", "tiles") or (name, value) in (("codec", codec), ("max_pixels", MAX_PIXELS)):
        return ""
    if name == "resize":
        return _resized(value)
    if name == "max_pixels" and isinstance(value, int):
        return f"images have {value:,} pixels or fewer"
    return _TOLD.get((name, value)) if isinstance(value, str | bool) else None


def _resized(value: Any) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, dict) or not {"size", "mode", "upscale", "interpolation"} <= set(value):
        return None
    mode = _RESIZED.get(value["mode"]) if isinstance(value["mode"], str) else None
    enlarged = "enlarged too" if value["upscale"] is True else "not enlarged"
    return mode and f"{mode.format(size=value['size'])} ({value['interpolation']}; smaller images {enlarged})"
