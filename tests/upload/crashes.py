"""Conversions to S3 that are killed at random moments, and then finished: ``python -m tests.upload.crashes 30``.

Each is killed by SIGKILL up to three times, at random moments within the time that a conversion takes, and then run to
its end. A thread checks all the time that the object is either absent or has its full size. At the end the object has
the bytes of the pack that the same conversion makes on a disk, and neither unfinished uploads nor scratch are left.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from PIL import Image

from tests.upload.stores import Moto, Proxy

_SECONDS = 0.08  # added to each request, so that the upload takes as long as the conversion


def main(kills: int, seed: int) -> None:
    import boto3

    draw, moto = random.Random(seed), Moto()
    proxy = Proxy(moto.port, lambda request, when: time.sleep(_SECONDS) if when == "before" else None)
    os.environ.update(AWS_ACCESS_KEY_ID="testing", AWS_SECRET_ACCESS_KEY="testing", AWS_REGION="us-east-1")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_ENDPOINT_URL=proxy.url)
    s3 = boto3.client("s3", endpoint_url=moto.url)
    s3.create_bucket(Bucket="bucket")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for number in range(36):
            path = root / "tree" / f"class{number % 3}" / f"{number:03}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.frombytes("RGB", (600, 500), os.urandom(900_000)).save(path)
        convert(root, str(root / "local.lmdb")).wait()
        local = (root / "local.lmdb").read_bytes()
        began = time.monotonic()
        if convert(root, "s3://bucket/whole.lmdb").wait():
            raise SystemExit("the conversion fails where nobody kills it")
        whole, killed, number, looks = time.monotonic() - began, 0, 0, [0]
        stop = threading.Event()
        watching = threading.Thread(target=watch, args=(s3, len(local), stop, looks))
        watching.start()
        while killed < kills:
            url, number = f"s3://bucket/{number}.lmdb", number + 1
            for _ in range(draw.randint(1, 3)):
                running, moment = convert(root, url), draw.uniform(0.3, 1.1 * whole)
                try:
                    if running.wait(moment) == 0:
                        break
                except subprocess.TimeoutExpired:
                    running.kill()
                    running.wait()
                    killed += 1
            again = convert(root, url)
            said = again.communicate()[1]
            if again.returncode and "exists already" not in said:  # the last one was killed after its work
                raise SystemExit(f"after {killed} kills: {said}")
            check(s3, f"{number - 1}.lmdb", local, root / "scratch")
        stop.set()
        watching.join()
        print(f"{killed} kills, {number} objects of {len(local):,} bytes, {looks[0]:,} looks: all as on a disk")  # noqa: T201
    proxy.close()
    moto.close()


def convert(root: Path, destination: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "packer", "convert", "--quiet", str(root / "tree"), destination]
    words += ["--scratch", str(root / "scratch")] if "://" in destination else []
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def watch(s3: Any, size: int, stop: threading.Event, looks: list[int]) -> None:
    while not stop.wait(0.03):
        looks[0] += 1
        for entry in s3.list_objects_v2(Bucket="bucket").get("Contents", ()):
            if entry["Size"] != size:
                sys.stderr.write(f"{entry['Key']} has {entry['Size']} bytes of {size}\n")
                os._exit(1)


def check(s3: Any, key: str, local: bytes, scratch: Path) -> None:
    stored = s3.get_object(Bucket="bucket", Key=key)["Body"].read()
    if hashlib.sha256(stored).digest() != hashlib.sha256(local).digest():
        raise SystemExit(f"{key}: other bytes than on a disk")
    if left := s3.list_multipart_uploads(Bucket="bucket").get("Uploads"):
        raise SystemExit(f"{key}: unfinished uploads are left: {left}")
    if left := [entry for entry in os.listdir(scratch) if not entry.endswith(".done")]:
        raise SystemExit(f"{key}: scratch is left: {left}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
