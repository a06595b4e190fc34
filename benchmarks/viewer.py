"""Measure `packer view` in a real browser: the first screen, jumps to any place, searches, memory, and the report.

An index of ImageNet's size is made, whose samples are the same photos again and again, each with a name, a label and a
checksum of its own: so every sample can be decoded, without 140 GB. See README.md in this directory.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAMPLES = 1_281_167  # of ImageNet's train split
CLASSES = 1000
TARGETS = {"first_screen_s": 1.0, "jump_s": 0.5, "screen_of_1000_s": 0.5, "report_mb": 15}
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
SCREEN = """
() => new Promise((done, failed) => {
  setTimeout(() => failed(new Error("some pictures do not come")), 60000);
  const began = performance.now();
  const scroll = document.getElementById("scroll").getBoundingClientRect();
  const look = () => {
    const cells = [...document.querySelectorAll(".cell")].filter((cell) => {
      const { top, bottom } = cell.getBoundingClientRect();
      return bottom > scroll.top && top < scroll.bottom;
    });
    const there = (cell) => cell.dataset.filled && (cell.querySelector("img")?.naturalWidth ?? 0) > 0;
    if (cells.length && cells.every(there)) done([performance.now() - began, performance.now(), cells.length]);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(() => requestAnimationFrame(look)); // after what scrolling changes
})
"""
"""Waits until all visible pictures are loaded; returns the milliseconds since the call and the request, and a count."""


def main() -> None:
    from report import machine, table, write_json

    arguments = _arguments()
    results: dict[str, Any] = {"machine": machine(), "targets": TARGETS, "samples": arguments.samples}
    with tempfile.TemporaryDirectory(prefix="packer-benchmark-", dir=arguments.work) as directory:
        work = Path(directory)
        photos = _photos(work, arguments.source)
        (work / "photos.bin").write_bytes(b"".join(photos))
        large = _index(work / "large.index", work / "photos.bin", photos, arguments.samples)
        small = _index(work / "small.index", work / "photos.bin", photos, 1000)
        with _browser(arguments.browser) as browser:
            results["small"] = _measured(browser, small, arguments.rounds)
            results["large"] = _measured(browser, large, arguments.rounds)
        began = time.perf_counter()
        command = [sys.executable, "-m", "packer", "view", str(small), "--quiet", "--html", str(work / "report.html")]
        subprocess.run(command, check=True)
        results["report"] = {
            "seconds": time.perf_counter() - began,
            "mb": (work / "report.html").stat().st_size / 1e6,
        }
    names = list(results["large"])
    print(table(["", "1,000 samples", f"{arguments.samples:,} samples"], [_row(name, results) for name in names]))
    print(f"report of 1,000 samples: {results['report']['mb']:.1f} MB in {results['report']['seconds']:.1f} s")
    write_json(arguments.json, results)


def _row(name: str, results: dict[str, Any]) -> list[str]:
    return [name, *(f"{results[pack][name]:,.2f}" for pack in ("small", "large"))]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"in the large index ({SAMPLES})")
    parser.add_argument("--source", type=Path, metavar="DIR", help="an ImageFolder (by default photos are drawn)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where to write")
    parser.add_argument("--browser", default="/usr/bin/chromium", metavar="FILE", help="a Chromium (/usr/bin/chromium)")
    parser.add_argument("--rounds", type=int, default=9, help="jumps, and openings of the page (9)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


def _photos(work: Path, source: Path | None) -> list[bytes]:
    from packer.testing.photos import draw_imagefolder

    if source is None:
        source = work / "photos"
        draw_imagefolder(source, classes=4, per_class=100)
    return [path.read_bytes() for path in sorted(source.rglob("*.jp*g")) + sorted(source.rglob("*.JPEG"))]


def _index(path: Path, file: Path, photos: list[bytes], rows: int) -> Path:
    """Make an index of `rows` samples, of which each is one of the photos in `file`."""
    import google_crc32c
    import numpy as np

    from packer._containers.listing import ForeignFiles
    from packer._formats.index import write_index
    from packer._images.probe import inspect
    from packer._manifest import Manifest
    from packer._storage.files import TableBuilder

    begins = np.cumsum([0, *map(len, photos)]).tolist()
    crcs = [google_crc32c.value(photo) for photo in photos]
    sizes = [(info.height, info.width) for info in map(inspect, photos)]
    classes = [f"n{1_440_764 + 13_577 * label:08d}" for label in range(CLASSES)]
    builder = TableBuilder()
    fields = np.dtype([("label", "<i8"), ("height", "<i4"), ("width", "<i4")])
    for index in range(rows):
        label, photo = index * CLASSES // rows, index % len(photos)
        name = f"{classes[label]}/{classes[label]}_{index}.JPEG".encode()
        height, width = sizes[photo]
        crc = google_crc32c.extend(crcs[photo], np.array([(label, height, width)], fields).tobytes() + name)
        builder.append(
            label=label,
            height=height,
            width=width,
            offset=begins[photo],
            size=len(photos[photo]),
            crc32c=crc,
            name=name,
        )
    path.mkdir()
    files = ForeignFiles(file.parent, [file.name])
    write_index(path, Manifest("index", rows, classes, schema=2), builder.build(), files, base="..")
    return path


@contextlib.contextmanager
def _browser(executable: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS.split())
        page = browser.new_page()  # the first page of a browser is slow, whatever it shows
        page.goto("about:blank")
        yield browser
        browser.close()


def _measured(browser: Any, pack: Path, rounds: int) -> dict[str, float]:
    """Return medians, in seconds, and the memory of the server, in MB."""
    command = [sys.executable, "-m", "packer", "view", str(pack), "--no-browser", "--quiet"]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        figures = {"start_s": time.perf_counter() - began}
        firsts = [_first_screen(browser, address) for _ in range(rounds)]
        figures["very_first_screen_s"] = firsts[0][0]
        figures["first_screen_s"] = statistics.median(first for first, _, _ in firsts)
        page = firsts[-1][2]
        figures["pictures"] = firsts[-1][1]
        figures |= _memory(server.pid, "")
        jumps = [_jump(page, random.Random(number).random()) for number in range(rounds)]
        figures |= {"jump_s": statistics.median(jumps), "slowest_jump_s": max(jumps)}
        figures |= _memory(server.pid, "_after_jumps")
        for number in range(40):
            _jump(page, random.Random(100 + number).random())
        figures |= _memory(server.pid, "_after_40_more")
        figures["search_s"] = _asked(page, "found?name=_123")
        figures["histograms_s"] = _asked(page, "histograms?")
        figures["duplicates_s"] = _asked(page, "duplicates?")
        figures |= _memory(server.pid, "_at_the_end")
        server.terminate()
    return figures


def _memory(process: int, when: str) -> dict[str, float]:
    """Return the memory that a process alone has written, and the pages of files that it alone has touched, in MB.

    The system drops the latter whenever it needs room: most of them are the pack's table.
    """
    lines = (line.split() for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    kilobytes = {words[0]: int(words[1]) for words in lines}
    mb = {"memory": kilobytes["Private_Dirty:"] * 1024 / 1e6, "mapped": kilobytes["Private_Clean:"] * 1024 / 1e6}
    return {f"{name}{when}_mb": size for name, size in mb.items()}


def _first_screen(browser: Any, address: str) -> tuple[float, float, Any]:
    """Return the seconds from the request until all pictures are visible, their number, and the page."""
    page = browser.new_context(viewport={"width": 1500, "height": 1000}).new_page()
    page.add_init_script("localStorage.setItem('packer.cell', '120')")
    page.goto(address)
    page.wait_for_selector(".cell")
    _, since, count = page.evaluate(SCREEN)
    return since / 1e3, count, page


def _jump(page: Any, share: float) -> float:
    page.evaluate(f"() => {{ const s = document.getElementById('scroll'); s.scrollTop = {share} * s.scrollHeight; }}")
    return float(page.evaluate(SCREEN)[0] / 1e3)


def _asked(page: Any, question: str) -> float:
    asked = f"await (await fetch('ask/{question}')).text()"
    code = f"async () => {{ const began = performance.now(); {asked}; return performance.now() - began; }}"
    return float(page.evaluate(code) / 1e3)


if __name__ == "__main__":
    main()
