"""The account of a source: what became of every file, row, member, key and column that was seen in the source.

The code that lists images fills the account. Commands print the account's lines, and the manifest stores the account.
With ``--strict``, losses in the account are an error. Files of other types than images are counted by
`packer._sources.base.OtherFiles` instead, because there can be millions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from packer._table import encode_name
from packer.errors import SourceError, message_of, option, printable, recorded

_T = TypeVar("_T")

LEFT_OUT, UNLABELED, RENUMBERED = "left out", "unlabeled", "renumbered"
TAKEN, NOT_LOOKED_AT = "taken", "not looked at"

_LOSSES = (LEFT_OUT, UNLABELED, RENUMBERED)
_FATES = (*_LOSSES, TAKEN, NOT_LOOKED_AT)
_SAMPLES = ("image", "sample", "row", "label")  # losing one of these costs an image or its label
REPORTED = 2000
"""The largest number of names that an item stores for a report."""

_SHOWN = 3  # number of names that a line shows


def counted(number: int, what: str) -> str:
    """Return a number with its noun: ``1 image``, ``2 images``, ``2 classes``, ``2 keys``, ``2 entries``."""
    if number == 1:
        return f"1 {what}"
    if what.endswith("s"):
        return f"{number:,} {what}es"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") and what[-2:-1] not in "aeiou" else f"{number:,} {what}s"


@dataclass
class AccountItem:
    """An entry of an account: files, rows or other things of one kind that had the same outcome for the same reason.

    Attributes
    ----------
    fate : str
        The outcome: `LEFT_OUT`, `UNLABELED`, `RENUMBERED`, `TAKEN` or `NOT_LOOKED_AT`.
    what : str
        The kind of the things, in the singular: ``image``, ``row``, ``column``, ``member``, ``key``, ``dataset``,
        ``class``.
    why : str
        The reason, worded as the end of a printed line: ``the table does not name them``.
    count : int
    names : list of str
        The names of the first things, at most 2,000.
    chosen : bool
        True if the user has chosen this outcome with an option; then it is not a loss.
    """

    fate: str
    what: str
    why: str
    count: int = 0
    names: list[str] = field(default_factory=list)
    chosen: bool = False

    @property
    def is_loss(self) -> bool:
        """Whether ``--strict`` turns this outcome into an error."""
        return self.fate in _LOSSES and not self.chosen

    def line(self) -> str:
        """Return the line that commands print about the item."""
        shown = ", ".join(printable(name) for name in self.names[:_SHOWN])
        more = ", …" if self.count > _SHOWN and shown else ""
        names = f" ({shown}{more})" if shown else ""
        return f"{self.fate}: {counted(self.count, self.what)}{names}: {self.why}"

    def to_json(self, names: int) -> dict[str, Any]:
        """Return the item as JSON values, with at most `names` names."""
        document = {"fate": self.fate, "what": self.what, "why": self.why, "count": self.count}
        return {**document, "names": self.names[:names], **({"chosen": True} if self.chosen else {})}


@dataclass(frozen=True)
class LabelCandidate:
    """A column, key or similar part of a source that looks like labels, but is not used as labels.

    Attributes
    ----------
    what, name : str
        The kind and the name of the part, such as ``column`` and ``target``.
    option : str
        The option that would use the part as labels, such as ``--key label=target``; empty if there is no such option.
    why : str
        The reason why the part is not used, such as ``is uint8 3, 3 rows for 4 images``.
    """

    what: str
    name: str
    option: str
    why: str = ""


class Account:
    """What became of everything that was seen in a source: a collection of `AccountItem`.

    Attributes
    ----------
    candidates : list of LabelCandidate
        Parts that look like labels, in a source in which no labels were found. `require_labels` raises an error about
        these parts. The manifest does not store them.
    """

    def __init__(self, items: Iterable[AccountItem] = ()) -> None:
        self._items: dict[tuple[str, str, str, bool], AccountItem] = {}
        self.candidates: list[LabelCandidate] = []
        for item in items:
            self.add(item.fate, item.what, item.why, item.names, count=item.count, chosen=item.chosen)

    def __bool__(self) -> bool:
        return bool(self._items)

    def __iter__(self) -> Iterator[AccountItem]:
        """Yield the items: losses of images and labels first, and things that were not examined last."""
        order = {fate: place for place, fate in enumerate(_FATES)}
        return iter(
            sorted(
                self._items.values(),
                key=lambda item: (
                    not (item.is_loss and item.what in _SAMPLES),
                    not item.is_loss,
                    order[item.fate],
                ),
            )
        )

    def add(
        self,
        fate: str,
        what: str,
        why: str,
        names: Iterable[str] = (),
        *,
        count: int | None = None,
        chosen: bool = False,
    ) -> None:
        """Add things of one kind that had the same outcome for the same reason.

        Parameters
        ----------
        fate, what, why : str
            The same as in `AccountItem`.
        names : iterable of str
            The names of all of these things, or only of the first ones.
        count : int, optional
            The number of things; by default the number of `names`. If it is 0, nothing is added.
        chosen : bool
            Whether the user has chosen this outcome with an option.
        """
        listed = list(names)
        number = len(listed) if count is None else count
        if number < 1:
            return
        why = recorded(why)
        item = self._items.setdefault((fate, what, why, chosen), AccountItem(fate, what, why, chosen=chosen))
        item.count += number
        item.names += map(storable, listed[: max(0, REPORTED - len(item.names))])

    def left_out(self, what: str, why: str, names: Iterable[str] = (), **more: Any) -> None:
        """Add things that will not be in the pack; see `add`."""
        self.add(LEFT_OUT, what, why, names, **more)

    def unlabeled(self, why: str, names: Iterable[str] = (), **more: Any) -> None:
        """Add images whose label is -1; see `add`."""
        self.add(UNLABELED, "image", why, names, **more)

    def renumbered(self, what: str, why: str, names: Iterable[str] = (), **more: Any) -> None:
        """Add classes or labels that have other numbers than in the source; see `add`."""
        self.add(RENUMBERED, what, why, names, **more)

    def taken(self, what: str, why: str, names: Iterable[str] = (), **more: Any) -> None:
        """Add columns, keys or members that are used; `why` tells what they are used for. See `add`."""
        self.add(TAKEN, what, why, names, **more)

    def not_looked_at(self, what: str, why: str, names: Iterable[str] = (), **more: Any) -> None:
        """Add things that were not examined; this is not a loss. See `add`."""
        self.add(NOT_LOOKED_AT, what, why, names, **more)

    def looks_like_labels(self, what: str, name: str, option: str, why: str = "") -> None:
        """Add a part of the source that looks like labels, but is not used as labels; see `LabelCandidate`."""
        self.candidates.append(LabelCandidate(what, name, option, why))

    def update(self, other: Account) -> None:
        """Add all items and candidates of another account."""
        for item in other._items.values():
            self.add(item.fate, item.what, item.why, item.names, count=item.count, chosen=item.chosen)
        self.candidates += other.candidates

    def lines(self) -> list[str]:
        """Return the lines that commands print, the losses first."""
        return [item.line() for item in self]

    def count(self, fate: str) -> int:
        """Return the number of things with this outcome."""
        return sum(item.count for item in self._items.values() if item.fate == fate)

    def losses(self) -> list[AccountItem]:
        """Return the items that are losses: left out, unlabeled or renumbered, unless the user has chosen this."""
        return [item for item in self if item.is_loss]

    def require_no_losses(self, source: str) -> None:
        """Raise SourceError if there are losses; ``--strict`` calls it. The message names `source`."""
        if losses := self.losses():
            lost = "\n".join(f"  {item.line()}" for item in losses)
            raise SourceError(
                f"{printable(source)}: {option('strict', True)} stops here, because files would be left out, "
                f"unlabeled or renumbered:\n{lost}\nFix these, pass an option that allows them, or leave out "
                f"{option('strict', True)}."
            )

    def require_labels(self, source: str, count: int) -> None:
        """Raise SourceError if a part of the source looks like labels.

        Call this method if none of the `count` images has a label.
        """
        if not self.candidates:
            return
        names = ", ".join(
            f"{one.what} {printable(one.name)!r}{f' ({printable(one.why)})' if one.why else ''}"
            for one in self.candidates[:5]
        )
        images = "its only image" if count == 1 else f"all {count:,} images"
        look = "looks" if len(self.candidates) == 1 else "look"
        options = [one.option for one in self.candidates if one.option]
        way = (
            f"Pass the one with the labels, such as {printable(options[0])}"
            if options
            else "packer cannot read it as it is: correct it"
        )
        raise SourceError(
            f"{printable(source)}: {images} would be unlabeled, and {names} {look} like labels. {way}; "
            f"or pass {option('unlabeled', True)} for images without labels"
        )

    def report(self) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of a report: one for each stored name.

        If an item has more things than stored names, another entry has the number of the others.
        """
        for item in self:
            if item.fate == NOT_LOOKED_AT:
                continue  # `OtherFiles` reports these files
            said = {"account": item.fate, "what": item.what, "why": item.why}
            for name in item.names:
                yield {"name": name, **said}
            if item.count > len(item.names):
                yield {"count": item.count - len(item.names), **said}

    def to_json(self, names: int = 10) -> list[dict[str, Any]]:
        """Return the account as JSON values, with at most `names` names of each item."""
        return [item.to_json(names) for item in self]

    @classmethod
    def from_json(cls, document: Any) -> Account:
        """Build an account from JSON values; ValueError if they are invalid."""
        if not isinstance(document, list):
            raise ValueError("the account is not a list")
        account = cls()
        for entry in document:
            account._add_json(entry)
        return account

    @classmethod
    def united(cls, accounts: Sequence[Account | None]) -> Account | None:
        """Join several accounts into one; return None if one of them is None, which means that it was not recorded."""
        united = cls()
        for account in accounts:
            if account is None:
                return None
            united.update(account)
        return united

    def _add_json(self, entry: Any) -> None:
        texts = [entry["fate"], entry["what"], entry["why"], *entry["names"]]
        if not all(type(text) is str for text in texts) or type(entry["names"]) is not list:
            raise ValueError("the account has elements of the wrong type")
        for text in texts:
            encode_name(text)  # UnicodeEncodeError is a ValueError
        fate, count = entry["fate"], entry["count"]
        if fate not in _FATES or type(count) is not int or not max(1, len(entry["names"])) <= count < 1 << 62:
            raise ValueError(f"the account has {count!r} {fate!r}")
        self.add(fate, texts[1], texts[2], entry["names"], count=count, chosen=entry.get("chosen") is True)


def storable(name: str) -> str:
    """Return a name that a manifest can store: lone surrogates, which JSON allows in a name, are escaped."""
    try:
        encode_name(name)
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace").decode()
    return name


class BadSamples:
    """Collects the unusable samples that are found while a source or a container is listed.

    Code that finds such a sample calls `add` and continues with the next sample. The collected samples are stored in
    the source's `doubts`, and later in the manifest's `skipped`. The account does not list them again.

    Parameters
    ----------
    skip : bool
        Whether such samples are left out and collected (``--on-error skip``); otherwise the first of them is an error.

    Attributes
    ----------
    found : list of dict
        ``{"name", "reason"}`` of each sample that was left out, in the form of the manifest.
    """

    def __init__(self, *, skip: bool = False) -> None:
        self.skip = skip
        self.found: list[dict[str, str]] = []

    def add(self, name: str, error: SourceError) -> dict[str, str]:
        """Leave a sample out and record it. Without `skip`, raise `error` with a hint at ``--on-error skip``.

        Parameters
        ----------
        name : str
            The sample's path in the source, or its row if it has no path, for the list of skipped samples.
        error : SourceError

        Returns
        -------
        dict
            The entry of the sample in `found`.
        """
        self.require_skip(error)
        self.found.append({"name": storable(name), "reason": recorded(message_of(error))})
        return self.found[-1]

    def usable(self, names: Mapping[str, str], read: Callable[[str], _T], where: str) -> dict[str, _T]:
        """Call `read` for each sample, for example to read annotations; return the results by key.

        Samples for which `read` fails are recorded with `add`.

        Parameters
        ----------
        names : mapping
            Keys and names of the samples. A key is the argument of `read` for its sample.
        read : callable
            Takes a key, and returns the values of the sample; raises SourceError if they cannot be used.
        where : str
            The name of the source in messages.

        Raises
        ------
        SourceError
            If no sample can be used. If `skip` is False, also if any single sample cannot be used.
        """
        values: dict[str, _T] = {}
        for key, name in names.items():
            try:
                values[key] = read(key)
            except SourceError as error:
                self.add(name, error)
        if not values:
            raise SourceError(f"{where}: no image can be used: {self.found[0]['reason']}")
        return values

    def require_skip(self, error: SourceError) -> None:
        """Raise `error`, with a hint at ``--on-error skip``, unless `skip` is set.

        Call this for an error about many samples, before `add` is called for each of them.
        """
        if not self.skip:
            problem = message_of(error).rstrip(".")
            advice = f"To leave out such samples and list them: {option('on_error', 'skip')}"
            raise type(error)(f"{problem}. {advice}") from error.__cause__
