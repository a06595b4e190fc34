"""A list of classes: the id of each, and classes that it lacks."""

from __future__ import annotations

from collections.abc import Sequence

from packer.errors import SourceError, printable

__all__ = ["class_ids", "unknown_classes"]


def unknown_classes(unknown: Sequence[str], what: str = "classes") -> str:
    """Return the end of a message on classes that a given class list lacks; printable already."""
    shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    are = "is" if len(unknown) == 1 else "are"
    return (
        f"{len(unknown)} of its {what} {are} unknown to the given class list: {shown}. "
        "Correct them, or leave out --classes-from"
    )


def class_ids(classes: Sequence[str]) -> dict[str, int]:
    """Return the id of each class, its place in a list of classes; SourceError where a name is listed twice."""
    ids: dict[str, int] = {}
    for label, name in enumerate(classes):
        if ids.setdefault(name, label) != label:
            raise SourceError(f"the class list names {printable(name)} twice, so that its label is not known")
    return ids
