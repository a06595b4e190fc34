"""Reads a container in each of three ways: by an index, by a conversion, and as a dataset in place."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import packer
from packer._containers import Container, Listing, find_container, list_samples, named_paths, open_container
from packer._fields import Stored
from packer._formats import open_pack
from packer._sources.container import ContainerSource, container_source

GOLDEN = Path(__file__).parents[1] / "golden" / "containers"
IMAGES = {path.name: path.read_bytes() for path in sorted((GOLDEN / "images").iterdir())}


class Seen(NamedTuple):
    """The content of a pack or an index."""

    names: list[str]
    labels: list[int | float]
    data: list[bytes]
    classes: list[str]
    fields: dict[str, list[Any]]
    notes: list[str]


def opened(src: Path | str, keys: Mapping[str, str] | None = None) -> Container:
    """Open the container at a path."""
    found = find_container(named_paths(src))
    assert found is not None
    return found[0].open(found[1], dict(keys or {}))


def listed(src: Path | str, keys: Mapping[str, str] | None = None) -> Listing:
    """List the samples of the container at a path."""
    return list_samples(opened(src, keys))


def source_of(src: Path | str, keys: Mapping[str, str] | None = None) -> ContainerSource:
    """Return the source of the container at a path, or of the files that match a pattern."""
    container = open_container(named_paths(src), keys)
    assert container is not None
    return container_source(container)


def everywhere(src: Path | str, tmp: Path, *, pixels: bool = False, **options: Any) -> Seen:
    """Index and convert a container, and open it in place; require the same content, and return it.

    With `pixels`, the index has raw pixels and the pack has encoded images: only the decoded pixels are compared.
    """
    place = Path(tempfile.mkdtemp(dir=tmp))
    notes = packer.index(src, place / "made.index", **options).notes
    packer.convert(src, place / "made.lmdb", **options)
    indexed, converted = _seen(place / "made.index", notes), _seen(place / "made.lmdb", notes)
    if pixels:
        shown = [packer.open_dataset(place / name) for name in ("made.index", "made.lmdb")]
        for index in range(len(indexed.names)):
            first, second = (np.asarray(dataset[index][0]) for dataset in shown)
            assert np.array_equal(first, second)
        converted = converted._replace(data=indexed.data)
    assert indexed == converted
    if not options:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of losses, which the notes of the index list as well
            dataset = packer.open_dataset(src)
        assert [name for name, _ in dataset.samples] == indexed.names
        assert [label for _, label in dataset.samples] == indexed.labels
    return indexed


def _seen(path: Path, notes: Sequence[str]) -> Seen:
    with open_pack(path) as reader:
        count = range(len(reader))
        fields = {
            name: [_plain(field.decode(_owned(reader.value(index, name)))) for index in count]
            for name, field in reader.fields.items()
        }
        samples = packer.open_dataset(path).samples
        names, labels = [name for name, _ in samples], [label for _, label in samples]
        data = [bytes(reader.read(index)) for index in count]
        return Seen(names, labels, data, reader.manifest.classes, fields, list(notes))


def _owned(stored: Stored) -> Stored:
    return bytes(stored) if isinstance(stored, (bytearray, memoryview)) else stored


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
