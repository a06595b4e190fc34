"""What is done to the images of a whole batch when they are decoded, by the threads of a Loader.

A transform of other people's gets the batch; then the images become numbers, and are mixed, in C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from packer._images.numbers import Mixture, Numbers, writer
from packer._images.operations import Operations
from packer._loading.drawing import drawing_from
from packer._loading.memory import Layout

__all__ = ["BatchTransform", "Ending", "after", "numbering", "transformed"]

BatchTransform = Callable[[Any], Any] | None


class Ending(NamedTuple):
    """What is left to do with a batch when its images are decoded: by threads, or by who has the batch then.

    Attributes
    ----------
    mixture : Mixture, optional
        What the images are mixed by, when they are numbers; labels are mixed by the same.
    seed : int, optional
        The seed of the random numbers that a transform of the batch draws; None without such a transform.
    operations : Operations, optional
        What is left to do to each image, where threads do not do it.
    """

    mixture: Mixture | None = None
    seed: int | None = None
    operations: Operations | None = None

    def of_threads(self, layout: Layout) -> Ending | None:
        """Return what threads do, which need the whole batch for it; None where they take each image by itself."""
        mixture = self.mixture if layout.numbers is not None else None
        return None if mixture is None and self.seed is None else Ending(mixture, self.seed)


def numbering(
    layout: Layout, memory: Mapping[str, torch.Tensor], mixture: Mixture | None = None
) -> Callable[[slice], None]:
    """Return what lets some images of a batch, which are still levels, become numbers, on any thread."""
    if not isinstance(layout.numbers, Numbers):  # a table is used when an image is decoded
        return _nothing
    writers = [
        writer(layout.numbers, levels, numbers, mixture) for levels, numbers in layout.levels_and_numbers(memory)
    ]

    def write(some: slice) -> None:
        for write_some in writers:
            write_some(some)

    return write


def _nothing(some: slice) -> None:
    """Leave images as they are."""


def transformed(transform: BatchTransform, images: torch.Tensor, seed: int | None) -> None:
    """Let a transform change a batch of images in place.

    Raises
    ------
    ValueError
        If it gives something else than as many uint8 images of the same size.
    """
    if transform is None or seed is None:
        return
    with drawing_from(seed):
        made = transform(images)
    if not isinstance(made, torch.Tensor) or made.dtype != torch.uint8 or made.shape != images.shape:
        what = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, torch.Tensor) else f"{made!r:.80}"
        raise ValueError(
            f"batch_transform gets {tuple(images.shape)} uint8 images and gives as many of that size, uint8, not {what}"
            ": crop= decides on the size, and normalize= and dtype= convert what the transform gives"
        )
    if made.data_ptr() != images.data_ptr() or made.stride() != images.stride():
        same_memory = made.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
        images.copy_(made.clone() if same_memory else made)  # such as images that are transposed without a copy


def after(tasks: Sequence[Future[Any]], begin: Callable[[], Sequence[Future[Any]]]) -> Future[list[Any]]:
    """Return a future that is done when what `begin` begins is done, which comes when all tasks are done.

    It has no results of its own. Where a task fails or is cancelled, nothing is begun.
    """
    whole: Future[list[Any]] = Future()
    left = [begin]  # `begin` holds the memory of a batch, and is let go of: futures hold what they call

    def start(failed: BaseException | None, cancelled: bool) -> None:
        begin = left.pop()
        if not whole.set_running_or_notify_cancel():
            return
        try:
            begun = [] if failed is not None or cancelled else begin()
        except BaseException as error:
            failed, begun = error, []
        _when_all(begun, lambda error, _: _settle(whole, failed or error))

    _when_all(tasks, start)
    return whole


def _settle(whole: Future[list[Any]], error: BaseException | None) -> None:
    if error is None:
        whole.set_result([])
    else:
        whole.set_exception(error)


def _when_all(tasks: Sequence[Future[Any]], call: Callable[[BaseException | None, bool], None]) -> None:
    """Call, when all tasks are done, with the first error of one, if any, and whether one was cancelled."""
    if not tasks:
        call(None, False)
        return
    lock, left, cancelled, failed = threading.Lock(), len(tasks), False, None

    def done(task: Future[Any]) -> None:
        nonlocal left, cancelled, failed
        with lock:
            left -= 1
            if task.cancelled():
                cancelled = True
            else:
                failed = failed or task.exception()
            if left:
                return
        call(failed, cancelled)

    for task in tasks:
        task.add_done_callback(done)
