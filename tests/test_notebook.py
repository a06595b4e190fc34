"""Notebooks: the example runs as it is committed, and a mistake in a cell ends in one readable error.

``python -m tests.test_notebook`` runs the example and writes its output anew.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.testing.photos import draw_imagefolder

ROOT = Path(packer.__file__).parents[1]
EXAMPLE = ROOT / "examples" / "first_look.ipynb"
MOST_LINES = 40  # of an output
MOST_LINES_OF_AN_ERROR = 15
MOST_BYTES = 500_000

needs_example = pytest.mark.skipif(not EXAMPLE.exists(), reason="needs the repository's examples")

Cell = dict[str, Any]


def executed(notebook: Any, directory: Path, *, allow_errors: bool = False) -> Any:
    """Run the cells of a notebook by nbconvert's executor, in a kernel of this Python, and return the notebook."""
    nbclient = pytest.importorskip("nbclient", reason="notebooks are run by nbclient: pip install nbconvert ipykernel")
    pytest.importorskip("ipykernel", reason="notebooks are run in a kernel: pip install nbconvert ipykernel")
    client = nbclient.NotebookClient(
        notebook,
        timeout=200,
        kernel_name="python3",
        allow_errors=allow_errors,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    return notebook


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


def assert_shows(notebook: Any) -> None:
    """Require bars, tables, pictures and the viewer; no wall of text, no path of this machine."""
    drawn, convert, info, verify, view, dataset, item, crop, loader, rate, mistake = outputs(notebook)
    assert drawn == []
    for with_bar in (convert, verify):
        assert any("120/120" in shown(output) and "|" in shown(output) for output in with_bar)
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


@needs_example
@pytest.mark.filterwarnings("ignore")
def test_the_example_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks are read by nbformat: pip install nbconvert ipykernel")
    assert_shows(executed(nbformat.read(EXAMPLE, as_version=4), tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first_look"]


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


@pytest.mark.filterwarnings("ignore")
def test_a_mistake_is_one_readable_error_and_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="notebooks are made by nbformat: pip install nbconvert ipykernel")
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=4, size=(48, 64))
    begin = 'import packer\npacker.convert("tree", "photos.lmdb")\ndataset = packer.open_dataset("photos.lmdb")'
    cells = [nbformat.v4.new_code_cell(source) for source in (begin, *MISTAKES.values(), BUG)]
    notebook = executed(nbformat.v4.new_notebook(cells=cells), tmp_path, allow_errors=True)
    first, *mistakes, bug = outputs(notebook)
    assert first == []
    for (name, line), (error,) in zip(MISTAKES.items(), mistakes, strict=True):
        text = re.sub(r"\x1b\[[\d;]*m", "", shown(error))
        assert error["output_type"] == "error", name
        assert len(text.splitlines()) <= MOST_LINES_OF_AN_ERROR, text
        assert line in text, name
        assert "Cell In[" in text, name
        assert str(Path(packer.__file__).parent) not in text, name
    assert "image_dataset.py" in shown(bug[0])
    assert "division by zero" in shown(bug[0])


def write_example() -> None:
    """Run the example and write it with its output."""
    import nbformat

    with tempfile.TemporaryDirectory() as directory:
        notebook = executed(nbformat.read(EXAMPLE, as_version=4), Path(directory))
    notebook.metadata["language_info"] = {"name": "python"}
    assert_shows(notebook)
    nbformat.write(notebook, EXAMPLE)


if __name__ == "__main__":
    write_example()
    sys.exit(0)
