"""`packer completion`: prints the shell script that completes packer's commands, options and paths."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from packer._cli.panels import PanelCommand

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
