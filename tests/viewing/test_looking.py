"""The viewer without its server: searches for samples, pictures, crops, duplicates, histograms and reports."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import google_crc32c
import numpy as np
import pytest
from PIL import Image

import packer
from packer._cli import EXIT_STATUS
from packer._viewing.catalog import Catalog, find_duplicates, image_checksums, open_catalog
from packer._viewing.finder import ORDERS, Finder, Query
from packer._viewing.histograms import Histogram, draw, histograms, plot
from packer._viewing.pictures import Pictures, annotations_of, mask_picture
from packer._viewing.report import write_report
from tests.command import packer_many, python
from tests.viewing.conftest import CLASSES, COUNT, DAMAGED, SCRIPT, TWICE


@pytest.fixture(scope="module")
def catalog(pack: Path) -> Catalog:
    return open_catalog([pack])


def found(catalog: Catalog, **wanted: object) -> list[int]:
    result = Finder(catalog).find(Query(**wanted))  # type: ignore[arg-type]
    assert result.complete
    return result.part(0, result.count).tolist()


def test_samples_are_found_by_class_name_range_and_condition(catalog: Catalog) -> None:
    dataset = catalog.dataset
    names = [dataset.samples[index][0] for index in range(COUNT)]
    assert found(catalog) == list(range(COUNT))
    assert found(catalog, label=1) == [index for index in range(COUNT) if index % 3 == 1]
    assert found(catalog, name="pHOTO1") == [index for index, name in enumerate(names) if "Photo1" in name]
    assert found(catalog, name="jpgcat") == [], "no name, but where two names touch"
    assert found(catalog, name="nowhere") == []
    width = dataset.columns["width"]
    assert found(catalog, measure="width", low=70, high=90) == np.flatnonzero((width >= 70) & (width < 90)).tolist()
    condition = "width > 100 and label == 'cat'"
    chosen = [name for name, _ in dataset.where(condition).samples]  # type: ignore[union-attr]
    assert [names[index] for index in found(catalog, condition=condition)] == chosen
    assert chosen
    assert found(catalog, label=0, name="photo", condition="width > 100", measure="size", low=1) == [
        index for index in range(0, COUNT, 3) if "Photo" in names[index] and width[index] > 100
    ]


def test_orders_are_orders(catalog: Catalog) -> None:
    size, pixels = catalog.column("size"), catalog.column("width").astype(np.int64) * catalog.column("height")
    assert sorted(found(catalog, order="largest")) == list(range(COUNT))
    assert np.all(np.diff(pixels[found(catalog, order="largest")]) <= 0)
    assert np.all(np.diff(size[found(catalog, order="fewest bytes")]) >= 0)
    for order in ORDERS:
        assert len(found(catalog, order=order)) == COUNT
    with pytest.raises(packer.OptionError, match="an order must be one of"):
        Query(order="by heart")
    with pytest.raises(packer.OptionError, match="nowhere"):
        found(catalog, condition="nowhere > 3")


def test_a_search_that_finds_too_many_names_says_so(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer._viewing.finder._MOST_NAMES", 4)
    result = Finder(catalog).find(Query(name="photo"))
    assert (result.count, result.complete) == (4, False)


def test_pictures_are_the_samples_and_a_damaged_one_has_its_error(catalog: Catalog) -> None:
    pictures = Pictures(catalog).small(np.arange(COUNT)[::-1], 40)
    assert [one.index for one in pictures] == list(range(COUNT))[::-1]
    for one in pictures:
        if one.index == DAMAGED:
            assert not one.jpeg
            assert "checksum does not match" in one.error
            continue
        image = Image.open(io.BytesIO(one.jpeg))
        assert max(image.size) == 40
        whole = catalog.readers[0].read(one.index)
        expected = Image.open(io.BytesIO(whole)).convert("L").resize(image.size, Image.Resampling.BILINEAR)
        assert np.abs(np.asarray(image.convert("L"), int) - np.asarray(expected, int)).mean() < 8
    assert "checksum does not match" in Pictures(catalog).whole(DAMAGED, 100).error


@pytest.mark.parametrize("packs", [1, 2])
def test_crops_are_those_of_training(pack: Path, packs: int) -> None:
    catalog = open_catalog([pack] * packs)
    crop = packer.RandomResizedCrop(48)
    paths = pack if packs == 1 else [pack] * packs
    dataset = packer.open_dataset(paths, crop=crop, seed=3, output="numpy")  # type: ignore[arg-type]
    index = (packs - 1) * COUNT + 9
    cuts = Pictures(catalog).cuts(index, crop, 3, range(2, 5))
    assert [cut.epoch for cut in cuts] == [2, 3, 4]
    for cut in cuts:
        dataset.set_epoch(cut.epoch)
        image = np.asarray(Image.open(io.BytesIO(cut.jpeg)), int)
        assert np.abs(image - dataset[index][0].astype(int)).mean() < 6
    assert len({(cut.top, cut.left, cut.height, cut.width) for cut in cuts}) == 3


def test_fields_are_described_and_masks_coloured(catalog: Catalog) -> None:
    fields = {field["name"]: field for field in annotations_of(catalog, 4)}
    assert fields["boxes"]["boxes"] == [[5, 5, 40, 50]]
    assert fields["boxes"]["labels"] == ["round"]
    assert fields["caption"]["text"] == "photo <i>4</i>"
    assert fields["mask"]["picture"] == "mask"
    mask = np.asarray(Image.open(io.BytesIO(mask_picture(catalog, 4, "mask", 1000))))
    assert mask.shape == (60, 80, 4)
    assert set(np.unique(mask[..., 3])) == {0, 255}
    assert (mask[10:30, 10:30, 3] == 255).all()
    with pytest.raises(ValueError, match="is not a mask"):
        mask_picture(catalog, 4, "boxes", 100)


@pytest.mark.parametrize("labels", ["class", "float"])
def test_checksums_of_images_alone_come_from_those_of_samples(tmp_path: Path, labels: str) -> None:
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (8, 8 + number, 3), np.uint8) for number in range(5)]
    one = 0.5 if labels == "float" else 1
    given = ({"image": image, "name": "é" * n + f"{n}.png", "label": one * n} for n, image in enumerate(images))
    options = {"label_type": "float"} if labels == "float" else {"classes": list("abcde")}
    packer.pack(given, tmp_path / "p.lmdb", codec="png", **options)  # type: ignore[arg-type]
    with packer.open_pack(tmp_path / "p.lmdb") as reader:
        expected = [google_crc32c.value(bytes(reader.read(index))) for index in range(5)]
        assert image_checksums(reader.table).tolist() == expected


def test_duplicates_are_found_whatever_their_names(catalog: Catalog, pack: Path) -> None:
    found = find_duplicates(catalog)
    assert [group.indices for group in found.groups] == [TWICE]
    assert found.candidates == 1
    twice = find_duplicates(open_catalog([pack, pack]))
    assert twice.candidates == COUNT - 1
    assert [TWICE[0], TWICE[1], TWICE[0] + COUNT, TWICE[1] + COUNT] in [group.indices for group in twice.groups]
    assert not any(DAMAGED in group.indices for group in twice.groups), "what cannot be read was compared with nothing"


def test_histograms_count_every_sample_once(catalog: Catalog) -> None:
    drawn = histograms(catalog)
    assert [one.measure for one in drawn] == ["width", "height", "aspect", "size", "label"]
    for one in drawn:
        assert sum(one.counts) == COUNT
        assert len(one.edges) == len(one.counts) + 1
        bars = [e for e in ElementTree.fromstring(draw(one)).iter() if e.tag.endswith("rect")]
        assert len(bars) == len(one.counts)
    assert drawn[-1].names == tuple(CLASSES)
    some = np.array([0, 3, 6])
    assert histograms(catalog, some)[-1].counts == [3, 0, 0]
    assert histograms(catalog, np.empty(0, np.int64)) == []


def test_a_histogram_over_a_wide_range_has_growing_bars() -> None:
    from packer._viewing.histograms import _edges, _is_wide

    values = np.array([3, 40, 500, 6000, 70000])
    edges, logarithmic = _edges(values, whole=True, wide=_is_wide(values))
    assert logarithmic
    widths = np.diff(edges)
    assert (widths > 0).all()
    assert (widths[len(widths) // 2 :] > 2 * widths[: -(len(widths) // 2)]).all()
    assert np.histogram(values, edges)[0].sum() == 5
    assert "<svg" in draw(Histogram("size", "Bytes", "", edges.tolist(), np.histogram(values, edges)[0].tolist(), True))


@pytest.mark.parametrize(("widths", "wide"), [((30, 90, 3000), True), ((300, 400, 500), False)])
def test_widths_and_heights_have_one_kind_of_axis_which_says_what_it_is(
    tmp_path: Path, widths: tuple[int, ...], wide: bool
) -> None:
    for transposed in (False, True):
        shapes = [(width, 400) if transposed else (400, width) for width in widths]
        packer.pack(
            ({"image": np.zeros((*shape, 3), np.uint8)} for shape in shapes), tmp_path / "p.lmdb", overwrite=True
        )
        catalog = open_catalog([tmp_path / "p.lmdb"])
        drawn = {one.measure: one for one in histograms(catalog)}
        assert (drawn["width"].logarithmic, drawn["height"].logarithmic) == (wide, wide)
        for one in drawn.values():
            assert ("logarithmic" in draw(one)) == one.logarithmic


@pytest.mark.parametrize("value", [5, 10**18, -(10**18), 0.5, 1e300])
@pytest.mark.parametrize("spread", [0, 1])
def test_labels_of_any_size_are_drawn(tmp_path: Path, value: float, spread: int) -> None:
    labels = [value, value, value + spread]
    samples = [{"image": np.full((8, 8, 3), 90, np.uint8), "label": label} for label in labels]
    packer.pack(samples, tmp_path / "pack.lmdb", label_type=type(value).__name__)
    with packer.open_dataset(tmp_path / "pack.lmdb") as dataset:
        drawn = histograms(Catalog(dataset))[-1]
    assert (drawn.measure, sum(drawn.counts)) == ("label", 3)
    assert draw(drawn).count("<rect") == len(drawn.counts)


@pytest.mark.parametrize(
    "values",
    [(2**60, 2**60), (2**53, 2**53 + 1), (-(2**63), 2**63 - 1), (1.7e18, 1.7e18), (-1e308, 1e308), (0.0, 1e-320)],
)
def test_numbers_of_any_size_have_a_histogram(tmp_path: Path, values: tuple[float, float]) -> None:
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "png")
    kind = "int" if isinstance(values[0], int) else "float"
    samples = [{"image": image.getvalue(), "label": value} for value in values]
    packer.pack(samples, tmp_path / "a.lmdb", label_type=kind)
    catalog = open_catalog([tmp_path / "a.lmdb"])
    labels = histograms(catalog)[-1]
    assert sorted(set(labels.edges)) == labels.edges
    assert sum(labels.counts) == (0 if values[1] == 1e308 else 2)
    write_report(catalog, tmp_path / "a.html")
    catalog.close()


def test_plots_are_written_as_svg_without_any_library(catalog: Catalog, tmp_path: Path) -> None:
    plot(tmp_path / "plot.svg", "a < b", histograms(catalog))
    text = (tmp_path / "plot.svg").read_text("utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "a &lt; b" in text
    assert "&lt;b&gt;dog&lt;/b&gt;" in text
    with pytest.raises(packer.OptionError, match=r"such as plot\.svg or plot\.png"):
        plot(tmp_path / "plot.gif", "", histograms(catalog))
    with pytest.raises(packer.DestinationError, match="Make it first"):
        plot(tmp_path / "nowhere" / "plot.svg", "", histograms(catalog))
    (tmp_path / "notes.svg").write_text("no picture")
    with pytest.raises(packer.DestinationError, match="would replace a file that is not a picture"):
        plot(tmp_path / "notes.svg", "", histograms(catalog))
    code = "import sys; import packer._viewing.histograms; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, "what is wrong is said at once"


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
sys.argv[0], sys.dont_write_bytecode = "packer", True  # else Python would keep halves of what it compiles
runpy.run_module("packer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit on the size of files")
def test_a_plot_that_cannot_be_written_leaves_the_one_that_was_there(pack: Path, tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_text("<svg>the one before</svg>")
    result = python(LIMITED, "info", pack, "--plot", tmp_path / "plot.svg", check=False)
    assert result.returncode == 1
    assert "plot.svg: cannot be written: File too large." in result.stderr
    assert (tmp_path / "plot.svg").read_text() == "<svg>the one before</svg>"
    assert list(tmp_path.iterdir()) == [tmp_path / "plot.svg"]


def test_a_report_is_one_page_that_asks_for_nothing(catalog: Catalog, tmp_path: Path) -> None:
    size = write_report(catalog, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    assert size == (tmp_path / "report.html").stat().st_size
    assert SCRIPT not in text
    assert "&lt;script&gt;" in text
    assert text.count('src="') == text.count('src="data:image/jpeg;base64,')
    assert "href=" not in text
    assert "url(" not in text
    assert "1 of all 24 samples cannot be read and decoded." in text
    assert f"sample {DAMAGED}: " in text
    assert "the same checksum and size: 1." in text
    read: list[int] = []
    with pytest.raises(packer.DestinationError, match="does not exist"):
        write_report(catalog, tmp_path / "nowhere" / "report.html", progress=lambda done, total: read.append(done))
    assert not read, "all samples were read for a report that nobody gets"


def test_trees_and_several_packs_are_looked_at_as_one(pack: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree" / "bird"
    tree.mkdir(parents=True)
    Image.new("RGB", (30, 20)).save(tree / "b.png")
    catalog = open_catalog([pack, tmp_path / "tree"])
    assert len(catalog) == COUNT + 1
    assert catalog.title == f"{pack.name}, tree"
    assert catalog.paths == [str(pack), str(tmp_path / "tree")]
    assert catalog.label(COUNT) == "bird"
    assert catalog.class_counts == [8, 8, 9]
    assert not Pictures(catalog).small(np.array([COUNT]), 64)[0].error
    assert COUNT in found(catalog, label=2)
    assert "checksums" in find_duplicates(catalog).reason


def test_a_page_replaces_a_page_and_never_a_pack(pack: Path, catalog: Catalog, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.touch()
    assert write_report(catalog, target) == write_report(catalog, target)
    copy = Path(shutil.copy(pack, tmp_path))
    (result,) = packer_many([["view", copy, "--html", copy]], torch=True)
    assert result.returncode == EXIT_STATUS["error"]
    assert "the page would replace a file that is not a page" in result.stderr
    assert copy.read_bytes() == pack.read_bytes()
    with pytest.raises(packer.DestinationError, match=r"the directory .*nowhere does not exist"):
        write_report(catalog, tmp_path / "nowhere" / "report.html")
