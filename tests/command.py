"""Run the command `packer`, or Python code of tests, in a child of a server or in a new process."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click
import pytest

from tests.commandserver import CommandServer, Program

without_root_powers = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("setpriv") is None,
    reason="permissions do not bind root; needs another user, or setpriv to give root's powers up",
)


def every_command(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group, and those of the groups in it, with their names."""
    for name, known in group.commands.items():
        if isinstance(known, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in every_command(known))
        else:
            yield name, known


def command(*arguments: object, powerless: bool = False) -> list[str]:
    """Return the command line of `packer`; `powerless` makes permissions bind root too."""
    return [
        *_line(powerless),
        "-m",
        "packer",
        *(os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments),
    ]


def _line(powerless: bool) -> list[str]:
    dropped = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    return [*(dropped if powerless and os.geteuid() == 0 else []), sys.executable]


def packer(*arguments: object, powerless: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `packer` to its end; its output is text. With `options` for `subprocess.run`, a new Python is started."""
    line = command(*arguments, powerless=powerless)
    if not options and (server := _command_server(powerless, torch=False)):
        return server.run(line[line.index("packer") + 1 :])
    settings = {"capture_output": True, "encoding": "utf-8", "errors": "surrogateescape", "timeout": 120, **options}
    return subprocess.run(line, check=False, **settings)


def python(
    code: str | Path, *arguments: object, environment: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run Python code in another process; if the system can fork, packer and torch are already imported there.

    The code runs as with ``python -c CODE ARGUMENTS``, but without the time for the imports, which is longer than that
    of most code. A path is a script, which runs as with ``python SCRIPT ARGUMENTS``. A test of imports, of all
    memory of a process or of the start of Python needs a process of its own.

    Raises
    ------
    AssertionError
        If the code fails; not with `check=False`.
    """
    words, told, server = _python_server(arguments, environment)
    if server:
        result = server.run_code(code, words, told)
    else:
        line = [sys.executable, *([code] if isinstance(code, Path) else ["-c", code]), *words]
        result = subprocess.run(line, env=told, capture_output=True, text=True, check=False)
    assert not check or result.returncode == 0, result.stderr
    return result


def started(code: str | Path, *arguments: object, environment: Mapping[str, str] | None = None) -> Program:
    """Start what `python` runs, and return at once. A ``with`` statement ends the process."""
    words, told, server = _python_server(arguments, environment)
    if server:
        return server.start_code(code, words, told)
    line = [sys.executable, *([code] if isinstance(code, Path) else ["-c", code]), *words]
    pipe = subprocess.PIPE
    program = subprocess.Popen(line, env=told, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    return cast("Program", program)


_PACKER = """
import runpy, sys
sys.argv[0] = "packer"
runpy.run_module("packer", run_name="__main__", alter_sys=True)
"""


def packer_started(*arguments: object, environment: Mapping[str, str] | None = None) -> Program:
    """Start `packer` where torch is imported already, and return at once. A ``with`` statement ends the process."""
    return started(_PACKER, *arguments, environment=environment)


def _python_server(
    arguments: Sequence[object], environment: Mapping[str, str] | None
) -> tuple[list[str], Mapping[str, str], CommandServer | None]:
    """Return the arguments as words, the environment, and a server for it; without one, Python is started."""
    told = os.environ if environment is None else environment
    usable = _read_by_python(told) == _READ_BY_SERVERS
    return [str(argument) for argument in arguments], told, _command_server(False, torch=True) if usable else None


def packer_many(
    commands: Iterable[Sequence[object]], *, powerless: bool = False, torch: bool = False
) -> list[subprocess.CompletedProcess[str]]:
    """Run several commands in one other process: starting a process takes longer than most commands.

    `torch` says that one of them imports torch, which is then imported already.
    """
    lines = [[str(argument) for argument in arguments] for arguments in commands]
    if server := _command_server(powerless, torch):
        result = server.run_many(lines)
    else:
        code = "import json, sys; from tests.commandserver import run_many; run_many(json.load(sys.stdin))"
        line = [*_line(powerless), "-c", code]
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
        told = os.environ | {"PYTHONPATH": path}  # an installed packer has no `tests`
        result = subprocess.run(line, input=json.dumps(lines), capture_output=True, text=True, check=False, env=told)
    assert result.returncode == 0, result.stderr
    return [
        subprocess.CompletedProcess(arguments, *json.loads(answer))
        for arguments, answer in zip(lines, result.stdout.splitlines(), strict=True)
    ]


def _read_by_python(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of an environment that Python reads when it starts."""
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LANG", "LC_"))}


_READ_BY_SERVERS = _read_by_python()


_servers: dict[tuple[bool, bool], CommandServer] = {}
"""Servers with and without root's powers, and with and without torch."""


def _command_server(powerless: bool, torch: bool) -> CommandServer | None:
    """Return a server for commands; None where processes do not fork, or a test changed how Python starts."""
    if not hasattr(os, "fork") or _read_by_python() != _READ_BY_SERVERS:
        return None
    key = powerless, torch
    if key not in _servers or not _servers[key].alive:
        _servers[key] = CommandServer(_line(powerless), torch)
        atexit.register(_servers[key].close)
    return _servers[key]
