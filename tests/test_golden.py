"""Packs that were written once open for ever, and give what they gave."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.datasets import open_dataset
from packer.formats import FORMATS, open_pack
from packer.sample import CODECS, SCHEMA
from packer.verify import verify
from tests.packs import SUFFIXES

GOLDEN = Path(__file__).parent / "golden"
PACKS = sorted(path for path in GOLDEN.glob("schema-*/*.*") if path.suffix != ".json")


def test_every_schema_format_and_codec_is_there() -> None:
    assert set(SUFFIXES) == set(FORMATS)
    assert {path.parent.name for path in PACKS} == {f"schema-{number}" for number in range(1, SCHEMA + 1)}
    present = {path.name for path in PACKS if path.parent.name == f"schema-{SCHEMA}"}
    assert present == {f"{codec}{suffix}" for codec in CODECS for suffix in SUFFIXES.values()}


@pytest.mark.parametrize("path", PACKS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_golden_pack(path: Path) -> None:
    expected: list[list[Any]] = json.loads((path.parent / "samples.json").read_text())[path.name]
    assert verify(path) == []
    with open_pack(path) as reader:
        assert reader.manifest.schema == int(path.parent.name.removeprefix("schema-"))
        assert reader.manifest.codec == path.name.split(".")[0]
        table = reader.table
        assert [
            [name, int(table.label[i]), int(table.height[i]), int(table.width[i]), digest(reader.read(i))]
            for i, name in enumerate(table.sample_names())
        ] == expected
        stored = [bytes(reader.read(index)) for index in range(len(reader))]
    dataset = open_dataset(path, output="numpy")
    assert dataset.classes == ["class_00", "class_01"]
    for index, (_, label, height, width, _) in enumerate(expected):
        pixels, target = dataset[index]
        assert target == label
        assert pixels.shape == (height, width, 3)
        if path.name.startswith("raw"):
            assert pixels.tobytes() == stored[index]
        else:
            assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(stored[index])).convert("RGB")))


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()
