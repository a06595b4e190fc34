"""Build packer's sdist and its wheels for every platform, and check them. Run by scripts/wheels.

The sdist is made first, and everything else from its unpacked files: so the builds need no git. Python's part is one
wheel without C; each platform's wheel is that one with C added. Zig compiles for all platforms: it has the headers and
stubs of their C libraries.
"""

from __future__ import annotations

import argparse
import email
import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NATIVE = "packer/_images/native"
LARGEST = 2_000_000  # bytes of a wheel
EPOCH = 315_532_800  # 1980, the first second of times in zip archives, so that two builds have the same bytes


class Platform(NamedTuple):
    """A platform that wheels are built for.

    Attributes
    ----------
    zig : str
        Zig's target, with the oldest version of the C library or of the system.
    tags : str
        The platform tags of its wheel, separated by dots.
    """

    zig: str
    tags: str

    @property
    def windows(self) -> bool:
        return "windows" in self.zig

    @property
    def macos(self) -> bool:
        return "macos" in self.zig

    @property
    def binary(self) -> str:
        return "_native.pyd" if self.windows else "_native.abi3.so"


PLATFORMS = (
    Platform("x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64.manylinux2014_x86_64"),
    Platform("aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64.manylinux2014_aarch64"),
    Platform("x86_64-linux-musl", "musllinux_1_2_x86_64"),
    Platform("aarch64-linux-musl", "musllinux_1_2_aarch64"),
    Platform("x86_64-macos.11.0", "macosx_11_0_x86_64"),
    Platform("aarch64-macos.11.0", "macosx_11_0_arm64"),
    Platform("x86_64-windows-gnu", "win_amd64"),
)

CONFIGURATION = """\
/* What the compiler says of its target, in the place of what Python's configure found out of another machine. */
#define SIZEOF_INT __SIZEOF_INT__
#define SIZEOF_LONG __SIZEOF_LONG__
#define SIZEOF_LONG_LONG __SIZEOF_LONG_LONG__
#define SIZEOF_SIZE_T __SIZEOF_SIZE_T__
#define SIZEOF_VOID_P __SIZEOF_POINTER__
#define SIZEOF_WCHAR_T __SIZEOF_WCHAR_T__
#define SIZEOF_PID_T 4
#define HAVE_SSIZE_T 1
#define HAVE_STDDEF_H 1
#define WITH_DOC_STRINGS 1
#ifdef _WIN32
#define MS_WINDOWS
#define MS_WIN64
#ifndef PACKER_STAND_IN /* tests/native, which is Python */
#define HAVE_DECLSPEC_DLL
#endif
#define Py_ENABLE_SHARED
#endif
"""

C_LIBRARY = {
    *("calloc", "free", "malloc", "realloc"),
    *("bcmp", "bzero", "memchr", "memcmp", "memcpy", "memmove", "memset", "strcspn", "strlen"),
    *("close", "fstat", "fstat$INODE64", "getauxval", "openat", "pread"),
    *("qsort", "snprintf"),
    *("ceil", "copysign", "exp", "floor", "fmaf", "lrint", "lround", "nearbyint", "rint", "round", "sqrt"),
    # On macOS, for its linker, for Zig's own C, and for loops that fill memory.
    *("dyld_stub_binder", "_availability_version_check", "memset_pattern16"),
}
"""The functions of C and POSIX that packer's C asks for. macOS' linker takes every name; others here are mistakes."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/wheels", description="Build the sdist and the wheels, and check them."
    )
    names = [platform.tags.partition(".")[0] for platform in PLATFORMS]
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"by default all: {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIRECTORY", help="by default dist")
    arguments = parser.parse_args()
    unknown = set(arguments.platforms) - set(names)
    if unknown:
        parser.error(f"no platform {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    os.environ["SOURCE_DATE_EPOCH"] = str(EPOCH)
    os.umask(0o022)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        sdist = settle(build("sdist", ROOT, Path(work) / "sdist"))
        source = unpack(sdist, Path(work))
        pure = build("wheel", source, Path(work) / "pure")
        made = [keep(sdist, arguments.out)]
        for name, platform in zip(names, PLATFORMS, strict=True):
            if not arguments.platforms or name in arguments.platforms:
                binary = compile_for(platform, source, Path(work) / name)
                wheel = assemble(pure, binary, platform, Path(work) / name)
                check(wheel, pure, platform)
                made.append(keep(wheel, arguments.out))
    run("twine", "check", "--strict", *made)
    for path in made:
        print(f"{path.stat().st_size:>9,}  {path.name}")


def run(module: str, *arguments: object, folder: Path = ROOT, **environment: str) -> str:
    """Run a Python module and return its output; if it fails, end the program with that output."""
    line = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(line[1:])} failed in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(kind: str, source: Path, into: Path) -> Path:
    """Return the sdist of a source tree, or a wheel of it without C."""
    run("build", f"--{kind}", "--no-isolation", "--outdir", into, folder=source, PACKER_COMPILED="0")
    (path,) = into.iterdir()
    return path


def settle(sdist: Path) -> Path:
    """Write an sdist again, without the times and users of its build."""

    made = sdist.with_name("settled")
    with (
        tarfile.open(sdist) as old,
        made.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = EPOCH, {}
            member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member))
    return made.replace(sdist)


def unpack(sdist: Path, into: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(into, filter="data")
    return into / sdist.name.removesuffix(".tar.gz")


def keep(path: Path, folder: Path) -> Path:
    return Path(shutil.copy2(path, folder))


def compile_for(platform: Platform, source: Path, into: Path) -> Path:
    """Return packer's C, compiled for a platform."""
    into.mkdir()
    headers = headers_of_python(into)
    flags = (source / NATIVE / "compile_flags.txt").read_text().split()
    flags += ["-fPIC", "-g0", "-s", "-shared", "-I", str(headers), "-I", str(source / NATIVE)]
    libraries = [python3_dll(into)] if platform.windows else ["-lm"]
    if platform.macos:
        flags += ["-undefined", "dynamic_lookup"]  # of Python's names; `check` looks for others
        flags += [f"-Wl,-install_name,{platform.binary}"]  # else the path of this temporary directory
    sources = sorted((source / NATIVE).rglob("*.c"))
    binary = into / platform.binary
    run("ziglang", "cc", "-target", platform.zig, *flags, "-o", binary, *sources, *libraries)
    return binary


def headers_of_python(into: Path) -> Path:
    """Return a directory with Python's headers, for any machine."""
    headers = Path(shutil.copytree(sysconfig.get_path("include"), into / "include"))
    (headers / "pyconfig.h").write_text(CONFIGURATION)
    return headers


def python3_dll(into: Path) -> Path:
    """Return an import library for Python on Windows, made from the list of names of its stable ABI."""
    import abi3info

    oldest = abi3info.models.PyVersion(3, 10)
    functions = [symbol.name for symbol, found in abi3info.FUNCTIONS.items() if found.added <= oldest]
    data = [symbol.name for symbol, found in abi3info.DATAS.items() if found.added <= oldest]
    (into / "python3.def").write_text(
        "\n".join(["LIBRARY python3.dll", "EXPORTS", *functions, *(f"{name} DATA" for name in data), ""])
    )
    library = into / "python3.lib"
    run("ziglang", "dlltool", "-m", "i386:x86-64", "-d", into / "python3.def", "-l", library)
    return library


def assemble(pure: Path, binary: Path, platform: Platform, into: Path) -> Path:
    """Return the wheel without C, with C added and its tags changed."""
    run("wheel", "unpack", "--dest", into, pure)
    (folder,) = into.glob("packer_images-*")
    shutil.copy(binary, folder / "packer" / "_images")
    (said,) = folder.glob("*.dist-info/WHEEL")
    metadata = email.message_from_string(said.read_text())
    metadata.replace_header("Root-Is-Purelib", "false")
    del metadata["Tag"]
    for tag in platform.tags.split("."):
        metadata["Tag"] = f"cp310-abi3-{tag}"
    said.write_text(metadata.as_string())
    run("wheel", "pack", "--dest-dir", into, folder)
    (wheel,) = into.glob("*.whl")
    return wheel


def check(wheel: Path, pure: Path, platform: Platform) -> None:
    """End the program if a wheel has a fault."""
    inside = f"packer/_images/{platform.binary}"
    faults = [*names_missing(wheel, pure, inside), *strange_needs(wheel, inside, platform)]
    if wheel.stat().st_size > LARGEST:
        faults.append(f"{wheel.stat().st_size:,} bytes are more than {LARGEST:,}")
    if set(platform.tags.split(".")) != set(wheel.stem.rpartition("-")[2].split(".")):
        faults.append(f"its name does not say {platform.tags}")
    run("abi3audit", "--strict", wheel)
    if "linux" in platform.tags:
        said = run("auditwheel", "show", "--ldpaths", wheel.parent, wheel)  # and not among this machine's libraries
        if platform.tags.partition(".")[0] not in said:
            faults.append(said)
    if faults:
        sys.exit(f"{wheel.name}: " + "; ".join(faults))


def names_missing(wheel: Path, pure: Path, binary: str) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as file, zipfile.ZipFile(pure) as other:
        names = set(file.namelist())
        for name in {*other.namelist(), binary, *page_of_the_viewer()} - names:
            yield f"{name} is missing"
        for name in names:
            if name.endswith((".c", ".h", ".txt")) and ".dist-info/" not in name:
                yield f"{name} does not belong there"
    if len([name for name in names if name.endswith((".so", ".pyd"))]) != 1:
        yield "it has several binaries"


def page_of_the_viewer() -> Iterator[str]:
    for path in (ROOT / "packer" / "_viewing" / "page").iterdir():
        yield path.relative_to(ROOT).as_posix()
    yield from ("packer/py.typed", "packer/_images/_native.pyi")


def strange_needs(wheel: Path, inside: str, platform: Platform) -> Iterator[str]:
    """Yield the libraries and functions other than Python's and C's that a binary needs."""
    import lief

    lief.logging.disable()
    with zipfile.ZipFile(wheel) as file:
        binary = lief.parse(file.read(inside))
    if platform.windows:
        for library in binary.libraries:
            if not library.lower().startswith(("api-ms-win-crt-", "kernel32.dll", "python3.dll")):
                yield f"it needs {library}"
        return
    names = [str(symbol.name).removeprefix("_" if platform.macos else "") for symbol in binary.imported_symbols]
    yield from (f"it needs {name}" for name in strange_names(names))
    if platform.macos:
        oldest = ".".join(map(str, binary.build_version.minos[:2]))
        if oldest.replace(".", "_") not in platform.tags:
            yield f"it is for macOS {oldest}"


def strange_names(names: Iterable[str]) -> Iterator[str]:
    """Yield the imported functions of a binary that are neither Python's nor in `C_LIBRARY`."""
    for name in names:
        of_python = name.startswith(("Py", "_Py", "__", "_ITM_"))
        if name and not of_python and not {name, name.removesuffix("64")} & C_LIBRARY:
            yield name


if __name__ == "__main__":
    main()
