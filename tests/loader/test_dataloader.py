"""packer's DataLoader has torch's signature, order, random numbers and batches; threads make the batches."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from torch.utils.data import BatchSampler, ConcatDataset, Subset, WeightedRandomSampler, random_split

import packer
from packer import DataLoader, open_dataset
from packer.errors import CorruptPackError, WorkerError
from packer.samplers import BalancedSampler, ShuffleSampler, WeightedSampler
from packer.testing.photos import draw_imagefolder
from tests.conftest import Packs, Trees
from tests.pairs import pairwise

COUNT = 23
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Torch = torch.utils.data.DataLoader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than CPUs


@pytest.fixture(scope="module")
def pack(trees: Trees, packs: Packs) -> Path:
    return packs(trees(classes=1, per_class=COUNT, size=(40, 50)))


@pytest.fixture(scope="module")
def training(pack: Path) -> Any:
    """Return a dataset of random crops; the label of each sample is its index."""
    return opened(pack, training_transform())


@pytest.fixture(scope="module")
def evaluation(pack: Path) -> Any:
    """Return a dataset whose transform is not random."""
    transforms = pytest.importorskip("torchvision.transforms")
    steps = [transforms.Resize(24), transforms.CenterCrop(16), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return opened(pack, transforms.Compose(steps))


def training_transform() -> Any:
    transforms = pytest.importorskip("torchvision.transforms")
    conversions = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return transforms.Compose([transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip(), *conversions])


def opened(pack: Path, transform: Any, **settings: Any) -> Any:
    dataset = open_dataset(pack, transform, fuse=True, **settings)
    dataset.targets = np.arange(COUNT)
    return dataset


def batches(loader: Any) -> list[tuple[torch.Tensor, list[Any]]]:
    return [(images.clone(), labels.tolist()) for images, labels in loader]


def labels_of(loader: Any) -> list[list[int]]:
    return [labels for _, labels in batches(loader)]


def same(one: list[Any], other: list[Any]) -> bool:
    return [labels for _, labels in one] == [labels for _, labels in other] and all(
        torch.equal(images, others) for (images, _), (others, _) in zip(one, other, strict=True)
    )


# 1. The class and its arguments


def test_it_is_torchs_with_torchs_signature(training: Any) -> None:
    assert issubclass(DataLoader, Torch)
    assert not issubclass(packer.Loader, DataLoader)
    assert not issubclass(DataLoader, packer.Loader)
    assert inspect.signature(DataLoader.__init__) == inspect.signature(Torch.__init__)
    own = vars(DataLoader).keys() - vars(object).keys()
    assert not [name for name in own if name.startswith(("_DataLoader__", "__")) and not name.endswith("__")]


def test_each_argument_is_stored_under_its_name(training: Any) -> None:
    given = {
        "dataset": training,
        "batch_size": 3,
        "sampler": [1, 2, 3],
        "num_workers": 2,
        "drop_last": True,
        "timeout": 5,
        "worker_init_fn": print,
        "multiprocessing_context": torch.multiprocessing.get_context("spawn"),
        "generator": torch.Generator(),
        "prefetch_factor": 3,
        "persistent_workers": True,
    }
    loader = DataLoader(**given)
    assert {name: getattr(loader, name) for name in given} == given


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -1},
        {"persistent_workers": True},
        {"sampler": [1], "shuffle": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"multiprocessing_context": "spawn"},
        {"num_workers": 1, "multiprocessing_context": "thread"},
    ],
)
def test_refusals_are_torchs(training: Any, arguments: dict[str, Any]) -> None:
    said = []
    for kind in (Torch, DataLoader):
        with pytest.raises((TypeError, ValueError)) as raised:
            kind(training, **arguments)
        said.append((raised.type, str(raised.value)))
    assert said[0] == said[1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of torch's own iterator
@pytest.mark.parametrize("arguments", [{"timeout": 1}, {"num_workers": 1, "prefetch_factor": 0}])
def test_what_torch_refuses_when_a_pass_begins_is_refused_then(training: Any, arguments: dict[str, Any]) -> None:
    for kind in (Torch, DataLoader):
        with pytest.raises(AssertionError):
            iter(kind(training, **arguments))


def test_attributes_are_guarded(training: Any) -> None:
    loader = DataLoader(training, 4)
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match="should not be set after DataLoader is initialized"):
            setattr(loader, name, None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_is_pickled_and_copied_before_and_after_a_pass(training: Any, workers: int, persistent: bool) -> None:
    loader = DataLoader(training, 5, num_workers=workers, persistent_workers=persistent and workers > 0)
    for _ in range(2):
        for other in (pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
            assert labels_of(other) == labels_of(loader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_iterators_are_independent(training: Any, workers: int, persistent: bool) -> None:
    loader = DataLoader(training, 5, num_workers=workers, persistent_workers=persistent and workers > 0)
    whole = labels_of(loader)
    assert [(one.tolist(), other.tolist()) for (_, one), (_, other) in zip(loader, loader, strict=True)] == [
        (labels, labels) for labels in whole
    ]
    for _ in loader:
        break
    nested = [[labels.tolist() for _, labels in loader] for _ in loader]
    assert nested == [whole] * len(whole)


# 2. Which batches packer's threads make


def made_by_threads(loader: Any) -> bool:
    return type(iter(loader)).__name__ == "ThreadsPass"


def test_subsets_and_rows_of_packers_datasets_are_read_by_threads(training: Any, pack: Path) -> None:
    other = opened(pack, training_transform())
    for dataset in (
        training,
        training.select([3, 1]),
        Subset(training, [3, 1]),
        ConcatDataset([training, Subset(other, [5])]),
        Subset(ConcatDataset([training, other]), [30, 2]),
        open_dataset([pack, pack], training_transform(), fuse=True),
        *random_split(training, [10, COUNT - 10]),
    ):
        assert made_by_threads(DataLoader(dataset, 4))


def _doubled(items: list[Any]) -> Any:
    return torch.utils.data.default_collate(items * 2)


class Own(packer.LMDBImageDataset):
    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


def unfit(pack: Path) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return functions that make loaders whose batches torch must make, each with the reason in the warning."""
    transforms = pytest.importorskip("torchvision.transforms")
    fused = training_transform()
    jitter = transforms.Compose([transforms.RandomResizedCrop(16), transforms.GaussianBlur(3), transforms.ToTensor()])
    whole = transforms.Compose([transforms.Resize((16, 16)), transforms.ToTensor()])
    return {
        "another dataset": (lambda: DataLoader([(1, 2)] * 9, 4), "list is not one of packer's"),
        "own items": (lambda: DataLoader(Own(pack, fused, fuse=True), 4), "Own overrides __getitem__"),
        "fields": (lambda: DataLoader(open_dataset(pack, fields=["label", "index"]), 4), "the items have fields"),
        "collate": (lambda: DataLoader(opened(pack, fused), 4, collate_fn=_doubled), "collate_fn="),
        "no batches": (lambda: DataLoader(opened(pack, fused), None), "batch_size=None"),
        "a step is left": (lambda: DataLoader(opened(pack, jitter), 4), "GaussianBlur"),
        "not fused": (lambda: DataLoader(open_dataset(pack, fused), 4), "with fuse=True packer"),
        "no crop": (lambda: DataLoader(open_dataset(pack), 1), "the images have no fixed size"),
        "numpy": (
            lambda: DataLoader(open_dataset(pack, output="numpy", crop=packer.CenterCrop(8)), 4),
            "output='numpy'",
        ),
        "a row of none": (lambda: DataLoader(Subset(opened(pack, fused), [0, 99]), 1), "out of range"),
        "mode": (lambda: DataLoader(open_dataset(pack, mode="L", crop=packer.CenterCrop(8)), 4), "mode='L'"),
        "kinds": (
            lambda: DataLoader(ConcatDataset([opened(pack, fused), opened(pack, whole)]), 4),
            "images of different kinds",
        ),
    }


@pytest.mark.parametrize("name", unfit(Path()))
def test_all_else_is_torchs_own_way_and_said_once(pack: Path, name: str) -> None:
    make, said = unfit(pack)[name]
    loader = make()
    with pytest.warns(UserWarning, match="and not packer's threads") as warned:
        assert not made_by_threads(loader)
    assert len(warned) == 1
    assert said in str(warned[0].message)
    assert Path(warned[0].filename) == Path(__file__)
    torch.manual_seed(0)
    first = next(iter(loader))  # a second warning would be an error
    torch.manual_seed(0)
    expected = next(iter(Torch(loader.dataset, loader.batch_size, collate_fn=loader.collate_fn)))
    assert type(first) is type(expected)
    torch.testing.assert_close(first, expected, rtol=0, atol=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs(evaluation: Any, workers: int) -> None:
    whole = [*Torch(evaluation, 5)]
    made = [*DataLoader(evaluation, 5, num_workers=workers)]
    assert len(made) == len(whole)
    for batch, expected in zip(made, whole, strict=True):
        assert type(batch) is list
        for tensor, other in zip(batch, expected, strict=True):
            assert type(tensor) is type(other)
            assert (tensor.dtype, tensor.stride()) == (other.dtype, other.stride())
            assert torch.equal(tensor, other)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("workers", [0, 2])
def test_page_locked_batches_are_copied_to_a_gpu_as_they_are(training: Any, workers: int) -> None:
    settings: dict[str, Any] = {"shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
    torch.manual_seed(3)
    expected = batches(DataLoader(training, 5, **settings))
    torch.manual_seed(3)
    loader = DataLoader(training, 5, pin_memory=True, **settings)
    made = []
    for images, labels in loader:
        assert images.is_pinned()
        assert labels.is_pinned()
        made.append((images.to("cuda", non_blocking=True), labels.to("cuda", non_blocking=True)))
    torch.cuda.synchronize()
    assert same([(images.cpu(), labels.tolist()) for images, labels in made], expected)
    torch.manual_seed(3)
    copied = packer.CUDAPrefetcher(DataLoader(training, 5, **settings), "cuda", channels_last=False)
    assert same([(images.cpu(), labels.tolist()) for images, labels in copied], expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_pixels_views_and_targets_are_torchs_too(pack: Path, workers: int) -> None:
    view = packer.View(packer.ResizeCenterCrop(20, 24))
    for opening in (
        {"crop": packer.CenterCrop(16)},
        {"views": [view, packer.View(packer.CenterCrop(8))]},
        {"crop": packer.CenterCrop(16), "target_transform": str},
        {"crop": packer.CenterCrop(16), "target_transform": float},
    ):
        dataset = open_dataset(pack, **opening)
        for made, expected in zip(DataLoader(dataset, 7, num_workers=workers), Torch(dataset, 7), strict=True):
            assert str(made) == str(expected)
            images = made[0] if isinstance(made[0], list) else [made[0]]
            assert all(part.is_contiguous() for part in images)


@pytest.mark.parametrize("module", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_a_transform_of_tensors_gives_plain_tensors(pack: Path, module: str) -> None:
    transforms = pytest.importorskip(module)
    if module.endswith("v2"):
        conversions = [transforms.ToImage(), transforms.CenterCrop(16), transforms.ToDtype(torch.float32, scale=True)]
    else:
        conversions = [transforms.CenterCrop(16), transforms.ToTensor()]
    dataset = opened(pack, transforms.Compose([*conversions, transforms.Normalize(MEAN, STD)]))
    loader = DataLoader(dataset, 5)
    assert made_by_threads(loader)
    for made, expected in zip(loader, Torch(dataset, 5), strict=True):
        assert type(made[0]) is type(expected[0]) is torch.Tensor
        assert torch.equal(made[0], expected[0])


@pytest.mark.filterwarnings("ignore:torch's DataLoader makes these batches")
def test_a_transform_of_another_kind_changes_who_makes_the_batches(pack: Path) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    dataset = opened(pack, training_transform())
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    kinds = []
    for last in (transforms.GaussianBlur(3), None, transforms.GaussianBlur(5)):
        kinds.append(made_by_threads(loader))
        dataset.transform = transforms.Compose([training_transform(), *([last] if last else [])])
        assert len(labels_of(loader)) == 6
    assert kinds == [True, False, True]


def test_batches_that_are_held_stay_what_they_are(training: Any) -> None:
    held = [*DataLoader(training, 2, num_workers=2, prefetch_factor=1)]
    copies = [images.clone() for images, _ in held]
    for _ in DataLoader(training, 2, num_workers=2):
        pass
    assert all(torch.equal(images, copied) for (images, _), copied in zip(held, copies, strict=True))


# 3. Workers are threads


class Asked(BatchSampler):
    """Counts the batches that were requested."""

    asked = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self.asked += 1
            yield batch


@pytest.mark.parametrize(("workers", "ahead", "expected"), [(0, None, 0), (1, 1, 1), (2, 2, 4), (3, 1, 3)])
def test_so_many_batches_are_in_work(training: Any, workers: int, ahead: int | None, expected: int) -> None:
    asked = []
    for kind in (Torch, DataLoader):
        sampler = Asked(range(COUNT), 2, False)
        passing = iter(kind(training, batch_sampler=sampler, num_workers=workers, prefetch_factor=ahead))
        asked.append([sampler.asked, *(sampler.asked for _ in passing)])
    assert asked[0] == asked[1]
    assert asked[1][0] == expected


def threads_of_loaders() -> int:
    gc.collect()
    return sum(thread.name.startswith("packer-loader") for thread in threading.enumerate())


@pytest.mark.parametrize(("workers", "expected"), [(0, 0), (3, 3)])
def test_each_worker_is_a_thread_that_ends_with_the_pass(training: Any, workers: int, expected: int) -> None:
    before = threads_of_loaders()
    passing = iter(DataLoader(training, 2, num_workers=workers))
    next(passing)
    assert threads_of_loaders() - before == expected
    for _ in passing:
        pass
    assert threads_of_loaders() == before
    left = iter(DataLoader(training, 2, num_workers=workers))
    next(left)
    del left
    assert threads_of_loaders() == before


def test_threads_of_the_dataset_make_batches_where_there_are_no_workers(pack: Path) -> None:
    dataset = opened(pack, training_transform(), threads=2)
    before = threads_of_loaders()
    passing = iter(DataLoader(dataset, 4))
    next(passing)
    assert threads_of_loaders() - before == 2


def test_a_function_for_workers_is_not_called_and_that_is_said_once(training: Any) -> None:
    loader = DataLoader(training, 4, num_workers=1, worker_init_fn=lambda _: pytest.fail("it was called"))
    with pytest.warns(UserWarning, match="worker_init_fn is not called") as warned:
        list(loader)
    assert len(warned) == 1
    list(loader)


def test_settings_of_workers_change_nothing(training: Any) -> None:
    plain = labels_of(DataLoader(training, 4, num_workers=2))
    for setting in (
        {"persistent_workers": True},
        {"timeout": 1},
        {"in_order": False},
        {"multiprocessing_context": "spawn"},
    ):
        assert labels_of(DataLoader(training, 4, num_workers=2, **setting)) == plain


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # of forks with threads, which this test needs
def test_a_fork_does_not_wait_for_threads_that_it_has_not(training: Any) -> None:
    passing = iter(DataLoader(training, 4, num_workers=1))
    next(passing)
    child = os.fork()
    if not child:
        try:
            next(passing)
        except WorkerError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_goes_on_after_an_error_as_torchs_does(tmp_path: Path, workers: int) -> None:
    draw_imagefolder(tmp_path / "tree", classes=1, per_class=6, size=(40, 50))
    packer.convert(tmp_path / "tree", tmp_path / "pack.lmdb")
    damage(tmp_path / "pack.lmdb", 2)
    dataset = open_dataset(tmp_path / "pack.lmdb", crop=packer.CenterCrop(16))
    passing = iter(DataLoader(dataset, 2, num_workers=workers))
    next(passing)
    with pytest.raises(CorruptPackError, match="sample 2"):
        next(passing)
    assert len([*passing]) == 1
    replacing = open_dataset(tmp_path / "pack.lmdb", crop=packer.CenterCrop(16), on_error="replace")
    with pytest.warns(UserWarning, match="Another sample replaces it"):
        made = [images.clone() for images, _ in DataLoader(replacing, 2, num_workers=workers)]
    assert torch.equal(made[1][0], made[1][1])


def damage(pack: Path, number: int) -> None:
    """Change a byte of a sample."""
    with packer.open_pack(pack) as reader:
        data = bytes(reader.read(number))
    content = bytearray(pack.read_bytes())
    place = content.find(data) + len(data) // 2
    content[place] ^= 255
    pack.write_bytes(content)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("wrong", [[[0, 1], [99], [2]], [[0], [], [2]], [[0], ["a"], [2]], [[0], [True, False], [2]]])
def test_wrong_indices_are_an_error_when_their_batch_is_due(training: Any, workers: int, wrong: list[Any]) -> None:
    said = []
    for kind, count in ((Torch, 0), (DataLoader, workers)):
        passing = iter(kind(training, batch_sampler=wrong, num_workers=count))
        next(passing)
        with pytest.raises((IndexError, TypeError, ValueError)) as raised:
            next(passing)
        assert next(passing)[1].tolist() == [2]
        said.append((raised.type, str(raised.value)))
    assert said[0] == said[1]


# 4. Order and random numbers


def order(kind: str, length: int) -> dict[str, Any]:
    """Return a loader's arguments for a kind of order of `length` samples."""
    weights = [1.0 + number for number in range(length)]
    kinds: dict[str, dict[str, Any]] = {
        "in order": {},
        "shuffled": {"shuffle": True},
        "a list": {"sampler": [length - 1, 0, -1, 0]},
        "by weights": {"sampler": WeightedRandomSampler(weights, 2 * length)},
        "one of packer's": {"sampler": ShuffleSampler(length, seed=3)},
        "batches of a list": {"batch_sampler": [[3, 1], [2], [0, 0, 1]]},
        "batches of a sampler": {"batch_sampler": BatchSampler(range(length - 1), 4, True)},
    }
    return kinds[kind]


KINDS = ["in order", "shuffled", "a list", "by weights", "one of packer's", "batches of a list", "batches of a sampler"]


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_lengths_labels_and_generators_are_torchs(pack: Path, data: st.DataObject) -> None:
    """For any dataset, order and number of workers; the generators' states are compared after each batch."""
    draw = data.draw
    one, other = (opened(pack, training_transform()) for _ in range(2))
    dataset = draw(st.sampled_from([one, Subset(one, [5, 4, 4, 9]), ConcatDataset([one, Subset(other, [3, 2])])]))
    labels = [*range(COUNT), 3, 2] if isinstance(dataset, ConcatDataset) else getattr(dataset, "indices", range(COUNT))
    kind = draw(st.sampled_from(KINDS))
    arguments: dict[str, Any] = {"num_workers": draw(st.sampled_from([0, 1, 2]))}
    if arguments["num_workers"]:
        arguments |= {"persistent_workers": draw(st.booleans()), "prefetch_factor": draw(st.integers(1, 3))}
    if not kind.startswith("batches"):
        arguments |= {"batch_size": draw(st.integers(1, 9)), "drop_last": draw(st.booleans())}
    seed, own = draw(st.integers(0, 2**32)), draw(st.booleans())

    def watched(loader: Any, samples: Any) -> list[Any]:
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed + 1) if own else None
        made = loader(samples, **order(kind, len(samples)), **arguments, generator=generator)
        seen: list[Any] = [len(made)]
        for epoch in range(2):
            if isinstance(made.sampler, ShuffleSampler):
                made.sampler.set_epoch(epoch)
            passing = iter(made)
            seen.append(drawn(generator))
            for batch in passing:
                seen.append(((batch[1] if isinstance(batch, list) else batch).tolist(), drawn(generator)))
        return seen

    def drawn(generator: torch.Generator | None) -> list[bytes]:
        states = [torch.get_rng_state(), (generator or torch.default_generator).get_state()]
        return [state.numpy().tobytes() for state in states]

    assert watched(DataLoader, dataset) == watched(Torch, list(labels))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_seed_of_torch_repeats_runs_with_any_number_of_workers(training: Any, persistent: bool) -> None:
    def run(workers: int) -> list[list[Any]]:
        torch.manual_seed(11)
        kept = persistent and workers > 0
        loader = DataLoader(training, 4, shuffle=True, num_workers=workers, persistent_workers=kept)
        return [batches(loader) for _ in range(3 if persistent else 2)]

    runs = [run(workers) for workers in ((1, 2, 4, 1) if persistent else (0, 1, 2, 4, 0))]
    for other in runs[1:]:
        assert all(same(one, another) for one, another in zip(runs[0], other, strict=True))


@pytest.mark.parametrize("settings", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
@pytest.mark.parametrize("seed", [None, 5])
def test_epochs_differ(pack: Path, settings: dict[str, Any], seed: int | None) -> None:
    loader = DataLoader(opened(pack, training_transform(), seed=seed), COUNT, **settings)
    images = [torch.cat([part.clone() for part, _ in loader]) for _ in range(3)]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not any(torch.equal(*pair) for pair in zip(images[one], images[other], strict=True))


def test_a_sample_that_comes_again_gets_another_crop(training: Any) -> None:
    ((images, _),) = DataLoader(training, 3, sampler=[7, 7, 7])
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[1], images[2])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_datasets_seed_wins(pack: Path, workers: int) -> None:
    dataset = opened(pack, training_transform(), seed=5)
    loader = DataLoader(dataset, 4, num_workers=workers)
    for epoch in range(2):
        torch.manual_seed(epoch)
        images = torch.cat([part.clone() for part, _ in loader])
        dataset_alone = opened(pack, training_transform(), seed=5)
        dataset_alone.set_epoch(epoch)
        assert all(torch.equal(image, dataset_alone[index][0]) for index, image in enumerate(images))
    dataset.set_epoch(7)
    told = torch.cat([part.clone() for part, _ in loader])
    assert torch.equal(told[3], dataset[3][0])
    dataset.set_epoch(7)
    assert torch.equal(torch.cat([part.clone() for part, _ in loader]), told)


def test_a_loader_gives_the_same_crops(pack: Path) -> None:
    dataset = open_dataset(pack, crop=packer.RandomResizedCrop(16), seed=5)
    made = [images.clone() for images, _ in DataLoader(dataset, 4)]
    assert all(torch.equal(images, other) for images, (other, _) in zip(made, packer.Loader(dataset, 4), strict=True))


# 5. States

SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "in order": dict,
    "shuffled": lambda: {"shuffle": True},
    "by a generator": lambda: {"shuffle": True, "generator": torch.Generator().manual_seed(1)},
    "by weights": lambda: {"sampler": WeightedRandomSampler([1.0, 2.0] * 8, 2 * COUNT)},
    "with replacement": lambda: {"sampler": torch.utils.data.RandomSampler(range(COUNT), True, 90)},
    "one of packer's": lambda: {"sampler": ShuffleSampler(COUNT, seed=3)},
    "packer's weights": lambda: {"sampler": WeightedSampler([1.0, 2.0] * 11 + [9.0], 3 * COUNT)},
    "packer's balance": lambda: {"sampler": BalancedSampler(np.arange(COUNT) % 3, length=2 * COUNT)},
    "batches": lambda: {"batch_sampler": BatchSampler(torch.utils.data.RandomSampler(range(COUNT)), 4, False)},
}


@pairwise(name=SAMPLERS, done=[0, 1, 3], workers=[0, 2])
def test_a_pass_goes_on_at_the_very_next_sample(training: Any, name: str, done: int, workers: int) -> None:
    def loader(workers: int) -> Any:
        arguments = SAMPLERS[name]()
        size = {} if "batch_sampler" in arguments else {"batch_size": 4}
        return DataLoader(training, **size, **arguments, num_workers=workers)

    torch.manual_seed(1)
    running = loader(workers)
    passing = iter(running)
    for _ in range(done):
        next(passing)
    states = [running.state_dict()]
    rest = batches(passing)
    for number in (workers, 2 - workers):
        torch.manual_seed(2)
        resumed = loader(number)
        resumed.load_state_dict(states[0])
        assert str(resumed.state_dict()) == str(states[0])
        passing = iter(resumed)
        before = batches(_first(passing, 1))
        states.append(resumed.state_dict())
        assert same([*before, *batches(passing)], rest)
    torch.manual_seed(3)  # the state of a resumed pass can be resumed too
    again = loader(workers)
    again.load_state_dict(states[1])
    assert same(batches(again), rest[1:])
    if hasattr(again.sampler, "set_epoch"):
        again.sampler.set_epoch(again.sampler.epoch + 1)
    assert len(labels_of(again)) == len(labels_of(loader(0)))  # the next pass is whole


def _first(passing: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        yield next(passing)


def test_a_state_of_packers_samplers_goes_on_with_another_batch_size(training: Any) -> None:
    running = DataLoader(training, 4, sampler=ShuffleSampler(COUNT, seed=3))
    passing = iter(running)
    next(passing)
    state = running.state_dict()
    rest = [label for labels in labels_of(passing) for label in labels]
    resumed = DataLoader(training, 3, sampler=ShuffleSampler(COUNT, seed=8))
    resumed.load_state_dict(state)
    assert [label for labels in labels_of(resumed) for label in labels] == rest


@pytest.mark.filterwarnings("ignore:torch's DataLoader makes these batches")
@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_own_way_goes_on_too(workers: int) -> None:
    class Numbers(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            return iter(range(10))

    for dataset, arguments in (([*range(10)], {"shuffle": True}), (Numbers(), {})):
        torch.manual_seed(4)
        running = DataLoader(dataset, 3, num_workers=workers, **arguments)
        passing = iter(running)
        next(passing)
        state = running.state_dict()
        rest = [batch.tolist() for batch in passing]
        resumed = DataLoader(dataset, 3, num_workers=workers, **arguments)
        resumed.load_state_dict(state)
        assert [batch.tolist() for batch in resumed] == rest
        assert len([*resumed]) == 4


@pytest.mark.parametrize("seed", [None, 5])
def test_a_state_after_a_pass_is_the_beginning_of_the_next(pack: Path, seed: int | None) -> None:
    dataset = opened(pack, training_transform(), seed=seed)
    running = DataLoader(dataset, 4)
    assert len(labels_of(running)) == 6
    state = running.state_dict()
    assert state["batches"] == 0
    resumed = DataLoader(dataset, 4)
    resumed.load_state_dict(state)
    torch.manual_seed(1)
    made = batches(resumed)
    torch.manual_seed(1)
    assert same(made, batches(running))
    assert len(labels_of(resumed)) == 6


def test_states_of_something_else_are_refused(training: Any, pack: Path) -> None:
    state = DataLoader(training, 4).state_dict()
    with pytest.raises(TypeError, match="a state must be a dict"):
        DataLoader(training, 4).load_state_dict(None)  # type: ignore[arg-type]
    for wrong, said in (
        ({}, "no number 'version'"),
        ({**state, "version": 9}, "a newer packer"),
        ({**state, "batches": -1}, "its batches is -1"),
        ({**state, "pack": "of another"}, "another run"),
        (DataLoader(training, 4, sampler=ShuffleSampler(COUNT)).state_dict(), "one of packer's samplers"),
    ):
        with pytest.raises(ValueError, match=said):
            DataLoader(training, 4).load_state_dict(wrong)
    with pytest.raises(ValueError, match="a sampler that is not packer's"):
        DataLoader(training, 4, sampler=ShuffleSampler(COUNT)).load_state_dict(state)
