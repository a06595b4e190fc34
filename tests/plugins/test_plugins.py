"""Containers and formats of other packages: the package of docs/extending.md, copied from there, and broken ones."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import packer
from fuzz.containerseeds import SEEDS
from packer._containers import CONTAINERS
from packer._containers.contract import head_of
from packer._containers.discovery import names_to_recognise
from packer._formats import open_pack
from packer.errors import MissingDependencyError
from packer.plugins import CONTAINER_GROUP, ContainerDescriptor, Format, PluginDescriptor, Registry
from packer.testing.conformance import ContainerConformance
from packer.testing.photos import draw_imagefolder
from tests import command
from tests.containers.records import image_record, rec
from tests.containers.test_datadings import packed
from tests.elsewhere import python_with

ROOT = Path(packer.__file__).parents[1]
PAGE = ROOT / "docs" / "extending.md"
TOY = {
    "packer.containers": {"toy": "toypack.descriptors:CONTAINER"},
    "packer.formats": {"toys": "toypack.descriptors:FORMAT"},
}


def install(site: Path, entries: dict[str, dict[str, str]], name: str = "toypack") -> None:
    """Write the metadata that an installer writes for a package with entry points."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [line for group, of in entries.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in of.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a directory of packages that has the package of the page, with its tests and entry points."""
    site = tmp_path / "site"
    (site / "toypack").mkdir(parents=True)
    (site / "toypack" / "__init__.py").touch()
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        (site / name).write_text(code)
    said = re.findall(r'\[project\.entry-points\."(\S+)"\]\n(\w+) = "(\S+)"', PAGE.read_text("utf-8"))
    assert {group: {name: value} for group, name, value in said} == TOY
    install(site, TOY)
    return site


def python(site: Path | None, *arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process that can import the packages of a directory."""
    paths = [*([] if site is None else [str(site)]), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def packer_of(site: Path | None, *arguments: str | os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    return python(site, "-m", "packer", *arguments)


def packer_of_many(site: Path, commands: Sequence[Sequence[object]]) -> list[tuple[int, str, str]]:
    """Run several commands in one process; return the status, the output and the errors of each."""
    code = "import json; from tests.commandserver import run_many; run_many(json.loads(sys.argv[1]))"
    lines = [[str(argument) for argument in arguments] for arguments in commands]
    return [json.loads(line) for line in python_with(site, code, json.dumps(lines)).stdout.splitlines()]


@pytest.fixture
def toy(site: Path, tmp_path: Path) -> Path:
    """A file of the container, with three samples."""
    draw_imagefolder(tmp_path / "tree", classes=3, per_class=1, size=(16, 24))
    images = [str(path) for path in sorted((tmp_path / "tree").rglob("*.jpg"))]
    code = (
        "import sys; from pathlib import Path; from toypack.container import MAGIC, RECORD\n"
        "images = [Path(name).read_bytes() for name in sys.argv[2:]]\n"
        "records = (RECORD.pack(label, len(image)) + image for label, image in enumerate(images))\n"
        "Path(sys.argv[1]).write_bytes(MAGIC + b''.join(records))"
    )
    python_with(site, code, tmp_path / "drawings.toy", *images)
    return tmp_path / "drawings.toy"


def test_the_package_of_the_page_reads_and_writes(site: Path, toy: Path, tmp_path: Path) -> None:
    index, converted, written = (tmp_path / name for name in ("made.index", "made.lmdb", "made.toys"))
    commands = [["index", toy, index], ["convert", toy, converted], ["convert", toy, written], ["verify", written]]
    *results, (_, said, _) = packer_of_many(site, [*commands, ["info", "--json", written]])
    assert [status for status, *_ in results] == [0] * len(commands), results
    assert (written / "00000.toy").read_bytes() == toy.read_bytes()
    assert json.loads(said)["format"] == "toys"
    for path in (index, converted):  # readable without the plug-in
        assert len(packer.open_dataset(path)) == 3
    assert packer.info(converted).source["kind"] == "toy"


def test_help_lists_what_packages_give(site: Path) -> None:
    commands = [["convert", "--help"], ["index", "--help"]]
    for arguments, (_, said, _) in zip(commands, packer_of_many(site, commands), strict=True):
        shown = " ".join(said.split())
        assert "toy (.toy) read by toypack 1.0: labels and images one after the other" in shown, arguments
        assert "toypack" not in command.packer(*arguments).stdout


def test_the_package_of_the_page_conforms(site: Path) -> None:
    code = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    words = ["-q", "-p", "no:cacheprovider", "--noconftest", site / "test_toypack.py"]
    result = python_with(site, code, *words, check=False)
    assert result.returncode == 0, result.stdout[-4000:]
    passed = re.search(r"([0-9]+) passed", result.stdout)
    assert passed is not None
    assert int(passed[1]) > 60


BROKEN = {
    "absent": "no_such_module:CONTAINER",
    "nothing": "toypack.descriptors:NOTHING",
    "number": "toypack.container:RECORD",
    "renamed": "toypack.descriptors:CONTAINER",
    "zip": "toypack.descriptors:CONTAINER",
}


def test_broken_packages_warn_and_break_nothing_else(site: Path, toy: Path, tmp_path: Path) -> None:
    install(site, {"packer.containers": BROKEN, "packer.formats": {"toys": "no_such_module:FORMAT"}}, "brokenpack")
    code = (
        "import sys, warnings, packer\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    packer.convert(sys.argv[1], sys.argv[2])\n"
        "    packer.convert(sys.argv[3], sys.argv[4])\n"
        "print(*(str(one.message) for one in caught), sep='\\n')"
    )
    paths = toy, tmp_path / "made.lmdb", tmp_path / "tree", tmp_path / "tree.lmdb"
    result = python(site, "-c", code, *paths)
    assert result.returncode == 0, result.stderr
    broken = [f"{name!r} (packer.containers)" for name in BROKEN] + ["'toys' (packer.formats)"]
    for which in broken:
        assert result.stdout.count(f"the plug-in {which} of brokenpack 1.0") == 1, result.stdout
    assert len(packer.open_dataset(tmp_path / "made.lmdb")) == len(packer.open_dataset(tmp_path / "tree.lmdb")) == 3


def test_a_class_that_cannot_be_imported_is_refused_by_name(site: Path, toy: Path, tmp_path: Path) -> None:
    (site / "toypack" / "container.py").write_text("import no_such_library\n")
    commands = [["convert", toy, tmp_path / "made.lmdb"], ["convert", tmp_path / "tree", tmp_path / "tree.lmdb"]]
    (refused, _, errors), (converted, _, _) = packer_of_many(site, commands)
    assert refused != 0
    assert "the container toy (of toypack 1.0) cannot be imported" in errors
    assert "no_such_library" in errors
    assert converted == 0


def test_a_container_that_fails_at_recognising_is_passed_over(site: Path, toy: Path, tmp_path: Path) -> None:
    code = (site / "toypack" / "container.py").read_text()
    (site / "toypack" / "container.py").write_text(code.replace("return head.startswith(MAGIC)", "return head.nothing"))
    result = packer_of(site, "convert", toy, tmp_path / "made.lmdb")
    assert result.returncode != 0
    assert "the plug-in toy (toypack 1.0) failed while recognising files: AttributeError" in result.stderr


def test_packs_whose_package_is_missing_are_refused_by_the_name_of_the_format(
    site: Path, toy: Path, tmp_path: Path
) -> None:
    assert packer_of(site, "convert", toy, tmp_path / "made.toys").returncode == 0
    (tmp_path / "made.strange").write_bytes(b"packer:strange\nand what follows")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(
        (tmp_path / "made.toys" / ".packer.index" / "manifest.json").read_bytes()
    )
    for name, format in (("made.toys", "toys"), ("made.strange", "strange"), ("other", "toys")):
        with pytest.raises(MissingDependencyError, match=rf"{name}: is a pack of the plug-in '{format}', which no"):
            open_pack(tmp_path / name)


def test_a_format_that_cannot_be_loaded_is_named_with_the_reason(site: Path, toy: Path, tmp_path: Path) -> None:
    assert packer_of(site, "convert", toy, tmp_path / "made.toys").returncode == 0
    (site / "toypack" / "descriptors.py").write_text("raise RuntimeError('too old')\n")
    result = packer_of(site, "info", tmp_path / "made.toys")
    assert result.returncode != 0
    assert "the plug-in 'toys', which cannot be used: toypack 1.0: toypack.descriptors:FORMAT: too old" in result.stderr


@pytest.mark.parametrize(("suffix", "kind"), [(".toyzip", "toy"), (".zip", "zip")])
def test_a_suffix_of_its_own_comes_before_the_containers_of_packer(
    site: Path, tmp_path: Path, suffix: str, kind: str
) -> None:
    for name, old, new in (
        ("descriptors", '(".toy",)', '(".toyzip", ".zip")'),
        ("container", "return head.startswith(MAGIC)", "return True"),
    ):
        path = site / "toypack" / f"{name}.py"
        path.write_text(path.read_text().replace(old, new))
    (tmp_path / f"some{suffix}").write_bytes(b"PK\3\4 and more")
    code = (
        "import sys; from pathlib import Path; from packer._containers import find_container\n"
        "print(find_container([Path(sys.argv[1])])[0].kind)"
    )
    assert python(site, "-c", code, tmp_path / f"some{suffix}").stdout.split() == [kind]


def test_an_image_folder_imports_no_container_and_no_other_source(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=1, size=(16, 16))
    code = (
        "import sys, packer; packer.convert(sys.argv[1], sys.argv[2])\n"
        "from packer._containers import CONTAINERS\n"
        "targets = {row.target.partition(':')[0] for row in CONTAINERS.own.values()}\n"
        "assert len(targets) > 15\n"
        "others = 'container', 'metadata', 'coco', 'voc', 'yolo', 'index'\n"
        "targets |= {f'packer._sources.{name}' for name in others}\n"
        "print(sorted(targets & set(sys.modules)))"
    )
    result = python(None, "-c", code, tmp_path / "tree", tmp_path / "made.lmdb")
    assert result.stdout.split() == ["[]"], result


def test_descriptors_agree_with_their_classes() -> None:
    for name, row in CONTAINERS.own.items():
        kind = row.container()
        assert name in {kind.kind, "pyarrow lmdb"}, name  # the name of pickled ones in older manifests
        assert set(kind.suffixes) <= set(row.suffixes), name
        assert row.help


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_descriptor_fits_whatever_its_class_recognises(seeds: str, tmp_path: Path) -> None:
    recognised = 0
    for seed in SEEDS[seeds](tmp_path):
        for path in [seed.target, *(path for path in seed.directory.rglob("*"))]:
            for row in CONTAINERS.own.values():
                if path.is_dir():
                    names = names_to_recognise(path)
                    found = bool(row.container().recognise_directory(path, names))
                    fits = row.fits_name("\n".join(names)) or row.fits_below(path, names)
                else:
                    head = head_of(path)
                    found, fits = row.container().recognise_file(path, head), row.fits_file(path, head)
                assert fits or not found, (path, row.name)
                recognised += found
    assert recognised


class TestRecordIO(ContainerConformance):
    container = "recordio"

    def write(self, path: Path, samples: Sequence[tuple[int, bytes]]) -> None:
        path.write_bytes(b"".join(rec(image_record(image, label)) for label, image in samples))


class TestDatadings(ContainerConformance):
    container = "datadings"

    def write(self, path: Path, samples: Sequence[tuple[int, bytes]]) -> None:
        rows = ({"key": f"{n}.jpg", "image": image, "label": label} for n, (label, image) in enumerate(samples))
        path.write_bytes(b"".join(map(packed, rows)))


def test_threads_that_ask_at_once_load_the_plug_ins_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {CONTAINER_GROUP: {"slow": "slowpack:CONTAINER"}}, "slowpack")
    (tmp_path / "slowpack.py").write_text("import time\ntime.sleep(0.2)\n")  # and no descriptor
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry(CONTAINER_GROUP, ContainerDescriptor, ())
    ready = threading.Barrier(2, timeout=60)

    def plugins(_: int) -> dict[str, ContainerDescriptor]:
        ready.wait()
        return registry.plugins

    with pytest.warns(UserWarning, match="'slow'") as warned, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(plugins, range(2))
    assert first is second
    assert len(warned) == 1


@pytest.mark.parametrize("target", ["no_such_package:Reader", "packer.plugins:NoSuchReader"])
@pytest.mark.parametrize("descriptor", [ContainerDescriptor, Format])
def test_a_class_that_cannot_be_imported_is_an_error_with_the_remedy(
    descriptor: type[PluginDescriptor], target: str
) -> None:
    missing = descriptor("toy", (".toy",), needs="toylib (pip install toylib)")
    with pytest.raises(MissingDependencyError, match=rf"^the {missing.what} toy needs toylib \(pip install toylib\): "):
        missing.load(target)


def test_every_descriptor_has_a_noun_for_messages() -> None:
    assert {descriptor.what for descriptor in PluginDescriptor.__subclasses__()} == {"container", "format"}
