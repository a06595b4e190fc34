"""Labels that are JSON: objects and lists are neither class ids nor names of classes, in any container."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import packer
from packer.errors import SourceError
from tests.containers.records import bytes_list, example, photo, tfrecord
from tests.containers.test_tar import write as write_tar

Write = Callable[[Path, list[str]], Path]


def _tfrecord(path: Path, labels: list[str]) -> Path:
    records = [
        example({"image": bytes_list(photo(number)), "label": bytes_list(label.encode())})
        for number, label in enumerate(labels)
    ]
    path.write_bytes(tfrecord(records))
    return path


def _hdf5(path: Path, labels: list[str]) -> Path:
    with h5py.File(path, "w") as file:
        file["images"] = np.arange(len(labels) * 192, dtype=np.uint8).reshape(len(labels), 8, 8, 3)
        file.create_dataset("label", data=labels, dtype=h5py.string_dtype())
    return path


def _tar(path: Path, labels: list[str]) -> Path:
    pairs = enumerate(labels)
    return write_tar(path, [m for n, label in pairs for m in ((f"{n}.jpg", photo(n)), (f"{n}.cls", label.encode()))])


def _table(labels: list[str]) -> pa.Table:
    return pa.table({"image": [photo(number) for number in range(len(labels))], "label": labels})


def _parquet(path: Path, labels: list[str]) -> Path:
    pq.write_table(_table(labels), path, compression="none", use_dictionary=False)
    return path


def _arrow(path: Path, labels: list[str]) -> Path:
    table = _table(labels)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return path


KINDS: dict[str, Write] = {
    "a.tfrecord": _tfrecord,
    "a.h5": _hdf5,
    "a.tar": _tar,
    "a.parquet": _parquet,
    "a.arrow": _arrow,
}


@pytest.mark.parametrize("label", ['{"label": 1}', '["cat", "dog"]', "{}", "[[1, 2], [3, 4]]"])
@pytest.mark.parametrize("name", KINDS)
def test_json_is_no_name_of_a_class(name: str, label: str, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name, [label, json.dumps({"label": 2}), label])
    with pytest.raises(SourceError, match=r"(?s)is JSON, .*--key NAME:json=KEY|looks like labels"):
        packer.index(path, tmp_path / "a.index")


@pytest.mark.parametrize("name", KINDS)
def test_names_that_begin_as_json_does_are_names(name: str, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name, ["[unknown]", "{cat", "[unknown]"])
    packer.index(path, tmp_path / "a.index")
    dataset = packer.open_dataset(tmp_path / "a.index")
    assert [dataset.classes[label] for label in dataset.targets] == ["[unknown]", "{cat", "[unknown]"]


def test_json_may_be_a_field(tmp_path: Path) -> None:
    path = _tfrecord(tmp_path / "a.tfrecord", ['{"label": 1}'] * 2)
    packer.index(path, tmp_path / "a.index", keys={"image": "image", "about:json": "label"})
    assert packer.open_dataset(tmp_path / "a.index", fields="all")[0]["about"] == {"label": 1}


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("a.tar", "a.tfrecord")])
def test_texts_of_numbers_whose_ids_are_others_are_said(name: str, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name, ["2", "10", "1", "2"])
    assert "class 1 has the id 0" in " ".join(packer.index(path, tmp_path / "a.index").notes)
