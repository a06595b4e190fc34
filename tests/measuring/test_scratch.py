"""The directory in which samples are converted to be measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from packer._measuring.harness import scratch_directory

FORKED = """
import os, signal, sys, time
from pathlib import Path
from packer._measuring.harness import scratch_directory

with scratch_directory("test", Path(sys.argv[1])):
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
print(os.listdir(sys.argv[1]), flush=True)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def test_it_lies_where_it_is_asked_for_and_goes(tmp_path: Path) -> None:
    with scratch_directory("test", tmp_path) as made:
        assert (made.parent, made.name[:12]) == (tmp_path, "packer-test-")
        (made / "pack").mkdir()
    assert os.listdir(tmp_path) == []
    with scratch_directory("test", tmp_path / "nowhere") as made:
        assert made.is_dir()
    assert not made.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with forks")
def test_a_fork_that_lives_on_is_not_waited_for(tmp_path: Path) -> None:
    line = [sys.executable, "-c", FORKED, str(tmp_path)]
    assert subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout == "[]\n"
