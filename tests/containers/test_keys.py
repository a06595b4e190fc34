"""Each field that ``--key`` selects has the requested name and kind, or an error says why not."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import packer
from packer._containers import list_samples
from packer._containers.contract import Chosen, ChosenField, field_name
from packer._fields import Field
from packer.errors import OptionError, PackerError, SourceError
from tests.containers.everywhere import IMAGES, opened
from tests.containers.records import bytes_list, example, int_list, tfrecord
from tests.containers.test_datadings import write as write_maps

IMAGE = IMAGES["a.jpg"]


def test_roles_and_fields_are_told_apart() -> None:
    chosen = Chosen.of({"image": "a:b", "label": "c", "x": "d", "y:mask": "e", "z:int8": "d"})
    fields = (ChosenField("x", "", "d"), ChosenField("y", "mask", "e"), ChosenField("z", "int8", "d"))
    assert chosen == Chosen("a:b", "c", None, fields)
    assert chosen.all_keys() == ["a:b", "c", "d", "e", "d"]
    assert list(map(str, fields)) == ["--key x=d", "--key y:mask=e", "--key z:int8=d"]
    assert Chosen.of({}) == Chosen()
    with pytest.raises(OptionError, match="--key z:int8=d: d is already the field x"):
        chosen.by_key()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"x": "a", "x:text": "b"}, "--key x:text=b: the field x is named twice"),
        ({"x:mesh": "a"}, "--key x:mesh=a: a kind must be one of scalar, class"),
        ({"image:mask": "a"}, "--key image:mask=a: only fields have a kind, and the image is not a field"),
        ({"label": "a", "label:float32": "a"}, "--key label:float32=a: only fields have a kind"),
        ({"index": "a"}, "--key index=a: a field cannot have the name 'index'"),
        ({"": "a"}, "a field cannot have the name ''"),
    ],
)
def test_what_cannot_be_chosen_is_refused(keys: Mapping[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Chosen.of(keys)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as file:
        for name, data in (("0.image", IMAGE), ("0.label", b"1"), ("0.txt", b"hello")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"image": pa.array([IMAGE]), "label": [1], "txt": ["hello"]}), path)


def maps(path: Path) -> None:
    write_maps(path, {"image": IMAGE, "label": 1, "txt": "hello"})


def records(path: Path) -> None:
    features = {"image": bytes_list(IMAGE), "label": int_list(1), "txt": bytes_list(b"hello")}
    path.write_bytes(tfrecord([example(features)]))


CONTAINERS = {"a.tar": tar, "a.parquet": parquet, "a.msgpack": maps, "a.tfrecord": records}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize(
    "fields",
    [
        {"a": "txt"},
        {"a": "txt", "b": "txt"},
        {"a:bytes": "txt"},
        {"a:bytes": "image"},
        {"a": "label"},
        {"a:int64": "label"},
        {"a:mask": "txt", "b": "label"},
        {"a:labels": "label"},
    ],
)
def test_each_field_that_is_chosen_is_there(name: str, fields: Mapping[str, str], tmp_path: Path) -> None:
    CONTAINERS[name](tmp_path / name)
    try:
        container = opened(tmp_path / name, {"image": "image", "label": "label", **fields})
        list_samples(container)
    except PackerError as error:
        assert re.search("--key|feature|column", str(error))  # noqa: PT017
        return
    kinds = {field.name: field.dtype or field.kind for field in container.fields}
    assert kinds.keys() == {said.partition(":")[0] for said in fields}
    for said in fields:
        field, _, kind = said.partition(":")
        assert kind in ("", kinds[field])


def test_a_scalar_without_a_dtype_has_the_natural_one_or_it_is_asked_for(tmp_path: Path) -> None:
    for name, write in CONTAINERS.items():
        write(tmp_path / name)
        for kind in ("scalar", "array"):
            with pytest.raises(PackerError, match=r"txt: (state its dtype|.* no[t ])"):
                opened(tmp_path / name, {f"a:{kind}": "txt"})
        if name != "a.tar":  # which has no types: only the extensions of members tell kinds apart
            assert [field.dtype for field in opened(tmp_path / name, {"a:scalar": "label"}).fields] == ["int64"]
    with pytest.raises(
        OptionError, match=r"--key a:scalar=label: state its dtype, such as --key a:int64=label: bool, "
    ):
        opened(tmp_path / "a.tar", {"a:scalar": "label"})
    with tarfile.open(tmp_path / "b.tar", "w") as file:
        for name, data in (("0.jpg", IMAGE), ("0.cls", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    assert [field.dtype for field in opened(tmp_path / "b.tar", {"a:scalar": "cls"}).fields] == ["int64"]


def test_options_of_directories_are_refused_of_a_container_by_name(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar")
    for option in ({"any_image": True}, {"labels": tmp_path / "none.csv"}):
        with pytest.raises(
            OptionError, match=r"applies only to a directory of images, but .* is webdataset: leave it out"
        ):
            packer.convert(tmp_path, tmp_path / "a.lmdb", **option)


def test_names_of_fields_are_made_of_keys_and_no_two_are_equal() -> None:
    taken: list[str] = []
    for key in ("a b", "a.b", "a-b", "1st", "index", "", "é", "x" * 80, "x" * 81):
        taken.append(field_name(key, taken))
    assert taken == ["a_b", "a_b_2", "a_b_3", "_1st", "index_", "_", "__2", "x" * 56, f"{'x' * 56}_2"]
    for number in range(120):
        taken.append(field_name("y" * 80, taken))
        assert Field(taken[-1], "text"), number


@pytest.mark.parametrize("name", ["nowhere.tar", "no*.tar"])
def test_keys_of_files_that_are_not_there_are_not_the_cause(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="no such file or directory"):
        packer.index(tmp_path / name, tmp_path / "a.index", keys={"image": "jpg"})
