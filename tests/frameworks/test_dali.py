"""examples/dali.py: DALI decodes a pack's images on the CPU; each epoch has its own order and repeats no image."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from tests.conftest import Packs, Trees

SCRIPT = Path(__file__).parents[2] / "examples" / "dali.py"
COUNT, BATCH = 14, 4

pytestmark = [
    pytest.mark.skipif(not SCRIPT.exists(), reason="needs the repository's examples"),
    pytest.mark.filterwarnings("default"),  # DALI warns of many things
]


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("nvidia.dali", reason="needs DALI: pip install nvidia-dali-cuda120")
    spec = importlib.util.spec_from_file_location("dali_example", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pack(trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=COUNT, per_class=1, size=(48, 64)))


def test_dali_gets_no_image_twice_in_an_epoch_and_each_epoch_has_its_own_order(example: Any, pack: Path) -> None:
    pipeline = example.batches(str(pack), size=32, batch_size=BATCH)
    epochs = []
    for _ in range(2):
        seen: list[int] = []
        while True:
            try:
                images, labels = pipeline.run()
            except StopIteration:
                pipeline.reset()
                break
            assert images.as_array().shape == (BATCH, 3, 32, 32)
            seen += np.ravel(labels.as_array()).tolist()
        epochs.append(seen)
    assert [len(seen) for seen in epochs] == [COUNT // BATCH * BATCH] * 2
    assert all(len(set(seen)) == len(seen) for seen in epochs)
    assert epochs[0] != epochs[1]


def test_dali_gets_the_bytes_that_the_pack_has(example: Any, pack: Path) -> None:
    sample = example.encoded_images(str(pack), BATCH, seed=0)
    files = packer.open_dataset(pack, output="bytes")

    class Info:
        iteration = epoch_idx = 0
        idx_in_epoch = 3

    data, label = sample(Info())
    assert data.tobytes() == bytes(files[int(label)][0])
