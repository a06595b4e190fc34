"""scripts/gpu: it reports missing requirements in one line, and for every part the reason of a failure."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from tests.command import python

ROOT = Path(packer.__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gpu"

pytestmark = [
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository"),
    pytest.mark.skipif(sys.platform == "win32", reason="needs a shell"),
]
needs_no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA GPU")


def missing(*arguments: str, python: str = sys.executable, **environment: str) -> str:
    """Run the script where something is missing; return its only line, without the prefix."""
    result = subprocess.run(
        ["/bin/sh", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHON": python, **environment},
    )
    assert result.returncode == 3, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("scripts/gpu: missing: ")
    return line.removeprefix("scripts/gpu: missing: ")


@needs_no_cuda
@pytest.mark.usefixtures("_asked_in_forks")
def test_a_machine_without_a_device_is_reported(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = missing("--only", "tests", "--output", str(tmp_path))
    assert "a CUDA device" in line
    assert f"torch {torch.__version__}" in line
    for part in ([], ["--only", "kernels"], ["--only", "rates"]):
        monkeypatch.setattr(sys, "argv", ["gpu.py", *part, "--output", str(tmp_path)])
        with pytest.raises(SystemExit) as ended:
            gpu.main()
        assert ended.value.code == 3
        assert "a CUDA device" in capsys.readouterr().err


def test_a_missing_and_an_old_python_are_reported() -> None:
    assert missing(python="/nowhere/python").startswith("Python 3.10 or newer (/nowhere/python is none")
    assert missing(python="false").startswith("Python 3.10 or newer")


def test_a_python_without_torch_is_reported(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    stop = tmp_path / "site" / "torch" / "__init__.py"
    stop.parent.mkdir(parents=True)
    stop.write_text("raise ModuleNotFoundError(\"No module named 'torch'\")")
    line = missing("--output", str(tmp_path), python=str(bare), PYTHONPATH=str(tmp_path / "site"))
    assert "torch (ModuleNotFoundError: No module named 'torch')" in line


def test_a_torch_that_does_not_answer_is_reported(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine whose driver hangs."""
    stuck = tmp_path / "site" / "torch" / "__init__.py"
    stuck.parent.mkdir(parents=True)
    stuck.write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setattr(gpu, "PATIENCE", 2)
    with pytest.raises(SystemExit) as ended:
        gpu.require(["kernels"], os.environ | {"PYTHONPATH": str(tmp_path / "site")}, "cuda")
    assert ended.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("scripts/gpu: missing: ")
    assert line.endswith("torch (no answer within 2 s)")


@pytest.mark.usefixtures("_asked_in_forks")
def test_a_machine_without_a_compiler_is_reported(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PATH": str(tmp_path), "CC": ""}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        gpu.require(gpu.PARTS, dict(os.environ), "cpu")
    assert ended.value.code == 3
    reason = "a C compiler (neither cc nor gcc nor clang is there; apt install gcc)"
    assert capsys.readouterr().err == f"scripts/gpu: missing: {reason}\n"


def test_missing_and_broken_wheels_are_reported(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    wheels = ["--wheels", str(tmp_path / "wheels"), "--output", str(tmp_path)]
    assert missing(*wheels) == f"wheels ({tmp_path / 'wheels'} has none)"
    (tmp_path / "wheels" / "one-1.0-py3-none-any.whl").write_bytes(b"no archive")
    assert missing(*wheels).startswith("wheels that pip can install (ERROR: ")


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the program with an empty checkout of its own."""
    spec = importlib.util.spec_from_file_location("gpu_program", ROOT / "scripts" / "gpu.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "tests").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cuda\n")
    for name, value in {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"}.items():
        monkeypatch.setenv(name, value)  # importing all of its plug-ins takes pytest longer than the tests
    return module


@pytest.fixture
def _asked_in_forks(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a process that has imported torch."""

    def asked(code: str, environment: dict[str, str]) -> tuple[int, str, str]:
        done = python(code, environment=environment, check=False)
        return done.returncode, done.stdout, done.stderr

    monkeypatch.setattr(gpu, "asked", asked)


def part(gpu: Any, name: str, seconds: float = 60, device: str = "cpu") -> dict[str, Any]:
    """Run a part of the program, and return its results."""
    options = argparse.Namespace(device=device, photos=None)
    found: dict[str, Any] = gpu.RUN[name](dict(os.environ), gpu.ROOT, seconds, options)
    return found


MARKED = "import pytest\npytestmark = pytest.mark.cuda\n"


def test_tests_pass_fail_crash_or_do_not_end(gpu: Any) -> None:
    (gpu.ROOT / "tests" / "test_others.py").write_text("import no_such_module\n")  # needs more than the machine has
    (gpu.ROOT / "tests" / "test_none.py").write_text("TEXT = 'mark.cuda'\n")
    (gpu.ROOT / "tests" / "test_one.py").write_text(MARKED + "def test_good(): pass\n")
    assert part(gpu, "tests")["said"] == "1 passed, 0 failed, 0 skipped"
    more = {
        "bad": "def test_bad(): assert 1 == 2\ndef test_good(): pass\n",
        "crash": "import os\ndef test_crash(): os.abort()\n",
        "slow": "import time\ndef test_good(): pass\ndef test_slow(): time.sleep(60)\n",
    }
    for name, text in more.items():
        (gpu.ROOT / "tests" / f"test_{name}.py").write_text(MARKED + text)
    found = part(gpu, "tests", 10)
    assert found["passed"] == 3
    assert found["tests_failed"] == ["tests/test_bad.py::test_bad"]
    crashed, slow = found["unfinished"]
    assert crashed == "pytest ended with -6 in test_crash.py: Aborted"
    assert slow == "out of time in tests/test_slow.py::test_slow"
    assert found["failed"].startswith(
        "3 passed, 1 failed, 0 skipped (tests/test_bad.py::test_bad, pytest ended with -6"
    )
    log = (gpu.ROOT / "tests.log").read_text()
    assert "assert 1 == 2" in log
    assert "Fatal Python error: Aborted" in log
    assert "KeyboardInterrupt" in log


def test_tests_that_were_all_skipped_have_not_passed(gpu: Any) -> None:
    (gpu.ROOT / "tests" / "test_one.py").write_text(MARKED + "@pytest.mark.skip\ndef test_good(): pass\n")
    assert part(gpu, "tests")["failed"].startswith("0 passed, 0 failed, 1 skipped; all of it is in ")
    (gpu.ROOT / "tests" / "test_one.py").write_text(MARKED + "import no_such_module\n")
    reason = "pytest ended with 2 in test_one.py: ModuleNotFoundError: No module named 'no_such_module'"
    assert reason in part(gpu, "tests")["failed"]


def test_missing_failing_and_slow_kernels_are_reported(gpu: Any) -> None:
    assert part(gpu, "kernels")["failed"] == "benchmarks/kernels.py is not part of this checkout"
    program = gpu.ROOT / "benchmarks" / "kernels.py"
    results = {"batches": [{"batch": 256, "ms": {"whole": 3.14159}}], "verdict": "go on"}
    writes = "import json, sys; open(sys.argv[2], 'w').write(json.dumps({!r})); sys.exit({})"
    program.write_text(writes.format(results, 0))
    assert part(gpu, "kernels") == {"said": "3.14 ms a batch of 256: go on", "results": results}
    program.write_text(writes.format({"compared": [{"differing_batches": 1}]}, 1))
    assert part(gpu, "kernels")["failed"].startswith(
        "the results of the device differ from its twin's; all of it is in "
    )
    program.write_text(writes.format({"error": "no device"}, 1))
    assert part(gpu, "kernels")["failed"].startswith("no device; ")
    program.write_text("raise SystemExit('it broke')")
    assert part(gpu, "kernels")["failed"].startswith("ended with 1: it broke; all of it is in ")
    program.write_text("import time; time.sleep(60)")
    assert part(gpu, "kernels", 1)["failed"].startswith("out of time after 1 s")


def test_reports_of_sanitizers_fail_the_kernels(gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = {"batches": [{"batch": 256, "ms": {"whole": 2.0}}], "verdict": "go on"}
    (gpu.ROOT / "benchmarks" / "kernels.py").write_text(
        f"import json, sys\nif '--json' in sys.argv: open(sys.argv[2], 'w').write(json.dumps({results!r}))\n"
        "else: assert '--small' in sys.argv\n"
    )
    monkeypatch.setattr(gpu.shutil, "which", lambda name, path=None: None)
    said = part(gpu, "kernels", device="cuda")["said"]
    assert said.startswith("2.00 ms a batch of 256: go on; memcheck: not run, compute-sanitizer is not there; ")
    assert said.endswith("PTX of compute_80: no report")
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\n[ "$6" != racecheck ] || { echo 1 hazard; exit 9; }\nshift 6\nexec "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(gpu.shutil, "which", lambda name, path=None: str(tool))
    found = part(gpu, "kernels", device="cuda")
    assert found["checks"].pop("racecheck").startswith("ended with 9: 1 hazard; ")
    assert found["checks"] == dict.fromkeys(["PTX of compute_80", "memcheck", "synccheck"], "no report")
    assert "racecheck: ended with 9" in found["failed"]


def test_failing_rates_are_reported(gpu: Any) -> None:
    program = gpu.ROOT / "benchmarks" / "gpu.py"
    program.write_text("raise SystemExit('no photos')")
    assert part(gpu, "rates")["failed"].startswith("ended with 1: no photos; all of it is in ")
    rows = [{"module": "own", "failed": "RuntimeError: out of memory"}, {"module": "own"}]
    report = json.dumps({"rows": rows, "not_reached": ["one"], "table": "| table |"})
    program.write_text(f"import sys; open(sys.argv[sys.argv.index('--json') + 1], 'w').write({report!r})")
    found = part(gpu, "rates")
    assert found["failed"].startswith("1 rows measured, 1 not reached; RuntimeError: out of memory")
    assert found["table"] == "| table |"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_that_does_not_compile_is_reported(gpu: Any) -> None:
    (gpu.ROOT / "setup.py").write_text(
        "from setuptools import Extension, setup\nsetup(name='one', ext_modules=[Extension('one', ['one.c'])])\n"
    )
    (gpu.ROOT / "one.c").write_text("int main(void) { return none; }\n")
    said = gpu.build(dict(os.environ), gpu.ROOT)
    assert said.startswith("the C was not built: ")
    assert "none" in (gpu.ROOT / "build.log").read_text()


def test_the_report_has_the_card_the_date_and_each_part(gpu: Any, tmp_path: Path) -> None:
    parts = {"tests": {"said": "3 passed"}, "rates": {"failed": "out of time", "table": "| table |"}}
    report = {"date": "2026-01-02", "device": {"name": "NVIDIA X", "torch": "2.11"}, "parts": parts}
    gpu.write(tmp_path, report)
    assert json.loads((tmp_path / "gpu.json").read_text()) == report
    page = (tmp_path / "gpu.md").read_text()
    assert page.startswith("# packer on NVIDIA X\n\n2026-01-02, torch 2.11\n")
    assert "## tests\n\n3 passed\n" in page
    assert "## rates\n\nout of time\n\n| table |" in page
