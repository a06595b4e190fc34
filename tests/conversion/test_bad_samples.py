"""`on_error="skip"`: a sample that cannot be used is left out and listed, of whatever source; else it is an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from packer._account import BadSamples
from packer._containers import list_samples
from packer._containers.contract import Container, Entry
from packer.errors import SourceError


class Entries(Container):
    """A container of entries that a test gives."""

    kind = "entries"
    given: Sequence[Entry] = ()

    @classmethod
    def recognise_file(cls, path: Path, head: bytes) -> bool:
        return False

    @classmethod
    def open(cls, paths: Sequence[Path], keys: Any) -> Container:
        raise NotImplementedError

    def entries(self, unit: int) -> Iterator[Entry]:
        yield from self.given


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    (tmp_path / "a.bin").write_bytes(bytes(100))
    container = Entries(tmp_path, ["a.bin"])
    container.given = [
        Entry("a.jpg", b"1", "cat"),
        Entry("b.jpg", b"", "dog", problem="its image is null"),
        Entry("c.jpg", b"3", "dog"),
    ]
    return container


def test_an_entry_with_a_problem_is_an_error(entries: Entries) -> None:
    with pytest.raises(SourceError, match=r"b\.jpg: its image is null\. .*--on-error skip"):
        list_samples(entries)


def test_an_entry_with_a_problem_is_left_out(entries: Entries) -> None:
    bad = BadSamples(skip=True)
    listed = list_samples(entries, bad=bad)
    assert (list(listed.names), listed.labels.tolist(), listed.classes) == (["a.jpg", "c.jpg"], [0, 1], ["cat", "dog"])
    assert [one["name"] for one in bad.found] == ["b.jpg"]
