"""Packs at a URL pass the conformance tests of packs on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from packer._formats import Reader
from packer.testing.conformance import PackConformance
from packer.testing.conformance.packs import PackCase, ReadingConformance
from tests.formats import test_index, test_parts
from tests.remote.fileserver import Served


class Remote(PackCase):
    """Opens packs that were written to a disk at their URLs."""

    forks = 2  # a forked process starts its own fetcher

    @pytest.fixture(autouse=True)
    def _served(self, served: Served) -> None:
        self.served = served

    def open(self, path: Path, *, check: str = "always") -> Reader:
        """Open a pack as one of this format."""
        return self.row.open_reader()(self.served.url(path), check=check)


class TestLMDB(Remote, PackConformance):
    format = "lmdb"


class TestHDF5(Remote, PackConformance):
    format = "hdf5"


class TestPth(Remote, PackConformance):
    format = "pth"
    options = {"shard_size": 40_000}  # noqa: RUF012 - read only


class TestWebDataset(Remote, PackConformance):
    format = "wds"
    options = {"shard_size": 400_000}  # noqa: RUF012 - read only


class TestParts(Remote, test_parts.PartsConformance):
    format = "pth"


class TestIndex(Remote, test_index.TestIndex):
    pass


class Layout(Remote, ReadingConformance):
    """The layout of another tool: only the positions of samples are its own; the table is tested with WebDataset's."""

    test_gives_back_what_was_written = test_gives_back_any_name = None  # type: ignore[assignment]
    test_columns_larger_than_a_page = None  # type: ignore[assignment]


class TestTFRecord(Layout):
    format = "tfrecord"
    options = {"shard_size": 100_000}  # noqa: RUF012 - read only


class TestRecordIO(Layout):
    format = "rec"
    test_gives_back_labels_of_every_type = None  # type: ignore[assignment]  # it has no large labels


class TestMDS(Layout):
    format = "mds"
    options = {"shard_size": 100_000}  # noqa: RUF012 - read only


class TestCaffe(Layout):
    format = "caffe"
    test_gives_back_labels_of_every_type = None  # type: ignore[assignment]  # it has only small integers


class TestN5(Layout):
    format = "n5"
    options = {"shard_size": 35_000}  # noqa: RUF012 - read only


class TestParquet(Layout):
    format = "parquet"
    options = {"shard_size": 100_000}  # noqa: RUF012 - read only
