"""Batches of a Loader that are normalised, mixed and transformed: the same with any threads and processes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from packer import Loader, RandomResizedCrop, View, augment, open_dataset
from packer._images.numbers import Mixture
from packer._loader.batch import mixtures_of
from packer._loader.prefetch import DeviceBatch, Normalizer
from packer.augment._mixup import mixed_images, mixed_labels
from packer.samplers._random import drawing_from
from tests.conftest import Packs, Trees

pytest.importorskip("packer.testing.reference").torchvision()
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COUNT, SIZE = 26, 24
NORMALISED: dict[str, Any] = {"normalize": (MEAN, STD)}
MIX = augment.RandomChoice([augment.MixUp(num_classes=COUNT), augment.CutMix(num_classes=COUNT)])
USUAL = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
JITTER = v2.Compose([v2.RandomPhotometricDistort(p=0.9), v2.RandomApply([v2.GaussianBlur(3)]), v2.RandomInvert()])


@pytest.fixture(scope="module")
def pack(trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=COUNT, per_class=1, size=(40, 48)))


def opened(pack: Path, **settings: Any) -> Any:
    return open_dataset(pack, crop=RandomResizedCrop(SIZE, flip=0.5), seed=5, **settings)


def batches(loader: Any, epoch: int = 1) -> list[Any]:
    loader.set_epoch(epoch)
    with loader:
        return [tuple(part.clone() for part in batch) for batch in loader]


def same(made: list[Any], expected: list[Any]) -> bool:
    pairs = zip(made, expected, strict=True)
    return all(torch.equal(one, other) for pair in pairs for one, other in zip(*pair, strict=True))


def with_loader(pack: Path, **options: Any) -> list[Any]:
    return batches(Loader(opened(pack), 8, shuffle=True, seed=2, **options))


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("channels_last", [True, False])
def test_normalised_batches_are_torchvisions(pack: Path, dtype: torch.dtype | None, channels_last: bool) -> None:
    made = with_loader(pack, **NORMALISED, dtype=dtype, channels_last=channels_last)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for (images, labels), (plain, expected) in zip(made, with_loader(pack), strict=True):
        assert torch.equal(images, USUAL(plain).to(dtype or torch.float32))
        assert images.is_contiguous(memory_format=layout)
        assert torch.equal(labels, expected)


@pytest.mark.usefixtures("quick_spawn")
def test_a_batch_is_mixed_as_its_first_sample_the_epoch_and_the_seed_say(pack: Path) -> None:
    expected, kinds = with_loader(pack, **NORMALISED, mix=MIX, threads=1), set()
    for options in ({"threads": 3}, {"threads": 3, "processes": 2}, {"threads": "auto", "prefetch": 0}):
        assert same(with_loader(pack, **NORMALISED, mix=MIX, **options), expected), options
    for (images, labels), (plain, classes) in zip(expected, with_loader(pack, **NORMALISED), strict=True):
        (mixture,) = mixtures_of(MIX, 5, 1, classes.numpy()[:1], (SIZE, SIZE))
        assert torch.equal(images, mixed_images(plain, mixture))
        assert torch.equal(labels, mixed_labels(classes, mixture))
        kinds.add(mixture.box is None)
    other = batches(Loader(opened(pack), 8, shuffle=True, seed=2, **NORMALISED, mix=MIX), epoch=2)
    assert kinds == {True, False}
    assert not same(other, expected)


def test_a_resumed_pass_goes_on_with_the_same_mixtures(pack: Path) -> None:
    options: dict[str, Any] = {"shuffle": True, **NORMALISED, "mix": MIX}
    loader = Loader(open_dataset(pack, crop=RandomResizedCrop(SIZE)), 8, seed=2, **options)
    passing, state, rest = iter(loader), {}, []
    for number, batch in enumerate(passing):
        if number == 1:
            state = loader.state_dict()
        elif number > 1:
            rest.append([part.clone() for part in batch])
    other = Loader(open_dataset(pack, crop=RandomResizedCrop(SIZE)), 8, **options)
    other.load_state_dict(state)
    assert same([*other], rest)


def test_items_of_a_transform_are_mixed_alike(pack: Path) -> None:
    """The numbers are the same if a transform normalises the images, or if the Loader collates items first."""
    expected = with_loader(pack, **NORMALISED, mix=MIX)
    assert same(batches(Loader(opened(pack, transform=USUAL), 8, shuffle=True, seed=2, mix=MIX)), expected)
    tensors = opened(pack, transform=v2.Identity(), output="tensor")
    assert same(batches(Loader(tensors, 8, shuffle=True, seed=2, **NORMALISED, mix=MIX)), expected)
    assert same(with_loader(pack, **NORMALISED, dtype=torch.float64, mix=MIX), [(i.double(), t) for i, t in expected])


def test_a_dict_has_mixed_images_and_labels(pack: Path) -> None:
    dataset = opened(pack, fields=("image", "label", "name"))
    made = [*Loader(dataset, 8, shuffle=True, seed=2, **NORMALISED, mix=MIX)]
    assert [sorted(batch) for batch in made] == [["image", "label", "name"]] * len(made)
    plain = [*Loader(opened(pack), 8, shuffle=True, seed=2, **NORMALISED, mix=MIX)]
    assert same([(batch["image"], batch["label"]) for batch in made], plain)


class Pair(NamedTuple):
    """The batch of a user's collate_fn."""

    images: torch.Tensor
    labels: torch.Tensor


def test_a_batch_of_another_kind_is_mixed_alike(pack: Path) -> None:
    expected = with_loader(pack, **NORMALISED, mix=MIX)
    others = {"collate_fn": lambda items: Pair(*torch.utils.data.default_collate(items))}
    assert same(with_loader(pack, **NORMALISED, mix=MIX, **others), expected)


def test_grey_images_are_mixed_as_their_labels_are(pack: Path) -> None:
    """CutMix of one channel gives levels; MixUp gives fractions, and needs normalize= or dtype=."""
    cut, mixed = augment.CutMix(num_classes=COUNT), augment.MixUp(num_classes=COUNT)
    options: dict[str, Any] = {"shuffle": True, "seed": 2}
    for rule, numbers in ((cut, {}), (mixed, {"normalize": ((0.5,), (0.5,))})):
        plain = batches(Loader(opened(pack, mode="L"), 8, **options, **numbers))
        made = batches(Loader(opened(pack, mode="L"), 8, mix=rule, **options, **numbers))
        for (images, labels), (grey, classes) in zip(made, plain, strict=True):
            (mixture,) = mixtures_of(rule, 5, 1, classes.numpy()[:1], (SIZE, SIZE))
            assert torch.equal(images, mixed_images(grey, mixture))
            assert torch.equal(labels, mixed_labels(classes, mixture))
    with pytest.raises(ValueError, match="MixUp makes fractions"):
        batches(Loader(opened(pack, mode="L"), 8, mix=mixed, **options))


def test_what_lies_beside_images_is_not_mixed() -> None:
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    beside, mixture = torch.rand(4, 1, 6, 6), Mixture(0.5, (0, 0, 4, 4), 3)
    normalizer = Normalizer((MEAN, STD))
    made = normalizer(DeviceBatch({"depth": beside, "image": images}, mixture))
    assert torch.equal(made["depth"], beside)
    assert torch.equal(made["image"], mixed_images(normalizer(images), mixture))


def test_what_is_set_between_two_passes_is_refused_as_at_first(pack: Path) -> None:
    loader = Loader(opened(pack), 8, mix=MIX, **NORMALISED)
    assert len(batches(loader)[0]) == 2
    loader = Loader(opened(pack), 8, mix=MIX, **NORMALISED)
    loader.dataset = open_dataset(pack, views=[View(RandomResizedCrop(SIZE))] * 2)
    with pytest.raises(ValueError, match="views= make several"):
        next(iter(loader))
    loader = Loader(opened(pack), 8, **NORMALISED)
    loader.mix = v2.MixUp(num_classes=3)  # type: ignore[assignment]
    with pytest.raises(TypeError, match="mix must be one of packer's"):
        next(iter(loader))


def test_levels_are_cut_and_mixed_where_nothing_is_normalised(pack: Path) -> None:
    rule = augment.CutMix(num_classes=COUNT)
    whole = with_loader(pack, mix=rule)
    assert whole[0][0].dtype == torch.uint8
    numbers = with_loader(pack, mix=rule, dtype=torch.float32)
    assert same([(images.float(), labels) for images, labels in whole], numbers)
    with pytest.raises(ValueError, match="normalize= or dtype="):
        with_loader(pack, mix=augment.MixUp(num_classes=COUNT))


@pytest.mark.usefixtures("quick_spawn")
def test_a_transform_of_batches_draws_the_same_on_any_threads(pack: Path) -> None:
    options: dict[str, Any] = {**NORMALISED, "mix": MIX, "batch_transform": JITTER}
    torch.manual_seed(1)
    expected = with_loader(pack, threads=1, **options)
    drawn = torch.rand(3)
    torch.manual_seed(2)
    assert same(with_loader(pack, threads=4, **options), expected)
    assert same(with_loader(pack, threads=2, processes=2, **options), expected)
    assert not same(with_loader(pack, **NORMALISED, mix=MIX), expected)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), drawn)
    changed = [(USUAL(images), labels) for images, labels in with_loader(pack, batch_transform=JITTER)]
    assert same(with_loader(pack, **NORMALISED, batch_transform=JITTER), changed)


def test_a_transform_of_batches_gives_what_it_got(pack: Path) -> None:
    for transform in (lambda images: images[:, :, 1:], v2.ToDtype(torch.float32), list):
        with pytest.raises(ValueError, match="batch_transform gets"):
            with_loader(pack, batch_transform=transform)


def test_a_transform_of_batches_may_give_its_own_memory_in_another_order(pack: Path) -> None:
    turned = with_loader(pack, batch_transform=lambda images: images.transpose(2, 3))
    assert same(turned, [(images.transpose(2, 3), labels) for images, labels in with_loader(pack)])


def test_an_error_of_a_transform_reaches_the_loop_and_the_loader_goes_on(pack: Path) -> None:
    failing = [True]

    def transform(images: torch.Tensor) -> torch.Tensor:
        if failing:
            raise OSError("no camera")
        return images

    loader = Loader(opened(pack), 8, batch_transform=transform, **NORMALISED)
    for _ in range(2):
        with pytest.raises(OSError, match="no camera"):
            next(iter(loader))
    failing.clear()
    assert same(batches(loader), batches(Loader(opened(pack), 8, **NORMALISED)))


def test_numbers_drawn_on_several_threads_are_those_of_their_seeds() -> None:
    images = torch.zeros(2, 3, 8, 8, dtype=torch.uint8) + 90
    draws = [
        lambda: torch.rand(3),
        lambda: torch.randint(9, (3,)),
        lambda: torch.empty(3).uniform_(1, 2),
        lambda: torch.randperm(5),
        lambda: torch.randn_like(torch.zeros(4)),
        lambda: torch.distributions.Beta(torch.tensor([0.3]), torch.tensor([0.3])).sample(),
        lambda: torch.distributions.Binomial(9, torch.full((4,), 0.5)).sample(),
        lambda: JITTER(images),
        lambda: v2.RandAugment()(images),
    ]
    expected = []
    for seed in range(6):
        torch.manual_seed(seed)
        expected.append([draw() for draw in draws])
    torch.manual_seed(77)
    before, made = torch.get_rng_state(), {}

    def work(seed: int) -> None:
        with drawing_from(seed):
            made[seed] = [draw() for draw in draws]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(torch.get_rng_state(), before)
    assert same([made[seed] for seed in range(6)], expected)


def test_what_cannot_be_mixed_or_transformed_is_refused(pack: Path) -> None:
    for mix in (augment.RandomErasing(), v2.MixUp(num_classes=3), 1):
        with pytest.raises(TypeError, match="mix must be one of packer's"):
            Loader(opened(pack), 8, mix=mix)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cannot be mixed"):
        Loader(opened(pack, fields=("image", "name")), 8, mix=MIX)
    with pytest.raises(ValueError, match="crop= of a fixed"):
        Loader(opened(pack, transform=USUAL), 8, batch_transform=JITTER)
    with pytest.raises(ValueError, match="or another mode="):
        Loader(opened(pack, mode="L"), 8, batch_transform=JITTER)
    with pytest.raises(TypeError, match="batch_transform"):
        Loader(opened(pack), 8, batch_transform=3)  # type: ignore[arg-type]
    for transform in (v2.MixUp(num_classes=3), v2.RandomChoice([JITTER, v2.CutMix(num_classes=3)])):
        with pytest.raises(TypeError, match=r"pass mix=packer\.augment\.(MixUp|CutMix)\("):
            Loader(opened(pack), 8, batch_transform=transform)
    with pytest.raises(ValueError, match="a batch of images and a tensor of labels"):
        next(iter(Loader(opened(pack, target_transform=str), 8, **NORMALISED, mix=MIX)))


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_a_gpu_mixes_what_the_cpu_mixes(pack: Path, dtype: torch.dtype | None) -> None:
    expected = with_loader(pack, **NORMALISED, mix=MIX, dtype=dtype)
    made = with_loader(pack, **NORMALISED, mix=MIX, dtype=dtype, device="cuda")
    for batch, others in zip(made, expected, strict=True):
        for part, other in zip(batch, others, strict=True):
            assert part.is_cuda
            torch.testing.assert_close(part.cpu(), other)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_pastes_levels_that_stay_levels(pack: Path) -> None:
    mix = augment.CutMix(num_classes=COUNT)
    expected, made = with_loader(pack, mix=mix), with_loader(pack, mix=mix, device="cuda")
    assert made[0][0].dtype == torch.uint8
    assert same([tuple(part.cpu() for part in batch) for batch in made], expected)
