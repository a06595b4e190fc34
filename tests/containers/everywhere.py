"""A container through all that takes one: an index, a conversion, and a dataset; and what it lists, for fuzzing."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import packer
from packer._containers import Container, Listing, Packed, Piece, find_container, list_samples, named_paths
from packer._fields import Stored
from packer._formats import open_pack
from packer.errors import OptionError, SourceError

GOLDEN = Path(__file__).parents[1] / "golden" / "containers"
IMAGES = {path.name: path.read_bytes() for path in sorted((GOLDEN / "images").iterdir())}

_CHANGES = [b"", b"\0", b"\xff", b"\xff\xff\xff\x7f", b"\x80", b"\xff" * 8, b"\0" * 8, b"[" * 200, b'"', b"9" * 20]


class Seen(NamedTuple):
    """What a pack or an index shows."""

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


def everywhere(src: Path | str, tmp: Path, *, pixels: bool = False, **options: Any) -> Seen:
    """Index and convert a container, and open it in place; return what the index shows, which all show.

    With `pixels`, the index shows these, and the conversion images that have them.
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


def fuzz(src: Path, tmp: Path, *, runs: int, seed: int = 0, target: str = "", most: int = 3) -> int:
    """Change and cut the files of a small container: each time there is a listing or a SourceError.

    What is listed lies in the files. Returns how often there was an error.
    """
    chance, said = random.Random(seed), list[str]()
    place = tmp / f"fuzzed-{src.stem}"
    copied = place / src.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copytree(src, copied) if src.is_dir() else shutil.copy(src, copied)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    contents = [path.read_bytes() for path in files]
    for _ in range(runs):
        number = chance.randrange(len(files))
        files[number].write_bytes(_changed(contents[number], chance, most))
        try:
            found = find_container(named_paths(copied / target if target else copied))
            if found is not None:
                _require_inside(found[0].open(found[1], {}))
        except (SourceError, OptionError) as error:
            said.append(str(error))
        files[number].write_bytes(contents[number])
    assert not any("\n" in text for text in said)
    return len(said)


def _changed(data: bytes, chance: random.Random, most: int) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, most + 1)):
        at = chance.randrange(len(changed) + 1)
        how = chance.randrange(4)
        if how == 0:
            del changed[at:]
        elif how == 1 and at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        else:
            new = chance.choice(_CHANGES)
            changed[at : at + (len(new) if how == 2 else chance.randrange(3))] = new
    return bytes(changed)


def _require_inside(container: Container) -> None:
    paths = [container.root / name for name in container.files]
    sizes = [path.stat().st_size if path.exists() else 0 for path in paths]
    for entry in itertools.chain.from_iterable(map(container.entries, range(container.units))):
        for piece in (entry.image, *entry.values.values()):
            piece = piece.piece if isinstance(piece, Packed) else piece
            if isinstance(piece, Piece):
                assert 0 <= piece.offset <= piece.offset + piece.size <= sizes[piece.file]
        assert entry.values.keys() <= {field.name for field in container.fields}


def run_for(src: Path, minutes: float, target: str = "") -> None:
    """Fuzz a container for minutes, in bounded memory; a listing that takes ten seconds ends the run."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    until, seed, errors = time.monotonic() + 60 * minutes, 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        while time.monotonic() < until:
            signal.alarm(60)
            errors += fuzz(src, Path(tmp), runs=500, seed=seed, target=target)
            seed += 1
    sys.stdout.write(f"{src}: {500 * seed} changes, {errors} errors\n")


if __name__ == "__main__":
    run_for(Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:])
