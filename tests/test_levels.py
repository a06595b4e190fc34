"""The levels that scripts install: shown, remembered, completed after an interruption; installed from local wheels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import packer

ROOT = Path(packer.__file__).parents[1]

pytestmark = [
    pytest.mark.skipif(not (ROOT / "scripts" / "levels.py").exists(), reason="needs the repository"),
    pytest.mark.skipif(os.name == "nt", reason="needs signals"),
]

MAIN = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("levels", {path!r})
levels = sys.modules["levels"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(levels)
levels.LEVELS = {{
    "tiny": levels.Level("one package", 1, (("tiny",),), files=("native.c",)),
    "more": levels.Level("another one", 1, (("more",), ("missing",)), below=("tiny",)),
}}
sys.exit(levels.main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def levels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("levels", ROOT / "scripts" / "levels.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["levels"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Environment:
    """An environment, and a directory with the files that levels.py reads, and with wheels of the packages."""

    def __init__(self, root: Path) -> None:
        self.root, self.wheels = root, root / "wheels"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / "venv")], check=True)
        (self.packages,) = (root / "venv").glob("lib/*/site-packages")
        pip = importlib.metadata.distribution("pip")
        for name in {file.parts[0] for file in pip.files or () if file.parts[0] != ".."}:
            (self.packages / name).symlink_to(pip.locate_file(name))
        (root / "scripts").mkdir()
        (root / "scripts" / "constraints.txt").write_text("tiny==1.0\n")
        (root / "pyproject.toml").write_text("")

    def reset(self) -> None:
        """Remove all that a test installed, and write the wheels."""
        for pattern in ("tiny*", "more*", "missing*", "~*"):
            for path in self.packages.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in (self.root / "venv").glob("levels.*"):
            path.unlink()
        shutil.rmtree(self.wheels, ignore_errors=True)
        self.wheels.mkdir()
        (self.root / "native.c").write_text("")
        for version in ("1.0", "2.0"):
            self.add("tiny", version)

    def add(self, name: str, version: str) -> None:
        """Write a wheel with one module."""
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as file:
            file.writestr(f"{name}.py", f"version = {version!r}\n")
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", "")

    def start(self, *names: str, **more: str) -> subprocess.Popen[str]:
        """Start to install levels, with more variables."""
        told = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "PYTHON"))}
        told |= {"INSTALLER": "pip", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels), **more}
        line = [str(self.root / "venv/bin/python"), "-c", MAIN.format(path=str(ROOT / "scripts" / "levels.py")), *names]
        return subprocess.Popen(line, cwd=self.root, env=told, stderr=subprocess.PIPE, text=True)

    def install(self, *names: str, **more: str) -> tuple[int, str]:
        """Install levels; return the status and what was printed."""
        started = self.start(*names, **more)
        _, printed = started.communicate(timeout=120)
        return started.returncode, printed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("levels"))


@pytest.fixture
def environment(made: Environment) -> Environment:
    made.reset()
    return made


def test_a_level_is_shown_pinned_and_remembered(environment: Environment) -> None:
    status, printed = environment.install("tiny")
    assert status == 0, printed
    assert "tiny: one package" in printed
    assert "installed: tiny" in printed
    assert re.search(r"^venv has \d+ packages, \d+ MB; this took \d+ s\.$", printed, re.MULTILINE)
    assert (environment.packages / "tiny.py").read_text() == "version = '1.0'\n"
    assert environment.install("tiny") == (0, "")
    (environment.root / "native.c").write_text("changed")
    status, printed = environment.install("tiny")
    assert status == 0
    assert "tiny: one package" in printed


def test_what_is_complete_stays_so_when_a_level_above_it_fails(environment: Environment) -> None:
    environment.add("more", "1.0")
    status, printed = environment.install("more")
    assert status == 1
    assert "No matching distribution found for missing" in printed
    assert "All that was printed is in venv/levels.log" in printed
    environment.add("missing", "1.0")
    status, printed = environment.install("more")
    assert status == 0, printed
    assert "tiny: one package" not in printed
    assert "installed: missing" in printed


def test_a_package_whose_installation_was_interrupted_is_installed_again(environment: Environment) -> None:
    assert environment.install("tiny")[0] == 0
    (environment.packages / "tiny-1.0.dist-info" / "INSTALLER").unlink()
    (environment.packages / "tiny.py").write_text("vers")
    (environment.packages / "~iny").mkdir()
    (environment.root / "native.c").write_text("changed")
    status, printed = environment.install("tiny")
    assert status == 0, printed
    assert (environment.packages / "tiny.py").read_text() == "version = '1.0'\n"
    assert not (environment.packages / "~iny").exists()


def test_pip_goes_on_where_uv_stops(environment: Environment) -> None:
    programs = environment.root / "programs"
    programs.mkdir()
    (programs / "uv").write_text("#!/bin/sh\necho Resolving ...\necho error: certificate expired\nexit 2\n")
    (programs / "uv").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    status, printed = environment.install("tiny", INSTALLER="", PATH=path)
    assert status == 0, printed
    assert "uv stopped, and pip goes on: error: certificate expired" in printed
    assert (environment.packages / "tiny.py").exists()


def test_two_runs_do_not_install_at_the_same_time_and_a_run_can_be_stopped(environment: Environment) -> None:
    import fcntl

    with open(environment.root / "venv" / "levels.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started = environment.start("tiny")
        assert started.stderr is not None
        assert started.stderr.readline().startswith("Another run installs into venv; waiting")
        started.send_signal(signal.SIGTERM)
        assert "Interrupted. Run the script again: it completes venv." in started.communicate(timeout=60)[1]
        assert started.returncode == 130
        waiting = environment.start("tiny")
        assert waiting.stderr is not None
        waiting.stderr.readline()
        assert not (environment.packages / "tiny.py").exists()
    waiting.communicate(timeout=120)
    assert waiting.returncode == 0
    assert (environment.packages / "tiny.py").exists()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="needs pgrep")
def test_the_installer_ends_with_the_script_that_asked_for_it(environment: Environment) -> None:
    """The package is a source archive whose build does not end."""
    source = environment.wheels / "tiny-1.0"
    source.mkdir()
    for wheel in environment.wheels.glob("*.whl"):
        wheel.unlink()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n'
    )
    (source / "slow.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    subprocess.run(["tar", "czf", "tiny-1.0.tar.gz", "tiny-1.0"], cwd=environment.wheels, check=True)
    started = environment.start("tiny")
    deadline = time.monotonic() + 60
    log = environment.root / "venv" / "levels.log"
    while not (log.exists() and "tiny" in log.read_text().partition("\n")[2]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    assert "Interrupted" in started.communicate(timeout=60)[1]
    found = subprocess.run(["pgrep", "-f", str(environment.root)], capture_output=True, text=True, check=False).stdout
    assert found == ""


def test_an_extra_is_what_the_metadata_say_of_it(levels: ModuleType) -> None:
    try:
        stated = [Requirement(line) for line in importlib.metadata.requires(levels.PROJECT) or []]
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("needs an installed packer")
    for extra in ("test", "docs"):
        wanted = {
            one.name
            for one in stated
            if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""})
        }
        found = [Requirement(line) for line in levels.expanded(f"extra:{extra}")]
        assert {one.name for one in found if one.marker is None or one.marker.evaluate()} == wanted
    assert levels.expanded("torch") == ["torch"]


def test_levels_below_come_first_and_torch_is_pinned(levels: ModuleType) -> None:
    assert levels.ordered(["interop", "docs"]) == ["demo", "test", "interop", "docs"]
    assert levels.LEVELS["demo"].steps[0][0] == "torch"
    assert re.search(r"^torch==", (ROOT / levels.CONSTRAINTS).read_text(), re.MULTILINE)


def test_uv_is_told_what_pip_is_configured_with(levels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/one /two")
    told = levels.settings_for_uv()
    assert (told["UV_DEFAULT_INDEX"], told["UV_FIND_LINKS"]) == ("https://mirror.example/simple", "/one,/two")
    assert told["UV_CONSTRAINT"].startswith(levels.CONSTRAINTS)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://another.example/simple")
    assert "UV_DEFAULT_INDEX" not in levels.settings_for_uv()


def test_every_script_that_sets_up_an_environment_names_its_levels(levels: ModuleType) -> None:
    paths = [ROOT / ".ci" / "run", *(path for path in (ROOT / "scripts").iterdir() if path.is_file())]
    named = {}
    for path in paths:
        lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
        for line in lines:
            if ". scripts/setup" in line:
                found = re.search(r"""\blevels=(?:"([\w ]+)"|(\w+)) \. scripts/setup""", line)
                assert found is not None, f"{path}: {line}"
                named[path.name] = set((found[1] or found[2]).split())
    assert set().union(*named.values()) <= set(levels.LEVELS)
    assert (named["demo"], named["test"]) == ({"demo"}, {"test"})
