"""Whole trees of unusual and broken images are converted without a crash, and every image left out is reported."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from packer._codecs import IMAGE_SUFFIXES
from packer._conversion.convert import Summary, convert
from packer._conversion.recipe import Recipe
from packer._datasets.open import open_dataset
from packer._images.probe import CLIPPED
from packer._images.resize import ResizeSpec
from packer._sources.imagefolder import imagefolder_source
from packer.errors import ImageError, SourceError
from tests.conftest import odd_images
from tests.images.samples import encoded, jpeg, photo, png_chunk

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Pillow warns about unusual metadata
    pytest.mark.timeout(120),  # a hang is a failure
]

SUFFIXES = {"lmdb": ".lmdb", "hdf5": ".h5", "pth": ".pth"}


def broken_images() -> dict[str, bytes]:
    """Return files that Pillow refuses, by their names in a tree."""
    whole = {
        "jpg": jpeg(size=(37, 53)),
        "png": encoded(photo(37, 53), "PNG"),
        "webp": encoded(photo(37, 53), "WEBP"),
        "bmp": encoded(photo(37, 53), "BMP"),
    }
    png = whole["png"]
    files = {
        "broken/text.jpg": b"<html>404</html>",
        "broken/zeros.png": bytes(4000),
        "broken/depth.png": png[:8] + png_chunk(b"IHDR", png[16:24] + b"\x03" + png[25:29]) + png[33:],
    }
    for suffix, data in whole.items():
        files[f"broken/empty.{suffix}"] = b""
        files[f"broken/magic.{suffix}"] = data[:4]
        files[f"broken/junk_before.{suffix}"] = bytes(4801) + data
        for percent in (10, 50, 90):
            files[f"broken/{percent}_percent.{suffix}"] = data[: len(data) * percent // 100]
    return files


@pytest.fixture(scope="module")
def generated_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("generated")
    for name, data in (odd_images() | broken_images()).items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture(scope="module")
def shared_tree(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Link the files in ``odd`` into a tree; if ImageFolder would ignore its suffix, append ".png".

    Half of the files in ``exif``, which are large, are enough: each orientation is there once.
    """
    root = tmp_path_factory.mktemp("shared")
    turned = sorted((shared_data / "odd" / "exif").iterdir())[::2]
    assert {path.stem[-1] for path in turned} == set("012345678")
    others = (path for path in (shared_data / "odd").rglob("*") if path.is_file() and path.parent.name != "exif")
    files = turned + sorted(others)
    assert len(files) > 600
    for path in files:
        (root / path.parent.name).mkdir(exist_ok=True)
        name = path.name if path.suffix.lower() in IMAGE_SUFFIXES else f"{path.name}.png"
        (root / path.parent.name / name).symlink_to(path)
    return root


@pytest.fixture(scope="module", params=["generated_tree", "shared_tree"])
def tree(request: pytest.FixtureRequest) -> Path:
    root: Path = request.getfixturevalue(request.param)
    return root


@pytest.fixture(scope="module")
def reference(tree: Path) -> dict[str, npt.NDArray[np.uint8] | None]:
    """Return Pillow's pixels of every file of the tree; None if it refuses the file."""
    return {name: pixels_of(tree / name) for name in imagefolder_source(tree).names}


@pytest.fixture(scope="module")
def upright(tree: Path, reference: dict[str, npt.NDArray[np.uint8] | None]) -> dict[str, npt.NDArray[np.uint8] | None]:
    """Return the same as `reference`, rotated by the EXIF orientation."""
    return {
        name: pixels_of(tree / name, upright=True) if may_be_turned(tree / name) else pixels
        for name, pixels in reference.items()
    }


def may_be_turned(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return image.getexif().get(0x0112, 1) != 1
    except Exception:  # each of Pillow's plugins has errors of its own
        return True


@pytest.fixture(scope="module")
def kept(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """Return the summary of an LMDB pack of the tree's bytes."""
    return convert(imagefolder_source(tree), tmp_path_factory.mktemp("kept") / "pack.lmdb", on_error="skip")


def pixels_of(path: Path, *, upright: bool = False) -> npt.NDArray[np.uint8] | None:
    try:
        with Image.open(path) as image:
            turned: Image.Image = ImageOps.exif_transpose(image) if upright else image
            return np.asarray(turned.convert("RGB"))
    except Exception:  # each of Pillow's plugins has errors of its own
        return None


def skipped(summary: Summary) -> dict[str, str]:
    return {entry["name"]: entry["reason"] for entry in summary.manifest.skipped}


def tolerance(path: Path) -> int:
    with Image.open(path) as image:
        return 2 if image.mode == "CMYK" else 0


def differing(
    pack: Path, tree: Path, expected: dict[str, npt.NDArray[np.uint8] | None], decoder: str = "auto"
) -> list[str]:
    """Return the names of the samples whose pixels, or error, are not Pillow's; `decoder` decodes JPEGs alone."""
    dataset = open_dataset(pack, output="numpy", decoder=decoder)
    names = []
    for index, (name, _) in enumerate(dataset.samples):
        if decoder != "auto" and (tree / name).read_bytes()[:2] != b"\xff\xd8":
            continue
        want = expected[name]
        try:
            got = dataset[index][0]
        except ImageError:
            got = None
        if got is None or want is None:
            same = got is want
        else:
            same = np.array_equal(got, want) or (
                got.shape == want.shape and np.abs(got.astype(int) - want).max() <= tolerance(tree / name)
            )
        if not same:
            names.append(name)
    return names


@pytest.mark.parametrize("audit", ["structure", "decode"])
def test_exactly_what_pillow_refuses_is_skipped(
    audit: str, tree: Path, reference: dict[str, npt.NDArray[np.uint8] | None], tmp_path: Path
) -> None:
    summary = convert(
        imagefolder_source(tree), tmp_path / "pack.lmdb", recipe=Recipe(audit=audit), on_error="skip", workers=2
    )
    left_out = skipped(summary)
    assert all(left_out.values())
    assert sorted(left_out) == sorted(name for name, pixels in reference.items() if pixels is None)
    readable = [name for name, pixels in reference.items() if pixels is not None]
    assert [name for name, _ in open_dataset(tmp_path / "pack.lmdb", output="bytes").samples] == readable


@pytest.mark.parametrize("format", SUFFIXES)
def test_labels_never_shift_and_bytes_are_kept(
    format: str, tree: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = imagefolder_source(tree)
    if format == "lmdb":
        summary = request.getfixturevalue("kept")
    else:
        summary = convert(source, tmp_path / f"pack{SUFFIXES[format]}", on_error="skip")
    labels = dict(zip(source.names, source.labels.tolist(), strict=True))
    dataset = open_dataset(summary.destination, output="bytes")
    assert dataset.classes == source.classes
    for index, (name, label) in enumerate(dataset.samples):
        assert label == labels[name]
        assert dataset[index] == ((tree / name).read_bytes(), label)
    assert len(dataset) + len(summary.manifest.skipped) == len(source)


@pytest.mark.parametrize("decoder", ["auto", "opencv"])
def test_pixels_are_pillows(
    decoder: str, tree: Path, reference: dict[str, npt.NDArray[np.uint8] | None], kept: Summary
) -> None:
    assert differing(kept.destination, tree, reference, decoder) == []


def test_raw_stores_pillows_pixels(
    tree: Path, reference: dict[str, npt.NDArray[np.uint8] | None], tmp_path: Path
) -> None:
    recipe = Recipe(codec="raw", to_8_bit="clip")
    summary = convert(imagefolder_source(tree), tmp_path / "pack.lmdb", recipe=recipe, on_error="skip")
    assert sorted(skipped(summary)) == sorted(name for name, pixels in reference.items() if pixels is None)
    assert differing(summary.destination, tree, reference) == []


def test_png_stores_pillows_pixels(generated_tree: Path, tmp_path: Path) -> None:
    source = imagefolder_source(generated_tree)
    summary = convert(source, tmp_path / "pack.lmdb", recipe=Recipe(codec="png", to_8_bit="clip"), on_error="skip")
    expected = {name: pixels_of(generated_tree / name) for name in source.names}
    assert sorted(skipped(summary)) == sorted(name for name, pixels in expected.items() if pixels is None)
    assert differing(summary.destination, generated_tree, expected) == []


def test_resized(tree: Path, reference: dict[str, npt.NDArray[np.uint8] | None], tmp_path: Path) -> None:
    datasets = []
    for codec in ("png", "raw"):
        recipe = Recipe(codec=codec, resize=ResizeSpec(24, "crop"), to_8_bit="clip")
        summary = convert(imagefolder_source(tree), tmp_path / f"{codec}.lmdb", recipe=recipe, on_error="skip")
        assert sorted(skipped(summary)) == sorted(name for name, pixels in reference.items() if pixels is None)
        datasets.append(open_dataset(summary.destination, output="numpy"))
    for index, (name, _) in enumerate(datasets[0].samples):
        pixels = reference[name]
        assert pixels is not None
        image = Image.fromarray(pixels)
        short = min(image.size)
        target = min(24, short)
        size = int(target * image.width / short), int(target * image.height / short)
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = round((size[0] - target) / 2), round((size[1] - target) / 2)
        expected = np.asarray(image.crop((left, top, left + target, top + target)))
        most = 2 + tolerance(tree / name)  # each of the two passes rounds: in one file here, both unlike Pillow
        for dataset in datasets:
            found = dataset[index][0]
            assert found.shape == expected.shape, name
            assert np.abs(found.astype(int) - expected).max() <= most, name


@pytest.mark.parametrize("codec", ["keep", "raw"])
def test_upright(codec: str, tree: Path, upright: dict[str, npt.NDArray[np.uint8] | None], tmp_path: Path) -> None:
    """NumPy arrays, PIL images and the sizes in the table follow the EXIF orientation as Pillow does."""
    recipe = Recipe(codec=codec, exif="apply", to_8_bit=None if codec == "keep" else "clip")
    summary = convert(imagefolder_source(tree), tmp_path / "pack.lmdb", recipe=recipe, on_error="skip")
    dataset = open_dataset(summary.destination, output="pil")
    expected = {name: upright[name] for name, _ in dataset.samples}
    assert differing(summary.destination, tree, expected) == []
    table = dataset.reader.table
    sizes = {name: (table.height[index], table.width[index], 3) for index, (name, _) in enumerate(dataset.samples)}
    assert sizes == {name: sizes[name] if pixels is None else pixels.shape for name, pixels in expected.items()}
    if codec == "keep":
        for index, (name, _) in enumerate(dataset.samples):
            if name.startswith("exif") and expected[name] is not None:
                assert np.array_equal(np.asarray(dataset[index][0]), expected[name]), name


def test_fail_names_the_first_bad_file(tree: Path, reference: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ImageError) as caught:
        convert(imagefolder_source(tree), tmp_path / "pack.lmdb", workers=2)
    assert caught.value.name == next(name for name, pixels in reference.items() if pixels is None)
    assert caught.value.reason
    assert not (tmp_path / "pack.lmdb").exists()


def test_no_readable_image_is_an_error(tmp_path: Path) -> None:
    for name, data in broken_images().items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(data)
    with pytest.raises(SourceError, match="none of its"):
        convert(imagefolder_source(tmp_path / "tree"), tmp_path / "pack.lmdb", on_error="skip")
    assert not (tmp_path / "pack.lmdb").exists()


def test_report_names_every_oddity(generated_tree: Path, tmp_path: Path) -> None:
    summary = convert(imagefolder_source(generated_tree), tmp_path / "pack.lmdb", on_error="skip")
    findings = summary.manifest.findings
    assert findings["EXIF-rotated"] == 14
    assert findings["CMYK"] == 1
    assert findings[CLIPPED] == 2
    assert findings["GIF named .png"] == findings["PNG named .jpg"] == findings["JPEG named .webp"] == 1
    assert findings["tiny (a side below 32 pixels)"] == 4
    assert findings["animated or many pages: the first is used"] == 1
    assert set(skipped(summary)) == set(broken_images())


def test_pillow_reads_the_odd_ones_and_refuses_the_broken() -> None:
    """Check what the tests above assume."""

    def readable(data: bytes) -> bool:
        try:
            Image.open(io.BytesIO(data)).convert("RGB")
        except Exception:
            return False
        return True

    assert all(map(readable, odd_images().values()))
    assert not any(map(readable, broken_images().values()))
