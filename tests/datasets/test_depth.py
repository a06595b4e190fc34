"""A dataset warns once about images with more bits or bands than it returns, and names the mode that returns all."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from collections.abc import Callable
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import ConcatDataset, DataLoader

import packer
from packer._datasets.image_dataset import remark
from packer._images.probe import CLIPPED
from packer._manifest import Manifest
from tests.command import python
from tests.images.samples import encoded, photo
from tests.images.tiffs import GREY, RGB, noise, tiff

FILES = {
    "a/0.png": encoded(photo(40, 53), "PNG"),
    "a/1.png": encoded(noise(1, "u2", (40, 53))[..., 0], "PNG"),
    "b/2.tif": tiff(noise(1, "f4", (40, 53)), GREY),
    "b/3.tif": tiff(noise(4, "u1", (40, 53)), RGB, (0,)),
}
SAID = r"2 images have 16 bits or floats per pixel, which turn white or black as 8-bit RGB; 1 image has more bands"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("deep") / "tree"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def _kept(tree: Path, work: Path) -> Path:
    packer.convert(tree, work / "kept.lmdb")
    return work / "kept.lmdb"


def _of_parts(tree: Path, work: Path) -> Path:
    packer.convert(tree, work / "parts.h5", parts=2)
    return work / "parts.h5"


def _indexed(tree: Path, work: Path) -> Path:
    packer.index(tree, work / "tree.index")
    return work / "tree.index"


def _in_place(tree: Path, work: Path) -> Path:
    return tree


KINDS: dict[str, Callable[[Path, Path], Path]] = {
    "kept": _kept,
    "parts": _of_parts,
    "index": _indexed,
    "in place": _in_place,
}


@pytest.fixture(params=KINDS)
def opened_from(request: pytest.FixtureRequest, tree: Path, tmp_path: Path) -> Path:
    return KINDS[request.param](tree, tmp_path)


def remarks(path: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with packer.open_dataset(path, **options) as dataset:
            for index in range(len(dataset)):
                _ = dataset[index]
            copied = pickle.loads(pickle.dumps(dataset))
            _ = copied[0], copy.deepcopy(dataset)[0], dataset.select([0, 1])[1], dataset[1:][0]
            copied.close()
    return [str(warning.message) for warning in caught]


def test_a_dataset_says_it_once(opened_from: Path, tree: Path) -> None:
    (told,) = remarks(opened_from)
    assert told.startswith(f"{tree if opened_from.suffix == '.index' else opened_from}: ")
    assert "mode='unchanged' returns the numbers" in told
    with pytest.warns(UserWarning, match=SAID):
        packer.open_dataset(opened_from).close()


def test_nothing_is_said_where_all_is_read(opened_from: Path) -> None:
    assert remarks(opened_from, mode="unchanged") == []
    assert remarks(opened_from, output="bytes") == []
    assert remarks(opened_from, fields=("label", "name")) == []
    with packer.open_dataset(opened_from, mode="unchanged", output="numpy") as dataset:
        assert [image.shape[2] for image, _ in dataset] == [3, 1, 1, 4]
        assert np.array_equal(dataset[3][0], noise(4, "u1", (40, 53)))
        assert np.array_equal(dataset[1][0], noise(1, "u2", (40, 53)))


def test_grey_is_refused_by_itself(opened_from: Path) -> None:
    """Reading a deep image with `mode="L"` raises an error, so the warning mentions only the bands."""
    with pytest.warns(UserWarning, match=r"1 image has more bands \(channels\) than the three of RGB") as caught:
        dataset = packer.open_dataset(opened_from, mode="L")
    (warning,) = caught
    assert "16 bits" not in str(warning.message)
    with dataset:
        for index in (1, 2):
            with pytest.raises(packer.ImageError, match="mode='unchanged'"):
                _ = dataset[index]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # fork, Python >= 3.12
def test_workers_and_loaders_do_not_say_it_again(tree: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A process that unpickles the datasets is what a spawned worker is."""
    with pytest.warns(UserWarning, match=SAID) as caught:
        datasets = [packer.open_dataset(path, transform=np.asarray) for path in (_kept(tree, tmp_path), tree)]
    assert len(caught) == 2
    joined = ConcatDataset(datasets)
    (tmp_path / "joined").write_bytes(pickle.dumps(joined))
    code = "import pickle, sys; print(len(list(pickle.load(open(sys.argv[1], 'rb')))))"
    result = python(code, tmp_path / "joined")
    assert (result.stdout, "16 bits" in result.stderr) == ("8\n", False)
    method = get_all_start_methods()[0]
    for _ in DataLoader(joined, 2, num_workers=1, multiprocessing_context=method, collate_fn=list):
        pass
    for dataset in datasets:
        dataset.close()
    assert "16 bits" not in capfd.readouterr().err


def test_ordinary_images_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "0.png").write_bytes(FILES["a/0.png"])
    (tmp_path / "tree" / "a" / "alpha.png").write_bytes(encoded(noise(4, "u1", (40, 53)), "PNG"))
    assert remarks(tmp_path / "tree") == []


@pytest.mark.parametrize("how", ["clip", "type", "file"])
def test_what_was_asked_for_is_not_said_again(how: str, tree: Path, tmp_path: Path) -> None:
    packer.convert(tree, tmp_path / "a.lmdb", codec="png", to_8_bit=how)
    assert remarks(tmp_path / "a.lmdb") == []


def test_a_pack_of_an_earlier_packer_says_what_it_stored() -> None:
    """It stored such images as white and black, and no mode restores their values."""
    earlier = Manifest("lmdb", 3, ["a"], codec="jpeg", findings={CLIPPED: 2})
    assert "became white or black when they were stored as 8-bit RGB. Convert the files again" in str(
        remark(earlier, "RGB")
    )
    assert remark(dataclasses.replace(earlier, findings={}), "RGB") is None
    assert "1 image has 16 bits" in str(
        remark(dataclasses.replace(earlier, codec="keep", findings={CLIPPED: 1}), "RGB")
    )
