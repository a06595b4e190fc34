"""``python -m fuzz.native``: fuzz packer's C itself, without Python, under the compiler's sanitizers.

    python -m fuzz.native [--planted] [SECONDS [TARGET …]]

The seconds are those of all targets together, 600 by default; as many targets run at once as there are processors. What
is found is left in ``fuzz/findings``, and the last lines name it; what is learned, in ``fuzz/corpus``. ``--planted``
shows that a fault would be found: each patch in ``fuzz/native/planted`` makes one in a copy of the C, and its target
has a minute to find it.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz.native.builds import BUILT, HERE, ROOT, Build, builds, compile_targets
from fuzz.native.seeds import CONTROLS, write_seeds

FOUND = HERE / "found"
PLANTED = HERE / "planted"
LEARNED, FINDINGS = ROOT / "fuzz/corpus", ROOT / "fuzz/findings"
LONGEST = 60
"""Seconds that finding a planted fault may take."""

_LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=32768")


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz; return 1 if something was found, or if a planted fault was not found."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz-native")
    parser.add_argument("--planted", action="store_true", help="find the planted faults instead")
    parser.add_argument("--gcc", action="store_true", help="do as where there is no clang")
    parser.add_argument("seconds", nargs="?", type=float, default=600, help="of all targets together")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(CONTROLS)}")
    options = parser.parse_args(arguments)
    unknown = set(options.targets) - set(CONTROLS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(CONTROLS)}")
    made = builds(gcc=options.gcc)
    if not made:
        say("packer's C is not fuzzed: neither clang with libFuzzer nor gcc with its sanitizers is here")
        return 0
    for build in made:
        say(f"fuzz: {build}")
    write_seeds(BUILT / "seeds")
    targets = options.targets or list(CONTROLS)
    if options.planted:
        if shutil.which("patch") is None:
            say("planted: no fault is planted: this needs the program patch")
            return 0
        patches = [patch for patch in sorted(PLANTED.glob("*.patch")) if _target_of(patch) in targets]
        compile_targets(made[0], sorted(set(map(_target_of, patches))))  # a copy compiles only the file that is patched
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return int(list(pool.map(functools.partial(find_planted, made[0]), patches)) != [True] * len(patches))
    found: list[Path] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for build in made:
            run = functools.partial(fuzz, build=build, seconds=build.share * options.seconds / len(targets))
            found += filter(None, pool.map(run, *zip(*compile_targets(build, targets).items(), strict=True)))
    say(*(found or ["fuzz: nothing was found"]))
    return int(len(found) > 0)


def say(*lines: object) -> None:
    """Print lines at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def folders(target: str) -> list[Path]:
    """Return the folders of a target: its seeds, and inputs that were once findings."""
    return [path for path in (BUILT / "seeds" / target, FOUND / target) if path.is_dir()]


def fuzz(target: str, program: Path, build: Build, seconds: float) -> Path | None:
    """Run a target; return the path of an input that ended it."""
    learned = LEARNED / f"native-{target}"
    learned.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    line, log = _run(program, seconds, f"{FINDINGS}/native-{target}-", learned, *folders(target))
    said = (log or "")[-6000:]
    say(f"{said}fuzz: {target}, {build.name}, {time.monotonic() - began:.0f} s: {line}")
    return None if log is None else _finding(log)


def _run(program: Path, seconds: float, prefix: str, *inputs: Path) -> tuple[str, str | None]:
    """Return the last line of a run's output, and all of it if the run found something."""
    times = (f"-max_total_time={max(1, round(seconds))}", f"-artifact_prefix={prefix}")
    result = subprocess.run(
        [program, *_LIMITS, *times, *inputs], capture_output=True, text=True, errors="replace", check=False
    )
    said = result.stderr.strip().splitlines()
    return said[-1] if said else "", result.stderr if result.returncode else None


def _finding(log: str) -> Path:
    """Return the path of the input that ended a run."""
    lines = [line for line in log.splitlines() if "Test unit written to" in line]
    return Path(lines[-1].split("Test unit written to ")[1]) if lines else Path("(no input was written)")


def _target_of(patch: Path) -> str:
    return patch.stem.partition("-")[0]


def find_planted(build: Build, patch: Path) -> bool:
    """Tell whether a target finds a planted fault in time, by an input that the C without it takes."""
    target = _target_of(patch)
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory)
        for part in ("packer/_images/native", "fuzz/native", "tests/native"):
            shutil.copytree(ROOT / part, copy / part)
        subprocess.run(["patch", "-s", "-p1", "-d", copy, "-i", patch], check=True)
        (copy / "learned").mkdir()
        (program,) = compile_targets(build, [target], copy).values()
        began = time.monotonic()
        _, log = _run(program, LONGEST, f"{copy}/", copy / "learned", *folders(target))
        seconds = time.monotonic() - began
        if log is None:
            say(f"planted: {patch.name}: NOT FOUND in {seconds:.0f} s")
            return False
        (sound,) = compile_targets(build, [target]).values()
        clean = subprocess.run([sound, _finding(log)], capture_output=True, check=False).returncode == 0
        says = "clean" if clean else "FOUND AS WELL"
        say(f"planted: {patch.name}: found in {seconds:.0f} s; without it, that input is {says}")
        return clean


if __name__ == "__main__":
    sys.exit(main())
