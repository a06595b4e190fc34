"""Datasets that users write for a Loader: the examples of docs/owndataset.md, and the contract of LoaderDataset."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import packer
from tests.test_docs import fenced

PAGE = Path(packer.__file__).parents[1] / "docs" / "owndataset.md"
COUNT, SIZE = 37, (12, 20)
IMAGES = np.random.default_rng(5).integers(0, 256, (COUNT, *SIZE, 3), np.uint8)
TARGETS = np.arange(COUNT) % 7


def classes_of_the_page() -> dict[str, Any]:
    """Return the names that the page's blocks of code define."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in fenced(PAGE, "python"):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def arrays() -> Any:
    return classes_of_the_page()["Arrays"](IMAGES, TARGETS)


def mirrored(index: int, epoch: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return the image that the page's dataset makes, by NumPy alone."""
    image = IMAGES[index % COUNT]
    return image[:, ::-1] if np.random.default_rng([seed, epoch, index]).random() < 0.5 else image


class Plain(packer.LoaderDataset):
    """The same images as items, not mirrored; one sample cannot be read."""

    bad = 11

    def __len__(self) -> int:
        return COUNT

    def items(
        self, indices: npt.NDArray[np.int64], epoch: int, seed: int, transform: Any = None, seeding: bool = False
    ) -> list[Any]:
        places = indices % COUNT
        if self.bad in places:
            raise packer.ImageError("no image", "number 11")
        return [(torch.from_numpy(IMAGES[place]), int(TARGETS[place])) for place in places]


class Replaced(Plain):
    def replacements(self, indices: npt.NDArray[np.int64], epoch: int, seed: int) -> npt.NDArray[np.int64] | None:
        return np.where(indices % COUNT == self.bad, indices + 1, indices)


def test_the_page_has_a_dataset_of_at_most_twenty_lines() -> None:
    (block,) = (block for block in fenced(PAGE, "python") if "class Arrays" in block)
    body = block[block.index("class Arrays") : block.index("images = np.random")]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("threads", [1, 3])
def test_images_are_written_into_the_batch(arrays: Any, threads: int) -> None:
    loader = packer.Loader(arrays, 8, shuffle=True, seed=3, threads=threads)
    for epoch in range(2):
        sampler = packer.ShuffleSampler(COUNT, seed=3)
        sampler.set_epoch(epoch)
        order = list(sampler)
        images, labels = (torch.cat(parts) for parts in zip(*loader, strict=True))
        expected = np.stack([mirrored(index, epoch, 3) for index in order])
        assert np.array_equal(images.permute(0, 2, 3, 1).numpy(), expected)
        assert labels.tolist() == TARGETS[order].tolist()


def test_the_loader_makes_numbers_of_levels(arrays: Any) -> None:
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    levels = [images for images, _ in packer.Loader(arrays, 8, seed=1)]
    numbers = [images for images, _ in packer.Loader(arrays, 8, seed=1, normalize=(mean, std))]
    for one, other in zip(levels, numbers, strict=True):
        scaled = one.to(torch.float32) / 255
        expected = (scaled - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
        torch.testing.assert_close(other, expected)


def test_images_and_labels_are_mixed(arrays: Any) -> None:
    mix = packer.augment.MixUp(num_classes=7)
    plain, classes = next(iter(packer.Loader(arrays, 8, seed=1, dtype=torch.float32)))
    images, labels = next(iter(packer.Loader(arrays, 8, seed=1, mix=mix, dtype=torch.float32)))
    share = labels[1, 1].item()
    assert 0 < share < 1
    expected = torch.nn.functional.one_hot(classes, 7).float()
    for mixed, whole in ((images, plain), (labels, expected)):
        torch.testing.assert_close(mixed, share * whole + (1 - share) * whole.roll(1, 0), rtol=1e-5, atol=1e-4)


def test_a_transform_of_the_loader_gets_each_image(arrays: Any) -> None:
    seen = [images for images, _ in packer.Loader(arrays, 8, seed=1)]
    halved = [images for images, _ in packer.Loader(arrays, 8, seed=1, transform=lambda image: image // 2)]
    assert all(torch.equal(one // 2, other) for one, other in zip(seen, halved, strict=True))


class Noise:
    """A transform that draws from torch's generator."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return torch.rand(image.shape[0])


@pytest.mark.usefixtures("quick_spawn")
def test_a_random_transform_is_a_function_of_the_seed_where_a_process_has_one_thread() -> None:
    def passed(seed: int) -> torch.Tensor:
        loader = packer.Loader(Gradient(), 4, seed=seed, transform=Noise(), threads=1, processes=1)
        with contextlib.closing(loader):
            return torch.cat([images for images, _ in loader])

    first = passed(1)
    assert torch.equal(first, passed(1))
    assert not torch.equal(first, passed(2))


def test_an_epoch_goes_on_at_its_state(arrays: Any) -> None:
    whole = [labels.tolist() for _, labels in packer.Loader(arrays, 8, shuffle=True, seed=2)]
    loader = packer.Loader(arrays, 8, shuffle=True, seed=2)
    begun = [labels.tolist() for _, labels in itertools.islice(loader, 2)]
    other = packer.Loader(arrays, 8, shuffle=True, seed=9)
    other.load_state_dict(loader.state_dict())
    assert begun + [labels.tolist() for _, labels in other] == whole


def test_a_state_of_other_samples_is_refused(arrays: Any) -> None:
    loader = packer.Loader(arrays, 8)
    with pytest.raises(ValueError, match="pack"):
        packer.Loader(Replaced(), 8).load_state_dict(loader.state_dict())


def test_a_sample_that_comes_again_has_other_choices(arrays: Any) -> None:
    ((images, _),) = packer.Loader(arrays, 12, sampler=[4] * 12)
    made = {image.numpy().tobytes() for image in images}
    assert len(made) == 2  # as stored, and mirrored


def test_a_sample_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(packer.ImageError, match="number 11"):
        list(packer.Loader(Plain(), 8))


def test_another_sample_takes_the_place_of_a_bad_one() -> None:
    labels = torch.cat([labels for _, labels in packer.Loader(Replaced(), 8)])
    assert labels.tolist() == TARGETS[[index + (index == 11) for index in range(COUNT)]].tolist()


@pytest.mark.usefixtures("quick_spawn")
def test_processes_fill_batches_too() -> None:
    expected = [images for images, _ in packer.Loader(Gradient(), 4, seed=1)]
    with packer.Loader(Gradient(), 4, seed=1, threads=2, processes=2) as loader:
        found = [images for images, _ in loader]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Gradient(packer.LoaderDataset):
    """Each image has one grey level, partly random; the dataset can be pickled."""

    def __len__(self) -> int:
        return 10

    def layout(self, transform: Any = None) -> tuple[int, int] | None:
        return None if transform else (4, 6)

    def labels(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return indices % 10

    def choose(self, indices: npt.NDArray[np.int64], epoch: int, seed: int) -> npt.NDArray[np.int64]:
        return np.array([np.random.default_rng([seed, epoch, index]).integers(0, 20) for index in indices])

    def fill(self, indices: npt.NDArray[np.int64], choices: npt.NDArray[Any], memory: Any) -> None:
        memory["image"][:] = torch.from_numpy(10 * (indices % 10) + choices)[:, None, None, None]


def test_a_class_without_items_says_what_it_needs() -> None:
    class Nothing(packer.LoaderDataset):
        def __len__(self) -> int:
            return 3

    with pytest.raises(NotImplementedError, match="Nothing must define the method items, or layout, labels and fill"):
        list(packer.Loader(Nothing(), 2))


def test_packers_dataloader_leaves_it_to_torch(arrays: Any) -> None:
    with pytest.warns(UserWarning, match="the dataset overrides how its items are made"), pytest.raises(TypeError):
        next(iter(packer.DataLoader(arrays, 4)))
