"""Writes the golden packs that are missing."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from packer._conversion.convert import convert
from packer._conversion.partition import Partition, finish
from packer._conversion.recipe import Recipe
from packer._conversion.request import ConversionRequest
from packer._fields import DTYPES, Field
from packer._formats import open_pack
from packer._images.jpeg_tiles import read_tiles
from packer._images.resize import ResizeSpec
from packer._sources.base import BlobColumn, FileColumn, NumberColumn, Source
from packer._sources.imagefolder import imagefolder_source
from packer._sources.table_source import csv_source
from packer._sources.tables import TableOptions
from packer.testing.photos import draw_imagefolder, draw_photo
from tests.golden import FIELDED, KINDS, LABELED
from tests.samples import SUFFIXES, solid

HERE = Path(__file__).parent
PARTS = 2


def draw_small(root: Path) -> None:
    """Write a tree of images that become smaller when they are resized, and of one that is already smaller."""
    draw_imagefolder(root, classes=2, per_class=2, size=(24, 32))
    solid(root / "class_01" / "é small.png", size=(9, 7))


def draw_wide(root: Path) -> None:
    """Write a tree of JPEGs that are wide enough for several tiles in a row, one of a single tile, and a PNG."""
    exif = Image.Exif()
    exif[0x0112] = 6
    options: dict[str, dict[str, Any]] = {
        "class_00/4-2-0.jpg": {"subsampling": "4:2:0"},
        "class_00/grey, turned.jpg": {"exif": exif},
        "class_00/progressive.jpg": {"progressive": True, "subsampling": "4:4:4"},
        "class_01/4-2-2.jpg": {"subsampling": "4:2:2"},
        "class_01/é tiny.jpg": {},
        "class_01/wide.png": {},
    }
    rng = np.random.default_rng(1)
    for name, settings in options.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(draw_photo(rng, *((9, 15) if "tiny" in name else (27, 283))))
        image.convert("L" if "grey" in name else "RGB").save(path, quality=96, **settings)


def write(kind: str, path: Path, small: Path, wide: Path) -> None:
    """Write one pack; tiled ones are made of the wide images."""
    codec, _, tiling = kind.partition("-")
    tiled = tiling.startswith("tiled")
    size = 24 if tiled else 16
    resize = None if codec == "keep" else size
    if kind in FIELDED:
        source = fielded(small)
    else:
        source = labeled(kind, small) if kind in LABELED else imagefolder_source(wide if tiled else small)
    if not kind.endswith("-parts"):
        convert(source, path, recipe=Recipe(codec, None if resize is None else ResizeSpec(resize), tiles=tiled))
        return
    job = Partition(ConversionRequest(src=small, dst=path, parts=PARTS, codec=codec, resize=resize, tiles=tiled))
    for number in range(PARTS):
        job.convert(job.begin(lambda: source, {}), number)
    finish(path)


def labeled(kind: str, root: Path) -> Source:
    """Return the images of a tree with labels that schema 1 does not have."""
    names = list(imagefolder_source(root).names)
    texts = {
        "keep-unlabeled": ["class_00", "", "class_01", "", "class_01"],
        "keep-ints": ["0", "-1", "9223372036854775807", "-9223372036854775808", "20231105"],
        "keep-floats": ["0.1", "-1", "1e300", "5e-324", "3.0"],
    }[kind.removesuffix("-parts")]
    table = root.with_name(f"{kind}.csv")
    with open(table, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label"), *zip(names, texts, strict=True)])
    label_type = "float" if "floats" in kind else "int" if "ints" in kind else None
    return csv_source(root, table, TableOptions(label_type=label_type, unlabeled=label_type is None))


def fielded(root: Path) -> Source:
    """Return the images of a tree with values of every kind of field; the last image but one has none."""
    source = imagefolder_source(root)
    masks = root.with_name("masks")
    for number, name in enumerate(source.names):
        with Image.open(root / name) as image:
            mask = np.arange(image.height * image.width, dtype=np.uint8).reshape(image.height, image.width) % (
                number + 2
            )
        path = masks / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(path)
    count = np.arange(len(source))
    null = count == len(source) - 2

    def blobs(field: Field, value: Callable[[int], Any]) -> BlobColumn:
        return BlobColumn.of(field, (None if null[i] else bytes(field.encode(value(i))) for i in count.tolist()))

    def mask_of(number: int) -> bytes:
        return (masks / f"{source.names[number]}.png").read_bytes()

    scalars = [
        Field(dtype, "scalar", dtype) for dtype in ("bool", "int8", "int16", "int32", "int64", "float32", "float64")
    ]
    return source.having(
        *(NumberColumn(field, (count % 2).astype(DTYPES[field.dtype]), null) for field in scalars),
        NumberColumn(
            Field("kind", "class", classes=("red", "green", "blue"), ids=(3, 7, 20)), np.array([3, 7, 20, 3, 7]), null
        ),
        FileColumn.of(
            Field("mask", "mask", file="../masks/{path}.png"), root, (f"../masks/{name}.png" for name in source.names)
        ),
        blobs(Field("view", "image"), mask_of),
        blobs(Field("tags", "labels", classes=("a", "é")), lambda number: [number % 2] * number),
        blobs(Field("caption", "text"), lambda number: "日本 text " * number),
        blobs(Field("about", "json"), lambda number: {"number": number, "list": [1.5, None, "é"]}),
        blobs(Field("raw", "bytes"), lambda number: bytes(range(60 * number, 60 * number + 9 - number))),
        blobs(Field("vector", "array", "float16", 1), lambda number: np.arange(number, dtype=np.float16) / 3),
        blobs(
            Field("matrix", "array", "uint16", 2), lambda number: np.arange(6 * number, dtype=np.uint16).reshape(2, -1)
        ),
        blobs(Field("boxes", "boxes"), lambda number: [[0, 1, 2.5, 3 + place] for place in range(number)]),
        blobs(Field("points", "keypoints"), lambda number: [[[1, 2, 2], [0, 0, 0]]] * number),
        blobs(Field("shapes", "segmentation"), lambda number: [None, [], [[0.5, 1, 4, 1, 4, 3]]][: number + 1]),
    )


def describe_fields(path: Path) -> dict[str, Any]:
    """Return the fields of a pack, and the values of each sample: a number, the digest of a blob, or None."""
    with open_pack(path) as reader:
        values = [[reader.value(index, name) for name in reader.fields] for index in range(len(reader))]
        fields = [field.to_json() for field in reader.fields.values()]

    def described(value: Any) -> Any:
        return value if value is None or isinstance(value, (int, float)) else hashlib.sha256(value).hexdigest()

    return {"fields": fields, "values": [list(map(described, row)) for row in values]}


def describe(path: Path) -> list[list[Any]]:
    """Return a row for each sample: name, label, height, width, digests of data and pixels, rows and columns of tiles.

    Pillow decodes the pixels from the data, not packer.
    """
    rows = []
    with open_pack(path) as reader:
        table = reader.table
        for index, name in enumerate(table.sample_names()):
            data, size = bytes(reader.read(index)), (int(table.height[index]), int(table.width[index]))
            tiles = read_tiles(data) if reader.manifest.codec in ("keep", "jpeg") else None
            raw = reader.manifest.codec == "raw"
            pixels = data if raw else Image.open(io.BytesIO(data)).convert("RGB").tobytes()
            digests = [hashlib.sha256(part).hexdigest() for part in (data, pixels)]
            grid = [tiles.grid.rows, tiles.grid.columns] if tiles is not None else None
            rows.append([name, table.label[index].item(), *size, *digests, grid])
    return rows


def main() -> None:
    """Write the packs and their descriptions."""
    with tempfile.TemporaryDirectory() as temporary:
        small, wide = Path(temporary) / "small", Path(temporary) / "wide"
        draw_small(small)
        draw_wide(wide)
        for schema, kinds in KINDS.items():
            write_all(HERE / f"schema-{schema}", kinds, small, wide)


def write_all(directory: Path, kinds: Sequence[str], small: Path, wide: Path) -> None:
    """Write the packs of a schema and their descriptions."""
    directory.mkdir(exist_ok=True)
    described: dict[str, list[list[Any]]] = {}
    if (directory / "samples.json").exists():
        described = json.loads((directory / "samples.json").read_text())
    for path in [directory / f"{kind}{suffix}" for kind in kinds for suffix in SUFFIXES.values()]:
        if not path.exists():
            write(path.stem, path, small, wide)
            described[path.name] = describe(path)
    (directory / "samples.json").write_text(_as_json(described))
    fielded_packs = [path for path in sorted(directory.glob("*.*")) if path.stem in FIELDED]
    if fielded_packs and not (directory / "fields.json").exists():
        fields = {path.name: describe_fields(path) for path in fielded_packs}
        (directory / "fields.json").write_text(json.dumps(fields, indent=1) + "\n")


def _as_json(described: dict[str, list[list[Any]]]) -> str:
    """Return the descriptions of packs as JSON, with a line for each sample."""
    packs = []
    for name, rows in sorted(described.items()):
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        packs.append(f"{json.dumps(name)}: [\n  {lines}\n ]")
    return "{\n " + ",\n ".join(packs) + "\n}\n"


main()
