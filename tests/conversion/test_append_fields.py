"""`packer.append` to packs with fields: from files, from a table, from a pack; and later work on the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import packer
from packer import append, open_pack
from packer.errors import SourceError
from tests.samples import content, noise

COLUMNS = {"caption": "text", "age": "float32", "kind": "class", "tags": "labels"}


def draw(root: Path, name: str, numbers: range, kinds: tuple[str, ...]) -> None:
    """Draw a tree `name`, a mask of each image, and a table of all images."""
    rows = []
    for number in numbers:
        path = f"class_{number % 2}/{number:03d}.png"
        noise(root / name / path, number, (8, 9 + number % 3))
        mask = np.random.default_rng(number).integers(0, 4, (8, 9 + number % 3), np.uint8)
        (root / "masks").mkdir(exist_ok=True)
        Image.fromarray(mask).save(root / "masks" / f"{number:03d}.png")
        kind = kinds[number % len(kinds)]
        row: dict[str, Any] = {"path": path, "label": f"class_{number % 2}", "caption": f"caption {number}"}
        rows.append({**row, "age": None if number % 5 == 0 else number / 4, "kind": kind, "tags": [kind, *kinds[:1]]})
    (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(root: Path, name: str) -> dict[str, Any]:
    return {"labels": root / f"{name}.jsonl", "fields": {"mask": "../masks/{stem}.png"}, "columns": COLUMNS}


@pytest.fixture(scope="module", params=[".lmdb", ".h5"])
def drawn(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with three trees, a joined pack of the first, and packs of the first two and of the second."""
    root = tmp_path_factory.mktemp("fields")
    draw(root, "tree", range(10), ("red", "green", "blue"))
    draw(root, "more", range(10, 20), ("green", "red"))
    draw(root, "other", range(20, 24), ("red", "black"))
    packer.convert(root / "tree", root / f"pack{request.param}", parts=2, **asked(root, "tree"))
    shutil.copytree(root / "tree", root / "all")
    shutil.copytree(root / "more", root / "all", dirs_exist_ok=True)
    tables = [(root / f"{name}.jsonl").read_text() for name in ("tree", "more")]
    (root / "all.jsonl").write_text("".join(tables))
    packer.convert(root / "all", root / "all-alone.lmdb", **asked(root, "all"))
    packer.convert(root / "all-alone.lmdb", root / "more-alone.h5", where="name glob 'class_?/01?.png'")
    return root


@pytest.fixture
def pack(drawn: Path, tmp_path: Path) -> Path:
    """A copy of the joined pack, which a test may change."""
    path = next(drawn.glob("pack.*"))
    return Path(shutil.copytree(path, tmp_path / path.name))


def values(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return the image, the label and the fields of each sample of a pack, by name."""
    with open_pack(path) as reader:
        labels = reader.table.label.tolist()
        return {
            name: (
                bytes(reader.read(index)),
                labels[index],
                *(_comparable(field.decode(reader.value(index, field.name))) for field in reader.fields.values()),
            )
            for index, name in enumerate(reader.names)
        }


def _comparable(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("src", ["more", "more-alone.h5"])
def test_fields_of_an_appended_part_are_those_of_one_conversion(drawn: Path, pack: Path, src: str) -> None:
    options = asked(drawn, "more") if src == "more" else {}
    assert append(pack, drawn / src, **options).manifest.count == 20
    assert values(pack) == values(drawn / "all-alone.lmdb")
    assert packer.verify(pack) == []
    before = content(pack)
    assert append(pack, drawn / src, **options).notes == ["done already"]
    assert content(pack) == before


def test_other_fields_are_refused_by_name_with_the_remedy(drawn: Path, pack: Path) -> None:
    before = content(pack)
    asked_otherwise = {**asked(drawn, "more"), "columns": {**COLUMNS, "age": "float64"}}
    without = {**asked(drawn, "more"), "fields": ()}
    for src, options, problem in [
        ("more", {"no_metadata": True}, "the fields caption, age, kind, tags, mask, and .*more none"),
        ("more", without, "more caption, age, kind, tags. New images must have the pack's fields"),
        ("more", asked_otherwise, "the field 'age' with the dtype float32, and .* has float64.*columns= that"),
        (
            "other",
            asked(drawn, "other"),
            r"other.jsonl, line 2: field 'kind': black is not a class.*convert all images again",
        ),
    ]:
        with pytest.raises(SourceError, match=problem):
            append(pack, drawn / src, **options)
    assert content(pack) == before


def test_every_verb_takes_an_appended_pack_with_fields(drawn: Path, pack: Path, tmp_path: Path) -> None:
    append(pack, drawn / "more", **asked(drawn, "more"))
    expected = values(drawn / "all-alone.lmdb")
    assert packer.info(pack).samples == 20
    packer.convert(pack, tmp_path / "whole.lmdb")
    assert packer.digest(pack) == packer.digest(tmp_path / "whole.lmdb")
    assert values(packer.stage(pack, tmp_path / "staged")) == expected
    packer.merge([pack], tmp_path / "merged.h5")
    assert values(tmp_path / "merged.h5") == expected
    packer.export(pack, tmp_path / "tree")
    for name, (image, *_) in expected.items():
        assert (tmp_path / "tree" / "images" / name).read_bytes() == image
    before = content(pack)
    for path in (path for path in pack.rglob("*") if path.is_file()):
        image = expected["class_1/013.png"][0]
        path.write_bytes(path.read_bytes().replace(image, bytes([image[0] ^ 8]) + image[1:]))
    assert [damage.name for damage in packer.verify(pack)] == ["class_1/013.png"]
    packer.repair(pack, drawn / "all")
    assert content(pack) == before
