"""libjpeg-turbo through PyTurboJPEG, made strict.

PyTurboJPEG turns libjpeg's warnings (data that end too early, say) into Python warnings and returns what was
decoded, with the rest of the array as it was allocated. Here a warning is an error, so that the caller can
ask the reference decoder. `ImportError` where the library is not installed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from packer.errors import ImageError
from packer.sample import Buffer

try:
    from turbojpeg import TJPF_RGB, TJSAMP_420, TurboJPEG
except ImportError as error:  # also where another package called turbojpeg shadows it
    raise ImportError("PyTurboJPEG is not installed") from error

__all__ = ["decode_jpeg", "encode_jpeg"]


if not hasattr(TurboJPEG, "_TurboJPEG__report_error"):
    raise ImportError("this release of PyTurboJPEG reports errors in another way; 1.8 is known to work")


class _StrictTurboJPEG(TurboJPEG):  # type: ignore[misc]
    def _TurboJPEG__report_error(self, handle: int) -> None:  # noqa: N802 - PyTurboJPEG calls it by this name
        raise ImageError(self._TurboJPEG__get_error_string(handle))


try:
    _codec = _StrictTurboJPEG()  # thread-safe: every call makes a handle of its own
except (RuntimeError, OSError, AttributeError) as error:
    raise ImportError(
        "libturbojpeg is not installed (Debian, Ubuntu: apt install libturbojpeg0; macOS: brew install jpeg-turbo)"
    ) from error


def decode_jpeg(data: Buffer) -> npt.NDArray[np.uint8]:
    """Decode to (height, width, 3) uint8 RGB; ImageError on whatever libjpeg complains about."""
    try:
        pixels: npt.NDArray[np.uint8] = _codec.decode(data, TJPF_RGB)
    except OSError as error:
        raise ImageError(str(error)) from error
    return pixels


def encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB with 4:2:0 subsampling, as Pillow does by default."""
    return bytes(_codec.encode(pixels, quality, TJPF_RGB, TJSAMP_420))
