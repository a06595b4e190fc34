"""Readers are independent of each other, of threads and of processes."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from packer._formats import Reader
from packer._table import Sample
from packer.errors import PackError
from packer.testing.conformance.case import PackCase
from packer.testing.conformance.samples import (
    assert_holds,
    with_values,
)

__all__ = ["SharingConformance"]


class SharingConformance(PackCase):
    """Many read one pack at once, through one reader and through several."""

    forks = 40
    """How many processes begin while threads read."""

    def test_a_pickled_reader_is_its_path(self, reader: Reader, samples: list[Sample]) -> None:
        pickled = pickle.dumps(reader)
        assert len(pickled) < 1000
        with pickle.loads(pickled) as copy:
            assert (copy.path, copy.check) == (reader.path, reader.check)
            assert_holds(copy, samples)

    def test_two_readers_do_not_disturb_each_other(self, path: Path, reader: Reader, samples: list[Sample]) -> None:
        with self.open(path) as other:
            for index, sample in enumerate(samples):
                assert bytes(reader.read(index)) == bytes(other.read(index)) == sample.data
        assert_holds(reader, samples)

    def test_many_threads_read_at_once(self, reader: Reader, samples: list[Sample]) -> None:
        start = threading.Barrier(8)

        def read(seed: int) -> bool:
            indices = list(range(len(samples))) * 5
            random.Random(seed).shuffle(indices)
            start.wait()
            return all(bytes(reader.read(index)) == samples[index].data for index in indices)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(8)))

    def test_fields_are_read_through_a_pickled_reader_and_by_many_threads(
        self, path: Path, samples: list[Sample]
    ) -> None:
        samples = with_values(samples)
        self.write(path, samples)
        with self.open(path) as reader, pickle.loads(pickle.dumps(reader)) as copy, ThreadPoolExecutor(8) as pool:
            assert_holds(copy, samples)
            for _ in pool.map(lambda _: assert_holds(reader, samples), range(8)):
                pass

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
    def test_reads_on_both_sides_of_a_fork(self, reader: Reader, samples: list[Sample]) -> None:
        assert bytes(reader.read(0)) == samples[0].data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which test runners have
            child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(20):
                    assert_holds(reader, samples)
                status = 0
            finally:
                os._exit(status)
        try:
            for _ in range(20):
                assert_holds(reader, samples)
        finally:
            _, status = os.waitpid(child, 0)
        assert status == 0

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
    def test_forks_while_threads_read(self, reader: Reader, samples: list[Sample]) -> None:
        """A lock that another thread holds at the fork stays locked in the child for ever."""
        stop = threading.Event()

        def read_on() -> None:
            while not stop.is_set():
                reader.read(0)

        threads = [threading.Thread(target=read_on) for _ in range(3)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for _ in range(self.forks):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                if child == 0:
                    signal.alarm(20)  # kills a child that hangs
                    os._exit(0 if bytes(reader.read(1)) == samples[1].data else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            for thread in threads:
                thread.join()

    def test_a_closed_reader_reads_no_more(self, path: Path, samples: list[Sample], tmp_path: Path) -> None:
        self.write(path, samples)
        reader = self.open(path, check="never")
        reader.read(0)
        label = reader.table.label
        reader.close()
        reader.close()
        assert label.tolist() == [sample.label for sample in samples]
        (tmp_path / "other").write_bytes(bytes(1 << 20))
        with open(tmp_path / "other", "rb"):  # takes over the number of the closed file
            for index in range(len(samples)):
                with pytest.raises((PackError, ValueError)):
                    reader.read(index)
            with pytest.raises((PackError, ValueError)):
                reader.locate(np.arange(len(samples)))
