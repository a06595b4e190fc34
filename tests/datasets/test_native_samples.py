"""Samples that C reads, checks and decodes have the same pixels and errors as without C."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import packer._formats.parts
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._datasets.open import ImageDataset, open_dataset
from packer._images import native
from packer._images.resize import ResizeSpec
from packer._sources.imagefolder import imagefolder_source
from packer._table import Sample
from packer.crops import Compose, Crop, RandomResizedCrop, Resize, ResizeCenterCrop
from packer.errors import CorruptPackError, ImageError
from tests.command import python
from tests.images.samples import jpeg
from tests.pairs import pairwise
from tests.samples import SUFFIXES, write_pack

CROPS = [RandomResizedCrop(24, flip=0.5), ResizeCenterCrop(20, 31), Resize((19, 19)), Compose([])]
RECIPES = {
    "keep": Recipe(),
    "raw": Recipe("raw", resize=ResizeSpec(40), to_8_bit="clip"),
    "jpeg": Recipe("jpeg", tiles=True, to_8_bit="clip"),
    "png": Recipe("png", to_8_bit="clip"),
    "exif applied": Recipe(exif="apply"),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*16 bits or floats per pixel:UserWarning")  # odd_tree has some

needs_c = pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation")


@pytest.fixture(scope="module")
def packs(odd_tree: Path, photo_tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a pack of ordinary and odd images; tests must not change it."""
    root = tmp_path_factory.mktemp("packs")
    shutil.copytree(odd_tree, root / "tree")
    shutil.copytree(photo_tree, root / "tree", dirs_exist_ok=True)

    def made(format: str, recipe: str = "keep", **options: Any) -> Path:
        path = root / f"{recipe}{len(options)}{SUFFIXES[format]}"
        if not path.exists():
            convert(imagefolder_source(root / "tree"), path, recipe=RECIPES[recipe], **options)
        return path

    return made


def drawn(dataset: ImageDataset, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return all images, read in a random order, in batches of several sizes."""
    dataset.set_epoch(0)
    found: dict[int, Any] = {}
    order = np.random.default_rng(seed).permutation(len(dataset))
    for batch in np.split(order, [0, 1, 8, 9]):
        items = dataset.__getitems__(batch)  # type: ignore[arg-type]
        found.update(zip(batch.tolist(), (image for image, _ in items), strict=True))
    return [found[index] for index in range(len(dataset))]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many of its jobs each call of C's `decode_into` has decoded."""
    done: list[int] = []
    if not native.PREFERRED:
        return done
    draw = native._native.decode_into

    def noting(jobs: int, count: int, *rest: int) -> list[int]:
        left: list[int] = draw(jobs, count, *rest)
        done.append(count - len(left))
        return left

    monkeypatch.setattr(native._native, "decode_into", noting)
    return done


@needs_c
@pairwise(recipe=RECIPES, crop=CROPS, format=SUFFIXES, check=["always", "never"])
def test_the_pixels_are_those_without_c(  # noqa: PLR0917
    format: str, recipe: str, crop: Crop, check: str, packs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packs(format, recipe)
    dataset = open_dataset(path, crop=crop, seed=0, output="numpy", check=check)
    with monkeypatch.context() as patch:
        done = counted(patch)
        found = drawn(dataset)
    if recipe not in ("png", "exif applied"):
        assert max(done) > 1  # many at once
    monkeypatch.setattr(native, "PREFERRED", False)
    for image, expected in zip(found, drawn(dataset), strict=True):
        assert np.array_equal(image, expected)


@needs_c
def test_another_decoder_does_what_c_would(packs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done = counted(monkeypatch)
    drawn(open_dataset(packs("lmdb"), crop=Resize((8, 8)), decoder="opencv"))
    assert sum(done) == 0


def test_scaled_decoding_changes_nothing_and_warns(packs: Any) -> None:
    expected = drawn(open_dataset(packs("lmdb"), crop=Resize((8, 8))))
    with pytest.warns(UserWarning, match="scaled_decode=True has no effect"):
        dataset = open_dataset(packs("lmdb"), crop=Resize((8, 8)), scaled_decode=True)
    assert not dataset.scaled_decode
    assert all(np.array_equal(one, other) for one, other in zip(drawn(dataset), expected, strict=True))


@pytest.mark.parametrize("check", ["always", "never"])
def test_more_files_than_are_kept_open(check: str, packs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = drawn(open_dataset(packs("lmdb"), crop=CROPS[0], seed=0, output="numpy"))
    path = packs("pth", options={"shard_size": 4000})
    assert len(list(path.glob("shard-*.pth"))) > 5
    monkeypatch.setattr(packer._formats.parts, "_OPEN_FILES", 1)
    dataset = open_dataset(path, crop=CROPS[0], seed=0, output="numpy", check=check)
    for image, other in zip(drawn(dataset), expected, strict=True):
        assert np.array_equal(image, other)


@pytest.mark.parametrize("change", ["removed", "cut short", "replaced"])
def test_files_that_are_no_longer_what_they_were(change: str, packs: Any, tmp_path: Path) -> None:
    path = shutil.copytree(packs("pth", options={"shard_size": 4000}), tmp_path / "pack.pth")
    dataset = open_dataset(path, crop=CROPS[0], seed=0)
    dataset[len(dataset) - 1]
    victim = path / "shard-00001.pth"
    match change:
        case "removed":
            victim.unlink()
        case "cut short":
            os.truncate(victim, 700)
        case _:
            shutil.copyfile(path / "shard-00002.pth", victim)
    first = int(np.searchsorted(dataset.reader.table.offset, 4000))
    with pytest.raises(CorruptPackError) as caught:
        drawn(dataset)
    assert caught.value.index is not None
    assert caught.value.index <= first
    assert dataset.reader.names.get(caught.value.index) in str(caught.value)


def test_the_first_that_is_damaged_in_the_file_is_named(packs: Any, tmp_path: Path) -> None:
    path = shutil.copyfile(packs("hdf5"), tmp_path / "pack.h5")
    dataset = open_dataset(path, crop=CROPS[0], seed=0)
    stored, _files = dataset.reader.locate(np.array([3, 9]))
    with open(path, "r+b") as file:
        for at in stored["position"].tolist():
            file.seek(at + 300)
            file.write(b"????")
    with pytest.raises(CorruptPackError, match=r"sample 3\b"):
        dataset.__getitems__([9, 1, 3, 2])


def test_raw_pixels_of_another_size_than_the_row_says(tmp_path: Path) -> None:
    samples = [Sample(str(number), 0, bytes(5 * 7 * 3), *size) for number, size in enumerate([(5, 7), (7, 5), (5, 6)])]
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples, codec="raw")
    dataset = open_dataset(path, crop=Compose([]))
    assert [tuple(image.shape) for image, _ in dataset.__getitems__([0, 1])] == [(3, 5, 7), (3, 7, 5)]
    with pytest.raises(CorruptPackError, match=r"sample 2.*105 bytes are not 6 x 5 pixels"):
        dataset.__getitems__([0, 2])


def test_images_of_another_size_than_the_row_says(tmp_path: Path, photo_tree: Path) -> None:
    data = next(photo_tree.rglob("*.jpg")).read_bytes()
    samples = [Sample("right", 0, data, 64, 48), Sample("wrong", 0, data, 63, 48)]
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples)
    with pytest.raises(ImageError, match=r"sample 1 \(wrong\).*48 x 64 pixels.*48 x 63"):
        open_dataset(path, crop=Compose([])).__getitems__([0, 1])


def test_indices_that_are_none_or_negative(packs: Any) -> None:
    dataset = open_dataset(packs("lmdb"), crop=CROPS[1], seed=0)
    assert dataset.__getitems__([]) == []
    (image, _), (other, _) = dataset.__getitems__([-1, len(dataset) - 1])
    assert torch.equal(image, other)
    with pytest.raises(IndexError, match="out of range"):
        dataset.__getitems__([0, len(dataset)])


@needs_c
@given(size=st.one_of(st.integers(0, 5000), st.sampled_from([1535, 1536, 1537, 12_289, 1 << 20])), data=st.data())
def test_checksums_are_those_of_a_library(size: int, data: st.DataObject) -> None:
    content = np.random.default_rng(size).bytes(size)
    cut, expected = data.draw(st.integers(0, size)), google_crc32c.value(content)
    assert native._native.crc32c(content, 0) == expected
    assert native._native.crc32c(content[cut:], native._native.crc32c(content[:cut], 0)) == expected


def outcomes(path: Path, check: str) -> list[str]:
    """Return for each sample of a pack the digest of its pixels, or the error."""
    dataset = open_dataset(path, crop=CROPS[1], seed=0, output="numpy", check=check)
    found = []
    for index in range(len(dataset)):
        try:
            (image, _), _ = dataset.__getitems__([index, 0])
            found.append(hashlib.sha256(image.tobytes()).hexdigest())
        except (CorruptPackError, ImageError) as error:
            found.append(str(error))
    return found


FAR = st.sampled_from([-1, 1, -(2**63), 2**63 - 1, 2**62, 2**40, -(2**40), 7])


@needs_c
@settings(max_examples=60)
@given(data=st.data())
def test_tables_of_strangers_lead_to_the_same_as_without_c(data: st.DataObject, photo_tree: Path) -> None:
    photos = [path.read_bytes() for path in sorted(photo_tree.rglob("*.jpg"))[:6]]
    samples = [Sample(str(number), 0, photo, 64, 48) for number, photo in enumerate(photos)]
    column, victim = data.draw(st.sampled_from(["offset", "size", "label", "crc32c"])), data.draw(st.integers(1, 5))
    value = data.draw(FAR)

    def change(index: int, row: dict[str, Any]) -> None:
        if index == victim:
            row[column] = value % 2**32 if column == "crc32c" else value

    with tempfile.TemporaryDirectory() as directory:
        path = write_pack(Path(directory, "pack.lmdb"), "lmdb", samples, change=change)
        by_c = outcomes(path, "always")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "PREFERRED", False)
            assert by_c == outcomes(path, "always")
        assert len(set(by_c)) == 6


SHRINKING = """
import os, sys, threading, time
from packer.crops import RandomResizedCrop
from packer._datasets.open import open_dataset
from packer.errors import CorruptPackError
path = sys.argv[1]
dataset = open_dataset(path, crop=RandomResizedCrop(300, flip=0.5), seed=0)
threading.Timer(0.2, os.truncate, (path, int(dataset.reader.table.offset[-1]))).start()
end = time.monotonic() + 20
try:
    while time.monotonic() < end:
        dataset.__getitems__(range(len(dataset)))
except CorruptPackError as error:
    print("shorter" in str(error))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs files that can be cut short while they are open")
def test_a_table_that_is_cut_off_while_samples_are_drawn(photo_tree: Path, tmp_path: Path) -> None:
    """The table's names are memory-mapped: reading them after the file was cut would kill the process."""
    photo = next(photo_tree.rglob("*.jpg")).read_bytes()
    samples = (Sample(f"{number}{'x' * 200}", 0, photo, 64, 48) for number in range(1000))
    path = write_pack(tmp_path / "pack.lmdb", "lmdb", samples)
    result = python(SHRINKING, path, check=False)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


CUT_OFF = """
import os, sys
import numpy as np
from packer._formats import open_pack
from packer.errors import CorruptPackError
reader = open_pack(sys.argv[1])
rows = reader.read_rows(np.arange(len(reader)))
next(rows)
os.truncate(sys.argv[1], int(reader.table.offset[-1]))
try:
    list(rows)
except CorruptPackError as error:
    print("became shorter" in str(error))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs files that can be cut short while they are open")
def test_the_error_of_a_file_that_is_cut_off_touches_nothing_that_is_gone(tmp_path: Path) -> None:
    """An error usually names the sample, but this name was in the mapped memory that is gone."""
    samples = (Sample(f"{number}{'x' * 200}", 0, bytes(3000), 64, 48) for number in range(1000))
    result = python(CUT_OFF, write_pack(tmp_path / "pack.lmdb", "lmdb", samples), check=False)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@needs_c
def test_closing_while_samples_are_drawn_gives_no_other_files_pixels(tmp_path: Path) -> None:
    path, other = (
        write_pack(
            tmp_path / f"{value}.lmdb",
            "lmdb",
            [Sample(str(number), 0, bytes([value]) * (64 * 48 * 3), 64, 48) for number in range(32)],
            codec="raw",
        )
        for value in (1, 2)
    )
    taker = os.open(other, os.O_RDONLY)
    for turn in range(60):
        dataset = open_dataset(path, crop=Resize((400, 400)), check="never", output="numpy")
        number = dataset.reader._file._fd  # type: ignore[attr-defined]
        with ThreadPoolExecutor(1) as pool:
            drawing_on = pool.submit(dataset.__getitems__, range(32))
            time.sleep(turn * 1e-4)
            dataset.reader.close()
            free = not is_open(number)  # otherwise no other file can get this number during the read
            if free:
                os.dup2(taker, number)  # as the next open() would
            try:
                items = drawing_on.result()
            except ValueError:  # it is closed
                items = []
            finally:
                if free:
                    os.close(number)
            assert all((image == 1).all() for image, _ in items)
    os.close(taker)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_drawing_leaves_no_file_open(packs: Any) -> None:
    dataset = open_dataset(packs("lmdb"), crop=CROPS[0], seed=0)
    drawn(dataset)
    before = len(os.listdir("/proc/self/fd"))
    for seed in range(5):
        drawn(dataset, seed)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_oriented_images_are_drawn_as_upright_ones(packs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exif="apply", packer's own decoder decodes only the images without an orientation."""
    dataset = open_dataset(packs("lmdb", "exif applied"), crop=CROPS[0], seed=0, output="numpy")
    done = counted(monkeypatch)
    found = drawn(dataset)
    assert sum(done) >= 15 or not native.PREFERRED
    monkeypatch.setattr(native, "PREFERRED", False)
    for image, expected in zip(found, drawn(dataset), strict=True):
        assert np.array_equal(image, expected)


@needs_c
def test_what_c_leaves_to_others_is_not_offered_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [jpeg(variant=variant) for variant in ("baseline", "progressive")]
    cut = whole[0][: len(whole[0]) // 2] + b"\xff\xd9"  # Pillow decodes it and fills the rest with grey
    samples = [Sample(f"a/{number}", 0, data, 48, 64) for number, data in enumerate([*whole, cut])]
    dataset = open_dataset(write_pack(tmp_path / "x.lmdb", "lmdb", samples), crop=Resize((16, 16)), output="numpy")
    offered = []
    draw = native._native.decode_into
    monkeypatch.setattr(
        native._native, "decode_into", lambda jobs, count, *rest: (offered.append(count), draw(jobs, count, *rest))[1]
    )
    found = [image for image, _ in dataset.__getitems__([0, 1, 2])]
    assert sum(offered) == 3
    by_pillow = open_dataset(tmp_path / "x.lmdb", crop=Resize((16, 16)), output="numpy", decoder="pillow")
    assert all(np.array_equal(image, by_pillow[index][0]) for index, image in enumerate(found))
