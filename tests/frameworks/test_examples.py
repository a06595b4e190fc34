"""The examples of docs/frameworks.md run, draw no crop twice, and are reproducible with `torch.manual_seed`."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import dataloader

import packer
from tests.conftest import Packs, Trees

PAGE = Path(packer.__file__).parents[1] / "docs" / "frameworks.md"
FRAMEWORKS = {
    "timm": "timm",
    "pytorch_lightning": "pytorch-lightning",
    "transformers": "transformers accelerate",
    "accelerate": "accelerate",
}
"""Modules, and the names of their packages for pip."""

SMALLER = {
    r"batch_size=\d+": "batch_size=4",
    r"Classifier\(1000\)": "Classifier(12)",
    r"num_workers=\d+": "num_workers=1",
    r"Loader\(dataset, \d+,": "Loader(dataset, 4,",
    r"\b224\b": "32",
    r'"resnet18"': '"test_resnet"',
    r'"depths": .*}': '"depths": [1, 1], "hidden_sizes": [8, 16], "embedding_size": 8}',
    r"(config = timm.*)": r'\1 | {"input_size": (3, 32, 32)}',
}
"""Replacements that shorten the examples: patterns and their new text."""

COUNT = 12
EPOCHS = 3

pytestmark = [
    pytest.mark.skipif(not PAGE.exists(), reason="needs the repository's docs"),
    pytest.mark.filterwarnings("default"),  # frameworks warn of many things
]


def examples() -> list[Any]:
    if not PAGE.exists():
        return []
    found: dict[str, int] = defaultdict(int)
    cases = []
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        framework = next(name for name in FRAMEWORKS if re.search(rf"^import {name}\b", block, re.MULTILINE))
        found[framework] += 1
        cases.append(pytest.param(framework, block, id=f"{framework}-{found[framework]}"))
    assert found.keys() == FRAMEWORKS.keys()
    return cases


@pytest.fixture(scope="module")
def pack(trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=COUNT, per_class=1, size=(48, 64)))


Batches = list[tuple[list[int], list[str]]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Keep torch from dividing the work of tiny networks over many threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Batches:
    """Record the labels and the digests of the images of all batches from now on."""
    batches: Batches = []

    def note(batch: Any) -> None:
        images, labels = (batch["pixel_values"], batch["labels"]) if isinstance(batch, dict) else batch
        digests = [hashlib.sha256(image.contiguous().numpy().tobytes()).hexdigest() for image in images]
        batches.append((labels.tolist(), digests))

    make, load = dataloader._BaseDataLoaderIter.__next__, packer.Loader.__iter__

    def made(iterator: Any) -> Any:
        batch = make(iterator)
        note(batch)
        return batch

    def loaded(loader: Any) -> Iterator[Any]:
        return map(noted, load(loader))  # begins the pass at once, like the Loader's own method

    def noted(batch: Any) -> Any:
        note(batch)
        return batch

    monkeypatch.setattr(dataloader._BaseDataLoaderIter, "__next__", made)
    monkeypatch.setattr(packer.Loader, "__iter__", loaded)
    return batches


def crops_of(batches: Batches) -> dict[int, list[str]]:
    """Return the digests of each image's crops, in the order of the epochs."""
    crops = defaultdict(list)
    for labels, digests in batches:
        for label, digest in zip(labels, digests, strict=True):
            crops[label].append(digest)
    return dict(crops)


def run(block: str, seen: Batches, seed: int) -> Batches:
    """Run an example; return the batches that the model was trained with."""
    seen.clear()
    torch.manual_seed(seed)
    exec(compile(block, "the page", "exec"), {"__name__": "__main__"})
    return list(seen)


def own(warning: warnings.WarningMessage) -> bool:
    return f"{Path('packer')}/_" in warning.filename or "packer" in str(warning.message)


@pytest.fixture
def workplace(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run an example in a temporary directory that contains the pack it names."""
    (tmp_path / "train.lmdb").symlink_to(pack)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(("framework", "block"), examples())
def test_an_example_sees_every_image_once_an_epoch_and_no_crop_twice(
    framework: str, block: str, seen: Batches, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("packer.testing.reference").torchvision()  # which timm imports
    pytest.importorskip(framework, reason=f"needs {framework}: pip install {FRAMEWORKS[framework]}")
    for pattern, smaller in SMALLER.items():
        block = re.sub(pattern, smaller, block)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        batches = run(block, seen, seed=7)
        again = run(block, seen, seed=7)
    assert [str(warning.message) for warning in said if own(warning)] == []
    assert not re.search(r"packer[/\\]_\w+", capfd.readouterr().err)  # warnings of workers
    assert again == batches
    crops = crops_of(batches)
    assert sorted(crops) == list(range(COUNT))
    assert {len(digests) for digests in crops.values()} == {EPOCHS}
    equal = sum(len(digests) - len(set(digests)) for digests in crops.values())
    assert equal == 0, f"{equal} of {COUNT * EPOCHS} crops came before"
