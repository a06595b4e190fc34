"""Work done ahead of the training loop: on a CUDA stream, or on a thread."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import torch

from packer._loading.forks import require_same_process
from packer._loading.normalizing import Normalizer, map_tensors
from packer._storage.limits import require_count

__all__ = ["BackgroundPrefetcher", "CUDAPrefetcher", "usable_device"]


class _Wrapper:
    """Passes on the length, the epoch and the state of an iterable.

    The state is that of the item that was handed out last, however many more were fetched since.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._state: dict[str, Any] | Exception | None = None  # while a pass runs; an error is for whoever asks

    def state_dict(self) -> dict[str, Any]:
        """Return the source's state as of the item that was handed out last.

        Raises
        ------
        TypeError
            If the source has no state.
        """
        state = self._state if self._state is not None else self._state_now()
        if isinstance(state, Exception):
            raise state
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the source go on where `state_dict` was taken; TypeError where it cannot."""
        if not hasattr(self.source, "load_state_dict"):
            raise self._no_state()
        self._state = None
        self.source.load_state_dict(state)

    def _state_now(self) -> dict[str, Any] | Exception:
        if not hasattr(self.source, "state_dict"):
            return self._no_state()
        try:
            return self.source.state_dict()  # type: ignore[no-any-return]
        except Exception as error:  # nobody may ask for the state
            return error

    def _no_state(self) -> TypeError:
        return TypeError(f"{type(self.source).__name__} cannot be resumed: it has no state_dict; packer's Loader has")

    def _begin(self) -> Iterator[tuple[Any, Any]]:
        """Begin a pass over the source; return its items, each with the state after it."""
        items = iter(self.source)
        self._state = self._state_now()
        return ((item, self._state_now()) for item in items)

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on: to the source, or else to its sampler and its dataset, where they care."""
        self._state = None
        inner = [getattr(self.source, name, None) for name in ("sampler", "dataset")]
        targets: list[Any] = [self.source] if hasattr(self.source, "set_epoch") else inner
        for target in targets:
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device; ValueError where torch cannot use it here."""
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(found)!r}: torch finds no CUDA device here; 'cpu' does the same work")
    if found.type not in ("cpu", "cuda"):
        try:
            torch.empty(0, device=found)
        except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
            raise ValueError(f"device {str(found)!r}: torch cannot use it here; 'cpu' does the same work") from error
    return found


class CUDAPrefetcher(_Wrapper):
    """Copies the next batch to a device and normalises it there, while the present one is used.

    On a CUDA device the copy runs on a stream of its own, from pinned memory; unpinned tensors are pinned first. On
    another device the same work is done when the batch is asked for, so that one training script runs on both.

    Parameters
    ----------
    source : iterable
        Batches: tensors in nested tuples, lists and dicts. Other values are passed on as they are.
    device : torch.device or str, optional
        By default the current CUDA device, or the CPU where there is none.
    normalize : (sequence of float, sequence of float), optional
        Mean and standard deviation a channel, in units of 0 to 1: images become ``(image / 255 - mean) / std``. Images
        are the (N, C, H, W) uint8 tensors of a batch that have a channel for every mean, or 3 without `normalize`.
        Where a batch has no tensor of four dimensions, images are its (C, H, W) uint8 tensors.
    dtype : torch.dtype, optional
        The type that images are converted to; by default float32 with `normalize`, and otherwise uint8.
    channels_last : bool
        Whether (N, C, H, W) images are laid out channels last, or contiguous.

    Raises
    ------
    ValueError
        If an argument makes no sense or torch cannot use the device; in the loop, if a batch has no image that could
        be normalised or converted, as where images are floating point numbers already.
    """

    def __init__(
        self,
        source: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
    ) -> None:
        super().__init__(source)
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = usable_device(device)
        self._normalizer = Normalizer(normalize, dtype, channels_last)

    def __iter__(self) -> Iterator[Any]:
        batches = self._begin()
        return self._on_cuda(batches) if self.device.type == "cuda" else self._directly(batches)

    def _directly(self, batches: Iterator[tuple[Any, Any]]) -> Generator[Any, None, None]:
        for batch, state in batches:
            self._state = state
            # The copy is waited for: only on CUDA the memory of the batch is held until it is complete.
            yield self._normalizer(map_tensors(batch, lambda tensor: tensor.to(self.device)))
        self._state = None

    def _on_cuda(self, batches: Iterator[tuple[Any, Any]]) -> Generator[Any, None, None]:
        process = os.getpid()
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        # Batches are held here until they are copied, because torch does not watch all pinned memory.
        copying: deque[tuple[Any, Any]] = deque()
        ready: tuple[Any, Any, Any] | None = None
        try:
            for batch, state in batches:
                pinned = map_tensors(batch, _pinned)
                with torch.cuda.stream(stream):
                    moved = map_tensors(pinned, lambda tensor: tensor.to(self.device, non_blocking=True))
                    copying.append((stream.record_event(), pinned))
                    moved = self._normalizer(moved)
                    done = stream.record_event()
                while copying and copying[0][0].query():
                    copying.popleft()
                if ready is not None:
                    yield self._hand_over(*ready)
                ready = moved, done, state
            if ready is not None:
                yield self._hand_over(*ready)
            self._state = None
        finally:
            if os.getpid() == process:  # CUDA cannot be used in a fork
                stream.synchronize()

    def _hand_over(self, batch: Any, done: Any, state: Any) -> Any:
        self._state = state
        current = torch.cuda.current_stream(self.device)
        current.wait_event(done)
        # The allocator must not give the memory away before the current stream is done with it.
        map_tensors(batch, lambda tensor: tensor.record_stream(current) if tensor.is_cuda else None)
        return batch


class BackgroundPrefetcher(_Wrapper):
    """Runs an iterable on a thread, up to `depth` items ahead.

    Errors arrive in the loop; leaving the loop early ends the thread.
    """

    def __init__(self, source: Iterable[Any], depth: int = 2) -> None:
        super().__init__(source)
        require_count("depth", depth)
        self.depth = depth

    def __iter__(self) -> Iterator[Any]:
        return self._on_thread(self._begin())

    def _on_thread(self, source: Iterator[tuple[Any, Any]]) -> Generator[Any, None, None]:
        process = os.getpid()
        items: queue.Queue[tuple[str, Any]] = queue.Queue(self.depth)
        stopped = threading.Event()
        thread = threading.Thread(target=_fetch, args=(source, items, stopped), name="packer-prefetch", daemon=True)
        del source  # the thread's, which lets go of it at the end
        thread.start()
        try:
            while True:
                kind, value = items.get()
                if kind == "error":
                    raise value
                if kind == "end":
                    self._state = None
                    return
                item, self._state = value
                yield item
                require_same_process(process)
        finally:
            if os.getpid() == process:  # a fork has no such thread
                stopped.set()
                thread.join()


def _fetch(source: Iterator[tuple[Any, Any]], items: queue.Queue[tuple[str, Any]], stopped: threading.Event) -> None:
    """Put the items of an iterator, and what ends it, into a queue, until nobody wants them."""

    def put(kind: str, value: Any) -> bool:
        while not stopped.is_set():
            try:
                items.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    try:
        for item in source:
            if not put("item", item):
                return
        put("end", None)
    except BaseException as error:  # passed on to the loop, whatever it is
        put("error", error)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
