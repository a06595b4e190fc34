"""Write a wheel without a module, which pip installs in the place of a package: ``NAME==VERSION DIRECTORY``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def main() -> None:
    name, _, version = sys.argv[1].partition("==")
    members = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    folder = f"{name}-{version}.dist-info"
    members["RECORD"] = "".join(f"{folder}/{member},,\n" for member in (*members, "RECORD"))
    with zipfile.ZipFile(Path(sys.argv[2]) / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for member, text in members.items():
            wheel.writestr(f"{folder}/{member}", text)


if __name__ == "__main__":
    main()
