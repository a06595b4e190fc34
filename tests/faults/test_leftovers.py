"""Leftovers of an earlier version: unfinished work is continued; indexes, caches, listings and states are read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer.errors import CorruptPackError, ImageChangedError, ResumeError
from tests.command import packer as run
from tests.golden.leftovers import IMAGES, KEPT, LARGE, MADE_IN, SERVER, VERSION, draw, put
from tests.golden.leftovers.states import BATCH, LOADERS, SAMPLERS, dataset_at, followed
from tests.samples import content
from tests.storage.remote.objects import serving
from tests.upload.stores import Moto, Proxy

same_version = pytest.mark.skipif(packer.__version__ != VERSION, reason="another version does not go on with it")

OF_ANOTHER_VERSION = """
import sys
from tests.digests import blank_version
blank_version()
import packer
packer.convert(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a directory with the images of the leftovers."""
    draw(tmp_path)
    return tmp_path


def assert_as_fresh(path: Path, work: Path, **settings: Any) -> None:
    """Assert that a pack is sound, and equals that of a conversion without an interruption."""
    fresh = work / f"fresh{path.suffix}"
    packer.convert(work / "tree", fresh, **settings)
    assert packer.verify(path) == []
    assert packer.digest(path) == packer.digest(fresh)
    assert not path.with_name(f"{path.name}.partial").exists()


@same_version
@pytest.mark.parametrize("suffix", ["lmdb", "h5", "pth"])
def test_an_unfinished_conversion_goes_on(work: Path, suffix: str) -> None:
    path = put("unfinished", work) / f"pack.{suffix}"
    assert packer.convert(work / "tree", path).continued == 3
    assert_as_fresh(path, work)
    assert content(path) == content(work / f"fresh.{suffix}")


def test_an_unfinished_conversion_of_another_version_is_refused(work: Path) -> None:
    path = put("unfinished", work) / "pack.lmdb"
    line = [sys.executable, "-c", OF_ANOTHER_VERSION, str(work / "tree"), str(path)]
    ended = subprocess.run(line, capture_output=True, text=True, check=False)
    assert "pack.lmdb.partial contains an unfinished conversion" in ended.stderr
    assert f"packer was version {VERSION} and is now version 0" in ended.stderr


@same_version
def test_an_unfinished_conversion_of_images_that_changed_is_refused(work: Path) -> None:
    path = put("unfinished", work) / "pack.lmdb"
    (work / "tree" / "class_0" / "04.bmp").touch()
    with pytest.raises(
        ResumeError, match=r"pack\.lmdb\.partial contains an unfinished conversion(.|\n)*class_0/04\.bmp"
    ):
        packer.convert(work / "tree", path)
    with pytest.raises(ResumeError, match=r"pack\.lmdb\.partial contains an unfinished conversion(.|\n)*resize"):
        packer.convert(work / "tree", path, resize=8)


@same_version
def test_a_conversion_in_parts_goes_on(work: Path) -> None:
    path = put("half", work) / "pack.lmdb"
    assert packer.convert(work / "tree", path, parts=3).continued == IMAGES // 3
    assert_as_fresh(path, work, parts=3)


@same_version
def test_tasks_of_a_conversion_in_parts_go_on_with_its_list(work: Path) -> None:
    path = put("half", work) / "pack.lmdb"
    for number in (2, 1):
        assert run("convert", "--quiet", work / "tree", path, "--parts", 3, "--part", number).returncode == 0
    assert_as_fresh(path, work, parts=3)


@same_version
def test_parts_that_are_all_there_become_a_pack(work: Path) -> None:
    path = put("parts", work) / "pack.lmdb"
    assert packer.convert(work / "tree", path, parts=2).continued == IMAGES
    assert_as_fresh(path, work, parts=2)


@same_version
def test_a_conversion_in_parts_is_refused_where_its_images_moved(work: Path) -> None:
    path = put("half", work) / "pack.lmdb"
    (work / "tree").rename(work / "moved")
    with pytest.raises(
        ResumeError, match=r"pack\.lmdb\.partial contains .*(.|\n)*SRC was \S*/tree and is now \S*/moved"
    ):
        packer.convert(work / "moved", path, parts=3)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Return a store with an empty bucket; the environment tells packer its address."""
    for name in ("boto3", "moto", "flask"):
        pytest.importorskip(name)
    moto = Moto()
    proxy = Proxy(moto.port, lambda request, when: None)
    cache = {"PACKER_CACHE_DIR": str(tmp_path / "cache"), "PACKER_CACHE_SIZE": "1 GB"}
    for name, value in {**SERVER, **cache, "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    yield Store(moto.url, proxy)
    proxy.close()
    moto.close()


class Store:
    """The bucket ``leftovers`` of a server."""

    def __init__(self, url: str, proxy: Proxy) -> None:
        import boto3

        self._proxy, self._s3 = proxy, boto3.client("s3", endpoint_url=url)
        self._s3.create_bucket(Bucket="leftovers")

    def put(self, objects: Mapping[str, bytes]) -> None:
        for key, data in objects.items():
            self._s3.put_object(Bucket="leftovers", Key=key, Body=data)

    def objects(self) -> dict[str, bytes]:
        keys = [entry["Key"] for entry in self._s3.list_objects_v2(Bucket="leftovers")["Contents"]]
        return {key: self._s3.get_object(Bucket="leftovers", Key=key)["Body"].read() for key in keys}

    def sent(self) -> set[str]:
        """Return the names of the objects that packer wrote."""
        puts = [request for request in self._proxy.seen if request.startswith("PUT ")]
        return {request.partition("?")[0].removeprefix("PUT /leftovers/") for request in puts}


def files_in(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(path).items() if data is not None}


def test_an_upload_goes_on(work: Path, store: Store) -> None:
    scratch = put("upload", work)
    arrived = json.loads((scratch / "uploaded.json").read_text())
    (scratch / "uploaded.json").unlink()
    (room,) = scratch.iterdir()
    files = {f"pack.pth/{name}": data for name, data in files_in(room / "pack.pth").items()}
    assert 0 < len(arrived) < len(files)
    store.put({key: files[key] for key in arrived})
    summary = packer.convert(work / "tree", "s3://leftovers/pack.pth", shard_size=3000, scratch=scratch)
    assert summary.continued == IMAGES
    assert store.sent() == files.keys() - set(arrived)
    assert store.objects() == files
    assert list(scratch.iterdir()) == []


@same_version
def test_a_conversion_in_parts_in_a_store_goes_on(work: Path, store: Store) -> None:
    store.put(files_in(put("objects", work)))
    line = ["convert", "--quiet", work / "tree", "s3://leftovers/pack.lmdb", "--parts", 2, "--part", 1]
    assert run(*line, "--scratch", work / "scratch").returncode == 0
    packer.convert(work / "tree", work / "fresh.lmdb", parts=2)
    assert "pack.lmdb/part-00000.lmdb" not in store.sent()
    assert store.objects() == {f"pack.lmdb/{name}": data for name, data in files_in(work / "fresh.lmdb").items()}


def test_a_cache_is_read(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    cache = put("cache", work)
    draw(work, LARGE)
    images = [path.read_bytes() for path in sorted((work / "tree").glob("*/*"))]
    data = (cache / "pack.lmdb").read_bytes()
    with serving({"leftovers/pack.lmdb": data}) as server:
        for name, value in {**SERVER, "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)
        settings: dict[str, Any] = {"output": "bytes", "cache_dir": cache / "kept", "cache_size": "1 GB"}
        with packer.open_dataset("s3://leftovers/pack.lmdb", **settings) as dataset:
            opened = server.sent()
            assert [bytes(dataset[index][0]) for index in KEPT] == images[KEPT.start : KEPT.stop]
            assert server.sent() == opened
            assert [bytes(dataset[index][0]) for index in range(IMAGES)] == images
            assert opened < server.sent() < len(data)


@pytest.mark.parametrize("name", ["tree.index", "tar.index"])
def test_an_index_is_read(work: Path, name: str) -> None:
    path = put("index", work) / name
    images = sorted((work / "tree").glob("*/*"))
    dataset = packer.open_dataset(path, output="bytes")
    assert [bytes(dataset[index][0]) for index in range(IMAGES)] == [image.read_bytes() for image in images]
    assert [*dataset.targets] == [0] * (IMAGES // 2) + [1] * (IMAGES // 2)
    assert packer.convert(path, work / "pack.lmdb").manifest.count == IMAGES


def test_an_index_of_images_that_changed_is_refused(work: Path) -> None:
    path = put("index", work) / "tree.index"
    (work / "tree" / "class_1" / "07.bmp").touch()
    dataset = packer.open_dataset(path, output="bytes")
    with pytest.raises(CorruptPackError, match=r"tree\.index.*class_1/07\.bmp.*changed since it was indexed"):
        _ = dataset[7]


def test_a_list_is_read(work: Path) -> None:
    listing = put("scan", work) / "tree.scan"
    packer.convert(listing, work / "pack.lmdb")
    assert_as_fresh(work / "pack.lmdb", work)


def test_a_list_of_images_that_are_elsewhere_is_refused(work: Path) -> None:
    listing = put("scan", work) / "tree.scan"
    (work / "tree").rename(work / "moved")
    with pytest.raises(ImageChangedError, match=r"class_0/00\.bmp: .*it was deleted"):
        packer.convert(listing, work / "pack.lmdb")


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_goes_on_at_its_state(tmp_path: Path, name: str) -> None:
    path = put("states", tmp_path)
    state, follows = json.loads((path / "states.json").read_text())[name]
    sampler = SAMPLERS[name](dataset_at(path))
    sampler.load_state_dict(state)
    assert [*map(int, sampler)] == follows
    assert len(follows) > BATCH


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_goes_on_at_its_state(tmp_path: Path, name: str) -> None:
    path = put("states", tmp_path)
    _, follows = json.loads((path / "states.json").read_text())[name]
    loader = LOADERS[name](dataset_at(path))
    loader.load_state_dict(torch.load(path / f"{name}.pt", weights_only=True))
    assert followed(loader) == follows
    assert len(follows) > 1


def test_no_leftover_has_the_path_where_it_was_made(tmp_path: Path) -> None:
    for name in ("unfinished", "half", "parts", "upload", "objects", "index", "scan"):
        found = [path for path in put(name, tmp_path).rglob("*") if path.is_file()]
        assert found
        assert [path for path in found if MADE_IN.encode() in path.read_bytes()] == []
