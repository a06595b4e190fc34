"""Exit statuses: each has one meaning, and no command prints a traceback."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from packer._cli import EXIT_STATUS, cli
from packer._formats import open_pack
from packer._table import Sample
from tests.command import command, packer, packer_many
from tests.samples import solid, write_pack

HOLD = (
    "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX)\n"
    "print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with images, sound and damaged packs, and a pack that another process is writing."""
    root = tmp_path_factory.mktemp("statuses")
    solid(root / "sound" / "a" / "x.png")
    solid(root / "tree" / "a" / "x.png")
    (root / "tree" / "a" / "bad.png").write_text("bad")
    write_pack(root / "names.lmdb", "lmdb", [Sample("/x", 0, b"x", 1, 1)])
    data = write_pack(root / "data.lmdb", "lmdb", [Sample("x", 0, b"some data", 1, 1)])
    data.write_bytes(data.read_bytes().replace(b"some data", b"same data"))
    (root / "empty.lmdb").touch()
    packer("convert", root / "sound", root / "sound.lmdb")
    packer("convert", root / "tree", root / "skipped.lmdb", "--on-error", "skip")
    lock = root / "locked.lmdb.partial" / "lock"
    lock.parent.mkdir()
    line = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield root
        holder.kill()


STATUSES = {
    "ok": [
        "--help",
        "--version",
        "completion bash",
        "convert @sound @new.lmdb",
        "convert @sound @parts.h5 --parts 1",
        "convert @sound @parts.h5 --parts 1",  # done already
        "estimate @sound",
        "export @sound.lmdb @new",
        "index @sound @new.index",
        "info @sound.lmdb",
        "merge @sound.lmdb @merged.lmdb",
        "scan @sound @new.scan",
        "verify @sound.lmdb",
    ],
    "error": [
        "append @sound.lmdb @sound",
        "bench @missing",
        "cache info @missing",
        "convert @tree @stopped.lmdb",
        "convert @missing @x.lmdb",
        "doctor @missing",
        "estimate @missing",
        "export @missing @out",
        "index @missing @x.index",
        "info @empty.lmdb",
        "info @missing",
        "merge @missing @x.lmdb",
        "scan @missing @x.scan",
        "stage @missing @out",
        "tune @missing",
        "unstage @missing @sound",
        "verify @missing",
        "view @missing",
        "warm @missing",
    ],
    "usage": ["nothing", "convert", "convert @sound @x.lmdb --quality 3", "verify @sound.lmdb --quick --digest"],
    "skipped": [
        "convert @tree @new.h5 --on-error skip",
        "convert @tree @parts.lmdb --on-error skip --parts 1",
        "convert @tree @parts.lmdb --on-error skip --parts 1",  # done already
        "index @tree @skipped.index --on-error skip",
        "merge @skipped.lmdb @merged.h5",
    ],
    "corrupt": [
        "convert @data.lmdb @y.h5 --parts 1",
        "convert @data.lmdb @y.lmdb",
        "export @names.lmdb @out",
        "merge @data.lmdb @y.pth",
        "verify @data.lmdb",
        "verify @empty.lmdb",
        "verify @names.lmdb",
        "verify @names.lmdb --quiet",
    ],
    "locked": ["convert @sound @locked.lmdb"],
}
"""Commands by the status with which they end; `@` stands for a directory."""


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_has_one_meaning(files: Path, status: str) -> None:
    lines = [line.replace("@", f"{files}/") for line in STATUSES[status]]
    for line, result in zip(lines, packer_many(line.split() for line in lines), strict=True):
        assert result.returncode == EXIT_STATUS[status], (line, result)
        assert "Traceback" not in result.stderr, (line, result)
        assert status != "corrupt" or "--on-error" not in result.stderr, (line, result)
        if status in ("error", "usage", "locked"):
            assert result.stderr.splitlines()[-1 if status != "usage" else 0].startswith("packer: "), (line, result)


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", "sigint"), ("SIGTERM", "sigterm")])
def test_a_signal_has_its_status(name: str, status: str) -> None:
    waiting = (
        "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print('waits', flush=True); time.sleep(60)"
    )
    line = command("doctor", "--train", shlex.join([sys.executable, "-c", waiting]))
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        send = os.killpg if name == "SIGINT" else os.kill  # Ctrl-C reaches both processes
        send(process.pid, getattr(signal, name))
        _, errors = process.communicate(timeout=60)
    assert process.returncode == EXIT_STATUS[status], errors
    assert "Traceback" not in errors


MANY_SIGNALS = """
import signal, sys
from packer import _cli

class Module:
    def __del__(self):  # while Python ends
        for name in ("SIGINT", "SIGTERM"):
            signal.raise_signal(getattr(signal, name))

kept = Module()

def run():
    try:
        signal.raise_signal(getattr(signal, sys.argv[1]))
    finally:
        for name in ("SIGINT", "SIGTERM", "SIGINT"):
            signal.raise_signal(getattr(signal, name))
        print("cleaned up")

_cli._run_command = run
if sys.argv[2:] == ["later"]:
    _cli._SECONDS_TO_END = 0
_cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has other signals")
@pytest.mark.parametrize(("name", "status"), [("SIGINT", "sigint"), ("SIGTERM", "sigterm")])
def test_signals_that_follow_do_not_interrupt_the_ending(name: str, status: str) -> None:
    """Signals that come much later do interrupt it, because the clean-up may hang."""
    line = [sys.executable, "-c", MANY_SIGNALS, name]
    result = subprocess.run(line, check=False, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (EXIT_STATUS[status], "cleaned up\n"), result
    assert result.stderr.count("\n") == 1, result
    later = subprocess.run([*line, "later"], check=False, capture_output=True, text=True)
    assert later.stdout == "", later


def test_the_page_of_commands_has_every_status() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    table = page.partition("## Exit status")[2].partition("\n\nWith ")[0]
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(EXIT_STATUS.values())
    assert {*STATUSES, "sigint", "sigterm"} == set(EXIT_STATUS)


def test_the_page_of_commands_has_the_panels_of_the_help() -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", page, re.MULTILINE))
    documented = {title: re.findall(r":prog: packer (\w+)", text) for title, text in sections.items()}
    assert {title: names for title, names in documented.items() if names} == cli.panels


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
    "convert x y": "usage",
    "convert x y.odd": "usage",
    "convert x y.index": "usage",
    "convert x y.odd --parts 2": "usage",
    "convert x y.odd --split all": "usage",
    "convert x limit.odd": "usage",
    "convert x s3://bucket": "usage",
    "convert x s3://bucket/y.odd": "usage",
    "convert x http://host/y.lmdb": "usage",
    "convert x y.lmdb --format odd": "usage",
    "convert x y.lmdb --shard-size 1MB": "usage",
    "convert x y.lmdb --where ((": "usage",
    "convert x y.lmdb --field mask": "usage",
    "convert x y.lmdb --key image": "usage",
    "convert x y.lmdb --column x:odd --labels x": "usage",
    "convert x y.lmdb --coco x --voc x": "usage",
    "convert x y.lmdb --extensions ,": "usage",
    "convert x y.lmdb --timeout 0": "usage",
    "convert x y.lmdb": "error",
    "append x": "usage",
    "append x x --format lmdb": "usage",
    "index a.tar b.tar c.index": "usage",
    "index x": "usage",
    "index x y": "usage",
    "index x y.lmdb": "usage",
    "index x s3://bucket/y.index": "usage",
    "scan x": "usage",
    "merge x": "usage",
    "merge x y": "usage",
    "merge x x y.odd": "usage",
    "merge x x y.index": "usage",
    "merge x x s3://bucket/y.lmdb": "usage",
    "merge x y.lmdb --shard-size 1MB": "usage",
    "merge --finish x --prefix y": "usage",
    "merge x y.lmdb": "error",
    "verify x --quick --digest": "usage",
    "verify x --workers 0": "usage",
    "info": "usage",
    "info x y": "usage",
    "info x": "error",
    "export x": "usage",
    "export x s3://bucket/y": "usage",
    "export x y": "error",
    "stage x": "usage",
    "unstage x": "usage",
    "warm": "usage",
    "cache clear --bad": "usage",
    "cache clear": "usage",
    "estimate x y.odd": "usage",
    "estimate x --seconds 0": "usage",
    "view x --port 0": "usage",
    "view x": "error",
    "bench": "usage",
    "bench x": "error",
    "tune x --bad": "usage",
    "doctor --bad": "usage",
    "completion odd": "usage",
}


def test_every_mistake_is_told_in_one_style(tmp_path: Path) -> None:
    """The message comes first; after a usage error a line names the command's help."""
    lines = [[str(tmp_path / word) if word[:1] in "xy" else word for word in line.split()] for line in MISTAKES]
    for (line, status), result in zip(MISTAKES.items(), packer_many(lines), strict=True):
        first, *more = [line for line in result.stderr.splitlines() if not line.endswith(" s so far")]
        assert result.returncode == EXIT_STATUS[status], (line, result.stderr)
        assert first.startswith("packer: "), (line, first)
        command = line.split()[0] if line.split()[0] in cli.commands else ""
        helps = [f"Try `packer {'cache clear' if command == 'cache' else command}".rstrip() + " --help`."]
        assert more == (helps if status == "usage" else []), (line, more)
        assert not result.stdout
