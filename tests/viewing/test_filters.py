"""Filters of the viewer's page: categories of fields, findings; the fields in the grid, and the names of boxes."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

import packer
from packer._table import Sample
from packer._viewing.catalog import open_catalog
from packer._viewing.finder import DAMAGED, Finder, Postings, Query
from packer._viewing.server import Server
from packer.testing.photos import draw_photo
from tests.samples import write_pack
from tests.viewing.conftest import serving
from tests.visit import Visit

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

COUNT = 60
WEATHERS = ("sunny", "rain <b>", "snow")
OBJECTS = ("person", "dog", "bicycle")
CROWDED = 7
"""The sample whose boxes all but coincide."""

Samples = list[dict[str, Any]]


def _jpeg(rng: np.random.Generator, height: int = 150, width: int = 200, **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(draw_photo(rng, height, width)).save(stream, "jpeg", **options)
    return stream.getvalue()


def _sample(number: int, rng: np.random.Generator) -> dict[str, Any]:
    objects = 14 if number == CROWDED else number % 4
    boxes = np.tile(np.array([[60, 50, 120, 90]], np.float32), (objects, 1)) + np.arange(objects)[:, None]
    sample = {
        "image": _jpeg(rng),
        "name": f"{number:02d}.jpg",
        "label": number % 2,
        "boxes": boxes,
        "object": rng.integers(0, len(OBJECTS), objects),
        "runs": [[[20.0, 20, 60, 20, 60, 60]] for _ in range(objects)],
        "seen": bool(number % 5 == 0),
        "caption": f"caption {number}",
    }
    return sample if number % 10 == 9 else {**sample, "weather": number % 3}


@pytest.fixture(scope="module")
def samples() -> Samples:
    rng = np.random.default_rng(3)
    return [_sample(number, rng) for number in range(COUNT)]


@pytest.fixture(scope="module")
def pack(samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filters") / "street.lmdb"
    fields = {
        "boxes": "boxes",
        "object": packer.Field("object", "labels", classes=OBJECTS),
        "runs": "segmentation",
        "seen": "bool",
        "caption": "text",
        "weather": packer.Field("weather", "class", classes=WEATHERS),
    }
    packer.pack(iter(samples), path, classes=["city", "country"], fields=fields)
    return path


@pytest.fixture(scope="module")
def server(pack: Path) -> Iterator[Server]:
    yield from serving(pack)


def in_weather(samples: Samples, weather: int | None) -> list[int]:
    return [number for number, one in enumerate(samples) if one.get("weather") == weather]


def with_object(samples: Samples, kind: int) -> list[int]:
    return [number for number, one in enumerate(samples) if kind in one["object"].tolist()]


def found(pack: Path, **wanted: Any) -> list[int]:
    catalog = open_catalog([pack])
    finder = Finder(catalog)
    result = finder.find(Query(**wanted), 60.0)
    assert result.unread == 0
    catalog.close()
    return result.part(0, result.count).tolist()


def test_samples_are_found_by_categories(pack: Path, samples: Samples) -> None:
    for number, weather in enumerate(WEATHERS):
        assert found(pack, categories=(("weather", weather),)) == in_weather(samples, number)
    assert found(pack, categories=(("weather", ""),)) == in_weather(samples, None)
    assert found(pack, categories=(("seen", "true"),)) == list(range(0, COUNT, 5))
    for number, kind in enumerate(OBJECTS):
        assert found(pack, categories=(("object", kind),)) == with_object(samples, number)
    assert found(pack, categories=(("object", ""),)) == [number for number in range(COUNT) if number % 4 == 0]
    both = set(in_weather(samples, 0)) & set(with_object(samples, 1))
    assert found(pack, categories=(("weather", "sunny"), ("object", "dog"))) == sorted(both)
    with pytest.raises(packer.OptionError, match="'caption' is not a field with classes"):
        found(pack, categories=(("caption", "x"),))


def test_categories_of_several_packs_are_those_of_their_names(pack: Path, samples: Samples, tmp_path: Path) -> None:
    """The second pack numbers its classes otherwise."""
    turned = packer.Field("weather", "class", classes=WEATHERS[::-1])
    others = [{"image": one["image"], "label": 0, "weather": 2 - one.get("weather", 0)} for one in samples[:6]]
    packer.pack(iter(others), tmp_path / "b.lmdb", classes=["city", "country"], fields={"weather": turned})
    catalog = open_catalog([pack, tmp_path / "b.lmdb"])
    finder = Finder(catalog)
    counts = dict(finder.categories("weather").counts)
    assert counts[WEATHERS[1]] == len(in_weather(samples, 1)) + 2
    result = finder.find(Query(categories=(("weather", WEATHERS[1]),)))
    assert result.part(0, 99).tolist() == [*in_weather(samples, 1), COUNT + 1, COUNT + 4]
    catalog.close()


def test_an_index_grows_by_slices_and_reads_each_sample_once() -> None:
    read: list[int] = []

    def terms(index: int) -> list[str]:
        read.append(index)
        return ["even", "even"] if index % 2 == 0 else []

    postings = Postings(1000, terms)
    assert (postings.unread, postings.of("even").tolist()) == (1000, [])
    postings.advance(0.0)
    assert postings.unread == 1000, "nothing is read in no time"
    while postings.unread:
        before = postings.read
        postings.advance(0.0005)
        assert postings.read > before
        assert postings.of("even").tolist() == list(range(0, postings.read, 2))
    assert read == list(range(1000))
    assert postings.counts() == {"even": 500}


def test_what_is_found_grows_until_all_is_read(pack: Path, samples: Samples) -> None:
    catalog = open_catalog([pack])
    finder, query = Finder(catalog), Query(categories=(("object", "dog"),))
    result, before = finder.find(query), -1
    assert (result.count, result.unread) == (0, COUNT)
    while result.unread:
        result = finder.find(query, 1e-9)
        assert result.count >= before
        before = result.count
    assert result.part(0, COUNT).tolist() == with_object(samples, 1)
    assert finder.find(query) is result, "it is kept"
    catalog.close()


def test_a_category_filters_the_images(browser: Any, server: Server, samples: Samples) -> None:
    with Visit(browser, server.address) as visit:
        page = visit.page
        sunny, dogs = in_weather(samples, 0), with_object(samples, 1)
        assert visit.texts(".facet summary")[0].startswith("object")
        page.wait_for_selector(".values >> text=sunny")
        assert visit.texts(".values[aria-label=weather] span:first-child") == [*WEATHERS, "none"]
        page.click(".values >> text=sunny")
        visit.until_counted(f"{len(sunny)} of {COUNT} images")
        page.wait_for_selector(".values >> text=dog")
        page.click(".values >> text=dog")
        both = sorted({*sunny} & {*dogs})
        visit.until_counted(f"{len(both)} of {COUNT} images")
        visit.until(f"document.querySelectorAll('.cell[data-filled]').length === {len(both)}")
        assert sorted(visit.texts(".cell .name")) == [f"{number:02d}.jpg" for number in both]
        assert visit.texts(".chip span") == ["weather: sunny", "object: dog"]
        page.reload()  # the address has the filters
        visit.until_counted(f"{len(both)} of {COUNT} images")
        page.click(".chip >> text=object")
        visit.until_counted(f"{len(sunny)} of {COUNT} images")
        page.click(".values >> text=sunny")  # once more: not chosen any longer
        visit.until_counted(f"{COUNT} images")
        page.click(".values[aria-label=weather] >> text=none")
        visit.until_counted(f"{len(in_weather(samples, None))} of {COUNT} images")


@pytest.mark.parametrize("order", ["", "narrowest"])
def test_images_that_are_found_later_are_added(
    browser: Any, pack: Path, samples: Samples, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """Each request reads one sample; the grid asks again for what it asked too early."""
    monkeypatch.setattr("packer._viewing.server._SECONDS_OF_READING", 1e-9)
    dogs = with_object(samples, 1)
    for server in serving(pack):
        address = f"{server.address}#{urlencode({'in.object': 'dog', 'order': order})}"
        with Visit(browser, address, viewport={"width": 1400, "height": 3000}) as visit:
            visit.until_counted(f"{len(dogs)} of {COUNT} images")
            visit.until(f"document.querySelectorAll('.cell[data-filled]').length === {len(dogs)}")
            assert visit.texts(".cell .name") == [f"{number:02d}.jpg" for number in dogs]


def test_rows_are_walked_and_chosen_by_keys(browser: Any, server: Server, samples: Samples) -> None:
    with Visit(browser, server.address) as visit:
        page = visit.page
        page.wait_for_selector(".values >> text=sunny")
        page.focus('.values .class:has-text("sunny")')
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        visit.until_counted(f"{len(in_weather(samples, 1))} of {COUNT} images")
        page.keyboard.press("Escape")
        visit.until_counted(f"{COUNT} images")


def test_the_bar_of_a_row_is_no_selection(browser: Any, server: Server) -> None:
    """A row that is not chosen has no background, whatever its share; a chosen one has, and a mark at its edge."""
    looks = "all => all.map((one) => [one.getAttribute('aria-selected'), getComputedStyle(one).backgroundColor, "
    looks += "getComputedStyle(one).boxShadow, parseFloat(getComputedStyle(one, '::after').height) / one.clientHeight])"
    with Visit(browser, server.address) as visit:
        visit.page.click("#classes >> text=city")
        visit.until_counted(f"30 of {COUNT} images")
        visit.page.mouse.move(600, 400)
        rows = visit.page.eval_on_selector_all(".class", looks)
        assert [chosen for chosen, *_ in rows].count("true") == 1
        for chosen, background, shadow, thickness in rows:
            assert (background == "rgba(0, 0, 0, 0)") == (shadow == "none") == (chosen == "false")
            assert thickness < 0.3


def test_fields_are_drawn_in_the_grid_by_default(browser: Any, server: Server) -> None:
    with Visit(browser, server.address) as visit:
        page = visit.page
        visit.until("document.querySelectorAll('.over .box').length > 0")
        assert page.locator(".over .polygon").count() > 0
        assert "city · caption 0" in visit.texts(".cell .said")
        page.uncheck("[data-field=boxes]")
        assert (page.locator(".over .box").count(), page.locator(".over .polygon").count() > 0) == (0, True)
        page.uncheck("[data-field=caption]")
        assert "city" in visit.texts(".cell .said")
        page.click("#scroll")
        page.keyboard.press("Escape")
        page.keyboard.press("o")
        visit.until("document.querySelectorAll('.cell[data-filled]').length > 0 && !document.querySelector('.over')")
        page.keyboard.press("o")
        visit.until("document.querySelectorAll('.over .polygon').length > 0")


def rectangles(visit: Visit, selector: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of elements, in pixels of the screen."""
    edges = "all => all.map((one) => one.getBoundingClientRect()).map((r) => [r.left, r.top, r.right, r.bottom])"
    return [(left, top, right, bottom) for left, top, right, bottom in visit.page.eval_on_selector_all(selector, edges)]


def overlapping(rects: list[tuple[float, float, float, float]]) -> int:
    """Return how many pairs of rectangles have more than an edge in common."""
    return sum(
        min(a[2], b[2]) - max(a[0], b[0]) > 0.1 and min(a[3], b[3]) - max(a[1], b[1]) > 0.1
        for a, b in itertools.combinations(rects, 2)
    )


@pytest.mark.parametrize("size", [(1400, 900), (390, 780)])
def test_names_of_boxes_do_not_cover_each_other(browser: Any, server: Server, size: tuple[int, int]) -> None:
    viewport = {"width": size[0], "height": size[1]}
    with Visit(browser, server.address, viewport=viewport) as visit:
        page = visit.page
        page.click(f"#cell{CROWDED}")
        page.wait_for_selector("#sample[open] .boxName")
        assert overlapping(rectangles(visit, "#shapes .box")) == 91, "the boxes themselves do"
        names, (picture,) = rectangles(visit, ".boxName"), rectangles(visit, "#canvas")
        assert len(names) == 14
        assert overlapping(names) == 0
        for left, top, right, bottom in names:
            assert left > picture[0] - 1
            assert top > picture[1] - 1
            assert right < picture[2] + 1
            assert bottom < picture[3] + 1
            assert 14 < bottom - top < 20, "they are as large on every screen"
        for plate, words in zip(rectangles(visit, ".boxName rect"), rectangles(visit, ".boxName text"), strict=True):
            assert plate[0] < words[0] < words[2] < plate[2]
        tones = (
            "all => all.map((one) => [getComputedStyle(one.children[0]).fill, getComputedStyle(one.children[1]).fill])"
        )
        for plate, ink in page.eval_on_selector_all(".boxName", tones):
            assert contrast(plate, ink) > 4.5
        page.uncheck("#field-boxes input")
        assert visit.texts(".boxName") == []


def test_places_of_any_boxes_are_free_and_inside(browser: Any, server: Server) -> None:
    rng = np.random.default_rng(0)
    with Visit(browser, server.address) as visit:
        for count in (1, 30, 300):
            corners = rng.uniform(-20, 520, (count, 2, 2))
            boxes = np.concatenate([corners.min(1), corners.max(1)], 1).tolist()
            keys = ("left", "top", "right", "bottom", "width", "height")
            names = [dict(zip(keys, [*box, float(rng.uniform(10, 90)), 12.0], strict=True)) for box in boxes]
            placed = visit.page.evaluate(
                "async (names) => (await import('./placing.js')).place(names, 500, 400)", [*names, names[0]]
            )
            there = [one for one in placed if one]
            rects = [(one["x"], one["y"], one["x"] + one["width"], one["y"] + one["height"]) for one in there]
            assert overlapping(rects) == 0
            assert all(left >= 0 and top >= 0 and right <= 500 and bottom <= 400 for left, top, right, bottom in rects)
            assert len(there) == count + 1 if count < 100 else len(there) > 50


def contrast(one: str, other: str) -> float:
    """Return WCAG's contrast of two colours of the form rgb(1, 2, 3)."""

    def luminance(colour: str) -> float:
        values = np.array([float(part) for part in colour.removeprefix("rgb(").rstrip(")").split(",")]) / 255
        linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
        return float(linear @ (0.2126, 0.7152, 0.0722))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_their_background(browser: Any, server: Server, scheme: str) -> None:
    behind = """(one) => {
      const ink = getComputedStyle(one).color;
      while (getComputedStyle(one).backgroundColor === "rgba(0, 0, 0, 0)") one = one.parentElement;
      return [ink, getComputedStyle(one).backgroundColor];
    }"""
    with Visit(browser, server.address, color_scheme=scheme) as visit:
        visit.page.wait_for_selector(".values .class")
        for selector in (".cell .name", ".cell .said", ".values .class span:last-child", ".facet h2", "#facts dt"):
            assert contrast(*visit.page.eval_on_selector(selector, behind)) >= 4.5, selector


ROTATED = "EXIF-rotated"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, root = np.random.default_rng(5), tmp_path_factory.mktemp("findings") / "tree"
    turned = Image.Exif()
    turned[0x0112] = 6
    for number in range(30):
        (root / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        options = {"exif": turned} if number % 7 == 3 else {}
        (root / "ab"[number % 2] / f"{number:02d}.jpg").write_bytes(_jpeg(rng, **options))
    return root


def rotated(tree: Path) -> set[str]:
    """Return the files that Pillow says are rotated."""
    files = sorted(tree.rglob("*.jpg"))
    return {file.name for file in files if Image.open(file).getexif().get(0x0112, 1) != 1}


def test_a_finding_leads_to_its_images(browser: Any, tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "a.lmdb")
    expected = rotated(tree)
    assert len(expected) == 4
    for server in serving(tmp_path / "a.lmdb"):
        with Visit(browser, server.address) as visit:
            page = visit.page
            page.click("text=Findings")
            assert visit.texts(".finding span:first-child") == [ROTATED]
            page.focus(".finding")
            page.keyboard.press("Enter")
            visit.until_counted("4 of 30 images")
            visit.until("document.querySelectorAll('.cell[data-filled]').length === 4")
            assert set(visit.texts(".cell .name")) == expected
            assert visit.texts(".chip span") == [ROTATED]
            assert not page.is_visible("#note")
            page.go_back()
            page.wait_for_selector(".finding")
            page.go_back()
            visit.until_counted("30 images")


def test_a_finding_that_images_lost_is_explained(browser: Any, tree: Path, tmp_path: Path) -> None:
    """Images that were encoded again have no orientation any more."""
    packer.convert(tree, tmp_path / "a.lmdb", resize=64)
    for server in serving(tmp_path / "a.lmdb"):
        with Visit(browser, server.address) as visit:
            visit.page.goto(f"{server.address}#{urlencode({'finding': ROTATED})}")
            visit.until_counted("0 of 30 images")
            assert "The conversion counted 4 of the source files" in visit.page.inner_text("#note")
            visit.page.click("text=Clear the filters")
            visit.until_counted("30 images")


def test_images_that_were_not_enlarged_are_found(tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "a.lmdb", resize=180)
    with packer.open_pack(tmp_path / "a.lmdb") as reader:
        (finding, count) = next((name, count) for name, count in reader.manifest.findings.items() if "smaller" in name)
    assert len(found(tmp_path / "a.lmdb", finding=finding)) == count == 30


def test_a_check_lists_findings_that_no_manifest_counts(browser: Any, tree: Path, tmp_path: Path) -> None:
    """Another program wrote the pack; one of its images is damaged."""
    images = {file.name: file.read_bytes() for file in sorted(tree.rglob("*.jpg"))}
    images["00.jpg"] = images["00.jpg"][:1000]
    rows = [Sample(name, 0, data, 150, 200, ()) for name, data in images.items()]
    for server in serving(write_pack(tmp_path / "a.lmdb", "lmdb", rows)):
        with Visit(browser, server.address) as visit:
            page = visit.page
            page.click("text=Findings")
            assert "found nothing unusual" in page.inner_text("#findings")
            page.click("text=Check every image")
            page.wait_for_selector(".finding >> text=EXIF-rotated")
            page.click("#findings >> text=Show it")
            visit.until_counted("1 of 30 images")
            assert visit.texts(".chip span") == [DAMAGED]


def test_axes_say_when_they_are_logarithmic(browser: Any, tmp_path: Path) -> None:
    """Widths and heights have one axis: the same kind, the same numbers."""
    rng = np.random.default_rng(1)
    sizes = [(int(side), 30) for side in np.geomspace(10, 1500, 20)]
    samples = ({"image": _jpeg(rng, *size), "label": number % 2} for number, size in enumerate(sizes))
    packer.pack(samples, tmp_path / "a.lmdb", classes=["a", "b"])
    below = "all => all.filter((one) => one.getAttribute('y') === '217').map((one) => one.textContent)"
    for server in serving(tmp_path / "a.lmdb"):
        with Visit(browser, server.address) as visit:
            visit.page.click("text=Histograms")
            visit.page.wait_for_selector("#histograms svg")
            charts = [visit.page.locator("#histograms svg").nth(number).locator("text") for number in range(5)]
            says = {chart.nth(0).text_content(): chart.last.text_content() for chart in charts}
            assert says.pop("File size").startswith("bytes")
            assert says == {
                "Width": "pixels, logarithmic axis",
                "Height": "pixels, logarithmic axis",
                "Aspect ratio": "width / height, logarithmic axis",
                "Images per class": "",
            }
            numbers = [chart.evaluate_all(below) for chart in charts]
            assert numbers[0] == numbers[1] == ["10", "20", "50", "100", "200", "500", "1000"]
            assert numbers[4] == ["a", "b"]
