"""Lasting problems of a store: the error is one line that names the problem."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from packer._storage.remote import client
from packer._storage.remote.obstore import StoreError, store_of
from packer._storage.remote.urls import RemoteSettings, choose, parse
from packer.errors import RemoteError

pytest.importorskip("obstore", reason="needs obstore")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[str]:
    """Return the URL of a server with a self-signed certificate."""
    x509 = pytest.importorskip("cryptography.x509", reason="needs cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    both = key.private_bytes(pem, *form) + certificate.public_bytes(pem)
    (tmp_path / "both.pem").write_bytes(both)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}/a.lmdb"
    server.shutdown()
    server.server_close()


def test_a_certificate_that_nobody_trusts_is_said(secured: str) -> None:
    choose(secured, RemoteSettings(None, None, 5.0))
    with pytest.raises(RemoteError, match=r"this machine does not trust the server's certificate\. Set SSL_CERT_FILE"):
        client.head(secured)


def test_an_endpoint_without_a_scheme_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore itself would panic."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "user:secret@127.0.0.1:9000")
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL is not a URL: it must begin with http") as caught:
        store_of("s3://bucket/a.lmdb", 1.0)
    assert caught.value.kind == "refused"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket//a.lmdb", "https://host//a.lmdb", "s3://bucket/a//b", "s3://bucket/../a"])
def test_a_url_with_an_empty_part_is_none(url: str) -> None:
    """`/a.lmdb` and `a.lmdb` are two objects to a store, but one to obstore."""
    with pytest.raises(RemoteError, match="the path of an object cannot have"):
        parse(url)
