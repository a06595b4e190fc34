"""Decodes with the system's libjpeg-turbo, through PyTurboJPEG. `ImportError` if one of the two is not installed.

The system's library may be of any version. So two small images are decoded first, as a test. Libraries before 2.1
return other pixels, and a binding that ignores libjpeg's warnings would accept half an image. Progressive images that
end early are left to Pillow: libjpeg smooths them, by rules that differ between 2.1 and 3.
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import turbojpeg
from PIL import Image

from packer._images import pillow
from packer._images.jpeg import AFTER_THE_LAST_ROW, IN_SCAN, JPEGHeader, read_header
from packer._table import Buffer
from packer.errors import ImageError

_SOS, _EOI = 0xDA, 0xD9


class _Library(turbojpeg.TurboJPEG):  # type: ignore[misc]
    """PyTurboJPEG, changed so that it raises an error if libjpeg complains.

    For a damaged image, PyTurboJPEG 1 returns the intact part and issues a Python warning. packer could not tell
    which thread's image had caused the warning. `_require_sound` checks that PyTurboJPEG still calls the
    overridden method.
    """

    def _TurboJPEG__report_error(self, handle: int) -> None:  # noqa: N802 - how Python spells a private method
        raise OSError(self._TurboJPEG__get_error_string(handle))


def decode_jpeg(data: Buffer, out: npt.NDArray[np.uint8] | None = None, *, cut: bool = False) -> npt.NDArray[np.uint8]:
    """Decode to uint8 RGB; ImageError if libjpeg complains.

    The parameters and the result are the same as those of `packer._images.turbojpeg.decode_jpeg`.

    Parameters
    ----------
    data : bytes-like
    out : (height, width, 3) uint8 array, optional
        The output for the pixels; contiguous.
    cut : bool
        Whether the header declares fewer rows than are coded, so that data are left over after decoding. Needs `out`.

    Returns
    -------
    (height, width, 3) uint8 array
    """
    header = read_header(data)
    if header is not None and not header.sequential and not _is_complete(data, header):
        raise ImageError("it is a progressive image that is cut short")
    try:
        pixels = _library.decode(data, turbojpeg.TJPF_RGB, None, 0, out)
    except (OSError, ValueError) as error:
        if cut and out is not None and AFTER_THE_LAST_ROW in str(error):
            return out
        raise ImageError(str(error)) from error
    if out is not None and pixels is not out:
        raise ImageError(
            f"it has {pixels.shape[1]} x {pixels.shape[0]} pixels instead of {out.shape[1]} x {out.shape[0]}"
        )
    return pixels  # type: ignore[no-any-return]


def _is_complete(data: Buffer, header: JPEGHeader) -> bool:
    """Tell whether a progressive image is undamaged, and its scans refine every coefficient to its last bit."""
    # For each coefficient of each component, the number of bits that scans must still add; 1 before the first scan.
    bits = {component: [1] * 64 for component in data[header.frame + 6 :][: 3 * header.components : 3]}
    position = header.frame - 2
    try:
        while True:
            found = IN_SCAN.search(data, position + (data[position] << 8 | data[position + 1]))
            if found is None or data[found.end() - 1] == _EOI:
                return not any(map(any, bits.values()))
            position = found.end()
            if data[position - 1] == _SOS:
                end = position + 3 + 2 * data[position + 2]
                first, last, accuracy = data[end : end + 3]
                for component in data[position + 3 : end : 2]:
                    bits[component][first : last + 1] = [accuracy & 15] * (last + 1 - first)
    except (IndexError, KeyError, ValueError):
        return False


def _load() -> _Library:
    try:
        return _Library()
    except RuntimeError as error:
        raise ImportError(f"PyTurboJPEG {turbojpeg.__version__} finds no libturbojpeg on this system") from error
    except (OSError, AttributeError, KeyError) as error:  # the binding does not support this libturbojpeg
        (reason, *_) = str(error).splitlines() or [repr(error)]
        raise ImportError(f"PyTurboJPEG {turbojpeg.__version__}: {reason}") from error


def _require_sound() -> None:
    """Raise ImportError if the library decodes other pixels than Pillow, or does not report a truncated image."""
    stream = io.BytesIO()
    colours = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(colours).save(stream, "JPEG", subsampling="4:2:2", quality=90)
    header = read_header(stream.getvalue())
    assert header is not None
    image = bytearray(stream.getvalue())
    image[header.frame + 7] = 0x12  # 4:4:0, which has the blocks of 4:2:2 in the same order
    if not np.array_equal(decode_jpeg(bytes(image)), pillow.decode(image)):
        raise ImportError(
            "the system's libturbojpeg decodes other pixels than Pillow; libjpeg-turbo 2.1 or newer is required"
        )
    try:
        decode_jpeg(bytes(image[: (header.scan + len(image)) // 2]))
    except ImageError:
        return
    raise ImportError(f"PyTurboJPEG {turbojpeg.__version__} does not report the warnings of libjpeg")


_library = _load()
_require_sound()
