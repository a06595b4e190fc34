"""Measuring, before and while training: how long, how large, how fast, and where a training loop's time goes.

`harness` has the common parts; `bench` and `tune` measure loaders, `estimate` a conversion, `diagnosis` a
training loop, and `doctor` the machine and its disk.
"""
