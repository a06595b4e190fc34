"""Entry point of `python -m packer` and of the console script `packer`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line.

    Importing the command line's modules takes a while. Until it is done, Ctrl-C ends the process as it ends a program
    in C. Python itself would print a traceback, or ignore a Ctrl-C that comes in the middle of an import.
    """
    answer = signal.getsignal(signal.SIGINT)
    if answer is signal.default_int_handler:  # and not ignored, as in a script's background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from packer._cli import main as run

    signal.signal(signal.SIGINT, answer)
    run()


if __name__ == "__main__":  # processes that are spawned import this module too
    main()
