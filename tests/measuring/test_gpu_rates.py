"""benchmarks/gpu.py: its rows cover every combination; it measures its table, also with the CPU as the device."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from tests.command import python
from tests.conftest import Trees

ROOT = Path(packer.__file__).parents[1]

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the repository")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[needs_cuda, pytest.mark.cuda])]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.fixture(scope="module")
def photos(trees: Trees) -> Path:
    return trees(classes=3, per_class=4, size=(270, 300))


def line(photos: Path, work: Path, *arguments: str) -> list[str]:
    """Return the arguments of the program."""
    sizes = ["--images", "12", "--batch", "8", "--epoch", "64", "--window", "0.02"]
    files = ["--json", str(work / "one.json"), "--markdown", str(work / "one.md")]
    return ["--photos", str(photos), *sizes, *files, *arguments]


def report_in(work: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((work / "one.json").read_text())
    assert (work / "one.md").read_text() == report["table"] + "\n"
    return report


def test_rows_cover_threads_processes_numbers_images_and_recipes(module: Any) -> None:
    rows = module.chosen("cuda", [1, 2, 4, 8, 16])
    assert len({row.name for row in rows}) == len(rows)
    of_loader = {(row.data, row.numbers, row.workers) for row in rows if row.loader == "packer.Loader"}
    for data in module.CONVERSIONS:
        for numbers in ("uint8", "float16"):
            for threads in ("1 thread", "2 threads", "4 threads", "8 threads", "16 threads"):
                assert (data, numbers, threads) in of_loader
    assert {workers for _, _, workers in of_loader if "process" in workers} == {
        "1 process",
        "2 processes",
        "4 processes",
        "8 processes",
        "16 processes",
    }
    loaders = " ".join(row.loader for row in rows)
    for name in ("CUDAPrefetcher", "on the device", "on the threads", "decode_jpeg", "nvImageCodec", "DALI"):
        assert name in loaders
    for row in rows:
        peer = importlib.import_module(f"peers.{row.module}")
        assert callable(peer.open_loader)
        assert peer.REQUIRES


@pytest.mark.usefixtures("prepared_processes")
@pytest.mark.parametrize("device", DEVICES)
def test_rows_are_measured_one_after_the_other(
    module: Any, photos: Path, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", device, "--minutes", "3", "--threads", "1", "--only"]
    words += ["packer.Loader, 256 px, tiled, float16, 1 thread", "RandAugment, MixUp or CutMix on the device, 256 px"]
    words += ["Prefetcher, photos, tiled, float16"]
    monkeypatch.setattr(sys, "argv", ["gpu.py", *line(photos, tmp_path, *words)])
    module.main()
    report = report_in(tmp_path)
    assert [row["loader"].partition(",")[0] for row in report["rows"]] == [
        "packer.Loader",
        "packer.Loader",
        "packer.CUDAPrefetcher",
    ]
    for row in report["rows"]:
        assert "failed" not in row, row
        assert min(row["windows"]) > 0
        assert row["images_per_second"] == sorted(row["windows"])[1]
    assert report["not_reached"] == []
    assert report["images"]["256 px, tiled"]["count"] == 12
    assert report["device"]["name"] in report["table"]
    assert report["table"].count("\n| packer.") == 3


PROGRAM = f"""
import runpy, sys
sys.path[0] = {str(ROOT / "benchmarks")!r}
runpy.run_path({str(ROOT / "benchmarks" / "gpu.py")!r}, run_name="__main__")
"""


def test_rows_that_were_not_reached_are_named(photos: Path, tmp_path: Path) -> None:
    words = ["--device", "cpu", "--minutes", "0", "--threads", "1", "--only", "Prefetcher"]
    python(PROGRAM, *line(photos, tmp_path, *words))
    report = report_in(tmp_path)
    assert report["rows"] == []
    assert len(report["not_reached"]) == 4
    assert "- not reached: packer.CUDAPrefetcher, photos, tiled, float16, 1 thread" in report["table"]


@pytest.mark.usefixtures("prepared_processes")
def test_a_row_that_fails_is_named_and_the_next_one_is_measured(module: Any, photos: Path, tmp_path: Path) -> None:
    packs = module.converted(photos, tmp_path, 12) | {module.TILED: tmp_path / "none.lmdb"}
    rows = [row for row in module.chosen("cpu", [1]) if row.loader == "packer.Loader" and row.numbers == "uint8"][:2]
    options = argparse.Namespace(device="cpu", epoch=64, images=12, batch=8, window=0.02)
    failed, measured = module.measured(rows, packs, options, time.monotonic() + 100)
    assert "none.lmdb" in failed["failed"]
    assert measured["images_per_second"] > 0
    table = module.markdown(
        {
            "machine": {"cpus": 1, "cpu": "x", "torch": "2", "python": "3"},
            "device": {"name": "x"},
            "date": "",
            "batch": 8,
            "images": {},
            "rows": [failed, measured],
        }
    )
    assert "- failed: packer.Loader, photos, tiled, uint8, 1 thread: " in table


def test_a_window_counts_its_images_and_leaves_no_thread(module: Any, photos: Path, tmp_path: Path) -> None:
    packer.convert(photos, tmp_path / "one.lmdb", progress=False)
    before = threading.active_count()
    process = module.Process("own", "cpu")
    process.open(tmp_path / "one.lmdb", 2, {"batch": 5, "times": 2})
    images, seconds = process.window(0.2)
    assert images > 24  # more than an epoch of 24, whose last batch has 4
    assert images % 24 in (0, 5, 10, 15, 20)
    assert seconds >= 0.2
    process.close()
    assert threading.active_count() == before


def test_files_of_a_pack_are_linked_under_as_many_names(module: Any, photos: Path, tmp_path: Path) -> None:
    packer.convert(photos, tmp_path / "one.lmdb", progress=False)
    tree = module.tree_of(tmp_path / "one.lmdb", 3)
    assert len([*tree.rglob("*.jpg")]) == 3 * 12
    assert sorted(folder.name for folder in tree.iterdir()) == ["class_00", "class_01", "class_02"]
