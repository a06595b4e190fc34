"""packer's C: how much memory it takes, which arguments it refuses, and how it runs in threads."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from packer._images import native
from tests.elsewhere import python_with
from tests.images.samples import encoded, photo

pytestmark = [
    pytest.mark.skipif(not native.PREFERRED, reason="needs a C compiler at the installation"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, limits of memory and files with holes"),
]


def run(code: str, *arguments: object) -> None:
    """Run Python code in a new process, and require exit status 0."""
    line = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(line, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stderr


HOLES = """
import os, sys
from resource import RLIMIT_AS, setrlimit
import numpy as np
from packer._images import native
from packer._images.geometry import Box

size, raw = int(sys.argv[2]), int(sys.argv[3])
out = np.empty((8, 8, 3), np.uint8)
job = native.task_of(b"", (40, 56), Box.of((0, 0, 8, 8), (8, 8)), out.ctypes.data)
job["file"], job["position"], job["size"], job["raw"] = os.open(sys.argv[1], os.O_RDONLY), 0, size, raw
setrlimit(RLIMIT_AS, (3 << 30, 3 << 30))
assert native.decode_into(job) == [0]
"""


@pytest.mark.footprint
@pytest.mark.parametrize("head", [b"", b"\xff\xd8\xff"])
@pytest.mark.parametrize("raw", [0, 1])
def test_a_row_that_says_a_hundred_gigabytes_costs_no_memory(head: bytes, raw: int, tmp_path: Path) -> None:
    path, size = tmp_path / "holes", 100 << 30
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    run(HOLES, path, size, raw)


@pytest.mark.footprint
def test_of_a_large_file_the_beginning_is_read_first(tmp_path: Path) -> None:
    """An image of 13000 x 13000 pixels may need so large a file: only the first bytes show that this is none."""
    path, size = tmp_path / "holes", 4 << 30
    with path.open("wb") as file:
        file.truncate(size)
    run(HOLES.replace("(40, 56)", "(13000, 13000)"), path, size, 0)


def test_a_file_with_much_beside_the_image_is_drawn(tmp_path: Path) -> None:
    from packer._images.geometry import Box

    path, size = tmp_path / "photo.jpg", (40, 56)
    data = encoded(photo(*size), "JPEG") + bytes(20 << 20)
    path.write_bytes(data)
    expected = native.decode(data, *size)
    assert expected is not None
    out = np.zeros((*size, 3), np.uint8)
    job = native.task_of(b"", size, Box.of((0, 0, *size), size), out.ctypes.data)
    with path.open("rb") as file:
        job["file"], job["position"], job["size"] = file.fileno(), 0, len(data)
        assert native.decode_into(job) == []
    assert np.array_equal(out, expected)


KEPT = """
from pathlib import Path
from resource import getpagesize
import numpy as np
from packer._images import native
from packer._images.geometry import Box

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()

out, pixels = np.zeros((300, 3), np.uint8), np.ones((60_000, 100, 3), np.uint8)
native.resize(pixels[:100], Box.of((0, 0, 100, 100), (1, 100)), out.ctypes.data)
before = resident()
assert native.resize(pixels, Box.of((0, 0, 60_000, 100), (1, 100)), out.ctypes.data)
assert (out[:100] == 1).all()
assert resident() - before < 20e6, resident() - before
"""


@pytest.mark.footprint
def test_memory_that_a_large_image_needed_is_given_back() -> None:
    run(KEPT)


EXCHANGED = """
import numpy as np
import {module} as module
names = list(module.{record}.names)
names[1], names[2] = names[2], names[1]
module.{record} = np.dtype([(name, np.int64) for name in names])
try:
    from packer._images import native
except ImportError as error:
    assert "another version" in str(error)
else:
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("module", "record"),
    [
        ("packer._storage.packfile", "LOCATION"),
        ("packer._images.geometry", "CROP"),
        ("packer._images.operations", "OPERATION"),
    ],
)
def test_fields_in_another_order_than_those_of_c_are_refused(module: str, record: str) -> None:
    python_with(Path(__file__).parents[2], EXCHANGED.format(module=module, record=record))


def test_numbers_that_are_none_are_refused() -> None:
    compiled = native._native
    for arguments in ([], [0], [0, "one"], [0, 1.5], [0, 1 << 64]):
        with pytest.raises((TypeError, OverflowError)):
            compiled.decode_into(*arguments)
    for arguments in ([], ["text", 0], [b"", None], [b""]):
        with pytest.raises(TypeError):
            compiled.crc32c(*arguments)
    functions = [
        getattr(compiled, name) for name in dir(compiled) if callable(getattr(compiled, name)) and name[0] != "_"
    ]
    assert len(functions) == 24
    for function in functions:
        for arguments in ([], [None], [b"", "one"], [*[0] * 20], [b"", *[0] * 20]):
            with pytest.raises(TypeError):
                function(*arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("look_up", (0, -1, 0, 0, 0, 1), "negative"),
        ("look_up", (0, 1, 0, 0, 0, -1), "negative"),
        ("transcode", (b"", -1, 1), "out of range"),
        ("transcode", (b"", 1 << 32, 1), "out of range"),
        ("transcode", (b"", 1, -1), "out of range"),
        ("transcode", (b"", 1, 1 << 16), "out of range"),
        ("decode_grey", (b"", 0, 1, 0), "empty or too large"),
        ("decode_grey", (b"", 1, 1 << 31, 0), "empty or too large"),
        ("resize", (0, 3, 1, 1, 1 << 31, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0), "too large"),
        ("resize", (0, 3, 1, 1, 1, 1 << 31, 1, 1, 0, 0, 1, 1, 0, 0, 0), "too large"),
        ("resize", (0, 3, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0), "resized to a size of 0"),
        ("resize", (0, 3, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0), "empty"),
        ("resize", (0, 3, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0), "does not lie inside"),
        ("resize", (0, 3, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 9, 0), "the interpolation is unknown"),
        ("encode_jpeg", (0, 0, 1, 3, 90, 0), "1 to 65500 pixels"),
        ("encode_jpeg", (0, 1, 65_501, 3, 90, 0), "1 to 65500 pixels"),
        ("encode_jpeg", (0, 1, 1, 3, 0, 0), "out of range"),
        ("encode_jpeg", (0, 1, 1, 3, 101, 0), "out of range"),
        ("encode_jpeg", (0, 1, 1, 3, 90, -1), "out of range"),
        ("encode_jpeg", (0, 1, 1, 3, 90, 1 << 16), "out of range"),
        ("gather", (0, 0, 0, 0, 0, 1, 1, 0, 0), "the size of the window"),
        ("gather", (0, 0, 1, 0, 0, -1, 1, 0, 0), "the size of the window"),
        ("gather", (0, 0, 1, 0, 0, 1, -1, 0, 0), "the size of the window"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_before_an_address_is_touched(
    name: str, arguments: tuple[object, ...], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        getattr(native._native, name)(*arguments)


def test_a_window_of_pixels_that_are_not_there_is_not_drawn() -> None:
    """The rectangle has 8 x 8 pixels, but the image has only 7 rows or 7 columns."""
    pixels, out = np.zeros((8, 8, 3), np.uint8), np.full((4, 4, 3), 7, np.uint8)
    for rows, columns in ((7, 8), (8, 7)):
        numbers = pixels.ctypes.data, 24, rows, columns, 8, 8, 4, 4, 0, 0, 4, 4, 0, 0, out.ctypes.data
        assert native._native.resize(*numbers) is False
    assert (out == 7).all()


def test_an_image_whose_sides_fit_no_number_is_refused() -> None:
    from packer._images.geometry import Box

    for size in ((1 << 31, 8), (8, 1 << 31)):
        job = native.task_of(b"", size, Box.of((0, 0, 8, 8), (8, 8)), 0)
        with pytest.raises(ValueError, match="too large"):
            native.decode_into(job)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (224, 224), (0, 7)])
def test_levels_are_looked_up(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    pixels, table = rng.integers(0, 256, (*size, 3), np.uint8), rng.random((3, 256), np.float32)
    expected = np.stack([table[colour][pixels[..., colour]] for colour in range(3)])
    for _ in range(2):
        assert np.array_equal(native.look_up(pixels, table), expected)
        assert np.array_equal(native.look_up(pixels[:, ::-1], table), expected[..., ::-1])
        by_pixel = native.look_up(pixels, table, planes=False)
        assert np.array_equal(by_pixel, expected)
        assert by_pixel.transpose(1, 2, 0).flags.c_contiguous
        monkeypatch.setattr(native, "_native", None)


def test_threads_that_draw_at_once_draw_what_one_draws() -> None:
    """Threads take over each other's scratch memory. Calls this short often collide there without a lock."""
    begin = threading.Barrier(4)

    def wrong(level: int) -> int:
        pixels, out = np.full((3, 3, 3), level, np.uint8), np.zeros((2, 2, 3), np.uint8)
        numbers = pixels.ctypes.data, 9, 3, 3, 3, 3, 2, 2, 0, 0, 2, 2, 0, 0, out.ctypes.data
        levels = memoryview(out.reshape(-1))
        begin.wait()
        found = 0
        for _ in range(20_000):
            levels[0] = 0
            native._native.resize(*numbers)
            found += levels[0] != level
        return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(wrong, range(1, 5))) == [0, 0, 0, 0]


IMPORTED_AGAIN = """
import importlib, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from packer._images import native

images = np.random.default_rng(0).integers(0, 256, (4000, 20, 64, 3), np.uint8)
found = np.empty((4000, 10, 40, 3), np.uint8)
tasks = np.zeros(4000, native.TASK)
tasks["file"], tasks["raw"], tasks["label"] = -1, 1, range(4000)
tasks["position"] = [image.ctypes.data for image in images]
tasks["size"] = images[0].nbytes
tasks["height"] = tasks["crop_height"] = 20
tasks["width"] = tasks["crop_width"] = 64
tasks["scaled_height"] = tasks["out_height"] = 10
tasks["scaled_width"] = tasks["out_width"] = 40
tasks["out"] = [image.ctypes.data for image in found]
assert native.decode_into(tasks) == []
expected = found.copy()
end = time.monotonic() + 1

def draw():
    while time.monotonic() < end:
        assert native.decode_into(tasks) == []
        assert np.array_equal(found, expected)

with ThreadPoolExecutor(1) as pool:
    drawn = pool.submit(draw)
    while not drawn.done():
        del sys.modules["packer._images._native"]
        importlib.import_module("packer._images._native")
        time.sleep(0)
drawn.result()
"""


def test_importing_again_disturbs_no_thread_that_draws() -> None:
    """Each import chose AVX2 and then AVX-512 anew: threads drew with half of each, or read beyond their buffers."""
    run(IMPORTED_AGAIN)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs Python without its lock")
def test_loading_the_c_leaves_the_lock_away() -> None:
    run(
        "import importlib.util, sys\n"
        "spec = importlib.util.spec_from_file_location('packer._images._native', sys.argv[1])\n"
        "spec.loader.exec_module(importlib.util.module_from_spec(spec))\n"
        "assert not sys._is_gil_enabled()",
        native._native.__file__,
    )
