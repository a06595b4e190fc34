"""Run the C of a wheel without Python: ``try_wheel.py WHEEL IMAGE ...``, in the environment of scripts/wheels.

Prints the lines of host.c, which must equal those of expected.py. A wheel of Windows runs under Wine, one of musl with
the loader of Debian's package musl; QEMU or another system may run others: ``HOST="qemu-aarch64 -L ROOT"``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))

import wheels  # noqa: E402 - lies in scripts

BATCH = 100  # images: the command lines of Windows are short
WINE = ("/usr/lib/wine/wine64",)


def main() -> None:
    wheel, *images = map(Path, sys.argv[1:])
    (platform,) = (one for one in wheels.PLATFORMS if one.tags.partition(".")[0] in wheel.name)
    with tempfile.TemporaryDirectory() as work:
        into = Path(work)
        with zipfile.ZipFile(wheel) as file:
            binary = into / platform.binary
            binary.write_bytes(file.read(f"packer/_images/{platform.binary}"))
        runner = shlex.split(os.environ.get("HOST", "")) or list(WINE if platform.windows else ())
        host = build_host(platform, into)
        for first in range(0, len(images), BATCH):
            done = subprocess.run([*runner, host, binary, *images[first : first + BATCH]], check=False)
            if done.returncode:
                sys.exit(done.returncode)


def build_host(platform: wheels.Platform, into: Path) -> Path:
    """Build the host with its replacement for Python, for Windows in python3.dll, and return the program's path."""
    compiler = ["ziglang", "cc", "-target", platform.zig, "-std=c11", "-O3", "-g0", "-s"]
    compiler += ["-I", str(wheels.headers_of_python(into))]
    if platform.windows:
        stand_in = HERE / "stand_in.c"
        wheels.run(*compiler, "-DPACKER_STAND_IN", "-shared", "-o", into / "python3.dll", stand_in)
        wheels.run(*compiler, "-o", into / "host.exe", HERE / "host.c", into / "stand_in.lib")
        return into / "host.exe"
    linked = ["-rdynamic"] if platform.macos else ["-dynamic", "-rdynamic"]
    wheels.run(*compiler, *linked, "-o", into / "host", HERE / "host.c", HERE / "stand_in.c", "-ldl")
    return into / "host"


if __name__ == "__main__":
    main()
