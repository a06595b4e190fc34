"""Tests that every format and every container must pass, as base classes of test classes.

To test a format, write a class with the format's name::

    class TestLMDB(FileFormatConformance):
        format = "lmdb"

`FormatConformance` has the tests for every format. `FileFormatConformance` adds tests for formats on a disk, and
`ForeignLayoutConformance` adds tests for formats whose files have the layout of another tool. `PackConformance` and
`FilePackConformance` have the tests for packs that were not written sample by sample, such as packs with parts;
`FormatConformance` and `FileFormatConformance` include these tests.

To test a container, write a class with the container's name and a method that writes a file::

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
