"""Where fuzzing starts: small packs of each format, images of each type, manifests and tables.

``python -m fuzz.seeds DIRECTORY`` writes a folder of files for each target.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fuzz.targets import TARGETS, joined
from packer.convert import convert
from packer.formats import open_pack
from packer.sources import imagefolder_source
from packer.testing.photos import draw_photo

__all__ = ["seeds", "write_seeds"]


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs that each of the `TARGETS` starts from."""
    pictures = [*_images()]
    found: dict[str, list[bytes]] = {name: [] for name in TARGETS} | {"sniff": pictures, "image": pictures}
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for number, data in enumerate(pictures[:6]):
            (root / "tree" / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
            (root / "tree" / f"class{number % 2}" / f"{number}.jpg").write_bytes(data)
        for limit in (1, 6):
            source = imagefolder_source(root / "tree").limited(limit)
            for format, suffix in {"lmdb": ".lmdb", "hdf5": ".h5", "pth": ".pth"}.items():
                path = root / f"{limit}{suffix}"
                convert(source, path)
                found[format].append(_bytes_of(path))
            with open_pack(path) as reader:
                found["manifest"].append(reader.manifest.to_json())
                found["table"].append(joined(*(column.tobytes() for column in reader.table.columns().values())))
    return found


def write_seeds(directory: Path) -> None:
    """Write the seeds of each target to a folder of its name."""
    for name, inputs in seeds().items():
        (directory / name).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (directory / name / f"seed-{number:02d}").write_bytes(data)


def _bytes_of(path: Path) -> bytes:
    if not path.is_dir():
        return path.read_bytes()
    return joined(*((path / name).read_bytes() for name in ("manifest.json", "table.pth", "shard-00000.pth")))


def _images() -> Iterator[bytes]:
    photo = Image.fromarray(draw_photo(np.random.default_rng(1), 18, 23))
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds: list[tuple[Image.Image, str, dict[str, Any]]] = [
        (photo, "JPEG", {}),
        (photo, "JPEG", {"progressive": True}),
        (photo, "PNG", {}),
        (photo, "WEBP", {}),
        (photo.convert("L"), "JPEG", {"restart_marker_blocks": 1}),
        (photo, "JPEG", {"exif": exif, "subsampling": 0}),
        (photo.convert("CMYK"), "JPEG", {}),
        (photo, "JPEG", {"keep_rgb": True}),
        (photo.convert("P"), "PNG", {"transparency": 3}),
        (photo.convert("RGBA"), "PNG", {"exif": exif}),
        (photo.convert("1"), "PNG", {}),
        (photo, "WEBP", {"lossless": True}),
        (photo.convert("P"), "GIF", {}),
        (photo, "BMP", {}),
        (photo, "PPM", {}),
        (photo, "TIFF", {"compression": "tiff_lzw"}),
        (photo, "WEBP", {"save_all": True, "append_images": [photo.rotate(180)]}),
    ]
    for image, kind, options in kinds:
        stream = io.BytesIO()
        image.save(stream, kind, **options)
        yield stream.getvalue()


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
