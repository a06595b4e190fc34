"""Packs of every format and codec as earlier versions wrote them: they must open for ever.

``python -m tests.golden`` writes the packs of the present schema, where they are missing; those that are there, and
those of older schemas, stay as they are. ``samples.json`` says what is in them.
"""

from packer._codecs import CODECS

TILED = ("keep-tiled", "jpeg-tiled", "keep-tiled-parts", "jpeg-tiled-parts")
"""Packs with tiled JPEGs: of files that were kept, and of images that were encoded; in one piece, and in parts."""

KINDS = (*CODECS, *TILED)
"""Which packs there are in each format, by their names without the suffix."""
