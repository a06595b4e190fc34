"""`progress` of every public function: True shows a bar, False and None show nothing, a callable is called."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.testing.reference import torchvision
from tests.command import python
from tests.sourcekinds import SOURCES

torchvision()

Call = Callable[[Path, Any], Any]


def _append(root: Path, progress: Any) -> Any:
    shutil.rmtree(root / "pack.pth", ignore_errors=True)
    packer.convert(root / "tree", root / "pack.pth", parts=1)
    more = root / "more" / "cat"
    more.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / "tree" / "cat" / "0.png", more / "new.png")
    return packer.append(root / "pack.pth", root / "more", progress=progress)


def _stage(root: Path, progress: Any) -> Any:
    shutil.rmtree(root / "staged", ignore_errors=True)
    (root / "staged").mkdir(mode=0o700)
    return packer.stage(root / "pack.lmdb", root / "staged", progress=progress)


def _samples(root: Path, progress: Any) -> Any:
    samples = [{"image": np.zeros((4, 4, 3), np.uint8)} for _ in range(4)]
    return packer.pack(samples, root / "out.lmdb", overwrite=True, progress=progress)


CALLS: dict[str, Call] = {
    "append": _append,
    "bench": lambda root, progress: packer.bench(
        root / "pack.lmdb", batch=2, images=4, seconds=0.1, threads=[1], progress=progress
    ),
    "convert": lambda root, progress: packer.convert(
        root / "tree", root / "out.lmdb", overwrite=True, progress=progress
    ),
    "digest": lambda root, progress: packer.digest(root / "pack.lmdb", progress=progress),
    "estimate": lambda root, progress: packer.estimate(root / "tree", root / "e.lmdb", seconds=0.1, progress=progress),
    "export": lambda root, progress: packer.export(root / "pack.lmdb", root / "exported", progress=progress),
    "index": lambda root, progress: packer.index(root / "tree", root / "x.index", overwrite=True, progress=progress),
    "merge": lambda root, progress: packer.merge(
        [root / "pack.lmdb"], root / "out.lmdb", overwrite=True, progress=progress
    ),
    "open_dataset": lambda root, progress: packer.open_dataset(root / "tree", progress=progress),
    "pack": _samples,
    "repair": lambda root, progress: packer.repair(root / "pack.lmdb", root / "tree", progress=progress),
    "stage": _stage,
    "tune": lambda root, progress: packer.tune(root / "pack.lmdb", 2, seconds=0.1, progress=progress),
    "verify": lambda root, progress: packer.verify(root / "pack.lmdb", progress=progress),
    "view": lambda root, progress: packer.view(root / "tree", browser=False, progress=progress).close(),
    "warm": lambda root, progress: packer.warm(root / "pack.lmdb", progress=progress),
}
SLOW = ("bench", "tune")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    source, _ = SOURCES["imagefolder"](tmp_path)
    packer.convert(source, tmp_path / "pack.lmdb")
    return tmp_path


def test_every_function_that_shows_progress_is_tried() -> None:
    functions = {name: getattr(packer, name) for name in packer.__all__}
    has = {
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and "progress" in inspect.signature(function).parameters
    }
    assert has == CALLS.keys()


@contextlib.contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Replace stderr by a terminal; yield a function that returns the text that was written to it."""
    pty = pytest.importorskip("pty", reason="needs terminals of POSIX")
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    reading, writing = pty.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    os.set_blocking(reading, False)

    def shown() -> str:
        read = bytearray()
        with contextlib.suppress(BlockingIOError):
            while part := os.read(reading, 1 << 16):
                read.extend(part)
        return read.decode()

    with os.fdopen(writing, "w") as stream, contextlib.redirect_stderr(stream):
        yield shown
    os.close(reading)


@pytest.mark.usefixtures("quick_spawn")
@pytest.mark.parametrize("name", CALLS)
def test_true_shows_a_bar_on_a_terminal(name: str, root: Path) -> None:
    with terminal() as written:
        CALLS[name](root, True)
        shown = written()
    assert "|" in shown or "it [" in shown or "img [" in shown, shown
    assert shown.endswith("\n")


@pytest.mark.parametrize("progress", [False, None, True])
@pytest.mark.parametrize("name", [name for name in CALLS if name not in SLOW])
def test_a_log_gets_no_bar_and_false_and_none_show_nothing(
    name: str, progress: bool | None, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CALLS[name](root, progress)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", CALLS)
def test_anything_else_is_named(name: str, root: Path) -> None:
    with pytest.raises(TypeError, match="progress must be True, False or a callable, not 'yes'"):
        CALLS[name](root, "yes")


@pytest.mark.parametrize("name", [name for name in CALLS if name not in SLOW])
def test_a_callable_is_called(name: str, root: Path) -> None:
    told: list[Any] = []
    CALLS[name](root, lambda *what: told.append(what))
    assert told


def test_an_error_ends_the_bar(root: Path) -> None:
    (root / "tree" / "dog" / "1.png").write_bytes(b"no image")
    with terminal() as written:
        with pytest.raises(packer.ImageError):
            packer.convert(root / "tree", root / "out.lmdb", progress=True)
        shown = written()
    assert "\x1b" not in shown
    assert re.search(r"out\.lmdb:.*\|.*\n$", shown), "the bar is the last line, and the line is ended"


def test_a_url_is_shown_without_its_secrets() -> None:
    from packer._storage.progress import shown_progress

    with terminal() as written:
        show = shown_progress(True, "https://host/train.lmdb?signature=SECRET")
        assert show is not None
        show(1, 2)  # type: ignore[operator]
        del show
        shown = written()
    assert "train.lmdb" in shown
    assert "SECRET" not in shown


@pytest.mark.skipif(sys.flags.optimize > 1, reason="has no docstrings")
def test_every_docstring_says_what_true_does() -> None:
    own, convert_s = "True shows a progress bar", re.compile(r"progress.*\n +The same as for `(packer\.)?convert`")
    for name in CALLS:
        text = getattr(packer, name).__doc__
        assert own in text or convert_s.search(text), name


KILLED_WITH_THE_LOCK = """
import os, signal
from tqdm import tqdm
from packer._storage.progress import bars_of_this_process

bars = bars_of_this_process(tqdm)
bars(total=1).close()
child = os.fork()
if child == 0:
    bars.get_lock().acquire()
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(child, 0)
bars(total=1).close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_child_keeps_no_bar_of_its_parent_from_being_drawn() -> None:
    python(KILLED_WITH_THE_LOCK)
