"""Parse labels from texts, as class ids, as names of classes, or as numbers without classes; check lists of classes.

If a number is replaced by another number, a note says so. If all labels are whole numbers, they are the class ids. If
the meaning of labels is ambiguous, the error names the option that decides it. `with_given_classes` assigns the class
ids of a pack to the fields of a source, so that an id means the same class in both.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packer import _account
from packer._account import REPORTED, BadSamples
from packer._codecs import LABEL_TYPES, UNLABELED, are_few, largest_id
from packer._fields import KINDS, Field
from packer._sources.base import BlobColumn, Column, NumberColumn, RangeColumn, ReadBuffer, Source, some
from packer._table import Ints, Labels
from packer.errors import ImageError, SourceError, option, printable


def unknown_classes(unknown: Sequence[str], what: str = "classes") -> str:
    """Return the end of a message about names that the given class list lacks; the names are printable already."""
    shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    are = "is" if len(unknown) == 1 else "are"
    return (
        f"{len(unknown)} of its {what} {are} not in the given class list: {shown}. Correct them, or leave out "
        f"{option('classes_from')}"
    )


def in_known_classes(
    where: str, listed: Mapping[str, Sequence[str]], classes: Sequence[str], bad: BadSamples
) -> dict[str, list[str]]:
    """Return the images of the classes in `classes`; images of other classes become bad samples.

    Raises SourceError if bad samples are an error, or all samples are bad.
    """
    given = set(classes)
    unknown = [name for name in listed if name not in given]
    if unknown:
        bad.require_skip(SourceError(f"{where}: {unknown_classes([*map(printable, unknown)])}"))
    for name in unknown:
        why = f"its class {printable(name)} is not one of the given classes"
        for image in listed[name]:
            bad.add(image, SourceError(why))
    known = {name: list(images) for name, images in listed.items() if name in given}
    if unknown and bad.found and not any(known.values()):
        raise SourceError(f"{where}: no image can be used: {bad.found[0]['reason']}")
    return known


def class_ids(classes: Sequence[str]) -> dict[str, int]:
    """Return the id of each class, its index in `classes`; SourceError if a name is in `classes` twice."""
    ids: dict[str, int] = {}
    for label, name in enumerate(classes):
        if ids.setdefault(name, label) != label:
            raise SourceError(f"the class list contains {printable(name)} twice, so its label is ambiguous")
    return ids


_S = TypeVar("_S", bound=Source)

_LIST = re.compile(r"[,;|]|^\s*[\[({].*[\])}]\s*$", re.DOTALL)
_WHOLE = re.compile(r"[+-]?[0-9]+(\.0*)?")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DIGITS = 18  # any number with this many digits fits int64
_ALL_DIFFERENT_FROM = 20  # a note reports that all labels differ if there are at least this many rows
_SHOWN = 60  # characters of a label that messages show
_LONGEST = 4000  # most characters of a text that is parsed as a number
_ESCAPED = re.compile("[\ud800-\udfff]")  # surrogate escapes, which stand for bytes that are not UTF-8
_AS_UTF_8 = "Save the file as UTF-8, for example with `iconv -f latin1 -t utf-8`."
_WANTED = {"int": "a whole number of 64 bits", "float": "a finite number"}
_CLASS, _INT, _FLOAT = (option("label_type", one) for one in LABEL_TYPES)

NO_IMAGE = "no image has it; it keeps its id because of --classes-from"
"""The reason in an account for a class of `--classes-from` that has no images."""

Refuse = Callable[[int | None, str], SourceError]
"""Takes a row's index (None for all rows) and a problem; returns the error about the label or labels."""


@dataclass(frozen=True)
class Meaning:
    """The labels of a list after parsing, with their type and classes.

    Attributes
    ----------
    labels : (N,) int64 or float64 array
        Class ids, -1 for rows without a label; or numbers.
    label_type : str
        One of `packer._codecs.LABEL_TYPES`.
    classes : list of str
        The class names in the order of their ids.
    notes : list of str
        Remarks for the user.
    """

    labels: Labels
    label_type: str = "class"
    classes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class LabelTexts:
    """The labels of one or more rows, as texts; the label of an unlabeled row is empty.

    Parameters
    ----------
    texts : sequence of str
    label_type : {"class", "int", "float"}, optional
        The user's choice: ``"class"`` for names of classes, ``"int"`` and ``"float"`` for numbers without classes. By
        default whole numbers are class ids, and other texts are names of classes.
    classes : sequence of str, optional
        Class names in the order of their ids.
    refuse : callable
        Makes the error for a row; see `Refuse`.
    rows : int, optional
        The number of rows in the table, by default those in `texts`. It sets the largest class id, so that leaving out
        a row does not make other labels too large.
    """

    def __init__(
        self,
        texts: Sequence[str],
        label_type: str | None,
        classes: Sequence[str] | None,
        refuse: Refuse,
        rows: int | None = None,
    ) -> None:
        self._texts, self._label_type, self._refuse = texts, label_type, refuse
        self._rows = len(texts) if rows is None else rows
        self._classes = None if classes is None else list(classes)
        self._classes_are_numbers = self._classes is not None and self._classes == _numbered(len(self._classes))

    @cached_property
    def _distinct(self) -> Counter[str]:
        """The number of rows with each label; empty labels are not counted."""
        distinct = Counter(self._texts)
        del distinct[""]
        return distinct

    def meaning(self, bad: BadSamples | None = None) -> Meaning:
        """Interpret the labels.

        Parameters
        ----------
        bad : BadSamples, optional
            If it does not skip, the error about an unusable label also names the option that leaves such rows out.

        Raises
        ------
        SourceError
            If a label does not fit the label type, is not in the classes, or is ambiguous.
        """
        try:
            return self._numbers(self._label_type) if self._label_type in ("int", "float") else self._of_classes()
        except SourceError as error:
            if bad is not None and self._problems():
                bad.require_skip(error)
            raise

    def unusable(self) -> Iterator[tuple[int, SourceError]]:
        """Yield the rows with unusable labels, each with its error.

        A label is unusable if it is not UTF-8, if it is not a number although the label type requires numbers, or if it
        is not in the given classes. If all labels are numbers and all but a few are class ids, these few are unusable
        too.
        """
        problems = self._problems()
        for row, text in enumerate(self._texts) if problems else ():
            if text in problems:
                yield row, self._refuse(row, problems[text])

    def _problems(self) -> dict[str, str]:
        """Return the reason for each label that is unusable.

        A label with leading zeros is not unusable but ambiguous: it may be a name, and so may all other labels.
        """
        problems = {text: problem for text in set(self._texts) if (problem := self._problem(text))}
        if problems or not self._are_ids or any(map(_LEADING_ZERO.match, map(str.strip, self._distinct))):
            return problems
        no_ids = {text: problem for text in self._distinct if (problem := self._id_problem(text))}
        rows = sum(map(self._distinct.__getitem__, no_ids))
        return no_ids if are_few(rows, sum(self._distinct.values())) else {}

    def _problem(self, text: str) -> str | None:
        """Return the reason why a label is unusable regardless of the other labels; None if there is none."""
        if not _is_utf_8(text):
            return f"is not UTF-8. {_AS_UTF_8}"
        if self._label_type in ("int", "float"):
            return None if _number(text, self._label_type) is not None else f"is not {_WANTED[self._label_type]}"
        if self._classes is None or not text or text in self._classes:
            return None
        if self._label_type is None and self._classes_are_numbers and _WHOLE.fullmatch(text.strip()):
            number = text.strip().partition(".")[0]
            is_id = len(number) <= _DIGITS and -1 <= int(number) < len(self._classes)
            return None if is_id else "is not an id of the given classes"
        return "is not one of the given classes"

    def _refused(self, text: str, problem: str) -> SourceError:
        """Return the error about the first row that has this label."""
        return self._refuse(self._texts.index(text), problem)

    def _numbers(self, label_type: str) -> Meaning:
        """Interpret the labels as numbers without classes."""
        values: npt.NDArray[Any] = np.empty(len(self._texts), LABEL_TYPES[label_type])
        for row, text in enumerate(self._texts):
            number = _number(text, label_type)
            if number is None:
                wanted = f"{_WANTED[label_type]}, which {option('label_type', label_type)} requires"
                raise self._refuse(row, f"is not {wanted}. Correct it, or leave the row out.")
            values[row] = number
        return Meaning(values, label_type)

    def _of_classes(self) -> Meaning:
        """Interpret the labels as ids or as names of classes."""
        for text in self._distinct:
            if not _is_utf_8(text):
                raise self._refused(text, f"is not UTF-8. {_AS_UTF_8}")
        rows, unlabeled = len(self._texts), self._texts.count("")
        notes = [f"{unlabeled:,} of {rows:,} rows have no label, and get the label -1"] if unlabeled else []
        if self._are_ids:
            labels, names = self._ids()
            if minus := int((labels == UNLABELED).sum()) - unlabeled:
                notes.append(f"{minus:,} of {rows:,} labels are -1, which means unlabeled")
            if self._classes is None and (empty := np.setdiff1d(np.arange(len(names)), labels)).size:
                notes.append(f"classes without images, which keep their ids: {some([names[label] for label in empty])}")
        else:
            if self._label_type is None and self._classes is None:
                notes += self._mixture()
            elif self._label_type == "class" and self._classes is None and all(map(_is_whole, self._distinct)):
                notes.append(
                    f"the labels are numbers, which {_CLASS} reads as class names: the ids follow their alphabetical "
                    "order"
                )
            labels, names = self._named()
            notes += _remarks(self._distinct)
        if rows >= _ALL_DIFFERENT_FROM and len(self._distinct) == rows:
            notes.append(
                f"all {rows:,} labels are different, so each image has its own class; to keep the labels as numbers, "
                f"pass {_FLOAT} or {_INT}"
            )
        return Meaning(labels, "class", names, notes)

    @property
    def _are_ids(self) -> bool:
        """Whether labels should be class ids, because all of them are numbers."""
        if self._label_type is not None or not (self._classes is None or self._classes_are_numbers):
            return False
        return all(map(_is_number if self._classes is None else _is_whole, self._distinct))

    def _ids(self) -> tuple[Labels, list[str]]:
        """Return ids and class names; all labels must be numbers. By default the class names are these numbers."""
        ids = {"": UNLABELED}
        for text in self._distinct:
            if problem := self._id_problem(text):
                raise self._refused(text, problem)
            ids[text] = int(text.strip().partition(".")[0])
        names = _numbered(max(ids.values()) + 1) if self._classes is None else self._classes
        return np.array([ids[text] for text in self._texts], np.int64), names

    def _id_problem(self, text: str) -> str | None:
        """Return the reason why a number is not a class id, or is ambiguous; None if it is a class id."""
        digits = text.strip().partition(".")[0]
        if not _is_whole(text):
            return f"is not a class id. Pass {_FLOAT} to keep numbers as they are (regression), or {_CLASS} for names."
        if _LEADING_ZERO.match(digits):
            return f"may be a number or a name. Pass {_CLASS} for names, or {_INT} for numbers without classes."
        if digits.startswith("-") and digits not in ("-0", "-1"):
            return (
                f"is not a class id: ids are 0 or more, and -1 means unlabeled. Pass {_INT} for numbers without "
                f"classes, or {_CLASS} for names."
            )
        rows, classes = self._rows, self._classes
        most = len(classes) - 1 if classes is not None else largest_id(rows)
        if len(digits) <= _DIGITS and int(digits) <= most:
            return None
        if classes is not None:
            return f"is not in the given class list, whose last id is {most}"
        return (
            f"is too large for a class id in {rows:,} rows. "
            f"Pass {_CLASS} for names, sorted as text, or {_INT} for numbers without classes."
        )

    def _named(self) -> tuple[Labels, list[str]]:
        """Return ids and class names; all labels must be names. By default the classes are the sorted labels."""
        names = sorted(self._distinct) if self._classes is None else self._classes
        ids = class_ids(names)
        if unknown := sorted(set(self._distinct) - ids.keys()):
            raise self._refuse(None, unknown_classes([*map(quoted, unknown)], "labels"))
        return np.array([ids[text] if text else UNLABELED for text in self._texts], np.int64), names

    def _mixture(self) -> list[str]:
        """Return notes on numbers among other labels."""
        distinct = self._distinct
        numbers = [text for text in distinct if _is_number(text)]
        rows = sum(distinct[text] for text in numbers)
        if 2 * rows < sum(distinct.values()):
            numbers = [text for text in numbers if _NOT_FINITE.fullmatch(text.strip())]
            return [f"{quoted(text)} is read as a class name" for text in numbers]
        words = [text for text in distinct if not _is_number(text)]
        return [
            f"{rows:,} of {len(self._texts):,} labels are numbers, but others are not, such as {quoted(words[0])}: "
            "all are read as class names, and the ids follow the names sorted as text"
        ]


def _numbered(count: int) -> list[str]:
    """Return `count` class names that are the numbers of the classes."""
    return list(map(str, range(count)))


def _is_utf_8(text: str) -> bool:
    """Tell whether a label is valid UTF-8. A label must be valid UTF-8, but a path can consist of any bytes."""
    return text.isascii() or not _ESCAPED.search(text)


def _number(text: str, label_type: str) -> int | float | None:
    """Parse a label as an int or a float, as `label_type` says; return None if it is not such a number."""
    number = text.strip()
    if label_type == "int":
        whole = int(number.partition(".")[0]) if len(number) < _LONGEST and _WHOLE.fullmatch(number) else None
        return whole if whole is not None and -(1 << 63) <= whole < 1 << 63 else None
    value = float(number) if _NUMBER.fullmatch(number) else math.inf
    return value if math.isfinite(value) else None


def _is_whole(text: str) -> bool:
    return bool(_WHOLE.fullmatch(text.strip()))


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text.strip()) or _NOT_FINITE.fullmatch(text.strip()))


def _remarks(distinct: Iterable[str]) -> list[str]:
    """Return notes on odd class names: names that look like lists, and names with spaces around them."""
    names = sorted(distinct)
    notes = []
    if lists := [name for name in names if _LIST.search(name)] or _lists_of_words(names):
        notes.append(f"{_some(lists)} may be lists of labels, but each is read as the name of one class")
    if spaced := [name for name in names if name != name.strip()]:
        the = "it are part of the class name" if len(spaced) == 1 else "them are part of the class names"
        notes.append(f"{_some(spaced).removesuffix(',')}: the spaces around {the}")
    return notes


def _lists_of_words(names: Sequence[str]) -> list[str]:
    """Return names that may be space-separated lists of labels; empty if most names of several words are not lists.

    Ordinary class names can share words too, but either at the end (golden retriever, curly retriever) or at the
    beginning. A name is probably a list if one of its words is also a whole name, if one of its words is the first word
    of one name and the last word of another, or if all of its words occur in other names.
    """
    split = {name: name.split() for name in names}
    several = {name: words for name, words in split.items() if len(words) > 1}
    times = Counter(word for words in split.values() for word in set(words))
    alone = {words[0] for words in split.values() if len(words) == 1}
    at_both_ends = {words[0] for words in several.values()} & {words[-1] for words in several.values()}
    movable = alone | at_both_ends
    lists = [
        name
        for name, words in several.items()
        if any(word in movable for word in words) or all(times[word] > 1 or _is_number(word) for word in words)
    ]
    return lists if 2 * len(lists) >= len(several) else []


def _some(names: Sequence[str]) -> str:
    first = quoted(names[0])
    return first if len(names) == 1 else f"{len(names):,} labels, such as {first},"


def quoted(text: str) -> str:
    """Format a label for messages."""
    return f"'{printable(text[:_SHOWN])}{'…' if len(text) > _SHOWN else ''}'"


def without_labels(source: _S) -> _S:
    """Return the source without classes and with all labels -1, as the user has chosen with ``--no-classes``."""
    if source.account is not None:
        source.account.left_out("label", "--no-classes", count=len(source), chosen=True)
    return replace(source, labels=np.full(len(source), UNLABELED, np.int64), classes=[], label_type="class")


def account_for_labels(source: Source, why: str = "they have no label", *, chosen: bool = False) -> None:
    """Record the images without a label in the account of a newly listed source, unless they are in it already.

    Parameters
    ----------
    source : Source
    why : str
        The reason for the missing labels.
    chosen : bool
        Whether the user has allowed images without labels.

    Raises
    ------
    SourceError
        If no image has a label, but a file or column looks like labels, and `chosen` is False.
    """
    account = source.account
    if account is None or source.label_type != "class":
        return
    unlabeled = np.flatnonzero(source.labels == UNLABELED)
    if len(unlabeled) == len(source) and not chosen:
        account.require_labels(str(source.place), len(source))
    if (new := len(unlabeled) - account.count(_account.UNLABELED)) > 0:
        names = [source.names[index] for index in unlabeled[:REPORTED].tolist()]
        account.unlabeled(why, names if new == len(unlabeled) else (), count=new, chosen=chosen)


def account_for_classes(source: Source, classes: Sequence[str]) -> None:
    """Record, in the account of a newly listed source, which classes of the given list have no image."""
    if source.account is None or source.label_type != "class" or source.classes != list(classes):
        return
    source.account.taken("class", NO_IMAGE, source.empty_classes())


def with_given_classes(
    source: Source, fields: Sequence[Field], pack: Path, bad: BadSamples, table: Path | None = None, *, remedy: str
) -> Source:
    """Return a source in which each field has the class ids of the pack's field with the same name and kind.

    The ids in columns are replaced. Ids that are stored in a pack or computed from annotations cannot be replaced. An
    image becomes a bad sample if the pack's field lacks its class, or if its id cannot be replaced and means another
    class in the pack.

    Parameters
    ----------
    source : Source
    fields : sequence of Field
        The fields of the pack.
    pack, table : Path
        The pack, and the table that the source's line numbers refer to; both are for messages only.
    bad : BadSamples
        Collects these bad samples.
    remedy : str
        The end of the message about classes that the pack lacks.

    Raises
    ------
    SourceError
        If no image remains. If bad samples are errors, also if a field has a class that the pack's field lacks, or if a
        field has other classes and its ids cannot be replaced.
    """
    of_pack = {(field.name, field.kind): field for field in fields if KINDS[field.kind].has_classes}
    columns = {column.field.name: column for column in source.columns}
    changed: dict[str, Field] = {}
    problems: dict[int, str] = {}
    for own in source.fields:
        field = of_pack.get((own.name, own.kind), own)
        if (own.classes, own.ids) == (field.classes, field.ids):
            continue
        changed[own.name] = replace(field, file=own.file)
        if own.name in columns:
            columns[own.name], rows = _renumbered(columns[own.name], field, pack)
        else:
            bad.require_skip(
                SourceError(
                    f"{printable(source.root)}: field {own.name!r} has other classes than in {printable(pack)}, and "
                    f"the ids of fields in a pack cannot change. {remedy}"
                )
            )
            rows = _rows_of_other_meaning(source, own, field, pack)
        problems = rows | problems
    if not changed:
        return source
    for row, problem in sorted(problems.items()):
        by_line = table is not None and source.lines is not None
        where = f"{table}, line {source.lines[row]}" if by_line else source.names[row]  # type: ignore[index]
        bad.add(source.names[row], SourceError(f"{printable(where)}: {problem}. {remedy}"))
    source = replace(
        source,
        columns=tuple(columns[column.field.name] for column in source.columns),
        fields=tuple(changed.get(field.name, field) for field in source.fields),
    )
    return source.without_bad(sorted(problems), bad)


def _renumbered(column: Column, pack_field: Field, pack: Path) -> tuple[Column, dict[int, str]]:
    """Convert a column to the ids of `pack_field`.

    Also return the problem of each row with a class that `pack_field` lacks. The ids in these rows are undefined.
    """
    assert isinstance(column, (NumberColumn, BlobColumn, RangeColumn))
    ids, rows = _column_ids(column)
    used, inverse = np.unique(ids, return_inverse=True)
    own = column.field
    names = [_class_name(own, number) for number in used.tolist()]
    known = dict(zip(pack_field.classes, pack_field.ids or range(len(pack_field.classes)), strict=False))
    if own.classes or known.keys() >= set(names):  # digits of ids count as names if the pack's classes have these names
        new = np.array([known.get(name, 0) for name in names], np.int64)
        is_unknown = np.array([name not in known for name in names], bool)
    else:
        new, is_unknown = used, ~pack_field.knows(used)
    every = some([names[number] for number in np.flatnonzero(is_unknown).tolist()])
    problems: dict[int, str] = {}
    for at in np.flatnonzero(is_unknown[inverse]).tolist():
        name = printable(names[inverse[at]])
        problem = f"field {own.name!r}: {name} is not a class in {printable(pack)}; all unknown classes: {every}"
        problems.setdefault(int(rows[at]), problem)
    field = replace(pack_field, file=own.file)
    if isinstance(column, NumberColumn):
        values = np.zeros(len(column), np.int64)
        values[rows] = new[inverse]
        return NumberColumn(field, values, column.null), problems
    sizes = column.ranges.size if isinstance(column, RangeColumn) else column.sizes
    blob = np.frombuffer(new[inverse].astype("<i8").tobytes(), np.uint8)
    return BlobColumn.packed(field, blob, sizes), problems


def _column_ids(column: NumberColumn | BlobColumn | RangeColumn) -> tuple[Ints, Ints]:
    """Return all ids in a column, and the row of each id."""
    if isinstance(column, NumberColumn):
        rows = np.flatnonzero(~column.null)
        return column.values[rows], rows
    values: list[npt.NDArray[np.int64]] = [
        np.frombuffer(column.get(row) or b"", "<i8").astype(np.int64) for row in range(len(column))
    ]
    return np.concatenate([np.empty(0, np.int64), *values]), np.repeat(np.arange(len(values)), list(map(len, values)))


def _rows_of_other_meaning(source: Source, own: Field, pack_field: Field, pack: Path) -> dict[int, str]:
    """Return the problem of each row with an id that means another class in `pack_field`, or no class."""
    position, buffer = source.fields.index(own), ReadBuffer()
    problems: dict[int, str] = {}
    for row in range(len(source)):
        buffer.reset()
        try:
            stored = source.values(row, buffer)[position]
        except ImageError:  # the conversion reports this bad sample
            continue
        for number in () if stored is None else np.atleast_1d(own.decode(stored)).tolist():
            name = _class_name(own, number)
            if not pack_field.knows(number).all() or _class_name(pack_field, number) != name:
                problem = (
                    f"{printable(name)} has the id {number}, which means another class or no class in {printable(pack)}"
                )
                problems.setdefault(row, f"field {own.name!r}: {problem}")
    return problems


def _class_name(field: Field, number: int) -> str:
    """Return the name of the class with this id, or the digits of the id if classes have no names."""
    if not field.classes:
        return str(number)
    return field.classes[field.ids.index(number) if field.ids else number]
