"""Progress bars: ``progress=True`` shows a tqdm bar on a terminal or in a notebook, and none in a log."""

from __future__ import annotations

import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

from packer._display import in_notebook
from packer._storage.remote.urls import is_url, redacted
from packer.errors import OptionTypeError, printable

_C = TypeVar("_C", bound=Callable[..., None])
_OF_SECONDS = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt} s{postfix}"


def shown_progress(progress: _C | bool | None, what: str | os.PathLike[str], unit: str = "img") -> _C | None:
    """Return the callback for the argument `progress`.

    Parameters
    ----------
    progress : callable, bool or None
        True asks for a bar, in a notebook and on a terminal; False and None ask for nothing; a callable is returned as
        it is.
    what : str or path
        The bar's subject, such as the pack that is written.
    unit : {"img", "files", "B", "s"}
        The unit in which the callback counts.

    Raises
    ------
    TypeError
        If `progress` is of another type.
    """
    if progress is None or progress is False:
        return None
    if progress is True:
        if not in_notebook() and not sys.stderr.isatty():  # a log would get a line for each step
            return None
        name = redacted(what) if is_url(what) else os.path.normpath(what)
        return cast(_C, _Bar(os.path.basename(name), unit))
    if not callable(progress):
        raise OptionTypeError(f"progress must be True, False or a callable, not {progress!r}")
    return progress


class _Bar:
    """A bar that can serve as any of packer's progress callbacks, which take one object, two numbers, or three values.

    The bar ends at the last image, at the next phase, or at an error.
    """

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = printable(what), unit
        self._bar: Any = None
        self._ended: tuple[str, int | None] | None = None

    def __call__(self, *arguments: Any) -> None:
        if len(arguments) == 1:  # a ConversionProgress
            (now,) = arguments
            self._show(self._what, now.done, now.total, {"skipped": now.skipped} if now.skipped else {})
        elif len(arguments) == 2:
            self._show(self._what, *arguments)
        elif isinstance(arguments[0], str):  # of an estimate: the step, and its progress
            what, done, total = arguments
            self._show(printable(what), done, total)
        else:
            passed, seconds, now = arguments
            self._show(self._what, round(min(passed, seconds)), round(seconds), {"now": printable(now)})

    def _show(self, what: str, done: int, total: int | None, notes: dict[str, Any] | None = None) -> None:
        if self._bar is not None and (self._bar.desc.rstrip(": ") != what or done < self._bar.n):
            self._close()
        if self._bar is None:
            if self._ended == (what, total) and done >= (total or 0):
                return
            self._bar = _automatic_bar()(
                desc=what,
                total=total or None,
                unit=self._unit,
                unit_scale=self._unit == "B",
                bar_format=_OF_SECONDS if self._unit == "s" else None,
            )
        self._bar.set_postfix(notes or {}, refresh=False)
        self._bar.update(done - self._bar.n)
        if total and done >= total:
            self._close()
            self._ended = what, total

    def _close(self) -> None:
        self._bar.close()
        self._bar = None


def _automatic_bar() -> Any:
    with warnings.catch_warnings():  # a notebook without ipywidgets gets the bar of a terminal, which needs no remark
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

        return bars_of_this_process(tqdm)


@functools.cache
def bars_of_this_process(kind: Any) -> Any:
    """Return a tqdm class with a lock and a refreshing thread that belong to this process alone.

    By default tqdm guards its bars with a semaphore that forked children share. A child that is killed while it closes
    its copy of a bar keeps the semaphore, and the next bar of the parent waits for it forever. packer's measurements
    kill children.
    """
    own: Any = type("Bar", (kind,), {"monitor_interval": 0})
    own.set_lock(threading.RLock())
    return own
