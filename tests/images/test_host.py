"""Without Python, the program tests/native/host.c loads packer's C and decodes images."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import packer
from packer._images import native
from packer._images.extension import _native
from tests.command import python
from tests.images.samples import encoded, photo

NATIVE = Path(packer.__file__).parents[1] / "tests" / "native"


@pytest.mark.skipif(sys.platform != "linux" or not native.PREFERRED, reason="needs packer's own decoder on Linux")
@pytest.mark.skipif(shutil.which("cc") is None or not NATIVE.exists(), reason="needs a C compiler and the repository")
def test_the_host_has_the_pixels_of_other_libraries_and_the_tiles_of_the_module_in_python(tmp_path: Path) -> None:
    host = tmp_path / "host"
    line = [
        "cc",
        "-rdynamic",
        "-I",
        sysconfig.get_path("include"),
        "-o",
        host,
        NATIVE / "host.c",
        NATIVE / "stand_in.c",
    ]
    subprocess.run([*line, "-ldl"], check=True)
    images = []
    for name, options in {"a.jpg": {}, "b.jpg": {"progressive": True}, "c.png": {}, "d.jpg": {"quality": 5}}.items():
        kind = "PNG" if name.endswith(".png") else "JPEG"
        (tmp_path / name).write_bytes(encoded(photo(96, 128), kind, **options))
        images.append(tmp_path / name)
    found = subprocess.run([host, _native.__file__, *images], capture_output=True, text=True, check=True).stdout
    assert found == python(NATIVE / "expected.py", *images).stdout
    assert "left" not in found
