"""How a pack's samples were made, in a person's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packer._sample import LOSSY

__all__ = ["settings_in_words"]

_STORED = {"keep": "the files' own bytes", "raw": "uint8 RGB pixels"}
_RESIZED = {
    "short": "the shorter side resized to {size} pixels",
    "long": "the longer side resized to {size} pixels",
    "exact": "resized to {size} x {size} pixels",
    "crop": "resized and cropped to {size} x {size} pixels",
    "pad": "resized and padded to {size} x {size} pixels",
}
_TOLD = {
    ("exif", "ignore"): "EXIF orientation ignored, as ImageFolder ignores it",
    ("exif", "apply"): "EXIF orientation applied",
    ("check", "structure"): "images were checked by type, header, size and end",
    ("check", "decode"): "images were checked by decoding every pixel",
    ("recode", True): "every file encoded anew",
    ("to_8_bit", "clip"): "more than 8 bits a channel cut to 8 as Pillow cuts them",
    ("to_8_bit", "type"): "more than 8 bits a channel scaled to 8 by the range of the type",
    ("to_8_bit", "file"): "more than 8 bits a channel scaled to 8 by the lowest and the highest value of each file",
}


def settings_in_words(settings: Mapping[str, Any], codec: str) -> list[str]:
    """Return what a manifest records of how samples of `codec` were made; what is not known to this packer, as it is."""
    stored = [_STORED.get(codec, codec.upper())]
    if codec in LOSSY and "quality" in settings:
        stored[0] += f" of quality {settings['quality']}"
    for name, value in settings.items():
        words = _told(name, value, codec)
        stored += [f"{name} {value}"] if words is None else [words] if words else []
    return stored


def _told(name: str, value: Any, codec: str) -> str | None:
    """Return a setting in words: empty where they are said elsewhere, None where the setting is not known."""
    from packer._images.geometry import MAX_PIXELS

    if name in ("quality", "tiles") or (name, value) in (("codec", codec), ("max_pixels", MAX_PIXELS)):
        return ""
    if name == "resize":
        return _resized(value)
    if name == "max_pixels" and isinstance(value, int):
        return f"images have {value:,} pixels or fewer"
    return _TOLD.get((name, value)) if isinstance(value, str | bool) else None


def _resized(value: Any) -> str | None:
    if value is None:
        return ""
    if not isinstance(value, dict) or not {"size", "mode", "upscale", "interpolation"} <= set(value):
        return None
    mode = _RESIZED.get(value["mode"]) if isinstance(value["mode"], str) else None
    enlarged = "enlarged too" if value["upscale"] is True else "not enlarged"
    return mode and f"{mode.format(size=value['size'])} ({value['interpolation']}; smaller images {enlarged})"
