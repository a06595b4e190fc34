"""``python -m fuzz.campaign``: change JPEGs and PNGs in many ways, and compare all decoders with Pillow.

    python -m fuzz.campaign [--count 10000] [--seed 1] [--keep FOLDER] [FOLDER_OF_IMAGES …]

A decoder must give Pillow's pixels, or refuse what Pillow refuses. Images of the folders are decoded unchanged, and
changed like the drawn ones. A table has the numbers of inputs that were decoded and refused. Inputs about which Pillow
and a decoder disagree are listed, and kept if there is a folder for them; the last line has their number. The decoders
are packer's own, libjpeg-turbo through its binding and, for every fourth input, all others that are installed.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fuzz.mutations import MUTATIONS, drawn_jpegs
from fuzz.pngs import SIGNATURE, changed_png, drawn_pngs
from packer._images import native, pillow
from packer._images.decode import DECODERS, decode, installed_decoders
from packer._images.jpeg import read_header
from packer._images.probe import require_affordable
from packer.errors import ImageError, ImageTooLargeError

_MAX_PIXELS = 1 << 21

Pixels = npt.NDArray[np.uint8]


def inputs(count: int, seed: int, images: Sequence[bytes] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield images as they are, then `count` changed ones, each with the name of its change."""
    chance = random.Random(seed)
    drawn, pngs = drawn_jpegs(chance, 150), drawn_pngs(chance, 150)
    yield from (("as it is", data) for data in [*images, *drawn])
    yield from (("PNG, as it is", data) for data in pngs)
    originals = [*(data for data in images if data.startswith(b"\xff\xd8") and len(data) < 300_000), *drawn]
    for number in range(count):
        if number % 3 == 2:
            yield changed_png(chance, chance.choice(pngs), pngs)
            continue
        name, mutation = chance.choice(list(MUTATIONS.items()))
        data = mutation(chance, chance.choice(originals), originals)
        if chance.random() < 0.1:
            data = chance.choice(list(MUTATIONS.values()))(chance, data or b"\0", originals)
        yield name, data


def disagreement(
    data: bytes, decoders: Sequence[str] = ("auto",), exif: str = "ignore", max_pixels: int = _MAX_PIXELS
) -> tuple[str, str | None]:
    """Return the outcome for an image, and the decoders that disagree with Pillow, if any.

    Parameters
    ----------
    data : bytes
        Any image.
    decoders : sequence of str
        Which ones of ``packer._images.decode`` to compare with Pillow. packer's own is also asked alone.
    exif, max_pixels
        As for ``decode``.

    Returns
    -------
    outcome : str
        ``"own decoder"``, ``"decoded"`` or ``"refused"``.
    problem : str or None
        The disagreement.
    """
    expected = _pillow(data, exif, max_pixels) if _is_affordable(data, max_pixels) else None
    problems = [name for name in decoders if not _same(_decoded(data, name, exif, max_pixels), expected)]
    outcome = "refused" if expected is None else "decoded"
    height, width = _size(data)
    if native.PREFERRED and 0 < height * width <= max_pixels:
        alone = native.decode(data, height, width)
        if alone is not None:
            outcome = "own decoder"
            if not _same(alone, _pillow(data, "ignore", max_pixels)):
                problems.append("packer's own decoder")
    says = "refuses" if expected is None else "decodes"
    return outcome, f"Pillow {says} it, otherwise than {', '.join(problems)}" if problems else None


def _is_affordable(data: bytes, max_pixels: int) -> bool:
    """Tell whether packer decodes an image at all: many scans of many pixels take too long."""
    header = read_header(data) if data.startswith(b"\xff\xd8\xff") else None
    try:
        if header is not None:
            require_affordable(header, data, max_pixels)
    except ImageTooLargeError:
        return False
    return True


def _size(data: bytes) -> tuple[int, int]:
    """Return the height and width in the header of a JPEG or a PNG; zeros for any other data."""
    if data.startswith(SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width
    header = read_header(data) if data.startswith(b"\xff\xd8\xff") else None
    return (0, 0) if header is None else (header.height, header.width)


def _decoded(data: bytes, decoder: str, exif: str, max_pixels: int) -> Pixels | None:
    try:
        return decode(data, exif=exif, decoder=decoder, max_pixels=max_pixels)
    except ImageError:
        return None


def _pillow(data: bytes, exif: str, max_pixels: int) -> Pixels | None:
    try:
        return pillow.decode(data, exif=exif, max_pixels=max_pixels)
    except ImageError:
        return None


def _same(found: Pixels | None, expected: Pixels | None) -> bool:
    return found is expected or (found is not None and expected is not None and np.array_equal(found, expected))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign; return 1 if decoders disagreed."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.campaign")
    parser.add_argument("--count", type=int, default=10_000, help="changed images")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the images that decoders do not agree about")
    parser.add_argument("folders", type=Path, nargs="*", help="images to begin with, beside drawn ones")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # Pillow's remarks about odd images
    files = sorted(path for folder in options.folders for path in folder.rglob("*") if path.is_file())
    outcomes: dict[str, Counter[str]] = {}
    wrong = 0
    made = inputs(options.count, options.seed, [path.read_bytes() for path in files])
    for number, (name, data) in enumerate(made):
        decoders = ("auto", *installed_decoders()) if number % 4 == 0 else ("auto", DECODERS[0])
        outcome, problem = disagreement(data, decoders, "apply" if number % 3 == 0 else "ignore")
        outcomes.setdefault(name, Counter()).update([outcome])
        if problem is not None:
            wrong += 1
            sys.stdout.write(f"input {number} ({name}, {len(data)} bytes): {problem}\n")
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.seed}-{number}").write_bytes(data)
    every = sum(outcomes.values(), Counter())
    sys.stdout.write(_table(outcomes))
    own, left, refused = (every[outcome] for outcome in ("own decoder", "decoded", "refused"))
    sys.stdout.write(
        f"{every.total()} images: {own} decoded by packer's C, to the bit as Pillow and libjpeg-turbo decode them,"
        f" {left} left to these, {refused} refused by all; {wrong} differences\n"
    )
    return int(wrong > 0)


def _table(outcomes: dict[str, Counter[str]]) -> str:
    columns = ("own decoder", "decoded", "refused")
    rows = [f"{'':24}" + "".join(f"{column:>14}" for column in columns)]
    for name, counts in [*outcomes.items(), ("all", sum(outcomes.values(), Counter()))]:
        rows.append(f"{name:24}" + "".join(f"{counts[column]:14}" for column in columns))
    return "\n".join(rows) + "\n"


def _mute_libraries() -> None:
    """Keep standard error for Python: otherwise libjpeg-turbo prints a warning there for each faulty image."""
    sys.stderr = os.fdopen(os.dup(2), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


if __name__ == "__main__":
    _mute_libraries()
    sys.exit(main())
