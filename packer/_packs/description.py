"""Display of a pack's figures for `packer info`, in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from packer._conversion import words
from packer._display import Bar, Block, Heading, TextTable, count, counted, here
from packer._storage.system import in_units
from packer.errors import spelled

if TYPE_CHECKING:
    from packer._packs.info import ClassCount, FieldInfo, PackInfo

_NAMED = 5  # classes of a field
_MOST_CLASSES = 12  # that are all listed; of more, the first and the last ones
_ALL_CLASSES, _ALL_SKIPPED = "⟨classes¦--classes⟩", "⟨skipped¦--json⟩"
"""The attribute, and the option of the command, that have all of them."""


def description(pack: PackInfo, *, all_classes: bool = False) -> Iterator[Block]:
    """Yield settings, sizes, classes with their counts, fields, the account of the source, and findings."""
    yield f"{here(pack.path)}: {pack.format} {_kind(pack)}, schema {pack.schema}"
    yield from _sizes(pack)
    yield from (f"  {line}" for line in words.settings_in_words(pack.settings, pack.codec))
    if pack.tiled:
        yield f"  {pack.tiled / max(pack.samples, 1):.1%} of the samples are tiled JPEGs"
    yield "  made by " + ", ".join(f"{name} {version}" for name, version in pack.versions.items())
    yield ""
    yield Heading("shorter side")
    yield _sides(pack)
    yield ""
    yield from _labels(pack, all_classes)
    if pack.fields:
        yield ""
        yield Heading("fields")
        yield _fields(pack.fields, all_classes)
    if pack.without_class:
        of_none = "of no class" if pack.label_type == "class" else "of no number"
        yield f"  {counted(pack.without_class, 'sample')} {of_none}: `packer verify` names them"
    yield ""
    yield Heading("source")
    yield from (f"  {line}" for line in words.account(pack.account, pack.unlabeled))
    yield from _findings(pack)


def _kind(pack: PackInfo) -> str:
    parts = f" of {counted(pack.parts, 'part')}" if pack.parts else ""
    if pack.format != "index":
        return f"pack{parts}"
    return f"{'of files that stay where they are' if pack.base else 'of its own files'}{parts}"


def _sizes(pack: PackInfo) -> Iterator[str]:
    size = pack.bytes if pack.base is None else pack.bytes_of_samples
    mean = in_units(pack.bytes_of_samples / max(pack.samples, 1))
    labels = words.labels(pack.label_type, len(pack.classes))
    yield f"  {counted(pack.samples, 'sample')}, {labels}, {in_units(size)} ({mean} a sample)"
    if pack.base is not None:
        checks = "with" if pack.checksums else "without"
        files = f"in {counted(pack.files, 'file')} below {pack.base}"
        yield f"  {files}; {in_units(pack.bytes)} of index {checks} checksums"


def _sides(pack: PackInfo) -> TextTable:
    most = max((row.samples for row in pack.shorter_side), default=1)
    rows = [
        (
            f"{row.start} to {row.below - 1}" if row.below < 1 << 31 else f"{row.start} or more",
            Bar(row.samples, most),
            count(row.samples),
        )
        for row in pack.shorter_side
    ]
    return TextTable(rows, (">14", "30", ""))


def _labels(pack: PackInfo, all_classes: bool) -> Iterator[Block]:
    if pack.label_type != "class":
        between = "" if pack.least_label is None else f", {pack.least_label} to {pack.most_label}"
        yield f"  labels are numbers without classes ({pack.label_type}){between}"
        return
    yield Heading("classes")
    yield _classes(pack.classes, all_classes)
    if pack.unlabeled:
        yield f"  {counted(pack.unlabeled, 'sample')} without a label (-1)"


def _classes(classes: Sequence[ClassCount], all_classes: bool) -> TextTable:
    rows = [(str(label), one.name, count(one.samples)) for label, one in enumerate(classes)]
    if not all_classes and len(rows) > _MOST_CLASSES:
        rows[5:-3] = [("…", f"{len(rows) - 8} more ({spelled(_ALL_CLASSES)} lists all)", "")]
    return TextTable(rows, (">14", "", ""))


def _fields(fields: Sequence[FieldInfo], all_classes: bool) -> TextTable:
    width = max(14, *(len(field.name) for field in fields))
    return TextTable([(field.name, _field(field, all_classes)) for field in fields], (f">{width}", ""))


def _field(field: FieldInfo, all_classes: bool) -> str:
    what = [" ".join(filter(None, [field.dtype, field.kind]))]
    if field.kind == "array":
        what.append(f"{field.rank} axes" if field.rank != 1 else "1 axis")
    if field.classes:
        names = field.classes if all_classes else field.classes[:_NAMED]
        more = ", …" if len(names) < len(field.classes) else ""
        what.append(f"{counted(len(field.classes), 'class')} ({', '.join(names)}{more})")
    if field.file:
        what.append(f"of {field.file}")
    what.append(in_units(field.bytes))
    if field.missing:
        what.append(f"{count(field.missing)} missing")
    return ", ".join(what)


def _findings(pack: PackInfo) -> Iterator[Block]:
    if pack.findings or pack.skipped:
        yield ""
        yield Heading("findings")
    yield from (f"  {line}" for line in words.findings(pack.findings, pack.codec, pack.settings))
    yield from (f"  left out: {entry['name']}: {entry['reason']}" for entry in pack.skipped[:10])
    if len(pack.skipped) > 10:
        yield f"  … and {len(pack.skipped) - 10} more left out ({spelled(_ALL_SKIPPED)} lists all)"
