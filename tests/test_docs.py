"""The README and the pages below docs/: what they show runs, what they name is there, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.testing.photos import draw_imagefolder
from tests.making import packer_many

ROOT = Path(packer.__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, *(ROOT / name for name in ("formats.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md"))]

SMALLER = {
    r"batch_size=\d+": "batch_size=4",
    r"num_workers=\d+": "num_workers=1",
    r"Loader\(dataset, \d+,": "Loader(dataset, 4,",
    r"range\(3\)": "range(2)",
}
"""What makes the pages' loops short: patterns, and what takes their place."""


def fenced(path: Path, language: str) -> list[str]:
    """Return the blocks of code of one language in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)


BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(fenced(page, "python"))
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with what the pages take for granted."""
    root = tmp_path_factory.mktemp("docs")
    draw_imagefolder(root / "imagenet" / "train", classes=3, per_class=4, size=(48, 64))
    draw_imagefolder(root / "imagenet" / "val", classes=3, per_class=2, size=(48, 64), seed=1)
    packer.convert(root / "imagenet" / "train", root / "train.lmdb")
    return root


def my_transform(image: Any) -> Any:
    """Stand for the reader's own transform: a PIL image becomes a tensor."""
    import numpy as np
    import torch

    return torch.from_numpy(np.array(image.resize((32, 32)))).permute(2, 0, 1)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_python_run(block: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(prepared / "imagenet", "imagenet")
    if "convert(" not in block:
        shutil.copy(prepared / "train.lmdb", "train.lmdb")
    for pattern, smaller in SMALLER.items():
        block = re.sub(pattern, smaller, block)
    exec(compile(block, "the page", "exec"), {"__name__": "__main__", "my_transform": my_transform})


def test_the_commands_of_the_readme_run(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(prepared / "imagenet", "imagenet")
    photos = [path.relative_to("imagenet/train") for path in Path("imagenet/train").rglob("*.jpg")]
    rows = [f"{photo},{photo.parent.name}" for photo in photos]
    Path("train.csv").write_text("\n".join(["file,class", *rows]))
    section = (ROOT / "README.md").read_text("utf-8").partition("## Convert\n")[2].partition("\n## ")[0]
    fence = re.findall(r"^packer .*$", section, re.MULTILINE)
    spans = [span for line in section.splitlines() if line.startswith("|") for span in re.findall(r"`(.*?)`", line)]
    lines = [shlex.split(line, comments=True)[1:] for line in [*fence, *spans] if line.startswith("packer ")]
    lines += [
        ["convert", "imagenet/train", f"{number}.lmdb", *shlex.split(span)]
        for number, span in enumerate(spans)
        if span.startswith("--") and span != "--tiles"  # whose compiling takes as long as all the others together
    ]
    assert len(lines) >= 10
    for line, result in zip(lines, packer_many(lines), strict=True):
        assert result.returncode == 0, (line, result.stderr)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples" / "train.py"], ids=lambda page: page.name)
def test_every_name_in_packer_is_public(page: Path) -> None:
    named = set(re.findall(r"(?<![\w/.])packer\.(\w+)", page.read_text("utf-8")))
    assert named <= {*packer.__all__, "errors", "testing"}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
