"""`packer.estimate`: the results of the conversion lie in the estimated intervals."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer._measuring.estimate import command_of, estimate_request, requested, try_alternatives
from packer._measuring.harness import Load, TimeLimit
from packer._measuring.trials import ConversionTime, Interval, Population, Trials, TrialSetup
from packer._storage.system import available_cpus
from packer.errors import DestinationError, OptionError, SourceError
from packer.testing.photos import draw_photo
from tests.command import command

FEW = 0.01  # seconds: only the shortest trials


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree of 240 photos of very different sizes."""
    root, rng = tmp_path_factory.mktemp("estimate") / "photos", np.random.default_rng(0)
    drawn = [draw_photo(rng, *(int(rng.lognormal(4.3, 0.7)) + 8 for _ in range(2))) for _ in range(40)]
    for number in range(240):
        path = root / f"class{number % 3}" / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn[number % 40]).save(path, quality=60 + number % 7 * 5)
    return root


Values = npt.NDArray[np.float64]


def test_the_true_sum_lies_in_the_interval() -> None:
    """The lists have some much larger images, and are drawn 200 times."""
    within: Counter[tuple[str, int]] = Counter()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        large = rng.random(3000) < 0.2
        sizes = np.where(large, rng.lognormal(13, 1, 3000), rng.lognormal(10, 0.5, 3000)).astype(np.int64)
        made: dict[str, Values] = {
            "as large": sizes.astype(np.float64),
            "resized": (8000 + 40 * np.sqrt(sizes)) * rng.lognormal(0, 0.4, 3000),
            "encoded": sizes * rng.lognormal(1, 0.3, 3000),
        }
        population = Population(sizes, np.arange(3000), 3000, seed)
        for tried, (kind, values) in itertools.product((40, 300), made.items()):
            places = np.arange(tried)
            found = population.total(places, values[population.order[places]])
            within[kind, tried] += found.low - 1 <= values.sum() <= found.high + 1
    assert len(within) == 6
    assert min(within.values()) >= 180, within


def test_the_true_number_lies_in_the_interval() -> None:
    """Large images have the finding more often; the number is also right if only half of the sizes are known."""
    for known in (2000, 1000):
        within = 0
        for seed in range(100):
            rng = np.random.default_rng(seed)
            sizes = rng.lognormal(10, 1, 2000).astype(np.int64)
            has = rng.random(2000) < np.where(sizes > 40_000, 0.3, 0.02)
            which = rng.permutation(2000)[:known]
            population, places = Population(sizes[which], which, 2000, seed), np.arange(200)
            number = population.number(places, has[population.order[places]])
            total = population.total(places, sizes[population.order[places]].astype(np.float64))
            within += number.low <= has.sum() <= number.high
            within += total.low - 1 <= sizes.sum() <= total.high + 1
        assert within >= 180


def test_every_beginning_of_the_order_has_large_and_small_images() -> None:
    sizes = np.random.default_rng(0).permutation(np.arange(1000))
    order = Population(sizes, np.arange(1000), 1000).order
    assert sorted(order.tolist()) == list(range(1000))
    for start in range(0, 80, 20):
        drawn = np.sort(sizes[order[start : start + 20]])
        assert drawn[0] < 100
        assert drawn[-1] > 900


@pytest.mark.parametrize("options", [{}, {"resize": 48}, {"codec": "raw"}], ids=str)
def test_the_size_is_that_of_the_conversion(photos: Path, tmp_path: Path, options: dict[str, object]) -> None:
    request = requested(photos, tmp_path / "out.lmdb", options)
    found = estimate_request(request, seconds=FEW, others=False)
    made = packer.convert(photos, tmp_path / "out.lmdb", **options)  # type: ignore[arg-type]
    assert not found.exact
    assert 16 <= found.tried < 240
    assert found.images == 240
    assert found.bytes_in.low == made.bytes_in == found.bytes_in.high
    assert found.size.low <= made.bytes_out <= found.size.high
    assert abs(found.size.value - made.bytes_out) < 0.25 * made.bytes_out
    assert 0 < found.seconds.low < found.seconds.value < found.seconds.high


def _tried(photos: Path, directory: Path, *, until: float, ends: float, enough: int) -> Trials:
    """Run trials; `until` and `ends` are limits in seconds from now."""
    request = requested(photos, directory / "out.lmdb", {"resize": 48})
    source = request.open(request.dst, None)
    population = Population(source.present_stamps()[:, 0], np.arange(240), 240)
    limits: dict[str, Any] = {"until": TimeLimit(until), "ends": TimeLimit(ends), "enough": enough}
    return TrialSetup(source, population, directory, lambda *shown: None).run(request, "", **limits)


def test_as_many_images_as_are_wanted_are_tried_unless_the_time_is_over(photos: Path, tmp_path: Path) -> None:
    assert 100 <= _tried(photos, tmp_path, until=0, ends=100, enough=100).tried < 240
    assert 16 <= _tried(photos, tmp_path, until=0, ends=0, enough=100).tried < 40
    assert not _tried(photos, tmp_path, until=0, ends=0, enough=0).conversions, (
        "nothing is tried that there is no time for"
    )
    assert os.listdir(tmp_path) == []


def test_many_images_are_drawn_as_all_are_and_few_have_more_large_ones() -> None:
    sizes = np.random.default_rng(0).lognormal(11, 0.7, 6000).astype(np.int64)
    means = [
        statistics.fmean(population.sizes(np.arange(start, end)).mean() / sizes.mean() for population in drawn)
        for drawn in [[Population(sizes, np.arange(6000), 6000, seed) for seed in range(5)]]
        for start, end in ((0, 40), (160, 2000))
    ]
    assert means[0] > 1.2
    assert means[1] == pytest.approx(1, abs=0.03)


@pytest.mark.measures
@pytest.mark.parametrize(
    ("options", "least", "most"), [({"codec": "png"}, 0.5, 1.0), ({"resize": 300}, 0.0, 1.0)], ids=str
)
def test_the_share_of_the_time_that_grows_with_the_bytes_is_measured(
    photos: Path, tmp_path: Path, options: dict[str, object], least: float, most: float
) -> None:
    """The time to encode grows with the size of an image; if all images have the same size, the share is 0."""
    request = requested(photos, tmp_path / "out.lmdb", options)
    source = request.open(request.dst, None)
    population = Population(source.present_stamps()[:, 0], np.arange(240), 240)
    setup = TrialSetup(source, population, tmp_path, lambda *shown: None)
    _, by_bytes, an_image = setup.prepare_images(request)
    assert least <= by_bytes <= most
    assert an_image > 0
    of_one_size = replace(setup, population=Population(np.full(240, 9000), np.arange(240), 240))
    assert 0 <= of_one_size.prepare_images(request)[1] <= 0.01


def test_a_pause_during_one_image_does_not_distort_that_share(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = requested(photos, tmp_path / "out.lmdb", {"codec": "png"})
    source = request.open(request.dst, None)
    population = Population(source.present_stamps()[:, 0], np.arange(240), 240)
    setup = TrialSetup(source, population, tmp_path, lambda *shown: None)
    sizes, prepared = source.present_stamps()[:, 0], []
    smallest = min(population.order[:20:5], key=lambda index: sizes[index])

    def prepare(self: TrialSetup, request: Any, index: int) -> float:
        """Return the seconds of an image, a third of them independent of its bytes, and a pause in the second pass."""
        prepared.append(index)
        paused = index == smallest and prepared.count(index) == 2
        return float(population.mean_size / 2 + sizes[index]) * 1e-8 + 0.1 * paused

    monkeypatch.setattr(TrialSetup, "_prepare", prepare)
    assert setup.prepare_images(request)[1] == pytest.approx(2 / 3)
    assert len(prepared) > 4 * 2  # each image was prepared again after the pause


def test_what_a_process_loads_once_is_counted_once(photos: Path, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from tests.measuring.test_estimate import _tried

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "simplejpeg":
            end = time.process_time() + 0.5
            while time.process_time() < end:
                pass

assert "simplejpeg" not in sys.modules
sys.meta_path.insert(0, Slow())
photos, directory = map(Path, sys.argv[1:])
first = [_tried(photos, directory, until=0, ends=0, enough=20).first for _ in range(2)]
assert "simplejpeg" in sys.modules
assert first[0] > 0.5 > first[1], first
"""
    subprocess.run([sys.executable, "-c", code, photos, tmp_path], check=True)


def test_what_happens_once_is_not_counted_for_each_image(photos: Path, tmp_path: Path) -> None:
    trials = _tried(photos, tmp_path, until=0, ends=100, enough=100)
    for trial in trials.conversions:
        assert 0 < trial.fixed < trial.seconds
    trials.first, trials.others = 1.0, 0.0
    slow = replace(trials, conversions=list(trials.conversions))
    slow.conversions[0] = replace(slow.conversions[0], seconds=slow.conversions[0].seconds + 20)  # done once
    fast, once = trials.duration(), slow.duration()
    assert once.work == fast.work
    assert 15 < once.first - fast.first < 21
    slow.others = 0.9
    assert slow.duration().work.high > fast.work.high, "others who use the machine make it less certain"


@pytest.mark.measures
def test_work_of_others_is_seen(photos: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        time.sleep(0.1)
        with Load() as load:
            time.sleep(0.4)
        process.kill()
    assert load.others is None or 0.2 / available_cpus() < load.others <= 1


def test_a_tree_that_is_smaller_than_the_sample_is_known_exactly(photos: Path, tmp_path: Path) -> None:
    for suffix, count in [(".lmdb", 1), (".h5", 60), (".pth", 60), (".wds", 60)]:
        out = tmp_path / f"out{suffix}"
        found = estimate_request(requested(photos, out, {"limit": count}), seconds=100, others=False)
        made = packer.convert(photos, out, limit=count)
        assert found.exact
        assert found.tried == found.images == count
        assert found.size.low == found.size.high == found.size.value
        assert found.size.value == pytest.approx(made.bytes_out, abs=64)  # the manifest names the source


def test_a_pack_and_a_container_are_estimated_as_trees_are(photos: Path, tmp_path: Path) -> None:
    packer.convert(photos, tmp_path / "photos.lmdb")
    packer.convert(photos, tmp_path / "photos.wds", shard_size=300_000)
    for src in (tmp_path / "photos.lmdb", tmp_path / "photos.wds"):
        found = estimate_request(requested(src, tmp_path / "out.h5", {"resize": 48}), seconds=FEW, others=False)
        made = packer.convert(src, tmp_path / "out.h5", resize=48, overwrite=True)
        assert found.images == 240
        assert found.size.low <= made.bytes_out <= found.size.high
        os.remove(tmp_path / "out.h5")


def test_the_command_makes_that_pack(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.symlink(photos, "my photos")
    options = {"resize": 48, "codec": "webp", "quality": 70, "limit": 40, "extensions": (".jpg", ".gif")}
    found = estimate_request(requested("my photos", None, options), seconds=100, others=False)
    words = shlex.split(found.command)
    assert words[:4] == ["packer", "convert", "my photos", "myphotos.lmdb"]
    subprocess.run(command(*words[1:]), check=True, capture_output=True)
    made = packer.info("myphotos.lmdb")
    assert made.samples == found.images == 40
    assert made.codec == "webp"
    assert made.settings["quality"] == 70
    assert found.exact
    assert made.bytes == pytest.approx(found.size.value, abs=64)
    again = requested("my photos", None, {})
    assert again.dst == Path("myphotos-2.lmdb"), "what is there is not replaced"


def test_every_option_of_a_request_is_in_its_command(photos: Path, tmp_path: Path) -> None:
    said = "--codec jpeg --quality 50 --no-tiles --recode --exif apply --resize 32 --resize-mode pad --on-error skip"
    said += " --parts 3 --workers 2 --field mask=../{stem}.png --field depth=../{stem}.npy --on-missing null"
    words = [*shlex.split(said), "--report", str(tmp_path / "a b")]
    options = {"codec": "jpeg", "quality": 50, "tiles": False, "recode": True, "exif": "apply", "resize": 32}
    options |= {"resize_mode": "pad", "on_error": "skip", "parts": 3, "workers": 2, "on_missing": "null"}
    fields = {"mask": "../{stem}.png", "depth": "../{stem}.npy"}
    request = requested(photos, tmp_path / "x.lmdb", {**options, "fields": fields})
    spelled = shlex.split(command_of(request))
    assert spelled[:4] == ["packer", "convert", str(photos), str(tmp_path / "x.lmdb")]
    assert sorted(spelled[4:]) == sorted(words[:-2])


def test_findings_and_what_cannot_be_read_are_told(photos: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(photos, tree)
    files = sorted(tree.rglob("*.jpg"))
    for path in files[::8]:
        path.write_bytes(b"no image")
    for path in files[1::4]:
        Image.new("RGB", (20, 20)).save(path)
    found = estimate_request(requested(tree, tmp_path / "x.lmdb", {}), seconds=2, others=False)
    assert found.unreadable.low <= 30 <= found.unreadable.high
    report = tmp_path / "report.jsonl"
    packer.convert(tree, tmp_path / "x.lmdb", on_error="skip", report=report)
    remarkable = sum('"findings"' in line for line in report.read_text().splitlines())
    assert found.remarkable.low <= remarkable <= found.remarkable.high
    os.remove(tmp_path / "x.lmdb")
    report.unlink()
    assert {"tiny (a side below 32 pixels)"} <= set(found.findings)
    assert {entry["name"] for entry in found.left_out} <= {str(path.relative_to(tree)) for path in files[::8]}
    assert all(entry["reason"] for entry in found.left_out)
    for path in files:
        path.write_bytes(b"no image")
    with pytest.raises(SourceError, match="none of the"):
        packer.estimate(tree, tmp_path / "x.lmdb", seconds=FEW)
    assert os.listdir(tmp_path) == ["tree"]


def test_other_options_are_tried_too(photos: Path, tmp_path: Path) -> None:
    shown = []
    found = packer.estimate(
        photos, tmp_path / "x.lmdb", jobs=4, resize=32, codec="png", seconds=3, progress=lambda *how: shown.append(how)
    )
    tried = {other.options: other for other in found.alternatives}
    assert set(tried) | set(found.not_tried) >= {"--codec keep", "--resize 32", "--tiles", "--resize 32 --codec raw"}
    assert "--resize 32 --codec png" not in tried, "that is what was asked for"
    assert {what for what, _, _ in shown} >= {f"listing {photos}", "sizes", "trying"}
    for options, other in tried.items():
        assert other.size.low <= other.size.value <= other.size.high, options
    assert found.seconds_on_jobs.value < found.seconds.value
    assert found.part_command is not None
    assert found.part_command.endswith("--parts 4 --part K")
    assert os.listdir(tmp_path) == []


def test_what_was_loaded_already_counts_for_whoever_needs_it(photos: Path, tmp_path: Path) -> None:
    request = requested(photos, tmp_path / "x.lmdb", {"resize": 48, "tiles": True, "limit": 16})
    source = request.open(request.dst, None)
    population = Population(source.present_stamps()[:, 0], np.arange(16), 16)
    setup = TrialSetup(source, population, tmp_path, lambda *shown: None)
    known: dict[str, Any] = {"ends": TimeLimit(10), "before": 0.0, "first": 1000.0, "to_8_bit": None}
    tried, _ = try_alternatives(request, setup, **known)
    seconds = {other.options: other.seconds.value for other in tried}
    assert seconds["--codec keep"] < 1000 < seconds["--tiles"]


def test_what_convert_refuses_is_refused(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty" / "a").mkdir(parents=True)
    with pytest.raises(SourceError):
        packer.estimate(tmp_path / "empty", tmp_path / "x.lmdb")
    with pytest.raises(DestinationError, match="is inside"):
        packer.estimate(photos, photos / "x.lmdb")
    with pytest.raises(OptionError, match="resize="):
        packer.estimate(photos, tmp_path / "x.lmdb", upscale=True)
    with pytest.raises(OptionError, match="makes a directory of packs"):
        packer.estimate(photos, tmp_path / "x.wds", jobs=2)
    with pytest.raises(TypeError, match="estimate has no argument 'nonsense'"):
        packer.estimate(photos, tmp_path / "x.lmdb", nonsense=True)
    with pytest.raises(ValueError, match="a number above 0"):
        packer.estimate(photos, tmp_path / "x.lmdb", seconds=float("inf"))
    assert os.listdir(tmp_path) == ["empty"]


@pytest.mark.parametrize("there", ["a pack", "another directory", "a file"])
def test_what_is_at_dst_is_in_the_way_of_the_command_alone(photos: Path, tmp_path: Path, there: str) -> None:
    pack = tmp_path / "x.pth"
    if there == "a pack":
        packer.convert(photos, pack, limit=2)
    elif there == "a file":
        pack.write_bytes(b"x")
    else:
        (pack / "x").mkdir(parents=True)
    found = packer.estimate(photos, pack, limit=8, seconds=FEW)
    assert "exists already" in found.notes[0]
    assert "overwrite" in found.notes[0]
    assert found.images == 8
    assert os.listdir(tmp_path) == ["x.pth"]
    notes = packer.estimate(photos, pack, limit=8, overwrite=True, seconds=FEW).notes
    assert any("overwrite=True does not replace it" in note for note in notes) == (there != "a pack")


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_an_estimate_that_was_killed(photos: Path, tmp_path: Path, number: str) -> None:
    with subprocess.Popen(
        command("estimate", photos, tmp_path / "x.lmdb", "--codec", "png", "--seconds", 60),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None and not list(tmp_path.glob("packer-estimate-*/*")):
            time.sleep(0.01)
        process.send_signal(getattr(signal, number))
    assert process.returncode != 0
    ends = time.monotonic() + 60
    while os.listdir(tmp_path) and time.monotonic() < ends:
        time.sleep(0.02)
    assert os.listdir(tmp_path) == []


def test_what_is_spent_once_is_as_uncertain_as_the_work() -> None:
    seconds = ConversionTime(1.0, 2.0, Interval.around(4.0, 1.0)).on(2, before=5.0)
    assert (seconds.value, seconds.low, seconds.high) == (10.0, 7.5, 12.5)
