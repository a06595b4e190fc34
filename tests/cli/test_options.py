"""The command line's choices, written down there so that help is fast, are those of the library."""

from __future__ import annotations

import click

from packer._cli.convert import convert_command
from packer._codecs import CODECS
from packer._conversion.recipe import AUDITS, EXIF_POLICIES, Recipe
from packer._images.geometry import MAX_PIXELS
from packer._images.sizing import INTERPOLATIONS, MODES


def test_choices_and_defaults_are_the_librarys() -> None:
    options = {option.name: option for option in convert_command.params}
    for name, values in {
        "resize_mode": MODES,
        "interpolation": INTERPOLATIONS,
        "codec": tuple(CODECS),
        "exif": EXIF_POLICIES,
        "audit": AUDITS,
    }.items():
        choice = options[name].type
        assert isinstance(choice, click.Choice)
        assert tuple(choice.choices) == tuple(values)
    for name in ("exif", "audit"):
        assert options[name].default == getattr(Recipe(), name)
    assert options["max_pixels"].type.max == MAX_PIXELS  # type: ignore[attr-defined]
