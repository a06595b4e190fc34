"""Packs of earlier versions stay readable, with the recorded samples; an error names packs of a newer schema."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import shutil
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from packer._codecs import CODECS
from packer._conversion.convert import convert
from packer._datasets.open import ImageDataset, open_dataset
from packer._fields import KINDS as FIELD_KINDS
from packer._formats import FORMATS, open_pack, shows_mark
from packer._images.decode import fast_decoder
from packer._images.jpeg_tiles import cut_out_in_python, read_tiles
from packer._manifest import SCHEMA
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.pack import pack_source
from packer.crops import RandomResizedCrop, ResizeCenterCrop
from packer.errors import CorruptPackError, UnsupportedVersionError
from tests.golden import FIELDED, KINDS, LABELED, TILED
from tests.samples import SUFFIXES

GOLDEN = Path(__file__).parent / "golden"
PACKS = sorted(path for path in GOLDEN.glob("schema-*/*.*") if path.suffix != ".json")


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


class Recorded(NamedTuple):
    """The recorded data of a sample; `tiles` has the numbers of rows and columns, or is None for an untiled image."""

    name: str
    label: int | float
    height: int
    width: int
    data: str
    pixels: str
    tiles: list[int] | None


def recorded(path: Path) -> list[Recorded]:
    rows: list[list[Any]] = json.loads((path.parent / "samples.json").read_text())[path.name]
    return [Recorded(*row) for row in rows]


def sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def by_pillow(data: Any) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_every_schema_format_codec_and_kind_of_tiles_is_there() -> None:
    assert set(SUFFIXES) == {row.name for row in FORMATS.values() if row.parts}
    assert [*KINDS] == [*range(1, SCHEMA + 1)]
    assert set(CODECS) < set(KINDS[1])
    assert {(path.parent.name, path.name) for path in PACKS} == {
        (f"schema-{schema}", f"{kind}{suffix}")
        for schema, kinds in KINDS.items()
        for kind in kinds
        for suffix in SUFFIXES.values()
    }


@pytest.mark.parametrize("path", PACKS, ids=named)
def test_a_golden_pack(path: Path) -> None:
    expected = recorded(path)
    assert verify(path) == []
    assert shows_mark(path)
    with open_pack(path) as reader:
        assert reader.manifest.schema == int(path.parent.name.removeprefix("schema-"))
        assert reader.manifest.format == next(name for name in SUFFIXES if SUFFIXES[name] == path.suffix)
        assert reader.manifest.codec == path.stem.split("-")[0]
        assert ("parts" in reader.manifest.layout) == path.stem.endswith("-parts")
        table = reader.table
        names = [*table.sample_names()]
        rows = zip(names, table.label.tolist(), table.height.tolist(), table.width.tolist(), strict=True)
        stored = [bytes(reader.read(index)) for index in range(len(reader))]
    assert [(*row, sha256(data)) for row, data in zip(rows, stored, strict=True)] == [row[:5] for row in expected]
    dataset = open_dataset(path, output="numpy")
    assert dataset.classes == ([] if path.stem in LABELED[1:] else ["class_00", "class_01"])
    for index, row in enumerate(expected):
        pixels, target = dataset[index]
        assert (target, type(target)) == (row.label, type(row.label))
        assert pixels.shape == (row.height, row.width, 3)
        assert sha256(pixels.tobytes()) == row.pixels
        if path.stem == "raw":
            assert pixels.tobytes() == stored[index]
            continue
        assert np.array_equal(pixels, by_pillow(stored[index]))
        tiles = read_tiles(stored[index])
        assert row.tiles == ([tiles.grid.rows, tiles.grid.columns] if tiles is not None else None)


@pytest.mark.parametrize("path", [path for path in PACKS if path.stem in FIELDED], ids=named)
def test_the_values_of_fields(path: Path) -> None:
    expected = json.loads((path.parent / "fields.json").read_text())[path.name]
    with open_pack(path) as reader:
        assert [field.to_json() for field in reader.fields.values()] == expected["fields"]
        assert {field.kind for field in reader.fields.values()} == set(FIELD_KINDS)
        for index, row in enumerate(expected["values"]):
            for field, value in zip(reader.fields.values(), row, strict=True):
                stored = reader.value(index, field.name)
                known = stored is None or isinstance(stored, (int, float))
                assert (stored if known else sha256(stored)) == value
                field.decode(stored)


tiled = pytest.mark.parametrize("path", [path for path in PACKS if path.stem in TILED], ids=named)


def rectangles(height: int, width: int) -> list[tuple[int, int, int, int]]:
    """Return rectangles of an image: at its corners and edges, inside, of one pixel, and the whole."""
    spans = [
        [(0, side), (0, 1), (side - 1, 1), (side // 3, side // 3 + 1), (side // 2, side - side // 2)]
        for side in (height, width)
    ]
    return [(top, left, tall, wide) for (top, tall), (left, wide) in itertools.product(*spans)]


@tiled
def test_crops_through_tiles_are_crops_of_the_whole(path: Path) -> None:
    dataset = open_dataset(path, output="numpy")
    smaller = 0
    for index, row in enumerate(recorded(path)):
        stored = dataset.reader.read(index)
        whole, tiles = by_pillow(stored), read_tiles(stored)
        for top, left, height, width in rectangles(row.height, row.width):
            expected = whole[top : top + height, left : left + width]
            assert np.array_equal(dataset.read_region(index, top, left, height, width), expected)
            if tiles is not None:
                part = cut_out_in_python(stored, (row.height, row.width), (top, left, height, width))
                assert part is not None
                smaller += len(part.data) < len(stored)
    assert smaller > 50


@tiled
@pytest.mark.parametrize("crop", [ResizeCenterCrop(16, 20), RandomResizedCrop(12, scale=(0.01, 0.5), flip=0.5)])
def test_resized_crops_through_tiles_are_those_of_the_whole(path: Path, crop: Any) -> None:
    if fast_decoder()[0] != "turbojpeg":
        pytest.skip("needs simplejpeg")
    by_tiles = open_dataset(path, crop=crop, seed=0)
    of_the_whole = open_dataset(path, crop=crop, seed=0, decoder="pillow")
    for epoch in range(20 if crop.randoms else 1):
        by_tiles.set_epoch(epoch)
        of_the_whole.set_epoch(epoch)
        for index in range(len(by_tiles)):
            assert by_tiles[index][0].equal(of_the_whole[index][0])


@tiled
def test_of_a_later_tile_segment_the_whole_is_decoded(path: Path, tmp_path: Path) -> None:
    """In a copy of the pack, every tile segment has version 3, and a correct checksum of its own."""
    copy = copied(path, tmp_path)
    with open_pack(path) as reader:
        stored = [bytes(reader.read(index)) for index in range(len(reader))]
    for data in stored:
        if read_tiles(data) is not None:
            changed = of_version(data, 3)
            assert read_tiles(changed) is None
            assert np.array_equal(by_pillow(changed), by_pillow(data))
            replace_in(copy, data, changed)
    with open_pack(copy) as reader, pytest.raises(CorruptPackError, match="checksum"):
        reader.read(0)
    dataset = open_dataset(copy, output="numpy", check="never")
    assert_regions(dataset, recorded(path))


def assert_regions(dataset: ImageDataset, expected: list[Recorded]) -> None:
    for index, row in enumerate(expected):
        whole, _ = dataset[index]
        assert sha256(whole.tobytes()) == row.pixels
        for top, left, height, width in rectangles(row.height, row.width):
            region = dataset.read_region(index, top, left, height, width)
            assert np.array_equal(region, whole[top : top + height, left : left + width])


def of_version(data: bytes, version: int) -> bytes:
    """Return a tiled JPEG whose tile segment has another version, and a correct checksum."""
    tiles = read_tiles(data)
    assert tiles is not None
    fixed = bytearray(data[tiles.segment + 4 : tiles.table - 4])
    fixed[6] = version
    checksum = zlib.crc32(data[tiles.table : tiles.scan], zlib.crc32(fixed))
    return data[: tiles.segment + 4] + bytes(fixed) + checksum.to_bytes(4, "big") + data[tiles.table :]


@pytest.mark.parametrize("path", PACKS, ids=named)
def test_a_newer_schema_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    copy = copied(path, tmp_path)
    make_newer(copy)
    with pytest.raises(UnsupportedVersionError, match=rf"{path.name}.*schema {SCHEMA + 1}; .* up to {SCHEMA}\."):
        open_pack(copy)


@pytest.mark.parametrize("path", [path for path in PACKS if path.stem.endswith("-parts")], ids=named)
def test_a_part_of_a_newer_schema_is_named(path: Path, tmp_path: Path) -> None:
    """The table of the joined pack still locates every sample, so all can be read; verification names the part."""
    copy = copied(path, tmp_path)
    make_newer(copy / f"part-00001{path.suffix}")
    found = [str(damage) for damage in verify(copy)]
    assert len(found) == 1
    assert found[0].startswith(f"part-00001{path.suffix}: ")
    assert f"schema {SCHEMA + 1}; this packer reads up to {SCHEMA}" in found[0]
    with open_pack(copy) as reader:
        assert [sha256(reader.read(index)) for index in range(len(reader))] == [row.data for row in recorded(path)]
    with pytest.raises(UnsupportedVersionError, match=f"part-00001{path.suffix}"):
        open_pack(copy / f"part-00001{path.suffix}")


def copied(path: Path, directory: Path) -> Path:
    copy = directory / path.name
    if path.is_dir():
        shutil.copytree(path, copy)
    else:
        shutil.copyfile(path, copy)
    return copy


def make_newer(path: Path) -> None:
    """Raise the schema in a pack's manifest, in place, with a correct checksum; in a joined pack, that of the whole."""
    with open_pack(path) as reader:
        before, schema = reader.manifest.to_json(), reader.manifest.schema
    assert before.startswith(b'{"schema":%d,' % schema)
    body = before.replace(b"%d" % schema, b"%d" % (SCHEMA + 1), 1)[: -len(',"crc32c":"00000000"}')]
    replace_in(path, before, body + b',"crc32c":"%08x"}' % google_crc32c.value(body))


def replace_in(path: Path, before: bytes, after: bytes) -> None:
    """Replace bytes that occur once in a pack's files by as many other bytes."""
    assert len(before) == len(after)
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    (file,) = (file for file in files if before in file.read_bytes())
    data = file.read_bytes()
    assert data.count(before) == 1
    file.write_bytes(data.replace(before, after))


@pytest.mark.parametrize("kind", [kind for kind in TILED if kind.endswith("-parts")])
@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_parts_are_the_pack_in_one_piece(kind: str, suffix: str, tmp_path: Path) -> None:
    path = GOLDEN / "schema-1" / f"{kind}{suffix}"
    whole = path.with_name(f"{kind.removesuffix('-parts')}{suffix}")
    assert digest(path) == digest(whole)
    parts = sorted(path.glob("part-*"))
    assert len(parts) > 1
    merged = convert(pack_source(*parts), tmp_path / f"merged{suffix}").manifest
    assert digest(tmp_path / f"merged{suffix}") == digest(whole)
    with open_pack(whole) as reader:
        assert merged.settings == reader.manifest.settings
        assert merged.findings == reader.manifest.findings
