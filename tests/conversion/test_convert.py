"""The conversion: what is in a pack, in which order, and what stands at the destination at each moment."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer._codecs import CODECS
from packer._conversion.convert import ConversionProgress, convert, fits_cache
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS, open_pack
from packer._images.resize import ResizeSpec
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage import files
from packer._storage.files import disk_size
from packer._table import Buffer, Names
from packer.errors import DestinationError, ImageError, SourceError
from packer.testing.photos import draw_imagefolder
from packer.testing.reference import torchvision
from tests.command import command, packer, without_root_powers
from tests.samples import SUFFIXES, content, noise, solid

formats = pytest.mark.parametrize("format", SUFFIXES)
each_codec = pytest.mark.parametrize(  # and each format: writers do not see what the bytes of an image are
    ("format", "codec"), [*zip(itertools.cycle(SUFFIXES), CODECS, strict=False), ("hdf5", "keep"), ("pth", "keep")]
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos, and one of everything else that decodes without loss, in several sizes."""
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=6, size=(48, 64))
    (root / "class_01b empty").mkdir()
    other = root / "class_01" / "nested"
    for seed, suffix in enumerate([".png", ".bmp", ".tif", ".ppm", ".webp", ".PNG"]):
        noise(other / f"noise{seed}{suffix}", seed, (30 + 7 * seed, 90 - 11 * seed))
    photo = Image.open(io.BytesIO((root / "class_00" / "0000.jpg").read_bytes()))
    photo.convert("L").save(other / "grey.jpg")
    photo.save(other / "progressive.jpg", progressive=True)
    photo.save(other / "a png.jpg", "png")
    photo.convert("P").save(other / "palette.png")
    photo.convert("RGBA").save(other / "alpha.png")
    photo.resize((700, 900)).save(other / "large.jpg", quality=95)
    solid(root / "class_02" / "one pixel.png", size=(1, 1))
    (root / "class_02" / "notes.txt").write_text("no image")
    return root


def convert_tree(tree: Path, destination: Path, **options: Any) -> Any:
    return convert(imagefolder_source(tree), destination, **options)


@each_codec
def test_the_number_of_workers_changes_no_byte(tree: Path, tmp_path: Path, format: str, codec: str) -> None:
    recipe = Recipe(codec=codec)
    packs = []
    for workers in (1, 2, 7) if codec == "keep" else (1, 7):
        path = tmp_path / f"{workers}{SUFFIXES[format]}"
        convert_tree(tree, path, recipe=recipe, workers=workers)
        packs.append(content(path))
    assert all(pack == packs[0] for pack in packs)
    assert not list(tmp_path.glob("*.partial"))


@formats
def test_nor_does_a_pack_that_is_too_large_for_the_cache(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    """packer writes it past the cache, if the system and the disk allow that, and continues after an interruption."""
    source, suffix = imagefolder_source(tree), SUFFIXES[format]
    uncached, write_uncached = [], files.write_uncached

    def counted(fd: int, parts: Sequence[Buffer]) -> int | None:
        uncached.append(sum(map(len, parts)))
        return write_uncached(fd, parts)

    monkeypatch.setattr(files, "write_uncached", counted)
    convert(source, tmp_path / f"small{suffix}")
    assert uncached == []
    monkeypatch.setattr("packer._conversion.convert.available_memory", lambda: 8)
    assert not fits_cache(source.stamped(), Recipe())
    assert fits_cache(source.stamped(), Recipe("jpeg"))

    def interrupt(progress: ConversionProgress) -> None:
        if progress.done > 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / f"large{suffix}", progress=interrupt)
    uncached.clear()
    assert convert(source, tmp_path / f"large{suffix}").continued
    assert uncached
    assert content(tmp_path / f"large{suffix}") == content(tmp_path / f"small{suffix}")


def test_nor_with_resizing_and_shards(tree: Path, tmp_path: Path) -> None:
    for recipe in (Recipe("jpeg", ResizeSpec(32)), Recipe("raw", ResizeSpec(40, "pad", True, "bicubic"))):
        packs = []
        for workers in (1, 2, 7):
            path = tmp_path / f"{recipe.codec}-{workers}.pth"
            options = {"shard_size": 20_000}
            convert_tree(tree, path, recipe=recipe, workers=workers, options=options)
            packs.append(content(path))
        assert packs[0] == packs[1] == packs[2]
        assert sum(name.startswith("shard-") for name in packs[0]) > 1


@each_codec
def test_a_pack_holds_what_imagefolder_shows(tree: Path, tmp_path: Path, format: str, codec: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    summary = convert_tree(tree, path, recipe=Recipe(codec=codec, quality=95))
    reference = torchvision().datasets.ImageFolder(str(tree), allow_empty=True)
    with open_pack(path) as reader:
        assert reader.manifest == summary.manifest
        assert reader.manifest.classes == reference.classes
        names = reader.table.sample_names()
        assert [(str(tree / names[i]), int(reader.table.label[i])) for i in range(len(reader))] == reference.samples
        for index, (file, _) in enumerate(reference.samples):
            stored, original = bytes(reader.read(index)), Path(file).read_bytes()
            with Image.open(file) as opened:
                expected, kind = np.array(opened.convert("RGB")), opened.format
            shape = int(reader.table.height[index]), int(reader.table.width[index]), 3
            assert shape == expected.shape
            if codec == "keep":
                assert stored == original
            elif codec == "raw":
                np.testing.assert_array_equal(np.frombuffer(stored, np.uint8).reshape(shape), expected)
            else:
                image = Image.open(io.BytesIO(stored))
                assert image.format == codec.upper()
                if image.format == kind:
                    assert stored == original  # nothing is encoded twice without need
                elif codec in ("jpeg", "webp"):
                    stream = io.BytesIO()
                    Image.fromarray(expected).save(stream, codec, quality=95)
                    expected = np.array(Image.open(stream).convert("RGB"))
                np.testing.assert_array_equal(np.array(image.convert("RGB")), expected)
    assert verify(path) == []
    assert summary.bytes_in == sum(os.path.getsize(file) for file, _ in reference.samples)
    assert summary.bytes_out == disk_size(path) == sum(len(data or b"") for data in content(path).values())
    assert summary.continued == 0
    assert summary.manifest.findings["PNG named .jpg"] == 1


def test_samples_of_many_sizes_do_not_run_into_each_other(tmp_path: Path) -> None:
    """Batches share memory, whose size follows what was read before."""
    rng = np.random.default_rng(0)
    root = tmp_path / "root"
    files = {}
    for number, size in enumerate([*rng.integers(0, 5000, 150).tolist(), 3 << 20, 1, 2 << 20, 9, *range(0, 4000, 100)]):
        path = solid(root / "a" / f"{number:04d}.png", colour=(number % 256, number // 256, 0))
        with open(path, "ab") as file:
            file.write(rng.bytes(size))  # bytes after the end, which are kept as all others
        files[f"a/{path.name}"] = path.read_bytes()
    for workers in (1, 5):
        convert_tree(root, tmp_path / f"{workers}.h5", workers=workers)
        with open_pack(tmp_path / f"{workers}.h5") as reader:
            assert (
                dict(zip(reader.table.sample_names(), map(bytes, map(reader.read, range(194))), strict=True)) == files
            )


def break_some(root: Path) -> list[str]:
    """Add files that are no images; return their names in the order of the source."""
    (root / "class_00" / "0001.jpg").write_bytes((root / "class_00" / "0001.jpg").read_bytes()[:-400])
    (root / "class_01" / "0000.jpg").write_bytes(b"")
    (root / "class_01" / "0005.png").write_text("a text")
    (root / "class_02" / "0003.jpg").unlink()
    (root / "class_02" / "0003.jpg").symlink_to("nowhere")
    names = ["class_00/0001.jpg", "class_01/0000.jpg", "class_01/0005.png", "class_02/0003.jpg"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(root / "class_02" / "0009.jpg")
        names.append("class_02/0009.jpg")
    return names


@formats
def test_bad_files_stop_or_are_left_out(tmp_path: Path, format: str) -> None:
    root, path = tmp_path / "root", tmp_path / f"pack{SUFFIXES[format]}"
    draw_imagefolder(root, classes=3, per_class=6, size=(24, 32))
    bad = break_some(root)
    for _ in range(2):  # and again where it stopped
        with pytest.raises(ImageError, match=r"^class_00/0001\.jpg: ") as caught:
            convert_tree(root, path)
        assert caught.value.name == bad[0]
        assert not path.exists()
        assert (tmp_path / f"{path.name}.partial").is_dir()
    summary = convert_tree(root, path, on_error="skip", report=tmp_path / "report.jsonl")
    assert [entry["name"] for entry in summary.manifest.skipped] == bad
    assert all(entry["reason"] for entry in summary.manifest.skipped)
    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines if "skipped" in line] == bad
    source = imagefolder_source(root)
    expected = {
        name: label for name, label in zip(source.names, source.labels.tolist(), strict=True) if name not in bad
    }
    with open_pack(path) as reader:
        assert dict(zip(reader.table.sample_names(), reader.table.label.tolist(), strict=True)) == expected
        for index, name in enumerate(expected):
            assert bytes(reader.read(index)) == (root / name).read_bytes()
    assert verify(path) == []


def test_the_report_lists_findings(tmp_path: Path) -> None:
    root = tmp_path / "root"
    solid(root / "a" / "ok.png", size=(40, 40))
    solid(root / "a" / "tiny.png")
    solid(root / "a" / "real.png", size=(40, 40)).rename(root / "a" / "wrong.jpg")
    summary = convert_tree(root, tmp_path / "x.lmdb", report=tmp_path / "report.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert {line["name"] for line in lines} == {"a/tiny.png", "a/wrong.jpg"}
    assert summary.manifest.findings["PNG named .jpg"] == 1
    assert sum(len(line["findings"]) for line in lines) == sum(summary.manifest.findings.values()) == 2


def test_a_report_replaces_a_report_and_never_a_pack(tmp_path: Path) -> None:
    solid(tmp_path / "root" / "a" / "tiny.png")
    for _ in range(2):
        convert_tree(tmp_path / "root", tmp_path / "x.lmdb", overwrite=True, report=tmp_path / "report.jsonl")
    before = (tmp_path / "x.lmdb").read_bytes()
    with pytest.raises(DestinationError, match="would replace a file that is not a report"):
        convert_tree(tmp_path / "root", tmp_path / "y.lmdb", report=tmp_path / "x.lmdb")
    assert (tmp_path / "x.lmdb").read_bytes() == before
    assert not (tmp_path / "y.lmdb").exists()


@formats
def test_nothing_at_the_destination_before_the_end(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"pack{SUFFIXES[format]}"
    seen: list[ConversionProgress] = []

    def watch(progress: ConversionProgress) -> None:
        seen.append(progress)
        assert os.listdir(tmp_path) == [f"{path.name}.partial"]

    convert_tree(tree, path, progress=watch, workers=2)
    assert os.listdir(tmp_path) == [path.name]
    source = imagefolder_source(tree)
    assert [p.done for p in seen] == sorted({p.done for p in seen})
    assert len(seen) > 3
    assert {p.total for p in seen} == {len(source)}
    assert {p.skipped for p in seen} == {0}
    assert (seen[-1].done, seen[-1].bytes_read) == (
        len(source),
        sum(os.path.getsize(source.path(i)) for i in range(len(source))),
    )


def test_skipped_files_count_as_done(tmp_path: Path) -> None:
    root = tmp_path / "root"
    draw_imagefolder(root, classes=3, per_class=6, size=(24, 32))
    bad = break_some(root)
    seen: list[ConversionProgress] = []
    convert_tree(root, tmp_path / "x.lmdb", on_error="skip", progress=seen.append)
    assert (seen[-1].done, seen[-1].total, seen[-1].skipped) == (len(imagefolder_source(root)),) * 2 + (len(bad),)


def test_a_limited_source(tree: Path, tmp_path: Path) -> None:
    summary = convert(imagefolder_source(tree).limited(7), tmp_path / "x.lmdb")
    assert summary.manifest.count == 7
    assert summary.manifest.classes == imagefolder_source(tree).classes


def test_a_source_of_bad_files_only(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    for name in ("x.jpg", "y.jpg"):
        (tmp_path / "root" / "a" / name).write_text("text")
    with pytest.raises(SourceError, match="none of its 2 images"):
        convert_tree(tmp_path / "root", tmp_path / "x.lmdb", on_error="skip")
    with pytest.raises(ImageError, match=r"a/x\.jpg"):
        convert_tree(tmp_path / "root", tmp_path / "x.lmdb")
    assert not (tmp_path / "x.lmdb").exists()


def test_a_directory_named_like_an_image_below_a_csv(tmp_path: Path) -> None:
    from packer._sources.table_source import csv_source

    solid(tmp_path / "root" / "ok.png")
    (tmp_path / "root" / "dir.jpg").mkdir()
    (tmp_path / "l.csv").write_text("path,label\ndir.jpg,1\nok.png,0\nmissing.png,0\n")
    source = csv_source(tmp_path / "root", tmp_path / "l.csv")
    summary = convert(source, tmp_path / "x.h5", on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == ["dir.jpg", "missing.png"]
    with open_pack(tmp_path / "x.h5") as reader:
        assert (list(reader.table.sample_names()), reader.table.label.tolist()) == (["ok.png"], [0])


def test_a_file_that_vanishes_while_others_are_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    draw_imagefolder(root, classes=1, per_class=40, size=(24, 32))
    source = imagefolder_source(root)

    def remove(progress: ConversionProgress) -> None:
        (root / "class_00" / "0039.jpg").unlink(missing_ok=True)

    summary = convert(source, tmp_path / "x.lmdb", workers=1, on_error="skip", progress=remove)
    assert [entry["name"] for entry in summary.manifest.skipped] == ["class_00/0039.jpg"]
    assert summary.manifest.count == 39


def old_pack(kind: str, path: Path) -> None:
    draw_imagefolder(path.parent / "old", classes=1, per_class=2, size=(16, 16), seed=9)
    convert_tree(path.parent / "old", path, format=kind)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(SUFFIXES, SUFFIXES)))
def test_overwrite_replaces_on_success_only(tmp_path: Path, before: str, after: str) -> None:
    path, root = tmp_path / "pack", tmp_path / "root"
    draw_imagefolder(root, classes=2, per_class=4, size=(24, 32))
    good = (root / "class_01" / "0002.jpg").read_bytes()
    (root / "class_01" / "0002.jpg").write_text("bad")
    old_pack(before, path)
    old = content(path)
    with pytest.raises(DestinationError, match="exists already"):
        convert_tree(root, path, format=after)
    assert not (tmp_path / "pack.partial").exists()
    with pytest.raises(ImageError):
        convert_tree(root, path, format=after, overwrite=True)
    assert content(path) == old
    (root / "class_01" / "0002.jpg").write_bytes(good)

    def watch(progress: ConversionProgress) -> None:
        assert content(path) == old

    convert_tree(root, path, format=after, overwrite=True, progress=watch)
    convert_tree(root, tmp_path / "reference", format=after)
    assert content(path) == content(tmp_path / "reference")
    assert sorted(os.listdir(tmp_path)) == ["old", "pack", "reference", "root"]


@formats
def test_a_directory_that_is_no_pack_is_never_replaced(tree: Path, tmp_path: Path, format: str) -> None:
    path = tmp_path / "pack"
    solid(path / "precious.png")
    before = content(path)
    with pytest.raises(DestinationError, match="is not a pack"):
        convert_tree(tree, path, format=format, overwrite=True)
    assert content(path) == before
    link = tmp_path / "link"
    link.symlink_to(path, target_is_directory=True)
    with pytest.raises(DestinationError, match="is a symbolic link"):
        convert_tree(tree, link, format=format, overwrite=True)
    assert content(path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_is_not_replaced_and_its_target_is_named(tmp_path: Path, overwrite: bool) -> None:
    """Otherwise the pack would silently not be where the link leads, such as on a larger disk."""
    solid(tmp_path / "root" / "a" / "x.png")
    old_pack("pth", tmp_path / "old.pth")
    before = content(tmp_path / "old.pth")
    (tmp_path / "pack.pth").symlink_to("old.pth", target_is_directory=True)
    (tmp_path / "dangling.lmdb").symlink_to("nowhere.lmdb")
    for link, target in (("pack.pth", "old.pth"), ("dangling.lmdb", "nowhere.lmdb")):
        with pytest.raises(DestinationError, match=f"{link}: is a symbolic link to {tmp_path / target}, "):
            convert_tree(tmp_path / "root", tmp_path / link, overwrite=overwrite)
        assert (tmp_path / link).is_symlink()
    assert content(tmp_path / "old.pth") == before
    assert sorted(os.listdir(tmp_path)) == ["dangling.lmdb", "old", "old.pth", "pack.pth", "root"]


def test_destinations_that_cannot_be(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match=r"does not exist\. Make it first"):
        convert_tree(tree, tmp_path / "missing" / "x.lmdb")
    (tmp_path / "file").touch()
    with pytest.raises(DestinationError, match="does not exist"):
        convert_tree(tree, tmp_path / "file" / "x.lmdb")
    for name in ("x.zip", "x", ".lmdb"):
        with pytest.raises(DestinationError, match=r"none of|is not one of \.lmdb, \.h5, \.hdf5, \.pth"):
            convert_tree(tree, tmp_path / name)
    formats = "lmdb, hdf5, pth, wds, tfrecord, rec, mds, caffe, n5, parquet"
    with pytest.raises(ValueError, match=f"format must be one of {formats}, not 'x'"):
        convert_tree(tree, tmp_path / "x.lmdb", format="x")
    assert os.listdir(tmp_path) == ["file"]


@without_root_powers
def test_a_parent_that_may_not_be_written(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    result = packer("convert", tree, tmp_path / "closed" / "x.lmdb", powerless=True)
    assert result.returncode == 1, command("convert")
    assert result.stderr.splitlines() == [
        f"packer: {tmp_path}/closed/x.lmdb: the directory {tmp_path}/closed is not writable"
    ]


def test_settings_are_in_the_manifest(tree: Path, tmp_path: Path) -> None:
    recipe = Recipe("webp", ResizeSpec(20, "crop"), quality=70, exif="apply", audit="decode", max_pixels=10**7)
    manifest = convert_tree(tree, tmp_path / "x.pth", recipe=recipe, options={"shard_size": 10_000}).manifest
    assert manifest.settings == recipe.settings()
    assert manifest.layout["shard_size"] == 10_000
    assert manifest.source == imagefolder_source(tree).describe()
    assert {"packer", "pillow", "torch"} <= set(manifest.versions)


@pytest.mark.parametrize("change", [lambda r: Recipe(max_pixels=100), lambda r: Recipe("png", max_pixels=100)])
def test_images_with_too_many_pixels_are_left_out(tmp_path: Path, change: Callable[[object], Recipe]) -> None:
    solid(tmp_path / "root" / "a" / "x.png", size=(10, 10))
    solid(tmp_path / "root" / "a" / "y.png", size=(10, 11))
    summary = convert_tree(tmp_path / "root", tmp_path / "x.lmdb", recipe=change(None), on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == ["a/y.png"]
    assert "100 allowed" in summary.manifest.skipped[0]["reason"]


@pytest.mark.parametrize(
    ("format", "fits", "too_many"),
    [
        ("lmdb", [(2**29 - 1, 10), (10, 2**32 - 1)], [(2**29, 10), (10, 2**32)]),
        ("pth", [(10**7, 10**9)], [(10**8, 10), (10, 2**32)]),
        ("hdf5", [(10**10, 10**12)], []),
    ],
)
def test_more_samples_than_a_file_can_name(
    format: str, fits: list[tuple[int, int]], too_many: list[tuple[int, int]]
) -> None:
    """Known before the conversion begins, and not found out at its end."""
    writer = FORMATS[format].open_writer()
    for rows, names in fits:
        writer.check_table(rows, names)
    for rows, names in too_many:
        with pytest.raises(DestinationError, match="parts="):
            writer.check_table(rows, names)


def test_it_is_found_out_before_the_conversion_begins(tmp_path: Path) -> None:
    """A source of more images than a .pth pack can hold, all in the same byte of memory."""
    ends = np.broadcast_to(np.int64(0), 75_000_000)
    source = Source("csv", tmp_path / "images", Names(np.zeros(0, np.uint8), ends), ends, ["a"])
    with pytest.raises(DestinationError, match="parts="):
        convert(source, tmp_path / "pack.pth", format="pth")
    assert os.listdir(tmp_path) == []
