from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import webdataset
from hypothesis import given, strategies as st

from packer._conversion.convert import convert
from packer._fields import Field
from packer._formats import FORMATS, open_pack
from packer._formats.index import INDEX_DIRECTORY
from packer._formats.wds import WebDatasetWriter, header, key_of
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.packfile import NOWHERE
from packer._table import Names, Sample
from packer.errors import CorruptPackError, DestinationError
from packer.testing.conformance import ForeignLayoutConformance, draw_samples, names, write_pack
from packer.testing.photos import draw_imagefolder
from tests.samples import solid

ROW = FORMATS["wds"]

pytestmark = [  # webdataset leaves it to the garbage collector to close files
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class TestWebDataset(ForeignLayoutConformance):
    format = "wds"
    options = {"shard_size": 40_000}  # noqa: RUF012 - read only

    def holds_samples(self, file: Path) -> bool:
        return file.suffix == ".tar"


def read_back(path: Path) -> Iterator[dict[str, Any]]:
    shards = sorted(map(str, path.glob("*.tar")))
    yield from webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)


def test_webdataset_reads_what_is_converted(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=7, size=(30, 40))
    path = tmp_path / "pack.wds"
    convert(imagefolder_source(tmp_path / "tree"), path, options={"shard_size": 30_000})
    assert len(list(path.glob("*.tar"))) > 1
    with open_pack(path) as reader:
        found = list(read_back(path))
        assert [f"{sample['__key__']}.jpg" for sample in found] == list(reader.names)
        assert [int(sample["cls"]) for sample in found] == reader.table.label.tolist()
        assert [sample["jpg"] for sample in found] == [bytes(reader.read(index)) for index in range(len(reader))]
        assert (path / "classes.txt").read_text().split() == reader.manifest.classes
    decoded = webdataset.WebDataset(str(path / "shard-000000.tar"), shardshuffle=False).decode("pil")
    assert {sample["jpg"].size for sample in decoded} == {(30, 40), (40, 30)}


def test_the_shards_are_tars_that_tarfile_would_write(tmp_path: Path) -> None:
    long = "d/" * 30 + "x" * 90
    deep = "folder/" * 40 + "y" * 120
    samples = draw_samples([1, 511, 512, 513, 5000], ["a/b.jpg", long, deep, "z" * 100 + ".png", "q" * 250])
    path = tmp_path / "pack.wds"
    write_pack(ROW, path, samples)
    with tarfile.open(path / "shard-000000.tar") as archive:
        members = archive.getmembers()
        assert [member.name for member in members if member.name.endswith(".img")] == [
            f"{key_of(sample.name)}.img" for sample in samples
        ]
        assert {(m.mode, m.mtime, m.uid, m.gid, m.type) for m in members} == {(0o444, 0, 0, 0, tarfile.REGTYPE)}
        stored = [archive.extractfile(member) for member in members if member.name.endswith(".img")]
        assert [file.read() for file in stored if file is not None] == [sample.data for sample in samples]
    assert (path / "shard-000000.tar").stat().st_size % tarfile.RECORDSIZE == 0


@given(name=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=300))
def test_headers_are_those_of_tarfile(name: str) -> None:
    info = tarfile.TarInfo(name.replace("\\", "/").strip("/") or "x")
    info.size, info.mode = 12_345, 0o444
    made = header(info.name, info.size)
    with tarfile.open(fileobj=io.BytesIO(made + bytes(12_800 + 1024))) as archive:
        parsed = archive.getmembers()
    assert [(member.name, member.size, member.mode) for member in parsed] == [(info.name, 12_345, 0o444)]
    if len(info.name) <= 100:
        assert made == info.tobuf(tarfile.USTAR_FORMAT)


def test_the_index_is_that_of_wds2idx(tmp_path: Path) -> None:
    path = tmp_path / "pack.wds"
    samples = draw_samples([100, 2000, 30] * 4, [f"c {i}/ä {i}.b.jpg" for i in range(12)])
    write_pack(ROW, path, samples, {"shard_size": 9000})
    shards = sorted(path.glob("*.tar"))
    assert len(shards) > 2
    for shard in shards:
        lines: dict[str, list[str]] = {}
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, extension = member.name.partition(".")
                lines.setdefault(key, []).append(f"{extension} {member.offset_data} {member.size} {member.name}")
        expected = [f"v1.2 {len(lines)}", *map(" ".join, lines.values())]
        assert shard.with_suffix(".idx").read_text("ascii").splitlines() == expected


@given(names=st.lists(names(), min_size=2, max_size=2, unique=True))
def test_a_key_is_one_for_webdataset_and_gives_back_the_name(names: list[str]) -> None:
    for name in names:
        key = key_of(name)
        match = re.fullmatch(r"((?:.*/|)[^.]+)[.]([^/]*)", f"{key}.jpg")
        assert match is not None
        assert match.groups() == (key, "jpg")
        assert key.isascii()
        assert not re.search(r"\s", key)
        assert not re.search(r"(^|/)__", key)
        stem = unquote(key, errors="surrogateescape")
        assert name == stem or (name.startswith(f"{stem}.") and "." not in name[len(stem) + 1 :])


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a.b.jpg", "a%2Eb"),
        ("v1.0/a.JPEG", "v1.0/a"),
        ("__meta__/x.png", "%5F_meta__/x"),
        (".hidden.jpg", "%2Ehidden"),
        ("50%.jpg", "50%25"),
        ("ein bild.jpg", "ein%20bild"),
        ("ä.png", "%C3%A4"),
        ("notes.txt", "notes%2Etxt"),
        (".jpg", "%2Ejpg"),
    ],
)
def test_the_keys_of_names(name: str, key: str) -> None:
    assert key_of(name) == key


def test_two_names_that_differ_in_the_suffix_alone_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    for name in ("c/x.jpg", "c/x-1.png", "c/x.png"):
        solid(tmp_path / "tree" / name)
    path = tmp_path / "pack.wds"
    with pytest.raises(DestinationError, match=r"c/x\.jpg and c/x\.png would be one sample in webdataset"):
        convert(imagefolder_source(tmp_path / "tree"), path)
    assert list(tmp_path.iterdir()) == [tmp_path / "tree"]
    WebDatasetWriter.check_names(Names.of(["a.jpg", "b.jpg", "a.b.jpg"]))
    with pytest.raises(DestinationError, match="one sample"):
        write_pack(ROW, path, draw_samples([1, 1], ["a.jpg", "a.png"]))


def test_fields_are_members_that_webdataset_decodes(tmp_path: Path) -> None:
    fields = (
        Field("caption", "text"),
        Field("meta", "json"),
        Field("age", "scalar", "float32"),
        Field("kind", "class", classes=("a", "b")),
        Field("raw", "bytes"),
    )
    values = [("grün", {"a": [1]}, 1.5, 1, b"\1\2"), (None, None, None, None, None)]
    samples = [
        Sample(f"{index}.jpg", -1, b"\xff\xd8\xff", 1, 1, tuple(f.encode(v) for f, v in zip(fields, row, strict=True)))
        for index, row in enumerate(values)
    ]
    path = tmp_path / "pack.wds"
    write_pack(ROW, path, samples, fields=fields)
    full, empty = (
        {name: value for name, value in sample.items() if not name.startswith("__")}
        for sample in webdataset.WebDataset(str(path / "shard-000000.tar"), shardshuffle=False).decode()
    )
    assert full == {
        "caption.txt": "grün",
        "meta.json": {"a": [1]},
        "age.json": 1.5,
        "kind.cls": 1,
        "raw.bin": b"\1\2",
        "jpg": b"\xff\xd8\xff",
    }
    assert empty == {"jpg": b"\xff\xd8\xff"}
    assert verify(path, quick=True) == []


def test_labels_that_are_numbers(tmp_path: Path) -> None:
    for number, (label_type, labels) in enumerate([("int", [-3, 2**40]), ("float", [0.1, -2.0])]):
        root = tmp_path / "src"
        listed = [solid(root / f"{index}.png").name for index in range(2)]
        source = Source("csv", root, Names.of(listed), np.array(labels), [], label_type=label_type)
        path = tmp_path / f"{number}.wds"
        convert(source, path)
        member = {"int": "cls", "float": "label.json"}[label_type]
        assert [json.loads(sample[member]) for sample in read_back(path)] == labels
        assert not (path / "classes.txt").exists()


def test_a_strangers_pack_reads_no_files_but_its_own(tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "pack.wds", tmp_path / "elsewhere"
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(30, 40))
    convert(imagefolder_source(tmp_path / "tree"), path)
    shutil.copytree(path, elsewhere)
    for file in elsewhere.glob("*.*"):
        if file.is_file():
            (path / file.name).unlink()
            (path / file.name).symlink_to(file)
    with open_pack(path) as reader, pytest.raises(CorruptPackError, match="is a symbolic link"):
        reader.read(0)
    with open_pack(path) as reader:  # C gets no file to read either
        assert (reader.locate(np.arange(4))[0]["file"] == NOWHERE).all()
        manifest = reader.manifest
    for base in (str(elsewhere), "../../elsewhere", "."):
        forged = replace(manifest, layout={**manifest.layout, "base": base})
        (path / INDEX_DIRECTORY / "manifest.json").write_bytes(forged.to_json())
        with pytest.raises(CorruptPackError, match="is not the pack, which contains them"):
            open_pack(path)
