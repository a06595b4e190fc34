"""`packer convert SRC s3://…`: the same pack as on a disk, also where the conversion was killed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.errors import DestinationError, OptionError, RemoteError, ResumeError
from tests.command import packer as run_packer, packer_started
from tests.commandserver import Program
from tests.containers.lmdbs import write_lmdb
from tests.samples import content
from tests.upload.stores import CutError, Proxy


def stored(s3: Any, bucket: str, key: str) -> dict[str, bytes]:
    """Return the files of a pack in a bucket, in the form in which `content` returns those of a directory."""
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", ())
    return {
        entry["Key"][len(key) :].lstrip("/"): s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
        for entry in listed
    }


def only_files(path: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(path).items() if data is not None}


@pytest.mark.parametrize(("name", "options"), [("t.lmdb", {}), ("t.pth", {"shard_size": 2000}), ("t.h5", {"parts": 2})])
def test_a_pack_that_is_uploaded_is_the_one_that_is_made_on_a_disk(  # noqa: PLR0917
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, name: str, options: dict[str, Any]
) -> None:
    packer.convert(photo_tree, tmp_path / name, **options)
    summary = packer.convert(photo_tree, f"s3://{bucket}/dir/{name}", scratch=tmp_path / "scratch", **options)
    assert summary.destination == f"s3://{bucket}/dir/{name}"
    assert summary.manifest.count == 15
    assert stored(s3, bucket, f"dir/{name}") == only_files(tmp_path / name)
    assert list((tmp_path / "scratch").iterdir()) == []
    with pytest.raises(DestinationError, match=r"exists already.*overwrite=True"):
        packer.convert(photo_tree, f"s3://{bucket}/dir/{name}", scratch=tmp_path / "scratch", **options)
    assert list((tmp_path / "scratch").iterdir()) == []
    packer.convert(photo_tree, f"s3://{bucket}/dir/{name}", scratch=tmp_path / "scratch", overwrite=True, **options)
    assert stored(s3, bucket, f"dir/{name}") == only_files(tmp_path / name)


MOMENTS = {
    "before an id is known": ("after", "POST", "uploads"),
    "when a part arrives": ("after", "PUT", "partNumber"),
    "when all is there": ("after", "POST", "uploadId"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_upload_is_finished_by_the_same_command(  # noqa: PLR0917
    s3: Any, bucket: str, large_tree: Path, tmp_path: Path, proxied: Callable[..., Proxy], moment: str
) -> None:
    when, method, word = MOMENTS[moment]
    running: list[Program] = []
    sizes: set[int] = set()

    def watch(request: str, now: str) -> None:
        listed = s3.list_objects_v2(Bucket=bucket, Prefix="t.lmdb").get("Contents", ())
        sizes.update(entry["Size"] for entry in listed)
        if running and (now, request.split(maxsplit=1)[0]) == (when, method) and word in request:
            running.pop().kill()
            raise CutError

    proxied(watch)
    words = [large_tree, f"s3://{bucket}/t.lmdb", "--scratch", tmp_path / "scratch"]
    with packer_started("convert", *words) as killed:
        running.append(killed)
        assert killed.wait() == -9
    left = b"".join(path.read_bytes() for path in (tmp_path / "scratch").rglob("*.json*"))
    assert b"upload" in left or b"before" in left
    assert b"a-secret-that-nobody-sees" not in left
    again = run_packer("convert", *words)
    assert again.returncode == 0, again.stderr
    assert "the upload continues" in again.stderr
    packer.convert(large_tree, tmp_path / "local.lmdb")
    assert stored(s3, bucket, "t.lmdb") == only_files(tmp_path / "local.lmdb")
    assert sizes <= {(tmp_path / "local.lmdb").stat().st_size}
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_another_conversion_does_not_go_on_with_it(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    url, scratch = f"s3://{bucket}/t.lmdb", tmp_path / "scratch"
    proxy = proxied(lambda request, when: 403 if request.startswith("PUT") else None)
    with pytest.raises(RemoteError, match="access is denied"):
        packer.convert(photo_tree, url, scratch=scratch)
    proxy.watch = lambda request, when: None
    with pytest.raises(ResumeError, match="resize"):
        packer.convert(photo_tree, url, scratch=scratch, resize=16)
    packer.convert(photo_tree, url, scratch=scratch, resize=16, fresh=True)
    packer.convert(photo_tree, tmp_path / "small.lmdb", resize=16)
    assert stored(s3, bucket, "t.lmdb") == only_files(tmp_path / "small.lmdb")


def test_an_object_that_is_no_pack_is_not_replaced(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    url, how = f"s3://{bucket}/t.lmdb", {"scratch": tmp_path / "scratch", "overwrite": True}
    s3.put_object(Bucket=bucket, Key="t.lmdb", Body=b"notes")
    with pytest.raises(
        DestinationError, match=r"t\.lmdb: exists, and is not a pack, so overwrite=True does not replace it"
    ):
        packer.convert(photo_tree, url, **how)
    assert stored(s3, bucket, "t.lmdb") == {"": b"notes"}
    s3.put_object(Bucket=bucket, Key="t.lmdb", Body=b"")
    for resize in (None, 16):  # first the empty object is replaced, then the pack
        packer.convert(photo_tree, url, resize=resize, **how)
        packer.convert(photo_tree, tmp_path / "local.lmdb", resize=resize, overwrite=True)
        assert stored(s3, bucket, "t.lmdb") == only_files(tmp_path / "local.lmdb")


def test_what_only_begins_like_a_pack_is_not_replaced(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    """These are an LMDB of another tool, a truncated pack without a mark of packer, and another app's manifest."""
    how = {"scratch": tmp_path / "scratch", "overwrite": True}
    write_lmdb(tmp_path / "other.lmdb", [(b"0", b"value")])
    packer.convert(photo_tree, tmp_path / "pack.lmdb")
    other = {
        "other.lmdb": (tmp_path / "other.lmdb").read_bytes(),
        "cut.lmdb": (tmp_path / "pack.lmdb").read_bytes()[:8192],
        "app.pth/manifest.json": b'{"name":"an app"}',
        "app.pth/table.pth": b"weights",
    }
    for key, body in other.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
    for name in ("other.lmdb", "cut.lmdb", "app.pth"):
        with pytest.raises(DestinationError, match=rf"{bucket}/{name}: exists, and .*overwrite=True does not replace"):
            packer.convert(photo_tree, f"s3://{bucket}/{name}", **how)
    assert stored(s3, bucket, "") == other
    damaged = bytearray((tmp_path / "pack.lmdb").read_bytes())[:-4096]
    s3.put_object(Bucket=bucket, Key="pack.lmdb", Body=bytes(damaged))
    packer.convert(photo_tree, f"s3://{bucket}/pack.lmdb", **how)
    assert stored(s3, bucket, "pack.lmdb") == only_files(tmp_path / "pack.lmdb")


@pytest.mark.parametrize(("marker", "theirs"), [(None, "notes/a.txt"), ("t.pth", "notes.txt"), ("t.pth/", "notes.txt")])
def test_objects_of_others_below_a_pack_are_not_deleted(  # noqa: PLR0917
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, marker: str | None, theirs: str
) -> None:
    """Tools for object stores write an empty object as the marker of a directory, which must not hide the others."""
    url, how = f"s3://{bucket}/t.pth", {"scratch": tmp_path / "scratch", "overwrite": True}
    packer.convert(photo_tree, url, **how)
    if marker is not None:
        s3.put_object(Bucket=bucket, Key=marker, Body=b"")
    s3.put_object(Bucket=bucket, Key=f"t.pth/{theirs}", Body=b"notes")
    before = stored(s3, bucket, "t.pth")
    message = rf"t\.pth: contains files that .* would delete them: {re.escape(theirs)}\. Move"
    with pytest.raises(DestinationError, match=message):
        packer.convert(photo_tree, url, resize=16, **how)
    assert stored(s3, bucket, "t.pth") == before
    s3.delete_object(Bucket=bucket, Key=f"t.pth/{theirs}")
    packer.convert(photo_tree, url, resize=16, **how)
    packer.convert(photo_tree, tmp_path / "small.pth", resize=16)
    assert stored(s3, bucket, "t.pth") == only_files(tmp_path / "small.pth")


def test_objects_that_arrive_during_a_conversion_are_not_deleted(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path
) -> None:
    url, how = f"s3://{bucket}/t.pth", {"scratch": tmp_path / "scratch", "overwrite": True}
    packer.convert(photo_tree, url, **how)
    before = stored(s3, bucket, "t.pth")

    def write_notes(now: object) -> None:
        s3.put_object(Bucket=bucket, Key="t.pth/notes.txt", Body=b"notes")

    with pytest.raises(DestinationError, match=r"would delete them: notes\.txt\. Move"):
        packer.convert(photo_tree, url, resize=16, progress=write_notes, **how)
    assert stored(s3, bucket, "t.pth") == {**before, "notes.txt": b"notes"}
    s3.delete_object(Bucket=bucket, Key="t.pth/notes.txt")
    packer.convert(photo_tree, url, resize=16, **how)
    packer.convert(photo_tree, tmp_path / "small.pth", resize=16)
    assert stored(s3, bucket, "t.pth") == only_files(tmp_path / "small.pth")


def test_an_object_that_cannot_be_read_is_not_replaced(
    s3: Any, bucket: str, photo_tree: Path, tmp_path: Path, proxied: Callable[..., Proxy]
) -> None:
    s3.put_object(Bucket=bucket, Key="t.lmdb", Body=b"notes")
    proxied(lambda request, when: 403 if request.startswith("GET") and "t.lmdb" in request else None)
    with pytest.raises(RemoteError, match="access is denied"):
        packer.convert(photo_tree, f"s3://{bucket}/t.lmdb", scratch=tmp_path / "scratch", overwrite=True)
    assert stored(s3, bucket, "t.lmdb") == {"": b"notes"}


def test_what_does_not_fit_a_url_is_refused_in_a_line(photo_tree: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="scratch= applies only if DST is a URL"):
        packer.convert(photo_tree, tmp_path / "t.lmdb", scratch=tmp_path)
    with pytest.raises(DestinationError, match=r"s3://bucket/name: the suffix determines the format"):
        packer.convert(photo_tree, "s3://bucket/name")
    with pytest.raises(DestinationError, match="packer cannot write to an HTTP server"):
        packer.convert(photo_tree, "http://host/t.lmdb")
