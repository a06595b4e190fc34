"""The compiled part of packer; all else that there is to say of the package stands in pyproject.toml."""

import os
import sysconfig

from setuptools import Extension, setup

CUTTING = Extension(
    "packer.images._cutting",
    ["packer/images/_cutting.c"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],  # one binary for every Python from 3.10 on
    py_limited_api=True,
    # Without a compiler, packer/images/cutting.py does the same. A wheel for others is built with PACKER_COMPILED=1.
    optional=not os.environ.get("PACKER_COMPILED"),
)

if sysconfig.get_config_var("Py_GIL_DISABLED"):  # Python without its lock has no such interface
    setup()
else:
    setup(ext_modules=[CUTTING], options={"bdist_wheel": {"py_limited_api": "cp310"}})
