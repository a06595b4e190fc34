"""Exit statuses: each has one meaning, and no traceback reaches a person."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from packer._cli import EXIT_STATUS, cli
from packer._formats import open_pack
from packer._table import Sample
from tests.command import command, packer, packer_many
from tests.samples import solid, write_pack


def test_statuses(tmp_path: Path) -> None:
    solid(tmp_path / "root" / "a" / "x.png")
    (tmp_path / "root" / "a" / "bad.png").write_text("bad")
    damaged = write_pack(tmp_path / "bad.lmdb", "lmdb", [Sample("/x", 0, b"x", 1, 1)])
    damaged_data = write_pack(tmp_path / "data.lmdb", "lmdb", [Sample("x", 0, b"some data", 1, 1)])
    damaged_data.write_bytes(damaged_data.read_bytes().replace(b"some data", b"same data"))
    emptied = tmp_path / "emptied.lmdb"
    emptied.touch()
    lock = tmp_path / "locked.lmdb.partial" / "lock"
    lock.parent.mkdir()
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        for status, arguments in [
            ("ok", ["--help"]),
            ("ok", ["--version"]),
            ("usage", ["nothing"]),
            ("usage", ["convert"]),
            ("error", ["info", tmp_path / "missing.lmdb"]),
            ("error", ["convert", tmp_path / "root", tmp_path / "x.lmdb"]),
            ("skipped", ["convert", tmp_path / "root", tmp_path / "x.lmdb", "--on-error", "skip", "--quiet"]),
            ("ok", ["verify", tmp_path / "x.lmdb"]),
            ("corrupt", ["verify", damaged]),
            ("corrupt", ["verify", emptied]),
            ("error", ["verify", tmp_path / "missing.lmdb"]),
            ("error", ["info", emptied]),
            ("corrupt", ["export", damaged, tmp_path / "out"]),
            ("corrupt", ["convert", damaged_data, tmp_path / "y.lmdb"]),
            ("corrupt", ["convert", damaged_data, tmp_path / "y.h5", "--parts", 1]),
            ("corrupt", ["merge", damaged_data, tmp_path / "y.pth"]),
            ("locked", ["convert", tmp_path / "root", tmp_path / "locked.lmdb"]),
        ]:
            result = packer(*arguments)
            assert result.returncode == EXIT_STATUS[status], (arguments, result.stderr)
            assert "Traceback" not in result.stderr
            assert status != "corrupt" or "--on-error" not in result.stderr
        holder.kill()
    assert sorted(EXIT_STATUS.values()) == [0, 1, 2, 3, 4, 5, 130, 143]


def test_without_arguments() -> None:
    result = packer()
    assert "Usage:" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.returncode in (0, 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
def test_output_to_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "packer", "--help"], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == EXIT_STATUS["error"]
    assert result.stderr.startswith("packer: the output cannot be written: No space left on device.")
    assert result.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a shell closes streams elsewhere")
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_command_works_where_standard_streams_are_closed(tmp_path: Path, closed: str) -> None:
    tree = tmp_path / "tree" / "a"
    tree.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tree / "1.jpg")
    line = command("convert", tree.parent, tmp_path / "a.lmdb")
    assert subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *line], check=False).returncode == 0
    with open_pack(tmp_path / "a.lmdb") as pack:
        assert len(pack) == 1


INTERRUPTED = """
import runpy, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "packer._cli.measure":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler if sys.argv.pop() == "heard" else signal.SIG_IGN)
sys.meta_path.insert(0, Finder())
runpy.run_module("packer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a signal ends a process otherwise")
def test_ctrl_c_while_the_command_line_is_imported_is_no_traceback() -> None:
    line = [sys.executable, "-c", INTERRUPTED, "--version"]
    heard = subprocess.run([*line, "heard"], check=False, capture_output=True, text=True)
    assert (heard.returncode, heard.stdout, heard.stderr) == (-signal.SIGINT, "", "")
    ignored = subprocess.run([*line, "ignored"], check=False, capture_output=True, text=True)
    assert (ignored.returncode, ignored.stderr) == (0, "")


MISTAKES = {
    "nothing": "usage",
    "--bad": "usage",
    "convert": "usage",
    "convert x": "usage",
    "convert x y.lmdb --bad": "usage",
    "convert x y.lmdb --limit x": "usage",
    "convert x y.lmdb --codec x": "usage",
    "convert x y.lmdb --quality 3": "usage",
    "convert x y.lmdb --part 0": "usage",
    "convert x y.odd": "error",
    "convert x y.lmdb": "error",
    "index a.tar b.tar c.index": "usage",
    "merge x": "usage",
    "merge x y.lmdb": "error",
    "verify x --quick --digest": "usage",
    "info x": "error",
    "export x y": "error",
    "cache clear --bad": "usage",
    "cache clear": "usage",
    "estimate x --seconds 0": "usage",
    "view x": "error",
    "bench x": "error",
}


def test_every_mistake_is_told_in_one_style(tmp_path: Path) -> None:
    """The message comes first; where the command was not used as it is meant, the way to its help follows."""
    lines = [[str(tmp_path / word) if word[:1] in "xy" else word for word in line.split()] for line in MISTAKES]
    for (line, status), result in zip(MISTAKES.items(), packer_many(lines), strict=True):
        first, *more = result.stderr.splitlines()
        assert result.returncode == EXIT_STATUS[status], (line, result.stderr)
        assert first.startswith("packer: "), (line, first)
        command = line.split()[0] if line.split()[0] in cli.commands else ""
        helps = [f"Try `packer {'cache clear' if command == 'cache' else command}".rstrip() + " --help`."]
        assert more == (helps if status == "usage" else []), (line, more)
        assert not result.stdout
