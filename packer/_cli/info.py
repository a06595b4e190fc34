"""`packer info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer._cli import show
from packer.errors import printable

if TYPE_CHECKING:
    from packer._formats import Reader

__all__ = ["info_command"]

_BAR = 30


@click.command("info")
@click.argument("pack", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
@click.option("--classes", "all_classes", is_flag=True, help="List every class, not only the first and the last ones.")
def info_command(pack: Path, as_json: bool, all_classes: bool) -> None:
    """Say what PACK holds: settings, sizes, classes with their counts, image sizes."""
    from packer._formats import open_pack

    with open_pack(pack) as reader:
        facts = _facts(reader)
    click.echo(json.dumps(facts, indent=2) if as_json else _describe(facts, all_classes))


def _facts(reader: Reader) -> dict[str, Any]:
    import numpy as np

    from packer._manifest import TILED
    from packer._storage.files import disk_size

    manifest, table = reader.manifest, reader.table
    inside = table.label[(table.label >= 0) & (table.label < len(manifest.classes))]
    counts = np.bincount(inside, minlength=len(manifest.classes)).tolist()
    short = np.minimum(table.height, table.width)
    edges = [0, 32, 64, 128, 192, 224, 256, 320, 384, 512, 768, 1024, 2048, 4096, 1 << 31]
    histogram = np.histogram(short, edges)[0].tolist()
    return {
        "path": reader.path,
        "format": manifest.format,
        "parts": len(manifest.parts),
        "schema": manifest.schema,
        "samples": manifest.count,
        "codec": manifest.codec,
        "settings": manifest.settings,
        "source": manifest.source,
        "versions": manifest.versions,
        "bytes": disk_size(reader.path),
        "bytes_of_samples": int(table.size.sum()),
        "classes": [{"name": name, "samples": number} for name, number in zip(manifest.classes, counts, strict=True)],
        "shorter_side": [
            {"from": start, "below": end, "samples": number}
            for start, end, number in zip(edges, edges[1:], histogram, strict=False)
            if number
        ],
        "without_class": len(table) - len(inside),
        "tiled": manifest.findings.get(TILED, 0),
        "findings": {name: number for name, number in manifest.findings.items() if name != TILED},
        "skipped": manifest.skipped,
    }


def _describe(facts: dict[str, Any], all_classes: bool) -> str:
    from packer._manifest import LOSSY

    samples = facts["samples"]
    mean = facts["bytes_of_samples"] / max(samples, 1)
    settings = ", ".join(
        f"{name} {_setting(value)}"
        for name, value in facts["settings"].items()
        if value is not None and (name != "quality" or facts["codec"] in LOSSY)
    )
    lines = [
        f"{facts['path']}: {facts['format']} pack{_parts(facts['parts'])}, schema {facts['schema']}",
        f"  {show.counted(samples, 'sample')}, {show.counted(len(facts['classes']), 'class')}, {show.size(facts['bytes'])} "
        f"({show.size(mean)} a sample)",
        f"  {settings}",
        *([f"  {facts['tiled'] / max(samples, 1):.1%} of the samples are tiled JPEGs"] if facts["tiled"] else []),
        "  " + ", ".join(f"{name} {version}" for name, version in facts["versions"].items()),
        "",
        "  shorter side",
    ]
    most = max((row["samples"] for row in facts["shorter_side"]), default=1)
    for row in facts["shorter_side"]:
        label = f"{row['from']} to {row['below'] - 1}" if row["below"] < 1 << 31 else f"{row['from']} or more"
        bar = "█" * max(1, round(_BAR * row["samples"] / most))
        lines.append(f"  {label:>14}  {bar:<{_BAR}}  {show.count(row['samples'])}")
    lines += ["", "  classes", *_class_lines(facts["classes"], all_classes)]
    if facts["without_class"]:
        lines.append(f"  {show.counted(facts['without_class'], 'sample')} of no class: `packer verify` names them")
    if facts["findings"] or facts["skipped"]:
        lines += ["", "  findings"]
    lines += [f"  {show.count(number)} x {finding}" for finding, number in facts["findings"].items()]
    lines += [f"  left out: {entry['name']}: {entry['reason']}" for entry in facts["skipped"][:10]]
    if len(facts["skipped"]) > 10:
        lines.append(f"  … and {len(facts['skipped']) - 10} more left out (--json lists all)")
    return "\n".join(map(printable, lines))  # the pack may be a stranger's


def _parts(number: int) -> str:
    return f" of {show.counted(number, 'part')}" if number else ""


def _setting(value: Any) -> str:
    return "(" + ", ".join(f"{k} {v}" for k, v in value.items()) + ")" if isinstance(value, dict) else str(value)


def _class_lines(classes: list[dict[str, Any]], all_classes: bool) -> list[str]:
    def line(label: int) -> str:
        return f"  {label:>14}  {classes[label]['name']}  {show.count(classes[label]['samples'])}"

    if all_classes or len(classes) <= 12:
        return [line(label) for label in range(len(classes))]
    hidden = f"{'…':>16}  {len(classes) - 8} more (--classes lists all)"
    return [*map(line, range(5)), hidden, *map(line, range(len(classes) - 3, len(classes)))]
