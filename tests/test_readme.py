"""The README, pasted into one terminal: its blocks run in order, as they stand, in one directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import packer

ROOT = Path(packer.__file__).parents[1]
ENVIRONMENT = ROOT / ".venv"

needs_environment = pytest.mark.skipif(
    not ENVIRONMENT.is_dir() or Path(sys.prefix).resolve() != ENVIRONMENT.resolve(),
    reason="needs the environment .venv of the clone, which scripts/setup makes",
)


def terminal(blocks: list[tuple[str, str]]) -> str:
    """Return the input of a shell that runs the blocks: commands unchanged, and each block of Python in an interpreter.

    Python finds no torchvision, which `scripts/demo` does not install.
    """
    shown = {"sh": "{}", "python": "python - <<'PASTED'\nimport sys\nsys.modules['torchvision'] = None\n{}PASTED\n"}
    return "".join(
        f"echo '### block {number}'\n" + shown[language].format(text) for number, (language, text) in enumerate(blocks)
    )


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block of code."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


@needs_environment
@pytest.mark.timeout(900)  # they take a minute on a free machine
def test_its_blocks_run_in_order(tmp_path: Path) -> None:
    blocks = blocks_of("README.md")
    assert "scripts/demo" in blocks[0][1]
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "demo").write_text(f'exec "{ROOT}/scripts/demo" "$@"\n')
    (tmp_path / "scripts" / "demo").chmod(0o755)
    os.symlink(ENVIRONMENT, tmp_path / ".venv")
    environment = {name: value for name, value in os.environ.items() if name not in {"VENV", "PYTHONPATH"}}
    result = subprocess.run(
        ["sh", "-e"],
        check=False,
        input=terminal(blocks),
        text=True,
        capture_output=True,
        cwd=tmp_path,
        env=environment,
        timeout=800,
    )
    assert result.returncode == 0, (result.stdout[-2000:], result.stderr[-4000:])
    assert "Traceback" not in result.stderr
    assert "train.lmdb: intact" in result.stdout
    assert re.search(r"epoch 1: \d", result.stdout)


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_first_screens_have_what_matters(page: str) -> None:
    lines = (ROOT / page).read_text("utf-8").splitlines()
    assert len(lines) <= 150
    for command in ("scripts/demo", "scripts/test"):
        assert any(line.startswith(f"| `{command}`") for line in lines[:60])
