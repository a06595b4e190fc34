"""TFRecords of Examples, read in place."""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfrecord as vahidk
from hypothesis import given, strategies as st
from tfrecord import example_pb2

import packer
from packer._containers import Listing, find_container, list_samples
from packer._containers.blocks import BlockReader, Unpacked
from packer._containers.protobuf import BYTES, FLOATS, INTS, byte_strings, feature_lists, floats, ints
from packer._containers.tfrecord import masked_crc32c
from packer.errors import ImageError, OptionError, SourceError
from tests.containers.records import (
    bytes_list,
    example,
    float_list,
    int_list,
    photo,
    sized,
    tfrecord,
    varint,
)
from tests.containers.samples import images_of

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def written(path: Path, records: Iterable[bytes]) -> Path:
    path.write_bytes(tfrecord(records))
    return path


def listed(*paths: Path, keys: Mapping[str, str] | None = None) -> Listing:
    found = find_container(list(paths))
    assert found is not None
    kind, files = found
    assert kind.kind == "tfrecord"
    return list_samples(kind.open(files, keys or {}))


def values(listing: Listing, name: str) -> list[Any]:
    """Return the values of a field."""
    field = next(field for field in listing.container.fields if field.name == name)
    if not field.is_blob:
        numbers, null = listing.numbers[name]
        return [None if no else number for number, no in zip(numbers.tolist(), null.tolist(), strict=True)]
    ranges = listing.ranges[name]
    rows = zip(ranges.file.tolist(), ranges.offset.tolist(), ranges.size.tolist(), strict=True)
    data = [Path(listing.container.root, file).read_bytes() for file in listing.container.files]
    found = []
    for file, offset, size in rows:
        blob = listing.copied[offset : offset + size].tobytes() if file < 0 else data[file][offset : offset + size]
        found.append(None if size < 0 else field.decode(blob))
    return found


def imagenet(number: int, **more: bytes) -> bytes:
    return example(
        {
            "image/encoded": bytes_list(photo(number)),
            "image/class/label": int_list(number + 1),
            "image/filename": bytes_list(f"n0{number}.JPEG".encode()),
            **{key.replace("__", "/"): value for key, value in more.items()},
        }
    )


def test_features_may_be_called_as_columns_of_the_listing(tmp_path: Path) -> None:
    names = ("seal", "name_end", "image_file", "offset")
    records = [imagenet(number, **{name: int_list(number) for name in names}) for number in range(3)]
    listing = listed(written(tmp_path / "a.tfrecord", records))
    assert {name: values(listing, name) for name in names} == {name: [0, 1, 2] for name in names}


def test_masked_checksums_are_those_of_the_specification() -> None:
    assert (masked_crc32c(bytes(8)), masked_crc32c(b"")) == (0x07980329, 0xA282EAD8)


@given(
    st.dictionaries(
        st.text(max_size=200),
        st.binary(max_size=300)
        | st.text(max_size=5)
        | INT64
        | st.floats(width=32, allow_nan=False)
        | st.lists(st.binary(max_size=5))
        | st.lists(INT64)
        | st.lists(st.floats(width=32, allow_nan=False)),
        max_size=6,
    )
)
def test_examples_that_protobuf_encodes_have_their_values(features: dict[str, Any]) -> None:
    written, expected = example_pb2.Example(), dict[str, list[Any]]()
    for key, value in features.items():
        values = [
            one.encode() if isinstance(one, str) else one for one in (value if isinstance(value, list) else [value])
        ]
        kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
        feature, expected[key] = written.features.feature[key], values
        if values:
            getattr(feature, kinds[type(values[0])]).value.extend(values)
    data = written.SerializeToString()
    window = BlockReader(Unpacked("example", data))

    def read(type: int, begin: int, end: int) -> list[Any]:
        if type == BYTES:
            return [data[offset : offset + size] for offset, size in byte_strings(window, begin, end)]
        if type == FLOATS:
            return np.frombuffer(floats(window, begin, end), "<f4").tolist()
        return ints(window, begin, end) if type == INTS else []

    found = {key.decode(): read(*place) for key, *place in feature_lists(window, 0, len(data))}
    assert found == expected


def test_files_of_the_tfrecord_library_have_its_values(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    writer = vahidk.TFRecordWriter(str(path))
    for number in range(5):
        writer.write(
            {
                "image": (photo(number), "byte"),
                "label": (number - 1, "int"),
                "size": ([number, -number], "int"),
                "weight": (number / 3, "float"),
                "caption": (f"größe {number}".encode(), "byte"),
                "mask": (photo(number, suffix="PNG"), "byte"),
                "noise": (bytes([number, 255]), "byte"),
                "feature": ([0.5] * number, "float"),
            }
        )
    writer.close()
    listing = listed(path)
    assert images_of(listing) == [photo(number) for number in range(5)]
    assert listing.labels.tolist() == [-1, 0, 1, 2, 3]
    assert list(listing.names) == [f"a/0000000{number}.jpg" for number in range(5)]
    kinds = {field.name: (field.kind, field.dtype) for field in listing.container.fields}
    assert kinds == {
        **{"size_": ("array", "int64"), "weight": ("scalar", "float32"), "caption": ("text", "")},
        **{"mask": ("image", ""), "noise": ("bytes", ""), "feature": ("array", "float32")},
    }
    loader = vahidk.tfrecord_loader(str(path), None, {"weight": "float", "size": "int", "caption": "byte"})
    theirs = [{key: np.array(value) for key, value in row.items()} for row in loader]
    assert values(listing, "weight") == [pytest.approx(row["weight"].item()) for row in theirs]
    assert [value.tolist() for value in values(listing, "size_")] == [row["size"].tolist() for row in theirs]
    assert values(listing, "caption") == [f"größe {number}" for number in range(5)]
    assert [len(value) for value in values(listing, "feature")] == [0, 1, 2, 3, 4]


def test_an_index_and_a_conversion_have_the_images_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path / "train-00000-of-00001", (imagenet(number) for number in range(4)))
    packer.index(path, tmp_path / "a.index")
    packer.convert(path, tmp_path / "a.lmdb")
    for pack in (tmp_path / "a.index", tmp_path / "a.lmdb"):
        with packer.open_pack(pack) as reader:
            assert [bytes(reader.read(number)) for number in range(4)] == [photo(number) for number in range(4)]
            assert list(reader.names) == [f"n0{number}.JPEG" for number in range(4)]
            assert reader.table.label.tolist() == [1, 2, 3, 4]
    assert packer.open_dataset(path)[2][0].shape == (3, 16, 24)


@pytest.mark.parametrize("in_entries", [False, True])
def test_parts_in_any_order_unknown_fields_and_unpacked_numbers_are_read(tmp_path: Path, in_entries: bool) -> None:
    odd = sized(9, b"?") + b"\x50" + varint(1 << 63) + b"\x59" + bytes(8) + b"\x5d" + bytes(4)

    def backwards(key: str, value: bytes) -> bytes:
        more = odd if in_entries else b""
        return sized(1, more + sized(2, odd + value + odd) + more + sized(1, key.encode()))

    entries = [
        ("image", sized(1, sized(1, photo(0)) + odd)),
        ("label", int_list(7, packed=False)),
        ("ints", sized(3, b"\x08\x01" + odd + sized(1, varint(-5) + varint(300)) + b"\x08\x02")),
        ("floats", sized(2, b"\x0d" + struct.pack("<f", 1.5) + sized(1, struct.pack("<2f", 2, 3)))),
        ("nothing", b""),
    ]
    data = odd + sized(1, b"".join(backwards(*entry) + odd for entry in entries[:2]) + backwards("label", int_list(8)))
    data += sized(1, b"".join(backwards(*entry) for entry in entries[2:]))
    listing = listed(written(tmp_path / "a.tfrecord", [data]))
    assert images_of(listing) == [photo(0)]
    assert listing.labels.tolist() == [8]
    assert values(listing, "ints")[0].tolist() == [1, -5, 300, 2]
    assert values(listing, "floats")[0].tolist() == [1.5, 2, 3]
    if not in_entries:  # protobuf's own parsers drop entries that have unknown fields
        parsed = example_pb2.Example.FromString(data).features.feature
        assert list(parsed["image"].bytes_list.value) == [photo(0)]
        assert list(parsed["label"].int64_list.value) == [8]
        assert list(parsed["ints"].int64_list.value) == [1, -5, 300, 2]
        assert list(parsed["floats"].float_list.value) == [1.5, 2, 3]


def test_of_a_key_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    def entry(key: str, value: bytes) -> bytes:
        return sized(1, sized(1, key.encode()) + sized(2, value))

    image = entry("image", bytes_list(photo(0)))
    twice = entry("n", int_list(1)) + entry("n", int_list(2)) + entry("m", int_list(1)) + entry("m", b"")
    listing = listed(written(tmp_path / "a.tfrecord", [sized(1, image + twice)]))
    assert (values(listing, "n"), values(listing, "m")) == ([2], [None])


@given(st.lists(INT64, max_size=5), st.booleans())
def test_ints_of_64_bits_come_back(tmp_path_factory: pytest.TempPathFactory, numbers: list[int], packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "ints.tfrecord"
    record = example({"image": bytes_list(photo(0)), "n": int_list(*numbers, packed=packed)})
    listing = listed(written(path, [record, record]))
    if len(numbers) == 1:
        assert values(listing, "n") == numbers * 2
    else:
        assert [value.tolist() for value in values(listing, "n")] == [numbers] * 2


@pytest.mark.parametrize("first", ["image", "label"])
def test_large_images_are_skipped_wherever_they_stand(
    tmp_path: Path, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [photo(number, (300, 200 + 100 * number), "PNG") for number in range(3)]
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        for number, image in enumerate(images):
            features = {"image": bytes_list(image), "label": int_list(number), "z": bytes_list(b"text")}
            file.write(tfrecord([example(dict(sorted(features.items(), reverse=first == "label")))]))
    sizes = []
    read = packer._storage.packfile.PackFile.read

    def counted(self: Any, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, offset, size)

    monkeypatch.setattr(packer._storage.packfile.PackFile, "read", counted)
    listing = listed(path)
    assert sum(sizes) < 100_000 < path.stat().st_size / 5
    assert (images_of(listing), listing.labels.tolist()) == (images, [0, 1, 2])
    assert values(listing, "z") == ["text"] * 3


def test_boxes_are_in_pixels_where_the_size_is_known(tmp_path: Path) -> None:
    def detection(number: int, boxes: list[tuple[float, float, float, float]], **more: bytes) -> bytes:
        edges = dict(zip(("xmin", "ymin", "xmax", "ymax"), zip(*boxes, strict=True), strict=False)) or {}
        features = {f"image/object/bbox/{edge}": float_list(*of_edge) for edge, of_edge in edges.items()}
        features |= {
            "image/object/class/label": int_list(*range(1, len(boxes) + 1)),
            "image/object/class/text": bytes_list(*[b"cat"] * len(boxes)),
            "image/object/mask": bytes_list(*[photo(number, suffix="PNG")] * len(boxes)),
        }
        return example({"image/encoded": bytes_list(photo(number)), **features, **more})

    size = {"image/height": int_list(16), "image/width": int_list(24)}
    boxes = [(0.25, 0.5, 0.5, 1.0), (0.0, 0.0, 1.0, 1.0)]
    records = [detection(0, boxes, **size), detection(1, boxes[:1], **size), detection(2, [], **size)]
    listing = listed(written(tmp_path / "a.tfrecord", records))
    pixels = [[6, 8, 12, 16], [0, 0, 24, 16]]
    assert [value.tolist() for value in values(listing, "boxes")] == [pixels, pixels[:1], []]
    assert [value.tolist() for value in values(listing, "labels")] == [[1, 2], [1], []]
    assert values(listing, "image_object_class_text") == [["cat", "cat"], ["cat"], []]
    assert values(listing, "image_object_mask")[0] == sized(1, photo(0, suffix="PNG")) * 2
    assert values(listing, "image_height") == [16] * 3
    named = listed(tmp_path / "a.tfrecord", keys={"where:boxes": "image/object/bbox"})
    assert [field.name for field in named.container.fields] == ["where"]
    assert values(named, "where")[0].tolist() == pixels

    without = listed(written(tmp_path / "b.tfrecord", [detection(0, boxes)]))
    assert values(without, "image_object_bbox_xmax")[0].tolist() == [0.5, 1.0]
    assert "arrays of floats" in without.notes[0]
    wrong = written(tmp_path / "c.tfrecord", [detection(0, [(0.5, 0, 0.25, 1)], **size)])
    with pytest.raises(SourceError, match=r"c.tfrecord: .*record 0, at byte 0: the box 0.5 0.0 0.25 1.0 ends before"):
        listed(wrong)


def test_keys_name_what_is_wanted(tmp_path: Path) -> None:
    record = example(
        {
            "a": bytes_list(photo(0)),
            "b": bytes_list(photo(1)),
            "class": bytes_list(b"dog"),
            "id": bytes_list(b"x/1"),
            "text": bytes_list(b"hello"),
            "n": int_list(3),
        }
    )
    path = written(tmp_path / "a.tfrecord", [record])
    with pytest.raises(SourceError, match=r"several features are images: choose one of a, b with --key image=KEY"):
        listed(path)
    keys = {"image": "b", "label": "class", "name": "id", "caption:text": "text", "other": "a", "number:class": "n"}
    listing = listed(path, keys=keys)
    assert images_of(listing) == [photo(1)]
    assert (list(listing.names), listing.classes, listing.labels.tolist()) == (["x/1.jpg"], ["dog"], [0])
    kinds = {field.name: field.kind for field in listing.container.fields}
    assert kinds == {"caption": "text", "other": "image", "number": "class"}
    assert values(listing, "number") == [3]
    (left,) = listed(path, keys={"image": "a"}).container.account
    assert (left.what, left.why, left.names[:2], left.chosen) == (
        "feature",
        "--key does not name them",
        ["b", "class"],
        True,
    )
    for wrong, error, said in [
        ({"image": "c"}, SourceError, "--key image: no feature is called c. There are a, b, class"),
        ({"image": "n"}, SourceError, "feature n cannot be the image"),
        ({"image": "a", "x:mesh": "b"}, OptionError, "--key x:mesh=b: a kind must be one of"),
        (
            {"image": "a", "x:array": "text"},
            SourceError,
            "feature text: it has byte strings, from which no array can be made",
        ),
        ({"image": "a", "x": "n", "x:class": "n"}, OptionError, "twice"),
        ({"image": "a", "x:boxes": "n"}, SourceError, "feature n: it has ints, from which no boxes can be made"),
    ]:
        with pytest.raises(error) as raised:
            listed(path, keys=wrong)
        assert said in str(raised.value)


def test_shards_of_tensorflow_datasets_have_class_names(tmp_path: Path) -> None:
    def record(number: int) -> bytes:
        features = {"image": bytes_list(photo(number)), "label": int_list(number % 2)}
        return example({**features, "file_name": bytes_list(b"%d.JPEG" % number), "objects/label": int_list(1, 0)})

    shards = [tmp_path / f"birds-train.tfrecord-0000{number}-of-00003" for number in range(3)]
    written(shards[0], map(record, (0, 1)))
    written(shards[1], [])
    written(shards[2], map(record, (1, 2)))
    (tmp_path / "label.labels.txt").write_text("crow\nowl\n")
    (tmp_path / "objects-label.labels.txt").write_text("beak\nwing\n")
    (tmp_path / "features.json").write_text("{}")
    listing = listed(tmp_path)
    assert (listing.classes, listing.labels.tolist()) == (["crow", "owl"], [0, 1, 1, 0])
    assert [(field.name, field.kind, field.classes) for field in listing.container.fields] == [
        ("objects_label", "labels", ("beak", "wing"))
    ]
    assert list(listing.names) == [
        f"birds-train.tfrecord-0000{shard}-of-00003/{number}.JPEG" for shard, number in [(0, 0), (0, 1), (2, 1), (2, 2)]
    ]
    written(tmp_path / "birds-test.tfrecord-00000-of-00001", [record(0)])
    with pytest.raises(SourceError, match="several splits"):
        find_container([tmp_path])


def test_ids_of_imagenet_keep_their_numbers_and_have_the_names_of_their_synsets(tmp_path: Path) -> None:
    def record(number: int, label: int, synset: bytes) -> bytes:
        named = {"image__class__synset": bytes_list(synset), "image__class__text": bytes_list(b"bird")}
        return imagenet(number, image__class__label=int_list(label), **named)

    path = tmp_path / "train-00000-of-00001"
    listing = listed(written(path, [record(0, 3, b"n03"), record(1, 1, b"n01"), record(2, 3, b"n03")]))
    assert listing.labels.tolist() == [3, 1, 3]
    assert listing.classes == ["0", "n01", "2", "n03"]
    assert values(listing, "image_class_synset") == ["n03", "n01", "n03"]
    assert listed(path, keys={"label": "image/class/label"}).classes == listing.classes
    for other in (record(1, 3, b"n01"), record(1, 1, b"n03")):
        listing = listed(written(path, [record(0, 3, b"n03"), other]))
        assert listing.classes == ["0", "1", "2", "3"][: max(listing.labels) + 1]
        assert "samples give different names to the same class" in listing.notes[0]


def test_pairs_of_img2dataset_have_captions_and_an_open_container_is_pickled(tmp_path: Path) -> None:
    def record(number: int) -> bytes:
        texts = {"key": b"%09d" % number, "txt": "größe".encode(), "error_message": b""}
        sizes = {"width": int_list(24), "height": int_list(16)}
        return example({"jpg": bytes_list(photo(number)), **{k: bytes_list(v) for k, v in texts.items()}, **sizes})

    found = find_container([written(tmp_path / "00000.tfrecord", map(record, range(2)))])
    assert found is not None
    listing = list_samples(pickle.loads(pickle.dumps(found[0].open(found[1], {}))))
    assert list(listing.names) == ["000000000.jpg", "000000001.jpg"]
    assert listing.labels.tolist() == [-1, -1]
    assert values(listing, "txt") == ["größe"] * 2
    assert values(listing, "error_message") == [""] * 2
    assert (values(listing, "width_"), values(listing, "height_")) == ([24] * 2, [16] * 2)


def test_labels_may_be_floats_or_several(tmp_path: Path) -> None:
    floats = [example({"jpg": bytes_list(photo(n)), "label": float_list(n / 2)}) for n in range(3)]
    listing = listed(written(tmp_path / "a.tfrecord", floats))
    assert (listing.label_type, listing.labels.tolist()) == ("float", [0, 0.5, 1])
    several = [example({"jpg": bytes_list(photo(n)), "label": int_list(*range(n))}) for n in range(3)]
    listing = listed(written(tmp_path / "b.tfrecord", several))
    assert listing.labels.tolist() == [-1, -1, -1]
    assert [value.tolist() for value in values(listing, "labels")] == [[], [0], [0, 1]]


def test_what_turns_up_late_is_named(tmp_path: Path) -> None:
    usual = imagenet(0)
    for late, said in [
        (imagenet(1, extra=int_list(1)), "feature 'extra' is in none of the first records"),
        (
            imagenet(1, image__filename=int_list(1)),
            "feature 'image/filename' has ints, but byte strings in earlier records",
        ),
        (imagenet(1, image__class__label=int_list(1, 2)), "a feature has 2 values"),
        (example({"image/class/label": int_list(1)}), "it has no image"),
        (imagenet(1, image__filename=bytes_list(b"\xff")), "a text is not valid UTF-8"),
    ]:
        path = written(tmp_path / "a.tfrecord", [usual] * 64 + [late])
        at = 64 * (len(usual) + 16)
        with pytest.raises(SourceError) as raised:
            listed(path)
        assert f"a.tfrecord: a/00000064: record 64, at byte {at}: {said}" in str(raised.value)
    listing = listed(written(tmp_path / "a.tfrecord", [usual, imagenet(1, extra=int_list(1))]))
    assert values(listing, "extra") == [None, 1]
    keys = {"label": "image/class/label", "image": "image/encoded"}
    assert (
        len(listed(written(tmp_path / "a.tfrecord", [usual] * 64 + [imagenet(1, extra=int_list(1))]), keys=keys)) == 65
    )


def test_names_that_lead_out_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tfrecord", [imagenet(0, image__filename=bytes_list(b"../../x.jpg"))])
    with pytest.raises(SourceError, match=r"a.tfrecord: sample 0, ../../x.jpg: its name is not a plain relative path"):
        listed(path)


def test_damaged_and_compressed_files_are_named(tmp_path: Path) -> None:
    data = tfrecord(imagenet(number) for number in range(3))
    second = len(tfrecord([imagenet(0)]))
    for changed, said in [
        (data[:-1], f"would end at byte {len(data)} of {len(data) - 1}"),
        (data + b"\0\0", "cut short: the file ends 2 bytes after record 2"),
        (data[:second] + b"\1" + data[second + 1 :], f"the size of record 1, at byte {second}, does not match its"),
        (gzip.compress(data), "is compressed with gzip as a whole"),
        (zlib.compress(data), "is compressed with zlib as a whole"),
        (tfrecord([b""]), "no record has a feature"),
        (
            tfrecord([b"\x0a\xff"]),
            "record 0, at byte 0: not a Protocol Buffers message: its field at byte 12 is damaged",
        ),
        (
            tfrecord([b"\x0a\x02\x0a"]),
            "record 0, at byte 0: not a Protocol Buffers message: its field at byte 12 is damaged",
        ),
        (tfrecord([imagenet(0) + sized(2, sized(1, b"x"))]), "it is a SequenceExample"),
        (
            tfrecord([example({"a": int_list(1)})]),
            "no feature is an encoded image, of a: choose one with --key image=KEY. Features that contain pixels",
        ),
    ]:
        path = tmp_path / "a.tfrecord"
        path.write_bytes(changed)
        with pytest.raises(SourceError) as raised:
            listed(path)
        assert said in str(raised.value)
        assert "a.tfrecord" in str(raised.value)
    (tmp_path / "a.tfrecord").rename(tmp_path / "a.tfrecord.gz")
    (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress(data))
    with pytest.raises(SourceError, match=r"Decompress it: gzip -dc < a.tfrecord.gz > FILE"):
        listed(tmp_path)


@pytest.mark.parametrize("where", ["image", "label", "checksum"])
def test_a_flipped_bit_in_a_record_is_found_by_whoever_reads_the_image(tmp_path: Path, where: str) -> None:
    records = [example({"image": bytes_list(photo(number)), "label": int_list(number)}) for number in range(3)]
    data = bytearray(tfrecord(records))
    begin, size = len(tfrecord(records[:1])) + 12, len(records[1])
    at = {"image": begin + records[1].index(photo(1)) + len(photo(1)) // 2, "checksum": begin + size + 1}
    at["label"] = begin + records[1].index(int_list(1)) + len(int_list(1)) - 1
    data[at[where]] ^= 4
    (tmp_path / "a.tfrecord").write_bytes(data)
    said = f"a.tfrecord, byte {begin}: the checksum of {size} bytes does not match"
    for make, name in ((packer.convert, "a.lmdb"), (packer.index, "a.index")):
        with pytest.raises(ImageError, match=said):
            make(tmp_path / "a.tfrecord", tmp_path / name)
        skipped = make(tmp_path / "a.tfrecord", tmp_path / name, on_error="skip").manifest.skipped
        assert [entry["name"] for entry in skipped] == ["a/00000001.jpg"]
    if where != "image":
        assert packer.index(tmp_path / "a.tfrecord", tmp_path / "b.index", checksums=False).manifest.count == 3


def test_names_that_occur_twice_begin_with_their_files_or_are_numbered(tmp_path: Path) -> None:
    paths = [tmp_path / f"a.tfrecord-0000{number}-of-00002" for number in range(2)]
    for path in paths:
        written(path, [imagenet(0), imagenet(1)])
    listing = listed(*paths)
    assert list(listing.names) == [f"{path.name}/n0{number}.JPEG" for path in paths for number in range(2)]
    assert "several files have samples" in listing.notes[0]
    written(paths[0], [imagenet(0), imagenet(0)])
    listing = listed(*paths)
    first, second = (path.name for path in paths)
    assert list(listing.names) == [
        *(f"{first}/n00.JPEG", f"{first}/n00~2.JPEG"),
        *(f"{second}/n00.JPEG", f"{second}/n01.JPEG"),
    ]
    packer.index(paths[0], tmp_path / "a.index")
    assert packer.verify(tmp_path / "a.index") == []


def test_more_features_than_a_pack_has_fields_are_named(tmp_path: Path) -> None:
    image = {"image": bytes_list(photo(0))}
    path = written(tmp_path / "a.tfrecord", [example({**image, **{f"f{n}": int_list(n) for n in range(201)}})])
    with pytest.raises(SourceError, match="there are 202 features, but a pack has at most 200 fields: select features"):
        listed(path)
    assert values(listed(path, keys={"x": "f7"}), "x") == [7]
    path = written(tmp_path / "a.tfrecord", [example({**image, **{f"f{n}": int_list(n) for n in range(5000)}})])
    with pytest.raises(SourceError, match="more than 4,096 different features"):
        listed(path)


def test_a_record_of_too_many_features_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yielded = 0

    def counted(*of: Any) -> Iterator[tuple[bytes, int, int, int]]:
        nonlocal yielded
        for one in feature_lists(*of):
            yielded += 1
            yield one

    monkeypatch.setattr("packer._containers.tfrecord.feature_lists", counted)
    image = {"image": bytes_list(photo(0))}
    many = {f"f{n}": int_list(n) for n in range(20_000)}
    path = written(tmp_path / "a.tfrecord", [example(image), example({**image, **many})])
    with pytest.raises(SourceError, match=r"record 1, at byte \d+: .*more than 4,096 different features.*--key"):
        listed(path)
    assert yielded == 1 + 4097


def test_other_files_are_no_tfrecords(tmp_path: Path) -> None:
    for name, data in [
        ("a.tfrecord", b"no record at all"),
        ("b", b""),
        ("c", gzip.compress(b"x" * 50)),
        ("d", b"\x78"),
    ]:
        (tmp_path / name).write_bytes(data)
        assert find_container([tmp_path / name]) is None
    assert find_container([tmp_path]) is None


def of_feature(path: Path, name: str, *lists: bytes | None) -> Path:
    """Write a file of images, whose records have one more feature; None where it is missing."""
    return written(
        path,
        [
            example({"image": bytes_list(photo(n)), **({} if one is None else {name: one})})
            for n, one in enumerate(lists)
        ],
    )


@pytest.mark.parametrize(
    "name", ["class", "cls", "label", "Label", "labels", "target", "targets", "y", "category", "a/class"]
)
def test_a_label_is_taken_by_its_name(tmp_path: Path, name: str) -> None:
    numbers = of_feature(tmp_path / "a.tfrecord", name, *(int_list(n % 3) for n in range(6)))
    assert listed(numbers).labels.tolist() == [0, 1, 2, 0, 1, 2]
    texts = listed(of_feature(tmp_path / "a.tfrecord", name, *(bytes_list(b"cat" if n else b"dog") for n in (0, 1, 1))))
    assert (texts.labels.tolist(), texts.classes) == ([1, 0, 0], ["cat", "dog"])
    hot = of_feature(tmp_path / "a.tfrecord", name, *(float_list(*np.eye(3)[n]) for n in (2, 0, 1)))
    assert listed(hot).labels.tolist() == [2, 0, 1]
    (item,) = listed(numbers).container.account
    assert (item.line()) == f"taken: 1 feature ({name}): the label"


def test_a_label_that_is_missing_or_an_empty_list_is_none(tmp_path: Path) -> None:
    path = of_feature(tmp_path / "a.tfrecord", "label", int_list(1), int_list(), None, int_list(0))
    assert listed(path).labels.tolist() == [1, -1, -1, 0]
    floats = of_feature(tmp_path / "a.tfrecord", "class", float_list(1.0), float_list(3.0))
    assert (listed(floats).labels.tolist(), listed(floats).label_type) == ([1, 3], "class")
    halves = of_feature(tmp_path / "a.tfrecord", "label", float_list(1.5), float_list(3.0))
    assert (listed(halves).labels.tolist(), listed(halves).label_type) == ([1.5, 3.0], "float")


def test_several_labels_of_a_sample_are_a_field_and_that_is_said(tmp_path: Path) -> None:
    listing = listed(of_feature(tmp_path / "a.tfrecord", "labels", int_list(1, 2), int_list(3)))
    assert [field.name for field in listing.container.fields] == ["labels"]
    (item,) = listing.container.account
    assert item.line() == "taken: 1 feature (labels): a field, because samples have several values"
    assert listing.container.why_unlabeled == "they have several labels each; see the field labels"


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("class_id", [int_list(n) for n in range(6)]),
        ("species", [bytes_list(b"ab"[n % 2 : n % 2 + 1]) for n in range(6)]),
        ("one_hot_class", [float_list(*np.eye(3)[n % 3]) for n in range(6)]),
    ],
)
def test_what_looks_like_labels_is_asked_for(tmp_path: Path, name: str, lists: list[bytes]) -> None:
    path = of_feature(tmp_path / "a.tfrecord", name, *lists)
    with pytest.raises(SourceError, match=rf"feature '{name}' looks like labels.*--key label={name}"):
        packer.index(path, tmp_path / "a.index")
    packer.index(path, tmp_path / "a.index", keys=[f"label={name}"])
    packer.index(path, tmp_path / "a.index", unlabeled=True, overwrite=True)
    assert set(packer.open_dataset(tmp_path / "a.index").targets) == {-1}


def test_a_record_without_an_image_can_be_skipped(tmp_path: Path) -> None:
    records = [example({"image": bytes_list(photo(n)), "class": int_list(n)}) for n in range(4)]
    path = written(tmp_path / "a.tfrecord", [*records[:2], example({"class": int_list(1)}), *records[2:]])
    with pytest.raises(SourceError, match=r"a/00000002: record 2, .*it has no image.*skip"):
        packer.index(path, tmp_path / "a.index")
    packer.index(path, tmp_path / "a.index", on_error="skip")
    assert list(packer.open_dataset(tmp_path / "a.index").targets) == [0, 1, 2, 3]
