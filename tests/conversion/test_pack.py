"""`packer.pack` packs samples of a program: images, labels, names and fields, also after an interruption."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer._packs.verify import verify
from packer.errors import ImageError
from tests.samples import SUFFIXES, content

FIELDS = {
    "mask": "mask",
    "caption": "text",
    "age": "float32",
    "boxes": "boxes",
    "embedding": "array:float16:1",
    "kind": "class",
}


def jpeg(seed: int) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def drawn(count: int, stop: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield samples; an error takes the place of sample `stop`."""
    for index in range(count):
        if index == stop:
            raise RuntimeError("the program stopped")
        yield {
            "image": jpeg(index),
            "label": index % 3,
            "mask": np.full((9, 12), index % 256, np.uint8),
            "caption": f"Bild {index} ä",
            "age": index / 2 if index % 4 else None,
            "boxes": [[1, 2, 3, 4]] * (index % 3),
            "embedding": np.arange(index % 5, dtype=np.float16),
            "kind": index % 7,
        }


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_everything_that_was_given_comes_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pack{suffix}"
    summary = packer.pack(drawn(50), path, fields=FIELDS, classes=["a", "b", "c"])
    assert (summary.manifest.count, summary.manifest.schema) == (50, 2)
    assert verify(path) == []
    with packer.open_pack(path) as reader:
        for index, sample in enumerate(drawn(50)):
            assert bytes(reader.read(index)) == sample["image"]
            assert reader.names[index] == f"{index:08d}.jpg"
            assert reader.table.label[index] == sample["label"]
            values = {name: field.decode(reader.value(index, name)) for name, field in reader.fields.items()}
            assert {name: values[name] for name in ("caption", "age", "kind")} == {
                name: sample[name] for name in ("caption", "age", "kind")
            }
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(values["mask"]))), sample["mask"])
            assert np.array_equal(values["boxes"], np.reshape(sample["boxes"], (-1, 4)))
            assert np.array_equal(values["embedding"], sample["embedding"])


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_an_interrupted_pack_continues_and_has_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    whole, path = tmp_path / f"whole{suffix}", tmp_path / f"pack{suffix}"
    packer.pack(drawn(200), whole, fields=FIELDS, classes=["a", "b", "c"])
    for stop in (150, 151, 199):
        with pytest.raises(RuntimeError, match="the program stopped"):
            packer.pack(drawn(200, stop), path, fields=FIELDS, classes=["a", "b", "c"])
        assert not path.exists()
    summary = packer.pack(drawn(200), path, fields=FIELDS, classes=["a", "b", "c"])
    assert summary.continued > 100
    assert content(path) == content(whole)


def test_other_samples_than_before_are_refused(tmp_path: Path) -> None:
    def packed(samples: Any, **arguments: Any) -> None:
        packer.pack(samples, tmp_path / "pack.lmdb", fields=FIELDS, classes=["a", "b", "c"], **arguments)

    with pytest.raises(RuntimeError):
        packed(drawn(400, 300))
    changed = [{**sample, "caption": "another"} if index == 7 else sample for index, sample in enumerate(drawn(400))]
    with pytest.raises(packer.ResumeError, match=r"sample 7 \(00000007.jpg\) is not the sample that .* fresh=True"):
        packed(changed)
    with pytest.raises(packer.ResumeError, match="fewer samples"):
        packed(drawn(20))
    with pytest.raises(packer.ResumeError, match="started differently"):
        packer.pack(drawn(400), tmp_path / "pack.lmdb", fields=FIELDS, classes=["a", "b", "d"])
    packed(changed, fresh=True)


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        ({"label": 1}, "'image': NoneType is not an image"),
        ({"image": b"no image"}, "00000003: not an image that Pillow can read"),
        ({"image": jpeg(0), "captoin": "x"}, "sample 3: unknown field 'captoin'"),
        ({"image": jpeg(0), "label": 3}, "its label: 3 is not an id of the 3 classes"),
        ({"image": jpeg(0), "label": "d"}, "its label 'd' is not one of the classes"),
        ({"image": jpeg(0), "age": float("nan")}, "field 'age': NaN is not a number"),
        ({"image": jpeg(0), "caption": b"x"}, "field 'caption': b'x' is not text"),
        ({"image": jpeg(0), "boxes": [[4, 4, 3, 9]]}, "field 'boxes': a box ends before it begins"),
        ({"image": jpeg(0), "name": "../x.jpg"}, "sample 3: the name '../x.jpg'"),
        ({"image": jpeg(0), "name": "00000001.jpg"}, "00000001.jpg: two samples have this name"),
        ({"image": "nowhere.jpg"}, "nowhere.jpg cannot be read: No such file"),
    ],
)
def test_what_cannot_be_packed_is_refused_in_words(tmp_path: Path, sample: dict[str, Any], problem: str) -> None:
    samples = [*drawn(3), sample]
    with pytest.raises(packer.PackerError, match=problem):
        packer.pack(samples, tmp_path / "pack.lmdb", fields=FIELDS, classes=["a", "b", "c"])
    assert not (tmp_path / "pack.lmdb").exists()


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("label", [0, 1, np.int64(1), "cat"])
def test_labels_without_classes_name_the_arguments_that_take_them(tmp_path: Path, label: Any, on_error: str) -> None:
    samples = [{"image": jpeg(0)}, {"image": jpeg(1), "label": label}]
    with pytest.raises(packer.SourceError, match=r"^sample 1: its label .*Pass classes=\[.*or label_type='int'"):
        packer.pack(samples, tmp_path / "pack.lmdb", on_error=on_error)


@pytest.mark.parametrize(
    ("label", "classes", "words"),
    [
        (2, ["cat", "dog"], "ids are 0 to 1, and -1 means unlabeled; for other numbers pass label_type='int'"),
        (-2, ["cat", "dog"], "-2 is not an id of the 2 classes"),
        ("cow", ["cat", "dog"], r"add it to classes=\["),
        (0.5, ["cat", "dog"], "label_type='float'"),
        (0.5, None, "label_type='float'"),
        ([1, 2], ["cat", "dog"], "store other values with fields="),
    ],
)
def test_a_label_that_is_no_class_names_the_way_on(
    tmp_path: Path, label: Any, classes: list[str] | None, words: str
) -> None:
    with pytest.raises(packer.ImageError, match=words):
        packer.pack([{"image": jpeg(0), "label": label}], tmp_path / "pack.lmdb", classes=classes)


@pytest.mark.parametrize("classes", [None, ["cat"]])
def test_minus_one_is_an_unlabeled_sample(tmp_path: Path, classes: list[str] | None) -> None:
    packer.pack([{"image": jpeg(0), "label": -1}], tmp_path / "pack.lmdb", classes=classes)
    assert packer.open_dataset(tmp_path / "pack.lmdb")[0][1] == -1


def test_samples_that_cannot_be_used_are_left_out_and_listed(tmp_path: Path) -> None:
    samples = [*drawn(3), {"image": b"no image"}, {"image": jpeg(9), "age": "old"}, *drawn(1)]
    samples[-1]["name"] = "last.jpg"
    summary = packer.pack(samples, tmp_path / "pack.h5", fields=FIELDS, classes=["a", "b", "c"], on_error="skip")
    assert summary.manifest.count == 4
    assert [entry["name"] for entry in summary.manifest.skipped] == ["00000003", "00000004.jpg"]
    assert "field 'age'" in summary.manifest.skipped[1]["reason"]


def test_arrays_and_pil_images_lose_nothing(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    deep = np.arange(35, dtype=np.uint16).reshape(5, 7) * 1000
    palette = Image.fromarray(pixels).quantize(16)
    samples = [{"image": pixels, "depth": deep}, {"image": Image.fromarray(pixels), "depth": palette}]
    packer.pack(samples, tmp_path / "pack.lmdb", fields={"depth": "image"}, label_type="class")
    with packer.open_pack(tmp_path / "pack.lmdb") as reader:
        assert reader.table.label.tolist() == [-1, -1]
        for index in (0, 1):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(reader.read(index)))), pixels)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(bytes(reader.value(0, "depth"))))), deep)
        found = Image.open(io.BytesIO(bytes(reader.value(1, "depth"))))
        assert (found.mode, found.tobytes()) == ("P", palette.tobytes())


def test_names_classes_and_numbers(tmp_path: Path) -> None:
    samples = [{"image": jpeg(0), "name": "x/ü.jpg", "label": "dog"}, {"image": jpeg(1), "label": "cat"}]
    packer.pack(samples, tmp_path / "pack.lmdb", classes=["cat", "dog"])
    with packer.open_dataset(tmp_path / "pack.lmdb") as dataset:
        assert list(dataset.samples) == [("x/ü.jpg", 1), ("00000001.jpg", 0)]
    packer.pack([{"image": jpeg(0), "label": 0.25}], tmp_path / "float.lmdb", label_type="float")
    with packer.open_dataset(tmp_path / "float.lmdb") as dataset:
        assert dataset[0][1] == 0.25


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"image": "text"}, "'image'"),
        ({"a b": "text"}, "'a b'"),
        ({"x": "film"}, "'film'"),
        ({"x": "array:int8:9"}, "array:int8:9|axes"),
    ],
)
def test_fields_that_cannot_be_are_refused(tmp_path: Path, declared: dict[str, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        packer.pack(drawn(1), tmp_path / "pack.lmdb", fields=declared)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("before", "after"), [(("ab", "c"), ("a", "bc")), ((None, "c"), ("None", "c"))])
def test_values_of_the_same_bytes_one_after_the_other_are_other_values(tmp_path: Path, before: Any, after: Any) -> None:
    image = jpeg(0)

    def given(one: tuple[str | None, str], count: int) -> Iterator[dict[str, Any]]:
        for index in range(count):
            first, second = one if index == 7 else ("x", "y")
            yield {"image": image, "first": first, "second": second}
        raise RuntimeError("the program stopped")

    options: dict[str, Any] = {"fields": {"first": "text", "second": "text"}}
    with pytest.raises(RuntimeError, match="stopped"):
        packer.pack(given(before, 300), tmp_path / "pack.lmdb", **options)
    with pytest.raises(packer.ResumeError, match=r"sample 7 .* is not the sample that"):
        packer.pack(given(after, 300), tmp_path / "pack.lmdb", **options)


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.array([[0, -1]], np.int32), "int32 from -1 to 0 is not an image: PNG stores numbers from 0 to 65535"),
        (np.array([[0, -1]], np.int16), "int16 from -1 to 0"),
        (np.array([[0, 70000]], np.int64), r"0 to 70000 .* declare a field array:int64:2"),
        (np.array([[0, 2**32 - 1]], np.uint32), "0 to 4294967295"),
        (np.array([[0.5, 1]], np.float32), "float32 is not an image"),
        (np.zeros((1, 2, 2), np.uint8), "is not an image: images are"),
        (np.zeros((0, 2), np.uint8), "is not an image: images are"),
        (Image.fromarray(np.array([[0, -1]], np.int32)), "int32 from -1 to 0"),
    ],
)
def test_numbers_that_a_png_does_not_hold_are_never_clipped(tmp_path: Path, mask: Any, problem: str) -> None:
    image = np.zeros((1, 2, 3), np.uint8)
    with pytest.raises(packer.ImageError, match=problem):
        packer.pack([{"image": image, "mask": mask}], tmp_path / "pack.lmdb", fields={"mask": "mask"})


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", ">u2", "uint16", "int32", "uint32", "int64"])
def test_masks_of_any_whole_numbers_keep_them(tmp_path: Path, dtype: str) -> None:
    largest = 1 if dtype == "bool" else np.iinfo(dtype).max
    numbers = [most for most in (1, 127, 255, 256, 65535) if most <= largest]
    masks = [np.array([[0, most], [most - 1, 0]]).astype(dtype) for most in numbers]
    samples = [{"image": np.zeros((2, 2, 3), np.uint8), "mask": mask} for mask in masks]
    packer.pack(samples, tmp_path / "pack.pth", fields={"mask": "mask"})
    with packer.open_dataset(tmp_path / "pack.pth", fields=("mask",)) as dataset:
        for index, mask in enumerate(masks):
            assert np.array_equal(np.asarray(dataset[index]["mask"]).reshape(2, 2), mask)


def test_what_is_declared_is_a_kind_and_a_wrong_one_is_told_with_all(tmp_path: Path) -> None:
    for said in ("uint8", "array", "array:float32:x", "array:2", "text:2", "scalar"):
        with pytest.raises(ValueError, match=r"kinds are bool, int8, .*float64, class, .*array:DTYPE\[:AXES\]"):
            packer.pack([], tmp_path / "a.lmdb", fields={"n": said})
    samples = [{"image": jpeg(0), "one": np.ones(3, np.float16), "two": [[1, 2]]}]
    packer.pack(samples, tmp_path / "a.lmdb", fields={"one": "array:float16", "two": "array:int8:2"})
    with packer.open_pack(tmp_path / "a.lmdb") as reader:
        assert [field.rank for field in reader.fields.values()] == [1, 2]


def test_names_of_classes_are_said_by_a_field(tmp_path: Path) -> None:
    samples = [{"image": jpeg(0), "kind": "dog"}]
    with pytest.raises(ImageError, match=r"'dog' is not an id.*packer.Field\('kind', 'class', classes="):
        packer.pack(samples, tmp_path / "a.lmdb", fields={"kind": "class"})
    field = packer.Field("kind", "class", classes=("cat", "dog"))
    packer.pack(samples, tmp_path / "b.lmdb", fields={"kind": field})
    with packer.open_pack(tmp_path / "b.lmdb") as reader:
        assert reader.value(0, "kind") == 1
