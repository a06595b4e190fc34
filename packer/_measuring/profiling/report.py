"""What a profile found, for a program and for a person."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["CAUSES", "ProfileReport"]

CAUSES = {
    "step": "the training step itself takes the time",
    "reading": "reading takes the time: the disk, or the network behind it",
    "decoding": "decoding takes the time",
    "items": "what dataset[i] does takes the time",
    "transform": "the transform takes the time",
    "collation": "collation takes the time",
    "handing over": "handing batches over from the workers takes the time",
    "transfer": "the copy to the device takes the time",
    "too few workers": "too few workers make the batches",
    "too many workers": "too many workers share the processors",
    "lock": "threads wait for Python's lock",
    "unknown": "what takes the time cannot be seen",
}
"""What a loop can wait for, and how a person is told."""


@dataclass(frozen=True, kw_only=True)
class ProfileReport:
    """How long steps wait for data, why, and what would help. ``print(report)`` says it in sentences.

    Attributes
    ----------
    cause : str
        ``"step"``: the loader keeps up, and the training step takes the time. Otherwise what the batches wait for:
        ``"reading"``, ``"decoding"``, ``"items"`` (what ``dataset[i]`` does, where that cannot be divided),
        ``"transform"``, ``"collation"``, ``"handing over"`` (from workers to the loop),
        ``"transfer"``, ``"too few workers"``, ``"too many workers"``, ``"lock"``
        (Python's) or ``"unknown"``.
    waiting : float
        The share of the time after the first batch that the loop waits, 0 to 1; of a GPU's time where CUDA is used.
    uncertainty : float
        The standard error of `waiting`; 1 where nothing tells it.
    gpu_idle : float or None
        The share of the time that the GPU was idle for want of a batch; None without CUDA.
    steps : int
        How many batches were measured.
    wait, step : float
        Mean seconds that a step waits for its batch, and works.
    first : float
        Seconds until the first batch, with the start of the workers.
    stages : dict of str to float
        Seconds that a sample takes on one processor, by stage. Empty where that was not measured.
    samples : int
        How many samples this was measured with.
    gains : dict of str to float
        How many times as fast the loop would be: with ``"packing"``, ``"packing with --resize 256"``, and the number
        of workers, such as ``"num_workers=2"``. Only what was measured or follows from it.
    packing_helps : bool
        Whether one of those with packing is worth while.
    sentences : tuple of str
        The report as a person reads it.
    """

    cause: str
    waiting: float
    uncertainty: float
    gpu_idle: float | None
    steps: int
    wait: float
    step: float
    first: float
    stages: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    gains: dict[str, float] = field(default_factory=dict)
    packing_helps: bool = False
    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def to_json(self) -> dict[str, Any]:
        """Return the report as numbers, strings, lists and dicts."""
        return asdict(self)
