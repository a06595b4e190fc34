from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import re
import shutil
import struct
import subprocess
import threading
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from packer._images import native
from packer._images.extension import _native
from packer._images.jpeg import segments as jpeg_segments
from packer._images.jpeg_tiles import read_tiles, transcode
from packer.errors import NotTileableError
from tests.images.samples import (
    SIZES,
    SUBSAMPLINGS,
    VARIANTS,
    damaged,
    encoded,
    jpeg,
    oriented,
    photo,
    pillow_pixels,
    segment,
)
from tests.pairs import pairwise

pytestmark = pytest.mark.skipif(_native is None, reason="needs a C compiler when packer is installed")


GOLDEN = Path(__file__).parents[2] / "golden" / "transcoded"
DIGESTS: dict[str, str] = json.loads((GOLDEN / "digests.json").read_text())

needs_jpegtran = pytest.mark.skipif(shutil.which("jpegtran") is None, reason="needs jpegtran of libjpeg-turbo")
needs_cjpeg = pytest.mark.skipif(shutil.which("cjpeg") is None, reason="needs cjpeg of libjpeg-turbo")
_SAMPLING = {
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
}

FACTORS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:2:0": (2, 2), "4:4:0": (1, 2), "4:1:1": (4, 1), "grey": (1, 1)}


@st.composite
def jpegs(draw: st.DrawFn, most: int = 700) -> bytes:
    """Encode part of a photo with random settings of OpenCV's encoder."""
    top, left = draw(st.integers(0, 100)), draw(st.integers(0, 100))
    height, width = draw(st.integers(1, most)), draw(st.integers(1, most))
    pixels = photo(800, 800)[top : top + height, left : left + width, ::-1]
    sampling = draw(st.sampled_from(SUBSAMPLINGS))
    options = [
        *(cv2.IMWRITE_JPEG_QUALITY, draw(st.integers(10, 100))),
        *(cv2.IMWRITE_JPEG_PROGRESSIVE, draw(st.integers(0, 1))),
        *(cv2.IMWRITE_JPEG_OPTIMIZE, draw(st.integers(0, 1))),
        *(cv2.IMWRITE_JPEG_RST_INTERVAL, draw(st.sampled_from((0, 0, 1, 2, 3, 7, 50, 65_535)))),
    ]
    if sampling != "grey":
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLING[sampling]]
    written, data = cv2.imencode(
        ".jpg", np.ascontiguousarray(pixels if sampling != "grey" else pixels[..., 0]), options
    )
    assert written
    return data.tobytes()


def run(*command: str, data: bytes) -> bytes:
    result = subprocess.run(command, input=data, capture_output=True, check=True)
    assert not result.stderr, result.stderr.decode()
    return result.stdout


def coefficients(data: bytes) -> bytes:
    """Recode a JPEG with jpegtran, without a warning: equal results mean equal coefficients."""
    return run("jpegtran", "-optimize", "-restart", "0", "-copy", "none", data=data)


def segments(data: bytes) -> list[tuple[int, bytes]]:
    """Return the marker segments up to the first scan."""
    found, position = [], 2
    while not found or found[-1][0] != 0xDA:
        marker, length = struct.unpack_from(">xBH", data, position)
        found.append((marker, data[position + 4 : position + 2 + length]))
        position += 2 + length
    return found


def metadata(data: bytes) -> list[tuple[int, bytes]]:
    return [
        (marker, payload)
        for marker, payload in segments(data)
        if (marker & 0xF0 == 0xE0 or marker == 0xFE) and not payload.startswith(b"TILES\0")
    ]


def check(data: bytes) -> bytes:
    """Transcode, and require the same pixels, metadata and coefficients."""
    tiled = transcode(data)
    expected, found = pillow_pixels(data), pillow_pixels(tiled)
    assert expected is not None
    assert np.array_equal(expected, found)
    assert metadata(tiled) == metadata(data)
    if shutil.which("jpegtran") is not None:
        assert coefficients(tiled) == coefficients(data)
    return tiled


@pairwise(subsampling=SUBSAMPLINGS, variant=VARIANTS, size=SIZES)
def test_pixels_stay(subsampling: str, variant: str, size: tuple[int, int]) -> None:
    check(jpeg(subsampling, variant, size))


@given(jpegs())
def test_pixels_of_any_jpeg_stay(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize("name", DIGESTS)
def test_the_same_bytes_as_those_of_the_first_transcoder(name: str) -> None:
    """The first transcoder was written in Python; the digests are of its output."""
    data = (GOLDEN / f"{name}.jpg").read_bytes()
    tiled = transcode(data)
    assert hashlib.sha256(tiled).hexdigest() == DIGESTS[name]
    assert np.array_equal(pillow_pixels(tiled), pillow_pixels(data))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_what_is_written(subsampling: str, variant: str) -> None:
    """Check the segments and the scan against the section "Tiled JPEG" of `formats.md`."""
    tiled = transcode(jpeg(subsampling, variant, (129, 291)) + b"rest")
    header = next(end for marker, _, end in jpeg_segments(tiled) if marker == 0xE9)
    payload = dict(segments(tiled))[0xE9]
    name, version, entry, columns, group, frame, length, checksum = struct.unpack_from(">6sBBHHHHI", payload)
    assert (name, version, entry) == (b"TILES\0", 2, 2)
    scan = header + length
    assert zlib.crc32(payload[:16] + payload[20:] + tiled[header:scan]) == checksum
    assert tiled[header + frame : header + frame + 2] == b"\xff\xc0"
    core = [marker for marker, start, _ in jpeg_segments(tiled) if start >= header]
    assert core[0] == 0xDD
    assert core[-1] == 0xDA
    assert sorted(set(core[1:-1])) == [0xC0, 0xC4, 0xDB]
    blocks_across, blocks_down = FACTORS[subsampling]
    across, down = -(-291 // (8 * blocks_across)), -(-129 // (8 * blocks_down))
    assert int.from_bytes(tiled[header + 4 : header + 6], "big") * columns == across
    sizes = struct.unpack(f">{-(-down // group)}H", payload[20:])
    ends = list(itertools.accumulate(sizes, initial=scan))[1:]
    assert tiled[ends[-1] :] == b"rest"
    markers = [(found.end(), found[0]) for found in re.finditer(rb"\xff[^\0]", tiled[: ends[-1]][scan:])]
    expected = [b"\xff" + bytes([0xD0 + number % 8]) for number in range(columns * down - 1)]
    assert [marker for _, marker in markers] == [*expected, b"\xff\xd9"]
    row_ends = [scan + end for end, _ in markers[columns - 1 :: columns]]
    assert ends == [*row_ends[group - 1 : -1 : group], row_ends[-1]]


@settings(max_examples=40)
@given(jpegs(), st.data())
def test_any_part_has_the_pixels_of_the_whole(data: bytes, draw: st.DataObject) -> None:
    whole = pillow_pixels(data)
    assert whole is not None
    height, width = whole.shape[:2]
    top, left = draw.draw(st.integers(0, height - 1)), draw.draw(st.integers(0, width - 1))
    rectangle = top, left, draw.draw(st.integers(1, height - top)), draw.draw(st.integers(1, width - left))
    rectangles = pytest.importorskip("packer._images.rectangle", reason="needs torch")
    pixels = rectangles.RectangleDecoder().decode(transcode(data), rectangle, (height, width))
    assert np.array_equal(pixels, whole[top : top + rectangle[2], left : left + rectangle[3]])


def test_tiles_hold_so_many_bytes() -> None:
    """On average. The image is noise, so that all tiles have about the same size."""
    noise = np.random.default_rng(1).integers(0, 256, (64, 1920, 3), np.uint8)
    tiled = transcode(encoded(noise, "JPEG"))
    table = read_tiles(tiled)
    assert table is not None
    assert table.grid.columns > 4
    assert 400 <= (len(tiled) - table.scan) / (table.grid.columns * table.grid.rows) <= 1380


@needs_jpegtran
@given(jpegs(300))
def test_codes_are_as_short_as_jpegtrans(data: bytes) -> None:
    """jpegtran writes restart markers at the same interval."""
    tiled = transcode(data)
    scan = tiled[tiled.rindex(b"\xff\xda") :]
    interval = struct.unpack(">H", dict(segments(tiled))[0xDD])[0]
    other = run("jpegtran", "-optimize", "-copy", "none", "-restart", f"{interval}B", data=data)
    assert len(scan) == len(other[other.rindex(b"\xff\xda") :])


def scripted(script: str, tmp_path: Path, data: bytes) -> bytes:
    (tmp_path / "script").write_text(script)
    return run("jpegtran", "-scans", str(tmp_path / "script"), data=data)


SCRIPTS = {
    "one component a scan": "0; 1; 2;",
    "another order": "2; 0; 1;",
    "luma, then chroma": "0; 1 2;",
    "no successive approximation": "0 1 2: 0 0 0 0; 0: 1 63 0 0; 1: 1 63 0 0; 2: 1 63 0 0;",
    "many bits": "0 1 2: 0 0 0 3; 0 1 2: 0 0 3 2; 0 1: 0 0 2 1; 2: 0 0 2 1; 0 1 2: 0 0 1 0;"
    + "".join(
        f"{i}: 1 5 0 3; {i}: 6 63 0 3;" + "".join(f"{i}: 1 63 {b} {b - 1};" for b in (3, 2, 1)) for i in range(3)
    ),
}


@needs_jpegtran
@pytest.mark.parametrize("restarts", ["baseline", "restarts"])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS[:-1])
@pytest.mark.parametrize("script", SCRIPTS)
def test_scans_of_all_kinds(script: str, subsampling: str, restarts: str, tmp_path: Path) -> None:
    check(scripted(SCRIPTS[script], tmp_path, jpeg(subsampling, restarts, (37, 53))))


@needs_cjpeg
@pytest.mark.parametrize("sampling", ["2x2,2x1,1x2", "1x1,2x2,1x1", "2x2,1x1,2x2", "4x2,1x1,1x1", "3x1,1x1,1x1"])
@pytest.mark.parametrize("options", [[], ["-progressive"], ["-restart", "2B"]])
def test_unusual_sampling_factors(sampling: str, options: list[str]) -> None:
    source = encoded(photo(75, 101), "PPM")
    data = run("cjpeg", "-sample", sampling, *options, data=source)
    if pillow_pixels(data) is not None:  # libjpeg writes factors that it does not read
        check(data)


def test_sixteen_bit_quantisation() -> None:
    """Baseline frames must not have it, so a progressive frame becomes extended; an invalid baseline frame stays."""
    table = segment(0xDB, b"\x10" + struct.pack(">64H", *range(300, 364)))
    for variant, process in (("baseline", 0xC0), ("progressive", 0xC1)):
        data = jpeg("grey", variant)
        at = data.index(b"\xff\xdb")
        tiled = transcode(data[:at] + table + data[at + 69 :])
        assert np.array_equal(pillow_pixels(tiled), pillow_pixels(data[:at] + table + data[at + 69 :]))
        assert process in [marker for marker, _ in segments(tiled)]


def test_photos(shared_data: Path, sweep: int) -> None:
    """Every eighth photo is transcoded, or all with --faults. In total they grow by at most 0.5 %."""
    before = after = 0
    for path in sorted((shared_data / "imagenet-sample").rglob("*.JPEG"))[:: 8 if sweep == 1 else 1]:
        data = path.read_bytes()
        before += len(data)
        after += len(check(data))
    assert after <= 1.005 * before


def test_odd_images(shared_data: Path) -> None:
    """Accepted images have Pillow's pixels; others raise NotTileableError."""
    accepted = 0
    for path in sorted((shared_data / "odd").rglob("*")):
        if path.is_file():
            accepted += accept_or_refuse(path.read_bytes())
    assert accepted > 20


def accept_or_refuse(data: bytes) -> bool:
    """Tell whether the image is accepted, and require Pillow's pixels if so."""
    try:
        tiled = transcode(data)
    except NotTileableError:
        return False
    expected = pillow_pixels(data)
    assert expected is not None
    assert np.array_equal(expected, pillow_pixels(tiled))
    return True


def test_metadata_stay() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif, "icc_profile": bytes(range(256)) * 300, "comment": b"said", "dpi": (72, 300)}
    data = encoded(photo(48, 64), "JPEG", progressive=True, **options)
    assert len(metadata(data)) >= 4
    tiled = check(data)
    with Image.open(io.BytesIO(data)) as before, Image.open(io.BytesIO(tiled)) as after:
        assert before.info.keys() - {"progressive", "progression"} == after.info.keys()
        assert before.info["icc_profile"] == after.info["icc_profile"]
        assert before.getexif() == after.getexif()


@pytest.mark.parametrize("progressive", [False, True])
def test_colour_spaces_stay(progressive: bool) -> None:
    """Adobe's segment says that the components are red, green and blue."""
    data = encoded(photo(48, 64), "JPEG", keep_rgb=True, progressive=progressive)
    assert b"Adobe" in check(data)


def test_what_follows_the_image_stays() -> None:
    assert check(jpeg() + b"more").endswith(b"\xff\xd9more")


def test_fill_bytes() -> None:
    data = jpeg(variant="restarts")
    filled = data.replace(b"\xff\xdb", b"\xff\xff\xff\xdb").replace(b"\xff\xd1", b"\xff\xff\xd1")
    assert transcode(filled[:-2] + b"\xff\xff\xff\xd9") == transcode(data)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer(kind: type) -> None:
    assert transcode(kind(jpeg())) == transcode(jpeg())


def test_the_same_on_many_threads() -> None:
    data = [jpeg(subsampling, variant) for subsampling in SUBSAMPLINGS for variant in VARIANTS]
    expected = [transcode(each) for each in data]
    found: list[list[bytes]] = []
    threads = [threading.Thread(target=lambda: found.append([transcode(each) for each in data])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def with_marker(before: int, after: int, data: bytes) -> bytes:
    return data.replace(bytes([0xFF, before]), bytes([0xFF, after]), 1)


def with_size(data: bytes, height: int, width: int) -> bytes:
    at = data.index(b"\xff\xc0" if b"\xff\xc0" in data else b"\xff\xc2") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def before_scan(data: bytes, inserted: bytes) -> bytes:
    at = data.index(b"\xff\xda")
    return data[:at] + inserted + data[at:]


def without_last_scan(data: bytes) -> bytes:
    return data[: data.rindex(b"\xff\xda")] + b"\xff\xd9"


def mpo() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(photo(48, 64)).save(stream, "MPO", save_all=True, append_images=[Image.fromarray(photo(37, 53))])
    return stream.getvalue()


def many_scans() -> bytes:
    """Return three blocks in as many scans as there can be: one for each bit of each coefficient, all of them zero."""
    tables = segment(0xC4, b"".join(bytes([kind, 1, *bytes(15), 0]) for kind in (0x00, 0x10)))
    frame = segment(0xC2, struct.pack(">BHHB", 8, 8, 8, 3) + b"".join(bytes([i, 0x11, 0]) for i in range(3)))
    scans = [bytes([3, 0, 0, 1, 0, 2, 0, 0, 0, 0]) + b"\x1f"]
    for component in range(3):
        for coefficient in range(1, 64):
            for bits in (0x0D, *(b << 4 | b - 1 for b in range(13, 0, -1))):
                scans.append(bytes([1, component, 0, coefficient, coefficient, bits]) + b"\x7f")
    body = b"".join(segment(0xDA, scan[:-1]) + scan[-1:] for scan in scans)
    return b"\xff\xd8" + segment(0xDB, b"\0" + bytes([1] * 64)) + frame + tables + body + b"\xff\xd9"


def with_runs(first: str, later: str, restart: int = 0) -> bytes:
    """Return a JPEG of four grey blocks in a row, whose two AC scans have only end-of-band runs.

    `first` and `later` are the bits of these scans, or of one restart interval: 0 and two bits are a run of 4 to 7
    blocks, 10 and one bit are a run of 2 or 3 blocks.
    """

    def scan(header: bytes, bits: str) -> bytes:
        data = int(bits.ljust(8, "1"), 2).to_bytes(1, "big")
        return segment(0xDA, header) + (data + b"\xff\xd0" + data if restart else data)

    tables = segment(0xC4, bytes([0x00, 1, *bytes(15), 0]) + bytes([0x10, 1, 1, *bytes(14), 0x20, 0x10]))
    frame = segment(0xC2, struct.pack(">BHHB", 8, 8, 32, 1) + bytes([1, 0x11, 0]))
    scans = scan(bytes([1, 1, 0, 0, 0, 0]), "0" * (restart or 4))
    scans += scan(bytes([1, 1, 0, 1, 63, 0x01]), first) + scan(bytes([1, 1, 0, 1, 63, 0x10]), later)
    interval = segment(0xDD, struct.pack(">H", restart)) if restart else b""
    return b"\xff\xd8" + segment(0xDB, b"\0" + bytes([1] * 64)) + frame + tables + interval + scans + b"\xff\xd9"


@pytest.mark.parametrize(
    ("first", "later", "restart"), [("000", "000", 0), ("100", "100", 2), ("100100", "000", 0), ("000", "100100", 0)]
)
def test_runs_of_blocks_without_coefficients(first: str, later: str, restart: int) -> None:
    check(with_runs(first, later, restart))


@pytest.mark.parametrize(
    ("first", "later", "restart"),
    [
        *(("001", "000", 0), ("011", "000", 0), ("000", "001", 0), ("000", "100101", 0)),
        *(("101", "100", 2), ("100", "101", 2), ("000", "100", 2), ("100", "000", 2)),
    ],
)
def test_a_run_of_blocks_that_goes_beyond_its_end_is_damage(first: str, later: str, restart: int) -> None:
    """The decoder refuses it, too. A tiled JPEG would no longer show that the file was damaged."""
    data = with_runs(first, later, restart)
    with pytest.raises(NotTileableError, match="data left over"):
        transcode(data)
    assert native.decode(data, 8, 32) is None


REFUSED = {
    "empty": (b"", "not a JPEG"),
    "other": (encoded(photo(8, 8), "PNG"), "not a JPEG"),
    "cmyk": (encoded(Image.fromarray(photo(8, 8)).convert("CMYK"), "JPEG"), "CMYK"),
    "lossless": (with_marker(0xC0, 0xC3, jpeg()), "lossless"),
    "arithmetic": (with_marker(0xC0, 0xC9, jpeg()), "arithmetic"),
    "hierarchical": (with_marker(0xC0, 0xC5, jpeg()), "hierarchical"),
    "12 bits": (jpeg().replace(b"\xff\xc0\x00\x11\x08", b"\xff\xc1\x00\x11\x0c"), "12-bit"),
    "no height": (with_size(jpeg(), 0, 64), "height"),
    "too high": (with_size(jpeg(), 65_501, 64), "out of range"),
    "DNL": (jpeg()[:-2] + segment(0xDC, b"\0\x30") + b"\xff\xd9", "height"),
    "giant": (with_size(jpeg(), 65_500, 65_500), "too many pixels"),
    "wide": (with_size(jpeg(), 2_000, 65_500), "too early"),
    "giant, progressive": (with_size(jpeg(variant="progressive"), 10_000, 10_000), "too early"),
    "giant, restarts": (with_size(jpeg(variant="restarts"), 10_000, 10_000), "too early"),
    "larger": (with_size(jpeg(), 56, 72), "damaged"),
    "smaller": (with_size(jpeg(), 32, 64), "data left over"),
    "a second frame": (
        before_scan(jpeg(), segment(0xC0, jpeg()[jpeg().index(b"\xff\xc0") + 4 :][:15])),
        "second frame",
    ),
    "MPO": (mpo(), "MPO"),
    "no scan": (jpeg()[: jpeg().index(b"\xff\xda")] + b"\xff\xd9", "no scan"),
    "no end": (jpeg()[:-2], "no end"),
    "no Huffman tables": (with_marker(0xC4, 0xFE, jpeg()), "missing Huffman"),
    "no quantisation table": (with_marker(0xDB, 0xFE, jpeg()), "missing quantisation"),
    "scans missing": (without_last_scan(jpeg(variant="progressive")), "scans are missing"),
    "a scan twice": (
        jpeg(variant="progressive")[:-2]
        + jpeg(variant="progressive")[jpeg(variant="progressive").rindex(b"\xff\xda") :],
        "follow from",
    ),
    "a sequential scan twice": (jpeg()[:-2] + jpeg()[jpeg().index(b"\xff\xda") :], "two sequential"),
    "metadata late": (jpeg()[:-2] + segment(0xFE, b"said") + b"\xff\xd9", "metadata"),
    "junk before a marker": (before_scan(jpeg(), b"junk"), "between its segments"),
    "1000 scans": (many_scans(), "more than 1000"),
    "a table of all codes": (before_scan(jpeg(), segment(0xC4, bytes([0x00, 2, *bytes(15), 0, 1]))), "invalid Huffman"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, reason = REFUSED[name]
    with pytest.raises(NotTileableError, match=reason):
        transcode(data)


@pytest.mark.parametrize("variant", VARIANTS)
def test_cut_anywhere(variant: str) -> None:
    data = jpeg(variant=variant)
    for length in range(len(data)):
        with pytest.raises(NotTileableError):
            transcode(data[:length])


def test_a_tiled_jpeg_with_an_orientation_is_transcoded_to_itself() -> None:
    tiled = check(oriented(photo(48, 64), 6))
    assert check(tiled) == tiled


@given(
    st.tuples(st.sampled_from(SUBSAMPLINGS), st.sampled_from(sorted(VARIANTS))).flatmap(lambda k: damaged(jpeg(*k))),
)
def test_damaged_is_refused_or_means_the_same(data: bytes) -> None:
    accept_or_refuse(data)


def fuzz(seed: int, rounds: int) -> int:
    """Damage JPEGs, in their scans above all, and transcode them; return how many were accepted."""
    rng = random.Random(seed)
    whole = [jpeg(s, v, size) for s in SUBSAMPLINGS for v in VARIANTS for size in ((48, 64), (100, 131))]
    accepted = 0
    for _ in range(rounds):
        data = bytearray(rng.choice(whole))
        scan = data.index(b"\xff\xda")
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(rng.choice((2, scan, scan)), len(data))
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    data[at] = rng.randrange(256)
                case 2:
                    data[at] = 0xFF
                case 3 if at + 10 < len(data):
                    del data[at : at + rng.randrange(1, 4)]
        accepted += accept_or_refuse(bytes(data))
    return accepted


def test_thousands_of_damaged_images_are_refused_or_mean_the_same() -> None:
    assert 0 < fuzz(1, 4000) < 4000


def test_a_great_many_segments() -> None:
    """The time must be linear in their number: the test would time out if it were quadratic."""
    comments = segment(0xFE, b"") * 300_000
    assert transcode(jpeg()[:2] + comments + jpeg()[2:]).startswith(b"\xff\xd8" + comments)
