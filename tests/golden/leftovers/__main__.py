"""Writes the leftovers that are missing: each in a process that is interrupted or killed as a user's might be."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.golden.leftovers import KEPT, LARGE, LEFTOVERS, MADE_IN, SERVER, draw, keep
from tests.golden.leftovers.states import write_states

WORK = Path(MADE_IN)
RESERVE = "reserve"  # half a megabyte of zeros, which a conversion writes again


def main() -> None:
    """Make a leftover in this process, or each that is missing in one of its own."""
    if len(sys.argv) > 1:
        MAKERS[sys.argv[1]]()
        return
    for name in MAKERS:
        if (LEFTOVERS / f"{name}.tar.xz").exists():
            continue
        shutil.rmtree(WORK, ignore_errors=True)
        (WORK / name).mkdir(parents=True)
        draw(WORK)
        subprocess.run([sys.executable, "-m", "tests.golden.leftovers", name], check=False)  # some kill themselves
        for path in WORK.rglob(RESERVE):
            path.unlink()
        keep(WORK / name)
    shutil.rmtree(WORK, ignore_errors=True)


class Stop(Exception):  # noqa: N818 - not an error
    """Raised in the middle of a conversion, as Ctrl-C is."""


def stopping(at: int) -> Callable[[Any], None]:
    """Return a callback of progress that interrupts a conversion, which then records its progress."""

    def progress(done: Any) -> None:
        if done.done >= at:
            raise Stop

    return progress


def killing(at: int) -> Callable[[Any], None]:
    """Return a callback of progress that kills this process."""

    def progress(done: Any) -> None:
        if done.done >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    return progress


def interrupted(path: Path, at: int, **settings: Any) -> None:
    """Convert the tree until `at` images are done."""
    import packer

    try:
        packer.convert(WORK / "tree", path, workers=1, progress=stopping(at), **settings)
    except Stop:
        return
    raise AssertionError("the conversion ran to its end")


def unfinished() -> None:
    """Interrupt conversions after three images, and kill the ones that continue them after six."""
    import packer

    for suffix in ("lmdb", "h5", "pth"):
        path = WORK / "unfinished" / f"pack.{suffix}"
        interrupted(path, 3)
        child = os.fork()
        if child == 0:
            packer.convert(WORK / "tree", path, workers=1, progress=killing(6))
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])


def half() -> None:
    """Interrupt a conversion in its second part."""
    interrupted(WORK / "half" / "pack.lmdb", 6, parts=3)


def parts() -> None:
    """Kill a conversion after its last part is renamed."""
    import packer

    named = False

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal named
        if event == "os.rename" and os.fspath(arguments[1]).endswith("part-00001.lmdb"):
            named = True
        elif named and event == "open" and "part-00001.lmdb.partial" not in str(arguments[0]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    packer.convert(WORK / "tree", WORK / "parts" / "pack.lmdb", parts=2)


def upload() -> None:
    """Upload a pack of several objects to a store that refuses the third one."""
    import boto3

    import packer
    from packer.errors import RemoteError
    from tests.upload.stores import Moto, Proxy

    moto, puts = Moto(), list[str]()

    def watch(request: str, when: str) -> int | None:
        if when == "before" and request.startswith("PUT"):
            puts.append(request)
            return 403 if len(puts) > 2 else None
        return None

    os.environ.update(SERVER, AWS_ENDPOINT_URL=moto.url)
    s3 = boto3.client("s3", endpoint_url=moto.url)
    s3.create_bucket(Bucket="leftovers")
    proxy = Proxy(moto.port, watch)
    os.environ["AWS_ENDPOINT_URL"] = proxy.url
    try:
        packer.convert(WORK / "tree", "s3://leftovers/pack.pth", shard_size=3000, scratch=WORK / "upload")
    except RemoteError as error:
        print(error)  # noqa: T201
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket="leftovers")["Contents"]]
    (WORK / "upload" / "uploaded.json").write_text(json.dumps(keys))
    proxy.close()
    moto.close()


def objects() -> None:
    """Write one of two parts of a pack to a store, and keep the objects of the store."""
    import boto3

    from tests.upload.stores import Moto

    moto = Moto()
    os.environ.update(SERVER, AWS_ENDPOINT_URL=moto.url, PACKER_CACHE_DIR=str(WORK / "kept"))
    s3 = boto3.client("s3", endpoint_url=moto.url)
    s3.create_bucket(Bucket="leftovers")
    line = ["packer", "convert", str(WORK / "tree"), "s3://leftovers/pack.lmdb", "--parts", "2", "--part", "0"]
    subprocess.run([sys.executable, "-m", *line, "--scratch", str(WORK / "scratch")], check=True)
    for entry in s3.list_objects_v2(Bucket="leftovers")["Contents"]:
        path = WORK / "objects" / entry["Key"]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(s3.get_object(Bucket="leftovers", Key=entry["Key"])["Body"].read())
    moto.close()


def cache() -> None:
    """Read a few samples of a remote pack through a cache."""
    import packer
    from tests.storage.remote.objects import serving

    draw(WORK, LARGE)
    packer.convert(WORK / "tree", WORK / "cache" / "pack.lmdb")
    with serving({"leftovers/pack.lmdb": (WORK / "cache" / "pack.lmdb").read_bytes()}) as server:
        os.environ.update(SERVER, AWS_ENDPOINT_URL=server.url)
        url, kept = "s3://leftovers/pack.lmdb", WORK / "cache" / "kept"
        with packer.open_dataset(url, output="bytes", cache_dir=kept, cache_size="1 GB") as dataset:
            read = [dataset[index][0] for index in KEPT]
    assert len(set(map(bytes, read))) == len(KEPT)


def index() -> None:
    """Index the tree, and a tar file of the same images."""
    import packer

    packer.index(WORK / "tree", WORK / "index" / "tree.index")
    packer.index(WORK / "images.tar", WORK / "index" / "tar.index")


def scan() -> None:
    """Write a listing of the tree."""
    line = ["packer", "scan", str(WORK / "tree"), str(WORK / "scan" / "tree.scan")]
    subprocess.run([sys.executable, "-m", *line], check=True)


def states() -> None:
    """Stop samplers and loaders in the middle of an epoch."""
    import packer

    packer.convert(WORK / "tree", WORK / "states" / "pack.lmdb")
    write_states(WORK / "states")


MAKERS: dict[str, Callable[[], None]] = {
    "unfinished": unfinished,
    "half": half,
    "parts": parts,
    "upload": upload,
    "objects": objects,
    "cache": cache,
    "index": index,
    "scan": scan,
    "states": states,
}

main()
