"""A user or the system stops a command: the exit status tells which signal, and the work so far is kept."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from packer._storage.files import disk_size
from tests.command import command, packer
from tests.samples import SUFFIXES, content

Uninterrupted = Callable[[str], dict[str, bytes | None]]

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")


def words(many: Path, path: Path) -> list[object]:
    return ["convert", many, path, "--codec", "png", *(["--shard-size", "3MB"] if path.suffix == ".pth" else [])]


def begin(many: Path, path: Path, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell's background jobs ignore SIGINT; if the tests run in one, the command would inherit that.
    return subprocess.Popen(command(*words(many, path)), preexec_fn=listen, **{**pipes, **options})  # noqa: PLW1509


def listen() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_samples(process: subprocess.Popen[str], path: Path) -> None:
    """Return when the conversion has written some samples, or ended."""
    partial = path.with_name(f"{path.name}.partial") / "pack"
    while process.poll() is None and not (partial.exists() and disk_size(partial) > 1 << 20):
        time.sleep(0.002)


@pytest.fixture(scope="module")
def uninterrupted(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """Return a function that returns the content of a pack of a format that was made without an interruption."""

    @functools.cache
    def made(format: str) -> dict[str, bytes | None]:
        path = tmp_path_factory.mktemp("uninterrupted") / f"pack{SUFFIXES[format]}"
        assert packer(*words(many, path)).returncode == 0
        return content(path)

    return made


@pytest.mark.parametrize("format", SUFFIXES)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_stopped_by_a_signal(  # noqa: PLR0917
    many: Path, tmp_path: Path, format: str, name: str, uninterrupted: Uninterrupted, sweep: int
) -> None:
    if sweep == 1 and (format, name) not in [("lmdb", "SIGINT"), ("hdf5", "SIGTERM"), ("pth", "SIGHUP")]:
        pytest.skip("needs --faults")
    path = tmp_path / f"pack{SUFFIXES[format]}"
    with begin(many, path) as process:
        wait_for_samples(process, path)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(getattr(signal, name))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 143}[name]
    assert "the same command continues" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert not any(child.is_running() for child in children)
    assert not path.exists()
    result = packer(*words(many, path))
    assert result.returncode == 0
    assert "continued after" in result.stdout
    assert content(path) == uninterrupted(format)


def test_an_export_that_is_stopped_is_continued(many: Path, tmp_path: Path) -> None:
    pack, out = tmp_path / "pack.lmdb", tmp_path / "out"
    assert packer("convert", many, pack).returncode == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command("export", pack, out), preexec_fn=listen, **pipes) as process:  # noqa: PLW1509
        while process.poll() is None and not (out.exists() and any(out.rglob("*.jpg"))):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "packer: interrupted; the same command continues where this one stopped"
    assert packer("export", pack, out).returncode == 0
    assert content(out) == content(many)


def test_a_terminal_that_is_closed(many: Path, tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    """The conversion stops; one that ignores SIGHUP goes on, although its output can no longer be written."""
    path = tmp_path / "pack.lmdb"
    for ignored in (False, True):
        terminal, side = os.openpty()

        def take(side: int = side, ignored: bool = ignored) -> None:
            os.setsid()
            import fcntl
            import termios

            fcntl.ioctl(side, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)

        files = dict.fromkeys(("stdin", "stdout", "stderr"), side)
        process = subprocess.Popen(command(*words(many, path)), preexec_fn=take, **files, text=True)  # noqa: PLW1509
        os.close(side)
        wait_for_samples(process, path)
        os.close(terminal)
        status = process.wait(timeout=60)
        assert path.exists() == ignored
        assert status == (143 if not ignored else 1)  # the pack is complete, but its summary was lost
    assert content(path) == uninterrupted("lmdb")
