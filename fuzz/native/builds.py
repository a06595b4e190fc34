"""The targets compiled, with the sanitizers that the compilers of this machine have."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUILT", "Build", "builds", "compile_targets"]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUILT = ROOT / "build" / "fuzz-native"

_NATIVE = Path("packer/_images/native")
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
    # This sanitizer knows too little of vectors. The other build compares what they give with what plain C gives.
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
    """Return those that this machine can make: clang's where it has libFuzzer, or else gcc's, or none.

    Parameters
    ----------
    gcc : bool
        Whether clang is passed over.
    """
    return next((made for made in ([_GCC] if gcc else [_CLANG, _GCC]) if all(map(_works, made))), ())


def _works(build: Build) -> bool:
    """Tell whether its compiler is here, and what it makes with these sanitizers also starts."""
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
    """Compile the targets of a copy of the sources, each to a program; what did not change is not compiled again.

    Raises
    ------
    subprocess.CalledProcessError
        If the compiler refuses.
    """
    native = sorted((root / _NATIVE).rglob("*.c"))
    native.remove(root / _NATIVE / "tasks.c")  # which target.c includes
    here = root / HERE.relative_to(ROOT)
    shared = [root / "tests/native/stand_in.c", here / "target.c", here / "sealing.c"]
    headers = b"".join(path.read_bytes() for path in sorted([*(root / _NATIVE).rglob("*.h"), *here.glob("*.h")]))
    headers += (root / _NATIVE / "tasks.c").read_bytes() + (root / "tests/native/stand_in.h").read_bytes()
    flags = [*(root / _NATIVE / "compile_flags.txt").read_text().split(), *_COMMON]

    def compiled(path: Path) -> Path:
        own = ["-O1", "-g"] if path.name == "driver.c" else build.flags  # it counts the ways of the others
        line = [build.compiler, *flags, *own, f"-I{sysconfig.get_path('include')}", f"-I{root / _NATIVE}", "-c"]
        known = hashlib.sha256(repr(line).encode() + headers + path.read_bytes()).hexdigest()[:16]
        made = BUILT / "objects" / f"{path.stem}-{known}.o"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            _make(made, *line, path)
        return made

    def linked(name: str) -> Path:
        # The name tells of everything in it, so that a program is not replaced while it runs.
        parts = [*objects, own[name]]
        known = hashlib.sha256(repr([build.linked, sorted(map(str, parts))]).encode()).hexdigest()[:16]
        made = BUILT / f"{name}-{known}"
        if not made.exists():
            _make(made, build.compiler, *build.linked, "-g", *parts, "-lm")
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = [here / f"{name}.c" for name in targets]
        sources = [*native, *shared, *([here / "driver.c"] if build.driven else []), *paths]
        every = list(pool.map(compiled, sources))
        objects, own = every[: -len(targets)], dict(zip(targets, every[-len(targets) :], strict=True))
        return dict(zip(targets, pool.map(linked, targets), strict=True))


def _make(made: Path, *line: object) -> None:
    """Have a file made by a compiler; it is there when it is whole, whoever else makes it meanwhile."""
    new = made.with_suffix(f".{os.getpid()}")
    subprocess.run([*map(str, line), "-o", new], check=True)
    new.rename(made)
