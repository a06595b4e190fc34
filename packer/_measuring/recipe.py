"""A recipe: a Python file in which a person says how their training reads.

Any of these names may be defined in it:

``loader(path, threads)``
    Returns an iterable of batches, such as a DataLoader with `threads` workers. Each batch is a tuple or list of which
    the last has a `len()`, the labels; or a dict of which the first value has one. It is measured as a side of its own.
``transform``
    A transform of a PIL image to a tensor, as ImageFolder takes it; instead of the usual one of a training.
``crop``
    One of packer's crops, for the sides that decode with ``crop=``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.errors import OptionError, printable

__all__ = ["Recipe", "read_recipe"]


@dataclass(frozen=True)
class Recipe:
    """What a recipe defines; None where it does not."""

    loader: Callable[[str, int], Any] | None = None
    transform: Callable[[Any], Any] | None = None
    crop: Any = None


def read_recipe(path: str | os.PathLike[str] | None) -> Recipe:
    """Run a recipe, as a module of its own name, so that other processes can import what it defines.

    Raises
    ------
    OptionError
        If the file cannot be read or run, or defines nothing of what a recipe has.
    """
    if path is None:
        return Recipe()
    path = Path(path).absolute()
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise OptionError(f"{printable(path)}: a recipe is a Python file, NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is the command's, and may be JSON
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script that reads its command line ends so
        raise OptionError(f"the recipe {printable(path)}: {type(error).__name__}: {printable(error)}") from error
    found = {name: getattr(module, name, None) for name in ("loader", "transform", "crop")}
    if all(value is None for value in found.values()):
        raise OptionError(
            f"{printable(path)} defines none of what a recipe has: loader(path, threads), transform, crop"
        )
    return Recipe(**found)
