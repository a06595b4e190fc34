"""Fixtures: packer's C compiled without some or all vector instructions of the processor, for comparison."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from packer._images import native
from tests.turns import locked

Pixels = npt.NDArray[np.uint8]
ROOT = Path(__file__).parents[2]
FEWER = ["PLAIN", "NO_AVX512"] if platform.machine().lower() in ("x86_64", "amd64") else ["PLAIN"]


def compiled(folder: Path) -> None:
    """Compile packer's C without some vectors, on all processors, because other test workers may wait for it.

    Sources that do not read the header of the vectors are compiled once for all modules.
    """
    native_c = ROOT / "packer/_images/native"
    sources = sorted(native_c.rglob("*.c"))
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC")
    if os.name != "posix" or not compiler or not sources:
        pytest.skip("needs a C compiler and the sources")
    line = [*compiler.split(), "-std=c11", "-Og", "-fPIC", "-ffp-contract=off"]
    line += ["-DPy_LIMITED_API=0x030A0000", f"-I{sysconfig.get_path('include')}", f"-I{native_c}"]
    line += [*os.environ.get("CFLAGS", "").split()]  # scripts/coverage sets some

    def run(*arguments: str | Path) -> None:
        made = subprocess.run([*line, *arguments], capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"needs a C compiler that works: {made.stderr[-200:]}")

    included: list[str | Path] = []
    if "NO_AVX512" in FEWER and "clang" not in compiler:
        # GCC takes longer to read the header of the vectors than to compile most of the sources.
        included = ["-D_GNU_SOURCE"]  # sources define it before their first header
        header = folder / "header.h"
        header.write_text('#include "kernels/vectorised.h"\n', "ascii")
        run(*included, "-DPACKER_NO_AVX512", "-x", "c-header", header, "-o", header.with_suffix(".h.gch"))
        included += ["-include", header]

    def compile_one(source: Path) -> list[Path]:
        plain = folder / source.relative_to(native_c).with_suffix(".o")
        plain.parent.mkdir(parents=True, exist_ok=True)
        run("-DPACKER_PLAIN", "-MD", "-c", source, "-o", plain)
        vectors = "vectors.h" in plain.with_suffix(".d").read_text() or "PACKER_PLAIN" in source.read_text()
        if FEWER == ["PLAIN"] or not vectors:
            return [plain] * len(FEWER)
        fewer = plain.with_suffix(".fewer.o")
        run("-DPACKER_NO_AVX512", *included, "-c", source, "-o", fewer)
        return [plain, fewer]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = zip(*pool.map(compile_one, sources), strict=True)
    for without, linked in zip(FEWER, objects, strict=True):
        run("-shared", *linked, "-o", folder / f"_native.{without}.so", "-lm")
    (folder / "complete").touch()


@pytest.fixture(scope="session", params=FEWER)
def other(request: pytest.FixtureRequest, common_tmp: Path) -> ModuleType:
    """Return packer's C without the vectors of this processor, or without some of them."""
    folder = common_tmp / "compiled"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock"):
        if not (folder / "complete").exists():
            compiled(folder)
    path = folder / f"_native.{request.param}.so"
    spec = importlib.util.spec_from_file_location("packer._images._native", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def by_both(other: ModuleType) -> Iterator[Callable[[Callable[[], Pixels | None]], bool]]:
    """Return a function that tells whether a call returns the same pixels with all vectors and with fewer."""
    with pytest.MonkeyPatch.context() as patch:

        def same(draw: Callable[[], Pixels | None]) -> bool:
            patch.undo()
            with_all = draw()
            patch.setattr(native, "_native", other)
            with_fewer = draw()
            if with_all is None or with_fewer is None:
                return with_all is with_fewer
            return np.array_equal(with_all, with_fewer)

        yield same
