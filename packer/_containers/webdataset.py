"""WebDataset tars: members with the same key form a sample, and the extension of each member decides its role.

``0001.jpg 0001.cls 0001.json`` are a sample's image, its class id and a field. The bytes of a member are a plain range
of the file. packer does not read the indexes of other tools next to a tar (DALI's ``.idx`` files, Energon's indexes),
because it trusts no index and reads every header of the tar anyway.

A member's key is its path up to the first dot of the file name. The rest of the name after that dot, in lower case, is
the member's extension. So ``dir/0001.seg.png`` is the member ``seg.png`` of the sample ``dir/0001``. If a key occurs
again later, and an image is among the later members, these form another sample. See
https://github.com/webdataset/webdataset, webdataset/tariterators.py.

packer reads two kinds of tars that webdataset misreads. First, the members of one sample may be scattered, as ``tar cf
a.tar *.jpg *.cls`` writes them. Second, file names may contain dots: if no member of a key has a plain extension, the
key ends at a later dot. So ``img.v2.jpg`` and ``img.v2.cls`` have the key ``img.v2``.

A JSON file may list the shards. wids (once a part of webdataset) writes ``{"__kind__": "wids-shard-index-v1",
"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 10, "filesize": 20480}, ...]}``; timm writes ``{"splits":
{"train": {"filenames": ["a.tar", ...], "shard_lengths": [10, ...]}}}``. Neither list has offsets of samples in a shard.

As in webdataset, the extension decides how a member is read: as an ASCII number, a text, an ``.npy`` array, or JSON.
"""

from __future__ import annotations

import functools
import json
import os
import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NoReturn

from packer._account import Account
from packer._codecs import UNLABELED
from packer._containers.blocks import BlockReader, json_in, npy_array
from packer._containers.contract import (
    IMAGE_HEAD,
    Chosen,
    ChosenField,
    Container,
    Entry,
    Piece,
    field_name,
    head_of,
    is_image_name,
    suffix_of,
)
from packer._containers.roles import NAMES, add_candidates, one_hot, whole
from packer._containers.tar import TarMember, TarWalk, begins_tar
from packer._fields import KINDS, MOST_FIELDS, OF_SCALARS, Field, Stored, declared_field
from packer._fields.encoding import parsed_json
from packer._storage.packfile import PackFile
from packer._storage.safe_open import name_problem
from packer._storage.stray_files import LEFT_BY_SYSTEM, is_system_file
from packer.errors import OptionError, SourceError, printable

IMAGES = NAMES["webdataset"].images
"""The extensions of images. If a sample has several, the one that is first in this list is the image."""

_META = re.compile("__[^/]*__($|/)")  # names that webdataset keeps for itself
_MOST = 1000  # members of a sample
_MOST_OF_KEY = 1 << 17  # members with the same key up to the first dot
_MOST_DOTS = 100  # in the key of a sample
_ODD = re.compile(r"\\|^\.?/|//|/\.\.?/|^\.\./")
_REMEMBERED = 100_000  # keys without an image
_NO_IMAGE = "they have no image"
_UNCOUNTED, _REPORTED = -1, -2  # in place of an image's offset: samples that the account counts, and that errors name
_HIDDEN = "their names begin with a dot, so they have no sample key"
_FIRST_DOT = "The key of a sample ends at the first dot of a file's name"
_AGAIN = "Create the tar again with its members sorted by name: `tar --sort=name`"


def last_part(extension: str) -> str:
    """Return the part of an extension after its last dot."""
    return extension.rpartition(".")[2]


@dataclass(slots=True)
class TarSample:
    """The members of a tar that share one key.

    Attributes
    ----------
    key : str
    members : dict of str to TarMember
        The members, by extension; at least one.
    problem : str
        The reason why the sample cannot be used; empty otherwise.
    """

    key: str
    members: dict[str, TarMember]
    problem: str = ""

    @classmethod
    def of(cls, key: str, members: Iterable[tuple[str, TarMember]]) -> TarSample:
        """Form a sample of members and their extensions; an unusable member becomes the sample's `problem`."""
        found, problem = dict[str, TarMember](), ""
        for extension, member in members:
            if extension in found or len(found) >= _MOST:
                many = f"has .{extension} twice" if extension in found else f"has more than {_MOST} members"
                why = f"sample {printable(key)} {printable(many)}. {_FIRST_DOT}"
            else:
                found[extension] = member
                why = member.problem
            if why and not problem:
                problem = f"byte {member.header}: {why}"
        return cls(key, found, problem)

    @property
    def first(self) -> TarMember:
        """The first member."""
        return next(iter(self.members.values()))

    @property
    def identity(self) -> int:
        """A number that is different for each key."""
        return hash((self.key, self.first.archive))

    @property
    def has_image(self) -> bool:
        """Whether any member has an image extension."""
        return any(last_part(extension) in IMAGES for extension in self.members)

    def join(self, other: TarSample) -> None:
        """Add the members of another sample with the same key."""
        self.members.update(other.members)
        self.problem = self.problem or other.problem


class SampleReader:
    """Groups the members of a tar into samples.

    Parameters
    ----------
    file : PackFile
        The tar.
    first_dot : bool
        Whether a key always ends at the first dot, as in webdataset.
    known : collection of str
        Extensions that may contain dots: such an extension never begins with a part of the key.

    Attributes
    ----------
    window : BlockReader
        The reader of the tar.
    members : TarWalk
    notes : list of str
        Remarks on the members that were read.
    account : Account
        The members that belong to no sample.
    scattered : bool
        True if the members of any sample are scattered. Set by `gathered`.
    """

    def __init__(self, file: PackFile, *, first_dot: bool = False, known: Collection[str] = ()) -> None:
        self.window = BlockReader(file)
        self.members = TarWalk(file, self.window)
        self._path, self._first_dot, self._known = file.path, first_dot, known
        self.notes: list[str] = []
        self.account = Account()
        self.scattered = False

    def gathered(self) -> list[TarSample]:
        """Return all samples, even with scattered members, in the order of their first members.

        A sample has a problem if it is not clear which members belong together.
        """
        samples: list[TarSample] = []
        of_key: dict[tuple[str, int], TarSample] = {}
        joined: set[tuple[str, int]] = set()
        for run in self.runs():
            key = run.key, run.first.archive
            known = of_key.get(key)
            again = [] if known is None else [extension for extension in run.members if extension in known.members]
            if known is None or (again and key not in joined and run.has_image):
                of_key[key] = run
                samples.append(run)
            elif again:
                member = run.members[again[0]]
                twice = (
                    f"sample {printable(run.key)} has .{printable(again[0])} twice, and its members are not adjacent"
                )
                run.problem = f"byte {member.header}: {printable(member.name)}: {twice}. {_AGAIN}"
                known.problem = known.problem or run.problem
                if run.has_image:  # otherwise its members count as those of the first
                    samples.append(run)
            else:
                known.join(run)
                joined.add(key)
        self.scattered = bool(joined)
        return samples

    def runs(self) -> Iterator[TarSample]:
        """Yield the samples that consecutive members form, in tar order."""
        for (key, _), run in groupby(self._keyed(), lambda keyed: keyed[:2]):
            members = [(extension, member) for _, _, extension, member in self._few(key, run)]
            whole = self._first_dot or _any_whole(members, self._known)
            if whole or (split := _split(members, self._known)) is None:
                yield TarSample.of(key, members)
                continue
            for part, of_part in split.items():
                yield TarSample.of(f"{key}.{part}", of_part)

    def _few(
        self, key: str, run: Iterator[tuple[str, int, str, TarMember]]
    ) -> Iterator[tuple[str, int, str, TarMember]]:
        for number, keyed in enumerate(run):
            if number == _MOST_OF_KEY:
                why = f"{_MOST_OF_KEY:,} members have the key {printable(key)}, which ends at the first dot of a name"
                self._fail(keyed[-1], f"{why}. Use file names whose only dot is the one before the extension")
            yield keyed

    def _keyed(self) -> Iterator[tuple[str, int, str, TarMember]]:
        """Yield each member that belongs to a sample, with its key, archive number and extension."""
        for member in self.members:
            if _ODD.search(member.name):
                member = member._replace(name=self._plain(member.name))
            name = member.name
            slash = name.rfind("/") + 1
            dot = name.find(".", slash)
            if name.startswith("__") and _META.match(name):
                self._leave_out(member, name[slash:], "webdataset reserves names such as __NAME__")
                continue
            if dot <= slash:
                self._leave_out(member, name[slash:], _HIDDEN if dot == slash else "their names have no extension")
                continue
            yield name[:dot], member.archive, name[dot + 1 :].lower(), member

    def _plain(self, name: str) -> str:
        """Normalise a name to a plain relative path, as GNU tar does; backslashes separate directories."""
        if "\\" in name:
            self._note("backslashes in names are read as slashes")
            name = name.replace("\\", "/")
        parts = name.split("/")
        if ".." in parts:
            parts = parts[len(parts) - parts[::-1].index("..") :]
        if name.startswith("/") or ".." in name.split("/"):
            self._note("names begin with / or ../, which is removed")
        return "/".join(part for part in parts if part not in ("", "."))

    def _leave_out(self, member: TarMember, base: str, why: str) -> None:
        """Record in `self.account` a member that belongs to no sample."""
        head = self.window.read(member.offset, min(IMAGE_HEAD, member.size))
        if is_system_file(base, lambda: head):
            self.account.not_looked_at("member", LEFT_BY_SYSTEM, [member.name])
            return
        if suffix_of(head) or is_image_name(base):
            self.account.left_out("image", why, [member.name])
        else:
            self.account.not_looked_at("member", why, [member.name])

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _fail(self, member: TarMember, why: str) -> NoReturn:
        raise SourceError(f"{printable(self._path)}: byte {member.header}: {printable(member.name)}: {why}")


def _any_whole(members: Iterable[tuple[str, TarMember]], known: Collection[str]) -> bool:
    """Tell whether any extension has no further dot, or is known."""
    return any("." not in extension or extension in known for extension, _ in members)


def _split(
    members: list[tuple[str, TarMember]], known: Collection[str], depth: int = 0
) -> dict[str, list[tuple[str, TarMember]]] | None:
    """Split the members of one key into samples by further parts of their names.

    This is for keys under which no member has a plain extension. The result is None if a split would leave a sample
    without an image. It is also None if a split would yield single images such as ``left.jpg`` and ``right.jpg``, which
    may be several images of one sample. Names that are numbers, as in ``0001.jpg`` and ``0001.v2.jpg``, always become
    distinct samples.
    """
    parts: dict[str, list[tuple[str, TarMember]]] = {}
    for extension, member in members:
        part, _, rest = extension.partition(".")
        parts.setdefault(part, []).append((rest, member))
    found: dict[str, list[tuple[str, TarMember]]] = {}
    for part, of_part in parts.items():
        if _any_whole(of_part, known):
            found[part] = of_part
        elif depth < _MOST_DOTS and (deeper := _split(of_part, known, depth + 1)) is not None:
            found |= {f"{part}.{name}": of_name for name, of_name in deeper.items()}
        else:
            return None
    if not all(any(last_part(extension) in IMAGES for extension, _ in of_part) for of_part in found.values()):
        return None
    alone = len(found) > 1 and all(len(of_part) == 1 for of_part in found.values())
    return None if alone and not all(part.partition(".")[0].isdigit() for part in found) else found


_MEMBERS = (b'"shardlist"', b'"shard_lengths"')


def is_shard_list(path: Path, head: bytes) -> bool:
    """Tell whether a file is a list of shards, by its name and its first bytes."""
    return path.suffix.lower() == ".json" and any(member in head for member in _MEMBERS)


def listed_shards(path: Path) -> list[Path]:
    """Return the paths of the shards that a list names, in order. The list has paths relative to its own directory.

    Raises
    ------
    SourceError
        If the list is damaged or has several splits; or if a file in the list is missing, outside of the list's
        directory, or of another size.
    """
    document = json_in(path)
    splits = document.get("splits") if isinstance(document, dict) else None
    if isinstance(splits, dict):
        if len(splits) != 1:
            names = ", ".join(map(printable, list(splits)[:5]))
            remedy = "Select the shards of one split with a pattern, such as 'train-*.tar'"
            raise SourceError(f"{printable(path)}: has the splits {names}. {remedy}")
        (split,) = splits.values()
        shards = [{"url": name} for name in _list(split, "filenames", path)]
    else:
        shards = _list(document, "shardlist", path)
    return [_shard(path, number, shard) for number, shard in enumerate(shards)]


def _shard(path: Path, number: int, shard: Any) -> Path:
    url = shard.get("url") if isinstance(shard, dict) else None
    if not isinstance(url, str):
        raise SourceError(f"{printable(path)}: shard {number} has no file name")
    if "://" in url or name_problem(url.removeprefix("./")):
        raise SourceError(
            f"{printable(path)}: shard {number} is {printable(url)}, which is not a path below the list's directory"
        )
    file = path.parent / url
    try:
        size = os.stat(file).st_size
    except OSError as error:
        raise SourceError(f"{printable(file)}: {error.strerror}; {printable(path)} lists it") from error
    if shard.get("filesize", size) != size:
        listed = f"{printable(path)} lists {printable(shard['filesize'])}"
        raise SourceError(f"{printable(file)}: has {size} bytes, but {listed}: one of the two files has changed")
    return file


def _list(document: Any, name: str, path: Path) -> list[Any]:
    shards = document.get(name) if isinstance(document, dict) else None
    if not isinstance(shards, list) or not shards:
        raise SourceError(f"{printable(path)}: is not a list of shards: it has no {name}")
    return shards


_INT = re.compile(rb"\s*([+-]?[0-9]{1,19})\s*")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf|nan", re.IGNORECASE)


def class_of(data: bytes) -> int | str:
    """Parse the label in a file: a class id, otherwise a class name; ValueError if the content is neither.

    -1 means no class, as everywhere in packer.
    """
    match = _INT.fullmatch(data)
    if match and int(match[1]) >= UNLABELED:
        return int(match[1])
    try:
        name = data.decode("utf-8").strip()
    except UnicodeDecodeError:
        name = ""
    if not name or _FLOAT.fullmatch(name):
        raise ValueError(f"{data[:20]!r} is neither a class id nor a class name")
    return name


def stored_value(field: Field, data: bytes) -> Stored:
    """Convert the content of a file to the form that a pack stores, for kinds that do not store files as they are.

    Raises
    ------
    ValueError
        If the content is not a value of the kind.
    """
    if KINDS[field.kind].file == "npy":
        return field.encode(npy_array(data))
    if not field.is_blob:
        match = _INT.fullmatch(data)
        if match:
            return field.encode(int(match[1]))
        if not field.dtype.startswith("float"):
            raise ValueError(f"{data[:20]!r} is not an integer")
        return field.encode(float(data))
    try:
        return field.encode(json.loads(data))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def array_field(name: str, data: bytes) -> Field:
    """Return a field for arrays like the one in a ``.npy`` file; ValueError if packer does not support the array."""
    array = npy_array(data)
    return Field(name, "array", array.dtype.name, array.ndim)


LONGEST = 4096
"""The maximum size of a label outside of JSON, in bytes."""

JSON = ("json", "jsn")
ALWAYS_LABELS = ("cls", "class")
"""The extensions that webdataset uses for labels. Such members are labels even if few of their values are valid."""

_TEXTS = ("txt", "text")
_LONGEST_JSON = 1 << 24
_SEVERAL = re.compile(r"[\[(]?\s*[+-]?[0-9.]+(?:e[+-]?[0-9]+)?(?:\s*[,;\s]\s*[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)+\s*[\])]?")

Values = Mapping[str, Sequence[bytes]]
"""The contents of small members of the first samples, by extension."""


@dataclass(frozen=True)
class TarLabel:
    """The member that holds a sample's label.

    Attributes
    ----------
    extension : str
    member : str
        For JSON, the name of the JSON member with the label; dots separate nested names.
    is_float : bool
        Whether labels are numbers with fractions instead of classes.
    """

    extension: str
    member: str = ""
    is_float: bool = False

    def __str__(self) -> str:
        return f".{self.extension}" + (f": {self.member}" if self.member else "")

    @property
    def longest(self) -> int:
        """The maximum size of a tar member with a label."""
        return _LONGEST_JSON if last_part(self.extension) in JSON else LONGEST

    def of(self, data: bytes) -> int | float | str | None:
        """Parse the label in a member's bytes; None if the JSON has no label; ValueError if the label is invalid."""
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
                raise ValueError("an integer outside of the range of floats") from None
        if isinstance(label, float) or label < UNLABELED:
            raise ValueError(f"{label} is not a class id")
        return label


def find_label(values: Values, account: Account) -> TarLabel | None:
    """Find the label by names and values of members; if none matches, record candidates, and return None."""
    able: dict[str, TarLabel] = {}
    refused: dict[str, str] = {}
    for extension in filter(_is_named, values):
        label, why = _judged(TarLabel(extension), values[extension])
        if label is None:
            refused[extension] = why
        else:
            able[extension] = label
    key = NAMES["webdataset"].label_among(able) or next(iter(able), None)
    for extension, why in refused.items():
        account.taken("member", f"a field, not the label: {printable(why)}", [f".{extension}"])
    if key is None:
        for extension, why in refused.items():
            account.looks_like_labels("member", extension, f"--key label={extension}", printable(why))
        _add_candidates({name: of for name, of in values.items() if name not in refused}, account)
        return None
    account.taken("member", "the label", [f".{key}"])
    account.taken("member", f"a field, because .{key} is the label", [f".{one}" for one in able if one != key])
    return able[key]


def label_of_key(key: str, values: Values) -> TarLabel:
    """Parse the user's key for the label, such as ``cls`` or ``json:category``.

    Raises
    ------
    OptionError
        If the key names JSON, but no member of the JSON.
    """
    extension, _, member = key.partition(":")
    label = TarLabel(extension.lower(), member)
    of = values.get(label.extension, ())
    if member and last_part(label.extension) not in JSON:
        raise OptionError(
            f"--key label={key}: .{label.extension} is not JSON, so it has no members: use {extension} alone"
        )
    judged, why = _judged(label, of)
    if judged is None and last_part(label.extension) in JSON:
        names = ", ".join(map(printable, list(_scalars(of))[:10])) or "none that can be labels"
        raise OptionError(
            f"--key label={key}: {why}. Name the JSON member that is the label: --key "
            f"label={label.extension}:MEMBER, of {names}"
        )
    return judged or label  # reading a sample raises the error, with the offset in the file


def _judged(label: TarLabel, values: Sequence[bytes]) -> tuple[TarLabel | None, str]:
    """Return a label with the type of its values; or None, and the reason why the values are not labels."""
    found, why = list[int | float | str | None](), "it is too large for a label"
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
    """Tell whether an extension is named like labels: ``cls``, ``label``, ``cls.txt``, ``b.label.npy``."""
    parts = extension.split(".")
    if parts[-1] in (*_TEXTS, "npy", *JSON):
        parts = parts[:-1]
    return bool(parts) and (NAMES["webdataset"].is_label(parts[-1]))


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
        index = one_hot(numbers)
        if index is None:
            raise ValueError(f"{label[:40]!r} contains several numbers, not one class")
        return index
    return label


def _of_values(values: Sequence[Any]) -> int | float:
    """Return the class of an array: its single number, or the index of the 1 in a one-hot vector.

    Raise ValueError for any other array.
    """
    if len(values) == 1 and isinstance(values[0], (int, float)):
        return whole(values[0])
    index = one_hot(values)
    if index is None:
        raise ValueError(f"{len(values)} numbers are not a class")
    return index


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
    raise ValueError(f"{printable(json.dumps(document))[:40]} is neither a class id nor a class name")


def _scalars(values: Sequence[bytes]) -> dict[str, list[Any]]:
    """Return the values in JSON objects that may be labels, by member name."""
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
    """Record in `account` what looks like labels: members of JSON, and small members with repeated values."""
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


_KIND_OF = {
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), "int64"),
    **dict.fromkeys(IMAGES, "image"),
    "npy": "array",
}
_PICKLES = ("pyd", "pickle", "pkl", "pth", "pt")
_MASKS = re.compile("mask|(^|[^a-z])seg([^a-z]|$)|segmentation")

_DIRECTORIES = "directory"  # the user's key for the label if directories are the classes
_ARCHIVES = ("tar", "tgz", "tar.gz", "zip", "7z", "rar")
_SMALL = 1 << 16  # largest member that is inspected as a label
_LARGEST_LOOKED_AT = 1 << 26  # bytes of a member that may be an image under another suffix


@dataclass(frozen=True)
class FirstSamples:
    """The first samples, which determine the roles of members.

    Attributes
    ----------
    where : str
        The file or the directory, for messages.
    samples : sequence of TarSample
    read : callable
        Returns the bytes of a member.
    """

    where: str
    samples: Sequence[TarSample]
    read: Callable[[TarMember], bytes]

    @functools.cached_property
    def members(self) -> dict[str, TarMember]:
        """The first member with each extension."""
        found: dict[str, TarMember] = {}
        for sample in self.samples:
            for extension, member in sample.members.items():
                found.setdefault(extension, member)
        return found

    def content(self, extension: str) -> bytes:
        """Return the bytes of the first member of an extension."""
        return self.read(self.members[extension])

    def values(self, extensions: Iterable[str]) -> Values:
        """Return the contents of small members, to recognise labels."""
        members = [sample.members for sample in self.samples]
        return {
            extension: [self.read(of[extension]) for of in members if _is_small(of.get(extension))]
            for extension in extensions
        }

    def printable_extensions(self) -> str:
        """Format extensions for a message."""
        return ", ".join(f".{printable(one)}" for one in list(self.members)[:10])


def find_roles(tar: Tar, first: FirstSamples, keys: Mapping[str, str]) -> None:
    """Choose the roles of members from the first samples, and set the roles in a container.

    Parameters
    ----------
    tar : Tar
    first : FirstSamples
    keys : mapping of str to str
        The `keys` argument of `Container.open`. The image may have several extensions (``jpg;png``). The label may be a
        member of JSON (``json:category``), or the word ``directory`` for the directory of each sample.

    Raises
    ------
    SourceError
        If the samples have no images, or it is unclear which of several members is the image; if they contain pickles;
        or if a key does not exist.
    OptionError
        If a key is not valid for its field or for the label.
    """
    where, there = first.where, list(first.members)
    if not there:
        raise SourceError(f"{where}: contains no samples")
    if (archive := next((one for one in there if one in _ARCHIVES), None)) and not set(there) & set(IMAGES):
        raise SourceError(
            f"{where}: contains archives (.{archive}), and packer does not read nested archives. Extract it, "
            "extract each inner archive into a directory of its name, and convert the directory above these"
        )
    chosen = Chosen.of({name: _as_extension(name, key) for name, key in keys.items()})
    if chosen.image is None:
        tar.images, note = _images(first)
        if note and not keys:
            tar.notes.append(note)
    else:
        tar.images = tuple(chosen.image.split(";"))
    if keys:
        _roles_by_keys(tar, first, chosen)
        return
    with_image = [sample.members for sample in first.samples if set(tar.images) & sample.members.keys()]
    rest = list(dict.fromkeys(one for members in with_image for one in members if one not in tar.images))
    if pickles := [extension for extension in rest if last_part(extension) in _PICKLES]:
        shown = f"has pickles, .{printable(pickles[0])}, which packer never executes"
        raise SourceError(f"{where}: {shown}. {_example(rest, tar.images)}")
    others = [extension for extension in there if extension not in tar.images]  # of samples without an image, too
    tar.label = find_label(first.values(others), tar.account)
    if tar.label is None:
        _look_at_directories(tar, first.samples, rest)
    taken: set[str] = set()
    for extension in rest:
        if tar.label is None or extension != tar.label.extension:
            tar.fields_of[extension] = _field(extension, taken, first)
    if len(tar.fields_of) > MOST_FIELDS:
        raise SourceError(
            f"{where}: samples have {len(tar.fields_of)} kinds of members, such as .{printable(rest[0])}. "
            f"An extension begins at the first dot of a file's name. {_example(rest[:1], tar.images)}"
        )


def _as_extension(name: str, key: str) -> str:
    """Normalise a key as extensions are normalised, except for the name of a JSON member."""
    extension, colon, member = key.partition(":") if name == "label" else (key, "", "")
    return extension.lower().removeprefix(".") + colon + member


def _is_small(member: TarMember | None) -> bool:
    return member is not None and member.size <= (_SMALL if _last_is_json(member.name) else LONGEST)


def _last_is_json(name: str) -> bool:
    return name.lower().endswith((".json", ".jsn"))


def _look_at_directories(tar: Tar, samples: Sequence[TarSample], rest: Sequence[str]) -> None:
    """Use directories as classes if samples have only images; otherwise report that directories could be classes."""
    members = [pair for sample in samples for pair in sample.members.items()]
    names = [member.name for extension, member in members if extension in tar.images]
    directories = {name.rpartition("/")[0] for name in names if "/" in name}
    if directories and not rest:
        tar.directories_are_classes = True  # once all are listed, a note says which part of the paths is the class
    elif 1 < len(directories) <= len(names) // 2 and not all(one.rpartition("/")[2].isdigit() for one in directories):
        tar.account.looks_like_labels("directory", min(directories), f"--key label={_DIRECTORIES}")


def _images(first: FirstSamples) -> tuple[tuple[str, ...], str]:
    """Return the image extensions, and a note if packer chose among several images (otherwise empty)."""
    where = first.where
    of_each = [found for sample in first.samples if (found := [one for one in IMAGES if one in sample.members])]
    if any(len(found) > 1 for found in of_each):
        common = [one for one in of_each[0] if all(one in found for found in of_each)]
        others = sorted({one for found in of_each for one in found if one not in common[:1]})
        shown = ", ".join(f".{one}" for one in others)
        if not common:
            raise SourceError(f"{where}: samples have several images: {shown}. Name one: --key image={others[0]}")
        note = f"the image is .{common[0]} (fields: {shown}); --key image={others[0]} chooses another"
        return (common[0],), note
    if of_each:
        return IMAGES, ""
    if long := [extension for extension in first.members if last_part(extension) in IMAGES]:
        if len(long) == 1:
            return (long[0],), ""
        shown = ", ".join(f".{printable(one)}" for one in long[:5])
        raise SourceError(f"{where}: samples have several images: {shown}. Name one: --key image={printable(long[0])}")
    small = [one for one, member in first.members.items() if member.size <= _LARGEST_LOOKED_AT]
    likely = [one for one in small if suffix_of(first.content(one)[:IMAGE_HEAD])]
    way = f". Choose the image: --key image={printable(likely[0])}" if likely else ""
    raise SourceError(f"{where}: no images in it: the first samples have {first.printable_extensions()}{way}")


def _roles_by_keys(tar: Tar, first: FirstSamples, chosen: Chosen) -> None:
    """Set the roles in a container as the user's keys specify."""
    there, images = first.members, tar.images
    if chosen.name is not None:
        raise OptionError("--key name=... does not apply to tars: a sample is named after its image file")
    directories = chosen.label == _DIRECTORIES and _DIRECTORIES not in there
    for key in chosen.all_keys():
        extensions = [key.partition(":")[0]] if key == chosen.label else key.split(";")
        if not (directories and key == chosen.label) and not any(one in there for one in extensions):
            raise SourceError(
                f"{first.where}: the first samples have no .{printable(key)}; they have {first.printable_extensions()}"
            )
    tar.directories_are_classes, tar.others_left_out = directories, True
    if chosen.label is not None and not directories:
        extension = chosen.label.partition(":")[0]
        if extension in images:
            raise OptionError(f"--key label={extension}: .{extension} is already in use")
        tar.label = label_of_key(chosen.label, first.values([extension]))
    label = tar.label
    of_label = None if label is None or label.member else label.extension
    for key, one in chosen.by_key().items():
        if key in (*images, of_label):
            raise OptionError(f"{one}: .{key} is already in use")
        tar.fields_of[key] = _field_of_key(one, first)
    taken = {*images, label.extension if label else None, *tar.fields_of}
    left = [f".{one}" for one in there if one not in taken]
    tar.account.left_out("member", "no --key names them", left, chosen=True)


def _field_of_key(chosen: ChosenField, first: FirstSamples) -> Field:
    key = chosen.key
    if last_part(key) in _PICKLES and chosen.kind != "bytes":
        instead = f"--key {chosen.name}:bytes={key} stores its bytes unchanged"
        raise OptionError(f"{chosen}: is a pickle, which packer never executes; {instead}")
    kind = chosen.kind or _kind(key)
    if kind == "scalar" and _kind(key) in OF_SCALARS:
        kind = _kind(key)
    try:
        return array_field(chosen.name, first.content(key)) if kind == "array" else chosen._replace(kind=kind).of_kind()
    except ValueError as error:
        raise OptionError(f"{chosen}: {error}") from error


def _field(extension: str, taken: set[str], first: FirstSamples) -> Field:
    """Return the field for an extension that no key names."""
    name = field_name(extension, taken)
    taken.add(name)
    kind = _kind(extension)
    if kind == "array":
        try:
            return array_field(name, first.content(extension))
        except ValueError:
            kind = "bytes"  # such as complex numbers, or text
    if extension in ALWAYS_LABELS and not first.content(extension).strip().isdigit():
        kind = "text"  # such as several numbers
    return declared_field(name, kind)


def _kind(extension: str) -> str:
    kind = _KIND_OF.get(last_part(extension), "bytes")
    return "mask" if kind == "image" and _MASKS.search(extension) else kind


def _example(extensions: Sequence[str], images: tuple[str, ...]) -> str:
    """Return an example of the option that selects members, for a message."""
    image = "jpg" if images == IMAGES else images[0]
    keys = [f"image={image}"]
    for extension in extensions:
        if extension in ALWAYS_LABELS:
            keys.append(f"label={extension}")
        elif last_part(extension) not in _PICKLES:
            keys.append(f"{field_name(extension, ())}={extension}")
    return f"Select members: {' '.join(f'--key {printable(key)}' for key in keys[:5])}"


_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"BZh": "bunzip2",
    b"\xfd7zXZ\0": "unxz",
    b"\x04\x22\x4d\x18": "unlz4",
}
"""The signatures of compressed files, and the programs that unpack them."""

_FIRST_SAMPLES = 32  # samples of a file that determine the roles of members


@dataclass(eq=False)
class Tar(Container):
    """WebDataset files ``.tar``, or a list of such files that wids or timm wrote.

    Attributes
    ----------
    images : tuple of str
        The extensions of images; each sample has exactly one of these.
    label : TarLabel, optional
    fields_of : dict of str to Field
        The fields, by the extension of their members.
    others_left_out : bool
        True if the user chose keys: then members with other extensions are left out. If False, they are an error.
    remarks : dict of str to (str, int)
        For each remark, the first file to which it applies, and the number of files to which it applies.
    first_dot : bool
        True if the user chose an extension with dots: then a key always ends at the first dot of the file name.
    scattered : bool
        True if the members of any sample are scattered.
    lacking : dict of str to dict of str to (int, int)
        For each role, the samples that lack it. Each sample's key maps to the number of its file and its image's
        offset, or to `_UNCOUNTED` or `_REPORTED` if it has no image.
    """

    kind = "webdataset"
    suffixes = (".tar", *(f".tar.{end}" for end in ("gz", "zst", "bz2", "xz", "lz4")), ".tgz", ".tzst", ".tbz2", ".txz")

    images: tuple[str, ...] = IMAGES
    label: TarLabel | None = None
    fields_of: dict[str, Field] = field(default_factory=dict)
    others_left_out: bool = False
    remarks: dict[str, tuple[str, int]] = field(default_factory=dict)
    first_dot: bool = False
    scattered: bool = False
    lacking: dict[str, dict[str, tuple[int, int]]] = field(default_factory=lambda: {"image": {}, "label": {}})

    @property
    def roles(self) -> set[str]:
        """The extensions of all members that are used."""
        return {*self.images, *self.fields_of, *([] if self.label is None else [self.label.extension])}

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return begins_tar(head) or path.name.lower().endswith(cls.suffixes) or is_shard_list(path, head)

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> Tar:
        if len(paths) == 1 and is_shard_list(paths[0], head_of(paths[0])):
            paths = listed_shards(paths[0])
        for path in paths:
            _require_plain(path)
        container = cls.of_files(paths)
        container.first_dot = any("." in key.partition(":")[0].removeprefix(".") for key in keys.values())
        find_roles(container, container._first_samples(), keys)
        container.fields, label = tuple(container.fields_of.values()), container.label
        container.label_type = "float" if label is not None and label.is_float else "class"
        container.why_unlabeled = f"they have no {label or 'member that is a label'}"
        if container.directories_are_classes:
            container.why_unlabeled = "they are not in a directory"
        return container

    def entries(self, unit: int) -> Iterator[Entry]:
        with self.opened(unit) as file:
            reader = self._reader(file)
            samples = reader.gathered() if self.scattered else None
            maker = _Entries(self, unit, reader.window)
            images, parts = array("q"), dict[int, TarSample]()
            for sample in reader.runs() if samples is None else samples:
                if maker.image(sample) is not None:
                    images.append(sample.identity)
                elif sample.identity in parts or len(parts) < _REMEMBERED:
                    parts.setdefault(sample.identity, sample).join(sample)
                    continue
                yield from maker.entries(sample)
            apart = {number: parts[number] for number in images if number in parts} if parts else {}
            for number, part in parts.items():
                if number not in apart:
                    yield from maker.entries(part)
            if apart:
                maker.retract(apart, self._reader(file).runs() if samples is None else samples)
            for remark in [*reader.members.remarks, *reader.notes]:
                self._remark(remark, unit, 1)
            if reader.members.doubt:
                self.doubts[self.files[unit]] = reader.members.doubt
            self.account.update(reader.account)
        if unit == self.units - 1:
            uncounted = [key for key, (_, image) in self.lacking["image"].items() if image == _UNCOUNTED]
            self.account.left_out("sample", _NO_IMAGE, uncounted)

    def lacks(self, role: str, key: str, unit: int, image: int) -> str:
        """Record that a sample has no image, or no label; `role` tells which, `image` is the offset of its image.

        If another file has what is missing, return the reason why this is an error; otherwise an empty text.
        """
        own, others = self.lacking[role], self.lacking["label" if role == "image" else "image"]
        there, other = others.get(key, (unit, _UNCOUNTED))
        if there == unit:
            if image == _UNCOUNTED and (key in own or len(own) >= _REMEMBERED):
                self.account.left_out("sample", _NO_IMAGE, [key])
            if key in own or len(own) < _REMEMBERED:
                own[key] = unit, own[key][1] if role == "image" and key in own else image
            return ""
        del others[key]
        files = " and in ".join(printable(self.files[one]) for one in (there, unit))
        why = f"the members of sample {printable(key)} are in {files}: put all members of a sample into one tar"
        if role == "image":
            self.retracted[there, other] = why
        return why

    def _remark(self, remark: str, unit: int, count: int) -> None:
        first, before = self.remarks.get(remark, (self.files[unit], 0))
        if before:
            self.notes.remove(_note(remark, first, before))
        self.remarks[remark] = (first, before + count)
        self.notes.append(_note(remark, first, before + count))

    def _reader(self, file: PackFile) -> SampleReader:
        return SampleReader(file, first_dot=self.first_dot, known=self.roles)

    def _first_samples(self) -> FirstSamples:
        """Return the first samples of the first, the middle and the last file."""
        last = len(self.files) - 1
        units = sorted({0, last // 2, last})
        first = {unit: self._first(unit) for unit in units}
        if _may_be_scattered([sample for samples in first.values() for sample in samples]):
            gathered = {unit: self._gathered(unit) for unit in units}
            if any(gathered.values()):
                self.scattered = True
                self.notes.append("the members of a sample are not adjacent; they are grouped by name")
                first = {unit: samples or first[unit] for unit, samples in gathered.items()}
        unit_of = {id(one): unit for unit, of in first.items() for sample in of for one in sample.members.values()}

        def peek(member: TarMember) -> bytes:
            with self.opened(unit_of[id(member)]) as file:
                return file.read(member.offset, member.size)

        where = printable(self.root / self.files[0] if len(self.files) == 1 else self.root)
        samples = [sample for of in first.values() for sample in of]
        usable = [sample for sample in samples if not sample.problem]
        if samples and not usable:
            raise SourceError(f"{where}: {samples[0].problem}")
        return FirstSamples(where, usable, peek)

    def _first(self, unit: int) -> list[TarSample]:
        with self.opened(unit) as file:
            return list(islice(SampleReader(file, first_dot=self.first_dot).runs(), _FIRST_SAMPLES))

    def _gathered(self, unit: int) -> list[TarSample]:
        """Return the first samples of a file with scattered members; empty for other files."""
        with self.opened(unit) as file:
            reader = SampleReader(file, first_dot=self.first_dot)
            samples = reader.gathered()[:_FIRST_SAMPLES]
            return samples if reader.scattered else []


def _may_be_scattered(samples: Sequence[TarSample]) -> bool:
    """Tell whether the first samples suggest scattered members: they have no images, or only images."""
    return not all(sample.has_image for sample in samples) or all(len(sample.members) == 1 for sample in samples)


class _Entries:
    """Makes entries from the samples in a file."""

    def __init__(self, container: Tar, unit: int, window: BlockReader) -> None:
        self._container, self._unit, self._window = container, unit, window
        self._images = frozenset(container.images)

    def image(self, sample: TarSample) -> TarMember | None:
        """Return the image of a sample; None if it has none."""
        return next((member for extension, member in sample.members.items() if extension in self._images), None)

    def entries(self, sample: TarSample) -> Iterator[Entry]:
        """Yield the entry of a sample; nothing if the sample has no image and is left out."""
        images = [member for extension, member in sample.members.items() if extension in self._images]
        try:
            if sample.problem:
                raise _MemberError(sample.problem)
            if not images:
                self._leave_out(sample)
                return
            if len(images) > 1:
                also = f"is a second image of the sample, after {printable(images[0].name)}"
                raise self._error(images[1], f"{also}. {self._advice()}")
            image = images[0]
            label, values = self._label(sample, image), self._values(sample.members)
        except _MemberError as error:
            yield Entry(self._name(self.image(sample) or sample.first), b"", problem=str(error))
        else:
            yield Entry(self._name(image), Piece(self._unit, image.offset, image.size), label, values)

    def retract(self, apart: Mapping[int, TarSample], samples: Iterable[TarSample]) -> None:
        """Retract samples whose members are not all next to their image.

        If several samples have the same key, the members in `apart` belong to one that lacks them, if there is any.
        """
        owners: dict[int, tuple[list[int], list[int]]] = {}  # offsets of images whose samples lack nothing, and others
        for sample in samples:
            part, image = apart.get(sample.identity), self.image(sample)
            if part is not None and image is not None and (needed := self._needed(part)):
                lacks = not needed <= sample.members.keys()
                owners.setdefault(sample.identity, ([], []))[lacks].append(image.offset)
        for number, (complete, lacking) in owners.items():
            member = min(apart[number].members[one] for one in self._needed(apart[number]))
            why = f"byte {member.header}: {printable(member.name)}: is not next to the image of its sample. {_AGAIN}"
            self._container.retracted |= {(self._unit, offset): why for offset in lacking or complete}
            if not lacking:  # the members may belong to an image in another file
                self._container.lacks("image", apart[number].key, self._unit, _REPORTED)

    def _needed(self, sample: TarSample) -> set[str]:
        """Return the extensions of members that make a sample unusable if they are not next to its image."""
        container = self._container
        return {one for one in sample.members if one in container.roles or not container.others_left_out}

    def _leave_out(self, sample: TarSample) -> None:
        """Record in the account a sample without an image; _MemberError if the sample has other image extensions."""
        container, members = self._container, sample.members
        if container.roles.isdisjoint(members) and not sample.has_image:
            names = [one.name for one in members.values()]
            container.account.not_looked_at("member", "they belong to no image", names)
            return
        place = _REPORTED if sample.has_image else _UNCOUNTED
        if not container.lacks("image", sample.key, self._unit, place) and sample.has_image:
            images = ", .".join(map(printable, container.images))
            raise self._error(sample.first, f"the sample has images, but no .{images}. {self._advice()}")

    def _label(self, sample: TarSample, image: TarMember) -> int | float | str | None:
        label = self._container.label
        if self._container.directories_are_classes:
            return image.name.rpartition("/")[0] or None
        if label is None:
            return None
        member = sample.members.get(label.extension)
        if member is None:
            if why := self._container.lacks("label", sample.key, self._unit, image.offset):
                raise self._error(sample.first, why)
            return None
        if member.size > label.longest:
            raise self._error(member, f"has {member.size:,} bytes, too many for a label")
        try:
            return label.of(bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            raise self._error(member, str(error)) from error

    def _values(self, members: Mapping[str, TarMember]) -> dict[str, Piece | Stored]:
        tar, values = self._container, dict[str, Piece | Stored]()
        for extension, member in members.items():
            if (field := tar.fields_of.get(extension)) is not None:
                values[field.name] = self._value(field, member)
            elif not (
                tar.others_left_out
                or extension in self._images
                or (tar.label is not None and extension == tar.label.extension)
            ):
                raise self._error(member, f"the first samples have no .{printable(extension)}. {self._advice()}")
        return values

    def _name(self, image: TarMember) -> str:
        name = image.name
        if name.lower().endswith((".img", ".image")):
            name += suffix_of(self._window.read(image.offset, min(IMAGE_HEAD, image.size)))
        return name

    def _value(self, field: Field, member: TarMember) -> Piece | Stored:
        if KINDS[field.kind].file == "content":
            return Piece(self._unit, member.offset, member.size)
        try:
            return stored_value(field, bytes(self._window.read(member.offset, member.size)))
        except ValueError as error:
            extension = member.name.rpartition("/")[2].partition(".")[2].lower()
            raise self._error(
                member, f"{error}. --key {field.name}:bytes={printable(extension)} stores its bytes unchanged"
            ) from error

    def _advice(self) -> str:
        image = "jpg" if self._container.images == IMAGES else self._container.images[0]
        return f"Select members with --key, such as --key image={image} --key label=cls"

    def _error(self, member: TarMember, why: str) -> _MemberError:
        return _MemberError(f"byte {member.header}: {printable(member.name)}: {why}")


class _MemberError(ValueError):
    """A sample cannot be used because of one of its members."""


def _note(remark: str, first: str, count: int) -> str:
    return f"{remark}: {count}, first in {printable(first)}"


def _require_plain(path: Path) -> None:
    """Raise SourceError if a file is compressed."""
    head = head_of(path)
    program = next((program for magic, program in _COMPRESSED.items() if head.startswith(magic)), None)
    if program is not None:
        why = "is compressed, so single members cannot be read"
        raise SourceError(f"{printable(path)}: {why}. Unpack it to a .tar first: {program} {printable(path.name)}")
