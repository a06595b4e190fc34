"""Test packer on a CUDA device and measure it. Run by scripts/gpu; imports the standard library only.

Exit status: 0 if everything passed, 1 if a test or a measurement failed, 3 if the machine lacks a requirement.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[1]
PARTS = ("kernels", "tests", "rates")
PATIENCE = 45  # seconds for finding the device
GRACE = 20  # seconds that a part gets to end by itself
AT_ONCE = 8  # files of tests
LONGEST_TEST = 90  # seconds
HUNG = LONGEST_TEST + 15  # seconds until the stacks of all threads are printed, which may crash a program that runs
COMPARED = "--equal", "10000", "--damaged", "15000"  # crops, and mutations, of which two thirds damage a tile
SANITIZERS = "memcheck", "synccheck", "racecheck"
PTX = "compute_80"  # which drivers compile for every later card
NO_TESTS = 5  # pytest's status
SHARE_OF_TESTS = 0.6  # of the time that is left, where rates follow

MODULES = {
    "click": "click",
    "google_crc32c": "google-crc32c",
    "h5py": "h5py",
    "numpy": "numpy",
    "PIL": "pillow",
    "setuptools": "setuptools",
    "simplejpeg": "simplejpeg",
    "tqdm": "tqdm",
}
"""Modules that packer imports beside torch, and the distribution of each."""

MODULES_OF_TESTS = {
    "cv2": "opencv-python-headless",
    "hypothesis": "hypothesis",
    "psutil": "psutil",
    "pytest": "pytest",
    "pytest_rerunfailures": "pytest-rerunfailures",
    "pytest_timeout": "pytest-timeout",
    "torchvision": "torchvision",
}

LOOK = """
import json, torch
found = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "name": torch.cuda.get_device_name(0) if found else None,
    "works": bool(torch.ones(3, device="cuda").sum().item() == 3) if found else False,
}))
"""


def main() -> None:
    options = parse()
    deadline = time.monotonic() + 60 * options.minutes
    parts = [part for part in PARTS if part in (options.only or PARTS)]
    output = options.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="packer-gpu-") as work:
        environment = with_wheels(options.wheels, Path(work))
        facts = require(parts, environment, options.device)
        report: dict[str, Any] = {"date": now(), "device": facts, "parts": {}}
        built = build(environment, output)
        for number, part in enumerate(parts):
            left = deadline - time.monotonic()
            share = SHARE_OF_TESTS if part == "tests" and parts[number + 1 :] else 1.0
            found = RUN[part](environment, output, left * share, options) if built is None else {"failed": built}
            report["parts"][part] = found
            print(f"{part}: {found.get('failed') or found['said']}", flush=True)
        write(output, report)
    print(f"written to {output}")
    sys.exit(int(any("failed" in found for found in report["parts"].values())))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description="Test packer on a CUDA device, and measure it.")
    parser.add_argument("--only", choices=PARTS, action="append", help="do this part; may come again; by default all")
    parser.add_argument("--minutes", type=float, default=8, help="end after so many (%(default)s)")
    parser.add_argument("--wheels", type=Path, help="a directory with wheels of packages that Python lacks")
    parser.add_argument("--photos", type=Path, help="a pack or an ImageFolder of photos; without it, photos are drawn")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "gpu", help="%(default)s")
    parser.add_argument("--device", default="cuda", help="cpu tries the table of rates without a device (%(default)s)")
    return parser.parse_args()


# Requirements.


def require(parts: Sequence[str], environment: dict[str, str], device: str) -> dict[str, Any]:
    """Return the facts of the device; end the program with one line if something is missing."""
    missing = []
    if not any(map(shutil.which, filter(None, [os.environ.get("CC", "").split(" ")[0], "cc", "gcc", "clang"]))):
        missing.append("a C compiler (neither cc nor gcc nor clang is there; apt install gcc)")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        missing.append(
            f"the headers of Python (no Python.h in {sysconfig.get_paths()['include']}; apt install python3-dev)"
        )
    wanted = MODULES | (MODULES_OF_TESTS if "tests" in parts else {})
    facts, lacking = looked(wanted, environment, device)
    if lacking:
        missing.append(f"packages of Python: {', '.join(lacking)} (--wheels DIR names a directory with their wheels)")
    if "missing" in facts:
        missing.append(facts["missing"])
    if missing:
        end("missing: " + "; ".join(missing))
    return facts


def looked(wanted: dict[str, str], environment: dict[str, str], device: str) -> tuple[dict[str, Any], list[str]]:
    """Return the facts of torch and its device, and the distributions that are missing."""
    names = json.dumps(list(wanted))
    find = f"import importlib.util, json; print(json.dumps([n for n in {names} if not importlib.util.find_spec(n)]))"
    lacking = [wanted[name] for name in json.loads(asked(find, environment)[1] or "[]")]
    status, said, errors = asked(LOOK, environment)
    if status != 0:
        last = errors.strip().splitlines()[-1:] or ["it ended without a word"]
        return {"missing": f"torch ({last[0]})"}, lacking
    facts: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    if device == "cpu":
        return {"torch": facts["torch"], "name": "the CPU, in place of a device"}, lacking
    if facts["cuda"] is None:
        facts["missing"] = f"torch for CUDA (torch {facts['torch']} is built without it), and a CUDA device"
    elif facts["name"] is None:
        smi = "nvidia-smi finds one" if has_driver() else "nvidia-smi finds none either"
        facts["missing"] = f"a CUDA device (torch {facts['torch']} finds none; {smi})"
    elif not facts["works"]:
        facts["missing"] = f"a CUDA device that works ({facts['name']} adds wrongly)"
    return facts, lacking


def asked(code: str, environment: dict[str, str]) -> tuple[int, str, str]:
    """Return the status, the output and the errors of some Python."""
    line = [sys.executable, "-c", code]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return 1, "", f"no answer within {PATIENCE} s"
    return done.returncode, done.stdout, done.stderr


def has_driver() -> bool:
    try:
        line = ["nvidia-smi", "-L"]
        return b"GPU" in subprocess.run(line, capture_output=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return False


def with_wheels(wheels: Path | None, work: Path) -> dict[str, str]:
    """Install wheels into a directory of this run; return the environment in which Python finds them, and packer."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    if wheels is not None:
        found = sorted(map(str, wheels.glob("*.whl")))
        if not found:
            end(f"missing: wheels ({wheels} has none)")
        line = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
        line += ["--no-cache-dir", "--disable-pip-version-check", "--target", str(work / "site"), *found]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            end(f"missing: wheels that pip can install ({last[0]})")
        paths.insert(0, str(work / "site"))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def end(line: str) -> NoReturn:
    print(f"scripts/gpu: {line}", file=sys.stderr)
    sys.exit(3)


# Parts. Each returns a summary, or the reason why it failed.


def build(environment: dict[str, str], output: Path) -> str | None:
    """Compile packer's C in its place; return why that failed, or None."""
    log = output / "build.log"
    status = run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], environment, log, 300)
    code = "import sys; from packer._images.extension import _native; sys.exit(_native is None)"
    if status == 0 and asked(code, environment)[0] == 0:
        return None
    return f"the C was not built: {last_line(log)}; all of it is in {log}"


def tests(environment: dict[str, str], output: Path, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run the tests marked cuda, from the files that have any: other files need packages that may be missing.

    Each file has a process of its own, some at once: an error of CUDA ends all work of its process.
    """
    marked = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in path.read_text("utf-8")]
    deadline, log = time.monotonic() + seconds, output / "tests.log"
    with tempfile.TemporaryDirectory(prefix="tests-", dir=output) as logs:

        def ran(path: Path) -> Tested:
            tested = tests_of(path, environment, Path(logs), deadline - time.monotonic())
            print(f"{path.relative_to(ROOT)}: {tested.said}", flush=True)
            return tested

        with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
            found = [*pool.map(ran, marked)]
        parts = [f"# {path}\n{text_of(one.log)}\n" for path, one in zip(marked, found, strict=True)]
        log.write_text("".join(parts), encoding="utf-8")
    return summed(found, log)


class Tested(NamedTuple):
    """Results of the tests of a file: how many passed, the names of the others, and why some were not run."""

    log: Path
    passed: int
    failed: list[str]
    skipped: list[str]
    unfinished: str = ""

    @property
    def said(self) -> str:
        counts = f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"
        return f"{counts}; {self.unfinished}" if self.unfinished else counts


def tests_of(path: Path, environment: dict[str, str], logs: Path, seconds: float) -> Tested:
    """Run the tests of a file that are marked cuda, and read the result of each off its log."""
    log = logs / f"{'-'.join(path.relative_to(ROOT).with_suffix('').parts)}.log"
    line = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-m", "cuda", "-v", "-p", "no:cacheprovider"]
    line += ["--timeout", str(LONGEST_TEST), "-o", f"faulthandler_timeout={HUNG}", "--durations", "3"]
    status = run([*line, str(path)], environment, log, seconds, shown=False)
    results = {name: result for name, result in _RESULT.findall(text_of(log)) if result != "RERUN"}
    failed, skipped = ([name for name, result in results.items() if result in of] for of in (_BAD, ("SKIPPED",)))
    passed = sum(result == "PASSED" for result in results.values())
    if status is None:
        begun = [*dict.fromkeys(name for name in _BEGUN.findall(text_of(log)) if name not in results)]
        return Tested(log, passed, failed, skipped, f"out of time in {', '.join(begun) or path.name}")
    ended = status in (0, NO_TESTS) or (status == 1 and failed)
    errors = _ERROR.findall(text_of(log)) or [last_line(log)]
    why = "" if ended else f"pytest ended with {status} in {path.name}: {errors[-1]}"
    return Tested(log, passed, failed, skipped, why)


_BAD = "FAILED", "ERROR"
_ERROR = re.compile(r"(?:^E  +|Fatal Python error: )(.*)", re.M)
_BEGUN = re.compile(r"^(\S+\.py::\S+) ", re.M)
_RESULT = re.compile(r"^(\S+\.py::\S+) (PASSED|FAILED|ERROR|SKIPPED|RERUN)\b", re.M)


def summed(found: Sequence[Tested], log: Path) -> dict[str, Any]:
    """Return the results of all files together."""
    failed, skipped = ([name for one in found for name in getattr(one, kind)] for kind in ("failed", "skipped"))
    whole = Tested(log, sum(one.passed for one in found), failed, skipped)
    unfinished = [one.unfinished for one in found if one.unfinished]
    result = {"passed": whole.passed, "tests_failed": failed, "skipped": skipped, "unfinished": unfinished}
    if whole.passed and not failed and not unfinished:
        return result | {"said": whole.said}
    wrong = ", ".join([*failed, *unfinished][:5])
    return result | {"failed": f"{whole.said}{f' ({wrong})' if wrong else ''}; all of it is in {log}"}


def kernels(environment: dict[str, str], output: Path, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the kernels that decode tiles, compare them with their twin, and run them under compute-sanitizer."""
    if not (ROOT / "benchmarks" / "kernels.py").exists():
        return {"failed": "benchmarks/kernels.py is not part of this checkout"}
    results, log = output / "kernels.json", output / "kernels.log"
    results.unlink(missing_ok=True)
    program = [sys.executable, "-m", "benchmarks.kernels"]
    chosen = ["--photos", str(options.photos.resolve())] if options.photos else []
    deadline = time.monotonic() + seconds
    line = [*program, "--json", str(results), "--device", options.device, *chosen]
    line += COMPARED if options.device != "cpu" else ()
    status = run(line, environment, log, seconds)
    if not results.exists():
        why = f"out of time after {seconds:.0f} s" if status is None else f"ended with {status}: {last_line(log)}"
        return {"failed": f"{why}; all of it is in {log}"}
    found = json.loads(results.read_text())
    if status != 0:
        why = found.get("error", "the results of the device differ from its twin's")
        return {"failed": f"{why}; all of it is in {log}", "results": found}
    times = {row["batch"]: row["ms"]["whole"] for row in found.get("batches", [])}
    said = ", ".join(f"{took:.2f} ms a batch of {count}" for count, took in times.items())
    said += f": {found.get('verdict', 'no verdict')}"
    if options.device == "cpu":
        return {"said": said, "results": found}
    checks = checked([*program, "--small", "--most", "3", *chosen], environment, output, deadline - time.monotonic())
    told = "; ".join([said, *(f"{name}: {result}" for name, result in checks.items())])
    sound = all(result in (SOUND, NOT_RUN) for result in checks.values())
    return {"said" if sound else "failed": told, "results": found, "checks": checks}


SOUND, NOT_RUN = "no report", "not run, compute-sanitizer is not there"


def checked(line: Sequence[str], environment: dict[str, str], output: Path, seconds: float) -> dict[str, str]:
    """Run a program by each tool of compute-sanitizer, and with PTX, side by side; return the result of each."""
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    lines = {f"PTX of {PTX}": [*line, "--architecture", PTX]}
    if sanitizer is not None:
        of_tool = [sanitizer, "--print-limit", "20", "--error-exitcode", "9", "--tool"]
        lines |= {tool: [*of_tool, tool, *line] for tool in SANITIZERS}
    # Without PyTorch's cache each buffer is an allocation, whose bounds memcheck knows.
    environment = environment | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

    def result_of(name: str) -> str:
        log = output / f"{name.partition(' ')[0].lower()}.log"
        status = run(lines[name], environment, log, seconds, shown=False)
        if status == 0:
            return SOUND
        why = "out of time" if status is None else f"ended with {status}: {last_line(log)}"
        return f"{why}; all of it is in {log}"

    with ThreadPoolExecutor(len(lines)) as pool:
        found = dict(zip(lines, pool.map(result_of, lines), strict=True))
    return {tool: NOT_RUN for tool in SANITIZERS if tool not in found} | found


def rates(environment: dict[str, str], output: Path, seconds: float, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the images a second that reach the device."""
    results, log = output / "rates.json", output / "rates.log"
    results.unlink(missing_ok=True)
    line = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--device", options.device]
    line += ["--minutes", f"{max(seconds - GRACE, 1) / 60:.2f}", "--json", str(results)]
    line += ["--photos", str(options.photos.resolve())] if options.photos else []
    status = run(line, environment, log, seconds)
    if not results.exists():
        why = f"out of time after {seconds:.0f} s" if status is None else f"ended with {status}: {last_line(log)}"
        return {"failed": f"{why}; all of it is in {log}"}
    found = json.loads(results.read_text())
    measured = [row for row in found["rows"] if "failed" not in row]
    said = f"{len(measured)} rows measured, {len(found['not_reached'])} not reached"
    of_packer = [row for row in found["rows"] if "failed" in row and row["module"] == "own"]
    table_of = {"results": found, "table": found["table"]}
    if status != 0 or of_packer or not measured:
        why = of_packer[0]["failed"] if of_packer else last_line(log)
        return table_of | {"failed": f"{said}; {why}; all of it is in {log}"}
    return table_of | {"said": said}


RUN = {"tests": tests, "kernels": kernels, "rates": rates}


def run(
    line: Sequence[str], environment: dict[str, str], log: Path, seconds: float, *, shown: bool = True
) -> int | None:
    """Run a program in the checkout, with its output in a file and on the terminal; return None if it took too long."""
    deadline = time.monotonic() + max(seconds, 1)
    with log.open("w", encoding="utf-8") as written, started(line, environment, written) as program:
        seen = 0
        while True:
            ended = program.poll()
            seen = show(log, seen) if shown else 0
            if ended is not None:
                return ended
            if time.monotonic() > deadline:
                return None
            time.sleep(0.2)


def show(log: Path, seen: int) -> int:
    """Print a file from an offset; return the offset of its end."""
    with log.open(encoding="utf-8", errors="replace") as reading:
        reading.seek(seen)
        sys.stdout.write(reading.read())
        sys.stdout.flush()
        return reading.tell()


@contextlib.contextmanager
def started(line: Sequence[str], environment: dict[str, str], log: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program as a group of its own, which ends with the block."""
    program = subprocess.Popen(
        [*line], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield program
    finally:
        # After Ctrl-C pytest prints the failures; when aborted, Python prints the stacks of its threads.
        for kind, patience in ((signal.SIGINT, GRACE / 2), (signal.SIGABRT, 3), (signal.SIGKILL, None)):
            if program.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, kind)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    program.wait(patience)


def text_of(log: Path) -> str:
    return log.read_text("utf-8", "replace")


def last_line(log: Path) -> str:
    lines = [line.strip() for line in text_of(log).splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


# Output.


def write(output: Path, report: dict[str, Any]) -> None:
    """Write the report as JSON and as a page."""
    (output / "gpu.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    device = report["device"]
    lines = [f"# packer on {device['name']}", "", f"{report['date']}, torch {device['torch']}", ""]
    for part, found in report["parts"].items():
        lines += [f"## {part}", "", found.get("failed") or found["said"], ""]
        lines += [found["table"], ""] if "table" in found else []
    (output / "gpu.md").write_text("\n".join(lines), encoding="utf-8")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


if __name__ == "__main__":
    main()
