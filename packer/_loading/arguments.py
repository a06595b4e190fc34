"""Arguments of torch's DataLoader that a Loader knows by other names, or does not need."""

from __future__ import annotations

from collections.abc import Iterable

from packer._storage.limits import require_count

__all__ = ["augments_on_device", "refuse_unknown", "require_threads"]

_INSTEAD = {
    "num_workers": "it decodes on threads: say threads=, and processes= for dozens of CPUs",
    "batch_sampler": "it makes batches itself: say batch_size=, and sampler= for the order",
    "prefetch_factor": "say prefetch=, the number of batches in work ahead",
    "generator": "say seed=; without it the seed comes from torch's generator",
    "pin_memory_device": "say device=",
    "persistent_workers": "its threads and processes stay from epoch to epoch",
    "worker_init_fn": "it has no workers to initialise",
    "multiprocessing_context": "its processes are always spawned",
    "timeout": "a process that dies is an error at once",
    "in_order": "its batches come in order",
}


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise TypeError for arguments that a Loader does not have, with what to say instead."""
    for name in names:
        advice = f": {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise TypeError(f"a Loader has no argument {name!r}{advice}")


def require_threads(threads: object) -> None:
    """Raise TypeError or ValueError where `threads` is neither None nor "auto" nor a number of threads."""
    if isinstance(threads, str) and threads != "auto":
        raise TypeError(f'threads is a whole number, or "auto", not {threads!r}')
    require_count("threads", None if threads == "auto" else threads)


def augments_on_device(augment_on: object, device: object) -> bool:
    """Tell whether images are augmented on the device; ValueError where that is not said, or there is no device."""
    if augment_on not in {"threads", "device"}:
        raise ValueError(f'augment_on is "threads" or "device", not {augment_on!r}')
    if augment_on == "device" and device is None:
        raise ValueError('augment_on="device" needs device=, such as device="cuda"')
    return augment_on == "device"
