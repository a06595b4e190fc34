from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from packer._codecs import CODECS
from packer._manifest import SCHEMA, Manifest
from packer._table import COLUMNS, LONGEST_NAME, Names, Table, checksum, column_checksums, decode_name, encode_name
from packer.errors import CorruptPackError, UnsupportedVersionError
from packer.testing.conformance import names
from tests.samples import ROWS, table_of

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def crc32c(data: bytes) -> int:
    """The CRC-32C of RFC 3720 (Castagnoli), a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def seal(document: object) -> bytes:
    """Return any JSON object as the bytes of a manifest, with a correct checksum."""
    body = json.dumps(document, separators=(",", ":")).encode()[:-1]
    return body + b',"crc32c":"%08x"}' % crc32c(body)


def document(**changes: Any) -> dict[str, Any]:
    sealed = json.loads(Manifest("lmdb", 0, []).to_json())
    del sealed["crc32c"]
    return {**sealed, **changes}


# Checksums.


def test_the_pure_python_checksum_is_the_known_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


@given(data=st.binary(max_size=300), label=INT64, height=INT32, width=INT32, name=st.binary(max_size=30))
def test_a_checksum_covers_all_that_a_reader_hands_out(
    data: bytes, label: int, height: int, width: int, name: bytes
) -> None:
    covered = data + struct.pack("<qii", label, height, width) + name
    found = checksum(data, label, height, width, name)
    assert found == google_crc32c.value(covered) == crc32c(covered)
    assert type(found) is int


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 4096, 100_001])
def test_a_checksum_is_the_same_of_any_buffer(size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes()
    expected = checksum(data, 1, 2, 3, b"name")
    padded = bytearray(b"x" + data + b"y")
    assert checksum(bytearray(data), 1, 2, 3, b"name") == expected
    assert checksum(memoryview(data), 1, 2, 3, b"name") == expected
    assert checksum(memoryview(padded)[1:-1], 1, 2, 3, b"name") == expected


def test_a_checksum_leaves_its_buffer_writable() -> None:
    data = bytearray(b"abc")
    before = checksum(data, 0, 0, 0, b"")
    data[0] ^= 1
    assert checksum(data, 0, 0, 0, b"") != before


# Names.


@given(st.lists(names() | st.just("")))
def test_names_come_back(given_names: list[str]) -> None:
    stored = Names.of(given_names)
    assert len(stored) == len(given_names)
    assert list(stored) == given_names
    assert stored[:] == given_names
    assert stored[::-2] == given_names[::-2]
    assert [stored[index - len(given_names)] for index in range(len(given_names))] == given_names
    assert stored.blob.tobytes() == b"".join(name.encode("utf-8", "surrogateescape") for name in given_names)
    for index in (len(given_names), -len(given_names) - 1):
        with pytest.raises(IndexError):
            stored[index]


@given(st.binary())
def test_any_bytes_are_a_name(name: bytes) -> None:
    assert encode_name(decode_name(name)) == name


@given(st.lists(st.lists(names(), max_size=5), min_size=1, max_size=4))
def test_names_are_joined(parts: list[list[str]]) -> None:
    joined = Names.joined([Names.of(iter(part)) for part in parts])
    assert list(joined) == [name for part in parts for name in part]
    assert len(joined.blob) == sum(len(encode_name(name)) for name in joined)


@given(blob=st.binary(max_size=20), ends=st.lists(INT64 | st.integers(-3, 25), min_size=1, max_size=5))
def test_ends_that_lie_elsewhere_raise_or_stay_inside(blob: bytes, ends: list[int]) -> None:
    stored = Names(np.frombuffer(blob, np.uint8), np.array(ends, np.int64))
    for index, end in enumerate(ends):
        start = ends[index - 1] if index else 0
        if 0 <= start <= end <= len(blob):
            assert stored.encoded(index) == blob[start:end]
        else:
            assert stored.get(index) == ""
            with pytest.raises(CorruptPackError) as caught:
                stored.encoded(index)
            assert caught.value.index == index
            with pytest.raises(CorruptPackError):
                list(stored)
    starts = [0, *ends]
    whole = [blob[i:j] if 0 <= i <= j <= len(blob) else None for i, j in zip(starts, ends, strict=False)]
    assert list(stored.each_encoded()) == whole


@given(blob=st.binary(max_size=20), ends=st.lists(INT64 | st.integers(-3, 25), min_size=1, max_size=5))
def test_joined_names_are_the_same_or_none(blob: bytes, ends: list[int]) -> None:
    """For any ends of a part, also if some bytes of its blob belong to no name."""
    stored, others = Names(np.frombuffer(blob, np.uint8), np.array(ends, np.int64)), Names.of(["x", "yz"])
    expected = [*others.each_encoded(), *stored.each_encoded(), *others.each_encoded()]
    found = list(Names.joined([others, stored, others]).each_encoded())
    assert len(found) == len(expected)
    assert all(name in (wanted, None) for name, wanted in zip(found, expected, strict=True))
    if not 0 <= ends[-1] <= len(blob):
        assert found[: 2 + len(ends)] == expected[: 2 + len(ends)]
    if 0 <= ends[-1] <= len(blob) and list(ends) == sorted(ends):
        assert found == expected


@given(
    blob=st.binary(min_size=8, max_size=20),
    ends=st.lists(INT64 | st.integers(-3, 25), min_size=1, max_size=5),
    start=st.integers(0, 4),
    stop=st.integers(0, 5),
)
@example(blob=bytes(range(10)), ends=[6, 2, 9], start=1, stop=3)
def test_a_stretch_has_the_same_names(blob: bytes, ends: list[int], start: int, stop: int) -> None:
    """Also if the ends are not sorted: then a name may begin before the stretch."""
    stored = Names(np.frombuffer(blob, np.uint8), np.array(ends, np.int64))
    stretch = stored.between(start, stop) if start < len(ends) else stored.between(0, len(ends))
    expected = list(stored.each_encoded())[start:stop] if start < len(ends) else list(stored.each_encoded())
    assert list(stretch.each_encoded()) == expected
    assert [stretch.get(i) for i in range(len(stretch))] == [decode_name(name or b"") for name in expected]


# The table.


def test_a_name_that_is_too_long_is_none() -> None:
    """With ends that are not sorted, any number of rows could have the same long name."""
    blob, size = np.zeros(LONGEST_NAME + 1, np.uint8), LONGEST_NAME
    found = Names(blob, np.array([size, size + 1, 0, size + 1], np.int64))
    assert [name and len(name) for name in found.each_encoded()] == [size, 1, None, None]
    assert len(found.encoded(0)) == size
    with pytest.raises(CorruptPackError, match=r"name of sample 3 .* too long"):
        found.encoded(3)


@pytest.mark.parametrize("name", list(COLUMNS))
def test_columns_that_do_not_fit_together(name: str) -> None:
    columns = table_of(
        [dict.fromkeys(("label", "height", "width", "offset", "size", "crc32c"), 1) | {"name": b"ab"}] * 3
    )
    good = columns.columns()
    for bad in (good[name].astype(">i8"), good[name].astype("f4"), good[name][None]):
        with pytest.raises(ValueError, match=name):
            Table.of({**good, name: bad})
    with pytest.raises(ValueError, match=name):
        Table.of({key: column for key, column in good.items() if key != name})
    if name != "names":
        with pytest.raises(ValueError, match="length"):
            Table.of({**good, name: good[name][:-1]})


@given(data=st.binary(max_size=50), row=ROWS, at=st.data())
def test_a_row_matches_its_sample_and_no_other(data: bytes, row: dict[str, Any], at: st.DataObject) -> None:
    crc = checksum(data, row["label"], row["height"], row["width"], row["name"])
    table = table_of([{**row, "crc32c": crc}])
    assert table.row(0).matches(data)
    if data:
        changed = bytearray(data)
        changed[at.draw(st.integers(0, len(data) - 1))] ^= at.draw(st.integers(1, 255))
        assert not table.row(0).matches(changed)
    for column in ("label", "height", "width", "crc32c"):
        columns = table.columns()
        columns[column] = columns[column] ^ 1
        assert not Table.of(columns).row(0).matches(data)


@given(st.lists(ROWS, max_size=5))
def test_checksums_of_columns(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    assert column_checksums(table) == {name: crc32c(column.tobytes()) for name, column in table.columns().items()}


# The manifest.

TEXT = st.text(max_size=10) | names()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
MANIFESTS = st.builds(
    Manifest,
    format=TEXT,
    count=st.integers(0, 2**63),
    classes=st.lists(TEXT, max_size=5),
    codec=st.sampled_from(list(CODECS)),
    settings=st.dictionaries(TEXT, JSON, max_size=3),
    source=st.dictionaries(TEXT, JSON, max_size=3),
    skipped=st.lists(st.fixed_dictionaries({"name": TEXT, "reason": TEXT}), max_size=3),
    findings=st.dictionaries(TEXT, st.integers(0, 2**40), max_size=3),
    versions=st.dictionaries(TEXT, TEXT, max_size=3),
    columns=st.dictionaries(st.sampled_from(list(COLUMNS)), st.integers(0, 2**32 - 1)),
    layout=st.dictionaries(TEXT, JSON, max_size=3),
)


@given(MANIFESTS)
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    text = manifest.to_json()
    assert Manifest.from_json(text, "path") == manifest
    assert text.isascii()
    read = json.loads(text)
    assert next(iter(read)) == "schema"
    assert list(read)[-1] == "crc32c"
    assert int(read["crc32c"], 16) == crc32c(text[: -len(',"crc32c":"00000000"}')])
    assert manifest.to_json() == text


def test_any_changed_byte_of_a_manifest_is_found() -> None:
    text = Manifest("lmdb", 3, ["a", "ö"], settings={"resize": 256}, columns={"label": 7}).to_json()
    for at in range(len(text)):
        for change in (0x01, 0x20, 0x80, 0xFF):
            changed = bytearray(text)
            changed[at] ^= change
            with pytest.raises(CorruptPackError, match="manifest"):
                Manifest.from_json(bytes(changed), "path")


def test_a_manifest_cut_short_or_continued_is_refused() -> None:
    text = Manifest("lmdb", 3, ["a"]).to_json()
    for length in range(len(text)):
        with pytest.raises(CorruptPackError):
            Manifest.from_json(text[:length], "path")
    for more in (b" ", b"\n", b"\0", text):
        with pytest.raises(CorruptPackError):
            Manifest.from_json(text + more, "path")


@given(st.binary(max_size=100))
def test_bytes_that_are_no_manifest(text: bytes) -> None:
    with pytest.raises(CorruptPackError):
        Manifest.from_json(text, "path")
    sealed = text + b',"crc32c":"%08x"}' % crc32c(text)
    with pytest.raises((CorruptPackError, UnsupportedVersionError)):
        Manifest.from_json(sealed, "path")


@pytest.mark.parametrize(
    ("member", "values"),
    [
        ("schema", ["1", None, [], {}, 0, -1, 0.5]),
        ("format", [1, None, [], {}]),
        ("count", [-1, 1.0, "1", None, []]),
        ("classes", [1, None, "ab", {}, [1], [None], [["a"]]]),
        ("codec", [1, None, "gif", "", [], {}]),
        ("settings", [1, None, [], "x"]),
        ("source", [1, None, [], "x"]),
        ("skipped", [1, None, {}, "x", [1], ["name"], [{"name": 1, "reason": "x"}], [{"name": "x"}]]),
        ("findings", [1, None, [], "x", {"cmyk": "many"}]),
        ("versions", [1, None, [], "x", {"packer": 1}]),
        ("columns", [1, None, [], "x", {"label": "x"}]),
        ("layout", [1, None, [], "x"]),
    ],
)
def test_members_of_the_wrong_type_are_refused(member: str, values: list[object]) -> None:
    taken = []
    for value in values:
        try:
            Manifest.from_json(seal(document(**{member: value})), "path")
        except CorruptPackError:
            continue
        taken.append(value)
    assert taken == []


@pytest.mark.parametrize("member", ["schema", "format", "count", "classes"])
def test_members_that_are_missing(member: str) -> None:
    without = document()
    del without[member]
    with pytest.raises(CorruptPackError):
        Manifest.from_json(seal(without), "path")


@pytest.mark.parametrize("value", [[], 1, "x", None, {}, {"schema": SCHEMA}, {"schema": SCHEMA, "self": 1}])
def test_json_that_is_no_manifest(value: object) -> None:
    with pytest.raises(CorruptPackError):
        Manifest.from_json(seal(value), "path")


def test_members_that_a_later_packer_may_add_are_kept() -> None:
    known = Manifest.from_json(seal(document()), "path")
    for more in ({"note": "x"}, {"more": [1], "self": None}, {"unknown": {"a": [1.5, "ö"]}, "schema_of": 3}):
        text = seal(document(**more))
        manifest = Manifest.from_json(text, "path")
        assert manifest.to_json() == Manifest.from_json(manifest.to_json(), "path").to_json()
        assert {**json.loads(text), "crc32c": 0} == {**json.loads(manifest.to_json()), "crc32c": 0}
        assert manifest.identity() == hashlib.sha256(text).hexdigest()[:12] != known.identity()
        assert manifest.more == more
        assert replace(manifest, more={}) == known
        assert Manifest.united([manifest, manifest]).more == {}


def test_an_identity_is_of_the_bytes_whoever_wrote_them() -> None:
    text = seal(dict(reversed(document().items())))
    manifest = Manifest.from_json(text, "path")
    assert manifest == Manifest.from_json(seal(document()), "path")
    assert manifest.identity() == hashlib.sha256(text).hexdigest()[:12]
    assert (
        replace(manifest, count=1).identity() == hashlib.sha256(replace(manifest, count=1).to_json()).hexdigest()[:12]
    )


def test_json_made_to_exhaust() -> None:
    prefix: Callable[[bytes], bytes] = lambda body: body + b',"crc32c":"%08x"}' % crc32c(body)  # noqa: E731
    for body in (b'{"schema":' + b"[" * 100_000, b'{"schema":' + b"9" * 5000, b'{"schema":1,"count":1e999'):
        with pytest.raises((CorruptPackError, UnsupportedVersionError)):
            Manifest.from_json(prefix(body), "path")


def test_a_newer_schema_is_refused_by_name_whatever_else_is_in_it() -> None:
    for newer in (document(schema=SCHEMA + 1), {"schema": SCHEMA + 1, "samples": []}, document(schema=99, count="x")):
        with pytest.raises(UnsupportedVersionError, match=rf"pack\.h5.*schema {newer['schema']}\b"):
            Manifest.from_json(seal(newer), "pack.h5")


def test_an_error_for_a_terminal_has_no_control_characters() -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        Manifest.from_json(seal(document(schema=SCHEMA + 1)), "a\x1b[31m\n.h5")
    assert str(caught.value).isprintable()
