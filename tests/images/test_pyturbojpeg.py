"""The decoder pyturbojpeg returns Pillow's pixels, of whole images and of crops, or it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from packer import RandomResizedCrop, ResizeCenterCrop, convert, open_dataset
from packer._images.decode import decode, fast_decoder
from packer._images.rectangle import RectangleDecoder
from packer.errors import ImageError, MissingDependencyError
from tests.images.samples import encoded, jpeg, photo, pillow_pixels


def installed() -> bool:
    try:
        fast_decoder("pyturbojpeg")
    except MissingDependencyError:
        return False
    return True


pytestmark = pytest.mark.skipif(not installed(), reason="needs PyTurboJPEG and the system's libjpeg-turbo")


def test_crops_are_those_of_other_decoders(photo_tree: Path, tmp_path: Path) -> None:
    convert(photo_tree, tmp_path / "plain.lmdb")
    convert(photo_tree, tmp_path / "tiled.lmdb", codec="jpeg", resize=128, tiles=True)
    for name in ("plain", "tiled"):
        for crop in (RandomResizedCrop(33, flip=0.5), ResizeCenterCrop(20, 31), None):
            one, other = (
                open_dataset(tmp_path / f"{name}.lmdb", crop=crop, seed=0, decoder=decoder, output="numpy")
                for decoder in ("pyturbojpeg", "pillow")
            )
            for (image, _), (expected, _) in zip(one, other, strict=True):
                assert np.array_equal(image, expected)


def test_rows_below_are_not_decoded() -> None:
    data = jpeg("4:2:0", "baseline", (121, 163))
    damaged = data[: 3 * len(data) // 4] + data[-2:]  # decoding the bottom would be an error
    found = RectangleDecoder(decoder="pyturbojpeg").decode(damaged, (0, 0, 24, 163), (121, 163))
    assert np.array_equal(found, pillow_pixels(data)[:24])


def test_progressive_images_that_end_early_are_left_to_pillow() -> None:
    """libjpeg smooths the scans that it has, by rules that have changed, and reports no error: no scan is damaged."""
    data = encoded(photo(48, 64), "JPEG", progressive=True, quality=30)
    scans = [place for place in range(len(data)) if data[place : place + 2] == b"\xff\xda"]
    assert len(scans) == 10
    for next_scan in scans[1:]:
        early = data[:next_scan] + b"\xff\xd9"
        with pytest.raises(ImageError, match="is cut short"):
            fast_decoder("pyturbojpeg")[1](early)
        assert np.array_equal(decode(early, decoder="pyturbojpeg"), pillow_pixels(early))
    assert np.array_equal(fast_decoder("pyturbojpeg")[1](data), pillow_pixels(data))


WRAPPED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("really", {path!r})
really = importlib.util.module_from_spec(spec)
spec.loader.exec_module(really)
__version__, TJPF_RGB = really.__version__, really.TJPF_RGB

class TurboJPEG(really.TurboJPEG):
    def decode(self, data, pixel_format, factor, flags, out):
{body}
"""

SIMPLE_UPSAMPLING = "return super().decode(data, pixel_format, factor, really.TJFLAG_FASTUPSAMPLE, out)"

SAYS_NOTHING = """\
try:
    return super().decode(data, pixel_format, factor, flags, out)
except OSError:
    return really.np.zeros((16, 16, 3), "u1")
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (SIMPLE_UPSAMPLING, "decodes other pixels than Pillow; libjpeg-turbo 2.1 or newer is required"),
        (SAYS_NOTHING, "does not report the warnings of libjpeg"),
    ],
    ids=["as before 2.1", "silent"],
)
def test_a_library_that_would_change_pixels_is_refused(body: str, reason: str, tmp_path: Path) -> None:
    import turbojpeg

    text = WRAPPED.format(path=turbojpeg.__file__, body=textwrap.indent(body, " " * 8))
    (tmp_path / "turbojpeg.py").write_text(text)
    assert reason in refusal(tmp_path)


def test_a_system_without_the_library_is_told_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "turbojpeg.py").write_text(
        "__version__ = '1'\nclass TurboJPEG:\n    def __init__(self): raise RuntimeError('Unable to locate it.\\nSay')"
    )
    assert refusal(tmp_path) == (
        "the decoder pyturbojpeg: PyTurboJPEG 1 finds no libturbojpeg on this system (pip install 'PyTurboJPEG<2', and"
        " the system's libjpeg-turbo: libturbojpeg0 on Debian, jpeg-turbo with Homebrew)"
    )


def refusal(path: Path) -> str:
    """Return the reason why the decoder is refused if this directory comes first in Python's path."""
    code = "from packer._images.decode import decode, fast_decoder; fast_decoder('pyturbojpeg')"
    told = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=False)
    kind, _, message = run.stderr.splitlines()[-1].partition(": ")
    assert kind == "packer.errors.MissingDependencyError", run.stderr
    return message


def test_the_doctor_names_the_library_and_what_decodes_in_the_place_of_simplejpeg(tmp_path: Path) -> None:
    for name in ("simplejpeg", "cv2"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden by a test')\n")
    code = """
from packer import doctor
(found,) = [finding for finding in doctor().findings if finding.topic == "libraries"]
print(found.values["jpeg"], found.values["PyTurboJPEG"], found.values["libturbojpeg"])
print(found.means)
"""
    told = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True)
    values, means = run.stdout.splitlines()
    name, version, file = values.split()
    assert (name, version) == ("pillow", __import__("turbojpeg").__version__)
    assert "JPEGs that packer's own decoder does not support go to Pillow" in means or "JPEGs go to Pillow" in means
    assert f"PyTurboJPEG, which decodes on request, uses {file}" in means
    if sys.platform == "linux":
        assert "libturbojpeg" in Path(file).name
