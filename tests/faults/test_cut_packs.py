"""A pack is cut, replaced or removed while it is open: every call then returns a right result, or raises an error.

Everything public of datasets, Loader, Reader and samplers, as `dir` lists it, is called in forks: access to a mapping
of bytes that were cut off would end a process by a signal.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import re
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import packer
import packer.samplers
from packer import PackerError
from packer.testing.photos import draw_photo

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

COUNT = 24
SIDE = 32
SPECIAL = ("__getitem__", "__getitems__", "__iter__", "__len__", "__repr__", "__reduce__", "__add__", "__enter__")
"""Public special methods; other public names have no underscore in front."""


def samples(seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for number in range(COUNT):
        yield {
            "image": Image.fromarray(draw_photo(rng, SIDE, SIDE)),
            "label": (number + seed) % 3,
            "name": f"{'abc'[number % 3]}/{number:03d}.png",
            "mask": rng.integers(0, 9, (SIDE, SIDE)).astype(np.uint8),
            "caption": f"sample {number} of {seed}",
            "age": number / 2 + seed,
            "seen": bool((number + seed) % 2),
        }


FIELDS = {"mask": "mask", "caption": "text", "age": "float32", "seen": "bool"}
LAYOUTS = ("tfrecord", "rec", "mds", "caffe", "n5", "parquet")
KINDS = ("lmdb", "hdf5", "pth", "parts", "index", "base", "wds", *LAYOUTS)
"""Formats; a pack with parts, an index, and the files that an index lists."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Return a function that makes two packs of a kind, with different samples under the same names."""
    root = tmp_path_factory.mktemp("made")

    @functools.cache
    def pack(kind: str, seed: int) -> Path:
        path = root / f"{kind}{seed}"
        if kind in ("lmdb", "hdf5", "pth"):
            packer.pack(samples(seed), path, fields=FIELDS, classes=["a", "b", "c"], format=kind)
        elif kind == "tree":
            packer.export(pack("plain", seed), path)
        elif kind == "plain":
            plain = [{name: one[name] for name in ("image", "label", "name")} for one in samples(seed)]
            packer.pack(plain, path, classes=["a", "b", "c"], format="lmdb")
        elif kind == "parts":
            packer.convert(pack("lmdb", seed), path, format="lmdb", parts=2)
        elif kind in ("index", "base"):
            shutil.copytree(pack("tree", seed) / "a", path / "files" / "a")
            packer.index(path / "files", path / "x.index")
        else:
            packer.convert(pack("plain", seed), path, format=kind)
        return path

    return lambda kind: (pack(kind, 0), pack(kind, 1))


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def cut(size: Callable[[int], int]) -> Callable[[Path, Path], None]:
    def damage(path: Path, other: Path) -> None:
        for file in files_of(path):
            os.truncate(file, min(size(file.stat().st_size), file.stat().st_size))

    return damage


def overwrite(path: Path, other: Path) -> None:
    """Overwrite in place, as `cp` does; files that the other pack does not have stay."""
    for file in files_of(path):
        if (by := other / file.relative_to(path)).is_file():
            with file.open("r+b") as opened, by.open("rb") as new:
                opened.truncate(0)
                shutil.copyfileobj(new, opened)


def replace(path: Path, other: Path) -> None:
    for file in files_of(path):
        if (by := other / file.relative_to(path)).is_file():
            shutil.copy(by, file.with_name("new"))
            os.replace(file.with_name("new"), file)


def remove(path: Path, other: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


DAMAGES: Mapping[str, Callable[[Path, Path], None]] = {
    "cut to nothing": cut(lambda size: 0),
    "cut to a page": cut(lambda size: 4096),
    "cut in the middle": cut(lambda size: size // 2),
    "overwritten": overwrite,
    "replaced": replace,
    "removed": remove,
}


FEW_DAMAGES = ("cut in the middle", "overwritten", "removed")
ROUNDS = (*((damage, False) for damage in FEW_DAMAGES), ("cut to nothing", True), ("overwritten", True))
"""Damages, and whether each call was also made before."""
FEW_ROUNDS = (("cut in the middle", False), ("overwritten", True))


def looked_at(value: Any) -> Any:  # noqa: PLR0911
    """Return the content of a value, for comparison: the numbers of an array, the samples of a dataset."""
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    if isinstance(value, np.ndarray | torch.Tensor):
        return value.dtype, value.shape, value.tolist()
    if isinstance(value, packer.ImageDataset | packer.ConcatImageDataset):
        return [looked_at(one) for one in (value.targets, value.samples, value[0])]
    if isinstance(value, Mapping):
        return {name: looked_at(value[name]) for name in value}
    if isinstance(value, Image.Image):
        return value.tobytes()
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if not isinstance(value, str | bytes) and isinstance(value, Sequence):
        return [looked_at(one) for one in value]
    if isinstance(value, Iterator):
        return list(map(looked_at, value))
    return value if isinstance(value, str | bytes | int | float | np.generic | None) else type(value)


def are_messages(problems: Any) -> bool:
    """Tell whether problems are texts. They are not compared, because a damaged pack has more than a whole one."""
    return all(isinstance(problem, str) and problem for problem in problems)


def nameless(message: Any) -> str:
    """Return a message without the sample's name, which is empty if the names are damaged."""
    return re.sub(r" ?\([^()]*\)", "", str(message))


RIGHT_NAME = re.compile(r"[abc]/\d{3}\.png|")


Call = Callable[[Any], Any]
BOTH: dict[str, Call] = {
    "__getitem__": lambda dataset: [dataset[index] for index in (0, 5, -1)],
    "__getitems__": lambda dataset: dataset.__getitems__([3, 0]),
    "__reduce__": lambda dataset: pickle.loads(pickle.dumps(dataset)),
    "__add__": lambda dataset: (dataset + dataset)[3],
    "__enter__": lambda dataset: None,
    "__repr__": lambda dataset: None,
    "select": lambda dataset: dataset.select([2, 0]),
    "where": lambda dataset: [
        dataset.where(condition)
        for condition in ("height > 5 and label is not null", 'name glob "*1*"', np.arange(len(dataset)) > 3)
    ],
    "read_region": lambda dataset: dataset.read_region(1, 0, 0, 8, 8),
    "set_epoch": lambda dataset: dataset.set_epoch(1),
    "close": lambda dataset: (dataset.close(), dataset.classes, dataset.targets),
    "columns": lambda dataset: {
        name: column for name in dataset.columns if (column := asked_for(dataset.columns, name)) is not None
    },
}
OF_ONE: dict[str, Call] = {**BOTH, "loader": lambda dataset: dataset.loader(dataset.samples[2][0])}
OF_READER: dict[str, Call] = {
    "__reduce__": lambda reader: list(pickle.loads(pickle.dumps(reader)).names),
    "__enter__": lambda reader: None,
    "ahead": lambda reader: reader.ahead(np.arange(3)),
    "ahead_whole": lambda reader: reader.ahead_whole(range(3)),
    "blobs": lambda reader: [reader.blobs(np.arange(4), name) for name in ("mask",) if name in reader.fields],
    "blobs_of": lambda reader: reader.blobs_of(np.arange(4), [name for name in ("mask",) if name in reader.fields]),
    "changed_files": lambda reader: are_messages(reader.changed_files()),
    "check_structure": lambda reader: are_messages(reader.check_structure()),
    "column": lambda reader: [reader.column(name) for name in ("age", "seen") if name in reader.fields],
    "corrupt": lambda reader: nameless(reader.corrupt(2, "damaged")),
    "data_files": lambda reader: list(reader.data_files()),
    "describe": lambda reader: nameless(reader.describe(2)),
    "known_name": lambda reader: RIGHT_NAME.fullmatch(reader.known_name(2)) is not None,
    "locate": lambda reader: reader.locate(np.arange(5))[0]["label"],
    "locate_blobs": lambda reader: [reader.locate_blobs(np.arange(4), "mask") for _ in reader.fields][:1],
    "place_of": lambda reader: reader.place_of("files/a"),
    "position": lambda reader: reader.position(-1),
    "positions": lambda reader: reader.positions([0, -1]),
    "read": lambda reader: [reader.read(index) for index in range(len(reader))],
    "read_row": lambda reader: reader.read_row(reader.row(2)),
    "row": lambda reader: reader.row(2),
    "read_many": lambda reader: reader.read_many([3, 1]),
    "read_rows": lambda reader: [bytes(data) for _, _, data in reader.read_rows(np.arange(4))],
    "require_column": lambda reader: [reader.require_column(name) for name in ("label", "names", "crc32c")],
    # The answer is not compared, because it is about the files as they are now.
    "shows_mark": lambda reader: isinstance(reader.shows_mark(reader.place), bool),
    "stored": lambda reader: reader.stored().size,
    "values": lambda reader: [reader.values(np.arange(4), name) for name in ("age", "seen") if name in reader.fields],
    "value": lambda reader: [reader.value(2, name) for name in reader.fields],
    "table": lambda reader: {name: reader.table.kept(name) for name in reader.table.column_names()},
}
OF_LOADER: dict[str, Call] = {
    "__getitem__": lambda loader: None,
    "__reduce__": lambda loader: pickle.loads(pickle.dumps(loader)).batch_size,
    "__repr__": lambda loader: None,
    "dataset": lambda loader: loader.dataset[3],
    "sampler": lambda loader: list(loader.sampler),
    "load_state_dict": lambda loader: (loader.load_state_dict(loader.state_dict()), list(loader)),
    "set_epoch": lambda loader: (loader.set_epoch(1), list(loader)),
}
OF_SAMPLER: dict[str, Call] = {
    "chunks": lambda sampler: list(sampler.chunks(4)),
    "chunks_with_turns": lambda sampler: [places for places, _ in sampler.chunks_with_turns(4)],
    "draws": lambda sampler: sampler.draws(np.arange(3)),
    "load_state_dict": lambda sampler: sampler.load_state_dict(sampler.state_dict()),
    "order": lambda sampler: sampler.order(np.arange(3)),
    "require_datasets": lambda sampler: None,
    "require_samples": lambda sampler: sampler.require_samples(COUNT),
    "set_epoch": lambda sampler: sampler.set_epoch(1),
}
SAMPLERS: dict[str, Call] = {
    "BalancedSampler": lambda dataset: packer.samplers.BalancedSampler(dataset.targets),
    "BlockShuffleSampler": lambda dataset: packer.samplers.BlockShuffleSampler(len(dataset)),
    "MixSampler": lambda dataset: packer.samplers.MixSampler({dataset: 1.0}),
    "SequentialSampler": lambda dataset: packer.samplers.SequentialSampler(len(dataset)),
    "ShuffleSampler": lambda dataset: packer.samplers.ShuffleSampler(len(dataset)),
    "SubsetSampler": lambda dataset: packer.samplers.SubsetSampler(np.flatnonzero(dataset.targets == 1)),
    "WeightedSampler": lambda dataset: packer.samplers.WeightedSampler(1.0 + dataset.targets),
}
SUBJECTS: dict[str, tuple[Call, dict[str, Call]]] = {
    "dataset": (packer.open_dataset, OF_ONE),
    "loader": (
        lambda path: packer.Loader(packer.open_dataset(path, crop=packer.CenterCrop(16)), 5, threads=1, seed=1),
        OF_LOADER,
    ),
    "reader": (packer.open_pack, OF_READER),
    "fields": (lambda path: packer.open_dataset(path, fields="all", crop=packer.CenterCrop(16), seed=1), OF_ONE),
    "selection": (lambda path: packer.open_dataset(path)[1:], OF_ONE),
    "two packs": (lambda path: packer.open_dataset([path, path]), BOTH),
}
FEW = ("dataset", "loader", "reader")
Round = tuple[str, bool]


def asked_for(columns: Mapping[str, Any], name: str) -> Any:
    """Return a column; None for a field without one, such as masks."""
    try:
        return columns[name]
    except KeyError:
        return None


def questions(value: Any, known: Mapping[str, Call]) -> dict[str, Call]:
    """Return a call for everything public of a value: from `known`, or without arguments."""
    kind, found = type(value), dict[str, Call]()
    for name in [*(name for name in dir(value) if not name.startswith("_")), *(one for one in SPECIAL)]:
        if name.startswith("__") and getattr(kind, name, None) in (None, getattr(object, name, None)):
            continue
        method = isinstance(inspect.getattr_static(kind, name, None), FunctionType | classmethod | staticmethod)
        if name in known:
            found[name] = known[name]
        elif not method:
            found[name] = lambda value, name=name: getattr(value, name)
        else:
            found[name] = lambda value, name=name: getattr(value, name)()
    return found


def sampled(make: Call) -> Call:
    def ask(dataset: Any) -> Any:
        sampler = make(dataset)
        return list(sampler), [ask(sampler) for ask in questions(sampler, OF_SAMPLER).values()] and None

    return ask


def asked(path: Path, subjects: Collection[str]) -> Iterator[tuple[str, Call, Call]]:
    """Yield the calls: the name, a function that opens the object, and the call."""
    for subject in subjects:
        open_it, known = SUBJECTS[subject]
        for name, ask in questions(open_it(path), known).items():
            yield f"{subject}.{name}", open_it, ask
    if "selection" in subjects:
        for name, make in SAMPLERS.items():
            yield name, packer.open_dataset, sampled(make)


def test_everything_public_is_asked(made: Callable[[str], tuple[Path, Path]]) -> None:
    """Calls with arguments are in the tables above: add a new name there."""
    path, _ = made("lmdb")
    kinds = {name for name in packer.samplers.__all__ if isinstance(getattr(packer.samplers, name), type)}
    assert kinds == {*SAMPLERS, "OrderSampler"}  # the class of which the others are
    for name, open_it, ask in asked(path, SUBJECTS):
        try:
            looked_at(ask(open_it(path)))
        except TypeError as error:
            pytest.fail(f"{name} is asked without what it needs: {error}")


def restored(of: Path, to: Path) -> None:
    if to.is_dir():
        shutil.rmtree(to)
    elif to.exists():
        to.unlink()
    shutil.copytree(of, to) if of.is_dir() else shutil.copy2(of, to)


def outcome(ask: Call, value: Any) -> Any:
    try:
        return looked_at(ask(value))
    except PackerError as error:
        return error


def ask_all(kind: str, pack: tuple[Path, Path], work: Path, rounds: Mapping[str, Collection[Round]]) -> Iterator[str]:
    """Damage open packs, and make all calls; yield the name of each call before it is made, and wrong results.

    `rounds` has the damages for each subject.
    """
    whole, other = pack
    inside = {"index": "x.index", "base": "files"}.get(kind, "")
    path = work / "x.index" if inside else work
    for subject in rounds:
        restored(whole, work)
        everything = list(asked(path, [subject]))
        expected = {name: outcome(ask, open_it(path)) for name, open_it, ask in everything}
        for damage, warm in rounds[subject]:
            restored(whole, work)
            opened = [open_it(path) for _, open_it, _ in everything]  # one for each call
            for value, (name, _, ask) in zip(opened, everything, strict=True):
                if warm and not name.endswith(".close"):
                    outcome(ask, value)
            DAMAGES[damage](work / inside if inside else work, other / inside if inside else other)
            for value, (name, _, ask) in zip(opened, everything, strict=True):
                yield f"{damage}, {name}{', asked before' * warm}"
                found = outcome(ask, value)
                if not isinstance(found, PackerError) and repr(found) != repr(expected[name]):
                    yield f"WRONG: {repr(found)[:300]} and not {repr(expected[name])[:300]}"


def in_a_fork(lines: Callable[[], Iterator[str]]) -> tuple[int, list[str]]:
    """Iterate over lines in a fork; return its exit status, and the lines that it reached."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 1
        try:
            signal.alarm(200)
            for line in lines():
                os.write(writing, f"{line}\n".encode(errors="replace"))
            status = 0
        except BaseException as error:
            os.write(writing, f"WRONG: {type(error).__name__}: {error}\n".encode(errors="replace"))
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="replace") as said:
        seen = said.read().splitlines()
    return os.waitpid(child, 0)[1], seen


@pytest.mark.parametrize(
    ("kind", "held"),
    [*((kind, True) for kind in KINDS), ("lmdb", False), ("parts", False), ("index", False)],
    ids=lambda value: value if isinstance(value, str) else "memory" if value else "mapped",
)
def test_damage_to_an_open_pack_is_an_error_and_no_signal(
    kind: str,
    held: bool,
    made: Callable[[str], tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not held:  # as for tables of millions of samples
        monkeypatch.setattr("packer._storage.packfile.MOST_HELD", -1)
    monkeypatch.setattr("packer._table._SHARED_FROM", 1)  # as for tables of thousands
    pack, work = made(kind), tmp_path / "work"
    if kind == "lmdb" and held:
        more = [(damage, False) for damage in DAMAGES if damage not in FEW_DAMAGES]
        rounds = {subject: [*ROUNDS, *more] if subject in FEW else ROUNDS for subject in SUBJECTS}
    # Datasets and Loaders use readers. Those for layouts of other tools have one base class.
    elif kind in LAYOUTS:
        rounds = {"reader": FEW_ROUNDS}
    else:
        rounds = {"reader": ROUNDS, **dict.fromkeys(("dataset", "loader"), FEW_ROUNDS)}
    status, seen = in_a_fork(lambda: ask_all(kind, pack, work, rounds))
    wrong = [seen[number - 1 : number + 1] for number, line in enumerate(seen) if line.startswith("WRONG")]
    assert not wrong
    assert status == 0, f"ended by signal {os.WTERMSIG(status)} at: {seen[-1:]}"


def test_a_pack_that_is_cut_while_it_is_read(
    made: Callable[[str], tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack is cut at random moments of a pass, which then ends with an error."""
    monkeypatch.setattr("packer._table._SHARED_FROM", 1)
    whole, work = made("lmdb")[0], tmp_path / "work"
    rng = np.random.default_rng(0)

    def reading(seconds: float) -> Iterator[str]:
        restored(whole, work)
        dataset = packer.open_dataset(work, fields="all", crop=packer.CenterCrop(16))
        loader = packer.Loader(dataset, 3, threads=2, shuffle=True, seed=1)
        threading.Timer(seconds, os.truncate, (work, 0)).start()
        while True:
            try:
                for batch in loader:
                    looked_at([dataset.targets, dataset.samples, dataset.where("age > 3"), len(batch)])
            except PackerError as error:
                yield str(error)
                return

    for seconds in rng.random(8) / 10:
        status, seen = in_a_fork(lambda seconds=seconds: reading(seconds))
        assert status == 0, f"ended by signal {os.WTERMSIG(status)}, cut after {seconds} seconds"
        assert len(seen) == 1
        assert "became shorter" in seen[0]
