"""Uses of a pack: every command, and every way to read a pack in Python.

A use is either refused, by `PackerError` or its exit status, or works as documented. Any other outcome raises
`Finding`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

import packer._cli
from fuzz.findings import Finding, finding_of, require_memory
from packer._cli import EXIT_STATUS
from packer._datasets.open import ImageDataset, open_dataset
from packer._formats import open_pack
from packer._loader.loader import Loader
from packer._packs.export import export  # noqa: F401 - imported before memory is limited
from packer._packs.verify import verify
from packer.crops import Compose, RandomResizedCrop, Resize, ResizeCenterCrop
from packer.errors import PackerError

_STATUSES = {EXIT_STATUS[name] for name in ("ok", "error", "usage", "skipped", "corrupt", "locked")}
_CROPS = (
    ResizeCenterCrop(5, 9),
    ResizeCenterCrop(224, 256),
    RandomResizedCrop(7, scale=(0.01, 0.3), flip=0.5),
    Resize((8, 8)),
    Compose([]),
)
_REENCODING = {"--codec", "--resize", "--tiles"}
_MOST = 8  # samples that are read one by one
_SMALL = 1 << 20  # bytes that a list of labels and PNG's overhead over raw pixels may take
_SIDE = 64  # pixels, of a region


class Place(NamedTuple):
    """The path of a forged pack, and the paths that are used together with it.

    Attributes
    ----------
    pack : Path
    work : Path
        The directory that uses write to.
    intact : Path
        An ordinary pack with the same classes.
    tree : Path
        The images that both packs were made of.
    splits : Path
        A directory that holds `tree` as the split ``train``.
    """

    pack: Path
    work: Path
    intact: Path
    tree: Path
    splits: Path


def use(name: str, place: Place, chance: Random) -> bool:
    """Use a pack in one way of `USES`; return True if it was accepted, False if it was refused.

    Raises
    ------
    Finding
        If neither is true. The first line is its signature, the same for the same fault.
    """
    try:
        return USES[name](place, chance)
    finally:
        _causes.clear()  # and the memory that their frames hold


# Commands.


def _command(*arguments: Any, makes: str = "") -> Callable[[Place, Random], bool]:
    """Return a use that runs a command, and checks what it made: a pack, or the files of one."""

    def run(place: Place, chance: Random) -> bool:
        made = place.work / makes if makes else None
        line = [_argument(argument, place, made, chance) for argument in arguments]
        status = _run(line)
        if status not in (EXIT_STATUS["ok"], EXIT_STATUS["skipped"]):
            return False
        if made is not None:
            keeps = line[:2] == ["convert", str(place.pack)] and not _REENCODING & {*line} and _is_pack(place.pack)
            _require_made(line[0], place, made, keeps)
        return True

    return run


def _argument(argument: Any, place: Place, made: Path | None, chance: Random) -> str:
    if callable(argument):
        argument = argument(chance)
    named = {
        **place._asdict(),
        "made": made,
        "listing": place.work / "list.scan",
        "directory": place.work / "directory",
    }
    named["sibling"] = place.pack.with_name("pack" + place.pack.suffix)  # whose split `train` is the pack
    return os.fspath(named[argument[1:]]) if argument.startswith("@") else str(argument)


_causes: list[BaseException] = []


def _recording(end: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Record the error that a command turns into a line and a status."""

    def ended(message: str, status: str) -> None:
        error = sys.exc_info()[1]
        if error is not None:
            _causes.append(error)
        end(message, status)

    return ended


packer._cli._end = _recording(packer._cli._end)


def _run(line: list[str]) -> int:
    """Run `packer` in this process; return its exit status."""
    sys.argv = ["packer", *line]
    output, errors, status = io.StringIO(), io.StringIO(), 0
    _causes.clear()
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            packer._cli.main()
        except SystemExit as exit:
            status = exit.code if isinstance(exit.code, int) else 1
        except BaseException as error:
            raise finding_of(error) from error
    for error in _causes:
        require_memory(error)
    for printed in (output.getvalue() + "\n" + errors.getvalue()).split("\n"):
        if not printed.isprintable():
            raise Finding(f"printed {printed[:200]!r}")
    if "Traceback" in errors.getvalue() or status not in _STATUSES:
        raise Finding(f"exit status {status}\n{errors.getvalue()[-3000:]}")
    return status


def _is_pack(path: Path) -> bool:
    """Tell a pack from a file of another tool, whose values may legitimately grow when they are converted."""
    try:
        open_pack(path, check="never").close()
    except PackerError:
        return False
    return True


def _require_made(command: str, place: Place, made: Path, keeps: bool) -> None:
    """Require that the result of a successful command is intact and, if it `keeps` images, not far larger."""
    if command == "export":
        _require_exported(place, made)
        return
    if keeps:
        had, has = sum(_sizes(place.pack)), sum(_sizes(made))
        if has > 4 * had + _SMALL:  # each of two parts has a manifest, and so has the whole
            raise Finding(f"{command} made more bytes than the pack has\n{has} of {had}")
    try:
        damage = verify(made, workers=1)
    except PackerError as error:
        raise Finding(f"{command}: what it made is refused: {type(error).__name__}\n{error}") from error
    if damage:
        reason = "".join(c for c in damage[0].reason if not c.isdigit())
        raise Finding(f"{command}: what it made is damaged: {reason[:80]}\n{damage[0]}")


def _require_exported(place: Place, made: Path) -> None:
    """Require that an export has about as many files as the pack has samples and values, and not far more bytes."""
    files, had = _sizes(made), _sizes(place.pack)
    with open_pack(place.pack) as reader:
        values = len(reader.fields) * len(reader)
        if not len(reader) <= len(files) <= len(reader) + values + 2:  # labels.csv, and the file with the other fields
            raise Finding(f"export made {len(files)} files of {len(reader)} samples with {len(reader.fields)} fields")
    if beside := {*os.listdir(place.work)} - {made.name, place.pack.name}:
        raise Finding(f"export made something beside its directory\n{beside}")
    if sum(files) > 8 * sum(had) + _SMALL:
        raise Finding(f"export made more bytes than the pack has\n{sum(files)} of {sum(had)}")


def _sizes(path: Path) -> list[int]:
    """Return the sizes of the files of a pack or below a directory."""
    if path.is_file():
        return [path.stat().st_size]
    return [os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names]


# Reading in code.


@contextmanager
def _refusals() -> Iterator[None]:
    """Ignore packer's errors; turn every other one into a finding."""
    try:
        yield
    except Finding:
        raise
    except PackerError as error:
        require_memory(error)
    except BaseException as error:
        raise finding_of(error) from error


def _reading(read: Callable[[ImageDataset, Place, Random], None]) -> Callable[[Place, Random], bool]:
    """Return a use that opens a dataset and reads it; it counts as accepted if the dataset could be opened."""

    def run(place: Place, chance: Random) -> bool:
        settings: dict[str, Any] = {
            "output": chance.choice(["tensor", "tensor", "numpy", "pil", "bytes"]),
            "check": chance.choice(["always", "never"]),
            "decoder": chance.choice(["auto", "auto", "turbojpeg", "pillow"]),
            "scaled_decode": chance.random() < 0.3,
        }
        if settings["output"] != "bytes":
            settings["crop"] = chance.choice([None, *_CROPS])
        dataset = None
        with _refusals():
            dataset = open_dataset(place.pack, **settings)
        if dataset is None:
            return False
        try:
            read(dataset, place, chance)
        finally:
            dataset.reader.close()
        return True

    return run


def _read_items(dataset: ImageDataset, place: Place, chance: Random) -> None:
    indices = range(min(len(dataset), _MOST))
    for index in [*indices, -1] if indices else []:
        with _refusals():
            dataset[index]
    with _refusals():
        dataset.__getitems__([*indices])


def _read_batches(dataset: ImageDataset, place: Place, chance: Random) -> None:
    with _refusals():
        loader = Loader(dataset, 2, threads=1, shuffle=chance.random() < 0.5, collate_fn=list)
        for _ in itertools.islice(loader, _MOST):
            pass


def _read_regions(dataset: ImageDataset, place: Place, chance: Random) -> None:
    if dataset.output == "bytes":
        return
    table = dataset.reader.table
    for index in range(min(len(dataset), _MOST)):
        height, width = int(table.height[index]), int(table.width[index])
        if height < 1 or width < 1:
            continue
        tall, wide = min(height, _SIDE), min(width, _SIDE)
        for top, left in ((0, 0), (height - tall, width - wide), (height // 2, width // 2)):
            with _refusals():
                dataset.read_region(index, top, left, min(tall, height - top), min(wide, width - left))


def _read_names(dataset: ImageDataset, place: Place, chance: Random) -> None:
    with _refusals():
        if len(list(dataset.samples)) != len(dataset):
            raise Finding("the names end before the samples do")
    for index in range(min(len(dataset), _MOST)):
        with _refusals():
            dataset.samples[index]
    with _refusals():
        if len(dataset.targets) != len(dataset) or len(dataset.imgs) != len(dataset):
            raise Finding("there are not as many labels as samples")
    with _refusals():
        dict(dataset.class_to_idx)


def _read_pickled(dataset: ImageDataset, place: Place, chance: Random) -> None:
    again = None
    with _refusals():
        again = pickle.loads(pickle.dumps(dataset))
    if again is not None and len(again):
        with _refusals():
            again[0]
        again.reader.close()


def _read_bytes(dataset: ImageDataset, place: Place, chance: Random) -> None:
    reader = dataset.reader
    with _refusals():
        reader.read_many(np.arange(min(len(reader), _MOST)))
    for index in range(min(len(reader), _MOST)):
        with _refusals():
            if len(reader.read(index)) != reader.table.size[index]:
                raise Finding("a sample is not as long as its row says")


def _read_values(dataset: ImageDataset, place: Place, chance: Random) -> None:
    reader = dataset.reader
    for name, field in reader.fields.items():
        for index in range(min(len(reader), _MOST)):
            with _refusals():
                stored = reader.value(index, name)
                with contextlib.suppress(ValueError):
                    field.decode(stored)
        if field.is_blob:
            with _refusals():
                reader.blobs(np.arange(min(len(reader), _MOST)), name)


# The uses by name.


def _mode(chance: Random) -> str:
    return chance.choice(["short", "long", "exact", "crop", "pad"])


def _suffix(chance: Random) -> str:
    return chance.choice(["lmdb", "hdf5", "pth"])


_ONE = ("--workers", "1")
_CONVERT = ("convert", "@pack", "@made", "--format", _suffix, *_ONE)

USES: dict[str, Callable[[Place, Random], bool]] = {
    "info": _command("info", "@pack"),
    "info --json": _command("info", "@pack", "--json"),
    "info --classes": _command("info", "@pack", "--classes"),
    "verify": _command("verify", "@pack", *_ONE),
    "verify --quick": _command("verify", "@pack", "--quick"),
    "verify --digest": _command("verify", "@pack", "--digest", *_ONE),
    "verify --repair": _command("verify", "@pack", "--repair", "@tree", *_ONE),
    "export": _command("export", "@pack", "@made", makes="exported"),
    "convert": _command(*_CONVERT, makes="made"),
    "convert --on-error skip": _command(*_CONVERT, "--on-error", "skip", "--check", "decode", makes="made"),
    "convert --resize": _command(*_CONVERT, "--resize", "8", "--resize-mode", _mode, makes="made"),
    "convert --codec raw": _command(*_CONVERT, "--codec", "raw", "--on-error", "skip", makes="made"),
    "convert --codec png": _command(*_CONVERT, "--codec", "png", "--exif", "apply", makes="made"),
    "convert --tiles": _command(*_CONVERT, "--tiles", "--on-error", "skip", makes="made"),
    "convert --parts": _command(*_CONVERT, "--parts", "2", makes="made"),
    "convert --limit": _command(*_CONVERT, "--limit", "2", "--classes-from", "@intact", makes="made"),
    "convert --classes-from": _command(
        "convert", "@tree", "@made", "--format", _suffix, "--classes-from", "@pack", *_ONE, makes="made"
    ),
    "convert --split": _command("convert", "@splits", "@sibling", "--format", _suffix, "--split", "train", *_ONE),
    "convert --overwrite": _command("convert", "@tree", "@pack", "--format", _suffix, "--overwrite", *_ONE),
    "merge": _command("merge", "@pack", "@intact", "@made", *_ONE, makes="made.lmdb"),
    "merge after": _command("merge", "@intact", "@pack", "@made", "--classes", "union", *_ONE, makes="made.pth"),
    "merge --finish": _command("merge", "--finish", "@pack"),
    "scan": _command("scan", "@pack", "@listing"),
    "scan --classes-from": _command("scan", "@tree", "@listing", "--classes-from", "@pack"),
    "index": _command("index", "@pack", "@made", makes="made.index"),
    "stage": _command("stage", "@pack", "@directory"),
    "warm": _command("warm", "@pack"),
    "dataset[index]": _reading(_read_items),
    "Loader": _reading(_read_batches),
    "read_region": _reading(_read_regions),
    "samples, targets": _reading(_read_names),
    "pickled": _reading(_read_pickled),
    "reader.read": _reading(_read_bytes),
    "reader.value": _reading(_read_values),
}
"""Commands and ways to read, by what they are called in the table of a campaign."""

CONTAINER_USES = [
    *("convert", "convert --on-error skip", "convert --codec raw", "convert --parts", "scan"),
    *("index", "dataset[index]", "Loader", "samples, targets", "reader.value"),
]
"""Those of files of other tools."""
