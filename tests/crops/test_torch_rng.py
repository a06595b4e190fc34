"""Numbers that are drawn ahead are those that torch draws one at a time."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import numpy as np
import pytest
import torch

from packer.crops import Compose, Crop, RandomCrop, RandomHorizontalFlip, RandomResizedCrop
from packer.crops._fuse import split_by
from packer.crops._steps import RandomCutOfV1
from packer.crops._torch_rng import Ahead, NumberSource, _makes_one_word_a_number, drawing
from packer.errors import ImageError
from packer.testing.reference import torchvision

torchvision()
from torchvision import transforms  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

ENDS = [1, 2, 500, 2**27 - 1, 2**27, 2**27 + 1, 2**31, 2**33]


@pytest.mark.parametrize("count", [1, 7, 50])
def test_numbers_made_ahead_are_those_made_one_at_a_time(count: int) -> None:
    one, other = (torch.Generator().manual_seed(5) for _ in range(2))
    single, ahead = NumberSource(one), Ahead(other, count)
    choices = np.random.default_rng(0).integers(0, 3, 400).tolist()
    for number, choice in enumerate(choices):
        if choice == 0:
            assert single.uniform(0.08, 1.0) == ahead.uniform(0.08, 1.0)
        elif choice == 1:
            assert single.power(-0.3, number) == ahead.power(-0.3, number)
        else:
            assert single.below(ENDS[number % len(ENDS)]) == ahead.below(ENDS[number % len(ENDS)])
    ahead.end()
    assert torch.equal(one.get_state(), other.get_state())


def test_this_torch_makes_numbers_as_it_is_supposed() -> None:
    assert _makes_one_word_a_number()


@pytest.mark.parametrize(
    "crop",
    [
        RandomResizedCrop(224, flip=0.5),
        RandomResizedCrop(20, (0.9, 1.0), (0.1, 9.0)),
        Compose([RandomHorizontalFlip(0.3), RandomCrop(30, flip=0.4)]),
        RandomResizedCrop(20, (0.9, 1.0), (0.01, 0.02)),  # tries ten times: more numbers than are made at a time
    ],
    ids=repr,
)
def test_a_batch_draws_what_its_images_draw_one_after_the_other(crop: Crop) -> None:
    heights, widths = np.random.default_rng(0).integers(30, 600, (2, 100))
    torch.manual_seed(3)
    together = crop.choose(heights, widths)
    after = torch.rand(1)
    torch.manual_seed(3)
    for place in range(100):
        one = crop.choose(heights[place : place + 1], widths[place : place + 1])
        np.testing.assert_array_equal(one, together[place : place + 1])
    assert torch.equal(torch.rand(1), after)


def test_the_generator_has_moved_on_by_what_was_used_after_an_error() -> None:
    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="in between"), drawing(100) as source:  # noqa: PT012
        RandomCutOfV1((3, 3)).draw(9, 9, source)
        raise RuntimeError("in between")
    after = torch.rand(1)
    torch.manual_seed(0)
    torch.rand(2)
    assert torch.equal(torch.rand(1), after)


def test_images_that_are_refused_draw_nothing() -> None:
    sides = np.full(100, 600)
    sides[-1] = 20
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with pytest.raises(ImageError, match="20 x 20 pixels"):
        Compose([RandomCrop(30), RandomResizedCrop(90, (0.9, 1.0), (0.01, 0.02))]).choose(sides, sides)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["RandomCrop", "RandomResizedCrop"])
@pytest.mark.parametrize("version", [transforms, v2], ids=["v1", "v2"])
def test_a_batch_draws_what_torchvision_draws(version: Any, kind: str) -> None:
    heights, widths = np.random.default_rng(1).integers(30, 40, (2, 200))
    heights[::3], widths[::5] = 30, 30  # so that a side has nothing to choose
    theirs = version.Compose([getattr(version, kind)(30), version.RandomHorizontalFlip(0.3)])
    crop, _ = split_by(theirs, False)
    assert crop is not None
    torch.manual_seed(4)
    crops = crop.choose(heights, widths)
    after = torch.rand(1)
    torch.manual_seed(4)
    for height, width, chosen in zip(heights, widths, crops, strict=True):
        places = torch.arange(height * width, dtype=torch.float32).reshape(1, height, width)
        image = theirs(places)
        if kind == "RandomCrop":
            first = chosen["top"] * width + chosen["left"] + (29 if chosen["flip"] else 0)
            assert image[0, 0, 0].item() == first
    assert torch.equal(torch.rand(1), after)


def test_threads_that_draw_at_once_get_other_numbers() -> None:
    torch.manual_seed(0)
    drawn: list[tuple[int, ...]] = []

    def draw() -> None:
        for _ in range(50):
            with drawing(10) as source:
                drawn.append(tuple(source.below(2**27) for _ in range(30)))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 200
    assert len({number for numbers in drawn for number in numbers}) > 5990


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_draws_while_a_thread_that_it_has_not_got_was_drawing() -> None:
    with drawing(10):
        child = multiprocessing.get_context("fork").Process(target=_draw)
        child.start()
        child.join(60)
    assert child.exitcode == 0


def _draw() -> None:
    with drawing(10) as source:
        source.below(9)
