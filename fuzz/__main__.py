"""``python -m fuzz TARGET [CORPUS …] [-libfuzzer_option=…]``: fuzz one of `fuzz.targets.TARGETS`. Needs atheris."""

from __future__ import annotations

import sys

import atheris

COMPILED = [f"packer._images.{name}" for name in ("huffman", "scans", "tokens")]

with atheris.instrument_imports(include=["packer", "zipfile", "PIL"], exclude=COMPILED):
    from fuzz.targets import TARGETS

    target = TARGETS[sys.argv.pop(1)]
    target(b"")  # imports and compiles everything that is loaded lazily

if __name__ == "__main__":
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
