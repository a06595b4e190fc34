"""Programs in scripts and benchmarks that no test runs can at least start: a name that has moved is found here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import packer
from tests.command import python

ROOT = Path(packer.__file__).parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "scripts").is_dir(), reason="needs the repository")

SHELL = [path for path in sorted((ROOT / "scripts").glob("*")) if path.is_file() and not path.suffix]
PROGRAMS = [
    *sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "argparse" in path.read_text("utf-8")),
    ROOT / "scripts" / "demo.py",
    ROOT / "scripts" / "gpu.py",
    ROOT / "scripts" / "wheels.py",
]

HELP = """
import contextlib, io, runpy, sys, traceback, warnings

warnings.simplefilter("ignore")
failed = []
for path in sys.argv[1:]:
    sys.argv, sys.path[:1] = [path, "--help"], [path.rpartition("/")[0]]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path, run_name="__main__")
    except SystemExit as ended:
        if ended.code == 0 and said.getvalue().startswith("usage: "):
            continue
    except BaseException:
        traceback.print_exc()
    failed.append(path)
sys.exit("no help: " + ", ".join(failed) if failed else 0)
"""


def test_every_benchmark_imports_what_it_needs_and_says_how_it_is_used() -> None:
    """All run in one process, which imports each module once."""
    done = python(HELP, *PROGRAMS, check=False)
    assert done.returncode == 0, done.stderr


def imported(text: str) -> list[str]:
    """Return a program's lines that import names from packer, also those inside functions."""
    found = re.findall(r"^ *(from packer[\w.]* import (?:\([^)]*\)|[^\n(]*))", text, re.MULTILINE)
    return [re.sub(r"#[^\n]*", "", one) for one in found]


def test_every_name_of_packer_that_programs_import_is_there() -> None:
    folders = ("benchmarks", "examples", "fuzz", "scripts", "tests/interop", "tests/native")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    lines = {line: path for path in paths for line in imported(path.read_text("utf-8"))}
    assert len(lines) > 100
    wrong = []
    for line, path in lines.items():
        try:
            exec(line, {})
        except ImportError as error:
            wrong.append(f"{path}: {error}")
    assert wrong == []


@pytest.mark.skipif(shutil.which("sh") is None, reason="needs a shell")
@pytest.mark.parametrize("path", SHELL, ids=lambda path: path.name)
def test_a_script_of_the_shell_is_one_and_names_files_that_are_there(path: Path) -> None:
    text = path.read_text("utf-8")
    subprocess.run(["bash" if "bash" in text.partition("\n")[0] else "sh", "-n", path], check=True)
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    named = re.findall(r"(?<![\w./-])(?:scripts|tests|benchmarks|packer|docs|examples)/[\w./-]*\w", code)
    results = "benchmarks/results/"  # what benchmarks write
    assert [name for name in named if not name.startswith(results) and not (ROOT / name).exists()] == []
    modules = re.findall(r"-m ((?:tests|fuzz|packer)[\w.]*)", code)
    paths = [ROOT.joinpath(*module.split(".")) for module in modules]
    assert [str(one) for one in paths if not (one.is_dir() or one.with_suffix(".py").exists())] == []


def demo_script(directory: Path, call: str, train: int) -> list[str]:
    """Return a command that draws one class of photos, `train` of them for training, also in spawned processes."""
    script = directory / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'scripts')!r})\nimport demo\n"
        f"demo.CLASSES, demo.SPLITS = 1, {{'train': {train}, 'val': 1}}\n"
        f"if __name__ == '__main__':\n    demo.{call}\n"
    )
    return [sys.executable, str(script)]


def test_two_demos_at_once_draw_the_photos_once(tmp_path: Path) -> None:
    (tmp_path / "demo" / "photos-killed" / "photos").mkdir(parents=True)
    line = demo_script(tmp_path, "draw(demo.PHOTOS)", 3)
    runs = [subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert "".join(said).count("Drawing") == 1
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["photos"]
    assert len(list((tmp_path / "demo" / "photos").glob("*/class_00/*"))) == 4


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_ends_the_demo_with_a_line_and_leaves_nothing(tmp_path: Path) -> None:
    line = demo_script(tmp_path, "main()", 100)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(line, cwd=tmp_path, start_new_session=True, **pipes) as run:  # type: ignore[call-overload]
        assert run.stdout.read(7) == "Drawing"
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate()
    assert (run.returncode, errors) == (130, "\nInterrupted.\n")
    assert list((tmp_path / "demo").iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is a signal elsewhere")
def test_ctrl_c_while_the_environment_is_made_is_a_line(tmp_path: Path) -> None:
    line = ["sh", "-c", ". scripts/setup"]
    environment = {**os.environ, "VENV": str(tmp_path / "venv"), "PYTHON": sys.executable}
    pipes = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(line, cwd=ROOT, env=environment, **pipes) as run:  # type: ignore[call-overload]
        assert run.stderr.readline().startswith("Making the environment")
        while not (tmp_path / "venv").exists() and run.poll() is None:
            time.sleep(0.01)  # before Python runs, the shell would wait for all that Python makes
        os.killpg(run.pid, signal.SIGINT)
        _, errors = run.communicate()
    assert run.returncode == 130
    assert errors.splitlines() == ["", f"Interrupted. Run the script again: it completes {tmp_path / 'venv'}."]
