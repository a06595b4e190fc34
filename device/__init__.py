"""Decoding of tiled JPEGs by kernels that a CUDA device and, as plain C, a processor both run.

Nothing of `packer` imports this. ``*.h`` and ``kernels.c`` are the kernels; `batch` says what they work on, `stages` in which
order they run, `twin` and `cuda` run them.
"""
