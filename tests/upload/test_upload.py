"""Uploads of packs: the same bytes, no partial objects, no replacement unasked, and continuation after a failure."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from packer._storage.remote import s3 as multipart
from packer._storage.remote.s3 import PART, UploadLog, part_size
from packer._storage.remote.upload import ObstoreBucket, Upload, require_writable
from packer._storage.remote.urls import RemoteSettings
from packer.errors import DestinationError, PackLockedError, RemoteError
from tests.upload.stores import CutError, Proxy

LARGE = 2 * PART + 12_345


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Return a file of three parts."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * (LARGE >> 20) + os.urandom(LARGE & 0xFFFFF))
    return path


@contextmanager
def uploading(url: str, log: Path, *, overwrite: bool = False) -> Iterator[Upload]:
    with closing(UploadLog(log)) as lines:
        yield Upload(url, lines, overwrite=overwrite)


def upload(url: str, log: Path, *files: tuple[str, Path], overwrite: bool = False) -> list[str]:
    with uploading(url, log, overwrite=overwrite) as made:
        said = made.require_free()
        return said + made.run(files)


def content(s3: Any, bucket: str) -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=bucket).get("Contents", ())
    return {entry["Key"]: s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read() for entry in listed}


def unfinished(s3: Any, bucket: str) -> list[str]:
    return [entry["Key"] for entry in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", ())]


def test_a_large_file_becomes_an_object_in_parts(s3: Any, bucket: str, large: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with uploading(f"s3://{bucket}/dir/train.lmdb", tmp_path / "log") as made:
        assert made.run([("", large)], lambda done, total: seen.append((done, total))) == []
    assert content(s3, bucket) == {"dir/train.lmdb": large.read_bytes()}
    assert s3.head_object(Bucket=bucket, Key="dir/train.lmdb")["ETag"].endswith('-3"')
    assert seen[-1] == (LARGE, LARGE)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert unfinished(s3, bucket) == []


def test_what_is_there_is_not_sent_again(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    url = f"s3://{bucket}/train.lmdb"
    upload(url, tmp_path / "log", ("", large))
    proxy = proxied(lambda request, when: None)
    upload(url, tmp_path / "log", ("", large))
    assert not [request for request in proxy.seen if not request.startswith(("HEAD", "GET"))]


def test_an_upload_goes_on_with_the_parts_that_arrived(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    url, log = f"s3://{bucket}/train.lmdb", tmp_path / "log"
    proxied(lambda request, when: 403 if "partNumber=3" in request else None)
    with pytest.raises(RemoteError, match="access is denied"):
        upload(url, log, ("", large))
    (upload_id,) = (entry["UploadId"] for entry in s3.list_multipart_uploads(Bucket=bucket)["Uploads"])
    assert [part["PartNumber"] for part in s3.list_parts(Bucket=bucket, Key="train.lmdb", UploadId=upload_id)["Parts"]]
    # A part that arrived damaged at a store that does not check it is sent again.
    s3.upload_part(Bucket=bucket, Key="train.lmdb", UploadId=upload_id, PartNumber=1, Body=bytes(PART))
    proxy = proxied(lambda request, when: None)
    upload(url, log, ("", large))
    sent = sorted(request.partition("partNumber=")[2][0] for request in proxy.seen if "partNumber=" in request)
    assert sent == ["1", "3"]
    assert content(s3, bucket) == {"train.lmdb": large.read_bytes()}
    assert unfinished(s3, bucket) == []


def test_a_lost_answer_is_no_failure(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    lost: list[str] = []

    def watch(request: str, when: str) -> None:
        """Lose the first answer to each kind of request."""
        kind = request.partition(" ")[0] + ("uploadId" if "uploadId" in request else "")
        if when == "after" and kind not in lost:
            lost.append(kind)
            raise CutError

    proxied(watch)
    upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", large))
    assert {"POST", "POSTuploadId", "PUTuploadId"} <= {*lost}
    assert content(s3, bucket) == {"train.lmdb": large.read_bytes()}


def test_a_lost_answer_to_a_small_object_is_no_failure(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    (tmp_path / "small").write_bytes(b"small")
    lost: list[str] = []

    def watch(request: str, when: str) -> None:
        if when == "after" and request.startswith("PUT") and not lost:
            lost.append(request)
            raise CutError

    proxied(watch)
    upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", tmp_path / "small"))
    assert lost
    assert content(s3, bucket) == {"train.lmdb": b"small"}


def test_a_busy_store_is_asked_again(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    refused: list[str] = []

    def watch(request: str, when: str) -> int | None:
        if when == "before" and request.startswith("PUT") and len(refused) < 3:
            refused.append(request)
            return 503
        return None

    proxied(watch)
    upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", large))
    assert len(refused) == 3
    assert content(s3, bucket) == {"train.lmdb": large.read_bytes()}


def test_what_others_left_is_aborted_and_named(
    s3: Any, bucket: str, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_multipart_upload(Bucket=bucket, Key="train.lmdb")
    s3.create_multipart_upload(Bucket=bucket, Key="train.lmdb/part-00000.lmdb")
    s3.create_multipart_upload(Bucket=bucket, Key="train.lmdb.copy")
    live = s3.create_multipart_upload(Bucket=bucket, Key="train.lmdb")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="train.lmdb", UploadId=live, PartNumber=1, Body=b"from a moment ago")
    url, log = f"s3://{bucket}/train.lmdb", tmp_path / "log"
    with uploading(url, log) as made, pytest.raises(PackLockedError, match="another process may be uploading it"):
        made.require_free()
    monkeypatch.setattr(multipart, "_now", lambda: datetime.now(timezone.utc) + timedelta(hours=1))
    said = upload(url, log, ("", large))
    assert all(f"s3://{bucket}/train.lmdb" in line and "was aborted" in line for line in said)
    assert any("1 parts, 0.0 MB" in line for line in said)
    assert unfinished(s3, bucket) == ["train.lmdb.copy"]


def test_fresh_aborts_what_may_be_alive(s3: Any, bucket: str, tmp_path: Path) -> None:
    live = s3.create_multipart_upload(Bucket=bucket, Key="train.lmdb")["UploadId"]
    s3.upload_part(Bucket=bucket, Key="train.lmdb", UploadId=live, PartNumber=1, Body=b"from a moment ago")
    with uploading(f"s3://{bucket}/train.lmdb", tmp_path / "log") as made:
        assert len(made.require_free(fresh=True)) == 1
    assert unfinished(s3, bucket) == []


def test_what_is_there_is_not_replaced_unasked(s3: Any, bucket: str, large: Path, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="train.lmdb", Body=b"a pack")
    url, log = f"s3://{bucket}/train.lmdb", tmp_path / "log"
    with uploading(url, log) as made:
        with pytest.raises(DestinationError, match="exists already"):
            made.require_free()
        with pytest.raises(DestinationError, match="exists already"):  # as if it had arrived in the meantime
            made.run([("", large)])
    assert content(s3, bucket) == {"train.lmdb": b"a pack"}
    upload(url, log, ("", large), overwrite=True)
    assert content(s3, bucket) == {"train.lmdb": large.read_bytes()}


@pytest.mark.parametrize("size", [100, LARGE])
def test_who_comes_first_has_the_name(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy], size: int
) -> None:
    """Another process makes the object while this one uploads it."""
    file = tmp_path / "file"
    file.write_bytes(bytes(size))

    def watch(request: str, when: str) -> None:
        last = "uploadId" in request and request.startswith("POST") if size > PART else request.startswith("PUT")
        if when == "before" and last:
            s3.put_object(Bucket=bucket, Key="train.lmdb", Body=b"of another")

    proxied(watch)
    with pytest.raises(DestinationError, match="exists already"):
        upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", file))
    assert content(s3, bucket) == {"train.lmdb": b"of another"}
    assert unfinished(s3, bucket) == []


def test_an_object_that_is_not_the_file_is_an_error(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    def watch(request: str, when: str) -> None:
        if when == "after" and request.startswith("POST") and "uploadId" in request:
            s3.put_object(Bucket=bucket, Key="train.lmdb", Body=bytes(LARGE))

    proxied(watch)
    with pytest.raises(RemoteError, match="the object differs from the uploaded"):
        upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", large))


def test_a_pack_of_files_has_its_manifest_last(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    places = ["manifest.json", "shard-00000.pth", "table.pth", "below/shard.tar"]
    for place in places:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(place)
    files = [(place, tmp_path / place) for place in places]
    url, log = f"s3://{bucket}/train.pth", tmp_path / "log"
    proxy = proxied(lambda request, when: None)
    upload(url, log, *files)
    puts = [request.partition("train.pth/")[2] for request in proxy.seen if request.startswith("PUT")]
    assert puts[-1] == "manifest.json"
    assert sorted(puts) == sorted(places)
    with pytest.raises(DestinationError, match="exists already"):
        upload(url, tmp_path / "another log", *files)
    # The replacement has fewer files. It deletes the manifest first, so that no reader mixes files of two packs.
    proxy.seen.clear()
    upload(url, tmp_path / "another log", *files[:3], overwrite=True)
    changes = [request.split("?")[0] for request in proxy.seen if request.startswith(("PUT", "DELETE"))]
    assert changes[0] == f"DELETE /{bucket}/train.pth/manifest.json"
    assert changes[-2:] == [f"PUT /{bucket}/train.pth/manifest.json", f"DELETE /{bucket}/train.pth/below/shard.tar"]
    assert {*content(s3, bucket)} == {f"train.pth/{place}" for place in places[:3]}


def test_objects_that_arrive_during_an_upload_are_not_deleted(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    """Neither by the run during which they arrive, nor by one that continues it."""
    places = ["manifest.json", "shard-00000.pth", "shard-00001.pth", "table.pth"]
    for place in places:
        (tmp_path / place).write_text(place)
    files = [(place, tmp_path / place) for place in places]
    url, log = f"s3://{bucket}/train.pth", tmp_path / "log"
    upload(url, log, *files)
    refused = [True]

    def watch(request: str, when: str) -> int | None:
        if when == "before" and request.startswith("PUT") and "shard-00000.pth" in request:
            s3.put_object(Bucket=bucket, Key=f"train.pth/notes-{len(refused)}.txt", Body=b"notes")
        return 403 if refused and request.startswith("PUT") and "shard-00000.pth" in request else None

    proxied(watch)
    fewer = [file for file in files if file[0] != "shard-00001.pth"]
    with pytest.raises(RemoteError, match="access is denied"):
        upload(url, tmp_path / "another log", *fewer, overwrite=True)
    assert f"train.pth/{places[0]}" not in content(s3, bucket)
    refused.clear()
    upload(url, tmp_path / "another log", *fewer, overwrite=True)
    expected = [*(place for place, _ in fewer), "notes-0.txt", "notes-1.txt"]
    assert {*content(s3, bucket)} == {f"train.pth/{name}" for name in expected}


@pytest.mark.parametrize("size", [100, LARGE])
def test_an_object_of_others_is_not_replaced_with_those_of_the_old_pack(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy], size: int
) -> None:
    for place in ("manifest.json", "a.pth", "new.pth"):
        (tmp_path / place).write_bytes(bytes(size))
    files = [(place, tmp_path / place) for place in ("manifest.json", "a.pth", "new.pth")]
    url, log = f"s3://{bucket}/train.pth", tmp_path / "another log"
    upload(url, tmp_path / "log", *files[:2])

    def watch(request: str, when: str) -> None:
        if when == "before" and request.startswith("PUT") and "new.pth" in request:
            s3.put_object(Bucket=bucket, Key="train.pth/new.pth", Body=b"of others")

    proxied(watch)
    with pytest.raises(DestinationError, match=r"new\.pth: was written by another program.*delete it, and run"):
        upload(url, log, *files, overwrite=True)
    assert content(s3, bucket)["train.pth/new.pth"] == b"of others"
    proxied(lambda request, when: None)
    s3.delete_object(Bucket=bucket, Key="train.pth/new.pth")
    upload(url, log, *files, overwrite=True)
    assert content(s3, bucket) == {f"train.pth/{place}": bytes(size) for place, _ in files}


@pytest.mark.parametrize("case", [(100, "lost"), (LARGE, "lost"), (100, "killed"), (LARGE, "killed"), (100, "sealed")])
def test_a_replacement_goes_on_after_an_object_that_the_replaced_pack_did_not_have(
    s3: Any, bucket: str, tmp_path: Path, proxied: Callable[..., Proxy], case: tuple[int, str]
) -> None:
    """The answer to the upload of the object is lost, the run ends after it, or the ETag is not the object's MD5."""
    (size, how), cut = case, list[str]()
    for place in ("manifest.json", "a.pth", "new.pth"):
        (tmp_path / place).write_bytes(os.urandom(size))
    files = [(place, tmp_path / place) for place in ("manifest.json", "a.pth", "new.pth")]
    url, log = f"s3://{bucket}/train.pth", tmp_path / "another log"
    upload(url, tmp_path / "log", *files[:2])

    def watch(request: str, when: str) -> int | None:
        method, _, rest = request.partition(" ")
        is_last = "new.pth" in rest and (method, "uploadId" in rest) == (
            ("PUT", False) if size == 100 else ("POST", True)
        )
        if is_last and when == "before" and how == "sealed":
            there = {"Bucket": bucket, "Key": "train.pth/new.pth"}
            begun = s3.create_multipart_upload(**there)["UploadId"]
            part = s3.upload_part(**there, UploadId=begun, PartNumber=1, Body=files[2][1].read_bytes())
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            s3.complete_multipart_upload(**there, UploadId=begun, MultipartUpload=parts)
        elif is_last and when == "after" and not cut:
            cut.append(request)
            raise CutError
        return 403 if cut and how == "killed" else None

    proxied(watch)
    if how == "killed":
        with pytest.raises(RemoteError, match="access is denied"):
            upload(url, log, *files, overwrite=True)
        proxied(lambda request, when: None)
    upload(url, log, *files, overwrite=True)
    assert content(s3, bucket) == {f"train.pth/{place}": path.read_bytes() for place, path in files}


def test_what_is_no_pack_is_not_replaced(s3: Any, bucket: str, large: Path, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="train.lmdb/thesis.tex", Body=b"no pack")
    with pytest.raises(DestinationError, match="no manifest of a pack"):
        upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", large), overwrite=True)
    assert content(s3, bucket) == {"train.lmdb/thesis.tex": b"no pack"}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://host/train.lmdb", "packer cannot write to an HTTP server"),
        ("s3://bucket", "names a bucket"),
        ("s3://bucket/", "names a bucket"),
    ],
)
def test_where_no_pack_can_be_written(url: str, said: str) -> None:
    with pytest.raises(DestinationError, match=said):
        require_writable(url)


def test_errors_say_what_to_do_and_nothing_secret(
    s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: Callable[..., Proxy]
) -> None:
    with pytest.raises(RemoteError, match=r"s3://no-bucket/.*no such bucket"):
        upload("s3://no-bucket/train.lmdb", tmp_path / "log")
    proxied(lambda request, when: 403)
    with pytest.raises(RemoteError, match="access is denied") as refused:
        upload(f"s3://{bucket}/train.lmdb", tmp_path / "log")
    assert "a-secret-that-nobody-sees" not in str(refused.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RemoteError, match=r"there are no credentials\. Set AWS_PROFILE"):
        upload(f"s3://{bucket}/train.lmdb", tmp_path / "log")


def test_sizes_of_parts_depend_on_the_size_alone() -> None:
    assert part_size(1) == part_size(60 << 30) == PART
    for size in (1 << 40, 5 << 40, 50 << 40):
        assert -(-size // part_size(size)) <= 10_000
        assert part_size(size) <= 6 << 30


def test_a_torn_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with closing(UploadLog(path)) as log:
        log.expect("key", {"theirs"})
        log.begun("key", "own")
    path.write_bytes(path.read_bytes() + b'{"key": "key", "do')
    with closing(UploadLog(path)) as log:
        assert log.ids == {"key": "own"}
        log.finished("key", "etag")
    with closing(UploadLog(path)) as log:
        assert (log.ids, log.done) == ({}, {"key": "etag"})


def test_stores_that_obstore_writes(s3: Any, bucket: str, large: Path, tmp_path: Path) -> None:
    """There is no server for Google and Azure here: the calls that write to them write to S3 instead."""
    pytest.importorskip("obstore", reason="needs obstore")
    store, sent = ObstoreBucket("s3", bucket, RemoteSettings.of()), list[int]()
    with closing(UploadLog(tmp_path / "log")) as log:
        store.send(large, "dir/train.lmdb", log, replace=False, progress=sent.append)
        assert sum(sent) == LARGE
        store.send(large, "dir/train.lmdb", log, replace=False, progress=sent.append)  # is there already
        with pytest.raises(DestinationError, match="exists already"):
            store.send(tmp_path / "log", "dir/train.lmdb", log, replace=False, progress=sent.append)
    found = store.find("dir/train.lmdb")
    assert found is not None
    assert found.size == LARGE
    assert hashlib.sha256(content(s3, bucket)["dir/train.lmdb"]).digest() == hashlib.sha256(large.read_bytes()).digest()
    assert store.keys_below("dir/") == ["dir/train.lmdb"]
    store.delete(["dir/train.lmdb"])
    assert store.find("dir/train.lmdb") is None
    with pytest.raises(RemoteError, match="bucket"):
        ObstoreBucket("s3", "no-bucket", RemoteSettings.of()).keys_below("dir/")


def test_a_store_that_does_not_list_unfinished_uploads(
    s3: Any, bucket: str, large: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    """Some small servers for tests do not."""
    proxied(lambda request, when: 501 if request.startswith("GET") and "uploads" in request else None)
    assert upload(f"s3://{bucket}/train.lmdb", tmp_path / "log", ("", large)) == []
    assert content(s3, bucket) == {"train.lmdb": large.read_bytes()}
