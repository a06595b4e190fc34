"""Files that `to_parquet` and `save_to_disk` of Hugging Face's datasets 5.2 wrote from three images."""

from __future__ import annotations

from pathlib import Path

import pytest

import packer
from packer._formats import open_pack
from tests.containers.samples import stored

GOLDEN = Path(__file__).parents[1] / "golden" / "containers" / "datasets"


@pytest.mark.parametrize("name", ["train-00000-of-00001.parquet", "saved"])
def test_images_labels_and_texts_are_those_that_datasets_wrote(tmp_path: Path, name: str) -> None:
    packer.index(GOLDEN / name, tmp_path / "a.index")
    packer.convert(GOLDEN / name, tmp_path / "a.lmdb")
    expected = {f"{number}.jpg": (GOLDEN / f"{number}.jpg").read_bytes() for number in range(3)}
    for pack in (tmp_path / "a.index", tmp_path / "a.lmdb"):
        assert stored(pack) == expected
        with open_pack(pack) as reader:
            assert reader.manifest.classes == ["cat", "dog", "owl"]
            assert reader.table.label.tolist() == [2, -1, 0]
            texts = [reader.value(row, "text") for row in range(3)]
            assert [text and bytes(text) for text in texts] == [b"one", None, b"three"]
