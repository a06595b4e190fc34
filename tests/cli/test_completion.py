"""`packer completion`: the shell that evaluates the script completes commands, options, choices and paths."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from packer._cli import EXIT_STATUS, cli
from packer._codecs import CODECS
from tests.command import packer

COMPLETE = """
eval "$(packer completion bash)"
complete -p packer
for words in "$@"; do
    COMPREPLY=()
    eval "COMP_WORDS=($words)"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _packer_completion packer
    echo "${COMPREPLY[@]}"
done
"""


@pytest.fixture
def on_path(tmp_path: Path) -> dict[str, str]:
    """Return an environment that has `packer` on its PATH."""
    program = tmp_path / "bin" / "packer"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m packer "$@"\n')
    program.chmod(0o755)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PATH": os.pathsep.join([str(program.parent), os.environ["PATH"]]), "PYTHONPATH": paths}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes(on_path: dict[str, str]) -> None:
    expected = {
        "packer ''": set(cli.commands),
        "packer con": {"convert"},
        "packer cache ''": {"info", "clear"},
        "packer convert a b --codec ''": set(CODECS),
        "packer convert a b --resize-m": {"--resize-mode"},
        "packer verify --re": {"--repair"},
    }
    result = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *expected], env=on_path, capture_output=True, text=True, check=False
    )
    assert result.stderr == ""
    registered, *replies = result.stdout.splitlines()
    assert registered == "complete -o nosort -F _packer_completion packer"
    assert [set(line.split()) for line in replies] == list(expected.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_of_the_shell(shell: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = packer("completion", shell)
    assert (result.returncode, result.stderr) == (0, "")
    assert f"_PACKER_COMPLETE={shell}_complete" in result.stdout
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert packer("completion", env=dict(os.environ)).stdout == result.stdout
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(result.stdout)
        checked = subprocess.run([program, "-n", str(tmp_path / "script")], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_a_shell_without_completion_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    for result in (packer("completion", env=dict(os.environ)), packer("completion", "tcsh")):
        assert result.returncode == EXIT_STATUS["usage"]
        assert "fish" in result.stderr.splitlines()[0]
        assert result.stderr.splitlines()[1:] == ["Try `packer completion --help`."]
