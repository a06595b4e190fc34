"""`packer convert --tiles`: the stored bytes, the counted findings, and the export."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from packer._conversion.convert import convert
from packer._conversion.partition import Partition
from packer._conversion.pipeline import prepare
from packer._conversion.recipe import Recipe
from packer._conversion.request import ConversionRequest
from packer._formats import open_pack
from packer._images.extension import _native
from packer._images.jpeg_tiles import read_tiles
from packer._images.resize import ResizeSpec
from packer._manifest import TILED
from packer._packs.export import export
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer.errors import SourceError
from tests.command import packer
from tests.conftest import odd_images
from tests.elsewhere import python_with
from tests.images.samples import SUBSAMPLINGS, VARIANTS, encoded, jpeg, photo, pillow_pixels
from tests.samples import SUFFIXES, content

needs_c = pytest.mark.skipif(_native is None, reason="needs a C compiler when packer is installed")
ODD = odd_images()


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, odd_tree: Path) -> Path:
    """All kinds of images: JPEGs that can be tiled, JPEGs that cannot, and others."""
    root = tmp_path_factory.mktemp("tiles") / "tree"
    shutil.copytree(odd_tree, root)
    (root / "jpegs").mkdir()
    for subsampling in SUBSAMPLINGS:
        for variant in VARIANTS:
            name = f"{subsampling.replace(':', '')}-{variant}.jpg"
            (root / "jpegs" / name).write_bytes(jpeg(subsampling, variant, (100, 131)))
    return root


@needs_c
@pytest.mark.parametrize("format", SUFFIXES)
def test_kept_jpegs_are_tiled_and_others_kept(tree: Path, tmp_path: Path, format: str) -> None:
    source = imagefolder_source(tree)
    summary = convert(source, tmp_path / f"x{SUFFIXES[format]}", recipe=Recipe(tiles=True))
    findings = summary.manifest.findings
    tiled = 0
    with open_pack(summary.destination) as reader:
        assert reader.manifest.settings["tiles"] is True
        for index, name in enumerate(source.names):
            before, after = (tree / name).read_bytes(), bytes(reader.read(index))
            if read_tiles(after) is None:
                assert after == before
            else:
                tiled += 1
                assert np.array_equal(pillow_pixels(before), pillow_pixels(after))
                assert reader.table.size[index] == len(after)
    assert tiled == findings[TILED] >= len(SUBSAMPLINGS) * len(VARIANTS)
    assert findings["not tiled: CMYK"] == 1
    assert findings["not tiled: PNG"] > 1
    counted = sum(number for finding, number in findings.items() if finding == TILED or "not tiled" in finding)
    assert counted == len(source)
    assert verify(summary.destination) == []


@pytest.mark.parametrize("codec", ["keep", "jpeg"])
def test_jpegs_keep_their_bytes_unless_asked(tree: Path, tmp_path: Path, codec: str) -> None:
    summary = convert(
        imagefolder_source(tree),
        tmp_path / "x.lmdb",
        recipe=Recipe(codec, to_8_bit=None if codec == "keep" else "clip"),
    )
    with open_pack(summary.destination) as reader:
        for index, name in enumerate(reader.table.sample_names()):
            data = bytes(reader.read(index))
            kept = data == (tree / name).read_bytes()
            assert kept or (codec == "jpeg" and read_tiles(data) is not None)  # encoded images are tiled
            if name.startswith("jpegs/"):
                assert kept


@pytest.mark.parametrize("resize", [None, ResizeSpec(40)])
@pytest.mark.parametrize("size", [(100, 131), (1, 1), (41, 900)])
def test_encoded_jpegs_have_the_pixels_that_they_have_without(size: tuple[int, int], resize: ResizeSpec | None) -> None:
    made, plain = (
        prepare(encoded(photo(*size), "PNG"), "c/x.png", Recipe("jpeg", resize, tiles=tiles)) for tiles in (True, False)
    )
    assert read_tiles(made.data) is not None
    assert read_tiles(plain.data) is None
    assert made.findings == (*plain.findings, TILED)
    assert np.array_equal(pillow_pixels(made.data), pillow_pixels(plain.data))


@needs_c
def test_jpegs_that_need_no_resizing_are_transcoded() -> None:
    made = prepare(jpeg(), "c/x.jpg", Recipe("jpeg", ResizeSpec(500), tiles=True))
    assert TILED in made.findings
    assert np.array_equal(pillow_pixels(made.data), pillow_pixels(jpeg()))


@needs_c
@pytest.mark.parametrize("name", ODD)
def test_checked_by_decoding(name: str) -> None:
    made = prepare(memoryview(ODD[name]), name, Recipe(audit="decode", tiles=True))
    assert any(finding == TILED or finding.startswith("not tiled: ") for finding in made.findings)
    assert np.array_equal(pillow_pixels(bytes(made.data)), pillow_pixels(ODD[name]))


@needs_c
@pytest.mark.parametrize("audit", ["structure", "decode"])
def test_a_check_that_fails_keeps_the_file(audit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._conversion.pipeline.transcode", lambda data: jpeg(variant="coarse"))
    made = prepare(jpeg(), "c/x.jpg", Recipe(audit=audit, tiles=True))
    assert (bytes(made.data), made.findings) == (jpeg(), ("not tiled: its pixels would change",))


@needs_c
def test_what_nobody_decodes_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._conversion.pipeline.transcode", lambda data: jpeg()[:200])
    made = prepare(jpeg(), "c/x.jpg", Recipe(tiles=True))
    assert (bytes(made.data), made.findings) == (jpeg(), ("not tiled: its pixels cannot be compared",))


@pytest.mark.parametrize("codec", ["png", "webp", "raw"])
def test_tiles_are_of_jpegs(codec: str) -> None:
    with pytest.raises(ValueError, match="applies only to JPEGs"):
        Recipe(codec, tiles=True)


@needs_c
def test_the_same_bytes_on_any_number_of_threads_and_after_an_interruption(tree: Path, tmp_path: Path) -> None:
    source = imagefolder_source(tree)
    expected = convert(source, tmp_path / "x.lmdb", recipe=Recipe(tiles=True), workers=1).manifest

    class StopError(Exception):
        pass

    def stop(progress: object) -> None:
        raise StopError

    with pytest.raises(StopError):
        convert(source, tmp_path / "y.lmdb", recipe=Recipe(tiles=True), progress=stop, workers=4)
    found = convert(source, tmp_path / "y.lmdb", recipe=Recipe(tiles=True), workers=4)
    assert found.continued > 0
    assert found.manifest == expected
    assert content(tmp_path / "x.lmdb") == content(tmp_path / "y.lmdb")


@needs_c
def test_what_the_commands_say(tree: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    result = packer("convert", tree, tmp_path / "x.lmdb", "--tiles", "--report", report)
    assert result.returncode == 0, result.stderr
    with open_pack(tmp_path / "x.lmdb") as reader:
        tiled, count = reader.manifest.findings[TILED], reader.manifest.count
    assert f"  {tiled} of {count} samples are tiled JPEGs\n" in result.stdout
    assert "1 x not tiled: CMYK\n" in result.stdout
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert not any(TILED in line["findings"] for line in lines)  # being tiled is not unusual
    assert {"not tiled: CMYK"} <= {finding for line in lines for finding in line["findings"]}
    info = packer("info", tmp_path / "x.lmdb").stdout
    assert f"{tiled / count:.1%} of the samples are tiled JPEGs" in info
    assert json.loads(packer("info", "--json", tmp_path / "x.lmdb").stdout)["tiled"] == tiled
    result = packer("export", tmp_path / "x.lmdb", tmp_path / "out")
    assert f"{tiled} of them are tiled JPEGs, with the pixels of the original files, but other bytes" in result.stdout
    plain = packer("convert", tree, tmp_path / "y.lmdb", "--no-tiles")
    assert "tiled" not in plain.stdout + packer("info", tmp_path / "y.lmdb").stdout


@needs_c
@pytest.mark.parametrize("recipe", [Recipe(), Recipe("jpeg", ResizeSpec(40), to_8_bit="clip")])
def test_a_pack_is_tiled(tree: Path, tmp_path: Path, recipe: Recipe) -> None:
    """The samples keep their pixels; the manifest stays the same except for the entries about tiles."""
    before = convert(imagefolder_source(tree), tmp_path / "x.h5", recipe=recipe).manifest
    for name, source in (("y.lmdb", "x.h5"), ("z.pth", "y.lmdb")):  # a tiled pack may be tiled once more
        convert(pack_source(tmp_path / source), tmp_path / name, recipe=Recipe(tiles=True))
        with open_pack(tmp_path / "x.h5") as one, open_pack(tmp_path / name) as other:
            after = other.manifest
            assert (after.codec, after.source, after.exif) == (before.codec, before.source, before.exif)
            assert after.settings == {**before.settings, "tiles": True}
            found = 0
            for index in range(len(one)):
                expected, data = bytes(one.read(index)), bytes(other.read(index))
                if read_tiles(data) is None:
                    assert data == expected
                else:
                    found += 1
                    assert np.array_equal(pillow_pixels(expected), pillow_pixels(data))
            assert found > 0
            assert after.findings.get(TILED, 0) == found
            others = [{n: count for n, count in pack.findings.items() if TILED not in n} for pack in (before, after)]
            assert others[0] == others[1]
        assert verify(tmp_path / name) == []


@pytest.mark.parametrize("codec", ["png", "webp", "raw"])
def test_a_pack_without_jpegs_is_not_tiled(tree: Path, tmp_path: Path, codec: str) -> None:
    convert(imagefolder_source(tree).limited(4), tmp_path / "x.lmdb", recipe=Recipe(codec))
    source, tiled = pack_source(tmp_path / "x.lmdb"), Recipe(tiles=True)
    job = Partition(ConversionRequest(src=tree, dst=tmp_path / "y.lmdb", parts=2, tiles=True))
    for attempt in (lambda: convert(source, job.destination, recipe=tiled), lambda: job.begin(lambda: source, {})):
        with pytest.raises(SourceError, match=f"its samples are stored as {codec}, but only JPEGs can have tiles"):
            attempt()
    convert(source, tmp_path / "z.lmdb", recipe=Recipe("jpeg", tiles=True))


def test_without_packers_own_c(tree: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['packer._images._native'] = None; from packer._cli import main; main()"
    arguments = "convert", tree, tmp_path / "x.lmdb", "--tiles"
    result = python_with(Path(__file__).parents[2], code, *arguments, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("packer: writing tiled JPEGs needs packer's compiled code: not compiled, ")
    assert result.stderr.count("\n") == 1
    assert not os.listdir(tmp_path)


@needs_c
def test_export_gives_ordinary_jpegs(tree: Path, tmp_path: Path) -> None:
    convert(imagefolder_source(tree), tmp_path / "x.h5", recipe=Recipe(tiles=True))
    export(tmp_path / "x.h5", tmp_path / "out")
    for name in imagefolder_source(tree).names:
        with Image.open(tree / name) as before, Image.open(tmp_path / "out" / name) as after:
            assert (before.format, before.size, before.mode) == (after.format, after.size, after.mode)
            assert before.convert("RGB").tobytes() == after.convert("RGB").tobytes()
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tree))
