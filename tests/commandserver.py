"""Runs commands in children of one process that has imported packer: starting Python takes longer than most commands.

A child runs like a command: `packer/__main__.py` is its main module, its streams are files or pipes, and an uncaught
exception ends it with a traceback. Only the imports are done already.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn


class CommandServer:
    """Runs commands, one after the other, and programs, at the same time.

    Parameters
    ----------
    python : sequence of str
        The command line that starts Python.
    torch : bool
        Whether torch is imported too. Each child of a process that has it takes 20 ms more.
    """

    def __init__(self, python: Sequence[str], torch: bool) -> None:
        self._process = subprocess.Popen(
            [*python, "-c", f"from tests.commandserver import serve; serve({torch})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
            start_new_session=True,
        )
        self._directory = tempfile.TemporaryDirectory()
        self._started = 0
        self.alive = True

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run `packer` with these arguments, in the directory and with the environment of the caller."""
        return self._run(arguments=arguments)

    def run_many(self, lines: Sequence[Sequence[str]]) -> subprocess.CompletedProcess[str]:
        """Run several commands in one child, by the function `run_many`."""
        return self._run(lines=lines)

    def run_code(
        self, code: str | Path, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run Python code as ``python -c CODE ARGUMENTS`` runs it, in the directory of the caller; or a script."""
        return self._run(**_program(code, arguments, environment))

    def start_code(self, code: str | Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Program:
        """Start Python code, or a script, without waiting for its end."""
        self._started += 1
        streams = [Path(self._directory.name) / f"{name}{self._started}" for name in ("input", "output", "errors")]
        for pipe in streams[:2]:
            os.mkfifo(pipe)
        streams[2].write_bytes(b"")
        names = dict(zip(("input", "output", "errors"), map(str, streams), strict=True))
        return Program(self, self._ask(cwd=os.getcwd(), **names, **_program(code, arguments, environment)), streams)

    def status(self, pid: int) -> int | None:
        """Return the exit status of a program; None while it runs."""
        status: int | None = self._ask(status=pid)
        return status

    def _run(self, **asked: Any) -> subprocess.CompletedProcess[str]:
        output, errors = (Path(self._directory.name) / name for name in ("output", "errors"))
        output.write_bytes(b"")
        errors.write_bytes(b"")
        files = {"output": str(output), "errors": str(errors)}
        status = self._ask(**{"environment": dict(os.environ), "cwd": os.getcwd(), **files, **asked})
        return subprocess.CompletedProcess(asked.get("arguments", ()), status, _text(output), _text(errors))

    def _ask(self, **asked: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except BaseException:  # such as the end of a test's time; the next test would get this answer
            os.killpg(self._process.pid, signal.SIGKILL)  # with the command that does not end
            self.alive = False
            raise

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._directory.cleanup()


class Program:
    """A process that runs: what tests use of `subprocess.Popen`. It leads a session of its own.

    Attributes
    ----------
    pid : int
    stdin, stdout : text streams
        Pipes to and from the process. What it writes to `stderr` goes to a file, so no one has to read it.
    returncode : int or None
        The exit status, if `poll` or `wait` found that the process has ended.
    """

    def __init__(self, server: CommandServer, pid: int, streams: Sequence[Path]) -> None:
        self._server, self.pid, self._streams = server, pid, streams
        self.returncode: int | None = None
        self.stdin: IO[str] = streams[0].open("w", encoding="utf-8")
        self.stdout: IO[str] = streams[1].open(encoding="utf-8")
        for pipe in streams[:2]:  # both ends are open
            pipe.unlink()

    @property
    def stderr(self) -> IO[str]:
        """What the process has written to stderr."""
        return io.StringIO(_text(self._streams[2]))

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.status(self.pid)
        return self.returncode

    def wait(self, timeout: float = 120) -> int:
        deadline = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.01)
        return status

    def communicate(self, input: str = "", timeout: float = 120) -> tuple[str, str]:
        """Write to the process, wait for its end, close the pipes, and return all that it wrote."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.write(input)
        self._close(self.stdin)
        killer = threading.Timer(timeout, self.kill)  # ends the reading below
        killer.start()
        output = self.stdout.read()
        self.stdout.close()
        killer.cancel()
        self.wait(timeout)
        return output, self.stderr.read()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        """Kill the process, if it still runs."""
        if self.poll() is None:
            self.kill()
            self.wait()
        self._close(self.stdin)
        self._close(self.stdout)

    @staticmethod
    def _close(stream: IO[str]) -> None:
        with contextlib.suppress(BrokenPipeError):
            stream.close()


def _program(code: str | Path, arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    main = {"script": str(code)} if isinstance(code, Path) else {"code": code}
    return {**main, "arguments": arguments, "environment": dict(environment)}


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def run_many(lines: Sequence[Sequence[str]]) -> None:
    """Run several commands in this process; print a line of JSON for each: its status, its output and its errors."""
    from packer._cli import main

    for arguments in lines:
        sys.argv = ["packer", *arguments]
        status: Any = 0
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                main()
            except SystemExit as exit:
                status = exit.code
            except BaseException:
                status = 1
                traceback.print_exc()
        print(json.dumps([status, output.getvalue(), errors.getvalue()]))  # noqa: T201


def serve(torch: bool) -> None:
    """Fork a child for each line of the standard input; answer with its exit status, or with the pid of a program."""
    gc.disable()  # nothing that is imported is garbage
    _import_what_commands_import()
    if torch:
        _import_what_reads_images()
    gc.enable()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False  # torch's finalizers would take each child longer than its fork, and copy 30 MB
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in requests:
        job = json.loads(line)
        if "status" in job:
            answer = _ended(job["status"], os.WNOHANG)  # of a program, which runs at the same time as others
        else:
            gc.freeze()  # so that a child's collections do not touch, and so copy, older objects
            answer = child = os.fork()
            if child == 0:
                for stream in (requests, answers):  # they end with the server
                    os.close(stream.fileno())
                _end_with(_status(job))
            if "input" not in job:
                answer = _ended(child)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _ended(child: int, options: int = 0) -> int | None:
    """Return the exit status of a child; None while it runs."""
    ended, status = os.waitpid(child, options)
    return os.waitstatus_to_exitcode(status) if ended else None


def _status(job: dict[str, Any]) -> int:
    """Run the commands of a job in this process; return the exit status."""
    try:
        if "input" in job:
            os.setsid()
            os.dup2(os.open(job["input"], os.O_RDONLY), 0)
        os.dup2(os.open(job["output"], os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(os.open(job["errors"], os.O_WRONLY | os.O_APPEND), 2)
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["cwd"])
        if "lines" in job:
            run_many(job["lines"])
        elif "code" in job or "script" in job:
            _run_as_main(job.get("code"), job.get("script"), job["arguments"])
        else:
            sys.argv = ["packer", *job["arguments"]]
            runpy.run_module("packer", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        if isinstance(exit.code, int) or exit.code is None:
            return exit.code or 0
        print(exit.code, file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return -signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _run_as_main(code: str | None, script: str | None, arguments: Sequence[str]) -> None:
    """Run code, or the file of a script, as the main module."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"], sys.argv, sys.path[0] = main, ["-c", *arguments], ""
    if script is not None:
        code, main.__file__ = Path(script).read_text(encoding="utf-8"), script
        sys.argv[0], sys.path[0] = script, str(Path(script).parent)
    assert code is not None
    exec(compile(code, script or "<string>", "exec"), vars(main))


def _end_with(status: int) -> NoReturn:
    """End this process as Python does, but without destroying every object, which would copy all of the memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:  # as Python ends after an interrupt
        os.kill(os.getpid(), -status)
    os._exit(status)


def _import_what_commands_import() -> None:
    """Import what most commands import late; not pyarrow, which starts threads."""
    import packer._cli
    import packer._conversion.api
    import packer._conversion.append
    import packer._conversion.index
    import packer._conversion.merge
    import packer._conversion.partition
    import packer._conversion.upload
    import packer._packs.export
    import packer._packs.info
    import packer._packs.repair
    import packer._packs.verify  # noqa: F401
    from packer._conversion.recipe import Recipe
    from packer._formats import FORMATS

    for row in FORMATS.values():
        row.open_writer(), row.open_reader()
    Recipe("jpeg").load()


def _import_what_reads_images() -> None:
    for module in (
        "multiprocessing.pool",
        "packer._loader.loader",
        "packer.augment",
        "packer.crops",
        "torch.utils.data",
    ):
        importlib.import_module(module)
