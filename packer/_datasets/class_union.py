"""The classes of several datasets that form one dataset: they are compared, or united."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._datasets.image_dataset import ImageDataset


def unite_classes(datasets: Sequence[ImageDataset], classes: str) -> None:
    """Give several datasets the same classes.

    Parameters
    ----------
    datasets : sequence of ImageDataset
    classes : {"same", "union"}
        ``same``: the datasets must already have the same classes. ``union``: the first dataset's classes keep their
        ids, additional classes of the other datasets follow, and the labels are renumbered.

    Raises
    ------
    ValueError
        If ``classes="same"`` and the classes differ; the message names the differing classes.
    """
    if classes == "same":
        for dataset in datasets[1:]:
            _require_same(datasets[0], dataset)
        return
    united = list(dict.fromkeys(name for dataset in datasets for name in dataset.classes))
    for dataset in datasets:
        dataset._view = dataset._view.with_classes(united)


def united_ids(classes: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], list[dict[int, int]]]:
    """Return the union of classes by name, with their ids; and for each mapping, the new id of each old id.

    The classes of the first mapping keep their ids. An additional class keeps its id if no other class has this id;
    otherwise it gets a new id above all others.

    Parameters
    ----------
    classes : sequence of mapping of str to int
        Class ids by class name.
    """
    united: dict[str, int] = {}
    for ids in classes:
        taken = set(united.values())
        for name, number in ids.items():
            if name not in united:
                united[name] = number if number not in taken else max([*united.values(), *ids.values()]) + 1
    maps = [{own: united[name] for name, own in ids.items() if united[name] != own} for ids in classes]
    return united, maps


def _require_same(one: ImageDataset, other: ImageDataset) -> None:
    if one.classes == other.classes:
        return
    differences = []
    for here, there in ((one, other), (other, one)):
        only = [name for name in here.classes if name not in set(there.classes)]
        if only:
            more = f" and {len(only) - 5} more" if len(only) > 5 else ""
            differences.append(f"only {printable(here.root)} has {', '.join(map(printable, only[:5]))}{more}")
    if not differences:
        pairs = zip(one.classes, other.classes, strict=True)
        place, names = next((place, names) for place, names in enumerate(pairs) if names[0] != names[1])
        differences = [f"class {place} is {' here and '.join(map(printable, names))} there"]
    raise OptionError(
        f"{printable(one.root)} and {printable(other.root)} differ in their classes: {'; '.join(differences)}. Say "
        "classes='union' to unite them"
    )
