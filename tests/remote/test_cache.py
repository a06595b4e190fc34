"""The cache as a user sees it: the notice about it, `packer cache info`, and what `packer cache clear` removes."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path

import pytest

from packer import open_dataset
from packer._storage.remote import blocks, cache
from packer._storage.remote.cache import BLOCK, CacheNotice, Segment
from tests.command import packer_many, started
from tests.conftest import Packs, Trees
from tests.remote.fileserver import Served
from tests.samples import content


@pytest.fixture(scope="module")
def photo_packs(trees: Trees, packs: Packs) -> list[Path]:
    """Two packs, of which one consists of several objects."""
    tree = trees(classes=2, per_class=30, size=(150, 200))
    return [packs(tree), packs(tree, "pth")]


def read(url: str, kept: Path) -> list[bytes]:
    """Read all samples as a new process does."""
    blocks._opened.clear()
    with open_dataset(url, output="bytes", cache_dir=kept, cache_size="1 GB") as dataset:
        return [bytes(data) for data, _ in dataset.__getitems__(range(len(dataset)))]


def test_info_says_what_is_kept_and_clear_removes_it(photo_packs: list[Path], served: Served, tmp_path: Path) -> None:
    kept, urls = tmp_path / "kept", [served.url(path) for path in photo_packs]
    expected = [read(f"{url}?sig=hidden", kept) for url in urls]
    for path in kept.glob("*/*"):
        os.utime(path, (86_400, 86_400) if ".pth" in (path.parent / "about.json").read_text() else None)
    info, *_ = packer_many([["cache", "info", kept, "--json"]])
    told = json.loads(info.stdout)
    assert (told["directory"], told["limit"]) == (str(kept), 10**9)
    objects = {one["url"]: one for one in told["objects"]}
    assert set(objects) > {f"{urls[0]}?sig=..."}
    assert sum(one["size"] for one in objects.values()) == told["size"]
    one = told["objects"][0]  # which was used last
    assert one["url"] == f"{urls[0]}?sig=..."
    assert one["object_size"] == photo_packs[0].stat().st_size
    assert one["etag"] == served.server.etag(str(photo_packs[0])[1:])
    assert 0.5 * one["object_size"] < one["size"] < one["object_size"] + (1 << 20)
    on_disk = sum(p.stat().st_blocks * 512 for p in kept.rglob("*") if p.is_file() and p.parent != kept)
    assert told["size"] == on_disk
    lines, first, second, last, again = packer_many(
        [
            ["cache", "info", kept],
            ["cache", "clear", kept, "--url", urls[1]],
            ["cache", "info", kept, "--json"],
            ["cache", "clear", kept],
            ["cache", "clear", kept, "--url", urls[1]],
        ]
    )
    head, _, *rows = lines.stdout.splitlines()
    assert head.startswith(f"{kept}: ")
    assert head.endswith("at most 1.0 GB (PACKER_CACHE_SIZE)")
    assert len(rows) == len(objects)
    assert urls[0] in rows[0]
    assert "ETag" in rows[0]
    assert all("used 1970-01-0" in row for row in rows[1:])
    assert f"removed, {len(objects) - 1} object" in first.stdout
    assert json.loads(second.stdout)["objects"] == [one]
    assert "removed, 1 object" in last.stdout
    assert again.stdout == f"{kept}: nothing of {urls[1]} is cached\n"
    assert "hidden" not in "".join(r.stdout + r.stderr for r in (info, lines, first, second, last, again))
    assert [path.name for path in kept.iterdir()] == ["packer-cache.txt"]
    assert [read(url, kept) for url in urls] == expected


def test_only_what_packer_wrote_is_removed(photo_packs: list[Path], served: Served, tmp_path: Path) -> None:
    """The cache directory contains foreign files, or the user names another directory."""
    kept, foreign = tmp_path / "kept", tmp_path / "foreign"
    name = "0123456789abcdef" * 2
    for directory in (kept, foreign):
        for path in ("photo.jpg", "000001.stretch", f"{name}/photo.jpg", f"{name}/0.lock", f"{name[::-1]}/about.json"):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text("{}")
    (kept / ("f" * 32)).mkdir()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "000000.stretch").write_text("mine")
    (kept / ("e" * 32)).symlink_to(tmp_path / "else")
    before, theirs = content(kept), content(foreign)
    read(served.url(photo_packs[0]), kept)
    (own,) = (path for path in kept.iterdir() if path.name not in {*before, "packer-cache.txt"})
    (own / "notes.txt").write_text("mine")
    here, there, missing, empty = packer_many(
        [
            ["cache", "clear", kept],
            ["cache", "clear", foreign],
            ["cache", "info", kept / "none"],
            ["cache", "clear", ""],
        ]
    )
    assert "removed, 1 object" in here.stdout
    after = content(kept)
    assert after.pop("packer-cache.txt")
    assert after == before | {own.name: None, f"{own.name}/notes.txt": b"mine"}
    assert (tmp_path / "else" / "000000.stretch").read_text() == "mine"
    assert there.returncode == 1
    assert "is not a cache of packer, so packer does not change it" in there.stderr
    assert missing.stderr == f"packer: {kept / 'none'}: no such directory\n"
    assert (missing.returncode, empty.returncode) == (1, 2)
    assert content(foreign) == theirs


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_a_note_that_is_a_fifo_is_not_waited_for(photo_packs: list[Path], served: Served, tmp_path: Path) -> None:
    read(served.url(photo_packs[0]), tmp_path / "kept")
    planted = tmp_path / "kept" / ("d" * 32)
    planted.mkdir()
    os.mkfifo(planted / "about.json")
    (info,) = packer_many([["cache", "info", tmp_path / "kept", "--json"]])
    assert served.url(photo_packs[0]) in {one["url"] for one in json.loads(info.stdout)["objects"]}, info.stderr
    assert planted.exists()


def test_the_default_cache(
    served: Served, photo_packs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not exist; the process that makes it prints a notice, and later processes do not."""
    monkeypatch.delenv("PACKER_CACHE_DIR")
    monkeypatch.delenv("PACKER_CACHE_SIZE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    default, url = tmp_path / "packer", served.url(photo_packs[0])
    before, cleared, first, second, quiet = packer_many(
        [
            ["cache", "info"],
            ["cache", "clear"],
            ["export", url, tmp_path / "files"],
            ["info", url],
            ["verify", url, "--quiet", "--cache-dir", tmp_path / "new"],
        ]
    )
    assert before.stdout.startswith(f"{default}: the cache is empty; at most ")
    assert before.stdout.endswith(" (half of the space that would be free without the cache)\n")
    assert cleared.stdout == f"{default}: nothing is cached\n"
    assert first.stderr.startswith(
        f"packer: downloads are cached in {default}, which may use half of the free space on "
    )
    # A slow export also shows its progress.
    assert sum(not line.startswith("files: ") for line in first.stderr.splitlines()) == 1
    assert (second.stderr, quiet.stderr) == ("", "")
    with pytest.warns(CacheNotice, match=f"cached in {tmp_path / 'other'}.*PACKER_CACHE_SIZE") as caught:
        open_dataset(url, cache_dir=tmp_path / "other").close()
    assert caught[0].filename == __file__
    monkeypatch.setattr(cache, "_prepared", set())
    open_dataset(url, cache_dir=tmp_path / "other").close()  # warnings are errors in tests
    open_dataset(url, cache_dir=tmp_path / "bounded", cache_size="1 GB").close()
    assert (tmp_path / "bounded" / "packer-cache.txt").is_file()
    monkeypatch.setenv("PACKER_CACHE_DIR", "")
    (none,) = packer_many([["cache", "info"]])
    assert (none.returncode, "cached in memory only" in none.stderr) == (2, True)


READER = """
import sys, warnings, zlib, packer
warnings.simplefilter("error")
with packer.open_dataset(sys.argv[1], output="bytes", cache_dir=sys.argv[2]) as dataset:
    for number in range(6):
        print(zlib.crc32(b"".join(bytes(dataset[i][0]) for i in range(len(dataset)))), flush=True)
"""


def test_a_cache_is_cleared_while_others_read(photo_packs: list[Path], served: Served, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    readers = [started(READER, served.url(photo_packs[0]), kept) for _ in range(2)]
    lines = [readers[0].stdout.readline()]
    ended = threading.Event()

    def clear() -> None:
        while not ended.wait(0.01):
            cache.clear(str(kept))

    clearing = threading.Thread(target=clear)
    clearing.start()
    said = [reader.communicate(timeout=120)[0] for reader in readers]
    ended.set()
    clearing.join()
    assert [reader.returncode for reader in readers] == [0, 0]
    assert len({*lines[0].split(), *said[0].split(), *said[1].split()}) == 1


@pytest.mark.parametrize("number", [0, 1], ids=["one object", "several objects"])
@pytest.mark.parametrize("second", ["b", ""], ids=["two directories", "a directory and memory"])
def test_two_caches_of_one_object_in_one_process(
    photo_packs: list[Path], served: Served, tmp_path: Path, number: int, second: str
) -> None:
    """Each caches the reads through it, and fetches nothing twice."""
    url, path = served.url(photo_packs[number]), photo_packs[number]
    expected = [bytes(data) for data, _ in open_dataset(path, output="bytes")]
    stored = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]))
    places = [tmp_path / "a", tmp_path / second if second else ""]
    first, other = (open_dataset(url, output="bytes", cache_dir=place, cache_size="1 GB") for place in places)
    some = range(0, len(first), 7)
    assert [bytes(data) for data, _ in first.__getitems__(some)] == [expected[row] for row in some]
    for dataset, rows in ((other, range(len(other))), (first, range(len(first)))):
        before = served.server.sent()
        assert [bytes(dataset[row][0]) for row in rows] == expected
        assert served.server.sent() - before < 1.2 * stored
        asked = len(served.server.asked)
        assert [bytes(dataset[row][0]) for row in rows] == expected
        assert len(served.server.asked) == asked, "what was read once is kept"
    for place in filter(None, places):
        assert sum(one.size for one in cache.cached_objects(str(place))) > 0.9 * stored


def test_a_cache_directory_is_for_the_urls_among_several_packs(
    photo_packs: list[Path], served: Served, tmp_path: Path
) -> None:
    packs = [str(photo_packs[1]), served.url(photo_packs[1])]
    with open_dataset(packs, output="bytes", cache_dir=tmp_path / "cache") as dataset:
        here, there = dataset.datasets
        assert [data for data, _ in here] == [data for data, _ in there]
    assert cache.cached_objects(str(tmp_path / "cache"))


def test_what_is_chosen_for_a_later_dataset_changes_no_earlier_one(
    photo_packs: list[Path], served: Served, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in "ab"]
    first, _ = (open_dataset(served.url(photo_packs[1]), output="bytes", cache_dir=place) for place in places)
    begun = sum(one.size for one in cache.cached_objects(str(places[1])))
    copy = pickle.loads(pickle.dumps(first))
    copy.__getitems__(range(0, len(copy), 2))
    first.__getitems__(range(1, len(first), 2))
    assert sum(one.size for one in cache.cached_objects(str(places[1]))) == begun
    samples, first_bytes = sum(len(data) for data, _ in first), 64 << 10  # come with the version, to memory
    assert sum(one.size for one in cache.cached_objects(str(places[0]))) > samples - first_bytes
    shard = next(one for one in cache.cached_objects(str(places[0])) if one.object_size > samples)
    stretch = Segment(shard.directory, 0, shard.object_size)
    assert stretch.lacking(first_bytes // BLOCK, -(-samples // BLOCK)) == [], "a block is handed out once it is kept"
    asked = len(served.server.asked)
    copy.__getitems__(range(len(copy)))
    assert len(served.server.asked) == asked
