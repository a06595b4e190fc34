"""Install what scripts need into the environment of this Python: python scripts/levels.py LEVEL ...

Run by scripts/setup in the root of the repository. A level that is installed and unchanged costs nothing. The next run
completes an environment that an interrupted run left.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TextIO

PROJECT = "packer-images"
CONSTRAINTS = "scripts/constraints.txt"
ENVIRONMENT = Path(sys.prefix)
INSTALLED = ENVIRONMENT / "levels.json"
LOG = ENVIRONMENT / "levels.log"
SCRIPT = os.getppid()

_DOWNLOAD = re.compile(r"^\s*Downloading (\S+?)(?:-\d\S*)? ?\((\S+) ?([kMG])i?B\)")
_PACKAGE = re.compile(r"^ \+ ([\w.-]+)==")  # of uv; pip names all in one line
_PACKAGES = re.compile(r"^Successfully installed (.+)")
_BUILD = re.compile(r"^\s*(Building|Built) (?:wheel for |editable for |(?!wheels))([\w.-]+)")
_STEPS = re.compile(r"^\s*(Collecting|Resolved|Prepared|Installing collected packages|Installed)\b")


@dataclass(frozen=True)
class Level:
    """Requirements that are installed together.

    Attributes
    ----------
    what : str
    megabytes : int
        Installed, on Linux with torch for the CPU, without the levels below.
    steps : tuple
        Arguments of the installer, one call each. ``extra:NAME`` stands for the requirements of an extra of packer.
    below : tuple of str
        Levels that are installed first.
    scripts : tuple of str
        Programs that are run afterwards.
    files : tuple of str
        Patterns of files: the level is installed anew when one of them has changed.
    optional : bool
        Whether packages that cannot be installed are left out, one by one.
    """

    what: str
    megabytes: int
    steps: tuple[tuple[str, ...], ...]
    below: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    optional: bool = False


# torchvision, and timm, which needs torchvision, would install another torch: they are installed without dependencies.
_TORCHVISION = "scripts/torchvision_without_cuda.py"
_DECODERS = ("scripts/decoders_without_cuda.py",) if sys.platform == "linux" else ()

LEVELS = {
    "demo": Level(
        "packer and its dependencies, with torch for the CPU",
        940,
        # torch first and pinned: its CPU build is what a machine without a GPU gets, and a range would download CUDA.
        # setuptools compiles packer's C, and makes a wheel of PyTurboJPEG, which has none on the index.
        (("torch", "setuptools"), ("--no-build-isolation", "-e", ".")),
        files=("setup.py", "packer/_images/native/**/*.[ch]", "packer/_images/native/compile_flags.txt"),
    ),
    "test": Level(
        "linters, the tests' tools and the frameworks of docs/frameworks.md",
        780,
        (
            ("--no-build-isolation", "extra:test", "accelerate", "pytorch-lightning", "transformers"),
            ("--no-deps", "timm", "torchvision"),
        ),
        below=("demo",),
        scripts=(_TORCHVISION,),
    ),
    "docs": Level("Sphinx, for the pages of docs/", 60, (("extra:docs",),), below=("demo",)),
    "browsers": Level(
        "Playwright, which drives the Chromium of this machine", 170, (("playwright",),), below=("test",)
    ),
    # The lists and the levels below have all that these tools require; their own metadata would bring another torch.
    "peers": Level(
        "the loaders that benchmarks/read.py compares with packer",
        1200,
        (("--no-deps", "-r", "scripts/peers.txt"),),
        below=("test",),
        scripts=_DECODERS,
        files=("scripts/peers.txt",),
    ),
    "interop": Level(
        "the tools whose containers packer reads and writes",
        1100,
        (("--no-deps", "-r", "scripts/interop.txt"),),
        below=("test",),
        files=("scripts/interop.txt",),
        optional=True,
    ),
}


class InstallationError(Exception):
    """Something could not be installed; the message says why."""


def main(names: Sequence[str]) -> int:
    """Install levels and those below them; return an exit status."""
    unknown = [name for name in names if name not in LEVELS]
    if unknown or not names:
        print(f"usage: levels.py LEVEL ...; levels are {', '.join(LEVELS)}", file=sys.stderr)
        return 2
    if not missing(names):
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        with alone() as lock:
            levels = missing(names)  # another run may have installed them in the meantime
            if levels:
                install_levels(levels, lock)
    except KeyboardInterrupt:
        print(f"\nInterrupted. Run the script again: it completes {shown(ENVIRONMENT)}.", file=sys.stderr)
        return 130
    except InstallationError as failure:
        print(f"\n{failure}\nAll that was printed is in {shown(LOG)}.", file=sys.stderr)
        return 1
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def missing(names: Sequence[str]) -> list[str]:
    """Return the levels to install, the lowest first."""
    found = installed()
    return [name for name in ordered(names) if found.get(name) != fingerprint(LEVELS[name])]


def ordered(names: Sequence[str]) -> list[str]:
    """Return levels and those below them, each once, the lowest first."""
    found: list[str] = []
    for name in names:
        found += [one for one in (*ordered(LEVELS[name].below), name) if one not in found]
    return found


def installed() -> dict[str, str]:
    """Return the fingerprints of the levels that are installed."""
    try:
        found = json.loads(INSTALLED.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def fingerprint(level: Level) -> str:
    """Return a checksum of everything that decides what a level installs."""
    summed = hashlib.sha256(repr(level).encode())
    patterns = ("pyproject.toml", CONSTRAINTS, *level.files, *level.scripts)
    for path in sorted({path for pattern in patterns for path in Path().glob(pattern)}):
        summed.update(f"{path}\n".encode() + path.read_bytes())
    return summed.hexdigest()


@contextlib.contextmanager
def alone() -> Iterator[int]:
    """Wait until no other run installs into this environment; yields the lock, which installers inherit.

    An installer that outlives its run holds the lock until it ends.
    """
    with open(ENVIRONMENT / "levels.lock", "w") as file:
        waited = 0
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                require_script()
            if waited % 5 == 0:
                print(
                    f"Another run installs into {shown(ENVIRONMENT)}; waiting, {waited} s", file=sys.stderr, flush=True
                )
            time.sleep(1)
            waited += 1
        yield file.fileno()


def require_script() -> None:
    """Stop as Ctrl-C would if the script that runs this program has ended."""
    if os.getppid() != SCRIPT:
        raise KeyboardInterrupt


def install_levels(names: Sequence[str], lock: int) -> None:
    """Install levels in turn, and note each that is complete."""
    forget_unfinished()
    total = sum(LEVELS[name].megabytes for name in set(names) - set(installed()))
    display = Display(ENVIRONMENT, total)
    display.line(
        f"Setting up {shown(ENVIRONMENT)}, about {total:,} MB:" if total else f"Updating {shown(ENVIRONMENT)}:"
    )
    for name in names:
        display.line(f"  {name}: {LEVELS[name].what}")
    with open(LOG, "w", encoding="utf-8") as log:
        work = Work(display, log, lock)
        for name in names:
            work.install(LEVELS[name])
            INSTALLED.write_text(json.dumps(installed() | {name: fingerprint(LEVELS[name])}), "utf-8")
    display.end()


def forget_unfinished() -> None:
    """Remove the metadata of packages whose installation was interrupted, so that they are installed again.

    Installers write RECORD and INSTALLER last, and what pip is about to replace has a name that begins with ``~``.
    """
    packages = Path(sysconfig.get_path("purelib"))
    for found in packages.glob("*.dist-info"):
        if not ((found / "RECORD").exists() and (found / "INSTALLER").exists()):
            shutil.rmtree(found)
    for found in packages.glob("~*"):
        shutil.rmtree(found, ignore_errors=True)


class Work:
    """Calls of the installer, shown and logged: uv where it is there or can be fetched, else pip.

    Parameters
    ----------
    display : Display
    log : text file
    lock : int
        A descriptor that the installer inherits.
    """

    def __init__(self, display: Display, log: TextIO, lock: int) -> None:
        self._display, self._log, self._lock = display, log, lock
        self._pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        self._environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        self._uv = self._find_uv()

    def install(self, level: Level) -> None:
        """Install a level."""
        for step in level.steps:
            words = [word for each in step for word in expanded(each)]
            try:
                self._install(words)
            except InstallationError:
                if not level.optional:
                    raise
                self._install_each(words)
        for script in level.scripts:
            self._run([sys.executable, script], self._environment)

    def _install(self, words: Sequence[str]) -> None:
        if self._uv and self._succeeds_with_uv(words):
            return
        self._run([*self._pip, "-c", CONSTRAINTS, *words], self._environment)

    def _succeeds_with_uv(self, words: Sequence[str]) -> bool:
        # Otherwise uv would keep an installed packer even if its C has changed.
        again = ["--reinstall-package", PROJECT] if "-e" in words else []
        try:
            self._run([*self._uv, *again, *words], self._environment | settings_for_uv())
        except InstallationError as error:
            lines = str(error).strip().splitlines()
            reason = next((line for line in lines if line.lower().startswith(("error", "  ×", "×"))), lines[-1])
            self._display.line(f"  uv stopped, and pip goes on: {reason.strip()}")
            self._uv = []
            forget_unfinished()
            return False
        return True

    def _install_each(self, words: Sequence[str]) -> None:
        """Install the requirements of a file one by one, without those that cannot be installed."""
        *options, _, file = words
        for line in Path(file).read_text("utf-8").splitlines():
            if line.strip() and not line.startswith("#"):
                try:
                    self._install([*options, line.strip()])
                except InstallationError:
                    self._display.line(f"  {line.strip()} is left out: it cannot be installed")

    def _find_uv(self) -> list[str]:
        """Return the first words of a call of uv; empty if pip is used."""
        if os.environ.get("INSTALLER") == "pip":
            return []
        uv = shutil.which("uv")
        if uv is None:
            with contextlib.suppress(InstallationError):
                self._run([*self._pip, "uv"], self._environment)
            uv = shutil.which("uv", path=str(ENVIRONMENT / "bin"))
        return [uv, "pip", "install", "--python", sys.executable] if uv else []

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command, and show what it does; InstallationError if it fails."""
        print("$", *command, file=self._log, flush=True)
        started = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[self._lock],
            start_new_session=True,
        )
        try:
            last = self._follow(started)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGTERM)  # the installer, and the compilers that it started
            started.wait()
            raise
        if started.wait() != 0:
            raise InstallationError("\n".join(["", *last, f"{' '.join(command)} failed"]))

    def _follow(self, started: subprocess.Popen[str]) -> list[str]:
        """Show what a process does until it ends, and log what it prints; return its last lines."""
        lines = queue.Queue[str | None]()
        threading.Thread(target=_collect, args=(started, lines), daemon=True).start()
        last: list[str] = []
        while True:
            try:
                line = lines.get(timeout=0.5)
            except queue.Empty:
                require_script()
            else:
                if line is None:
                    self._display.names()
                    return last
                print(line, file=self._log, flush=True)
                self._display.show(line)
                last = [*last, line][-20:]
            self._display.tick()


def _collect(started: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        lines.put(line.rstrip())
    lines.put(None)


def expanded(word: str) -> list[str]:
    """Return an argument of the installer; for ``extra:NAME`` the requirements of an extra of the installed packer."""
    kind, _, name = word.partition(":")
    if kind != "extra":
        return [word]
    marker = re.compile(rf"""\s*(?:;|\band)\s*extra\s*==\s*['"]{name}['"]""")
    wanted = [one for one in importlib.metadata.requires(PROJECT) or [] if marker.search(one)]
    return [marker.sub("", one) for one in wanted]


def settings_for_uv() -> dict[str, str]:
    """Return variables of uv with the constraints, and with pip's settings, such as indexes, which uv does not read."""
    line = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(line, capture_output=True, text=True, check=False).stdout.splitlines()
    found: dict[str, str] = {}
    for setting in listed:  # such as global.index-url='https://...'; those of the environment override others
        name, _, value = setting.partition("=")
        name = name.rpartition(".")[2]
        if name not in found or setting.startswith(":env:"):
            found[name] = str(ast.literal_eval(value))
    spelled = {
        "UV_DEFAULT_INDEX": found.get("index-url"),
        "UV_INDEX": found.get("extra-index-url"),
        "UV_INDEX_STRATEGY": "unsafe-best-match",  # pip's: the newest of all indexes
        "UV_FIND_LINKS": ",".join(found["find-links"].split()) if "find-links" in found else None,
        "UV_CONSTRAINT": f"{CONSTRAINTS} {found.get('constraint', '')}".strip(),
        "UV_INSECURE_HOST": found.get("trusted-host"),
        "SSL_CERT_FILE": found.get("cert"),
    }
    return {name: value for name, value in spelled.items() if value and name not in os.environ}


class Display:
    """Shows progress on standard error: on a terminal in a line that changes, elsewhere in a line every 4 seconds.

    Parameters
    ----------
    folder : Path
        Where the packages are installed.
    total : int
        About how many megabytes will be added; 0 if that is not known.
    """

    def __init__(self, folder: Path, total: int) -> None:
        self._folder, self._total = folder, total
        self._terminal = sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self._before = self._size = size_of(folder)
        self._measured, self._pause = self._started, 1.0
        self._activity = ""
        self._building: set[str] = set()
        self._names: list[str] = []

    def line(self, text: str) -> None:
        """Print a line that stays."""
        print(f"\r\x1b[K{text}" if self._terminal else text, file=sys.stderr, flush=True)
        self._shown = time.monotonic()

    def show(self, line: str) -> None:
        """Take a line of the installer: downloads of a megabyte or more stay, other steps are shown for a while."""
        download = _DOWNLOAD.match(line)
        if download is not None:
            name, size, unit = download.groups()
            self._activity = f"downloading {name}"
            if unit in "MG":
                self.line(f"  {name}, {size} {unit}B")
        elif (package := _PACKAGE.match(line)) is not None:
            self._names.append(package[1])
        elif (packages := _PACKAGES.match(line)) is not None:
            self._names += [name.rpartition("-")[0] for name in packages[1].split()]
        elif (build := _BUILD.match(line)) is not None:
            begins = build[1] == "Building" and "finished" not in line
            (self._building.add if begins else self._building.discard)(build[2])
        elif _STEPS.match(line):
            self._activity = line.strip()[:50]

    def names(self) -> None:
        """Name the packages that were installed since the last call."""
        if self._names:
            text = f"installed: {', '.join(self._names)}"
            self.line(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
        self._names, self._activity = [], ""
        self._building.clear()

    def tick(self) -> None:
        """Show the progress, if the last line is old enough."""
        now = time.monotonic()
        if now - self._shown < (0.5 if self._terminal else 4):
            return
        if now - self._measured > self._pause:
            self._size = size_of(self._folder)
            self._measured = time.monotonic()
            self._pause = max(1.0, 10 * (self._measured - now))
        added = max(0, self._size - self._before)
        text = f"  {now - self._started:.0f} s"
        if self._total:
            filled = min(20, 20 * added // self._total)
            text = f"  [{'#' * filled:20}] {added:,} of about {self._total:,} MB,{text[1:]}"
        text += f"  {'building ' + ', '.join(sorted(self._building)) if self._building else self._activity}"
        if self._terminal:
            print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
            self._shown = now
        else:
            self.line(text.rstrip())

    def end(self) -> None:
        """Print the number and the size of the installed packages."""
        packages = len(list(Path(sysconfig.get_path("purelib")).glob("*.dist-info")))
        size, seconds = size_of(self._folder), time.monotonic() - self._started
        self.line(f"{shown(self._folder)} has {packages} packages, {size:,} MB; this took {seconds:.0f} s.")


def size_of(folder: Path) -> int:
    """Return the megabytes of all files below a folder, on the disk."""
    total, waiting = 0, [str(folder)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total // 1_000_000


def shown(path: Path) -> str:
    """Return a path relative to the current directory, if it is below it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
