"""Let the decoders of torchvision and torchcodec load beside a torch without CUDA, in the environment of this Python.

Their wheels on the package index name libraries of CUDA. Their functions for the CPU call none of these, but a library
is not loaded when one that it names is missing. So the missing ones are compiled here, into the folder where the wheels
look first. Whatever is asked of them ends the process. The wheels' own code for the CPU then runs as it is. The wheels
for the CPU on PyTorch's own index need nothing of this. For Linux, with cc and nm.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from pathlib import Path

EXTENSIONS = {"torchvision": "image.so", "torchcodec": "libtorchcodec_image.so"}

_FOUND = re.compile(r"^\s*\S+ => (/\S+)", re.M)
_MISSING = re.compile(r"^\s*(\S*(?:cuda|nvrtc)\S*) => not found$", re.M)
_PYTHON = re.compile(r"_?Py[A-Z_]")
_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static __attribute__((used)) void stop(void) { fputs("This needs CUDA, which is not here.\\n", stderr); abort(); }
"""


def main() -> None:
    found = {name: _folder(name) for name in ("torch", *EXTENSIONS)}
    there = {name: folder for name, folder in found.items() if folder is not None}
    if "torch" in there:
        extensions = [
            (there[name] / EXTENSIONS[name], there[name].with_name(f"{name}.libs"))
            for name in there
            if name in EXTENSIONS
        ]
        stand_in(extensions, there["torch"] / "lib")


def _folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)  # imports nothing
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def stand_in(extensions: list[tuple[Path, Path]], libraries: Path) -> None:
    """Compile what extensions miss of CUDA, each into its directory; they find other libraries in `libraries`.

    In one process the first library of a name serves all extensions. So each has what any of the extensions asks for.
    """
    missing = {extension: _missing(extension, libraries) for extension, _ in extensions}
    names = {name for some, _ in missing.values() for name in some}
    symbols = {symbol for _, some in missing.values() for symbol in some}
    for extension, directory in extensions:
        for name in missing[extension][0]:
            # The version of a symbol is its library's name. Which library has one without a version is not said.
            _compile(directory / name, {symbol for symbol, version in symbols if version not in names - {name}})


def _missing(extension: Path, libraries: Path) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the libraries of CUDA that an extension misses, and the symbols that no other library has."""
    told = os.environ | {"LD_LIBRARY_PATH": str(libraries), "LC_ALL": "C"}
    said = subprocess.run(["ldd", extension], env=told, capture_output=True, text=True, check=True).stdout
    names = _MISSING.findall(said)
    if not names:
        return [], []
    there = {symbol for library in _FOUND.findall(said) for symbol, _ in _symbols(library, "--defined-only")}
    asked = _symbols(extension, "--undefined-only")
    return names, [one for one in asked if one[0] not in there and not _PYTHON.match(one[0])]


def _symbols(library: str | Path, which: str) -> list[tuple[str, str]]:
    """Return the symbols of a library, each with its version; what may be missing is left out."""
    said = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in said.splitlines()]
    parts = [line[-1].replace("@@", "@").partition("@") for line in lines if line[-2] not in ("w", "v")]
    return [(symbol, version) for symbol, _, version in parts]


def _compile(path: Path, symbols: set[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        source, versions = Path(directory, "source.c"), Path(directory, "versions")
        lines = [f'__asm__(".globl {name}\\n.set {name}, stop");' for name in sorted(symbols)]
        source.write_text("\n".join([_SOURCE, *lines, ""]))
        versions.write_text(f"{path.name} {{ global: *; }};\n")
        line = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{path.name}", f"-Wl,--version-script={versions}"]
        subprocess.run([*line, source, "-o", path], check=True)


if __name__ == "__main__":
    main()
