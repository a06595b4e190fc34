"""Arrow files of images: streams and files, as pyarrow and Hugging Face's datasets write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import packer
from packer._containers import Listing, list_samples
from packer._containers.arrow import ArrowBatch, ArrowFile, ArrowImages, Buffered
from packer._formats import open_pack
from packer._storage.packfile import PackFile
from packer.errors import SourceError
from packer.testing.photos import draw_imagefolder
from tests.containers.records import photo
from tests.containers.samples import images, labels, stored
from tests.containers.test_parquet import FEATURES, IMAGE, table
from tests.pairs import pairwise


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("photos")
    draw_imagefolder(root, classes=2, per_class=6, size=(24, 16))
    return {f"{path.parent.name}-{path.name}": path.read_bytes() for path in sorted(root.rglob("*.jpg"))}


def written(path: Path, made: pa.Table, *, file: bool = False, rows: int = 5, compression: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = pa.ipc.new_file if file else pa.ipc.new_stream
    with writer(str(path), made.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(made, max_chunksize=rows)
    return path


def saved(directory: Path, tables: list[pa.Table], **state: Any) -> Path:
    """Write a directory as `Dataset.save_to_disk` does."""
    names = [f"data-{number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, made in zip(names, tables, strict=True):
        written(directory / name, made)
    listed = [{"filename": name} for name in names]
    (directory / "state.json").write_text(json.dumps({"_data_files": listed, **state}))
    (directory / "dataset_info.json").write_text(json.dumps({"features": FEATURES}))
    return directory


def listed(path: Path, **keys: str) -> Listing:
    return list_samples(ArrowImages.open([path], keys))


@pytest.mark.parametrize("file", [False, True])
def test_images_are_read_in_place_with_names_and_classes(photos: dict[str, bytes], tmp_path: Path, file: bool) -> None:
    path = written(tmp_path / "a.arrow", table(photos), file=file)
    packer.index(path, tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    assert list(labels(listed(path)).values())[:5] == [None, "cat", "dog", "owl", None]
    with packer.open_dataset(path) as dataset:
        assert dataset.classes == ["cat", "dog", "owl"]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_bodies_are_converted_and_not_indexed(
    photos: dict[str, bytes], tmp_path: Path, compression: str
) -> None:
    path = written(tmp_path / "a.arrow", table(photos), compression=compression)
    assert images(listed(path)) == photos
    with pytest.raises(SourceError, match=rf"a\.arrow, byte \d+: is compressed \({compression}\): convert it"):
        packer.index(path, tmp_path / "a.index")
    packer.convert(path, tmp_path / "a.lmdb")
    assert stored(tmp_path / "a.lmdb") == photos


def test_other_columns_become_fields_whatever_lies_between_them(photos: dict[str, bytes], tmp_path: Path) -> None:
    count = len(photos)
    data = list(photos.values())
    columns = {
        "nested": pa.array([{"a": [[number]], "b": None} for number in range(count)]),
        "empty": pa.nulls(count),
        "text": pa.array([None, *("é" * number for number in range(1, count))]),
        "flag": pa.array([number % 3 == 0 for number in range(count)]),
        "when": pa.array([0] * count, pa.timestamp("s")),
        "pair": pa.array([[number, 1] for number in range(count)], pa.list_(pa.float32(), 2)),
        "second": pa.array([None, *data[1:]], pa.large_binary()),
    }
    features = {**FEATURES, "second": {"_type": "Image"}}
    made = table(photos, features, **columns).select([*reversed(columns), "image", "label"])
    path = written(tmp_path / "a.arrow", made)
    packer.index(path, tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    with open_pack(tmp_path / "a.index") as reader:
        values = {
            name: [field.decode(reader.value(row, name)) for row in (0, 7)] for name, field in reader.fields.items()
        }
    pairs = [pair.tolist() for pair in values.pop("pair")]
    assert pairs == [[0, 1], [7, 1]]
    assert values.pop("second") == [None, data[7]]
    assert values == {
        "nested": [{"a": [[0]], "b": None}, {"a": [[7]], "b": None}],
        "text": [None, "é" * 7],
        "flag": [True, False],
        "when": ["1970-01-01 00:00:00"] * 2,
    }


def test_paths_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    image = pa.StructArray.from_arrays([pa.array([b"x"]), pa.array([7])], names=["bytes", "path"])
    path = written(tmp_path / "a.arrow", pa.table({"image": image}))
    with pytest.raises(SourceError, match=r"a.arrow.*the paths of the column 'image' are int64, not texts"):
        packer.index(path, tmp_path / "a.index")


def test_a_saved_dataset_is_read_in_the_order_of_its_files(photos: dict[str, bytes], tmp_path: Path) -> None:
    halves = [dict(list(photos.items())[half::2]) for half in (0, 1)]
    directory = saved(tmp_path / "set", [table(half, None) for half in halves])
    (directory / "cache-1.arrow").write_bytes(b"?")
    packer.index(directory, tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    with open_pack(tmp_path / "a.index") as reader:
        assert list(reader.names) == [*halves[0], *halves[1]]
        assert reader.manifest.classes == ["cat", "dog", "owl"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_indices_data_files": [{"filename": "indices.arrow"}]}, "flatten_indices"),
        ({"_data_files": [{"filename": "../data.arrow"}]}, "does not list the data files"),
        ({"_data_files": 5}, "does not list the data files"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "gone.arrow"),
    ],
)
def test_states_that_lead_elsewhere_are_refused(
    photos: dict[str, bytes], tmp_path: Path, state: dict[str, Any], message: str
) -> None:
    directory = saved(tmp_path / "set", [table(photos)], **state)
    with pytest.raises((SourceError, packer.PackError), match=message):
        packer.index(directory, tmp_path / "a.index")


def test_several_splits_are_refused(photos: dict[str, bytes], tmp_path: Path) -> None:
    saved(tmp_path / "set" / "train", [table(photos)])
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(SourceError, match="has several splits: train, test"):
        packer.index(tmp_path / "set", tmp_path / "a.index")


def test_images_that_are_not_in_the_file_are_named(photos: dict[str, bytes], tmp_path: Path) -> None:
    rows = [*({"bytes": data, "path": name} for name, data in photos.items()), {"bytes": None, "path": "a.jpg"}]
    path = written(tmp_path / "a.arrow", pa.table({"image": pa.array(rows, IMAGE)}))
    with pytest.raises(
        SourceError, match=rf"a\.arrow: .*row {len(photos)}: the file does not contain its image.*on_error='skip'"
    ):
        listed(path)


@pytest.mark.parametrize("file", [False, True])
def test_files_that_were_cut_short_are_named(photos: dict[str, bytes], tmp_path: Path, file: bool) -> None:
    data = written(tmp_path / "a.arrow", table(photos), file=file).read_bytes()
    for cut in (5, 100, len(data) // 2, len(data) - 8, len(data) - 1):
        (tmp_path / "a.arrow").write_bytes(data[:cut])
        with pytest.raises(SourceError, match=r"a\.arrow.*: .*(cut short|does not begin)"):
            listed(tmp_path / "a.arrow")


@pytest.mark.parametrize("kind", [pa.binary(1 << 30), pa.int64()])
def test_missing_values_that_the_file_has_no_bytes_of_take_little_memory(tmp_path: Path, kind: pa.DataType) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(bytes(1 << 22))
    with PackFile(path) as file:
        reader = ArrowFile(file)
        reader.schema = pa.schema([pa.field(f"column {number}", kind) for number in range(8)])
        rows = 8 if pa.types.is_fixed_size_binary(kind) else file.size
        batch = ArrowBatch(rows, [(rows, rows)] * 8, [Buffered(0, 0)] * 16, "")
        with pytest.raises(SourceError, match="missing values would take"):
            next(reader.rows(batch, [f"column {number}" for number in range(8)]))


def batches_of(*columns: pa.Array, **others: pa.Array) -> list[pa.RecordBatch]:
    """Return a batch for each of these columns of labels."""
    return [
        pa.record_batch({"image": pa.array([photo(1)] * len(column), pa.binary()), "label": column, **others})
        for column in columns
    ]


def written_batches(path: Path, made: list[pa.RecordBatch], *, file: bool = False, **options: Any) -> Path:
    writer = pa.ipc.new_file if file else pa.ipc.new_stream
    with writer(str(path), made[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        for batch in made:
            stream.write_batch(batch)
    return path


def column(path: Path, name: str, *, file: bool = False) -> list[Any]:
    """Return the values of a column as pyarrow reads them."""
    with pa.OSFile(str(path)) as opened:
        return list((pa.ipc.open_file if file else pa.ipc.open_stream)(opened).read_all()[name].to_pylist())


def dictionaried(numbers: list[int | None], values: pa.Array, kind: pa.DataType | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(numbers, kind or pa.int8()), values, safe=False)


TEXTS = ["owl", "cat", "dog"]


@pairwise(
    values=[pa.array(TEXTS), pa.array(TEXTS, pa.large_string()), pa.array([7, 2, 5])],
    of_numbers=[pa.int8(), pa.uint16(), pa.int64()],
    compression=[None, "zstd"],
    file=[False, True],
)
def test_labels_that_are_categories_are_those_of_a_plain_column(
    tmp_path: Path, file: bool, compression: str | None, of_numbers: pa.DataType, values: pa.Array
) -> None:
    numbers = [0, 2, None, 1, 2]
    made = batches_of(dictionaried(numbers, values, of_numbers))[0]
    parts = [made.slice(0, 2), made.slice(2)]
    path = written_batches(tmp_path / "a.arrow", parts, file=file, compression=compression)
    plain = batches_of(pa.array([None if one is None else values[one].as_py() for one in numbers]))
    packer.convert(path, tmp_path / "a.lmdb")
    packer.convert(written_batches(tmp_path / "b.arrow", plain), tmp_path / "b.lmdb")
    with packer.open_dataset(tmp_path / "a.lmdb") as one, packer.open_dataset(tmp_path / "b.lmdb") as other:
        assert (one.targets.tolist(), one.classes) == (other.targets.tolist(), other.classes)
        texts = [None if target < 0 else one.classes[target] for target in one.targets]
    assert texts == [None if value is None else str(value) for value in column(path, "label", file=file)]


@pytest.mark.parametrize(
    ("file", "options"),
    [(False, {}), (False, {"emit_dictionary_deltas": True}), (True, {"emit_dictionary_deltas": True})],
)
def test_dictionaries_that_grow_and_that_are_replaced(tmp_path: Path, file: bool, options: dict[str, bool]) -> None:
    made = [
        dictionaried([0, 1], pa.array(TEXTS[:2])),
        dictionaried([2, 1, 0], pa.array(TEXTS)),
        dictionaried([3, 3], pa.array([*TEXTS, "yak"])),
        dictionaried([0, 1], pa.array(["yak", "ant"])),
    ]
    path = written_batches(tmp_path / "a.arrow", batches_of(*made[: 3 if file else 4]), file=file, **options)
    assert list(labels(listed(path)).values()) == column(path, "label", file=file)


def test_dictionaries_in_other_columns_become_fields(tmp_path: Path) -> None:
    texts = dictionaried([1, None, 0], pa.array(["a", "b"]))
    others = {
        "text": texts,
        "number": dictionaried([1, None, 0], pa.array([10, 20])),
        "listed": pa.ListArray.from_arrays(pa.array([0, 2, 2, 3], pa.int32()), texts),
        "nested": pa.StructArray.from_arrays([pa.array([1, 2, 3]), texts], ["before", "text"]),
        "structures": dictionaried([1, 0, 1], pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}])),
    }
    labels_behind = dictionaried([0, 2, 1], pa.array(TEXTS))
    made = pa.table(others | {"image": pa.array([photo(1)] * 3, pa.binary()), "label": labels_behind})
    path = written(tmp_path / "a.arrow", made)
    packer.index(path, tmp_path / "a.index")
    with open_pack(tmp_path / "a.index") as reader:
        assert [reader.manifest.classes[label] for label in reader.table.label] == column(path, "label")
        for name, field in reader.fields.items():
            assert [field.decode(reader.value(row, name)) for row in range(3)] == column(path, name)
        assert sorted(reader.fields) == sorted(others)


def test_a_column_without_a_value_needs_no_dictionary(tmp_path: Path) -> None:
    made = batches_of(dictionaried([None, None], pa.array(TEXTS)), dictionaried([0, None], pa.array(TEXTS)))
    first, *others = messages(written_batches(tmp_path / "a.arrow", made))
    (tmp_path / "a.arrow").write_bytes(b"".join([first, others[1], others[0], others[2], END]))
    assert list(labels(listed(tmp_path / "a.arrow")).values()) == [None, None, "owl", None]


END = b"\xff\xff\xff\xff" + bytes(4)


def messages(path: Path) -> list[bytes]:
    """Return the messages of a stream as bytes: the schema, dictionaries and record batches."""
    with pa.OSFile(str(path)) as file:
        return [message.serialize().to_pybytes() for message in pa.ipc.MessageReader.open_stream(file)]


@pytest.mark.parametrize(
    ("label", "kept", "message"),
    [
        (dictionaried([0, 3], pa.array(TEXTS)), [0, 1, 2], "damaged"),
        (dictionaried([0, -1], pa.array(TEXTS)), [0, 1, 2], "damaged"),
        (dictionaried([0, 1], pa.array(TEXTS)), [0, 2], "it has no dictionary 0, which a column refers to"),
        (dictionaried([0, 1], pa.array(TEXTS)), [0, 2, 1], "it has no dictionary 0, which a column refers to"),
    ],
)
def test_numbers_of_no_value_in_a_dictionary_are_damage(
    tmp_path: Path, label: pa.Array, kept: list[int], message: str
) -> None:
    path = written_batches(tmp_path / "a.arrow", batches_of(label))
    parts = messages(path)
    path.write_bytes(b"".join([*(parts[number] for number in kept), END]))
    with pytest.raises(SourceError, match=rf"a\.arrow.*: .*{message}"):
        packer.index(path, tmp_path / "a.index")


def test_more_values_of_no_dictionary_are_damage(tmp_path: Path) -> None:
    grown = batches_of(dictionaried([0], pa.array(TEXTS[:1])), dictionaried([1], pa.array(TEXTS[:2])))
    path = written_batches(tmp_path / "a.arrow", grown, emit_dictionary_deltas=True)
    schema, _, _, delta, last = messages(path)
    path.write_bytes(b"".join([schema, delta, last, END]))
    with pytest.raises(SourceError, match=r"a\.arrow, byte \d+: damaged: values are added to dictionary 0, which"):
        packer.index(path, tmp_path / "a.index")


def test_a_dictionary_in_a_dictionary_is_named(tmp_path: Path) -> None:
    inner = pa.StructArray.from_arrays([dictionaried([1, 0], pa.array(TEXTS))], ["a"])
    path = written_batches(tmp_path / "a.arrow", batches_of(pa.array([0, 1]), nested=dictionaried([0, 1], inner)))
    with pytest.raises(SourceError, match=r"a\.arrow: packer does not read columns of dictionary<.*with --key"):
        packer.index(path, tmp_path / "a.index")
    packer.index(path, tmp_path / "a.index", keys={"image": "image", "label": "label"})


def test_paths_may_be_in_a_dictionary(photos: dict[str, bytes], tmp_path: Path) -> None:
    names = list(photos)
    paths = dictionaried([*reversed(range(len(names)))], pa.array(names))
    image = pa.StructArray.from_arrays([paths, pa.array([*reversed(photos.values())])], ["path", "bytes"])
    path = written(tmp_path / "a.arrow", pa.table({"image": image}))
    packer.index(path, tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos


def test_long_texts_of_a_dictionary_are_bounded_by_what_they_become(tmp_path: Path) -> None:
    """A dictionary may have more bytes than a row is allowed, as long as no row refers to too many of them."""
    few = [*("x" * (1 << 20) for _ in range(70)), "cat"]
    label = dictionaried([0, 70], pa.array(["cat", *few[1:]]))
    path = written_batches(tmp_path / "a.arrow", batches_of(label))
    assert list(labels(listed(path)).values()) == ["cat", "cat"]
    path = written_batches(tmp_path / "a.arrow", batches_of(dictionaried([0], pa.array(["x" * (65 << 20)]))))
    with pytest.raises(SourceError, match=r"row 0: it has [0-9,]+ values and bytes"):
        listed(path)
