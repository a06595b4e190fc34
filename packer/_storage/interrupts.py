"""Ctrl-C held back while processes are started."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["interrupts_held"]


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back; a process that is started meanwhile never gets one, not even while it imports its modules.

    A signal that this thread blocks goes to another thread, and Python then interrupts the main thread all the same,
    which would leave a process behind that was only half started. So its handler is held back too.
    """
    held: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread() and callable(handler)
    blocking = hasattr(signal, "pthread_sigmask")
    if blocking:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which unblocks the signal when it starts its process
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if blocking else None
        try:
            yield
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    finally:
        if ours:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)
