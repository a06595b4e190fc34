"""Processes that have imported torch already: the import takes longer than most tests of measurements."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable, Mapping
from multiprocessing import context
from typing import Any

import pytest

from tests.command import python

COMMAND = "import runpy, sys; sys.argv[0] = 'packer'; runpy.run_module('packer', run_name='__main__', alter_sys=True)"


def packer_with_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command of `packer` that needs torch, in a process that has imported it."""
    return python(COMMAND, *arguments, check=False)


if "forkserver" in multiprocessing.get_all_start_methods():

    class _Process(context.ForkServerProcess):
        """A fork of a server that has imported torch; like a spawned process, it gets the current environment."""

        def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **options: Any) -> None:
            super().__init__(target=_run, args=(dict(os.environ), target, args), **options)


def _run(environment: Mapping[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)


@pytest.fixture
def prepared_processes(quick_spawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace spawned processes by forks of a server that has imported torch."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        monkeypatch.setattr(context.ForkServerContext, "Process", _Process)
