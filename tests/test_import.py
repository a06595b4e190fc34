"""What is imported when: the layers of the package, and the cost of its first use."""

from __future__ import annotations

import ast
import functools
import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import packer
from packer._conversion.convert import convert
from packer._images import native
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.cocoset import draw_coco
from tests.command import python
from tests.samples import SUFFIXES
from tests.syntax import parsed

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
        "from packer._cli import main\ntry:\n    main()\nexcept SystemExit as exit:\n    assert not exit.code"
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
    python(code)


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"], ["--version"]])
def test_help_needs_no_heavy_library(arguments: list[str]) -> None:
    assert not imported_after(command(*arguments)) & {"torch", "cv2", "numpy", "h5py", "PIL", "tqdm"}


def test_looking_at_packs_needs_no_torch(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    lines: dict[bool, list[str]] = {False: [], True: []}
    for format, suffix in SUFFIXES.items():
        path = tmp_path / f"pack{suffix}"
        convert(imagefolder_source(tmp_path / "tree"), path)
        lines[format == "hdf5"] += [command(word, str(path)) for word in ("info", "verify")]
    for is_hdf5, commands in lines.items():
        needed = imported_after("\n".join(commands))
        assert not needed & {"torch", "cv2", "simplejpeg"}
        assert ("h5py" in needed) == is_hdf5


def test_reading_images_loads_no_library_that_they_do_not_need(tmp_path: Path) -> None:
    """Nor does arithmetic on rectangles, which comes first, load Pillow."""
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    paths = [tmp_path / f"pack{suffix}" for suffix in (".lmdb", ".pth")]
    for path in paths:
        convert(imagefolder_source(tmp_path / "tree"), path)
    code = (
        "import sys, packer, packer._images.geometry, packer.crops\nassert 'PIL' not in sys.modules\n"
        f"for path in {[*map(str, paths)]!r}:\n"
        "    dataset = packer.open_dataset(path, crop=packer.RandomResizedCrop(8))\n"
        "    [*packer.Loader(dataset, 2), dataset[0]]"
    )
    assert not imported_after(code) & {"h5py", "cv2", "torchvision", "click"}


def test_the_hook_of_a_training_imports_nothing_that_the_training_imports() -> None:
    assert not imported_after("import packer._measuring.train_hook") & {"torch", "numpy", "PIL"}


@pytest.mark.parametrize("name", ["fetcher", "obstore"])
def test_the_processes_that_run_obstore_start_without_numpy(name: str) -> None:
    assert "numpy" not in imported_after(f"import packer._storage.remote.{name}")


def test_keeping_files_needs_no_decoder_and_no_torch(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    packs = [str(tmp_path / f"keep{suffix}") for suffix in SUFFIXES.values()]
    commands = [command("convert", "--quiet", str(tmp_path / "tree"), pack) for pack in packs]
    assert not imported_after("\n".join(commands)) & {"torch", "cv2", "simplejpeg", "tqdm"}


@pytest.mark.skipif(not native.PREFERRED, reason="without packer's own decoder, torch resizes")
def test_resizing_loads_no_torch_and_records_its_version(tmp_path: Path) -> None:
    draw_imagefolder(tmp_path / "tree", classes=2, per_class=2, size=(16, 16))
    words = ("convert", "--quiet", "--resize", "8", str(tmp_path / "tree"), str(tmp_path / "small.lmdb"))
    assert "torch" not in imported_after(command(*words))
    assert packer.info(tmp_path / "small.lmdb").versions["torch"] == importlib.import_module("torch").__version__


@pytest.mark.skipif(not native.PREFERRED, reason="without packer's own decoder, torch resizes")
def test_boxes_that_are_resized_with_their_images_load_no_torch(tmp_path: Path) -> None:
    files = draw_coco(tmp_path, 8)
    words = ("convert", "--quiet", "--resize", "16", "--coco", str(files["people"]), str(tmp_path / "images"))
    assert "torch" not in imported_after(command(*words, str(tmp_path / "small.lmdb")))
    with packer.open_pack(tmp_path / "small.lmdb") as reader:
        assert {"boxes", "keypoints", "segmentation"} <= reader.fields.keys()


class Content(NamedTuple):
    """The facts about a module that the tests compare."""

    imports: list[tuple[str, bool]]
    """Each import in the module, and whether only type checkers see it."""
    classes: list[str]
    lines: list[tuple[str, int]]
    """Its functions, and how many lines each has."""


@functools.cache
def contents() -> dict[str, Content]:
    """Return the content of each module. The trees are dropped: later garbage collections would go through them."""
    return {module: _content(parsed(path), module) for module, path in MODULES.items()}


def _content(tree: ast.Module, module: str) -> Content:
    nodes = list(statements(tree))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return Content(
        list(_imports(nodes, module)),
        [node.name for node in nodes if isinstance(node, ast.ClassDef)],
        [(function.name, lines_of_body(function)) for function in functions],
    )


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node; expressions, which are most nodes, have none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, name, None)
        for statement in inner if isinstance(inner, list) else ():
            yield statement
            yield from statements(statement)


def _imports(nodes: Sequence[ast.AST], module: str) -> Iterator[tuple[str, bool]]:
    typing_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in statements(node)
    }
    for node in nodes:
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
        for module, content in contents().items()
        for name, typing_only in content.imports
        if not typing_only and any(name == prefix or name.startswith(f"{prefix}.") for prefix in wanted)
    }


def below(*packages: str) -> set[str]:
    return {
        module
        for module in MODULES
        if any(module == package or module.startswith(f"{package}.") for package in packages)
    }


FLOORS = [
    ["_version", "errors"],
    ["_display", "plugins"],
    ["_codecs", "_fields"],
    ["_table"],
    ["_account"],
    ["_manifest"],
    ["_storage"],
    ["_containers"],
    ["_formats", "_images"],
    ["contrib"],
    ["_sources", "crops", "samplers"],
    ["augment"],
    ["_conversion", "_datasets"],
    ["_loader"],
    ["_packs"],
    ["_measuring", "_viewing"],
    ["_cli", "testing"],
]
"""The rooms of the package, the lowest first. A room imports only rooms on lower floors."""


def room(module: str) -> str:
    """Return the top-level module or folder that a module lies in."""
    return module.split(".")[1]


def test_rooms_know_lower_rooms_only() -> None:
    floor_of = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    faces = {"packer", "packer.__main__"}
    assert {room(module) for module in MODULES if module not in faces} == set(floor_of)
    for module in set(MODULES) - faces:
        for name, typing_only in contents()[module].imports:
            if not typing_only and name.startswith("packer.") and name != "packer.__version__":
                here, there = room(module), room(name)
                assert here == there or floor_of[there] < floor_of[here], f"{module}: {name}"


OTHERS = {"_asdict", "_exit", "_fields", "_getframe", "_new_shared", "_replace", "_sample_dirichlet", "_standard_gamma"}
"""Names with an underscore that Python and torch give."""


@pytest.mark.parametrize("name", ["_formats", "_images", "_datasets", "_loader", "samplers", "crops", "augment"])
def test_private_names_are_used_where_they_are_defined(name: str) -> None:
    for module in sorted(below(f"packer.{name}")):
        nodes = list(ast.walk(parsed(MODULES[module])))
        own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                assert of_itself or node.attr in own | OTHERS, f"{module}:{node.lineno}: {ast.unparse(node)}"


def test_the_front_is_small() -> None:
    assert len({path.relative_to(ROOT).parts[0] for path in MODULES.values()}) <= 28


READ_BY_PYARROW = ("arrow", "compression", "hf_tables", "parquet")
TENSORS = {f"packer._images.{name}" for name in ("resize", "rectangle", "numbers", "torch_ops")} | below(
    "packer._datasets",
    "packer._loader",
    "packer._measuring",
    "packer.augment",
    "packer.crops",
    "packer.samplers",
)


IMPORTERS: dict[str, set[str]] = {
    "click": below("packer._cli"),
    "tqdm": {"packer._storage.progress", *below("packer._cli")},
    "torch": TENSORS | below("packer.testing", "packer._measuring"),
    "torchvision": {"packer._measuring.loaders"} | below("packer.testing"),
    "matplotlib": {"packer._measuring.bench", "packer._viewing.histograms"},
    "cv2": {"packer._images.opencv"},
    "simplejpeg": {"packer._images.turbojpeg"} | below("packer.testing"),
    "turbojpeg": {"packer._images.pyturbojpeg"},
    "h5py": {"packer._formats.hdf5", "packer._containers.hdf5"} | below("packer.testing"),
    "lmdb": {"packer._packs.verify"} | below("packer.testing"),
    "pyarrow": {"packer._sources.tables", *(f"packer._containers.{name}" for name in READ_BY_PYARROW)},
    "packer._images._native": {"packer._images.extension"},
    "logging": set(),
}
"""Which modules may import a library."""


def test_where_libraries_are_imported() -> None:
    """One test for all: each worker that runs a test of `contents` parses all sources."""
    for library, allowed in IMPORTERS.items():
        assert importers(library) <= allowed, library


def test_no_format_needs_torch_to_be_read(tmp_path: Path) -> None:
    """Rows of the table of formats name modules that import without torch."""
    code = "from packer._formats import FORMATS\nfor row in FORMATS.values(): row.open_reader(), row.open_writer()"
    assert "torch" not in imported_after(code)
    assert len(MODULES) > 20


def test_no_two_public_classes_have_one_name() -> None:
    classes = Counter(name for content in contents().values() for name in content.classes if not name.startswith("_"))
    assert [name for name, count in classes.items() if count > 1] == []


def test_functions_are_short() -> None:
    for module, content in contents().items():
        for name, lines in content.lines:
            assert lines <= 64, f"{module}: {name}"  # packer.convert names each option


def lines_of_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many lines a function has after its signature and its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0
