"""Files of images that may hold ids: said, as an image is smoothed by a crop, and a mask is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packer._images.png import SIGNATURE
from packer._sources.base import Source
from packer._sources.fieldvalues import Files
from packer._storage.opening import open_regular
from packer.errors import printable

__all__ = ["notes_on_gray_files"]

_GRAY, _PALETTE = 0, 3
"""What byte 25 of a PNG says of its pixels."""


def notes_on_gray_files(source: Source, said: Iterable[str]) -> Iterator[str]:
    """Yield a note on each field of ``NAME=TEMPLATE`` that became an image, and whose first file may be a mask."""
    columns = {column.field.name: column for column in source.columns}
    for text in said:
        name, _, template = text.partition("=")
        column = columns.get(name)
        if isinstance(column, Files) and column.field.kind == "image" and _is_gray(column):
            yield f"{name} is an image, which crops smooth; for ids say --field {name}:mask={printable(template)}"


def _is_gray(column: Files) -> bool:
    """Tell whether the first file is a PNG of one channel of 8 bits at most, or of a palette."""
    path = next((path for path in map(column.path, range(len(column))) if path is not None), None)
    if path is None:
        return False
    try:
        with open(open_regular(path), "rb") as file:
            head = file.read(26)
    except OSError:  # which reading the value says
        return False
    return len(head) == 26 and head.startswith(SIGNATURE) and head[24] <= 8 and head[25] in (_GRAY, _PALETTE)
