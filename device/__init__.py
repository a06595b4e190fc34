"""Decoding of tiled JPEGs by kernels that a CUDA device and, as plain C, a processor both run.

Nothing of `packer` imports this. ``*.h`` and ``kernels.c`` are the kernels; `batch` prepares their input, `stages`
lists them in their order, `twin` and `cuda` run them.
"""
