"""Images that 8-bit RGB cannot hold: every function that encodes pixels refuses them, or converts them as requested."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer._images.depth import FOUND
from packer._images.probe import CLIPPED, DEEP
from packer.errors import ImageError, OptionError, ResumeError
from tests.command import packer_many
from tests.images.samples import encoded, photo
from tests.images.tiffs import GREY, RGB, noise, tiff

DARK = np.linspace(0, 24_000, 40 * 53).reshape(40, 53).astype(np.uint16)

FILES = {
    "a/0.png": encoded(photo(40, 53), "PNG"),
    "a/1.png": encoded(DARK, "PNG"),
    "b/2.tif": tiff(noise(3, "u2", (40, 53))),
    "b/3.tif": tiff(noise(1, "f4", (40, 53)), GREY),
    "b/4.tif": tiff(noise(4, "u1", (40, 53)), RGB, (0,)),
    "b/5.tif": tiff(noise(1, "i4", (40, 53)), GREY),
}
BEYOND = list(FILES)[1:]
EXCESS = {
    "a/1.png": "it has 16 bits a channel",
    "b/2.tif": "it has 16 bits a channel",
    "b/3.tif": "it has floats of 32 bits a channel",
    "b/4.tif": "it has 4 bands",
    "b/5.tif": "it has signed numbers of 32 bits a channel",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("deep") / "tree"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


Way = Callable[..., Any]


def _samples() -> Iterator[dict[str, Any]]:
    yield from ({"image": data, "name": name} for name, data in FILES.items())


def _directly(tree: Path, work: Path, **options: Any) -> Any:
    return packer.convert(tree, work / "pack.lmdb", **options)


def _of_a_pack(tree: Path, work: Path, **options: Any) -> Any:
    packer.convert(tree, work / "kept.h5")
    return packer.convert(work / "kept.h5", work / "pack.lmdb", **options)


def _of_an_index(tree: Path, work: Path, **options: Any) -> Any:
    packer.index(tree, work / "tree.index")
    return packer.convert(work / "tree.index", work / "pack.lmdb", **options)


def _of_a_zip(tree: Path, work: Path, **options: Any) -> Any:
    with zipfile.ZipFile(work / "tree.zip", "w") as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    return packer.convert(work / "tree.zip", work / "pack.lmdb", **options)


def _in_parts(tree: Path, work: Path, **options: Any) -> Any:
    return packer.convert(tree, work / "pack.lmdb", parts=2, **options)


def _appended(tree: Path, work: Path, **options: Any) -> Any:
    for name in ("a/first.png", "b/second.png"):
        (work / "first" / name).parent.mkdir(parents=True, exist_ok=True)
        (work / "first" / name).write_bytes(FILES["a/0.png"])
    packer.convert(work / "first", work / "pack.lmdb", parts=1, **options)
    return packer.append(work / "pack.lmdb", tree, **options)


def _given(tree: Path, work: Path, **options: Any) -> Any:
    return packer.pack(_samples(), work / "pack.lmdb", **options)


WAYS: dict[str, Way] = {
    "directly": _directly,
    "a pack": _of_a_pack,
    "an index": _of_an_index,
    "a zip": _of_a_zip,
    "parts": _in_parts,
    "appended": _appended,
    "given": _given,
}
ENCODED: list[dict[str, Any]] = [
    {"codec": "raw"},
    {"codec": "png"},
    {"codec": "webp", "quality": 50},
    {"resize": 16},
    {"resize": 16, "codec": "bmp", "exif": "apply"},
    {"codec": "jpeg", "tiles": False},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{"codec": "raw"}, {"resize": 16}], ids=str)
def test_every_way_refuses_by_name_bits_and_option(
    way: str, options: dict[str, Any], tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(ImageError, match=r"a/1\.png: it has 16 bits a channel") as caught:
        WAYS[way](tree, tmp_path, **options)
    assert "to_8_bit='clip'" in str(caught.value)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_leaves_them_out_where_that_is_said(way: str, tree: Path, tmp_path: Path) -> None:
    manifest = WAYS[way](tree, tmp_path, codec="raw", on_error="skip").manifest
    reasons = {entry["name"]: entry["reason"] for entry in manifest.skipped}
    assert list(reasons) == BEYOND
    assert all(reason.startswith(EXCESS[name]) for name, reason in reasons.items())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["clip", "type", "file"])
def test_every_way_stores_the_same_pixels(way: str, how: str, tree: Path, tmp_path: Path) -> None:
    manifest = WAYS[way](tree, tmp_path, codec="raw", to_8_bit=how).manifest
    assert manifest.settings["to_8_bit"] == how
    assert manifest.findings == {"4 bands, of which 3 are read as RGB": 1, FOUND[how]: 4}
    with packer.open_dataset(tmp_path / "pack.lmdb", output="numpy", fields=("image", "name")) as dataset:
        found = {item["name"]: item["image"] for item in dataset}
    dark = found["a/1.png"][..., 0]
    expected = {
        "clip": DARK.clip(0, 255),
        "type": DARK >> 8,
        "file": np.rint(DARK.astype(np.float64) * 255 / DARK.max()),
    }[how]
    assert np.array_equal(dark, expected)
    assert np.array_equal(found["b/4.tif"], noise(4, "u1", (40, 53))[..., :3])
    if how == "type":
        assert np.array_equal(found["b/2.tif"], noise(3, "u2", (40, 53)) >> 8)
        assert np.array_equal(found["b/3.tif"][..., 0], np.rint(noise(1, "f4", (40, 53))[..., 0] * np.float32(255)))


@pytest.mark.parametrize("options", ENCODED, ids=str)
def test_every_codec_asks(options: dict[str, Any], tree: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="to_8_bit"):
        packer.convert(tree, tmp_path / "a.lmdb", **options)
    packer.convert(tree, tmp_path / "b.lmdb", **options, to_8_bit="file")
    with packer.open_dataset(tmp_path / "b.lmdb", output="numpy") as dataset:
        assert all(20 < image.mean() < 235 for image, _ in dataset)


def test_kept_files_are_never_refused(tree: Path, tmp_path: Path) -> None:
    manifest = packer.convert(tree, tmp_path / "pack.lmdb").manifest
    assert manifest.count == len(FILES)
    assert manifest.findings[CLIPPED] == 3
    assert manifest.findings[DEEP] == 1
    assert "to_8_bit" not in manifest.settings
    with packer.open_dataset(tmp_path / "pack.lmdb", output="bytes") as dataset:
        for index, data in enumerate(FILES.values()):
            assert bytes(dataset.reader.read(index)) == data


def test_nothing_else_changes(tmp_path: Path) -> None:
    """Without such images, the option changes neither the bytes of a pack nor any other setting."""
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "0.png").write_bytes(FILES["a/0.png"])
    plain, said = tmp_path / "plain.lmdb", tmp_path / "said.lmdb"
    before = packer.convert(tmp_path / "tree", plain, codec="raw").manifest
    after = packer.convert(tmp_path / "tree", said, codec="raw", to_8_bit="type").manifest
    assert before.columns == after.columns
    assert after.settings == {**before.settings, "to_8_bit": "type"}
    assert before.findings == after.findings == {}


def test_the_option_has_to_decide_something(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="to_8_bit= applies only to images that are encoded"):
        packer.convert(tree, tmp_path / "a.lmdb", to_8_bit="clip")
    with pytest.raises(ValueError, match="to_8_bit must be one of clip, type, file"):
        packer.convert(tree, tmp_path / "a.lmdb", codec="raw", to_8_bit="round")


def test_an_unfinished_conversion_names_the_option(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        packer.convert(tree, tmp_path / "a.lmdb", codec="raw")
    with pytest.raises(ResumeError, match="to_8_bit= was not given and is now type"):
        packer.convert(tree, tmp_path / "a.lmdb", codec="raw", to_8_bit="type")
    packer.convert(tree, tmp_path / "a.lmdb", codec="raw", to_8_bit="type", fresh=True)


def test_masks_and_images_of_fields_keep_their_bits(tmp_path: Path) -> None:
    """A field's image of 16 bits is resized and keeps them; one of floats is refused by the field's name."""
    depth, mask = noise(1, "u2", (40, 53))[..., 0], noise(1, "u2", (40, 53))[..., 0] % 1000
    sample = {"image": FILES["a/0.png"], "depth": depth, "mask": mask}
    fields = {"depth": "image", "mask": "mask"}
    packer.pack([sample], tmp_path / "a.lmdb", fields=fields, resize=15, to_8_bit="clip")
    with packer.open_dataset(tmp_path / "a.lmdb", fields=("depth", "mask"), output="numpy") as dataset:
        item = dataset[0]
    assert item["depth"].dtype == np.uint16
    assert item["depth"].shape == (15, 19, 1)
    assert abs(float(item["depth"].mean()) - depth.mean()) < 2000
    assert item["mask"].dtype == np.uint16
    assert set(np.unique(item["mask"])) <= set(np.unique(mask))
    colour = tiff(noise(3, "u2", (40, 53)))
    packer.pack([{**sample, "depth": colour}], tmp_path / "b.lmdb", fields=fields, resize=15)
    with packer.open_dataset(tmp_path / "b.lmdb", fields=("depth",), output="numpy") as dataset:
        assert dataset[0]["depth"].shape == (15, 19, 3)
        assert dataset[0]["depth"].dtype == np.uint16
    floats = tiff(noise(1, "f4", (40, 53)), GREY)
    with pytest.raises(ImageError, match="field 'depth': pixels of float32 cannot be resized"):
        packer.pack([{**sample, "depth": floats}], tmp_path / "c.lmdb", fields=fields, resize=15)


def test_the_estimate_says_the_option(tree: Path, tmp_path: Path) -> None:
    found = packer.estimate(tree, tmp_path / "a.lmdb", resize=16, seconds=0.4)
    assert {entry["name"] for entry in found.left_out} == set(BEYOND)
    assert any("--to-8-bit clip, type or file" in note for note in found.notes)
    kept = packer.estimate(tree, tmp_path / "a.lmdb", seconds=0.4)
    assert not kept.left_out
    assert kept.alternatives
    assert all("--to-8-bit" in other.options for other in kept.alternatives if other.options not in ("--tiles",))
    told = packer.estimate(tree, tmp_path / "a.lmdb", resize=16, to_8_bit="file", seconds=0.4)
    assert not told.left_out
    assert "--to-8-bit file" in told.command
    assert all("--to-8-bit type" not in other.options for other in told.alternatives)


def test_what_the_commands_say(tree: Path, tmp_path: Path) -> None:
    kept, refused, skipped, made, info = packer_many(
        [
            ["convert", tree, tmp_path / "kept.lmdb"],
            ["convert", tree, tmp_path / "a.lmdb", "--resize", "16"],
            ["convert", tree, tmp_path / "b.lmdb", "--resize", "16", "--on-error", "skip", "--report", tmp_path / "r"],
            ["convert", tree, tmp_path / "c.lmdb", "--resize", "16", "--to-8-bit", "file"],
            ["info", tmp_path / "c.lmdb"],
        ]
    )
    assert "  1 x 4 bands, of which 3 are read as RGB" in kept.stdout
    assert refused.returncode == 1
    assert "a/1.png: it has 16 bits a channel, but jpeg stores 8-bit RGB: pass --to-8-bit clip" in refused.stderr
    assert "start over with --fresh" in refused.stderr
    assert skipped.returncode == 3
    assert [json.loads(line)["name"] for line in (tmp_path / "r").read_text().splitlines()] == BEYOND
    assert f"  4 x {FOUND['file']}" in made.stdout
    assert FOUND["file"] in info.stdout
