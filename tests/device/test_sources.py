"""NVRTC compiles the kernels within their limits, and the tests find faults in their sources."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from device.batch import Photo, batch_of
from device.cuda import compile_kernels, facts_in, find_nvrtc
from device.stages import STAGES, run
from device.twin import SOURCES, Twin
from packer._images.geometry import Box
from tests.device.conftest import require_compilers
from tests.device.crops import LEVELS, by_processor, corners, cut, mutation, noise, random_box, tiled, unequal
from tests.device.test_damage import with_bytes_after_a_group
from tests.images.samples import SUBSAMPLINGS

REGISTERS = {"tiles": 64, "tables": 64, "entropy": 80, "idct": 128, "weights": 64, "across": 64, "down": 64}
"""The most registers that a thread of each kernel may use."""


def libraries() -> Iterator[Path]:
    """Yield the NVRTC libraries that ``NVRTC`` names, or else the one installed with torch."""
    named = os.environ.get("NVRTC")
    found = [Path(path) for path in named.split(os.pathsep)] if named else [find_nvrtc()]
    yield from (path for path in found if path is not None)


@pytest.mark.parametrize("architecture", ["compute_80", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_nvrtc_takes_the_kernels(architecture: str) -> None:
    """Machine code keeps to the limits of registers and shared memory, and spills no registers."""
    made = []
    for library in libraries():
        try:
            made.append(compile_kernels(architecture, library))
        except RuntimeError as error:
            if "invalid value for --gpu-architecture" not in str(error):  # older than the architecture
                raise
    if not made:
        pytest.skip("needs NVRTC for this architecture; NVRTC names libraries, a path each")
    for one in made:
        if architecture.startswith("compute"):
            assert one.image.count(b".entry") == len(STAGES)
            continue
        facts = facts_in(one.log)
        assert set(facts) == set(STAGES)
        for name, needs in facts.items():
            assert needs.local == 0, (one.by, name)
            assert needs.registers <= REGISTERS[name], (one.by, name)
            assert needs.shared <= 48 << 10, (one.by, name)


FAULTS = {
    "a stuffed zero is kept": ("tiles.h", "return before == 0xFF ? DROPPED : KEPT;", "return KEPT;"),
    "bytes of two pieces are not joined": ("tiles.h", "shared->out[0] = shared->out[bytes / 4];", ""),
    "any marker ends a tile": ("tiles.h", "|| !belongs(group, tile, after)", ""),
    "a group may end before its last marker": ("tiles.h", "|| !shared->ended", ""),
    "long codes are looked up a prefix too far": ("entropy.h", "LOOK + 1, LENGTHS) : 0", "LOOK + 2, LENGTHS) : 0"),
    "words come too late": (
        "entropy.h",
        "bits->filled + 4 - bits->next <= RING",
        "bits->filled + 4 - bits->next <= RING / 4",
    ),
    "the last coefficient of a tile is forgotten": (
        "entropy.h",
        "    if (is_stored)\n        into[place] = (int16_t)value;\n    if (mcu",
        "    if (mcu",
    ),
    "negative values are one too large": ("entropy.h", ": value - most)", ": value - most + 1)"),
    "predictions of red are those of blue": ("entropy.h", "sums->of_2 = component == 2", "sums->of_1 = component == 2"),
    "a tile may have bytes left over": (
        "entropy.h",
        "(position(&bits) + 7) / 8 != end",
        "(position(&bits) + 7) / 8 > end",
    ),
    "zeros may end a block": ("entropy.h", "(k > 64 || !size)", "k > 64"),
    "blocks may go beyond their last coefficient": ("entropy.h", "(k > 64 || !size)", "!size"),
    "an odd sum is not rounded": ("samples.h", "plus(row.at[x], 1 << 17)", "row.at[x]"),
    "the shortcut is taken too often": ("samples.h", "(own.at[0] & 0xFFFF0000u) | own.at[1] |", "own.at[1] |"),
    "neighbours beyond the image": (
        "pixels.h",
        "smaller(c->width - 1 - c->first_column, c->stride - 1)",
        "c->stride - 1",
    ),
    "rows beyond the image": ("pixels.h", "smaller(near + 1, c->height - 1 - c->first_row)", "near + 1"),
    "odd samples round as even ones": ("pixels.h", "+ row[next] + 1 + odd)", "+ row[next] + 1)"),
    "red rounds down": ("pixels.h", "(91881 * cr + 32768)", "(91881 * cr)"),
    "weights have a bit too few": ("weights.h", "precision < LARGEST_PRECISION", "precision < LARGEST_PRECISION - 7"),
    "weights round down": ("weights.h", "(weight < 0 ? -0.5 : 0.5)", "0"),
    "results are not mirrored": ("pixels.h", "image->flip ? width - 1 - x : x", "x"),
}


def finds(twin: Twin) -> bool:
    """Tell whether crops of drawn photos, sound and damaged, show a difference from packer's decoder."""
    chance = random.Random(2)
    if unequal(twin, [noise()], [Box.of((0, 0, 64, 96), (23, 31))]):
        return True
    for subsampling in SUBSAMPLINGS:
        for size in ((131, 100), (300, 420)):
            photo = tiled(subsampling, size, "optimised")
            boxes = [*corners(photo, (23, 31)), *(random_box(photo, (23, 31), chance) for _ in range(8))]
            if unequal(twin, [photo] * len(boxes), boxes):
                return True
    damaged = [with_bytes_after_a_group(tiled("4:4:4", (300, 420)))]
    if _disagrees(twin, damaged, [Box.of((0, 0, 40, 40), (16, 16))]):
        return True
    for subsampling in SUBSAMPLINGS:
        sound = tiled(subsampling, (97, 140))
        photos = [mutation(sound, chance) for _ in range(200)]
        if _disagrees(twin, photos, [random_box(sound, (16, 16), chance) for _ in photos]):
            return True
    return False


def _disagrees(twin: Twin, photos: Sequence[Photo], boxes: Sequence[Box]) -> bool:
    """Tell whether the kernels accept a photo that packer's decoder refuses, or refuse one that it accepts."""
    batch = batch_of(photos, boxes)
    status = iter(run(twin, batch, LEVELS).status)
    for number, (photo, box) in enumerate(zip(photos, boxes, strict=True)):
        part = cut(photo, photo.data, box)
        fine = part is not None and by_processor(*part) is not None
        if (number not in batch.refused and next(status) == 0) != fine:
            return True
    return False


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_planted_fault_is_found(fault: str | None, tmp_path: Path) -> None:
    """Each fault is found, and the unchanged kernels have none."""
    require_compilers()
    sources = tmp_path / "device"
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    if fault is not None:
        name, right, wrong = FAULTS[fault]
        text = (sources / name).read_text()
        assert text.count(right) >= 1
        (sources / name).write_text(text.replace(right, wrong))
    assert finds(Twin(sources, flags=("-Og",))) == (fault is not None)
