"""`packer bench`: all ways of reading a tree and a pack in one run, as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image

from packer import (
    Benchmark,
    CorruptPackError,
    MissingDependencyError,
    OptionError,
    PackNotFoundError,
    Rate,
    SourceError,
    bench,
)
from packer._cli import EXIT_STATUS, cli
from packer._conversion.convert import convert
from packer._measuring import bench as module
from packer._measuring.bench import RECIPES, _drawn, _up_to, plot, ways
from packer._measuring.loaders import SIDES, RecipeSteps, RepeatedEpochs, read_recipe, steps_of
from packer._sources.base import spread_indices
from packer._sources.imagefolder import imagefolder_source
from packer.testing.photos import draw_imagefolder
from tests.command import packer
from tests.remote.fileserver import FilesOfThisMachine, Served
from tests.samples import write_pack
from tests.storage.remote.objects import serving

RECIPE = """
import torch
print("what a recipe prints is in nobody's way")

def loader(path, threads):
    return torch.utils.data.DataLoader([(torch.zeros(3, 8, 8, dtype=torch.uint8), 1)] * 20, 5)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bench")
    draw_imagefolder(root / "tree", classes=2, per_class=8, size=(32, 40))
    convert(imagefolder_source(root / "tree"), root / "pack.lmdb")
    (root / "mine.py").write_text(RECIPE)
    return root


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SHORTEST", 0.02)


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    """Restore torch's threads and the warnings, which a side changes."""
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("tree", "ImageFolder, DataLoader"),
        ("tree", "Loader, in place"),
        ("pack.lmdb", "DataLoader"),
        ("pack.lmdb", "Loader"),
        ("pack.lmdb", "limit"),
        ("pack.lmdb", "recipe"),
    ],
)
def test_every_way_reads_the_same_samples_again_and_again(root: Path, name: str, way: str) -> None:
    try:
        reading = RepeatedEpochs(way, str(root / name), 4, 12, str(root / "mine.py"))
    except ImportError:
        pytest.skip("torchvision is not installed")
    if way != "recipe":
        sizes = [path.stat().st_size for path in sorted((root / "tree").rglob("*.jpg"))]
        expected = 12, sum(sizes[index] for index in spread_indices(12, len(sizes)))
        assert [reading.describe() for _ in range(2)] == [expected] * 2
    samples, seconds = reading.read(1, 0.01)
    assert samples >= (8 if way == "limit" else 12)  # the samples of loaders are counted only after two batches of 4
    assert seconds >= 0.01


@pytest.mark.usefixtures("prepared_processes")  # which are forked for this process only
def test_the_command_measures_a_tree_and_draws_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    options = ["--batch", "4", "--images", "12", "--threads", "1", "--seconds", "0.1", "--plot", "rates", "--json"]
    cli.main(["bench", "tree", *options, "--recipe", "mine.py"], standalone_mode=False)
    measured = json.loads(capsys.readouterr().out)
    sides = {"tree: ImageFolder, DataLoader", "tree: Loader, in place", "tree: mine.py"}
    assert {rate["side"] for rate in measured["rates"]} | set(measured["skipped"]) == sides
    assert set(measured["skipped"]) <= {"tree: ImageFolder, DataLoader"}  # where torchvision is not installed
    for rate in measured["rates"]:
        assert rate["median"] > 0
        assert rate["threads"] == 1
        assert len(rate["rates"]) == measured["rounds"] == 1
    assert measured["images"] == {"tree": 12}
    with Image.open(root / "rates.png") as picture:
        assert picture.width > 1000
    assert (root / "rates.svg").read_text("utf-8").startswith("<?xml")


def test_the_ways_of_a_pack_have_its_name_and_kind(root: Path) -> None:
    names = [way.name for way in ways({"p.lmdb": str(root / "pack.lmdb")}, None)]
    assert names == [f"p.lmdb: {way}" for way in ("DataLoader", "Loader", "Loader, processes", "limit")]
    assert [_up_to(cpus) for cpus in (1, 2, 6, 64)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8, 16, 32, 64]]


def benchmark(counts: tuple[int, ...], **rates: float) -> Benchmark:
    made = [
        Rate(name, "limit" if name == "limit" else "Loader", "p", count, (0.9 * rate * count, rate * count), None)
        for name, rate in rates.items()
        for count in counts
    ]
    return Benchmark(tuple(made), {}, {"p": 9}, {"p": 1.0}, 64, 2, 1.0, {"processor": "one", "cpus": "8"})


def test_the_picture_begins_at_zero_and_names_every_line() -> None:
    (axes,) = _drawn(benchmark((1, 2, 8, 64), first=100.0, second=101.0, limit=120.0)).axes
    assert axes.get_ylim()[0] == axes.get_xlim()[0] == 0
    assert axes.get_ylim()[1] > 120 * 64
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "8", "64"]  # 1 would overlap 2
    texts = sorted(axes.texts, key=lambda text: text.get_position()[1])
    assert {text.get_text().split()[0] for text in texts} == {"first", "second", "limit"}
    assert len({line.get_color() for line in axes.lines}) == 3
    assert len(axes.collections) == 2  # bands of the two loaders


def test_figures_of_a_benchmark_are_medians_and_ratios_within_rounds() -> None:
    made = benchmark((1, 2), quick=200.0, slow=50.0)
    assert made.sides == ["quick", "slow"]
    assert made.fastest("quick").threads == 2
    assert made.fastest("quick").median == 380
    assert made.fastest("quick").spread == pytest.approx(20 / 380)
    assert made.ratio("quick", "slow") == 4
    assert made.others is None


def test_the_fastest_way_is_one_that_training_can_take() -> None:
    rates = [
        Rate(f"p: {way}", way, "p", 1, (rate,), None) for way, rate in (("limit", 9.0), ("Loader", 8.0), ("slow", 2.0))
    ]
    measured = Benchmark(tuple(rates), {}, {"p": 3}, {"p": 100.0}, 1, 1, 1.0, {"processor": "one", "cpus": "1"})
    assert "p: Loader is 4.0 times as fast as p: slow" in repr(measured)


@pytest.mark.usefixtures("prepared_processes")
def test_why_nothing_could_be_measured_is_said_once(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("packer.testing.reference").torchvision()
    content = bytearray((root / "pack.lmdb").read_bytes())
    start = content.index(b"\xff\xd8\xff")
    content[start + 100 : start + 110] = bytes(10)
    (tmp_path / "damaged.lmdb").write_bytes(content)
    with pytest.raises(CorruptPackError) as caught:
        bench(tmp_path / "damaged.lmdb", batch=4, threads=[1], seconds=0.1, recipe="rand")  # two processes, not four
    assert str(caught.value).count("damaged: the checksum does not match") == 1
    assert "Error:" not in str(caught.value)


def test_a_tree_or_a_pack_without_images_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer._measuring.bench._start", None)
    (tmp_path / "tree" / "a").mkdir(parents=True)
    with pytest.raises(SourceError, match="tree: no images"):
        bench(tmp_path / "tree")
    with pytest.raises(SourceError, match=r"none\.lmdb: no samples"):
        bench(write_pack(tmp_path / "none.lmdb", "lmdb", []))


def test_what_a_plot_needs_is_said_before_anything_is_measured(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = packer("bench", root / "pack.lmdb", "--plot", "rates.pdf")
    assert result.returncode == EXIT_STATUS["usage"]
    assert "a plot must be .png or .svg" in result.stderr
    result = packer("bench", root / "pack.lmdb", "--plot", tmp_path / "nowhere" / "rates.png")
    assert result.returncode == EXIT_STATUS["error"]
    assert "nowhere" in result.stderr
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"packer-images\[plot\]"):
        plot(benchmark((1,), one=1.0), tmp_path / "p.png")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "a recipe must define loader"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("loader = (", "SyntaxError"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "odd.py").write_text(text)
    with pytest.raises(OptionError, match=message):
        read_recipe(tmp_path / "odd.py")
    with pytest.raises(OptionError, match="a recipe must be a Python file"):
        read_recipe(tmp_path / "odd.txt")


def test_what_is_not_there_or_given_twice_is_named(root: Path) -> None:
    with pytest.raises(PackNotFoundError, match=r"nothing\.lmdb"):
        bench(root / "nothing.lmdb")
    with pytest.raises(PackNotFoundError, match=r"packer index '/nowhere/\*\.tar' OUT\.index"):
        bench("/nowhere/*.tar")
    with pytest.raises(OptionError, match="twice"):
        bench([root / "tree", root / "tree"])
    with pytest.raises(OptionError, match="pass the packs or directories"):
        bench([])
    result = packer("bench", root / "tree", "--threads", "1,x")
    assert result.returncode == EXIT_STATUS["usage"]


def test_a_recipe_that_ends_python_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--unknown'])\n")
    with pytest.raises(OptionError, match=r"the recipe .*training.py: SystemExit: 2"):
        read_recipe(tmp_path / "training.py")


@pytest.mark.usefixtures("prepared_processes")
def test_a_recipe_that_has_a_name_is_measured_step_by_step(root: Path) -> None:
    pytest.importorskip("packer.testing.reference").torchvision()
    steps = ["crop and flip", "+ RandAugment", "+ normalise", "+ MixUp or CutMix"]
    measured = bench(root / "pack.lmdb", recipe="rand", batch=4, seconds=0.1, threads=[1])
    assert [side.rpartition(": ")[2] for side in measured.sides if "packer:" in side] == steps
    assert {rate.way for rate in measured.rates} | set(measured.skipped) >= {"packer"}
    table = repr(measured)
    assert "of the rate of the crop alone" in table
    assert f"{measured.images[str(root / 'pack.lmdb')]:,} samples" in table


@pytest.mark.usefixtures("_as_it_was")
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_step_of_a_recipe_reads_by_both_sides(root: Path, recipe: str) -> None:
    pytest.importorskip("packer.testing.reference").torchvision()
    for side in SIDES:
        steps = RecipeSteps(side, str(root / "pack.lmdb"), 4, 12, recipe)
        assert steps.describe()[0] == 12
        for step in (0, len(steps_of(recipe)) - 1):
            images, _ = steps.read(0 if side == "torchvision" else 1, 0.0, step)
            assert images >= 12


@pytest.mark.usefixtures("prepared_processes")
def test_a_pack_at_a_url_is_fetched_in_both_orders_and_read_from_the_cache(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "cache"))
    with serving(FilesOfThisMachine()) as server:
        url = f"{Served(server).url(root / 'pack.lmdb')}?token=secret"
        measured = bench(url, batch=4, images=12, seconds=0.1, threads=[1])
        asked = [one for one in server.asked if one.method == "GET"]
        with pytest.raises(OptionError, match=r"token=\.\.\.: a recipe can be measured only for a pack on a disk"):
            bench(url, recipe="rand")
    assert measured.skipped == {}
    assert [rate.side for rate in measured.rates] == [
        "pack.lmdb: block shuffle, first epoch",
        "pack.lmdb: random order, first epoch",
        "pack.lmdb: Loader, from the cache",
        "pack.lmdb: limit, from the cache",
    ]
    assert all(rate.median > 0 for rate in measured.rates)
    assert "secret" not in repr(measured)
    # Each round of the two orders begins with an empty cache: at least the beginning of the file comes again.
    assert len(asked) >= 2 * measured.rounds
    assert not list((tmp_path / "cache").glob("bench-*"))
