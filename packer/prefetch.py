"""Work done ahead of the training loop: on a CUDA stream, or on a thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

__all__ = ["BackgroundPrefetcher", "CUDAPrefetcher", "Normalizer", "usable_device"]


class Normalizer:
    """Turns uint8 images into what the network wants, wherever they are.

    Parameters
    ----------
    normalize : (mean, std), optional
        A number a channel each, in units of 0 to 1: the result is ``(image / 255 - mean) / std``.
    dtype : torch.dtype, optional
        Of the result; float32 with `normalize`, and otherwise uint8 stays.
    channels_last : bool
        Memory layout of 4-dimensional results.

    Notes
    -----
    Applies to uint8 tensors of 3 or 4 dimensions with a channel for every mean, wherever they stand in nested tuples,
    lists and dicts; everything else stays as it is.
    """

    def __init__(
        self,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
    ) -> None:
        if dtype is not None and normalize is not None and not dtype.is_floating_point:
            raise ValueError(f"normalised images are floating point numbers, which {dtype} is not")
        self.dtype = dtype or (torch.float32 if normalize is not None else None)
        self.channels_last = channels_last
        self._scale = self._shift = torch.empty(0)
        self.normalizes = normalize is not None
        if normalize is not None:
            mean, std = _mean_and_std(normalize)
            self._scale = 1 / (255 * std)
            self._shift = -mean / std

    @property
    def changes_nothing(self) -> bool:
        """Whether uint8 images that are channels last stay what they are."""
        return self.dtype is None and self.channels_last

    def __call__(self, value: Any) -> Any:
        return _map(value, self._image)

    def _image(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype != torch.uint8 or tensor.dim() not in (3, 4):
            return tensor
        if self.normalizes:
            if self._scale.device != tensor.device:
                self._scale, self._shift = self._scale.to(tensor.device), self._shift.to(tensor.device)
            # In float32, and rounded once at the end.
            tensor = torch.addcmul(self._shift, tensor.to(torch.float32), self._scale)
        if self.dtype is not None:
            tensor = tensor.to(self.dtype)
        if tensor.dim() == 4:
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            tensor = tensor.contiguous(memory_format=layout)
        return tensor


def _mean_and_std(normalize: tuple[Sequence[float], Sequence[float]]) -> list[torch.Tensor]:
    """Return both as (channels, 1, 1) float32 tensors."""
    try:
        mean, std = (torch.as_tensor(values, dtype=torch.float32) for values in normalize)
    except (TypeError, ValueError, RuntimeError):
        mean = std = torch.empty(())
    if mean.dim() != 1 or mean.shape != std.shape or not (std > 0).all():
        raise ValueError(
            "normalize is (mean, std), a number a channel each and no std 0, such as "
            f"((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), not {normalize!r}"
        )
    return [mean.view(-1, 1, 1), std.view(-1, 1, 1)]


class _Wrapper:
    """Passes on the length, the epoch and the state of an iterable.

    The state is that of the item that was handed out last, however many more were fetched since.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._state: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the source's state as of the item that was handed out last."""
        return self._state if self._state is not None else self._state_now()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the source go on where `state_dict` was taken."""
        self._state = None
        self.source.load_state_dict(state)  # type: ignore[attr-defined]

    def _state_now(self) -> dict[str, Any]:
        return self.source.state_dict() if hasattr(self.source, "state_dict") else {}

    def _with_states(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        return ((item, self._state_now()) for item in self.source)

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the source, or to its sampler, where they care."""
        self._state = None
        targets: list[Any] = [self.source, getattr(self.source, "sampler", None)]
        for target in targets:
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)
                return


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device; ValueError where it is a CUDA device and there is none."""
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(found)!r}: torch finds no CUDA device here; 'cpu' does the same work")
    return found


class CUDAPrefetcher(_Wrapper):
    """Copies the next batch to a device and normalises it there, while the present one is used.

    On a CUDA device the copy runs on a stream of its own, from pinned memory; unpinned tensors are pinned first. On
    another device the same work is done when the batch is asked for, so that one training script runs on both.

    Parameters
    ----------
    source : iterable
        Batches: tensors in nested tuples, lists and dicts. Whatever is not a tensor is passed on.
    device : torch.device or str, optional
        By default the current CUDA device, or the CPU where there is none.
    normalize, dtype, channels_last
        See `Normalizer`.
    """

    def __init__(
        self,
        source: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
        normalizer: Normalizer | None = None,
    ) -> None:
        super().__init__(source)
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = usable_device(device)
        self.normalizer = normalizer or Normalizer(normalize, dtype, channels_last)

    def __iter__(self) -> Iterator[Any]:
        return self._on_cuda() if self.device.type == "cuda" else self._directly()

    def _directly(self) -> Generator[Any, None, None]:
        for batch, state in self._with_states():
            self._state = state
            yield self.normalizer(_map(batch, lambda tensor: tensor.to(self.device)))

    def _on_cuda(self) -> Generator[Any, None, None]:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        copying: deque[tuple[Any, Any]] = (
            deque()
        )  # batches, held until they are copied: not all pinned memory is watched
        ready: tuple[Any, Any, dict[str, Any]] | None = None
        try:
            for batch, state in self._with_states():
                pinned = _map(batch, _pinned)
                with torch.cuda.stream(stream):
                    moved = _map(pinned, lambda tensor: tensor.to(self.device, non_blocking=True))
                    copying.append((stream.record_event(), pinned))
                    moved = self.normalizer(moved)
                    done = stream.record_event()
                while copying and copying[0][0].query():
                    copying.popleft()
                if ready is not None:
                    yield self._hand_over(*ready)
                ready = moved, done, state
            if ready is not None:
                yield self._hand_over(*ready)
        finally:
            stream.synchronize()

    def _hand_over(self, batch: Any, done: Any, state: dict[str, Any]) -> Any:
        self._state = state
        current = torch.cuda.current_stream(self.device)
        current.wait_event(done)
        # The allocator must not give the memory away before the current stream is done with it.
        _map(batch, lambda tensor: tensor.record_stream(current) if tensor.is_cuda else None)
        return batch


class BackgroundPrefetcher(_Wrapper):
    """Runs an iterable on a thread, up to `depth` items ahead.

    Errors arrive in the loop; leaving the loop early ends the thread.
    """

    def __init__(self, source: Iterable[Any], depth: int = 2) -> None:
        super().__init__(source)
        if depth < 1:
            raise ValueError(f"depth is 1 or more, not {depth}")
        self.depth = depth

    def __iter__(self) -> Generator[Any, None, None]:
        items: queue.Queue[tuple[str, Any]] = queue.Queue(self.depth)
        stopped = threading.Event()

        def put(kind: str, value: Any) -> bool:
            while not stopped.is_set():
                try:
                    items.put((kind, value), timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def run() -> None:
            try:
                for item in self._with_states():
                    if not put("item", item):
                        return
                put("end", None)
            except BaseException as error:  # passed on to the loop, whatever it is
                put("error", error)

        thread = threading.Thread(target=run, name="packer-prefetch", daemon=True)
        thread.start()
        try:
            while True:
                kind, value = items.get()
                if kind == "error":
                    raise value
                if kind == "end":
                    return
                item, self._state = value
                yield item
        finally:
            stopped.set()
            thread.join()


def _map(value: Any, function: Any) -> Any:
    """Apply `function` to every tensor in nested tuples, lists and dicts; leave everything else."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_map(item, function) for item in value)
    if isinstance(value, Mapping):
        return {key: _map(item, function) for key, item in value.items()}
    return value


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
