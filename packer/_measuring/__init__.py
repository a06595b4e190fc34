"""Measurements before and during training: time and size of a conversion, rates of loaders, waiting in a training loop.

`harness` has the common parts; `bench` and `tune` measure loaders, `estimate` a conversion, `diagnosis` a
training loop, and `doctor` the machine and its disk.
"""
