"""Where the fuzzing of containers starts: small files of each kind, as their own tools write them."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tests.containers import (
    test_arrays,
    test_arrow,
    test_beton,
    test_caffe,
    test_hdf5,
    test_lmdb,
    test_n5,
    test_parquet,
    test_pickle_lmdb,
    test_zip,
)
from tests.containers.everywhere import GOLDEN
from tests.containers.lmdbs import write_lmdb
from tests.containers.records import (
    MAGIC,
    bytes_list,
    example,
    float_list,
    image_record,
    int_list,
    rec,
    rec_and_idx,
    tfrecord,
)

SMALL = b"\xff\xd8\xff\xe0\x00\x02\xff\xc0\x00\x08\x08\x00\x10\x00\x10\x01\xff\xd9"
"""The shortest thing that is taken for a JPEG, of 16 x 16 pixels."""


class Seed(NamedTuple):
    """A container in a directory of its own.

    Attributes
    ----------
    directory : Path
        All files in it may be changed.
    target : Path
        What is opened: this directory, or something in it.
    """

    directory: Path
    target: Path


def _golden(root: Path, *names: str) -> list[Seed]:
    """Return copies of directories of golden files, or of single files."""
    seeds = []
    for name in names:
        source, directory = GOLDEN / name, root / f"golden-{name.replace('/', '-')}"
        directory.mkdir(parents=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, directory / source.name)
        seeds.append(Seed(directory, directory / source.name))
    return seeds


def _file(directory: Path, name: str, data: bytes, beside: Mapping[str, bytes] | None = None) -> Seed:
    """Write a file, and others next to it."""
    directory.mkdir(parents=True)
    for other, content in {name: data, **(beside or {})}.items():
        (directory / other).write_bytes(content)
    return Seed(directory, directory / name)


def _within(directory: Path, make: Callable[[Path], Path]) -> Seed:
    """Make a file or a directory in a directory of its own."""
    directory.mkdir(parents=True)
    return Seed(directory, make(directory))


def _tfrecord(root: Path) -> list[Seed]:
    boxes = {f"image/object/bbox/{edge}": float_list(0.25, 0.5) for edge in ("xmin", "ymin", "xmax", "ymax")}
    size = {"image/height": int_list(16), "image/width": int_list(24)}
    texts = {"texts": bytes_list(b"a", b"b"), "several": int_list(-1, 2, packed=False)}
    full = example({"image/encoded": bytes_list(SMALL), **size, **boxes, **texts})
    plain = [
        example({"image": bytes_list(SMALL), "label": int_list(n), "key": bytes_list(b"%d" % n)}) for n in range(3)
    ]
    return [
        _file(root / "detection", "a.tfrecord", tfrecord([full, full])),
        _file(root / "plain", "a.tfrecord", tfrecord(plain)),
        *_golden(root, "tfrecord"),
    ]


def _recordio(root: Path) -> list[Seed]:
    split = image_record(SMALL + b".." + MAGIC * 2 + b"end", 3)
    faces = [image_record(b"", [3, 4]), image_record(SMALL, 0), image_record(SMALL, [1, 2]), image_record(b"", [1, 2])]
    data, idx = rec_and_idx([split, image_record(SMALL, 0.5), split])
    labelled = [image_record(SMALL, [number, 2.5, 3]) for number in range(3)]
    return [
        _file(root / "split", "a.rec", data),
        _file(root / "faces", "a.rec", b"".join(map(rec, faces))),
        _file(root / "indexed", "a.rec", data, {"a.idx": idx.encode(), "property": b"3,112,112"}),
        _file(root / "labels", "a.rec", b"".join(map(rec, labelled))),
    ]


def _tar_of(format: int, keys: Iterable[str]) -> bytes:
    npy = io.BytesIO()
    np.save(npy, np.arange(6.0).reshape(2, 3))
    values = {"jpg": SMALL, "cls": b"3", "json": b"[1]", "seg.png": b"\x89PNG\r\n\x1a\n" + bytes(30)}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for key in keys:
            for extension, data in {**values, "npy": npy.getvalue()}.items():
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size, info.mtime = len(data), 1.5 if format == tarfile.PAX_FORMAT else 0
                tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    return file.getvalue()[: end + 1024]


def _tar(root: Path) -> list[Seed]:
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    made = {name: _tar_of(format, ("./a", "b/" * 60 + "b", "é")) for name, format in formats.items()}
    made["twice"] = made["ustar"] + made["gnu"]
    shard = _tar_of(tarfile.USTAR_FORMAT, ["a", "b"])
    wids = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 2, "filesize": len(shard)}]}
    timm = {"splits": {"train": {"filenames": ["a.tar"], "shard_lengths": [2]}}}
    return [
        *(_file(root / name, "a.tar", data) for name, data in made.items()),
        _file(root / "wids", "list.json", json.dumps(wids).encode(), {"a.tar": shard}),
        _file(root / "timm", "_info.json", json.dumps(timm).encode(), {"a.tar": shard}),
    ]


def _zip(root: Path) -> list[Seed]:
    tree = {"a/1.jpg": SMALL, "b/2.png": b"\x89PNG\r\n\x1a\n" + bytes(60), "b/": b"", "t.txt": b"1"}
    stylegan = {**tree, "dataset.json": '{"labels": [["a/1.jpg", 1], ["b/2.png", 0]]}'}
    swin = {**tree, "train_map.txt": "a/1.jpg\t1\nb/2.png\t0\n"}
    large = io.BytesIO()
    with zipfile.ZipFile(large, "w") as archive:
        for name, data in tree.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(data)
    return [
        _within(root / "stored", lambda to: test_zip.zipped(to / "a.zip", tree)),
        _within(root / "deflated", lambda to: test_zip.zipped(to / "a.zip", tree, zipfile.ZIP_DEFLATED)),
        _within(root / "stylegan", lambda to: test_zip.zipped(to / "a.zip", stylegan)),
        _within(root / "swin", lambda to: test_zip.zipped(to / "train.zip", swin)),
        _file(root / "zip64", "a.zip", large.getvalue()),
    ]


def _images_and_texts(**more: pa.Array) -> pa.Table:
    names = {"a.jpg": SMALL, "b.jpg": SMALL + b"\0", "c.jpg": SMALL}
    return test_parquet.table(names, text=pa.array(["x", None, "y"]), **more)


def _parquet(root: Path) -> list[Seed]:
    made = _images_and_texts()
    lists = _images_and_texts(ids=pa.array([[1], [], [2, 3]]))
    options: dict[str, tuple[pa.Table, dict[str, Any]]] = {
        "plain": (made, {}),
        "snappy": (made, {"data_page_version": "2.0", "compression": "snappy"}),
        "dictionary": (made, {"use_dictionary": True, "row_group_size": 2}),
        "zstd": (pa.table({"image": made["image"]}), {"compression": "zstd", "use_dictionary": True}),
        "lists": (lists, {"compression": "gzip"}),
        "lz4": (made, {"compression": "lz4"}),
    }
    return [
        _within(root / name, lambda to, t=table, o=chosen: test_parquet.written(to / "a.parquet", t, **o))  # type: ignore[misc]
        for name, (table, chosen) in options.items()
    ]


def _arrow(root: Path) -> list[Seed]:
    made = _images_and_texts(ids=pa.array([[1], [], [2, 3]]))
    named = made.append_column("class", pa.array(["b", None, "a"]).dictionary_encode())
    return [
        _within(root / "categories", lambda to: test_arrow.written(to / "a.arrow", named, rows=2)),
        _within(root / "categories-file", lambda to: test_arrow.written(to / "a.arrow", named, file=True)),
        _within(root / "stream", lambda to: test_arrow.written(to / "a.arrow", made, rows=2)),
        _within(root / "file", lambda to: test_arrow.written(to / "a.arrow", made, file=True)),
        _within(root / "lz4", lambda to: test_arrow.written(to / "a.arrow", made, compression="lz4")),
        *_golden(root, "datasets/saved"),
    ]


def _beton(root: Path) -> list[Seed]:
    fields = {"own": 255, "image": 2, "label": 1, "blob": 3, "weight": 0}
    rows = [{"own": b"", "image": SMALL, "label": n, "blob": b"xyz", "weight": 0.5} for n in range(2)]
    pixels = [{"image": np.full((5, 4, 3), n, np.uint8), "label": n} for n in range(3)]
    return [
        _within(root / "jpegs", lambda to: test_beton.beton(to / "a.beton", fields, rows)),
        _within(root / "pixels", lambda to: test_beton.beton(to / "a.beton", {"image": 2, "label": 1}, pixels)),
    ]


def _n5(root: Path) -> list[Seed]:
    pixels = np.arange(3 * 3 * 4 * 3, dtype=np.uint8).reshape(3, 3, 4, 3)

    def raw(to: Path) -> Path:
        blocks = {"x": (2, 3, 4, 3), "pose": (2, 2)}
        return test_n5.write(to / "raw.n5", blocks, x=pixels, pose=np.zeros((3, 2)))

    def deflated(to: Path) -> Path:
        return test_n5.write(to / "zip.n5", {"x": (2, 3, 4, 3)}, "gzip", x=pixels, labels=np.arange(3))

    def each(to: Path) -> Path:
        jpegs = test_n5.attributes(to / "each.n5/jpegs", [2], [1])
        for number in range(2):
            test_n5.block(jpegs / str(number), [1], SMALL, 1, len(SMALL))
        return to / "each.n5"

    found = [_within(root / make.__name__, make) for make in (raw, deflated, each)]
    return [*found, *_golden(root, "n5/tensorstore/group.n5")]


def _bagz(root: Path) -> list[Seed]:
    ends = np.cumsum([len(SMALL)] * 4).astype("<u8").tobytes()
    return [
        _file(root / "small", "a.bag", SMALL * 4 + ends),
        _file(root / "limits", "a-00000-of-00001.bag", SMALL * 4, {"limits.a-00000-of-00001.bag": ends}),
        *_golden(root, "bagz"),
    ]


def _lmdb(root: Path, name: str, values: Iterable[bytes], more: Iterable[tuple[bytes, bytes]] = ()) -> Seed:
    items = [*((b"%d" % number, value) for number, value in enumerate(values)), *more]
    return _within(root / name, lambda to: write_lmdb(to / "a", items))


def _caffe(root: Path) -> list[Seed]:
    message, datum = test_caffe.message, test_caffe.datum
    box = message((1, 3), (2, message((1, 1), (2, message((1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0))))))
    annotated = message((1, datum(SMALL, -1, encoded=True)), (2, 0), (3, box), (3, box))
    return [
        _lmdb(root, "encoded", [datum(SMALL, number, encoded=True) for number in range(12)]),
        _lmdb(root, "raw", [datum(bytes(12), 1, (3, 2, 2), encoded=False)] * 12),
        _lmdb(root, "ssd", [annotated] * 12),
        *_golden(root, "caffe"),
    ]


def _lsun(root: Path) -> list[Seed]:
    def classes(to: Path) -> Path:
        return test_lmdb.lsun(to / "lsun", "tower_train", "bedroom_train")

    return [*_golden(root, "lsun"), _within(root / "classes", classes)]


def _text_recognition(root: Path) -> list[Seed]:
    samples = [(f"{what}-{number:09d}".encode(), data) for number in range(1, 5) for what, data in _WORD]
    return [_lmdb(root, "words", [], [*samples, (b"num-samples", b"4")])]


_WORD = (("image", SMALL), ("label", b"word"))


def _images(root: Path) -> list[Seed]:
    deep = [(b"%0200d" % number, SMALL) for number in range(60)]  # a tree of two levels
    return [_lmdb(root, "flat", [SMALL] * 4), _lmdb(root, "deep", [], deep)]


def _pickled(root: Path) -> list[Seed]:
    sample = {"img": SMALL, "cat": 3, "name": "x", "sents": ["a"], "box": np.arange(3.0), "weight": 1.5}
    keys = [b"%d" % number for number in range(12)]
    seeds = [_lmdb(root, "python2", [test_pickle_lmdb.python2((SMALL, 3))] * 12), *_golden(root, "pickled")]
    for protocol in range(6):
        listed = [(b"__keys__", pickle.dumps(keys, protocol)), (b"__len__", pickle.dumps(12, protocol))]
        seeds.append(_lmdb(root, f"pairs-{protocol}", [pickle.dumps((SMALL, 3), protocol)] * 12, listed))
        seeds.append(_lmdb(root, f"dicts-{protocol}", [pickle.dumps(sample, protocol)] * 4))
    return seeds


def _serialized(root: Path) -> list[Seed]:
    golden, serialized = test_pickle_lmdb.golden, test_pickle_lmdb.serialized
    keys = [b"0", b"1", b"2"]
    return [
        _lmdb(root, "serialized", [serialized((SMALL, 1), old=False), serialized((SMALL, 1), old=True)]),
        _lmdb(root, "arrow", map(golden, ("tuple", "array", "collated")), [(b"__keys__", pickle.dumps(keys))]),
        _lmdb(root, "arrow-dicts", [golden("dict")] * 2),
    ]


def _pysodtoolbox(root: Path) -> list[Seed]:
    same = {f"{number}.png": np.zeros((2, 3, 3), np.uint8) for number in range(4)}
    other = {"a.png": np.zeros((2, 3), np.uint8), "b.png": np.zeros((3, 2), np.uint8)}
    return [
        _within(root / "same", lambda to: test_lmdb.pysod(to / "a.lmdb", same)),
        _within(root / "old", lambda to: test_lmdb.pysod(to / "a.lmdb", same, 0)),
        _within(root / "other", lambda to: test_lmdb.pysod(to / "a.lmdb", other, 2)),
    ]


def _cifar(root: Path) -> list[Seed]:
    made = {"ten": test_arrays.cifar10, "hundred": test_arrays.cifar100}
    return [_within(root / name, lambda to, m=make: m(to / "set")) for name, make in made.items()]  # type: ignore[misc]


def _mnist(root: Path) -> list[Seed]:
    return [_within(root / "set", lambda to: test_arrays.mnist(to / "set"))]


def _npy(root: Path) -> list[Seed]:
    def planes(to: Path) -> Path:
        np.save(to / "x.npy", np.arange(5 * 3 * 4 * 6, dtype=np.uint8).reshape(5, 3, 4, 6))
        np.save(to / "y.npy", np.arange(5)[:, None])
        return to

    return [
        _within(root / "set", lambda to: test_arrays.npy(to / "set")),
        _within(root / "planes", planes),
    ]


def _hdf5(root: Path) -> list[Seed]:
    array = test_hdf5.array
    return [
        _within(root / "fuel", lambda to: test_hdf5.fuel(to / "a.h5")),
        _within(root / "plain", lambda to: array(to / "a.h5")),
        _within(root / "chunks", lambda to: array(to / "a.h5", chunks=(4, 3, 6, 5))),
        _within(root / "deflated", lambda to: array(to / "a.h5", chunks=(4, 3, 6, 5), compression="gzip")),
        *_golden(root, "hdf5/images.h5"),
    ]


SEEDS: dict[str, Callable[[Path], list[Seed]]] = {
    "mds": lambda root: _golden(root, "mds", "mds-zstd", "mds-pil", "mds-jpeg", "mds/shard.00000.mds"),
    "litdata": lambda root: _golden(root, "litdata", "litdata-pair"),
    "beton": _beton,
    "bagz": _bagz,
    "datadings": lambda root: _golden(root, "datadings", "datadings/train.msgpack"),
    "caffe": _caffe,
    "lsun": _lsun,
    "images": _images,
    "text-recognition": _text_recognition,
    "pickled": _pickled,
    "serialized": _serialized,
    "pysodtoolbox": _pysodtoolbox,
    "n5": _n5,
    "npy": _npy,
    "cifar": _cifar,
    "mnist": _mnist,
    "hdf5": _hdf5,
    "zip": _zip,
    "parquet": _parquet,
    "arrow": _arrow,
    "tar": _tar,
    "tfrecord": _tfrecord,
    "rec": _recordio,
}
"""What writes the seeds of a container into a directory, by the container's name."""
