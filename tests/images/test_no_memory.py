"""If an allocation fails, C raises MemoryError, returns the right result or declines, and the next call works."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from packer._images import native

pytestmark = [
    pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation, and AVX2 or NEON"),
    pytest.mark.skipif(sys.platform != "linux", reason="takes the place of glibc's allocator"),
    pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="another allocator, such as a sanitizer's, is in place"),
]

ALLOCATOR = """
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static long left; /* calls up to the one that fails; 0 where none does */

/* From now on the so manieth call fails. Returns how many were left of those before. */
long
fail_at(long number)
{
    long before = left;
    left = number;
    return before;
}

static int
fails(void)
{
    return left > 0 && --left == 0;
}

void *
malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *
realloc(void *at, size_t size)
{
    return fails() ? NULL : __libc_realloc(at, size);
}
"""

CALLS = """
import ctypes, os, sys
import numpy as np
from packer._images import native
from packer._images.encode import encode_tiled
from packer._images.geometry import PADDINGS, Box
from packer._images.jpeg_tiles import transcode
from packer._images.native.records import SURVEY, survey
from tests.images.samples import encoded, jpeg, photo

fail_at = ctypes.CDLL(None).fail_at
fail_at.argtypes, fail_at.restype = [ctypes.c_long], ctypes.c_long
compiled, directory = native._native, sys.argv[1]
size = (320, 280)
pixels = np.array(photo(*size))
large = np.zeros((1500, 2000, 3), np.uint8)


def stored(name, data):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(data)
    return os.open(path, os.O_RDONLY)


def drawing(name, data, box, size=size, raw=0):
    out = np.zeros((*box.out, 3), np.uint8)
    task = native.task_of(b"", size, box, out.ctypes.data)
    task["file"], task["position"], task["size"], task["raw"] = stored(name, data), 0, len(data), raw

    def call():
        out[:] = 0
        arguments = task.ctypes.data, 1, 0, 0, 0, 0, 0, 0
        return lambda: compiled.decode_into(*arguments) or out.tobytes()

    return call


def prepared(function, *arguments):
    return lambda: lambda: function(*arguments)


def surveying():
    record = np.zeros(1, SURVEY)
    record["file"], record["size"] = stored("seen", jpeg()), len(jpeg())
    address = record.ctypes.data

    def call():
        record["seen"] = 0
        return lambda: (compiled.survey(address, 1), int(record["seen"][0]) and record.tobytes())[1]

    return call


whole = Box.of((0, 0, *size), (100, 90))
padded = whole._replace(cut_top=-3, cut_left=-5, padding=PADDINGS.index("reflect"))
tall = Box.of((0, 0, 300, 280), (100, 90))
tiled = encode_tiled(pixels, 90)
grey, small = encoded(pixels[..., 0], "JPEG"), np.zeros((20, 30, 3), np.uint8)
levels = np.zeros(size, np.uint8)
numbers = tuple(int(n) for n in (small.ctypes.data, 90, 20, 30, 20, 30, 9, 9, 0, 0, 9, 9, 0, 0))
shrunk = np.zeros((9, 9, 3), np.uint8)
png, progressive = encoded(pixels, "PNG"), encoded(pixels, "JPEG", progressive=True)
calls = {
    "a JPEG": drawing("a.jpg", encoded(pixels, "JPEG"), whole),
    "a progressive JPEG": drawing("b.jpg", progressive, whole),
    "a padded window": drawing("c.jpg", encoded(pixels, "JPEG"), padded),
    "a PNG": drawing("a.png", png, whole),
    "raw pixels": drawing("raw", pixels.tobytes(), whole, raw=1),
    "grey": prepared(compiled.decode_grey, grey, *size, levels.ctypes.data),
    "resizing": prepared(compiled.resize, *numbers, shrunk.ctypes.data),
    "a part": prepared(compiled.cut_out, tiled, *size, 8, 8, 20, 20),
    "a table of tiles": prepared(compiled.annotate, encoded(pixels, "JPEG", restart_marker_blocks=1)),
    "rows": prepared(compiled.first_rows, tiled, *size, 20),
    "a survey": surveying(),
    "tiles": prepared(compiled.transcode, encoded(pixels, "JPEG"), 1 << 30, 100),
    "a JPEG that is written": prepared(compiled.encode_jpeg, pixels.ctypes.data, *size, 3 * size[1], 100, 2),
    "tiles of a progressive JPEG": prepared(compiled.transcode, progressive, 1 << 30, 100),
}
forget = drawing("large", large.tobytes(), Box.of((0, 0, *large.shape[:2]), (1, 1)), large.shape[:2], raw=1)
for name, call in calls.items():
    expected, refused = call()(), 0
    for number in range(1, 200):
        forget()()  # which leaves no memory to the next call
        prepared_call, result, left = call(), None, 0
        fail_at(number)
        try:
            result = prepared_call()
        except MemoryError:
            refused += 1
            left = fail_at(0)
        else:
            left = fail_at(0)
            # Without memory for resizing, an image is left to others; one whose size is sought, to Python.
            left_to_others = left == 0 and result in ([0], False)
            assert result == expected or left_to_others, (name, number, result)
            refused += left_to_others
        assert call()() == expected, (name, number)
        if left:
            break
    print(name, number - 1, refused)
    assert left, name
    assert refused > 0, name
"""


def test_a_failed_allocation_is_a_memory_error_and_harms_nothing_after_it(tmp_path: Path) -> None:
    compiler = sysconfig.get_config_var("CC")
    if not compiler:
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "allocator.c", tmp_path / "allocator.so"
    source.write_text(ALLOCATOR)
    made = subprocess.run(
        [*compiler.split(), "-shared", "-fPIC", "-o", str(library), str(source)], capture_output=True, check=False
    )
    if made.returncode or sysconfig.get_config_var("HOST_GNU_TYPE").endswith("musl"):
        pytest.skip("needs a C compiler that works, and glibc")
    result = subprocess.run(
        [sys.executable, "-c", CALLS, str(tmp_path)],
        env={**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
