"""The classes of several datasets, as those of one: compared, or united."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from packer.errors import OptionError, printable

if TYPE_CHECKING:
    from packer._datasets.image_dataset import ImageDataset


def unite_classes(datasets: Sequence[ImageDataset], classes: str) -> None:
    """Let datasets have the same classes.

    Parameters
    ----------
    datasets : sequence of ImageDataset
    classes : {"same", "union"}
        ``same``: they have the same already. ``union``: the first dataset's classes keep their ids, and classes that
        others have beyond them follow; the labels are renumbered.

    Raises
    ------
    ValueError
        If they are to be the same, and differ; the message says which do.
    """
    if classes == "same":
        for dataset in datasets[1:]:
            _require_same(datasets[0], dataset)
        return
    united = list(dict.fromkeys(name for dataset in datasets for name in dataset.classes))
    for dataset in datasets:
        dataset._view = dataset._view.with_classes(united)


def united_ids(classes: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], list[dict[int, int]]]:
    """Return classes that are united by name, with their ids; and for each argument, which ids become which.

    The first classes keep their ids. A class that others have beyond them keeps its id where no other class has it, and
    otherwise gets one above all.

    Parameters
    ----------
    classes : sequence of mapping of str to int
        Classes by name.
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
