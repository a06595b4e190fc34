"""Parts of a pack on S3, made by tasks that have no disk in common: the pack that a disk would have, byte for byte."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import packer
from packer._conversion.dask import convert_on
from packer._conversion.partition import Partition, SharedSource, finish
from packer._conversion.request import ConversionRequest
from packer._sources.base import Source
from packer._sources.imagefolder import imagefolder_source
from packer._storage.remote.urls import UrlPath
from packer.errors import DestinationError, ImageError, RemoteError, ResumeError
from tests.command import packer as run, packer_many, packer_started
from tests.commandserver import Program
from tests.samples import content
from tests.upload.stores import CutError, Proxy


def stored(s3: Any, bucket: str) -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=bucket).get("Contents", ())
    return {entry["Key"]: s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read() for entry in listed}


def on_a_disk(path: Path, name: str) -> dict[str, bytes]:
    return {f"{name}/{inside}": data for inside, data in content(path).items() if data is not None}


def begin(url: str, tree: Path, scratch: Path, parts: int = 3, **said: Any) -> tuple[Partition, Source]:
    """Begin or join a job, as a task of an array on a node with this scratch does."""
    made = Partition(ConversionRequest(src=tree, dst=UrlPath(url), parts=parts, **said), scratch)  # type: ignore[arg-type]
    job = pickle.loads(pickle.dumps(made))
    return job, job.begin(lambda: imagefolder_source(tree), {"src": str(tree)})


@pytest.mark.parametrize("name", ["t.lmdb", "t.pth"])
def test_two_nodes_make_all_parts_at_once(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, name: str) -> None:
    """Both begin at the same time, make every part in the same order, and finish at the same time."""
    errors: list[BaseException] = []
    together = threading.Barrier(2)

    def node(scratch: Path) -> None:
        try:
            together.wait()
            job, source = begin(f"s3://{bucket}/dir/{name}", photo_tree, scratch)
            for number in range(3):
                together.wait()
                assert job.convert(source, number).images == 5
            assert job.missing() == []
            together.wait()
            job.files.finish()
        except BaseException as error:
            together.abort()
            errors.append(error)

    nodes = [threading.Thread(target=node, args=(tmp_path / f"node{number}",)) for number in range(2)]
    for thread in nodes:
        thread.start()
    for thread in nodes:
        thread.join()
    assert errors == []
    packer.convert(photo_tree, tmp_path / name, parts=3)
    assert stored(s3, bucket) == on_a_disk(tmp_path / name, f"dir/{name}")
    assert [list(path.iterdir()) for path in tmp_path.glob("node*")] == [[], []]
    with (
        packer.open_pack(f"s3://{bucket}/dir/{name}", cache_dir="") as there,
        packer.open_pack(tmp_path / name) as here,
    ):
        assert [bytes(there.read(index)) for index in range(15)] == [bytes(here.read(index)) for index in range(15)]


MOMENTS = {"a piece of a part": "partNumber=1", "the whole part": "uploadId", "the table": "table.bin"}


@pytest.mark.parametrize(
    ("moment", "elsewhere"), [*((moment, False) for moment in MOMENTS), ("a piece of a part", True)]
)
def test_a_task_that_was_killed_is_started_again(  # noqa: PLR0917
    s3: Any, bucket: str, large_tree: Path, tmp_path: Path, proxied: Callable[..., Proxy], moment: str, elsewhere: bool
) -> None:
    """On the same node or on another one: the pack is as on a disk, and nothing is left of what was begun."""
    running: list[Program] = []
    method = "POST" if moment == "the whole part" else "PUT"

    def watch(request: str, when: str) -> None:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix="t.lmdb/manifest.json")
        assert ("Contents" in listed) == (moment == "the table" and not running)
        if running and when == "after" and request.startswith(method) and MOMENTS[moment] in request:
            running.pop().kill()
            raise CutError

    packer.convert(large_tree, tmp_path / "t.lmdb", parts=2)
    words = [large_tree, f"s3://{bucket}/t.lmdb", "--quiet", "--parts", 2, "--scratch"]
    if moment == "the table":
        assert run("convert", *words, tmp_path / "first", "--part", 0).returncode == 0
    proxy = proxied(watch)
    with packer_started("convert", *words, tmp_path / "first", "--part", 1) as killed:
        running.append(killed)
        assert killed.wait() == -9
    proxy.watch = lambda request, when: None
    if elsewhere:
        shutil.rmtree(tmp_path / "first")
    for again in packer_many(["convert", *words, tmp_path / "first", "--part", part] for part in (1, 0)):
        assert again.returncode == 0, again.stderr
    assert stored(s3, bucket) == on_a_disk(tmp_path / "t.lmdb", "t.lmdb")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert list((tmp_path / "first").iterdir()) == []


def test_a_task_goes_on_with_what_it_made_and_sent(
    s3: Any, bucket: str, large_tree: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    proxy = proxied(lambda request, when: 403 if "partNumber=2" in request else None)
    job, source = begin(f"s3://{bucket}/t.lmdb", large_tree, tmp_path / "scratch", 2)
    with pytest.raises(RemoteError, match="access is denied"):
        job.convert(source, 0)
    proxy.watch = lambda request, when: None
    del proxy.seen[:]
    assert job.convert(source, 0).bytes_in == 0  # nothing was read again
    assert [request.partition("partNumber=")[2][0] for request in proxy.seen if "partNumber" in request] == ["2"]


def test_workers_of_a_cluster_upload_their_parts(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install dask-jobqueue")
    job, _ = begin(f"s3://{bucket}/t.lmdb", photo_tree, tmp_path / "scratch", 5)
    with (
        distributed.LocalCluster(n_workers=2, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        parts = convert_on(client, job, SharedSource(job.listing()))
    assert sorted(part.number for part in parts) == list(range(5))
    finish(f"s3://{bucket}/t.lmdb", scratch=tmp_path / "scratch")
    packer.convert(photo_tree, tmp_path / "t.lmdb", parts=5)
    assert stored(s3, bucket) == on_a_disk(tmp_path / "t.lmdb", "t.lmdb")


def test_an_image_that_stopped_a_task_is_mended_on_another_node(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path
) -> None:
    tree = shutil.copytree(photo_tree, tmp_path / "tree")
    bad = sorted(tree.rglob("*.*"))[-1]
    good = bad.read_bytes()
    bad.write_bytes(b"no image")
    url = f"s3://{bucket}/t.lmdb"
    job, source = begin(url, tree, tmp_path / "a")
    with pytest.raises(ImageError, match=bad.name):
        job.convert(source, 2)
    bad.write_bytes(good)
    job, source = begin(url, tree, tmp_path / "b")
    for number in range(3):
        job.convert(source, number)
    assert job.files.finish().count == 15
    packer.convert(photo_tree, tmp_path / "t.lmdb", parts=3)
    assert stored(s3, bucket) == on_a_disk(tmp_path / "t.lmdb", "t.lmdb")


def test_two_that_come_at_once_are_both_served(
    s3: Any, bucket: str, proxied: Callable[..., Proxy], photo_tree: Path, tmp_path: Path
) -> None:
    """S3 refuses one of two conditional writes at the same moment, though there is no object yet."""
    refused: list[str] = []

    def watch(request: str, when: str) -> int | None:
        verb, _, path = request.partition(" ")
        if verb != "PUT" or when != "before" or path in refused:
            return None
        refused.append(path)
        return 409

    proxied(watch)
    job, source = begin(f"s3://{bucket}/t.lmdb", photo_tree, tmp_path / "scratch", 1)
    job.convert(source, 0)
    assert job.files.finish().count == 15
    assert len(refused) == 5, "the list, the job, the part, the table and the manifest"


@pytest.mark.parametrize("name", ["t.lmdb", "t.pth"])
def test_a_task_whose_job_was_dropped_brings_nothing(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, name: str
) -> None:
    """Its part would pass for a part of the new job, whose images have the same names but are different."""
    url, changed = f"s3://{bucket}/{name}", tmp_path / "tree"
    job, source = begin(url, photo_tree, tmp_path / "a")
    shutil.copytree(photo_tree, changed)
    for path in changed.rglob("*.jpg"):
        Image.new("RGB", (40, 40)).save(path)
    dropped: list[bool] = []

    def drop(progress: object) -> None:
        if not dropped:
            dropped.append(True)
            job.begin(lambda: imagefolder_source(changed), {"src": str(photo_tree)}, fresh=True)

    with pytest.raises(DestinationError, match="another process finished this conversion or deleted it"):
        job.convert(source, 2, progress=drop)
    assert dropped
    assert job.missing() == [0, 1, 2]


def test_what_is_no_part_of_this_job_is_not_joined(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    url, scratch = f"s3://{bucket}/t.lmdb", tmp_path / "scratch"
    with pytest.raises(DestinationError, match=r"no conversion in parts was started here\. Start one with"):
        finish(url, scratch=scratch)
    job, source = begin(url, photo_tree, scratch)
    job.convert(source, 0)
    with pytest.raises(DestinationError, match="2 of 3 parts are missing: 1, 2"):
        job.files.finish()
    with pytest.raises(ResumeError, match=r"t\.lmdb\.partial contains an unfinished conversion .*\n.*codec= was keep"):
        begin(url, photo_tree, scratch, codec="png")
    s3.delete_object(Bucket=bucket, Key="t.lmdb.partial/parts.json")
    with pytest.raises(DestinationError, match="contains objects that are neither a pack nor a conversion in parts"):
        begin(url, photo_tree, scratch)
    # A task that was believed dead brings a part of a job that was dropped.
    part = s3.get_object(Bucket=bucket, Key="t.lmdb/part-00000.lmdb")["Body"].read()
    s3.delete_object(Bucket=bucket, Key="t.lmdb/part-00000.lmdb")
    job, source = begin(url, photo_tree, scratch, codec="png")
    s3.put_object(Bucket=bucket, Key="t.lmdb/part-00000.lmdb", Body=part)
    with pytest.raises(DestinationError, match=r"part-00000\.lmdb: is a part of another conversion"):
        job.convert(source, 0)
    job.begin(lambda: imagefolder_source(photo_tree), {"src": str(photo_tree)}, fresh=True)
    assert job.missing() == [0, 1, 2]


def test_each_split_becomes_a_pack_of_its_own(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    for split in ("train", "val"):
        shutil.copytree(photo_tree, tmp_path / "tree" / split)
    words = ["convert", tmp_path / "tree", f"s3://{bucket}/t.lmdb", "--split", "all", "--scratch", tmp_path / "scratch"]
    first, again = packer_many([words, words])
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    packer.convert(photo_tree, tmp_path / "one.lmdb")
    one = (tmp_path / "one.lmdb").read_bytes()
    assert stored(s3, bucket) == {"t-train.lmdb": one, "t-val.lmdb": one}
    assert again.stdout.count("done already") == 2


def test_what_was_uploaded_stays_when_commands_are_repeated(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path
) -> None:
    """A, A, B, A: parts and splits are done already, a pack is refused as there is one, and the objects stay."""
    for split in ("train", "val"):
        shutil.copytree(photo_tree, tmp_path / "tree" / split)
    (tmp_path / "tree" / "val" / "dog" / "1.jpg").unlink(missing_ok=True)
    tree, other, scratch = tmp_path / "tree" / "train", tmp_path / "tree" / "val", ("--scratch", tmp_path / "scratch")
    url = f"s3://{bucket}"
    parts = ["convert", tree, f"{url}/p.lmdb", "--parts", "2", *scratch]
    tasks = ["convert", tree, f"{url}/t.lmdb", "--parts", "1", *scratch, "--part", "0"]
    whole = ["convert", tree, f"{url}/w.lmdb", *scratch]
    split = ["convert", tmp_path / "tree", f"{url}/s.lmdb", *scratch, "--split"]
    firsts = [parts, tasks, whole, [*split, "train"]]
    seconds = [*(["convert", other, *words[2:]] for words in firsts[:3]), [*split, "val"]]
    for made in packer_many(firsts):
        assert made.returncode == 0, made.stderr
    before = stored(s3, bucket)
    ran = packer_many(words for first, second in zip(firsts, seconds, strict=True) for words in (first, second, first))
    for status, again, once_more in zip((1, 0, 1, 0), ran[::3], ran[2::3], strict=True):
        for result in (again, once_more):
            assert result.returncode == status, result.stderr
            assert ("exists already" if status else "done already") in result.stdout + result.stderr
    assert {name: data for name, data in stored(s3, bucket).items() if name in before} == before


def test_what_does_not_fit_a_url_is_refused_in_a_line(s3: Any, bucket: str, photo_tree: Path) -> None:
    refused = {
        ("--parts", "2", "--part", "0", "--overwrite"): "with --parts, --overwrite cannot replace a pack at a URL",
        ("--parts", "2", "--part", "0", "--fresh"): "delete all below DST/ and DST.partial/ before the job",
        ("--parts", "2", "--split", "all"): "--parts is for one split",
        ("--part", "0"): "are for --parts: pass the number of parts",
        ("--jobs", "2", "--parts", "2"): "--jobs is for --cluster",
    }
    ran = packer_many(["convert", photo_tree, f"s3://{bucket}/t.lmdb", *words] for words in refused)
    for result, said in zip(ran, refused.values(), strict=True):
        assert result.returncode == 2
        assert said in result.stderr
    assert stored(s3, bucket) == {}
