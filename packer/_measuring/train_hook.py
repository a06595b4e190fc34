"""`packer doctor --train`: runs a user's training command unchanged, and measures each pass over a loader.

`profile_training` starts the program with a directory at the front of ``PYTHONPATH``. Python automatically imports the
``sitecustomize.py`` in this directory, which calls `install`. When torch's DataLoader or packer's loaders are imported,
their ``__iter__`` is replaced by one that measures. After enough steps or seconds the report is written, and SystemExit
is raised in the training loop, which ends the program.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import packer
from packer.errors import OptionError, PackerError, printable

if TYPE_CHECKING:
    from packer._measuring.diagnosis import ProfileReport  # imports torch, which is left to the user's program
    from packer._measuring.harness import ShowSeconds

SETTINGS = "PACKER_PROFILE"
"""The environment variable with the settings as JSON: see `profile_training`."""

_LOADERS = {
    "torch.utils.data.dataloader": "DataLoader",
    "packer._loader.dataloader": "DataLoader",
    "packer._loader.loader": "Loader",
}
_SECONDS_BETWEEN_STATES = 1.0
_FEWEST_STEPS = 3  # a loader is diagnosed after a pass of at least this many steps


def install() -> None:
    """Measure the loaders that this program imports, if this process is rank 0."""
    settings = json.loads(os.environ[SETTINGS])
    _import_hidden_sitecustomize(settings["directory"])
    if os.environ.get("RANK", "0") == "0":
        sys.meta_path.insert(0, _Finder(_Recorder(settings)))


def _import_hidden_sitecustomize(directory: str) -> None:
    """Import the user's own ``sitecustomize``, if there is one: the file in `directory` hides it."""
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    this = sys.modules.pop("sitecustomize", None)
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    if this is not None:
        sys.modules.setdefault("sitecustomize", this)


class _Finder(importlib.abc.MetaPathFinder):
    """An import hook: lets other finders find the modules of loaders, and wraps the loaders after the import."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _LOADERS:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                self._wrap_after_import(spec.loader, _LOADERS[fullname])
                return spec
        return None

    def _wrap_after_import(self, loader: Any, name: str) -> None:
        execute: Callable[[ModuleType], None] = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            kind = getattr(module, name)
            begin = kind.__iter__
            kind.__iter__ = lambda this: self._recorder.measured(this, begin)

        loader.exec_module = exec_module


class _Recorder:
    """Records the passes of this process, and reports on the loader that took the most time."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._process = os.getpid()
        self._begun: float | None = None
        self._steps = 0
        self._shown = 0.0  # the time at which the state was last written
        self._spent: dict[int, float] = {}  # seconds of each loader's passes
        self._longest: dict[int, tuple[Any, Any]] = {}  # each loader, and the timings of its longest pass
        self._reports: dict[int, dict[str, Any]] = {}  # as JSON, by loader
        self._is_diagnosing = False
        atexit.register(self._at_exit)

    def measured(self, loader: Any, begin: Callable[[Any], Iterator[Any]]) -> Iterator[Any]:
        """Begin a pass over a loader; measure the pass unless it belongs to the diagnosis or to a fork."""
        if self._is_diagnosing or os.getpid() != self._process:
            return begin(loader)
        from packer._measuring.timing import Timings

        timings = Timings()
        timings.begin()
        batches = begin(loader)
        self._longest.setdefault(id(loader), (loader, timings))
        return _Pass(self, loader, batches, timings)

    def noted(self, loader: Any, timings: Any) -> bool:
        """Record a step; tell whether the limit of steps or of seconds is reached."""
        now = time.perf_counter()
        self._begun = self._begun or now
        self._steps += 1
        if now - self._shown >= _SECONDS_BETWEEN_STATES:
            self._shown = now
            self._write_state(f"step {self._steps:,} of {self._settings['steps']:,}")
        known = self._longest.get(id(loader))
        if known is None or timings.steps >= known[1].steps:
            self._longest[id(loader)] = loader, timings
        return bool(self._steps >= self._settings["steps"] or now - self._begun >= self._settings["seconds"])

    def ended(self, loader: Any, timings: Any) -> None:
        """Record the end of a pass, and write the report on its loader if no other loader took more time so far."""
        timings.complete = True
        self._spend(loader, timings)
        if timings.steps >= _FEWEST_STEPS and self._slowest == id(loader):
            self._report(loader, timings)

    def stop(self, loader: Any, timings: Any) -> None:
        """End the program with the report on the loader that took the most time."""
        self._spend(loader, timings)
        self._report(*self._longest[self._slowest])
        atexit.unregister(self._at_exit)
        with open(self._settings["ended"], "wb"):
            pass
        raise SystemExit(0)

    def _spend(self, loader: Any, timings: Any) -> None:
        """Add the time of a finished pass to the time of its loader."""
        timings.end()
        self._spent[id(loader)] = self._spent.get(id(loader), 0.0) + timings.seconds

    @property
    def _slowest(self) -> int:
        """The id of the loader whose passes took the most time."""
        return max(self._spent, key=self._spent.__getitem__)

    def _report(self, loader: Any, timings: Any, *, seconds: float | None = None) -> None:
        """Write the report on a loader, which replaces an earlier report; each loader is diagnosed only once."""
        if id(loader) not in self._reports:
            seconds = self._settings["finding"] if seconds is None else seconds
            self._reports[id(loader)] = self._diagnose(loader, timings, seconds)
        path = self._settings["report"]
        new = f"{path}.{self._process}"  # several processes may write reports: spawned ranks have no RANK
        with open(new, "w", encoding="utf-8") as file:
            json.dump(self._reports[id(loader)], file)
        os.replace(new, path)

    def _write_state(self, state: str) -> None:
        """Write the state of the measurement for the process that shows it."""
        with contextlib.suppress(OSError), open(self._settings["state"], "w", encoding="utf-8") as file:
            file.write(state)

    def _diagnose(self, loader: Any, timings: Any, seconds: float) -> dict[str, Any]:
        from packer._measuring.diagnosis import diagnose

        self._is_diagnosing = True
        self._write_state("finding out why steps wait")
        try:
            return diagnose(loader, timings, seconds).to_json()
        finally:
            self._is_diagnosing = False

    def _at_exit(self) -> None:
        """Report at least the waiting times if the program ends within its first pass."""
        if os.getpid() != self._process or self._reports:
            return
        measured = [entry for entry in self._longest.values() if entry[1].steps]
        if measured:
            with contextlib.suppress(Exception):  # an error at the end of the program could not be handled
                loader, timings = max(measured, key=lambda entry: entry[1].seconds)
                timings.end()
                self._report(loader, timings, seconds=0.0)


class _Pass:
    """A proxy of a loader's iterator that measures the pass."""

    def __init__(self, recorder: _Recorder, loader: Any, batches: Iterator[Any], timings: Any) -> None:
        self._recorder, self._loader, self._batches, self._timings = recorder, loader, batches, timings

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        timings = self._timings
        if timings.is_working:
            timings.finish()
            if self._recorder.noted(self._loader, timings):
                self._batches = iter(())  # the workers end, and leave the processors to the diagnosis
                self._recorder.stop(self._loader, timings)
            timings.gpu.requested()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._recorder.ended(self._loader, timings)
            raise
        timings.receive()
        return batch

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


_SITECUSTOMIZE = """\
import sys
if {root!r} not in sys.path:
    sys.path.append({root!r})
from packer._measuring.train_hook import install
install()
"""

_QUOTED = re.compile(r"\\.|'[^']*'|" r'"(?:\\.|[^"\\])*"', re.DOTALL)
"""A quoted part of a command."""

_PATIENCE = 30.0  # seconds to wait for the end of a command after its report was written, and again after SIGTERM
_POLLING = 0.1  # seconds


@dataclass(frozen=True)
class TrainingProfile:
    """The result of a training command.

    Attributes
    ----------
    report : ProfileReport, optional
        The report on the loader that took the most time; None if no loader returned a batch.
    status : int, optional
        The exit status if the command ended by itself; None if packer ended it after enough steps.
    interrupted : bool
        Whether Ctrl-C ended the command.
    """

    report: ProfileReport | None
    status: int | None
    interrupted: bool = False


def profile_training(
    command: str,
    *,
    steps: int = 200,
    seconds: float = 60.0,
    finding: float = 10.0,
    to_stderr: bool = False,
    progress: ShowSeconds | None = None,
) -> TrainingProfile:
    """Run a training command until its loaders have returned enough batches, and return the report.

    Parameters
    ----------
    command : str
        The command as in a shell, optionally after variables such as ``CUDA_VISIBLE_DEVICES=0``, but without pipes or
        redirections.
    steps : int
        End the command after this number of steps, counted over all of its loaders.
    seconds : float
        End the command earlier if it has run for this number of seconds after its first batch.
    finding : float
        Time limit, in seconds, for the diagnosis inside the command's process.
    to_stderr : bool
        Whether the output of the command goes to stderr.
    progress : ShowSeconds, optional
        Called from the first batch on.

    Raises
    ------
    OptionError
        If the command is empty, consists of several commands, or redirects its output.
    PackerError
        If the command cannot be started.
    """
    words, variables = _words(command)
    with tempfile.TemporaryDirectory(prefix="packer-train-") as name:
        directory = Path(name)
        found, ended, state = (directory / file for file in ("report.json", "ended", "state"))
        root = str(Path(packer.__file__).parents[1])
        (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(root=root), "utf-8")
        settings = {
            "report": str(found),
            "ended": str(ended),
            "state": str(state),
            "steps": steps,
            "seconds": seconds,
            "finding": finding,
            "directory": str(directory),
        }
        path = os.pathsep.join(filter(None, [str(directory), {**os.environ, **variables}.get("PYTHONPATH", "")]))
        try:
            process = subprocess.Popen(
                words,
                env={**os.environ, **variables, SETTINGS: json.dumps(settings), "PYTHONPATH": path},
                stdout=sys.stderr.fileno() if to_stderr else None,
            )
        except OSError as error:
            hint = f". Pass --train 'python {printable(command.strip())}'" if words[0].endswith(".py") else ""
            raise PackerError(f"--train: {printable(words[0])} cannot be started: {error.strerror}{hint}") from error
        watched = _State(state, seconds + finding, progress)
        status, interrupted = _awaited(process, ended, watched.show)
        report = _read(found)
        stopped = os.path.exists(ended)
    return TrainingProfile(report, None if stopped else status, interrupted)


def _words(command: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a command, and the environment variables that it sets."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise OptionError(f"--train {printable(command)}: {error}") from error
    variables = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if not words or not words[0]:
        raise OptionError("--train takes a command, such as 'python train.py'")
    shell = re.search(r"[;<>|&]+", _QUOTED.sub("", command))
    if shell is not None:
        raise OptionError(
            f"--train runs one command without a shell, but it contains {shell[0]}: quote it if it is part of an "
            "argument, or call a shell, as in --train \"sh -c 'cd project && python train.py'\""
        )
    return words, variables


class _State:
    """Shows the state that the command has written to a file, from the first batch on.

    Parameters
    ----------
    file : Path
    seconds : float
        The time limit of the measurement, counted from the first batch.
    show : callable, optional
    """

    def __init__(self, file: Path, seconds: float, show: ShowSeconds | None) -> None:
        self._file, self._seconds, self._show = file, seconds, show
        self._began = time.monotonic()
        self._most: float | None = None

    def show(self) -> None:
        if self._show is None:
            return
        try:
            state = self._file.read_text("utf-8")
        except OSError:  # the file does not exist before the first batch
            return
        passed = time.monotonic() - self._began
        self._most = self._most or passed + self._seconds
        if state:  # empty while the command writes it
            self._show(passed, self._most, state)


def _awaited(process: subprocess.Popen[bytes], ended: Path, show: Callable[[], None]) -> tuple[int, bool]:
    """Wait for the end of a command; return its status, and whether Ctrl-C was pressed."""
    interrupted, since, signals = False, None, [process.kill, process.terminate]
    while True:
        try:
            while process.poll() is None:
                time.sleep(_POLLING)
                show()
                if since is None and (interrupted or os.path.exists(ended)):
                    since = time.monotonic()
                if signals and since is not None and time.monotonic() - since > _PATIENCE:
                    signals.pop()()  # the command has caught SystemExit or Ctrl-C
                    since = time.monotonic()
            return process.returncode, interrupted
        except KeyboardInterrupt:
            if interrupted:
                process.kill()
            interrupted = True
        except BaseException:  # this process ends, and the command must not outlive it
            process.terminate()
            raise


def _read(found: Path) -> ProfileReport | None:
    from packer._measuring.diagnosis import ProfileReport

    try:
        members = json.loads(found.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return ProfileReport(**{**members, "sentences": tuple(members["sentences"])})
