"""Commands in children of one process that has packer imported: starting Python takes longer than most commands do.

What a child sees is what a command sees: `packer/__main__.py` runs in it as the main module, its streams are files, and
an exception that nobody caught ends it with a traceback. Only the imports are there already.
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
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn


class CommandServer:
    """Runs commands one after the other.

    Parameters
    ----------
    python : sequence of str
        The command line that starts Python.
    torch : bool
        Whether torch is imported too, which some commands need. Each child of a process that has it takes 40 ms more.
    """

    def __init__(self, python: Sequence[str], torch: bool) -> None:
        self._process = subprocess.Popen(
            [*python, "-c", f"from tests.commandserver import serve; serve({torch})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )
        self._directory = tempfile.TemporaryDirectory()

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run `packer` with these arguments, in the directory and with the environment of the caller."""
        return self._run(arguments=arguments)

    def run_many(self, lines: Sequence[Sequence[str]]) -> subprocess.CompletedProcess[str]:
        """Do in a child what `run_many` says."""
        return self._run(lines=lines)

    def run_code(
        self, code: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run Python code as ``python -c CODE ARGUMENTS`` runs it, in the directory of the caller."""
        return self._run(code=code, arguments=arguments, environment=dict(environment))

    def _run(self, **asked: Any) -> subprocess.CompletedProcess[str]:
        output, errors = (Path(self._directory.name) / name for name in ("output", "errors"))
        output.write_bytes(b"")
        errors.write_bytes(b"")
        job = {
            "environment": dict(os.environ),
            "cwd": os.getcwd(),
            "output": str(output),
            "errors": str(errors),
            **asked,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(asked.get("arguments", ()), status, _text(output), _text(errors))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._directory.cleanup()


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
    """Fork a child for each line of the standard input; answer with the child's exit status."""
    _import_what_commands_import()
    if torch:
        importlib.import_module("torch")
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for line in requests:
        job = json.loads(line)
        gc.freeze()  # so that a child's collections leave alone, and with it uncopied, what was there before
        child = os.fork()
        if child == 0:
            _end_with(_status(job))
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def _status(job: dict[str, Any]) -> int:
    """Run the commands of a job in this process; return the exit status."""
    try:
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["cwd"])
        os.dup2(os.open(job["output"], os.O_WRONLY | os.O_APPEND), 1)
        os.dup2(os.open(job["errors"], os.O_WRONLY | os.O_APPEND), 2)
        if "lines" in job:
            run_many(job["lines"])
        elif "code" in job:
            main = types.ModuleType("__main__")
            sys.modules["__main__"], sys.argv, sys.path[0] = main, ["-c", *job["arguments"]], ""
            exec(compile(job["code"], "<string>", "exec"), vars(main))
        else:
            sys.argv = ["packer", *job["arguments"]]
            runpy.run_module("packer", run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        if isinstance(exit.code, int) or exit.code is None:
            return exit.code or 0
        print(exit.code, file=sys.stderr)  # noqa: T201
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end_with(status: int) -> NoReturn:
    """End this process as Python ends, but for the destruction of every object, which copies all of the memory."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
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
