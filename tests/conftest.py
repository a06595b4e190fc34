"""Trees and packs that many tests share, and settings of all tests."""

from __future__ import annotations

import functools
import gc
import io
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import Phase, is_hypothesis_test, settings
from PIL import Image

from packer._conversion.convert import convert
from packer._conversion.recipe import Recipe
from packer._formats import FORMATS
from packer._sources.imagefolder import imagefolder_source
from packer._storage.system import available_memory
from packer.testing.photos import draw_imagefolder, draw_photo
from tests.fieldpack import packed
from tests.spawn import quick_spawn
from tests.turns import Turns
from tests.visit import CHROMIUM, FLAGS

# The first example includes imports, and the machine may be busy: the time of an example means nothing.
settings.register_profile("packer", deadline=None)
settings.load_profile("packer")

# Shrinking an example may take minutes, which tests on a GPU do not have: a failing example is shown as it is.
settings.register_profile("gpu", deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])


# Shells start background jobs with SIGINT ignored, which the tested programs would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Container images often forbid Python to write bytecode: then every process that tests start would compile packer
# anew, which takes longer than most of these processes work.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# OpenMP's threads, which torch starts, wait for each other by spinning: with more processes than processors they mostly
# spin for a thread that does not run, up to ten times as long as they compute.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

# Keep downloads of tests out of the user's cache.
os.environ |= {"PACKER_CACHE_DIR": "", "PACKER_CACHE_SIZE": "1 GB"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--faults", action="store_true", help="inject ten times as many faults, and try ten times as many examples"
    )
    parser.addoption("--examples", type=int, help="the most examples of a property, as where a processor is emulated")
    parser.addoption("--wheel", type=Path, help="a wheel that is tried in place of one that is built by the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let tests write into memory, where there is enough: conversions sync often, which takes a disk a while.

    `--basetemp` names another directory, which is kept.
    """
    if config.option.markexpr == "cuda":
        settings.load_profile("gpu")
    is_worker = hasattr(config, "workerinput")  # of pytest-xdist: it gets a directory in that of its session
    if config.option.basetemp is None and not is_worker and _free_memory() > 6 << 30:
        directory = tempfile.mkdtemp(prefix="packer-test-", dir=_IN_MEMORY)
        config.option.basetemp = f"{directory}/pytest"
        config.add_cleanup(functools.partial(shutil.rmtree, directory, ignore_errors=True))


_IN_MEMORY = "/dev/shm"


def _free_memory() -> int:
    """Return the number of bytes that files may take in memory, 0 where no directory is in memory."""
    if not os.access(_IN_MEMORY, os.W_OK):
        return 0
    return min(shutil.disk_usage(_IN_MEMORY).free, available_memory() or 0)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Use two workers more than CPUs: while tests wait for a program, a disk or a clock, others run."""
    return (yield) + (0 if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else 2)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set the numbers of examples; repeat a failed measurement before it counts as a failure.

    Other programs on the machine may disturb a measurement.
    """
    times, most = _sweep(config), config.getoption("--examples")
    for function in {getattr(item, "function", None) for item in items}:  # each function once, for all of its items
        if is_hypothesis_test(function):
            _set_examples(function, times, most)
    for item in filter(_measures, items):
        item.add_marker(pytest.mark.flaky(reruns=2))
    items.sort(key=_measures, reverse=True)  # one after the other, in few turns


def _set_examples(function: Any, times: int, most: int | None) -> None:
    """Give a property `times` as many examples, or at most `most`. A profile cannot change a property's own number."""
    wanted = getattr(function, "_hypothesis_internal_use_settings", settings())
    examples = wanted.max_examples * times if most is None else min(wanted.max_examples, most)
    function._hypothesis_internal_use_settings = settings(wanted, max_examples=examples)


def _measures(item: pytest.Item) -> bool:
    return item.get_closest_marker("measures") is not None


_turns = Turns()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Run tests that measure alone: no other process runs a test at the same time."""
    with _turns.take(alone=_measures(item), again=nextitem is not None and _measures(nextitem)):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List why tests were skipped, the most frequent reason first; a module that was skipped as a whole counts once."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    reasons = Counter(found[2].removeprefix("Skipped: ") for found in skipped if isinstance(found, tuple))
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests or modules skipped")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        terminalreporter.line(f"{count:6}  {reason}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected out of garbage collections: with it, each takes 0.3 seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _dask_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Dask use pytest's directory, also in programs that tests start: an interrupted program leaves files."""
    os.environ["DASK_TEMPORARY_DIRECTORY"] = str(tmp_path_factory.getbasetemp() / "dask")
    if "dask" in sys.modules:  # it has read its settings at the import
        sys.modules["dask"].config.refresh()


def _sweep(config: pytest.Config) -> int:
    return 10 if config.getoption("--faults") else 1


@pytest.fixture(scope="session")
def sweep(request: pytest.FixtureRequest) -> int:
    """Return how many times the usual number of faults to inject: 1, or 10 with ``--faults``."""
    return _sweep(request.config)


_SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the directory of real images that lies beside the repository on some machines."""
    if not _SHARED_DATA.is_dir():
        pytest.skip("needs the real images in ../shared/data, which are not part of the repository")
    return _SHARED_DATA


@pytest.fixture(scope="session")
def common_tmp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that all workers share, for files that take long to make; use a lock, see `tests.turns`."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(name="quick_spawn")
def _quick_spawn() -> Iterator[None]:
    """Make spawned processes start quickly, see `tests.spawn`."""
    with quick_spawn():
        yield


@pytest.fixture
def disk_tmp() -> Iterator[Path]:
    """Yield a directory in the system's directory for temporary files, for tests of a disk and its cache."""
    with tempfile.TemporaryDirectory(prefix="packer-test-") as directory:
        yield Path(directory)


NUMBERED = 40
"""The number of images in `numbered_tree`."""


class Trees(Protocol):
    """Draws an ImageFolder tree, once a session for the same arguments; see `draw_imagefolder`."""

    def __call__(self, *, classes: int, per_class: int, size: tuple[int, int], seed: int = 0) -> Path: ...


class Packs(Protocol):
    """Converts a tree, once a session for the same arguments."""

    def __call__(self, tree: Path, format: str = "lmdb", recipe: Recipe | None = None) -> Path: ...


class FieldPacks(Protocol):
    """Writes a pack with many kinds of fields, see `tests.fieldpack`, once a session for the same suffix."""

    def __call__(self, suffix: str) -> Path: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium; without it, or without Playwright, the test is skipped."""
    reason = "the page is tested in a browser: pip install playwright"
    playwright_api = pytest.importorskip("playwright.sync_api", reason=reason)
    if CHROMIUM is None:
        pytest.skip("the page is tested in Chromium, which is not installed")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Return a function that draws ImageFolder trees. Tests must not change them."""

    @functools.cache
    def tree(*, classes: int, per_class: int, size: tuple[int, int], seed: int = 0) -> Path:
        root = tmp_path_factory.mktemp("trees") / "tree"
        draw_imagefolder(root, classes=classes, per_class=per_class, size=size, seed=seed)
        return root

    return tree


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    """Return a function that converts trees to packs. Tests must not change them."""

    @functools.cache
    def pack(tree: Path, format: str = "lmdb", recipe: Recipe | None = None) -> Path:
        path = tmp_path_factory.mktemp("packs") / f"pack{FORMATS[format].suffixes[0]}"
        convert(imagefolder_source(tree), path, recipe=recipe or Recipe())
        return path

    return pack


@pytest.fixture(scope="session")
def field_packs(tmp_path_factory: pytest.TempPathFactory) -> FieldPacks:
    """Return a function that writes packs with fields. Tests must not change them."""

    @functools.cache
    def pack(suffix: str) -> Path:
        return packed(tmp_path_factory.mktemp("fields") / f"pack{suffix}")

    return pack


@pytest.fixture(scope="session")
def photo_tree(trees: Trees) -> Path:
    """Return an ImageFolder tree of 15 drawn JPEGs in 3 classes."""
    return trees(classes=3, per_class=5, size=(48, 64))


@pytest.fixture(scope="session")
def photo_pack(photo_tree: Path, packs: Packs) -> Path:
    """Return the LMDB pack of `photo_tree`."""
    return packs(photo_tree)


@pytest.fixture(scope="session")
def numbered_tree(trees: Trees) -> Path:
    """Return an ImageFolder tree of 40 drawn JPEGs, each of a class of its own: the label tells which image it is."""
    return trees(classes=NUMBERED, per_class=1, size=(40, 48))


@pytest.fixture(scope="session")
def numbered_pack(numbered_tree: Path, packs: Packs) -> Path:
    """Return the LMDB pack of `numbered_tree`."""
    return packs(numbered_tree)


@pytest.fixture(scope="session")
def odd_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an ImageFolder tree of images of unusual types, all of which Pillow reads. Tests must not change it."""
    root = tmp_path_factory.mktemp("odd") / "tree"
    for name, data in odd_images().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def odd_images() -> dict[str, bytes]:
    """Return readable images of unusual types, by their names in a tree."""
    photo = Image.fromarray(draw_photo(np.random.default_rng(7), 37, 53))
    deep = Image.fromarray(np.arange(37 * 53, dtype=np.uint16).reshape(37, 53) * 33)
    palette = photo.convert("P", palette=Image.Palette.ADAPTIVE, colors=50)
    alpha = photo.convert("RGBA")
    alpha.putalpha(photo.convert("L"))
    images = {
        "types/adobe_rgb.jpg": _encoded(photo, "JPEG", keep_rgb=True),
        "types/cmyk.jpg": _encoded(photo.convert("CMYK"), "JPEG", quality=90),
        "types/gif_named.png": _encoded(palette, "GIF"),
        "types/grey.jpg": _encoded(photo.convert("L"), "JPEG"),
        "types/grey_alpha.png": _encoded(alpha.convert("LA"), "PNG"),
        "types/jpeg_named.webp": _encoded(photo, "JPEG"),
        "types/one_bit.png": _encoded(photo.convert("1"), "PNG"),
        "types/one_bit.tif": _encoded(photo.convert("1"), "TIFF", compression="group4"),
        "types/palette.bmp": _encoded(palette, "BMP"),
        "types/palette_transparent.png": _encoded(palette, "PNG", transparency=3),
        "types/plain.pgm": _encoded(photo.convert("L"), "PPM"),
        "types/plain.ppm": _encoded(photo, "PPM"),
        "types/png_named.jpg": _encoded(photo, "PNG"),
        "types/progressive.JPEG": _encoded(photo, "JPEG", progressive=True),
        "types/rgba.png": _encoded(alpha, "PNG"),
        "types/sixteen_bit.png": _encoded(deep, "PNG"),
        "types/sixteen_bit.tiff": _encoded(deep, "TIFF"),
        "types/webp.webp": _encoded(photo, "WEBP"),
        "types/webp_alpha.webp": _encoded(alpha, "WEBP"),
        "types/webp_animated.webp": _encoded(photo, "WEBP", save_all=True, append_images=[photo.rotate(180)]),
        "types/webp_lossless.webp": _encoded(photo, "WEBP", lossless=True),
        "tiny/1x1.jpg": _encoded(photo.crop((0, 0, 1, 1)), "JPEG"),
        "tiny/1x1.png": _encoded(photo.crop((0, 0, 1, 1)), "PNG"),
        "tiny/1x300.png": _encoded(photo.resize((300, 1)), "PNG"),
        "tiny/300x1.jpg": _encoded(photo.resize((1, 300)), "JPEG"),
    }
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        images[f"exif/{orientation}.jpg"] = _encoded(photo, "JPEG", exif=exif)
        images[f"exif/{orientation}.png"] = _encoded(photo, "PNG", exif=exif)
    return images


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()
