"""A pack at a URL gives the samples, labels, pixels and errors of the same pack on a disk, by every way of reading."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import packer
from packer import Loader, RandomResizedCrop, open_dataset
from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._formats.index import move_index
from packer._loader import sampling
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.imagefolder import imagefolder_source
from packer._storage.remote.urls import UrlPath
from packer.errors import CorruptPackError, DestinationError, OptionError, PackerError, PackError, PackNotFoundError
from tests.command import packer_many, python
from tests.conftest import Packs, Trees
from tests.golden import FIELDED
from tests.remote.fileserver import Served
from tests.samples import SUFFIXES

GOLDEN = Path(__file__).parents[1] / "golden"
PACKS = sorted(path for path in GOLDEN.glob("schema-*/*.*") if path.suffix != ".json")


def everything(path: str | Path) -> list[Any]:
    """Return what a reader and a dataset give of a pack."""
    with open_pack(path) as reader, open_dataset(path, output="numpy") as dataset:
        values = [reader.value(index, name) for index in range(len(reader)) for name in reader.fields]
        stored = list(map(bytes, reader.read_many(range(len(reader)))))
        images = [(pixels.tobytes(), label) for pixels, label in dataset.__getitems__(range(len(dataset)))]
        known = [bytes(value) if isinstance(value, memoryview) else value for value in values]
        return [reader.manifest, [*reader.names], stored, known, images, dataset.classes]


@pytest.mark.parametrize("path", PACKS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_golden_pack(path: Path, served: Served) -> None:
    url = served.url(path)
    assert repr(everything(url)) == repr(everything(path))
    if path.stem in ("keep", "keep-tiled-parts", *FIELDED):
        assert verify(url) == []
        assert digest(url) == digest(path)
        assert packer.info(url).bytes == packer.info(path).bytes
        assert packer.info(url).classes == packer.info(path).classes


@pytest.fixture(scope="module")
def tree(trees: Trees) -> Path:
    return trees(classes=3, per_class=20, size=(64, 80))


@pytest.fixture(scope="module", params=SUFFIXES)
def pack(request: pytest.FixtureRequest, tree: Path, packs: Packs) -> Path:
    return packs(tree, request.param)


def batches(dataset: Any, **how: Any) -> list[tuple[npt.NDArray[Any], list[int]]]:
    with Loader(dataset, 16, seed=3, shuffle=True, **how) as loader:
        return [(images.numpy().copy(), labels.tolist()) for images, labels in loader]


def assert_same(one: list[Any], two: list[Any]) -> None:
    assert len(one) == len(two) > 1
    for (images, labels), (others, their_labels) in zip(one, two, strict=True):
        assert labels == their_labels
        assert np.array_equal(images, others)


@pytest.mark.filterwarnings("ignore:.*a random order")
@pytest.mark.parametrize("cached", [True, False])
def test_a_loader_gives_the_same_batches(pack: Path, served: Served, cached: bool, tmp_path: Path) -> None:
    here = open_dataset(pack, crop=RandomResizedCrop(32), seed=1)
    there = open_dataset(
        served.url(pack), crop=RandomResizedCrop(32), seed=1, cache_dir=tmp_path / "own" if cached else "", timeout=20
    )
    expected = batches(here, threads=2)
    assert_same(batches(there, threads=2), expected)
    asked = len(served.server.asked)
    assert_same(batches(there, threads=2), expected)
    if cached:  # without a cache directory, a copy fetches its own table
        assert_same(batches(pickle.loads(pickle.dumps(there)), threads=2), expected)
    again = [one for one in served.server.asked[asked:] if one.begin]
    assert again == [], "what was fetched is not fetched again"
    assert os.path.isdir(tmp_path / "own") == cached


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.filterwarnings("ignore:.*a random order")
@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_processes_and_workers_read(pack: Path, served: Served) -> None:
    here, there = (open_dataset(path, crop=RandomResizedCrop(32), seed=1) for path in (pack, served.url(pack)))
    assert_same(batches(there, threads=2, processes=2), batches(here, threads=2))
    whole = packer.CenterCrop(32)
    here, there = (open_dataset(path, crop=whole) for path in (pack, served.url(pack)))
    expected = [(images.numpy(), labels.tolist()) for images, labels in torch.utils.data.DataLoader(here, 16)]
    for method, count in (("fork", 2), ("spawn", 1), ("forkserver", 2)):  # a spawned worker imports torch
        loader = torch.utils.data.DataLoader(there, 16, num_workers=count, multiprocessing_context=method)
        assert_same([(images.numpy(), labels.tolist()) for images, labels in loader], expected)
    for workers in (0, 2):
        threads = packer.DataLoader(there, 16, num_workers=workers)
        assert_same([(images.numpy().copy(), labels.tolist()) for images, labels in threads], expected)


@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_a_random_order_is_warned_of(pack: Path, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_warned", set())
    there = open_dataset(served.url(pack), crop=packer.CenterCrop(32))
    with pytest.warns(RuntimeWarning, match="a random order over a pack at a URL"):
        list(packer.DataLoader(there, 16, shuffle=True, num_workers=1))


@pytest.mark.parametrize("pack", ["hdf5"], indirect=True)
def test_the_table_is_fetched_once_and_samples_once(pack: Path, served: Served, tmp_path: Path) -> None:
    url, server = served.url(pack), served.server
    begun = len(server.asked)
    for _ in range(2):
        dataset = open_dataset(url, crop=RandomResizedCrop(32), seed=1, cache_dir=tmp_path / "once")
        for _ in Loader(dataset, 16, threads=2, sampler=packer.BlockShuffleSampler(len(dataset), 8, 4)):
            pass
        dataset.close()
    asked = server.asked[begun:]
    assert sum(one.begin == 0 for one in asked) == 2, "each opening asks once which version there is"
    first = 64 << 10  # the second opening gets these bytes with the version again
    assert sum(one.sent for one in asked) < 1.05 * pack.stat().st_size + first


def test_damage_is_named_as_on_a_disk(pack: Path, served: Served, tmp_path: Path) -> None:
    copy = tmp_path / f"copy{pack.suffix}"
    (shutil.copytree if pack.is_dir() else shutil.copyfile)(pack, copy)
    with open_pack(copy) as reader:
        data = bytes(reader.read(7))
    file = next(file for file in ([copy] if copy.is_file() else sorted(copy.iterdir())) if data in file.read_bytes())
    content = bytearray(file.read_bytes())
    content[content.index(data) + len(data) // 2] ^= 1
    file.write_bytes(content)
    reasons = []
    for place in (copy, served.url(copy)):
        with open_pack(place) as reader:
            with pytest.raises(CorruptPackError) as caught:
                reader.read(7)
            assert reader.read(8) is not None
        reasons.append((caught.value.index, caught.value.name, caught.value.reason))
    assert reasons[0] == reasons[1]
    local, remote = verify(copy), verify(served.url(copy))
    assert [(one.index, one.reason) for one in local] == [(one.index, one.reason) for one in remote] != []
    dataset = open_dataset(served.url(copy), crop=RandomResizedCrop(32), on_error="replace", max_bad=0.5)
    with dataset, pytest.warns(UserWarning, match="sample 7"):
        assert sum(len(labels) for _, labels in Loader(dataset, 16, threads=2)) == 60


@pytest.mark.parametrize("pack", ["lmdb"], indirect=True)
def test_a_random_order_is_told_once(pack: Path, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._loader.sampling._warned", set())
    crop = packer.CenterCrop(32)
    there = open_dataset(served.url(pack), crop=crop)
    list(Loader(open_dataset(pack, crop=crop), 16, threads=2, shuffle=True))
    with pytest.warns(RuntimeWarning, match="BlockShuffleSampler"):
        list(Loader(there, 16, threads=2, shuffle=True))
    list(Loader(there, 16, threads=2, shuffle=True))  # warnings are errors in tests
    monkeypatch.setattr("packer._loader.sampling._warned", set())
    list(Loader(there, 16, threads=2, sampler=packer.BlockShuffleSampler(len(there))))
    list(Loader(there, 16, threads=2))


def test_an_index_of_files_on_a_store(tree: Path, served: Served, tmp_path: Path) -> None:
    """The files are at a URL, or the index and the files; an index whose files are in another store is refused."""
    copy = tmp_path / "photos"
    shutil.copytree(tree, copy)
    index = tmp_path / "photos.index"
    packer.index(copy, index)
    expected = everything(index)[1:]
    assert repr(everything(served.url(index))[1:]) == repr(expected)
    packer.stage(served.url(index), tmp_path / "staged")
    move_index(index, UrlPath(served.url(copy)))
    assert repr(everything(index)[1:]) == repr(expected)
    assert verify(index) == []
    file = next(copy.rglob("*.jpg"))
    file.write_bytes(file.read_bytes() + b"x")
    assert [damage for damage in verify(index) if str(file.relative_to(copy)) in str(damage)]
    with pytest.raises(
        CorruptPackError, match="does not say where the files are: they are not in the store of the index"
    ):
        open_pack(served.url(index))
    with pytest.raises(DestinationError, match="has no"):
        move_index(index, UrlPath(served.url(tmp_path)))


def test_what_writes_into_a_pack_refuses_a_url(pack: Path, served: Served, tree: Path, tmp_path: Path) -> None:
    url = served.url(pack)
    for write in (lambda: packer.append(url, tree), lambda: packer.repair(url, tree)):
        with pytest.raises(PackerError, match="at a URL"):
            write()
    with pytest.raises(PackerError):
        packer.merge([pack], url)
    with pytest.raises(OptionError, match="cache_dir applies only to packs at a URL"):
        open_dataset(pack, cache_dir=tmp_path)
    with pytest.raises(PackError, match="cache='ram'"):
        open_dataset(url, cache="ram")
    with pytest.raises(PackNotFoundError, match="no object and no pack of this name"):
        open_dataset(url + "x")
    for setting in ({"index": tmp_path / "x.index"}, {"keys": {"image": "jpg"}}):
        with pytest.raises(
            ValueError, match=f"^{next(iter(setting))}= applies only to containers on this machine's disks"
        ):
            open_dataset(url, **setting)


def test_commands_read_a_pack_at_a_url(pack: Path, served: Served, tmp_path: Path) -> None:
    url, out = served.url(pack), tmp_path / "out"
    ended = packer_many(
        [
            *(["info", place] for place in (url, pack)),
            *(["verify", "--digest", "--quiet", place] for place in (url, pack)),
            ["export", url, out / "tree"],
            ["convert", "--quiet", url, out / "copy.lmdb", "--cache-dir", tmp_path / "own", "--timeout", "20"],
            ["stage", url, out / "staged"],
            ["warm", url],
            ["view", url, "--html", out / "page.html"],
            ["info", pack, "--timeout", "3"],
            ["verify", "--repair", pack, url],
            ["scan", url],
        ],
        torch=True,  # of `view`
    )
    infos, digests, rest = ended[:2], ended[2:4], ended[4:]
    assert infos[0].stdout == infos[1].stdout.replace(str(pack), url)
    assert digests[0].stdout == digests[1].stdout != ""
    assert [one.returncode for one in rest] == [0, 0, 0, 0, 0, 2, 1, 2]
    assert all("URL" in one.stderr for one in rest[-3:])
    assert digest(out / "copy.lmdb") == digest(pack)
    assert len(list((out / "tree").rglob("*.jpg"))) == 60
    (staged,) = (out / "staged").iterdir()
    assert verify(staged) == []


def test_the_same_pack_in_a_bucket(pack: Path, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the S3 client, the first directory of the path is the bucket on the same server."""
    for name, value in {
        "AWS_ENDPOINT_URL": served.server.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    code = "import sys, packer; print(packer.digest(sys.argv[1]), len(packer.open_dataset(sys.argv[1])))"
    assert python(code, f"s3:/{pack.absolute()}").stdout.split() == [digest(pack), "60"]


def test_a_secret_in_a_url_is_shown_nowhere(tree: Path, served: Served, tmp_path: Path) -> None:
    path = tmp_path / "photos.lmdb"
    convert(imagefolder_source(tree), path)
    url = served.url(path) + "?X-Amz-Signature=hidden"
    with open_dataset(url, crop=packer.CenterCrop(32)) as dataset:
        pickled = pickle.dumps(dataset)
        assert "hidden" not in repr(dataset) + dataset.root
        assert b"hidden" not in pickled
        assert pickle.loads(pickled)[3][1] == dataset[3][1]
    ended = packer_many([["info", url], ["verify", url], ["info", url.replace("photos", "none")]])
    assert [one.returncode for one in ended] == [0, 0, 1]
    assert "hidden" not in "".join(one.stdout + one.stderr for one in ended)


@pytest.mark.parametrize("suffix", [".lmdb", ".h5"])
def test_what_leads_to_the_table_takes_two_requests(suffix: str, served: Served, tmp_path: Path) -> None:
    path, image = tmp_path / f"many{suffix}", io.BytesIO()
    Image.new("RGB", (1, 1)).save(image, "png")
    packer.pack(
        ({"image": image.getvalue(), "label": 0, "name": f"{n}.png"} for n in range(10_000)), path, classes=["a"]
    )
    begun = len(served.server.asked)
    with open_pack(served.url(path)) as there, open_pack(path) as here:
        assert there.manifest == here.manifest
        assert np.array_equal(there.table.offset, here.table.offset)
    asked = served.server.asked[begun:]
    assert len(asked) == 3, "the beginning, what leads to the table, and the table"
    assert asked[2].sent > 400_000
