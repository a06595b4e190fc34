"""The command that makes a pack again of its export."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from packer._fields import PIXELS
from packer._formats import Reader
from packer._packs.layout import Layout
from packer._sample import UNLABELED
from packer.errors import printable

__all__ = ["command_again"]


def command_again(reader: Reader, layout: Layout, root: Path) -> str | None:
    """Return the `packer convert` line that makes a pack with the same values of an export.

    None where no line does: the images became PNG, or got other names; or a field of files has no value at all.

    Parameters
    ----------
    reader : Reader
        The pack, whose classes the new pack takes.
    layout : Layout
        What lies where.
    root : Path
        The directory of the export.
    """
    files = layout.files
    renamed = any(name != file for name, file in zip(reader.names, files.images, strict=True))
    if renamed or reader.manifest.codec == "raw" or any(not len(one.samples) for one in files.fields):
        return None
    images = root / files.folder
    pack = Path(reader.path)
    words = ["packer", "convert", str(images), str(root.with_name(f"{root.name}-again{pack.suffix}"))]
    words += _of_labels(reader, layout, root)
    words += [word for column in _columns(reader, layout) for word in ("--column", column)]
    words += [word for field in _templates(layout) for word in ("--field", field)]
    if any(len(one.samples) < len(reader) for one in files.fields):
        words += ["--on-missing", "null"]
    if reader.manifest.exif == "apply":
        words += ["--exif", "apply"]
    return " ".join(shlex.quote(printable(word)) for word in words)


def _of_labels(reader: Reader, layout: Layout, root: Path) -> Iterator[str]:
    manifest = reader.manifest
    if layout.metadata is not None:
        yield from ("--labels", str(root / layout.metadata), "--path-column", "file_name")
    elif layout.labels is not None:
        yield from ("--labels", str(root / layout.labels))
    if layout.labels is None and not manifest.classes:
        yield "--no-classes"
    elif manifest.label_type != "class":
        yield from ("--label-type", manifest.label_type)
    elif layout.labels is not None and (reader.table.label == UNLABELED).any():
        yield "--unlabeled"
    if (manifest.label_type == "class" and manifest.classes) or any(field.classes for field in manifest.fields):
        yield from ("--classes-from", str(Path(reader.path).absolute()))


def _columns(reader: Reader, layout: Layout) -> Iterator[str]:
    """Yield the fields that the lines of metadata have."""
    files = {one.field.name: one for one in layout.files.fields}
    for field in reader.fields.values():
        if field.name not in files:
            yield f"{field.name}:{field.dtype if field.kind == 'scalar' else field.kind}"
        elif field.kind in PIXELS and not files[field.name].followed:
            yield f"{field.name}={field.name}_file_name:{field.kind}"


def _templates(layout: Layout) -> Iterator[str]:
    """Yield the fields that are files by a template: their own, or that of their directory in the export."""
    out = "../" * layout.files.folder.count("/")
    for one in layout.files.fields:
        name, kind = one.field.name, one.field.kind
        if one.followed:
            yield f"{name}:{kind}={one.field.file}"
        elif kind not in PIXELS:
            yield f"{name}:{kind}={out}{name}/{{path}}{'.npy' if kind == 'array' else '.bin'}"
