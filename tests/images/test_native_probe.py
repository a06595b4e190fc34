"""C's survey of an image finds the same as `inspect` in Python, without decoding, or declines."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from packer._images.native.records import CAN_SURVEY, FINDINGS, KINDS, SURVEY, survey
from packer._images.probe import inspect
from packer._storage.packfile import MEMORY, NOWHERE
from packer._table import checksum
from packer.errors import ImageError
from tests.images.samples import encoded, jpeg, oriented, photo, png_chunk

pytestmark = pytest.mark.skipif(not CAN_SURVEY, reason="needs a C compiler when packer is installed")

PIXELS = photo(48, 64)
XMP = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'


def segment(marker: int, content: bytes) -> bytes:
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def with_segment(data: bytes, *segments: bytes) -> bytes:
    """Return a JPEG with these segments before all others."""
    return data[:2] + b"".join(segments) + data[2:]


PLAIN = {
    "baseline": jpeg(),
    "grey": encoded(PIXELS[..., 0], "JPEG"),
    "progressive": encoded(PIXELS, "JPEG", progressive=True),
    "turned": oriented(PIXELS, 6),
    "upside down": oriented(PIXELS, 3),
    "trailing": jpeg() + b"junk",
    "long metadata": with_segment(jpeg(), *[segment(0xE2, bytes(60_000))] * 3),
    "thumbnail": with_segment(jpeg(), segment(0xEC, jpeg())),
    "png": encoded(PIXELS, "PNG"),
    "grey png": encoded(PIXELS[..., 0], "PNG"),
    "webp": encoded(PIXELS, "WEBP"),
    "lossless webp": encoded(PIXELS, "WEBP", lossless=True),
}
ODD = {
    "two pictures": encoded(PIXELS, "MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))]),
    "turned by XMP": with_segment(jpeg(), segment(0xE1, XMP)),
    "two EXIFs": with_segment(oriented(PIXELS, 6), segment(0xE1, b"Exif\0\0")),
    "cut": jpeg()[:-300],
    "no end": jpeg()[:-2],
    "fill bytes": jpeg()[:2] + b"\xff" + jpeg()[2:],
    "deep png": encoded(np.full((5, 6), 300, np.uint16), "PNG"),
    "turned png": encoded(PIXELS, "PNG")[:33] + png_chunk(b"eXIf", b"II*\0") + encoded(PIXELS, "PNG")[33:],
    "cut png": encoded(PIXELS, "PNG")[:-4],
    "gif": encoded(PIXELS, "GIF"),
    "bmp": encoded(PIXELS, "BMP"),
    "tiff": encoded(PIXELS, "TIFF"),
    "nothing": b"",
    "few bytes": b"\xff\xd8\xff",
    "text": b"no image at all, but some text",
}


def surveyed(images: Sequence[bytes], tmp_path: Path | None, **members: Any) -> npt.NDArray[np.void]:
    """Survey images in memory, or one after the other in a file."""
    records = np.zeros(len(images), SURVEY)
    records["size"] = [len(data) for data in images]
    for name, value in members.items():
        records[name] = value
    if tmp_path is None:
        held = [np.frombuffer(data or b"x", np.uint8) for data in images]
        records["file"], records["position"] = MEMORY, [data.ctypes.data for data in held]
        survey(records)
        return records
    (tmp_path / "all").write_bytes(b"xyz" + b"".join(images))
    with (tmp_path / "all").open("rb") as file:
        records["file"], records["position"] = file.fileno(), 3 + np.cumsum(records["size"]) - records["size"]
        survey(records)
    return records


def require_pythons(records: npt.NDArray[np.void], images: Sequence[bytes], exif: str = "ignore") -> int:
    """Compare what C saw with `inspect`; return how many images C saw."""
    for record, data in zip(records, images, strict=True):
        if not record["seen"]:
            continue
        info = inspect(data)
        assert info.size_shown(exif) == (record["height"], record["width"])
        assert (info.kind, info.orientation) == (KINDS[record["kind"]], record["orientation"])
        assert info.plain
        assert info.findings == tuple(words for bit, words in FINDINGS.items() if record["findings"] & bit)
    return int(np.count_nonzero(records["seen"]))


@pytest.mark.parametrize("checked", [0, 1])
@pytest.mark.parametrize("in_file", [False, True])
def test_ordinary_images_are_seen_in_c(in_file: bool, checked: int, tmp_path: Path) -> None:
    images = list(PLAIN.values())
    records = surveyed(images, tmp_path if in_file else None, checked=checked, label=7)
    assert [name for name, seen in zip(PLAIN, records["seen"], strict=True) if not seen] == []
    require_pythons(records, images)
    expected = [
        checksum(data, 7, int(record["height"]), int(record["width"]), b"") if checked else 0
        for data, record in zip(images, records, strict=True)
    ]
    assert records["crc32c"].tolist() == expected


def test_the_name_and_a_float_are_in_the_checksum() -> None:
    name = np.frombuffer(b"a name", np.uint8)
    label = np.array([-0.5]).view(np.int64)[0]
    members = {"checked": 1, "label": label, "name": name.ctypes.data, "name_size": len(name)}
    (record,) = surveyed([PLAIN["grey"]], None, **members)
    assert record["crc32c"] == checksum(PLAIN["grey"], -0.5, 48, 64, b"a name")


def test_all_bytes_of_images_in_a_file_are_read_where_they_are_wanted(tmp_path: Path) -> None:
    images = [*PLAIN.values(), ODD["gif"], ODD["cut"]]
    memory = np.full(sum(map(len, images)), 0xAA, np.uint8)
    sizes = np.array([len(data) for data in images])
    records = surveyed(images, tmp_path, out=memory.ctypes.data + np.cumsum(sizes) - sizes)
    assert memory.tobytes() == b"".join(images)
    assert records["read"].all()
    assert records["seen"].tolist() == [1] * len(PLAIN) + [0, 0]
    require_pythons(records, images)


def test_an_orientation_turns_the_size_where_it_is_applied() -> None:
    images = [oriented(PIXELS, turn) for turn in range(1, 9)]
    for exif in ("ignore", "apply"):
        records = surveyed(images, None, turned=exif == "apply")
        assert records["seen"].all()
        require_pythons(records, images, exif)


@pytest.mark.parametrize("name", ODD)
def test_odd_images_are_left_to_python(name: str, tmp_path: Path) -> None:
    for place in (None, tmp_path):
        for checked in (0, 1):
            (record,) = surveyed([ODD[name]], place, checked=checked)
            assert (record["seen"], record["crc32c"], record["findings"]) == (0, 0, 0)


def test_what_cannot_be_read_is_left_to_python(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(jpeg())
    records = np.zeros(5, SURVEY)
    with (tmp_path / "short").open("rb") as file:
        records["file"], records["size"] = file.fileno(), len(jpeg())
        records["file"][1] = NOWHERE
        records["position"][2] = 1 << 40
        records["size"][3:] = len(jpeg()) + 1, 1 << 60
        survey(records)
    assert records["seen"].tolist() == [1, 0, 0, 0, 0]


def test_damaged_images_are_seen_as_python_sees_them_or_left_to_it(sweep: int) -> None:
    rng, images = random.Random(sweep), []
    for data in [*PLAIN.values(), *ODD.values()]:
        for _ in range(40 if data else 0):
            changed = bytearray(data[: rng.choice([len(data), rng.randrange(len(data) + 1)])])
            for _ in range(rng.randrange(4)):
                if changed:
                    at = rng.choice([rng.randrange(len(changed)), rng.randrange(min(len(changed), 200))])
                    changed[at] = rng.choice([0, 1, 0xFF, 0xDA, 0xD9, rng.randrange(256)])
            images.append(bytes(changed) + rng.choice([b"", b"", b"\xff\xd9", b"x"]))
    for checked in (0, 1):
        assert require_pythons(surveyed(images, None, checked=checked), images) > len(images) // 10


def test_images_of_the_shared_data_are_seen_as_python_sees_them(shared_data: Path, tmp_path: Path) -> None:
    images = [file.read_bytes() for file in sorted(shared_data.rglob("*")) if file.is_file()][:1200]
    for checked in (0, 1):
        records = surveyed(images, tmp_path, checked=checked)
        assert np.count_nonzero(records["seen"]) > len(images) // 2
        for record, data in zip(records, images, strict=True):
            try:
                require_pythons(np.array([record]), [data])
            except ImageError:
                pytest.fail("C sees an image that Python refuses")
