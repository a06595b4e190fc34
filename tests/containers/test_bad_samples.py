"""One sample of a container that cannot be used: an error, or with `on_error="skip"` left out and listed."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import packer
from packer.errors import SourceError
from tests.containers.lmdbs import write_lmdb
from tests.containers.records import bytes_list, example, image_record, int_list, part, photo, rec, sized, tfrecord
from tests.containers.test_arrays import cifar100
from tests.containers.test_datadings import packed
from tests.containers.test_mds import one as mds
from tests.containers.test_n5 import attributes, block

IMAGES = [photo(number) for number in range(3)]
TAR = [(f"{number}.{end}", data) for number in range(3) for end, data in (("cls", b"1"), ("jpg", IMAGES[number]))]
ZIP = {f"{number % 2}/{number}.jpg": data for number, data in enumerate(IMAGES)}


def tar(path: Path, members: Sequence[tuple[str, bytes]], types: Mapping[str, bytes] = {}) -> Path:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as file:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = len(data), types.get(name, tarfile.REGTYPE), "x"
            file.addfile(info, io.BytesIO(data))
    return path


def tar_with(*more: tuple[str, bytes], types: Mapping[str, bytes] = {}) -> Callable[[Path], Path]:
    """Return a maker of a tar with members after those of the second sample."""
    return lambda path: tar(path / "a.tar", [*TAR[:4], *more, *TAR[4:]], types)


def tar_apart(path: Path) -> Path:
    return tar(path / "a.tar", [*TAR[::2], *TAR[1::2], ("1.cls", b"2")])


def two_shards(first: int) -> Callable[[Path], Path]:
    """Return a maker of two tars; the first has only this member of the second sample, and the other the rest."""

    def make(path: Path) -> Path:
        (path / "a").mkdir()
        tar(path / "a" / "0.tar", [*TAR[:2], TAR[first]])
        tar(path / "a" / "1.tar", [TAR[5 - first], *TAR[4:]])
        return path / "a"

    return make


def tar_of_many(more: str) -> Callable[[Path], Path]:
    """Return a maker of a tar with a further member after those by which packer learns the kinds of members."""
    members = [(f"{number:02d}{name[1:]}", data) for number in range(50) for name, data in TAR[:2]]
    return lambda path: tar(path / "a.tar", [*members, (more, b"")])


def sparse_tar(path: Path) -> Path:
    """Write a tar with a sparse member of GNU tar that has a further header."""
    tar(path / "a.tar", [*TAR[:2], ("1.jpg", bytes(512) + IMAGES[1]), *TAR[4:]])
    data = bytearray((path / "a.tar").read_bytes())
    at = data.index(b"1.jpg\0")
    data[at + 156 : at + 157], data[at + 482] = b"S", 1
    size = len(IMAGES[1])
    data[at + 124 : at + 136] = b"%011o\0" % size
    data[at + 148 : at + 156] = b" " * 8
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    (path / "a.tar").write_bytes(data)
    return path / "a.tar"


def zipped(path: Path, members: Sequence[tuple[str, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def zip_with(*more: tuple[str, bytes]) -> Callable[[Path], Path]:
    return lambda path: zipped(path / "a.zip", [*ZIP.items(), *more])


def damaged_zip(path: Path) -> Path:
    zipped(path / "a.zip", [*ZIP.items()])
    data = (path / "a.zip").read_bytes()
    (path / "a.zip").write_bytes(data.replace(b"1/1.jpg", b"1/X.jpg", 1))
    return path / "a.zip"


def repeated_in_zip(path: Path) -> Path:
    zipped(path / "a.zip", [*ZIP.items(), ("1/3.jpg", IMAGES[0])])
    data = (path / "a.zip").read_bytes()
    (path / "a.zip").write_bytes(data.replace(b"1/3.jpg", b"1/1.jpg"))
    return path / "a.zip"


def stylegan(bad: Any, *more: Any) -> dict[str, bytes]:
    """Return images and a `dataset.json`, in which the second image has the label `bad`, with more entries."""
    labels = [[name, bad if number == 1 else [float(number), 1.0]] for number, name in enumerate(ZIP)]
    return {**ZIP, "dataset.json": json.dumps({"labels": [*labels, *more]}).encode()}


def swin(line: str) -> Callable[[Path], Path]:
    """Return a maker of an archive with a map, whose second line is `line`."""
    lines = [f"{name}\t1" for name in ZIP]
    lines[1] = line
    return lambda path: zipped(path / "a.zip", [*ZIP.items(), ("a_map.txt", "\n".join(lines).encode())])


def records(bad: bytes, at: int = 1) -> Callable[[Path], Path]:
    """Return a maker of TFRecords with a bad record in the place of a good one."""
    good = [example({"image": bytes_list(data), "label": int_list(1)}) for data in IMAGES]
    good[at] = bad
    return lambda path: written(path / "a.tfrecord", tfrecord(good))


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def mxnet(bad: bytes) -> Callable[[Path], Path]:
    good = [rec(image_record(data, 1.0)) for data in IMAGES]
    return lambda path: written(path / "a.rec", good[0] + part(0, bad) + good[2])


def shards(at: int) -> Callable[[Path], Path]:
    """Return a maker of a shard whose sample `at` has a text where a number should be."""
    rows = [(data, b"1") for data in IMAGES]
    rows[at] = IMAGES[at], b"x"
    return lambda path: mds(path, {"image": ("jpeg", None), "label": ("str_int", None)}, rows)


def lmdb_of(items: Mapping[bytes, bytes]) -> Callable[[Path], Path]:
    return lambda path: write_lmdb(path / "a.lmdb", sorted(items.items()))


def pickles(bad: bytes | None) -> dict[bytes, bytes]:
    """Return the values of an LMDB; the second sample is `bad`, or is missing."""
    values = {b"%d" % number: pickle.dumps((data, 1)) for number, data in enumerate(IMAGES)}
    values[b"__keys__"] = pickle.dumps([*values])
    del values[b"1"]
    return values if bad is None else values | {b"1": bad}


def pysodtoolbox(path: Path) -> Path:
    (path / "a").mkdir()
    write_lmdb(path / "a", [(name, bytes(12)) for name in (b"0", b"2")], subdir=True)
    info = {"keys": ["0", "1", "2"], "resolution": ["3_2_2"]}
    (path / "a" / "meta_info.pkl").write_bytes(pickle.dumps(info))
    return path / "a"


def hdf5(path: Path) -> Path:
    with h5py.File(path / "a.h5", "w") as file:
        images = file.create_dataset("images", (3,), h5py.vlen_dtype(np.uint8))
        for number, data in enumerate(IMAGES):
            images[number] = np.frombuffer(data, np.uint8)
        file.create_dataset("caption", data=["a", "b" * 20_000, "c"], dtype=h5py.string_dtype())
    return path / "a.h5"


def hdf5_of_chunks(path: Path) -> Path:
    with h5py.File(path / "a.h5", "w") as file:
        images = file.create_dataset("images", (3, 4, 4, 3), np.uint8, chunks=(1, 4, 4, 3))
        images[0], images[2] = 1, 2
    return path / "a.h5"


def hdf5_with(name: str, values: Sequence[Any], type: Any) -> Callable[[Path], Path]:
    """Return a maker of images with a compressed dataset, in which the chunk of the second sample is damaged."""

    def make(path: Path) -> Path:
        with h5py.File(path / "a.h5", "w") as file:
            file["images"] = np.ones((3, 4, 4, 3), np.uint8)
            column = file.create_dataset(name, data=values, dtype=type, chunks=(1,), compression="gzip")
            column.id.write_direct_chunk((1,), b"damaged")
        return path / "a.h5"

    return make


def datadings(path: Path) -> Path:
    encoded = [packed({"image": data, "label": 1}) for data in IMAGES]
    encoded[1] = encoded[1].replace(struct.pack(">I", 2), struct.pack(">I", 3), 1) + packed("label") + packed(2)
    return written(path / "a.msgpack", b"".join(encoded))


def n5_with(damaged: str) -> Callable[[Path], Path]:
    """Return a maker of images, labels and numbers; in one of the arrays the block of the second sample is damaged.

    The images are either one in each block of `jpegs`, or one after the other in `data`.
    """

    def make(path: Path) -> Path:
        arrays: dict[str, tuple[str, Sequence[Any]]] = {"labels": (">f8", [0, 1, 2]), "numbers": (">i4", [7, 8, 9])}
        if damaged == "jpegs":
            attributes(path / "a" / "jpegs", [3], [1])
            for number, data in enumerate(IMAGES):
                block(path / "a" / "jpegs" / str(number), [1], data, 1, len(data))
        else:
            ends = np.cumsum([0, *map(len, IMAGES)]).tolist()
            attributes(path / "a" / "data", [ends[-1]], [ends[-1]])
            block(path / "a" / "data" / "0", [ends[-1]], b"".join(IMAGES))
            arrays |= {"offsets": (">u8", ends[:-1]), "sizes": (">u8", [*map(len, IMAGES)])}
        for name, (kind, values) in arrays.items():
            attributes(path / "a" / name, [3], [1], np.dtype(kind).name)
            for number, value in enumerate(values):
                block(path / "a" / name / str(number), [1], np.array(value, kind).tobytes())
        (path / "a" / damaged / "1").write_bytes(b"damaged")
        return path / "a"

    return make


def table_with_a_long_text(path: Path) -> Any:
    """Return a table whose second row is beyond the limit on the values and bytes of a row."""
    pa = pytest.importorskip("pyarrow")
    images = pa.array([{"bytes": data, "path": None} for data in IMAGES])
    return pa.table({"image": images, "text": ["a", "b" * (1 << 26), "c"]})


def long_parquet(path: Path) -> Path:
    table, pq = table_with_a_long_text(path), pytest.importorskip("pyarrow.parquet")
    pq.write_table(table, path / "a.parquet")
    return path / "a.parquet"


def long_arrow(path: Path) -> Path:
    table, ipc = table_with_a_long_text(path), pytest.importorskip("pyarrow.ipc")
    with ipc.new_file(path / "a.arrow", table.schema) as file:
        file.write_table(table)
    return path / "a.arrow"


def parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    images = pa.array([{"bytes": data, "path": None} for data in IMAGES])
    numbers = pa.array([[1], [1 << 63], [2]], pa.list_(pa.uint64()))
    pq.write_table(pa.table({"image": images, "numbers": numbers}), path / "a.parquet")
    return path / "a.parquet"


def coarse(path: Path) -> Path:
    cifar100(path / "a")
    data = bytearray((path / "a" / "train.bin").read_bytes())
    data[3074] = 99
    return written(path / "a" / "train.bin", bytes(data))


CASES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "tar, a member twice": (tar_with(("1.CLS", b"2")), r"1\.jpg: byte \d+: sample 1 has \.cls twice"),
    "tar, another image": (tar_of_many("49.png"), r"49\.png: is a second image of the sample, after 49\.jpg"),
    "tar, a member of an unknown kind": (tar_of_many("49.x"), r"49\.x: the first samples have no \.x"),
    "tar, a symbolic link": (
        lambda path: tar(path / "a.tar", [*TAR[:2], ("1.jpg", b""), *TAR[4:]], {"1.jpg": tarfile.SYMTYPE}),
        r"1\.jpg is a symbolic link",
    ),
    "tar, a sparse member": (sparse_tar, r"1\.jpg is sparse"),
    "tar, members apart, one twice": (tar_apart, r"sample 1 has \.cls twice, and its members are not adjacent"),
    "tar, the label in a later shard": (two_shards(3), r"1\.jpg: the members of sample 1 are in 0\.tar and in 1\.tar"),
    "tar, the image in a later shard": (two_shards(2), r"1\.jpg: the members of sample 1 are in 0\.tar and in 1\.tar"),
    "tar, a member apart from its image": (tar_of_many("07.cls"), r"07\.cls: is not next to the image of its sample"),
    "zip, a damaged header": (damaged_zip, r"1/1\.jpg: byte \d+: a damaged zip archive"),
    "zip, an image twice": (repeated_in_zip, r"1/1\.jpg: the archive contains this name twice"),
    "zip, a name that leads out": (zip_with(("../3.jpg", IMAGES[0])), r"\.\./3\.jpg: its name is not a plain"),
    "zip, a label of StyleGAN": (
        lambda path: zipped(path / "a.zip", [*stylegan(["cat"]).items()]),
        r"1/1\.jpg: its label is not a list of numbers",
    ),
    "zip, a map with an image that is missing": (swin("no.jpg\t1"), r"line 2: the archive has no image no\.jpg"),
    "zip, a map with an image twice": (swin("0/0.jpg\t1"), r"line 2: 0/0\.jpg is listed a second time"),
    "zip, a map with two labels of an image": (swin("0/0.jpg\t2"), r"line 2: 0/0\.jpg is listed a second time"),
    "zip, a map with too large a class id": (swin("1/1.jpg\t1000000000"), r"1/1\.jpg: its label is 1000000000"),
    "zip, a map with a malformed line": (swin("1/1.jpg 1"), "line 2: expected a path, a tab and a class id"),
    "tfrecord, a feature of another type": (
        records(example({"image": bytes_list(IMAGES[1]), "label": bytes_list(b"x")})),
        "record 1, at byte .* but ints in earlier records",
    ),
    "tfrecord, no Example": (records(sized(1, b"\xff")), "record 1, at byte .* not a Protocol Buffers message"),
    "tfrecord, no Example at first": (
        records(sized(1, b"\xff"), 0),
        "record 0, at byte .* not a Protocol Buffers message",
    ),
    "recordio, no label": (mxnet(b"x" * 23), r"the record at byte \d+: a record of 23 bytes is too short for a label"),
    "mds, no number": (shards(1), "sample 1: invalid literal"),
    "mds, no number at first": (shards(0), "sample 0: invalid literal"),
    "lmdb, no pickle": (lmdb_of(pickles(b"none")), "its value was written neither by pickle"),
    "lmdb, a missing key": (lmdb_of(pickles(None)), "key '1': sample 1 is missing"),
    "lmdb of PySODToolBox, a missing key": (pysodtoolbox, r"key '1': is missing, although meta_info\.pkl lists it"),
    "hdf5, a long text": (hdf5, "sample 1: a text of 20,000 bytes is too long"),
    "hdf5, a chunk that is missing": (hdf5_of_chunks, "sample 1: it was never written"),
    "hdf5, a damaged chunk of labels": (hdf5_with("labels", [1, 1, 1], int), "sample 1: /labels: libhdf5 cannot"),
    "hdf5, a damaged chunk of float labels": (
        hdf5_with("labels", [0.5, 1, 1], float),
        "sample 1: /labels: libhdf5 cannot",
    ),
    "hdf5, a damaged chunk of texts": (
        hdf5_with("caption", ["a", "b", "c"], h5py.string_dtype()),
        "sample 1: /caption: libhdf5 cannot",
    ),
    "datadings, a key twice": (datadings, "sample 1: the key 'label' occurs twice"),
    **{
        f"n5, a damaged block of {name}": (n5_with(name), f"{name}/1: is not a block of an N5 array")
        for name in ("jpegs", "offsets", "sizes", "labels", "numbers")
    },
    "parquet, a number that is too large": (parquet, "row 1: column numbers: .*(too large|out of bounds)"),
    "parquet, a long row": (long_parquet, "row 1: it has 67,108,8.. values and bytes; the limit is 67,108,864"),
    "arrow, a long row": (long_arrow, "row 1: it has 67,108,8.. values and bytes; the limit is 67,108,864"),
    "cifar, a coarse class": (coarse, r"byte 3074: the coarse class is 99, but there are \d+"),
}


@pytest.mark.parametrize(("make", "problem"), CASES.values(), ids=CASES)
def test_a_bad_sample_is_an_error_or_left_out(tmp_path: Path, make: Callable[[Path], Path], problem: str) -> None:
    (tmp_path / "src").mkdir()
    src, options = make(tmp_path / "src"), {"unlabeled": True}
    with pytest.raises(SourceError, match=f"(?s){problem}.*on_error='skip'"):
        packer.convert(src, tmp_path / "out.lmdb", **options)
    packer.convert(src, tmp_path / "out.lmdb", on_error="skip", **options)
    (skipped,) = packer.info(tmp_path / "out.lmdb").skipped
    assert skipped["reason"]
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert len(dataset)
    assert skipped["name"] not in [name for name, _ in dataset.samples]


@pytest.mark.parametrize(("line", "names"), [("0/0.jpg\t1", ["0/0.jpg", "0/2.jpg"]), ("0/0.jpg\t2", ["0/2.jpg"])])
def test_a_line_that_repeats_a_label_costs_no_image(tmp_path: Path, line: str, names: list[str]) -> None:
    packer.convert(swin(line)(tmp_path), tmp_path / "out.lmdb", on_error="skip")
    assert [name for name, _ in packer.open_dataset(tmp_path / "out.lmdb").samples] == names


@pytest.mark.parametrize(
    ("key", "name", "problem"),
    [("../b", "../b.jpg", "is not a plain"), ("b\0", "b\0.jpg", "contains a NUL"), ("/b", "/b.jpg", "is not a plain")],
)
def test_samples_whose_names_cannot_be_used_are_left_out(tmp_path: Path, key: str, name: str, problem: str) -> None:
    samples = [packed({"key": one, "image": IMAGES[0]}) for one in ("a", key, "c")]
    path = written(tmp_path / "a.msgpack", b"".join(samples))
    options: dict[str, Any] = {"unlabeled": True}
    with pytest.raises(SourceError, match=rf"sample 1, .*: its name .*{problem}.*on_error='skip'"):
        packer.convert(path, tmp_path / "out.lmdb", **options)
    packer.convert(path, tmp_path / "out.lmdb", on_error="skip", **options)
    assert [one["name"] for one in packer.info(tmp_path / "out.lmdb").skipped] == [name]


LABELS = {
    "texts": (stylegan(["cat", "dog"]), "1/1.jpg", "its label is not a list of numbers"),
    "a text": (stylegan("cat"), "1/1.jpg", "its label is neither a number nor a list of numbers"),
    "null": (stylegan(None), "1/1.jpg", "its label is neither a number nor a list of numbers"),
    "below -1": (stylegan(-5), "1/1.jpg", "its label is -5"),
    "too large": (stylegan(10**9), "1/1.jpg", "its label is 1000000000, but there are 0 classes"),
    "beyond 64 bits": (stylegan(1 << 64), "1/1.jpg", f"its label is {1 << 64}"),
    "two labels": (stylegan([0.0, 1.0], ["1\\1.jpg", [1.0, 0.0]]), "1/1.jpg", "dataset.json lists two labels for it"),
    "no path": (
        stylegan([1.0, 1.0], [7, 0]),
        "dataset.json, entry 3",
        "entry 3 of labels, .* is not a path and a label",
    ),
}


@pytest.mark.parametrize("is_zip", [False, True], ids=["directory", "zip"])
@pytest.mark.parametrize(("members", "name", "problem"), LABELS.values(), ids=LABELS)
def test_a_bad_label_of_stylegan_leaves_out_its_image(
    tmp_path: Path, members: Mapping[str, bytes], name: str, problem: str, is_zip: bool
) -> None:
    src = tmp_path / "src.zip" if is_zip else tmp_path / "src"
    if is_zip:
        zipped(src, [*members.items()])
    for member, data in members.items() if not is_zip else ():
        (src / member).parent.mkdir(parents=True, exist_ok=True)
        (src / member).write_bytes(data)
    with pytest.raises(SourceError, match=f"{name}: {problem}.*on_error='skip'"):
        packer.convert(src, tmp_path / "out.lmdb")
    packer.convert(src, tmp_path / "out.lmdb", on_error="skip")
    assert [one["name"] for one in packer.info(tmp_path / "out.lmdb").skipped] == [name]
    dataset = packer.open_dataset(tmp_path / "out.lmdb", fields=("labels",))
    expected = {"0/0.jpg": [0.0, 1.0], "1/1.jpg": [1.0, 1.0], "0/2.jpg": [2.0, 1.0]}
    expected.pop(name, None)
    assert {one: dataset[number]["labels"].tolist() for number, (one, _) in enumerate(dataset.samples)} == expected
