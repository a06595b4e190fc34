"""Labels in members of tars: texts and numbers, ``.npy``, and members of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packer._account import Account, is_label_name
from packer._containers.labelkeys import add_candidates, label_key
from packer._containers.numericlabels import one_hot, whole
from packer._containers.tars.membervalues import class_of, npy_array
from packer._containers.tars.tarsamples import last_part
from packer._fields.values import parsed_json
from packer._sample import UNLABELED
from packer.errors import OptionError, printable

__all__ = ["ALWAYS_LABELS", "JSON", "LONGEST", "TarLabel", "find_label", "said_label"]

LONGEST = 4096
"""Bytes of a label that is no member of JSON."""

JSON = ("json", "jsn")
_KNOWN = ("cls", "class", "label", "lbl")
ALWAYS_LABELS = ("cls", "class")
"""The extensions that webdataset has for labels, also where few of the values are any."""

_TEXTS = ("txt", "text")
_LONGEST_JSON = 1 << 24
_SEVERAL = re.compile(r"[\[(]?\s*[+-]?[0-9.]+(?:e[+-]?[0-9]+)?(?:\s*[,;\s]\s*[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)+\s*[\])]?")

Values = Mapping[str, Sequence[bytes]]
"""What the members of the samples that were looked at hold, by extension: of those that are small."""


@dataclass(frozen=True)
class TarLabel:
    """Where the labels of samples are, and what they are.

    Attributes
    ----------
    extension : str
    member : str
        Of JSON, the name of what has the label in it, with dots where it lies deeper.
    is_float : bool
        Whether labels are numbers with fractions, and no classes.
    """

    extension: str
    member: str = ""
    is_float: bool = False

    def __str__(self) -> str:
        return f".{self.extension}" + (f": {self.member}" if self.member else "")

    @property
    def longest(self) -> int:
        """How many bytes a member with a label has at most."""
        return _LONGEST_JSON if last_part(self.extension) in JSON else LONGEST

    def of(self, data: bytes) -> int | float | str | None:
        """Return the label in a member's bytes; None where JSON has none; ValueError where there is another thing."""
        kind = last_part(self.extension)
        label: int | float | str | None
        if kind == "npy":
            label = _of_values(npy_array(data).reshape(-1).tolist())
        elif kind in JSON:
            label = _of_json(parsed_json(data.decode("utf-8")), self.member)
        else:
            label = _of_text(data)
        if label is None or isinstance(label, str):
            return label
        if self.is_float:
            try:
                return float(label)
            except OverflowError:
                raise ValueError("a whole number beyond all floats") from None
        if isinstance(label, float) or label < UNLABELED:
            raise ValueError(f"{label} is no class id")
        return label


def find_label(values: Values, account: Account) -> TarLabel | None:
    """Return where the labels are, by names and values of members; else add what looks like labels to the account."""
    able: dict[str, TarLabel] = {}
    refused: dict[str, str] = {}
    for extension in filter(_is_named, values):
        label, why = _judged(TarLabel(extension), values[extension])
        if label is None:
            refused[extension] = why
        else:
            able[extension] = label
    key = label_key(able, _KNOWN) or next(iter(able), None)
    for extension, why in refused.items():
        account.taken("member", f"a field and no label: {printable(why)}", [f".{extension}"])
    if key is None:
        for extension, why in refused.items():
            account.looks_like_labels("member", extension, f"--key label={extension}", printable(why))
        _add_candidates({name: of for name, of in values.items() if name not in refused}, account)
        return None
    account.taken("member", "the label", [f".{key}"])
    account.taken("member", f"a field beside .{key}, which is the label", [f".{one}" for one in able if one != key])
    return able[key]


def said_label(key: str, values: Values) -> TarLabel:
    """Return where the labels are as a person says it: ``cls``, or ``json:category``.

    Raises
    ------
    OptionError
        If it is JSON, of which no member was said.
    """
    extension, _, member = key.partition(":")
    label = TarLabel(extension.lower(), member)
    of = values.get(label.extension, ())
    if member and last_part(label.extension) not in JSON:
        raise OptionError(f"--key label={key}: .{label.extension} is no JSON, which has members: say {extension} alone")
    judged, why = _judged(label, of)
    if judged is None and last_part(label.extension) in JSON:
        names = ", ".join(map(printable, list(_scalars(of))[:10])) or "none that can be labels"
        raise OptionError(
            f"--key label={key}: {why}. Of JSON say which member is the label: "
            f"--key label={label.extension}:MEMBER, of {names}"
        )
    return judged or label  # whoever reads the sample says which it is, and where


def _judged(label: TarLabel, values: Sequence[bytes]) -> tuple[TarLabel | None, str]:
    """Return a label with the type that most of its values have; None where they have none, and why."""
    found, why = list[int | float | str | None](), "it is larger than any label"
    for data in values:
        try:
            found.append(replace(label, is_float=True).of(data))
        except ValueError as error:
            why = str(error)
    if all(one is None for one in found):
        return None, why if len(found) < len(values) or not values else f"no sample has {label}"
    if 2 * len(found) < len(values) and label.extension not in ALWAYS_LABELS:
        return None, why
    return replace(label, is_float=any(isinstance(one, float) and not one.is_integer() for one in found)), ""


def _is_named(extension: str) -> bool:
    """Tell whether an extension is called as labels are: ``cls``, ``label``, ``cls.txt``, ``b.label.npy``."""
    parts = extension.split(".")
    if parts[-1] in (*_TEXTS, "npy", *JSON):
        parts = parts[:-1]
    return bool(parts) and (parts[-1] in _KNOWN or is_label_name(parts[-1]))


def _of_text(data: bytes) -> int | float | str:
    try:
        label = class_of(data)
    except ValueError as error:
        try:
            return whole(float(data))
        except ValueError:
            raise error from None
    if isinstance(label, str) and _SEVERAL.fullmatch(label):
        numbers = [float(number) for number in re.findall(r"[^\s,;()\[\]]+", label)]
        place = one_hot(numbers)
        if place is None:
            raise ValueError(f"{label[:40]!r} are several numbers, and no class")
        return place
    return label


def _of_values(values: Sequence[Any]) -> int | float:
    """Return the number that values are: the only one, or the place of the only 1; ValueError where they are others."""
    if len(values) == 1 and isinstance(values[0], (int, float)):
        return whole(values[0])
    place = one_hot(values)
    if place is None:
        raise ValueError(f"{len(values)} numbers are no class")
    return place


def _of_json(document: Any, member: str) -> int | float | str | None:
    if member:
        for part in [member] if isinstance(document, dict) and member in document else member.split("."):
            document = document.get(part) if isinstance(document, dict) else None
    if document is None:
        return None
    if isinstance(document, str) and document.strip():
        return document.strip()
    if isinstance(document, list) and document and all(isinstance(one, (int, float)) for one in document):
        return _of_values(document)
    if isinstance(document, list) and len(document) == 1 and isinstance(document[0], str):
        return str(document[0])
    if isinstance(document, (int, float)):
        return whole(document)
    raise ValueError(f"{printable(json.dumps(document))[:40]} is neither a class id nor the name of a class")


def _scalars(values: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return what objects of JSON have by the names of their members, where it can be labels."""
    found: dict[str, list[Any]] = {}
    for data in values:
        try:
            document = parsed_json(data.decode("utf-8"))
        except ValueError:
            continue
        for name, value in document.items() if isinstance(document, dict) else ():
            if isinstance(value, (str, int)) and not isinstance(value, bool):
                found.setdefault(name, []).append(value)
    return found


def _add_candidates(values: Values, account: Account) -> None:
    """Add the members that look like labels to the account: those of JSON, and small ones whose values repeat."""
    for extension, of in values.items():
        if last_part(extension) in JSON:
            add_candidates(account, f"member of .{extension}", _scalars(of), f"--key label={extension}:{{}}")
        else:
            add_candidates(account, "member", {extension: _labels(TarLabel(extension), of)})


def _labels(label: TarLabel, values: Sequence[bytes]) -> list[Any]:
    try:
        return [label.of(data) for data in values] if all(len(data) <= LONGEST for data in values) else []
    except ValueError:
        return []
