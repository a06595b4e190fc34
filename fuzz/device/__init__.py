"""Fuzzing of the GPU kernels' twin, the same code compiled for the processor."""
