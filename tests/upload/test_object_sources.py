"""Sources in object stores give the same packs as the same files on a disk; errors name the object."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.errors import ImageError, OptionError, ResumeError, SourceError
from tests.command import packer as run
from tests.upload.stores import FileServer


@pytest.fixture
def tree(photo_tree: Path, tmp_path: Path) -> Path:
    """Return a tree whose order is not that of its names, with files of other types."""
    root = tmp_path / "tree"
    shutil.copytree(photo_tree, root)
    (image,) = sorted(root.rglob("*.jpg"))[:1]
    folder = image.parent
    for name in ("deep/one.jpg", "deep-er/one.jpg", "deep/er/one.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, folder / name)
    (folder / "notes.txt").write_text("no image")
    return root


@pytest.fixture
def server(tree: Path) -> Iterator[FileServer]:
    """Return a server of the tree's files, below /photos."""
    pytest.importorskip("obstore", reason="needs obstore")
    made = FileServer({f"/photos/{path.relative_to(tree).as_posix()}": path.read_bytes() for path in files(tree)})
    yield made
    made.close()


def files(tree: Path) -> list[Path]:
    return sorted(path for path in tree.rglob("*") if path.is_file())


def images(tree: Path) -> list[str]:
    return [path.relative_to(tree).as_posix() for path in files(tree) if path.suffix == ".jpg"]


def table(path: Path, column: str, rows: list[str]) -> Path:
    path.write_text("\n".join([f"{column},label", *(f"{row},{len(row) % 3}" for row in rows)]) + "\n")
    return path


def test_hidden_objects_and_those_that_a_system_left(s3: Any, bucket: str, tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    (image,) = images(tree)[:1]
    folder = image.partition("/")[0]
    for name in (f"{folder}/._a.jpg", f"__MACOSX/{folder}/._a.jpg"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"\0\x05\x16\x07" + bytes(80))
    for name in (f"{folder}/.copy.jpg", ".ipynb_checkpoints/a.jpg"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / image, tree / name)
    (tree / folder / "Thumbs.db").touch()
    for path in files(tree):
        s3.upload_file(str(path), bucket, f"train/{path.relative_to(tree).as_posix()}")
    for number, skip in enumerate((False, True)):
        packs = [tmp_path / f"{number}-{name}.lmdb" for name in ("objects", "files")]
        summaries = [
            packer.convert(src, pack, skip_hidden=skip)
            for src, pack in zip((f"s3://{bucket}/train", tree), packs, strict=True)
        ]
        opened = [packer.open_dataset(pack) for pack in packs]
        assert list(opened[0].samples) == list(opened[1].samples)
        assert opened[0].classes == opened[1].classes
        assert any(".ipynb_checkpoints" in note for note in summaries[0].notes)


def test_a_prefix_is_converted_as_a_tree(s3: Any, bucket: str, tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    for path in files(tree):
        s3.upload_file(str(path), bucket, f"imagenet/train/{path.relative_to(tree).as_posix()}")
    s3.put_object(Bucket=bucket, Key="imagenet/train/empty/", Body=b"")  # as some tools make directories
    s3.put_object(Bucket=bucket, Key="imagenet/training/other/a.jpg", Body=b"of another prefix")
    packer.convert(tree, tmp_path / "local.lmdb")
    summary = packer.convert(f"s3://{bucket}/imagenet/train/", tmp_path / "remote.lmdb")
    assert (tmp_path / "remote.lmdb").read_bytes() == (tmp_path / "local.lmdb").read_bytes()
    assert summary.not_looked_at == {".txt": 1}
    packer.convert(tree, tmp_path / "plain.lmdb", unlabeled=True)
    packer.convert(f"s3://{bucket}/imagenet/train", tmp_path / "remote-plain.lmdb", unlabeled=True)
    assert (tmp_path / "remote-plain.lmdb").read_bytes() == (tmp_path / "plain.lmdb").read_bytes()
    with pytest.raises(SourceError, match=f"s3://{bucket}/nothing: no images"):
        packer.convert(f"s3://{bucket}/nothing/", tmp_path / "nothing.lmdb")


def test_a_table_of_urls_is_converted_as_one_of_paths(server: FileServer, tree: Path, tmp_path: Path) -> None:
    names = images(tree)
    packer.convert(tree, tmp_path / "local.lmdb", labels=table(tmp_path / "paths.csv", "path", names))
    signed = [f"{server.url}/photos/{name}?signature=hidden{number}" for number, name in enumerate(names)]
    urls = tmp_path / "urls.csv"
    rows = zip(signed, names, strict=True)
    urls.write_text("\n".join(["url,label", *(f"{url},{len(name) % 3}" for url, name in rows)]) + "\n")
    packer.convert(urls, tmp_path / "remote.lmdb")
    assert b"hidden" not in (tmp_path / "remote.lmdb").read_bytes()
    packer.convert(f"{server.url}/photos", tmp_path / "below.lmdb", labels=tmp_path / "paths.csv")
    assert (tmp_path / "remote.lmdb").read_bytes() == (tmp_path / "local.lmdb").read_bytes()
    assert (tmp_path / "below.lmdb").read_bytes() == (tmp_path / "local.lmdb").read_bytes()


def test_what_tasks_share_has_no_secret(s3: Any, bucket: str, server: FileServer, tree: Path, tmp_path: Path) -> None:
    """Everyone who may read the pack may also read the objects that tasks share."""
    source = server.url.replace("//", "//user:hunter2@") + "/photos"
    listed = table(tmp_path / "paths.csv", "path", images(tree))
    words = ["convert", source, f"s3://{bucket}/t.lmdb", "--labels", listed, "--parts", "2", "--part", "0"]
    ended = run(*words, "--scratch", tmp_path / "scratch")
    assert ended.returncode == 0, ended.stderr
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(keys) == 3
    for key in keys:
        assert b"hunter2" not in s3.get_object(Bucket=bucket, Key=key)["Body"].read(), key


def test_an_object_that_is_missing_is_named_and_not_lost(server: FileServer, tree: Path, tmp_path: Path) -> None:
    urls = [f"{server.url}/photos/{name}" for name in images(tree)]
    urls.insert(3, f"{server.url}/photos/class/gone.jpg?signature=hidden")
    listed = table(tmp_path / "urls.csv", "url", urls)
    with pytest.raises(ImageError, match=r"gone\.jpg: .*no such object, named in line 5 of the table") as error:
        packer.convert(listed, tmp_path / "out.lmdb")
    assert "hidden" not in str(error.value)
    summary = packer.convert(listed, tmp_path / "out.lmdb", on_error="skip")
    assert [entry["name"] for entry in summary.manifest.skipped] == ["class/gone.jpg"]
    assert summary.manifest.count == len(urls) - 1


def test_an_object_that_was_replaced_is_found(server: FileServer, tree: Path, tmp_path: Path) -> None:
    names = images(tree)
    listed = table(tmp_path / "urls.csv", "url", [f"{server.url}/photos/{name}" for name in names])
    good = server.objects[f"/photos/{names[-1]}"]
    server.objects[f"/photos/{names[-1]}"] = b"no image"
    with pytest.raises(ImageError, match=names[-1]):
        packer.convert(listed, tmp_path / "out.lmdb")
    server.objects[f"/photos/{names[-1]}"] = good  # the object that stopped the conversion may be replaced
    kept = server.objects[f"/photos/{names[0]}"]
    server.objects[f"/photos/{names[0]}"] = kept[:-2] + b"\xff\xd9"
    if server.objects[f"/photos/{names[0]}"] == kept:
        server.objects[f"/photos/{names[0]}"] = kept[:-1] + b"\x00"
    with pytest.raises(ResumeError, match=r"1 image was changed: .*its ETag changed"):
        packer.convert(listed, tmp_path / "out.lmdb")
    server.objects[f"/photos/{names[0]}"] = kept
    server.gets.clear()
    assert packer.convert(listed, tmp_path / "out.lmdb").manifest.count == len(names)


def test_what_objects_cannot_be_is_refused_in_a_line(server: FileServer, tmp_path: Path) -> None:
    urls = table(tmp_path / "urls.csv", "url", [f"{server.url}/photos/a.jpg"])
    with pytest.raises(OptionError, match="objects at URLs cannot be indexed"):
        packer.index(urls, tmp_path / "out.index")
    with pytest.raises(SourceError, match="does not list its files"):
        packer.convert(f"{server.url}/photos", tmp_path / "out.lmdb")
    for option in ("no_metadata", "keys", "on_missing"):
        value: Any = {"keys": ["label=x"], "on_missing": "skip"}.get(option, True)
        columns = {"columns": ["url:mask"]} if option == "on_missing" else {}
        with pytest.raises(OptionError, match=f"{option}=.*applies only to files on a disk"):
            packer.convert(urls, tmp_path / "out.lmdb", **{option: value, **columns})
    with pytest.raises(OptionError, match=r"any_image=True applies only to directories: .*urls\.csv names the images"):
        packer.convert(urls, tmp_path / "out.lmdb", any_image=True)
    paths = table(tmp_path / "paths.csv", "url", ["class/a.jpg"])
    with pytest.raises(SourceError, match=r"paths\.csv, line 2: class/a\.jpg is not a URL"):
        packer.convert(paths, tmp_path / "out.lmdb")


def test_a_bucket_is_a_tree(s3: Any, bucket: str, photo_tree: Path, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    for path in files(photo_tree):
        s3.upload_file(str(path), bucket, path.relative_to(photo_tree).as_posix())
    packer.convert(photo_tree, tmp_path / "local.lmdb")
    packer.convert(f"s3://{bucket}", tmp_path / "remote.lmdb")
    assert packer.digest(tmp_path / "remote.lmdb") == packer.digest(tmp_path / "local.lmdb")


@pytest.mark.parametrize("name", ["a//one.jpg", "a/../one.jpg", "/one.jpg", "../one.jpg"])
def test_a_key_that_is_no_path_is_named_or_left_out(
    s3: Any, bucket: str, tree: Path, tmp_path: Path, name: str
) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    for path in files(tree):
        s3.upload_file(str(path), bucket, f"tree/{path.relative_to(tree).as_posix()}")
    s3.put_object(Bucket=bucket, Key=f"tree/{name}", Body=b"never read")
    source = f"s3://{bucket}/tree/"
    with pytest.raises(SourceError, match=rf"the object {name} cannot be a sample: .*\. Rename it\. .*on_error='skip'"):
        packer.convert(source, tmp_path / "a.lmdb")
    packer.convert(tree, tmp_path / "local.lmdb")
    skipped = packer.convert(source, tmp_path / "a.lmdb", on_error="skip").manifest.skipped
    assert [one["name"] for one in skipped] == [name]
    assert packer.digest(tmp_path / "a.lmdb") == packer.digest(tmp_path / "local.lmdb")


@pytest.mark.parametrize("key", ["tree/a//one.jpg", "tree/a/../one.jpg"])
def test_a_key_that_is_no_path_is_named_without_boto3(
    s3: Any, bucket: str, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    s3.put_object(Bucket=bucket, Key=key, Body=b"never read")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(SourceError, match=r"the name of an object has an empty part, .*: tree/a/.*\. Rename the"):
        packer.convert(f"s3://{bucket}/tree/", tmp_path / "a.lmdb")


def test_an_empty_part_in_a_table_is_named(server: FileServer, tree: Path, tmp_path: Path) -> None:
    urls = [f"{server.url}/photos/{name}" for name in images(tree)[:2]]
    urls[1] = urls[1].replace("/photos/", "//photos/")
    with pytest.raises(SourceError, match=r"urls\.csv, line 3: .* the path of an object cannot have"):
        packer.convert(table(tmp_path / "urls.csv", "url", urls), tmp_path / "a.lmdb")
