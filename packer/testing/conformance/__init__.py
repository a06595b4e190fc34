"""The contracts of formats and containers, as test classes that the test class of each inherits.

A format is tested by one class that says which format it is::

    class TestLMDB(FileFormatConformance):
        format = "lmdb"

`FormatConformance` is what every format must do; `FileFormatConformance` adds what one that lies on a disk must do, and
`ForeignLayoutConformance` what one must do whose files are another tool's. `PackConformance` and
`FilePackConformance` are the tests of the first two that also hold for packs that no writer wrote sample by sample.

A container is tested by a class that says which one it is, and how a file of it is written::

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
