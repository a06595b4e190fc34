"""Conversions and exports that die at a chosen moment. A process imports everything, and forks a child for each.

The child kills itself, with SIGKILL, right before its n-th call that changes the disk, or in the middle of a write.
Starting Python for each would take a hundred times as long. What is not to be killed runs in the process itself.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from packer._sources.base import Source

_CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}  # audit events


class Ended(NamedTuple):
    """How many images earlier runs had done, and how often this run changed the disk.

    `joining` counts the changes after the new part of a pack with parts was converted.
    """

    continued: int
    changes: int
    joining: int = 0


class CrashServer:
    """Runs conversions in children of one process.

    Parameters
    ----------
    checkpoint_samples : int
        The number of images between two checkpoints of a conversion.
    """

    def __init__(self, checkpoint_samples: int) -> None:
        self._command = [sys.executable, "-m", "tests.faults.crashes", str(checkpoint_samples)]
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(
        self,
        source: Path,
        path: Path,
        *,
        format: str,
        options: Mapping[str, Any] | None = None,
        codec: str = "keep",
        overwrite: bool = False,
        fields: bool = False,
        large: bool = False,
        at: int = 0,
        seconds: float | None = None,
    ) -> Ended | None:
        """Convert, and return how that ended; None if the conversion was killed.

        With `fields`, the images have fields, see `with_fields`. A `large` pack is written past the cache.

        The conversion is killed before its `at`-th change of the disk, or from outside after `seconds`.
        """
        job = {
            "source": str(source),
            "path": str(path),
            "format": format,
            "options": dict(options or {}),
            "codec": codec,
            "overwrite": overwrite,
            "fields": fields,
            "large": large,
            "at": at,
            "seconds": seconds,
        }
        return self._ended(job)

    def append(
        self,
        source: Path,
        pack: Path,
        *,
        at: int = 0,
        joining: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> Ended | None:
        """Append to a pack with parts; return how that ended. `at` is as in `run`, `options` as in `packer.append`.

        `joining` is like `at`, but counts only changes after the part was converted.
        """
        job = {"source": str(source), "appended": str(pack), "format": "", "options": dict(options or {})}
        return self._ended({**job, "at": at, "joining": joining, "seconds": None})

    def export(self, pack: Path, directory: Path, *, at: int = 0) -> Ended | None:
        """Export a pack, and return how that ended; `at` is as in `run`."""
        return self._ended({"pack": str(pack), "path": str(directory), "format": "", "at": at, "seconds": None})

    def _ended(self, job: Mapping[str, Any]) -> Ended | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        try:
            answer = json.loads(self._process.stdout.readline())
        except BaseException:  # the test timed out; the next test must not get this answer
            self._process.kill()
            self.close()
            self._start()
            raise
        if isinstance(answer, str):
            raise AssertionError(f"the work failed: {answer}")
        return None if answer is None else Ended(*answer)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class _Countdown:
    """Counts the changes of the disk, and kills this process before the n-th of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def step(self) -> bool:
        """Count a change; tell whether it is the n-th."""
        self.count += 1
        return self.count == self.at

    current: _Countdown | None = None
    """The one that counts now."""

    @classmethod
    def audit(cls, event: str, arguments: tuple[Any, ...]) -> None:
        creates = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if (creates or event in _CHANGING) and cls.current is not None and cls.current.step():
            _die()

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            if self.step():
                _die()
            return call(*arguments)

        return counted

    def torn(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Count a write twice: a kill at the first count prevents it, at the second only half of it is written."""

        def counted(target: Any, data: Any, *more: Any) -> Any:
            if self.step():
                _die()
            if self.step():
                whole = b"".join(data) if isinstance(data, list) else bytes(data)
                half = whole[: len(whole) // 2]
                with contextlib.suppress(OSError):  # some file systems refuse to write past their cache
                    call(target, [half] if isinstance(data, list) else half, *more)
                _die()
            return call(target, data, *more)

        return counted


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # another thread may run on for a moment


def with_fields(source: Source) -> Source:
    """Return the source with values of fields of several kinds, some large, some missing."""
    from packer._fields import Field
    from packer._sources.base import BlobColumn, NumberColumn

    count = range(len(source))
    return source.having(
        NumberColumn(
            Field("age", "scalar", "float32"), np.arange(len(count), dtype="<f4") / 3, np.arange(len(count)) % 4 == 1
        ),
        BlobColumn.of(Field("raw", "bytes"), (None if i % 5 == 0 else bytes([i]) * (700 * (i % 30)) for i in count)),
        NumberColumn(
            Field("kind", "class", classes=("a", "b")), np.arange(len(count)) % 2, np.arange(len(count)) % 3 == 0
        ),
        BlobColumn.of(Field("caption", "text"), (b"ab" * (i % 3) for i in count)),
    )


def _counting(at: int, patch: pytest.MonkeyPatch, *writes: tuple[Any, str]) -> _Countdown:
    """Count changes of the disk, by these functions too, from now on until the patch is undone."""
    countdown = _Countdown(at)
    for owner, name in writes:
        patch.setattr(owner, name, countdown.torn(getattr(owner, name)))
    patch.setattr(os, "fsync", countdown.wrapped(os.fsync))
    patch.setattr(_Countdown, "current", countdown)
    return countdown


def _writes_of_conversions() -> list[tuple[Any, str]]:
    from packer._formats import hdf5

    return [(os, "write"), (os, "writev"), (os, "pwritev"), (hdf5._Frame, "write")]


def _append(job: dict[str, Any], patch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    from packer import append
    from packer._conversion import append as appending

    countdown = _counting(job["at"], patch, *_writes_of_conversions())
    before = []
    join = appending.append_part

    def joining(*arguments: Any) -> Any:
        before.append(countdown.count)
        if job["joining"]:
            countdown.at = countdown.count + job["joining"]
        return join(*arguments)

    patch.setattr(appending, "append_part", joining)
    summary = append(Path(job["appended"]), Path(job["source"]), workers=2, on_error="skip", **job["options"])
    return summary.continued, countdown.count, countdown.count - before[0] if before else 0


def _source_at(path: Path) -> Source:
    """Open an index, a container or a directory of images."""
    from packer._containers import open_container
    from packer._sources.container import container_source
    from packer._sources.imagefolder import imagefolder_source
    from packer._sources.pack import pack_source

    if path.suffix == ".index":
        return pack_source(path)
    container = open_container([path])
    return imagefolder_source(path) if container is None else container_source(container)


def _convert(job: dict[str, Any], patch: pytest.MonkeyPatch) -> tuple[int, int]:
    from packer._conversion import convert as room
    from packer._conversion.convert import convert
    from packer._conversion.recipe import Recipe

    if job["large"]:
        patch.setattr(room, "available_memory", lambda: 8)
    source = _source_at(Path(job["source"]))
    source = with_fields(source) if job["fields"] else source
    countdown = _counting(job["at"], patch, *_writes_of_conversions())
    summary = convert(
        source,
        job["path"],
        recipe=Recipe(job["codec"]),
        format=job["format"],
        options=job["options"],
        on_error="skip",
        workers=2,
        overwrite=job["overwrite"],
    )
    return summary.continued, countdown.count


def _export(job: dict[str, Any], patch: pytest.MonkeyPatch) -> tuple[int, int]:
    from packer._packs import safe_tree
    from packer._packs.export import export

    countdown = _counting(job["at"], patch)

    class Torn(io.FileIO):
        def writelines(self, blocks: Any) -> None:
            for block in blocks:
                countdown.torn(io.FileIO.write)(self, block)

    def opened(fd: int, mode: str) -> io.FileIO:
        return Torn(fd, mode)

    patch.setattr(safe_tree, "open", opened, raising=False)
    export(job["pack"], job["path"], workers=1)
    return 0, countdown.count


def _work(job: dict[str, Any]) -> Any:
    work = _export if "pack" in job else _append if "appended" in job else _convert
    try:
        with pytest.MonkeyPatch.context() as patch:
            return work(job, patch)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _killed(job: dict[str, Any]) -> Any:
    """Do a job in a child; return None if it was killed before its end."""
    result, written = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(written, json.dumps(_work(job)).encode())
        finally:
            os._exit(0)
    os.close(written)
    if job["seconds"] is not None:
        time.sleep(job["seconds"])
        os.kill(child, signal.SIGKILL)
    with open(result, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


def _import_what_children_import() -> None:
    """Import late imports before anything is counted; they take longer than most conversions here."""
    import packer._conversion.api
    import packer._conversion.append
    import packer._conversion.convert
    import packer._conversion.index
    import packer._conversion.merge
    import packer._conversion.partition
    import packer._conversion.stream
    import packer._conversion.upload
    import packer._packs.export
    import packer._sources.container  # noqa: F401
    from packer._containers import find_container
    from packer._conversion.recipe import Recipe

    Recipe("png").load()
    Image.init()
    find_container([Path(__file__)])  # imports the readers of all containers, and finds none


def _checkpoint_after_every(samples: int) -> None:
    """Make conversions begin a checkpoint after every `samples` samples, however busy the machine is.

    By default a checkpoint is skipped while another one runs, so that their number depends on the disk's speed.
    """
    from packer._conversion import workspace

    add = workspace.Checkpoints.add

    def add_after_the_last(checkpoints: workspace.Checkpoints, entries: list[workspace.Entry]) -> None:
        if checkpoints._running is not None:
            checkpoints._running.result()
        add(checkpoints, entries)

    workspace.Checkpoints.add = add_after_the_last  # type: ignore[method-assign]
    workspace._CHECKPOINT_SAMPLES = samples
    workspace._CHECKPOINT_SECONDS = math.inf


def _serve(checkpoint_samples: int) -> None:
    import packer._conversion.pipeline
    from packer._formats import FORMATS

    _import_what_children_import()
    _checkpoint_after_every(checkpoint_samples)
    packer._conversion.pipeline._MAX_BATCH = checkpoint_samples
    for row in FORMATS.values():
        row.open_writer(), row.open_reader()
    sys.addaudithook(_Countdown.audit)
    for line in sys.stdin:
        job = json.loads(line)
        gc.collect()
        gc.freeze()  # so that collections in children do not touch, and so copy, this memory
        is_killed = job["at"] or job.get("joining") or job["seconds"] is not None
        sys.stdout.write(json.dumps(_killed(job) if is_killed else _work(job)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
