"""datadings: a file that datadings wrote, and maps of MessagePack made by hand."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.errors import SourceError
from tests.containers.everywhere import GOLDEN, IMAGES, everywhere, listed

DATA = list(IMAGES.values())


def packed(value: Any) -> bytes:
    """Encode a value, with the longest form of each type."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, (bytes, str)):
        data = value if isinstance(value, bytes) else value.encode()
        return (b"\xc6" if isinstance(value, bytes) else b"\xdb") + struct.pack(">I", len(data)) + data
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(packed(k) + packed(v) for k, v in value.items())


def write(path: Path, *samples: dict[str, Any] | bytes, offsets: bool = True) -> Path:
    encoded = [sample if isinstance(sample, bytes) else packed(sample) for sample in samples]
    path.write_bytes(b"".join(encoded))
    if offsets:
        ends = np.cumsum([0, *map(len, encoded)])
        path.with_name(path.name + ".offsets").write_bytes(ends.astype(">u8").tobytes())
    return path


def test_a_file_of_datadings_gives_what_was_written(tmp_path: Path) -> None:
    for src in (GOLDEN / "datadings", GOLDEN / "datadings" / "train.msgpack"):
        seen = everywhere(src, tmp_path)
        assert seen.data == DATA
        assert seen.names == ["some/a.jpg", "some/b.png", "some/c.jpg"]
        assert seen.labels == [2, 0, 1]
    assert not len(listed(GOLDEN / "datadings").copied)


def test_values_of_all_types_become_fields(tmp_path: Path) -> None:
    more = [
        {"text": "☃", "number": 1, "real": 1, "flag": True, "list": [1, [2.5, {"a": None}]], "raw": b"\0"},
        {"text": "", "number": -5, "real": 0.5, "list": [], "raw": b"", "nil": None, "deep": {"x": [b"1"]}},
    ]
    rows = [{"key": f"k{n}", "image": DATA[n], **one} for n, one in enumerate(more)]
    seen = everywhere(write(tmp_path / "x.msgpack", *rows), tmp_path)
    assert seen.names == ["k0.jpg", "k1.png"]
    assert seen.labels == [-1, -1]
    assert seen.fields == {
        "text": ["☃", ""],
        "number": [1, -5],
        "real": [1.0, 0.5],
        "flag": [True, None],
        "list": [[1, [2.5, {"a": None}]], []],
        "raw": [b"\0", b""],
    }
    assert any("nil" in note for note in seen.notes)
    assert any("deep" in note and "bytes" in note for note in seen.notes)


def test_labels_may_be_names_of_classes(tmp_path: Path) -> None:
    rows = [{"key": str(n), "image": DATA[0], "label": name} for n, name in enumerate("bab")]
    seen = everywhere(write(tmp_path / "x.msgpack", *rows, offsets=False), tmp_path)
    assert seen.classes == ["a", "b"]
    assert seen.labels == [1, 0, 1]


def test_what_turns_up_later_is_an_error_that_says_how_to_go_on(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"key": str(n), "image": DATA[1], "n": n} for n in range(150)]
    rows[120]["late"] = 1
    other = {"key": "last", "image": DATA[1], "n": 0}
    write(tmp_path / "a.msgpack", *rows)
    write(tmp_path / "b.msgpack", other)
    with pytest.raises(SourceError, match="sample 120: late is in none of the first samples: select keys with --key"):
        listed(tmp_path)
    rows[120] = {"key": "120", "image": DATA[1], "n": "text"}
    write(tmp_path / "a.msgpack", *rows)
    with pytest.raises(SourceError, match="sample 120: n is not a number"):
        listed(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x82\xa3key\xa1a\xa5image\xc6\xff\xff\xff\xff", "sample 0, at byte 0: 4294967295 bytes are needed"),
        (b"\x81\xa5image" + b"\x91" * 3000, "needed"),
        (b"\x81\xa5image\xdd\xff\xff\xff\xff", "one value contains too many nested values"),
        (b"\xdf\xff\xff\xff\xff", "4294967295 values, too many"),
        (b"\x81\xc1", "a value of the type 0xc1"),
        (b"\x81\x05\x05", "a key is not a text"),
        (b"\x82\xa1a\x01\xa1a\x01", "the key 'a' occurs twice"),
        (b"\x81\xa5image\xcb\0", "it ends in the middle of a number"),
    ],
)
def test_lengths_are_not_believed(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        listed(write(tmp_path / "x.msgpack", data, offsets=False))


def test_offsets_of_other_samples_are_refused(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "datadings", tmp_path / "set")
    offsets = tmp_path / "set" / "train.msgpack.offsets"
    data = offsets.read_bytes()
    for changed, message in (
        (data[:-8], "but train.msgpack.offsets lists no such sample"),
        (data[:8] + data[16:], "sample 1 begins at byte 696, but .* lists byte 813"),
        (data[:-3], "29 bytes are not a list of offsets"),
    ):
        offsets.write_bytes(changed)
        with pytest.raises(SourceError, match=message):
            listed(tmp_path / "set")


def test_keys_that_lead_out_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a plain relative path"):
        listed(write(tmp_path / "x.msgpack", {"key": "/etc/x", "image": DATA[0]}))


def test_names_that_occur_again_in_one_file_are_numbered(tmp_path: Path) -> None:
    listing = listed(write(tmp_path / "x.msgpack", *[{"key": "a", "image": DATA[0]}] * 2))
    assert list(listing.names) == ["a.jpg", "a~2.jpg"]
    assert listing.notes == [
        "several samples have the same name, such as a.jpg: the names of later ones end in ~2, ~3, ..."
    ]
