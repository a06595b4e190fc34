"""Read the samples of a listing and of a pack, for tests of containers."""

from __future__ import annotations

from pathlib import Path

from packer._containers import ForeignFiles, Listing, Ranges
from packer._formats import open_pack


def images(listing: Listing) -> dict[str, bytes]:
    """Return the image of each sample of a listing, by name."""
    return dict(zip(listing.names, images_of(listing), strict=True))


def images_of(listing: Listing) -> list[bytes]:
    """Return the images of a listing."""
    return values(listing, listing.images)


def values(listing: Listing, ranges: Ranges) -> list[bytes]:
    """Return the values at ranges of a listing, none of which is missing."""
    files = ForeignFiles(listing.container.root, listing.container.files, packed=listing.packed)
    rows = zip(ranges.file.tolist(), ranges.offset.tolist(), ranges.size.tolist(), strict=True)
    return [
        listing.copied[offset : offset + size].tobytes() if file < 0 else files.read(file, offset, size)
        for file, offset, size in rows
    ]


def labels(listing: Listing) -> dict[str, str | None]:
    """Return the name of each sample's class, by the sample's name."""
    ids = listing.labels.tolist()
    return {name: listing.classes[at] if at >= 0 else None for name, at in zip(listing.names, ids, strict=True)}


def stored(path: Path) -> dict[str, bytes]:
    """Return the image of each sample of a pack, as it is stored, by name."""
    with open_pack(path) as reader:
        return dict(zip(reader.names, map(bytes, reader.read_many(range(len(reader.names)))), strict=True))
