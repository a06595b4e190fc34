"""LMDB files whose values are images or pixels: LSUN, BasicSR, PySODToolBox, and any other."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from PIL import Image

import packer
from packer._containers import find_container
from packer._formats import open_pack
from packer._packs.verify import verify
from packer.errors import NotAPackError, PackerError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.containers.lmdbs import entries_of, photos, write_lmdb

WEBP = photos(9, "WEBP")
KEYS = [bytes(f"{number * 7919 % 65536:04x}", "ascii") * 10 for number in range(9)]


def listed(src: Path | str, **options: Any) -> tuple[list[str], list[int], list[bytes]]:
    """Index a source and verify the index; return its names, labels and bytes."""
    index = Path(str(src).replace("*", "all")).with_suffix(".index")
    packer.index(src, index, **options)
    assert verify(index) == []
    with open_pack(index) as reader:
        return list(reader.names), reader.table.label.tolist(), [bytes(reader.read(n)) for n in range(len(reader))]


def lsun(root: Path, *names: str) -> Path:
    """Write directories of three images each."""
    for number, name in enumerate(names):
        start = number * 3 % 9
        items = zip(KEYS[start : start + 3], WEBP[start : start + 3], strict=True)
        write_lmdb(root / f"{name}_lmdb", items, subdir=True)
    return root


@pytest.mark.parametrize("src", ["*_train_lmdb", ""])
def test_directories_of_lsun_are_classes(tmp_path: Path, src: str) -> None:
    """Their classes are sorted, as torchvision has them."""
    root = lsun(tmp_path / "lsun", "tower_train", "bedroom_train", "church_outdoor_train")
    names, labels, data = listed(root / src if src else root)
    order = [("bedroom", 1), ("church_outdoor", 2), ("tower", 0)]
    expected = [
        (f"{name}/{key.decode()}.webp", label, value)
        for label, (name, _) in enumerate(order)
        for key, value in entries_of(root / f"{name}_train_lmdb")
    ]
    assert list(zip(names, labels, data, strict=True)) == expected
    assert packer.open_dataset(root).classes == ["bedroom", "church_outdoor", "tower"]


def test_splits_of_lsun_are_not_mixed(tmp_path: Path) -> None:
    root = lsun(tmp_path / "lsun", "tower_train", "tower_val")
    with pytest.raises(SourceError, match=r"has the splits train, val. Choose one: .*_train_lmdb"):
        packer.index(root, tmp_path / "out.index")
    assert listed(f"{root}/*_val_lmdb")[1] == [0, 0, 0]


@pytest.mark.parametrize(("name", "label"), [("bedroom_train", 0), ("test", -1), ("cats", -1)])
def test_one_directory_of_lsun(tmp_path: Path, name: str, label: int) -> None:
    """The images have a label only if the directory's name is that of a category and a split."""
    path = lsun(tmp_path / "lsun", name) / f"{name}_lmdb"
    names, labels, data = listed(path)
    assert labels == [label] * 3
    assert dict(zip(names, data, strict=True)) == {
        ("bedroom/" if label == 0 else "") + f"{key.decode()}.webp": value for key, value in entries_of(path)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(packer.open_dataset(path)) == 3


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_any_file_of_images(tmp_path: Path, form: str) -> None:
    """BasicSR's keys are names without suffix."""
    images, suffix = photos(5, form), ".png" if form == "PNG" else ".jpg"
    items = {f"0{number:03d}_s001": image for number, image in enumerate(images)}
    path = write_lmdb(tmp_path / "DIV2K_train_HR.lmdb", [(k.encode(), v) for k, v in items.items()], subdir=True)
    (path / "meta_info.txt").write_text("".join(f"{name}.png (16,20,3) 1\n" for name in items))
    assert listed(path) == ([name + suffix for name in items], [-1] * 5, images)
    packer.convert(path, tmp_path / "pack.h5")
    with open_pack(tmp_path / "pack.h5") as reader:
        assert [bytes(reader.read(number)) for number in range(5)] == images


def test_keys_that_are_no_text_and_keys_with_suffixes(tmp_path: Path) -> None:
    keys = [b"\x00\x00\x00\x01", b"a/b.jpeg", b"c.txt", "ä".encode()]
    path = write_lmdb(tmp_path / "images", zip(keys, WEBP, strict=False))
    assert listed(path)[0] == ["00000001.webp", "a/b.jpeg", "c.txt.webp", "ä.webp"]


def test_a_value_that_is_no_image_is_named(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "images", [*zip(KEYS, WEBP, strict=True), (b"zzz", bytes(range(256)))])
    with pytest.raises(SourceError, match="images: zzz: its value is not an image"):
        packer.index(path, tmp_path / "out.index")
    packer.index(path, tmp_path / "out.index", on_error="skip")
    with open_pack(tmp_path / "out.index") as reader:
        assert len(reader) == len(KEYS)
        assert [skipped["name"] for skipped in reader.manifest.skipped] == ["zzz"]


def pysod(path: Path, arrays: dict[str, np.ndarray[Any, Any]], protocol: int = 4, **changed: Any) -> Path:
    """Write a directory as PySODToolBox does."""
    write_lmdb(path, [(key.encode(), array.tobytes()) for key, array in arrays.items()], subdir=True)
    shapes = [
        "_".join(map(str, (array.shape[2] if array.ndim == 3 else 1, *array.shape[:2]))) for array in arrays.values()
    ]
    shapes = shapes if len(set(shapes)) > 1 else shapes[:1]
    info = {"name": path.stem, "resolution": shapes, "keys": list(arrays)} | changed
    (path / "meta_info.pkl").write_bytes(pickle.dumps(info, protocol))
    return path


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("shape", [(12, 9, 3), (12, 9)])
def test_pixels_of_pysodtoolbox(tmp_path: Path, shape: tuple[int, ...], protocol: int) -> None:
    """OpenCV's pixels have blue first; the samples have the order of the list of keys."""
    rng = np.random.default_rng(2)
    arrays = {f"{name}.jpg": rng.integers(0, 256, (12 + n, *shape[1:]), np.uint8) for n, name in enumerate("cba")}
    path = pysod(tmp_path / "DUTS.lmdb", arrays, protocol)
    names, labels, data = listed(path)
    assert (names, labels) == (["c.png", "b.png", "a.png"], [-1] * 3)
    packer.convert(path, tmp_path / "pack.lmdb")
    with open_pack(tmp_path / "pack.lmdb") as reader:
        for number, array in enumerate(arrays.values()):
            expected = array[..., ::-1] if array.ndim == 3 else np.repeat(array[..., None], 3, 2)
            assert data[number] == np.ascontiguousarray(expected).tobytes()
            shown = Image.open(io.BytesIO(reader.read(number))).convert("RGB")
            np.testing.assert_array_equal(np.asarray(shown), expected)


def test_pixels_of_pysodtoolbox_of_one_size(tmp_path: Path) -> None:
    arrays = {"a.jpg": np.full((4, 6, 3), 7, np.uint8), "a.png": np.full((4, 6, 3), 9, np.uint8)}
    path = pysod(tmp_path / "DUTS.lmdb", arrays)
    assert listed(path)[::2] == (["a.jpg.png", "a.png.png"], [bytes([7]) * 72, bytes([9]) * 72])


@pytest.mark.parametrize(
    ("arrays", "changed", "reason"),
    [
        ({"a.png": np.zeros((4, 6, 3), np.uint16)}, {}, "a.png: 144 bytes for 6 x 4 are pixels of 16 bits"),
        ({"a.png": np.zeros((4, 6, 4), np.uint8)}, {}, "has images of 4 channels"),
        ({"a.png": np.zeros((4, 6, 3), np.uint8), "b.png": np.zeros((4, 6), np.uint8)}, {}, "of 1, 3 channels"),
        ({"a.png": np.zeros((4, 6, 3), np.uint8)}, {"resolution": ["3_4_7"]}, "are the wrong number"),
        ({"a.png": np.zeros((4, 6, 3), np.uint8)}, {"keys": ["b.png"]}, "key 'b.png': is missing"),
    ],
)
def test_what_pysodtoolbox_does_not_say_is_refused(
    tmp_path: Path, arrays: dict[str, Any], changed: dict[str, Any], reason: str
) -> None:
    path = pysod(tmp_path / "DUTS.lmdb", arrays, **changed)
    with pytest.raises(SourceError, match=reason):
        packer.index(path, tmp_path / "out.index")


def test_a_pack_is_no_container(tmp_path: Path) -> None:
    """This holds for a whole pack, one that also has keys of another tool, and one that is truncated."""
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(24, 32))
    pack = tmp_path / "pack.lmdb"
    packer.convert(tmp_path / "tree", pack)
    assert find_container([pack]) is None
    assert len(packer.open_dataset(pack)) == 4
    with lmdb.open(str(pack), subdir=False, map_size=1 << 26) as environment, environment.begin(write=True) as writing:
        writing.delete(b"packer/manifest")
        writing.put(b"00", WEBP[0])
    assert find_container([pack]) is None
    with pytest.raises(NotAPackError):
        packer.index(pack, tmp_path / "out.index")
    os.truncate(pack, pack.stat().st_size // 2)
    assert find_container([pack]) is None


def test_lmdb_1_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "new.lmdb"
    try:
        environment = lmdb.open(str(path), subdir=False, map_size=1 << 24, lib_version=1)
    except TypeError:
        pytest.skip("needs lmdb 3, which writes files of LMDB 1.0")
    with environment, environment.begin(write=True) as writing:
        writing.put(b"a", WEBP[0])
    for verb in (packer.index, packer.convert):
        with pytest.raises(SourceError, match=r"data version 3 of LMDB 1.0, which packer does not read.*mdb_dump"):
            verb(path, tmp_path / ("out.index" if verb is packer.index else "out.h5"))
    with pytest.raises(SourceError, match=r"LMDB 1\.0"):
        packer.open_dataset(path)


def test_databases_in_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "named"
    with lmdb.open(str(path), subdir=False, map_size=1 << 24, max_dbs=2) as environment:
        inner = environment.open_db(b"inner")
        with environment.begin(write=True) as writing:
            writing.put(b"a", WEBP[0], db=inner)
    assert find_container([path]) is None
    with pytest.raises(NotAPackError):
        packer.index(path, tmp_path / "out.index")


@pytest.mark.parametrize("flag", [0x02, 0x04, 0x08])
def test_keys_that_are_numbers_or_reversed_or_have_several_values_are_refused(tmp_path: Path, flag: int) -> None:
    path = write_lmdb(tmp_path / "images", zip(KEYS, WEBP, strict=True))
    data = bytearray(path.read_bytes())
    for page in (0, 4096):
        data[page + 16 + 24 + 48 + 4] = flag  # of the main database, in both meta pages
    path.write_bytes(data)
    assert find_container([path]) is None


def test_a_file_that_changed_is_named_and_the_rest_still_reads(tmp_path: Path) -> None:
    root = lsun(tmp_path / "lsun", "tower_train", "bedroom_train")
    packer.index(root, tmp_path / "out.index")
    os.truncate(root / "tower_train_lmdb" / "data.mdb", 5000)
    with open_pack(tmp_path / "out.index") as reader:
        assert bytes(reader.read(0)) == entries_of(root / "bedroom_train_lmdb")[0][1]
    assert any("tower_train_lmdb" in str(damage) for damage in verify(tmp_path / "out.index"))


@pytest.mark.parametrize("cut", [2, 5, 7])
def test_a_file_that_is_cut_short_before_is_refused(tmp_path: Path, cut: int) -> None:
    path = write_lmdb(tmp_path / "images.lmdb", zip(KEYS, WEBP, strict=True))
    os.truncate(path, path.stat().st_size * cut // 10)
    with pytest.raises(PackerError, match=r"images\.lmdb"):
        packer.index(path, tmp_path / "out.index")


def words(count: int, said: bytes, *others: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the keys and values that tools of text recognition write."""
    images = [(b"image-%09d" % number, WEBP[number % 9]) for number in range(1, count + 1)]
    texts = [(b"label-%09d" % number, f"wörd {number}".encode()) for number in range(1, count + 1)]
    return [*images, *texts, (b"num-samples", said), *others]


@pytest.mark.parametrize("subdir", [False, True])
def test_texts_of_text_recognition_are_a_field(tmp_path: Path, subdir: bool) -> None:
    path = write_lmdb(tmp_path / "words", words(12, b"12"), subdir=subdir)
    names, labels, data = listed(path)
    assert names == [f"image-{number:09d}.webp" for number in range(1, 13)]
    assert (labels, data) == (
        [-1] * 12,
        [dict(entries_of(path))[name.removesuffix(".webp").encode()] for name in names],
    )
    with open_pack(path.with_suffix(".index")) as reader:
        texts = [bytes(reader.value(number, "text") or b"").decode() for number in range(12)]
    assert texts == [f"wörd {number}" for number in range(1, 13)]


def test_samples_that_are_not_counted_or_not_there_are_said(tmp_path: Path) -> None:
    path = write_lmdb(tmp_path / "words", words(4, b"3", (b"meta", b"x")))
    notes = packer.index(path, tmp_path / "a.index").notes
    assert "left out: 3 keys (image-000000004, label-000000004, meta): " in notes[1]
    path = write_lmdb(tmp_path / "more", words(4, b"5"))
    with pytest.raises(SourceError, match=r"image-000000005: it has no image.*skip"):
        packer.index(path, tmp_path / "b.index")
    assert packer.index(path, tmp_path / "b.index", on_error="skip").manifest.count == 4
    for said in (b"", b"x", b"99", b"-1"):
        path = write_lmdb(tmp_path / f"odd{said.decode()}", words(2, said))
        with pytest.raises(SourceError, match=r"num-samples is .*, not a number of samples"):
            packer.index(path, tmp_path / "c.index")


@pytest.mark.parametrize(
    ("value", "guess"),
    [
        (b"\x82\xa5image\xc4\x02\xff\xd8\xa5label\x01", "MessagePack"),
        (b"\x92\xc4\x02\xff\xd8\x01", "MessagePack"),
        (b'{"image": "aGVsbG8=", "label": 1}', "JSON"),
        (b"some text", "the text 'some text'"),
        (pickle.dumps((Image.new("RGB", (2, 2)), 1), 0), "pickle of protocol 0"),
        (b"\x0a\x05\xff\xfe", "0a 05 ff fe"),
        (b"", "empty"),
    ],
)
@pytest.mark.parametrize("subdir", [False, True])
def test_an_lmdb_file_of_other_values_is_named_as_one(tmp_path: Path, value: bytes, guess: str, subdir: bool) -> None:
    path = write_lmdb(tmp_path / "values", [(b"%d" % number, value) for number in range(3)], subdir=subdir)
    for attempt in (packer.open_dataset, lambda src: packer.convert(src, tmp_path / "out.lmdb")):
        with pytest.raises(PackerError, match=rf"values.*is an LMDB file, and the value of its key '0' is .*{guess}"):
            attempt(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickled_object_is_named_by_its_class(tmp_path: Path, protocol: int) -> None:
    for value, name in ((Image.new("RGB", (2, 2)), "PIL.Image.Image"), (Path("x"), "Path")):
        path = write_lmdb(tmp_path / name / "pil", [(b"0", pickle.dumps((value, 1), protocol))])
        with pytest.raises(SourceError, match=rf"instance of a class, .*{name}|calls '.*Path'"):
            packer.index(path, tmp_path / "out.index")


def test_texts_beside_images_are_said_and_labels_asked_for(tmp_path: Path) -> None:
    images = [(b"img%d" % number, data) for number, data in enumerate(WEBP)]
    counts = [(b"__len__", b"9"), (b"length", pickle.dumps(9)), (b"num-samples", b"9")]
    path = write_lmdb(tmp_path / "noted", [*images, *counts, (b"note", b"by me")])
    assert packer.index(path, tmp_path / "a.index").notes[1:] == [
        "left out: 1 key (note): their values are texts or numbers, not images",
        "not looked at: 3 keys (__len__, length, num-samples): it holds the number of samples",
    ]
    path = write_lmdb(tmp_path / "labelled", [*images, *((b"label%d" % number, b"1") for number in range(9))])
    with pytest.raises(SourceError, match=r"key 'label0' looks like labels.*unlabeled"):
        packer.index(path, tmp_path / "b.index")
    assert packer.index(path, tmp_path / "b.index", unlabeled=True).manifest.count == 9
