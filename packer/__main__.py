"""Entry point of `python -m packer` and of the console script `packer`."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line.

    It takes a while to import the modules of the command line. Until they are imported, Ctrl-C ends the process at
    once, like a program in C. Python itself would print a traceback, or ignore a Ctrl-C in the middle of an import.
    """
    answer = signal.getsignal(signal.SIGINT)
    if answer is signal.default_int_handler:  # not if Ctrl-C is ignored, as in the background of a shell script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from packer._cli import main as run

    signal.signal(signal.SIGINT, answer)
    run()


if __name__ == "__main__":  # not in processes that multiprocessing spawns, which import this module too
    main()
