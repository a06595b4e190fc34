"""Arrow files of images: streams and files, as pyarrow writes them and as datasets keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import packer
from packer._containers import Listing, list_samples
from packer._containers.columnar.arrow import ArrowImages
from packer._containers.columnar.arrowbatches import Batches
from packer._containers.columnar.arrowmessages import Batch, Buffered
from packer._formats import open_pack
from packer._storage.packfile import PackFile
from packer.errors import SourceError
from packer.testing.photos import draw_imagefolder
from tests.containers.reading import images, labels, stored
from tests.containers.records import photo
from tests.containers.test_parquet import FEATURES, IMAGE, table


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
    """Write what save_to_disk writes."""
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
    with pytest.raises(SourceError, match=r"a.arrow.*the paths of the column 'image' are int64, and no texts"):
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
        ({"_data_files": [{"filename": "../data.arrow"}]}, "does not say which files"),
        ({"_data_files": 5}, "does not say which files"),
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
    with pytest.raises(SourceError, match=rf"a\.arrow: .*row {len(photos)}: its image is not in.*--on-error skip"):
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
        reader = Batches(file, 0, pa.schema([pa.field(f"column {number}", kind) for number in range(8)]))
        rows = 8 if pa.types.is_fixed_size_binary(kind) else file.size
        batch = Batch(rows, [(rows, rows)] * 8, [Buffered(0, 0)] * 16, "")
        with pytest.raises(SourceError, match="missing values would take"):
            next(reader.rows(batch, [f"column {number}" for number in range(8)]))


def test_columns_of_a_dictionary_are_no_damage(tmp_path: Path) -> None:
    labels = pa.array(["cat", "dog"]).dictionary_encode()
    one = pa.table({"image": pa.array([photo(1)] * 2, pa.binary()), "label": labels})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, one.schema) as writer:
        writer.write_table(one)
    with pytest.raises(SourceError, match=r"a\.arrow: packer does not read columns of dictionary.*as Parquet"):
        packer.index(tmp_path / "a.arrow", tmp_path / "a.index")
