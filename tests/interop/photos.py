"""The photos that go through tools and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from packer.testing.photos import draw_imagefolder


class Photo(NamedTuple):
    """A photo as it goes in and comes out.

    Attributes
    ----------
    data : bytes
        The file.
    label : int, optional
    name : str, optional
        Its path below the directory that has a folder for each class.
    path : Path, optional
        Where it lies.
    """

    data: bytes
    label: int | None
    name: str | None = None
    path: Path | None = None


Writer = Callable[[Path, Sequence[Photo]], Path]
Reader = Callable[[Path], Sequence[Photo]]


def draw(root: Path, count: int) -> list[Photo]:
    """Draw a tree of photos of four classes; return them in ImageFolder's order."""
    draw_imagefolder(root, classes=4, per_class=-(-count // 4), size=(96, 128))
    for path in [*root.glob("*/*")]:  # as in ImageNet, no two files have one name
        path.rename(path.with_name(f"{path.parent.name}_{path.name}"))
    return of_tree(root)


def of_tree(root: Path) -> list[Photo]:
    """Return the photos of a tree in ImageFolder's order."""
    classes = sorted(path.name for path in root.iterdir() if path.is_dir())
    return [
        Photo(path.read_bytes(), label, path.relative_to(root).as_posix(), path)
        for label, name in enumerate(classes)
        for path in sorted((root / name).iterdir())
    ]


def difference(found: Sequence[Photo], expected: Sequence[Photo]) -> str:
    """Say what differs between photos that came out and those that went in; empty where nothing does."""
    if len(found) != len(expected):
        return f"{len(found)} samples, and not {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        for what in ("name", "label", "data"):
            value, wanted = getattr(one, what), getattr(other, what)
            if value is not None and value != wanted:
                shown = f"{len(value)} and {len(wanted)} bytes" if what == "data" else f"{value!r} and {wanted!r}"
                return f"sample {number}: {what} differs: {shown}"
    return ""
