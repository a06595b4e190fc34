"""Writes small containers with the tools of other projects. The files are committed, and tests read them.

``python -m tests.golden.containers.make [NAME ...]`` in the environment of `scripts/interop` writes all, or some, anew.
Almost all containers have the images in ``images``. ``expected.json`` has, by the path of each container, the names,
labels and classes, and the SHA-256 of the images. ``pyarrow-11`` and ``datasets`` stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import packer
from packer.testing.reference import torchvision
from tests.interop.caffe import by_lmdb
from tests.interop.n5 import by_tensorstore, by_z5py
from tests.interop.photos import Photo

HERE = Path(__file__).parent
NAMES = ["a.jpg", "b.png", "c.jpg"]
LABELS = [2, 0, 1]
CAPTIONS = ["a dog", "", "größer ☃"]


def images() -> list[bytes]:
    """Return the images; draw them if they are missing."""
    folder = HERE / "images"
    if not folder.exists():
        folder.mkdir()
        y, x = np.mgrid[:12, :16]
        for number, name in enumerate(NAMES):
            pixels = np.stack([x * 15, y * 20, (x + y) * 5 + 40 * number], -1).astype(np.uint8)
            Image.fromarray(pixels[: 12 - number]).save(folder / name)
    return [(folder / name).read_bytes() for name in NAMES]


def mds(_: Path) -> None:
    torchvision()  # streaming imports it
    from streaming import MDSWriter

    columns = {
        "image": "bytes",
        "label": "int",
        "caption": "str",
        "meta": "json",
        "score": "float32",
        "small": "uint8",
        "long": "str_int",
        "fixed": "ndarray:int16:2,3",
        "free": "ndarray",
        "secret": "pkl",
    }
    with MDSWriter(out=str(HERE / "mds"), columns=columns, size_limit=1500, hashes=["sha1"]) as out:
        for number, data in enumerate(images()):
            out.write(
                {
                    "image": data,
                    "label": LABELS[number],
                    "caption": CAPTIONS[number],
                    "meta": {"number": number},
                    "score": np.float32(number / 4),
                    "small": np.uint8(250 + number),
                    "long": 10**10 + number,
                    "fixed": np.arange(6, dtype=np.int16).reshape(2, 3) + number,
                    "free": np.arange(4 + number, dtype=np.float32),
                    "secret": {"number": number},
                }
            )
    for name, options in {"mds-jpeg": {}, "mds-zstd": {"compression": "zstd"}}.items():
        with MDSWriter(out=str(HERE / name), columns={"image": "jpeg", "label": "uint16"}, **options) as out:
            for number, name in enumerate(["a.jpg", "c.jpg"]):
                out.write({"image": Image.open(HERE / "images" / name), "label": np.uint16(number)})
    with MDSWriter(out=str(HERE / "mds-pil"), columns={"image": "pil", "label": "int"}) as out:
        for number, name in enumerate(NAMES):
            out.write({"image": Image.open(HERE / "images" / name).copy(), "label": LABELS[number]})


def sample_of_litdata(number: int) -> dict[str, object]:
    """Return the sample that LitData stores for an image."""
    return {
        "image": images()[number],
        "label": LABELS[number],
        "caption": CAPTIONS[number],
        "good": number == 1,
        "score": number / 4,
        "free": np.arange(4 + number, dtype=np.float32),
        "table": np.arange(6, dtype=np.int16).reshape(2, 3) + number,
    }


def pair_of_litdata(number: int) -> tuple[object, int]:
    """Return a pair, whose image LitData stores as the file has it."""
    return Image.open(HERE / "images" / ["a.jpg", "c.jpg"][number]), number


def litdata(_: Path) -> None:
    from litdata import optimize

    optimize(sample_of_litdata, [0, 1, 2], str(HERE / "litdata"), num_workers=1, chunk_size=2)
    optimize(pair_of_litdata, [0, 1], str(HERE / "litdata-pair"), num_workers=1, chunk_size=2)
    options = {"num_workers": 1, "chunk_size": 2, "compression": "zstd"}
    optimize(pair_of_litdata, [0, 1], str(HERE / "litdata-zstd"), **options)


def datadings(out: Path) -> None:
    sys.modules.setdefault("gdown", types.ModuleType("gdown"))  # for downloads, not needed here
    from datadings.writer import FileWriter

    with FileWriter(out / "train.msgpack") as writer:
        for name, data, label in zip(NAMES, images(), LABELS, strict=True):
            writer.write({"key": f"some/{name}", "image": data, "label": label})


def bagz(out: Path) -> None:
    import bagz

    with bagz.Writer(str(out / "images.bag")) as writer:
        for data in images():
            writer.write(data)


def n5(out: Path) -> None:
    for tool in ("z5py", "tensorstore"):
        (out / tool).mkdir()
    by_z5py(out / "z5py", photos())
    by_tensorstore(out / "tensorstore", photos())


def photos() -> list[Photo]:
    """Return the images as photos of `tests.interop`."""
    return [Photo(data, label, name) for name, data, label in zip(NAMES, images(), LABELS, strict=True)]


def webdataset(out: Path) -> None:
    from webdataset import ShardWriter

    with ShardWriter(str(out / "shard-%06d.tar"), maxcount=2, verbose=0) as writer:
        for photo, caption in zip(photos(), CAPTIONS, strict=True):
            key, _, suffix = str(photo.name).partition(".")
            writer.write({"__key__": f"some/{key}", suffix: photo.data, "cls": photo.label, "txt": caption})
    for shard in sorted(out.glob("*.tar")):
        dali_index("wds2idx", shard, shard.with_suffix(".idx"))


def dali_index(tool: str, file: Path, index: Path) -> None:
    """Write the index of a file with a tool of DALI."""
    run = [sys.executable, "-m", tool] if tool == "wds2idx" else [str(Path(sys.executable).with_name(tool))]
    subprocess.run([*run, file, index], check=True, capture_output=True)


def tfrecord(out: Path) -> None:
    from tfrecord import TFRecordWriter

    writer = TFRecordWriter(str(out / "train-00000-of-00001"))
    for photo, caption in zip(photos(), CAPTIONS, strict=True):
        values = {"image/encoded": photo.data, "image/filename": str(photo.name).encode(), "caption": caption.encode()}
        writer.write({key: (value, "byte") for key, value in values.items()} | {"label": (photo.label, "int")})
    writer.close()
    dali_index("tfrecord2idx", out / "train-00000-of-00001", out / "train-00000-of-00001.idx")


def write_lmdb(path: Path, items: Sequence[tuple[bytes, bytes]]) -> None:
    """Write a small LMDB directory."""
    import lmdb

    with lmdb.open(str(path), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for key, value in items:
            transaction.put(key, value)
    (path / "lock.mdb").unlink()


def caffe(out: Path) -> None:
    (by_lmdb(out, photos()) / "lock.mdb").unlink()


def lsun(out: Path) -> None:
    write_lmdb(out / "tower_val_lmdb", [(b"%040x" % number, data) for number, data in enumerate(images())])


def pickled(out: Path) -> None:
    """Write an LMDB as folder2lmdb.py of Efficient-PyTorch does."""
    pairs = [(b"%d" % number, pickle.dumps((one.data, one.label))) for number, one in enumerate(photos())]
    keys = pickle.dumps([key for key, _ in pairs])
    write_lmdb(out / "train_lmdb", [*pairs, (b"__keys__", keys), (b"__len__", pickle.dumps(len(pairs)))])


def zipped(out: Path) -> None:
    for name, method in {"stored.zip": zipfile.ZIP_STORED, "deflated.zip": zipfile.ZIP_DEFLATED}.items():
        with zipfile.ZipFile(out / name, "w", method) as archive:
            for photo in photos():
                archive.writestr(f"00000/{photo.name}", photo.data)
            labels = [[f"00000/{photo.name}", photo.label] for photo in photos()]
            archive.writestr("dataset.json", json.dumps({"labels": labels}))


def parquet(out: Path) -> None:
    """Write two files with pyarrow: one uncompressed, which can be read in place, and one with default compression."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"bytes": photo.data, "path": photo.name} for photo in photos()]
    table = pa.table({"image": rows, "label": LABELS, "caption": CAPTIONS})
    pq.write_table(table, out / "plain.parquet", compression="none", use_dictionary=False, row_group_size=2)
    pq.write_table(table, out / "snappy.parquet")


def hdf5(out: Path) -> None:
    import h5py

    with h5py.File(out / "images.h5", "w") as file:
        data = file.create_dataset("encoded_images", (3,), h5py.vlen_dtype(np.uint8))
        for number, one in enumerate(images()):
            data[number] = np.frombuffer(one, np.uint8)
        file["targets"] = np.array(LABELS, np.uint8)


def indexes(out: Path) -> None:
    """Write indexes of packer's packs with DALI's tools; only the indexes are kept."""
    samples = [{"image": photo.data, "label": photo.label, "name": photo.name} for photo in photos()]
    for suffix, tool, pattern in ((".wds", "wds2idx", "*.tar"), (".tfrecord", "tfrecord2idx", "*.tfrecord")):
        packer.pack(samples, out / f"made{suffix}", classes=["0", "1", "2"])
        (file,) = (out / f"made{suffix}").glob(pattern)
        dali_index(tool, file, out / f"{suffix[1:]}.idx")
        shutil.rmtree(out / f"made{suffix}")


WRITERS: dict[str, Callable[[Path], None]] = {
    **{one.__name__: one for one in (mds, litdata, datadings, bagz, n5, webdataset, tfrecord, caffe, lsun, pickled)},
    **{one.__name__: one for one in (zipped, parquet, hdf5, indexes)},
}


def expected() -> dict[str, dict[str, Any]]:
    """Return the content of each container: what was written, and the names that packer gives if it has none."""
    stem = {
        "datasets": [f"{number}.jpg" for number in range(3)],
        "litdata": ["chunk-0-0/000000.jpg", "chunk-0-0/000001.png", "chunk-0-1/000000.jpg"],
        "mds": ["shard.00000/000000.jpg", "shard.00000/000001.png", "shard.00001/000000.jpg"],
    }
    own, unlabeled, classes = NAMES, [-1, -1, -1], ["0", "1", "2"]
    numbers = ["0.jpg", "1.png", "2.jpg"]
    keys = [f"{number:040x}{name[1:]}" for number, name in enumerate(NAMES)]
    zips = [f"00000/{name}" for name in NAMES]
    some = [f"some/{name}" for name in NAMES]
    rows: list[tuple[str, list[str], list[int], list[str]]] = [
        ("bagz/images.bag", [f"images/{name}" for name in numbers], unlabeled, []),
        ("caffe/train_lmdb", own, LABELS, classes),
        ("datadings", some, LABELS, classes),
        ("hdf5/images.h5", numbers, LABELS, classes),
        ("litdata", stem["litdata"], LABELS, classes),
        ("lsun/tower_val_lmdb", [f"tower/{key}" for key in keys], [0, 0, 0], ["tower"]),
        ("mds", stem["mds"], LABELS, classes),
        ("n5/tensorstore/group.n5", own, LABELS, classes),
        ("n5/z5py/group.n5", own, LABELS, classes),
        ("parquet/plain.parquet", own, LABELS, classes),
        ("parquet/snappy.parquet", own, LABELS, classes),
        ("pickled/train_lmdb", numbers, LABELS, classes),
        ("tfrecord", own, LABELS, classes),
        ("webdataset", some, LABELS, classes),
        ("zipped/deflated.zip", zips, LABELS, classes),
        ("zipped/stored.zip", zips, LABELS, classes),
    ]
    made = {row[0]: _row(*row[1:], images()) for row in rows}
    two = [data for name, data in zip(NAMES, images(), strict=True) if name.endswith(".jpg")]
    for name, stems in {"litdata-pair": "chunk-0-0", "mds-jpeg": "shard.00000", "mds-zstd": "shard.00000"}.items():
        made[name] = _row([f"{stems}/{number:06d}.jpg" for number in range(2)], [0, 1], classes[:2], two)
    photos_of_datasets = [(HERE / "datasets" / name).read_bytes() for name in stem["datasets"]]
    for name in ("datasets/saved", "datasets/train-00000-of-00001.parquet"):
        made[name] = _row(stem["datasets"], [2, -1, 0], ["cat", "dog", "owl"], photos_of_datasets)
    for name in ("mds-zstd", "parquet/snappy.parquet", "zipped/deflated.zip"):
        made[name]["compressed"] = True
    return dict(sorted(made.items()))


def _row(names: list[str], labels: list[int], classes: list[str], data: list[bytes]) -> dict[str, Any]:
    digests = [hashlib.sha256(one).hexdigest() for one in data]
    return {"names": names, "labels": labels, "classes": classes, "sha256": digests}


def main(wanted: Sequence[str]) -> None:
    for name in wanted or WRITERS:
        for made in [*HERE.glob(f"{name}*")]:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        out = HERE / name
        if name not in ("mds", "litdata"):
            out.mkdir()
        WRITERS[name](out)
    (HERE / "expected.json").write_text(json.dumps(expected(), indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
