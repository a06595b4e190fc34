"""Python processes that packer starts for itself: each finds packer where this process found it.

``sys.path`` alone is not enough: an editable installation is found by a finder that ``site`` adds, and a program may
have left the directory that the empty entry of ``sys.path`` stands for. The environment is not enough either: a program
that changed ``sys.path``, or that was started with ``-I``, ``-E`` or ``-P``, searches elsewhere than a new process.
"""

from __future__ import annotations

import importlib.util
import os
import sys

__all__ = ["python_command"]

_START = """\
import sys
packages = {packages!r}
directories, sys.path[:] = dict(zip(packages, sys.argv[1:])), sys.argv[1 + len(packages):]
from importlib.machinery import PathFinder
class Finder:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [directories[name]]) if name in directories else None
sys.meta_path.insert(0, Finder)
"""


def _directory(package: str) -> str:
    """Return the directory, or zip archive, in which a package lies that this process can import.

    Raises
    ------
    ModuleNotFoundError
        If it cannot.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return os.path.dirname(os.path.abspath(spec.submodule_search_locations[0]))


def python_command(code: str, *packages: str) -> list[str]:
    """Return the command that runs code in another Python, soon: without ``site`` and the variables for Python.

    Parameters
    ----------
    code : str
        It imports modules as this process does.
    *packages : str
        What it imports from where this process would, beside packer; all else comes from ``sys.path`` as it is here.
    """
    packages = ("packer", *packages)
    start = _START.format(packages=packages) + code
    directories = map(_directory, packages)
    return [sys.executable, "-S", "-E", "-c", start, *directories, *map(os.path.abspath, sys.path)]
