"""Notebooks: the example runs as it is committed, and a mistake in a cell ends in one readable error.

``python -m tests.test_notebook`` runs the example and writes its output anew.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.testing import photos
from packer.testing.photos import draw_imagefolder

ROOT = Path(packer.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "first_look.ipynb"
MOST_LINES = 40  # of an output
MOST_LINES_OF_AN_ERROR = 15
MOST_BYTES = 500_000

needs_example = pytest.mark.skipif(not EXAMPLE.exists(), reason="needs the repository's examples")


def executed(notebook: Any, directory: Path, *options: str, **variables: str) -> Any:
    """Run the cells of a notebook by nbconvert, in a kernel of this Python, and return the notebook."""
    for needed in ("nbconvert", "ipykernel"):
        pytest.importorskip(needed, reason="notebooks are run by nbconvert: pip install nbconvert ipykernel")
    path = directory / "cells.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    line = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--inplace", *options, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text("utf-8"))


def cells_of(sources: list[str]) -> list[Any]:
    """Return cells of code, each of which may fail."""
    return [
        {
            "cell_type": "code",
            "id": str(number),
            "metadata": {"tags": ["raises-exception"]},
            "source": source,
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]


def outputs(notebook: Any) -> list[list[Any]]:
    """Return the outputs of each cell of code."""
    return [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]


def joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def shown(output: Any) -> str:
    """Return an output as text."""
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return joined(output["text"] if output["output_type"] == "stream" else output["data"].get("text/plain", ""))


def is_bar(output: Any) -> bool:
    """Tell whether an output is a bar: as text, which must have reached its end, or as a widget of ipywidgets."""
    return "120/120" in shown(output) or "application/vnd.jupyter.widget-view+json" in output.get("data", {})


def assert_shows(notebook: Any) -> None:
    """Require bars, tables, pictures and the viewer; no wall of text, no path of this machine."""
    drawn, convert, info, verify, view, dataset, item, crop, loader, rate, mistake = outputs(notebook)
    assert drawn == []
    for with_bar in (convert, verify):
        assert any(map(is_bar, with_bar))
    assert "120 samples, 6 classes" in shown(convert[-1])
    assert "intact" in shown(verify[-1])
    tables = [joined(cell[-1]["data"]["text/html"]).count("<tr>") for cell in (info, dataset, loader)]
    assert min(tables) >= 3
    assert tables[0] > 6  # a row for each class
    assert "█" in shown(info[-1])
    assert joined(dataset[-1]["data"]["text/html"]).count("data:image/jpeg") == 8
    assert re.search(r'<iframe src="http://127\.0\.0\.1:\d+/[\w-]+/"', joined(view[-1]["data"]["text/html"]))
    assert "torch.uint8" in shown(item[-1])
    assert "image/png" in crop[-1]["data"]
    assert "images a second" in shown(rate[-1])
    assert "no such file or directory" in shown(mistake[-1])
    for output in (one for cell in outputs(notebook) for one in cell):
        lines = shown(output).splitlines()
        assert len(lines) <= (MOST_LINES_OF_AN_ERROR if output["output_type"] == "error" else MOST_LINES), lines
        assert not re.search(r"/(tmp|root|home|work|Users)/", json.dumps(output)), output


@needs_example
def test_the_example_is_committed_with_its_output() -> None:
    notebook = json.loads(EXAMPLE.read_text("utf-8"))
    assert EXAMPLE.stat().st_size < MOST_BYTES
    counts = [cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert_shows(notebook)


MISTAKES = {
    "a path that is not there": 'packer.convert("missing", "x.lmdb")',
    "no pack": 'packer.open_dataset("tree/class_00/0000.jpg")',
    "a pack that is there": 'packer.convert("tree", "photos.lmdb")',
    "a value that is not allowed": 'packer.convert("tree", "x.lmdb", codec="jpg")',
    "a number that is not allowed": 'packer.convert("tree", "x.lmdb", workers=0)',
    "options that do not fit together": 'packer.convert("tree", "x.lmdb", upscale=True)',
    "no such option": 'packer.convert("tree", "x.lmdb", resise=256)',
    "an option of torch": "packer.Loader(dataset, 4, num_workers=2)",
    "another type": 'packer.RandomResizedCrop("large")',
    "no such sample": "dataset[100]",
    "no such column": 'dataset.where("age > 3")',
    "images of different sizes": "next(iter(packer.Loader(dataset, 8)))",
    "a port that is not allowed": 'packer.view("photos.lmdb", port=0)',
}

BUG = """
def transform(image):
    return 1 / 0

packer.open_dataset("photos.lmdb", transform)[0]
"""


VIEW = """
import urllib.request

viewer = packer.view("photos.lmdb")
with urllib.request.urlopen(viewer.url) as page:
    print(page.headers["Content-Security-Policy"])
"""
VIEWER = [VIEW, "viewer", "viewer.close()\nviewer"]
SEEN = 'print("a browser was opened:", os.path.exists("seen"))'
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any], Path]:
    """Run the example, then mistakes, a bug and a viewer, in one kernel, which takes long to start.

    Returns
    -------
    example : notebook
    others : list of the outputs of each cell that follows
    directory : Path
        Where the example ran.
    """
    directory, other = tmp_path_factory.mktemp("example"), tmp_path_factory.mktemp("cells")
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": KERNEL}, "cells": []}
    if EXAMPLE.exists():
        notebook = json.loads(EXAMPLE.read_text("utf-8"))
        drawing = next(joined(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
        with pytest.MonkeyPatch.context() as smaller:  # photos that the example finds, and does not draw again
            smaller.chdir(directory)
            smaller.setattr(photos, "draw_imagefolder", functools.partial(draw_imagefolder, size=(75, 100)))
            exec(drawing, {})
    draw_imagefolder(other / "tree", classes=2, per_class=4, size=(48, 64))
    browser = other / "browser.py"
    browser.write_text(f"open({str(other / 'seen')!r}, 'w')")
    begin = f"import os, packer\nos.chdir({str(other)!r})\n"
    begin += '_ = packer.convert("tree", "photos.lmdb")\ndataset = packer.open_dataset("photos.lmdb")'
    count = len(notebook["cells"])
    notebook["cells"] += cells_of([begin, *MISTAKES.values(), BUG, *VIEWER, SEEN])
    done = executed(notebook, directory, BROWSER=f"{sys.executable} {browser} %s")
    example, rest = ({**done, "cells": cells} for cells in (done["cells"][:count], done["cells"][count:]))
    first, *others = outputs(rest)
    assert first == []
    return example, others, directory


@needs_example
def test_the_example_runs(run: tuple[Any, list[Any], Path]) -> None:
    example, _, directory = run
    assert_shows(example)
    assert sorted(path.name for path in directory.iterdir()) == ["cells.ipynb", "first_look"]


def test_a_mistake_is_one_readable_error_and_a_bug_keeps_its_traceback(run: tuple[Any, list[Any], Path]) -> None:
    _, cells, _ = run
    *mistakes, bug = cells[: len(MISTAKES) + 1]
    for (name, line), (error,) in zip(MISTAKES.items(), mistakes, strict=True):
        text = re.sub(r"\x1b\[[\d;]*m", "", shown(error))
        assert error["output_type"] == "error", name
        assert len(text.splitlines()) <= MOST_LINES_OF_AN_ERROR, text
        assert line in text, name
        assert "Cell In[" in text, name
        assert str(Path(packer.__file__).parent) not in text, name
    assert "image_dataset.py" in shown(bug[0])
    assert "division by zero" in shown(bug[0])


def test_a_viewer_of_a_notebook_may_be_shown_within_it_and_opens_no_browser(run: tuple[Any, list[Any], Path]) -> None:
    _, cells, _ = run
    (policy,), (shown_one,), (closed,), (seen,) = cells[len(MISTAKES) + 1 :]
    assert "frame-ancestors http://127.0.0.1:* http://localhost:*" in shown(policy)
    assert "<iframe" in joined(shown_one["data"]["text/html"])
    assert "closed" in joined(closed["data"]["text/html"])
    assert "a browser was opened: False" in shown(seen)


def write_example() -> None:
    """Run the example and write it with its output."""
    with tempfile.TemporaryDirectory() as directory:
        options = ("--ExecutePreprocessor.record_timing=False", "--ExecutePreprocessor.store_widget_state=False")
        notebook = executed(json.loads(EXAMPLE.read_text("utf-8")), Path(directory), *options)
    notebook["metadata"]["language_info"] = {"name": "python"}
    assert_shows(notebook)
    EXAMPLE.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write_example()
    sys.exit(0)
