"""Packs of every format and codec as earlier versions wrote them: they must open for ever.

``python -m tests.golden`` writes the packs that are missing; those that are there stay as they are. ``samples.json``
says what is in them, and ``fields.json`` which values of fields.

``leftovers`` has what is no pack: unfinished work, indexes, a cache, states; see there.

``transcoded`` has JPEGs of all kinds, and digests of the tiled JPEGs that packer has made of them from the beginning.
"""

from packer._codecs import CODECS

TILED = ("keep-tiled", "jpeg-tiled", "keep-tiled-parts", "jpeg-tiled-parts")
"""Packs with tiled JPEGs: of files that were kept, and of images that were encoded; in one piece, and in parts."""

LABELED = ("keep-unlabeled", "keep-ints", "keep-floats", "keep-floats-parts")
"""Packs whose labels schema 1 does not have."""

FIELDED = ("keep-fields",)
"""Packs whose samples have values of every kind of field, which schema 1 does not have."""

KINDS = {1: (*CODECS, *TILED), 2: (*LABELED, *FIELDED)}
"""Which packs of each schema there are in each format, by their names without the suffix."""
