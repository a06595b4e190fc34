"""Counts the calls, functions and modules that serve an item, a batch, a conversion and a remote sample.

    python benchmarks/hops.py [--checkout DIR] [--ways WAY ...] [--list WAY] [--json FILE]

Each way runs in a process of its own, with packer from DIR (by default this checkout). The first run warms it up; a
profile hook in all threads counts the next ones, and the run with the median number of calls is shown.

calls      calls of functions of packer; a generator that is resumed counts again, comprehensions and lambdas do not
c          calls from packer to functions in C
functions  distinct functions of packer
modules    distinct modules of packer
moves      calls to another module than the call before
back       moves to a module that was visited before

The program also measures time, without the hook: `dataset[i]` as bytes beside `reader.read(i)`, and a small crop. It
uses packer's public names alone, so one checkout can measure another.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve()
BATCH, BATCHES, THREADS = 8, 4, 2
SMALL, PHOTO = (48, 64), (375, 500)  # pixels
MANY = 18  # photos of the conversion that is compared with one of two
REPETITIONS = 5
COMMAND = "packer convert 2, keep"

FUNCTIONS = {"lists hashed": "listing_digest", "destinations checked": "check_destination", "URLs asked": "is_url"}
"""Functions of packer whose calls are counted in a conversion, by name: one that was renamed counts as 0."""

SHA256 = "_hashlib.openssl_sha256"
"""The C function that begins a digest, whose calls are counted in a conversion too."""

MESSAGES = "posix.write"
"""The C function that sends a message to the fetching process; reading a remote sample calls it for nothing else."""


@dataclass
class Way:
    """The calls of a way.

    Attributes
    ----------
    calls : list of (str, str)
        Module and qualified name of each function of packer that was called, in order.
    c : Counter of str
        How often each function in C was called by packer.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    c: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, int]:
        """Return calls, functions, modules and moves."""
        modules = [module for module, _ in self.calls]
        moves = sum(one != other for one, other in itertools.pairwise(modules))
        visited = len(set(modules))
        return {
            "calls": len(self.calls),
            "c": self.c.total(),
            "functions": len(set(self.calls)),
            "modules": visited,
            "moves": moves,
            "back": moves - max(visited - 1, 0),
        }

    def called(self, name: str) -> int:
        """Return how often functions of this name were called, whatever their module or class."""
        return sum(function.rpartition(".")[2] == name for _, function in self.calls)


class Hook:
    """Records the calls of packer, during a way, in this thread and all that begin later."""

    def __init__(self, root: str) -> None:
        self._root = root + os.sep
        self._way: Way | None = None
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def record(self, way: Callable[[], object]) -> Way:
        """Run a way and return its calls."""
        recorded = self._way = Way()
        try:
            way()
        finally:
            self._way = None
        return recorded

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        way, code = self._way, frame.f_code
        if way is None or not code.co_filename.startswith(self._root):
            return
        if event == "call" and not code.co_name.startswith("<"):
            way.calls.append((code.co_filename[len(self._root) :], getattr(code, "co_qualname", code.co_name)))
        elif event == "c_call":
            way.c[f"{arg.__module__ or type(arg.__self__).__name__}.{arg.__name__}"] += 1


def main() -> None:
    options = parse()
    if options.measure:
        print(json.dumps(measure(options.measure, Path(options.work), options.url)))
        return
    sys.path[:0] = [str(HERE.parents[1])]
    with tempfile.TemporaryDirectory(prefix="packer-hops-") as directory, serving() as url:
        found: dict[str, Any] = {}
        for name in [options.list] if options.list else options.ways:
            found[name] = in_child(name, Path(directory), url, options.checkout)
    if options.list in WAYS:
        show_calls(found[options.list]["calls"])
        return
    if options.list:
        print("\n".join(found[options.list]))
        return
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@contextmanager
def serving() -> Iterator[str]:
    """Serve the files of this machine in threads of this process; yield the URL of its root."""
    from tests.remote.fileserver import FilesOfThisMachine
    from tests.storage.remote.objects import serving

    with serving(FilesOfThisMachine()) as server:
        yield server.url


def in_child(name: str, work: Path, url: str, checkout: Path) -> Any:
    """Measure a way in a process that imports packer from a checkout."""
    line = [sys.executable, str(HERE), "--measure", name, "--work", str(work / name), "--url", url]
    cache = {"PACKER_CACHE_DIR": str(work / name / "cache"), "PACKER_CACHE_SIZE": "1 GB"}
    environment = {**os.environ, **cache, "PYTHONPATH": str(checkout.resolve())}
    ended = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        sys.exit(f"{name}: failed")
    return json.loads(ended.stdout.splitlines()[-1])


def measure(name: str, work: Path, url: str) -> Any:
    """Run a way in this process; return its figures, and its functions in the order of their first calls."""
    import packer

    work.mkdir(parents=True)
    prepare(work)
    if name in TIMES:
        return TIMES[name](work)
    hook = Hook(os.path.dirname(os.path.abspath(packer.__file__)))
    ways = sorted((hook.record(way) for way in WAYS[name](work, url)), key=lambda way: len(way.calls))
    way = ways[len(ways) // 2]
    calls = [[*call, count] for call, count in Counter(way.calls).items()]
    return {"figures": way.figures(), "counts": counts_of(name, way), "calls": calls, "c": dict(way.c)}


def counts_of(name: str, way: Way) -> dict[str, int]:
    """Return how often a way does things that it could do once."""
    if name == "remote sample":
        return {"messages to the fetcher": way.c[MESSAGES]}
    if name == COMMAND:
        return {what: way.called(function) for what, function in FUNCTIONS.items()} | {"SHA-256": way.c[SHA256]}
    return {}


def prepare(work: Path) -> None:
    """Write trees of a few photos, and a pack with the samples of several batches."""
    import packer
    from packer.testing.photos import draw_imagefolder

    draw_imagefolder(work / "tree", classes=2, per_class=BATCH * BATCHES // 2, size=SMALL)
    for count in (2, MANY):
        draw_imagefolder(work / f"photos-{count}", classes=2, per_class=count // 2, size=PHOTO)
    packer.convert(work / "tree", work / "pack.lmdb")


def sample(**settings: Any) -> Callable[[Path, str], Iterator[Callable[[], object]]]:
    """Return the way that reads one sample of a pack on this disk."""

    def ways(work: Path, url: str) -> Iterator[Callable[[], object]]:
        import packer

        dataset = packer.open_dataset(work / "pack.lmdb", **settings)
        _ = dataset[0], dataset[1]
        for index in range(REPETITIONS):
            yield lambda index=index: dataset[index]  # type: ignore[misc]

    return ways


def cropped(work: Path, url: str) -> Iterator[Callable[[], object]]:
    import packer

    yield from sample(crop=packer.RandomResizedCrop(32))(work, url)


def loaded(work: Path, url: str) -> Iterator[Callable[[], object]]:
    """Yield epochs of a Loader; its threads start in an epoch before, which is not counted."""
    import packer

    dataset = packer.open_dataset(work / "pack.lmdb", crop=packer.RandomResizedCrop(32))
    with packer.Loader(dataset, BATCH, threads=THREADS) as loader:
        assert len(list(loader)) == BATCHES
        for _ in range(REPETITIONS):
            yield lambda: list(loader)


def converted(count: int, **settings: Any) -> Callable[[Path, str], Iterator[Callable[[], object]]]:
    """Return the way that converts a few images to a pack on this disk."""

    def ways(work: Path, url: str) -> Iterator[Callable[[], object]]:
        import packer

        packer.convert(work / f"photos-{count}", work / "first.lmdb", workers=THREADS, **settings)
        for number in range(REPETITIONS):
            out = work / f"{number}.lmdb"
            yield lambda out=out: packer.convert(work / f"photos-{count}", out, workers=THREADS, **settings)  # type: ignore[misc]

    return ways


def commanded(work: Path, url: str) -> Iterator[Callable[[], object]]:
    """Yield conversions of two photos by the command line."""
    from packer.__main__ import main

    def command(number: int) -> None:
        out = work / f"{number}.lmdb"
        sys.argv = ["packer", "convert", "--quiet", "--workers", str(THREADS), str(work / "photos-2"), str(out)]
        try:
            main()
        except SystemExit as ended:
            if ended.code:
                raise

    command(0)
    for number in range(1, REPETITIONS + 1):
        yield lambda number=number: command(number)  # type: ignore[misc]


def fetched(work: Path, url: str) -> Iterator[Callable[[], object]]:
    """Yield the first reads of samples of an open remote pack; no two of them are in one block."""
    import packer

    packer.convert(work / "photos-18", work / "photos.lmdb")
    dataset = packer.open_dataset(f"{url}{work / 'photos.lmdb'}")
    for number in range(REPETITIONS + 1):
        index = 2 + 2 * number  # the opening has fetched the first ones
        if number:
            yield lambda index=index: dataset[index]  # type: ignore[misc]
        else:
            _ = dataset[index]


WAYS: dict[str, Callable[[Path, str], Iterator[Callable[[], object]]]] = {
    "dataset[i]": sample(),
    "dataset[i], crop": cropped,
    "dataset[i], bytes": sample(output="bytes"),
    "Loader, 4 batches": loaded,
    COMMAND: commanded,
    "convert 2, keep": converted(2),
    "convert many, keep": converted(MANY),
    "convert 2, resize": converted(2, resize=256),
    "convert many, resize": converted(MANY, resize=256),
    "remote sample": fetched,
}


def in_turn(sides: dict[str, Callable[[int], object]], length: int) -> dict[str, float]:
    """Return the microseconds that a call of each side takes: medians over rounds, in turn."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(200):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            call, begin = sides[name], time.perf_counter()
            for index in range(length):
                call(index)
            seconds[name].append((time.perf_counter() - begin) / length)
    return {name: 1e6 * statistics.median(rounds) for name, rounds in seconds.items()}


def times(work: Path) -> dict[str, float]:
    """Measure a photo as bytes, compared with the reader's own call, and a small crop one by one and in a batch."""
    import packer

    packer.convert(work / f"photos-{MANY}", work / "photos.lmdb")
    stored = packer.open_dataset(work / "photos.lmdb", output="bytes")
    with packer.open_pack(work / "photos.lmdb") as reader:
        found = in_turn({"reader.read(i)": reader.read, "dataset[i], bytes": stored.__getitem__}, MANY)
    cropped = packer.open_dataset(work / "pack.lmdb", crop=packer.RandomResizedCrop(32))
    batch = list(range(BATCH * BATCHES))
    found |= in_turn({"small crop": cropped.__getitem__}, len(batch))
    many = in_turn({"small crop, in a batch": lambda _: cropped.__getitems__(batch)}, 1)
    return found | {name: microseconds / len(batch) for name, microseconds in many.items()}


def imports(work: Path) -> list[str]:
    """Convert an ImageFolder; return the modules of containers that this imports."""
    import packer

    packer.convert(work / "photos-2", work / "imports.lmdb")
    return sorted(name for name in sys.modules if name.startswith(("packer._containers.", "packer.contrib.")))


SPEED, IMPORTS = "speed", "container modules"
TIMES: dict[str, Callable[[Path], Any]] = {SPEED: times, IMPORTS: imports}


def show(found: dict[str, Any]) -> None:
    """Print the figures of the ways, and the calls that one more image adds to a conversion."""
    columns = ["calls", "c", "functions", "modules", "moves", "back"]
    rows = {name: way["figures"] for name, way in found.items() if name in WAYS}
    print(f"{'way':<22}" + "".join(f"{column:>11}" for column in columns))
    for name, figures in rows.items():
        print(f"{name:<22}" + "".join(f"{figures[column]:>11}" for column in columns))
    for how in ("keep", "resize"):
        if {f"convert 2, {how}", f"convert many, {how}"} <= found.keys():
            more = one_more(found[f"convert 2, {how}"], found[f"convert many, {how}"])
            print(f"{f'one more image, {how}':<22}" + "".join(f"{more.get(column, ''):>11}" for column in columns))
    for name, way in found.items():
        for what, count in (way["counts"] if name in WAYS else {}).items():
            print(f"{name}: {what}: {count}")
    if IMPORTS in found:
        print(f"modules of containers imported to convert an ImageFolder: {len(found[IMPORTS])}")
    for name, microseconds in found.get(SPEED, {}).items():
        print(f"{name}: {microseconds:.1f} µs")
    if SPEED in found:
        print(f"as bytes: {found[SPEED]['dataset[i], bytes'] / found[SPEED]['reader.read(i)']:.2f} x reader.read(i)")


def one_more(two: dict[str, Any], many: dict[str, Any]) -> dict[str, int]:
    """Return what each further image adds to a conversion: the functions that are called at least once for each."""
    before = {(module, function): count for module, function, count in two["calls"]}
    more = MANY - 2
    each = [
        (module, (count - before.get((module, function), 0)) // more)
        for module, function, count in many["calls"]
        if count - before.get((module, function), 0) >= more
    ]
    return {
        "calls": sum(count for _, count in each),
        "functions": len(each),
        "modules": len({module for module, _ in each}),
    }


def show_calls(calls: list[list[Any]]) -> None:
    """Print the modules in order of their first call, each with its functions and how often they are called."""
    modules: dict[str, list[str]] = {}
    for module, function, count in calls:
        modules.setdefault(module, []).append(f"{function} {count}")
    for number, (module, functions) in enumerate(modules.items(), 1):
        print(f"{number:3} {module}: {', '.join(functions)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = [*WAYS, *TIMES]
    parser.add_argument("--checkout", type=Path, default=HERE.parents[1], metavar="DIR", help="default: this checkout")
    parser.add_argument(
        "--ways", nargs="+", choices=everything, default=everything, metavar="WAY", help="measure these alone"
    )
    parser.add_argument(
        "--list", choices=[*WAYS, IMPORTS], metavar="WAY", help="name the modules and functions of a way"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and calls to FILE")
    for name in ("--measure", "--work", "--url"):  # for the process that measures
        parser.add_argument(name, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
