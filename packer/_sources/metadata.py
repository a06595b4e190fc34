"""Read labels and fields from a table next to the images: Hugging Face's metadata table, or StyleGAN's dataset.json.

In ``metadata.csv``, ``.jsonl`` or ``.parquet``, the column ``file_name`` is the path of an image, relative to SRC, and
``NAME_file_name`` is the path of another file of the image. The label is in the column ``label``, or in ``labels`` if
each row has a single label there. ``objects`` has boxes (x y width height) and their categories. Every other column is
a field; the cells determine the field's kind.

``dataset.json``, written by ``dataset_tool.py`` of StyleGAN and EDM, has the labels of images by their paths. The
subdirectories are parts of equal size, not classes. Order and labels are the same as if these files were in a zip.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer._account import Account, BadSamples, counted
from packer._codecs import UNLABELED, largest_id
from packer._containers.dataset_json import DATASET_JSON, VECTOR, DatasetLabels, dataset_labels, label_vector
from packer._containers.roles import NAMES, has_label_name
from packer._fields import MOST_FIELDS, OF_SCALARS, Field
from packer._fields.encoding import parsed_json
from packer._sources.base import BlobColumn, FileColumn, Source
from packer._sources.file_matching import FileMatcher
from packer._sources.imagefolder import FilesOf, ImageRule, Walk, imagefolder_source, unlabeled_source
from packer._sources.labels import unknown_classes
from packer._sources.sidecar_files import Missing, with_columns
from packer._sources.table_source import TableRows, TreeImages
from packer._sources.tables import (
    Cells,
    Chunk,
    ColumnSpec,
    LabelTable,
    TableOptions,
    kinds_of,
    open_table,
    some_columns,
)
from packer._storage.safe_open import open_regular
from packer._table import Ints, Names
from packer.errors import MissingDependencyError, SourceError, message_of, option, printable, recorded

_NAME, _OF_FILES, _OBJECTS = "file_name", "_file_name", "objects"
_LABELS = NAMES["tables of datasets"].labels
_OF_OBJECTS = {"objects.bbox": ("boxes", "boxes"), "objects.categories": ("labels", "labels")}
"""The name and the kind of the field for each column that is split off from `objects`."""

_SHOWN = 5
_LARGEST_JSON = 1 << 28  # bytes of a dataset.json
_BEGIN = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"labels"\s*:')  # of a file of StyleGAN's tool


class MetadataTable(LabelTable):
    """A metadata table, in which `objects` is split into columns: boxes (x y x y), their categories, and other members.

    Attributes
    ----------
    nans : dict of str to int
        The number of NaNs in each column when the table was last read.
    """

    def __init__(self, table: LabelTable) -> None:
        super().__init__(table.path, table.bad)
        self._table = table
        self.left = table.left
        self.unit, self.of_texts = table.unit, table.of_texts
        self.read_by = f"{option('labels', printable(table.path))} {option('path_column', _NAME)} "
        self.nans: dict[str, int] = {}

    def header(self) -> list[str]:
        header = self._table.header()
        return [*header, *_OF_OBJECTS] if _OBJECTS in header else header

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        self.nans = dict.fromkeys(columns, 0)
        for chunk in self._chunks(columns):
            yield Chunk(chunk.lines, {name: self._without_nan(name, cells) for name, cells in chunk.columns.items()})

    def _without_nan(self, name: str, cells: Cells) -> Cells:
        """Return the cells with None in place of NaN, because pandas writes NaN for missing values."""
        if self.of_texts or (isinstance(cells, np.ndarray) and not np.isnan(cells).any()):
            return cells
        listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
        found: list[Any] = [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in listed]
        self.nans[name] += sum(new is None and cell is not None for new, cell in zip(found, listed, strict=True))
        return found

    def _chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        own = {_OBJECTS, *_OF_OBJECTS}
        inner = [column for column in columns if column not in own]
        if len(inner) == len(columns):
            yield from self._table.chunks(columns)
            return
        for chunk in self._table.chunks([*inner, _OBJECTS]):
            rows = [self._columns_of(*row) for row in zip(chunk.columns[_OBJECTS], chunk.lines, strict=True)]
            split = {column: [row.get(column, "" if self.of_texts else None) for row in rows] for column in own}
            yield Chunk(chunk.lines, {column: split.get(column, chunk.columns.get(column, ())) for column in columns})

    def _columns_of(self, cell: Any, line: int) -> dict[str, Any]:
        """Split the objects of a row into cells. If the objects are invalid, leave the row out and return no cells."""
        try:
            return self._split(cell)
        except ValueError as error:
            self.leave_out(line, self.refused(line, f"column '{_OBJECTS}': {printable(error)}"))
            return {}

    def _split(self, cell: Any) -> dict[str, Any]:
        """Split objects into columns; ValueError if they are invalid."""
        objects = cell
        if self.of_texts:
            try:
                objects = parsed_json(cell) if cell.strip() else None
            except ValueError as error:
                raise ValueError(f"it is not JSON: {error}") from error
        if not isinstance(objects, dict):
            return {} if objects is None else {_OBJECTS: cell}
        boxes = objects.get("bbox")
        if isinstance(boxes, list):
            boxes = [_corners(box) for box in boxes]
        more = {key: value for key, value in objects.items() if key not in ("bbox", "categories")}
        categories = objects.get("categories")
        if isinstance(boxes, list) and isinstance(categories, list) and len(boxes) != len(categories):
            raise ValueError(
                f"it has {len(boxes)} bbox and {len(categories)} categories. Each box must have one category."
            )
        row = {_OBJECTS: more or None, "objects.bbox": boxes, "objects.categories": categories}
        cells = {column: value for column, value in row.items() if value is not None}
        return {column: json.dumps(value) for column, value in cells.items()} if self.of_texts else cells


def _corners(box: Any) -> Any:
    """Convert a box from (x, y, width, height) to (x, y, x, y); None for an invalid box, because fields refuse None."""
    if not isinstance(box, list) or len(box) != 4 or any(type(number) not in (int, float) for number in box):
        return None
    x, y, width, height = box
    try:
        return [x, y, x + width, y + height]
    except OverflowError:  # a float and an integer that is too large for a float
        return None


def metadata_of(root: Path, names: Sequence[str], bad: BadSamples) -> MetadataTable | None:
    """Return the metadata table directly in a directory; None if the table names no images.

    Parameters
    ----------
    root : Path
    names : sequence of str
        The file names of the metadata tables directly in `root`.
    bad : BadSamples
        Collects unusable rows.

    Raises
    ------
    SourceError
        If there are several tables, or the table cannot be read.
    MissingDependencyError
        If the file is Parquet, and pyarrow is not installed.
    """
    if len(names) > 1:
        raise SourceError(
            f"{printable(root)}: {', '.join(names)} exist. Remove all but one, or pass {option('no_metadata', True)}."
        )
    table = MetadataTable(open_table(root / names[0], TableOptions(bad=bad)))
    try:
        return table if _NAME in table.header() else None
    except (SourceError, MissingDependencyError) as error:
        raise type(error)(f"{error} {option('no_metadata', True)} ignores the file.") from error


def metadata_source(
    root: Path,
    table: MetadataTable,
    rule: ImageRule | None = None,
    classes: Sequence[str] | None = None,
    *,
    has_classes: bool = True,
    on_missing: str = "error",
    files_of: FilesOf | None = None,
    allow_empty: bool = False,
) -> Source:
    """List the images of a tree, with fields from a metadata table.

    The images and their order are those of ImageFolder. But if the table names an image directly in `root`, the source
    has all images below `root`, and directories are not classes.

    Parameters
    ----------
    root : Path
    table : MetadataTable
        The table that `metadata_of` returned.
    rule : ImageRule, optional
        The rule that decides which files are images; by default ImageFolder's.
    classes : sequence of str, optional
        Class names in the order of their ids.
    has_classes : bool
        Whether labels are read from the table or the directories; otherwise all images get the label -1.
    on_missing : {"error", "null", "skip"}
        What happens to an image without a row in the table, or whose row names a file that does not exist.
    files_of : callable, optional
        The same as for `imagefolder_source`; the files that the table names are added to its result.
    allow_empty : bool
        The same as for `imagefolder_source`. If the table has labels, directories are not classes and can be empty.

    Raises
    ------
    SourceError
        If the tree or the table cannot be used, if an image has no row, or if a row names no image.
    """
    header = table.header()
    _require_distinct(table, header)
    kinds = kinds_of(table, header)
    label = next((name for name in _LABELS if name in header and _has_labels(table, name, kinds)), None)
    label = label if has_classes else None
    specs, unnamed = _specs(table, header, kinds, {_NAME, label, *(() if has_classes else _LABELS[:1])})
    rows = TableRows(root, table, TableOptions(unlabeled=True, classes=classes, columns=specs))
    rows.read(header, _NAME, label)
    rows.require_sound()
    _leave_out_files_outside(rows)
    bare = [name for name in rows.names if "/" not in name.replace("\\", "/")]  # one typing error changes no label
    flat = not has_classes or len(bare) == len(rows.names)
    flat = flat or _are_directly_in(root, [*bare, *rows.left.values()])
    own = rows.files(rows.columns())
    if flat:
        listed = unlabeled_source(root, rule).without(own)
    else:
        of = (lambda names: own) if files_of is None else (lambda names: {**own, **files_of(names)})
        listed = imagefolder_source(
            root, None if label else classes, rule, of, allow_empty=allow_empty or label is not None, bad=table.bad
        )
    listed = _without_table(listed, table.path.name)
    rows.match(TreeImages(root, listed.names))
    rows.leave_out_unusable()
    rows.require_sound()
    columns = rows.columns()
    source, image_rows = _matched(listed, rows, on_missing)
    if label is None and flat and has_classes:
        _account_for_candidates(source, table, kinds)
    if label is not None:
        source = _labelled(source, rows, image_rows)
    field_names = ", ".join(column.field.name for column in columns) or "none"
    notes = [f"{printable(table.path.name)}: fields {field_names}"]
    if nans := [f"{printable(name)} ({count:,})" for name, count in table.nans.items() if count]:
        notes.append(f"NaN is read as a missing value, null, in these columns: {some_columns(nans)}")
    _account_for_columns(source, rows, unnamed)
    source = replace(source, notes=[*source.notes, *rows.notes, *notes], doubts=tuple(table.bad.found))
    found = [column.taken(np.maximum(image_rows, 0)).with_missing(image_rows < 0) for column in columns]
    return with_columns(source, found, on_missing, skip=table.bad.skip)


def _are_directly_in(root: Path, names: Sequence[str]) -> bool:
    """Tell whether any of these names is that of a file directly in `root`, with the differences that are ignored."""
    if not names:
        return False
    files = [entry.name for entry in os.scandir(root) if entry.is_file()]
    matched = FileMatcher(files, dict(enumerate(names)), alone=False)
    return bool(matched.found or matched.several)


def _has_labels(table: LabelTable, name: str, kinds: Mapping[str, str]) -> bool:
    """Tell whether a column that is named like labels has labels.

    The column ``labels`` may also be a field: it is one if most of its cells are lists.
    """
    return name == _LABELS[0] or kinds.get(name) != "json" or _is_mostly(table, name, int, float, str)


def _is_mostly(table: LabelTable, name: str, *types: type) -> bool:
    """Tell whether most cells of a column have one of these types. If so, the other cells are bad."""
    found = Counter(type(cell) for chunk in table.chunks([name]) for cell in chunk.columns[name] if cell is not None)
    return 2 * sum(map(found.__getitem__, types)) > found.total()


def _require_distinct(table: LabelTable, header: Sequence[str]) -> None:
    """Raise SourceError if two columns have the same name."""
    if repeated := [name for name in header if header.count(name) > 1]:
        raise SourceError(
            f"{printable(table.path)}: {len(repeated)} columns have the name {printable(repeated[0])!r}. Give each "
            f"column a different name, or pass {option('no_metadata', True)}."
        )


def _leave_out_files_outside(rows: TableRows) -> None:
    """Leave out rows that name files outside of the tree.

    The table was found in the tree and not passed by the user, so it may be hostile.
    """
    for column in rows.columns():
        for row, path in enumerate(column.names() if isinstance(column, FileColumn) else ()):
            if os.path.isabs(path) or posixpath.normpath(path.replace(os.sep, "/")).split("/")[0] == "..":
                spec = f"{column.field.name}={column.field.name}{_OF_FILES}:{column.field.kind}"
                rows.leave_out(
                    row,
                    f"column '{column.field.name}{_OF_FILES}': {printable(path)} is outside SRC. Correct the path, or "
                    f"allow it by passing {rows.table.read_by}{option('columns', spec)}",
                )
    rows.require_sound()


def _account_for_columns(source: Source, rows: TableRows, unnamed: Sequence[str]) -> None:
    """Record in the account which columns are unused: those with invalid field names, and those without values."""
    assert source.account is not None
    other = f"--labels {printable(rows.table.path)} --path-column {_NAME} --column NEW=COLUMN:KIND sets another name"
    source.account.left_out("column", f"its name is not a valid field name; {other}", unnamed)
    rest = [name for name in rows.unused if name not in unnamed and name != _OBJECTS]
    source.account.not_looked_at("column", "it has no values, or has labels that are ignored", rest)


def _account_for_candidates(source: Source, table: LabelTable, kinds: Mapping[str, str]) -> None:
    """Record in the account which columns look like labels but have other names, as in many tables on Hugging Face."""
    assert source.account is not None
    for name, kind in kinds.items():
        if has_label_name(name) and kind in ("int64", "text", "bool"):
            way = f"{table.read_by}{option('label_column', printable(name))}"
            source.account.looks_like_labels("column", name, way)


def _matched(listed: Source, rows: TableRows, on_missing: str) -> tuple[Source, Ints]:
    """Return the source with the images to keep, and each image's row in the table, -1 for an image without a row."""
    without = set(listed.names).intersection(rows.left.values()).difference(rows.names)
    source = listed.without(without)
    nameless = len(rows.table.left) - len(without)  # bad rows that name no image, or one that another row names
    left = {one["name"] for one in rows.table.bad.found}
    row_of = {name: row for row, name in enumerate(rows.names) if name not in left}
    image_rows = np.fromiter((row_of.pop(name, -1) for name in source.names), np.int64, len(source))
    table = rows.table.path.name
    if row_of:
        first = next(iter(row_of.values()))
        if on_missing == "error":
            raise rows.refused(
                first,
                f"{printable(rows.names[first])} is not an image in {printable(source.root)} ({len(row_of)} such "
                f"rows). Correct {_NAME}, pass {option('on_missing', 'skip')} to ignore such rows, or pass "
                f"{option('no_metadata', True)} to ignore the table.",
            )
        if source.account is not None:
            source.account.left_out("row", "it names no image; --on-missing", row_of, chosen=True)
    missing = Missing(source, on_missing)
    lacking = np.flatnonzero(image_rows < 0)
    if on_missing == "error" and len(lacking) <= nameless:  # the bad rows may be theirs
        for at in lacking.tolist():
            why = f"{printable(rows.table.path)}: no row names it, and {counted(nameless, 'row')} cannot be used"
            rows.table.bad.add(source.names[at], SourceError(why))
        return source.taken(np.flatnonzero(image_rows >= 0)), image_rows[image_rows >= 0]
    if len(lacking):
        shown = ", ".join(printable(source.names[at]) for at in lacking[:_SHOWN].tolist())
        missing.record(lacking, f"row in {table}", shown + (", …" if len(lacking) > _SHOWN else ""))
    remaining = image_rows[image_rows >= 0] if on_missing == "skip" else image_rows
    return missing.applied_to(source), remaining


def _labelled(source: Source, rows: TableRows, image_rows: Ints) -> Source:
    """Return the source with labels from the table instead of the directories."""
    meaning = rows.meaning(())
    labels = np.where(image_rows < 0, UNLABELED, meaning.labels[image_rows])
    notes = [note for note in source.notes if "every label is -1" not in note]
    return replace(source, labels=labels, classes=meaning.classes, notes=[*notes, *meaning.notes])


def _without_table(source: Source, name: str) -> Source:
    """Return a source that no longer counts its table among the ignored files."""
    others = source.others.without(name)
    before = list(map(recorded, source.others.notes()))
    notes = (others.notes() if note in before else [note] for note in source.notes)
    return replace(source, others=others, notes=list(itertools.chain.from_iterable(notes)))


def _specs(
    table: LabelTable, header: Sequence[str], kinds: Mapping[str, str], own: set[str | None]
) -> tuple[list[ColumnSpec], list[str]]:
    """Return the columns to read as fields, and those with invalid field names; SourceError if there are too many."""
    specs, unnamed = [], []
    for column in header:
        kind = kinds.get(column, "")
        if column in own or not kind:
            continue
        name, dtype = column, ""
        if column in _OF_OBJECTS:
            name, kind = _OF_OBJECTS[column]
        elif column.endswith(_OF_FILES) and (kind == "text" or (kind == "json" and _is_mostly(table, column, str))):
            name = column.removesuffix(_OF_FILES)
            kind = "mask" if "mask" in name.lower() else "image"
        elif kind in OF_SCALARS:
            kind, dtype = "scalar", kind
        try:
            Field(name, kind, dtype)
        except ValueError:
            unnamed.append(column)
        else:
            specs.append(ColumnSpec(name, column, kind, dtype))
    if len(specs) > MOST_FIELDS:
        raise SourceError(
            f"{printable(table.path)}: {len(specs)} columns would be fields, but a pack can have at most "
            f"{MOST_FIELDS}. Remove columns, or pass {option('no_metadata', True)}."
        )
    return specs, unnamed


def stylegan_source(
    root: Path, classes: Sequence[str] | None = None, rule: ImageRule | None = None, bad: BadSamples | None = None
) -> Source | None:
    """List the images of a directory with the labels in its ``dataset.json``; None if another tool wrote that file.

    The file can also declare that there are no labels.

    Parameters
    ----------
    root : Path
    classes : sequence of str, optional
        Class names in the order of their ids; by default the names are the numbers of the classes.
    rule : ImageRule, optional
        The rule that decides which files are images.
    bad : BadSamples, optional
        Collects images with a label that is invalid or not in `classes`; by default such a label is an error.

    Raises
    ------
    SourceError
        If the file has a label that is invalid or not in `classes`, or if the directory cannot be listed.
    """
    path = root / DATASET_JSON
    found, bad = _labels_in(path), bad or BadSamples()
    if found is None:
        return None
    walk, account = Walk(root, rule or ImageRule()), Account()
    names = sorted(walk.all_images())
    labels = found.labels
    has_labels = "it has the labels" if labels else "it says that there are no labels"
    why = f"{has_labels}, so directories are not classes; --no-metadata ignores it"
    account.taken("file", why, [DATASET_JSON])
    account.update(walk.account)
    of_another_tool = not labels and (found.problems or found.nameless)  # such as names of classes
    if of_another_tool or not found.are_of_images(names, account):
        return None
    of_images, problems, stored = list(map(labels.get, names)), dict[int, str](), dict[int, bytes]()
    for row, label in enumerate(of_images):
        try:
            if names[row] in found.problems:
                raise ValueError(found.problems[names[row]])
            if isinstance(label, list):
                stored[row] = label_vector(label)
        except ValueError as error:
            problems[row] = str(error)
    ids = [label if type(label) is int else UNLABELED for label in of_images]
    numbered = any(label != UNLABELED for label in ids) or (bool(labels) and not stored)
    known = _classes(of_images, classes, path, bad) if numbered else []
    for row, label in enumerate(ids if numbered else ()):
        if not UNLABELED <= label < len(known):
            problems[row] = f"its label is {label}, but there are {len(known)} classes"
            ids[row] = UNLABELED
    bad_names = {names[row]: why for row, why in sorted(problems.items())}
    for name, why in {**bad_names, **found.nameless}.items():
        ignored = f"{option('no_metadata', True)} ignores the file"
        bad.add(name, SourceError(f"{printable(path)}: {printable(name)}: {why}. {ignored}"))
    others = walk.others.without(DATASET_JSON)
    source = Source(
        "stylegan",
        root,
        Names.of(names),
        np.array(ids, np.int64),
        known,
        others.notes(),
        others=others,
        account=account,
    )
    if stored:
        source = source.having(BlobColumn.of(VECTOR, map(stored.get, range(len(names)))))
    return replace(source.without_bad(sorted(problems), bad), doubts=tuple(bad.found))


def _labels_in(path: Path) -> DatasetLabels | None:
    """Return the labels in a file; None if the file does not exist, or if another tool wrote it.

    Raises
    ------
    SourceError
        If the file begins like the files of StyleGAN's tool, but is not JSON, for example because it is truncated.
    """
    try:
        if os.path.getsize(path) > _LARGEST_JSON:
            return None
        with open(open_regular(path), "rb") as file:
            data = file.read(_LARGEST_JSON)
    except OSError:
        return None
    try:
        return dataset_labels(data, printable(path))
    except SourceError as error:
        if not isinstance(error.__cause__, ValueError) or not _BEGIN.match(data):
            return None
        raise SourceError(f"{message_of(error)}. {option('no_metadata', True)} ignores the file") from error


def _classes(labels: Sequence[Any], classes: Sequence[str] | None, path: Path, bad: BadSamples) -> list[str]:
    """Return the classes of the images; SourceError if labels are numbers, but none of them is a class id."""
    numbers = [label for label in labels if type(label) is int]
    ids = [number for number in numbers if UNLABELED <= number <= largest_id(len(labels))]
    if numbers and not ids and len(numbers) + labels.count(None) == len(labels):
        raise SourceError(
            f"{printable(path)}: labels from {min(numbers)} to {max(numbers)} are not class ids. "
            f"{option('no_metadata', True)} ignores the file"
        )
    most = max(ids, default=UNLABELED)
    if classes is None:
        return list(map(str, range(most + 1)))
    if most >= len(classes):
        bad.require_skip(SourceError(f"{printable(path)}: {unknown_classes([str(most)])}"))
    return list(classes)
