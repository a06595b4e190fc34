"""What is imported when: the layers of the package, and the cost of its first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import packer
from packer.convert import convert
from packer.sources import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.packs import SUFFIXES

ROOT = Path(packer.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def imported_after(code: str) -> set[str]:
    """Return the top-level modules that a process of its own has after running `code`."""
    code += "\nimport sys; print(sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(result.stderr))


def command(*arguments: str) -> str:
    return (
        f"import sys; sys.argv = ['packer', *{arguments!r}]\n"
        "from packer.cli import main\ntry:\n    main()\nexcept SystemExit as exit:\n    assert not exit.code"
    )


def test_importing_costs_next_to_nothing() -> None:
    line = [sys.executable, "-X", "importtime", "-c", "import packer"]
    output = subprocess.run(line, capture_output=True, text=True, check=True).stderr
    imported = {entry.rpartition("|")[2].strip().partition(".")[0] for entry in output.splitlines()}
    assert "packer" in imported
    assert not imported & {"torch", "cv2", "numpy", "PIL", "h5py", "click", "tqdm"}


def test_every_public_name_is_there() -> None:
    for name in packer.__all__:
        assert getattr(packer, name) is not None
    assert dir(packer) == sorted(packer.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = packer.nothing
    code = "from packer import *; import packer; assert set(packer.__all__) <= set(dir()), dir()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["--version"]])
def test_help_needs_no_heavy_library(arguments: list[str]) -> None:
    assert not imported_after(command(*arguments)) & {"torch", "cv2", "numpy", "h5py", "PIL", "tqdm"}


def test_looking_at_packs_needs_no_torch(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    for format, suffix in SUFFIXES.items():
        path = tmp_path / f"pack{suffix}"
        convert(imagefolder_source(tmp_path / "tree"), path)
        for arguments in (["info", str(path)], ["verify", str(path)]):
            needed = imported_after(command(*arguments))
            assert not needed & {"torch", "cv2", "simplejpeg"}, (format, arguments)
            assert ("h5py" in needed) == (format == "hdf5")


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_keeping_files_needs_no_decoder_and_no_torch(tmp_path: Path, suffix: str) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    convert_keep = command("convert", "--quiet", str(tmp_path / "tree"), str(tmp_path / f"keep{suffix}"))
    assert not imported_after(convert_keep) & {"torch", "cv2", "simplejpeg", "tqdm", "numba"}


def imports(path: Path, module: str) -> Iterator[tuple[str, bool]]:
    """Yield what a module imports anywhere in it, and whether only type checkers see it."""
    tree = ast.parse(path.read_text("utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports within the package are absolute"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in typing_only


def importers(*wanted: str) -> set[str]:
    """Return the modules that import one of `wanted`, or something below it, when they run."""
    return {
        module
        for module, path in MODULES.items()
        for name, typing_only in imports(path, module)
        if not typing_only and any(name == prefix or name.startswith(f"{prefix}.") for prefix in wanted)
    }


def below(*packages: str) -> set[str]:
    return {
        module
        for module in MODULES
        if any(module == package or module.startswith(f"{package}.") for package in packages)
    }


def test_formats_and_images_do_not_know_each_other() -> None:
    assert not importers("packer.images") & below("packer.formats")
    assert not importers("packer.formats") & below("packer.images")


def test_dependencies_point_downwards() -> None:
    layers = [
        {"packer.errors", "packer.sample", "packer.names"},
        below("packer.formats", "packer.images", "packer.sources"),
        {
            "packer.prepare",
            "packer.repack",
            "packer.provenance",
            "packer.executors",
            "packer.unfinished",
            "packer.partial",
            "packer.ledger",
            "packer.checkpoints",
            "packer.room",
            "packer.pipeline",
            "packer.convert",
        }
        | {
            "packer.parts",
            "packer.making",
            "packer.jobfile",
            "packer.finish",
            "packer.cluster",
            "packer.scheduler",
            "packer.interrupts",
            "packer.verify",
            "packer.digest",
            "packer.export",
            "packer.datasets",
        }
        | {"packer.listing", "packer.repair", "packer.tree"},
        below("packer.cli"),
    ]
    for number, layer in enumerate(layers):
        for above in layers[number + 1 :]:
            assert not importers(*above) & layer
    assert not importers(*below("packer.formats", "packer.images", "packer.sources")) & layers[0]
    assert not importers("packer.testing") - below("packer.testing")


TENSORS = {"packer.images.resize", "packer.images.region"}
TENSORS |= {"packer.datasets", "packer.loader", "packer.prefetch", "packer.samplers", "packer.slots"}
TENSORS |= {"packer.workers", "packer.processes", "packer.serving"}


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("click", below("packer.cli")),
        ("tqdm", below("packer.cli")),
        ("torch", TENSORS | below("packer.testing")),
        ("torchvision", below("packer.testing")),
        ("cv2", {"packer.images.opencv", "packer.images.region"} | below("packer.testing")),
        ("simplejpeg", {"packer.images.turbojpeg"} | below("packer.testing")),
        ("h5py", {"packer.formats.hdf5"} | below("packer.testing")),
        ("lmdb", below("packer.testing")),
        ("numba", {"packer.images.huffman"}),
        ("packer.images._native", {"packer.images.compiled"}),
        ("packer.images.huffman", {"packer.images.transcode"}),
        ("logging", set()),
    ],
)
def test_where_a_library_is_imported(library: str, allowed: set[str]) -> None:
    assert importers(library) <= allowed


def test_no_format_needs_torch_to_be_read(tmp_path: Path) -> None:
    """Rows of the table of formats name modules that import without torch."""
    code = "from packer.formats import FORMATS\nfor row in FORMATS.values(): row.open_reader(), row.open_writer()"
    assert "torch" not in imported_after(code)
    assert len(MODULES) > 20
