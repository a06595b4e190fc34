"""``python -m fuzz.campaign``: change JPEGs in many ways: each decoder gives what Pillow gives, or refuses too.

    python -m fuzz.campaign [--count 10000] [--seed 1] [--keep FOLDER] [FOLDER_OF_IMAGES …]

The images of the folders are decoded as they are, and changed as the drawn ones are. A table says how many inputs were
decoded and refused; what Pillow and a decoder do not agree about is listed, and kept where a folder is given for that.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fuzz.mutations import MUTATIONS, drawn_jpegs
from packer._images import native, pillow
from packer._images.decode import DECODERS, decode
from packer._images.jpeg.header import read_header
from packer.errors import ImageError

__all__ = ["disagreement", "inputs", "main"]

_MAX_PIXELS = 1 << 21

Pixels = npt.NDArray[np.uint8]


def inputs(count: int, seed: int, images: Sequence[bytes] = ()) -> Iterator[tuple[str, bytes]]:
    """Yield images as they are, then `count` changed ones, each with the name of its change."""
    chance = random.Random(seed)
    drawn = drawn_jpegs(chance, 150)
    yield from (("as it is", data) for data in [*images, *drawn])
    originals = [*(data for data in images if data.startswith(b"\xff\xd8") and len(data) < 300_000), *drawn]
    for _ in range(count):
        name, mutation = chance.choice(list(MUTATIONS.items()))
        data = mutation(chance, chance.choice(originals), originals)
        if chance.random() < 0.1:
            data = chance.choice(list(MUTATIONS.values()))(chance, data or b"\0", originals)
        yield name, data


def disagreement(
    data: bytes, decoders: Sequence[str] = ("auto",), exif: str = "ignore", max_pixels: int = _MAX_PIXELS
) -> tuple[str, str | None]:
    """Tell what becomes of an image, and which decoders give another answer than Pillow, if any.

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
        What is wrong.
    """
    expected = _pillow(data, exif, max_pixels)
    problems = [name for name in decoders if not _same(_decoded(data, name, exif, max_pixels), expected)]
    outcome = "refused" if expected is None else "decoded"
    header = read_header(data) if data.startswith(b"\xff\xd8\xff") else None
    if native.PREFERRED and header is not None and header.height * header.width <= max_pixels:
        alone = native.decode(data, header.height, header.width)
        if alone is not None:
            outcome = "own decoder"
            if not _same(alone, expected if exif == "ignore" else _pillow(data, "ignore", max_pixels)):
                problems.append("packer's own decoder")
    says = "refuses" if expected is None else "decodes"
    return outcome, f"Pillow {says} it, otherwise than {', '.join(problems)}" if problems else None


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
    """Run a campaign; return 1 where decoders did not agree."""
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
        decoders = ("auto", *DECODERS) if number % 4 == 0 else ("auto",)
        outcome, problem = disagreement(data, decoders, "apply" if number % 3 == 0 else "ignore")
        outcomes.setdefault(name, Counter()).update([outcome])
        if problem is not None:
            wrong += 1
            sys.stdout.write(f"input {number} ({name}, {len(data)} bytes): {problem}\n")
            if options.keep is not None:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{options.seed}-{number}").write_bytes(data)
    sys.stdout.write(_table(outcomes))
    sys.stdout.write(f"{wrong} inputs that decoders do not agree about\n")
    return int(wrong > 0)


def _table(outcomes: dict[str, Counter[str]]) -> str:
    columns = ("own decoder", "decoded", "refused")
    rows = [f"{'':24}" + "".join(f"{column:>14}" for column in columns)]
    for name, counts in [*outcomes.items(), ("all", sum(outcomes.values(), Counter()))]:
        rows.append(f"{name:24}" + "".join(f"{counts[column]:14}" for column in columns))
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
