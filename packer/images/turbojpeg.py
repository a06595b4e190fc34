"""libjpeg-turbo through PyTurboJPEG, made strict.

PyTurboJPEG turns libjpeg's warnings (data that end too early, say) into Python warnings and returns what was
decoded, with the rest of the array as it was allocated. Here a warning is an error, so that the caller can
ask the reference decoder. `ImportError` where the library is not installed.
"""

from __future__ import annotations

import inspect

import numpy as np
import numpy.typing as npt

from packer.errors import ImageError
from packer.sample import Buffer

try:
    from turbojpeg import TJPF_RGB, TJSAMP_420, TurboJPEG
except ImportError as error:  # also where another package called turbojpeg shadows it
    raise ImportError("PyTurboJPEG is not installed") from error

__all__ = ["CUTS", "decode_jpeg", "encode_jpeg"]


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


CUTS = "dst" in inspect.signature(TurboJPEG.decode).parameters
"""Whether this PyTurboJPEG decodes into given memory, where the rows of a cut image are found; 1.8.0 does not."""

_AFTER_THE_LAST_ROW = "extraneous bytes before marker"


def decode_jpeg(
    data: Buffer, out: npt.NDArray[np.uint8] | None = None, *, halvings: int = 0, cut: bool = False
) -> npt.NDArray[np.uint8]:
    """Decode to uint8 RGB; ImageError on whatever libjpeg complains about.

    Parameters
    ----------
    data : bytes-like
    out : (height, width, 3) uint8 array, optional
        Where the pixels go, if it has the right shape.
    halvings : int
        How often to halve the size, by decoding fewer coefficients: 0 to 3.
    cut : bool
        Whether the header announces fewer rows than there are, so that coded data are left over.

    Returns
    -------
    (ceil(height / 2**halvings), ceil(width / 2**halvings), 3) uint8 array
    """
    target = {"dst": out} if CUTS else {}
    try:
        return _codec.decode(data, TJPF_RGB, (1, 1 << halvings), **target)  # type: ignore[no-any-return]
    except ImageError as error:
        # libjpeg keeps its first warning. If that is of what follows the last row, all rows are as they should be.
        if cut and CUTS and out is not None and _AFTER_THE_LAST_ROW in error.reason:
            return out
        raise
    except OSError as error:
        raise ImageError(str(error)) from error


def encode_jpeg(pixels: npt.NDArray[np.uint8], quality: int) -> bytes:
    """Encode (height, width, 3) uint8 RGB with 4:2:0 subsampling, as Pillow does by default."""
    return bytes(_codec.encode(pixels, quality, TJPF_RGB, TJSAMP_420))
