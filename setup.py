"""The compiled part of packer; all else that there is to say of the package stands in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup

# One binary for every Python from 3.10 on. Python without its lock has no such interface.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "packer.images._cutting",
            ["packer/images/_cutting.c"],
            define_macros=[("Py_LIMITED_API", "0x030A0000")] if LIMITED else [],
            py_limited_api=LIMITED,
            optional=True,  # without a compiler, packer/images/cutting.py does the same
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp310"}} if LIMITED else {},
)
