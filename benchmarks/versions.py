"""Measures packer's C, compared with that of another checkout and with libraries, on photos in memory.

python benchmarks/versions.py TREE [--than CHECKOUT] [--threads 2] [--ways whole crop transcode] [--rounds 9]

*whole* decodes photos to RGB. *crop* decodes random rectangles as a training does, and resizes them to 224 x 224.
*transcode* makes tiled JPEGs of JPEGs. The sides are this checkout; CHECKOUT, in which the C is compiled as here; and
*libraries*: simplejpeg, which carries libjpeg-turbo, and torch's resizing, which transcode nothing. Each side runs in a
process of its own, in turn. A ratio is the median over the rounds, of CPU time and of time; the first suffers less from
a busy machine. Pixels and tiles are compared, where both sides give them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

AT_A_TIME = 8
OUTPUT = 224
WAYS = ("whole", "crop", "transcode")
HERE = Path(__file__).resolve()

Call = Callable[[slice], None]


def main() -> None:
    options = parse()
    if options.side:
        serve(options)
        return
    sides = {"this checkout": ("packer", HERE.parents[1])}
    if options.than:
        sides["the other"] = ("packer", options.than.resolve())
    sides["libraries"] = ("libraries", HERE.parents[1])
    for way in options.ways:
        compare(way, {name: side for name, side in sides.items() if way != "transcode" or side[0] == "packer"}, options)


def compare(way: str, sides: dict[str, tuple[str, Path]], options: argparse.Namespace) -> None:
    """Measure the sides in turn, and print their rates and ratios."""
    running = {name: Side(HERE, words(kind, way, options), checkout) for name, (kind, checkout) in sides.items()}
    seconds = in_turn(running, options.rounds)
    photos, ours = running["this checkout"].first["photos"], seconds["this checkout"]
    print(f"{way}: {photos} photos, {options.threads} threads, medians of {options.rounds} rounds")
    for name, rounds in seconds.items():
        rate = photos / statistics.median(one["time"] for one in rounds)
        ratios = {
            clock: statistics.median(other[clock] / own[clock] for own, other in zip(ours, rounds, strict=True))
            for clock in ("cpu", "time")
        }
        same = sum(map(str.__eq__, running[name].first["digests"], running["this checkout"].first["digests"]))
        print(
            f"  {name:14} {rate:7.0f} images a second; this checkout is {ratios['cpu']:.3f} times as fast by CPU time,"
            f" {ratios['time']:.3f} by time; {same} of {photos} results are the same"
        )
    for side in running.values():
        side.end()


def words(kind: str, way: str, options: argparse.Namespace) -> list[str]:
    return [str(options.tree), "--side", kind, "--ways", way, "--threads", str(options.threads)]


def in_turn(sides: Mapping[str, Side], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return the seconds that each side takes in each round; the order of the sides is reversed every other round."""
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            seconds[name].append(sides[name].ask())
    return seconds


class Side:
    """A process of a program that imports packer from a checkout, and measures something once for each request.

    The process writes lines of JSON: the first one, `first`, when it is ready, and another one for each line it reads.
    """

    def __init__(self, program: Path, words: Sequence[str], checkout: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(program), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
        )
        self.first = self._read()

    def ask(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        seconds: dict[str, float] = self._read()
        return seconds

    def end(self) -> None:
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a side ended before its time")
        return json.loads(line)


def serve(options: argparse.Namespace) -> None:
    """Run a side: print digests of its results; then, for each line of the standard input, the time that they take."""
    suffixes = (".jpg", ".jpeg") if options.ways == ["transcode"] else (".jpg", ".jpeg", ".png")
    photos = [path.read_bytes() for path in sorted(options.tree.rglob("*")) if path.suffix.lower() in suffixes]
    call, digests = {"whole": drawing, "crop": drawing, "transcode": transcoding}[options.ways[0]](photos, options)
    run(call, len(photos), options.threads)
    print(json.dumps({"photos": len(photos), "digests": digests()}), flush=True)
    for _ in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        run(call, len(photos), options.threads)
        print(json.dumps({"time": time.perf_counter() - begin, "cpu": time.process_time() - cpu}), flush=True)


def run(call: Call, count: int, threads: int) -> None:
    """Process all photos, some at a time, on threads that each take the next ones."""
    parts = iter([slice(start, start + AT_A_TIME) for start in range(0, count, AT_A_TIME)])
    workers = [threading.Thread(target=take, args=(call, parts)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def take(call: Call, parts: Iterator[slice]) -> None:
    for part in parts:
        call(part)


def drawing(photos: list[bytes], options: argparse.Namespace) -> tuple[Call, Callable[[], list[str]]]:
    """Return a function that decodes some of the photos into memory, and one that returns the digests of the pixels."""
    import numpy as np

    from packer._images import native
    from packer._images.geometry import CROP, Box
    from packer._images.probe import inspect

    sizes = [(info.height, info.width) for info in (inspect(photo, 1 << 28) for photo in photos)]
    if options.ways == ["crop"]:
        boxes = [Box.of(rectangle, (OUTPUT, OUTPUT)) for rectangle in rectangles(sizes)]
    else:
        boxes = [Box.of((0, 0, height, width), (height, width)) for height, width in sizes]
    outs = [np.zeros((*box.out, 3), np.uint8) for box in boxes]

    def draw(some: slice) -> None:
        addresses = np.array([out.ctypes.data for out in outs[some]])
        crops = np.array(boxes[some], CROP)
        left = native.decode_into(native.tasks(native.in_memory(photos[some], sizes[some]), crops, addresses))
        if len(left):
            raise SystemExit(f"{len(left)} of the photos are none that packer's own decoder knows")

    call = draw if options.side == "packer" else by_libraries(photos, boxes, outs)
    return call, lambda: [hashlib.sha256(out.tobytes()).hexdigest() for out in outs]


def rectangles(sizes: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield a random rectangle for each image, like RandomResizedCrop with a single try, cut to the image."""
    import numpy as np

    rng = np.random.default_rng(0)
    for height, width in sizes:
        area, shape = height * width * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, tall = min(width, round(np.sqrt(area * shape))), min(height, round(np.sqrt(area / shape)))
        yield int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1)), tall, wide


def by_libraries(photos: list[bytes], boxes: list[Any], outs: list[Any]) -> Call:
    """Return a function that decodes with simplejpeg, or with Pillow other types than JPEG, and resizes with torch."""
    import io

    import numpy as np
    import torch
    from peers.limit import _scratch
    from PIL import Image

    from packer._images.turbojpeg import decode_jpeg

    torch.set_num_threads(1)
    resize = torch.ops.aten._upsample_bilinear2d_aa.out

    def decode(photo: bytes) -> Any:
        image = Image.open(io.BytesIO(photo))
        if not photo.startswith(b"\xff\xd8"):
            return np.array(image.convert("RGB"))
        return decode_jpeg(photo, _scratch(image.height, image.width))

    def draw(some: slice) -> None:
        for photo, box, out in zip(photos[some], boxes[some], outs[some], strict=True):
            top, left, height, width = box[:4]
            if out.shape[:2] == (height, width) and photo.startswith(b"\xff\xd8"):
                decode_jpeg(photo, out)
                continue
            part = torch.from_numpy(decode(photo)[top : top + height, left : left + width])
            resize(
                part.permute(2, 0, 1)[None],
                out.shape[:2],
                False,
                None,
                None,
                out=torch.from_numpy(out).permute(2, 0, 1)[None],
            )

    return draw


def transcoding(photos: list[bytes], options: argparse.Namespace) -> tuple[Call, Callable[[], list[str]]]:
    from packer._images.jpeg_tiles import transcode
    from packer.errors import ImageError

    made: list[bytes] = [b""] * len(photos)

    def call(some: slice) -> None:
        for index in range(len(photos))[some]:
            try:
                made[index] = bytes(transcode(photos[index]))
            except ImageError:
                made[index] = b""

    return call, lambda: [hashlib.sha256(data).hexdigest() for data in made]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a directory of photos, at any depth")
    parser.add_argument("--than", type=Path, metavar="CHECKOUT", help="another checkout of packer, compiled")
    parser.add_argument("--threads", type=int, default=2, help="of each side (%(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--side", choices=("packer", "libraries"), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
