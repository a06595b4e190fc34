"""An object store for tests that write to one: moto's server, if it is installed."""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.upload.stores import Moto, Proxy


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """Return a server of S3; skip if boto3 or moto is missing."""
    for name in ("boto3", "moto", "flask"):
        pytest.importorskip(name, reason="needs boto3 and moto (pip install 'moto[s3,server]' boto3)")
    server = Moto()
    yield server
    server.close()


@functools.cache
def shared_loader(*paths: str | None) -> Any:
    """Return botocore's loader of service descriptions, which keeps what it has read."""
    from botocore.loaders import create_loader

    return create_loader(*paths)


@functools.cache
def made_client(url: str) -> Any:
    """Return boto3's client of a server, with the credentials of the environment at the first call."""
    import boto3

    return boto3.client("s3", endpoint_url=url)


@pytest.fixture
def s3(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return boto3's client of the server; the environment makes packer use the same server."""
    import botocore.session

    # Reading the descriptions takes most of the time of a short upload, and each session has a loader of its own.
    monkeypatch.setattr(botocore.session, "create_loader", shared_loader)

    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-sees",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": moto.url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)
    return made_client(moto.url)


@pytest.fixture
def bucket(s3: Any) -> str:
    """Return the name of a bucket of the test's own."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="module")
def large_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of six images of 3 MB: their pack is uploaded in three pieces, and each of two parts in two."""
    root = tmp_path_factory.mktemp("large")
    for number in range(6):
        path = root / f"class{number % 2}" / f"{number}.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.frombytes("RGB", (1000, 1000), os.urandom(3_000_000)).save(path)
    return root


@pytest.fixture
def proxied(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Proxy]]:
    """Return a function that starts a proxy in front of the server, through which packer then writes."""
    made = []

    def proxied(watch: Callable[[str, str], int | None]) -> Proxy:
        made.append(Proxy(moto.port, watch))
        monkeypatch.setenv("AWS_ENDPOINT_URL", made[-1].url)
        return made[-1]

    yield proxied
    for proxy in made:
        proxy.close()
