"""The viewer with a hostile pack: impossible sizes, values and names, and truncated files."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._fields import Field, Stored
from packer._fields.coco import mask_of, runs_of
from packer._table import Sample
from packer._viewing import catalog as duplicates
from packer._viewing.catalog import Catalog, DamageLog, open_catalog
from packer._viewing.pictures import Pictures, annotations_of, further_image, mask_picture
from packer._viewing.report import write_report
from packer._viewing.server import Endpoints
from tests.command import python
from tests.samples import write_pack


def png(pixels: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(stream, options.pop("format", "png"), **options)
    return stream.getvalue()


GREY = png(np.full((6, 8, 3), 90, np.uint8))


def pack_of(path: Path, rows: Sequence[dict[str, Any]], fields: Sequence[Field] = (), **manifest: Any) -> Catalog:
    """Write a pack of unchecked rows, with image, size, name and stored values of the fields; return its catalog."""
    samples = []
    for number, row in enumerate(rows):
        values: tuple[Stored, ...] = tuple(row.get(field.name) for field in fields)
        height, width = row.get("shape", (6, 8))
        name = row.get("name", f"a/{number}.png")
        samples.append(Sample(name, row.get("label", 0), row.get("image", GREY), height, width, values))
    return open_catalog([write_pack(path / "stranger.lmdb", "lmdb", samples, fields=fields, **manifest)])


def described(catalog: Catalog, index: int = 0) -> dict[str, dict[str, Any]]:
    found = annotations_of(catalog, index)
    json.dumps(found, allow_nan=False)
    return {field["name"]: field for field in found}


def test_sizes_that_are_forged_cost_no_memory(tmp_path: Path) -> None:
    side = 60_000
    covered = [{"size": [side, side], "counts": [side * side // 2, side * side // 2]}]
    fields = [Field("runs", "segmentation")]
    rows = [{"shape": (side, side), "runs": json.dumps(covered).encode()}, {"shape": (-5, 7), "runs": b"[]"}]
    catalog = pack_of(tmp_path, rows, fields)
    tracemalloc.start()
    try:
        mask = np.asarray(Image.open(io.BytesIO(mask_picture(catalog, 0, "runs", 64))))
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()
    assert mask.shape == (64, 64, 4)
    assert (mask[..., 3] > 0).tolist() == [[column >= 32 for column in range(64)]] * 64
    with pytest.raises(packer.ImageError, match="no pixels"):
        mask_picture(catalog, 1, "runs", 64)
    small = Pictures(catalog).small(np.arange(2), 64)
    assert "the shape is" in small[0].error or "pixels" in small[0].error
    assert "7 x -5 pixels" in small[1].error


@pytest.mark.parametrize("side", [5, 16, 100])
def test_run_lengths_are_painted_as_the_pixels_that_are_shown(tmp_path: Path, side: int) -> None:
    rng = np.random.default_rng(side)
    height, width = 23, 31
    masks = [rng.random((height, width)) > share for share in (0.3, 0.9)]
    masks += [np.ones((height, width), bool), np.zeros((height, width), bool)][side % 2 :]
    segmentations: list[Any] = [None]
    for mask in masks:
        changes = np.flatnonzero(np.diff(np.concatenate(([False], mask.T.ravel()))))
        counts = np.diff(np.concatenate(([0], changes, [mask.size]))).tolist()
        segmentations.append({"size": [height, width], "counts": counts})
    segmentations.append({"size": [9, 9], "counts": [81]})  # of another image
    row = {"shape": (height, width), "runs": json.dumps(segmentations).encode()}
    catalog = pack_of(tmp_path, [row], [Field("runs", "segmentation")])
    whole = np.zeros((height, width), int)
    for number, one in enumerate(segmentations[1:-1], 2):
        whole[mask_of(runs_of(one, height, width), height, width) > 0] = number
    step = max(1.0, width / side)
    expected = whole[(np.arange(int(height / step)) * step).astype(int)][
        :, (np.arange(int(width / step)) * step).astype(int)
    ]
    painted = np.asarray(Image.open(io.BytesIO(mask_picture(catalog, 0, "runs", side))))
    assert painted.shape[:2] == expected.shape
    colours = {}
    for colour, number in zip(painted.reshape(-1, 4).tolist(), expected.ravel().tolist(), strict=True):
        assert colours.setdefault(number, colour) == colour
    assert len({tuple(colour) for colour in colours.values()}) == len(colours)
    assert described(catalog)["runs"]["error"].startswith(f"segmentation {len(masks) + 1}: its size is [9, 9]")


def test_colours_are_those_that_the_page_gives_to_objects(tmp_path: Path) -> None:
    ids = np.arange(64, dtype=np.uint8).reshape(8, 8)
    catalog = pack_of(tmp_path, [{"mask": png(ids)}], [Field("mask", "mask")])
    painted = np.asarray(Image.open(io.BytesIO(mask_picture(catalog, 0, "mask", 64)))).reshape(-1, 4)
    import colorsys

    assert painted[0].tolist() == [0, 0, 0, 0]
    for number in range(1, 64):
        said = colorsys.hls_to_rgb((number - 1) * 137.508 / 360 % 1, 0.55, 0.85)  # overlays.js: 85 % and 55 %
        assert np.abs(painted[number, :3].astype(int) - np.array(said) * 255).max() <= 1


def test_masks_of_any_numbers_are_coloured(tmp_path: Path) -> None:
    floats = np.zeros((8, 8), np.float32)
    floats[0, :3] = np.nan, np.inf, 3.5
    many = np.arange(90_000, dtype=np.int32).reshape(300, 300) * 20_000
    panoptic = np.zeros((8, 8, 3), np.uint8)
    panoptic[0, 0, 1] = panoptic[0, 1, 2] = 1
    rows = [{"mask": one} for one in (png(floats, format="tiff"), png(many, format="tiff"), png(panoptic))]
    catalog = pack_of(tmp_path, rows, [Field("mask", "mask")])
    painted = [np.asarray(Image.open(io.BytesIO(mask_picture(catalog, index, "mask", 512)))) for index in range(3)]
    assert painted[0][0, :4, 3].tolist() == [0, 255, 255, 0]
    assert painted[1].shape == (300, 300, 4)
    assert painted[2][0, :3, 3].tolist() == [255, 255, 0]
    assert painted[2][0, 0].tolist() != painted[2][0, 1].tolist(), "objects differ in green and blue too"


def test_further_images_show_their_colours_and_all_of_their_levels(tmp_path: Path) -> None:
    rgba = np.zeros((8, 8, 4), np.uint8)
    rgba[...] = 10, 200, 30, 128
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 250, 20, 20])
    depth = np.full((8, 8), 2.0, np.float32)
    depth[0] = np.nan
    depth[1], depth[2] = 1.0, 3.0
    wide = np.array([[-(2**31), 2**31 - 1]], np.int32).repeat(8, 0).repeat(4, 1)
    deep = np.full((8, 8), 40_000, np.uint16)
    deep[0] = 30_000
    encoded = [png(rgba), png(palette), png(depth, format="tiff"), png(wide, format="tiff"), png(deep)]
    catalog = pack_of(tmp_path, [{"other": one} for one in encoded], [Field("other", "image")])
    seen = [np.asarray(Image.open(io.BytesIO(further_image(catalog, n, "other", 64))), int) for n in range(5)]
    assert np.abs(seen[0][4, 4] - [10, 200, 30]).max() < 6
    assert np.abs(seen[1][4, 4] - [250, 20, 20]).max() < 6
    assert [round(seen[2][row].mean() / 127) for row in (0, 1, 2, 6)] == [0, 0, 2, 1]
    assert (seen[3][0, 1].max() < 40, seen[3][0, 6].min() > 215) == (True, True)
    assert (seen[4][0].max() < 40, seen[4][7].min() > 215) == (True, True)


HOSTILE = [
    b'["<script>"]',
    b'[["<script>", 3]]',
    b'[[[1, 2, 3, 4, 5, "x"]]]',
    b'[{"size": [6, 8], "counts": "\xc3\xa9"}]',
    b'[{"size": [1e9, 8], "counts": [5]}]',
    b"[[[1, 2]]]",
    b"[[[1e300, 2, 3, 4, 5, 6]]]",
    b"[" * 5000,
]


@pytest.mark.parametrize("content", HOSTILE)
def test_what_is_no_segmentation_is_said_and_nothing_of_it_reaches_the_page(tmp_path: Path, content: bytes) -> None:
    catalog = pack_of(tmp_path, [{"runs": content}], [Field("runs", "segmentation")])
    said = described(catalog)["runs"]
    assert said["error"]
    assert "picture" not in said
    assert said.get("polygons", [[]]) == [[]]


def test_values_and_names_are_not_sent_whole_however_large_they_are(tmp_path: Path) -> None:
    huge, length = "<b>" * 50_000, 500_000
    fields = [
        Field("about", "json"),
        Field("ids", "labels", classes=("x" * 100_000, "y")),
        Field("boxes", "boxes"),
        Field("text", "text"),
    ]
    values = {
        "about": b'"%s"' % (b"z" * 4_999_998),
        "ids": np.zeros(3000, "<i8").tobytes(),
        "boxes": np.full((3000, 4), np.inf, "<f4").tobytes(),
        "text": b"t" * length,
    }
    name = "cat\x00\u202egpj." + "n" * 65_000
    catalog = pack_of(tmp_path, [{"name": name, **values}], fields, classes=[huge])
    said = described(catalog)
    assert said["about"]["text"] == "5.0 MB, too large to show here"
    assert said["boxes"]["text"] == "3000, of which the first 2000 are drawn"
    assert len(said["boxes"]["labels"]) == 2000
    assert max(map(len, said["boxes"]["labels"])) < 1100
    assert np.abs(said["boxes"]["boxes"]).max() <= 1e7
    assert said["text"]["text"].endswith(f"({length:,} characters)")
    routes = Endpoints(catalog).routes
    assert len(routes["packs"]({}).body) < 10_000
    assert len(routes["sheet"]({}).body) < 10_000
    assert b"cat\\\\x00\\\\u202egpj" in routes["sheet"]({}).body
    assert len(json.dumps(said)) < 3_000_000
    assert write_report(catalog, tmp_path / "report.html") < 50_000


def test_a_table_that_is_cut_short_is_an_error_of_the_report_and_of_each_picture(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer._storage.packfile.MOST_HELD", -1)  # as for a pack with many samples
    cut = tmp_path / "cut.lmdb"
    cut.write_bytes(pack.read_bytes())
    catalog = open_catalog([cut])
    pictures = Pictures(catalog)
    os.truncate(cut, 0)
    assert ["became shorter" in one.error for one in pictures.small(np.arange(3), 16)] == [True] * 3
    routes: list[Callable[[], object]] = [
        lambda: pictures.whole(1, 64),
        lambda: catalog.name(1),
        lambda: catalog.label(1),
        catalog.facts,
        lambda: annotations_of(catalog, 1),
        lambda: duplicates.find_duplicates(catalog),
        lambda: write_report(catalog, tmp_path / "report.html"),
    ]
    for way in routes:
        with pytest.raises(packer.CorruptPackError, match="became shorter"):
            way()
    catalog.close()


MEMORY = """
import resource, sys
import numpy as np
from packer._viewing.catalog import open_catalog
from packer._viewing.pictures import Pictures
pictures = Pictures(open_catalog([sys.argv[1]]))
pictures.small(np.array([0]), 64)
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (200 << 20), -1))
print(*(one.error and "error" or "shown" for one in pictures.small(np.arange(3), 64)))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells how much memory is held: Linux")
def test_an_image_that_does_not_fit_into_memory_hides_no_other(tmp_path: Path) -> None:
    bomb = png(Image.new("1", (12_000, 12_000)), format="tiff", compression="group4")
    rows: list[dict[str, Any]] = [{}, {"image": bomb, "shape": (12_000, 12_000)}, {}]
    pack_of(tmp_path, rows).close()
    done = python(MEMORY, tmp_path / "stranger.lmdb", check=False)
    assert done.stdout.split() == ["shown", "error", "shown"], done.stderr


def test_damage_is_counted_once_and_only_the_first_reasons_are_kept() -> None:
    damage = DamageLog(5000)
    for _ in range(2):
        for index in reversed(range(5000)):
            damage.add(index, f"reason {index}")
    count, reasons = damage.listed()
    assert (count, len(reasons)) == (5000, 1000)
    assert reasons[0] == (4000, "reason 4000")


def test_names_that_overlap_do_not_keep_the_search_for_duplicates_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"name": "n" * 60_000}, *({"name": ""} for _ in range(99))]
    catalog = pack_of(tmp_path, rows)
    object.__setattr__(catalog.readers[0].table, "name_end", np.resize(np.array([60_000, 0]), 100))  # again and again
    undone: list[int] = []
    monkeypatch.setattr(duplicates, "_undo_byte", lambda state, byte: undone.append(len(state)) or state)
    duplicates.find_duplicates(catalog)
    assert len(undone) < 100
