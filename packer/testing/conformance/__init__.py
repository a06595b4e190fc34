"""The contracts of formats and containers, as base classes for test classes.

To test a format, write a class that names it::

    class TestLMDB(FileFormatConformance):
        format = "lmdb"

`FormatConformance` is the contract of every format. `FileFormatConformance` adds tests for formats on a disk, and
`ForeignLayoutConformance` for formats whose files have the layout of another tool. `PackConformance` and
`FilePackConformance` are subsets of these two contracts, for packs that were not written sample by sample.

To test a container, write a class that names it and has a method that writes a file::

    class TestBagz(ContainerConformance):
        container = "bagz"
        def write(self, path, samples): ...
"""

from __future__ import annotations

from packer.testing.conformance.containers import ContainerConformance
from packer.testing.conformance.packs import FilePackConformance, PackConformance
from packer.testing.conformance.writing import FileFormatConformance, ForeignLayoutConformance, FormatConformance
from packer.testing.samples import (
    Change,
    assert_holds,
    contents,
    draw_samples,
    drawn,
    files_of,
    flip,
    names,
    sizes,
    write_pack,
)

__all__ = [
    "Change",
    "ContainerConformance",
    "FileFormatConformance",
    "FilePackConformance",
    "ForeignLayoutConformance",
    "FormatConformance",
    "PackConformance",
    "assert_holds",
    "contents",
    "draw_samples",
    "drawn",
    "files_of",
    "flip",
    "names",
    "sizes",
    "write_pack",
]
