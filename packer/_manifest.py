"""The manifest: the properties of a whole pack, stored in the pack as JSON."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from packer._account import Account
from packer._codecs import CODECS, LABEL_TYPES, UNLABELED
from packer._fields import MOST_FIELDS, Field
from packer._table import Labels, blocks, column_types, encode_name
from packer.errors import CorruptPackError, PackError, UnsupportedVersionError, printable

SCHEMA = 2
"""The newest version of the manifest and the table. packer reads all versions, and writes the oldest that suffices."""

TILED = "tiled"
"""The name under which `findings` counts samples that are tiled JPEGs."""


_BEGINNING = re.compile(rb'\{"schema":[0-9]{1,3},"format":"[a-z0-9_.-]{1,41}","count":[0-9]{1,19},"classes":\[')
_SEAL = b',"crc32c":"'
_SEAL_LENGTH = len(_SEAL) + 8 + len(b'"}')
_SEALED = re.compile(re.escape(_SEAL) + rb'[0-9a-f]{8}"\}')


@dataclass(frozen=True)
class Manifest:
    """The properties of a whole pack.

    Attributes
    ----------
    format : str
        Name of the format, such as ``"lmdb"``.
    count : int
        Number of samples.
    classes : list of str
        Class names; a label of the type ``class`` is an index into this list. Empty for other types of labels.
    label_type : str
        ``"class"``, ``"int"`` or ``"float"``. Schema 1 has only ``class``, without unlabeled samples.
    fields : tuple of Field
        The fields other than image and label. Schema 1 has none.
    codec : str
        The encoding of the samples' data: ``"keep"``, ``"jpeg"``, ``"png"``, ``"webp"``, ``"bmp"`` or ``"raw"``.
    settings : dict
        Every setting of the conversion that affects the samples' bytes.
    about : list of dict
        Data of annotation files, such as image licenses, except the data of single samples. For each annotation file,
        a dict has the file's name (``file``) and the data (``members``).
    source : dict
        The kind of the source, and a digest of its names, labels and fields.
    skipped : list of dict
        ``{"name", "reason"}`` of every file that was left out.
    findings : dict
        Unusual properties of images, each with the number of images that have it.
    account : list of dict, optional
        What became of every file and row of the source; None if it was not recorded, as in packs of older versions.
    versions : dict
        Versions of the libraries that encoded the samples.
    columns : dict
        CRC-32C of each column of the table.
    layout : dict
        Properties that the reader of this format needs.
    schema : int
    more : dict
        Members that this version of packer does not know and does not need.
    """

    format: str
    count: int
    classes: list[str]
    label_type: str = "class"
    fields: tuple[Field, ...] = ()
    codec: str = "keep"
    settings: dict[str, Any] = field(default_factory=dict)
    about: list[dict[str, Any]] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)
    findings: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    schema: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    account: list[dict[str, Any]] | None = None

    def to_json(self) -> bytes:
        """Return the manifest as a JSON object in ASCII; its last member is the CRC-32C of everything before it."""
        document = {"schema": self.schema, **asdict(self), "fields": [one.to_json() for one in self.fields]}
        if self.schema == 1:
            del document["label_type"]
        for name in ("fields", "about"):
            if not document[name]:
                del document[name]
        if self.account is None:
            del document["account"]
        document |= document.pop("more")
        body = json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode("ascii")[:-1]
        return body + _SEAL + b"%08x" % google_crc32c.value(body) + b'"}'

    @staticmethod
    def is_recognisable(text: bytes) -> bool:
        """Tell whether a text, which may be damaged, has the beginning or the final checksum of a manifest."""
        return _BEGINNING.match(text) is not None or _SEALED.fullmatch(text[-_SEAL_LENGTH:]) is not None

    @classmethod
    def from_json(cls, text: bytes, path: str) -> Manifest:
        """Parse a manifest; `path` is the path of the pack, for messages.

        Raises
        ------
        CorruptPackError
            If the text is not a manifest, or was changed after it was written.
        UnsupportedVersionError
            If a newer packer wrote it.
        """
        body, seal = text[:-_SEAL_LENGTH], text[-_SEAL_LENGTH:]
        if seal != _SEAL + b"%08x" % google_crc32c.value(body) + b'"}':
            raise CorruptPackError("the manifest is damaged: its checksum does not match", path)
        try:
            document = json.loads(body + b"}")
            schema = document.pop("schema")
            if not isinstance(schema, int) or schema < 1:
                raise ValueError(f"invalid schema {schema!r}")
            if schema > SCHEMA:
                raise UnsupportedVersionError(
                    f"{printable(path)}: written with schema {schema}; this packer reads up to {SCHEMA}. Update packer."
                )
            optional = {"schema", "more", "fields", "about", "account"}
            names = {member.name for member in dataclasses.fields(cls)} - optional
            listed, about, account = [], [], document.pop("account", None)
            if schema == 1:
                names.remove("label_type")
            else:
                listed, about = document.pop("fields", []), document.pop("about", [])
            if missing := names - document.keys():
                raise ValueError(f"{', '.join(sorted(missing))}: missing")
            known = {name: document.pop(name) for name in names}
            fields = tuple(map(Field.from_json, listed))
            manifest = cls(schema=schema, more=document, fields=fields, about=about, account=account, **known)
            # The digest is of the original text, because another writer may write the same JSON differently.
            object.__setattr__(manifest, "_identity", _digest(text))
            manifest._require_types()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorruptPackError(f"the manifest cannot be read: {error}", path) from error
        except MemoryError as error:
            raise PackError(f"{printable(path)}: a manifest of {len(text):,} bytes does not fit into memory") from error
        return manifest

    @classmethod
    def united(cls, manifests: Sequence[Manifest]) -> Manifest:
        """Return the manifest of a pack that consists of several packs, one after the other.

        `about` has the entries of all packs, without repetition. Settings that differ are left out. The exception is
        ``tiles``, which is true if any pack may contain tiled JPEGs. `source`, `columns` and `layout` are empty.
        `classes`, `label_type` and `fields` come from the first pack.
        """
        first = manifests[0]
        same = [name for name, value in first.settings.items() if all(m.settings.get(name) == value for m in manifests)]
        settings = {name: first.settings[name] for name in same}
        if any(manifest.settings.get("tiles") for manifest in manifests):
            settings["tiles"] = True
        versions: dict[str, set[str]] = {}
        for manifest in manifests:
            for package, version in manifest.versions.items():
                versions.setdefault(package, set()).add(version)
        about = [entry for manifest in manifests for entry in manifest.about]
        findings = sum((Counter(manifest.findings) for manifest in manifests), Counter[str]())
        account = Account.united([manifest.recorded_account() for manifest in manifests])
        return cls(
            format=first.format,
            count=sum(manifest.count for manifest in manifests),
            classes=first.classes,
            label_type=first.label_type,
            fields=first.fields,
            codec=first.codec,
            settings=settings,
            about=[entry for number, entry in enumerate(about) if entry not in about[:number]],
            skipped=[entry for manifest in manifests for entry in manifest.skipped],
            findings=dict(sorted(findings.items())),
            versions={package: " and ".join(sorted(numbers)) for package, numbers in versions.items()},
            schema=max(manifest.schema for manifest in manifests),
            account=None if account is None else account.to_json(),
        )

    def recorded_account(self) -> Account | None:
        """Return the account of the source as an object; None if it was not recorded."""
        return None if self.account is None else Account.from_json(self.account)

    @property
    def exif(self) -> str:
        """Whether EXIF orientations were applied to the samples: ``"apply"`` or ``"ignore"``."""
        return str(self.settings.get("exif", "ignore")) if self.codec == "keep" else "ignore"

    @property
    def column_types(self) -> dict[str, str]:
        """The columns of the table and their dtypes."""
        return column_types(self.label_type, self.fields, apart=self.layout.get("apart") is True)

    @property
    def parts(self) -> Sequence[Any]:
        """The list of parts in `layout`; empty if the pack does not consist of parts."""
        parts = self.layout.get("parts")
        return parts if isinstance(parts, list) else ()

    def fits(self, label: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Tell whether a number is a valid label in this pack; for an array, tell it for each number."""
        label = np.asarray(label)
        if self.label_type != "class":
            return np.asarray(np.isfinite(label))
        return np.asarray((label >= (0 if self.schema == 1 else UNLABELED)) & (label < len(self.classes)))

    def misfit(self, label: int | float) -> str:
        """Return the reason why a number is not a valid label in this pack."""
        what = f"one of the {len(self.classes)} classes" if self.label_type == "class" else "a finite number"
        return f"label {label} is not {what}"

    def identity(self) -> str:
        """Return a digest of the manifest. It identifies this pack, because the manifest has checksums of the table."""
        return str(self.__dict__.get("_identity") or _digest(self.to_json()))

    def _require_types(self) -> None:
        def every(values: Any, kind: type) -> bool:
            return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)

        members = dataclasses.fields(self)
        kinds = {member.name: type(member.default_factory()) for member in members if callable(member.default_factory)}
        kinds |= {"format": str, "count": int, "classes": list, "label_type": str, "codec": str}
        wrong = [name for name, kind in kinds.items() if type(getattr(self, name)) is not kind]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: wrong type")
        if self.count < 0 or self.codec not in CODECS:
            raise ValueError(f"invalid count {self.count} or codec {self.codec!r}")
        if self.label_type not in LABEL_TYPES or (self.classes and self.label_type != "class"):
            raise ValueError(f"invalid label type {self.label_type!r} for {len(self.classes)} classes")
        if len({one.name for one in self.fields}) != len(self.fields) or len(self.fields) > MOST_FIELDS:
            raise ValueError(f"two fields have the same name, or there are more than {MOST_FIELDS} fields")
        if not all(type(entry.get("file")) is str and type(entry.get("members")) is dict for entry in self.about):
            raise ValueError("about: wrong type")
        self.recorded_account()  # raises ValueError if the account is invalid
        entries = [value for entry in self.skipped for value in (entry["name"], entry["reason"])]
        texts = [*self.classes, *self.versions.values(), *entries]
        texts += [text for one in self.fields for text in (*one.classes, one.file)]
        if not every(texts, str) or not every([*self.columns.values(), *self.findings.values()], int):
            raise ValueError("a member has elements of the wrong type")
        for text in texts:
            encode_name(text)  # UnicodeEncodeError is a ValueError


def schema_for(label_type: str, label: Labels, fields: Sequence[Field] = ()) -> int:
    """Return the oldest schema that supports this type of labels, these labels and these fields."""
    plain = not fields and label_type == "class" and all((block >= 0).all() for block in blocks(label))
    return 1 if plain else 2


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:12]
