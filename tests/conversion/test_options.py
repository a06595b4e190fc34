"""The table of options, the signatures and the docstrings agree."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import packer
from packer._conversion.options import (
    GROUPS,
    ImageOptions,
    IndexOptions,
    MergeOptions,
    Option,
    OutputOptions,
    RunOptions,
    SourceOptions,
    options_of,
)
from packer._conversion.request import SourceRequest
from packer._sources.imagefolder import metadata_files
from packer.errors import flag
from tests.command import packer_many

TABLE = (SourceOptions, ImageOptions, OutputOptions)
TYPES = {
    "flag": r"bool",
    "switch": r"bool, optional",
    "count": r"int, optional",
    "size": r"int, optional",
    "choice": r"\{.*\}(, optional)?",
    "char": r"str, optional",
    "text": r"str.*|(mapping|sequence) of str.*",
    "path": r"path.*",
    "file": r"path, optional",
    "directory": r"path, optional",
    "pack": r"path, optional",
}
"""The types of numpydoc by the kind of an option."""


def parameters(function: Callable[..., Any]) -> dict[str, str]:
    """Return the types in the section of parameters of a docstring."""
    section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found = re.findall(r"^(\w[\w, ]*) : (.*)$", section, re.MULTILINE)
    return {name: kind for names, kind in found for name in names.split(", ")}


@pytest.mark.parametrize(
    ("function", "kinds", "others"),
    [
        (packer.convert, TABLE, {"src", "dst", "scratch", "progress"}),
        (packer.index, (IndexOptions,), {"src", "dst", "progress", "options"}),
        (packer.merge, (MergeOptions,), {"packs", "dst", "progress"}),
    ],
)
def test_functions_have_the_options_of_the_table(
    function: Callable[..., Any], kinds: tuple[type, ...], others: set[str]
) -> None:
    signature = inspect.signature(function).parameters
    defaults = {one.name: one.default for kind in kinds for one in fields(kind)}
    assert {name: one.default for name, one in signature.items() if name not in others} == defaults
    assert set(signature) == set(defaults) | others


def test_the_docstring_has_the_options_of_the_table() -> None:
    documented = parameters(packer.convert)
    options: dict[str, Option] = dict(options_of(*TABLE))
    assert set(documented) == set(options) | {"src", "dst", "scratch", "progress"}
    for name, option in options.items():
        assert re.fullmatch(TYPES[option.kind], documented[name]) or name == "format", name
        for choice in option.choices:
            assert f'"{choice}"' in documented[name], name
    for name, option in options_of(IndexOptions):
        assert re.fullmatch(TYPES[option.kind], parameters(packer.index)[name]), name


def test_the_docstring_names_the_defaults_that_the_table_assumes() -> None:
    sections = re.split(r"^(\w+) : .*\n", inspect.getdoc(packer.convert) or "", flags=re.MULTILINE)
    documented = dict(zip(sections[1::2], sections[2::2], strict=True))
    assumed = {name: option.assumed for name, option in options_of(*TABLE) if option.assumed is not None}
    assert "quality" in assumed
    for name, value in assumed.items():
        assert re.search(rf'by default {value}\b|\b{value}"?`* \(the default\)', documented[name]), name


def test_requests_record_the_defaults_of_the_columns(tmp_path: Path) -> None:
    described = SourceRequest(src=tmp_path, labels=tmp_path / "labels.tsv").described()
    assert [described[name] for name in ("path_column", "label_column", "delimiter")] == ["path", "label", "\t"]


def test_the_help_names_the_defaults_of_the_columns_and_of_the_jobs() -> None:
    (result,) = packer_many([["convert", "--help"]])
    text = " ".join(result.stdout.split())
    for default in ("relative to SRC or absolute. [default: path]", "with the labels. [default: label]"):
        assert default in text
    assert "submits to the queue. [default: 1]" in text


def test_samples_of_a_program_have_the_options_of_images_and_of_the_pack() -> None:
    own = {"samples", "dst", "fields", "classes", "label_type", "progress"}
    signature = inspect.signature(packer.pack).parameters
    defaults = {one.name: one.default for kind in (ImageOptions, OutputOptions) for one in fields(kind)}
    del defaults["parts"], defaults["ignore_free_space"]
    assert {name: one.default for name, one in signature.items() if name not in own} == defaults


def test_every_option_has_a_group() -> None:
    groups = {option.group for _, option in options_of(*TABLE, RunOptions, IndexOptions, MergeOptions)}
    assert groups == set(GROUPS)


COUNTS = {
    name: option for name, option in options_of(SourceOptions, ImageOptions, OutputOptions) if option.kind == "count"
}


@pytest.mark.parametrize("name", COUNTS)
def test_functions_refuse_counts_out_of_range_as_the_command_line_does(name: str, tmp_path: Path) -> None:
    option = COUNTS[name]
    outside = [option.least - 1, *([option.most + 1] if option.most is not None else [])]
    for value in outside:
        with pytest.raises(
            ValueError, match=f"^{name} must be {option.least} (or more|to {option.most}), not {value}$"
        ):
            packer.convert(tmp_path, tmp_path / "x.lmdb", **{name: value})
    lines = [["convert", tmp_path, tmp_path / "x.lmdb", flag(name), value] for value in outside]
    for value, result in zip(outside, packer_many(lines), strict=True):
        assert result.returncode == 2
        assert result.stderr.startswith(f"packer: {flag(name)}: '{value}' is not a whole number "), result.stderr


def test_the_size_of_a_square_is_refused_with_the_options_for_it(tmp_path: Path) -> None:
    (result,) = packer_many([["convert", tmp_path, tmp_path / "x.lmdb", "--resize", "256x256"]])
    assert "pass --resize 256 --resize-mode exact" in result.stderr.splitlines()[0]


PUBLIC = {packer.convert: "api", packer.pack: "api", packer.index: "index", packer.merge: "merge"}
"""The functions whose signatures are compared with the table, with their modules."""


def test_defaults_are_spelled_in_the_table_alone() -> None:
    kinds = (*TABLE, IndexOptions, MergeOptions)
    names = {one.name for kind in kinds for one in fields(kind) if one.default}
    names |= {name for name, option in options_of(*kinds) if option.assumed is not None}
    assert {"quality", "interpolation", "exif", "on_error"} <= names
    public = {(module, function.__name__) for function, module in PUBLIC.items()}
    spelled = [
        (path.stem, name)
        for path in Path(packer.__file__).parent.glob("_conversion/*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in _spelled(node)
        if name in names and path.stem != "options" and (path.stem, getattr(node, "name", "")) not in public
    ]
    assert spelled == []


def _spelled(node: ast.AST) -> Iterator[str]:
    """Yield the names of parameters, fields and values whose default is a literal."""
    match node:
        case ast.FunctionDef(args=given):
            with_default = [*given.posonlyargs, *given.args][-len(given.defaults) or len(given.args) :]
            pairs = [*zip(with_default, given.defaults, strict=True)]
            pairs += [(one, value) for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value]
            yield from (one.arg for one, value in pairs if isinstance(value, ast.Constant) and value.value)
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)) if value:
            yield name
        case ast.BoolOp(op=ast.Or(), values=[ast.Attribute(attr=name), *_, ast.Constant()]):
            yield name
        case ast.IfExp(body=ast.Constant(), test=ast.Compare(left=ast.Attribute(attr=name), ops=[ast.Is()])):
            yield name


def test_no_metadata_names_every_file_that_it_ignores(tmp_path: Path) -> None:
    for name in ("metadata.csv", "metadata.jsonl", "metadata.parquet", "dataset.json"):
        (tmp_path / name).touch()
    ignored = metadata_files(tmp_path)
    assert len(ignored) == 4
    shown = dict(options_of(SourceOptions))["no_metadata"].help
    documented = (inspect.getdoc(packer.convert) or "").partition("\nno_metadata : bool\n")[2].partition(" : ")[0]
    assert [name for name in ignored if name not in shown] == []
    assert [name for name in ignored if Path(name).suffix not in re.findall(r"\.[a-z]+", documented)] == []
