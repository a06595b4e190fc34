"""The losses of every source: printed first, counted, reported, recorded in the manifest; an error with --strict."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import packer
from packer._account import Account, AccountItem
from packer._formats import open_pack
from packer._sources.imagefolder import imagefolder_source
from packer._sources.scan_list import write_listing
from packer._storage.remote.urls import is_url
from packer.errors import OptionError, SourceError
from tests.command import packer as run_packer
from tests.containers import records, test_bagz, test_beton, test_datadings, test_litdata, test_mds, test_n5
from tests.containers.lmdbs import write_lmdb
from tests.upload.conftest import bucket, moto, s3  # noqa: F401 - fixtures that `built` requests


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 12), (number * 20 % 256, 90, 40)).save(buffer, "JPEG")
    return buffer.getvalue()


IMAGES = [jpeg(number) for number in range(6)]


@dataclass(frozen=True)
class Built:
    """A source, and the arguments with which `packer.convert` reads it.

    Attributes
    ----------
    src : Path or str
    options : dict
        Arguments of `packer.convert`.
    lost : int
        How many images are left out, or have no label.
    accepts : dict
        The argument that accepts a source without any label.
    """

    src: Path | str
    options: dict[str, Any]
    lost: int
    accepts: dict[str, Any] = field(default_factory=lambda: {"unlabeled": True})


Build = Callable[..., Built]


@dataclass(frozen=True)
class Kind:
    """A kind of source, with functions that make one of six images with a loss; None if it cannot have that loss.

    Attributes
    ----------
    name : str
    left_out : callable, optional
        Makes a source one of whose images will not be in the pack.
    unlabeled : callable, optional
        Makes a source some of whose images have no label.
    all_unlabeled : callable, optional
        Makes a source none of whose images has a label, though something in it looks like labels.
    """

    name: str
    left_out: Build | None = None
    unlabeled: Build | None = None
    all_unlabeled: Build | None = None

    def __str__(self) -> str:
        return self.name


def tree_with_an_image_outside(directory: Path) -> Built:
    for number, data in enumerate(IMAGES):
        path = directory / "tree" / ("cat" if number % 2 else "dog") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (directory / "tree" / "outside.jpg").write_bytes(IMAGES[0])
    return Built(directory / "tree", {}, 1)


def tar(directory: Path, members: list[tuple[str, bytes]], lost: int) -> Built:
    path = directory / "shard.tar"
    with tarfile.open(path, "w") as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return Built(path, {}, lost)


def tar_with_two_labels_missing(directory: Path) -> Built:
    members = [(f"{n:03d}.jpg", data) for n, data in enumerate(IMAGES)]
    members += [(f"{n:03d}.cls", b"%d" % (n % 2)) for n in range(4)]
    return tar(directory, sorted(members), 2)


PIXELS = np.zeros((6, 12, 16, 3), np.uint8)
CLASSES = [0, 1, 0, 1, 0, 1]


def hdf5(directory: Path, lost: int, **datasets: Any) -> Built:
    with h5py.File(directory / "images.h5", "w") as file:
        for name, data in {"images": PIXELS, **datasets}.items():
            file[name] = data
    return Built(directory / "images.h5", {}, lost)


def parquet(directory: Path, lost: int, **columns: Any) -> Built:
    made = pa.table({"image": pa.array(IMAGES, pa.binary()), **{name: pa.array(one) for name, one in columns.items()}})
    pq.write_table(made, directory / "images.parquet", compression="none", use_dictionary=False)
    return Built(directory / "images.parquet", {}, lost)


def arrow(directory: Path, lost: int, **columns: Any) -> Built:
    made = pa.table({"image": pa.array(IMAGES, pa.binary()), **{name: pa.array(one) for name, one in columns.items()}})
    with pa.ipc.new_file(str(directory / "images.arrow"), made.schema) as file:
        file.write_table(made)
    return Built(directory / "images.arrow", {}, lost)


def npy(directory: Path, lost: int, **arrays: Any) -> Built:
    for name, data in {"images": PIXELS, **arrays}.items():
        np.save(directory / f"{name}.npy", np.array(data))
    return Built(directory / "images.npy", {}, lost)


def zipped(directory: Path, lost: int, *names: str) -> Built:
    with zipfile.ZipFile(directory / "images.zip", "w") as file:
        for name, data in zip(names, IMAGES, strict=True):
            file.writestr(name, data)
        file.writestr("labels.csv", "path,label")
    return Built(directory / "images.zip", {}, lost)


def examples(directory: Path, lost: int, name: str, labels: list[int | None]) -> Built:
    """Return a TFRecord whose labels are the feature `name`."""
    features = [
        {"image": records.bytes_list(data), **({} if label is None else {name: records.int_list(label)})}
        for data, label in zip(IMAGES, labels, strict=True)
    ]
    (directory / "images.tfrecord").write_bytes(records.tfrecord(map(records.example, features)))
    return Built(directory / "images.tfrecord", {}, lost)


def mds(directory: Path, lost: int, name: str, encoding: str, labels: list[bytes]) -> Built:
    rows = list(zip(IMAGES, labels, strict=True))
    return Built(test_mds.one(directory, {"image": ("jpeg", None), name: (encoding, None)}, rows), {}, lost)


def datadings(directory: Path, lost: int, *samples: dict[str, Any]) -> Built:
    rows = [{"image": data, **sample} for data, sample in zip(IMAGES, samples, strict=True)]
    return Built(test_datadings.write(directory / "images.msgpack", *rows), {}, lost)


def beton(directory: Path, lost: int, name: str) -> Built:
    rows = [{"image": data, name: label} for data, label in zip(IMAGES, CLASSES, strict=True)]
    return Built(test_beton.beton(directory / "images.beton", {"image": 2, name: 1}, rows), {}, lost)


def lmdb(directory: Path, lost: int, items: list[tuple[str, bytes]]) -> Built:
    return Built(write_lmdb(directory / "images_lmdb", [(key.encode(), data) for key, data in items]), {}, lost)


def pickled(directory: Path, lost: int, samples: list[Any]) -> Built:
    return lmdb(directory, lost, [(str(number), pickle.dumps(sample)) for number, sample in enumerate(samples)])


def recordio(directory: Path, lost: int, labels: list[float]) -> Built:
    """Return records of images with a label each."""
    data = [records.rec(records.image_record(one, label)) for one, label in zip(IMAGES, labels, strict=True)]
    (directory / "images.rec").write_bytes(b"".join(data))
    return Built(directory / "images.rec", {}, lost)


def litdata(directory: Path, lost: int, name: str, kind: str, labels: list[bytes]) -> Built:
    (directory / "chunks").mkdir()
    spec = json.dumps(
        [1, {"type": "builtins.dict", "context": json.dumps(["image", name]), "children_spec": [test_litdata.LEAF] * 2}]
    )
    rows = list(zip(IMAGES, labels, strict=True))
    return Built(test_litdata.write(directory / "chunks", rows, ["jpeg", kind], data_spec=spec), {}, lost)


def integers(labels: list[int]) -> list[bytes]:
    return [struct.pack("<q", label) for label in labels]


def bagz(directory: Path, lost: int, *beside: str) -> Built:
    """Return a directory with a shard and files of labels."""
    (directory / "bags").mkdir()
    test_bagz.bag(directory / "bags" / "images.bag", IMAGES)
    for name in beside:
        (directory / "bags" / name).write_text("path,label\n")
    return Built(directory / "bags", {}, lost)


def n5(directory: Path, lost: int, **arrays: Any) -> Built:
    for name, values in {"images": PIXELS, **{name: np.array(one) for name, one in arrays.items()}}.items():
        sides = list(values.shape[::-1])
        place = test_n5.attributes(directory / "images.n5" / name, sides, sides, values.dtype.name)
        test_n5.block(
            place.joinpath(*["0"] * len(sides)), sides, values.astype(values.dtype.newbyteorder(">")).tobytes()
        )
    return Built(directory / "images.n5", {}, lost)


XML = """<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox>
</object></annotation>"""


def voc(directory: Path, lost: int, *stems: str) -> Built:
    """Return six images, and annotations for some of them, by their stems."""
    images(directory / "VOC" / "JPEGImages")
    (directory / "VOC" / "Annotations").mkdir()
    for stem in stems:
        (directory / "VOC" / "Annotations" / f"{stem}.xml").write_text(XML)
    return Built(directory / "VOC" / "JPEGImages", {"voc": directory / "VOC"}, lost)


def yolo(directory: Path, lost: int, *stems: str) -> Built:
    """Return six images, and labels for some of them, by their stems."""
    images(directory / "coco" / "images")
    (directory / "coco" / "labels").mkdir()
    for stem in stems:
        (directory / "coco" / "labels" / f"{stem}.txt").write_text("0 .5 .5 .2 .2")
    (directory / "coco" / "data.yaml").write_text("names: [cat]")
    return Built(directory / "coco" / "images", {"yolo": directory / "coco" / "data.yaml"}, lost)


WORDS = [item for n, data in enumerate(IMAGES, 1) for item in ((f"image-{n:09d}", data), (f"label-{n:09d}", b"word"))]
SOME = [0, 1, None, 1, 0, None]

GAPS = [0.0, 1.0, float("nan"), 1.0, 0.0, float("nan")]


def images(directory: Path, *names: str) -> Path:
    for name, data in zip(names or [f"{number}.jpg" for number in range(6)], IMAGES, strict=False):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


def table(directory: Path, head: str, rows: list[str], lost: int, **options: Any) -> Built:
    (directory / "table.csv").write_text("\n".join([head, *rows, ""]))
    return Built(images(directory / "tree"), {"labels": directory / "table.csv", **options}, lost)


def table_that_was_cut(directory: Path) -> Built:
    return table(directory, "path,label", [f"{n}.jpg,{n % 2}" for n in range(4)], 2)


def table_with_unlabeled_rows(directory: Path) -> Built:
    return table(directory, "path,label", [f"{n}.jpg,{-(n > 3)}" for n in range(6)], 2)


def table_of_another_column(directory: Path) -> Built:
    built = table(directory, "path,label,target", [f"{n}.jpg,,{'ab'[n % 2]}" for n in range(6)], 6, unlabeled=True)
    return replace(built, accepts={"no_classes": True})  # some rows may lack labels, and all of them do


def metadata(directory: Path, head: str, rows: list[str], lost: int) -> Built:
    root = images(directory / "tree")
    (root / "metadata.csv").write_text("\n".join([head, *rows, ""]))
    return Built(root, {}, lost)


def coco_with_an_image_more(directory: Path) -> Built:
    entries = [{"id": n, "file_name": f"{n}.jpg", "height": 12, "width": 16} for n in range(5)]
    (directory / "a.json").write_text(json.dumps({"images": entries, "annotations": [], "categories": []}))
    return Built(images(directory / "tree"), {"coco": directory / "a.json"}, 1)


def stylegan(directory: Path, count: int) -> Built:
    root = images(directory / "tree")
    (root / "dataset.json").write_text(json.dumps({"labels": [[f"{n}.jpg", n % 2] for n in range(count)]}))
    return Built(images(root, "00000/0.jpg"), {}, 7 - count)


@dataclass(frozen=True)
class InBucket:
    """Makes a source on a disk, and uploads its files to a bucket: the source is then that of the objects.

    Attributes
    ----------
    build : Build
    by_table : bool
        Whether the source is the table, with a column of URLs in place of paths.
    """

    build: Build
    by_table: bool = False

    def __call__(self, directory: Path, client: Any, name: str) -> Built:
        built = self.build(directory)
        assert isinstance(built.src, Path)
        for path in built.src.rglob("*"):
            if path.is_file():
                client.upload_file(str(path), name, f"photos/{path.relative_to(built.src).as_posix()}")
        url, options = f"s3://{name}/photos", dict(built.options)
        if not self.by_table:
            return replace(built, src=url)
        table = options.pop("labels")
        head, *rows = table.read_text().splitlines()
        table.write_text("\n".join([head.replace("path", "url"), *(f"{url}/{row}" for row in rows), ""]))
        return replace(built, src=table, options=options)


KINDS = [
    Kind("imagefolder", left_out=tree_with_an_image_outside),
    Kind(
        "table",
        left_out=table_that_was_cut,
        unlabeled=table_with_unlabeled_rows,
        all_unlabeled=table_of_another_column,
    ),
    Kind(
        "metadata",
        unlabeled=lambda directory: metadata(
            directory, "file_name,label", [f"{n}.jpg,{'' if n > 3 else 'ab'[n % 2]}" for n in range(6)], 2
        ),
        all_unlabeled=lambda directory: metadata(
            directory, "file_name,target", [f"{n}.jpg,{'ab'[n % 2]}" for n in range(6)], 6
        ),
    ),
    Kind("coco", left_out=coco_with_an_image_more),
    Kind("stylegan", unlabeled=lambda directory: stylegan(directory, 4)),
    Kind(
        "hdf5",
        unlabeled=lambda directory: hdf5(directory, 2, labels=GAPS),
        all_unlabeled=lambda directory: hdf5(directory, 6, labels=[0, 1, 0]),
    ),
    Kind(
        "parquet",
        unlabeled=lambda directory: parquet(directory, 2, label=GAPS),
        all_unlabeled=lambda directory: parquet(directory, 6, target=CLASSES, category=CLASSES),
    ),
    Kind(
        "arrow",
        unlabeled=lambda directory: arrow(directory, 2, label=["a", None, "b", "a", "", "b"]),
        all_unlabeled=lambda directory: arrow(directory, 6, class_id=CLASSES),
    ),
    Kind(
        "npy",
        unlabeled=lambda directory: npy(directory, 2, labels=GAPS),
        all_unlabeled=lambda directory: npy(directory, 6, other_labels=CLASSES),
    ),
    Kind(
        "tar",
        left_out=lambda directory: tar(directory, [("0.cls", b"1"), ("1.jpg", IMAGES[1]), ("1.cls", b"1")], 1),
        unlabeled=tar_with_two_labels_missing,
        all_unlabeled=lambda directory: tar(
            directory,
            [(f"{n}.{end}", one) for n in range(6) for end, one in (("jpg", IMAGES[n]), ("class_id", b"1"))],
            6,
        ),
    ),
    Kind(
        "zip",
        left_out=lambda directory: zipped(directory, 1, "a/0.jpg", "1.jpg", *(f"b/{n}.jpg" for n in range(4))),
        all_unlabeled=lambda directory: zipped(directory, 6, *(f"{n}.jpg" for n in range(6))),
    ),
    Kind(
        "tfrecord",
        unlabeled=lambda directory: examples(directory, 2, "target", SOME),
        all_unlabeled=lambda directory: examples(directory, 6, "species", CLASSES),
    ),
    Kind(
        "mds",
        unlabeled=lambda directory: mds(directory, 2, "Label", "str_int", [b"0", b"-1", b"1", b"0", b"-1", b"1"]),
        all_unlabeled=lambda directory: mds(directory, 6, "label", "pkl", [b"?"] * 6),
    ),
    Kind(
        "datadings",
        unlabeled=lambda directory: datadings(
            directory, 2, *({"key": str(n), **({} if one is None else {"class": one})} for n, one in enumerate(SOME))
        ),
        all_unlabeled=lambda directory: datadings(
            directory, 6, *({"key": str(n), "kind": one} for n, one in enumerate(CLASSES))
        ),
    ),
    Kind("beton", all_unlabeled=lambda directory: beton(directory, 6, "class_index")),
    Kind(
        "lmdb of images",
        all_unlabeled=lambda directory: lmdb(
            directory,
            6,
            [*((f"img{n}", data) for n, data in enumerate(IMAGES)), *((f"label{n}", b"1") for n in range(6))],
        ),
    ),
    Kind("lmdb of text recognition", unlabeled=lambda directory: lmdb(directory, 6, [*WORDS, ("num-samples", b"6")])),
    Kind(
        "pickled lmdb",
        unlabeled=lambda directory: pickled(directory, 2, list(zip(IMAGES, SOME, strict=True))),
        all_unlabeled=lambda directory: pickled(
            directory, 6, [{"image": data, "class_id": one} for data, one in zip(IMAGES, CLASSES, strict=True)]
        ),
    ),
    Kind(
        "recordio",
        unlabeled=lambda directory: recordio(directory, 2, [0, 1, -1, 1, 0, -1]),
    ),
    Kind("recordio, NaN", unlabeled=lambda directory: recordio(directory, 2, GAPS)),
    Kind(
        "litdata",
        unlabeled=lambda directory: litdata(directory, 2, "label", "int", integers([0, 1, -1, 1, 0, -1])),
        all_unlabeled=lambda directory: litdata(directory, 6, "species_label", "int", integers(CLASSES)),
    ),
    Kind("litdata, pickles", all_unlabeled=lambda directory: litdata(directory, 6, "label", "pickle", [b"?"] * 6)),
    Kind("bagz", all_unlabeled=lambda directory: bagz(directory, 6, "labels.csv")),
    Kind(
        "n5",
        unlabeled=lambda directory: n5(directory, 2, labels=[0, 1, -1, 1, 0, -1]),
        all_unlabeled=lambda directory: n5(directory, 6, labels=[0, 1, 0]),
    ),
    Kind("n5, NaN", unlabeled=lambda directory: n5(directory, 2, labels=GAPS)),
    Kind(
        "voc",
        left_out=lambda directory: voc(directory, 1, *"012345", "6"),
        unlabeled=lambda directory: voc(directory, 1, *"01234"),
    ),
    Kind(
        "yolo",
        left_out=lambda directory: yolo(directory, 1, *"012345", "6"),
        unlabeled=lambda directory: yolo(directory, 1, *"01234"),
    ),
    Kind("objects at URLs", left_out=InBucket(tree_with_an_image_outside)),
    Kind(
        "table of paths below a URL",
        left_out=InBucket(table_that_was_cut),
        unlabeled=InBucket(table_with_unlabeled_rows),
        all_unlabeled=InBucket(table_of_another_column),
    ),
    Kind(
        "table of URLs",
        unlabeled=InBucket(table_with_unlabeled_rows, by_table=True),
        all_unlabeled=InBucket(table_of_another_column, by_table=True),
    ),
]
"""Every kind of source and container has a row here."""


def rows(loss: str) -> list[Any]:
    found = ((kind, getattr(kind, loss)) for kind in KINDS)
    return [pytest.param(build, id=kind.name) for kind, build in found if build is not None]


@pytest.fixture
def built(request: pytest.FixtureRequest, tmp_path: Path) -> Built:
    """Return the source of a row of the parameters."""
    if not isinstance(request.param, InBucket):
        return request.param(tmp_path)
    pytest.importorskip("obstore", reason="needs obstore")
    return request.param(tmp_path, *(request.getfixturevalue(name) for name in ("s3", "bucket")))


def lost(account: Account) -> int:
    return sum(item.count for item in account.losses() if item.what in ("image", "sample", "row", "label", "file"))


@pytest.mark.parametrize("built", [*rows("left_out"), *rows("unlabeled")], indirect=True)
def test_a_loss_is_said_counted_reported_and_kept(built: Built, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    summary = packer.convert(built.src, tmp_path / "out.lmdb", report=report, **built.options)
    with open_pack(tmp_path / "out.lmdb") as reader:
        account = reader.manifest.recorded_account()
    assert account is not None
    assert lost(account) == built.lost
    lines = [item.line() for item in account.losses()]
    assert summary.notes[: len(lines)] == lines  # first of all
    reported = [json.loads(line) for line in report.read_text().splitlines()]
    assert sum(line.get("count", 1) for line in reported if "account" in line) >= built.lost
    if is_url(built.src):  # `packer.estimate` takes no URL
        return
    estimate = packer.estimate(built.src, tmp_path / "other.lmdb", seconds=0.01, **built.options)
    assert estimate.notes[: len(lines)] == lines


@pytest.mark.parametrize("built", [*rows("left_out"), *rows("unlabeled")], indirect=True)
def test_strict_refuses_a_loss_and_writes_nothing(built: Built, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SourceError, match="strict"):
        packer.convert(built.src, tmp_path / "out.lmdb", strict=True, **built.options)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("built", rows("all_unlabeled"), indirect=True)
def test_labels_that_would_all_be_lost_are_an_error(built: Built, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SourceError, match="like labels"):
        packer.convert(built.src, tmp_path / "out.lmdb", **built.options)
    assert sorted(tmp_path.iterdir()) == before
    packer.convert(built.src, tmp_path / "out.lmdb", **{**built.options, **built.accepts})
    dataset = packer.open_dataset(tmp_path / "out.lmdb")
    assert set(dataset.targets) == {-1}


def test_strict_does_not_go_with_skip(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    with pytest.raises(OptionError, match="pass only one of them"):
        packer.convert(built.src, tmp_path / "out.lmdb", strict=True, on_error="skip")


def test_strict_lets_pass_what_an_option_asked_for_and_other_files(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    (built.src / "outside.jpg").unlink()
    (built.src / "cat" / "notes.txt").write_text("not looked at")
    packer.convert(built.src, tmp_path / "out.lmdb", strict=True, limit=4)
    with open_pack(tmp_path / "out.lmdb") as reader:
        account = reader.manifest.recorded_account()
    assert account is not None
    assert [(item.fate, item.count, item.chosen) for item in account] == [
        ("left out", 2, True),
        ("not looked at", 1, False),
    ]


def test_parts_record_the_account_once(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    packer.convert(built.src, tmp_path / "out.lmdb", parts=3)
    with open_pack(tmp_path / "out.lmdb") as reader:
        account = reader.manifest.recorded_account()
    assert account is not None
    assert lost(account) == 1


def test_a_list_of_images_keeps_the_account(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    assert run_packer("scan", built.src, tmp_path / "list.scan").returncode == 0
    report = tmp_path / "report.jsonl"
    packer.convert(tmp_path / "list.scan", tmp_path / "out.lmdb", report=report)
    assert '"outside.jpg"' in report.read_text()
    with pytest.raises(SourceError, match=r"outside\.jpg"):
        packer.convert(tmp_path / "list.scan", tmp_path / "other.lmdb", strict=True)


def test_a_pack_of_a_pack_says_what_its_source_lost(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    packer.convert(built.src, tmp_path / "one.lmdb")
    packer.convert(tmp_path / "one.lmdb", tmp_path / "two.h5", limit=3)
    account = packer.info(tmp_path / "two.h5").account
    assert account is not None
    assert [(item["fate"], item["count"]) for item in account] == [("left out", 1), ("left out", 3)]


def test_an_older_manifest_promises_nothing() -> None:
    golden = Path(__file__).parents[1] / "golden"
    pack = next(path for path in sorted(golden.rglob("*.lmdb")) if packer.info(path).account is None)
    done = run_packer("verify", pack)
    assert done.returncode == 0
    assert "unknown whether anything was left out" in done.stdout


def test_opening_a_tree_warns_of_losses(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    with pytest.warns(UserWarning, match=r"outside\.jpg"):
        packer.open_dataset(built.src)


def test_an_older_list_goes_on_and_promises_nothing(tmp_path: Path) -> None:
    built = tree_with_an_image_outside(tmp_path)
    source = replace(imagefolder_source(built.src), account=None)  # as a list of an older packer has none
    write_listing(source, tmp_path / "list.scan")
    packer.convert(tmp_path / "list.scan", tmp_path / "out.lmdb")
    assert packer.info(tmp_path / "out.lmdb").account is None
    with pytest.raises(SourceError, match="packer scan"):
        packer.convert(tmp_path / "list.scan", tmp_path / "other.lmdb", strict=True)


def test_samples_given_without_a_label_are_counted(tmp_path: Path) -> None:
    samples = [{"image": data, "label": n} if n < 4 else {"image": data} for n, data in enumerate(IMAGES)]
    packer.pack(samples, tmp_path / "out.lmdb", classes=["a", "b", "c", "d"])
    account = packer.info(tmp_path / "out.lmdb").account
    assert account is not None
    assert [(item["fate"], item["count"]) for item in account] == [("unlabeled", 2)]


def test_classes_that_merging_moves_are_recorded_and_no_loss(tmp_path: Path) -> None:
    for name, folders in (("one", ["a", "c"]), ("two", ["b", "c"])):
        for folder in folders:
            path = tmp_path / name / folder / f"{name}.jpg"
            path.parent.mkdir(parents=True)
            path.write_bytes(IMAGES[0])
        packer.convert(tmp_path / name, tmp_path / f"{name}.lmdb")
    packer.merge([tmp_path / "one.lmdb", tmp_path / "two.lmdb"], tmp_path / "both.lmdb", classes="union")
    account = packer.info(tmp_path / "both.lmdb").account
    assert account is not None
    assert [(item["fate"], item["names"], item.get("chosen")) for item in account] == [("renumbered", ["b"], True)]


def test_a_pack_of_a_pack_counts_its_unlabeled_images_once(tmp_path: Path) -> None:
    built = tar_with_two_labels_missing(tmp_path)
    packer.convert(built.src, tmp_path / "0.lmdb", unlabeled=True)
    for number in range(2):
        packer.convert(tmp_path / f"{number}.lmdb", tmp_path / f"{number + 1}.lmdb", strict=True)
    accounts = [packer.info(tmp_path / f"{number}.lmdb").account for number in range(3)]
    assert accounts[0] == accounts[1] == accounts[2]
    assert accounts[0] is not None
    assert sum(item["count"] for item in accounts[0] if item["fate"] == "unlabeled") == 2


@pytest.mark.parametrize("what", ["y", "s", "", "key", "entry"])
def test_whatever_a_manifest_calls_things_is_shown(what: str) -> None:
    assert Account([AccountItem("left out", what, "", 2)]).lines()[0].startswith("left out: 2 ")


def metadata_with_an_odd_name(directory: Path) -> Built:
    root = images(directory / "tree", *(f"cat/{number}.jpg" for number in range(6)))
    rows = [f"cat/{number}.jpg,{number}" for number in range(6)]
    (root / "metadata.csv").write_text("\n".join(["file_name,an age", *rows, ""]))
    return Built(root, {}, 1)


@pytest.mark.parametrize(
    "build", [metadata_with_an_odd_name, lambda directory: hdf5(directory, 1, labels=CLASSES, ages=[1, 2])]
)
def test_strict_refuses_to_lose_a_column(build: Build, tmp_path: Path) -> None:
    built = build(tmp_path)
    with pytest.raises(SourceError, match=r"left out: 1 (column|dataset) \((an age|ages)\)"):
        packer.convert(built.src, tmp_path / "out.lmdb", strict=True, **built.options)
    packer.convert(built.src, tmp_path / "out.lmdb", **built.options)
    account = packer.info(tmp_path / "out.lmdb").account
    assert account is not None
    assert sum(item["count"] for item in account if item["fate"] == "left out") == built.lost


@pytest.mark.parametrize(
    "build", [lambda at: voc(at, 1, *"01234"), lambda at: yolo(at, 1, *"01234")], ids=["voc", "yolo"]
)
def test_an_image_without_annotations_is_a_loss_unless_somebody_says_so(build: Build, tmp_path: Path) -> None:
    built = build(tmp_path)
    with pytest.raises(SourceError, match=r"unlabeled: 1 image \(5\.jpg\): they have no (label )?file"):
        packer.convert(built.src, tmp_path / "out.lmdb", strict=True, **built.options)
    packer.convert(built.src, tmp_path / "out.lmdb", strict=True, unlabeled=True, **built.options)
    account = packer.info(tmp_path / "out.lmdb").account
    assert account is not None
    assert [item["count"] for item in account if item["fate"] == "unlabeled"] == [1, 5]
