"""A training command, run as it is for a while, and what its loaders wait for."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import packer
from packer._measuring.profiling.hook import SETTINGS
from packer._measuring.profiling.report import ProfileReport
from packer.errors import OptionError, PackerError, printable

__all__ = ["TrainingProfile", "profile_training"]

_SITECUSTOMIZE = """\
import sys
if {root!r} not in sys.path:
    sys.path.append({root!r})
from packer._measuring.profiling.hook import install
install()
"""

_QUOTED = re.compile(r"\\.|'[^']*'|" r'"(?:\\.|[^"\\])*"', re.DOTALL)
"""What a shell takes as it is."""

_PATIENCE = 30.0
"""Seconds that a command gets to end after its report was written, and then again after SIGTERM."""

_LOOKS = 0.1
"""Seconds between two looks whether the command has ended."""


@dataclass(frozen=True)
class TrainingProfile:
    """What a training command showed.

    Attributes
    ----------
    report : ProfileReport, optional
        On the loader that took most of the time; None where none gave a batch.
    status : int, optional
        With which status the command ended by itself; None where it was ended after enough steps.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    report: ProfileReport | None
    status: int | None
    interrupted: bool = False


def profile_training(
    command: str, *, steps: int = 200, seconds: float = 60.0, finding: float = 10.0, to_stderr: bool = False
) -> TrainingProfile:
    """Run a training command until one of its loaders gave enough batches, and return what they waited for.

    Parameters
    ----------
    command : str
        As in a shell, with variables such as ``CUDA_VISIBLE_DEVICES=0`` before it, without pipes and the like.
    steps : int
        The command is ended after so many steps, of all its loaders.
    seconds : float
        And so many seconds after its first batch.
    finding : float
        How long finding out what is slow may take, within the command.
    to_stderr : bool
        Whether what the command prints goes to stderr.

    Raises
    ------
    OptionError
        If the command has no words, or is several commands, or leads its output elsewhere.
    PackerError
        If it cannot be started.
    """
    words, variables = _words(command)
    with tempfile.TemporaryDirectory(prefix="packer-train-") as name:
        directory, found, ended = Path(name), Path(name) / "report.json", Path(name) / "ended"
        root = str(Path(packer.__file__).parents[1])
        (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(root=root), "utf-8")
        settings = {
            "report": str(found),
            "ended": str(ended),
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
            hint = f". Say --train 'python {printable(command.strip())}'" if words[0].endswith(".py") else ""
            raise PackerError(f"--train: {printable(words[0])} cannot be started: {error.strerror}{hint}") from error
        status, interrupted = _awaited(process, ended)
        report = _read(found)
        stopped = os.path.exists(ended)
    return TrainingProfile(report, None if stopped else status, interrupted)


def _words(command: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a command, and the variables that it sets for itself."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise OptionError(f"--train {printable(command)}: {error}") from error
    variables = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    if not words or not words[0]:
        raise OptionError("--train is a command, such as 'python train.py'")
    shell = re.search(r"[;<>|&]+", _QUOTED.sub("", command))
    if shell is not None:
        raise OptionError(
            f"--train is one command, and {shell[0]} is a shell's: quote it where it belongs to a word, or give the "
            "line to a shell, as in --train \"sh -c 'cd project && python train.py'\""
        )
    return words, variables


def _awaited(process: subprocess.Popen[bytes], ended: Path) -> tuple[int, bool]:
    """Wait for the end of a command, which Ctrl-C reaches too; return its status, and whether Ctrl-C was pressed."""
    interrupted, since, ends = False, None, [process.kill, process.terminate]
    while True:
        try:
            while process.poll() is None:
                time.sleep(_LOOKS)
                if since is None and (interrupted or os.path.exists(ended)):
                    since = time.monotonic()
                if ends and since is not None and time.monotonic() - since > _PATIENCE:
                    ends.pop()()  # it goes on after SystemExit, or after Ctrl-C
                    since = time.monotonic()
            return process.returncode, interrupted
        except KeyboardInterrupt:
            if interrupted:
                process.kill()
            interrupted = True
        except BaseException:  # this process is to end, and the training with it
            process.terminate()
            raise


def _read(found: Path) -> ProfileReport | None:
    try:
        said = json.loads(found.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return ProfileReport(**{**said, "sentences": tuple(said["sentences"])})
