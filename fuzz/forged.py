"""A campaign of forged packs: ``python -m fuzz.forged --count 1000 --seed 1``.

Each forgery is used in a few ways, drawn at random, in a process with limited memory. A use may take 10 s of CPU time
and a minute on the clock; the process is watched for files outside of its directory and for programs. The campaign
prints the numbers of accepted and refused uses, by use and by format, and the findings: tracebacks, hangs, memory,
control characters, programs, files that were touched. The exit status is 1 if there are findings.

``--only NUMBER`` repeats one forgery of a seed, and prints its outcomes; ``--keep DIRECTORY`` leaves its pack there.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import json
import os
import random
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fuzz.findings import PACKAGE
from packer._storage.files import process_directory
from packer.testing.photos import draw_imagefolder

_SECONDS = 10  # of work
_PATIENCE_OF_USE = 60  # seconds on the clock, because other processes may be busy too
_MEMORY = 1 << 30
_A_PROCESS = 500  # forgeries
_PATIENCE = 5  # seconds in which a process must end by itself


class Outcome(NamedTuple):
    """The outcome of one use of a forgery: ``accepted``, ``refused`` or ``finding``, with the finding's text."""

    number: int
    use: str
    format: str
    kind: str
    outcome: str
    finding: str = ""
    grown: int = 0


class _Rooms:
    """The directories of a campaign, below one root.

    ``given`` has the images. ``outside`` has files that must not change, and a stand-in for Ghostscript. ``work`` is
    emptied before each forgery.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.given, self.outside, self.work = root, root / "given", root / "outside", root / "work"
        self.tree = self.given / "splits" / "train"
        draw_imagefolder(self.tree, classes=3, per_class=2, size=(40, 56))
        (self.outside / "bin").mkdir(parents=True)
        (self.outside / "home").mkdir()
        (self.outside / "secret.bin").write_bytes(b"secret" * 1000)
        program = self.outside / "bin" / "gs"
        program.write_text(f"#!/bin/sh\ntouch {self.outside / 'gs-ran'}\n", "ascii")
        program.chmod(0o755)

    def enter(self) -> None:
        """Let this process find the stand-in, and keep its own files to the work's directory."""
        os.environ["PATH"] = f"{self.outside / 'bin'}{os.pathsep}{os.environ['PATH']}"
        os.environ["HOME"] = str(self.outside / "home")
        self.empty()
        tempfile.tempdir = str(self.work)
        os.chdir(self.work)

    def empty(self) -> None:
        """Remove the files of the previous forgery."""
        self.work.mkdir(exist_ok=True)
        for left in self.work.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        for left in (self.outside / "moved", self.outside / "gs-ran"):
            left.unlink(missing_ok=True)


class _Worker:
    """Makes and uses forgeries, in a process of its own."""

    def __init__(self, rooms: _Rooms, seed: int) -> None:
        from fuzz.fields import with_fields
        from fuzz.forgeries import Originals
        from packer._conversion.convert import convert
        from packer._sources.imagefolder import imagefolder_source

        self._rooms, self._seed = rooms, seed
        (rooms.given / "packs").mkdir()
        self._originals = Originals(rooms.given / "packs", rooms.tree, rooms.outside)
        self._intact = rooms.given / "intact.lmdb"
        convert(with_fields(imagefolder_source(rooms.tree)), self._intact)

    def load(self) -> None:
        """Import what the uses need before memory is limited."""
        import fuzz.uses  # noqa: F401

    def run(self, numbers: Sequence[int], uses: Sequence[str], each: int, send: Any, log: Any) -> None:
        """Make the forgeries and use each in `each` ways; `send` gets a message before and after each use."""
        from fuzz.forgeries import REFERENCES
        from fuzz.guard import Guard, limit_memory
        from fuzz.uses import CONTAINER_USES, Place

        warnings.simplefilter("error", RuntimeWarning)  # numbers that are too large for numpy
        warnings.filterwarnings("ignore", module="PIL")  # remarks about odd images
        self._rooms.enter()
        faulthandler.enable(log)
        guard = Guard(self._rooms.root / "work", self._rooms.outside)
        gc.freeze()  # so that collecting what one use left is cheap
        limit_memory(_MEMORY)
        for number in numbers:
            chance = random.Random(f"{self._seed} {number}")
            for use in chance.sample(uses, min(each, len(uses))):
                forging = random.Random(f"{self._seed} {number} forgery")
                self._rooms.empty()
                try:
                    forgery = self._originals.forge(self._rooms.work, "pack-train", forging)
                except MemoryError:  # the lie itself takes more than its use may take: it is neither used nor counted
                    break
                place = Place(
                    forgery.path, self._rooms.work, self._intact, self._rooms.tree, self._rooms.given / "splits"
                )
                if forgery.kind == REFERENCES and use not in CONTAINER_USES:
                    use = forging.choice(CONTAINER_USES)
                about = number, use, forgery.format, forgery.kind
                send(about)
                faulthandler.dump_traceback_later(_PATIENCE_OF_USE, exit=True, file=log)
                begun = time.process_time()
                outcome = self._use(use, place, random.Random(f"{self._seed} {number} {use}"), guard)
                faulthandler.cancel_dump_traceback_later()
                if (took := time.process_time() - begun) > _SECONDS and outcome[0] != "finding":
                    outcome = "finding", f"more than {_SECONDS} s of work\n{took:.1f} s", outcome[2]
                send((*about, *outcome))

    @staticmethod
    def _use(use: str, place: Any, chance: random.Random, guard: Any) -> tuple[str, str, int]:
        from fuzz import guard as memory
        from fuzz.findings import Finding
        from fuzz.uses import use as use_pack

        memory.reset_peak_memory()
        before = memory.peak_memory()
        outcome, finding = "refused", ""
        with guard.watch() as seen:
            try:
                outcome = "accepted" if use_pack(use, place, chance) else "refused"
            except Finding as error:
                outcome, finding = "finding", str(error)
        gc.collect()
        grown = memory.peak_memory() - before
        if seen and outcome != "finding":
            outcome, finding = "finding", "\n".join(dict.fromkeys(seen))
        if grown > _MEMORY // 2 and outcome != "finding":  # what asked for more than all of it may have been refused
            outcome, finding = "finding", f"memory grew by {grown >> 20} MB"
        return outcome, finding, grown


def campaign(
    numbers: Iterator[int], *, seed: int, uses: Sequence[str], each: int, keep: Path | None = None
) -> Iterator[Outcome]:
    """Make forgeries and use them; yield the outcome of each use.

    Parameters
    ----------
    numbers : iterator of int
        Which forgeries of the seed.
    seed : int
    uses : sequence of str
        Names in `fuzz.uses.USES`.
    each : int
        How many of them are drawn for each forgery.
    keep : Path, optional
        Where the last forgery is copied to.
    """
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # mimalloc reserves as much as a process may take
    with tempfile.TemporaryDirectory(dir=process_directory("packer-forged-")) as directory:
        rooms = _Rooms(Path(directory))
        worker = _Worker(rooms, seed)
        worker.load()
        pending: list[int] = []
        while pending := pending or [number for number, _ in zip(numbers, range(_A_PROCESS), strict=False)]:
            for outcome in _in_a_process(worker, pending, uses, each):
                yield outcome._replace(finding=outcome.finding.replace(directory, ""))
                while pending and pending[0] < outcome.number:
                    pending.pop(0)
            pending.pop(0)
        if keep is not None:
            shutil.copytree(rooms.work, keep, symlinks=True, dirs_exist_ok=True)


def _in_a_process(worker: _Worker, numbers: Sequence[int], uses: Sequence[str], each: int) -> Iterator[Outcome]:
    """Yield the outcomes of a forked process, until it is done or dies; how it died is an outcome too."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as log:
        child = os.fork()
        if not child:
            os.close(reading)
            _serve(partial(worker.run, numbers, uses, each), writing, log)
        os.close(writing)
        begun: tuple[Any, ...] = ()
        with open(reading, encoding="utf-8") as messages:
            for message in _lines(messages, child, _PATIENCE_OF_USE + _PATIENCE):
                if len(message) == 4:
                    begun = tuple(message)
                else:
                    begun = ()
                    yield Outcome(*message)
        _, status = os.waitpid(child, 0)
        log.seek(0)
        said = log.read().decode(errors="replace")
        if begun:
            died = "hang" if "Timeout" in said or not said else f"died with status {status}"
            yield Outcome(*begun, "finding", f"{died}{_innermost(said)}\n{said[-3000:]}")
        elif status:
            raise RuntimeError(f"the process of forgeries {numbers[0]} and on failed:\n{said}")


def _lines(messages: Any, child: int, seconds: float) -> Iterator[Any]:
    """Yield messages; kill the process if it sends none for `seconds`."""
    with selectors.DefaultSelector() as selector:
        selector.register(messages, selectors.EVENT_READ)
        buffer = b""
        while selector.select(seconds) or os.kill(child, signal.SIGKILL) is None:
            data = os.read(messages.fileno(), 1 << 16)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from map(json.loads, lines)


def _serve(run: Callable[[Any, Any], None], writing: int, log: Any) -> None:
    """Run in the forked process, and exit without Python's clean-up."""
    status = 1
    try:
        run(lambda about: os.write(writing, json.dumps(about).encode() + b"\n"), log)
        status = 0
    except BaseException:
        import traceback

        log.write(traceback.format_exc().encode())
        log.flush()
    finally:
        os._exit(status)


def _innermost(said: str) -> str:
    """Return the line of packer's own code at which a process ended."""
    frames = [line.partition(PACKAGE)[2] for line in said.split("\n") if PACKAGE in line]
    return f" at {frames[0]}" if frames else ""


def report(outcomes: Sequence[Outcome]) -> str:
    """Return the tables of a campaign: uses by formats, and findings by their first line."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    grown: dict[str, int] = defaultdict(int)
    findings: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        counts[outcome.use, outcome.format][outcome.outcome] += 1
        grown[outcome.use] = max(grown[outcome.use], outcome.grown)
        if outcome.finding:
            findings[outcome.finding.split("\n")[0]].append(outcome)
    formats = sorted({format for _, format in counts})
    lines = [
        f"{'used / refused / accepted / findings':40}" + "".join(f"{format:>22}" for format in formats) + f"{'MB':>7}"
    ]
    for use in sorted({use for use, _ in counts}):
        cells = [counts[use, format] for format in formats]
        shown = [f"{sum(cell.values())}/{cell['refused']}/{cell['accepted']}/{cell['finding']}" for cell in cells]
        lines.append(f"{use:40}" + "".join(f"{cell:>22}" for cell in shown) + f"{grown[use] >> 20:7}")
    lines.append(
        f"{len({o.number for o in outcomes})} forgeries, {len(outcomes)} uses, {len(findings)} kinds of findings"
    )
    for signature, found in sorted(findings.items(), key=lambda item: -len(item[1])):
        seen = Counter(f"{outcome.use} of {outcome.kind} in {outcome.format}" for outcome in found)
        lines += ["", f"{len(found)} x {signature}", f"  first: --only {found[0].number} --use {found[0].use!r}"]
        lines += [f"  {', '.join(f'{what} ({number})' for what, number in seen.most_common(4))}"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign of a command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.forged", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--count", type=int, default=1000, help="how many forgeries")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--only", type=int, help="the number of a single forgery")
    parser.add_argument("--uses", type=int, default=3, metavar="N", help="in how many ways each is used")
    parser.add_argument("--use", action="append", default=[], help="a way that is drawn, such as 'verify --quick'")
    parser.add_argument("--without", action="append", default=[], help="a way that is not drawn")
    parser.add_argument("--keep", type=Path, help="where to leave the pack of --only")
    parser.add_argument("--log", type=Path, help="write each finding to this file, as a line of JSON")
    options = parser.parse_args(arguments)
    from fuzz.uses import USES

    uses = [use for use in options.use or USES if use not in options.without]
    end = time.monotonic() + options.seconds
    wanted = iter(range(options.count)) if options.only is None else iter([options.only])
    numbers = (number for number in wanted if time.monotonic() < end)
    outcomes = []
    with contextlib.suppress(KeyboardInterrupt):  # what was found so far is reported
        for outcome in campaign(numbers, seed=options.seed, uses=uses, each=options.uses, keep=options.keep):
            outcomes.append(outcome._replace(finding=outcome.finding.split("\n")[0]))
            if outcome.finding and options.log:
                with open(options.log, "a", encoding="utf-8") as log:
                    log.write(json.dumps(outcome) + "\n")
            if options.only is not None:
                sys.stdout.write(f"{outcome}\n{outcome.finding}\n")
    sys.stdout.write(report(outcomes) + "\n")
    return 1 if any(outcome.finding for outcome in outcomes) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
