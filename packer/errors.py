"""Every error that packer raises on purpose.

::

    PackerError
    ├── OptionError              an argument has an invalid value, or contradicts another one; also a ValueError
    ├── OptionTypeError          an argument has a wrong type; also a TypeError
    ├── NoSampleError            an index is out of range; also an IndexError
    ├── SourceError              the images or their list cannot be used
    ├── DestinationError         a pack cannot be written to its destination
    │   ├── DestinationOptionError   its name or its size of shards cannot be used; also an OptionError
    │   ├── PackLockedError      another process is writing the pack
    │   └── ResumeError          an unfinished conversion was started with other settings or another source
    ├── ImageError               one image cannot be used; has its name and the reason
    │   ├── ImageChangedError    its file has changed since the source was listed
    │   ├── ImageTooLargeError   its header announces more pixels than are allowed
    │   └── NotTileableError     it cannot be converted to a tiled JPEG
    ├── PackError                a pack cannot be read
    │   ├── CorruptPackError     it is damaged; has the file and the index
    │   │   └── NotAPackError    it is not a pack, or too damaged to be recognised as one
    │   ├── PackNotFoundError    its path does not exist; also a FileNotFoundError
    │   └── UnsupportedVersionError   it was written by a newer packer
    ├── RemoteError              an object cannot be fetched from its store
    ├── ClusterError             a cluster cannot be used, or parts failed on it
    ├── WorkerError              a process that makes batches ended early
    └── MissingDependencyError   an optional package or library is missing

Messages name the problem, the place (the file, the sample's index and name), and the remedy. The function `option`
mentions an option in a message: callers of functions then read ``on_error='skip'``, and users of the command line read
``--on-error skip``.
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
    "DestinationOptionError",
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
"""packer's name on the Python Package Index, where `packer` is the name of another project."""


def pip_install(extra: str) -> str:
    """Return the command that installs packer with an extra, a group of optional dependencies."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def printable(text: object) -> str:
    """Escape control characters and lone surrogates, so that a terminal shows `text` safely on one line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(text))


_FLAGS = {f"{name}s": f"--{name}" for name in ("field", "column", "key", "split")}
_FLAGS |= {"prefixes": "--prefix", "library": "--with"}
"""Arguments of functions whose options on the command line have other names, and the names of these options."""

_MENTION = re.compile("⟨([^⟨¦⟩]*)¦([^⟨¦⟩]*)⟩")
_AS_ARGUMENT, _AS_FLAG = 1, 2  # groups of `_MENTION`

_face = _AS_ARGUMENT  # the spelling in this process, for all threads


def reason_of(error: OSError) -> str:
    """Return the system's reason for an error, in a form that continues a sentence: ``no such file or directory``."""
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def flag(name: str) -> str:
    """Return the command-line option that corresponds to the argument `name` of packer's functions."""
    return _FLAGS.get(name, "--" + name.replace("_", "-"))


def option(name: str, value: object = None) -> str:
    """Return a text that mentions an option in a message.

    The text (a mention) contains both spellings of the option: ``on_error='skip'`` for functions, and ``--on-error
    skip`` for the command line. The spelling is chosen only when the message is shown. So the code that makes a message
    need not know whether a function or the command was called; it may even run in another process.

    Parameters
    ----------
    name : str
        The name of the argument.
    value : bool, int, str or list of str, optional
        The value to mention. Pass a string with the quotes that a shell needs, or a list of strings without quotes.

    Returns
    -------
    str
        The mention. In a message, `spelled` and `recorded` replace the mention by one spelling; errors do so themselves
        when they are shown.
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
    """Return a message in which options have the spelling that this process uses."""
    return _MENTION.sub(lambda mention: mention[_face], message)


def recorded(message: str) -> str:
    """Return a message in a form to store in a file: options have the spelling of the command line."""
    return _MENTION.sub(lambda mention: mention[_AS_FLAG], message)


def message_of(error: BaseException) -> str:
    """Return the message of an error with both spellings of each option, for another process or a file."""
    return error._message() if isinstance(error, PackerError) else str(error)


def speak_as_command_line() -> None:
    """Make this process spell options like the command line in messages."""
    global _face  # noqa: PLW0603
    _face = _AS_FLAG


_BETWEEN = ("packer", "torch", "multiprocessing", "concurrent", "threading")
"""A warning names a line of the user's code. The search for this line skips frames of these packages."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the line in the user's code, not in packer or a library that calls it."""
    level, frame = 1, sys._getframe()
    while frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        if frame.f_back is None:  # this is a worker, so no line of the user's code is on the stack
            level = 2
            break
        level, frame = level + 1, frame.f_back
    warnings.warn(spelled(message), category, stacklevel=level)


class PackerError(Exception):
    """Base class of every error that packer raises on purpose.

    Messages spell options in two ways: ``on_error='skip'`` for functions, and ``--on-error skip`` for the command line.
    `str` of an error contains the spelling that this process uses; `message_of` returns both spellings.
    """

    def __str__(self) -> str:
        return spelled(self._message())

    def __repr__(self) -> str:
        return spelled(super().__repr__())

    def _message(self) -> str:
        return super().__str__()

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in a notebook: the last lines of the caller, and the error.

        The message names the file, the cause and the remedy, and packer's own frames would only hide the message.
        ``traceback.print_exception`` prints all frames.
        """
        walked = traceback.walk_tb(self.__traceback__)
        own = [frame for frame in walked if not _is_between(frame[0].f_globals.get("__name__", ""))]
        frames = list(traceback.StackSummary.extract(iter(own[-_MOST_FRAMES:])))
        head = ["Traceback (most recent call last):\n"] if frames else []
        lines = [*head, *map(_located, frames), *traceback.format_exception_only(type(self), self)]
        return "".join(lines).splitlines()


_MOST_FRAMES = 4


def _is_between(module: str) -> bool:
    """Tell whether a module belongs to packer, to Python, or to a library that runs the user's code."""
    package = module.partition(".")[0]
    return package in (*_BETWEEN, "IPython", "ipykernel") or package in sys.stdlib_module_names


def _located(frame: traceback.FrameSummary) -> str:
    """Return a line of code and its location: the file, or IPython's name for a notebook cell."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    cell = None if shell is None else shell.compile.format_code_name(frame.filename)
    if cell is None:
        return traceback.StackSummary.from_list([frame]).format()[0]
    return f"  {' '.join(cell)}, line {frame.lineno}\n    {frame.line}\n"


class OptionError(PackerError, ValueError):
    """An argument has an invalid value or no effect, or arguments contradict each other."""


class OptionTypeError(PackerError, TypeError):
    """An argument has a wrong type."""


class NoSampleError(PackerError, IndexError):
    """An index is out of range in a dataset or a pack."""


class SourceError(PackerError):
    """The images or their list cannot be used."""


class DestinationError(PackerError):
    """A pack cannot be written to its destination."""


class DestinationOptionError(DestinationError, OptionError):
    """The name of a destination, or a setting of its format, cannot be used by any conversion."""


class PackLockedError(DestinationError):
    """Another process is writing this pack."""


class ResumeError(DestinationError):
    """An unfinished conversion exists that was started with other settings or another source."""


class ImageError(PackerError):
    """One image cannot be used.

    Attributes
    ----------
    name : str
        The sample's name, a path relative to the source; empty until a caller adds the name.
    reason : str
        The reason, without the sample's name. ``args[0]`` is the same text, but with both spellings of each option, for
        functions and for the command line.
    index : int or None
        The index of the image in the source, if it is known.
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
    """The file of an image has changed since the source was listed."""


class ImageTooLargeError(ImageError):
    """The header of an image announces more pixels than are allowed."""


class NotTileableError(ImageError):
    """An image cannot be converted to a tiled JPEG; it keeps its bytes."""


class PackError(PackerError):
    """A pack cannot be read."""


class CorruptPackError(PackError):
    """A pack is damaged.

    Attributes
    ----------
    path : str
        The damaged file or directory.
    index : int or None
        The index of the damaged sample, or None if the damage is not in one sample.
    name : str
        The sample's name, if it is known.
    """

    # torch's DataLoader raises a worker's error again as `type(error)(message)`, so one argument must be enough.
    def __init__(
        self, reason: str, path: str | os.PathLike[str] = "", index: int | None = None, name: str = ""
    ) -> None:
        path = path if isinstance(path, str) else str(path)  # a URL is converted without its secrets
        super().__init__(reason, path, index, name)
        self.reason = reason
        self.path = path
        self.index = index
        self.name = name

    def _message(self) -> str:
        reason = printable(self.reason)  # because the reason may quote text from the pack
        if not self.path:
            return reason
        if self.index is None:
            return f"{printable(self.path)}: {reason}"
        name = f" ({printable(self.name)})" if self.name else ""
        return f"{printable(self.path)}, sample {self.index}{name}: {reason}. `packer verify` lists all damage."


class NotAPackError(CorruptPackError):
    """The file or directory is not a pack, or is too damaged to be recognised as one."""


class PackNotFoundError(PackError, FileNotFoundError):
    """The path of a pack does not exist."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.ENOENT


class UnsupportedVersionError(PackError):
    """A pack was written by a newer version of packer."""


class RemoteError(PackerError):
    """An object cannot be fetched from its store; the message names the object, without secrets, and the remedy."""


class ClusterError(PackerError):
    """A cluster cannot be used, or parts of a conversion failed on it."""


class WorkerError(PackerError):
    """A process that makes batches for a loader ended early."""


class MissingDependencyError(PackerError):
    """An optional package or library is missing; the message has the command that installs it."""
