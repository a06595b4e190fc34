"""Print how much of packer's C was run, by file and in total, and the lines that were not: coverage.py COUNTS.

COUNTS has the output of `llvm-cov export` for each binary, one line of JSON each. Code counts as run if any of the
binaries ran it. A line of a header counts once, however many files include it, and so does a branch.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

FLOORS = {"lines": 95.0, "branches": 85.0}
"""Percent of all lines and branches that the tests run at least."""


def lines_of(segments: list[list[Any]]) -> Iterator[tuple[int, int]]:
    """Return the lines that are code, and how often each was run, by the rule of LLVM's LineCoverageStats.

    A segment is: line, column, count, whether there is a count, whether a region begins, whether it is a gap. The code
    between two segments was run as often as the count of the first one.
    """
    wrapped: list[Any] | None = None
    by_line: dict[int, list[list[Any]]] = defaultdict(list)
    for segment in segments:
        by_line[segment[0]].append(segment)
    for line in range(segments[0][0], segments[-1][0] + 1) if segments else ():
        here = by_line[line]
        begun = [segment for segment in here if segment[3] and segment[4] and not segment[5]]
        skipped = bool(here) and not here[0][3] and here[0][4]
        if not skipped and (begun or (wrapped is not None and wrapped[3])):
            counts = [segment[2] for segment in begun]
            if wrapped is not None and wrapped[3]:
                counts.append(wrapped[2])
            yield line, max(counts)
        if here:
            wrapped = here[-1]


def share(counts: Mapping[Hashable, int]) -> tuple[int, int]:
    """Return the number of counts, and how many of them are not 0."""
    return len(counts), sum(count > 0 for count in counts.values())


def row(name: str, *shares: tuple[int, int]) -> str:
    """Return a line of the table."""
    columns = (f"{there:9}{run:9}{100 * run / there if there else 100:9.1f}" for there, run in shares)
    return f"{name:22}" + "".join(columns)


def main() -> None:
    """Print the table and the code that was not run; fail if a share is below its floor."""
    lines: dict[Path, Counter[int]] = defaultdict(Counter)
    branches: dict[Path, Counter[tuple[int, int, str]]] = defaultdict(Counter)
    for exported in Path(sys.argv[1]).read_text().splitlines():
        for file in json.loads(exported)["data"][0]["files"]:
            path = Path(file["filename"])
            for line, count in lines_of(file["segments"]):
                lines[path][line] += count
            for line, column, _, _, true, false, *_ in file["branches"]:
                branches[path][line, column, "true"] += true
                branches[path][line, column, "false"] += false
    print(f"{'':22}" + "".join(f"{word:>9}" for word in ("lines", "run", "%", "branches", "taken", "%")))
    for path in sorted(lines):
        print(row(path.name, share(lines[path]), share(branches[path])))
    shares = [
        (sum(there for there, _ in found), sum(run for _, run in found))
        for found in ([share(counts) for counts in kind.values()] for kind in (lines, branches))
    ]
    print(row("altogether", *shares))
    print("\nnot run:")
    for path, counts in sorted(lines.items()):
        text = path.read_text().splitlines()
        for line in sorted(line for line, count in counts.items() if not count):
            print(f"{path.name}:{line}: {text[line - 1].strip()}")
        for line, column, outcome in sorted(place for place, count in branches[path].items() if not count):
            if counts[line]:
                print(f"{path.name}:{line}:{column}: never {outcome}: {text[line - 1].strip()}")
    short = [kind for kind, (there, run) in zip(FLOORS, shares, strict=True) if 100 * run < FLOORS[kind] * there]
    if short:
        sys.exit(f"too few {' and '.join(short)}: {FLOORS} % are asked for")


if __name__ == "__main__":
    main()
