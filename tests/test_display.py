"""Results in a terminal and in a notebook: the words of the commands, and HTML that a hostile pack cannot break."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import packer
from packer import _display
from packer._display import Bar, Code, Heading, TextTable, Thumbnails, html, text
from packer.testing.photos import draw_imagefolder
from tests.command import packer_many

SCRIPT = "<script>alert('1')</script>"
TAGS = {"div", "style", "p", "br", "h4", "table", "tr", "th", "td", "pre", "code", "figure", "figcaption", "img"}
TAGS |= {"small", "iframe", "a"}
ATTRIBUTES = {"class", "title", "alt", "src", "href", "height", "referrerpolicy", "target", "rel"}


class Page(HTMLParser):
    """The tags and the text of HTML; an error for a tag, an attribute or a source that packer does not write."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        self.tags.append(tag)
        for name, value in attributes:
            assert name in ATTRIBUTES, name
            if name in ("src", "href"):
                assert re.match(r"data:image/jpeg;base64,[\w+/=]*$|http://127\.0\.0\.1:\d+/[\w-]+/$", value or ""), (
                    value
                )

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.text += data


texts = st.text(st.characters(codec=None), max_size=30)  # type: ignore[arg-type]
tables = st.lists(st.tuples(texts, st.builds(Bar, st.integers(0, 9), st.integers(0, 9)), texts), max_size=4).map(
    lambda rows: TextTable(rows, (">8", "30", ""))
)
blocks = texts | st.builds(Heading, texts) | st.builds(Code, st.lists(texts)) | tables
pictures = st.builds(Thumbnails, st.lists(st.tuples(st.binary(max_size=4), texts, texts), max_size=3))


@given(st.lists(blocks | pictures, max_size=6))
def test_whatever_blocks_hold_they_are_lines_and_plain_elements(shown: list[Any]) -> None:
    lines = text(shown).split("\n")
    assert all(line.isprintable() for line in lines)
    expected = sum(
        {str: 1, Heading: 1, Thumbnails: 0}.get(type(one), len(getattr(one, "rows", getattr(one, "lines", ()))))
        for one in shown
    )
    assert len(lines) == max(expected, 1)
    page = Page(html(shown))
    assert page.tags.count("tr") == sum(len(one.rows) for one in shown if isinstance(one, TextTable))
    assert page.tags.count("figure") == sum(len(one.pictures) for one in shown if isinstance(one, Thumbnails))


def test_a_table_is_aligned_and_a_bar_is_as_long_as_its_number() -> None:
    table = TextTable([("a", Bar(10, 20)), ("bcd", Bar(20, 20))], (">5", ""), ("name", "bar"))
    assert text([table]) == f"   name  bar\n      a  {'█' * 15}\n    bcd  {'█' * 30}"
    assert Page(html([table])).text == f"namebara{'█' * 15}bcd{'█' * 30}"


def test_a_very_long_name_is_cut_in_html() -> None:
    assert len(html(["x" * 100_000])) < 5_000


def test_a_path_below_the_current_directory_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _display.here(tmp_path / "a" / "b.lmdb") == str(Path("a/b.lmdb"))
    assert _display.here(tmp_path.parent / f"{tmp_path.name}-other") == str(tmp_path.parent / f"{tmp_path.name}-other")
    monkeypatch.chdir("/")
    assert _display.here(tmp_path) == str(tmp_path)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("display") / "tree"
    draw_imagefolder(root, classes=3, per_class=4, size=(40, 56))
    return root


def without_times(shown: str) -> str:
    return re.sub(r"\d[\d,.]* (s|ms|img/s)\b", "TIME", shown)


def test_results_are_what_the_commands_print(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packer.convert(tree, "parts.lmdb", parts=2)
    functions: list[tuple[list[Any], Callable[[], Any]]] = [
        (["convert", tree, "a.lmdb"], lambda: packer.convert(tree, "b.lmdb")),
        (["convert", tree, "a.h5", "--resize", "24"], lambda: packer.convert(tree, "b.h5", resize=24)),
        (["index", tree, "a.index"], lambda: packer.index(tree, "b.index")),
        (["merge", "a.lmdb", "parts.lmdb", "a.pth", "--prefix", "x", "--prefix", "y"],
         lambda: packer.merge(["b.lmdb", "parts.lmdb"], "b.pth", prefixes=["x", "y"])),
        (["info", "a.lmdb"], lambda: packer.info("b.lmdb")),
        (["info", "a.index"], lambda: packer.info("b.index")),
        (["verify", "a.lmdb"], lambda: packer.verify("b.lmdb")),
        (["verify", "a.h5", "--quick"], lambda: packer.verify("b.h5", quick=True)),
    ]  # fmt: skip
    for (words, function), result in zip(functions, packer_many([words for words, _ in functions]), strict=True):
        assert result.returncode == 0, result.stderr
        printed = re.sub(r"\ba\.(lmdb|h5|index|pth)", r"b.\1", result.stdout.rstrip("\n"))
        assert without_times(repr(function())) == without_times(printed), words


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pack with tags in the names of its path, classes and samples, and with damage."""
    path = tmp_path_factory.mktemp("hostile") / f"{SCRIPT.replace('/', '')}.lmdb"
    rng = np.random.default_rng(0)

    def samples() -> Any:
        for number in range(6):
            stream = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).save(stream, "jpeg")
            name = f"{SCRIPT.replace('/', '')}/\x1b[31m{number}.jpg"
            yield {"image": stream.getvalue(), "name": name, "label": number % 2, "note": SCRIPT}

    packer.pack(samples(), path, classes=[SCRIPT, '" onload="alert(1)'], fields={"note": "text"})
    with packer.open_pack(path) as reader:
        data = bytes(reader.read(5))
    content = bytearray(path.read_bytes())
    content[content.index(data) + len(data) // 2] ^= 0xFF
    path.write_bytes(content)
    return path


HOSTILE: dict[str, Callable[[Path], Any]] = {
    "info": packer.info,
    "verify": packer.verify,
    "dataset": packer.open_dataset,
    "datasets": lambda path: packer.open_dataset([path, path]),
    "selection": lambda path: packer.open_dataset(path).select([5]),
    "Loader": lambda path: packer.Loader(packer.open_dataset(path), 2),
    "convert": lambda path: packer.convert(path, path.with_name("again.lmdb"), on_error="skip", overwrite=True),
    "estimate": lambda path: packer.estimate(path, path.with_name("other.lmdb"), seconds=0.5, on_error="skip"),
    "repair": lambda path: packer.repair(path, path.parent),
    "view": lambda path: packer.view(path, browser=False),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_names_in_a_pack_are_text_and_nothing_else(name: str, hostile: Path) -> None:
    shown = HOSTILE[name](hostile)
    page = Page(shown._repr_html_())
    assert "alert(" in page.text
    assert all(line.isprintable() for line in repr(shown).splitlines())
    if isinstance(shown, packer.Viewer):
        shown.close()


def test_a_dataset_in_a_notebook_has_pictures_and_says_what_is_damaged(hostile: Path) -> None:
    with packer.open_dataset(hostile) as dataset:
        page = Page(dataset._repr_html_())
        assert page.tags.count("img") == 5
        assert "the checksum does not match" in page.text
        assert Page(dataset[:0]._repr_html_()).tags.count("figure") == 0
    assert str(hostile) in repr(dataset)  # also when it is closed


def test_a_thousand_classes_are_few_lines(tmp_path: Path) -> None:
    classes = [f"class number {number}" for number in range(1000)]
    packer.pack([{"image": np.zeros((4, 4, 3), np.uint8), "label": 7}], tmp_path / "p.lmdb", classes=classes)
    with packer.open_dataset(tmp_path / "p.lmdb") as dataset:
        for shown in (dataset, packer.Loader(dataset, 2), packer.DataLoader(dataset, 2)):
            assert len(repr(shown).splitlines()) <= 6
            assert len(repr(shown)) < 1000
        assert "class number 4, … and 995 more" in repr(dataset)
        several = repr(packer.ConcatImageDataset([dataset] * 100))
        assert "… and 95 more" in several
        assert len(several.splitlines()) <= 9
    info = packer.info(tmp_path / "p.lmdb")
    assert len(repr(info).splitlines()) < 30
    assert "992 more (classes lists all)" in repr(info)


def test_results_stay_what_they_are(tree: Path, tmp_path: Path, hostile: Path) -> None:
    summary = packer.convert(tree, tmp_path / "p.lmdb")
    for result in (summary, packer.info(tmp_path / "p.lmdb"), packer.verify(hostile)):
        again = pickle.loads(pickle.dumps(result))
        assert again == result
        assert repr(again) == repr(result)
    intact = packer.verify(tmp_path / "p.lmdb")
    assert intact == []
    assert not intact
    (damage,) = packer.verify(hostile)
    assert damage.index == 5
