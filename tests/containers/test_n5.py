"""N5: arrays of images that z5py wrote, and bytes as other versions wrote them, read in place and converted."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer import Field
from packer._account import BadSamples
from packer._containers import list_samples
from packer.contrib.n5 import N5, N5Array, read_attributes
from packer.errors import CorruptPackError, OptionError, SourceError
from packer.testing.photos import draw_photo
from tests.containers.everywhere import source_of

Pixels = npt.NDArray[np.uint8]

COUNT, HEIGHT, WIDTH = 11, 6, 8
PIXELS = np.random.default_rng(5).integers(0, 256, (COUNT, HEIGHT, WIDTH, 3), np.uint8)
LABELS = np.arange(COUNT) % 3
WHOLE = HEIGHT, WIDTH, 3


def write(path: Path, chunks: dict[str, Any] | None = None, compression: str = "raw", **arrays: Any) -> Path:
    """Write a group with z5py."""
    z5py = pytest.importorskip("z5py", reason="needs z5py: pip install z5py")
    group = z5py.File(str(path), mode="a", use_zarr_format=False)
    for name, values in arrays.items():
        values = np.asarray(values)
        blocks = (chunks or {}).get(name, values.shape)
        options = {"shape": values.shape, "chunks": blocks, "dtype": str(values.dtype), "compression": compression}
        group.create_dataset(name, **options)[:] = values
    return path


def attributes(path: Path, dimensions: list[int], blocks: list[int], kind: str = "uint8", **more: Any) -> Path:
    """Write the attributes of an array, and return its directory."""
    path.mkdir(parents=True, exist_ok=True)
    members = {"dataType": kind, "compression": {"type": "raw"}, "blockSize": blocks, "dimensions": dimensions, **more}
    (path / "attributes.json").write_text(json.dumps(members))
    return path


def block(path: Path, extent: list[int], data: bytes, mode: int = 0, count: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    counted = b"" if count is None else struct.pack(">I", count)
    path.write_bytes(struct.pack(f">HH{len(extent)}I", mode, len(extent), *extent) + counted + data)


def array(path: Path, name: str = "") -> N5Array:
    found = read_attributes(path / name)
    assert found is not None
    return N5Array(path, name, found)


def indexed(path: Path, **options: Any) -> packer.ImageDataset:
    """Index a group, and return the dataset of the index."""
    packer.index(path, path.with_suffix(".index"), overwrite=True, **options)
    dataset = packer.open_dataset(path.with_suffix(".index"), output="numpy")
    assert isinstance(dataset, packer.ImageDataset)
    return dataset


def copied(path: Path) -> int:
    """Return how many bytes were copied into the index of a group."""
    return path.with_suffix(".index").joinpath("data.bin").stat().st_size


def photos(count: int = COUNT) -> list[bytes]:
    rng = np.random.default_rng(3)
    streams = [io.BytesIO() for _ in range(count)]
    for stream in streams:
        Image.fromarray(draw_photo(rng, 20, 30)).save(stream, "JPEG")
    return [stream.getvalue() for stream in streams]


def one_after_the_other(images: list[bytes], size: int = 4096) -> tuple[Pixels, list[int]]:
    """Join images so that none crosses the border of a block; return the bytes, and the offset of each image."""
    data, begins = bytearray(), []
    for image in images:
        if len(data) % size + len(image) > size:
            data += bytes(-len(data) % size)
        begins.append(len(data))
        data += image
    return np.frombuffer(bytes(data), np.uint8), begins


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Return a group of encoded images as packer lays them out."""
    images = photos()
    data, begins = one_after_the_other(images)
    names = [f"class {number % 3}/ü{number}.jpg".encode() for number in range(COUNT)]
    columns: dict[str, Any] = {
        "offsets": np.array(begins, np.uint64),
        "sizes": np.array(list(map(len, images)), np.uint64),
        "labels": np.array([*LABELS[:-1], -1], np.int64),
        "names": np.frombuffer(b"".join(names), np.uint8),
        "name_ends": np.cumsum([len(name) for name in names]).astype(np.uint64),
    }
    chunks = {"data": (4096,), "offsets": (4,), "labels": (5,), "names": (45,), "name_ends": (3,)}
    path = write(tmp_path / "g.n5", chunks, data=data, **columns)
    (path / "attributes.json").write_text('{"n5": "4.0.0", "classes": ["cat", "dog", "owl", "none of these"]}')
    return path


V1_5, V2_5, V3_1 = (
    {"dataType": "uint8", "compressionType": "raw", "blockSize": [5, 4], "dimensions": [7, 5]},
    {"dataType": "uint8", "compression": {"type": "raw"}, "blockSize": [5, 4], "dimensions": [7, 5]},
    {"dimensions": [7, 5], "blockSize": [5, 4], "dataType": "uint8", "compression": {"type": "raw"}, "n5": "3.1.3"},
)
BLOCKS = {
    "0/0": "0000000200000005000000040001020304050607080910111213141516171819",
    "0/1": "0000000200000005000000010202020202",
    "1/0": "0000000200000002000000044041424344454647",
    "1/1": "000000020000000200000001 5051",
}


@pytest.mark.parametrize("members", [V1_5, V2_5, V3_1], ids=["1.5.0", "2.5.1", "3.1.3"])
def test_arrays_of_all_versions_are_read_with_their_axes_reversed_and_trimmed_blocks(
    members: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "attributes.json").write_text(json.dumps(members))
    for name, data in BLOCKS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes.fromhex(data))
    found = array(tmp_path)
    assert found.shape == (5, 7)
    first = np.frombuffer(bytes.fromhex(BLOCKS["0/0"])[12:], np.uint8).reshape(4, 5)
    expected = np.zeros((5, 7), np.uint8)
    expected[:4, :5], expected[4, :5] = first, 2
    expected[:4, 5:] = np.frombuffer(bytes.fromhex("4041424344454647"), np.uint8).reshape(4, 2)
    expected[4, 5:] = 0x50, 0x51
    assert np.array_equal(found.rows(0, 5), expected)
    assert np.array_equal(found.rows(3, 5), expected[3:])


@pytest.mark.parametrize("kind", ["int8", "uint16", "int32", "uint64", "int64", "float32", "float64"])
@pytest.mark.parametrize("compression", ["raw", "gzip"])
def test_numbers_of_every_type_are_those_that_z5py_wrote(kind: str, compression: str, tmp_path: Path) -> None:
    values = (np.random.default_rng(1).random((9, 4)) * 100).astype(kind)
    write(tmp_path / "a.n5", {"x": (4, 3)}, compression, x=values)
    found = array(tmp_path / "a.n5", "x").rows(0, 9)
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


@pytest.mark.parametrize("each", [1, 4, COUNT])
@pytest.mark.parametrize("layout", ["HWC", "CHW", "grey"])
def test_pixels_are_read_where_they_lie_if_a_block_has_whole_images(each: int, layout: str, tmp_path: Path) -> None:
    stored = {"HWC": PIXELS, "CHW": PIXELS.transpose(0, 3, 1, 2), "grey": PIXELS[..., 0]}[layout]
    shown = np.repeat(PIXELS[..., :1], 3, 3) if layout == "grey" else PIXELS
    path = write(tmp_path / "p.n5", {"images": (each, *stored.shape[1:]), "y": (2,)}, images=stored, y=LABELS)
    dataset = indexed(path)
    assert copied(path) == 0
    assert list(dataset.reader.names)[:2] == ["00.png", "01.png"]
    for number in range(COUNT):
        pixels, label = dataset[number]
        assert np.array_equal(pixels, shown[number])
        assert label == LABELS[number]


@pytest.mark.parametrize("chunks", [(2, 4, 8, 3), (COUNT, HEIGHT, WIDTH, 1)])
def test_pixels_that_are_spread_over_blocks_are_gathered_and_it_is_said(
    chunks: tuple[int, ...], tmp_path: Path
) -> None:
    path = write(tmp_path / "p.n5", {"x": chunks}, x=PIXELS)
    dataset = indexed(path)
    assert copied(path) == PIXELS.nbytes
    assert np.array_equal(np.stack([pixels for pixels, _ in dataset]), PIXELS)
    packer.convert(path, tmp_path / "p.lmdb")
    pack = packer.open_dataset(tmp_path / "p.lmdb", output="numpy")
    assert np.array_equal(np.stack([pixels for pixels, _ in pack]), PIXELS)
    source = source_of(path)
    assert source.notes == ["x: an image extends over several blocks, so its pixels are copied"]


@pytest.mark.parametrize("frame", ["gzip", "zlib"])
def test_compressed_pixels_are_converted_and_an_index_says_so(frame: str, tmp_path: Path) -> None:
    more = {"type": "gzip", "level": -1} | ({"useZlib": True} if frame == "zlib" else {})
    path = attributes(tmp_path / "z.n5", [3, WIDTH, HEIGHT, COUNT], [3, WIDTH, HEIGHT, 4], compression=more)
    for number in range(3):
        part = PIXELS[4 * number : 4 * number + 4]
        data = zlib.compress(part.tobytes()) if frame == "zlib" else gzip.compress(part.tobytes())
        block(path / f"0/0/0/{number}", [3, WIDTH, HEIGHT, len(part)], data)
    packer.convert(path, tmp_path / "z.lmdb", codec="raw")
    dataset = packer.open_dataset(tmp_path / "z.lmdb", output="numpy")
    assert np.array_equal(np.stack([pixels for pixels, _ in dataset]), PIXELS)
    with pytest.raises(SourceError, match=rf"0/0/0/0, byte 20: is compressed \({frame}\): convert it"):
        packer.index(path, tmp_path / "z.index")


def test_a_block_that_is_written_in_full_beyond_the_end_is_cut(tmp_path: Path) -> None:
    path = attributes(tmp_path / "f.n5", [3, WIDTH, HEIGHT, 3], [3, WIDTH, HEIGHT, 2])
    full = np.concatenate([PIXELS[:3], np.full_like(PIXELS[:1], 99)])
    for number in range(2):
        block(path / f"0/0/0/{number}", [3, WIDTH, HEIGHT, 2], full[2 * number : 2 * number + 2].tobytes())
    dataset = indexed(path)
    assert len(dataset) == 3
    assert np.array_equal(np.stack([pixels for pixels, _ in dataset]), PIXELS[:3])


def test_a_block_without_a_file_is_zeros(tmp_path: Path) -> None:
    path = write(tmp_path / "m.n5", {"x": (2, *WHOLE)}, x=PIXELS)
    (path / "x/0/0/0/1").unlink()
    expected = PIXELS.copy()
    expected[2:4] = 0
    assert np.array_equal(np.stack([pixels for pixels, _ in indexed(path)]), expected)


@pytest.mark.parametrize("form", ["pixels", "a block each", "one after the other"])
def test_a_group_of_images_without_any_file_of_a_block_is_an_error(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.n5"
    if form == "one after the other":
        write(path, {}, offsets=np.array([0, 4]), sizes=np.array([4, 4]))
    dimensions, blocks = {"pixels": ([3, 4, 4, 2], [3, 4, 4, 1]), "a block each": ([2], [1])}.get(form, ([8], [8]))
    attributes(path / "data", dimensions, blocks)
    container = N5.open([path], {})
    for skip in (False, True):
        with pytest.raises(
            SourceError, match=r"none of its files has data\. It looks like n5; were all files copied\?"
        ):
            list_samples(container, bad=BadSamples(skip=skip))
    with pytest.raises(SourceError, match=r"a\.n5: none of its files has data"):
        packer.convert(path, tmp_path / "out.lmdb", on_error="skip")


def test_encoded_images_one_after_the_other_are_read_in_place(group: Path) -> None:
    dataset = indexed(group)
    assert copied(group) == 0
    assert dataset.classes == ["cat", "dog", "owl", "none of these"]
    assert list(dataset.reader.names) == [f"class {number % 3}/ü{number}.jpg" for number in range(COUNT)]
    assert dataset.reader.table.label.tolist() == [*LABELS[:-1], -1]
    assert [bytes(dataset.reader.read(number)) for number in range(COUNT)] == photos()


def test_images_that_cross_a_border_of_blocks_are_copied_and_end_where_the_next_begins(tmp_path: Path) -> None:
    images = photos()
    ends = np.cumsum([0, *map(len, images)]).astype(np.int64)
    data = np.frombuffer(b"".join(images), np.uint8)
    path = write(tmp_path / "c.n5", {"data": (3000,), "offsets": (5,)}, data=data, offsets=ends)
    dataset = indexed(path)
    assert [bytes(dataset.reader.read(number)) for number in range(COUNT)] == images
    crossing = sum(
        len(image) for image, begin in zip(images, ends.tolist(), strict=False)
        if begin // 3000 != (begin + len(image) - 1) // 3000
    )  # fmt: skip
    assert copied(path) == crossing > 0
    assert list(dataset.reader.names)[10] == "10.jpg"


def test_compressed_images_one_after_the_other_are_converted(tmp_path: Path) -> None:
    images = photos()
    data, begins = one_after_the_other(images)
    arrays = {"data": data, "offsets": np.array(begins), "sizes": np.array(list(map(len, images)))}
    path = write(tmp_path / "g.n5", {"data": (4096,)}, "gzip", **arrays)
    packer.convert(path, tmp_path / "g.lmdb")
    with packer.open_pack(tmp_path / "g.lmdb") as reader:
        assert [bytes(reader.read(number)) for number in range(COUNT)] == images
        assert reader.names[3] == "03.jpg"


@pytest.mark.parametrize("compression", ["raw", "gzip"])
def test_a_block_of_counted_bytes_is_an_image(compression: str, tmp_path: Path) -> None:
    z5py = pytest.importorskip("z5py", reason="needs z5py: pip install z5py")
    images = photos()
    group = z5py.File(str(tmp_path / "b.n5"), mode="w", use_zarr_format=False)
    options = {"shape": (COUNT,), "chunks": (1,), "dtype": "uint8", "compression": compression}
    blocks = group.create_dataset("jpegs", **options)
    for number, image in enumerate(images):
        blocks.write_chunk((number,), np.frombuffer(image, np.uint8), True)
    packer.convert(tmp_path / "b.n5", tmp_path / "b.lmdb")
    with packer.open_pack(tmp_path / "b.lmdb") as reader:
        assert [bytes(reader.read(number)) for number in range(COUNT)] == images
        assert reader.names[0] == "00.jpg"
    if compression == "raw":
        dataset = indexed(tmp_path / "b.n5")
        assert [bytes(dataset.reader.read(number)) for number in range(COUNT)] == images
    (tmp_path / "b.n5/jpegs/7").unlink()
    with pytest.raises(SourceError, match=r"jpegs: image 7 has no block"):
        packer.convert(tmp_path / "b.n5", tmp_path / "again.lmdb")


def test_arrays_of_as_many_rows_become_fields_and_others_are_named(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "age": np.arange(COUNT, dtype=np.uint16),
        "score": np.where(np.arange(COUNT) == 4, np.nan, 0.5).astype(np.float32),
        "pose": np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3),
        "mean": np.zeros(3, np.float32),
    }
    path = write(tmp_path / "f.n5", {"pose": (4, 1, 3)}, x=PIXELS, label=LABELS, **arrays)
    source = source_of(path)
    assert source.remarks()[0] == f"left out: 1 array (mean): it has 3 rows for {COUNT} images"
    dataset = indexed(path)
    assert dict(dataset.reader.fields) == {
        "age": Field("age", "scalar", "int32"),
        "pose": Field("pose", "array", "float32", 2),
        "score": Field("score", "scalar", "float32"),
    }
    reader = dataset.reader
    assert [reader.value(number, "age") for number in range(COUNT)] == arrays["age"].tolist()
    assert reader.value(4, "score") is None
    assert reader.value(5, "score") == 0.5
    assert np.array_equal(Field("pose", "array", "float32", 2).decode(reader.value(7, "pose")), arrays["pose"][7])


def test_a_value_that_its_field_cannot_have_leaves_out_its_sample(tmp_path: Path) -> None:
    kinds = np.where(np.arange(COUNT) == 4, -7, np.arange(COUNT))
    path = write(tmp_path / "x.n5", images=PIXELS, kind=kinds, age=kinds)
    packer.convert(path, tmp_path / "o.lmdb", keys=["image=images", "kind:class=kind", "age=age"], on_error="skip")
    manifest = packer.open_pack(tmp_path / "o.lmdb").manifest
    assert (manifest.count, len(manifest.skipped)) == (COUNT - 1, 1)
    assert "kind: row 4: " in manifest.skipped[0]["reason"]


def test_keys_name_arrays_and_what_they_become(tmp_path: Path) -> None:
    boxes = np.tile(np.array([[1, 1, 4, 5]], np.float32), (COUNT, 1, 1))
    arrays = {"a": PIXELS, "b": PIXELS[::-1], "kind": LABELS, "box": boxes, "other": LABELS}
    path = write(tmp_path / "k.n5", **arrays)
    with pytest.raises(
        SourceError, match=r"images are in several arrays: a, b\. Choose an array with --key image=NAME"
    ):
        indexed(path)
    dataset = indexed(path, keys=["image=b", "label=kind", "around:boxes=box"])
    assert np.array_equal(dataset[0][0], PIXELS[-1])
    assert dataset.reader.table.label.tolist() == LABELS.tolist()
    assert dict(dataset.reader.fields) == {"around": Field("around", "boxes")}
    source = source_of(path, {"image": "b"})
    assert "left out: 4 arrays (a, box, kind, …): no --key names it" in source.remarks()
    for keys, error, message in [
        ({"image": "c"}, SourceError, r"--key image=c: there is no such array"),
        ({"image": "../k.n5/a"}, SourceError, r"there is no such array"),
        ({"image": "kind"}, SourceError, r"no array of images that packer can read"),
        ({"image": "a", "label": "box"}, SourceError, r"box: labels must have 1 dimension"),
        ({"image": "a", "name": "kind"}, OptionError, r"whose arrays contain no text"),
        ({"image": "a", "age:text": "kind"}, OptionError, r"the kind of kind must be one of scalar, class"),
        ({"image": "a", "size": "kind"}, OptionError, r"--key size=kind: a field cannot have the name 'size'"),
    ]:
        with pytest.raises(error, match=message):
            source_of(path, keys)


def test_an_array_in_a_group_of_groups_is_named_by_its_path(tmp_path: Path) -> None:
    write(tmp_path / "n.n5")
    write(tmp_path / "n.n5" / "train", x=PIXELS, y=LABELS)
    with pytest.raises(SourceError, match=r"no array of images.* --key image=NAME. There are train"):
        indexed(tmp_path / "n.n5")
    dataset = indexed(tmp_path / "n.n5", keys=["image=train/x", "label=train/y"])
    assert np.array_equal(dataset[3][0], PIXELS[3])
    for path in ("n.n5/train", "n.n5/train/x"):
        assert len(packer.open_dataset(tmp_path / path)) == COUNT


def test_a_changed_block_is_named_and_the_rest_still_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "p.n5", {"x": (1, *WHOLE)}, x=PIXELS)
    dataset = indexed(path)
    changed = path / "x/0/0/0/5"
    changed.write_bytes(changed.read_bytes()[:-1])
    with pytest.raises(CorruptPackError, match=r"changed since it was indexed: its size"):
        _ = dataset[5]
    assert np.array_equal(dataset[6][0], PIXELS[6])


def test_a_container_is_pickled_to_other_processes(group: Path) -> None:
    container = pickle.loads(pickle.dumps(N5.open([group], {})))
    assert [entry.label for entry in container.entries(0)] == [*LABELS[:-1], None]


def _attributes(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        members = json.loads((path / name / "attributes.json").read_text())
        (path / name / "attributes.json").write_text(json.dumps({**members, **changes}))

    return change


def _bytes(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: (path / name).write_bytes(data) and None


def _at(name: str, place: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        held = (path / name).read_bytes()
        (path / name).write_bytes(held[:place] + data + held[place + len(data) :])

    return change


def _link(path: Path) -> None:
    (path / "data/1").unlink()
    (path / "data/1").symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_bytes("data/attributes.json", b"{"), r"data/attributes.json: is not JSON"),
        (_bytes("attributes.json", b"[" * 100_000), r"attributes.json: is not JSON"),
        (_bytes("attributes.json", b"[]"), r"the attributes of N5 must be a JSON object"),
        (_attributes("data", dimensions=[1 << 61]), r"blocks are missing: only \d+ of 562,949,953,421,312 are there"),
        (_attributes("offsets", dimensions=[1 << 40]), r"blocks are missing"),
        (_attributes("sizes", dimensions=[COUNT + 1]), r"sizes: its elements are not 11 integers"),
        (_attributes("data", dimensions=[-1]), r"its dimensions are \[-1\]"),
        (_attributes("data", dimensions=[True]), r"its dimensions are \[true\]"),
        (_attributes("data", blockSize=[0]), r"its blockSize does not match"),
        (_attributes("data", blockSize=[4096, 1]), r"its blockSize does not match"),
        (_attributes("data", dataType="object"), r"its dataType is \"object\""),
        (_attributes("data", compression={"type": "blosc"}), r"compressed by \"blosc\"\. Write it with raw or gzip"),
        (_attributes("data", compression=7), r"compressed by 7"),
        (_bytes("data/0", b"\0\0"), r"data/0: is not a block of an N5 array of 1 dimensions"),
        (_at("data/0", 0, b"\0\2"), r"data/0: is not a block"),
        (_at("data/0", 2, b"\0\3"), r"data/0: is not a block"),
        (_at("data/0", 4, b"\xff\xff\xff\xff"), r"data/0: damaged: its header declares 4294967295 elements"),
        (_at("data/0", 4, b"\0\0\0\1"), r"data/0: damaged: its header declares 1 elements"),
        (
            _bytes("data/0", b"\0\0\0\1\0\0\x10\0" + bytes(9)),
            r"damaged or cut short: its .* bytes do not contain the 4,096 bytes",
        ),
        (lambda path: (path / "data/1").unlink(), r"data: image \d+ is in block 1, which is missing"),
        (_link, r"data/1: is a symbolic link"),
        (_at("offsets/0", 8, b"\xff" * 8), r"damaged: image 0 has \d+ bytes, beginning at 18446744073709551615"),
        (_at("sizes/0", 8, b"\0\0\1" + bytes(5)), r"damaged: image 0 has 1099511627776 bytes, beginning at 0"),
        (_at("sizes/0", 8, bytes(8)), r"damaged: image 0 has 0 bytes"),
        (_at("name_ends/0", 8, b"\xff" * 8), r"damaged: the name of row 0 begins at byte 0 and ends at byte 18446"),
        (_at("names/0", 8, b"/../../etc"), r"its name is not a plain relative path"),
        (_at("labels/0", 8, b"\x80"), r"its label is -"),
    ],
)
def test_hostile_groups_end_in_a_line_that_names_the_place(
    change: Callable[[Path], None], message: str, group: Path
) -> None:
    change(group)
    with pytest.raises(SourceError, match=message) as error:
        source_of(group, {"image": "data", "label": "labels"})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("block", "lost"),
    [("offsets/1", range(4, 8)), ("name_ends/1", range(3, 7)), ("labels/1", range(5, 10)), ("names/1", range(3, 6))],
)
def test_a_damaged_block_of_another_array_leaves_out_only_its_samples(
    block: str, lost: range, group: Path, tmp_path: Path
) -> None:
    expected = [one for number, one in enumerate(indexed(group).samples) if number not in lost]
    (group / block).write_bytes(b"damaged")
    packer.convert(group, tmp_path / "x.lmdb", on_error="skip")
    dataset, skipped = packer.open_dataset(tmp_path / "x.lmdb"), packer.info(tmp_path / "x.lmdb").skipped
    assert dataset.samples == expected
    assert len(skipped) == len(lost)
    assert all(f"{block}: is not a block" in one["reason"] for one in skipped)


@pytest.mark.parametrize(("block", "lost"), [("offsets/0", range(4)), ("offsets/1", range(3, 8))])
def test_a_damaged_block_of_offsets_without_sizes_leaves_out_only_its_samples(
    block: str, lost: range, tmp_path: Path
) -> None:
    data, begins = one_after_the_other(photos(), 1 << 20)
    group = write(tmp_path / "g.n5", {"offsets": (4,)}, data=data, offsets=np.array([*begins, len(data)], np.uint64))
    expected = [one for number, one in enumerate(indexed(group).samples) if number not in lost]
    (group / block).write_bytes(b"damaged")
    packer.convert(group, tmp_path / "x.lmdb", on_error="skip")
    assert packer.open_dataset(tmp_path / "x.lmdb").samples == expected
    assert len(packer.info(tmp_path / "x.lmdb").skipped) == len(lost)


def test_a_damaged_block_of_names_is_read_once(group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, open_block = list[Path](), N5Array.block

    def counted(array: N5Array, number: int) -> Any:
        opened.append(array.path / str(number))
        return open_block(array, number)

    monkeypatch.setattr(N5Array, "block", counted)
    (group / "names/1").write_bytes(b"damaged")
    packer.convert(group, tmp_path / "x.lmdb", on_error="skip")
    assert opened.count(group / "names/1") == 1
