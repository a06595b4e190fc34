"""``python -m fuzz TARGET [CORPUS …] [-libfuzzer_option=…]``: fuzz one of `fuzz.targets.TARGETS`. Needs atheris."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["packer", "zipfile", "PIL"]):
    from fuzz.targets import TARGETS

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
