"""Parquet files of images, as pyarrow and Hugging Face's datasets write them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import packer
from packer._containers import Listing, find_container, list_samples, parquet
from packer._containers.parquet import ParquetImages
from packer._formats import open_pack
from packer.errors import MissingDependencyError, SourceError
from packer.testing.photos import draw_imagefolder
from tests.containers.samples import images, labels, stored
from tests.pairs import pairwise

FEATURES = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("photos")
    draw_imagefolder(root, classes=2, per_class=6, size=(24, 16))
    return {f"{path.parent.name}-{path.name}": path.read_bytes() for path in sorted(root.rglob("*.jpg"))}


def table(photos: dict[str, bytes], features: dict[str, Any] | None = FEATURES, **columns: pa.Array) -> pa.Table:
    """Return a table as Hugging Face's datasets makes it."""
    rows = [{"bytes": data, "path": f"/somewhere/{name}"} for name, data in photos.items()]
    columns = {"image": pa.array(rows, IMAGE), "label": pa.array([n % 4 - 1 for n in range(len(photos))]), **columns}
    made = pa.table(columns)
    if features is None:
        return made
    return made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def written(path: Path, made: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(made, path, **{"compression": "none", "use_dictionary": False, **options})
    return path


def listed(path: Path, **keys: str) -> Listing:
    return list_samples(ParquetImages.open([path], keys))


def test_images_are_read_in_place_with_names_and_classes(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path / "train.parquet", table(photos), write_page_index=True)
    packer.index(path, tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    packer.convert(path, tmp_path / "a.lmdb")
    assert stored(tmp_path / "a.lmdb") == photos
    with packer.open_dataset(path) as dataset:
        assert dataset.classes == ["cat", "dog", "owl"]
        assert [dataset[index][1] for index in range(5)] == [-1, 0, 1, 2, -1]
    assert list(labels(listed(path)).values())[:5] == [None, "cat", "dog", "owl", None]
    assert "--exif apply" in listed(path).notes[-1]


@pairwise(
    version=["1.0", "2.0"],
    compression=["none", "snappy", "gzip", "brotli", "zstd", "lz4"],
    use_dictionary=[False, True],
)
def test_every_page_that_pyarrow_writes(
    photos: dict[str, bytes], tmp_path: Path, version: str, compression: str, use_dictionary: bool
) -> None:
    options = {"data_page_version": version, "compression": compression, "use_dictionary": use_dictionary}
    path = written(tmp_path / "a.parquet", table(photos), **options, row_group_size=5, data_page_size=1500)
    assert images(listed(path)) == photos
    assert listed(path).labels.tolist() == [number % 4 - 1 for number in range(len(photos))]
    if compression == "none":
        packer.index(path, tmp_path / "a.index")
    else:
        with pytest.raises(SourceError, match=r"a\.parquet, byte \d+: is compressed \(\w+\): convert it"):
            packer.index(path, tmp_path / "a.index")
        if version == "2.0":
            packer.convert(path, tmp_path / "a.lmdb")
            assert stored(tmp_path / "a.lmdb") == photos


def test_images_without_paths_have_the_numbers_of_their_rows(photos: dict[str, bytes], tmp_path: Path) -> None:
    data = list(photos.values())
    required = pa.struct([pa.field("bytes", pa.binary(), False), pa.field("path", pa.string())])
    same = [{"bytes": image, "path": "image.jpg"} for image in data]
    nameless = [{"bytes": image, "path": None} for image in data]
    columns = [pa.array(same, IMAGE), pa.array(nameless, required), pa.array(data)]
    columns += [pa.array(nameless), pa.array([{"bytes": image} for image in data])]  # with types of Arrow's choice
    for number, column in enumerate(columns):
        made = pa.table({"image": column}, pa.schema([pa.field("image", column.type, number != 1)]))
        listing = listed(written(tmp_path / f"{number}.parquet", made))
        assert list(images(listing).values()) == data
        assert list(listing.names)[:2] == [f"{number}/00.jpg", f"{number}/01.jpg"]
        assert (listing.labels == -1).all()


def test_other_columns_become_fields(photos: dict[str, bytes], tmp_path: Path) -> None:
    count = len(photos)
    rows = [{"bytes": data, "path": None} for data in reversed(photos.values())]
    columns = {
        "text": pa.array([None, *(f"photo {number}" for number in range(1, count))]),
        "score": pa.array([float("nan"), *(number / 2 for number in range(1, count))], pa.float32()),
        "kind": pa.array([-1, *([1] * (count - 1))]),
        "width": pa.array([24] * count, pa.uint16()),
        "ids": pa.array([list(range(number)) for number in range(count)]),
        "tags": pa.array([[0, 1]] * count),
        "objects": pa.array([{"bbox": [[1.5, 2, 3, 4]], "n": number} for number in range(count)]),
        "second": pa.array(rows, IMAGE),
        "nothing": pa.nulls(count),
    }
    kinds = {**FEATURES, "kind": FEATURES["label"], "tags": {"_type": "List", "feature": FEATURES["label"]}}
    path = written(tmp_path / "a.parquet", table(photos, kinds, **columns), compression={"text": "snappy"})
    packer.index(path, tmp_path / "a.index")
    with open_pack(tmp_path / "a.index") as reader:
        fields = reader.fields
        assert {name: field.kind for name, field in fields.items()} == {
            "second": "image", "text": "text", "score": "scalar", "kind": "class", "width_": "scalar",
            "ids": "array", "tags": "labels", "objects": "json",
        }  # fmt: skip
        assert fields["kind"].classes == fields["tags"].classes == ("cat", "dog", "owl")
        decoded = {name: [field.decode(reader.value(row, name)) for row in (0, 3)] for name, field in fields.items()}
        assert decoded["text"] == [None, "photo 3"]
        assert decoded["score"] == [None, 1.5]
        assert decoded["width_"] == [24, 24]
        assert [ids.tolist() for ids in decoded["ids"]] == [[], [0, 1, 2]]
        assert decoded["objects"][1] == {"bbox": [[1.5, 2, 3, 4]], "n": 3}
        assert bytes(reader.value(3, "second")) == rows[3]["bytes"]
    chosen = listed(path, **{"image": "second", "label": "kind", "caption:text": "text"})
    assert list(images(chosen).values()) == [row["bytes"] for row in rows]
    assert [field.name for field in chosen.container.fields] == ["caption"]
    assert (chosen.ranges["caption"].size[:2] == [-1, 7]).all()
    (left,) = (item for item in chosen.container.account if item.fate == "left out")
    assert "objects" in left.names
    assert left.chosen
    with pytest.raises(SourceError, match="has no column no"):
        listed(path, label="no")


def test_columns_with_a_dictionary_are_read_as_those_without(photos: dict[str, bytes], tmp_path: Path) -> None:
    plain = pa.array(["dog", None, "cat"] * 4)
    found = []
    for name, column in (("plain", plain), ("dictionary", plain.dictionary_encode())):
        listing = listed(written(tmp_path / f"{name}.parquet", table(photos, None, label=column, other=column)))
        found.append((listing.labels.tolist(), listing.classes, listing.label_type, listing.container.fields))
    assert found[0] == found[1]
    assert len(set(found[0][0])) == 3


@pytest.mark.parametrize("row", [{"bytes": None, "path": "/there/a.jpg"}, None])
def test_images_that_are_not_in_the_file_are_named(photos: dict[str, bytes], tmp_path: Path, row: Any) -> None:
    rows = [*({"bytes": data, "path": name} for name, data in photos.items()), row]
    path = written(tmp_path / "a.parquet", pa.table({"image": pa.array(rows, IMAGE)}))
    with pytest.raises(
        SourceError, match=rf"a\.parquet: .*row {len(photos)}: the file does not contain its image.*on_error='skip'"
    ):
        listed(path)


def test_shards_of_a_directory_are_one_set_and_splits_are_not(photos: dict[str, bytes], tmp_path: Path) -> None:
    halves = [dict(list(photos.items())[half::2]) for half in (0, 1)]
    for number, half in enumerate(halves):
        written(tmp_path / "hub" / "data" / f"train-{number:05d}-of-00002.parquet", table(half))
    (tmp_path / "hub" / "README.md").write_text("about")
    packer.index(tmp_path / "hub", tmp_path / "a.index")
    assert stored(tmp_path / "a.index") == photos
    packer.index(tmp_path / "hub" / "data" / "train-*.parquet", tmp_path / "b.index")
    assert stored(tmp_path / "b.index") == photos
    shutil.copy(tmp_path / "hub/data/train-00000-of-00002.parquet", tmp_path / "hub/data/test-00000-of-00001.parquet")
    with pytest.raises(SourceError, match="several splits"):
        packer.index(tmp_path / "hub", tmp_path / "c.index")


def test_tables_without_images_are_no_containers(tmp_path: Path) -> None:
    path = written(tmp_path / "tree" / "table.parquet", pa.table({"file_name": ["a.jpg"], "label": [1]}))
    assert find_container([path.parent]) is None
    with pytest.raises(SourceError, match="has no image column: name one with --key"):
        listed(path)
    path.rename(path.with_name("metadata.parquet"))
    assert find_container([path.parent]) is None


def test_files_of_one_set_that_have_other_columns_are_named(photos: dict[str, bytes], tmp_path: Path) -> None:
    first = written(tmp_path / "1.parquet", table(photos))
    for number, other in enumerate((table(photos).drop_columns(["image"]), table(photos).drop_columns(["label"])), 2):
        second = written(tmp_path / f"{number}.parquet", other)
        with pytest.raises(SourceError, match=rf"{number}\.parquet"):
            list_samples(ParquetImages.open([first, second], {}))


@pytest.mark.parametrize(("cut", "message"), [(5, "cut short"), (-20, "cut short"), (1000, "cut short")])
def test_files_that_were_cut_short_are_named(photos: dict[str, bytes], tmp_path: Path, cut: int, message: str) -> None:
    path = written(tmp_path / "a.parquet", table(photos))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(SourceError, match=rf"a\.parquet: .*{message}"):
        listed(path)


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_that_does_not_fit_its_checksum_is_damaged(
    photos: dict[str, bytes], tmp_path: Path, compression: str, version: str
) -> None:
    options = {"compression": compression, "data_page_version": version, "write_page_checksum": True}
    path = written(tmp_path / "a.parquet", table(photos), **options)
    packer.convert(path, tmp_path / "a.lmdb")
    assert stored(tmp_path / "a.lmdb") == photos
    changed = bytearray(path.read_bytes())
    changed[changed.index(list(photos.values())[3][-40:-20])] ^= 1
    path.write_bytes(changed)
    with pytest.raises(SourceError, match=r"byte \d+: damaged: a page of [\d,]+ bytes does not match its checksum"):
        packer.convert(path, tmp_path / "b.lmdb")


def test_pages_with_other_encodings_are_refused(photos: dict[str, bytes], tmp_path: Path) -> None:
    encoding = {"image.bytes": "DELTA_LENGTH_BYTE_ARRAY"}
    path = written(tmp_path / "a.parquet", table(photos), column_encoding=encoding)
    with pytest.raises(SourceError, match=r"a\.parquet, byte \d+: .*encoding 6: write the file again"):
        listed(path)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64()])
def test_a_column_names_the_images(photos: dict[str, bytes], tmp_path: Path, kind: pa.DataType) -> None:
    numbers = list(range(len(photos)))
    path = written(tmp_path / "a.parquet", table(photos, id=pa.array(numbers).cast(kind)))
    listing = listed(path, name="id")
    assert list(listing.names) == [f"{number}.jpg" for number in numbers]
    assert (listing.labels == -1).all()  # no key names the labels
    twice = written(tmp_path / "b.parquet", table(photos, id=pa.array([None] * len(photos), kind)))
    with pytest.raises(SourceError, match=r"b\.parquet: .*row 0: None is not a valid name"):
        listed(twice, name="id")


def test_images_alone_need_no_pyarrow_and_labels_do(
    photos: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = written(tmp_path / "a.parquet", table(photos).select(["image"]))
    beside = written(tmp_path / "b.parquet", table(photos))
    packed = written(tmp_path / "c.parquet", table(photos).select(["image"]), compression="snappy")
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    assert images(listed(alone)) == photos
    for path in (beside, packed):
        with pytest.raises(MissingDependencyError, match=r"pip install 'packer-images\[parquet\]'"):
            listed(path)


def test_a_dictionary_of_far_more_values_than_rows_is_refused(
    photos: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = list(photos.values())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([*data, *(b"%d" % n for n in range(40))]))
    pq.write_table(pa.table({"image": column}), tmp_path / "x.parquet")
    assert len(listed(tmp_path / "x.parquet")) == 2
    monkeypatch.setattr(parquet, "_MOST_VALUES", 20)
    with pytest.raises(SourceError, match="values for 2 rows"):
        listed(tmp_path / "x.parquet")


def rows_of(photos: dict[str, bytes], **columns: pa.Array) -> pa.Table:
    """Return a table as other tools make it: bytes in a column, and no metadata."""
    return pa.table({"image": pa.array([*photos.values()][:4], pa.binary()), **columns})


def in_both(tmp_path: Path, made: pa.Table) -> list[Path]:
    """Write a table as Parquet and as Arrow."""
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), made.schema) as file:
        file.write_table(made)
    return [written(tmp_path / "a.parquet", made), tmp_path / "a.arrow"]


@pytest.mark.parametrize(
    ("name", "column", "targets", "classes"),
    [
        *((name, pa.array([0, 1, None, 1]), [0, 1, -1, 1], 2) for name in ("label", "target", "Class", "y")),
        ("label", pa.array([0.0, 1.0, None, 1.0]), [0, 1, -1, 1], 2),
        ("label", pa.array([0.0, 1.0, float("nan"), 1.0]), [0, 1, -1, 1], 2),
        ("label", pa.array([0.0, 1.0, None, 1.0], pa.float32()), [0, 1, -1, 1], 2),
        ("label", pa.array(["cat", None, " ", "dog"]), [0, -1, -1, 1], 2),
        ("label", pa.array(["cat", None, "dog", "dog"]).dictionary_encode(), [0, -1, 1, 1], 2),
        ("label", pa.array([0.5, 1.5, 2.0, 3.0]), [0.5, 1.5, 2.0, 3.0], 0),
        ("label", pa.array([0.0, 1.0, 2.0, 3.0]), [0.0, 1.0, 2.0, 3.0], 0),
    ],
)
def test_labels_with_gaps_are_unlabeled_and_said(  # noqa: PLR0917
    photos: dict[str, bytes], tmp_path: Path, name: str, column: pa.Array, targets: list[float], classes: int
) -> None:
    for path in in_both(tmp_path, rows_of(photos, **{name: column})):
        made = tmp_path / f"{path.suffix[1:]}.lmdb"
        summary = packer.convert(path, made)
        dataset = packer.open_dataset(made)
        assert dataset.targets.tolist() == targets
        assert len(dataset.classes) == classes
        missing = targets.count(-1)
        assert any(note.startswith(f"unlabeled: {missing} image") for note in summary.notes) == bool(missing)


@pytest.mark.parametrize(
    ("columns", "features", "named"),
    [
        ({"fine": pa.array([0, 1, 2, 0]), "coarse": pa.array([0, 0, 1, 1])}, ("fine", "coarse"), "'fine'.*'coarse'"),
        ({"class_id": pa.array([0, 1, 2, 0])}, (), "'class_id'"),
        ({"target": pa.array([0, 1, 2, 0]), "category": pa.array(["a", "b", "c", "a"])}, (), "'target'.*'category'"),
        ({"label": pa.array([[0], [1], [2], [0]])}, (), r"'label' \(has values of list"),
    ],
)
def test_columns_that_look_like_labels_are_never_passed_over(
    photos: dict[str, bytes], tmp_path: Path, columns: dict[str, pa.Array], features: tuple[str, ...], named: str
) -> None:
    made = rows_of(photos, **columns)
    if features:
        said = {"image": {"_type": "Image"}, **dict.fromkeys(features, FEATURES["label"])}
        made = made.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": said}})})
    for path in in_both(tmp_path, made):
        with pytest.raises(SourceError, match=rf"all 4 images would be .*column {named}.*looks? like labels"):
            packer.convert(path, tmp_path / f"{path.name}.lmdb")
        packer.convert(path, tmp_path / f"{path.name}.lmdb", unlabeled=True)
        assert set(packer.open_dataset(tmp_path / f"{path.name}.lmdb").targets) == {-1}


def test_a_null_image_is_skipped_on_wish(photos: dict[str, bytes], tmp_path: Path) -> None:
    images = pa.array([*[*photos.values()][:3], None], pa.binary())
    for path in in_both(tmp_path, pa.table({"image": images, "label": pa.array([0, 1, 0, 1])})):
        with pytest.raises(SourceError, match=r"row 3: the file does not contain its image.*on_error='skip'"):
            packer.convert(path, tmp_path / f"{path.name}.lmdb")
        summary = packer.convert(path, tmp_path / f"{path.name}.lmdb", on_error="skip")
        assert summary.manifest.count == 3
        assert len(summary.manifest.skipped) == 1


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.float32(), pa.list_(pa.int32()), pa.binary()])
def test_columns_that_are_null_throughout_are_no_damage(
    photos: dict[str, bytes], tmp_path: Path, kind: pa.DataType
) -> None:
    rows = [{"bytes": data, "path": None} for data in [*photos.values()][:4]]
    made = pa.table({"image": pa.array(rows, IMAGE), "label": pa.array([0, 1, 0, 1]), "more": pa.nulls(4, kind)})
    for path in in_both(tmp_path, made):
        assert list_samples(_opened(path)).labels.tolist() == [0, 1, 0, 1]


def _opened(path: Path) -> Any:
    found = find_container([path])
    assert found is not None
    return found[0].open(found[1], {})


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        (["dog", "cat"], ["cat", "dog"], ["dog", "dog", "cat", -1]),
        (["dog", "cat"], ["owl", "cat", "dog"], ["dog", "dog", "cat", -1]),
        (["dog", "cat", "owl"], ["cat", "dog"], ["dog", "dog", "cat", -1]),
        (["dog", "cat"], ["0", "1"], ["0", "0", "1", -1]),
        (["0", "1"], ["cat", "dog"], ["cat", "cat", "dog", -1]),
    ],
)
def test_given_classes_hold_by_their_names(
    photos: dict[str, bytes], tmp_path: Path, own: list[str], given: list[str], expected: list[Any]
) -> None:
    features = {"image": FEATURES["image"], "label": {"names": own, "_type": "ClassLabel"}}
    some = dict(list(photos.items())[:4])
    path = written(tmp_path / "val.parquet", table(some, features, label=pa.array([0, 0, 1, -1])))
    train = tmp_path / "train.lmdb"
    packer.pack(({"image": data} for data in some.values()), train, classes=given)
    packer.convert(path, tmp_path / "val.lmdb", classes_from=train)
    with packer.open_dataset(tmp_path / "val.lmdb") as dataset:
        assert dataset.classes == given
        assert [-1 if label < 0 else dataset.classes[label] for label in dataset.targets.tolist()] == expected


def test_classes_that_the_given_ones_lack_are_refused(photos: dict[str, bytes], tmp_path: Path) -> None:
    path = written(tmp_path / "val.parquet", table(photos))
    train = tmp_path / "train.lmdb"
    packer.pack(({"image": data} for data in photos.values()), train, classes=["bird", "cat", "dog"])
    with pytest.raises(SourceError, match="classes that are not in the given class list: owl"):
        packer.convert(path, tmp_path / "val.lmdb", classes_from=train)


@pytest.mark.parametrize("first", [None, b""])
def test_a_column_of_images_may_begin_with_rows_that_have_none(
    photos: dict[str, bytes], tmp_path: Path, first: bytes | None
) -> None:
    rows = pa.table({"image": pa.array([first, *photos.values()], pa.binary()), "label": [0] + [1] * len(photos)})
    for path in (written(tmp_path / "a.parquet", rows), tmp_path / "a.arrow"):
        if path.suffix == ".arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
        packer.convert(path, path.with_suffix(".lmdb"), on_error="skip", overwrite=True)
        assert list(packer.open_dataset(path.with_suffix(".lmdb")).targets) == [1] * len(photos)
