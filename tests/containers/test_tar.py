"""WebDataset tars, read in place and compared with webdataset, tarfile and GNU tar."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from PIL import Image
from webdataset import tariterators

import packer
from packer._containers import find_container, list_samples
from packer.errors import OptionError, PackerError, SourceError
from packer.testing.photos import draw_photo
from tests.command import packer_many

COUNT = 400
WITHOUT_GNU_TAR = "tar (GNU tar)" not in subprocess.run(
    ["tar", "--version"], capture_output=True, text=True, check=False
).stdout  # fmt: skip


def jpeg(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(draw_photo(np.random.default_rng(number), 24 + number % 5, 32)).save(file, "JPEG")
    return file.getvalue()


def png(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((24 + number % 5, 32), number % 256, np.uint8)).save(file, "PNG")
    return file.getvalue()


JPEG, PNG = jpeg(0), png(1)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of three shards, of 400 photos with labels and fields, that webdataset wrote."""
    root = tmp_path_factory.mktemp("wds") / "shards"
    root.mkdir()
    with webdataset.ShardWriter(str(root / "photos-%06d.tar"), maxcount=150, verbose=0) as writer:
        for number in range(COUNT):
            sample = {
                "__key__": f"n{number % 7:02d}/{number:06d}",
                "jpg": jpeg(number),
                "cls": number % 7,
                "txt": f"photo {number} \N{SNOWMAN}",
                "json": {"number": number, "of": [1, 2]},
                "seg.png": png(number),
                "npy": np.arange(number % 4 * 2, dtype=np.float32).reshape(-1, 2),
                "cls2": -number,
                "emb.bin": bytes([number % 256]) * (number % 3),
            }
            if number % 5 == 0:
                del sample["txt"]
            writer.write(sample)
    return root


def read_by_webdataset(paths: Iterable[Path]) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    for path in paths:
        with open(path, "rb") as stream:  # which webdataset would leave open
            files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
            samples += tariterators.group_by_keys(files)
    return samples


def assert_same(pack: Path, expected: Sequence[Mapping[str, Any]], suffix: str = ".jpg") -> None:
    with packer.open_pack(pack) as reader:
        assert list(reader.names) == [sample["__key__"] + suffix for sample in expected]
        assert reader.table.label.tolist() == [int(sample["cls"]) for sample in expected]
        assert [bytes(data) for data in reader.read_many(range(len(reader)))] == [sample["jpg"] for sample in expected]
        for index, sample in enumerate(expected):
            values = {name: reader.value(index, name) for name in reader.fields}
            assert values.pop("cls2") == int(sample["cls2"])
            assert np.array_equal(reader.fields["npy"].decode(values.pop("npy")), np.load(io.BytesIO(sample["npy"])))
            assert {name: None if value is None else bytes(value) for name, value in values.items()} == {
                "txt": sample.get("txt"),
                "json": sample["json"],
                "seg_png": sample["seg.png"],
                "emb_bin": sample["emb.bin"],
            }


def test_samples_are_those_of_webdataset_in_its_order(shards: Path, tmp_path: Path) -> None:
    expected = read_by_webdataset(sorted(shards.iterdir()))
    assert len(expected) == COUNT
    pattern, single = str(shards / "*.tar"), str(shards / "photos-{000000..000002}.tar")
    results = packer_many(
        [
            ["index", pattern, tmp_path / "pattern.index"],
            ["index", shards, tmp_path / "directory.index", "--no-checksums"],
            ["convert", single, tmp_path / "pack.lmdb"],
        ]
    )
    for result in results:
        assert result.returncode == 0, result.stderr
    for name in ("pattern.index", "directory.index", "pack.lmdb"):
        assert_same(tmp_path / name, expected)
    with packer.open_pack(tmp_path / "pattern.index") as reader:
        kinds = {name: field.kind for name, field in reader.fields.items()}
    assert kinds == {
        "cls2": "scalar", "txt": "text", "json": "json", "seg_png": "mask", "npy": "array", "emb_bin": "bytes",
    }  # fmt: skip
    assert packer.digest(tmp_path / "pattern.index") == packer.digest(tmp_path / "pack.lmdb")


def test_a_dataset_of_shards_shows_pixels_without_any_conversion(shards: Path) -> None:
    expected = read_by_webdataset(sorted(shards.iterdir()))
    dataset = packer.open_dataset(str(shards / "*.tar"))
    for index in (0, 149, 150, 399):
        image, label = dataset[index]
        assert label == int(expected[index]["cls"])
        assert np.array_equal(image.permute(1, 2, 0), Image.open(io.BytesIO(expected[index]["jpg"])))


def write(path: Path, members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def listed(path: Path, keys: Mapping[str, str] | None = None) -> list[tuple[str, Any, bytes, dict[str, Any]]]:
    """Return name, label, image and values of each sample in a tar."""
    found = find_container([path])
    assert found is not None
    container = found[0].open(found[1], dict(keys or {}))
    data = [(container.root / name).read_bytes() for name in container.files]

    def read(value: Any) -> Any:
        return data[value.file][value.offset : value.offset + value.size] if isinstance(value, tuple) else value

    entries = [entry for unit in range(container.units) for entry in container.entries(unit)]
    if problem := next((entry.problem for entry in entries if entry.problem), None):
        raise SourceError(problem)
    return [
        (entry.name, entry.label, read(entry.image), {name: read(value) for name, value in entry.values.items()})
        for entry in entries
    ]


def notes(path: Path, keys: Mapping[str, str] | None = None) -> str:
    found = find_container([path])
    assert found is not None
    return "; ".join(list_samples(found[0].open(found[1], dict(keys or {}))).notes)


LONG = "a/" + "directory/" * 9 + "x" * 60  # needs ustar's prefix, GNU's long name, or a record of pax
TOO_LONG = "d" * 90 + "/" + "é" * 120  # too long for a ustar header


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_tarfile_are_read_as_webdataset_reads_them(tmp_path: Path, format: int) -> None:
    keys = ["0001", "b/0002", LONG, *([TOO_LONG] if format != tarfile.USTAR_FORMAT else [])]
    members = [(f"{key}.{end}", data) for key in keys for end, data in [("cls", b" 7\n"), ("JPG", JPEG + key.encode())]]
    path = write(tmp_path / "x.tar", members, format)
    assert listed(path) == [(f"{key}.JPG", 7, JPEG + key.encode(), {}) for key in keys]
    assert [(sample["__key__"], sample["jpg"]) for sample in read_by_webdataset([path])] == [
        (name.removesuffix(".JPG"), data) for name, _, data, _ in listed(path)
    ]


@pytest.mark.skipif(WITHOUT_GNU_TAR, reason="needs GNU tar")
@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_tars_of_gnu_tar_are_read_whatever_their_format(tmp_path: Path, format: str) -> None:
    keys = ["0001", "0002", *([LONG] if format != "v7" else [])]
    for key in keys:
        file = tmp_path / "tree" / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(file.name + ".jpg").write_bytes(JPEG + key.encode())
        file.with_name(file.name + ".cls").write_bytes(b"3")
    path = tmp_path / "x.tar"
    line = ["tar", f"--format={format}", "--sort=name", "-cf", path, "-C", tmp_path / "tree", "."]
    subprocess.run(line, check=True)
    assert sorted(listed(path)) == sorted((f"{key}.jpg", 3, JPEG + key.encode(), {}) for key in keys)
    assert len(read_by_webdataset([path])) == len(keys)


def field(header: bytes, begin: int, value: bytes) -> bytes:
    """Return a header with bytes replaced at an offset, and with a correct checksum."""
    header = header[:begin] + value + header[begin + len(value) :]
    blank = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(blank) + header[156:]


def block(name: str, data: bytes = b"", *changes: tuple[int, bytes]) -> bytes:
    """Return a header of tarfile with some bytes changed, and the member after it."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    header = info.tobuf(tarfile.USTAR_FORMAT)
    for begin, value in changes:
        header = field(header, begin, value)
    return header + data + bytes(-len(data) % 512)


END = bytes(1024)
SIZE, KIND, MAGIC, PREFIX = 124, 156, 257, 345


def of_bytes(tmp_path: Path, *blocks: bytes) -> Path:
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(blocks))
    return path


def test_sizes_in_base_256_are_read(tmp_path: Path) -> None:
    size = b"\x80" + len(JPEG).to_bytes(11, "big")
    assert listed(of_bytes(tmp_path, block("a.jpg", JPEG, (SIZE, size)), END)) == [("a.jpg", None, JPEG, {})]


def test_gnu_keeps_times_where_posix_has_the_prefix_of_a_name(tmp_path: Path) -> None:
    times = (MAGIC, b"ustar  \0"), (PREFIX, b"14730000000\0")
    assert listed(of_bytes(tmp_path, block("a.jpg", JPEG, *times), END)) == [("a.jpg", None, JPEG, {})]


def test_a_record_of_pax_holds_against_the_header(tmp_path: Path) -> None:
    def record(key: str, value: str) -> bytes:
        line = f" {key}={value}\n"
        return f"{len(line) + 2}{line}".encode()

    records = record("path", "b/long.jpg") + record("size", str(len(JPEG)))
    header = block("pax", records, (KIND, b"x"))
    member = block("a.jpg", JPEG, (SIZE, b"00000000001\0"))
    common = block("pax", record("comment", "of all"), (KIND, b"g"))
    assert listed(of_bytes(tmp_path, common, header, member, END)) == [("b/long.jpg", "b", JPEG, {})]
    assert read_by_webdataset([tmp_path / "x.tar"])[0]["jpg"] == JPEG


def test_signed_checksums_of_old_tools_are_taken(tmp_path: Path) -> None:
    header = bytearray(block("é.jpg", JPEG))
    blank = bytes(header[:148]) + b" " * 8 + bytes(header[156:512])
    header[148:156] = b"%06o\0 " % sum(byte - 256 * (byte > 127) for byte in blank)
    assert listed(of_bytes(tmp_path, bytes(header), END)) == [("é.jpg", None, JPEG, {})]


def test_joined_tars_are_read_to_the_end_and_it_is_said(tmp_path: Path) -> None:
    parts = [write(tmp_path / f"{part}.tar", [(f"{part}1.jpg", JPEG), (f"{part}2.jpg", PNG)]) for part in "ab"]
    path = of_bytes(tmp_path, *(part.read_bytes() for part in parts))
    assert [name for name, *_ in listed(path)] == ["a1.jpg", "a2.jpg", "b1.jpg", "b2.jpg"]
    assert "several tars joined into one" in notes(path)
    assert "joined" not in notes(parts[0])


def test_what_comes_after_the_end_and_a_missing_end_are_said(tmp_path: Path) -> None:
    assert "the data after the end" in notes(of_bytes(tmp_path, block("a.jpg", JPEG), END, b"no header" * 100))
    assert "without a tar's end marker" in notes(of_bytes(tmp_path, block("a.jpg", JPEG)))
    assert not notes(of_bytes(tmp_path, block("a.jpg", JPEG), block("a.cls", b"1"), END))


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        (b"", "byte {end}: the file ends without a tar's end marker"),
        (END + b"x" * 600, "byte {after}: the data after the end"),
    ],
)
def test_a_tar_that_may_lack_samples_is_refused_or_taken_with_a_word(behind: bytes, said: str, tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [("a.jpg", JPEG)])
    whole = block("b.jpg", JPEG)
    path, pattern = tmp_path / "b.tar", str(tmp_path / "*.tar")
    path.write_bytes(whole + behind)
    assert len(read_by_webdataset([path])) == 1  # webdataset does not complain
    reason = said.format(end=len(whole), after=len(whole) + len(END))
    for make, name in ((packer.convert, "x.lmdb"), (packer.index, "x.index")):
        with pytest.raises(SourceError, match=f"b.tar: {reason}.*: on_error='skip'"):
            make(pattern, tmp_path / name)
        assert make(pattern, tmp_path / name, on_error="skip").manifest.skipped[0]["name"] == "b.tar"
    assert packer.convert(tmp_path / "x.index", tmp_path / "y.lmdb").manifest.skipped[0]["reason"].startswith(reason)
    with pytest.warns(UserWarning, match=r"first in b.tar"):
        assert len(packer.open_dataset(pattern)) == 2


def test_a_tar_that_may_lack_samples_ends_the_command_with_status_3(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(block("b.jpg", JPEG))
    skip = ["--on-error", "skip"]
    refused, taken = packer_many(
        [["convert", tmp_path / "a.tar", tmp_path / name, *how] for name, how in (("a.lmdb", []), ("b.lmdb", skip))]
    )
    assert (refused.returncode, taken.returncode) == (1, 3)
    assert "--on-error skip" in refused.stderr
    assert "a.tar: byte" in taken.stdout


def test_directories_and_files_that_are_no_samples_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        directory = tarfile.TarInfo("./d.jpg")
        directory.type = tarfile.DIRTYPE
        file.addfile(directory)
        names = ["./d/a.jpg", "./d/README", "./d/._a.jpg", "__meta__", "__x__/b.jpg", "./.hidden", "./d/a.cls"]
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(JPEG) if name != "./d/a.cls" else 1
            file.addfile(info, io.BytesIO(JPEG if name != "./d/a.cls" else b"1"))
    assert listed(path) == [("d/a.jpg", 1, JPEG, {})]
    old = of_bytes(tmp_path, block("d/", b"", (KIND, b"\0"), (MAGIC, bytes(8))), block("d/a.jpg", JPEG), END)
    assert [name for name, *_ in listed(old)] == ["d/a.jpg"]


def test_a_key_that_comes_back_is_another_sample(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("b.jpg", JPEG), ("a.cls", b"4"), ("a.jpeg", JPEG)])
    assert [(name, label) for name, label, *_ in listed(path)] == [("a.jpg", None), ("b.jpg", None), ("a.jpeg", 4)]
    assert len(read_by_webdataset([path])) == 3


def test_samples_of_one_name_get_numbers_and_it_is_said(tmp_path: Path) -> None:
    names = ["a.jpg", "b.jpg", "a.jpg", "a~2.jpg", "c.jpg", "a.jpg"]
    packer.index(write(tmp_path / "x.tar", [(name, JPEG) for name in names]), tmp_path / "x.index")
    with packer.open_pack(tmp_path / "x.index") as reader:
        assert list(reader.names) == ["a.jpg", "b.jpg", "a~3.jpg", "a~2.jpg", "c.jpg", "a~4.jpg"]
    assert "several samples have the same name, such as a.jpg" in notes(tmp_path / "x.tar")


def test_names_of_classes_are_labels_too(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("a.cls", b"dog\n"), ("b.jpg", JPEG), ("b.cls", b"cat")])
    found = find_container([path])
    assert found is not None
    listing = list_samples(found[0].open(found[1], {}))
    assert (listing.classes, listing.labels.tolist()) == (["cat", "dog"], [1, 0])


def test_of_two_images_the_first_kind_is_the_image_and_a_key_decides_otherwise(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.png", PNG), ("a.jpg", JPEG), ("b.jpg", JPEG), ("b.mask.png", PNG)])
    assert [(name, values) for name, _, _, values in listed(path)] == [
        ("a.jpg", {"png": PNG}),
        ("b.jpg", {"mask_png": PNG}),
    ]
    assert "the image is .jpg (fields: .png)" in notes(path)
    with pytest.raises(SourceError, match=r"b.jpg.*has images, but no .png"):
        listed(path, {"image": "png"})
    (tmp_path / "y").mkdir()
    path = write(tmp_path / "y" / "y.tar", [("a.jpg", JPEG), ("b.png", PNG), ("c.rgb.png", PNG), ("c.webp", JPEG)])
    assert [(name, values) for name, _, _, values in listed(path, {"image": "jpg;png;webp", "other": "rgb.png"})] == [
        ("a.jpg", {}), ("b.png", {}), ("c.webp", {"other": PNG}),
    ]  # fmt: skip


def test_keys_name_what_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("a.txt", b"dog"), ("a.json", b"[1]"), ("a.pyd", b"\x80\x04.")])
    keys = {"image": "jpg", "label": "txt", "about:bytes": "json", "raw:bytes": "pyd"}
    assert listed(path, keys) == [("a.jpg", "dog", JPEG, {"about": b"[1]", "raw": b"\x80\x04."})]
    found = find_container([path])
    assert found is not None
    (left,) = (item for item in found[0].open(found[1], {"label": "txt"}).account if item.fate == "left out")
    assert left.line() == "left out: 2 members (.json, .pyd): no --key names them"
    assert left.chosen


NPY = io.BytesIO()
np.save(NPY, np.array([1.5, 2.5]))


@pytest.mark.parametrize(
    ("members", "keys", "message"),
    [
        ([("a.jpg", JPEG), ("a.pyd", b"x")], {}, r"has pickles, .pyd, which packer never executes. .*--key image=jpg"),
        ([("a.jpg", JPEG), ("a.pyd", b"x")], {"x": "pyd"}, r"--key x:bytes=pyd stores its bytes unchanged"),
        ([("a.jpg", JPEG)], {"label": "cls"}, r"have no .cls; they have .jpg"),
        ([("a.jpg", JPEG)], {"name": "jpg"}, "is named after its image file"),
        ([("a.jpg", JPEG), ("a.txt", b"")], {"x": "txt", "y": "txt"}, "txt is already the field x"),
        ([("a.jpg", JPEG), ("a.txt", b"")], {"x:nothing": "txt"}, "a kind must be one of"),
        ([("a.jpg", JPEG), ("a.txt", b"")], {"1x": "txt"}, "cannot have the name"),
        ([("a.txt", b"")], {}, "no images in it: the first samples have .txt$"),
        ([("a.jpg.data", PNG), ("a.jpg.label", b"1")], {}, "Choose the image: --key image=jpg.data$"),
        ([], {}, "contains no samples"),
        ([("a.left.png", PNG), ("a.right.png", PNG)], {}, r"several images: .left.png, .right.png. Name one"),
        ([("a.jpg", JPEG), ("a.cls", b"-2")], {}, r"a.cls: -2 is not a class id"),
        ([("a.jpg", JPEG), ("a.cls2", b"x")], {}, r"not an integer. --key cls2:bytes=cls2 stores its bytes unchanged"),
        ([("a.jpg", JPEG), ("a.npy", NPY.getvalue()), ("b.jpg", JPEG), ("b.npy", b"x")], {}, "not a .npy file"),
        ([("a.jpg", JPEG), ("a.cls", b"1"), ("a.CLS", b"2")], {}, r"byte \d+: sample a has .cls twice"),
        ([(f"{n}.jpg", JPEG) for n in range(40)] + [("40.jpg", JPEG), ("40.txt", b"")], {}, "have no .txt. Select"),
        ([(f"{n}.jpg", JPEG) for n in range(40)] + [("40.jpg", JPEG), ("40.png", PNG)], {}, "a second image"),
        ([(f"a.x{n}.jpg", JPEG) for n in range(1100)], {}, "more than 1000 members.*ends at the first dot"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_refused_with_a_remedy(
    tmp_path: Path, members: list[tuple[str, bytes]], keys: dict[str, str], message: str
) -> None:
    path = write(tmp_path / "x.tar", members)
    with pytest.raises(PackerError, match=message) as error:
        listed(path, keys)
    assert "\n" not in str(error.value)


def test_samples_without_an_image_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("a.json", b"1"), ("b.json", b"2"), ("c.json", b"3")])
    assert [name for name, *_ in listed(path)] == ["a.jpg"]
    with pytest.raises(SourceError, match=r"left out: 2 samples \(b, c\): they have no image"):
        packer.index(path, tmp_path / "x.index", strict=True)


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "b/../../a.jpg", "./a.jpg", ".//a.jpg"])
def test_names_that_lead_out_become_plain_as_gnu_tar_extracts_them(tmp_path: Path, name: str) -> None:
    assert [name for name, *_ in listed(write(tmp_path / "x.tar", [(name, JPEG)]))] == ["a.jpg"]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([block("a.jpg", JPEG)[:-700]], r"a.jpg has .* the file ends before that: it was cut short"),
        ([block("a.jpg", JPEG), b"x" * 300], r"the file was cut short"),
        ([block("a.jpg", JPEG), b"x" * 512, END], r"there is no tar header"),
        ([block("a.jpg", JPEG), block("b.jpg", JPEG).replace(b"b.jpg", b"c.jpg", 1), END], "there is no tar header"),
        ([block("a.jpg", JPEG, (SIZE, b"00000z00000\0")), END], "the size in the header is not a number"),
        ([block("a.jpg", JPEG, (SIZE, b"\xff" * 12)), END], "the size in the header is not a number"),
        ([block("a.jpg", JPEG, (SIZE, b"\x80" + b"\xff" * 11)), END], "the file ends before that"),
        ([block("a.jpg", JPEG, (KIND, b"S")), END], "a.jpg is sparse. Extract the tar"),
        ([block("a.jpg", JPEG, (KIND, b"M")), END], "another volume"),
        ([block("a.jpg", b"", (KIND, b"1")), END], "a.jpg is a hard link.*--hard-dereference"),
        ([block("a.jpg", b"", (KIND, b"2")), END], "a.jpg is a symbolic link"),
        ([block("l", b"x" * 70000, (KIND, b"L")), END], "bytes is too long"),
        ([block("l", b"a.jpg", (KIND, b"L")), END], "the tar ends after a header"),
        ([block("l", b"a.jpg", (KIND, b"L"))], "the tar ends after a header"),
        ([block("p", b"99 path=x\n", (KIND, b"x")), END], "damaged record"),
        ([block("p", b"10 size=x\n", (KIND, b"x")), block("a.jpg", JPEG), END], "not a number: b'x'"),
        ([block("p", b"10 path=x\n", (KIND, b"g")), block("a.jpg", JPEG), END], "a global header"),
        ([block("p", b"22 GNU.sparse.major=1\n", (KIND, b"x")), block("a.jpg", JPEG), END], "is sparse"),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_place(tmp_path: Path, blocks: list[bytes], message: str) -> None:
    path = of_bytes(tmp_path, *blocks)
    with pytest.raises(SourceError, match=rf"x\.tar: byte \d+: .*{message}"):
        listed(path)


def test_a_sparse_member_has_the_name_of_its_file(tmp_path: Path) -> None:
    """GNU tar's format 1.0 gives the member itself a path of its own."""
    records = b"22 GNU.sparse.major=1\n" + b"25 GNU.sparse.name=2.jpg\n" + b"33 path=./GNUSparseFile.54/2.jpg\n"
    sparse = block("p", records, (KIND, b"x")), block("GNUSparseFile.54/2.jpg", JPEG)
    path = of_bytes(tmp_path, block("1.jpg", JPEG), *sparse, block("2.cls", b"1"), END)
    packer.convert(path, tmp_path / "out.lmdb", on_error="skip")
    info = packer.open_pack(tmp_path / "out.lmdb").manifest
    assert (info.count, [entry["name"] for entry in info.skipped]) == (1, ["2.jpg"])


@pytest.mark.skipif(WITHOUT_GNU_TAR, reason="needs GNU tar")
@pytest.mark.parametrize("format", ["gnu", "pax"])
def test_sparse_members_of_gnu_tar_are_refused(tmp_path: Path, format: str) -> None:
    with open(tmp_path / "a.jpg", "wb") as file:
        file.write(JPEG)
        file.truncate(1 << 20)
    subprocess.run(["tar", f"--format={format}", "-Scf", "x.tar", "a.jpg"], cwd=tmp_path, check=True)
    if (tmp_path / "x.tar").stat().st_size > 1 << 19:
        pytest.skip("the file system keeps no holes")
    with pytest.raises(SourceError, match="sparse"):
        listed(tmp_path / "x.tar")


@pytest.mark.parametrize(("mode", "name"), [("w:gz", "x.tar.gz"), ("w:gz", "x.tar"), ("w:xz", "x.txz")])
def test_compressed_tars_are_refused_with_what_to_do(tmp_path: Path, mode: Any, name: str) -> None:
    with tarfile.open(tmp_path / name, mode) as file:
        file.addfile(tarfile.TarInfo("a.jpg"))
    with pytest.raises(SourceError, match=r"is compressed.*Unpack it to a .tar first: (gunzip|unxz) x"):
        listed(tmp_path / name)


def test_splits_of_a_directory_are_named_each_by_itself(tmp_path: Path) -> None:
    for name in ("train-0.tar", "train-1.tar", "val-0.tar"):
        write(tmp_path / name, [("a.jpg", JPEG), ("a.cls", b"1")])
    with pytest.raises(SourceError, match=r"several splits: train-\*.tar, val-0.tar. Name one"):
        packer.open_dataset(tmp_path)
    with pytest.warns(UserWarning, match="several files have samples of the same name"):
        assert len(packer.open_dataset(str(tmp_path / "train-*.tar"))) == 2


def test_a_directory_of_images_beside_a_tar_is_no_container(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", [("a.jpg", JPEG)])
    assert find_container([tmp_path]) is not None
    (tmp_path / "b.jpg").write_bytes(JPEG)
    assert find_container([tmp_path]) is None


def test_wrong_indexes_of_other_tools_beside_tars_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("a.cls", b"1")])
    (tmp_path / "x.idx").write_text("v1.2 1\njpg 0 99999 b.jpg\n")
    (tmp_path / "x.tar.idx").write_bytes(bytes(24))
    (tmp_path / ".nv-meta").mkdir()
    (tmp_path / ".nv-meta" / "index.sqlite").write_bytes(b"nothing")
    found = find_container([tmp_path])
    assert found is not None
    assert found[1] == [path]
    assert listed(tmp_path) == [("a.jpg", 1, JPEG, {})]


def test_lists_of_shards_are_read_in_their_order(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.tar", [(f"{name}.jpg", JPEG)])
    size = (tmp_path / "a.tar").stat().st_size
    wids = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [
        {"url": "b.tar", "nsamples": 1, "filesize": size}, {"url": "./a.tar", "nsamples": 1, "filesize": size},
    ]}  # fmt: skip
    timm = {"splits": {"train": {"name": "train", "filenames": ["b.tar", "a.tar"], "shard_lengths": [1, 1]}}}
    for name, said in (("wids.json", wids), ("_info.json", timm)):
        (tmp_path / name).write_text(json.dumps(said))
        with pytest.warns(UserWarning, match="unlabeled: 2 images"):
            assert list(packer.open_dataset(tmp_path / name).samples) == [("b.jpg", -1), ("a.jpg", -1)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"shardlist": [{"url": "../x.tar"}]}, "not a path below the list's directory"),
        ({"shardlist": [{"url": "s3://bucket/x.tar"}]}, "not a path below the list's directory"),
        ({"shardlist": [{"url": "none.tar"}]}, "No such file"),
        ({"shardlist": [{"url": "x.tar", "filesize": 1}]}, "has 10240 bytes, but .* lists 1: "),
        ({"shardlist": [7]}, "shard 0 has no file name"),
        ({"shardlist": 7}, "not a list of shards"),
        ({"splits": {"train": {"shard_lengths": [1]}, "val": {}}}, "has the splits train, val. Select"),
        ({"splits": {"train": {"shard_lengths": [1]}}}, "it has no filenames"),
    ],
)
def test_lists_that_lead_elsewhere_are_refused(tmp_path: Path, said: Any, message: str) -> None:
    write(tmp_path / "x.tar", [("a.jpg", JPEG)])
    (tmp_path / "list.json").write_text(json.dumps(said))
    with pytest.raises(SourceError, match=message):
        listed(tmp_path / "list.json")


def test_a_tar_that_changed_is_told_and_the_rest_still_reads(shards: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(shards, tmp_path / "shards")
    packer.index(copy, tmp_path / "x.index")
    first = copy / "photos-000000.tar"
    with open(first, "r+b") as file:
        file.truncate(5000)
    result = packer_many([["verify", tmp_path / "x.index"]])[0]
    assert result.returncode == 4
    assert "photos-000000.tar" in result.stdout + result.stderr
    with packer.open_pack(tmp_path / "x.index") as reader:
        assert bytes(reader.read(200)) == read_by_webdataset(sorted(shards.iterdir()))[200]["jpg"]
        with pytest.raises(packer.CorruptPackError):
            reader.read(0)


def targets(path: Path | str, tmp_path: Path, **options: Any) -> list[Any]:
    """Return the class name of each sample in tars, or None if it has no label; without classes, the numbers."""
    packer.index(path, tmp_path / "targets.index", overwrite=True, **options)
    dataset = packer.open_dataset(tmp_path / "targets.index")
    labels = [float(label) for label in dataset.targets]
    return [dataset.classes[int(label)] if label >= 0 else None for label in labels] if dataset.classes else labels


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


IMAGES_OF = [(f"{n:02d}", jpeg(n)) for n in range(40)]


def of_samples(*members: tuple[str, Sequence[bytes]], count: int = 4) -> list[tuple[str, bytes]]:
    """Return the members of samples: an image each, and further members that take their values in turn."""
    return [
        (f"{key}.{extension}", data)
        for number, (key, image) in enumerate(IMAGES_OF[:count])
        for extension, data in [("jpg", image), *((end, values[number % len(values)]) for end, values in members)]
    ]


SORTED = of_samples(("cls", [b"0", b"1"]), count=40)


@pytest.mark.parametrize(
    "members",
    [
        [*SORTED[::2], *SORTED[1::2]],
        [*SORTED[1::2], *SORTED[::2]],
        [member for at in range(0, 80, 4) for member in (SORTED[at], SORTED[at + 2], SORTED[at + 3], SORTED[at + 1])],
        [(f"./{name}" if name.endswith("jpg") else name, data) for name, data in SORTED],
        [(f"/data/{name}", data) for name, data in SORTED],
        [(f"a\\{name}", data) for name, data in SORTED],
        [(name.upper(), data) for name, data in SORTED],
        [(f"v1.2/{name}", data) for name, data in SORTED],
        [(name.replace(".", ".v2."), data) for name, data in SORTED],
        [(f"photo.{name}", data) for name, data in SORTED],
        [(name.replace(".", ".v2.") if name < "20" else name, data) for name, data in SORTED],
        [(f"photo.{name}", data) for name, data in [*SORTED[::2], *SORTED[1::2]]],
    ],
    ids=[
        *("images first", "labels first", "interleaved", "dots and slashes", "absolute", "backslashes", "upper case"),
        *("dots in directories", "dots in names", "one first part", "some with dots", "dots, images first"),
    ],
)
def test_members_of_a_sample_are_found_wherever_they_lie_and_whatever_dots_there_are(
    tmp_path: Path, members: list[tuple[str, bytes]]
) -> None:
    found = targets(write(tmp_path / "x.tar", members), tmp_path)
    assert found == ["0", "1"] * 20


def test_masks_beside_images_with_dots_are_fields(tmp_path: Path) -> None:
    members = [
        (f"a.b{n}.{end}", data) for n in range(3) for end, data in (("jpg", JPEG), ("cls", b"1"), ("seg.png", PNG))
    ]
    found = listed(write(tmp_path / "x.tar", members))
    assert found == [(f"a.b{n}.jpg", 1, JPEG, {"seg_png": PNG}) for n in range(3)]


def test_members_that_lie_apart_late_or_in_another_shard_are_refused(tmp_path: Path) -> None:
    late = write(tmp_path / "late.tar", [*SORTED[:-1], ("00.txt", b"late"), SORTED[-1]])
    with pytest.raises(SourceError, match=r"00\.txt: is not next to the image of its sample.*tar --sort=name"):
        packer.index(late, tmp_path / "x.index")
    write(tmp_path / "part-0.tar", SORTED[::2])
    write(tmp_path / "part-1.tar", SORTED[1::2])
    with pytest.raises(SourceError, match=r"sample 00 are in part-0\.tar and in part-1\.tar"):
        packer.index(str(tmp_path / "part-*.tar"), tmp_path / "x.index")
    twice = write(tmp_path / "twice.tar", [*SORTED[::2], *SORTED[1::2], ("00.cls", b"1")])
    with pytest.raises(SourceError, match=r"sample 00 has \.cls twice, and its members are not adjacent"):
        packer.index(twice, tmp_path / "x.index")


X, Y, Z = ([(f"{key}.jpg", jpeg(ord(key))), (f"{key}.cls", b"1")] for key in "xyz")
LATE = Y + X[1:]
APART = "x.jpg: byte [0-9]+: x.cls: is not next to the image of its sample"
SHARDS = "the members of sample x are in 0.tar and in 1.tar"


@pytest.mark.parametrize(
    ("shards", "kept", "reasons", "left_out"),
    [
        ([[X, X[:1] + LATE]], ["x.jpg", "y.jpg"], [APART], 0),
        ([[X + Y + X[:1] + Z + X[1:]]], ["x.jpg", "y.jpg", "z.jpg"], [APART], 0),
        ([[X + Y + X + Z + X[1:]]], ["y.jpg", "z.jpg"], [APART] * 2, 0),
        ([[X + Y + X[:1]], [X[1:] + Z]], ["x.jpg", "y.jpg", "z.jpg"], [SHARDS], 0),
        ([[Y + X[1:]], [Z + X[:1]]], ["y.jpg", "z.jpg"], [SHARDS], 0),
        ([[Y + X[1:]], [Z + X[1:]]], ["y.jpg", "z.jpg"], [], 2),
        ([[Y + X[1:] + Z + [("x.seg.png", PNG)]]], ["y.jpg", "z.jpg"], ["has images, but no .jpg"], 0),
        ([[X + Y + [("x.seg.png", PNG)]]], ["y.jpg"], ["x.jpg: byte [0-9]+: x.seg.png: is not next to the image"], 0),
        ([[Y + X[:1]], [X + Z + X[1:]]], ["y.jpg", "z.jpg"], [SHARDS, APART], 0),
        ([[X + Z + X[1:]], [Y + X[:1]]], ["y.jpg", "z.jpg"], [SHARDS, APART], 0),
        ([[Y + X[:1]], [Z + X[1:] + [("x.seg.png", PNG)]]], ["y.jpg", "z.jpg"], [SHARDS], 0),
    ],
    ids=[
        *("in another archive", "before a complete sample", "of two complete samples", "in the next shard"),
        *("in the previous shard", "in no shard", "parts of one", "a mask"),
        *("of one of two shards", "of one of two shards, the other first", "with a mask in the next shard"),
    ],
)
def test_a_sample_with_all_members_is_kept_and_each_other_is_counted_once(
    tmp_path: Path, shards: list[list[list[tuple[str, bytes]]]], kept: list[str], reasons: list[str], left_out: int
) -> None:
    members_of_each = [("jpg", jpeg(1)), ("cls", b"0"), ("seg.png", PNG)]
    usual = [(f"{number:02d}.{extension}", data) for number in range(40) for extension, data in members_of_each]
    (tmp_path / "shards").mkdir()
    for number, archives in enumerate(shards):
        joined = [write(tmp_path / "one.tar", [*usual, *members]).read_bytes() for members in archives]
        (tmp_path / "shards" / f"{number}.tar").write_bytes(b"".join(joined))
    packer.convert(tmp_path / "shards", tmp_path / "x.lmdb", on_error="skip")
    dataset = packer.open_dataset(tmp_path / "x.lmdb")
    assert sorted(name.rpartition("/")[2] for name, label in dataset.samples if label == 1) == kept
    assert len(dataset) == 40 * sum(map(len, shards)) + len(kept)
    info = packer.info(tmp_path / "x.lmdb")
    assert len(info.skipped) == len(reasons)
    assert all(re.search(reason, one["reason"]) for one, reason in zip(info.skipped, reasons, strict=True))
    assert sum(item["count"] for item in info.account if item["fate"] != "taken") == left_out


def test_a_member_that_no_key_names_may_be_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [*SORTED, *X, *Y, ("x.txt", b"late")])
    found = targets(path, tmp_path, keys={"image": "jpg", "label": "cls"})
    assert found == ["0", "1"] * 20 + ["1", "1"]


@pytest.mark.parametrize(
    ("extension", "values", "expected"),
    [
        ("cls", [b"cat", b"dog"], ["cat", "dog"]),
        ("cls", [b"0.0", b"1.0"], ["0", "1"]),
        ("cls", [b"0.5", b"1.25"], [0.5, 1.25]),
        ("cls", [b"[0,1,0]", b"0 0 1\n"], ["1", "2"]),
        ("cls", [b"-1", b"1"], [None, "1"]),
        ("cls.npy", [npy(np.int64(3)), npy(np.array([1]))], ["3", "1"]),
        ("cls.npy", [npy(np.eye(3)[2]), npy(np.eye(3)[1])], ["2", "1"]),
        ("cls.txt", [b"1\n", b"0\n"], ["1", "0"]),
        ("label", [b"1", b"2"], ["1", "2"]),
        ("lbl", [b"a", b"b"], ["a", "b"]),
        ("Target", [b"1", b"2"], ["1", "2"]),
        ("y.txt", [b"4", b"5"], ["4", "5"]),
        ("class", [b"1", b"2"], ["1", "2"]),
    ],
)
def test_labels_are_taken_by_their_names_whatever_holds_them(
    tmp_path: Path, extension: str, values: list[bytes], expected: list[Any]
) -> None:
    path = write(tmp_path / "x.tar", of_samples((extension, values)))
    assert targets(path, tmp_path) == expected * 2


@pytest.mark.parametrize(
    ("extension", "values", "said"),
    [
        ("class_id", [b"1", b"2"], r"member 'class_id' looks like labels.*--key label=class_id"),
        ("kind", [b"1", b"2"], r"member 'kind' looks like labels.*--key label=kind"),
        ("cls", [b"3 5", b"4 5"], r"'cls' \('. 5' contains several numbers, not one class\) looks like labels"),
        ("label", [b"0 0.5 0.5 0.1 0.1\n", b"1 .1 .1 .1 .1\n"], r"'label' \(.*several numbers.*\) looks like labels"),
        ("json", [b'{"category": 1, "width": 3}', b'{"category": 2, "width": 3}'], r"--key label=json:category"),
    ],
)
def test_what_looks_like_labels_is_never_passed_over(
    tmp_path: Path, extension: str, values: list[bytes], said: str
) -> None:
    path = write(tmp_path / "x.tar", of_samples((extension, values)))
    with pytest.raises(SourceError, match=said):
        packer.index(path, tmp_path / "x.index")
    assert targets(path, tmp_path, unlabeled=True) == [-1.0] * 4


def test_a_label_may_be_a_member_of_json(tmp_path: Path) -> None:
    values = [json.dumps({"Cat": n, "cat": f"c{n}", "meta": {"kind": n + 5}, "two": [1, 1]}).encode() for n in range(2)]
    path = write(tmp_path / "x.tar", of_samples(("json", values)))
    for member, expected in (("Cat", ["0", "1"]), ("cat", ["c0", "c1"]), ("meta.kind", ["5", "6"])):
        assert targets(path, tmp_path, keys=[f"label=json:{member}"]) == expected * 2
    for wrong in ("json", "json:none", "json:two", "json:meta"):
        with pytest.raises(OptionError, match=r"--key label=json:MEMBER, of Cat, cat"):
            packer.index(path, tmp_path / "x.index", keys=[f"label={wrong}"])
    with pytest.raises(OptionError, match="jpg is already in use"):
        packer.index(path, tmp_path / "x.index", keys=["label=jpg:x"])


def test_a_bad_label_can_be_skipped_and_labels_never_shift(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", of_samples(("cls", [b"0", b"1", b"", b"1"])))
    with pytest.raises(SourceError, match=r"x\.tar: 02\.jpg: .*02\.cls: b'' is neither.*on_error='skip'"):
        packer.index(path, tmp_path / "x.index")
    assert targets(path, tmp_path, on_error="skip") == ["0", "1", "1"]
    with packer.open_pack(tmp_path / "targets.index") as reader:
        assert [skipped["name"] for skipped in reader.manifest.skipped] == ["02.jpg"]


def test_directories_are_classes_where_samples_are_images_alone(tmp_path: Path) -> None:
    names = [f"set/train/{'cat' if n % 2 else 'dog.v2'}/s{n % 3}/{n}.jpg" for n in range(40)]
    for slash in "/\\":
        path = write(tmp_path / "x.tar", [("README.md", b"x"), *((name.replace("/", slash), JPEG) for name in names)])
        assert targets(path, tmp_path) == ["dog.v2", "cat"] * 20
        write(tmp_path / "y-0.tar", [(name, JPEG) for name in names[::2]])
        write(tmp_path / "y-1.tar", [(name, JPEG) for name in names[1::2]])
        assert set(targets(str(tmp_path / "y-*.tar"), tmp_path)) == {"cat", "dog.v2"}
    path = write(tmp_path / "x.tar", [("flat.jpg", JPEG), ("a/1.jpg", JPEG), ("b/2.jpg", JPEG)])
    assert targets(path, tmp_path) == [None, "a", "b"]
    splits = write(tmp_path / "x.tar", [(f"{split}/a/1.jpg", JPEG) for split in ("train", "val")])
    with pytest.raises(SourceError, match="has several splits: train, val"):
        packer.index(splits, tmp_path / "x.index")


def test_directories_of_images_with_captions_are_asked_for(tmp_path: Path) -> None:
    members = [
        (f"{'cat' if n % 2 else 'dog'}/{n}.{end}", data)
        for n in range(6)
        for end, data in (("jpg", JPEG), ("txt", b"x"))
    ]
    path = write(tmp_path / "x.tar", members)
    with pytest.raises(SourceError, match=r"directory 'cat' looks like labels.*--key label=directory"):
        packer.index(path, tmp_path / "x.index")
    assert targets(path, tmp_path, keys=["label=directory"]) == ["dog", "cat"] * 3
    shards = [(name.replace("cat", "00000").replace("dog", "00001"), data) for name, data in members]
    assert targets(write(tmp_path / "x.tar", shards), tmp_path) == [-1.0] * 6


def test_members_that_belong_to_no_sample_are_said(tmp_path: Path) -> None:
    apple = b"\0\5\x16\7" + bytes(60)
    others = [
        ("._00.jpg", apple),
        (".h.jpg", JPEG),
        ("noend", JPEG),
        ("LICENSE", b"x"),
        (".DS_Store", b"x"),
        ("__own__/1.jpg", JPEG),
        ("__key__", b"x"),
        ("a.md", b""),
    ]
    path = write(tmp_path / "x.tar", [*others, *of_samples(("cls", [b"1"]))])
    found = find_container([path])
    assert found is not None
    said = list_samples(found[0].open(found[1], {})).container.account
    assert [(item.fate, item.what, item.names) for item in said] == [
        ("left out", "image", [".h.jpg"]),
        ("left out", "image", ["noend"]),
        ("left out", "image", ["__own__/1.jpg"]),
        ("taken", "member", [".cls"]),
        ("not looked at", "member", ["a.md"]),
        ("not looked at", "member", ["._00.jpg", ".DS_Store"]),
        ("not looked at", "member", ["LICENSE"]),
        ("not looked at", "member", ["__key__"]),
    ]


@pytest.mark.parametrize("name", ["n01.tar", "n01.tar.gz", "n01.zip"])
def test_archives_within_a_tar_are_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "x.tar", [(name, write(tmp_path / "y.tar", [("a.jpg", JPEG)]).read_bytes())])
    with pytest.raises(SourceError, match=r"x\.tar: contains archives \(\..*Extract it"):
        packer.index(path, tmp_path / "x.index")


@pytest.mark.parametrize("key", [None, "json:label", "label.json"])
def test_numbers_beyond_all_floats_are_no_labels(tmp_path: Path, key: str | None) -> None:
    number = b"1" + b"0" * 400
    path = write(tmp_path / "x.tar", [("a.jpg", JPEG), ("a.json", b'{"label": %s}' % number), ("a.label.json", number)])
    with pytest.raises(
        (SourceError, OptionError), match=r"looks? like labels|is not a class id|outside of the range of floats"
    ):
        packer.convert(path, tmp_path / "x.lmdb", keys={} if key is None else {"label": key})


def test_names_of_very_many_dots_are_no_reason_to_stop(tmp_path: Path) -> None:
    name = "k" + ".a" * 5000
    path = write(tmp_path / "x.tar", [(f"{name}.jpg", JPEG), (f"{name}.cls", b"1")], format=tarfile.GNU_FORMAT)
    assert [(one[0], one[1]) for one in listed(path)] == [(f"{name}.jpg", 1)]


def test_numbers_with_more_dots_are_names_of_samples(tmp_path: Path) -> None:
    members = [(f"{name}/IMG.{number}.v2.jpg", jpeg(number)) for name in ("cat", "dog") for number in range(2)]
    assert targets(write(tmp_path / "a.tar", members), tmp_path) == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ((".ipynb_checkpoints", "cat"), r"class \(\.ipynb_checkpoints\): a hidden directory is a class"),
        (("0", "10", "2"), "class names are numbers.*: class 10 has the id 1. With leading zeros"),
    ],
)
def test_class_directories_are_said_as_those_of_a_tree_are(tmp_path: Path, classes: Sequence[str], said: str) -> None:
    members = [(f"r/{name}/{number}.jpg", jpeg(number)) for name in classes for number in range(2)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    for path in (write(tmp_path / "a.tar", members), tmp_path / "a.zip"):
        notes = " ".join(packer.index(path, tmp_path / "said.index", overwrite=True).notes)
        assert re.search(said, notes)
