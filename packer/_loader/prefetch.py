"""Preparation of batches for the network: copying and normalising on a device, and prefetching by a thread."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from packer._images.extension import _native
from packer._images.numbers import TYPES, Mixture, NumberFormat
from packer._images.operations import Operations
from packer._images.torch_ops import operate
from packer._storage.system import require_count
from packer.augment._mixup import mixed_images
from packer.errors import OptionError, WorkerError

_SHOWN = 8  # tensors that an error describes


class DeviceBatch(NamedTuple):
    """A batch whose images must still be augmented and mixed on the device; its labels are mixed already."""

    batch: Any
    mixture: Mixture | None = None
    operations: Operations | None = None


class Normalizer:
    """Converts uint8 images to the numbers that the network expects, on the images' device.

    Parameters
    ----------
    normalize : (mean, std), optional
        Mean and standard deviation of each channel, for pixels scaled to 0 to 1. The result is ``(image / 255 - mean) /
        std``, rounded as by torchvision's v2 transforms ToDtype and Normalize.
    dtype : torch.dtype, optional
        Type of the result; by default float32 with `normalize`, and otherwise uint8.
    channels_last : bool
        Whether (N, C, H, W) results are laid out channels last; otherwise they are contiguous.

    Attributes
    ----------
    channels : int
        The number of channels of an image.
    changes_nothing : bool
        Whether uint8 images that are laid out channels last are left unchanged.
    makes_fractions : bool
        Whether uint8 images are converted to floating point numbers.
    numbers : NumberFormat, optional
        The conversion of images with three channels by packer's C; None if C does not support it.

    Notes
    -----
    Tensors may be in nested tuples, lists and dicts. Images are the (N, C, H, W) uint8 tensors that have one channel
    for every mean; without `normalize`, they have 3 channels. If no tensor has four dimensions, images are the (C, H,
    W) uint8 tensors with this number of channels. Everything else is left unchanged, such as masks of shape (N, H, W)
    or (N, 1, H, W).
    """

    def __init__(
        self,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = True,
    ) -> None:
        if dtype is not None and normalize is not None and not dtype.is_floating_point:
            raise OptionError(f"normalised images are floating point numbers, so dtype= cannot be {dtype}")
        self.dtype = dtype or (torch.float32 if normalize is not None else None)
        self.channels_last = channels_last
        self._mean = self._std = torch.empty(0)
        self.channels = 3
        self.normalizes = normalize is not None
        if normalize is not None:
            self._mean, self._std = _mean_and_std(normalize)
            self.channels = len(self._mean)
        self.changes_nothing = self.dtype is None and channels_last
        self.makes_fractions = self.dtype is not None and self.dtype.is_floating_point
        self.numbers = self._numbers()

    def _numbers(self) -> NumberFormat | None:
        name = str(self.dtype).removeprefix("torch.")
        if _native is None or name not in TYPES or self.channels != 3:
            return None
        constants = tuple(self._mean.flatten().tolist()), tuple(self._std.flatten().tolist())
        return NumberFormat(constants if self.normalizes else None, name, not self.channels_last)

    def __call__(self, value: Any) -> Any:
        """Convert the images in a tensor, or in nested tuples, lists and dicts; augment and mix a `DeviceBatch`.

        Raises
        ------
        ValueError
            If images should be changed, but there is no image.
        """
        mixture = mixed = None
        if isinstance(value, DeviceBatch):
            value, mixture, operations = value
            if operations is not None:
                _augment(value[0], operations)
            mixed = images_of(value) if mixture is not None else None
        tensors = _tensors(value)
        # A batch of masks has the shape of an image if it has as many masks as an image has channels.
        dimensions = 4 if any(tensor.dim() == 4 for tensor in tensors) else 3
        if self.dtype is not None and not any(self._is_image(tensor, dimensions) for tensor in tensors):
            raise self._no_image(tensors)

        def made(tensor: torch.Tensor) -> torch.Tensor:
            own = mixture if tensor is mixed else None
            if self._is_image(tensor, dimensions):
                return self._image(tensor, own)
            return tensor if own is None else mixed_images(tensor, own)

        return map_tensors(value, made)

    def _is_image(self, tensor: torch.Tensor, dimensions: int) -> bool:
        return tensor.dtype == torch.uint8 and tensor.dim() == dimensions and tensor.shape[-3] == self.channels

    def _no_image(self, tensors: list[torch.Tensor]) -> ValueError:
        found = ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors[:_SHOWN]) or "none"
        setting = f"normalize (channels: {self.channels})" if self.normalizes else f"dtype={self.dtype}"
        return ValueError(
            f"{setting} applies only to uint8 tensors of shape (N, {self.channels}, H, W) or ({self.channels}, H, W), "
            f"but the batch has no such tensor. Its tensors: {found}. Make uint8 images, as output='tensor' without a "
            "transform does, or convert the images in the transform."
        )

    def _image(self, tensor: torch.Tensor, mixture: Mixture | None) -> torch.Tensor:
        # Computed in float32, and rounded to `dtype` once, at the end.
        if self.normalizes:
            if self._mean.device != tensor.device:
                self._mean, self._std = self._mean.to(tensor.device), self._std.to(tensor.device)
            tensor = tensor.to(torch.float32).mul_(1 / 255).sub_(self._mean).div_(self._std)
        if mixture is not None:
            whole = tensor.dtype == torch.uint8 and self.makes_fractions
            tensor = mixed_images(tensor.to(torch.float32) if whole else tensor, mixture)
        if self.dtype is not None:
            tensor = tensor.to(self.dtype)
        if tensor.dim() == 4:
            layout = torch.channels_last if self.channels_last else torch.contiguous_format
            tensor = tensor.contiguous(memory_format=layout)
        return tensor


def _augment(images: torch.Tensor | list[torch.Tensor], operations: Operations) -> None:
    """Augment the images of a batch, or of each view, in place."""
    views = images if isinstance(images, list) else [images]
    of_views = operations.reshape(len(views[0]), len(views), -1)
    for number, view in enumerate(views):
        operate(view, of_views[:, number])


def images_of(batch: Any) -> torch.Tensor:
    """Return the images that `mix` mixes in a batch: the first four-dimensional tensor, or a dict's ``image``.

    Raises
    ------
    ValueError
        If there is no such tensor.
    """
    where = batch.get("image", batch) if isinstance(batch, Mapping) else batch
    for tensor in _tensors(where):
        if tensor.dim() == 4:
            return tensor
    raise OptionError("mix= needs a batch of (N, C, H, W) images, so all images must have the same size")


def _mean_and_std(normalize: tuple[Sequence[float], Sequence[float]]) -> list[torch.Tensor]:
    """Return mean and standard deviation as (channels, 1, 1) float32 tensors."""
    try:
        mean, std = (torch.as_tensor(values, dtype=torch.float32) for values in normalize)
    except (TypeError, ValueError, RuntimeError):
        mean = std = torch.empty(())
    sound = mean.dim() == 1 and len(mean) > 0 and mean.shape == std.shape and (std > 0).all()
    if not sound or not torch.isfinite(torch.stack([mean, std])).all():
        raise OptionError(
            "normalize must be (mean, std), each with one number for every channel and every std above 0, such as "
            f"((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), not {normalize!r}"
        )
    if mean.abs().max() > 1:
        raise OptionError(
            f"normalize must be for pixels from 0 to 1, but {normalize!r} is for 0 to 255: divide mean and std by 255"
        )
    return [mean.view(-1, 1, 1), std.view(-1, 1, 1)]


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists and dicts."""
    found: list[torch.Tensor] = []
    map_tensors(value, found.append)
    return found


def map_tensors(value: Any, function: Any) -> Any:
    """Apply `function` to every tensor in nested tuples, lists and dicts; leave everything else unchanged."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, function) for item in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def leak(*values: object) -> None:
    """Never free these objects, not even when Python ends; use this for a device's objects in a fork.

    CUDA cannot be used in a fork, and PyTorch aborts a process that destroys an event there.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(values))


def forked(process: int) -> WorkerError:
    """Return the error for an iterator that began in `process` and is used in a fork of that process.

    A fork has the objects of the process, but none of its threads, so the iterator would wait for them forever.
    """
    return WorkerError(
        f"this iterator was made in process {process}, but this process ({os.getpid()}) is a fork, which has none of "
        "its threads. Make a new iterator here with iter()."
    )


class _Wrapper:
    """Forwards the length, the epoch and the state of an iterable.

    The state describes the position after the last returned item, even if more items have already been fetched.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self.source = source
        self._state: dict[str, Any] | Exception | None = None  # set during a pass; an error is raised by `state_dict`

    def state_dict(self) -> dict[str, Any]:
        """Return the source's state after the item that was returned last.

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
        """Let the source continue at the position of a `state_dict`; raise TypeError if it cannot."""
        if not hasattr(self.source, "load_state_dict"):
            raise self._no_state()
        self._state = None
        self.source.load_state_dict(state)

    def _state_now(self) -> dict[str, Any] | Exception:
        if not hasattr(self.source, "state_dict"):
            return self._no_state()
        try:
            return self.source.state_dict()  # type: ignore[no-any-return]
        except Exception as error:  # raised only if the state is requested
            return error

    def _no_state(self) -> TypeError:
        return TypeError(
            f"{type(self.source).__name__} cannot be resumed, because it has no state_dict; a packer.Loader has one"
        )

    def _begin(self) -> Iterator[tuple[Any, Any]]:
        """Begin a pass over the source; return an iterator over pairs of an item and the state after it."""
        items = iter(self.source)
        self._state = self._state_now()
        return ((item, self._state_now()) for item in items)

    def __len__(self) -> int:
        return len(self.source)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch to the source. If the source has no `set_epoch`, pass the epoch to its sampler and
        its dataset."""
        self._state = None
        inner = [getattr(self.source, name, None) for name in ("sampler", "dataset")]
        targets: list[Any] = [self.source] if hasattr(self.source, "set_epoch") else inner
        for target in targets:
            if hasattr(target, "set_epoch"):
                target.set_epoch(epoch)


def usable_device(device: torch.device | str) -> torch.device:
    """Return a device; raise ValueError if torch cannot use it here."""
    found = torch.device(device)
    if found.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(
            f"device {str(found)!r}: torch finds no CUDA device here; with 'cpu' the script runs without one"
        )
    if found.type not in ("cpu", "cuda"):
        try:
            torch.empty(0, device=found)
        except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
            raise OptionError(
                f"device {str(found)!r}: torch cannot use it here; with 'cpu' the script runs without it"
            ) from error
    return found


class CUDAPrefetcher(_Wrapper):
    """Copies the next batch to a device and normalises it there, while the current batch is used.

    On a CUDA device the copy runs on its own stream, from pinned memory. Unpinned tensors are pinned first, on the
    thread of the loop; to avoid this, pass ``pin_memory=True`` to the source. On any other device, each batch is copied
    and normalised when it is requested. So one training script runs on all devices.

    Parameters
    ----------
    source : iterable
        Batches: tensors in nested tuples, lists and dicts. Other values are passed through unchanged.
    device : torch.device or str, optional
        By default the current CUDA device, or the CPU if there is none.
    normalize : (sequence of float, sequence of float), optional
        Mean and standard deviation of each channel, for pixels scaled to 0 to 1: images become ``(image / 255 - mean) /
        std``. A uint8 tensor of a batch contains images if its shape is (N, C, H, W), where C is the number of means,
        or 3 without `normalize`. If a batch has no tensor of four dimensions, a (C, H, W) uint8 tensor is an image.
    dtype : torch.dtype, optional
        The type of the images; by default float32 with `normalize`, otherwise uint8.
    channels_last : bool
        Whether (N, C, H, W) images are laid out channels last; otherwise they are contiguous.

    Raises
    ------
    ValueError
        If an argument is invalid or torch cannot use the device. The loop raises ValueError if a batch has no image
        that can be normalised or converted, for example because its images are floating point numbers already.
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
            # A blocking copy, because nothing here would hold the batch's memory until a non-blocking copy ends.
            yield self._normalizer(map_tensors(batch, lambda tensor: tensor.to(self.device)))
        self._state = None

    def _on_cuda(self, batches: Iterator[tuple[Any, Any]]) -> Generator[Any, None, None]:
        process = os.getpid()
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        # Batches are held here until they are copied, because torch does not track all pinned memory.
        copying: deque[tuple[Any, Any]] = deque()
        ready: tuple[Any, Any, Any] | None = None
        pinned = moved = done = None
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
                    if os.getpid() != process:
                        raise forked(process)
                ready = moved, done, state
            if ready is not None:
                yield self._hand_over(*ready)
                if os.getpid() != process:
                    raise forked(process)
            self._state = None
        finally:
            if os.getpid() == process:
                stream.synchronize()
            else:
                leak(stream, copying, ready, pinned, moved, done)

    def _hand_over(self, batch: Any, done: Any, state: Any) -> Any:
        self._state = state
        current = torch.cuda.current_stream(self.device)
        current.wait_event(done)
        # The allocator must not reuse the memory before the current stream is done with it.
        map_tensors(batch, lambda tensor: tensor.record_stream(current) if tensor.is_cuda else None)
        return batch


class BackgroundPrefetcher(_Wrapper):
    """Runs an iterable on a background thread, up to `depth` items ahead.

    An error of the iterable is raised in the loop that reads the prefetcher; leaving this loop early ends the thread.
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
        del source  # only the thread holds it, until it ends
        thread.start()
        try:
            while True:
                event, value = items.get()
                if event == "error":
                    raise value
                if event == "end":
                    self._state = None
                    return
                item, self._state = value
                yield item
                if os.getpid() != process:
                    raise forked(process)
        finally:
            if os.getpid() == process:  # a fork does not have the thread
                stopped.set()
                thread.join()


def _fetch(source: Iterator[tuple[Any, Any]], items: queue.Queue[tuple[str, Any]], stopped: threading.Event) -> None:
    """Put the items of an iterator, and its end or error, into a queue, until the reader stops."""

    def put(event: str, value: Any) -> bool:
        while not stopped.is_set():
            try:
                items.put((event, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    try:
        for item in source:
            if not put("item", item):
                return
        put("end", None)
    except BaseException as error:  # any error is raised in the loop
        put("error", error)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
