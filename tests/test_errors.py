"""The tree of errors, and text that is safe to print."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import packer
from packer import errors
from packer.errors import CorruptPackError, ImageError, PackerError, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 日本 🐱 name.jpg", "plain é 日本 🐱 name.jpg"),
        ("a\nb\tc\rd\0e", r"a\nb\tc\rd\x00e"),
        ("\x1b[31mred\x1b[0m\x07\x7f\x9b1m", r"\x1b[31mred\x1b[0m\x07\x7f\x9b1m"),
        ("caf\udce9", r"caf\udce9"),
        ("\u202egpj.exe\u2028\ufeff", r"\u202egpj.exe\u2028\ufeff"),
        (b"x", "b'x'"),
    ],
)
def test_printable(text: object, expected: str) -> None:
    assert printable(text) == expected


@given(st.text(st.characters(codec=None)))  # type: ignore[arg-type]
def test_whatever_is_printable_is_one_line_of_utf8(text: str) -> None:
    assert printable(text).isprintable()
    printable(text).encode("utf-8")
    assert printable(printable(text)) == printable(text)


classes = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == "packer.errors"
]


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            above[depth] = match[2]
            drawn[match[2]] = above.get(depth - 1, "Exception")
    assert drawn == {value.__name__: value.__bases__[0].__name__ for value in classes}
    mentions = {"flag", "message_of", "option", "recorded", "speak_as_command_line", "spelled"}
    assert set(drawn) | mentions | {"DISTRIBUTION", "pip_install", "printable", "reason_of", "warn"} == set(
        errors.__all__
    )


MISTAKES: dict[str, Callable[[str], Any]] = {
    "open_dataset": packer.open_dataset,
    "open_pack": packer.open_pack,
    "convert": lambda path: packer.convert(path, f"{path}.lmdb"),
    "index": lambda path: packer.index(path, f"{path}.index"),
    "verify": packer.verify,
    "info": packer.info,
    "warm": packer.warm,
    "export": lambda path: packer.export(path, f"{path}.out"),
    "estimate": lambda path: packer.estimate(path, f"{path}.lmdb"),
    "where": lambda path: packer.convert(path, f"{path}.lmdb", where="a =="),
    "options": lambda path: packer.convert(path, f"{path}.lmdb", upscale=True),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_notebook_shows_the_callers_lines_and_the_message(name: str, tmp_path: Path) -> None:
    """IPython calls `_render_traceback_` of an error that has it."""
    with pytest.raises(PackerError) as caught:
        MISTAKES[name](str(tmp_path / "missing"))
    lines = caught.value._render_traceback_()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].endswith(str(caught.value).splitlines()[-1])
    assert sum(line.startswith("  File ") for line in lines) <= 2  # of this file
    assert all(__file__ in line for line in lines if line.startswith("  File "))
    assert len(lines) <= 7


@pytest.mark.parametrize("name", ["open_dataset", "convert", "verify"])
def test_a_path_that_is_not_there_has_no_other_error_above_it(name: str, tmp_path: Path) -> None:
    with pytest.raises(PackerError) as caught:
        MISTAKES[name](str(tmp_path / "missing"))
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("kind", classes)
def test_errors_survive_pickling(kind: type[PackerError]) -> None:
    values = [kind("what is wrong")]
    if issubclass(kind, ImageError):
        values += [kind("reason", "a\n/b.jpg"), kind("reason", name="n")]
    if issubclass(kind, CorruptPackError):
        values += [kind("reason", "/a/pack.h5"), kind("reason", "/a/\x1bpack.h5", 7)]
    for value in values:
        again = pickle.loads(pickle.dumps(value))
        assert type(again) is kind
        assert (str(again), vars(again)) == (str(value), vars(value))
        assert str(kind(str(value))) == str(value)  # as a DataLoader raises a worker's error again


def test_messages_say_where() -> None:
    assert str(ImageError("empty file", "a/\x1b.jpg")) == r"a/\x1b.jpg: empty file"
    assert str(ImageError("empty file")) == "empty file"
    assert str(CorruptPackError("too short", "/x\n.h5")) == r"/x\n.h5: too short"
    assert str(CorruptPackError("too short", "/x.h5", 0)).startswith("/x.h5, sample 0: too short. `packer verify`")
    assert str(CorruptPackError("too short", "/x.h5", 0, "a\n.jpg")).startswith(
        r"/x.h5, sample 0 (a\n.jpg): too short."
    )


def test_an_error_that_learns_its_name_keeps_it() -> None:
    """The converter adds the name to an error that was raised without it."""
    error = ImageError("empty file")
    error.name = "a/b.jpg"
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "a/b.jpg: empty file"
