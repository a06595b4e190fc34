"""The compiled part of packer; all else that there is to say of the package stands in pyproject.toml."""

import os
import sysconfig
from multiprocessing.pool import ThreadPool
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("packer/_images/native")

# What scripts/wheels and clangd compile with, too. -O3 for its vectors; without contraction, as the weights of resizing
# are to be torch's to the bit; and of Python what every version from 3.10 on has: one binary for all.
FLAGS = (SOURCES / "compile_flags.txt").read_text().split()

# Python without its lock (3.13t, 3.14t) has no interface that versions share: there a binary is for one version.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
if FREE_THREADED:
    FLAGS = [flag for flag in FLAGS if not flag.startswith("-DPy_LIMITED_API")]

COMPILED = os.environ.get("PACKER_COMPILED")  # 1: no wheel without C. 0: none with C, which scripts/wheels adds

MISSING = (
    "packer's C is not compiled: that needs a C compiler and Python's headers (on Debian: gcc, python3-dev). Without it"
    " libraries decode, the same pixels at about half the speed or less, and `packer convert --tiles` cannot work."
)

NATIVE = Extension(
    "packer._images._native",
    sorted(map(str, SOURCES.rglob("*.c"))),
    depends=sorted(map(str, [*SOURCES.rglob("*.h"), SOURCES / "compile_flags.txt"])),
    include_dirs=[str(SOURCES)],
    libraries=[] if os.name == "nt" else ["m"],
    py_limited_api=not FREE_THREADED,
    extra_compile_args=["/std:c11", "/O2", *(f for f in FLAGS if f[:2] == "-D")] if os.name == "nt" else FLAGS,
    # Without a compiler, Python and other libraries do the same.
    optional=COMPILED != "1",
)


class BuildExtension(build_ext):
    """Compile files at the same time. Where one fails, leave no binary of an earlier build, and say what that means."""

    def build_extension(self, ext):
        if os.name == "posix":
            compile_in_turn = self.compiler.compile

            def compile_at_once(sources, **options):
                with ThreadPool() as threads:  # each waits for a process of the compiler
                    found = threads.map(lambda source: compile_in_turn([source], **options), sources)
                return [compiled for each in found for compiled in each]

            self.compiler.compile = compile_at_once
        try:
            super().build_extension(ext)
        except Exception:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.warn(MISSING)
            raise


class Wheel(bdist_wheel):
    """A wheel whose tag says whether C is in it: ``cp310-abi3-PLATFORM``, or ``py3-none-any``.

    Without Python's lock, the former is such as ``cp314-cp314t-PLATFORM``.
    """

    def run(self):
        self.run_command("build")
        built = self.get_finalized_command("build_ext")
        if not all(Path(path).exists() for path in built.get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


if COMPILED == "0":
    setup()
else:
    setup(
        ext_modules=[NATIVE],
        cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel},
        options={} if FREE_THREADED else {"bdist_wheel": {"py_limited_api": "cp310"}},
    )
