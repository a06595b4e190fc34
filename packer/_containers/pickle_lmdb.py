"""LMDB files with one pickle for each sample, under the keys 0, 1, 2, ...

Efficient-PyTorch and its many relatives write these files (``folder2lmdb.py``). A value is ``(image, label)``, where
the image is the content of an image file. Image2LMDB stores the image alone, tensorpack an array of bytes, and others
store dicts. The entry ``__keys__`` lists the keys in order, and ``__len__`` is the number of keys. packer parses the
pickles itself and never unpickles them.

The parts of a value are called members. The members of a tuple have the keys 0, 1, 2, ...; a value of plain bytes is a
single member with the key 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packer._account import Account
from packer._containers.blocks import PIECE, errors_in
from packer._containers.contract import Chosen, Entry, Piece, field_name, image_name, suffix_of
from packer._containers.lmdb import COUNTS, DATA, First, LMDBContainer, LMDBValue, failing, shown_key, text_of
from packer._containers.roles import NAMES, add_candidates
from packer._containers.safe_pickle import MOST_THINGS, Array, Blob, Budget, is_pickle, unpickled
from packer._fields import DTYPES, KINDS, Field, Stored
from packer._storage.lmdb_tree import MOST_KEY, LMDBTree
from packer._storage.packfile import PackFile
from packer._storage.safe_open import open_regular
from packer.errors import OptionError, SourceError, printable

_ROLES = NAMES["pickled lmdb"]
_PLACE = "1"  # the key of the label in a tuple
_MASKS = re.compile("mask|seg", re.IGNORECASE)
_MOST_DEPTH = 50  # of values that become JSON
_MOST_TEXT = 1 << 24  # bytes of a text or an array in such a value
_SHOWN = 100  # the most characters of a key, and the most keys, in a message


def members_of(value: Any) -> dict[str, Any]:
    """Return the members of a value by key. An image that is alone in a list is taken out of the list."""
    if isinstance(value, dict):
        return {str(key): _alone(member) for key, member in value.items()}
    if isinstance(value, (tuple, list)):
        return {str(number): _alone(member) for number, member in enumerate(value[:1000])}
    return {"0": value}


def image_of(value: Any) -> Blob | None:
    """Return the encoded image in `value`; None if there is none. `value` may be bytes, or an array of bytes."""
    if isinstance(value, Array):
        value = value.elements if value.dtype[-2:] == "u1" and len(value.shape) == 1 else None
    return value if isinstance(value, Blob) and suffix_of(value.head) else None


def _alone(value: Any) -> Any:
    """Unwrap an image from a list of one element; return any other value unchanged."""
    if isinstance(value, (tuple, list)) and len(value) == 1:
        return value[0] if image_of(value[0]) is not None else value
    return value


def _label(have: Mapping[str, Any], account: Account) -> str | None:
    """Return the member that is named like a label; without one, record the members that look like labels."""
    able = {key: [0] for key, value in have.items() if _is_label(value)}
    several = [key for key, value in have.items() if _ROLES.is_label(key) and _is_list(value)]
    account.taken("member", "a field, because samples have several values", several)
    label = _ROLES.choose_label("member", able, account, candidates=False)
    if label is not None or _PLACE in able:
        return label or _PLACE
    if not several:
        add_candidates(account, "member", {key: [0] for key in have if key in able or _ROLES.is_label(key)})
    return None


def _is_list(value: Any) -> bool:
    if isinstance(value, Array):
        return any(side != 1 for side in value.shape)
    return isinstance(value, (list, tuple))


def _is_label(value: Any) -> bool:
    if isinstance(value, Array):
        return value.dtype[-2] in "iu" and all(side == 1 for side in value.shape)
    return isinstance(value, (int, float, str)) and not isinstance(value, bool)


def _shown_types(have: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{printable(key[:_SHOWN])} is {type(value).__name__.lower()}" for key, value in list(have.items())[:10]
    )


def _listed(keys: Iterable[str]) -> str:
    """Format keys for messages."""
    shown = [key[:_SHOWN] for key in itertools.islice(keys, _SHOWN + 1)]
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")


def _chosen_fields(chosen: Chosen, have: Mapping[str, Any]) -> dict[Field, str]:
    """Return the fields that the user chose, and their keys."""
    fields = {}
    for one in chosen.fields:
        field = _field(one.name, have[one.key])
        if one.kind and one.kind != (field and field.kind):
            field = one.of_kind()
        if field is None:
            raise ValueError(
                f"packer cannot determine the kind of {one.key!r}. State it: --key {one.name}:KIND={one.key}"
            )
        fields[field] = one.key
    return fields


def _guessed(have: Mapping[str, Any]) -> dict[Field, str]:
    fields: dict[Field, str] = {}
    for key, value in have.items():
        own = f"item{key}" if key[:1].isdigit() else key or "item"
        field = _field(field_name(own, [other.name for other in fields]), value)
        if field is not None:
            fields[field] = key
    return fields


def _field(name: str, value: Any) -> Field | None:
    """Return a field for a value; None if no kind fits."""
    if isinstance(value, Array):
        dtype = {stored[1:]: dtype for dtype, stored in DTYPES.items()}.get(value.dtype.lstrip("<>|="))
        if image_of(value) is None:
            return None if dtype is None else Field(name, "array", dtype, len(value.shape))
    if image_of(value) is not None:
        return Field(name, "mask" if _MASKS.search(name) else "image")
    scalars = {bool: "bool", int: "int64", float: "float64"}
    if type(value) in scalars:
        return Field(name, "scalar", scalars[type(value)])
    kinds = ((str, "text"), (Blob, "bytes"), ((list, tuple, dict), "json"))
    return next((Field(name, kind) for types, kind in kinds if isinstance(value, types)), None)


def _stored(field: Field, value: Any, unit: int, file: PackFile, budget: Budget) -> Piece | Stored:
    if isinstance(value, (list, tuple, dict)):
        return field.encode(_json(value, file, budget))
    blob = value.elements if isinstance(value, Array) else value
    if isinstance(blob, (Blob, str)):
        budget.spend(blob.size if isinstance(blob, Blob) else len(blob))
    if field.kind in ("image", "mask", "bytes", "text") and isinstance(blob, Blob):
        return blob.piece(unit)
    if KINDS[field.kind].form == "pixels":
        raise ValueError(f"{type(value).__name__} is not an image")
    if field.kind == "array" and isinstance(value, Array):
        return field.encode(value.value(file))
    if isinstance(value, Array):
        return field.encode(_one(value, file))
    return field.encode(_json(value, file, budget) if field.kind == "json" else value)


def _json(value: Any, file: PackFile, budget: Budget, depth: int = 0) -> Any:
    """Convert a value to JSON; ValueError if the value cannot be converted, or exceeds the budget."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"lists are nested more than {_MOST_DEPTH} deep")
    if isinstance(value, Array):
        if value.elements.size > _MOST_TEXT:
            raise ValueError("a large array in a list")
        budget.spend(value.elements.size)
        return value.value(file).tolist()
    if isinstance(value, Blob):
        return _bytes(value, file, budget).decode("utf-8")
    budget.spend(len(value) if isinstance(value, str) else 0)
    if isinstance(value, dict):
        return {_member_key(key, budget): _json(one, file, budget, depth + 1) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(one, file, budget, depth + 1) for one in value]
    return value


def _member_key(key: Any, budget: Budget) -> str:
    text = str(key)
    budget.spend(len(text), things=0)
    return text


def _bytes(value: Blob, file: PackFile, budget: Budget) -> bytes:
    if value.size > _MOST_TEXT:
        raise ValueError(f"a text of {value.size} bytes")
    budget.spend(value.size)
    return value.data(file)


def _one(value: Array, file: PackFile) -> int | float:
    """Return the only element of an array; ValueError if the array has several."""
    if any(side != 1 for side in value.shape):
        raise ValueError(f"it is an array of shape {value.shape}, not a number")
    number: int | float = value.value(file).reshape(-1)[0].item()
    return number


_KEYS, _LEN = b"__keys__", b"__len__"
_MOST_KEYS = 1 << 27
_SIDECAR = "_images_idx.txt"


class PickledLMDB(LMDBContainer):
    """LMDB files of pickles.

    Samples are in the order of ``__keys__``; without that entry, they are sorted by key, as numbers if possible.
    """

    kind = "pickled lmdb"
    image: str
    """The key of the image in each value."""
    label: str | None
    keys_of_fields: dict[str, str]
    all_taken: bool
    """Whether the user chose no keys; a member without a role is then an error."""
    names: Mapping[bytes, str]

    @classmethod
    def is_of(cls, first: First) -> bool:
        values = [value for value in first.values if value.key not in COUNTS]
        heads = [value.head() for value in values]
        if any(is_pickle(head) and head.startswith(b"\x80") for head in heads):
            return True
        if not heads or not is_pickle(heads[0]):
            return False
        return first.tree.find(_KEYS) is not None or any(
            image_of(member) is not None for member in members_of(cls.read(values[0])).values()
        )

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Mapping[str, str]) -> PickledLMDB:
        found, errors = list[dict[str, Any]](), list[SourceError]()
        for path in dict.fromkeys((paths[0], paths[len(paths) // 2], paths[-1])):
            with failing(path), PackFile(path) as file:
                tree = LMDBTree(file)
                tree.require_plain()
                order = _Order(file, tree, cls.read)
                for number in sorted({0, order.count // 2, max(0, order.count - 1)}):
                    try:
                        found.append(cls._sample(order.value(0, number)))
                    except SourceError as error:  # `entries` reports the error of this sample
                        errors.append(error)
        if not found:
            raise errors[0]
        container = cls.of_files(paths)
        container._choose(found, keys, printable(paths[0]))
        return container

    def ordered(self, unit: int, file: PackFile, tree: LMDBTree) -> Iterator[LMDBValue]:
        order = _Order(file, tree, self.read)
        self.names = _names_beside(Path(file.path), order.count)
        unlisted = sum(1 for key, _, _ in tree.walk() if key not in COUNTS)
        for number in range(order.count):
            value = order.value(unit, number)
            unlisted -= not value.problem
            yield value
        self.account.left_out("key", f"{text_of(_KEYS)} does not list them", count=unlisted)

    def entry(self, value: LMDBValue) -> Entry:
        members = members_of(self.read(value))
        found = image_of(members.get(self.image))
        if found is None:
            raise ValueError(f"its {self.image!r} is not an encoded image")
        budget = Budget(value.size)
        budget.spend(found.size)
        name = image_name(self.names.get(value.key) or text_of(value.key), suffix_of(found.head))
        label = self._label_in(members, value.file, budget)
        return Entry(name, found.piece(value.unit), label, self._values_in(members, value.unit, value.file, budget))

    @classmethod
    def read(cls, value: LMDBValue, most: int = MOST_THINGS) -> Any:
        """Decode a value; ValueError if it is not a pickle, or has more than `most` opcodes."""
        head = value.head(PIECE)
        if is_pickle(head):
            return unpickled(value.file, value.offset, value.size, most, head)
        raise ValueError(
            "its value was written neither by pickle nor by pyarrow.serialize"
            + (": msgpack, which packer does not read" if head[:1] in (b"\x92", b"\x93", b"\x82", b"\x83") else "")
        )

    @classmethod
    def _sample(cls, value: LMDBValue) -> dict[str, Any]:
        if value.problem:
            raise SourceError(f"{printable(value.file.path)}: {value.problem}")
        with errors_in(f"{printable(value.file.path)}: {shown_key(value.key)}"):
            return members_of(cls.read(value))

    def _choose(self, found: Sequence[Mapping[str, Any]], keys: Mapping[str, str], where: str) -> None:
        """Choose the roles of members from the first samples, or from the keys that the user chose.

        Raises
        ------
        SourceError
            If a sample has no image, or no member with a chosen key.
        OptionError
            If a key does not make a valid field.
        """
        have: dict[str, Any] = {}
        for one in found:
            for key, value in one.items():
                if have.get(key) is None:
                    have[key] = value
        chosen = Chosen.of(keys)
        if chosen.name is not None:
            raise OptionError("--key name=... does not apply to LMDB files: a sample's name is its key")
        for key in chosen.all_keys():
            if key not in have:
                raise SourceError(f"{where}: its samples have no {key!r}, but {_listed(map(repr, have))}")
        images = [key for key, value in have.items() if image_of(value) is not None]
        images.sort(key=lambda key: key not in _ROLES.images)
        image = chosen.image or next(iter(images), None)
        if image is None:
            raise SourceError(f"{where}: its samples have no member that is an encoded image: {_shown_types(have)}")
        others = {key: value for key, value in have.items() if key != image}
        label = chosen.label if keys else _label(others, self.account)
        rest = {key: value for key, value in others.items() if key != label}
        try:
            fields = _chosen_fields(chosen, have) if keys else _guessed(rest)
        except ValueError as error:
            raise OptionError(f"{where}: {error}") from error
        left = [key for key in rest if key not in fields.values()]
        why = "--key does not name them" if keys else "no kind of field fits their values"
        self.account.left_out("member", why, left, chosen=bool(keys))
        self.image, self.label, self.all_taken = image, label, not keys
        self.fields, self.keys_of_fields = tuple(fields), {of.name: key for of, key in fields.items()}
        self.label_type = "float" if label is not None and isinstance(have[label], float) else "class"

    def _label_in(self, members: Mapping[str, Any], file: PackFile, budget: Budget) -> int | float | str | None:
        """Return a sample's label; ValueError if the member is not a label, or exceeds the budget."""
        value = members.get(self.label) if self.label is not None else None
        if isinstance(value, Array):
            value = _one(value, file)
        if isinstance(value, Blob):
            value = _bytes(value, file, budget).decode("utf-8")
        if self.label_type == "float" and isinstance(value, int):
            return float(value)
        if value is None or isinstance(value, str) or type(value) is int:
            return value
        if isinstance(value, float) and self.label_type == "float":
            return value
        raise ValueError(f"its label is {type(value).__name__}, not a number or a text")

    def _values_in(
        self, members: Mapping[str, Any], unit: int, file: PackFile, budget: Budget
    ) -> dict[str, Piece | Stored]:
        """Return a sample's field values.

        Raise ValueError if a value is invalid, or all values together exceed the budget.
        """
        values: dict[str, Piece | Stored] = {}
        for field in self.fields:
            key = self.keys_of_fields[field.name]
            if (member := members.get(key)) is None:
                continue
            try:
                values[field.name] = _stored(field, member, unit, file, budget)
            except (ValueError, TypeError) as error:
                raise ValueError(f"its {key[:_SHOWN]!r} does not fit the field: {error}") from error
        if self.all_taken:
            known = {self.image, self.label, *self.keys_of_fields.values()}
            if unknown := [key for key, value in members.items() if key not in known and value is not None]:
                raise ValueError(
                    f"it has {unknown[0][:_SHOWN]!r}, which the first samples do not have. Name the keys with --key"
                )
        return values


class _Order:
    """The samples of one file in order; `read` is the container's method that decodes a value.

    Attributes
    ----------
    count : int
    """

    def __init__(self, file: PackFile, tree: LMDBTree, read: Callable[[LMDBValue, int], Any]) -> None:
        self._file, self._tree, self._read = file, tree, read
        location = tree.find(_KEYS)
        self._keys = None if location is None else self._listed(*location)
        meta = sum(tree.find(key) is not None for key in COUNTS)
        self.count = tree.entries - meta if self._keys is None else len(self._keys)
        if self.count < 1:
            raise SourceError(f"{printable(file.path)}: contains no samples")
        self._layout = b"%d"
        if self._keys is None:
            first = next(tree.walk())[0]
            self._layout = b"%%0%dd" % len(first) if len(first) > 1 else b"%d"
            if any(tree.find(self._layout % number) is None for number in (0, self.count - 1)):
                self._keys = [key for key, _, _ in tree.walk() if key not in COUNTS]
                self.count = len(self._keys)

    def value(self, unit: int, number: int) -> LMDBValue:
        """Return the LMDB value of a sample; a missing value has a `problem`."""
        key = self._layout % number if self._keys is None else self._keys[number]
        found = self._tree.find(key)
        if found is None:
            return LMDBValue(unit, self._file, key, problem=f"{shown_key(key)}: sample {number} is missing")
        return LMDBValue(unit, self._file, key, *found)

    def _listed(self, offset: int, size: int) -> list[bytes]:
        """Return the keys that ``__keys__`` lists."""
        most = min(_MOST_KEYS, 8 * max(self._tree.entries, 1) + 1000)
        with errors_in(f"{printable(self._file.path)}: {shown_key(_KEYS)}"):
            listed = self._read(LMDBValue(0, self._file, _KEYS, offset, size), most)
        listed = listed if isinstance(listed, (list, tuple)) else [None]
        keys = [found for one in listed if (found := _key(one, self._file)) and len(found) <= MOST_KEY]
        if len(keys) < len(listed) or len(set(keys)) < len(keys):
            raise SourceError(f"{printable(self._file.path)}: {shown_key(_KEYS)}: is not a list of distinct keys")
        return keys


def _key(listed: Any, file: PackFile) -> bytes:
    """Convert an element of a list of keys to a key; empty if the element is not a key."""
    if isinstance(listed, Blob):
        return listed.data(file) if listed.size <= MOST_KEY else b""
    return listed.encode() if isinstance(listed, str) else b""


def _names_beside(path: Path, count: int) -> dict[bytes, str]:
    """Return the names of images, by key, from Image2LMDB's sidecar file; empty if there is no file of unique names."""
    base = path.parent if path.name == DATA else path
    sidecar = base.with_name(base.stem + _SIDECAR)
    names: dict[bytes, str] = {}
    try:
        with open(open_regular(sidecar), encoding="utf-8", errors="surrogateescape") as lines:
            for line in itertools.islice(lines, count):
                name, _, number = line.rstrip("\n").rpartition(" ")
                names[number.encode("utf-8", "surrogateescape")] = name
    except OSError:
        return {}
    return names if len(set(names.values())) == len(names) == count else {}
