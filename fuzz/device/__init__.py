"""Fuzzing of the twin of the device's kernels."""
