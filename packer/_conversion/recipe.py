"""The recipe of a conversion, which determines the bytes of its samples, and the provenance of a pack."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from packer._account import Account
from packer._codecs import CODECS, MAX_PIXELS, QUALITY
from packer._conversion.options import ImageOptions, options_of, recorded_as
from packer._images.decode import fast_decoder
from packer._images.encode import jpeg_encoder
from packer._images.geometry import Box
from packer._images.jpeg_tiles import require_transcoder
from packer._images.resize import ResizeSpec, require_kernel
from packer._manifest import TILED
from packer._sources.base import Source
from packer._version import __version__
from packer.errors import OptionError, SourceError, option, printable

_OPTIONS = dict(options_of(ImageOptions))
_WORDS = {name: recorded_as(name, option) for name, option in _OPTIONS.items()}
"""The names of image options in the manifest."""

_LIBRARIES = {
    "turbojpeg": ("simplejpeg", "simplejpeg"),
    "pyturbojpeg": ("pyturbojpeg", "turbojpeg"),
    "opencv": ("opencv", "cv2"),
    "pillow": ("pillow", "PIL"),
    "torch": ("torch", "torch"),
}
"""The library's name in the manifest, and its module, which has the version: OpenCV has four distributions."""

_TYPES: dict[str, tuple[type, ...]] = {
    "quality": (int,),
    "max_pixels": (int,),
    "recode": (bool,),
    "tiles": (bool, type(None)),
    "size": (int,),
    "upscale": (bool,),
}
"""The types of settings without a list of choices, as JSON has them."""

_ENCODED = tuple(name for name, codec in CODECS.items() if codec.suffixes and name != "raw")


@dataclass(frozen=True)
class Recipe:
    """All settings that determine how the bytes of a file are converted to the bytes of a sample.

    Attributes
    ----------
    codec : str
        One of `packer._codecs.CODECS`.
    resize : ResizeSpec or None
    quality : int
        The quality of ``jpeg`` and ``webp``, 1 to 100.
    exif : {"ignore", "apply"}
    audit : {"structure", "decode"}
        How each image is checked. ``structure``: its type, header and size, and whether its end is missing. ``decode``:
        all its pixels are decoded as well.
    max_pixels : int
        Larger images are refused.
    tiles : bool, optional
        Whether JPEGs are stored tiled; JPEGs that keep their pixels are transcoded without loss. By default, only JPEGs
        that packer encodes are tiled, which takes almost no time.
    recode : bool
        Whether files that already have the codec's type and keep their size are re-encoded.
    to_8_bit : {"clip", "type", "file"}, optional
        How an image with more than 8 bits per channel, or with bands that RGB lacks, is converted to 8-bit RGB; see
        `packer._images.depth.decode_to_8_bit`. By default such an image is refused if its pixels are encoded.

    Raises
    ------
    ValueError
        If a field has an invalid value.
    OptionError
        If the fields contradict each other.
    """

    codec: str = "keep"
    resize: ResizeSpec | None = None
    quality: int = QUALITY
    exif: str = ImageOptions.exif
    audit: str = ImageOptions.audit
    max_pixels: int = MAX_PIXELS
    tiles: bool | None = None
    recode: bool = False
    to_8_bit: str | None = None

    def __post_init__(self) -> None:
        for name in ("codec", "exif", "audit", "to_8_bit"):
            value, choices = getattr(self, name), _OPTIONS[name].choices
            if value not in choices and (name, value) != ("to_8_bit", None):
                raise OptionError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if not 1 <= self.quality <= 100:
            raise OptionError(f"quality must be 1 to 100, not {self.quality}")
        if self.codec == "keep" and self.resize is not None:
            raise OptionError(
                f"{option('codec', 'keep')} stores the files' own bytes, which cannot be resized; use jpeg, "
                "png, webp, bmp or raw"
            )
        if self.to_8_bit is not None and self.codec == "keep":
            raise OptionError(
                f"{option('to_8_bit')} applies only to images that are encoded, but {option('codec', 'keep')} stores "
                "the files' own bytes"
            )
        if self.tiles and self.codec not in ("keep", "jpeg"):
            raise OptionError(f"{option('tiles', True)} applies only to JPEGs, not to {option('codec', self.codec)}")
        if self.recode and self.codec not in _ENCODED:
            raise OptionError(
                f"{option('recode', True)} encodes all files again, as {', '.join(_ENCODED)}; "
                f"{option('codec', self.codec)} does not encode"
            )

    def settings(self) -> dict[str, Any]:
        """Return the fields for the manifest. A field that is newer than its schema is left out if it has no effect."""
        values = asdict(self).items()
        return {_WORDS[name]: value for name, value in values if value or not _OPTIONS[name].younger}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Recipe:
        """Return the recipe whose `settings` a manifest recorded; raise ValueError if they are invalid."""
        try:
            names = {word: name for name, word in _WORDS.items()}
            values = {names.get(word, word): value for word, value in settings.items()}
            resize = values.get("resize")
            if resize is not None:
                values["resize"] = ResizeSpec(**resize)
            for name, value in (values | (resize or {})).items():
                if name in _TYPES and type(value) not in _TYPES[name]:
                    raise ValueError(f"invalid settings of a conversion: {name} is {value!r}")
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"invalid settings of a conversion: {error}") from error

    def carries(self, codec: str, exif: str) -> bool:
        """Tell whether samples of a pack are carried over, that is, stored unchanged or tiled without loss.

        `codec` and `exif` are settings of that pack. Its samples are not carried over if they must be re-encoded, or if
        they are unchanged files whose EXIF orientation was ignored and must now be applied.
        """
        return self.codec == "keep" and not (codec == "keep" and self.exif == "apply" != exif)

    def load(self) -> None:
        """Import the required libraries, so that the first image takes no longer than the others."""
        if self.codec != "keep" or self.audit == "decode":
            fast_decoder()
        if self.resize is not None:
            require_kernel()
        if self.tiles:
            require_transcoder()

    def versions(self) -> dict[str, str]:
        """Return the versions of the libraries that affect the bytes."""
        if self.codec == "keep":
            return {}
        used = {"pillow", fast_decoder()[0]}
        if self.resize is not None and importlib.util.find_spec("torch") is not None:  # otherwise packer's C resizes
            used.add("torch")
        if self.codec == "jpeg" and jpeg_encoder()[0] in _LIBRARIES:  # otherwise packer's own C encodes
            used.add(jpeg_encoder()[0])
        modules = sorted(_LIBRARIES[library] for library in used)
        return {name: _version_of(module) for name, module in modules}


def _version_of(module: str) -> str:
    """Return the version of a library. torch is not imported for this, because that takes seconds."""
    found = importlib.util.find_spec(module)
    if module == "torch" and module not in sys.modules and found is not None and found.origin is not None:
        with contextlib.suppress(OSError, KeyError):  # some builds of torch have the version elsewhere
            return str(runpy.run_path(str(Path(found.origin).with_name("version.py")))["__version__"])
    return str(importlib.import_module(module).__version__)


class Change(NamedTuple):
    """The geometric change of an image, which also applies to all field values that refer to its pixels.

    Attributes
    ----------
    size : (height, width)
        The size of the image before the change, to which the field values refer.
    orientation : int
        The EXIF orientation, 1 to 8, by which the image is rotated upright.
    resize : ResizeSpec, optional
        The resizing of the upright image; None without resizing.
    exif : {"ignore", "apply"}
        Whether the EXIF orientations of image fields are applied.
    """

    size: tuple[int, int]
    orientation: int = 1
    resize: ResizeSpec | None = None
    exif: str = ImageOptions.exif

    @property
    def upright(self) -> tuple[int, int]:
        """The size after the rotation."""
        height, width = self.size
        return (width, height) if self.orientation >= 5 else (height, width)

    @property
    def box(self) -> Box | None:
        """How the upright image is resized, as a record of the dtype `CROP`; None if resizing changes nothing."""
        if self.resize is None or not self.resize.changes(*self.upright):
            return None
        return self.resize.box(*self.upright)


@dataclass(frozen=True)
class Provenance:
    """The source and the settings from which a pack's samples were made, as the manifest records them.

    If samples are carried over from another pack, they keep the provenance of that pack.

    Attributes
    ----------
    codec : str
    settings, source : mapping
        The same as in the manifest.
    versions : mapping
        Versions of the libraries that make the samples' bytes, or that made the bytes of carried-over samples.
    findings : mapping
        For carried-over samples, the counts of findings from the audit of the earlier conversion.
    skipped : sequence of dict
        Images that an earlier conversion left out.
    account : Account, optional
        The images, labels and fields that were lost: those of the source, and those of the packs from which the source
        was made. None if losses were not recorded.
    """

    codec: str
    settings: Mapping[str, Any]
    source: Mapping[str, Any]
    versions: Mapping[str, str]
    findings: Mapping[str, int] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, str]] = ()
    account: Account | None = None


def provenance(source: Source, recipe: Recipe) -> Provenance:
    """Return the provenance of the pack made from `source` with `recipe`.

    Raises
    ------
    SourceError
        If samples of a pack must be tiled without loss, but are not JPEGs.
    """
    origin = source.origin
    skipped = [*(() if origin is None else origin.skipped), *source.doubts]
    account = source.complete_account()
    if origin is not None:
        account = Account.united([origin.recorded_account(), account])
    if origin is None or not recipe.carries(origin.codec, origin.exif):
        versions = {"packer": __version__, **recipe.versions()}
        made_of = recipe.settings(), source.describe(), versions
        return Provenance(recipe.codec, *made_of, skipped=skipped, account=account)
    settings, findings = origin.settings, origin.findings
    if recipe.tiles:
        if origin.codec not in ("keep", "jpeg"):
            raise SourceError(
                f"{printable(source.root)}: its samples are stored as {origin.codec}, but only JPEGs can have tiles. "
                f"Pass {option('codec', 'jpeg')}, or leave out {option('tiles', True)}."
            )
        settings = {**settings, "tiles": True}
        findings = {name: number for name, number in findings.items() if TILED not in name}  # recounted
    return Provenance(origin.codec, settings, origin.source, origin.versions, findings, skipped, account)
