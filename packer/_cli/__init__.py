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

_ASCII = {"█": "#", "…": "..."}
"""ASCII replacements for characters that packer prints, in case the output's encoding lacks them."""

_STATUSES = [
    (PackLockedError, "locked"),
    (NotAPackError, "error"),
    (CorruptPackError, "corrupt"),
    (PackerError, "error"),
]
"""The exit status for each class of errors; the first class that fits decides."""


def _print_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print packer's version, the state of its own decoder, and the other decoders on this machine.

    If packer's own decoder is missing or limited, the reason is printed.
    """
    if asked:
        from packer._measuring.machine import libraries_on_request, libraries_that_decode

        why, others = ". ".join(filter(None, shortcoming() or ())), ", ".join(libraries_that_decode())
        if _native is None:
            click.echo(f"packer {__version__}, without its own decoder: {why}")
            click.echo(
                "images go to the first of these that supports them, with the same pixels, on x86-64 at about half "
                f"the speed: {others}"
            )
        else:
            click.echo(f"packer {__version__}, own decoder: {VECTORS or 'plain C'}{why and ', as '}{why}")
            click.echo(f"other images go to the first of these that supports them: {others}")
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
"""The environment variable of the completion script; click derives its name from the program's name."""


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
        raise click.UsageError(f"$SHELL is not one of {', '.join(_SHELLS)}: pass one of them", context)
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
    _reopen_standard_streams()
    _replace_unencodable_characters()
    warnings.showwarning = _show_warning
    _handle_signals()
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
        message = _usage_message(error) if isinstance(error, click.ClickException) else str(error)
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
    except ModuleNotFoundError as error:  # torch has no wheels for some systems, but many commands work without it
        if error.name != "torch":
            raise
        raise MissingDependencyError("this needs torch, which is not installed (pip install torch)") from error


def _reopen_standard_streams() -> None:
    """Reopen closed standard streams (``2>&-``) on the null device, so that no pack file becomes descriptor 0 to 2."""
    for name in ("stdin", "stdout", "stderr"):  # the system assigns the lowest free number: 0, 1, 2 in this order
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


def _replace_unencodable_characters() -> None:
    """Make standard streams replace characters that their encoding lacks, instead of raising an error."""
    codecs.register_error("packer", _encodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace"):
            stream.reconfigure(errors="packer")


def _encodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    spelled = (_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in text)
    return "".join(spelled), error.end


def _usage_message(error: click.ClickException) -> str:
    """Return the message for an error of click, in the form of packer's own messages."""
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
    """Return the name of a parameter in messages: ``--limit``, ``SRC``."""
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name.strip("[].")


def _command_of(error: Exception) -> str:
    """Return the command whose help explains an error."""
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
    """Print packer's own warnings as one line, and other warnings as Python does.

    `packer.errors.warn` attributes a warning to the nearest caller outside packer. On the command line, this caller is
    click.
    """
    if category.__module__.partition(".")[0] == "packer" or filename.startswith(_OWN_CODE):
        click.echo(f"packer: {_printable_lines(str(message))}", err=True)
    else:
        _warn_as_python(message, category, filename, lineno, file, line)


_OWN_CODE = tuple(os.path.join(os.path.dirname(module.__file__ or ""), "") for module in (packer, click))
_warn_as_python = warnings.showwarning


def _printable_lines(message: str) -> str:
    """Escape control characters in a message, because a message may quote arguments of the command line."""
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
"""The time after a signal in which further signals are ignored, because they would interrupt the clean-up."""


def _handle_signals() -> None:
    """End the command at SIGINT, at SIGTERM, and when the terminal is closed, unless the signal is ignored."""
    handler = _SignalHandler()
    handler.take(signal.SIGTERM)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell ignores it for background commands
        handler.take(signal.SIGINT)
    hangup = getattr(signal, "SIGHUP", None)  # sent when the terminal is closed
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:  # nohup ignores it
        handler.take(hangup)
    atexit.register(handler.end)


class _SignalHandler:
    """Handles the signals that end a command. For `_SECONDS_TO_END` after a signal, further signals have no effect."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._received = -math.inf

    def take(self, signum: int) -> None:
        self._signals.append(signum)
        signal.signal(signum, self)

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._received < _SECONDS_TO_END:
            return
        self._received = now
        raise KeyboardInterrupt if signum == signal.SIGINT else Terminated

    def end(self) -> None:
        """After a signal has ended the command, ignore further signals, which would change the exit status."""
        for signum in self._signals if self._received > -math.inf else ():
            signal.signal(signum, signal.SIG_IGN)
