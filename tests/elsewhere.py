"""Run Python code that imports packer, or other packages, from a directory that the tests made."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.command import python

_AFRESH = """
import os, sys
for name in [name for name in sys.modules if name.partition(".")[0] == "packer"]:
    del sys.modules[name]
sys.path.insert(0, {directory!r})
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [{directory!r}, os.environ.get("PYTHONPATH")]))
"""


def python_with(directory: Path, code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python code with a directory first on its path; torch is imported already, and packer is not.

    Raises
    ------
    AssertionError
        If the code fails; not with `check=False`.
    """
    return python(_AFRESH.format(directory=str(directory)) + code, *arguments, check=check)
