"""Seeds for fuzzing: small packs of each format and in parts, images of each type, manifests and tables.

``python -m fuzz.seeds DIRECTORY`` writes a folder of files for each target, and prints the targets' names.
"""

from __future__ import annotations

import io
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from fuzz.fields import with_fields
from fuzz.packs import PARTS
from fuzz.sections import joined, sealed_tiles
from fuzz.targets import TARGETS
from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import open_pack
from packer._formats.parts import join_parts
from packer._images.encode import encode_tiled
from packer._images.jpeg_tiles import annotate, read_tiles
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_photo

_SUFFIXES = {"lmdb": ".lmdb", "hdf5": ".h5", "pth": ".pth"}
_PTH_FILES = ("manifest.json", "table.pth", "shard-00000.pth")


def seeds() -> dict[str, list[bytes]]:
    """Return the inputs that each of the `TARGETS` starts from."""
    pictures, in_tiles = [*images()], [*tiled()]
    found: dict[str, list[bytes]] = {name: [] for name in TARGETS}
    found["sniff"] = found["image"] = [*pictures, *in_tiles]
    found["transcode"] = [picture for picture in [*pictures, *in_tiles] if picture.startswith(b"\xff\xd8")]
    found["region"] = [_controls(number) + picture for number, picture in enumerate([*in_tiles, *pictures])]
    jpegs = [*found["transcode"], *long_scans(), high_chroma()]
    found["draw"] = [_draw_controls(number) + picture for number, picture in enumerate(jpegs)]
    unchanged = [*pictures, *stored()]
    found["unchanged"] = [_draw_controls(number) + picture for number, picture in enumerate(unchanged)]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for number, data in enumerate([*pictures[:6], *in_tiles[:2]]):
            (root / "tree" / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
            (root / "tree" / f"class{number % 2}" / f"{number}.jpg").write_bytes(data)
        everything = imagefolder_source(root / "tree")
        for limit, codec in ((1, "keep"), (len(everything), "keep"), (2, "jpeg"), (2, "raw")):
            source = everything.limited(limit)
            for format, suffix in _SUFFIXES.items():
                path = root / f"{codec}-{limit}{suffix}"
                convert(source, path, recipe=Recipe(codec))
                found[format].append(_bytes_of(path))
            with open_pack(path) as reader:
                found["manifest"].append(reader.manifest.to_json())
                found["table"].append(joined(*(column.tobytes() for column in reader.table.columns().values())))
        fielded = with_fields(everything.limited(3))
        for format, suffix in _SUFFIXES.items():
            path = root / f"fields{suffix}"
            convert(fielded, path)
            found[format].append(_bytes_of(path))
            with open_pack(path) as reader:
                found["manifest"].append(reader.manifest.to_json())
        for format in _SUFFIXES:
            for codec in ("keep", "jpeg"):
                path = root / f"{format}-{codec}"
                path.mkdir()
                for number, part in enumerate(PARTS):
                    convert(
                        everything.between(2 * number, 2 * number + 2), path / part, recipe=Recipe(codec), format=format
                    )
                join_parts(path, PARTS, everything.describe())
                found["manifest"].append((path / "manifest.json").read_bytes())
                found["parts"].append(_bytes_of_parts(path))
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
    return joined(*((path / name).read_bytes() for name in _PTH_FILES))


def _bytes_of_parts(path: Path) -> bytes:
    files = [(path / name).read_bytes() for name in ("manifest.json", "table.bin")]
    for part in PARTS:
        if (path / part).is_dir():
            files += [(path / part / name).read_bytes() for name in _PTH_FILES]
        else:
            files += [(path / part).read_bytes(), b"", b""]
    return joined(*files)


def _controls(number: int) -> bytes:
    """Return the controls before an image in the inputs of `region`: various rectangles, sometimes halved."""
    return bytes([(37 * number) % 256, (91 * number) % 256, 60, 90, number % 4 if number % 3 == 0 else 0, number % 2])


def _draw_controls(number: int) -> bytes:
    """Return the controls before an image in the inputs of `draw`: the whole image, or a rectangle, or a window."""
    rectangle = (0, 0, 255, 255) if number % 3 == 0 else ((53 * number) % 256, (97 * number) % 256, 120, 200)
    scaled = (0, 0) if number % 2 == 0 else (20 + number, 31)
    window = (255, 255, 0, 0) if number % 4 < 2 else (120, 200, 60, 200)
    return bytes([*rectangle, *scaled, *window, number % 5 == 0])


def long_scans() -> Iterator[bytes]:
    """Yield JPEGs whose scans are longer than a decoder's buffer, without and with restarts."""
    noise = Image.fromarray(np.random.default_rng(5).integers(0, 256, (40, 120, 3), np.uint8))
    for restarts in (0, 1, 20):
        yield _encoded(noise, "JPEG", quality=100, subsampling=0, restart_marker_blocks=restarts)


def high_chroma() -> bytes:
    """Return a JPEG whose chroma has half the height and the full width of the luma: 4:2:2 with a changed header."""
    data = bytearray(_encoded(Image.fromarray(draw_photo(np.random.default_rng(7), 16, 32)), "JPEG", subsampling=1))
    frame = data.index(b"\xff\xc0") + 4
    data[frame + 1 : frame + 5] = struct.pack(">HH", 32, 16)
    data[frame + 7] = 0x12
    return bytes(data)


def images() -> Iterator[bytes]:
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
        yield _encoded(image, kind, **options)


def stored() -> Iterator[bytes]:
    """Yield images in other modes than RGB: ids of few and many bits, alpha, 16 bits, floats."""
    photo = Image.fromarray(draw_photo(np.random.default_rng(2), 18, 23))
    deep = np.asarray(photo.convert("L")).astype(np.uint16) * 257
    for colours in (2, 4, 16, 200):
        yield _encoded(photo.quantize(colours), "PNG")
    for image in (photo.convert("L"), photo.convert("LA"), Image.fromarray(deep)):
        yield _encoded(image, "PNG")
        yield _encoded(image, "TIFF")
    yield _encoded(Image.fromarray(deep.astype(np.float32)), "TIFF")
    yield _encoded(Image.fromarray(deep), "PPM")
    yield cv2.imencode(".png", np.stack([deep] * 3, -1))[1].tobytes()


def tiled() -> Iterator[bytes]:
    """Yield tiled JPEGs of several tiles in a row, of all usual samplings, and with an orientation."""
    photo = draw_photo(np.random.default_rng(3), 26, 70)
    exif = Image.Exif()
    exif[0x0112] = 8
    yield encode_tiled(photo[:, :64], 85)
    yield annotate(_encoded(Image.fromarray(photo), "JPEG", subsampling=0, restart_marker_blocks=3))
    yield annotate(_encoded(Image.fromarray(photo), "JPEG", subsampling=1, restart_marker_blocks=1))
    yield annotate(_encoded(Image.fromarray(photo), "JPEG", subsampling=2, restart_marker_blocks=1, exif=exif))
    grey = annotate(_encoded(Image.fromarray(photo).convert("L"), "JPEG", restart_marker_blocks=3))
    yield from (grey, _regrouped(grey, 1, 2), _regrouped(grey, 3, 4))


def _regrouped(data: bytes, group: int, entry: int) -> bytes:
    """Return a tiled JPEG whose table has an entry of `entry` bytes for each `group` rows of tiles."""
    tiles = read_tiles(data)
    assert tiles is not None
    scan = np.frombuffer(data[tiles.scan : tiles.group_ends[-1]], np.uint8)
    markers = np.flatnonzero((scan[:-1] == 0xFF) & (scan[1:] != 0))
    row_sizes = np.diff(markers[tiles.grid.columns - 1 :: tiles.grid.columns] + 2, prepend=0)
    table = np.add.reduceat(row_sizes, np.arange(0, len(row_sizes), group)).astype(f">u{entry}").tobytes()
    segment = bytearray(data[tiles.segment : tiles.table])
    struct.pack_into(">H", segment, 2, len(segment) - 2 + len(table))
    segment[11] = entry
    struct.pack_into(">H", segment, 14, group)
    return sealed_tiles(data[: tiles.segment] + segment + table + data[tiles.header :])


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
    sys.stdout.write("\n".join(TARGETS) + "\n")
