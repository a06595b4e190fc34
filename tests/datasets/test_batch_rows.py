"""Items whose images are rows of one batch: DataLoader returns the same batches as for items with their own memory."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Subset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from packer import augment, open_dataset
from packer._datasets.items import Item
from packer.testing.reference import torchvision


@pytest.fixture(scope="module")
def steps():
    torchvision()
    from torchvision import transforms as v1

    return [v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))]


@pytest.fixture
def dataset(photo_tree, packs, steps):
    from torchvision import transforms as v1

    return open_dataset(packs(photo_tree, "lmdb"), v1.Compose([v1.RandomResizedCrop(32), *steps]), fuse=True, seed=3)


def copied(dataset, indices):
    """Return the batch of items that were made one by one."""
    items = [dataset[index] for index in indices]
    dataset.set_epoch(0)
    return default_collate(items)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("threads", [1, 3])
def test_dataloader_gives_the_batches_of_single_items(dataset, workers, threads):
    dataset.threads = threads
    expected = [copied(dataset, range(begin, min(begin + 3, len(dataset)))) for begin in range(0, len(dataset), 3)]
    batches = list(DataLoader(dataset, 3, num_workers=workers))
    assert [type(batch) for batch in batches] == [list] * len(expected)
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        assert type(images) is torch.Tensor
        assert images.is_contiguous()
        assert torch.equal(images, expected_images)
        assert torch.equal(labels, expected_labels)


def test_the_batch_is_the_memory_of_the_items(dataset):
    items = dataset.__getitems__([0, 2, 1])
    images, _ = default_collate(items)
    assert images.data_ptr() == items[0][0].data_ptr()


@pytest.mark.parametrize("chosen", [[2, 1, 0], [0, 2], [1, 2], [1], [0, 0, 1]])
def test_items_that_a_collation_picks_or_reorders_are_those_of_the_batch(dataset, chosen):
    items = dataset.__getitems__([0, 2, 1])
    picked = [items[place] for place in chosen]
    images, labels = default_collate(picked)
    assert torch.equal(images, torch.stack([image for image, _ in picked]))
    assert labels.tolist() == [label for _, label in picked]


def test_items_of_two_batches_or_of_changed_images_are_collated_as_torch_does(dataset):
    first, second = dataset.__getitems__([0, 1]), dataset.__getitems__([2, 1])
    mixed = [first[0], second[0], Item(first[1].image * 2, 7), Item(first[1].image.flip(2), 8)]
    images, labels = default_collate(mixed)
    assert torch.equal(images, torch.stack([item.image for item in mixed]))
    assert labels.tolist()[2:] == [7, 8]
    with pytest.raises(RuntimeError):
        default_collate([first[0], Item(first[1].image[:, 1:], 0)])


def test_transforms_of_v2_reach_into_the_items(dataset):
    from torchvision.transforms import v2

    item = dataset.__getitems__([0, 1])[0]
    flipped, label = v2.RandomHorizontalFlip(p=1)(item)
    assert torch.equal(flipped, item[0].flip(2))
    assert label == item[1]


def test_a_subset_and_a_torch_without_the_extension_point_give_the_same(dataset, monkeypatch):
    some = Subset(dataset, [3, 1, 2])
    ((images, _),) = DataLoader(some, 3)
    dataset.set_epoch(0)
    monkeypatch.delitem(default_collate_fn_map, Item)
    ((others, _),) = DataLoader(some, 3)
    assert torch.equal(images, others)


@pytest.mark.filterwarnings("ignore:.*16 bits or floats per pixel:UserWarning")  # odd_tree has some
@pytest.mark.parametrize("decoder", ["auto", "pillow"])
@pytest.mark.parametrize("padded", [False, True])
def test_numbers_that_c_makes_in_its_decoding_are_those_of_single_items(odd_tree, packs, steps, decoder, padded):
    from torchvision import transforms as v1

    crop = v1.RandomCrop(300, pad_if_needed=True) if padded else v1.RandomResizedCrop(32)
    transform, rules = v1.Compose([crop, *steps]), [augment.RandAugment(2, 9), augment.RandomErasing(1)]
    dataset = open_dataset(packs(odd_tree, "lmdb"), transform, fuse=True, seed=3, augment=rules, decoder=decoder)
    indices = [0, 0, *range(len(dataset)), 1, 0]  # one image several times in one call
    images, labels = default_collate(dataset.__getitems__(indices))
    dataset.set_epoch(0)
    expected, expected_labels = copied(dataset, indices)
    assert torch.equal(images, expected)
    assert torch.equal(labels, expected_labels)
