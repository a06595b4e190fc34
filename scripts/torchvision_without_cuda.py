"""Let torchvision be imported beside a torch without CUDA, in the environment that `scripts/setup` makes.

torchvision's wheel on the package index is built for a torch with CUDA. Beside another torch its compiled operators do
not load, and its import stops where Python implementations are registered for two of them. So these two are declared
first. Datasets, transforms and networks then work; the operators, such as nms, say that they are not there.

Run as a script, this file installs itself into the environment of the Python that runs it.
"""

import sys


class _BeforeTheRegistrations:
    """Stands among the finders of modules, waits for torchvision's registrations, and finds nothing itself.

    It stays there: a finder that left while Python goes through the finders would have the next one skipped.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision._meta_registrations" and not _declared:
            has_operators = getattr(sys.modules.get("torchvision.extension"), "_has_ops", None)
            if has_operators is not None and not has_operators():
                _declare()


def _declare():
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)  # a library that is collected takes its declarations with it


_declared = []


def install():
    """Copy this file to where Python finds it, with a line that Python runs at each start."""
    import shutil
    import sysconfig
    from pathlib import Path

    here, packages = Path(__file__), Path(sysconfig.get_path("purelib"))
    shutil.copy(here, packages)
    (packages / f"{here.stem}.pth").write_text(f"import {here.stem}\n")


if __name__ == "__main__":
    install()
else:
    sys.meta_path.insert(0, _BeforeTheRegistrations)
