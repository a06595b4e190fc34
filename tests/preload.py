"""Import the modules of processes that are forked instead of spawned, see `tests.spawn`."""

import contextlib
import gc
import importlib

gc.disable()
for module in (
    "hypothesis",
    "packer._loader.processes",
    "packer.augment",
    "packer.crops",
    "pytest",
    "tests.conftest",
    "torch.utils.data",
    "torchvision.transforms.v2",
):
    with contextlib.suppress(ImportError):  # torchvision is not everywhere
        importlib.import_module(module)

gc.collect()
gc.enable()
gc.freeze()  # so that no collection of a forked process touches, and so copies, all that was imported
