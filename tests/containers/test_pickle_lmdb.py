"""Pickles and values of pyarrow.serialize in LMDB: the order, names, labels and bytes are those of their own tools."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import packer
from packer._containers.safe_pickle import Blob, unpickled
from packer._formats import open_pack
from packer._packs.verify import verify
from packer._storage.packfile import PackFile
from packer.contrib.arrow_serialize import deserialized, is_serialized
from packer.errors import SourceError
from tests.command import packer as command
from tests.containers.lmdbs import masks, photos, write_lmdb

GOLDEN = Path(__file__).parents[1] / "golden" / "containers" / "pyarrow-11"
TINY = (GOLDEN / "image.jpg").read_bytes()
COUNT = 23  # so that "10" comes before "2" among the keys
IMAGES = photos(COUNT)
LABELS = [number * 7 % 5 for number in range(COUNT)]

Dumps = Callable[[Any], bytes]


def folder2lmdb(path: Path, values: list[Any], dumps: Dumps = pickle.dumps, key: str = "{}") -> Path:
    """Write a file as Efficient-PyTorch's tool of this name does."""
    keys = [key.format(number).encode("ascii") for number in range(len(values))]
    samples = [(key, dumps(value)) for key, value in zip(keys, values, strict=True)]
    return write_lmdb(path, [*samples, (b"__keys__", dumps(keys)), (b"__len__", dumps(len(keys)))])


def listed(src: Path, **options: Any) -> tuple[list[str], list[int], list[bytes]]:
    """Index a source and verify the index; return its names, labels and bytes."""
    index = src.with_suffix(".index")
    packer.index(src, index, **options)
    assert verify(index) == []
    with open_pack(index) as reader:
        return list(reader.names), reader.table.label.tolist(), [bytes(reader.read(n)) for n in range(len(reader))]


def in_place(src: Path) -> list[bool]:
    """Return for each sample of an index whether its bytes are in the source's file, and not in the index."""
    with open_pack(src.with_suffix(".index")) as reader:
        return (reader.table.offset < src.stat().st_size).tolist()


@pytest.mark.parametrize("protocol", range(6))
def test_pairs_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    """From protocol 3 on, the bytes are one range of the file; in earlier protocols Python 3 writes them as text."""
    values = list(zip(IMAGES, LABELS, strict=True))
    path = folder2lmdb(tmp_path / "train.lmdb", values, lambda value: pickle.dumps(value, protocol))
    names, labels, data = listed(path)
    assert names == [f"{number}.jpg" for number in range(COUNT)]
    assert labels == LABELS
    assert data == IMAGES
    assert set(in_place(path)) == {protocol >= 3}


def python2(value: Any) -> bytes:
    """Return what Python 2 pickles by protocol 2: its str has opcodes that Python 3 never writes."""
    if isinstance(value, bytes):
        return b"\x80\x02" + _str(value) + b"."
    if isinstance(value, int):
        return b"\x80\x02K" + bytes([value]) + b"."
    if isinstance(value, list):
        return b"\x80\x02]q\x00(" + b"".join(map(_str, value)) + b"e."
    image, label = value
    return b"\x80\x02" + _str(image) + b"q\x00K" + bytes([label]) + b"\x86q\x01."


def _str(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def test_pairs_of_python_2_lie_in_the_file(tmp_path: Path) -> None:
    assert pickle.loads(python2((b"\xff" * 300, 7)), encoding="latin1") == ("\xff" * 300, 7)
    path = folder2lmdb(tmp_path / "train.lmdb", list(zip(IMAGES, LABELS, strict=True)), python2)
    assert listed(path)[1:] == (LABELS, IMAGES)
    assert all(in_place(path))


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        lambda image, label: ((image,), np.array([label])),
        lambda image, label: [[image], np.array([label], np.int32)],
        lambda image, label: [np.frombuffer(image, np.uint8), label],
        lambda image, label: (image, np.int64(label)),
        lambda image, label: (bytearray(image), label),
        lambda image, label: {"img": image, "label": label},
    ],
    ids=["a collated batch of one", "lists", "tensorpack", "a scalar of NumPy", "bytearray", "dict"],
)
def test_pairs_of_every_relative(tmp_path: Path, value: Callable[[bytes, int], Any], protocol: int) -> None:
    values = [value(image, label) for image, label in zip(IMAGES, LABELS, strict=True)]
    path = folder2lmdb(tmp_path / "train.lmdb", values, lambda one: pickle.dumps(one, protocol))
    assert listed(path) == ([f"{number}.jpg" for number in range(COUNT)], LABELS, IMAGES)


def test_tensorpacks_keys_have_zeros_before_them(tmp_path: Path) -> None:
    values = [[np.frombuffer(image, np.uint8), label] for image, label in zip(IMAGES, LABELS, strict=True)]
    path = folder2lmdb(tmp_path / "train.lmdb", values, pickle.dumps, "{:08d}")
    names, labels, data = listed(path)
    assert (names[:2], labels, data) == (["00000000.jpg", "00000001.jpg"], LABELS, IMAGES)


def test_the_order_is_that_of_keys(tmp_path: Path) -> None:
    keys = [b"%d" % number for number in reversed(range(COUNT))]
    values = [(b"%d" % number, pickle.dumps((IMAGES[number], LABELS[number]))) for number in range(COUNT)]
    path = write_lmdb(tmp_path / "train.lmdb", [*values, (b"__keys__", pickle.dumps(keys))])
    assert listed(path)[1:] == (LABELS[::-1], IMAGES[::-1])


def test_without_keys_the_order_is_that_of_the_numbers(tmp_path: Path) -> None:
    values = [(b"%d" % number, pickle.dumps((IMAGES[number], LABELS[number]))) for number in range(COUNT)]
    assert listed(write_lmdb(tmp_path / "train.lmdb", values))[1:] == (LABELS, IMAGES)
    named = [(b"n%02d" % (COUNT - number), value) for number, (_, value) in enumerate(values)]
    names, labels, _ = listed(write_lmdb(tmp_path / "named.lmdb", named))
    assert (names[0], labels) == ("n01.jpg", LABELS[::-1])


def test_a_key_that_is_listed_and_not_there_is_named(tmp_path: Path) -> None:
    values = [(b"0", pickle.dumps((IMAGES[0], 0))), (b"2", pickle.dumps((IMAGES[1], 1)))]
    path = write_lmdb(tmp_path / "train.lmdb", [*values, (b"__keys__", pickle.dumps([b"0", b"1", b"2"]))])
    with pytest.raises(SourceError, match=r"train.lmdb: 1: key '1': sample 1 is missing"):
        packer.index(path, tmp_path / "out.index")


def test_samples_that_no_key_lists_are_counted(tmp_path: Path) -> None:
    values = [(b"%d" % number, pickle.dumps((IMAGES[number], 0))) for number in range(4)]
    path = write_lmdb(tmp_path / "train.lmdb", [*values, (b"__keys__", pickle.dumps([b"0", b"1"]))])
    result = command("index", path, tmp_path / "out.index")
    assert result.returncode == 0
    assert "left out: 2 keys: __keys__ does not list them" in result.stdout + result.stderr


def test_names_beside_image2lmdb(tmp_path: Path) -> None:
    """image2lmdb stores no labels, and writes the names to a second file."""
    path = folder2lmdb(tmp_path / "val.lmdb", IMAGES)
    assert listed(path)[:2] == ([f"{number}.jpg" for number in range(COUNT)], [-1] * COUNT)
    (tmp_path / "val_images_idx.txt").write_text("".join(f"photo {n}.JPEG {n}\n" for n in range(COUNT)))
    (tmp_path / "val.index").rename(tmp_path / "before.index")
    assert listed(path) == ([f"photo {n}.JPEG" for n in range(COUNT)], [-1] * COUNT, IMAGES)
    (tmp_path / "val_images_idx.txt").write_text("".join(f"photo.JPEG {n}\n" for n in range(COUNT)))
    assert listed(folder2lmdb(tmp_path / "val2.lmdb", IMAGES))[0][0] == "0.jpg"


def refcoco(number: int) -> dict[str, Any]:
    return {
        "img": IMAGES[number],
        "mask": MASKS[number],
        "cat": number,
        "num_sents": 2,
        "sents": ["left man", f"man {number}"],
        "img_name": f"COCO_{number}.jpg",
        "box": np.array([1.5, 2, 3, number]),
        "score": number / 2,
        "hard": number % 2 == 0,
    }


MASKS = masks(IMAGES)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_dict_has_fields(tmp_path: Path, protocol: int) -> None:
    path = folder2lmdb(
        tmp_path / "refcoco.lmdb", [refcoco(n) for n in range(COUNT)], lambda value: pickle.dumps(value, protocol)
    )
    _, labels, data = listed(path)
    assert (labels, data) == ([-1] * COUNT, IMAGES)
    with open_pack(tmp_path / "refcoco.index") as reader:
        kinds = {name: field.kind for name, field in reader.fields.items()}
        assert kinds == {
            "mask": "mask",
            "cat": "scalar",
            "num_sents": "scalar",
            "sents": "json",
            "img_name": "text",
            "box": "array",
            "score": "scalar",
            "hard": "scalar",
        }
        for number in (0, 5):
            expected = refcoco(number)
            for name, field in reader.fields.items():
                value = field.decode(reader.value(number, name))
                np.testing.assert_array_equal(value, expected[name], name)
    packer.convert(path, tmp_path / "pack.lmdb")
    with open_pack(tmp_path / "pack.lmdb") as reader:
        assert bytes(reader.value(3, "mask")) == MASKS[3]


def test_keys_of_a_dict_are_named_by_a_person(tmp_path: Path) -> None:
    path = folder2lmdb(tmp_path / "refcoco.lmdb", [refcoco(n) for n in range(COUNT)])
    keys = ["image=img", "label=cat", "seg:mask=mask", "caption=sents"]
    _, labels, _ = listed(path, keys=keys)
    assert labels == list(range(COUNT))
    with open_pack(tmp_path / "refcoco.index") as reader:
        assert {name: field.kind for name, field in reader.fields.items()} == {"seg": "mask", "caption": "json"}
    with pytest.raises(SourceError, match="have no 'bild', but 'img'"):
        packer.index(path, tmp_path / "other.index", keys=["image=bild"])


def test_what_turns_up_later_is_named(tmp_path: Path) -> None:
    values = [{"img": image, "label": 0} for image in IMAGES]
    values[3]["extra"] = "text"
    path = folder2lmdb(tmp_path / "train.lmdb", values)
    with pytest.raises(SourceError, match=r"3: it has 'extra'.*--key"):
        packer.index(path, tmp_path / "out.index")
    assert listed(path, keys=["image=img", "label=label"])[1] == [0] * COUNT


@pytest.mark.parametrize("label", ["cat", float("nan"), float("inf")])
def test_a_label_that_is_no_number_among_numbers_is_refused(tmp_path: Path, label: object) -> None:
    labels = [0.5] * (COUNT - 2) + [label, 0.5]
    path = folder2lmdb(tmp_path / "train.lmdb", [(image, labels[n]) for n, image in enumerate(IMAGES)])
    with pytest.raises(SourceError, match=rf"its label is {label}, not a number"):
        packer.index(path, tmp_path / "out.index")


def test_labels_that_are_names_or_numbers(tmp_path: Path) -> None:
    named = folder2lmdb(tmp_path / "named.lmdb", [(image, "ba"[n % 2]) for n, image in enumerate(IMAGES)])
    assert listed(named)[1] == [1 - n % 2 for n in range(COUNT)]
    floats = folder2lmdb(tmp_path / "floats.lmdb", [(image, n / 4) for n, image in enumerate(IMAGES)])
    assert listed(floats)[1] == [n / 4 for n in range(COUNT)]
    several = folder2lmdb(tmp_path / "several.lmdb", [(image, np.arange(3)) for image in IMAGES])
    assert listed(several)[1] == [-1] * COUNT
    with open_pack(tmp_path / "several.index") as reader:
        assert reader.fields["item1"].decode(reader.value(0, "item1")).tolist() == [0, 1, 2]


def test_keys_that_become_one_name_are_two_fields(tmp_path: Path) -> None:
    path = folder2lmdb(tmp_path / "a.lmdb", [{"image": image, "a b": 1, "a-b": 2} for image in IMAGES])
    packer.index(path, tmp_path / "a.index")
    with open_pack(tmp_path / "a.index") as reader:
        assert {name: reader.value(0, name) for name in reader.fields} == {"a_b": 1, "a_b_2": 2}


class Planted:
    """An object whose pickle makes a directory when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.place),))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("where", ["label", "keys", "len", "value", "build"])
def test_nothing_is_unpickled(tmp_path: Path, protocol: int, where: str) -> None:
    place = tmp_path / "written"
    planted = Planted(place)
    keys: Any = planted if where == "keys" else [b"0"]
    value = {"label": (IMAGES[0], planted), "value": planted, "build": {"img": IMAGES[0], "x": [planted]}}.get(
        where, (IMAGES[0], 1)
    )
    items = {b"0": value, b"__keys__": keys, b"__len__": planted if where == "len" else 1}
    path = write_lmdb(tmp_path / "train.lmdb", [(k, pickle.dumps(v, protocol)) for k, v in items.items()])
    pickle.loads(pickle.dumps(planted, protocol))
    assert place.exists()
    place.rmdir()
    if where == "len":
        packer.index(path, tmp_path / "out.index")
    else:
        with pytest.raises(SourceError) as caught:
            packer.index(path, tmp_path / "out.index")
        assert protocol < 2 or "a pickle that calls" in str(caught.value)
    assert not place.exists()


def read(data: bytes, tmp_path: Path, how: Callable[..., Any] = unpickled) -> Any:
    (tmp_path / "value").write_bytes(b"before" + data + b"after")
    with PackFile(tmp_path / "value") as file:
        return plain(how(file, 6, len(data)), file)


def plain(value: Any, file: PackFile) -> Any:
    """Return a value with the bytes in place of their locations."""
    if isinstance(value, Blob):
        return value.data(file)
    if hasattr(value, "elements"):
        return value.value(file)
    if isinstance(value, dict):
        return {key: plain(one, file) for key, one in value.items()}
    return type(value)(plain(one, file) for one in value) if isinstance(value, (tuple, list)) else value


VALUES = [
    *(
        0,
        1,
        255,
        256,
        65535,
        65536,
        -1,
        -(2**31),
        2**31,
        2**63 - 1,
        -(2**63),
        1.5,
        True,
        False,
        None,
        "",
        "ä\n\\'\u20ac",
    ),
    *(
        b"",
        b"a",
        b"\xff" * 255,
        b"\x00\n'\"\\" * 100,
        (),
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 3, 4),
        [],
        [1],
        [1, [2, (3,)]],
    ),
    *({}, {"a": 1}, {"a": b"x" * 300, "b": {"c": None}}, np.float32(1.5).item(), bytearray(b"abc")),
]


@pytest.mark.parametrize("protocol", range(6))
def test_opcodes_say_what_pickle_reads(tmp_path: Path, protocol: int) -> None:
    assert read(pickle.dumps(VALUES, protocol), tmp_path) == VALUES
    shared = [b"q" * 100] * 3
    assert read(pickle.dumps(shared, protocol), tmp_path) == shared


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "<i8", "<u8", "<f4", "<f8"])
def test_arrays_as_numpy_pickles_them(tmp_path: Path, protocol: int, dtype: str) -> None:
    for array in (np.arange(24).reshape(2, 3, 4).astype(dtype), np.arange(6).reshape(2, 3).T.astype(dtype)):
        np.testing.assert_array_equal(read(pickle.dumps(array, protocol), tmp_path), array)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"\x80\x04.",
        b"\x80\x04B\xff\xff\xff\xffa.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\xffa.",
        b"\x80\x04\x8b\xff\xff\xff\x7f1.",
        b"I" + b"9" * 5000 + b"\n.",
        b"\x80\x04h\x07.",
        b"\x80\x04(.",
        b"\x80\x04K\x01a.",
        b"\x80\x04t.",
        b"\x80\x04}((K\x01tK\x01u.",
        b"\x80\x04K\x01K\x02R.",
        b"\x80\x04cposix\nsystem\n(S'true'\ntR.",
        b"\x80\x04]\x94h\x00b.",
        b"\x80\x04Pother\n.",
        b"\x80\x04cnumpy\ndtype\n(Vu1\nK\x00K\x01tR.",
        b"\x80\x02c_codecs\nencode\n"
        + b"q\x00X\x00\x01\x00\x00"
        + b"a" * 256
        + b"q\x01X\x06\x00\x00\x00latin1\x86R"
        + b"0h\x00h\x01X\x06\x00\x00\x00latin1\x86R" * 5,
    ],
)
def test_damaged_pickles(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"pickle|bytes are declared"):
        read(data, tmp_path)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tuple", [TINY, 7]),
        ("image", TINY),
        ("keys", [b"0", b"1", b"2", b"3"]),
        ("len", 4),
        ("array", [np.frombuffer(TINY, np.uint8), 4]),
        ("collated", [[TINY], np.array([5])]),
        (
            "dict",
            {
                "img": TINY,
                "cat": 3,
                "name": "x.jpg",
                "sents": ["a", "b"],
                "weight": 1.5,
                "nothing": None,
                "crowd": True,
            },
        ),
    ],
)
def test_what_pyarrow_11_serialized(tmp_path: Path, name: str, value: Any) -> None:
    data = golden(name)
    assert is_serialized(data[:64])
    np.testing.assert_equal(read(data, tmp_path, deserialized), value)


def serialized(value: Any, *, old: bool) -> bytes:
    """Return bytes, ints, or lists of them, as `pyarrow.serialize` wrote them; if `old`, in pyarrow before 0.15."""
    column = union([value])
    options = pa.ipc.IpcWriteOptions(
        metadata_version=pa.ipc.MetadataVersion.V4 if old else pa.ipc.MetadataVersion.V5, use_legacy_format=old
    )
    stream = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["list"])
    with pa.ipc.new_stream(stream, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    counts = struct.pack("<3i", 0, 0, 0).ljust(16, b"\0") if old else struct.pack("<4i", 0, 0, 0, 0)
    return counts + stream.getvalue() + bytes(-(16 + stream.tell()) % 64)


def union(values: list[Any]) -> pa.Array:
    """Return values as a dense union, with a child for nulls and one for each type of the values."""
    tags = {bytes: "4", int: "2", tuple: "12", list: "10"}
    known = list(dict.fromkeys(map(type, values)))
    codes, offsets = [known.index(type(value)) + 1 for value in values], []
    for number, value in enumerate(values):
        offsets.append(sum(type(other) is type(value) for other in values[:number]))
    children = [pa.array([], pa.null())]
    for kind in known:
        own = [value for value in values if type(value) is kind]
        if kind in (tuple, list):
            ends = [0, *itertools.accumulate(map(len, own))]
            inner = union([one for value in own for one in value])
            children.append(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner))
        else:
            children.append(pa.array(own, pa.binary() if kind is bytes else pa.int64()))
    names = ["0", *(tags[kind] for kind in known)]
    return pa.UnionArray.from_dense(pa.array(codes, pa.int8()), pa.array(offsets, pa.int32()), children, names)


def test_the_layout_by_hand_is_that_of_pyarrow_11(tmp_path: Path) -> None:
    for name, value in (("tuple", (TINY, 7)), ("keys", [b"0", b"1", b"2", b"3"]), ("len", 4)):
        assert len(serialized(value, old=False)) == len(golden(name))
    assert read(serialized((TINY, -3), old=False), tmp_path, deserialized) == [TINY, -3]


@pytest.mark.parametrize("old", [True, False])
def test_pairs_of_pyarrow(tmp_path: Path, old: bool) -> None:
    values = list(zip(IMAGES, LABELS, strict=True))
    path = folder2lmdb(tmp_path / "train.lmdb", values, lambda value: serialized(value, old=old))
    assert listed(path) == ([f"{number}.jpg" for number in range(COUNT)], LABELS, IMAGES)
    assert all(in_place(path))


def test_files_of_pyarrow_11(tmp_path: Path) -> None:
    names = ["tuple", "image", "array", "collated"]
    items = [(b"%d" % number, golden(name)) for number, name in enumerate(names)]
    path = write_lmdb(tmp_path / "train.lmdb", [*items, (b"__keys__", golden("keys")), (b"__len__", golden("len"))])
    assert listed(path) == ([f"{n}.jpg" for n in range(4)], [7, -1, 4, 5], [TINY] * 4)
    assert all(in_place(path))


def test_values_of_msgpack_are_refused_by_name(tmp_path: Path) -> None:
    items = [(b"0", pickle.dumps((IMAGES[0], 0))), (b"1", b"\x92\xc4\x03abc\x00")]
    path = write_lmdb(tmp_path / "train.lmdb", items)
    with pytest.raises(SourceError, match=r"train.lmdb: 1: its value was written neither by pickle nor .*: msgpack"):
        packer.index(path, tmp_path / "out.index")


def test_a_dataset_and_a_conversion_of_it(tmp_path: Path) -> None:
    path = folder2lmdb(tmp_path / "train.lmdb", list(zip(IMAGES, LABELS, strict=True)))
    dataset = packer.open_dataset(path)
    assert [label for _, label in dataset] == LABELS
    packer.convert(path, tmp_path / "pack.lmdb")
    with open_pack(tmp_path / "pack.lmdb") as reader:
        assert [bytes(reader.read(number)) for number in range(COUNT)] == IMAGES
        assert reader.table.label.tolist() == LABELS
        assert reader.manifest.classes == ["0", "1", "2", "3", "4"]


def test_what_a_pickle_says_does_not_steer_the_terminal(tmp_path: Path) -> None:
    data = pickle.dumps((TINY, 3), 2).replace(b"latin1", b"\x1b[2J\n1")
    assert b"\x1b" in data
    path = write_lmdb(tmp_path / "a", [(b"0", data)])
    with pytest.raises(SourceError, match=r"key '0': a pickle with bytes encoded as \\x1b\[2J\\n1"):
        packer.index(path, tmp_path / "a.index")
