"""Every error that packer raises on purpose.

::

    PackerError
    ├── OptionError              an argument is none that is allowed, or two do not fit together; a ValueError too
    ├── OptionTypeError          an argument is of another type than allowed; a TypeError too
    ├── NoSampleError            a dataset or a pack has no sample of an index; an IndexError too
    ├── SourceError              the images, or the list of them, cannot be used as given
    ├── DestinationError         a pack cannot be written where it was asked for
    │   ├── PackLockedError      another process is writing it
    │   └── ResumeError          an unfinished conversion there was started differently
    ├── ImageError               one image cannot be used; knows its name and the reason
    │   ├── ImageChangedError    its file is not what it was when the source was listed
    │   ├── ImageTooLargeError   its header announces more pixels than are allowed
    │   └── NotTileableError     it cannot be made a tiled JPEG
    ├── PackError                a pack cannot be read
    │   ├── CorruptPackError     it is damaged; knows the file and the index
    │   │   └── NotAPackError    it is something else, or damaged so much that it cannot be told from that
    │   ├── PackNotFoundError    there is nothing at its path; a FileNotFoundError too
    │   └── UnsupportedVersionError   a newer packer wrote it
    ├── RemoteError              an object cannot be had from where it is kept
    ├── ClusterError             a cluster cannot be used, or parts failed on it
    ├── WorkerError              a process that made batches ended before its work was done
    └── MissingDependencyError   an optional package or library is needed

Messages say what is wrong, where (the file, the sample's index and name), and what to do. They mention options by
`option`: who calls a function reads ``on_error='skip'``, and a user of the command line ``--on-error skip``.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
import traceback
import warnings

__all__ = [
    "DISTRIBUTION",
    "ClusterError",
    "CorruptPackError",
    "DestinationError",
    "ImageChangedError",
    "ImageError",
    "ImageTooLargeError",
    "MissingDependencyError",
    "NoSampleError",
    "NotAPackError",
    "NotTileableError",
    "OptionError",
    "OptionTypeError",
    "PackError",
    "PackLockedError",
    "PackNotFoundError",
    "PackerError",
    "RemoteError",
    "ResumeError",
    "SourceError",
    "UnsupportedVersionError",
    "WorkerError",
    "flag",
    "message_of",
    "option",
    "pip_install",
    "printable",
    "reason_of",
    "recorded",
    "speak_as_command_line",
    "spelled",
    "warn",
]

DISTRIBUTION = "packer-images"
"""packer's name on the package index, where another project has the name `packer`."""


def pip_install(extra: str) -> str:
    """Return the command that adds what one of packer's extras needs."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def printable(text: object) -> str:
    """Return `text` safe for one line of a terminal: control characters and lone surrogates escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


_FLAGS = {f"{name}s": f"--{name}" for name in ("field", "column", "key", "split")}
_FLAGS |= {"prefixes": "--prefix", "library": "--with"}
"""The options of the command line that are not called as the arguments of functions are."""

_MENTION = re.compile("⟨([^⟨¦⟩]*)¦([^⟨¦⟩]*)⟩")
_AS_ARGUMENT, _AS_FLAG = 1, 2  # groups of the expression

_face = _AS_ARGUMENT  # of this process: who runs in it, all its threads speak to


def reason_of(error: OSError) -> str:
    """Return the system's reason for an error as a part of a sentence: ``no such file or directory``."""
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def flag(name: str) -> str:
    """Return what the command line calls the option that is an argument `name` of functions."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def option(name: str, value: object = None) -> str:
    """Return a mention of an option, for a message.

    A mention holds both spellings, and the face that shows the message chooses: so a message may be made before
    anybody knows who reads it, in a constant, or in another process.

    Parameters
    ----------
    name : str
        The argument of functions.
    value : bool, int, str or list of str, optional
        The value that is meant. A text is as a shell takes it, in quotes where it needs them; those of a list are not.

    Returns
    -------
    str
        To be resolved by `spelled` or `recorded`; errors do that by themselves.
    """
    word = flag(name)
    if value is None:
        argument = f"{name}="
    elif isinstance(value, bool):
        argument, word = f"{name}={value}", word if value else f"--no-{word[2:]}"
    elif isinstance(value, list):
        argument, word = f"{name}={value}", " ".join(f"{word} {shlex.quote(one)}" for one in value)
    else:
        plain = "\t" if value == "tab" else value.strip("'") if isinstance(value, str) else value
        argument, word = f"{name}={plain!r}", f"{word} {value}"
    return "⟨{}¦{}⟩".format(*(re.sub("[⟨¦⟩]", "?", spelling) for spelling in (argument, word)))


def spelled(message: str) -> str:
    """Return a message with its options as the face of this process spells them."""
    return _MENTION.sub(lambda mention: mention[_face], message)


def recorded(message: str) -> str:
    """Return a message as records on a disk have it: in the words of the command line, whoever made them."""
    return _MENTION.sub(lambda mention: mention[_AS_FLAG], message)


def message_of(error: BaseException) -> str:
    """Return the message of an error with its mentions, for a record or for another process."""
    return error._message() if isinstance(error, PackerError) else str(error)


def speak_as_command_line() -> None:
    """Let this process spell options as the command line does."""
    global _face  # noqa: PLW0603
    _face = _AS_FLAG


_BETWEEN = ("packer", "torch", "multiprocessing", "concurrent", "threading")
"""Packages that call each other between a person's line and what is said about that line."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the line of the nearest caller that is neither packer nor what runs packer in a loop or a worker."""
    level, frame = 1, sys._getframe()
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:  # a worker, which nobody's line called
            level = 2
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(spelled(message), category, stacklevel=level)


class PackerError(Exception):
    """Base class of every error that packer raises on purpose.

    `str` spells the options that the message mentions; `message_of` keeps the mentions.
    """

    def __str__(self) -> str:
        return spelled(self._message())

    def __repr__(self) -> str:
        return spelled(super().__repr__())

    def _message(self) -> str:
        return super().__str__()

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in a notebook: the last lines of the caller, and the error.

        The message names file, cause and remedy, so packer's own frames only hide it. ``traceback.print_exception`` has
        all.
        """
        walked = traceback.walk_tb(self.__traceback__)
        own = [frame for frame in walked if not _is_between(frame[0].f_globals.get("__name__", ""))]
        frames = list(traceback.StackSummary.extract(iter(own[-_MOST_FRAMES:])))
        head = ["Traceback (most recent call last):\n"] if frames else []
        lines = [*head, *map(_located, frames), *traceback.format_exception_only(type(self), self)]
        return "".join(lines).splitlines()


_MOST_FRAMES = 4


def _is_between(module: str) -> bool:
    """Tell whether a module is packer's, Python's, or runs what others wrote: none is where a person's mistake is."""
    package = module.partition(".")[0]
    return package in (*_BETWEEN, "IPython", "ipykernel") or package in sys.stdlib_module_names


def _located(frame: traceback.FrameSummary) -> str:
    """Return a line of code and its place: that in a cell as IPython names cells, which are files without a meaning."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    cell = None if shell is None else shell.compile.format_code_name(frame.filename)
    if cell is None:
        return traceback.StackSummary.from_list([frame]).format()[0]
    return f"  {' '.join(cell)}, line {frame.lineno}\n    {frame.line}\n"


class OptionError(PackerError, ValueError):
    """An argument is none that is allowed; or arguments do not fit together, or one of them would decide nothing."""


class OptionTypeError(PackerError, TypeError):
    """An argument is of another type than allowed."""


class NoSampleError(PackerError, IndexError):
    """A dataset or a pack has no sample of an index."""


class SourceError(PackerError):
    """The images, or the list of them, cannot be used as given."""


class DestinationError(PackerError):
    """A pack cannot be written where it was asked for."""


class PackLockedError(DestinationError):
    """Another process is writing this pack."""


class ResumeError(DestinationError):
    """An unfinished conversion is there, and was started with other settings or another source."""


class ImageError(PackerError):
    """One image cannot be used.

    Attributes
    ----------
    name : str
        The sample's name, a path relative to the source; empty until somebody who knows it adds it.
    reason : str
        What is wrong with it, without the name; ``args[0]`` is the same with mentions of options.
    index : int or None
        Which image of the source it is, where that is known.
    """

    def __init__(self, reason: str, name: str = "") -> None:
        super().__init__(reason, name)
        self.reason = spelled(reason)
        self.name = name
        self.index: int | None = None

    def _message(self) -> str:
        reason = printable(self.args[0])
        return f"{printable(self.name)}: {reason}" if self.name else reason


class ImageChangedError(ImageError):
    """The file of an image is not what it was when the source was listed."""


class ImageTooLargeError(ImageError):
    """The header of an image announces more pixels than are allowed."""


class NotTileableError(ImageError):
    """An image cannot be made a tiled JPEG; it is kept as it is."""


class PackError(PackerError):
    """A pack cannot be read."""


class CorruptPackError(PackError):
    """A pack is damaged.

    Attributes
    ----------
    path : str
        The file or directory that is damaged.
    index : int or None
        The sample that is damaged, or None where the damage is not in one sample.
    name : str
        The sample's name, where it is known.
    """

    # A DataLoader re-raises a worker's error as `type(error)(message)`, so one argument must be enough.
    def __init__(
        self, reason: str, path: str | os.PathLike[str] = "", index: int | None = None, name: str = ""
    ) -> None:
        path = path if isinstance(path, str) else str(path)  # of a URL, what may be shown
        super().__init__(reason, path, index, name)
        self.reason = reason
        self.path = path
        self.index = index
        self.name = name

    def _message(self) -> str:
        reason = printable(self.reason)  # which may quote the pack
        if not self.path:
            return reason
        if self.index is None:
            return f"{printable(self.path)}: {reason}"
        name = f" ({printable(self.name)})" if self.name else ""
        return f"{printable(self.path)}, sample {self.index}{name}: {reason}. `packer verify` lists all damage."


class NotAPackError(CorruptPackError):
    """The file or directory is not a pack, or is damaged where it says so, which nobody can tell apart."""


class PackNotFoundError(PackError, FileNotFoundError):
    """There is nothing at the path of a pack."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.ENOENT


class UnsupportedVersionError(PackError):
    """A pack was written by a newer packer than this one."""


class RemoteError(PackerError):
    """An object cannot be had from where it is kept; the message names the object, without secrets, and the remedy."""


class ClusterError(PackerError):
    """A cluster cannot be used, or parts of a conversion failed on it."""


class WorkerError(PackerError):
    """A process that made a loader's batches ended before its work was done."""


class MissingDependencyError(PackerError):
    """An optional package or library is needed; the message says how to install it."""
