"""``threads="auto"`` chooses the number of threads while batches are read, and changes no batch."""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from packer import Loader, open_dataset
from packer._loader import autotune
from packer._loader.autotune import Race, thread_counts
from packer._storage.system import available_cpus
from packer.crops import RandomResizedCrop
from packer.samplers import WeightedSampler

SIZE, BATCH, LENGTH = 40, 2, 603


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the least duration of a measurement, so that a few hundred batches are enough for a choice."""
    monkeypatch.setattr(autotune, "_SECONDS", 0.0)


def loader(pack: Path, threads: int | str, **options: Any) -> Loader:
    dataset = open_dataset(pack, crop=RandomResizedCrop(16, flip=0.5), seed=3)
    sampler = WeightedSampler([1.0] * SIZE, LENGTH, seed=5, rank=options.pop("rank", 0), world=options.pop("world", 1))
    return Loader(dataset, BATCH, sampler=sampler, threads=threads, **options)


def batches(loader: Loader) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(images.clone(), labels) for images, labels in loader]


def same(made: list[tuple[torch.Tensor, torch.Tensor]], expected: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    pairs = zip(made, expected, strict=True)
    return all(
        torch.equal(one, other) and torch.equal(*labels) for (one, *a), (other, *b) in pairs for labels in [a + b]
    )


@pytest.mark.parametrize("how", [{}, {"drop_last": True, "prefetch": 0}, {"pin_memory": False, "prefetch": 5}])
def test_whole_epochs_are_those_of_one_thread(pack: Path, how: dict[str, Any]) -> None:
    tuned, expected = loader(pack, "auto", **how), loader(pack, 1, **how)
    seen, made = set(), []
    for images, labels in tuned:
        seen.add(tuned.threads)
        made.append((images.clone(), labels))
    assert same(made, batches(expected))
    assert len(seen) >= 2  # the number changed during the epoch
    assert tuned.threads in thread_counts(available_cpus())
    chosen = tuned.threads
    assert same(batches(tuned), batches(expected))
    assert tuned.threads == chosen


def test_items_that_are_made_one_by_one_are_those_of_one_thread(pack: Path) -> None:
    def collated(threads: int | str) -> list[Any]:
        return list(
            loader(pack, threads, collate_fn=lambda items: [(image.numpy().tobytes(), to) for image, to in items])
        )

    assert collated("auto") == collated(1)


@pytest.mark.usefixtures("quick_spawn")
def test_processes_make_the_same_while_their_threads_change(pack: Path) -> None:
    with loader(pack, "auto", processes=2) as tuned, loader(pack, 1) as expected:
        seen, made = {tuned.threads}, []
        for images, labels in tuned:
            seen.add(tuned.threads)
            made.append((images.clone(), labels))
        assert same(made, batches(expected))
        assert same(batches(tuned), batches(expected))
        assert len(seen) >= 2
        assert tuned.threads in thread_counts(available_cpus(), 2)


@pytest.mark.parametrize("done", [1, 17, 60])
def test_a_pass_goes_on_from_the_middle_of_the_choice(pack: Path, done: int) -> None:
    tuned, expected = loader(pack, "auto"), loader(pack, 1)
    whole = batches(expected)
    iterator = iter(tuned)
    assert same([next(iterator) for _ in range(done)], whole[:done])
    state = tuned.state_dict()
    other = iter(loader(pack, 1))
    assert [next(other) for _ in range(done)]
    assert state.keys() == {"version", "sampler", "crop_seed", "images", "pack", "batch_size"}
    del iterator
    for threads in (1, "auto"):
        again = loader(pack, threads)
        again.load_state_dict(state)
        assert same(batches(again), whole[done:])
    assert same(batches(tuned), batches(expected))  # the next epoch: the pass that was left has changed nothing


def test_ranks_choose_each_for_itself_and_share_the_samples(pack: Path) -> None:
    shares = []
    for rank in range(2):
        made = batches(loader(pack, "auto", rank=rank, world=2))
        assert same(made, batches(loader(pack, 1, rank=rank, world=2)))
        shares.append(torch.cat([labels for _, labels in made]))
    whole = torch.cat([labels for _, labels in loader(pack, 1)])
    assert torch.equal(torch.stack(shares, 1).flatten()[:LENGTH], whole), "each place of the epoch is of one rank"


def _labels_of(loader: Loader, answer: Any) -> None:
    answer.put([label for _, labels in loader for label in labels.tolist()])


@pytest.mark.usefixtures("quick_spawn")
def test_pickled_and_spawned_it_chooses_anew(pack: Path) -> None:
    tuned = loader(pack, "auto")
    for _ in itertools.islice(tuned, 20):  # in the middle of the choice
        pass
    iterator = iter(tuned)
    for _ in range(25):
        next(iterator)
    copy = pickle.loads(pickle.dumps(tuned))
    assert copy.threads == available_cpus()
    assert "auto" in repr(copy)
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=_labels_of, args=(loader(pack, "auto"), answer))
    process.start()
    expected = [label for _, labels in loader(pack, 1) for label in labels.tolist()]
    assert answer.get(timeout=120) == expected
    process.join()


def test_a_small_dataset_ends_without_a_choice(pack: Path) -> None:
    tuned = Loader(open_dataset(pack, crop=RandomResizedCrop(16)), BATCH, threads="auto")
    batches(tuned)
    assert tuned.threads == available_cpus()
    assert "auto" not in repr(tuned)


def test_the_rest_of_an_epoch_is_not_the_first_one(pack: Path) -> None:
    first = loader(pack, 1)
    iterator = iter(first)
    for _ in range(LENGTH // BATCH - 2):
        next(iterator)
    tuned = loader(pack, "auto")
    tuned.load_state_dict(first.state_dict())
    assert same(batches(tuned), [(images.clone(), labels) for images, labels in iterator])
    assert "auto" in repr(tuned)
    tuned.set_epoch(0)
    assert same(batches(tuned), batches(loader(pack, 1)))
    assert "auto" not in repr(tuned)


def test_a_pass_that_is_left_early_is_not_the_first_one(pack: Path) -> None:
    tuned = loader(pack, "auto")
    next(iter(tuned))  # as frameworks do, to see whether everything works
    assert "auto" in repr(tuned)
    tuned.set_epoch(0)
    assert same(batches(tuned), batches(loader(pack, 1)))
    assert "auto" not in repr(tuned)


def test_a_number_that_is_set_is_the_number(pack: Path) -> None:
    tuned = loader(pack, "auto")
    iterator = iter(tuned)
    next(iterator)
    tuned.threads = 3
    assert len(list(iterator)) == -(-LENGTH // BATCH) - 1
    assert tuned.threads == 3
    tuned.threads = None
    assert tuned.threads == available_cpus()
    with pytest.raises(TypeError, match="a whole number or \"auto\", not 'all'"):
        loader(pack, "all")
    with pytest.raises(ValueError, match="1 or more"):
        loader(pack, 0)


@pytest.mark.parametrize(("costs", "wanted"), [
    ({1: 2.0, 2: 1.0, 4: 1.0, 8: 1.2}, 2),
    ({1: 1.0, 2: 1.0, 4: 1.0}, 1),
    ({1: 4.0, 2: 2.0, 4: 1.0, 8: 0.5}, 8),
    ({1: 1.5, 2: 1.1, 4: 1.0}, 4),
])  # fmt: skip
@pytest.mark.parametrize("seed", range(5))
def test_a_race_finds_the_simplest_of_the_fastest_while_the_machine_becomes_slower(
    costs: dict[int, float], wanted: int, seed: int
) -> None:
    noise, race, slower = random.Random(seed), Race(list(costs)), 1.0
    while not race.over:
        slower *= 1.01
        race.note(costs[race.next] * slower * noise.uniform(0.995, 1.005))
    assert race.chosen == wanted
    counts = [len(measured) for measured in race.costs]
    assert counts[list(costs).index(wanted)] == max(counts) <= 8


def test_a_race_measures_no_longer_what_is_surely_slower() -> None:
    race = Race(["quick", "slow"])
    while not race.over:
        race.note({"quick": 1.0, "slow": 3.0}[race.next])
    assert [len(measured) for measured in race.costs] == [1, 1]
    assert race.chosen == "quick"
    assert Race(["quick", "slow"]).chosen is None


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 6, 8, 64, 256])
@pytest.mark.parametrize("least", [1, 8])
def test_numbers_to_choose_from_are_few_and_have_all_cpus(cpus: int, least: int) -> None:
    counts = thread_counts(cpus, least)
    assert counts == sorted(set(counts))
    assert max(cpus, least) in counts
    assert counts[0] >= least
    assert len(counts) <= 6
