"""HDF5 files of other tools, written by h5py: arrays of pixels, and vectors of encoded images."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import packer
from packer._containers import listing
from packer._storage.packfile import PackFile
from packer.errors import SourceError
from tests.containers.everywhere import IMAGES, everywhere, listed, opened

PLANES = np.random.default_rng(9).integers(0, 256, (11, 3, 6, 5), np.uint8)
PIXELS = np.ascontiguousarray(PLANES.transpose(0, 2, 3, 1))
LABELS = [4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
ENCODED = [*IMAGES.values()] * 3


def array(path: Path, data: np.ndarray = PLANES, name: str = "imgs", **options: Any) -> Path:
    with h5py.File(path, "w", userblock_size=options.pop("userblock_size", 0)) as file:
        file.create_dataset(name, data=data, **options)
        file.create_dataset("labels", data=np.array(LABELS))
    return path


def fuel(path: Path, **options: Any) -> Path:
    with h5py.File(path, "w") as file:
        images = file.create_dataset("encoded_images", (len(ENCODED),), h5py.vlen_dtype(np.uint8), **options)
        for number, data in enumerate(ENCODED):
            images[number] = np.frombuffer(data, np.uint8)
        file.create_dataset("targets", data=np.arange(len(ENCODED), dtype=np.int16)[:, None] % 4)
        names = [f"n{number}.JPEG".encode() for number in range(len(ENCODED))]
        file.create_dataset("filenames", data=np.array(names, "S32")[:, None])
        file.create_dataset("features", data=np.zeros((len(ENCODED), 5)))
        file.attrs["split"] = b"train"
    return path


@pytest.mark.parametrize("options", [{}, {"chunks": (4, 3, 6, 5)}, {"userblock_size": 512}])
def test_pixels_in_planes_are_read_where_they_lie(tmp_path: Path, options: dict[str, Any]) -> None:
    path = array(tmp_path / "x.hdf5", **options)
    seen = everywhere(path, tmp_path, pixels=True)
    assert seen.data == [image.tobytes() for image in PIXELS]
    assert seen.labels == LABELS
    assert seen.names[10] == "10.png"
    assert not len(listed(path).copied)


def test_pixels_with_channels_last_and_grey_ones(tmp_path: Path) -> None:
    grouped = array(tmp_path / "x.h5", PIXELS, "a/images")
    with pytest.raises(SourceError, match="dataset 'labels' looks like labels"):  # it is in another group
        everywhere(grouped, tmp_path, pixels=True)
    seen = everywhere(grouped, tmp_path, pixels=True, unlabeled=True)
    assert seen.data == [image.tobytes() for image in PIXELS]
    assert seen.labels == [-1] * 11
    assert everywhere(grouped, tmp_path, pixels=True, keys={"image": "a/images", "label": "labels"}).labels == LABELS
    seen = everywhere(array(tmp_path / "y.h5", PLANES[:, 0]), tmp_path, pixels=True)
    assert seen.data == [np.repeat(image[0][..., None], 3, 2).tobytes() for image in PLANES]


@pytest.mark.parametrize("shuffle", [False, True])
def test_chunks_that_are_deflated_are_converted_and_have_no_index(tmp_path: Path, shuffle: bool) -> None:
    path = array(tmp_path / "x.h5", chunks=(4, 3, 6, 5), compression="gzip", shuffle=shuffle)
    with pytest.raises(SourceError, match=r"is compressed \(zlib\): convert it"):
        packer.index(path, tmp_path / "made.index")
    packer.convert(path, tmp_path / "made.lmdb")
    dataset = packer.open_dataset(tmp_path / "made.lmdb")
    assert [np.asarray(dataset[number][0]).tobytes() for number in range(11)] == [image.tobytes() for image in PLANES]


@pytest.mark.parametrize("options", [{}, {"chunks": (2,)}])
def test_encoded_images_of_fuel_are_read_in_the_heaps(tmp_path: Path, options: dict[str, Any]) -> None:
    path = fuel(tmp_path / "x.hdf5", **options)
    seen = everywhere(path, tmp_path)
    assert seen.data == ENCODED
    assert seen.labels == [number % 4 for number in range(9)]
    assert seen.fields == {
        "filenames": [f"n{number}.JPEG" for number in range(9)],
        "features": [[0.0] * 5] * 9,
    }
    assert any("split" in note for note in seen.notes)
    assert not len(listed(path).images.file[listed(path).images.file < 0])
    assert everywhere(path, tmp_path, keys={"name": "filenames", "t": "targets"}).names[0] == "n0.JPEG"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunks": (4, 1, 6, 5)}, "contain only parts of a sample.*h5repack -f NONE -l CONTI"),
        ({"chunks": (4, 3, 6, 5), "compression": "lzf"}, "compressed in a way .*h5repack"),
        ({"chunks": (4, 3, 6, 5), "fletcher32": True}, "compressed in a way .*h5repack"),
    ],
)
def test_what_lies_otherwise_says_what_to_do(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        listed(array(tmp_path / "x.h5", **options))


def test_data_in_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(PLANES.tobytes())
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("imgs", PLANES.shape, np.uint8, external=[(str(tmp_path / "secret"), 0, PLANES.nbytes)])
    with pytest.raises(SourceError, match="its data are in other files"):
        listed(tmp_path / "x.h5")
    array(tmp_path / "other.h5")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["imgs"] = h5py.ExternalLink("other.h5", "imgs")
        file["here"] = h5py.SoftLink("/imgs")
    with pytest.raises(SourceError, match="no dataset of images"):
        listed(tmp_path / "y.h5")


def test_several_arrays_of_images_need_a_key(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name in ("train/first", "train/second"):
            file.create_dataset(name, data=PLANES)
        file.create_dataset("train/y", data=np.array(LABELS))
    with pytest.raises(
        SourceError, match=r"several datasets of images \(train/first, train/second\): choose one with --key"
    ):
        listed(tmp_path / "x.h5")
    keys = {"image": "train/second", "label": "train/y"}
    assert everywhere(tmp_path / "x.h5", tmp_path, pixels=True, keys=keys).labels == LABELS
    with pytest.raises(SourceError, match="no dataset 'z'"):
        opened(tmp_path / "x.h5", {"image": "z"})


def test_groups_that_lie_in_themselves_are_looked_at_once(tmp_path: Path) -> None:
    path = array(tmp_path / "x.h5")
    with h5py.File(path, "a") as file:
        for number in range(100):  # 10,000,000,000 paths of five groups each
            file[f"link {number}"] = file["/"]
    assert list(listed(path).labels) == LABELS


def test_samples_that_share_bytes_are_converted_and_have_no_index(tmp_path: Path) -> None:
    """An index of them would be refused by `packer verify`, which allows no samples that share bytes."""
    path = fuel(tmp_path / "x.h5")
    with h5py.File(path, "r") as file:
        at = file["encoded_images"].id.get_offset()
    data = bytearray(path.read_bytes())
    data[at + 16 : at + 32] = data[at : at + 16]  # the second vector refers to the bytes of the first
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"n1\.JPEG shares its bytes with another sample, .* Convert the source"):
        packer.index(path, tmp_path / "made.index", keys={"name": "filenames"})
    packer.convert(path, tmp_path / "made.lmdb", keys={"name": "filenames"})
    assert packer.verify(tmp_path / "made.lmdb") == []


def test_packs_of_packer_stay_packs(tmp_path: Path, photo_tree: Path) -> None:
    packer.convert(photo_tree, tmp_path / "pack.h5")
    packer.convert(tmp_path / "pack.h5", tmp_path / "again.lmdb")
    assert len(packer.open_dataset(tmp_path / "pack.h5")) == 15


def test_rows_that_were_never_written_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("imgs", PLANES.shape, np.uint8)
    with pytest.raises(SourceError, match="are not stored contiguously"):
        listed(tmp_path / "x.h5")


def test_structures_that_lie_behind_all_files_are_refused(tmp_path: Path) -> None:
    path = array(tmp_path / "x.h5")
    data = bytearray(path.read_bytes())
    data[64:72] = b"\xf0" + b"\xff" * 6 + b"\x7f"  # the address of the root group
    path.write_bytes(data)
    with pytest.raises(packer.PackerError, match=r"x\.h5"):
        packer.index(path, tmp_path / "made.index")
    with PackFile(path) as file:
        assert file.read_into(memoryview(bytearray(8)), 1 << 80) == 0


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = array(tmp_path / "x.h5")
    path.write_bytes(path.read_bytes().replace(b"imgs", b"\xe9mgs"))
    with pytest.raises(SourceError, match=r"x\.h5: (libhdf5 cannot read it|no dataset of images)"):
        listed(path)


def test_data_in_other_files_are_never_read(tmp_path: Path) -> None:
    """External storage may be any file of the user, and libhdf5 crashes on some sources of virtual datasets."""
    (tmp_path / "secret").write_bytes(b"secret67" * 11)
    path = tmp_path / "x.h5"
    with h5py.File(array(tmp_path / "other.h5"), "r"), h5py.File(path, "w") as file:
        file.create_dataset("imgs", data=PLANES)
        file.create_dataset("labels", (11,), "<i8", external=[(str(tmp_path / "secret"), 0, 88)])
        file.create_dataset("text", (11,), "S8", external=[(str(tmp_path / "secret"), 0, 88)])
        layout = h5py.VirtualLayout((11,), "i8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "labels", (11,))
        file.create_virtual_dataset("numbers", layout)
    found = listed(path)
    assert (found.labels == -1).all()
    assert not found.ranges
    assert not found.numbers
    assert not len(found.copied)
    assert [item.why for item in found.container.account.losses()] == ["it has its data in other files"]


def test_few_bytes_promise_neither_many_samples_nor_long_texts(tmp_path: Path) -> None:
    count = 100_000_000
    with h5py.File(tmp_path / "x.h5", "w") as file:
        images = file.create_dataset("imgs", (count, 2, 2, 3), np.uint8, chunks=(count, 2, 2, 3), compression="gzip")
        images.id.write_direct_chunk((0, 0, 0, 0), zlib.compress(bytes(99)))
    with pytest.raises(SourceError, match="are too many for a compressed chunk of"):
        listed(tmp_path / "x.h5")
    path = array(tmp_path / "y.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("text", (11,), "S2000000", chunks=(1,))
    assert opened(path).fields == ()


@pytest.mark.parametrize("written", [range(1100, 2200), range(1100)], ids=["last", "first"])
def test_missing_chunks_leave_out_only_their_samples_wherever_they_are(tmp_path: Path, written: range) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        images = file.create_dataset("images", (2200, 2, 2, 3), np.uint8, chunks=(100, 2, 2, 3))
        images[written.start : written.stop] = 1
    packer.convert(tmp_path / "x.h5", tmp_path / "x.lmdb", on_error="skip", unlabeled=True)
    names = [int(name.removesuffix(".png")) for name, _ in packer.open_dataset(tmp_path / "x.lmdb").samples]
    assert names == [*written]
    assert len(packer.info(tmp_path / "x.lmdb").skipped) == 1100


def test_a_heap_that_libhdf5_would_go_round_in_is_refused(tmp_path: Path) -> None:
    path = fuel(tmp_path / "x.h5")
    data = bytearray(path.read_bytes())
    begin = data.index(b"GCOL")
    at = begin + 16
    while number := int.from_bytes(data[at : at + 2], "little"):
        at += 16 + -(-int.from_bytes(data[at + 8 : at + 16], "little") // 8) * 8
    assert number == 0
    data[at + 8 : at + 16] = bytes([14, *bytes(7)])  # the size of the free space
    path.write_bytes(data)
    with pytest.raises(SourceError, match="the heap at byte"):
        listed(path)


def test_more_samples_than_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = array(tmp_path / "x.h5", np.zeros((20_000, 2, 2, 3), np.uint8), chunks=(20_000, 2, 2, 3), compression=9)
    monkeypatch.setattr(listing, "_FEW", 100)
    with pytest.raises(SourceError, match=r"lists 8,192 samples or more, although its files have only [0-9,]+ bytes"):
        listed(path)
    path = array(tmp_path / "y.h5", np.zeros((200, 2, 2, 3), np.uint8))
    assert len(listed(path)) == 200


NAMES = ["cat", "dog", "cat", "eel"]
IDS = [2, 0, 1, 2]


def labeled(path: Path, name: str = "labels", *, matlab: bool = False, count: int = 4, **options: Any) -> Path:
    """Write four images with a dataset of labels."""
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=PIXELS[:count])
        labels = file.create_dataset(name, **options)
        if matlab:
            for dataset in (file["images"], labels):
                dataset.attrs["MATLAB_class"] = np.bytes_("double")
    return path


@pytest.mark.parametrize(
    ("name", "options", "labels"),
    [
        *((name, {"data": NAMES}, [0, 1, 0, 2]) for name in ("labels", "y", "Class", "train_labels")),
        ("labels", {"data": NAMES, "chunks": (3,)}, [0, 1, 0, 2]),
        ("labels", {"data": NAMES, "compression": "gzip"}, [0, 1, 0, 2]),
        ("labels", {"data": np.array(NAMES, "S3")}, [0, 1, 0, 2]),
        ("labels", {"data": np.array(NAMES, "S3")[:, None]}, [0, 1, 0, 2]),
        ("labels", {"data": np.array(IDS, np.uint8)}, IDS),
        ("labels", {"data": np.array(IDS, np.uint8)[:, None, None, None]}, IDS),
        ("labels", {"data": np.array(IDS, ">i2"), "chunks": (3,), "compression": "gzip"}, IDS),
        ("labels", {"data": np.eye(3, dtype=np.uint8)[IDS]}, IDS),
        ("labels", {"data": np.eye(3, dtype=np.float32)[IDS]}, IDS),
        ("labels", {"data": np.eye(3, dtype=bool)[IDS]}, IDS),
        ("labels", {"data": np.array([2, np.nan, 1, 2], np.float32)}, [2, -1, 1, 2]),
        ("labels", {"data": np.array(IDS, np.float64)}, [2.0, 0.0, 1.0, 2.0]),
        ("labels", {"data": np.array(IDS, np.float16)}, [2.0, 0.0, 1.0, 2.0]),
        ("labels", {"data": np.array([2, np.nan, 1, 2], np.float16)}, [2, -1, 1, 2]),
        ("labels", {"data": np.eye(3, dtype=np.float16)[IDS]}, IDS),
        ("labels", {"data": np.array(IDS, np.float64)[None], "matlab": True}, IDS),
    ],
)
def test_labels_of_every_shape_are_labels(
    tmp_path: Path, name: str, options: dict[str, Any], labels: list[float]
) -> None:
    path = labeled(tmp_path / "x.h5", name, **options)
    if options.get("matlab"):
        with h5py.File(path, "a") as file:
            del file["images"].attrs["MATLAB_class"]
    packer.convert(path, tmp_path / "made.lmdb", strict=-1 not in labels)
    assert packer.open_dataset(tmp_path / "made.lmdb").targets.tolist() == labels


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (np.array([2, 0, 1]), "int64 3, 3 rows for 4 images"),
        (np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]), "contains arrays, not labels"),
        (np.zeros(4, [("id", "i4"), ("x", "f4")]), r"is \[\('id'"),
    ],
)
def test_labels_that_cannot_be_taken_are_an_error(tmp_path: Path, data: np.ndarray, why: str) -> None:
    path = labeled(tmp_path / "x.h5", data=data)
    with pytest.raises(
        SourceError, match=f"x\\.h5: all 4 images.*'labels' \\(.*{why}.*looks like labels.*unlabeled=True"
    ):
        packer.convert(path, tmp_path / "made.lmdb")
    packer.convert(path, tmp_path / "made.lmdb", unlabeled=True)
    assert packer.open_dataset(tmp_path / "made.lmdb").targets.tolist() == [-1] * 4


@pytest.mark.parametrize("grey", [False, True])
def test_pictures_of_matlab_are_not_transposed(tmp_path: Path, grey: bool) -> None:
    """MATLAB writes H x W x C x N with its first axis the fastest, which HDF5 shows as N x C x W x H."""
    shown = PLANES[:, 0] if grey else PIXELS
    stored = PLANES[:, 0].transpose(0, 2, 1) if grey else PLANES.transpose(0, 1, 3, 2)
    path = tmp_path / "x.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("images", data=stored).attrs["MATLAB_class"] = np.bytes_("uint8")
    seen = everywhere(path, tmp_path, pixels=True)
    assert seen.data == [np.broadcast_to(image.reshape(6, 5, -1), (6, 5, 3)).tobytes() for image in shown]


def test_four_grey_images_may_be_one_image(tmp_path: Path) -> None:
    grey = np.random.default_rng(1).integers(0, 256, (4, 28, 28), np.uint8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("images", data=grey)
    assert len(listed(tmp_path / "x.h5", {"image": "images"})) == 4
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file.create_dataset("images", data=grey.transpose(1, 2, 0))
    with pytest.raises(SourceError, match=r"may be a single image with channels.*N x H x W x 1"):
        listed(tmp_path / "y.h5", {"image": "images"})


def test_one_dataset_for_each_image_is_named_as_that(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, data in IMAGES.items():
            file[f"all/{name}"] = np.frombuffer(data, np.uint8)
    with pytest.raises(SourceError, match=r"has one dataset for each image.*packer\.pack"):
        listed(tmp_path / "x.h5")


def test_other_datasets_are_fields_or_accounted_for(tmp_path: Path) -> None:
    boxes = np.arange(16, dtype=np.float32).reshape(4, 4)
    path = labeled(tmp_path / "x.h5", data=np.array(IDS))
    with h5py.File(path, "a") as file:
        file["boxes"] = boxes
        file["mean"] = np.zeros(3)
        file["other/extra"] = np.zeros(4)
    summary = packer.convert(path, tmp_path / "made.lmdb")
    assert any(note.startswith("not looked at: 1 dataset (other/extra)") for note in summary.notes)
    assert any("mean" in note for note in summary.notes)
    dataset = packer.open_dataset(tmp_path / "made.lmdb", fields=("boxes",))
    assert np.array_equal([dataset[number]["boxes"] for number in range(4)], boxes)


@pytest.mark.parametrize("options", [{}, {"chunks": (4,), "compression": "gzip"}])
def test_texts_are_whole_or_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    path = array(tmp_path / "x.h5", PIXELS)
    with h5py.File(path, "a") as file:
        texts = ["é" * 20_000, *["b"] * (len(LABELS) - 1)]
        file.create_dataset("caption", data=texts, dtype=h5py.string_dtype(), **options)
    with pytest.raises(SourceError, match="sample 0: a text of 40,000 bytes is too long"):
        packer.convert(path, tmp_path / "x.lmdb")


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 8), (8, 8, 3), (4, 10, 6)])
def test_what_may_be_a_single_image_is_said_without_a_key_too(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = np.zeros(shape, np.uint8)
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint8))
    for name in ("a.h5", "a.npy"):
        with pytest.raises(SourceError, match="may be a single image with channels or"):
            packer.index(tmp_path / name, tmp_path / "a.index")


@pytest.mark.parametrize("value", [np.zeros((8, 9, 3), np.uint8), np.zeros((8, 9), np.uint8), np.void(b"\xff\xd8jpeg")])
@pytest.mark.parametrize("group", ["", "cat/"])
def test_a_dataset_for_each_image_is_said(tmp_path: Path, value: np.ndarray, group: str) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(3):
            file[f"{group}{number}"] = value
    with pytest.raises(SourceError, match=r"one dataset for each image.*or pass the images to packer\.pack"):
        packer.index(tmp_path / "a.h5", tmp_path / "a.index")


def test_images_of_another_type_are_said(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["images"] = np.zeros((4, 8, 8, 3), np.float32)
    with pytest.raises(SourceError, match=r"uint8, N x H x W x 3.* among images \(float32 4 x 8 x 8 x 3\)"):
        packer.index(tmp_path / "a.h5", tmp_path / "a.index")
