"""`packer info`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import show
from packer._cli.progress import progress_options
from packer._cli.reading import reading_options
from packer._cli.values import PackPath, UserPath
from packer._cli.words import settings_in_words
from packer._storage.limits import in_units
from packer.errors import printable

if TYPE_CHECKING:
    from packer._packs.info import ClassCount, FieldInfo, PackInfo

__all__ = ["info_command"]

_BAR = 30
_NAMED = 5  # classes of a field


@click.command("info")
@click.argument("pack", type=PackPath())
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@click.option("--classes", "all_classes", is_flag=True, help="List every class, not only the first and the last ones.")
@click.option(
    "--plot",
    type=UserPath(),
    metavar="FILE",
    help="Draw histograms of sizes and labels too: .svg, or .png by matplotlib.",
)
@reading_options
@progress_options(quiet=None)
def info_command(pack: Path, as_json: bool, all_classes: bool, plot: Path | None) -> None:
    """Say what PACK holds: settings, sizes, classes with their counts, image sizes."""
    from packer._packs.info import info

    if plot is not None:
        from packer._viewing.drawing import require_plot

        require_plot(plot)
    with show.ProgressDisplay(pack.name) as display:
        display.phase("reading the table")
        held = info(pack)
    click.echo(json.dumps(_as_json(held), indent=2) if as_json else _describe(held, all_classes))
    if plot is not None:
        _plot(pack, plot)
        click.echo(f"written to {printable(plot)}", err=True)


def _plot(pack: Path, target: Path) -> None:
    """Draw what the table says."""
    from packer._viewing.catalog import open_catalog
    from packer._viewing.drawing import plot
    from packer._viewing.histograms import histograms

    catalog = open_catalog([pack])
    try:
        plot(target, catalog.title, histograms(catalog))
    finally:
        catalog.close()


def _as_json(pack: PackInfo) -> dict[str, Any]:
    sides = [{"from": row.start, "below": row.below, "samples": row.samples} for row in pack.shorter_side]
    return {**asdict(pack), "shorter_side": sides}


def _describe(pack: PackInfo, all_classes: bool) -> str:
    samples = pack.samples
    mean = pack.bytes_of_samples / max(samples, 1)
    size = pack.bytes if pack.base is None else pack.bytes_of_samples
    what = (
        "pack" if pack.format != "index" else "of files that stay where they are" if pack.base else "of its own files"
    )
    lines = [
        f"{pack.path}: {pack.format} {what}{_parts(pack.parts)}, schema {pack.schema}",
        f"  {show.counted(samples, 'sample')}, {show.labels(pack.label_type, len(pack.classes))}, {in_units(size)} "
        f"({in_units(mean)} a sample)",
        *_in_place(pack),
        *(f"  {words}" for words in settings_in_words(pack.settings, pack.codec)),
        *([f"  {pack.tiled / max(samples, 1):.1%} of the samples are tiled JPEGs"] if pack.tiled else []),
        "  made by " + ", ".join(f"{name} {version}" for name, version in pack.versions.items()),
        "",
        "  shorter side",
    ]
    most = max((row.samples for row in pack.shorter_side), default=1)
    for row in pack.shorter_side:
        label = f"{row.start} to {row.below - 1}" if row.below < 1 << 31 else f"{row.start} or more"
        bar = "█" * max(1, round(_BAR * row.samples / most))
        lines.append(f"  {label:>14}  {bar:<{_BAR}}  {show.count(row.samples)}")
    lines += ["", *_labels(pack, all_classes)]
    if pack.fields:
        lines += ["", "  fields", *_field_lines(pack.fields, all_classes)]
    if pack.without_class:
        lines.append(
            f"  {show.counted(pack.without_class, 'sample')} {'of no class' if pack.label_type == 'class' else 'of no number'}: `packer verify` names them"
        )
    lines += ["", "  source", *(f"  {line}" for line in show.account(pack.account, pack.unlabeled))]
    if pack.findings or pack.skipped:
        lines += ["", "  findings"]
    lines += [f"  {line}" for line in show.findings(pack.findings, pack.codec, pack.settings)]
    lines += [f"  left out: {entry['name']}: {entry['reason']}" for entry in pack.skipped[:10]]
    if len(pack.skipped) > 10:
        lines.append(f"  … and {len(pack.skipped) - 10} more left out (--json lists all)")
    return "\n".join(map(printable, lines))  # the pack may be a stranger's


def _in_place(pack: PackInfo) -> list[str]:
    """Say where the samples of an index lie."""
    if pack.base is None:
        return []
    checks = "with" if pack.checksums else "without"
    return [
        f"  in {show.counted(pack.files, 'file')} below {pack.base}; {in_units(pack.bytes)} of index {checks} checksums"
    ]


def _parts(number: int) -> str:
    return f" of {show.counted(number, 'part')}" if number else ""


def _labels(pack: PackInfo, all_classes: bool) -> list[str]:
    if pack.label_type != "class":
        between = "" if pack.least_label is None else f", {pack.least_label} to {pack.most_label}"
        return [f"  labels are numbers without classes ({pack.label_type}){between}"]
    unlabeled = [f"  {show.counted(pack.unlabeled, 'sample')} without a label (-1)"] if pack.unlabeled else []
    return ["  classes", *_class_lines(pack.classes, all_classes), *unlabeled]


def _field_lines(fields: Sequence[FieldInfo], all_classes: bool) -> list[str]:
    width = max(14, *(len(field.name) for field in fields))
    return [f"  {field.name:>{width}}  {_described(field, all_classes)}" for field in fields]


def _described(field: FieldInfo, all_classes: bool) -> str:
    what = [" ".join(filter(None, [field.dtype, field.kind]))]
    if field.kind == "array":
        what.append(f"{field.rank} axes" if field.rank != 1 else "1 axis")
    if field.classes:
        names = field.classes if all_classes else field.classes[:_NAMED]
        more = ", …" if len(names) < len(field.classes) else ""
        what.append(f"{show.counted(len(field.classes), 'class')} ({', '.join(names)}{more})")
    if field.file:
        what.append(f"of {field.file}")
    what.append(in_units(field.bytes))
    if field.missing:
        what.append(f"{show.count(field.missing)} missing")
    return ", ".join(what)


def _class_lines(classes: list[ClassCount], all_classes: bool) -> list[str]:
    def line(label: int) -> str:
        return f"  {label:>14}  {classes[label].name}  {show.count(classes[label].samples)}"

    if all_classes or len(classes) <= 12:
        return [line(label) for label in range(len(classes))]
    hidden = f"{'…':>16}  {len(classes) - 8} more (--classes lists all)"
    return [*map(line, range(5)), hidden, *map(line, range(len(classes) - 3, len(classes)))]
