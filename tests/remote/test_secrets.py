"""packer neither shows nor writes the secrets of a URL: URLs of many shapes, in every call that takes one."""

from __future__ import annotations

import contextlib
import json
import pickle
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._conversion.convert import convert
from packer._formats import open_pack
from packer._sources.imagefolder import imagefolder_source
from packer._storage.remote.urls import UrlPath, parse, redacted, user_path
from packer.errors import PackerError
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many
from tests.remote.fileserver import Served

SECRET = "hunter2"
SHAPES = (
    *("?hunter2", "?a=1&hunter2", "?sig=hunter2", "?sig=ab&hunter2", "?sig=ab&b=hunter2", "?hunter2=1", "?hunter2="),
    *(
        "?hunter2&sig=1",
        "?sig=1;hunter2",
        "?X-Amz-Signature=ab?hunter2",
        "?a=1&&hunter2",
        "?sig=ab=hunter2==",
        "?=hunter2",
    ),
    *(
        "#hunter2",
        "?sig=1#hunter2",
        "#?hunter2",
        "?sig=ab#access_token=hunter2",
        "?sig=a/hunter2/b",
        "?response=hunter2",
    ),
)
USERS = ("user:hunter2@", "hunter2@", "hunter2:@", "user:a@hunter2@", ":hunter2@")


def with_shape(url: str, shape: str) -> str:
    return url.replace("//", f"//{shape}", 1) if shape.endswith("@") else url + shape


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("secrets")
    draw_imagefolder(root / "tree", classes=2, per_class=2, size=(24, 32))
    convert(imagefolder_source(root / "tree"), root / "a.lmdb")
    packer.convert(root / "tree", root / "b.pth")
    packer.convert(root / "tree", root / "c.h5")
    return root


@pytest.mark.parametrize("shape", [*SHAPES, *USERS])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_as_it_is_shown(scheme: str, shape: str) -> None:
    url = with_shape(f"{scheme}://host:8080/dir/t.lmdb", shape)
    once = redacted(url)
    assert SECRET not in once
    assert once.startswith(f"{scheme}://host:8080/dir/t.lmdb")
    assert redacted(once) == once
    for text in (
        repr(parse(url)),
        str(user_path(url)),
        repr(user_path(url)),
        f"{user_path(url)}",
        str(UrlPath(url).parent),
    ):
        assert SECRET not in text


def test_what_is_harmless_is_shown() -> None:
    assert (
        redacted("https://h/t.lmdb?versionId=3&sig=x&X-Amz-Date=y")
        == "https://h/t.lmdb?versionId=...&sig=...&X-Amz-Date=..."
    )
    assert redacted("https://h/t.lmdb?sig=x&token&a=b") == "https://h/t.lmdb?sig=...&..."
    assert redacted("s3://bucket/a b/t.lmdb") == "s3://bucket/a b/t.lmdb"
    assert redacted("s3://bucket/image #3.jpg") == "s3://bucket/image #3.jpg"


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize("shape", ["?sv=1&sig=hunter2", "?hunter2", "#token=hunter2", "?sig=1#hunter2"])
def test_what_follows_the_key_of_a_bucket(scheme: str, shape: str) -> None:
    """packer has no signatures in URLs of buckets: what looks like one is a part of the key, and is hidden."""
    url = f"{scheme}://bucket/dir/t.lmdb{shape}"
    assert SECRET not in redacted(url) + repr(parse(url)) + str(user_path(url))
    assert redacted(url).startswith(f"{scheme}://bucket/dir/t.lmdb")


@pytest.mark.parametrize("url", [
    *("http://user:a/hunter2@host/t.lmdb", "http://user:a?hunter2@host/t.lmdb", "http://user:a#hunter2@host/t.lmdb"),
    *("ftp://user:hunter2@host/t.lmdb", "ftp://user:a/hunter2@host/t?x", "http://host/a//b?hunter2", "s3://k:hunter2@b/t"),
    *("http://host/../a?hunter2", "http://hunter2@/t.lmdb", "http:///t.lmdb?hunter2", "sftp://h/t#hunter2"),
])  # fmt: skip
def test_a_url_that_is_none_is_refused_without_its_secret(url: str) -> None:
    with contextlib.suppress(PackerError):
        assert SECRET not in redacted(url)
    for read in (parse, packer.open_dataset, partial(packer.convert, dst="out.lmdb"), packer.estimate, packer.doctor):
        with pytest.raises((PackerError, OSError)) as refused:
            read(url)
        assert SECRET not in str(refused.value) + repr(refused.value)


def written(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in directory.rglob("*"):
        yield str(path.relative_to(directory)), path.read_bytes() if path.is_file() else b""


@contextlib.contextmanager
def failing(seen: list[str]) -> Iterator[None]:
    """Record the messages of an error and of its causes."""
    try:
        yield
    except (PackerError, TypeError, ValueError, OSError) as error:
        seen.append("".join(traceback.format_exception_only(error)) + repr(error) + repr(error.args))
        cause: BaseException | None = error
        while cause := (cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)):
            seen.append(f"{type(error)}: {cause!r} {cause}")


PYTHON: dict[str, Callable[[Callable[[str], str], Path], Any]] = {
    "dataset": lambda url, out: repr(packer.open_dataset(url("a.lmdb"))),
    "root": lambda url, out: packer.open_dataset(url("a.lmdb")).root,
    "reader": lambda url, out: [repr(one := open_pack(url("b.pth"))), one.path, repr(one.place.path)],
    "pickle": lambda url, out: pickle.dumps(packer.open_dataset(url("a.lmdb"), crop=packer.CenterCrop(8))),
    "pickle of a reader": lambda url, out: pickle.dumps(open_pack(url("c.h5"))),
    "several": lambda url, out: [repr(both := packer.open_dataset([url("a.lmdb"), url("b.pth")])), pickle.dumps(both)],
    "Loader": lambda url, out: repr(packer.Loader(packer.open_dataset(url("a.lmdb")), 2)),
    "missing": lambda url, out: packer.open_dataset(url("none.lmdb")),
    "no pack": lambda url, out: packer.open_dataset(url("tree/class_00/0000.jpg")),
    "another class": lambda url, out: packer.HDF5ImageDataset(url("a.lmdb")),
    "in_memory": lambda url, out: packer.open_dataset(url("a.lmdb"), stage=out / "stage"),
    "index": lambda url, out: packer.open_dataset(url("a.lmdb"), index=out / "x.index"),
    "info": lambda url, out: packer.info(url("a.lmdb")),
    "digest": lambda url, out: packer.digest(url("a.lmdb")),
    "verify": lambda url, out: packer.verify(url("none.pth")),
    "convert": lambda url, out: packer.convert(url("a.lmdb"), out / "made.lmdb"),
    "convert in parts": lambda url, out: packer.convert(url("a.lmdb"), out / "parts.lmdb", parts=2),
    "convert what is missing": lambda url, out: packer.convert(url("none.lmdb"), out / "none.lmdb"),
    "convert to it": lambda url, out: packer.convert(url("a.lmdb"), url("made.lmdb")),
    "append to it": lambda url, out: packer.append(url("a.lmdb"), url("b.pth")),
    "merge": lambda url, out: packer.merge([url("a.lmdb"), url("b.pth")], out / "both.lmdb", prefixes=["a", "b"]),
    "merge twice": lambda url, out: packer.merge([url("a.lmdb"), url("b.pth")], out / "no.lmdb"),
    "merge to it": lambda url, out: packer.merge([url("a.lmdb"), url("c.h5")], url("no.lmdb")),
    "export": lambda url, out: packer.export(url("a.lmdb"), out / "tree"),
    "stage": lambda url, out: str(packer.stage(url("a.lmdb"), out / "staged")),
    "index it": lambda url, out: packer.index(url("a.lmdb"), out / "a.index"),
    "estimate": lambda url, out: packer.estimate(url("a.lmdb")),
    "doctor": lambda url, out: packer.doctor(url("a.lmdb")),
    "pack": lambda url, out: packer.pack([], url("none.lmdb")),
    "repair": lambda url, out: packer.repair(out / "made.lmdb", url("a.lmdb")),
    "samples": lambda url, out: packer.open_dataset(url("a.lmdb")).samples[0],
}
"""Uses of URLs in Python, whose results may be shown."""

COMMANDS = (
    *("info @a.lmdb", "info @b.pth --json", "info @none.lmdb", "verify @c.h5", "verify @none.pth", "info @tree"),
    *("convert @a.lmdb OUT/c.lmdb --json-progress", "convert @a.lmdb OUT/p.lmdb --parts 2 --part 0 --json-progress"),
    *(
        "convert @a.lmdb @to.lmdb",
        "convert @a.lmdb OUT/r.lmdb --resize 8 --report OUT/r.csv",
        "append @a.lmdb OUT/c.lmdb",
    ),
    *("merge @a.lmdb @b.pth OUT/m.lmdb --prefix a --prefix b", "export @a.lmdb OUT/e", "stage @a.lmdb OUT/s"),
    *("unstage @a.lmdb OUT/s", "warm @b.pth", "scan @tree OUT/t.scan", "index @a.lmdb OUT/a.index", "cache info"),
    *(
        "cache info --json",
        "estimate @a.lmdb",
        "estimate @a.lmdb --json",
        "index @tree",
        "view @a.lmdb --html OUT/v.html",
    ),
    *(
        "doctor @a.lmdb",
        "bench @none.lmdb",
        "tune @none.lmdb",
        "verify @a.lmdb --repair @b.pth",
        "cache clear --url @a.lmdb",
    ),
    *(
        "convert @tree OUT/u.lmdb",
        "convert OUT/urls.csv OUT/urls.lmdb",
        "convert OUT/urls.csv OUT/s.lmdb --on-error skip",
    ),
    *(
        "merge --finish @a.lmdb",
        "convert OUT/c.lmdb OUT/x.lmdb --classes-from @a.lmdb",
        "view @none.lmdb --html OUT/w.html",
    ),
)


@pytest.mark.parametrize("shape", ["?hunter2", "?sig=ab&hunter2#hunter2", "user:hunter2@"])
def test_what_python_gives_has_no_secret(
    packs: Path, served: Served, tmp_path: Path, shape: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def url(name: str) -> str:
        return with_shape(served.url(packs / name), shape)

    for place, use in PYTHON.items():
        seen: list[Any] = []
        with failing(seen):
            seen.append(use(url, tmp_path))
        assert seen, place
        for one in seen:
            assert SECRET not in (one.decode("latin-1") if isinstance(one, bytes) else repr(one)), place
        printed = capfd.readouterr()
        assert SECRET not in printed.out + printed.err, place
        for name, data in written(tmp_path):
            assert SECRET not in name, place
            assert SECRET.encode() not in data, (place, name)


@pytest.mark.parametrize("shape", ["?sig=ab&hunter2#hunter2", "user:hunter2@"])
def test_what_commands_print_and_write_has_no_secret(
    packs: Path, served: Served, cache: Path, tmp_path: Path, shape: str
) -> None:
    images = [served.url(path) for path in sorted((packs / "tree").rglob("*.jpg"))]
    rows = [with_shape(one, shape) for one in [*images, served.url(packs / "tree" / "class_00" / "gone.jpg")]]
    (tmp_path / "urls.csv").write_text("url,label\n" + "".join(f"{row},0\n" for row in rows))
    lines = [
        [
            with_shape(served.url(packs / word[1:]), shape)
            if word.startswith("@")
            else word.replace("OUT", str(tmp_path))
            for word in command.split()
        ]
        for command in COMMANDS
    ]
    for command, result in zip(COMMANDS, packer_many(lines, torch=True), strict=True):
        assert SECRET not in result.stdout + result.stderr, command
        assert "Traceback" not in result.stderr, (command, result.stderr)
    for name, data in written(tmp_path):
        assert SECRET not in name
        assert name == "urls.csv" or SECRET.encode() not in data, name
    assert json.loads(next(cache.glob("*/about.json")).read_text())["url"].startswith("http://127.0.0.1")
