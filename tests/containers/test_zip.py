"""Zip archives that zipfile writes, listed as packer lists the unpacked tree."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer._containers import Listing, list_samples
from packer._containers.zip import Zip
from packer._sources.imagefolder import imagefolder_source
from packer._storage.stray_files import LEFT_BY_SYSTEM
from packer.errors import ImageError, OptionError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.containers.samples import images, labels, stored, values


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("photos")
    draw_imagefolder(root, classes=3, per_class=4, size=(24, 16))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.jpg"))}


def zipped(path: Path, files: Mapping[str, bytes | str], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def listed(path: Path) -> Listing:
    return list_samples(Zip.open([path], {}))


def test_a_tree_is_listed_as_imagefolder_lists_it_unpacked(photos: dict[str, bytes], tmp_path: Path) -> None:
    (_, one), (_, other), *_ = photos.items()
    odd = {"B/2.jpg": one, "B-x/1.JPG": other, "B/a/3.jpeg": one, "B/a-b/1.png": one, "a/x.jpg": other, "B/10.jpg": one}
    extra = {"notes.txt": "x", "outside.jpg": one, "__MACOSX/B/._2.jpg": b"?", "a/.DS_Store": b"?", "empty/": b""}
    path = zipped(tmp_path / "tree.zip", {**odd, **extra})
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "tree", [name for name in archive.namelist() if "__MACOSX" not in name])
    listing, expected = listed(path), imagefolder_source(tmp_path / "tree", allow_empty=True)
    assert list(listing.names) == list(expected.names)
    assert listing.labels.tolist() == expected.labels.tolist()
    assert listing.classes == expected.classes == ["B", "B-x", "a", "empty"]
    assert images(listing) == odd
    assert "classes without images, which keep their ids: empty" in "\n".join(listing.notes)
    said = [(item.fate, item.count, item.why) for item in listing.container.account]
    assert said == [
        ("left out", 1, "they are outside of the class directories, where ImageFolder reads no images"),
        ("not looked at", 1, "its suffix is .txt"),
        ("not looked at", 2, "macOS or Windows created it next to other files"),
    ]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_conversion_keeps_every_byte_and_leaves_out_what_lies_above_all_classes(
    photos: dict[str, bytes], tmp_path: Path, method: int
) -> None:
    path = zipped(tmp_path / "a.zip", {f"./data/train/{name}": data for name, data in photos.items()}, method)
    packer.convert(path, tmp_path / "a.lmdb")
    assert stored(tmp_path / "a.lmdb") == photos
    with packer.open_dataset(tmp_path / "a.lmdb") as dataset:
        assert dataset.classes == ["class_00", "class_01", "class_02"]


def test_stored_members_are_read_in_place(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", photos)
    packer.index(path, tmp_path / "a.index")
    with packer.open_dataset(tmp_path / "a.index") as indexed, packer.open_dataset(path) as opened:
        assert stored(tmp_path / "a.index") == photos
        assert np.array_equal(np.asarray(indexed[5][0]), np.asarray(opened[5][0]))
    with pytest.raises(OptionError, match="zip has no keys"):
        packer.index(path, tmp_path / "b.index", keys=["image=jpg"])


def test_an_index_refuses_deflated_members(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", photos, zipfile.ZIP_DEFLATED)
    with pytest.raises(SourceError, match=r"a\.zip, byte \d+: is compressed \(deflate\): convert it"):
        packer.index(path, tmp_path / "a.index")
    with pytest.raises(SourceError, match="convert it"):
        packer.open_dataset(path)


@pytest.mark.parametrize("below", ["", "top/"])
def test_stylegans_labels(photos: dict[str, bytes], tmp_path: Path, below: str) -> None:
    names = [f"0000{number % 2}/img{number:08d}.png" for number in range(len(photos))]
    members = {below + name: data for name, data in zip(names, photos.values(), strict=True)}
    said = {"labels": [[name, number * 7 % 5] for number, name in enumerate(names)]}
    listing = listed(zipped(tmp_path / "a.zip", {**members, f"{below}dataset.json": json.dumps(said)}))
    assert list(listing.names) == sorted(names)
    assert labels(listing) == {name: str(label) for name, label in said["labels"]}
    none = listed(zipped(tmp_path / "b.zip", {**members, f"{below}dataset.json": '{"labels": null}'}))
    assert list(none.names) == sorted(names)
    assert (none.labels == -1).all()
    vectors = json.dumps({"labels": [[name, [0.5, number]] for number, name in enumerate(names)]})
    conditional = listed(zipped(tmp_path / "c.zip", {**members, f"{below}dataset.json": vectors}))
    (field,) = conditional.container.fields
    decoded = [field.decode(value).tolist() for value in values(conditional, conditional.ranges["labels"])]
    assert decoded == [[0.5, names.index(name)] for name in conditional.names]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "does not contain labels for StyleGAN"),
        ("[" * 100_000, "does not contain labels for StyleGAN"),
        ('{"labels": [["class_00/0000.jpg", "cat"]]}', "neither a number"),
        ('{"labels": 5}', "does not contain labels for StyleGAN"),
    ],
)
def test_labels_of_stylegan_that_are_none_are_refused(
    photos: dict[str, bytes], tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        listed(zipped(tmp_path / "a.zip", {**photos, "dataset.json": text}))


@pytest.mark.parametrize("inside", [True, False])
def test_swins_map_gives_order_and_labels(photos: dict[str, bytes], tmp_path: Path, inside: bool) -> None:
    names = sorted(photos, reverse=True)[:-1]
    text = "".join(f"{name}\t{number % 3 + 4}\n" for number, name in enumerate(names))
    path = zipped(tmp_path / "train.zip", photos | ({"train_map.txt": text.encode()} if inside else {}))
    if not inside:
        (tmp_path / "train_map.txt").write_text(text)
    listing = listed(path)
    assert list(listing.names) == names
    assert listing.labels.tolist() == [number % 3 + 4 for number in range(len(names))]
    assert "train_map.txt does not name them" in "\n".join(listing.container.account.lines())
    for wrong, message in ((f"{names[0]} 1", "line 1: expected a path, a tab"), ("no.jpg\t1", "has no image no.jpg")):
        (tmp_path / "val_map.txt").write_text(wrong)
        with pytest.raises(SourceError, match=message):
            listed(zipped(tmp_path / "val.zip", photos))


def test_images_without_directories_have_no_labels(photos: dict[str, bytes], tmp_path: Path) -> None:
    flat = {f"{number}.jpg": data for number, data in enumerate(photos.values())}
    listing = listed(zipped(tmp_path / "a.zip", flat))
    assert list(listing.names) == sorted(flat)
    assert listing.classes == []
    assert (listing.labels == -1).all()


def test_splits_in_an_archive_are_refused_and_splits_beside_each_other_too(
    photos: dict[str, bytes], tmp_path: Path
) -> None:
    both = {f"{split}/{name}": data for split in ("train", "val") for name, data in photos.items()}
    with pytest.raises(SourceError, match="several splits: train, val"):
        listed(zipped(tmp_path / "train.zip", both))
    zipped(tmp_path / "val.zip", photos)
    with pytest.raises(SourceError, match="several splits"):
        packer.index(tmp_path, tmp_path / "a.index")


class _LocalExtra(zipfile.ZipInfo):
    """A member whose local header has another extra field than the central directory."""

    def FileHeader(self, zip64: bool | None = None) -> bytes:  # noqa: N802
        before, self.extra = self.extra, struct.pack("<2H", 0x5455, 9) + b"123456789"
        try:
            return super().FileHeader(zip64)
        finally:
            self.extra = before


def test_data_begin_where_the_own_header_of_a_member_says(photos: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in photos.items():
            archive.writestr(_LocalExtra(name), data)
    assert images(listed(tmp_path / "a.zip")) == photos


def test_large_archives(photos: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"):
        monkeypatch.setattr(zipfile, name, 10)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in photos.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    data = (tmp_path / "a.zip").read_bytes()
    assert b"PK\6\6" in data
    (tmp_path / "b.zip").write_bytes(b"#!/bin/sh\n" * 9 + data)
    for path in (tmp_path / "a.zip", tmp_path / "b.zip"):
        assert images(listed(path)) == photos


class _Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise OSError

    tell = seek  # type: ignore[assignment]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_sizes_after_the_data_bytes_before_the_archive_and_a_comment(
    photos: dict[str, bytes], tmp_path: Path, method: int
) -> None:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", method) as archive:
        archive.comment = b"by PK\5\6 " * 1000
        for name, data in photos.items():
            archive.writestr(name, data)
    assert b"PK\7\x08" in pipe.getvalue()  # the descriptor of sizes
    for before in (b"", b"MZ" * 50):
        path = tmp_path / f"{len(before)}.zip"
        path.write_bytes(before + pipe.getvalue())
        assert images(listed(path)) == photos
        packer.convert(path, path.with_suffix(".lmdb"))


@pytest.mark.parametrize("name", ["../x/a.jpg", "x/../../a.jpg"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=r"a\.zip: .*a\.jpg: its name is not a plain"):
        listed(zipped(tmp_path / "a.zip", {name: b"?"}))


def encrypted(data: bytes) -> bytes:
    at = data.index(b"PK\1\2")
    return data[:6] + b"\1" + data[7 : at + 8] + b"\1" + data[at + 9 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-30], "no zip directory"),
        (encrypted, "class_00/0000.jpg: is encrypted"),
        (lambda data: data[:8] + b"\x0c" + data[9:], "another compression method or encryption than is listed"),
        (lambda data: data[:35] + b"X" + data[36:], "its header is not there"),
        (lambda data: b"PK\3\5" + data[4:], "its header is not there"),
        (
            lambda data: data[:-10] + b"\xff\x7f" + data[-8:],
            r"where the end record places it|an entry of its directory is not a member",
        ),
        (lambda data: data[:-14] + b"\5\0\5\0" + data[-10:], "counts 5 members, but the directory lists 12"),
        (lambda data: data[:-18] + b"\1" + data[-17:], "a split archive"),
    ],
)
def test_damage_is_named(
    photos: dict[str, bytes], tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = zipped(tmp_path / "a.zip", photos)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(SourceError, match=message):
        listed(path)


def test_other_methods_and_names_that_occur_twice_are_refused(photos: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"compressed by method 14, .*: pack it again"):
        listed(zipped(tmp_path / "a.zip", photos, zipfile.ZIP_LZMA))
    data = zipped(tmp_path / "b.zip", {"x/1.jpg": b"1", "x/2.jpg": b"2"}).read_bytes()
    (tmp_path / "b.zip").write_bytes(data.replace(b"x/2.jpg", b"x/1.jpg"))
    with pytest.raises(SourceError, match="the archive contains this name twice"):
        listed(tmp_path / "b.zip")


def test_a_flipped_bit_in_deflated_data_is_found(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", photos, zipfile.ZIP_DEFLATED)
    listing = listed(path)
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"checksum|deflate"):
        images(listing)


def test_a_flipped_bit_in_stored_data_is_found_by_whoever_reads_the_image(
    photos: dict[str, bytes], tmp_path: Path
) -> None:
    path = zipped(tmp_path / "a.zip", photos)
    name, image = next(iter(photos.items()))
    data = bytearray(path.read_bytes())
    data[data.index(image) + len(image) // 2] ^= 1
    path.write_bytes(data)
    for make, pack in ((packer.convert, "a.lmdb"), (packer.index, "a.index")):
        with pytest.raises(ImageError, match=r"a.zip, byte \d+: the checksum of \d+ bytes does not match"):
            make(path, tmp_path / pack)
        skipped = make(path, tmp_path / pack, on_error="skip").manifest.skipped
        assert [entry["name"] for entry in skipped] == [name]


def test_an_image_that_cannot_be_inflated_is_named_or_left_out(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", photos, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"class_00/0000\.jpg: .*a\.zip, byte \d+"):
        packer.convert(path, tmp_path / "a.lmdb")
    packer.convert(path, tmp_path / "b.lmdb", on_error="skip")
    assert stored(tmp_path / "b.lmdb") == {name: image for name, image in photos.items() if "00/0000" not in name}


def test_several_archives_are_one_set(photos: dict[str, bytes], tmp_path: Path) -> None:
    for folder in ("class_00", "class_01", "class_02"):
        zipped(tmp_path / f"{folder}.zip", {name: data for name, data in photos.items() if name.startswith(folder)})
    packer.index(tmp_path / "class_*.zip", tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    with packer.open_dataset(tmp_path / "a.index") as dataset:
        assert dataset.classes == ["class_00", "class_01", "class_02"]


def test_names_of_old_tools(tmp_path: Path) -> None:
    data = bytearray(zipped(tmp_path / "a.zip", {"k_x1.jpg": b"1", "cl_ss/2.jpg": b"2"}).read_bytes())
    data[data.index(b"PK\1\2") + 5] = 0  # the first member is from DOS
    (tmp_path / "a.zip").write_bytes(data.replace(b"k_x1", b"k\\x1").replace(b"cl_ss", b"cl\x84ss"))  # in code page 437
    assert images(listed(tmp_path / "a.zip")) == {"k/x1.jpg": b"1", "cläss/2.jpg": b"2"}


def test_labels_that_a_few_bytes_unpack_to_are_refused(photos: dict[str, bytes], tmp_path: Path) -> None:
    """Parsed, they would take far more memory than the archive has bytes."""
    said = b'{"labels": [' + b"[]," * (12 << 20) + b"[]]}"
    with pytest.raises(SourceError, match=r"dataset\.json: .* bytes decompress to .*: store it with zip -0"):
        listed(zipped(tmp_path / "x.zip", {**photos, "dataset.json": said}, zipfile.ZIP_DEFLATED))


def made_by_others(path: Path, files: Mapping[str, bytes], system: int, *, seekable: bool = True) -> Path:
    """Write an archive with unchanged names, such as with backslashes; if not `seekable`, as tools write to pipes."""
    with open(path, "wb") as file, zipfile.ZipFile(file if seekable else Pipe(file), "w") as archive:
        for name, data in files.items():
            member = zipfile.ZipInfo()
            member.filename, member.create_system = name, system
            archive.writestr(member, data)
    return path


class Pipe(io.RawIOBase):
    """A file that cannot seek."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return int(self._file.write(data))

    def flush(self) -> None:
        self._file.flush()


@pytest.mark.parametrize("system", [0, 3])
@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("mixed", [False, True])
def test_backslashes_are_directories(
    photos: dict[str, bytes], tmp_path: Path, system: int, seekable: bool, mixed: bool
) -> None:
    def name(number: int, path: str) -> str:
        return path if mixed and number % 3 == 0 else path.replace("/", "\\")

    files = {name(number, f"top/{path}"): data for number, (path, data) in enumerate(photos.items())}
    folders = {"top\\": b"", "top\\empty\\": b""}
    listing = listed(made_by_others(tmp_path / "a.zip", folders | files, system, seekable=seekable))
    assert images(listing) == photos
    assert listing.classes == sorted({path.partition("/")[0] for path in photos} | {"empty"})
    assert labels(listing) == {path: path.partition("/")[0] for path in photos}
    assert "a.zip: backslashes in names are read as slashes" in listing.notes


def test_what_is_no_image_of_a_class_is_said(photos: dict[str, bytes], tmp_path: Path) -> None:
    image = next(iter(photos.values()))
    others = {
        **{"__MACOSX/a/._1.jpg": b"\0\5\x16\7", "a/._2.jpg": b"\0\5\x16\7", "a/Thumbs.db": b"?", "a/.DS_Store": b"?"},
        **{"a/._real.jpg": image, "a/nosuffix": image, "a/README": b"text", "outside.png": image, "a/table.csv": b""},
    }
    listing = listed(zipped(tmp_path / "a.zip", {**photos, **others}, zipfile.ZIP_DEFLATED))
    assert set(images(listing)) == {*photos, "a/._real.jpg"}
    said = [(item.fate, item.what, item.names) for item in listing.container.account]
    assert said == [
        ("left out", "image", ["a/nosuffix"]),
        ("left out", "image", ["outside.png"]),
        ("not looked at", "file", ["__MACOSX/a/._1.jpg", "a/._2.jpg", "a/Thumbs.db", "a/.DS_Store"]),
        ("not looked at", "file", ["a/README"]),
        ("not looked at", "file", ["a/table.csv"]),
    ]


@pytest.mark.parametrize("name", ["sub/inner.zip", "inner.tar.gz", "x.7z"])
def test_archives_within_an_archive_are_named(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "outer.zip", {name: b"PK\3\4", "a.txt": "x"})
    with pytest.raises(SourceError, match=rf"outer\.zip: contains no images, but 1 archive, such as {name}"):
        packer.index(path, tmp_path / "x.index")


def test_an_archive_without_images_is_named_itself(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"/empty\.zip: no images in it"):
        packer.index(zipped(tmp_path / "empty.zip", {"a.txt": "x"}), tmp_path / "x.index")


def test_files_of_systems_and_hidden_classes_are_those_of_the_unpacked_tree(
    photos: dict[str, bytes], tmp_path: Path
) -> None:
    image = next(iter(photos.values()))
    double = b"\0\5\x16\7" + bytes(60)
    path = zipped(
        tmp_path / "a.zip",
        {
            **photos,
            **{"__MACOSX/real.jpg": image, "__MACOSX/._real.jpg": double, "class_00/._x.jpg": double},
            **{".hidden/1.jpg": image, "class_00/ehthumbs.db": b"?", "class_00/THUMBS.DB": b"?"},
        },
    )
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "tree")
    listing, expected = listed(path), imagefolder_source(tmp_path / "tree")
    assert list(listing.names) == list(expected.names)
    assert listing.classes == expected.classes
    assert expected.account is not None
    (left,), (there,) = (
        [sorted(item.names) for item in account if item.why == LEFT_BY_SYSTEM]
        for account in (listing.container.account, expected.account)
    )
    assert left == there
    taken = [item.names for item in listing.container.account if item.what == "class"]
    assert taken == [item.names for item in expected.account if item.what == "class"] == [[".hidden"]]
