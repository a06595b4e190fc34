"""The public interface: `import packer` provides the names of a committed list, and nothing else is public."""

from __future__ import annotations

import inspect
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, get_type_hints

import click

import packer
from packer._cli import cli

ROOT = Path(packer.__file__).parent
LIST = Path(__file__).with_name("face.txt")


class _Text:
    """An annotation or a default whose repr is its text in the code."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(function: Any, *, method: bool = False) -> str:
    """Return the signature of a function or a class, of a method without `self`."""
    said = inspect.signature(function)
    parameters = [
        p.replace(annotation=_shown(p.annotation), default=_named(p.default)) for p in said.parameters.values()
    ]
    return str(said.replace(parameters=parameters[method:], return_annotation=_shown(said.return_annotation)))


def _shown(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _named(default: Any) -> Any:
    return _Text(default.__name__) if inspect.isfunction(default) else default


def members(kind: type) -> dict[str, Any]:
    """Return what a class defines beyond the public classes above it."""
    own = [base for base in kind.__mro__ if base.__module__.startswith("packer")]
    known = [base for base in own[1:] if base.__name__ in packer.__all__]
    private = [base for base in own if not any(issubclass(above, base) for above in known)]
    return {name: value for base in reversed(private) for name, value in vars(base).items()}


def described(name: str) -> list[str]:
    """Return the lines for a public name: its signature; for a class, its bases and its own members."""
    value = getattr(packer, name)
    if not isinstance(value, type):
        return [f"{name}{signature(value)}" if callable(value) else name]
    own = members(value)
    bases = ", ".join(base.__name__ for base in value.__bases__ if base.__name__ in packer.__all__)
    lines = [f"class {name}({bases})", *([f"    __init__{signature(value)}"] if "__init__" in own else [])]
    for member, what in sorted(own.items()):
        if inspect.isfunction(what) and not member.startswith("_"):
            lines.append(f"    {member}{signature(what, method=True)}")
        elif isinstance(what, property | cached_property) and not member.startswith("_"):
            lines.append(f"    {member}")
    return lines


def face() -> str:
    return "".join(f"{line}\n" for name in packer.__all__ for line in described(name))


def test_the_face_is_the_committed_list() -> None:
    """`python -m tests.test_face` writes the list anew; users of packer will notice every difference."""
    assert face() == LIST.read_text("utf-8")


def test_the_names_are_sorted_and_typed() -> None:
    assert packer.__all__ == sorted(packer.__all__) == dir(packer)
    typed = (ROOT / "__init__.py").read_text("utf-8").partition("if TYPE_CHECKING:")[2].partition("_HOMES")[0]
    assert set(packer.__all__) - {"__version__"} == set(re.findall(r"(\w+) as \1\b", typed))


def test_every_error_is_in_the_face() -> None:
    from packer import errors

    kinds = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert kinds <= set(packer.__all__)
    assert all(getattr(packer, name) is getattr(errors, name) for name in kinds)


def test_what_a_public_function_returns_is_public() -> None:
    known = {*packer.__all__, "Path", "None", "str", "int", "list"}
    for name in packer.__all__:
        value = getattr(packer, name)
        if inspect.isfunction(value):
            assert set(re.findall(r"\w+", str(inspect.signature(value).return_annotation))) <= known, name
    assert "ConversionProgress" in known


VERBS = (
    "append",
    "bench",
    "convert",
    "digest",
    "doctor",
    "estimate",
    "export",
    "index",
    "info",
    "merge",
    "repair",
    "stage",
    "profile",
    "tune",
    "verify",
    "view",
    "warm",
)


def test_every_verb_says_what_it_takes_gives_and_raises() -> None:
    """The summary is enough for a number or a word that the function returns."""
    for name in VERBS:
        text = inspect.getdoc(getattr(packer, name)) or ""
        is_plain = inspect.signature(getattr(packer, name)).return_annotation in ("int", "str")
        in_summary = is_plain and "return " in text.partition("\n")[0].lower()
        assert "Parameters\n----------\n" in text, name
        assert in_summary or "Returns\n-------\n" in text, name
        assert "Raises\n------\n" in text, name
        described_ones = text.partition("Parameters\n")[2].partition("\nR")[0]
        assert set(inspect.signature(getattr(packer, name)).parameters) <= set(re.findall(r"\w+", described_ones)), name


ALONE = {
    "bench": {"plot", "json"},
    "convert": {"part", "jobs", "cluster", "scratch", "check"},
    "estimate": {"json"},
    "doctor": {"train", "steps", "json"},
    "index": {"base", "no_checksums"},
    "info": {"classes", "json", "plot"},
    "merge": {"finish"},
    "tune": {"recipe", "json"},
    "verify": {"digest", "repair", "with"},
    "view": {"no_browser", "html"},
}
"""Options that only the command has, as the guide explains."""

READING = {"cache_dir", "cache_size", "timeout"}
"""Settings for a pack at a URL: `open_dataset` and `open_pack` have keywords, other functions read variables."""


def test_options_of_a_command_are_keywords_of_the_function_of_its_name() -> None:
    context = click.Context(cli)
    for name in set(cli.list_commands(context)) - {"cache", "completion", "scan"}:
        command = cli.get_command(context, name)
        assert command is not None
        options = {option[2:].replace("-", "_") for one in command.params for option in one.opts if option[:2] == "--"}
        several = {"field": "fields", "column": "columns", "key": "keys", "prefix": "prefixes"}
        keywords = set(inspect.signature(getattr(packer, name)).parameters)
        if name in ("append", "estimate", "index"):
            keywords |= set(inspect.signature(packer.convert).parameters)
        own = options - ALONE.get(name, set()) - {"quiet", "json_progress", *READING}
        assert {several.get(option, option) for option in own} <= keywords, name


def test_what_the_documentation_does_not_name_begins_with_an_underscore() -> None:
    documented = (ROOT.parent / "docs" / "architecture.md").read_text("utf-8")
    for path in ROOT.iterdir():
        name = path.name.removesuffix(".py")
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not name.startswith("_"):
            assert f"packer.{name}" in documented, name


if __name__ == "__main__":
    LIST.write_text(face(), "utf-8")
    sys.exit(0)


def test_what_is_public_is_explained_in_public_words() -> None:
    """Docstrings such as ``help(packer.Loader)`` shows do not mention private modules, nor `available_cpus`."""
    for name in set(packer.__all__) - {"__version__"}:
        value = getattr(packer, name)
        own = members(value).items() if isinstance(value, type) else ()
        for member, what in [(name, value), *own]:
            if member == name or not member.startswith("_"):
                assert not re.search(r"packer\._|`available_cpus`", getattr(what, "__doc__", "") or ""), member


def test_type_hints_of_public_functions_resolve() -> None:
    """Tools that read them, such as those for command lines and notebooks, evaluate them outside of the module."""
    for name in packer.__all__:
        value = getattr(packer, name)
        own = [*vars(value).values()] if isinstance(value, type) else [value]
        for function in filter(inspect.isfunction, own):
            get_type_hints(function)
