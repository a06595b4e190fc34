"""Decodes with libjpeg-turbo, through simplejpeg, which bundles that library.

`ImportError` if simplejpeg is not installed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import simplejpeg

from packer._images.jpeg import AFTER_THE_LAST_ROW
from packer._table import Buffer
from packer.errors import ImageError


def decode_jpeg(data: Buffer, out: npt.NDArray[np.uint8] | None = None, *, cut: bool = False) -> npt.NDArray[np.uint8]:
    """Decode to uint8 RGB; ImageError if libjpeg complains.

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
    try:
        return simplejpeg.decode_jpeg(data, "RGB", False, False, 0, 0, 1.0, out)  # type: ignore[no-any-return]
    except ValueError as error:
        if cut and out is not None and AFTER_THE_LAST_ROW in str(error):
            return out
        raise ImageError(str(error)) from error
