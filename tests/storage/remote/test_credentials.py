"""Credentials of the stores, read from each ecosystem's variables and files for each request."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from packer._storage.remote import client
from packer._storage.remote.place import RemoteFile
from packer._storage.remote.urls import RemoteSettings
from packer.errors import RemoteError
from tests.storage.remote.objects import Asked, ObjectServer, _Handler, serving

pytest.importorskip("obstore", reason="needs obstore")

DATA = np.random.default_rng(1).bytes(3_000_001)
NAME = "b/train.lmdb"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectServer]:
    for name in ("CONFIG", "SHARED_CREDENTIALS"):
        monkeypatch.setenv(f"AWS_{name}_FILE", str(tmp_path / name))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACKER_TIMEOUT", "10")
    with serving({NAME: DATA}) as served:
        yield served


def signed(server: ObjectServer, url: str) -> str:
    """Read an object, and return the credentials of the request."""
    assert client.get(url, 100, 200) == DATA[100:200]
    return said_by(server.asked[-1])


def said_by(asked: Asked) -> str:
    """Return the credentials of a request, which are in its header or in its signed URL."""
    return asked.headers.get("authorization", "") or urllib.parse.unquote(asked.query).replace("X-Amz-", "")


def test_credentials_are_those_of_now(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may set and renew them after its first requests."""

    def expires(handler: _Handler, asked: Asked) -> bool:
        if "Credential=second/" in said_by(asked):
            return False
        handler.refuse(403, "ExpiredToken")
        return True

    assert client.get(f"{server.url}/{NAME}", 0, 10) == DATA[:10]
    for name, value in {"ENDPOINT_URL": server.url, "ALLOW_HTTP": "true", "SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    file = RemoteFile(f"s3://{NAME}", settings=RemoteSettings(str(tmp_path / "cache"), 1 << 30, 5.0))
    assert file.read(100_000, 1000) == DATA[100_000:101_000]
    assert "Credential=first/" in said_by(server.asked[-1])
    server.faults.append(expires)
    with pytest.raises(RemoteError, match=r"access is denied \(403 ExpiredToken\)"):
        file.read(1_000_000, 1000)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert file.read(1_000_000, 1000) == DATA[1_000_000:1_001_000]
    server.faults.clear()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(RemoteError, match=r"the credentials are incomplete.*AWS_ACCESS_KEY_ID"):
        file.read(2_000_000, 1000)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert file.read(2_000_000, 1000) == DATA[2_000_000:2_001_000]
    assert said_by(server.asked[-1]) == ""


def test_profiles_of_aws(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile's region and endpoint apply too; a variable takes precedence over a file."""
    url = f"s3://{NAME}"
    (tmp_path / "CONFIG").write_text(f"[profile lab]\nendpoint_url = {server.url}\nregion = eu-central-1\n")
    keys = "[{0}]\naws_access_key_id = key-of-{0}\naws_secret_access_key = s\n"
    (tmp_path / "SHARED_CREDENTIALS").write_text(keys.format("lab") + keys.format("default"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert "Credential=key-of-lab/" in (found := signed(server, url))
    assert "/eu-central-1/s3/" in found
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert "/us-west-2/s3/" in signed(server, url)
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    assert "Credential=key-of-default/" in signed(server, url)


def test_variables_of_azure_and_google(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError, match=r"az://b/train.lmdb: the credentials are incomplete.*ACCOUNT_NAME"):
        client.get(f"az://{NAME}")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.url)
    assert signed(server, f"az://{NAME}").startswith("SharedKey account:")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(RemoteError, match=r"the credentials are incomplete.*GOOGLE_APPLICATION_CREDENTIALS") as caught:
        client.get(f"gs://{NAME}")
    assert str(tmp_path) not in str(caught.value)
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    account = {"gcs_base_url": server.url, "disable_oauth": True, "client_email": "", "private_key": ""}
    (tmp_path / "gs.json").write_text(json.dumps(account | {"private_key_id": ""}))
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(tmp_path / "gs.json"))
    assert signed(server, f"gs://{NAME}") == ""
