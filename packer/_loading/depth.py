"""What the images of a pack have that a dataset does not show: more than 8 bits a channel, more bands than RGB."""

from __future__ import annotations

from collections.abc import Mapping

from packer._formats import Reader
from packer._formats.index import IndexReader
from packer._images.probe import CLIPPED, bands_not_shown
from packer._manifest import Manifest
from packer.errors import printable, warn

__all__ = ["LostNumbersWarning", "remark", "warn_of_lost_numbers"]


class LostNumbersWarning(UserWarning):
    """Images have more bits or bands than a dataset shows."""


def warn_of_lost_numbers(reader: Reader, mode: str) -> None:
    """Warn where the findings of a pack name images that turn white or black in a mode, or lose bands."""
    told = remark(reader.manifest, mode)
    if told is not None:
        warn(
            f"{printable(reader.base if isinstance(reader, IndexReader) else reader.place.given)}: {told}",
            LostNumbersWarning,
        )


def remark(manifest: Manifest, mode: str) -> str | None:
    """Say what images of a pack have that a mode does not show; None where it shows all."""
    clipped = manifest.findings.get(CLIPPED, 0) if mode == "RGB" else 0
    bands = _with_more_bands(manifest.findings) if mode != "unchanged" else 0
    if manifest.codec != "keep":
        if not clipped:
            return None
        return (  # a packer stored them that did not refuse them yet
            f"{_images(clipped)} 16 bits or floats a pixel, stored as 8-bit RGB, white or black. Convert the files "
            "again, with --to-8-bit type or --to-8-bit file"
        )
    said = []
    if clipped:
        said.append(f"{_images(clipped)} 16 bits or floats a pixel, which turn white or black as 8-bit RGB")
    if bands:
        said.append(f"{_images(bands)} more bands (channels) than are shown")
    if not said:
        return None
    return f"{'; '.join(said)}, as with ImageFolder. mode='unchanged' gives the numbers as they are stored"


def _with_more_bands(findings: Mapping[str, int]) -> int:
    return sum(count for finding, count in findings.items() if bands_not_shown(finding))


def _images(count: int) -> str:
    return "1 image has" if count == 1 else f"{count:,} images have"
