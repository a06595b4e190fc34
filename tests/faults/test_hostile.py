"""Packs and images made to harm: refused before memory is allocated, a file is written or code is run."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import packer
from fuzz.sections import sealed_manifest
from packer._cli import EXIT_STATUS
from packer._datasets.open import open_dataset
from packer._formats import open_pack
from packer._formats.parts import join_parts
from packer._images.decode import decode
from packer._images.jpeg import segments
from packer._images.probe import inspect
from packer._images.rectangle import RectangleDecoder
from packer._packs.export import export
from packer._packs.verify import verify
from packer._table import Sample, checksum
from packer.crops import Compose, RandomResizedCrop, Resize, ResizeCenterCrop
from packer.errors import CorruptPackError, ImageTooLargeError, PackerError
from tests.command import packer_many, python
from tests.memory import PEAK
from tests.pairs import pairwise
from tests.samples import SUFFIXES, solid, write_pack
from tests.syntax import dotted, parsed

formats = pytest.mark.parametrize("format", SUFFIXES)

ROOT = Path(packer.__file__).parents[1]


# No code is run.

OWN_PICKLES = {
    "packs.py",  # a test of pickling readers
    "containers.py",  # a test of pickling containers
    "processes.py",  # messages between the processes of one Loader, through pipes that no other process has
}
FORBIDDEN = {
    "eval", "exec", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open",
    "yaml.load", "np.load", "numpy.load", "os.system",
}  # fmt: skip


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [(dotted(node.func), node) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]


def keywords(call: ast.Call) -> dict[str | None, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}


def test_nothing_in_the_sources_runs_code_of_a_file() -> None:
    files = [*(ROOT / "packer").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    seen = 0
    for path in files:
        for name, call in calls(path):
            seen += 1
            if name in ("np.load", "numpy.load"):
                assert keywords(call).get("allow_pickle") == "False", path
            elif name == "torch.load":
                assert keywords(call).get("weights_only") == "True", path
            elif path.name not in OWN_PICKLES:
                assert name not in FORBIDDEN, path
    assert seen > 1000


class Canary:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self._path), "w")


def poisoned(path: Path, format: str, poison: bytes) -> None:
    """Put a pickle into every place where a reader might look for one."""
    if format == "pth":
        for file in path.glob("*.pth"):
            with zipfile.ZipFile(file) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name, data in members.items():
                    archive.writestr(name, poison if name.endswith(".pkl") else data)
            (path / "data.pkl").write_bytes(poison)
    elif format == "hdf5":
        with h5py.File(path, "r+") as file:
            file.attrs["pickle"] = np.void(poison)
            file["data"].attrs["object"] = np.void(poison)
            file.create_dataset("pickled", data=np.frombuffer(poison, np.uint8))
    else:
        with open(path, "ab") as file:
            file.write(poison)


@formats
def test_a_pickle_is_bytes(tmp_path: Path, format: str) -> None:
    canary = tmp_path / "canary"
    poison = pickle.dumps((Canary(canary), ["ByteStorage", "IntStorage", "LongStorage"]))  # as a table names them
    path = write_pack(
        tmp_path / f"pack{SUFFIXES[format]}",
        format,
        [Sample("a/pickle.pkl", 0, poison, 1, 1), Sample(f"a/{poison[:20].hex()}", 1, poison * 300, 1, 1)],
        settings={"pickle": poison.hex()},
    )
    poisoned(path, format, poison)
    with open_pack(path) as reader:
        assert bytes(reader.read(0)) == poison
    assert open_dataset(path, output="bytes")[1] == (poison * 300, 1)
    with pytest.raises(PackerError):
        open_dataset(path)[0]
    verify(path)
    export(path, tmp_path / "out")
    assert (tmp_path / "out" / "a" / "pickle.pkl").read_bytes() == poison
    packer_many([["info", path], ["verify", path]])
    assert not canary.exists()
    pickle.loads(poison)[0].close()
    assert canary.exists()  # the canary works


# Tables that lead elsewhere.

LARGE = 10**9


@formats
def test_a_billion_rows(tmp_path: Path, format: str) -> None:
    """The header of a column claims a billion; there are three."""
    path = write_pack(tmp_path / f"pack{SUFFIXES[format]}", format, [Sample(f"a/{n}", 0, b"x", 1, 1) for n in range(3)])
    claimed = 0
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        data = file.read_bytes()
        for size, dtype in [(24, "<u4"), (24, "<u8"), (12, "<u4"), (3, "<u8")]:
            old, new = (np.array([number], "<u8").tobytes()[: int(dtype[-1])] for number in (size, size * LARGE))
            at = data.find(old)
            while at >= 0:
                file.write_bytes(data[:at] + new + data[at + len(old) :])
                claimed += 1
                require_intact_or_refused(path)
                at = data.find(old, at + 1)
        file.write_bytes(data)
    assert claimed > 3
    assert verify(path) == []


def require_intact_or_refused(path: Path) -> None:
    with contextlib.suppress(CorruptPackError), open_pack(path) as reader:
        for index in range(3):
            assert bytes(reader.read(index)) == b"x"


ROWS = [
    {"offset": 2**62},
    {"offset": -1},
    {"size": -1},
    {"size": 2**62},
    {"offset": 2**63 - 1, "size": 2**63 - 1},
    {"size": 100},
    {},  # the offset of the row before
]


@formats
@pytest.mark.parametrize("row", ROWS)
def test_rows_that_lead_elsewhere_are_not_exported(tmp_path: Path, format: str, row: dict[str, int]) -> None:
    """Rows that overlap are not exported either: a file of a megabyte could become a terabyte."""

    def change(index: int, values: dict[str, Any]) -> None:
        if index == 0:
            first.update(values)
        if index == 1:
            values.update(row or {"offset": first["offset"]})

    first: dict[str, Any] = {}
    samples = [Sample(f"a/{name}", 0, b"data%d" % number * 5, 1, 1) for number, name in enumerate("xyz")]
    path = write_pack(tmp_path / f"pack{SUFFIXES[format]}", format, samples, change=change)
    with pytest.raises(CorruptPackError) as caught:
        export(path, tmp_path / "out")
    assert caught.value.index is not None
    assert not (tmp_path / "out").exists()
    assert verify(path) != []


@pairwise(
    format=SUFFIXES,
    codec=["png", "raw"],
    crop=[None, RandomResizedCrop(8, flip=0.5), ResizeCenterCrop(8, 9), Resize((8, 8)), Compose([])],
    size=[{"height": 0}, {"width": 0}, {"height": 0, "width": 0}, {"width": -3}],
)
def test_images_without_pixels(tmp_path: Path, format: str, codec: str, crop: Any, size: dict[str, int]) -> None:
    """The table has sizes of 0 or less with valid checksums, as anyone can write them."""
    stream = io.BytesIO()
    Image.new("RGB", (4, 3), (1, 2, 3)).save(stream, "PNG")
    data = stream.getvalue() if codec == "png" else b"\1\2\3" * 12
    samples = [Sample("a/good", 0, data, 3, 4), replace(Sample("a/bad", 0, data, 3, 4), **size)]
    path = write_pack(tmp_path / f"pack{SUFFIXES[format]}", format, samples, codec=codec)
    dataset = open_dataset(path, crop=crop)
    assert dataset[0][0][:, 0, 0].tolist() == [1, 2, 3]
    if codec == "png" and crop is None:  # only the image determines the size
        assert dataset[1][0].shape == (3, 3, 4)
        return
    for read in (lambda: dataset[1], lambda: dataset.__getitems__([0, 1, 0])):
        with pytest.raises(CorruptPackError, match=r"sample 1 \(a/bad\): its row in the table says") as caught:
            read()
        assert caught.value.index == 1


MEASURED = f"""{PEAK}
import sys
from packer._images.probe import inspect
from packer._images.decode import decode
from packer.errors import ImageTooLargeError
small = open(sys.argv[1], "rb").read()
inspect(small), decode(small)
before = peak()
for path in sys.argv[2:]:
    data = open(path, "rb").read()
    for look in (inspect, decode):
        try:
            look(data)
        except ImageTooLargeError as error:
            assert "pixels" in str(error)
        else:
            raise AssertionError(path)
grown = peak() - before
assert grown < 50 << 20, grown
"""


def scanned(image: Image.Image, times: int) -> bytes:
    """Encode progressively, and repeat the last scan."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    last = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + last * times + b"\xff\xd9"


def test_images_that_would_take_hours(tmp_path: Path) -> None:
    """Many passes over many pixels are as bad as many pixels: less than 300 kB make 4006 passes.

    They are refused before anything is decoded, which would take 100 MB of memory.
    """
    bomb = scanned(Image.new("L", (5000, 4000), 128), 4000)
    assert len(bomb) < 300_000
    (tmp_path / "bomb.jpg").write_bytes(bomb)
    Image.new("L", (40, 32), 128).save(tmp_path / "small.jpg")
    for look in (inspect, decode):
        with pytest.raises(ImageTooLargeError, match="4006 passes over 5000 x 4000 pixels"):
            look(bomb)
    pytest.importorskip("resource", reason="needs getrusage, which Windows has not")
    line = [sys.executable, "-c", MEASURED, tmp_path / "small.jpg", tmp_path / "bomb.jpg"]
    subprocess.run(line, check=True)
    hundreds = scanned(Image.new("L", (40, 32), 128), 300)
    assert inspect(hundreds).width == 40
    assert np.array_equal(decode(hundreds), np.asarray(Image.open(io.BytesIO(hundreds)).convert("RGB")))


def one_at_a_time(side: int, times: int) -> bytes:
    """Return a sequential JPEG that has a scan of each component, without data, many times."""
    stream = io.BytesIO()
    Image.new("RGB", (side, side)).save(stream, "JPEG", subsampling=0)
    data = stream.getvalue()
    header = b"".join(data[start:end] for marker, start, end in segments(data) if marker != 0xDA)
    scans = b"".join(
        b"\xff\xda\0\x08\x01" + bytes([component, tables, 0, 63, 0])
        for component, tables in [(1, 0), (2, 0x11), (3, 0x11)]
    )
    return b"\xff\xd8" + header + scans * times + b"\xff\xd9"


@pytest.mark.parametrize(
    "bomb", [scanned(Image.new("L", (1000, 1000)), 3000), one_at_a_time(1000, 1000)], ids=["progressive", "sequential"]
)
def test_crops_of_images_that_would_take_hours(bomb: bytes) -> None:
    assert len(bomb) < 100_000
    for look in (inspect, decode, lambda data: RectangleDecoder().decode(data, (0, 0, 9, 9), (1000, 1000))):
        with pytest.raises(ImageTooLargeError, match=r"300\d passes over 1000 x 1000 pixels"):
            look(bomb)
    few = one_at_a_time(40, 3)
    pixels = RectangleDecoder().decode(few, (0, 0, 9, 9), (40, 40))
    assert np.array_equal(pixels, decode(few)[:9, :9])


# Terminals.

ESCAPE = "\x1b[2J\x1b]0;title\x07\r\u202e"


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names of any bytes")
def test_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    root = tmp_path / f"root{ESCAPE}"
    folder = root / f"class{ESCAPE}"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / f"x{ESCAPE}.png")
    (folder / f"bad{ESCAPE}.png").write_text("bad")
    (root / f"outside{ESCAPE}.png").touch()
    (root / f"empty{ESCAPE}").mkdir()
    pack = tmp_path / f"pack{ESCAPE}.lmdb"
    damaged = write_pack(
        tmp_path / f"damaged{ESCAPE}.h5",
        "hdf5",
        [Sample(f"../{ESCAPE}", 0, b"x", 1, 1)],
        classes=[ESCAPE],
        skipped=[{"name": ESCAPE, "reason": ESCAPE}],
        findings={ESCAPE: 3},
        versions={ESCAPE: ESCAPE},
        settings={ESCAPE: ESCAPE},
    )
    other = tmp_path / "other.lmdb"
    results = packer_many(
        [
            ["convert", root, pack, "--allow-empty"],
            ["convert", root, pack, "--allow-empty", "--on-error", "skip"],
            ["convert", root, pack, "--allow-empty"],
            ["convert", root, tmp_path / f"missing{ESCAPE}" / "x.lmdb"],
            ["convert", tmp_path / f"missing{ESCAPE}", other],
            ["convert", root, other, "--classes-from", damaged],
            ["convert", root, other, "--labels", tmp_path / f"missing{ESCAPE}.csv"],
            ["info", pack],
            ["info", pack, "--json"],
            ["info", damaged, "--classes"],
            ["verify", pack],
            ["verify", damaged],
            ["verify", damaged, "--repair", root],
            ["export", damaged, tmp_path / f"out{ESCAPE}"],
            ["export", pack, tmp_path / f"out{ESCAPE}"],
            ["export", pack, tmp_path / f"out{ESCAPE}"],
            ["warm", tmp_path / f"missing{ESCAPE}.lmdb"],
        ]
    )
    for result in results:
        assert result.stdout + result.stderr
        for line in (result.stdout + result.stderr).split("\n"):
            assert line.isprintable(), (result.args, line)
        assert "Traceback" not in result.stderr
    assert json.loads(results[8].stdout)["skipped"][0]["name"].endswith(f"bad{ESCAPE}.png")
    assert os.path.exists(pack)


@pytest.mark.parametrize("format", ["lmdb", "hdf5"])
@pytest.mark.parametrize("parts", [5, None, "many", {}])
def test_parts_that_are_no_list(tmp_path: Path, format: str, parts: object) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    write_pack(path, format, [Sample("a/x", 0, b"x", 1, 1)], layout={"parts": parts})
    results = packer_many([["info", path], ["merge", "--finish", path], ["convert", path, path]])
    assert results[0].returncode == 0
    assert not [result.stderr for result in results if "Traceback" in result.stderr]


@formats
def test_what_a_manifest_says_does_not_steer_the_terminal(tmp_path: Path, format: str) -> None:
    """Neither entries that a command copies into another pack, nor values that an error quotes."""
    samples = [Sample("a/x", 0, b"x", 1, 1)]
    pack = write_pack(tmp_path / "pack", format, samples, findings={ESCAPE: 3}, versions={ESCAPE: ESCAPE})
    odd = write_pack(tmp_path / "odd.pth", "pth", samples)
    manifest = json.loads((odd / "manifest.json").read_bytes())
    del manifest["crc32c"]
    manifest["schema"] = ESCAPE
    (odd / "manifest.json").write_bytes(sealed_manifest(json.dumps(manifest, separators=(",", ":")).encode()[:-1]))
    other = write_pack(tmp_path / "other", format, [Sample("a/y", 0, b"y", 1, 1)])
    turned = write_pack(tmp_path / "turned", format, [Sample("a/z", 0, b"z", 1, 1)], settings={"exif": ESCAPE})
    results = packer_many(
        [
            ["convert", pack, tmp_path / "again.lmdb"],
            ["merge", pack, other, tmp_path / "both.h5"],
            ["info", odd],
            ["merge", other, turned, tmp_path / "neither.h5"],
        ]
    )
    assert [result.returncode for result in results] == [0, 0, 4, 1]
    for result in results:
        for line in (result.stdout + result.stderr).split("\n"):
            assert line.isprintable(), (result.args, line)
    assert all("3 x \\x1b" in result.stdout for result in results[:2])
    with pytest.raises(CorruptPackError) as caught:
        open_pack(odd)
    assert str(caught.value).isprintable()


def test_a_format_that_nobody_knows_is_refused_in_one_line(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    write_pack(pack / "part.lmdb", "lmdb", [Sample("a/x", 0, b"x", 1, 1)])
    join_parts(pack, ["part.lmdb"], {})
    manifest = json.loads((pack / "manifest.json").read_bytes())
    del manifest["crc32c"]
    text = json.dumps({**manifest, "format": ESCAPE}, separators=(",", ":")).encode()
    (pack / "manifest.json").write_bytes(sealed_manifest(text[:-1]))
    (result,) = packer_many([["merge", "--finish", pack]])
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (4, "", 1)
    assert result.stderr[:-1].isprintable()
    with pytest.raises(CorruptPackError, match="format"):
        open_dataset(pack)


# All of it together.


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_forged_packs_are_refused_or_read(sweep: int) -> None:
    """A short run of ``python -m fuzz.forged``: any format and any command, except ``convert --tiles``."""
    code = "import sys; from fuzz.forged import main; sys.exit(main(sys.argv[1:]))"
    words = ("--seed", 2, "--count", 30 * sweep, "--without", "convert --tiles")
    result = python(code, *words, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@formats
def test_samples_that_share_their_bytes_are_converted_once(tmp_path: Path, format: str) -> None:
    """Otherwise a pack of a megabyte could become one that fills the disk, even if samples may be skipped."""

    def change(index: int, row: dict[str, Any]) -> None:
        row["offset"] = rows.setdefault(0, row)["offset"]
        row["crc32c"] = checksum(image, 0, 6, 8, row["name"])

    rows: dict[int, dict[str, Any]] = {}
    image = solid(tmp_path / "a.png").read_bytes()
    samples = [Sample(f"a/{number}.png", 0, image, 6, 8) for number in range(9)]
    bomb = write_pack(tmp_path / f"bomb{SUFFIXES[format]}", format, samples, change=change)
    other = write_pack(tmp_path / "other.h5", "hdf5", [Sample("b/x.png", 1, image, 6, 8)])
    made, merged = tmp_path / "made.lmdb", tmp_path / "merged.lmdb"
    refused, skipped, merge = packer_many(
        [
            ["convert", bomb, made],
            ["convert", bomb, made, "--fresh", "--on-error", "skip"],
            ["merge", other, bomb, merged],
        ]
    )
    for result in (refused, merge):
        assert result.returncode == EXIT_STATUS["corrupt"]
        assert "its bytes overlap another sample's" in result.stderr
    assert skipped.returncode == EXIT_STATUS["skipped"], skipped.stderr
    with open_pack(made) as reader:
        assert list(reader.names) == ["a/0.png"]
