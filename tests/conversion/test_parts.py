"""Conversions in parts: the same samples as in one piece, whoever makes the parts, and however often they stop."""

from __future__ import annotations

import json
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._conversion.convert import ConversionProgress, convert
from packer._conversion.destination import LocalDestination
from packer._conversion.partition import Partition, SharedSource, begin as begin_request, finish
from packer._conversion.recipe import Recipe
from packer._conversion.request import ConversionRequest
from packer._conversion.workspace import Workspace, WorkspacePaths
from packer._formats import check_readable, open_pack
from packer._images.resize import ResizeSpec
from packer._manifest import Manifest
from packer._packs.info import digest
from packer._packs.verify import verify
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._sources.pack import pack_source
from packer._sources.scan_list import listed_source, write_listing
from packer.errors import (
    CorruptPackError,
    DestinationError,
    ImageChangedError,
    ImageError,
    PackLockedError,
    ResumeError,
    SourceError,
)
from packer.testing.photos import draw_imagefolder
from tests.samples import SUFFIXES, content, solid


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    draw_imagefolder(root, classes=3, per_class=20, size=(32, 40))
    (root / "class_00" / "bad.png").write_text("no image")
    (root / "class_02" / "bad.png").write_text("no image")
    return root


def job(path: Path, parts: int = 4, format: str = "lmdb", **fields: Any) -> Partition:
    scratch, options = fields.pop("scratch", None), {"src": path.parent, "on_error": "skip", **fields}
    return Partition(ConversionRequest(dst=path, parts=parts, format=format, **options), scratch)


def begin(work: Partition, tree: Path, **options: Any) -> Source:
    return work.begin(lambda: imagefolder_source(tree), {"src": str(tree)}, **options)


def make_all(work: Partition, source: Source) -> None:
    for number in work.missing():
        work.convert(source, number)
    finish(work.destination)


@pytest.mark.parametrize(
    ("format", "parts"), [("lmdb", 1), ("lmdb", 3), ("lmdb", 8), ("lmdb", 62), ("hdf5", 3), ("hdf5", 8), ("pth", 3)]
)
def test_parts_are_the_pack_in_one_piece(tree: Path, tmp_path: Path, format: str, parts: int) -> None:
    whole, path = tmp_path / f"whole{SUFFIXES[format]}", tmp_path / f"parts{SUFFIXES[format]}"
    expected = convert(imagefolder_source(tree), whole, on_error="skip").manifest
    work = job(path, parts, format)
    make_all(work, begin(work, tree))
    assert sorted(os.listdir(tmp_path)) == sorted([whole.name, path.name])
    assert digest(path) == digest(whole)
    assert verify(path) == []
    with open_pack(path) as reader:
        manifest = reader.manifest
    assert manifest.layout["parts"][0][0] == f"part-00000{SUFFIXES[format]}"
    same = ("format", "count", "classes", "codec", "settings", "source", "skipped", "findings", "versions")
    assert [getattr(manifest, name) for name in same] == [getattr(expected, name) for name in same]
    assert work.made_before(imagefolder_source(tree)) == manifest
    assert finish(path) == manifest  # again changes nothing
    shutil.rmtree(path)


def test_every_codec(tree: Path, tmp_path: Path) -> None:
    recipe = Recipe("raw", ResizeSpec(16))
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", recipe=recipe, on_error="skip")
    work = job(tmp_path / "parts.lmdb", codec="raw", resize=16)
    make_all(work, begin(work, tree))
    assert digest(tmp_path / "parts.lmdb") == digest(tmp_path / "whole.lmdb")


def test_a_pack_becomes_parts_and_parts_a_pack(tree: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.lmdb"
    convert(imagefolder_source(tree), whole, on_error="skip")
    work = job(tmp_path / "parts.lmdb", 5)
    make_all(work, work.begin(lambda: pack_source(whole), {}))
    convert(pack_source(tmp_path / "parts.lmdb"), tmp_path / "again.lmdb")
    assert content(tmp_path / "again.lmdb") == content(whole)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"settings": {"format": "lmdb"}}', "\u00e9"])
def test_a_damaged_file_of_a_job_says_what_to_do(tree: Path, tmp_path: Path, text: str) -> None:
    work = job(tmp_path / "pack.lmdb", 2)
    begin(work, tree)
    WorkspacePaths(work.destination).job.write_text(text, encoding="utf-8")
    for use in (lambda: begin(work, tree), lambda: finish(work.destination)):
        with pytest.raises(
            DestinationError, match=r"parts\.json: damaged: .* Remove .*pack\.lmdb\.partial, and convert"
        ):
            use()


@pytest.mark.parametrize(
    ("member", "value"), [("settings", []), ("settings", {}), ("made_of", None), ("images", "62"), ("packs", {})]
)
def test_a_damaged_member_of_a_job_is_named(tree: Path, tmp_path: Path, member: str, value: object) -> None:
    work = job(tmp_path / "pack.lmdb", 2)
    begin(work, tree)
    WorkspacePaths(work.destination).job.write_text(
        json.dumps({**json.loads(WorkspacePaths(work.destination).job.read_text()), member: value})
    )
    with pytest.raises(DestinationError, match=r"parts\.json: damaged: "):
        begin(work, tree)


@pytest.mark.parametrize(("name", "value"), [("format", "zip"), ("format", []), ("parts", 0), ("parts", "2")])
def test_a_damaged_setting_of_a_job_is_no_traceback(tree: Path, tmp_path: Path, name: str, value: object) -> None:
    work = job(tmp_path / "pack.lmdb", 2)
    begin(work, tree)
    written = json.loads(WorkspacePaths(work.destination).job.read_text())
    written["settings"][name] = value
    WorkspacePaths(work.destination).job.write_text(json.dumps(written))
    with pytest.raises(DestinationError, match=r"parts\.json: damaged: "):
        finish(work.destination)


class StopError(Exception):
    pass


def test_a_part_that_was_interrupted_continues(tree: Path, tmp_path: Path) -> None:
    work = job(tmp_path / "pack.lmdb", 2)

    def stop(progress: ConversionProgress) -> None:
        if progress.done > 3:
            raise StopError

    with pytest.raises(StopError):
        work.convert(begin(work, tree), 1, progress=stop)
    assert work.missing() == [0, 1]
    with pytest.raises(DestinationError, match=r"2 of 2 parts are missing: 0, 1"):
        finish(work.destination)
    seen: list[int] = []
    work.convert(begin(work, tree), 1, progress=lambda p: seen.append(p.done))
    assert seen[0] > 4
    work.convert(begin(work, tree), 0)
    again = work.convert(begin(work, tree), 0, progress=seen.append)  # it is there
    assert (again.images, again.bytes_in) == (31, 0)
    finish(work.destination)
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", on_error="skip")
    assert digest(work.destination) == digest(tmp_path / "whole.lmdb")


def test_the_source_is_listed_once(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(tree, root)
    calls = []

    def listing() -> Source:
        calls.append(1)
        time.sleep(0.3)
        return imagefolder_source(root)

    works = [job(tmp_path / "pack.lmdb", 4) for _ in range(4)]
    found: list[Source] = []
    threads = [
        threading.Thread(target=lambda work=work: found.append(work.begin(listing, {}, share=True))) for work in works
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len({json.dumps(source.describe()) for source in found}) == 1
    solid(root / "class_00" / "0000a.png")  # is not in the list
    assert list(works[0].begin(listing, {}, share=True).names) == list(found[0].names)
    shared = SharedSource(works[0].listing()).open()
    for number, work in enumerate(works):
        work.convert(shared, number)
    finish(works[0].destination)
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", on_error="skip")
    assert digest(works[0].destination) == digest(tmp_path / "whole.lmdb")


def changed_tree(tree: Path, tmp_path: Path, name: str) -> tuple[Path, Path, Path]:
    """Return a copy of the tree, one of its files, and a copy of that one as it is."""
    root = tmp_path / "tree"
    shutil.copytree(tree, root)
    return root, root / name, shutil.copy2(root / name, tmp_path / "kept")


def test_a_file_that_changed_since_the_job_began(tree: Path, tmp_path: Path) -> None:
    """Joining the job with a comparison of all files is refused; a task that joins without it refuses the file."""
    name = "class_02/0005.jpg"
    root, file, kept = changed_tree(tree, tmp_path, name)
    work = job(tmp_path / "pack.lmdb", 4, on_error="fail")
    for bad in ("class_00/bad.png", "class_02/bad.png"):
        solid(root / bad)
    work.convert(begin(work, root, share=True), 0)
    solid(file)
    for number in range(4):  # whichever parts are made
        with pytest.raises(
            ResumeError, match=rf"1 image was changed: {name} \(its size was \d+ bytes and is now \d+\)"
        ):
            begin(work, root)
        source = begin(work, root, share=True, compare=False)
        if number < 3:
            work.convert(source, number)
    assert work.missing() == [3]
    for _ in range(2):
        with pytest.raises(ImageChangedError, match=rf"{name}: changed since it was listed: its size was"):
            work.convert(source, 3)
    solid(file, (9, 9, 9))  # such a file cannot be mended, only put back
    with pytest.raises((ImageChangedError, ResumeError), match=name):
        work.convert(source, 3)
    shutil.copy2(kept, file)
    make_all(work, begin(work, root))
    convert(imagefolder_source(root), tmp_path / "whole.lmdb")
    assert digest(work.destination) == digest(tmp_path / "whole.lmdb")


def test_one_that_changed_is_left_out_where_that_was_asked(tree: Path, tmp_path: Path) -> None:
    name = "class_02/0005.jpg"
    root, file, _ = changed_tree(tree, tmp_path, name)
    work = job(tmp_path / "pack.lmdb", 4)
    source = begin(work, root)
    file.unlink()
    for number in range(4):
        work.convert(source, number)
    skipped = {entry["name"]: entry["reason"] for entry in finish(work.destination).skipped}
    assert sorted(skipped) == ["class_00/bad.png", name, "class_02/bad.png"]
    assert skipped[name] == "changed since it was listed: it was deleted or cannot be read"


def test_a_list_of_files_is_known_by_what_they_were(tree: Path, tmp_path: Path) -> None:
    """A scan made before, and the same one made again after a file was changed."""
    name = "class_02/0005.jpg"
    root, file, _ = changed_tree(tree, tmp_path, name)
    listed = tmp_path / "list"
    write_listing(imagefolder_source(root), listed)
    solid(file)
    work = job(tmp_path / "pack.lmdb", 4)
    source = work.begin(lambda: listed_source(listed), {}, share=True)
    part = work.convert(source, 3)
    assert part.skipped == 2
    write_listing(imagefolder_source(root), listed)
    with pytest.raises(ResumeError, match=rf"1 image was changed: {name}"):
        work.begin(lambda: listed_source(listed), {}, share=True)
    make_all(work, work.begin(lambda: listed_source(listed), {}, share=True, compare=False))
    with open_pack(work.destination) as reader:
        assert [entry["name"] for entry in reader.manifest.skipped][1] == name


@pytest.mark.parametrize("scratch", [False, True])
def test_bad_files_are_mended_and_the_job_goes_on(tree: Path, tmp_path: Path, scratch: bool) -> None:
    root, file, _ = changed_tree(tree, tmp_path, "class_02/bad.png")
    disk = tmp_path / "scratch" if scratch else None
    work = job(tmp_path / "pack.lmdb", 4, on_error="fail", scratch=disk)
    solid(root / "class_00" / "bad.png")
    with pytest.raises(ImageError, match=r"class_02/bad\.png"):
        work.convert(begin(work, root, share=True), 3, workers=1)
    solid(file)
    if disk is not None:
        shutil.rmtree(disk)  # another node goes on
    for number in work.missing():
        work.convert(begin(work, root, share=number > 1), number)
    begin(work, root)
    finish(work.destination)
    convert(imagefolder_source(root), tmp_path / "whole.lmdb")
    assert digest(work.destination) == digest(tmp_path / "whole.lmdb")


def test_another_pack_of_the_same_names(tree: Path, tmp_path: Path) -> None:
    root, file, _ = changed_tree(tree, tmp_path, "class_02/0005.jpg")
    pack, path = tmp_path / "source.lmdb", tmp_path / "pack.lmdb"
    convert(imagefolder_source(root), pack, on_error="skip")
    work = job(path, 4, src=pack)
    source = work.begin(lambda: pack_source(pack), {}, share=True)
    shared = SharedSource.of(work, source)
    work.convert(shared.open(), 0)
    solid(file)
    convert(imagefolder_source(root), pack, on_error="skip", overwrite=True)
    with pytest.raises(SourceError, match=r"source\.lmdb: the pack was replaced after"):
        shared.open()
    for compare in (False, True):
        with pytest.raises(ResumeError, match=r"pack 0 of the source was \w{12} and is now \w{12}"):
            work.begin(lambda: pack_source(pack), {}, share=True, compare=compare)


def test_a_job_whose_list_is_lost(tree: Path, tmp_path: Path) -> None:
    work = job(tmp_path / "pack.lmdb", 4)
    begin(work, tree)
    WorkspacePaths(work.destination).listing.unlink()
    for share in (False, True):
        with pytest.raises(ResumeError, match=r"source\.list is missing or damaged\n.*fresh=True"):
            begin(work, tree, share=share)
    make_all(work, begin(work, tree, fresh=True))


def test_tasks_must_agree(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    begin(job(path, 4), tree)
    for other, what in [
        (job(path, 5), "parts= was 4 and is now 5"),
        (job(path, codec="png"), "codec= was keep and is now png"),
        (job(path, on_error="fail"), "on_error= was skip and is now fail"),
        (job(path, format="hdf5"), "the format was lmdb and is now hdf5"),
    ]:
        with pytest.raises(ResumeError, match=what):
            begin(other, tree)
    with pytest.raises(ResumeError, match=r"SRC was .* and is now elsewhere"):
        job(path).begin(lambda: imagefolder_source(tree), {"src": "elsewhere"})
    with pytest.raises(ResumeError, match=r"42 images were removed: class_00/bad\.png"):
        job(path).begin(lambda: imagefolder_source(tree).limited(20), {"src": str(tree)})
    begin(job(path, 5), tree, fresh=True)


def test_a_job_that_was_replaced_or_finished_is_not_brought_back(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    files = LocalDestination(path)
    begin(job(path, 4, on_error="fail"), tree)
    before = files.job()
    assert before is not None
    begin(job(path, 2), tree, fresh=True)
    now = files.job()
    with pytest.raises(DestinationError, match="another process finished this conversion or deleted it"):
        files.relax(before)
    assert files.job() == now
    make_all(job(path, 2), begin(job(path, 2), tree))
    with pytest.raises(DestinationError, match="another process finished this conversion or deleted it"):
        files.relax(before)
    assert os.listdir(tmp_path) == [path.name]


def test_a_job_is_changed_by_one_task_at_a_time(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    files = LocalDestination(path)
    begin(job(path, 4, on_error="fail"), tree)
    before = files.job()
    assert before is not None
    threads = [threading.Thread(target=files.relax, args=(before,)) for _ in range(4)]
    with Workspace(path):
        for thread in threads:
            thread.start()
        assert files.job() == before
    for thread in threads:
        thread.join()
    assert files.job() == {**before, "settings": {**before["settings"], "on_error": "skip"}}


def test_one_destination_has_one_kind_of_conversion(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    begin(job(path), tree)
    with pytest.raises(ResumeError, match="parts="):
        convert(imagefolder_source(tree), path)
    with pytest.raises(ImageError):
        convert(imagefolder_source(tree), path, fresh=True)
    with pytest.raises(ResumeError, match="without parts"):
        begin(job(path), tree)
    with pytest.raises(SourceError, match="62 images cannot be divided into 63 parts"):
        begin(job(path, 63), tree, fresh=True)
    begin(job(path), tree, fresh=True)
    assert job(path).missing() == [0, 1, 2, 3]


def test_what_is_there_is_replaced_when_asked(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    convert(imagefolder_source(tree), path, on_error="skip")
    with pytest.raises(DestinationError, match="exists already"):
        begin(job(path), tree)
    assert job(path).made_before(imagefolder_source(tree)) is None
    for work in (job(path, overwrite=True), job(path, 2, overwrite=True)):
        make_all(work, begin(work, tree))
        with open_pack(path) as reader:
            assert len(reader.manifest.layout["parts"]) == work.request.parts
        assert verify(path) == []
    assert len(os.listdir(tmp_path)) == 1


def test_a_file_that_was_replaced_is_another_also_with_the_same_size(tree: Path, tmp_path: Path) -> None:
    tree = shutil.copytree(tree, tmp_path / "tree")
    work = job(tmp_path / "pack.lmdb", 2)
    make_all(work, begin(work, tree))
    path = sorted(tree.rglob("*.jpg"))[3]
    data = path.read_bytes()
    path.write_bytes(data)
    os.utime(path, (2e9, 2e9))
    assert work.made_before(imagefolder_source(tree)) is not None  # the time alone is another
    path.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
    os.utime(path, (2e9, 2e9))
    assert work.made_before(imagefolder_source(tree)) is None
    with pytest.raises(DestinationError, match="exists already"):
        begin(work, tree)


def test_younger_files_of_a_pack_that_was_encoded_anew_are_said(tree: Path, tmp_path: Path) -> None:
    tree = shutil.copytree(tree, tmp_path / "tree")
    work = job(tmp_path / "pack.lmdb", 2, codec="png")
    make_all(work, begin(work, tree))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert work.made_before(imagefolder_source(tree)) is not None
    path = sorted(tree.rglob("*.jpg"))[3]
    os.utime(path, (2e9, 2e9))
    with pytest.warns(UserWarning, match=rf"1 image of .*{path.name}.* changed after .*--overwrite"):
        assert work.made_before(imagefolder_source(tree)) is not None


def test_parts_of_which_no_image_can_be_read(tmp_path: Path) -> None:
    for name in "ab":
        for number in range(4):
            (tmp_path / "tree" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "tree" / name / f"{number}.png").write_text("no image")
    work = job(tmp_path / "pack.lmdb", 4)
    source = begin(work, tmp_path / "tree")
    for number in range(4):
        assert work.convert(source, number).skipped == 2
    with pytest.raises(SourceError, match="none of the 8 images"):
        finish(work.destination)
    solid(tmp_path / "tree" / "b" / "1.png")
    work = job(tmp_path / "other.lmdb", 4)
    make_all(work, begin(work, tmp_path / "tree"))
    with open_pack(work.destination) as reader:
        assert list(reader.table.sample_names()) == ["b/1.png"]
        assert len(reader.manifest.skipped) == 7


def test_parts_are_made_on_scratch(tree: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    work = job(tmp_path / "pack.pth", 3, "pth", shard_size=9000, scratch=scratch)
    source = begin(work, tree)
    places = set()

    def look(progress: ConversionProgress) -> None:
        places.add(len(list(scratch.glob("packer-*/part-*.pth.partial"))))

    for number in range(3):
        part = work.convert(source, number, progress=look)
        assert part.note == ""
        assert part.bytes_in > 0
    assert places == {1}
    assert os.listdir(scratch) == []
    assert sorted(os.listdir(WorkspacePaths(work.destination).directory / "pack")) == [
        f"part-0000{number}.pth" for number in range(3)
    ]
    finish(work.destination)
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", on_error="skip")
    assert digest(work.destination) == digest(tmp_path / "whole.lmdb")


def test_scratch_that_cannot_be_used_is_not_needed(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    work = job(tmp_path / "pack.lmdb", 2, scratch=tmp_path / "file" / "scratch")
    source = begin(work, tree)
    part = work.convert(source, 0)
    assert "scratch" in part.note
    work.convert(source, 1)
    finish(work.destination)
    assert verify(work.destination) == []


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, to mount a small tmpfs")
@pytest.mark.parametrize(("codec", "note"), [("keep", "but the disk has"), ("png", "No space left")])
def test_a_scratch_that_is_full_is_left_clean(tree: Path, tmp_path: Path, codec: str, note: str) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", scratch], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        work = job(tmp_path / "pack.lmdb", 1, codec=codec, scratch=scratch)
        part = work.convert(begin(work, tree), 0)
        assert note in part.note
        assert os.listdir(scratch) == []
    finally:
        subprocess.run(["umount", scratch], check=True)
    finish(work.destination)
    convert(imagefolder_source(tree), tmp_path / "whole.lmdb", recipe=Recipe(codec), on_error="skip")
    assert digest(work.destination) == digest(tmp_path / "whole.lmdb")


def test_two_tasks_for_one_part(tree: Path, tmp_path: Path) -> None:
    """A task whose part is locked is refused; one that may wait makes the part after the lock is released."""
    work = job(tmp_path / "pack.lmdb", 1)
    source = begin(work, tree)
    with Workspace(work.files.part(work.names[0])):
        with pytest.raises(PackLockedError):
            work.convert(source, 0)
        waiting = threading.Thread(target=lambda: work.convert(source, 0, wait=60))
        waiting.start()
        time.sleep(0.2)
        assert work.missing() == [0]
    waiting.join()
    assert work.missing() == []


@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("call", ["os.replace", "os.rename", "shutil.rmtree"])
def test_another_task_finishes_the_pack_as_soon_as_the_last_part_has_its_name(
    tree: Path, tmp_path: Path, call: str, scratch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that made the part no longer finds it, and still reports correctly what it made."""
    path, real = tmp_path / "pack.lmdb", pkgutil.resolve_name(call)
    convert(imagefolder_source(tree), path, on_error="skip")
    work = job(path, 2, overwrite=True, scratch=tmp_path / "scratch" if scratch else None)
    source = begin(work, tree)
    work.convert(source, 0)

    def finishing(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        if work.files.part(work.names[1]).exists():
            monkeypatch.undo()
            finish(path)

    monkeypatch.setattr(call, finishing)
    part = work.convert(source, 1)
    assert (part.images, part.skipped) == (31, 1)
    assert part.bytes_in > 0
    assert part.note == ""
    monkeypatch.undo()
    finish(path)
    assert sorted(set(os.listdir(tmp_path)) - {"scratch"}) == ["pack.lmdb"]
    assert verify(path) == []


def test_a_task_that_comes_too_late_finds_the_pack_finished(tree: Path, tmp_path: Path) -> None:
    work = job(tmp_path / "pack.lmdb", 2, overwrite=True)
    source = begin(work, tree)
    make_all(work, source)
    assert work.convert(source, 1).bytes_in == 0
    assert os.listdir(tmp_path) == ["pack.lmdb"]


def test_a_task_whose_files_were_removed_by_another_that_finished_finds_the_pack(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks of one part: the later one begins before the earlier one names the part, and ends after the pack."""
    path, real = tmp_path / "pack.lmdb", check_readable
    work = job(path, 2)
    source = begin(work, tree)
    work.convert(source, 0)

    def finishing(made: Path, manifest: Manifest) -> None:
        monkeypatch.undo()
        shutil.copy(made, work.files.part(work.names[1]))
        finish(path)
        real(made, manifest)

    monkeypatch.setattr("packer._conversion.convert.check_readable", finishing)
    assert work.convert(source, 1).bytes_in == 0
    assert os.listdir(tmp_path) == ["pack.lmdb"]
    assert verify(path) == []


def test_a_task_that_waited_while_the_pack_was_finished_begins_no_other(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.lmdb"
    files, errors = job(path, 2).files, []

    def wait_and_begin() -> None:
        try:
            files.begin(lambda: imagefolder_source(tree), lambda source: {}, fresh=False, overwrite=False, wait=60)
        except DestinationError as error:
            errors.append(str(error))

    with Workspace(path):
        late = threading.Thread(target=wait_and_begin)
        late.start()
        path.write_bytes(b"a pack")
    late.join()
    assert [error for error in errors if "exists already" in error] == errors != []
    assert os.listdir(tmp_path) == [path.name]


def test_what_no_job_can_be(tree: Path, tmp_path: Path) -> None:
    for fields, message in [
        ({"parts": 0}, "parts must be 1"),
        ({"format": "x"}, "format must be one of lmdb, hdf5, pth, .*, not 'x'"),
    ]:
        with pytest.raises(ValueError, match=message):
            job(tmp_path / "pack.lmdb", **fields)
    with pytest.raises(ValueError, match="from 0 to 3; there is no part 4"):
        job(tmp_path / "pack.lmdb").convert(imagefolder_source(tree), 4)
    assert os.listdir(tmp_path) == []


def test_what_lost_tasks_left_is_cleared(tree: Path, tmp_path: Path) -> None:
    work = job(tmp_path / "pack.lmdb", 2)
    source = begin(work, tree)
    (WorkspacePaths(work.destination).directory / "pack" / "part-00000.lmdb.elsewhere-17").write_bytes(b"half")
    (WorkspacePaths(work.destination).directory / "pack" / "part-00001.lmdb.partial").mkdir()
    make_all(work, source)
    names = ["manifest.json", "part-00000.lmdb", "part-00001.lmdb", "table.bin"]
    assert sorted(os.listdir(work.destination)) == names


def test_a_damaged_part_is_not_joined(tree: Path, tmp_path: Path) -> None:
    work = job(tmp_path / "pack.lmdb", 2)
    source = begin(work, tree)
    for number in range(2):
        work.convert(source, number)
    with open_pack(work.files.part(work.names[1])) as reader:
        label = reader.table.label.tobytes()
    data = work.files.part(work.names[1]).read_bytes()
    work.files.part(work.names[1]).write_bytes(data.replace(label, label[:-1] + b"\1"))
    with pytest.raises(CorruptPackError, match=r"part-00001.*label"):
        finish(work.destination)
    assert not work.destination.exists()
    work.files.part(work.names[1]).unlink()
    make_all(work, source)
    assert verify(work.destination) == []


def test_finish_without_parts(tmp_path: Path) -> None:
    with pytest.raises(DestinationError, match="--parts"):
        finish(tmp_path / "pack.lmdb")
    assert os.listdir(tmp_path) == []


def test_a_task_in_another_directory_has_the_same_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = ConversionRequest(src=Path("tree"), dst=Path("pack.lmdb"), parts=2)
    task = pickle.dumps(Partition(request, scratch=Path("scratch")))
    monkeypatch.chdir("/")
    partition = pickle.loads(task)
    assert (partition.destination, partition.scratch) == (tmp_path / "pack.lmdb", tmp_path / "scratch")


def test_a_shared_source_opens_what_it_is(tree: Path, tmp_path: Path) -> None:
    convert(imagefolder_source(tree), tmp_path / "pack.lmdb", on_error="skip")
    write_listing(imagefolder_source(tree), tmp_path / "list")
    assert len(SharedSource(tmp_path / "list").open()) == 62
    request = ConversionRequest(src=tmp_path / "pack.lmdb", dst=tmp_path / "out.lmdb", limit=7)
    assert len(SharedSource(request.src, request).open()) == 7
    classes = ["class_02", "class_01", "class_00"]
    assert SharedSource(request.src, request, classes).open().classes == classes


@pytest.mark.parametrize("choice", [{"limit": 7}, {"sample": 7}, {"where": "width == 40", "limit": 7}], ids=str)
def test_parts_of_a_shared_pack_record_what_was_not_selected(
    tree: Path, tmp_path: Path, choice: dict[str, Any]
) -> None:
    convert(imagefolder_source(tree), tmp_path / "pack.lmdb", on_error="skip")
    whole = packer.convert(tmp_path / "pack.lmdb", tmp_path / "whole.lmdb", **choice).manifest
    request = ConversionRequest(src=tmp_path / "pack.lmdb", dst=tmp_path / "out.lmdb", parts=2, **choice)
    partition = Partition(request)
    shared = SharedSource.of(partition, begin_request(partition, share=True))
    for number in partition.missing():
        partition.convert(shared.open(), number)
    assert finish(partition.destination).account == whole.account
