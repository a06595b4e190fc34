"""Writes what is missing of the golden packs of the present schema."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from packer.convert import convert
from packer.formats import open_pack
from packer.images.sizing import ResizeSpec
from packer.prepare import Recipe
from packer.sample import CODECS, SCHEMA
from packer.sources import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.packs import SUFFIXES, solid

HERE = Path(__file__).parent


def main() -> None:
    """Write the packs, and what is in them."""
    directory = HERE / f"schema-{SCHEMA}"
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "tree"
        draw_imagefolder(root, classes=2, per_class=2, size=(24, 32))
        solid(root / "class_01" / "é small.png", size=(9, 7))
        for codec in CODECS:
            recipe = Recipe(codec) if codec == "keep" else Recipe(codec, ResizeSpec(16))
            for suffix in SUFFIXES.values():
                path = directory / f"{codec}{suffix}"
                if not path.exists():
                    convert(imagefolder_source(root), path, recipe=recipe)
    described = {}
    for path in sorted(directory.glob("*.*")):
        if path.suffix != ".json":
            with open_pack(path) as reader:
                described[path.name] = [
                    [
                        name,
                        int(reader.table.label[index]),
                        int(reader.table.height[index]),
                        int(reader.table.width[index]),
                        hashlib.sha256(reader.read(index)).hexdigest(),
                    ]
                    for index, name in enumerate(reader.table.sample_names())
                ]
    (directory / "samples.json").write_text(json.dumps(described, indent=1) + "\n")


main()
