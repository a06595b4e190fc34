"""Packs of every format and codec as earlier versions wrote them: every later version must open them.

``python -m tests.golden`` writes the packs that are missing; those that are there stay as they are. ``samples.json``
describes their samples, and ``fields.json`` the values of their fields.

``leftovers`` has other files of earlier versions: unfinished work, indexes, a cache, states; see there.

``transcoded`` has JPEGs of all kinds, and digests of the tiled JPEGs that packer's first transcoder made from them.
"""

from packer._codecs import CODECS

TILED = ("keep-tiled", "jpeg-tiled", "keep-tiled-parts", "jpeg-tiled-parts")
"""Packs with tiled JPEGs: of files that are kept and of images that are encoded, as one pack and in parts."""

LABELED = ("keep-unlabeled", "keep-ints", "keep-floats", "keep-floats-parts")
"""Packs with types of labels that schema 1 does not have."""

FIELDED = ("keep-fields",)
"""Packs whose samples have values of every kind of field, which schema 1 does not have."""

KINDS = {1: (*CODECS, *TILED), 2: (*LABELED, *FIELDED)}
"""The packs of each schema, by their names without the suffix; each exists in every format."""
