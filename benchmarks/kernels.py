"""Measures the kernels that decode crops of tiled JPEGs on a CUDA device, and compares them with their twin.

python -m benchmarks.kernels [--photos PLACE] [--device cpu] [--batches 64,256,1024] [--equal 2000] [--damaged 2000]
                             [--small] [--json FILE]

The photos are JPEGs below a directory, or a pack; by default some are drawn. Those that are not tiled are tiled first.
Every batch has one RandomResizedCrop of 224 pixels, with flips, of each photo in turn.

Times are medians of rounds between two events of the stream. With ``--device cpu`` the twin replaces the device, and a
clock of the processor the stream's: this shows only that the program works.

The program exits with 1 if a buffer differs from the twin's, or if the device fails. ``--small`` compares some small
images without measuring times, which is fast enough for the tools of compute-sanitizer:

    compute-sanitizer --tool memcheck  python -m benchmarks.kernels --small
    compute-sanitizer --tool racecheck python -m benchmarks.kernels --small
    compute-sanitizer --tool synccheck python -m benchmarks.kernels --small
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))  # `device` is not installed

from device.batch import Batch, Photo, batch_of, photo_of
from device.stages import KINDS, STAGES, THREADS, WRITES, Buffers, Stage, Table, buffers_of, result_of, stages_of
from device.twin import Twin
from packer._images.geometry import Box

Array = npt.NDArray[Any]

SIZE = 224
LONGEST = 8.0  # ms; if a batch of 256 takes longer, more work is not worth while
WARM, ROUNDS = 3, 20
SWEPT = {"tiles": (64, 128, 256), "tables": (64, 128, 256), "entropy": (32, 64, 128), "across": (64, 128, 256)}


class Drawn(NamedTuple):
    """Photos, and crops of them."""

    photos: list[Photo]
    crops: list[Box]

    def some(self, first: int, count: int) -> tuple[list[Photo], list[Box]]:
        """Return crops in turn, with their photos."""
        places = [place % len(self.crops) for place in range(first, first + count)]
        return [self.photos[place % len(self.photos)] for place in places], [self.crops[place] for place in places]


def say(*lines: object) -> None:
    print(*lines, sep="\n", flush=True)


def tiled(datas: Iterator[bytes], most: int) -> list[Photo]:
    """Return the first JPEGs that the kernels support; those without tiles are tiled."""
    photos: list[Photo] = []
    for data in datas:
        if len(photos) == most:
            break
        photo = photo_of(data)
        if photo is None:
            photo = photo_of(_tile(data))
        if photo is not None:
            photos.append(photo)
    return photos


def _tile(data: bytes) -> bytes:
    from packer._images.jpeg_tiles import transcode
    from packer.errors import PackerError

    try:
        return transcode(data)
    except PackerError:
        return b""


def stored(place: Path) -> Iterator[bytes]:
    """Yield the images of a pack, or the JPEGs below a directory."""
    jpegs = (
        sorted(path for path in place.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"}) if place.is_dir() else []
    )
    if jpegs:
        yield from (path.read_bytes() for path in jpegs)
        return
    from packer._formats import open_pack

    with open_pack(place) as reader:
        for index in range(len(reader)):
            yield bytes(reader.read(index))


def drawn(small: bool) -> Iterator[bytes]:
    """Yield drawn photos, of all samplings."""
    import io

    from PIL import Image

    from packer.testing.photos import draw_photo

    rng = np.random.default_rng(1)
    for number in range(12 if small else 48):
        height, width = (
            (60 + 7 * number, 83 + 5 * number) if small else ((375, 500), (500, 375), (333, 500))[number % 3]
        )
        image = Image.fromarray(draw_photo(rng, height, width))
        stream = io.BytesIO()
        kind = number % 4
        (image if kind < 3 else image.convert("L")).save(stream, "JPEG", quality=94, subsampling=kind % 3)
        yield stream.getvalue()


def with_crops(photos: list[Photo], count: int, seed: int) -> Drawn:
    """Draw crops, of each photo in turn."""
    from packer.crops import RandomResizedCrop

    rule = RandomResizedCrop(SIZE, flip=0.5)
    sides = np.array([(photo.tiles.grid.height, photo.tiles.grid.width) for photo in photos], np.int64)
    sides = sides[np.arange(count) % len(photos)]
    chosen = rule.choose(*np.ascontiguousarray(sides.T), np.random.default_rng(seed).random((count, rule.randoms)))
    return Drawn(photos, [Box(*map(int, record)) for record in chosen.tolist()])


def table_of(kind: str) -> Table:
    """Return the table of a type of numbers; floats are normalised as by packer, and in planes, for most networks."""
    if kind == "uint8":
        return Table(kind, False)
    from packer._images.numbers import NumberFormat

    import torch  # isort: skip

    numbers = NumberFormat(((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), kind, True)
    levels = torch.arange(256, dtype=torch.uint8)[None, None, None].expand(1, 3, 1, 256)
    levels = levels.contiguous(memory_format=torch.channels_last)
    out = torch.empty((1, 3, 1, 256), dtype=getattr(torch, kind))
    numbers.write(levels, out)
    return Table(kind, True, out.numpy().reshape(3, 256).view(KINDS[kind]).copy())


# Comparison with the twin.


class Difference(NamedTuple):
    """Where a buffer differs from the twin's: how many elements, the first and the last of them, and some."""

    name: str
    count: int
    first: int
    last: int
    here: list[int]
    there: list[int]


def difference(stage: str, machine: Any, here: Buffers, there: Buffers) -> Difference | None:
    """Return where the first of a stage's buffers differs from the twin's."""
    for name in WRITES[stage]:
        own = machine.fetch(here.memory[name]).view(np.uint8).view(there.dtypes[name])
        differ = np.flatnonzero(own != there.memory[name])
        if differ.size:
            first, last = int(differ[0]), int(differ[-1])
            some = slice(first, first + 8)
            return Difference(name, differ.size, first, last, own[some].tolist(), there.memory[name][some].tolist())
    return None


def owner(batch: Batch, name: str, at: int) -> str:
    """Say which image an element of a buffer belongs to."""
    images = batch.images
    if name == "coefficients":
        begins, at = images["components"]["coefficients"][:, 0], at // 64
    elif name == "samples":
        begins = images["components"]["plane"][:, 0]
    elif name == "resized":
        begins = images["resized"]
    elif name == "out":
        begins, at = images["out"], at // 3
    else:
        return "of the batch"
    number = int(np.searchsorted(begins, at, "right")) - 1
    components = [(int(c["across"]), int(c["down"])) for c in images[number]["components"]]
    return f"of image {number} (place {at - int(begins[number])} of it, factors {components})"


def compare_stages(machine: Any, twin: Twin, batch: Batch, table: Table) -> list[str]:
    """Run a batch on both, stage by stage; return the differences. Later stages go on with the twin's buffers."""
    here, there = buffers_of(machine, batch, table), buffers_of(twin, batch, table)
    found = []
    for stage, expected in zip(stages_of(batch, here, table), stages_of(batch, there, table), strict=True):
        machine.launch(*stage)
        machine.synchronise(stage.name)
        twin.launch(*expected)
        differs = difference(stage.name, machine, here, there)
        if differs is None:
            continue
        found.append(
            f"after {stage.name}, {differs.count} elements of {differs.name} differ, from {differs.first} to "
            f"{differs.last}, the first {owner(batch, differs.name, differs.first)}: {differs.here}, and the twin's "
            f"{differs.there}"
        )
        for name in WRITES[stage.name]:
            machine.replace(here.memory[name], there.memory[name])
    return found


def compare(machine: Any, twin: Twin, batches: Iterator[tuple[Batch, Table]], name: str) -> dict[str, Any]:
    """Compare results and states of tiles of batches with the twin's, which some threads compute meanwhile."""
    crops = tiles = damaged = differing = 0
    errors: list[str] = []
    began = time.perf_counter()

    def expected(batch: Batch, table: Table) -> tuple[Array, Array]:
        buffers = buffers_of(twin, batch, table)
        for stage in stages_of(batch, buffers, table):
            twin.launch(*stage)
        return result_of(twin, batch, buffers, table).out, buffers.memory["status"]

    def judge(batch: Batch, table: Table, out: Array, status: Array, there: tuple[Array, Array]) -> None:
        nonlocal crops, tiles, damaged, differing
        crops, tiles, damaged = (
            crops + len(batch.images),
            tiles + batch.sizes["tiles"],
            damaged + int((there[1] != 0).sum()),
        )
        same = np.array_equal(status, there[1]) and np.array_equal(
            out.view(np.uint8), there[0].reshape(-1).view(np.uint8)
        )
        if not same:
            differing += 1
            if len(errors) < 3:
                errors.append(f"a batch of {table.kind} differs")
                errors.extend(compare_stages(machine, twin, batch, table) or ["... and does not, when it runs again"])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting: list[Any] = []
        for batch, table in batches:
            later = pool.submit(expected, batch, table)
            buffers = buffers_of(machine, batch, table)
            for stage in stages_of(batch, buffers, table):
                machine.launch(*stage)
            out = machine.fetch(buffers.memory["out"])
            waiting.append((batch, table, out, machine.fetch(buffers.memory["status"]), later))
            while waiting and (len(waiting) > 2 * (os.cpu_count() or 1) or waiting[0][-1].done()):
                judge(*waiting[0][:-1], waiting.pop(0)[-1].result())
        for *parts, later in waiting:
            judge(*parts, later.result())
    seconds = time.perf_counter() - began
    verdict = "equal" if not differing else f"{differing} BATCHES DIFFER"
    say(f"{name}: {crops} crops, {tiles} tiles, {damaged} of them damaged: {verdict} ({seconds:.0f} s)", *errors)
    return {"crops": crops, "tiles": tiles, "damaged": damaged, "differing_batches": differing, "errors": errors}


def sound(drawn: Drawn, count: int, each: int = 64) -> Iterator[tuple[Batch, Table]]:
    """Yield batches with `count` crops in all, to each type of numbers in turn."""
    kinds = [table_of(kind) for kind in KINDS]
    for number, first in enumerate(range(0, count, each)):
        yield batch_of(*drawn.some(first, min(each, count - first))), kinds[number % len(kinds)]


def mutated(batch: Batch, chance: random.Random, each: int) -> tuple[Batch, int]:
    """Return a batch with some bytes of its tiles changed, `each` of every image; and how many."""
    slab, count = batch.slab.view(np.uint8).copy(), 0
    groups = batch.groups
    owners = np.searchsorted([tiles.start for tiles in batch.tiles], groups["tile"], "right") - 1
    for number in range(len(batch.images)):
        own = groups[owners == number]
        for _ in range(each):
            group = own[chance.randrange(len(own))]
            at = int(group["from"]) + chance.randrange(int(group["size"]))
            match chance.randrange(4):
                case 0:
                    slab[at] ^= 1 << chance.randrange(8)
                case 1:
                    slab[at] = chance.choice([0, 0xFF, 0xD0 | chance.randrange(8), 0xD9, 0x7F, 0x80])
                case 2:
                    slab[at] = chance.randrange(256)
                case _:
                    end = min(at + chance.randrange(1, 9), int(group["from"]) + int(group["size"]))
                    slab[at:end] = np.frombuffer(chance.randbytes(end - at), np.uint8)
            count += 1
    return batch._replace(slab=slab.view(np.uint32)), count


def broken(drawn: Drawn, count: int, each: int = 32) -> Iterator[tuple[Batch, Table]]:
    """Yield batches with `count` mutations in all, three of each image."""
    chance, kinds, done, first = random.Random(7), [table_of(kind) for kind in KINDS], 0, 0
    while done < count:
        batch, mutations = mutated(batch_of(*drawn.some(first, each)), chance, 3)
        yield batch, kinds[first // each % len(kinds)]
        done, first = done + mutations, first + each


# Times.


class Clock:
    """Times on a stream of the device, or on the processor."""

    def __init__(self, machine: Any) -> None:
        self._torch = getattr(machine, "torch", None)

    def mark(self) -> Any:
        if self._torch is None:
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        if self._torch is not None:
            self._torch.cuda.synchronize()

    def between(self, begin: Any, end: Any) -> float:
        """Return milliseconds."""
        return 1000 * (end - begin) if self._torch is None else float(begin.elapsed_time(end))


def timed(machine: Any, steps: Sequence[tuple[str, Callable[[], None]]], rounds: int) -> dict[str, float]:
    """Return the median of each step's milliseconds, and of all together: without marks between, as ``whole``."""
    clock, times = Clock(machine), {name: [] for name, _ in steps} | {"whole": []}
    for number in range(WARM + rounds):
        marks = [clock.mark()]
        for _, step in steps:
            step()
            marks.append(clock.mark())
        clock.wait()
        begin = clock.mark()
        for _, step in steps:
            step()
        end = clock.mark()
        clock.wait()
        if number >= WARM:
            for (name, _), before, after in zip(steps, marks, marks[1:], strict=False):
                times[name].append(clock.between(before, after))
            times["whole"].append(clock.between(begin, end))
    return {name: statistics.median(values) for name, values in times.items()}


def steps_of(
    machine: Any, batch: Batch, buffers: Buffers, table: Table, threads: dict[str, int] | None = None
) -> list[Any]:
    """Return the steps of a batch whose data are on the device: coefficients are cleared, then each kernel runs."""

    def launch(stage: Stage) -> Callable[[], None]:
        return lambda: machine.launch(*stage)

    steps: list[Any] = [("clear", lambda: machine.clear(buffers.memory["coefficients"]))]
    return steps + [(stage.name, launch(stage)) for stage in stages_of(batch, buffers, table, threads)]


class Counting(Twin):
    """The twin that counts symbols."""

    def __init__(self) -> None:
        super().__init__(flags=("-O1", "-DCOUNTED"))
        self.counts = (ctypes.c_uint32 * 2).in_dll(self._library, "symbols")


def symbols_of(counting: Counting, batch: Batch) -> tuple[int, int]:
    """Return the number of symbols in a batch's tiles, and in its longest tile."""
    counting.counts[:] = [0, 0]
    table = Table("uint8", False)
    buffers = buffers_of(counting, batch, table)
    for stage in stages_of(batch, buffers, table):
        counting.launch(*stage)
        if stage.name == "entropy":
            break
    return counting.counts[0], counting.counts[1]


def measure(
    machine: Any, drawn: Drawn, sizes: Sequence[int], facts: dict[str, Any], rounds: int
) -> list[dict[str, Any]]:
    """Time batches of crops to float16."""
    counting, table, rows = Counting(), table_of("float16"), []
    for size in sizes:
        batch = batch_of(*drawn.some(0, size))
        buffers = buffers_of(machine, batch, table)
        medians = timed(machine, steps_of(machine, batch, buffers, table), rounds)
        total, longest = symbols_of(counting, batch)
        cycles = facts.get("mhz", 1000) * 1e3  # of a millisecond
        all_cycles = cycles * facts.get("multiprocessors", 1)
        row = {"batch": size, "ms": medians, "images_a_second": 1000 * size / medians["whole"]}
        row |= {"bytes": batch.sizes["bytes"], "tiles": batch.sizes["order"], "symbols": total, "longest": longest}
        row |= {"blocks": batch.sizes["blocks"], "resized": batch.sizes["resized"], "pixels": batch.sizes["pixels"]}
        row["cycles"] = {
            "symbol of the longest tile": medians["entropy"] * cycles / max(longest, 1),
            "symbol": medians["entropy"] * all_cycles / max(total, 1),
            "block of 8 x 8": medians["idct"] * all_cycles / row["blocks"],
            "pixel between the passes": medians["across"] * all_cycles / row["resized"],
            "pixel of the result": medians["down"] * all_cycles / row["pixels"],
        }
        rows.append(row)
        show_row(row)
        del buffers
    return rows


def show_row(row: dict[str, Any]) -> None:
    each = "  ".join(f"{name} {row['ms'][name]:.3f}" for name in ("clear", *STAGES))
    say(
        f"batch of {row['batch']}: {row['ms']['whole']:.3f} ms, {row['images_a_second']:,.0f} images/s",
        f"  ms: {each}",
        f"  {row['bytes'] / 1e6:.1f} MB, {row['tiles']} tiles, {row['blocks']} blocks, {row['symbols']} symbols, "
        f"{row['longest']} in the longest tile",
        "  cycles (of one thread for the longest tile, else of a multiprocessor): "
        + ", ".join(f"{cycles:.2f} a {unit}" for unit, cycles in row["cycles"].items()),
    )


def sweep(machine: Any, drawn: Drawn, size: int, rounds: int) -> dict[str, dict[int, float]]:
    """Time kernels with other numbers of threads in a block."""
    table, batch = table_of("float16"), batch_of(*drawn.some(0, size))
    buffers = buffers_of(machine, batch, table)
    found: dict[str, dict[int, float]] = {}
    for name, numbers in SWEPT.items():
        found[name] = {}
        for number in numbers:
            steps = steps_of(machine, batch, buffers, table, {name: number})
            found[name][number] = timed(machine, steps, rounds)[name]
        each = "  ".join(f"{number}: {ms:.3f}" for number, ms in found[name].items())
        say(f"threads of a block, {name} (ms of {size} crops; now {THREADS[name]}): {each}")
    return found


def streams(machine: Any, drawn: Drawn, size: int, count: int) -> dict[str, float]:
    """Return images a second for a sequence of batches: on one stream, on two, and on two with copies."""
    torch, table = machine.torch, table_of("float16")
    batches = [batch_of(*drawn.some(first * size, size)) for first in range(2)]
    held = [buffers_of(machine, batch, table) for batch in batches]
    pinned = [torch.from_numpy(batch.slab.view(np.uint8).copy()).pin_memory() for batch in batches]
    rates = {}
    for name, lanes, copies in (
        ("one stream", 1, False),
        ("two streams", 2, False),
        ("two streams, with copies", 2, True),
    ):
        lane = [torch.cuda.Stream() for _ in range(lanes)]
        began = time.perf_counter()
        for number in range(-4, count):
            if number == 0:
                torch.cuda.synchronize()
                began = time.perf_counter()
            which = number % 2
            with torch.cuda.stream(lane[number % lanes]):
                if copies:
                    held[which].memory["slab"].copy_(pinned[which], non_blocking=True)
                for _, step in steps_of(machine, batches[which], held[which], table):
                    step()
        torch.cuda.synchronize()
        rates[name] = count * size / (time.perf_counter() - began)
        say(f"{name}: {rates[name]:,.0f} images/s in batches of {size}")
    return rates


def facts_of(machine: Any) -> dict[str, Any]:
    """Return the facts that the figures depend on."""
    if not hasattr(machine, "torch"):
        return {"device": "the twin, on the processor"}
    torch = machine.torch
    own = torch.cuda.get_device_properties(0)
    facts: dict[str, Any] = {
        "device": own.name,
        "multiprocessors": own.multi_processor_count,
        "torch": torch.__version__,
    }
    facts |= {"architecture": machine.architecture, "compiler": machine.made.by}
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.sm", "--format=csv,noheader,nounits"]
    try:
        said = (
            subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
            .stdout.splitlines()[0]
            .split(", ")
        )
        facts |= {"driver": said[0], "mhz": int(said[1]), "mhz_idle": int(said[2])}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        say(f"the clock's rate is not known ({error}): cycles are of 1.7 GHz")
        facts["mhz"] = 1700
    facts["kernels"] = {
        name: {**needs._asdict(), "blocks_at_once": machine.blocks_at_once(name, THREADS[name])}
        for name, needs in machine.facts().items()
    }
    return facts


def machine_of(options: argparse.Namespace) -> Any:
    if options.device == "cpu":
        return Twin()
    from device.cuda import Device

    return Device(architecture=options.architecture)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, help="a directory of JPEGs, or a pack; by default some are drawn")
    parser.add_argument("--most", type=int, default=1024, help="photos that are read")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--batches", type=lambda text: [int(part) for part in text.split(",")], default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--equal", type=int, default=2000, metavar="N", help="crops that are compared with the twin's")
    parser.add_argument("--damaged", type=int, default=2000, metavar="N", help="mutations of tiles")
    parser.add_argument("--small", action="store_true", help="small images, and no times")
    parser.add_argument("--no-sweep", dest="sweep", action="store_false", help="leave out other numbers of threads")
    parser.add_argument(
        "--architecture", help="compile for this, as compute_80 for PTX; by default for the device's own"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def work(options: argparse.Namespace, results: dict[str, Any]) -> bool:
    """Compare and measure by the options; tell whether all was equal."""
    began = time.perf_counter()
    photos = tiled(stored(options.photos) if options.photos else drawn(options.small), options.most)
    if not photos:
        raise RuntimeError(f"{options.photos or 'the drawn tree'} has no JPEG that can be tiled")
    say(f"{len(photos)} tiled photos, mean {np.mean([len(photo.data) for photo in photos]) / 1000:.0f} kB")
    machine, twin = machine_of(options), Twin()
    results["facts"] = facts = facts_of(machine)
    say(*(f"{name}: {value}" for name, value in facts.items() if name != "kernels"))
    say(*(f"  {name}: {needs}" for name, needs in facts.get("kernels", {}).items()))
    drawn_ones = with_crops(photos, max([*options.batches, len(photos), options.equal]), 3)
    first = 12 if options.small else 16
    found = compare_stages(machine, twin, batch_of(*drawn_ones.some(0, first)), table_of("float16"))
    say(
        *(found or [f"stage by stage, {first} crops: all buffers are the twin's ({time.perf_counter() - began:.0f} s)"])
    )
    results["stages"] = found
    if options.small:
        checks = [compare(machine, twin, sound(drawn_ones, 36, 12), "crops")]
        checks.append(compare(machine, twin, broken(drawn_ones, 72, 12), "mutated"))
    else:
        results["batches"] = rows = measure(machine, drawn_ones, options.batches, facts, options.rounds)
        for row in rows:
            if row["batch"] == 256:
                verdict = "go on" if row["ms"]["whole"] <= LONGEST else "STOP"
                say(f"a batch of 256 takes {row['ms']['whole']:.2f} ms, and may take {LONGEST:.0f}: {verdict}")
                results["verdict"] = verdict
        middle = sorted(options.batches)[len(options.batches) // 2]
        if hasattr(machine, "torch"):
            results["streams"] = streams(machine, drawn_ones, middle, 40)
        if options.sweep:
            results["threads"] = sweep(machine, drawn_ones, middle, max(options.rounds // 2, 1))
        checks = [compare(machine, twin, sound(drawn_ones, options.equal), "crops")]
        checks.append(compare(machine, twin, broken(drawn_ones, options.damaged), "mutated"))
    results["compared"] = checks
    return not found and not any(check["differing_batches"] for check in checks)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parsed(arguments)
    results: dict[str, Any] = {"command": sys.argv}
    try:
        ended_well = work(options, results)
    except RuntimeError as error:
        traceback.print_exc(limit=-3)
        say(f"kernels: {error}")
        results["error"], ended_well = str(error), False
    if options.json is not None:
        from benchmarks.report import write_json

        write_json(options.json, results)
    return 0 if ended_well else 1


if __name__ == "__main__":
    sys.exit(main())
