"""The targets compiled, with the sanitizers that the compilers of this machine have."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILT = ROOT / "build" / "fuzz-native"

_NATIVE = Path("packer/_images/native")
_INCLUDED = {_NATIVE / "tasks.c", _NATIVE / "kernels/kernels.c"}  # which target.c includes
_SHARED = ("target.c", "sealing.c", "given.c")
_COMMON = ("-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")


@dataclass(frozen=True)
class Build:
    """A compiler with sanitizers.

    Attributes
    ----------
    name : str
        What the sanitizers look for.
    compiler : str
        Its command.
    flags, linked : tuple of str
        For compiling, and for linking a target.
    driven : bool
        Whether a target needs ``driver.c``, as the compiler has no libFuzzer.
    share : float
        Its share of the time that a target has.
    """

    name: str
    compiler: str
    flags: tuple[str, ...]
    linked: tuple[str, ...]
    driven: bool
    share: float

    def __str__(self) -> str:
        version = subprocess.run([self.compiler, "--version"], capture_output=True, text=True, check=False).stdout
        fuzzer = "its own driver" if self.driven else "libFuzzer"
        return f"{self.name} sanitizers by {version.partition(chr(10))[0]}, with {fuzzer}"


_BOTH = "-fsanitize=address,undefined"
_CLANG = (
    Build(
        "address and undefined",
        "clang",
        (_BOTH, "-fsanitize=fuzzer-no-link"),
        (_BOTH, "-fsanitize=fuzzer"),
        False,
        0.75,
    ),
    # This sanitizer does not know all vector instructions, so only plain C is built; the other build compares both.
    Build(
        "memory",
        "clang",
        ("-fsanitize=memory", "-fsanitize-memory-track-origins", "-fsanitize=fuzzer-no-link", "-DPACKER_PLAIN"),
        ("-fsanitize=memory", "-fsanitize=fuzzer"),
        False,
        0.25,
    ),
)
_GCC = (Build("address and undefined", "gcc", (_BOTH, "-fsanitize-coverage=trace-pc"), (_BOTH,), True, 1.0),)


def builds(gcc: bool = False) -> tuple[Build, ...]:
    """Return the builds that this machine can make: clang's if it has libFuzzer, or else gcc's, or none.

    Parameters
    ----------
    gcc : bool
        Whether clang is ignored.
    """
    return next((made for made in ([_GCC] if gcc else [_CLANG, _GCC]) if all(map(_works, made))), ())


def _works(build: Build) -> bool:
    """Tell whether a build's compiler is installed, and its programs start with these sanitizers."""
    if shutil.which(build.compiler) is None:
        return False
    source = "#include <Python.h>\n"
    source += "int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return !data && size; }\n"
    source += "int main(void) { return LLVMFuzzerTestOneInput(0, 0); }\n" if build.driven else ""
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "program"
        line = [build.compiler, "-x", "c", "-", f"-I{sysconfig.get_path('include')}", *build.linked, "-o", program]
        made = subprocess.run(line, input=source, text=True, capture_output=True, check=False)
        return (
            made.returncode == 0
            and subprocess.run([program, "-runs=1"], capture_output=True, check=False).returncode == 0
        )


def compile_targets(build: Build, targets: Sequence[str], root: Path = ROOT) -> dict[str, Path]:
    """Compile the targets of a copy of the sources, each to a program.

    A file with the same content is not compiled again, not even in another copy.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler refuses.
    """
    here = HERE.relative_to(ROOT)
    native = sorted(path.relative_to(root) for path in (root / _NATIVE).rglob("*.c"))
    sources = [path for path in native if path not in _INCLUDED]
    sources += [Path("tests/native/stand_in.c"), *(here / name for name in _SHARED)]
    sources += [here / "driver.c"] if build.driven else []
    headers = _digest(root, [path for part in (_NATIVE, here, Path("tests/native")) for path in _headers(root, part)])
    included = _digest(root, sorted(_INCLUDED))
    flags = [*(root / _NATIVE / "compile_flags.txt").read_text().split(), *_COMMON]

    def compiled(path: Path) -> Path:
        own = ["-O1", "-g"] if path.name == "driver.c" else build.flags  # it counts branches of the other files
        line = [build.compiler, *flags, *own, f"-I{sysconfig.get_path('include')}", f"-I{_NATIVE}", "-c", str(path)]
        parts = repr(line), headers, included if path.name == "target.c" else "", _digest(root, [path])
        made = BUILT / "objects" / f"{path.stem}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.o"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            _make(made, *line, directory=root)
        return made

    def linked(name: str) -> Path:
        # The name has a digest of everything in the program, so that a program is not replaced while it runs.
        parts = [*objects, own[name]]
        known = hashlib.sha256(repr([build.linked, sorted(map(str, parts))]).encode()).hexdigest()[:16]
        made = BUILT / f"{name}-{known}"
        if not made.exists():
            _make(made, build.compiler, *build.linked, "-g", *parts, "-lm", directory=root)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        every = list(pool.map(compiled, [*sources, *(here / f"{name}.c" for name in targets)]))
        objects, own = every[: -len(targets)], dict(zip(targets, every[-len(targets) :], strict=True))
        return dict(zip(targets, pool.map(linked, targets), strict=True))


def _headers(root: Path, directory: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in (root / directory).rglob("*.h"))


def _digest(root: Path, paths: Sequence[Path]) -> str:
    """Return a digest of the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        data = (root / path).read_bytes()
        digest.update(f"{path.as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


def _make(made: Path, *line: object, directory: Path) -> None:
    """Compile a file; it appears under its name only when it is complete, even if several processes make it."""
    new = made.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    subprocess.run([*map(str, line), "-o", new], check=True, cwd=directory)
    new.rename(made)
