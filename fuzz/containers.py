"""``python -m fuzz.containers [--minutes N] [NAME ...]``: read changed files of each container for N CPU minutes.

Files of other tools are changed, one container after the other, and used like any source: they are recognised, listed
and read, and now and then indexed and converted. The result must be a listing whose ranges lie in its files, or an
error of packer. Everything else is a finding, and is kept in fuzz/findings: another exception, a crash, more than
`_SECONDS` of CPU time or `_MEMORY` of memory, access to a file outside, or a pickle that was run. An input that is
refused at a new line of code is changed further. Each container has a process of its own, one at a time; a table has
the number of runs.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import packer
from fuzz.changes import MENDS, changed
from fuzz.containerseeds import SEEDS, Seed
from fuzz.guard import Guard, limit_memory, peak_memory, reset_peak_memory
from packer._containers import find_container, named_paths
from packer._formats import open_pack
from packer._packs.verify import verify
from packer._sources.base import ReadBuffer
from packer._sources.container import ContainerSource, container_source
from packer._storage.files import process_directory
from packer.errors import PackerError

_SECONDS = 5
_MEMORY = 512 << 20
_PATIENCE = 300  # seconds, after which a process that takes no CPU time is ended
_ROWS = 8  # samples that are read of each listing
_MOST_FINDINGS = 20
_KEPT = 400  # changed inputs that are changed further
_ROOT = Path(__file__).parents[1]

Files = dict[Path, bytes | None]
"""What is written in the place of files of a seed; None removes one."""


class _TooSlow(BaseException):
    """Raised after too much CPU time; no `Exception`, so that no code that handles errors catches it."""


class Attack:
    """Changed files of one container, one after the other.

    Parameters
    ----------
    name : str
        One of `fuzz.containerseeds.SEEDS`.
    root : Path
        An empty directory. The files are below "work"; nothing may touch the files in "outside".
    seed : str

    Attributes
    ----------
    outcomes : dict of str to int
        How many inputs were listed, refused, or not recognised as a container.
    findings : dict of str to str
        The details of each finding, by its signature.
    """

    def __init__(self, name: str, root: Path, seed: str) -> None:
        self._chance, self._mend = random.Random(f"{name} {seed}"), MENDS.get(name)
        self._work, self._outside, self._made = root / "work", root / "outside", root / "made"
        for directory in (self._work, self._outside, self._made):
            directory.mkdir()
        (self._outside / "secret").write_bytes(b"\xff\xd8\xff secret")
        self._seeds = SEEDS[name](self._work)
        self._contents: list[dict[Path, bytes]] = [
            {path: path.read_bytes() for path in sorted(seed.directory.rglob("*")) if path.is_file()}
            for seed in self._seeds
        ]
        self._kept: dict[str, tuple[int, Files]] = {}
        self._guard = Guard(root, self._outside, trusted=())
        self.outcomes = {"listed": 0, "refused": 0, "none": 0}
        self.findings: dict[str, str] = {}

    def try_seeds(self) -> None:
        """Use all seeds as they are: each must be listed."""
        for seed in self._seeds:
            _use(seed.target, self._made, deep=True)

    def step(self) -> str:
        """Use one changed input; return the signature of a finding, or an empty text."""
        number, files = self._drawn()
        self._write(number, files)
        wrong, story = self._watched(number, files)
        if wrong and wrong not in self.findings:
            self.findings[wrong] = story
            _keep(self._seeds[number], wrong, story)
        self._write(number, {path: self._contents[number].get(path) for path in files})
        return wrong

    def _drawn(self) -> tuple[int, Files]:
        """Return a seed's number and its changed files: one more change, of the seed or of an input that was kept."""
        chance = self._chance
        number, files = chance.randrange(len(self._seeds)), Files()
        if self._kept and chance.random() < 0.4:
            number, files = chance.choice(list(self._kept.values()))
        contents = self._contents[number]
        path = chance.choice(list(contents))
        if files and chance.random() < 0.7:
            path = chance.choice(list(files))
        if chance.random() < 0.01 and len(contents) > 1:
            return number, {**files, path: None}
        others = [*(data for other in self._contents for data in other.values() if data)]
        new = changed(files.get(path) or contents[path], chance, others)
        if self._mend is not None and chance.random() < 0.8:
            new = self._mend(new, chance)
        return number, {**files, path: new}

    def _write(self, number: int, files: Files) -> None:
        for path, data in files.items():
            path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)

    def _watched(self, number: int, files: Files) -> tuple[str, str]:
        """Use an input; return the signature of a finding and its details, or empty texts."""
        reset_peak_memory()
        before, begun = peak_memory(), time.process_time()
        try:
            with self._guard.watch() as seen:
                place = self._placed(number, files)
        except (Exception, _TooSlow) as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            return f"{type(error).__name__} {_innermost(error)}", traceback.format_exc()
        if seen:
            return seen[0], "\n".join(seen)
        if (grown := peak_memory() - before) > _MEMORY // 2:
            return f"memory {place}", f"{grown >> 20} MB more"
        if (took := time.process_time() - begun) > _SECONDS:
            return f"time {place}", f"{took:.1f} s"
        return "", ""

    def _placed(self, number: int, files: Files) -> str:
        """Use an input; return the line of code that refused it, or a description of the listing."""
        deep = self._chance.random() < 0.02
        try:
            place = _use(self._seeds[number].target, self._made, deep=deep)
            outcome = "listed" if place else "none"
        except PackerError as error:
            if "\n" in str(error):
                raise AssertionError(f"an error of several lines: {error!r}") from error
            place, outcome = _innermost(error), "refused"
        self.outcomes[outcome] += 1
        if place not in self._kept and len(self._kept) < _KEPT:
            self._kept[place] = number, files
        return place


def _use(target: Path, made: Path, *, deep: bool) -> str:
    """Recognise, list and read a container; return a description of the listing, empty if it is no container."""
    found = find_container(paths) if (paths := named_paths(target)) else None
    if found is None:
        return ""
    source = container_source(found[0].open(found[1], {}))
    _require_inside(source)
    data = [_read(source, index) for index in range(min(_ROWS, len(source)))]
    if deep:
        _index(target, made, data)
        _convert(target, made)
    fields = " ".join(f"{field.name}:{field.kind}" for field in source.fields)
    return (
        f"{source.kind} of {min(3, len(source))} with {fields}, {len(source.notes)} notes, {data.count(None)} missing"
    )


def _require_inside(source: ContainerSource) -> None:
    """Assert that all ranges lie in their files."""
    columns = [source.images, *(column.ranges for column in source.columns if hasattr(column, "ranges"))]
    ends = source.files.stamps[:, 0]
    for ranges in columns:
        there = (ranges.file >= 0) & (ranges.file < len(ends)) & (ranges.size >= 0)
        offsets, sizes = ranges.offset[there], ranges.size[there]
        assert (offsets >= 0).all()
        assert (offsets + sizes <= ends[ranges.file[there]]).all()


def _read(source: ContainerSource, index: int) -> bytes | None:
    """Read a sample and its values; return its image, or None if packer refuses the image."""
    buffer = ReadBuffer()
    data = None
    with contextlib.suppress(PackerError):
        data = bytes(source.read(index, buffer)[0])
    with contextlib.suppress(PackerError):
        for field, stored in zip(source.fields, source.values(index, buffer), strict=True):
            field.decode(bytes(stored) if isinstance(stored, bytearray | memoryview) else stored)
    return data


def _index(target: Path, made: Path, data: Sequence[bytes | None]) -> None:
    """Write an index; require that it is intact, and that it has the same bytes if these are encoded images."""
    path = made / "made.index"
    try:
        packer.index(target, path, overwrite=True)
    except PackerError:
        return
    assert not (problems := verify(path, quick=True)), problems
    with open_pack(path) as reader:
        encoded = [read for read in data if read is not None]
        if len(encoded) == len(data) == len(reader) and reader.manifest.codec == "keep":
            assert [bytes(reader.read(index)) for index in range(len(data))] == data


def _convert(target: Path, made: Path) -> None:
    with contextlib.suppress(PackerError):
        packer.convert(target, made / "made.lmdb", overwrite=True)


def _innermost(error: BaseException) -> str:
    """Return the innermost lines of packer's own code in the traceback of an error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/packer/" in frame.filename]
    shown = (frames or traceback.extract_tb(error.__traceback__))[-2:]
    return " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(shown))


def _keep(seed: Seed, wrong: str, story: str) -> None:
    """Copy the files of a finding, and its details, to fuzz/findings."""
    findings = _ROOT / "fuzz" / "findings"
    findings.mkdir(exist_ok=True)
    kept = Path(tempfile.mkdtemp(prefix=f"container-{seed.directory.name}-", dir=findings))
    shutil.copytree(seed.directory, kept / "files")
    (kept / "story.txt").write_text(f"{wrong}\n\n{seed.target}\n\n{story}\n")


def _work(name: str, root: Path, cpu: float, seed: str) -> None:
    """Run as the process of one container for `cpu` seconds of CPU time; print results as lines of JSON."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)  # numbers that are too large for numpy
    attack = Attack(name, root, seed)
    tempfile.tempdir = str(root / "made")
    attack.try_seeds()
    gc.freeze()
    limit_memory(_MEMORY)
    signal.signal(signal.SIGPROF, _too_slow)
    faulthandler.enable()
    begun, count, slowest = time.process_time(), 0, 0.0
    while (at := time.process_time()) - begun < cpu:
        if count % 100 == 0:
            faulthandler.dump_traceback_later(_PATIENCE, exit=True)
            _say(attack, count, at - begun, slowest)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        attack.step()
        signal.setitimer(signal.ITIMER_PROF, 0)
        count, slowest = count + 1, max(slowest, time.process_time() - at)
    _say(attack, count, time.process_time() - begun, slowest)


def _say(attack: Attack, count: int, seconds: float, slowest: float) -> None:
    """Print the values of a `Told`."""
    listed, refused = attack.outcomes["listed"], attack.outcomes["refused"]
    _print(json.dumps([count, listed, refused, seconds, slowest, [*attack.findings]]))


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise _TooSlow


class Told(NamedTuple):
    """The results that a process prints for a container.

    Attributes
    ----------
    runs, listed, refused : int
        How many inputs were used, listed and refused; the others were not recognised as a container.
    seconds, slowest : float
        CPU time of all, and of the one that took longest.
    findings : list of str
    """

    runs: int = 0
    listed: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    findings: tuple[str, ...] = ()

    def and_then(self, later: Told) -> Told:
        """Return the joint results of two processes, one after the other."""
        sums = [first + second for first, second in zip(self[:4], later[:4], strict=True)]
        found = tuple(dict.fromkeys(self.findings + later.findings))
        return Told(*sums, max(self.slowest, later.slowest), found)  # type: ignore[arg-type]


def _campaign(name: str, cpu: float, seed: str) -> Told:
    """Run a container's process, and start another one if it dies; return their results."""
    told = Told()
    while told.seconds < cpu - 1 and len(told.findings) < _MOST_FINDINGS:
        with tempfile.TemporaryDirectory(dir=process_directory("packer-fuzz-")) as directory:
            options = ["--in", directory, "--minutes", str((cpu - told.seconds) / 60), "--seed", f"{seed}{told.runs}"]
            line = [sys.executable, "-m", "fuzz.containers", *options, name]
            with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
                assert process.stdout is not None
                last = Told()
                for text in process.stdout:
                    *numbers, findings = json.loads(text)
                    last = Told(*numbers, tuple(findings))
            told = told.and_then(last)
            if process.returncode:
                died = f"died with status {process.returncode}"
                told = told.and_then(Told(seconds=1.0, findings=(died,)))
                _keep(Seed(Path(directory), Path(directory)), died, "see what it printed")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign of a command line; return 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.containers", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(SEEDS)}; by default all")
    parser.add_argument("--minutes", type=float, default=10, help="CPU time of each container")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--in", dest="directory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    names = options.names or list(SEEDS)
    if options.directory is not None:
        _work(names[0], options.directory, 60 * options.minutes, options.seed)
        return 0
    _print(f"{'container':14}{'runs':>10}{'listed':>10}{'refused':>10}{'CPU s':>8}{'slowest s':>11}{'findings':>10}")
    found = 0
    for name in names:
        told = _campaign(name, 60 * options.minutes, options.seed)
        runs, listed, refused, seconds, slowest, findings = told
        _print(f"{name:14}{runs:10,}{listed:10,}{refused:10,}{seconds:8.0f}{slowest:11.2f}{len(findings):10}")
        for wrong in findings:
            _print(f"    {wrong}")
        found += len(findings)
    return int(found > 0)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
