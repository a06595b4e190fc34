"""Images that start programs: Pillow would start Ghostscript for EPS; packer never lets it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import packer
from packer._datasets.open import open_dataset
from packer._images import pillow
from packer._images.decode import decode, installed_decoders
from packer._images.probe import inspect
from packer._loader.loader import Loader
from packer._table import Sample
from packer.crops import RandomResizedCrop
from packer.errors import ImageError
from tests.command import packer_many
from tests.images.samples import encoded, jpeg, photo
from tests.samples import write_pack

DOS_EPS = b"\xc5\xd0\xd3\xc6\x1e\0\0\0"  # the header of an EPS image with previews for Windows
REFUSED = "EPS is not among the formats that packer opens: it would start Ghostscript"


def eps() -> bytes:
    """Return an EPS image as Pillow writes it."""
    stream = io.BytesIO()
    Image.fromarray(photo(9, 12)).save(stream, "EPS")
    return stream.getvalue()


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in Ghostscript's place that writes this file."""
    if os.name == "nt":
        pytest.skip("the stand-in is a shell script")
    path = tmp_path / "it-ran"
    program = tmp_path / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho ran > {path}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # Pillow looks for it once only
    return path


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Return a pack whose second sample is EPS, whatever its name says."""
    samples = [Sample("a/one.jpg", 0, jpeg(size=(9, 12)), 9, 12), Sample("b/two.jpg", 1, eps(), 9, 12)]
    return write_pack(tmp_path / "pack.lmdb", "lmdb", samples)


def test_pillow_alone_runs_the_stand_in(canary: Path) -> None:
    """Check what the tests below assume."""
    with contextlib.suppress(Exception):  # the stand-in makes no image
        Image.open(io.BytesIO(eps())).load()
    assert canary.exists()


@pytest.mark.parametrize("data", [eps(), DOS_EPS + bytes(100)], ids=["EPS", "DOS EPS"])
def test_eps_is_refused_by_its_name(canary: Path, data: bytes) -> None:
    for read in (
        inspect,
        decode,
        *(lambda data, name=name: decode(data, decoder=name) for name in installed_decoders()),
    ):
        with pytest.raises(ImageError, match=REFUSED):
            read(data)
    assert not canary.exists()


@pytest.mark.parametrize("decoder", ["auto", *installed_decoders()])
def test_reading_a_sample_starts_no_program(canary: Path, pack: Path, decoder: str) -> None:
    whole = open_dataset(pack, decoder=decoder)
    cropped = open_dataset(pack, decoder=decoder, crop=RandomResizedCrop(8, flip=0.5))
    for read in (
        lambda: whole[1],
        lambda: whole.__getitems__([0, 1]),
        lambda: whole.read_region(1, 0, 0, 3, 3),
        lambda: cropped[1],
        lambda: list(Loader(cropped, 2, threads=2)),
    ):
        with pytest.raises(ImageError, match=rf"sample 1 \(b/two.jpg\): {REFUSED}"):
            read()
    assert not canary.exists()


def test_no_command_starts_a_program(canary: Path, pack: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name, data in [("a/one.jpg", jpeg(size=(9, 12))), ("b/two.jpg", eps())]:
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_bytes(data)
    damaged = shutil.copy(pack, tmp_path / "damaged.lmdb")
    content = damaged.read_bytes()
    at = content.index(b"%%BoundingBox")
    damaged.write_bytes(content[:at] + b"??" + content[at + 2 :])
    fails, skips, again, *others = packer_many(
        [
            ("convert", tree, tmp_path / "fails.lmdb"),
            ("convert", tree, tmp_path / "skips.lmdb", "--on-error", "skip"),
            ("convert", pack, tmp_path / "again.lmdb", "--resize", "8", "--on-error", "skip"),
            ("verify", pack),
            ("verify", damaged, "--repair", tree),
            ("export", pack, tmp_path / "exported"),
            ("info", pack),
        ]
    )
    assert fails.returncode == 1
    assert skips.returncode == again.returncode == 3
    for result in (fails, skips, again):
        assert f"b/two.jpg: {REFUSED}" in result.stdout + result.stderr
    assert not any("Traceback" in result.stderr for result in (fails, skips, again, *others))
    assert not canary.exists()


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("WMF", b"\xd7\xcd\xc6\x9a\0\0"),
        ("WMF", b"\x01\0\0\0" + bytes(36) + b" EMF"),
        ("PSD", b"8BPS\0\1"),
        ("FITS", b"SIMPLE  =                    T"),
        ("HDF5", b"\x89HDF\r\n\x1a\n"),
        ("PDF", b"%PDF-1.7"),
        ("HEIC", b"\0\0\0\x18ftypheic"),
        ("SVG", b"<svg xmlns="),
        ("JPEG XL", b"\xff\x0a\xfa\x1f"),
    ],
)
def test_what_is_refused_is_named(name: str, head: bytes) -> None:
    with pytest.raises(ImageError, match=f"{name} is not among the formats that packer opens"):
        decode(head + bytes(100))


def test_formats_that_start_programs_or_open_others_are_not_on_the_list() -> None:
    assert not {"EPS", "WMF", "PSD", "ICNS", "IPTC", "FITS", "GRIB", "BUFR", "HDF5", "MPEG"} & set(pillow.FORMATS)


@pytest.mark.parametrize("format", [name for name in pillow.FORMATS if name in Image.SAVE])
def test_every_format_of_the_list_is_read(format: str) -> None:
    data = encoded(photo(32, 48), format)
    with Image.open(io.BytesIO(data)) as image:
        assert (inspect(data).height, inspect(data).width) == (image.height, image.width)
        assert (decode(data) == np.asarray(image.convert("RGB"))).all()


def test_a_pillow_without_some_of_the_formats_reads_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pillow._installed.cache_clear()
    monkeypatch.delitem(Image.OPEN, "AVIF", raising=False)
    monkeypatch.delitem(Image.OPEN, "WEBP", raising=False)
    try:
        assert decode(encoded(photo(9, 12), "TIFF")).shape == (9, 12, 3)
        with pytest.raises(ImageError, match="not an image that Pillow can read"):
            decode(b"nothing" * 9)
    finally:
        pillow._installed.cache_clear()


def test_images_are_opened_in_one_place() -> None:
    """This call passes the list of formats; a call without it would open all formats."""
    calls = [
        (path.name, line)
        for path in Path(packer.__file__).parent.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"(?<![.\w])(Image\.open|ImageFile\.Parser|default_loader)\(", line)
    ]
    assert [name for name, _ in calls] == ["pillow.py"], calls
    assert "formats=" in calls[0][1]
