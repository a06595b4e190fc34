"""Messages in the words of the caller.

Messages speak of options as the command line spells them: ``--on-error skip``. A function that is called from Python
turns them into its arguments: ``on_error='skip'``.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from packer._containers import find_container, named_paths
from packer._sample import CODECS, TO_8_BIT
from packer.errors import ImageError, OptionError, PackerError, SourceError, printable

__all__ = ["as_arguments", "refuse_of_container", "speaking_of_arguments"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_VALUES = ("skip", "fail", "null", "same", "union", "class", "int", "float", "tab", *TO_8_BIT, *CODECS)
_COMMANDS = r"`[^`]*`|^  packer .*$"  # they are quoted, and stay
_PREFIXES = re.compile(r"--prefix ('[^']*'|\S+)(?: --prefix ('[^']*'|\S+))+")
_COLUMN = r"(?:(?<=path-column )|(?<=label-column ))(?!(?:and|or|says?|is)\b)\w+"
_VALUE = rf"{'|'.join(_VALUES)}|[A-Z]\S*[A-Za-z]|[0-9]+|'[^']*'|{_COLUMN}"
_QUOTED = r"""(?<!\w)'[^'\n]*'(?!\w)|"[^"\n]*\""""  # names and values, which stay
_OPTION = re.compile(rf"{_QUOTED}|(?<![^\s(\[])--(no-)?([a-z]+(?:-[a-z0-9]+)*)(?![\w/.-]\w|/)(?: ({_VALUE})(?!\w))?")


def speaking_of_arguments(function: Callable[_P, _R], others: Callable[..., Any] | None = None) -> Callable[_P, _R]:
    """Let the errors of a function speak of its arguments in place of options, and of those of `others`."""
    parameters = {
        name: parameter
        for one in (others, function)
        if one is not None
        for name, parameter in inspect.signature(one).parameters.items()
    }

    @functools.wraps(function)
    def speaking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (PackerError, TypeError, ValueError) as error:
            own = list(_texts([*args, *kwargs.values()]))
            if error.args and isinstance(error.args[0], str):  # names and paths come after what is said
                error.args = as_arguments(error.args[0], parameters, own), *error.args[1:]
            if isinstance(error, ImageError):
                error.reason = as_arguments(error.reason, parameters, own)
            raise

    return speaking


def refuse_of_container(src: Path, said: str, error: SourceError) -> None:
    """Raise OptionError where `src` has no images because an option that was said keeps a container from being one."""
    found = find_container(named_paths(src)) if said else None
    if found is not None:
        what = f"{said} is for a directory of images, and {printable(src)} is {found[0].kind}"
        raise OptionError(f"{what}: leave it out, or say with --key what its samples have. {error}") from error


def as_arguments(text: str, parameters: Mapping[str, inspect.Parameter], own: Sequence[str] = ()) -> str:
    """Return a message with its options as arguments of a function that has `parameters`.

    What the caller gave, `own`, stays as it is: a path may hold the name of an option.
    """
    kept = [_COMMANDS, *(re.escape(printable(word)) for word in sorted(own, key=len, reverse=True) if "--" in word)]
    pieces = re.split(f"({'|'.join(kept)})", text, flags=re.MULTILINE)
    pieces[::2] = [_OPTION.sub(lambda found: _argument(found, parameters), _listed(piece)) for piece in pieces[::2]]
    return "".join(pieces)


def _texts(given: Iterable[object]) -> Iterator[str]:
    """Yield the texts and paths among what a function was given."""
    for value in given:
        if isinstance(value, str | os.PathLike):
            yield os.fsdecode(value)
        elif isinstance(value, list | tuple):
            yield from _texts(value)


def _listed(text: str) -> str:
    """Return a message with an option that is given several times as one argument."""
    return _PREFIXES.sub(lambda found: f"prefixes={shlex.split(found[0])[1::2]}", text)


def _argument(found: re.Match[str], parameters: Mapping[str, inspect.Parameter]) -> str:
    if found[2] is None:  # quoted
        return found[0]
    no, name, value = found[1], found[2].replace("-", "_"), found[3]
    name = {"prefix": "prefixes", "field": "fields", "column": "columns"}.get(name, name)
    name, no = (f"no_{name}", None) if no and f"no_{name}" in parameters else (name, no)
    if name not in parameters:
        return found[0]
    if no or "bool" in str(parameters[name].annotation):
        return f"{name}={not no}" + (f" {value}" if value else "")
    if value is None:
        return f"{name}="
    if value.isdecimal() and "str" not in str(parameters[name].annotation):
        return f"{name}={value}"
    return f"{name}={chr(9)!r}" if value == "tab" else f"{name}={value.strip(chr(39))!r}"
