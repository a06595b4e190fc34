"""Tests that every container must pass, as a base class of test classes."""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import packer
from packer._containers import CONTAINERS, Container, Listing, find_container, list_samples
from packer.errors import OptionError, PackerError, SourceError
from packer.testing.photos import draw_imagefolder

_CHANGES = 300


class ContainerConformance:
    """Tests that a container's samples can be read in all ways, and that errors about damaged files name the file.

    Attributes
    ----------
    container : str
        The name of the container's descriptor.
    """

    container: str

    def write(self, path: Path, samples: Sequence[tuple[int, bytes]]) -> None:
        """Write a container file with these samples, each a label and the bytes of a JPEG."""
        raise NotImplementedError

    @pytest.fixture
    def samples(self, tmp_path: Path) -> list[tuple[int, bytes]]:
        """Labels and JPEGs, not sorted by label."""
        draw_imagefolder(tmp_path / "drawn", classes=3, per_class=2, size=(16, 24))
        drawn = sorted((tmp_path / "drawn").rglob("*.jpg"), key=lambda path: path.name)
        return [(int(path.parent.name[-2:]), path.read_bytes()) for path in drawn]

    @pytest.fixture
    def file(self, tmp_path: Path, samples: list[tuple[int, bytes]]) -> Path:
        """The path of a container file with `samples`; there is no other file in its directory."""
        path = tmp_path / "files" / f"one{CONTAINERS[self.container].suffixes[0]}"
        path.parent.mkdir()
        self.write(path, samples)
        return path

    def opened(self, *paths: Path) -> Container:
        """Open the container that packer finds at these paths."""
        found = find_container(paths)
        assert found is not None
        assert found[0] is CONTAINERS[self.container].container()
        return found[0].open(found[1], {})

    def test_the_descriptor_fits_the_class(self) -> None:
        row = CONTAINERS[self.container]
        kind = row.container()
        assert issubclass(kind, Container)
        assert kind.kind == row.name
        assert set(kind.suffixes) <= set(row.suffixes)

    def test_a_file_gives_its_samples(self, file: Path, samples: list[tuple[int, bytes]]) -> None:
        listing = list_samples(self.opened(file))
        assert listing.labels.tolist() == [label for label, _ in samples]
        assert _images(listing) == [image for _, image in samples]
        assert len(set(listing.names)) == len(samples)

    def test_a_directory_and_several_files_give_all_samples(self, file: Path, samples: list[tuple[int, bytes]]) -> None:
        other = file.with_name(file.name.replace("one", "two"))
        self.write(other, samples[::-1])
        images = [image for _, image in samples]
        for paths in ((file.parent,), (file, other)):
            assert _images(list_samples(self.opened(*paths))) == [*images, *images[::-1]]

    def test_a_listing_is_the_same_each_time_and_after_pickling(self, file: Path) -> None:
        container = self.opened(file)
        listings = [list_samples(one) for one in (container, self.opened(file), pickle.loads(pickle.dumps(container)))]
        for listing in listings[1:]:
            assert list(listing.names) == list(listings[0].names)
            assert _images(listing) == _images(listings[0])

    def test_an_index_a_conversion_and_a_dataset_are_the_same(self, file: Path, tmp_path: Path) -> None:
        packer.index(file, tmp_path / "made.index")
        packer.convert(file, tmp_path / "made.lmdb")
        shown = [packer.open_dataset(path) for path in (tmp_path / "made.index", tmp_path / "made.lmdb", file)]
        assert shown[0].samples == shown[1].samples == shown[2].samples
        for index in range(len(shown[0])):
            first, *others = (np.asarray(dataset[index][0]) for dataset in shown)
            assert all(np.array_equal(first, other) for other in others)

    def test_a_file_that_changed_after_indexing_is_refused(self, file: Path, tmp_path: Path) -> None:
        packer.index(file, tmp_path / "made.index")
        os.utime(file, (10, 10))
        with pytest.raises(PackerError, match="changed since it was indexed"):
            packer.open_dataset(tmp_path / "made.index")[0]

    def test_a_key_that_is_not_there_is_refused(self, file: Path) -> None:
        with pytest.raises((SourceError, OptionError)):
            list_samples(type(self.opened(file)).open([file], {"image": "no such key"}))

    def test_a_file_cut_short_is_refused_or_has_fewer_samples(
        self, file: Path, samples: list[tuple[int, bytes]]
    ) -> None:
        whole, refused = file.read_bytes(), 0
        for size in range(len(whole) - 1, 0, -(1 + len(whole) // _CHANGES)):
            os.truncate(file, size)
            images = self._images_or_refused(file)
            refused += images is None
            assert images is None or images == [image for _, image in samples][: len(images)]
        assert refused

    def test_a_changed_file_is_refused_or_its_ranges_lie_in_it(self, file: Path) -> None:
        whole, rng = file.read_bytes(), random.Random(0)
        for _ in range(_CHANGES):
            changed = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            file.write_bytes(changed)
            self._images_or_refused(file)

    def test_files_of_others_are_not_taken(self, tmp_path: Path) -> None:
        draw_imagefolder(tmp_path / "tree", classes=2, per_class=1, size=(16, 16))
        shutil.copy(next((tmp_path / "tree").rglob("*.jpg")), tmp_path / "image.jpg")
        (tmp_path / "empty").touch()
        for path in (tmp_path / "tree", tmp_path / "image.jpg", tmp_path / "empty"):
            found = find_container([path])
            assert found is None or found[0].kind != self.container

    def _images_or_refused(self, file: Path) -> list[bytes] | None:
        """Return the images of a file; None if the file is refused with an error that names it."""
        try:
            found = find_container([file])
            return None if found is None else _images(list_samples(found[0].open(found[1], {})))
        except (SourceError, OptionError) as error:
            if file.name not in str(error):
                raise AssertionError(f"the error does not name the file: {error}") from error
            return None


def _images(listing: Listing) -> list[bytes]:
    """Return the bytes of the images, read from the container's files."""
    container, ranges = listing.container, listing.images
    files = [(container.root / name).read_bytes() for name in container.files]
    images = []
    for file, offset, size in zip(ranges.file.tolist(), ranges.offset.tolist(), ranges.size.tolist(), strict=True):
        data = listing.copied if file < 0 else files[file] if file < len(files) else None
        if data is None:  # the image is in a compressed range
            images.append(listing.packed.read(container.opened(listing.packed.file(file)), file, offset, size))
            continue
        assert 0 <= offset <= offset + size <= len(data)
        images.append(bytes(data[offset : offset + size]))
    return images
