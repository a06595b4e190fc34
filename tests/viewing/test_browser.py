"""The viewer's page in a real browser: Chromium, driven by Playwright. Without them these tests are skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer._containers.listing import ForeignFiles
from packer._fields import Field
from packer._formats.index import write_index
from packer._manifest import Manifest
from packer._storage.files import TableBuilder
from packer._table import Sample
from packer._viewing.catalog import open_catalog
from packer._viewing.report import write_report
from packer._viewing.server import Server
from tests.samples import solid, write_pack
from tests.viewing.conftest import COUNT, DAMAGED, SCRIPT, TWICE, serving
from tests.viewing.test_hostile import GREY
from tests.visit import ALL_THERE, Visit

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_the_grid_shows_samples_and_filters_them(browser: Any, server: Server) -> None:
    with Visit(browser, server.address) as visit:
        page = visit.page
        first = [url.partition("/ask/")[2].partition("?")[0] for url in visit.asked if "/ask/" in url]
        assert set(first[:4]) == {"packs", "sheet"}, "the first screen waits for nothing else"
        assert set(first) == {"packs", "sheet", "field", "category"}
        assert first.count("packs") == 1
        assert page.title() == "some.lmdb"
        assert page.inner_text("#count") == f"{COUNT} images"
        assert SCRIPT.rpartition("/")[2] in visit.texts(".cell .name")
        assert "<b>dog</b>" in visit.texts(".class span:first-child")
        assert page.query_selector(".cell script, .class b, .cell i") is None
        assert len(visit.texts(".cell.damaged")) == 1
        assert "checksum does not match" in visit.texts(".cell.damaged .reason")[0]
        page.keyboard.press("/")
        page.keyboard.type("photo1")
        visit.until("document.getElementById('count').textContent.startsWith('10 of')")
        page.keyboard.press("Escape")
        visit.until(f"document.getElementById('count').textContent === '{COUNT} images'")
        page.click(".class >> text=bird")
        visit.until("document.getElementById('count').textContent.startsWith('8 of')")
        page.fill("#where", "width >")
        page.wait_for_selector("#error:not([hidden])")
        visit.complaints = [text for text in visit.complaints if "400 (Bad Request)" not in text]


def test_one_sample_is_looked_at_with_its_fields_and_crops(browser: Any, server: Server) -> None:
    with Visit(browser, server.address, color_scheme="dark") as visit:
        page = visit.page
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sample[open] .box")
        assert page.inner_text("#place") == f"2 of {COUNT}"
        assert "photo <i>1</i>" in visit.texts(".field p")
        assert visit.texts(".boxName text") == ["flat"]
        page.wait_for_selector("#shapes image.mask", state="attached")
        page.keyboard.press("c")
        visit.until("document.querySelectorAll('#cuts img').length === 8")
        assert page.locator("#shapes .cut").count() == 8
        for _ in range(DAMAGED - 1):
            page.keyboard.press("ArrowRight")
        page.wait_for_selector("#damage:not([hidden])")
        assert "checksum does not match" in page.inner_text("#damage")
        page.keyboard.press("Escape")
        page.wait_for_selector("#sample:not([open])", state="attached")
        assert page.get_attribute(".cell.selected", "data-place") == str(DAMAGED)


def test_histograms_duplicates_and_findings_are_views_of_their_own(browser: Any, server: Server) -> None:
    with Visit(browser, server.address) as visit:
        page = visit.page
        page.click("text=Histograms")
        page.wait_for_selector("#histograms svg .bar")
        assert page.locator("#histograms svg").count() == 5
        page.locator("#histograms svg >> nth=4").locator(".bar >> nth=0").click()
        visit.until("document.getElementById('count').textContent.startsWith('8 of')")
        page.click("text=Duplicates")
        visit.until("document.querySelectorAll('#duplicates .thumb').length === 2")
        assert all(f"Photo{number:02d}" in " ".join(visit.texts("#duplicates .name")) for number in TWICE)
        page.click("text=Findings")
        page.click("text=Check every image")
        page.wait_for_selector(f"#findings .thumb >> text=sample {DAMAGED}")
        page.keyboard.press("?")
        page.wait_for_selector("#keys[open]")


def test_nothing_is_shown_without_the_secret(browser: Any, server: Server) -> None:
    page = browser.new_page()
    response = page.goto(f"http://127.0.0.1:{server.server_port}/")
    assert response.status == 403
    assert "Photo" not in page.content()
    page.close()


def test_a_phone_needs_no_scrolling_sideways(browser: Any, server: Server) -> None:
    with Visit(browser, server.address, viewport={"width": 390, "height": 780}) as visit:
        assert visit.page.evaluate("document.documentElement.scrollWidth") == 390
        visit.page.click(".cell >> nth=2")
        visit.page.wait_for_selector("#sample[open]")
        assert visit.page.evaluate("document.getElementById('sample').scrollWidth") == 390


def test_the_last_of_very_many_is_reached_by_scrolling(browser: Any, tmp_path: Path) -> None:
    """The grid is higher than any element may be."""
    count, data = 300_000, b"no image"
    (tmp_path / "data.bin").write_bytes(data)
    rows = TableBuilder()
    for index in range(count):
        name = b"%07d" % index
        rows.append(label=-1, height=9, width=9, offset=0, size=len(data), crc32c=0, name=name)
    (tmp_path / "many.index").mkdir()
    files = ForeignFiles(tmp_path, ["data.bin"])
    write_index(
        tmp_path / "many.index", Manifest("index", count, [], schema=2), rows.build(), files, base="..", checksums=False
    )
    for server in serving(tmp_path / "many.index"):
        with Visit(browser, server.address) as visit:
            page = visit.page
            places = "[...document.querySelectorAll('.cell')].map((one) => Number(one.dataset.place))"
            page.evaluate("() => { const s = document.getElementById('scroll'); s.scrollTop = s.scrollHeight; }")
            visit.until(f"{places}.includes({count - 1})")
            page.wait_for_function(ALL_THERE)
            assert f"{count - 1:07d}" in visit.texts(".cell .name")
            page.evaluate("() => { const s = document.getElementById('scroll'); s.scrollTop = s.scrollHeight / 2; }")
            visit.until(f"Math.abs(Math.min(...{places}) - {count // 2}) < 100")
            before = page.evaluate(f"Math.min(...{places})")
            page.mouse.move(600, 400)
            page.mouse.wheel(0, 600)
            visit.until(f"Math.min(...{places}) > {before}")
            assert page.evaluate(f"Math.min(...{places})") - before < 40, "a wheel goes row by row"
            page.keyboard.press("Home")
            visit.until(f"{places}.includes(0)")


def test_the_report_opens_from_the_disk_and_asks_for_nothing(browser: Any, pack: Path, tmp_path: Path) -> None:
    catalog = open_catalog([pack])
    write_report(catalog, tmp_path / "report.html")
    catalog.close()
    asked: list[str] = []
    complaints: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto((tmp_path / "report.html").as_uri())
    assert page.evaluate("[...document.images].every((one) => one.complete && one.naturalWidth > 0)")
    assert page.evaluate("document.images.length") >= COUNT - 1
    assert SCRIPT.rpartition("/")[2] in page.inner_text("body")
    assert page.title() == "some.lmdb"
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()


def test_values_and_images_of_a_stranger_are_shown_as_what_they_are_and_break_nothing(
    browser: Any, tmp_path: Path
) -> None:
    fields = [Field("runs", "segmentation"), Field("boxes", "boxes"), Field("mask", "mask"), Field("text", "text")]
    boxes = np.array([[-3e38, 0, 3e38, np.inf], [np.nan, 1, 2, 3]], "<f4").tobytes()
    whole = tmp_path / "whole.jpg"
    solid(whole, size=(64, 48))
    broken = whole.read_bytes()[:-200]  # with a checksum that fits
    rows = [
        Sample("\u202egpj.a", 0, GREY, 6, 8, (b'["<script>"]', boxes, b"no image", b"<i>\x00")),
        Sample("b", 0, GREY, -6, 2**31 - 1, (b'[[["x", {}, 1, 2, 3, 4]]]', b"", GREY, b"\xff")),
        Sample("c", 0, broken, 48, 64, (None, None, None, None)),
        Sample("d", 7, GREY, 6, 8, (b"{}", boxes, GREY, b"two\nlines")),
    ]
    pack = write_pack(tmp_path / "stranger.lmdb", "lmdb", rows, fields=fields, classes=["<img src=x onerror=alert(1)>"])
    for server in serving(pack):
        with Visit(browser, server.address, viewport={"width": 390, "height": 780}) as visit:
            page = visit.page
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            assert len(visit.texts(".cell.damaged")) == 2
            assert visit.texts(".cell .name")[0] == "\\u202egpj.a"
            visit.until("document.querySelectorAll('.over').length === 2")
            page.keyboard.press("Enter")
            for place in range(4):
                page.wait_for_function(f"() => document.getElementById('place').textContent === '{place + 1} of 4'")
                assert bool(page.locator("#damage").is_visible()) == (place in (1, 2))
                if place == 0:
                    page.wait_for_selector("#field-mask .bad")
                page.keyboard.press("ArrowRight")
            page.keyboard.press("Escape")
            page.click("text=Histograms", force=True)
            page.wait_for_selector("#histograms svg")
            visit.complaints = [text for text in visit.complaints if "422" not in text]  # the mask that is none
