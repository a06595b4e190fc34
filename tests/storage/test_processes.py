"""Processes that packer starts can import packer, however the starting process found it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

import packer
from tests.storage.remote.objects import ObjectServer, serving

pytest.importorskip("obstore", reason="needs obstore")

ROOT = Path(packer.__file__).parents[1]

FINDER = """\
import sys
from importlib.util import spec_from_file_location

class EditableFinder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, {init!r}) if name == "packer" else None

sys.meta_path.append(EditableFinder)
"""

READING = """
import json, os, sys
import packer

url = sys.argv[1]
with packer.open_pack(url, cache_dir="") as reader:  # which does not import torch
    found = {"fetched": bytes(reader.read(1))[:2].hex()}
if "upload" in sys.argv:
    from packer._storage.remote.upload import ObstoreBucket
    from packer._storage.remote.urls import RemoteSettings

    found["uploaded"] = ObstoreBucket("s3", "bucket", RemoteSettings.of()).find("nothing")
if "processes" in sys.argv:
    from packer._measuring.harness import ChildProcess

    with packer.Loader(packer.open_dataset(url, crop=packer.CenterCrop(8), cache_dir=""), 2, processes=1) as loader:
        found["loaded"] = [images.shape[0] for images, _ in loader]
    side = ChildProcess(json.JSONDecoder)
    found["measured"] = side.call("decode", "[1]")
    side.close()
print(json.dumps(found))
"""


JPEG = "ffd8"
"""The first bytes of a JPEG."""


class Way(NamedTuple):
    """How a program finds packer: options and variables of its Python, and what it does first."""

    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = MappingProxyType({})
    first: str = ""
    does: tuple[str, ...] = ("upload",)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    from packer.testing.photos import draw_imagefolder

    folder = tmp_path_factory.mktemp("pack")
    draw_imagefolder(folder / "tree", classes=1, per_class=3, size=(16, 16))
    packer.convert(folder / "tree", folder / "photos.lmdb")
    with serving({"photos.lmdb": (folder / "photos.lmdb").read_bytes()}) as made:
        yield made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with all packages that are installed here, except packer."""
    venv = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    installed = dict.fromkeys(entry for entry in sys.path if entry.endswith("-packages"))
    (packages(venv) / "packages.pth").write_text("\n".join(installed))
    return venv


@pytest.fixture(scope="module")
def editable(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment in which packer is installed as ``pip install -e`` does."""
    venv = tmp_path_factory.mktemp("editable") / "venv"
    shutil.copytree(bare, venv, symlinks=True)
    (packages(venv) / "__editable___packer_finder.py").write_text(FINDER.format(init=packer.__file__))
    (packages(venv) / "__editable__.packer.pth").write_text("import __editable___packer_finder")
    return venv


def packages(venv: Path) -> Path:
    return next(venv.rglob("site-packages"))


def ran(venv: Path, way: Way, server: ObjectServer, folder: Path) -> dict[str, object]:
    """Run `READING` in a directory without packer, and return its results."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }
    (python,) = venv.glob("*/python" + (".exe" if os.name == "nt" else ""))
    line = [python, *way.options, "-c", way.first + READING, f"{server.url}/photos.lmdb", *way.does]
    done = subprocess.run(
        line, cwd=folder, env={**variables, **way.variables}, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, object] = json.loads(done.stdout)
    return found


EDITABLE = {
    "elsewhere": Way(),
    "safe path": Way(variables={"PYTHONSAFEPATH": "1"}),
    "isolated": Way(("-I",), does=("upload", "processes")),
    "another directory on the path": Way(first="import os, sys; sys.path.insert(0, os.getcwd())\n"),
}


@pytest.mark.parametrize("way", EDITABLE.values(), ids=EDITABLE)
def test_processes_find_an_editable_installation(
    editable: Path, way: Way, server: ObjectServer, tmp_path: Path
) -> None:
    (tmp_path / "obstore").mkdir()  # an empty directory, over which the installed package takes precedence
    expected: dict[str, object] = {"fetched": JPEG, "uploaded": None}
    if "processes" in way.does:
        expected |= {"loaded": [2, 1], "measured": [1]}
    assert ran(editable, way, server, tmp_path) == expected


OTHERS = {
    "PYTHONPATH": Way(variables={"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}),
    "the program's own path": Way(("-I",), first=f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"),
    "a finder of the program": Way(("-I",), first=FINDER.format(init=packer.__file__)),
    "a directory that was left": Way(first=f"import os; os.chdir({str(ROOT)!r}); import packer; os.chdir('/')\n"),
}


@pytest.mark.parametrize("way", OTHERS.values(), ids=OTHERS)
def test_processes_find_packer_where_the_program_did(
    bare: Path, way: Way, server: ObjectServer, tmp_path: Path
) -> None:
    assert ran(bare, way, server, tmp_path) == {"fetched": JPEG, "uploaded": None}


def test_processes_find_packer_in_an_archive(bare: Path, server: ObjectServer, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "packer.zip", "w") as archive:
        for path in sorted((ROOT / "packer").rglob("*.py")):
            archive.write(path, path.relative_to(ROOT))
    way = Way(variables={"PYTHONPATH": str(tmp_path / "packer.zip"), "PYTHONWARNINGS": "ignore"})
    assert ran(bare, way, server, tmp_path) == {"fetched": JPEG, "uploaded": None}
