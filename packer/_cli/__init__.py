"""The command line: parses arguments, calls the library, prints results, and turns errors into exit statuses."""

from __future__ import annotations

import atexit
import codecs
import io
import math
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from types import FrameType
from typing import TextIO

import click
from click.shell_completion import get_completion_class

import packer
from packer._cli.cache import cache_commands, stage_command, unstage_command, warm_command
from packer._cli.convert import convert_command, scan_command
from packer._cli.inspect import info_command, verify_command, view_command
from packer._cli.manage import append_command, export_command, index_command, merge_command
from packer._cli.measure import bench_command, doctor_command, estimate_command, tune_command
from packer._cli.options import PanelCommand, PanelGroup, did_you_mean
from packer._cli.output import DISK_IS_FULL, EXIT_STATUS, NOBODY_READS, Interrupted, Terminated
from packer._images.extension import VECTORS, _native, shortcoming
from packer._version import __version__
from packer.errors import (
    CorruptPackError,
    MissingDependencyError,
    NotAPackError,
    OptionError,
    PackerError,
    PackLockedError,
    printable,
    reason_of,
    speak_as_command_line,
)

__all__ = ["EXIT_STATUS", "main"]

_PLAIN = {"█": "#", "…": "..."}
"""What stands for the characters of packer's own that an encoding may not have."""

_STATUSES = [
    (PackLockedError, "locked"),
    (NotAPackError, "error"),
    (CorruptPackError, "corrupt"),
    (PackerError, "error"),
]
"""How a command ends by an error: the first kind that fits."""


def _print_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print packer's version and the decoders here: packer's own, or why it is missing, and the libraries."""
    if asked:
        from packer._measuring.machine import libraries_on_request, libraries_that_decode

        why, others = ". ".join(filter(None, shortcoming() or ())), ", ".join(libraries_that_decode())
        if _native is None:
            click.echo(f"packer {__version__}, without its own decoder: {why}")
            click.echo(
                f"the same pixels, on x86-64 at about half the speed, come from the first that takes it: {others}"
            )
        else:
            click.echo(f"packer {__version__}, own decoder: {VECTORS or 'plain C'}{why and ', as '}{why}")
            click.echo(f"what it leaves goes to the first that takes it: {others}")
        if on_request := libraries_on_request():
            click.echo(f"on request: {', '.join(on_request)}")
        context.exit()


@click.group(cls=PanelGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version of packer and of the decoders that it can use.",
)
def cli() -> None:
    """Convert image folders to single files that PyTorch reads several times faster, with the same pixels.

    \b
      packer convert photos train.lmdb --resize 256
      packer view train.lmdb
      packer bench photos train.lmdb
    """


_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_PACKER_COMPLETE"
"""The variable in which the script passes a request: click derives this name from the program's."""


@click.command("completion", cls=PanelCommand)
@click.argument("shell", type=click.Choice(_SHELLS), metavar="[bash|zsh|fish]", required=False)
@click.pass_context
def completion_command(context: click.Context, shell: str | None) -> None:
    """Print a script that completes packer's commands in the shell.

    Without an argument, the script is for the shell that $SHELL names. Add the line for your shell to its start-up file:

    \b
      ~/.bashrc                    eval "$(packer completion bash)"
      ~/.zshrc                     eval "$(packer completion zsh)"
      ~/.config/fish/config.fish   packer completion fish | source
    """
    name = Path(os.environ.get("SHELL", "")).name if shell is None else shell
    kind = get_completion_class(name) if name in _SHELLS else None
    if kind is None:
        raise click.UsageError(f"$SHELL names none of {', '.join(_SHELLS)}: pass one of them", context)
    click.echo(kind(context.find_root().command, {}, "packer", _VARIABLE).source())


cli.add_panel(
    "Pack images",
    [convert_command, index_command, scan_command, append_command, merge_command, export_command],
)
cli.add_panel("Look at packs", [info_command, verify_command, view_command])
cli.add_panel("Read from a fast disk", [stage_command, unstage_command, warm_command, cache_commands])
cli.add_panel("Measure", [estimate_command, bench_command, tune_command, doctor_command])
cli.add_panel("Shell", [completion_command])


def main() -> None:
    """Run the command line and exit with its status."""
    speak_as_command_line()
    _open_what_is_closed()
    _spell_out_what_cannot_be_encoded()
    warnings.showwarning = _show_warning
    _answer_signals()
    try:
        status = _run_command()
        sys.exit(status if isinstance(status, int) else EXIT_STATUS["ok"])
    except click.exceptions.Exit as exit:
        sys.exit(exit.exit_code)
    except (KeyboardInterrupt, click.Abort, Interrupted) as error:
        _end(f"interrupted{error}", "sigint")
    except Terminated as error:
        _end(f"terminated{error}", "sigterm")
    except (click.ClickException, OptionError) as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # of click 8.2 and later: the message is the help
            click.echo(str(error), err=True)
            sys.exit(EXIT_STATUS["usage"])
        message = _mistake(error) if isinstance(error, click.ClickException) else str(error)
        _end(f"{message}\nTry `{_command_of(error)} --help`.", "usage")
    except PackerError as error:
        _end(str(error), next(status for kind, status in _STATUSES if isinstance(error, kind)))
    except OSError as error:
        if error.filename is not None:
            _end(f"{printable(error.filename)}: {reason_of(error)}", "error")
        if error.errno not in (*NOBODY_READS, *DISK_IS_FULL):
            raise
        _discard(sys.stdout)
        if error.errno in DISK_IS_FULL:
            _end(
                f"the output cannot be written: {error.strerror}. Free some space, or write it to another disk.",
                "error",
            )
        sys.exit(EXIT_STATUS["error"])


def _run_command() -> object:
    try:
        return cli.main(prog_name="packer", standalone_mode=False)
    except ModuleNotFoundError as error:  # torch has no wheels for some systems, where much works without it
        if error.name != "torch":
            raise
        raise MissingDependencyError("this needs torch, which is not installed (pip install torch)") from error


def _open_what_is_closed() -> None:
    """Reopen closed standard streams (``2>&-``) on the null device, so that no pack file becomes descriptor 0 to 2."""
    for name in ("stdin", "stdout", "stderr"):  # 0, 1, 2: the lowest number that is free is given
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


def _spell_out_what_cannot_be_encoded() -> None:
    """Replace characters that the encoding of the terminal or of a file lacks, instead of failing."""
    codecs.register_error("packer", _spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace"):
            stream.reconfigure(errors="packer")


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    spelled = (_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text)
    return "".join(spelled), error.end


def _mistake(error: click.ClickException) -> str:
    """Return the message for a word of the command line that click refuses, in the form of packer's own messages."""
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{_name_of(error.param)} is missing"
    if isinstance(error, click.NoSuchOption):
        return f"{error.option_name}: no such option{did_you_mean(error.option_name, error.possibilities)}"
    message = error.message.removesuffix(".")
    if isinstance(error, click.BadParameter) and error.param is not None:
        return f"{_name_of(error.param)}: {message[:1].lower()}{message[1:]}"
    if isinstance(error, click.BadOptionUsage):
        return f"{error.option_name}: {message.removeprefix(f'Option {error.option_name!r} ')}"
    return message


def _name_of(parameter: click.Parameter) -> str:
    """Return the word for a parameter in messages: ``--limit``, ``SRC``."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name.strip("[].")


def _command_of(error: Exception) -> str:
    """Return the command whose help explains what an error is about."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        return context.command_path
    command: click.Command = cli
    path = ["packer"]
    for word in sys.argv[1:]:
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
            path.append(word)
    return " ".join(path)


def _show_warning(  # noqa: PLR0917 - as Python calls it
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of packer as a line, and any other as Python does.

    `packer.errors.warn` blames the nearest caller outside of packer, which is click unless other code called packer.
    """
    if category.__module__.partition(".")[0] == "packer" or filename.startswith(_OWN_CODE):
        click.echo(f"packer: {_printable_lines(str(message))}", err=True)
    else:
        _warn_as_python(message, category, filename, lineno, file, line)


_OWN_CODE = tuple(os.path.join(os.path.dirname(module.__file__ or ""), "") for module in (packer, click))
_warn_as_python = warnings.showwarning


def _printable_lines(message: str) -> str:
    """Return a message without the control characters that words of the command line may have brought into it."""
    return "\n".join(map(printable, message.split("\n")))


def _end(message: str, status: str) -> None:
    try:
        click.echo(f"packer: {_printable_lines(message)}", err=True)
    except OSError as error:
        if error.errno not in NOBODY_READS:
            raise
        _discard(sys.stderr)
    sys.exit(EXIT_STATUS[status])


def _discard(stream: TextIO) -> None:
    """Discard all further output to `stream`."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_SECONDS_TO_END = 2.0
"""After a signal, further ones are ignored for so long: they would interrupt what the first one made clean up."""


def _answer_signals() -> None:
    """End the command at SIGINT, at SIGTERM, and when the terminal is closed; but not at a signal that is ignored."""
    answer = _Answer()
    answer.take(signal.SIGTERM)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not in the background of a script
        answer.take(signal.SIGINT)
    hangup = getattr(signal, "SIGHUP", None)  # the terminal was closed
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:  # and not started by nohup
        answer.take(hangup)
    atexit.register(answer.end)


class _Answer:
    """The handler of all signals that end a command. One that comes later than `_SECONDS_TO_END` counts again."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._answered = -math.inf

    def take(self, signum: int) -> None:
        self._taken.append(signum)
        signal.signal(signum, self)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._answered < _SECONDS_TO_END:
            return
        self._answered = now
        raise KeyboardInterrupt if signum == signal.SIGINT else Terminated

    def end(self) -> None:
        """Ignore what follows a signal: while Python unloads its modules, it would replace the exit status."""
        for signum in self._taken if self._answered > -math.inf else ():
            signal.signal(signum, signal.SIG_IGN)
