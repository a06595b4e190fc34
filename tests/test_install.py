"""Installation: the wheel and its tag, the messages if the compiled C is missing, and packer's name on the index."""

from __future__ import annotations

import contextlib
import ctypes.util
import email
import hashlib
import importlib.util
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterable
from importlib.metadata import distribution, files, requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import packer
from packer._images import decode, native
from packer._measuring import machine
from packer.errors import DISTRIBUTION
from tests.elsewhere import python_with
from tests.turns import locked

ROOT = Path(packer.__file__).parents[1]
NEEDED = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")

needs_sources = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="needs the repository")
x86 = pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="x86-64 alone has AVX2")


IGNORED = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")


class Builder:
    """The unpacked sdist from which wheels are built: without git, and without files of earlier builds."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("setuptools", minversion="77", reason="needs setuptools 77")
        if sdists := list(folder.glob("*.zip")):  # another worker of the tests has made it
            self.folder = folder / sdists[0].stem
            return
        copy = folder / "copy"
        shutil.copytree(ROOT / "packer", copy / "packer", ignore=IGNORED)
        for name in NEEDED:
            shutil.copy(ROOT / name, copy)
        command = [sys.executable, "setup.py", "-q", "sdist", "--formats=zip", "--dist-dir", str(folder)]
        subprocess.run(command, cwd=copy, check=True, capture_output=True, timeout=200)
        (sdist,) = folder.glob("*.zip")
        with zipfile.ZipFile(sdist) as file:
            file.extractall(folder)
        self.folder = folder / sdist.stem

    def build(self, **environment: str) -> Path:
        """Build a wheel as pip does."""
        into = self.folder / "dist"
        shutil.rmtree(into, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
        told = os.environ | {"PIP_CONFIG_FILE": os.devnull, **environment}
        subprocess.run([*command, "-w", str(into), str(self.folder)], env=told, check=True, timeout=200)
        (wheel,) = into.glob("*.whl")
        return wheel

    def build_again(self, **environment: str) -> Path:
        """Build a wheel with the function that pip calls; pip itself takes longer than the rest."""
        into = self.folder / "dist"
        shutil.rmtree(into, ignore_errors=True)
        code = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
        line, told = [sys.executable, "-c", code, str(into)], os.environ | environment
        subprocess.run(line, cwd=self.folder, env=told, check=True, capture_output=True, timeout=200)
        (wheel,) = into.glob("*.whl")
        return wheel

    def touch(self) -> None:
        """Make the sources newer than the compiled files."""
        for source in (self.folder / "packer/_images/native").rglob("*.c"):
            os.utime(source)


def binaries(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return [name for name in file.namelist() if name.endswith((".so", ".pyd"))]


@pytest.fixture(scope="module")
def builder(common_tmp: Path) -> Builder:
    if not (ROOT / "setup.py").exists():
        pytest.skip("needs the repository")
    (common_tmp / "sources").mkdir(exist_ok=True)
    with locked(common_tmp / "sources.lock"):
        return Builder(common_tmp / "sources")


def hasty_compiler(folder: Path) -> Path:
    """Return a compiler that does not optimise, and does not read the long header of x86's vector instructions."""
    hasty = folder / "cc"
    hasty.write_text('#!/bin/sh\nexec cc "$@" -O0 -g0 -DPACKER_PLAIN\n')
    hasty.chmod(0o755)
    return hasty


@pytest.fixture(scope="module")
def wheels(builder: Builder, common_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return two wheels: one with compiled C, and one that was built from the same folder later, without a compiler."""
    with_c, without = common_tmp / "wheel with C", common_tmp / "wheel without C"
    with locked(common_tmp / "wheels.lock"):
        if not without.exists():
            hasty = hasty_compiler(tmp_path_factory.mktemp("compiler"))
            shutil.copytree(builder.build(CC=str(hasty)).parent, with_c)
            builder.touch()
            shutil.copytree(builder.build_again(CC="/nonexistent").parent, without)
    return next(with_c.glob("*.whl")), next(without.glob("*.whl"))


@pytest.fixture(scope="module")
def without_c(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of the wheel that was built without a compiler."""
    root = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheels[1]) as file:
        file.extractall(root)
    return root


def run(code: str, installed: Path, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Python code with the packer in a directory."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=installed,
        capture_output=True,
        text=True,
        check=check,
    )


@needs_sources
@pytest.mark.skipif(shutil.which("nm") is None or sys.platform != "linux", reason="needs nm, of binutils")
def test_c_asks_the_system_for_nothing_that_wheels_may_not(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    """Otherwise only scripts/wheels, which is rarely run, would find the function.

    The binary here has the flags and vectors of a release, but may be older than the sources; the wheel is of today.
    """
    binaries = [pytest.importorskip("packer._images._native").__file__]
    with zipfile.ZipFile(wheels[0]) as file:
        binaries += [file.extract(name, tmp_path) for name in file.namelist() if name.endswith(".so")]
    assert len(binaries) == 2
    check = runpy.run_path(str(ROOT / "scripts" / "wheels.py"))["strange_names"]
    line = ["nm", "-D", "--undefined-only", *binaries]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    assert list(check(line.split()[-1].partition("@")[0] for line in said.splitlines() if " U " in line)) == []
    assert list(check(["qsort", "fopen", "fstat64", "PyList_New"])) == ["fopen"]


def needed(requirements: Iterable[str]) -> set[str]:
    """Return the names of the packages that requirements lead to, without their extras."""
    found = set[str]()
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(requirement.name)
            waiting += requires(requirement.name) or []
    return found


@pytest.fixture
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the directory of programs of an environment that has only a wheel and the packages it requires."""
    wheel = request.config.getoption("--wheel") or request.getfixturevalue("wheels")[0]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    packages = next((tmp_path / "bare").rglob("site-packages"))
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        asked = email.message_from_bytes(file.read(name)).get_all("Requires-Dist", [])
    for one in needed(asked):
        for path in {Path(file.parts[0]) for file in files(one) or () if file.parts[0] not in ("..", "__pycache__")}:
            with contextlib.suppress(FileExistsError):
                (packages / path).symlink_to(distribution(one).locate_file(path))
    (python,) = (tmp_path / "bare").glob("*/python")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=200, env={**plain(), "PIP_CONFIG_FILE": os.devnull})
    return python.parent


def plain() -> dict[str, str]:
    """Return the environment without Python's variables, which could add other directories to its path."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


READ = """
import hashlib, sys
import packer
print(packer.__file__)
with packer.open_dataset(sys.argv[1], output="numpy") as dataset:
    print(hashlib.sha256(b"".join(image.tobytes() for image, _ in dataset)).hexdigest())
with packer.Loader(packer.open_dataset(sys.argv[1], crop=packer.CenterCrop(16)), 4, threads=1) as loader:
    print(sum(len(labels) for _, labels in loader))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_a_wheel_reads_and_writes_where_nothing_else_is_installed(bare: Path, photo_tree: Path, tmp_path: Path) -> None:
    pack = tmp_path / "photos.lmdb"
    convert = [bare / "packer", "convert", "--quiet", photo_tree, pack]
    done = subprocess.run(convert, cwd=tmp_path, env=plain(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [bare / "python", "-W", "ignore::UserWarning", "-c", READ, pack],
        cwd=tmp_path,
        env=plain(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    where, pixels, count = done.stdout.split()
    assert where.startswith(str(tmp_path))
    with packer.open_dataset(pack, output="numpy") as dataset:
        assert pixels == hashlib.sha256(b"".join(image.tobytes() for image, _ in dataset)).hexdigest()
        assert int(count) == len(dataset)


A_WHEEL = "a wheel of packer, which scripts/wheels builds in a clone (pip install --force-reinstall --no-deps FILE.whl)"

VERSION = "import sys; sys.argv = ['packer', '--version']; from packer._cli import main; main()"


def test_a_wheel_without_c_says_so_by_its_tag_and_has_no_older_binary(
    wheels: tuple[Path, Path], without_c: Path
) -> None:
    assert wheels[1].name == f"packer_images-{packer.__version__}-py3-none-any.whl"
    assert binaries(wheels[1]) == []
    (metadata,) = without_c.glob("*.dist-info")
    assert "Root-Is-Purelib: true" in (metadata / "WHEEL").read_text()


@pytest.mark.skipif(shutil.which("cc") is None or os.name == "nt", reason="needs a C compiler")
def test_a_wheel_with_c_is_for_every_python_of_one_platform(wheels: tuple[Path, Path]) -> None:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("a wheel with C for Python without its lock is for one version")
    tag = wheels[0].stem.removeprefix(f"packer_images-{packer.__version__}-")
    assert re.fullmatch(r"cp310-abi3-(?!any).+", tag)
    assert binaries(wheels[0]) == ["packer/_images/_native.abi3.so"]


@needs_sources
def test_a_wheel_has_every_file_of_the_package_but_the_sources_of_c(wheels: tuple[Path, Path]) -> None:
    paths = [path for path in (ROOT / "packer").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    files = {path.relative_to(ROOT).as_posix() for path in paths}
    sources = {name for name in files if name.endswith((".c", ".h", "compile_flags.txt"))}
    left_out = {name for name in files if name.endswith((".so", ".pyd"))}
    assert len(sources) > 40
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            names = {name for name in file.namelist() if name.startswith("packer/")} - set(binaries(wheel))
        assert names == files - sources - left_out


def test_a_build_without_c_says_what_that_costs_and_where_c_is_wanted_it_fails(
    builder: Builder, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "setup.py",
        "-q",
        "build_ext",
        "--build-temp",
        str(tmp_path),
        "--build-lib",
        str(tmp_path),
    ]
    told = os.environ | {"CC": "/nonexistent"}
    done = subprocess.run(command, cwd=builder.folder, env=told, check=False, capture_output=True, text=True)
    assert done.returncode == 0
    assert "Without it libraries decode, the same pixels at about half the speed" in done.stderr
    told["PACKER_COMPILED"] = "1"
    assert subprocess.run(command, cwd=builder.folder, env=told, check=False, capture_output=True).returncode != 0


def test_the_version_says_that_c_is_missing_and_what_to_do(without_c: Path) -> None:
    what, others, *_ = python_with(without_c, VERSION).stdout.splitlines()
    assert what.startswith(f"packer {packer.__version__}, without its own decoder: not compiled, ")
    assert what.endswith(f"Install both (on Debian: gcc, python3-dev) and reinstall packer; or install {A_WHEEL}")
    assert others.startswith(
        "images go to the first of these that supports them, with the same pixels, on x86-64 at about half the speed: "
    )
    assert others.endswith(f"Pillow {version('pillow')}")


@needs_sources
def test_the_version_says_that_packer_is_a_source_tree(without_c: Path, tmp_path: Path) -> None:
    """After `cd packer && pip install .` Python imports the clone, where nothing was compiled."""
    shutil.copytree(without_c / "packer", tmp_path / "packer")
    for name in NEEDED:
        shutil.copy(ROOT / name, tmp_path)
    said = python_with(tmp_path, VERSION).stdout
    assert (
        f"not compiled, because packer is imported from its source tree, {tmp_path}. Run Python in another dir" in said
    )
    assert f"(pip install {tmp_path}, which needs a C compiler" in said


@needs_sources
def test_pages_install_from_outside_of_the_clone() -> None:
    for page in ("install", "start"):
        assert "pip install ./packer " in (ROOT / "docs" / f"{page}.md").read_text()


@x86
def test_the_version_says_that_there_is_no_avx2() -> None:
    pytest.importorskip("packer._images._native")
    said = python_with(ROOT, "import packer._images._native as c; c.VECTORS = ''\n" + VERSION).stdout
    assert said.startswith(f"packer {packer.__version__}, own decoder: plain C, as this processor has no AVX2. ")


def test_the_version_says_that_what_was_compiled_does_not_load(without_c: Path, tmp_path: Path) -> None:
    shutil.copytree(without_c / "packer", tmp_path / "packer")
    (tmp_path / "packer" / "_images" / "_native.abi3.so").write_bytes(b"of another machine")
    said = python_with(tmp_path, VERSION).stdout
    assert "without its own decoder: the compiled code cannot be loaded (" in said
    assert "Reinstall packer on this machine\n" in said


def test_the_version_says_that_all_is_well() -> None:
    if not native.WHOLE_JPEGS:
        pytest.skip("needs a C compiler at the installation, and AVX2 or NEON")
    kinds = {"aarch64": ["NEON"], "arm64": ["NEON"]}.get(platform.machine(), ["AVX2", "AVX-512"])
    what, others, *_ = python_with(ROOT, VERSION).stdout.splitlines()
    assert what in [f"packer {packer.__version__}, own decoder: {kind}" for kind in kinds]
    assert others.startswith("other images go to ")
    assert others.endswith(f"Pillow {version('pillow')}")
    if importlib.util.find_spec("simplejpeg") is not None:
        assert f": simplejpeg {version('simplejpeg')}, " in others


def test_the_version_names_the_libraries_that_are_used_on_request() -> None:
    """They are installed with packer; the system's libjpeg-turbo, through PyTurboJPEG, is only used on request."""
    pytest.importorskip("lmdb")
    pytest.importorskip("turbojpeg")
    _, others, on_request = python_with(ROOT, VERSION).stdout.splitlines()
    assert "TurboJPEG" not in others
    assert on_request.startswith(f"on request: PyTurboJPEG {version('PyTurboJPEG')}")
    assert on_request.endswith(f", lmdb {version('lmdb')}")
    assert ("needs the system's libturbojpeg" in on_request) == (ctypes.util.find_library("turbojpeg") is None)
    nowhere = "import ctypes.util; ctypes.util.find_library = lambda name: None\n"
    assert decode.AUTOMATIC == machine._AUTOMATIC
    (*_, on_request) = python_with(ROOT, nowhere + VERSION).stdout.splitlines()
    assert ", which needs the system's libturbojpeg (on Debian libturbojpeg0), lmdb " in on_request


READING = """
import sys, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from packer import Loader, RandomResizedCrop, open_dataset
    stored = open_dataset(sys.argv[1], output="bytes")
    assert not said
    for _ in range(2):
        dataset = open_dataset(sys.argv[1], crop=RandomResizedCrop(16), seed=1)
        [batch for batch in Loader(dataset, 4)]
for one in said:
    print(one.category.__name__, one.message)
"""


def test_decoding_without_c_warns_once_and_names_the_cure(without_c: Path, photo_pack: Path) -> None:
    (line,) = python_with(without_c, READING, photo_pack).stdout.splitlines()
    assert line.startswith("UserWarning packer's own decoder does not work here: not compiled, ")
    assert "turbojpeg decodes instead, with the same pixels, " in line
    assert line.endswith(f"Install both (on Debian: gcc, python3-dev) and reinstall packer; or install {A_WHEEL}.")


def test_doctor_promises_half_the_speed_only_where_libjpeg_turbo_decodes(without_c: Path) -> None:
    pytest.importorskip("simplejpeg")
    doctor = "from packer._measuring.machine import _decoder; print(_decoder().means)"
    assert "libjpeg-turbo and torch decode and resize instead" in python_with(without_c, doctor).stdout
    missing = "import sys; sys.modules['simplejpeg'] = sys.modules['turbojpeg'] = None\n"
    said = run(missing + doctor, without_c).stdout
    assert said == "libraries decode crops in full instead: the same pixels, at less than half the speed\n"


ADVICE = "from packer._images.decode import decoder_advice; print(decoder_advice())"


@x86
def test_the_advice_names_missing_avx2_and_its_cure() -> None:
    pytest.importorskip("packer._images._native")
    said = python_with(ROOT, "import packer._images._native as c; c.VECTORS = ''\n" + ADVICE).stdout
    assert said.startswith("packer's own decoder takes about twice as long here: this processor has no AVX2. In a")
    assert said.endswith("a processor type with AVX2.\n")


@pytest.mark.parametrize("machine", ["x86_64", "AMD64", "aarch64", "ARM64"])
def test_the_advice_names_a_compiler_without_vectors_and_its_cure(machine: str) -> None:
    """For example MSVC, whose vector instructions packer does not use."""
    pytest.importorskip("packer._images._native")
    plain = "import packer._images._native as c; c.VECTORS = c.COMPILED_VECTORS = ''\n"
    said = python_with(ROOT, f"import platform; platform.machine = lambda: {machine!r}\n{plain}{ADVICE}").stdout
    assert said.startswith(
        "packer's own decoder takes about twice as long here: it was compiled without vector instructions, which "
        "need gcc or "
    )
    assert said.endswith(f". Install {A_WHEEL}.\n")


def test_another_processor_than_x86_and_arm_needs_no_advice() -> None:
    pytest.importorskip("packer._images._native")
    risc = "import platform; platform.machine = lambda: 'riscv64'\nimport packer._images._native as c; c.VECTORS = ''\n"
    assert python_with(ROOT, risc + ADVICE).stdout == "None\n"
    said = python_with(ROOT, risc + VERSION).stdout
    assert said.splitlines()[0].endswith(", own decoder: plain C")


NO_TORCH = "import sys; sys.modules['torch'] = None; "
COMMAND = "from packer._cli import main; sys.argv[0] = 'packer'; main()"


def test_resizing_needs_no_torch_and_a_command_that_does_says_so(photo_tree: Path, tmp_path: Path) -> None:
    """torch has no wheels for musl."""
    pytest.importorskip("packer._images._native")
    pack, beside = tmp_path / "small.lmdb", tmp_path / "beside.lmdb"
    run(NO_TORCH + COMMAND, ROOT, "convert", "--quiet", "--resize", 32, photo_tree, pack)
    packer.convert(photo_tree, beside, resize=32)
    assert packer.digest(pack) == packer.digest(beside)
    ended = run(NO_TORCH + COMMAND, ROOT, "tune", pack, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "packer: this needs torch, which is not installed (pip install torch)\n"


WITHOUT_C = "import sys; sys.modules['packer._images._native'] = None\n"
HIDDEN = WITHOUT_C + "sys.modules['cv2'] = None\n"

PIXELS = """
import hashlib, sys, warnings
warnings.simplefilter("ignore")
from packer import Resize, RandomResizedCrop, convert, digest, info, open_dataset
convert(sys.argv[1], sys.argv[2], resize=32)
print(digest(sys.argv[2]), "opencv" in info(sys.argv[2]).versions)
crops = RandomResizedCrop(16), RandomResizedCrop(48), Resize(24)
images = [image for crop in crops for image, _ in open_dataset(sys.argv[2], crop=crop, seed=1)]
print(hashlib.sha256(b"".join(image.numpy().tobytes() for image in images)).hexdigest())
"""


def test_opencv_and_packers_c_make_nothing_but_speed(
    photo_tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cv2", reason=f"needs OpenCV: pip install '{DISTRIBUTION}[opencv]'")
    alone = python_with(ROOT, HIDDEN + PIXELS, photo_tree, tmp_path / "alone.lmdb").stdout.split()
    opencv = python_with(ROOT, WITHOUT_C + PIXELS, photo_tree, tmp_path / "opencv.lmdb").stdout.split()
    monkeypatch.setattr(sys, "argv", ["", str(photo_tree), str(tmp_path / "beside.lmdb")])
    exec(PIXELS, {})
    beside = capsys.readouterr().out.split()
    assert (alone.pop(1), opencv.pop(1), beside.pop(1)) == ("False", "True", str(not native.WRITES_JPEGS))
    assert alone == opencv == beside


def test_a_decoder_that_is_not_installed_is_named_with_the_command_that_installs_it(photo_pack: Path) -> None:
    code = HIDDEN + "import packer; packer.open_dataset(sys.argv[1], decoder='opencv')"
    error = python_with(ROOT, code, photo_pack, check=False).stderr.splitlines()[-1]
    assert error.startswith("packer.errors.MissingDependencyError: the decoder opencv: ")
    assert error.endswith(f"(pip install '{DISTRIBUTION}[opencv]')")


@needs_sources
def test_the_name_on_the_index_is_the_same_everywhere() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'name = "{DISTRIBUTION}"' in project
    extras = re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2], re.MULTILINE)
    named = [
        (name, extra)
        for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "packer").rglob("*.py")]
        for name, extra in re.findall(r"pip install '([^'\[]*)\[(\w+)\]'", page.read_text("utf-8"))
    ]
    assert {name for name, _ in named} == {DISTRIBUTION}
    assert {extra for _, extra in named} <= set(extras)


@needs_sources
def test_the_environment_of_the_scripts_has_a_torchvision_that_works(tmp_path: Path) -> None:
    """The hook is installed into a new environment, which has the packages of this one."""
    pytest.importorskip("packer.testing.reference").torchvision()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (python,) = (tmp_path / "venv").glob("*/python" + (".exe" if os.name == "nt" else ""))
    subprocess.run([python, ROOT / "scripts" / "torchvision_without_cuda.py"], check=True)
    (hook,) = (tmp_path / "venv").rglob("torchvision_without_cuda.pth")
    (hook.parent / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    code = """
import sys
assert "torch" not in sys.modules  # who does not ask for torchvision pays nothing
import torch, torchvision
print(torchvision.models.resnet18().eval()(torch.zeros(1, 3, 32, 32)).shape)
"""
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "torch.Size([1, 1000])\n", result.stderr


@pytest.mark.parametrize("first", ["", "from . import extension"], ids=["registrations first", "no _has_ops"])
def test_the_hook_lets_any_torchvision_be_imported_and_hides_no_finder(tmp_path: Path, first: str) -> None:
    """The finder after the hook finds this torchvision, as with an editable installation."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(f"{first}\nfrom . import _meta_registrations\n")
    (package / "extension.py").touch()
    (package / "_meta_registrations.py").touch()
    code = f"""
import importlib.machinery, sys
class Editable:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.startswith("torchvision"):
            return importlib.machinery.PathFinder.find_spec(name, path or [{str(tmp_path)!r}], target)
import torchvision_without_cuda
sys.meta_path[1:] = [Editable]  # nobody else finds torchvision
import torchvision
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
