"""Listing all objects below a URL on many threads, a folder each, if the store names its folders."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from packer._storage.remote.client import RemoteObject, list_objects
from packer._storage.remote.s3 import S3Bucket
from packer._storage.remote.urls import chosen, join, parse
from packer.errors import MissingDependencyError, RemoteError

_THREADS = 32


def list_in_parallel(url: str) -> list[RemoteObject]:
    """Return the objects below a URL, in no order; RemoteError if the store does not list them.

    S3 gives a thousand names an answer. So the folders of `url` are listed first, and then all at the same time.
    """
    folders = _folders_of(url)
    if not folders:
        return list(list_objects(url))
    with ThreadPoolExecutor(min(_THREADS, len(folders)), thread_name_prefix="packer-list") as pool:
        return [entry for entries in pool.map(lambda folder: _below(url, folder), folders) for entry in entries]


def _below(url: str, folder: str) -> list[RemoteObject]:
    return [RemoteObject(f"{folder}/{name}", version) for name, version in list_objects(join(url, folder))]


def _folders_of(url: str) -> list[str]:
    """Return the names of the folders right below a URL, where all objects lie in them and the store names them."""
    base = parse(url)
    if base.scheme != "s3":
        return []
    prefix = f"{base.key.rstrip('/')}/" if base.key.strip("/") else ""
    try:
        folders, beside = S3Bucket(base.host, chosen(url)).folders_in(prefix)
    except (MissingDependencyError, RemoteError):  # such as a public bucket, for which there are no credentials
        return []
    return [] if beside else [folder[len(prefix) :].rstrip("/") for folder in folders]
