"""An unfinished conversion with other settings: the refusal lists the changed settings without their consequences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import packer
from packer._conversion.convert import conversion_settings
from packer._conversion.recipe import Recipe
from packer._conversion.resume import setting_differences
from packer.errors import recorded
from tests.sourcekinds import SOURCES

CASES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {"resize": 16}, ["resize= was not given and is now 16"]),
    ({"resize": 16}, {}, ["resize= was 16 and is now not given"]),
    ({}, {"codec": "png"}, ["codec= was keep and is now png"]),
    ({}, {"codec": "jpeg"}, ["codec= was keep and is now jpeg"]),
    ({"codec": "jpeg"}, {"resize": 20}, ["resize= was not given and is now 20"]),
    ({"resize": 16}, {"codec": "raw"}, ["codec= was jpeg and is now raw", "resize= was 16 and is now not given"]),
    ({"resize": 16}, {"resize": 24, "resize_mode": "pad"}, ["resize_mode= was short", "resize= was 16 and is now 24"]),
    ({"resize": 16}, {"resize": 16, "format": "hdf5", "exif": "apply"}, ["exif= was ignore", "the format was lmdb"]),
]


@pytest.mark.parametrize(("before", "now", "lines"), CASES)
def test_the_causes_alone_are_listed(
    before: dict[str, Any], now: dict[str, Any], lines: list[str], tmp_path: Path
) -> None:
    source, _ = SOURCES["imagefolder"](tmp_path)
    (source / "dog" / "9.png").write_bytes(b"no image")
    with pytest.raises(packer.ImageError):
        packer.convert(source, tmp_path / "pack.lmdb", **before)
    with pytest.raises(packer.ResumeError) as caught:
        packer.convert(source, tmp_path / "pack.lmdb", **now)
    _, *listed, last = str(caught.value).splitlines()
    assert "fresh=True" in last
    assert len(listed) == len(lines)
    assert all(line.strip().startswith(start) for line, start in zip(listed, lines, strict=True))


def test_a_library_is_listed_where_it_is_the_cause() -> None:
    settings = conversion_settings("lmdb", {}, Recipe("jpeg"))
    other = {**settings, "versions": {**settings["versions"], "pillow": "1.0"}}
    assert setting_differences(other, settings) == [
        f"pillow was version 1.0 and is now version {settings['versions']['pillow']}"
    ]
    without = {**settings, "versions": {"packer": settings["versions"]["packer"]}}
    assert all(" was not used and is now version " in line for line in setting_differences(without, settings))
    options = {**without, "recipe": Recipe("jpeg", exif="apply").settings()}
    assert list(map(recorded, setting_differences(options, settings))) == ["--exif was apply and is now ignore"]
